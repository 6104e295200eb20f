//! Which flags relays get, by how they compare with each other (C tor voteflags.c).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use tor_llcrypto::pk::rsa::RsaIdentity;

use crate::config::AuthorityConfig;
use crate::history::History;
use crate::lists::Standing;
use crate::router::Router;

/// A descriptor this old is listed as stale, so that its relay makes a new one (C tor `DESC_IS_STALE_INTERVAL`).
const STALE: Duration = Duration::from_secs(18 * 3600);
/// Below this threshold, in kilobytes per second, a quarter of the relays is not Fast instead of an eighth: half of
/// what relays must have (`RELAY_REQUIRED_MIN_BANDWIDTH`).
const SLOW: u64 = 38;

/// A relay and what is known of it besides its descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) router: &'a Router,
    pub(super) standing: Standing,
    /// Whether it runs.
    pub(super) running: bool,
    /// Whether its IPv6 address was reached.
    pub(super) ipv6: bool,
}

/// A relay with its flags, as the consensus lists it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed<'a> {
    pub(super) router: &'a Router,
    /// What its bandwidth counts, in kilobytes per second.
    pub(super) bandwidth: u64,
    /// Whether its IPv6 address is listed.
    pub(super) ipv6: bool,
    pub(super) flags: Flags,
}

/// Flags of a relay that is Running and Valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    pub(super) authority: bool,
    pub(super) bad_exit: bool,
    pub(super) exit: bool,
    pub(super) fast: bool,
    pub(super) guard: bool,
    pub(super) hs_dir: bool,
    pub(super) middle_only: bool,
    pub(super) stable: bool,
    pub(super) stale: bool,
    pub(super) directory: bool,
}

/// Decides about flags for one consensus.
pub(super) struct Voter<'a> {
    pub(super) config: &'a AuthorityConfig,
    pub(super) history: &'a History,
    /// For how long we have run.
    pub(super) own_uptime: Duration,
    /// The time of the consensus.
    pub(super) now: SystemTime,
}

/// What relays are compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Thresholds {
    stable_uptime: Duration,
    stable_mtbf: f64,
    enough_mtbf: bool,
    fast: u64,
    guard_with_exits: u64,
    guard_without_exits: u64,
    guard_time_known: i64,
    guard_uptime_fraction: f64,
}

