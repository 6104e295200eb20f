//! Which relays run: those that were reached not long ago (C tor reachability.c, `dirserv_set_router_is_running`).

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use tor_llcrypto::pk::ed25519::Ed25519Identity;
use tor_llcrypto::pk::rsa::RsaIdentity;

use super::router::Router;

/// For how long a relay that was reached counts as running (`REACHABLE_TIMEOUT`).
const REACHABLE: Duration = Duration::from_secs(45 * 60);
/// A relay that was reached is tested again after this time (`REACHABILITY_TEST_CYCLE_PERIOD`).
pub(super) const CYCLE: Duration = Duration::from_secs(10 * 128);
/// One that was not reached: C tor waits for a whole cycle, which in a network of ten minutes is never.
const RETRY: Duration = Duration::from_secs(30);
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
    ipv4: Port,
    ipv6: Port,
}

/// One of its addresses.
#[derive(Clone, Copy, Debug, Default)]
struct Port {
    /// When it was reached last.
    reached: Option<SystemTime>,
    /// When the newest test began.
    tested: Option<SystemTime>,
    /// Whether that test has not ended.
    under_way: bool,
}

impl Port {
    fn is_reachable(&self, now: SystemTime) -> bool {
        self.reached.is_some_and(|at| now < at + REACHABLE)
    }

    /// When it should be tested.
    fn due(&self, now: SystemTime) -> SystemTime {
        let pause = match self.reached >= self.tested {
            true => CYCLE,
            false => RETRY,
        };
        // A clock that was set back ends the pause.
        let tested = self.tested.filter(|tested| *tested <= now);
        tested.map_or(now, |tested| tested + pause)
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

    /// The relay changed in a way that makes a test due (`dirserv_should_launch_reachability_test`).
    pub(super) fn test_soon(&mut self) {
        (self.ipv4.tested, self.ipv6.tested) = (None, None);
    }

    /// Takes the tests that are due, and returns when the next one is.
    pub(super) fn take_due(
        &mut self,
        options: &ReachabilityOptions,
        router: &Router,
        now: SystemTime,
        tests: &mut Vec<ReachabilityTest>,
    ) -> Option<SystemTime> {
        let ipv4 = Some(SocketAddr::from((router.ip, router.or_port)));
        let ipv6 = router.ipv6.filter(|_| options.ipv6);
        let mut next = None;
        for (port, address) in [(&mut self.ipv4, ipv4), (&mut self.ipv6, ipv6)] {
            let Some(address) = address.filter(|_| !port.under_way) else {
                continue;
            };
            let due = port.due(now);
            if due > now {
                next = Some(next.map_or(due, |next: SystemTime| next.min(due)));
                continue;
            }
            port.tested = Some(now);
            port.under_way = true;
            tests.push(ReachabilityTest {
                address,
                rsa: router.rsa,
                ed25519: options.test_ed25519.then_some(router.ed),
            });
        }
        next
    }

    /// Takes the result of a test. True: a port that was down is up.
    pub(super) fn finish(
        &mut self,
        test: &ReachabilityTest,
        router: &Router,
        reached: bool,
        now: SystemTime,
    ) -> bool {
        let (port, address) = match test.address {
            SocketAddr::V4(_) => (&mut self.ipv4, Some((router.ip, router.or_port).into())),
            SocketAddr::V6(_) => (&mut self.ipv6, router.ipv6),
        };
        port.under_way = false;
        if address != Some(test.address) {
            // It has moved since the test began.
            port.tested = None;
            return false;
        }
        let was = port.is_reachable(now);
        if reached {
            port.reached = Some(now);
        }
        reached && !was
    }
}
