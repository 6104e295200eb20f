//! Tests whether the relay's ORPort is reachable from outside (C tor's `selftest.c`).
//!
//! A relay publishes its descriptor only once it is reachable. A [`Probe`] asks another relay to
//! extend a circuit to this one, on a separate thread; [`Reachability`] decides when and for which
//! address, and keeps the results.
//!
//! ```text
//! Reachability::due -> choose a relay -> started -> thread: Probe::run -> succeeded | failed
//! ```
//!
//! The relay that is asked should have no link with this node: it would extend the circuit over that
//! link, which proves nothing. To test an IPv6 address it must be able to extend by IPv6 (subprotocol
//! `Relay=3` and an IPv6 ORPort).

use weft_cell::identity::RsaIdentity;

pub(crate) mod bandwidth_test;
mod circuit;
mod circuit_request;
mod connect;
pub mod conversation;
mod error;
mod link;
mod probe;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rand::CryptoRng;

pub use circuit_request::CircuitRequests;
pub use error::{LinkFault, ProbeError, Step};
use probe::LONGEST_TIMEOUT;
pub use probe::{Probe, reach};

/// Relays that are asked one after the other before a pause: one of them may be down, or behind a firewall
/// itself.
const RELAYS_PER_ROUND: u32 = 3;
/// The pause after the first round; it doubles with each round (C tor's
/// `EARLY_CHECK_REACHABILITY_INTERVAL`).
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// The longest pause (C tor's `TIMEOUT_UNTIL_UNREACHABILITY_COMPLAINT`).
const LONGEST_PAUSE: Duration = Duration::from_secs(20 * 60);
/// A probe without a result after this time counts as failed.
const LOST: Duration = LONGEST_TIMEOUT.saturating_mul(2);

/// A relay that a probe may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its ORPort.
    pub addr: SocketAddr,
    /// SHA-1 of its RSA identity key.
    pub rsa: RsaIdentity,
}

/// The reachability of the relay's addresses, and the schedule of tests.
///
/// No I/O: the caller polls [`due`](Self::due), runs a [`Probe`] for the address and reports its result.
/// Results for addresses that the relay no longer has are ignored.
#[derive(Clone, Debug)]
pub(crate) struct Reachability {
    v4: Option<Port>,
    v6: Option<Port>,
    assume_v4: bool,
    assume_v6: bool,
}

/// One address and port that the relay publishes.
#[derive(Clone, Debug)]
struct Port {
    addr: SocketAddr,
    state: State,
    /// Probes that failed since the address was new.
    failures: u32,
    /// RSA identities of the relays asked in this round.
    asked: Vec<RsaIdentity>,
}

/// The state of one address's test.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Test now.
    New,
    /// Probes have failed; test again at this time.
    Waiting(Instant),
    /// A probe has been under way since this time.
    Testing(Instant),
    /// Found reachable.
    Reachable,
}

impl Reachability {
    /// Tests these addresses, except where `assume_…` is set (AssumeReachable for both,
    /// AssumeReachableIPv6 for `assume_v6`).
    pub(crate) fn new(
        v4: Option<SocketAddr>,
        v6: Option<SocketAddr>,
        assume_v4: bool,
        assume_v6: bool,
    ) -> Self {
        Self {
            v4: v4.map(Port::new),
            v6: v6.map(Port::new),
            assume_v4,
            assume_v6,
        }
    }

    /// The IPv4 address, once it may be published.
    pub(crate) fn reachable_v4(&self) -> Option<SocketAddr> {
        let port = self.v4.as_ref()?;
        (self.assume_v4 || port.is_reachable()).then_some(port.addr)
    }

    /// Replaces the relay's addresses. The test of an address that has changed starts again; the others keep
    /// their state.
    pub(crate) fn set_addresses(&mut self, v4: Option<SocketAddr>, v6: Option<SocketAddr>) {
        for (port, addr) in [(&mut self.v4, v4), (&mut self.v6, v6)] {
            if port.as_ref().map(|port| port.addr) != addr {
                *port = addr.map(Port::new);
            }
        }
    }

    /// Sets whether addresses are assumed to be reachable, as in [`new`](Self::new).
    pub(crate) fn set_assumed(&mut self, v4: bool, v6: bool) {
        (self.assume_v4, self.assume_v6) = (v4, v6);
    }

    /// The address to test now, if any; call it again after [`started`](Self::started), as both may
    /// be due.
    pub(crate) fn due(&self, now: Instant) -> Option<SocketAddr> {
        let v4 = self.v4.iter().filter(|_| !self.assume_v4);
        let v6 = self.v6.iter().filter(|_| !self.assume_v6);
        v4.chain(v6)
            .find(|port| port.is_due(now))
            .map(|port| port.addr)
    }

