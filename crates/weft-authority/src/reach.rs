//! Which relays run: those that were reached not long ago (C tor reachability.c, `dirserv_set_router_is_running`).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use tor_llcrypto::pk::ed25519::Ed25519Identity;
use tor_llcrypto::pk::rsa::RsaIdentity;

use crate::router::Router;

/// For how long a relay that was reached counts as running (`REACHABLE_TIMEOUT`).
const REACHABLE: Duration = Duration::from_secs(45 * 60);
/// A relay that was reached is tested again after this time (`REACHABILITY_TEST_CYCLE_PERIOD`).
pub(super) const CYCLE: Duration = Duration::from_secs(10 * 128);
/// One that was not reached is tested again after this time, after twice as long the next time, and so on until it is a
/// cycle. C tor waits for a whole cycle at once, which in a network of ten minutes is never.
const RETRY: Duration = Duration::from_secs(30);
/// Tests that run at the same time.
pub(super) const TESTS_AT_ONCE: usize = 16;
/// Of these, tests of relays that were never reached: anyone can make up any number of them, and those that run must be
/// tested all the same.
const NEW_AT_ONCE: usize = TESTS_AT_ONCE / 2;
/// A relay that is reached this long after it went to sleep is awake again (`HIBERNATION_PUBLICATION_SKEW`).
const WAKING: Duration = Duration::from_secs(3600);

/// How an authority finds out which relays run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachabilityOptions {
    /// AuthDirTestReachability: without tests every relay runs.
    pub test: bool,
    /// AuthDirTestEd25519LinkKeys: a relay must prove the Ed25519 identity of its descriptor, too.
    pub test_ed25519: bool,
    /// AuthDirHasIPv6Connectivity: test IPv6 addresses, and list those that were reached.
    pub ipv6: bool,
    /// TestingAuthDirTimeToLearnReachability: until then there is no consensus.
    pub time_to_learn: Duration,
}

/// A test that is due: open a link to a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReachabilityTest {
    /// Where.
    pub address: SocketAddr,
    /// The identity that the relay must prove.
    pub rsa: RsaIdentity,
    /// And this one.
    pub ed25519: Option<Ed25519Identity>,
}

/// What is known of one relay.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reach {
    /// The network that sent its newest descriptor.
    from: Option<IpAddr>,
    ipv4: Port,
    ipv6: Port,
}

/// One of its addresses.
#[derive(Clone, Copy, Debug, Default)]
struct Port {
    /// When it was reached last.
    reached: Option<SystemTime>,
    /// When the newest test began. `None`: a test is due.
    tested: Option<SystemTime>,
    /// Since when it waits for its turn, if it is due and is not tested yet.
    waits: Option<SystemTime>,
    /// Tests since it was reached last.
    failures: u32,
    /// Whether that test has not ended.
    under_way: bool,
}

impl Port {
    fn is_reachable(&self, now: SystemTime) -> bool {
        self.reached.is_some_and(|at| now < at + REACHABLE)
    }

    /// When it should be tested.
    fn due(&mut self, now: SystemTime) -> SystemTime {
        let pause = match self.failures {
            0 => CYCLE,
            failures => (RETRY * (1 << (failures - 1).min(16))).min(CYCLE),
        };
        // A clock that was set back ends the pause.
        match self.tested.filter(|tested| *tested <= now) {
            Some(tested) => tested + pause,
            None => (*self.waits.get_or_insert(now)).min(now),
        }
    }

    fn begin(&mut self, now: SystemTime) {
        self.tested = Some(now);
        self.waits = None;
        self.under_way = true;
    }
}

/// A test that is due and may begin.
#[derive(Debug)]
pub(super) struct Due {
    /// Since when.
    since: SystemTime,
    /// Whether the relay was ever reached.
    is_new: bool,
    /// Where its descriptor came from.
    from: Option<IpAddr>,
    test: ReachabilityTest,
}

/// How many tests are under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Running {
    all: usize,
    /// Of relays that were never reached.
    new: usize,
    /// By where descriptors came from.
    from: BTreeMap<Option<IpAddr>, usize>,
}

impl Running {
    /// Adds those of one relay.
    pub(super) fn add(&mut self, reach: &Reach) {
        let ports = [reach.ipv4, reach.ipv6];
        for _ in ports.iter().filter(|port| port.under_way) {
            self.begin(reach.is_new(), reach.from);
        }
    }

