//! Which directory to ask next.

use std::net::SocketAddr;
use std::time::Duration;

use rand::{Rng, RngExt as _};

use super::options::{ClientOptions, DirServer};
use super::streams::{DirOutcome, DirSource};

/// Directories tried one after the other for one request before it counts as failed.
const CANDIDATES: usize = 3;
/// A directory that failed is not asked for this long, then twice as long, and so on.
const FIRST_REST: Duration = Duration::from_secs(60);
/// The longest such time.
const LONGEST_REST: Duration = Duration::from_secs(3600);
/// Both in a testing network.
const REST_TESTING: Duration = Duration::from_secs(2);
/// Failures of guards in a row after which an authority or fallback is asked.
const GUARD_FAILURES: u32 = 3;

/// What is known of one directory.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// Failures in a row.
    failures: u32,
    /// Not asked before this monotonic time, if another can be.
    delayed_until: Duration,
}

/// One that may be asked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    /// Its place among the servers; `None`: a guard.
    pub(super) index: Option<usize>,
    /// The directory.
    pub(super) source: DirSource,
}

impl Candidate {
    /// What a request names as its host, if it is known.
    pub(super) fn host(&self) -> Option<SocketAddr> {
        match &self.source {
            DirSource::Server(server) => server.dir_addr.or(server.or_addrs.first().copied()),
            DirSource::Guard => None,
        }
    }

    /// The name for log lines.
    pub(super) fn name(&self) -> &str {
        match &self.source {
            DirSource::Server(server) => &server.nickname,
            DirSource::Guard => "a guard",
        }
    }
}

/// The directories that can be asked, and how they have been.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources {
    /// From the torrc.
    servers: Vec<DirServer>,
    /// In the same order.
    marks: Vec<Mark>,
    /// Failures of guards in a row.
    guard_failures: u32,
    /// Guards are bridges, and nothing else is asked.
    by_bridges: bool,
    /// TestingTorNetwork.
    testing: bool,
}

impl Sources {
    /// The directories of these settings, of which nothing is known yet.
    pub(super) fn of(options: &ClientOptions) -> Self {
        Self {
            by_bridges: options.by_bridges,
            ..Self::new(options.servers.clone(), options.testing)
        }
    }

    /// These servers, of which nothing is known yet.
    fn new(servers: Vec<DirServer>, testing: bool) -> Self {
        let marks = vec![Mark::default(); servers.len()];
        Self {
            by_bridges: false,
            servers,
            marks,
            guard_failures: 0,
            testing,
        }
    }

    /// The directories to ask, in this order, each if the one before cannot be reached. `guards`: whether
    /// there is a network to choose guards from.
    pub(super) fn candidates(
        &mut self,
        guards: bool,
        monotonic: Duration,
        rng: &mut impl Rng,
    ) -> Vec<Candidate> {
        if self.by_bridges || guards && self.guard_failures < GUARD_FAILURES {
            return vec![Candidate {
                index: None,
                source: DirSource::Guard,
            }];
        }
        // The next request is for a guard again: servers are many clients' last resort.
        self.guard_failures = 0;
        let mut left: Vec<usize> = (0..self.servers.len()).collect();
        let mut chosen = Vec::new();
        while chosen.len() < CANDIDATES {
            let Some(index) = self.pick(&left, monotonic, rng) else {
                break;
            };
            left.retain(|other| *other != index);
            if let Some(server) = self.servers.get(index) {
                chosen.push(Candidate {
                    index: Some(index),
                    source: DirSource::Server(server.clone()),
                });
            }
        }
        chosen
    }

    /// One of `left`: a fallback rather than an authority, one that does not rest rather than one
    /// that does, else the one whose delay ends first.
    fn pick(&self, left: &[usize], monotonic: Duration, rng: &mut impl Rng) -> Option<usize> {
        let delay = |index: &usize| {
            self.marks
                .get(*index)
                .map_or(Duration::ZERO, |mark| mark.delayed_until)
                .saturating_sub(monotonic)
        };
        let server = |index: &usize| self.servers.get(*index);
        let awake = |authority: bool| -> Vec<usize> {
            left.iter()
                .copied()
                .filter(|index| server(index).is_some_and(|of| of.authority == authority))
                .filter(|index| delay(index).is_zero())
                .collect()
        };
        for authority in [false, true] {
            let awake = awake(authority);
            let weight = |index: &usize| server(index).map_or(0.0, |of| of.weight.max(0.0));
            let total: f64 = awake.iter().map(weight).sum();
            let mut at = rng.random::<f64>() * total;
            for index in &awake {
                at -= weight(index);
                if at < 0.0 {
                    return Some(*index);
                }
            }
            if let Some(last) = awake.last() {
                return Some(*last);
            }
        }
        left.iter().copied().min_by_key(delay)
    }