    /// Chooses one of `candidates` at random for a test of `addr`. Within a round no relay is chosen twice,
    /// unless there are too few. `None` without candidates, or if the relay has no such address.
    pub(crate) fn choose(
        &mut self,
        addr: SocketAddr,
        candidates: &[Candidate],
        rng: &mut impl CryptoRng,
    ) -> Option<Candidate> {
        let asked = &mut self.port(addr)?.asked;
        let mut pool: Vec<&Candidate> = candidates
            .iter()
            .filter(|candidate| !asked.contains(&candidate.rsa))
            .collect();
        if pool.is_empty() {
            asked.clear();
            pool.extend(candidates);
        }
        let chosen = **pool.get(below(pool.len(), rng)?)?;
        asked.push(chosen.rsa);
        Some(chosen)
    }

    /// Records that a probe of `addr` is under way.
    pub(crate) fn started(&mut self, addr: SocketAddr, now: Instant) {
        if let Some(port) = self.port(addr)
            && !port.is_reachable()
        {
            port.state = State::Testing(now);
        }
    }

    /// Records that a probe of `addr` has failed, for whatever reason. The next relay is asked at once, or
    /// after a pause if the round is over.
    pub(crate) fn failed(&mut self, addr: SocketAddr, now: Instant) {
        if let Some(port) = self.port(addr)
            && !port.is_reachable()
        {
            port.failures = port.failures.saturating_add(1);
            let pause = pause_after(port.failures);
            if !pause.is_zero() {
                port.asked.clear();
            }
            port.state = State::Waiting(now + pause);
        }
    }

    /// Records that a probe has reached this relay at `addr`. Returns whether this is the first time.
    pub(crate) fn succeeded(&mut self, addr: SocketAddr) -> bool {
        self.port(addr).is_some_and(|port| port.reached())
    }

    /// Records that the relay was reached otherwise: it got a CREATE cell on a link that it had accepted,
    /// from a peer that has `my_addr` in its NETINFO and connected to an address of that family (C tor's
    /// `onionskin_answer`). Returns whether this is the first time.
    pub(crate) fn found_reachable(&mut self, my_addr: IpAddr) -> bool {
        let my_addr = my_addr.to_canonical();
        [&mut self.v4, &mut self.v6]
            .into_iter()
            .flatten()
            .find(|port| port.addr.ip() == my_addr)
            .is_some_and(|port| port.reached())
    }

    /// Returns two flags: the IPv4 and the IPv6 address may be published. An address may if it was
    /// found reachable, is assumed to be, or does not exist.
    pub(crate) fn is_reachable(&self) -> (bool, bool) {
        let good = |port: &Option<Port>| port.as_ref().is_none_or(Port::is_reachable);
        (
            self.assume_v4 || good(&self.v4),
            self.assume_v6 || good(&self.v6),
        )
    }

    fn port(&mut self, addr: SocketAddr) -> Option<&mut Port> {
        [&mut self.v4, &mut self.v6]
            .into_iter()
            .flatten()
            .find(|port| port.addr == addr)
    }
}

impl Port {
    fn new(addr: SocketAddr) -> Self {
        Self {
            addr,
            state: State::New,
            failures: 0,
            asked: Vec::new(),
        }
    }

    fn is_reachable(&self) -> bool {
        matches!(self.state, State::Reachable)
    }

    fn is_due(&self, now: Instant) -> bool {
        match self.state {
            State::New => true,
            State::Waiting(until) => now >= until,
            State::Testing(since) => now.saturating_duration_since(since) >= LOST,
            State::Reachable => false,
        }
    }

    /// Records that the address was reached; returns whether this is the first time.
    fn reached(&mut self) -> bool {
        let first = !self.is_reachable();
        if first {
            self.state = State::Reachable;
        }
        first
    }
}

/// The pause after this number of failures.
fn pause_after(failures: u32) -> Duration {
    if !failures.is_multiple_of(RELAYS_PER_ROUND) {
        return Duration::ZERO;
    }
    let rounds = failures / RELAYS_PER_ROUND;
    let factor = 2u32.saturating_pow(rounds.saturating_sub(1));
    FIRST_PAUSE.saturating_mul(factor).min(LONGEST_PAUSE)
}

/// A random number below `bound`; `None` if that is 0. The bias of a remainder of 64 bits is negligible
/// among some thousand relays.
fn below(bound: usize, rng: &mut impl CryptoRng) -> Option<usize> {
    let mut bytes = [0; 8];
    rng.fill_bytes(&mut bytes);
    let bound = u64::try_from(bound).ok()?;
    let number = u64::from_le_bytes(bytes).checked_rem(bound)?;
    usize::try_from(number).ok()
}
