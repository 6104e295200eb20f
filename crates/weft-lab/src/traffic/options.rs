//! The settings of `weft lab traffic`.

use std::path::PathBuf;
use std::time::Duration;

use super::mix::Users;
use super::way::Way;

/// Settings of the experiment.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) users: Vec<Users>,
    pub(super) way: Way,
    pub(super) duration: Duration,
    pub(super) spread: Duration,
    pub(super) repetitions: u32,
    pub(super) seed: u64,
    pub(super) patience: Duration,
    pub(super) weft: PathBuf,
}
