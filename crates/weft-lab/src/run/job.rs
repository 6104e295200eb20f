//! A job of a scenario, and what it measures.

use serde::{Deserialize, Serialize};
use weft_virtual::Results;

/// One repetition of one arm. Jobs are ordered by repetition, then as the scenario lists its arms.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Job {
    /// From 1.
    pub repetition: u32,
    /// The arm's place in the scenario, from 0.
    pub arm_number: usize,
    /// Its name.
    pub arm: String,
}

/// Measurements of a job.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Number of clients.
    pub(crate) clients: usize,
    pub(crate) results: Results,
}