impl<'a> Voter<'a> {
    /// Relays that share an address with too many others (`get_all_possible_sybil`): of each address, the authority
    /// stays, then those with more bandwidth. Relays that were not reached there count for nobody (TROVE-2026-064).
    pub(super) fn crowded(&self, all: &[Candidate<'_>]) -> BTreeSet<RsaIdentity> {
        let most = self.config.flags.max_per_address;
        let mut crowded = BTreeSet::new();
        if most == 0 {
            return crowded;
        }
        // An IPv6 address is reached apart, and may be claimed by anybody where that is not tested.
        let tests = self.config.reachability.test;
        let address = |one: &Candidate<'_>, ipv6: bool| match ipv6 {
            false => Some(IpAddr::from(one.router.ip)),
            true => Some(one.router.ipv6.filter(|_| one.ipv6 || !tests)?.ip()),
        };
        for ipv6 in [false, true] {
            let with = all
                .iter()
                .filter(|one| one.running)
                .filter_map(|one| Some((address(one, ipv6)?, one)));
            let mut with: Vec<(IpAddr, &Candidate<'_>)> = with.collect();
            with.sort_by_key(|(ip, one)| {
                (
                    *ip,
                    one.router.rsa != self.config.identity,
                    u64::MAX - self.bandwidth(one.router),
                    one.router.rsa,
                )
            });
            let (mut last, mut count) = (None, 0);
            for (ip, one) in with {
                count = if last == Some(ip) { count + 1 } else { 1 };
                last = Some(ip);
                if count > most {
                    crowded.insert(one.router.rsa);
                }
            }
        }
        crowded
    }

    /// The relays that the consensus lists, with their flags.
    pub(super) fn vote(
        &self,
        all: &[Candidate<'a>],
        crowded: &BTreeSet<RsaIdentity>,
    ) -> Vec<Listed<'a>> {
        let active: Vec<&Candidate<'_>> = all
            .iter()
            .filter(|one| self.counts(one) && !crowded.contains(&one.router.rsa))
            .collect();
        let thresholds = self.thresholds(&active);
        all.iter()
            .filter(|one| {
                one.running && !one.standing.invalid && !crowded.contains(&one.router.rsa)
            })
            .map(|one| Listed {
                router: one.router,
                bandwidth: self.bandwidth(one.router).max(1),
                ipv6: one.ipv6,
                flags: self.flags(one, &thresholds),
            })
            .collect()
    }

    /// Whether a relay's bandwidth is measured.
    fn is_measured(&self, router: &Router) -> bool {
        self.config.bandwidths.contains_key(&router.rsa)
    }

    /// Whether only measured bandwidths count, because there are enough.
    fn ignores_claims(&self) -> bool {
        i64::try_from(self.config.bandwidths.len()).unwrap_or(i64::MAX)
            > self.config.flags.min_measured
    }

    /// What a relay's bandwidth counts, in kilobytes per second (`dirserv_get_credible_bandwidth_kb`).
    fn bandwidth(&self, router: &Router) -> u64 {
        match self.config.bandwidths.get(&router.rsa) {
            Some(measured) => *measured,
            None if self.ignores_claims() => 0,
            None => router.bandwidth,
        }
    }

    /// Whether a relay is one that works (`router_is_active`).
    fn is_active(&self, one: &Candidate<'_>) -> bool {
        let has_capacity = one.router.observed > 0 || self.config.flags.min_exit == 0;
        one.running && !one.standing.invalid && !one.router.hibernating && has_capacity
    }

    /// Whether others are compared with this relay (`router_counts_toward_thresholds`).
    fn counts(&self, one: &Candidate<'_>) -> bool {
        self.is_active(one)
            && self.bandwidth(one.router) >= self.config.flags.min_exit / 1000
            && (self.is_measured(one.router) || !self.ignores_claims())
    }

    fn is_exit(one: &Candidate<'_>) -> bool {
        one.router.general_exit
    }

    /// `dirserv_compute_performance_thresholds`.
    fn thresholds(&self, active: &[&Candidate<'_>]) -> Thresholds {
        let (options, now) = (&self.config.flags, self.now);
        let id = |one: &Candidate<'_>| one.router.rsa;
        let known = |one: &&Candidate<'_>| self.history.time_known(&id(one), now);
        let bandwidth = |one: &&Candidate<'_>| self.bandwidth(one.router);
        let count = active.len();
        let mut thresholds = Thresholds {
            enough_mtbf: self.history.is_enough(now),
            ..Thresholds::default()
        };
        let mut bandwidths: Vec<u64> = active.iter().map(bandwidth).collect();
        bandwidths.sort_unstable();
        let nth = |place: usize| {
            let place = place.min(count.saturating_sub(1));
            bandwidths.get(place).copied().unwrap_or(0)
        };
        let mut uptimes: Vec<Duration> = active.iter().map(|one| one.router.uptime(now)).collect();
        uptimes.sort_unstable();
        thresholds.stable_uptime = median(&uptimes);
        let mut mtbfs: Vec<f64> = active
            .iter()
            .map(|one| self.history.mtbf(&id(one), now))
            .collect();
        mtbfs.sort_by(f64::total_cmp);
        thresholds.stable_mtbf = median(&mtbfs);
        thresholds.fast = nth(count / 8);
        if thresholds.fast < SLOW {
            thresholds.fast = nth(count / 4);
        }
        thresholds.guard_with_exits = nth(self.guard_place(count));
        let mut times: Vec<i64> = active.iter().map(known).collect();
        times.sort_unstable();
        let enough = i64::try_from(options.guard_time_known.as_secs()).unwrap_or(i64::MAX);
        let familiar = times.get(count / 8).copied().unwrap_or(0).min(enough);
        thresholds.guard_time_known = familiar;
        let param = self.config.params.get("FastFlagMaxThreshold").copied();
        let most = param.and_then(|most| u64::try_from(most).ok());
        thresholds.fast = thresholds.fast.max(options.min_fast / 1000);
        if let Some(most) = most {
            thresholds.fast = thresholds.fast.min(most.max(options.min_fast) / 1000);
        }
        if options.fast_guarantee > 0 {
            thresholds.fast = thresholds.fast.min(options.fast_guarantee / 1000);
        }
        let mut fractions: Vec<f64> = active
            .iter()
            .filter(|one| known(one) >= familiar)
            .map(|one| self.history.fractional_uptime(&id(one), now))
            .collect();
        fractions.sort_by(f64::total_cmp);
        thresholds.guard_uptime_fraction = median(&fractions).min(options.guard_uptime_fraction);
        let mut others: Vec<u64> = active
            .iter()
            .filter(|one| !Self::is_exit(one) || one.standing.bad_exit)
            .map(bandwidth)
            .collect();
        others.sort_unstable();
        let place = self.guard_place(others.len());
        thresholds.guard_without_exits = others.get(place).copied().unwrap_or(0);
        thresholds
    }

    /// The place, in an order by bandwidth, of the slowest relay that may be a guard.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a part of a small number
    fn guard_place(&self, count: usize) -> usize {
        let place = count as f64 * self.config.flags.guard_bandwidth_fraction;
        (place as usize).min(count.saturating_sub(1))
    }

    fn is_stable(&self, router: &Router, thresholds: &Thresholds) -> bool {
        let options = &self.config.flags;
        match thresholds.enough_mtbf {
            true => {
                let mtbf = self.history.mtbf(&router.rsa, self.now);
                mtbf >= thresholds.stable_mtbf || mtbf >= options.stable_mtbf.as_secs_f64()
            }
            false => {
                let uptime = router.uptime(self.now);
                uptime >= thresholds.stable_uptime || uptime >= options.stable_uptime
            }
        }
    }

    /// `dirauth_set_routerstatus_from_routerinfo`.
    fn flags(&self, one: &Candidate<'_>, thresholds: &Thresholds) -> Flags {
        let (config, options, router) = (self.config, &self.config.flags, one.router);
        let bandwidth = self.bandwidth(router);
        let stable = self.is_stable(router, thresholds);
        let fast = bandwidth >= thresholds.fast;
        // Until we have run for long enough ourselves, the relay's word counts.
        let uptime = match self.own_uptime > options.hs_dir_uptime.mul_f64(1.1) {
            true => (self.history.uptime(&router.rsa, self.now)).min(router.uptime(self.now)),
            false => router.uptime(self.now),
        };
        let mut hs_dir = router.hidden_service_dir
            && router.directory
            && stable
            && fast
            && uptime >= options.hs_dir_uptime
            && self.is_active(one);
        let guaranteed = options.guard_bandwidth_guarantee;
        let quick = (guaranteed > 0 && bandwidth >= guaranteed / 1000)
            || bandwidth
                >= thresholds
                    .guard_with_exits
                    .min(thresholds.guard_without_exits);
        let mut guard = fast
            && stable
            && router.directory
            && quick
            && self.history.fractional_uptime(&router.rsa, self.now)
                >= thresholds.guard_uptime_fraction
            && self.history.time_known(&router.rsa, self.now) >= thresholds.guard_time_known;
        let mut exit = Self::is_exit(one);
        let mut directory = router.directory;
        let mut bad_exit = config.lists.list_bad_exits && one.standing.bad_exit;
        let middle_only = config.lists.list_middle_only && one.standing.middle_only;
        if middle_only {
            bad_exit |= config.lists.list_bad_exits;
            (exit, guard, hs_dir, directory) = (false, false, false, false);
        }
        guard &= !one.standing.no_guard;
        hs_dir &= !one.standing.no_hs_dir;
        directory &= !one.standing.no_directory;
        Flags {
            authority: router.rsa == config.identity,
            bad_exit,
            // After the votes, so that TestingDirAuthVoteExit and the like do not bring them back (dirvote.c).
            exit: !middle_only && config.exits.grants(&router.rsa, exit),
            fast,
            guard: !middle_only && config.guards.grants(&router.rsa, guard),
            hs_dir: !middle_only && config.hidden_service_dirs.grants(&router.rsa, hs_dir),
            middle_only,
            stable,
            stale: router.published + STALE < self.now,
            directory,
        }
    }
}

/// The lower of the two in the middle (`median_uint32` and its like); of nothing, the least.
fn median<T: Copy + Default>(sorted: &[T]) -> T {
    let middle = sorted.len().saturating_sub(1) / 2;
    sorted.get(middle).copied().unwrap_or_default()
}