    pub(super) fn all(&self) -> usize {
        self.all
    }

    /// Whether no test has a place.
    pub(super) fn is_full(&self) -> bool {
        self.all >= TESTS_AT_ONCE
    }

    fn begin(&mut self, is_new: bool, from: Option<IpAddr>) {
        self.all += 1;
        self.new += usize::from(is_new);
        *self.from.entry(from).or_default() += 1;
    }

    /// The tests that have a place beside these: of the network whose relays have the fewest, that which has waited
    /// longest.
    pub(super) fn choose(mut self, mut due: Vec<Due>) -> Vec<ReachabilityTest> {
        due.sort_by_key(|due| due.since);
        let mut tests = Vec::new();
        while !self.is_full() {
            let may_begin = due
                .iter()
                .enumerate()
                .filter(|(_, due)| !due.is_new || self.new < NEW_AT_ONCE);
            let held = |due: &Due| self.from.get(&due.from).copied().unwrap_or_default();
            let Some((place, _)) = may_begin.min_by_key(|(place, due)| (held(due), *place)) else {
                break;
            };
            let due = due.remove(place);
            self.begin(due.is_new, due.from);
            tests.push(due.test);
        }
        tests
    }
}

impl Reach {
    /// Whether a relay runs; `is_self`: it is ourselves.
    pub(super) fn is_running(
        &self,
        options: &ReachabilityOptions,
        router: &Router,
        is_self: bool,
        now: SystemTime,
    ) -> bool {
        let asleep = router.hibernating
            && self
                .ipv4
                .reached
                .is_none_or(|reached| router.published + WAKING > reached);
        if is_self {
            return !router.hibernating;
        }
        if asleep {
            return false;
        }
        let ipv6 = || !options.ipv6 || router.ipv6.is_none() || self.ipv6.is_reachable(now);
        !options.test || (self.ipv4.is_reachable(now) && ipv6())
    }

    /// Whether its IPv6 address is listed.
    pub(super) fn lists_ipv6(
        &self,
        options: &ReachabilityOptions,
        is_self: bool,
        now: SystemTime,
    ) -> bool {
        options.ipv6 && (is_self || self.ipv6.is_reachable(now))
    }

    /// Since when a relay that does not run has been down, as far as that is known.
    pub(super) fn down_since(&self, now: SystemTime) -> SystemTime {
        let reached = self.ipv4.reached.map(|reached| reached + CYCLE);
        reached.filter(|since| *since < now).unwrap_or(now)
    }

    /// Whether it was never reached.
    pub(super) fn is_new(&self) -> bool {
        self.ipv4.reached.or(self.ipv6.reached).is_none()
    }

    /// Whether a test of it is under way.
    pub(super) fn is_tested(&self) -> bool {
        self.ipv4.under_way || self.ipv6.under_way
    }

    /// The network that sent its newest descriptor.
    pub(super) fn from(&self) -> Option<IpAddr> {
        self.from
    }

    /// Its descriptor came from this network.
    pub(super) fn set_from(&mut self, from: IpAddr) {
        self.from = Some(from);
    }

    /// The relay changed in a way that makes a test due (`dirserv_should_launch_reachability_test`).
    pub(super) fn test_soon(&mut self) {
        for port in [&mut self.ipv4, &mut self.ipv6] {
            port.tested = None;
        }
    }

    /// Adds the tests that are due, and returns when the next one is.
    pub(super) fn due(
        &mut self,
        options: &ReachabilityOptions,
        router: &Router,
        now: SystemTime,
        tests: &mut Vec<Due>,
    ) -> Option<SystemTime> {
        let ipv4 = Some(router.or_addr());
        let ipv6 = router.ipv6.filter(|_| options.ipv6);
        let (is_new, from) = (self.is_new(), self.from);
        let mut next = None;
        for (port, address) in [(&mut self.ipv4, ipv4), (&mut self.ipv6, ipv6)] {
            let Some(address) = address.filter(|_| !port.under_way) else {
                continue;
            };
            let since = port.due(now);
            if since > now {
                next = Some(next.map_or(since, |next: SystemTime| next.min(since)));
                continue;
            }
            tests.push(Due {
                since,
                is_new,
                from,
                test: ReachabilityTest {
                    address,
                    rsa: router.rsa,
                    ed25519: options.test_ed25519.then_some(router.ed),
                },
            });
        }
        next
    }

    /// A test begins.
    pub(super) fn begin(&mut self, test: &ReachabilityTest, now: SystemTime) {
        self.port(test).begin(now);
    }

