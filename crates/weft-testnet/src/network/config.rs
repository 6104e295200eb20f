//! Size of a network, and time limits of its start.

use std::time::Duration;

use weft_cli::print;

use super::program::Program;
use crate::stop::Stop;

/// Size of a network, and time limits of its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory authorities.
    pub authorities: usize,
    /// Relays that take the first hop of circuits, or the middle when a target is the guard.
    pub guards: usize,
    /// Relays that let streams leave to loopback.
    pub exits: usize,
    /// C tor clients.
    pub clients: usize,
    /// The program of guards and exits; `None`: C tor.
    pub relays: Option<Program>,
    /// Seconds from one consensus to the next, once there is one; C tor's least is 10. Every node
    /// fetches each, so that many nodes want a longer time.
    pub voting_interval: u32,
    /// Longest duration of one wait during the start.
    pub patience: Duration,
    /// C tor nodes and targets log at `info` instead of `notice`; so if `WEFT_LAB_VERBOSE` is set in
    /// the environment, by default.
    pub verbose: bool,
    /// The request to give up while waiting.
    pub stop: Stop,
    /// Where the lines about progress go.
    pub progress: fn(&str),
}

impl Default for Config {
    fn default() -> Config {
        Config {
            authorities: 3,
            guards: 2,
            exits: 2,
            clients: 2,
            relays: None,
            voting_interval: 10,
            patience: Duration::from_secs(180),
            verbose: std::env::var_os("WEFT_LAB_VERBOSE").is_some(),
            stop: Stop::default(),
            progress: |line| print::note(line),
        }
    }
}
