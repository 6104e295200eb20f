//! Chooses the directory to ask next.

use std::net::SocketAddr;
use std::time::Duration;

use rand::{Rng, RngExt as _};

use super::options::{BootstrapOptions, ClientOptions, DirServer};
use super::streams::{DirOutcome, DirSource};
use crate::schedule::Earliness;

/// Directories tried one after the other for one request before it counts as failed.
const CANDIDATES: usize = 3;
/// A directory that is not reached in this time is not given up, but the next one is tried, too
/// (C tor makes several connections at once while it bootstraps).
const PATIENCE: Duration = Duration::from_secs(5);
/// A directory that failed is not asked for this long, then twice as long, and so on.
const FIRST_REST: Duration = Duration::from_secs(60);
/// The longest such time.
const LONGEST_REST: Duration = Duration::from_secs(3600);
/// Both in a testing network.
const REST_TESTING: Duration = Duration::from_secs(2);
/// Failures of guards in a row after which an authority or fallback is asked.
const GUARD_FAILURES: u32 = 3;

/// Failures of one directory.
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
    /// It is tried so long after the request began, or earlier if one before it fails.
    pub(super) after: Duration,
    /// It is never tried earlier.
    pub(super) not_earlier: bool,
}

impl Candidate {
    /// The `Host` of a request to it, if it is known.
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
    /// Authorities alone are asked (FetchDirInfoEarly).
    early: bool,
    /// TestingTorNetwork.
    testing: bool,
}

impl Sources {
    /// The directories of these settings, of which nothing is known yet.
    pub(super) fn of(options: &ClientOptions) -> Self {
        Self {
            by_bridges: options.by_bridges,
            ..Self::new(
                options.servers.clone(),
                options.earliness != Earliness::Usual,
                options.testing,
            )
        }
    }

    /// These servers, of which nothing is known yet.
    fn new(servers: Vec<DirServer>, early: bool, testing: bool) -> Self {
        let marks = vec![Mark::default(); servers.len()];
        Self {
            by_bridges: false,
            servers,
            marks,
            guard_failures: 0,
            early,
            testing,
        }
    }

    /// The directories to ask, in this order, each if the one before cannot be reached. `guards`: whether
    /// there is a network to choose guards from; `bootstrap`: the request is for the first consensus.
    pub(super) fn candidates(
        &mut self,
        guards: bool,
        bootstrap: Option<&BootstrapOptions>,
        monotonic: Duration,
        rng: &mut impl Rng,
    ) -> Vec<Candidate> {
        if self.by_bridges || guards && !self.early && self.guard_failures < GUARD_FAILURES {
            return vec![Candidate {
                index: None,
                source: DirSource::Guard,
                after: Duration::ZERO,
                not_earlier: false,
            }];
        }
        // The next request is for a guard again: servers are many clients' last resort.
        self.guard_failures = 0;
        let mut left: Vec<usize> = (0..self.servers.len()).collect();
        let servers = &self.servers;
        let is_authority = |index: &usize| servers.get(*index).is_some_and(|of| of.authority);
        if self.early && left.iter().any(is_authority) {
            left.retain(is_authority);
        }
        let has_fallbacks = !left.iter().all(is_authority);
        let first = match (bootstrap, has_fallbacks) {
            (None, _) => Duration::ZERO,
            (Some(options), true) => options.fallback_delay,
            (Some(options), false) => options.authority_only_delay,
        };
        let mut chosen = Vec::new();
        let mut after = first;
        while chosen.len() < CANDIDATES
            && let Some(index) = self.pick(&left, monotonic, rng)
        {
            left.retain(|other| *other != index);
            chosen.extend(self.candidate(index, after, false));
            after += PATIENCE;
        }
        // An authority is tried besides, in its own time.
        if let Some(delay) = bootstrap.and_then(|options| options.authority_delay)
            && has_fallbacks
        {
            left.retain(is_authority);
            let index = self.pick(&left, monotonic, rng);
            chosen.extend(index.and_then(|index| self.candidate(index, delay, true)));
            chosen.sort_by_key(|candidate| candidate.after);
        }
        chosen
    }

    fn candidate(&self, index: usize, after: Duration, not_earlier: bool) -> Option<Candidate> {
        let server = self.servers.get(index)?;
        Some(Candidate {
            index: Some(index),
            source: DirSource::Server(server.clone()),
            after,
            not_earlier,
        })
    }

    /// One of `left`: by weight among those that do not rest, else the one whose delay ends first. Authorities are
    /// fallbacks, too, of little weight (C tor `router_pick_fallback_dirserver`; DirAuthorityFallbackRate).
    fn pick(&self, left: &[usize], monotonic: Duration, rng: &mut impl Rng) -> Option<usize> {
        let delay = |index: &usize| {
            self.marks
                .get(*index)
                .map_or(Duration::ZERO, |mark| mark.delayed_until)
                .saturating_sub(monotonic)
        };
        let server = |index: &usize| self.servers.get(*index);
        let awake: Vec<usize> = (left.iter().copied())
            .filter(|index| delay(index).is_zero())
            .collect();
        let weight = |index: &usize| server(index).map_or(0.0, |of| of.weight.max(0.0));
        let total: f64 = awake.iter().map(weight).sum();
        let mut at = rng.random::<f64>() * total;
        for index in &awake {
            at -= weight(index);
            if at < 0.0 {
                return Some(*index);
            }
        }
        let last = awake.last().copied();
        last.or_else(|| left.iter().copied().min_by_key(delay))
    }