    fn port(&mut self, test: &ReachabilityTest) -> &mut Port {
        match test.address {
            SocketAddr::V4(_) => &mut self.ipv4,
            SocketAddr::V6(_) => &mut self.ipv6,
        }
    }

    /// A test has ended, whatever its result is good for.
    pub(super) fn end(&mut self, test: &ReachabilityTest) {
        self.port(test).under_way = false;
    }

    /// Takes the result of a test.
    pub(super) fn finish(
        &mut self,
        test: &ReachabilityTest,
        router: &Router,
        reached: bool,
        now: SystemTime,
    ) -> Finished {
        self.end(test);
        let port = self.port(test);
        let has_other_key = test.ed25519.is_some_and(|ed| ed != router.ed);
        if !router.is_at(test.address) || has_other_key {
            // It has moved since the test began, or has a new identity.
            port.tested = None;
            return Finished::default();
        }
        let came_up = reached && !port.is_reachable(now);
        match reached {
            true => (port.reached, port.failures) = (Some(now), 0),
            false => port.failures = port.failures.saturating_add(1),
        }
        Finished { reached, came_up }
    }
}

/// What a test has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Finished {
    /// The relay was reached as its newest descriptor has it.
    pub(super) reached: bool,
    /// This address was down before.
    pub(super) came_up: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{now, secs};

    fn network(number: u8) -> Option<IpAddr> {
        Some([10, 0, 0, number].into())
    }

    /// A test that has been due for this many seconds.
    fn due(number: u8, from: u8, is_new: bool, waits: u64) -> Due {
        Due {
            since: now() - secs(waits),
            is_new,
            from: network(from),
            test: ReachabilityTest {
                address: ([10, 0, 1, number], 9001).into(),
                rsa: [number; 20].into(),
                ed25519: None,
            },
        }
    }

    /// The numbers of relays whose tests begin.
    fn chosen(running: &Running, due: Vec<Due>) -> Vec<u8> {
        let tests = running.clone().choose(due);
        tests.iter().map(|test| test.rsa.as_bytes()[0]).collect()
    }

    #[test]
    fn relays_that_were_never_reached_leave_half_of_the_places_to_those_that_run() {
        let new = (0..100).map(|number| due(number, 1, true, 1000));
        let known = (100..120).map(|number| due(number, 1, false, 1));
        let none = Running::default();
        assert_eq!(
            chosen(&none, new.clone().collect()),
            [0, 1, 2, 3, 4, 5, 6, 7]
        );
        let both = chosen(&none, new.chain(known.clone()).collect());
        assert_eq!(both.len(), TESTS_AT_ONCE);
        assert_eq!(
            both.iter().filter(|number| **number < 100).count(),
            NEW_AT_ONCE
        );
        // Without newcomers, those that run have all places.
        assert_eq!(chosen(&none, known.collect()).len(), TESTS_AT_ONCE);
    }

    #[test]
    fn a_network_that_sends_a_thousand_relays_does_not_keep_another_s_waiting() {
        let mut running = Running::default();
        let flood = || (0..200).map(|number| due(number, 1, true, 1000));
        for _ in 1..NEW_AT_ONCE {
            running.begin(true, network(1));
        }
        // The last place is that of the network that has none.
        let with = |other: Due| flood().chain([other]).collect();
        assert_eq!(chosen(&running, with(due(250, 2, true, 0))), [250]);
        // Of one network, the relay that has waited longest.
        assert_eq!(chosen(&running, with(due(250, 1, true, 1001))), [250]);
        running.begin(true, network(1));
        assert!(chosen(&running, with(due(250, 2, true, 0))).is_empty());
        assert_eq!(chosen(&running, with(due(250, 1, false, 0))), [250]);
    }

    #[test]
    fn a_relay_that_is_not_reached_is_tested_less_and_less_often() {
        let mut port = Port::default();
        let mut at = now();
        for pause in [30, 60, 120, 240, 480, 960, 1280, 1280] {
            assert_eq!(port.due(at), at);
            port.begin(at);
            port.failures += 1;
            assert_eq!(port.due(at), at + secs(pause));
            at += secs(pause);
        }
        port.failures = u32::MAX;
        port.begin(at);
        assert_eq!(port.due(at), at + CYCLE);
        // A clock that was set back does not keep it waiting.
        assert_eq!(port.due(now()), now());
    }
}
