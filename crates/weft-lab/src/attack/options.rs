//! Settings of a measurement.

use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use weft_testnet::process::raise_file_limit;

use crate::machine::Cpus;
use crate::relay::program::Program;

/// Settings of a measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// Program to attack.
    pub program: Program,
    /// Length of a measurement, without and with each attack.
    pub seconds: Duration,
    /// Time that the honest load, and then the attack, runs before it is measured.
    pub warm_up: Duration,
    /// Longest time that the target may take afterwards to free what it held.
    pub settle: Duration,
    /// Memory that it may hold more than before when it has settled, bytes: what an allocator keeps.
    pub memory_left: u64,
    /// Measurements of each attack.
    pub repetitions: u32,
    /// The most that attackers send, 10⁶ bits a second.
    pub mbits: f64,
    /// Load of all honest circuits together, 10⁶ bits of payload a second.
    pub honest_mbits: f64,
    /// Longest time that an attack runs before it is measured, however long it needs to build up.
    pub max_lead: Duration,
    /// Connections that an attack holds at a time at most ([`max_connections`]).
    pub max_connections: usize,
    /// Longest time that the target may take to start, or to answer while nobody attacks it.
    pub patience: Duration,
    /// True if an attack goes on, for `patience` at most, until an honest request is granted. It
    /// tests that this is possible, not how often.
    pub until_granted: bool,
    /// Keys and contents are functions of this.
    pub seed: u64,
    /// Processors for the target; empty: all.
    pub target_cpus: Vec<usize>,
    /// Processors for the generator; empty: all.
    pub generator_cpus: Vec<usize>,
}

impl Options {
    /// Gives the target as many processors as it has threads and the generator the others. Where there
    /// is one alone, both use it.
    pub(crate) fn part_cpus(&mut self, threads: usize, cpus: &Cpus) {
        let all = cpus.cores.len();
        let targets = threads.clamp(1, all.saturating_sub(1).max(1));
        if all > 1 {
            let (target, generator) = cpus.cores.split_at(targets);
            self.target_cpus = target.to_vec();
            self.generator_cpus = generator.to_vec();
        }
    }
}

/// Connections that this process may hold for an attack: every one takes a descriptor here, and perhaps
/// another at a server of ours.
pub fn max_connections() -> usize {
    raise_file_limit();
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    usize::try_from(soft / 2)
        .unwrap_or(usize::MAX)
        .saturating_sub(200)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_has_the_processors_that_the_target_has_not() {
        for (cores, threads, target, generator) in [
            (1, 1, vec![], vec![]),
            (2, 1, vec![0], vec![1]),
            (2, 4, vec![0], vec![1]),
            (4, 2, vec![0, 1], vec![2, 3]),
        ] {
            let mut options = Options {
                program: Program::Tor(None),
                seconds: Duration::ZERO,
                warm_up: Duration::ZERO,
                settle: Duration::ZERO,
                memory_left: 0,
                repetitions: 1,
                mbits: 1.0,
                honest_mbits: 1.0,
                max_lead: Duration::ZERO,
                max_connections: 1,
                patience: Duration::ZERO,
                until_granted: false,
                seed: 0,
                target_cpus: Vec::new(),
                generator_cpus: Vec::new(),
            };
            let cores = (0..cores).collect();
            options.part_cpus(threads, &Cpus { cores });
            assert_eq!(
                (options.target_cpus, options.generator_cpus),
                (target, generator)
            );
        }
    }
}