    /// How asking one went.
    pub(super) fn outcome(
        &mut self,
        index: Option<usize>,
        outcome: DirOutcome,
        monotonic: Duration,
    ) {
        let Some(index) = index else {
            match outcome {
                DirOutcome::Good => self.guard_failures = 0,
                DirOutcome::NotThere | DirOutcome::Bad => self.guard_failures += 1,
            }
            return;
        };
        let Some(mark) = self.marks.get_mut(index) else {
            return;
        };
        match outcome {
            DirOutcome::Good => *mark = Mark::default(),
            DirOutcome::NotThere | DirOutcome::Bad => {
                let rest = if self.testing {
                    REST_TESTING
                } else {
                    let doubled = 1_u32.checked_shl(mark.failures).unwrap_or(u32::MAX);
                    FIRST_REST.saturating_mul(doubled).min(LONGEST_REST)
                };
                mark.failures = mark.failures.saturating_add(1);
                mark.delayed_until = monotonic + rest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn where_bridges_are_used_nothing_else_is_asked() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let servers = vec![server(1, true, 1.0), server(2, false, 1.0)];
        let options = ClientOptions {
            by_bridges: true,
            ..ClientOptions::new(Vec::new(), servers, None, false)
        };
        let mut sources = Sources::of(&options);
        for _ in 0..10 {
            for guards in [false, true] {
                let candidates = sources.candidates(guards, Duration::ZERO, &mut rng);
                let asked: Vec<_> = candidates.iter().map(|one| one.source.clone()).collect();
                assert_eq!(asked, [DirSource::Guard]);
            }
            sources.outcome(None, DirOutcome::Bad, Duration::ZERO);
        }
    }

    fn server(number: u8, authority: bool, weight: f64) -> DirServer {
        DirServer {
            nickname: format!("s{number}"),
            rsa: [number; 20].into(),
            ed25519: None,
            or_addrs: vec![],
            dir_addr: None,
            weight,
            authority,
        }
    }

    fn indexes(candidates: &[Candidate]) -> Vec<usize> {
        candidates.iter().filter_map(|one| one.index).collect()
    }

    #[test]
    fn fallbacks_by_weight_then_authorities_then_those_that_rest() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let servers = vec![
            server(0, true, 1.0),
            server(1, false, 0.0),
            server(2, false, 9.0),
        ];
        let mut sources = Sources::new(servers, false);
        let at = Duration::from_secs(100);
        assert_eq!(indexes(&sources.candidates(false, at, &mut rng)), [2, 1, 0]);
        sources.outcome(Some(2), DirOutcome::Bad, at);
        assert_eq!(indexes(&sources.candidates(false, at, &mut rng)), [1, 0, 2]);
        let later = at + FIRST_REST;
        assert_eq!(
            indexes(&sources.candidates(false, later, &mut rng)),
            [2, 1, 0]
        );
        sources.outcome(Some(2), DirOutcome::NotThere, later);
        // After the second failure in a row the delay is twice as long.
        let still = later + FIRST_REST;
        assert_eq!(
            indexes(&sources.candidates(false, still, &mut rng)),
            [1, 0, 2]
        );
        sources.outcome(Some(2), DirOutcome::Good, still);
        assert_eq!(
            indexes(&sources.candidates(false, still, &mut rng)),
            [2, 1, 0]
        );
    }

    #[test]
    fn guards_are_asked_until_they_fail_three_times_in_a_row() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut sources = Sources::new(vec![server(0, true, 1.0)], true);
        for _ in 0..GUARD_FAILURES {
            let asked = sources.candidates(true, Duration::ZERO, &mut rng);
            assert_eq!(asked[0].source, DirSource::Guard);
            sources.outcome(None, DirOutcome::Bad, Duration::ZERO);
        }
        assert_eq!(
            indexes(&sources.candidates(true, Duration::ZERO, &mut rng)),
            [0]
        );
        let again = sources.candidates(true, Duration::ZERO, &mut rng);
        assert_eq!(again[0].source, DirSource::Guard);
    }

    #[test]
    fn nobody_to_ask_is_nobody_asked() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut sources = Sources::new(vec![], true);
        assert!(
            sources
                .candidates(false, Duration::ZERO, &mut rng)
                .is_empty()
        );
    }
}