    /// Records the result of asking a directory.
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
                let candidates = sources.candidates(guards, None, Duration::ZERO, &mut rng);
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
    fn all_by_weight_then_those_that_rest() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        // As a DirAuthorityFallbackRate of 0 makes it.
        let servers = vec![
            server(0, true, 0.0),
            server(1, false, 0.0),
            server(2, false, 9.0),
        ];
        let mut sources = Sources::new(servers, false, false);
        let at = Duration::from_secs(100);
        assert_eq!(
            indexes(&sources.candidates(false, None, at, &mut rng)),
            [2, 1, 0]
        );
        sources.outcome(Some(2), DirOutcome::Bad, at);
        assert_eq!(
            indexes(&sources.candidates(false, None, at, &mut rng)),
            [1, 0, 2]
        );
        let later = at + FIRST_REST;
        assert_eq!(
            indexes(&sources.candidates(false, None, later, &mut rng)),
            [2, 1, 0]
        );
        sources.outcome(Some(2), DirOutcome::NotThere, later);
        // After the second failure in a row the delay is twice as long.
        let still = later + FIRST_REST;
        assert_eq!(
            indexes(&sources.candidates(false, None, still, &mut rng)),
            [1, 0, 2]
        );
        sources.outcome(Some(2), DirOutcome::Good, still);
        assert_eq!(
            indexes(&sources.candidates(false, None, still, &mut rng)),
            [2, 1, 0]
        );
    }

    #[test]
    fn who_fetches_early_asks_authorities_alone() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let servers = vec![
            server(0, false, 9.0),
            server(1, true, 0.1),
            server(2, true, 0.1),
        ];
        let mut sources = Sources::new(servers, true, false);
        let mut asked = indexes(&sources.candidates(true, None, Duration::ZERO, &mut rng));
        asked.sort_unstable();
        assert_eq!(asked, [1, 2]);
        // There is nobody else.
        let mut alone = Sources::new(vec![server(0, false, 1.0)], true, false);
        assert_eq!(
            indexes(&alone.candidates(true, None, Duration::ZERO, &mut rng)),
            [0]
        );
    }

    #[test]
    fn an_authority_is_tried_besides_for_the_first_consensus() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let second = Duration::from_secs(1);
        let bootstrap = BootstrapOptions {
            fallback_delay: second,
            authority_delay: Some(7 * second),
            authority_only_delay: 2 * second,
            ..BootstrapOptions::default()
        };
        let fallbacks = (0..4).map(|number| server(number, false, 1.0));
        let servers: Vec<DirServer> = fallbacks.chain([server(9, true, 0.0)]).collect();
        let mut sources = Sources::new(servers, false, false);
        let mut tried = |bootstrap| {
            let all = sources.candidates(false, bootstrap, Duration::ZERO, &mut rng);
            let tried = all.into_iter().map(|one| {
                let authority = matches!(&one.source, DirSource::Server(of) if of.authority);
                assert_eq!(one.not_earlier, authority);
                (one.after.as_secs(), authority)
            });
            tried.collect::<Vec<_>>()
        };
        assert_eq!(
            tried(Some(&bootstrap)),
            [(1, false), (6, false), (7, true), (11, false)]
        );
        assert_eq!(tried(None), [(0, false), (5, false), (10, false)]);
        // Without fallbacks there is nothing besides.
        let authorities = vec![server(0, true, 1.0), server(1, true, 1.0)];
        let mut alone = Sources::new(authorities, false, false);
        let all = alone.candidates(false, Some(&bootstrap), Duration::ZERO, &mut rng);
        let after: Vec<u64> = all.iter().map(|one| one.after.as_secs()).collect();
        assert_eq!(after, [2, 7]);
        assert!(all.iter().all(|one| !one.not_earlier));
    }

    #[test]
    fn guards_are_asked_until_they_fail_three_times_in_a_row() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut sources = Sources::new(vec![server(0, true, 1.0)], false, true);
        for _ in 0..GUARD_FAILURES {
            let asked = sources.candidates(true, None, Duration::ZERO, &mut rng);
            assert_eq!(asked[0].source, DirSource::Guard);
            sources.outcome(None, DirOutcome::Bad, Duration::ZERO);
        }
        assert_eq!(
            indexes(&sources.candidates(true, None, Duration::ZERO, &mut rng)),
            [0]
        );
        let again = sources.candidates(true, None, Duration::ZERO, &mut rng);
        assert_eq!(again[0].source, DirSource::Guard);
    }

    #[test]
    fn nobody_to_ask_is_nobody_asked() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut sources = Sources::new(vec![], false, true);
        assert!(
            sources
                .candidates(false, None, Duration::ZERO, &mut rng)
                .is_empty()
        );
    }
}
