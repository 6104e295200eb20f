//! Whether the relay's ORPort can be reached from outside.
//!
//! A relay publishes its descriptor only once it knows (C tor's `selftest.c`). It finds out by
//! asking another relay to extend a circuit to it: a [`Probe`] does that on a thread of its own,
//! and [`Reachability`] says when, for which address, and what has been found.
//!
//! ```text
//! Reachability::due -> choose a relay -> started -> thread: Probe::run -> succeeded | failed
//! ```
//!
//! The relay that is asked should have no link with this node: it would extend the circuit over
//! that link, and prove nothing. To test an IPv6 address it must be able to extend by IPv6
//! (subprotocol `Relay=3` and an IPv6 ORPort).

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)
)]

mod error;
mod link;
mod probe;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rand::CryptoRng;

pub use error::{LinkFault, ProbeError, Step};
pub use probe::{LONGEST_TIMEOUT, Probe};

/// How many relays are asked one after the other before there is a pause: one of them may be
/// down, or firewalled itself.
pub const RELAYS_PER_ROUND: u32 = 3;
/// The pause after the first round; it doubles with each. C tor's
/// `EARLY_CHECK_REACHABILITY_INTERVAL`.
pub const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// The longest pause: C tor's `TIMEOUT_UNTIL_UNREACHABILITY_COMPLAINT`.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(20 * 60);
/// A probe that has not reported for so long is taken for failed: its thread is gone.
const LOST: Duration = LONGEST_TIMEOUT.saturating_mul(2);

/// A relay that could be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its ORPort.
    pub addr: SocketAddr,
    /// SHA-1 of its RSA identity key.
    pub rsa: [u8; 20],
}

/// What is known about the reachability of the relay's addresses, and when to test again.
///
/// No I/O: the caller asks [`due`](Self::due) now and then, runs a [`Probe`] for the address and
/// tells how it ended. Reports about addresses that the relay no longer has are ignored.
#[derive(Clone, Debug)]
pub struct Reachability {
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
    asked: Vec<[u8; 20]>,
}

/// How far the test of one port is.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Test now.
    New,
    /// Probes have failed; test again then.
    Waiting(Instant),
    /// A probe has been under way since then.
    Testing(Instant),
    /// Found reachable then.
    Reachable(Instant),
}

impl Reachability {
    /// Tests the addresses given, except where `assume_…` says not to (AssumeReachable for both,
    /// AssumeReachableIPv6 for `assume_v6`).
    pub fn new(
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

    /// The relay's addresses are these from now on. One that has changed is tested from the
    /// beginning; what is known of the others stays.
    pub fn set_addresses(&mut self, v4: Option<SocketAddr>, v6: Option<SocketAddr>) {
        for (port, addr) in [(&mut self.v4, v4), (&mut self.v6, v6)] {
            if port.as_ref().map(|port| port.addr) != addr {
                *port = addr.map(Port::new);
            }
        }
    }

    /// Whether addresses need no test from now on, as in [`new`](Self::new).
    pub fn set_assumed(&mut self, v4: bool, v6: bool) {
        (self.assume_v4, self.assume_v6) = (v4, v6);
    }

    /// The address to be tested now, if any; call it again after [`started`](Self::started), as
    /// both may be due.
    pub fn due(&self, now: Instant) -> Option<SocketAddr> {
        let v4 = self.v4.iter().filter(|_| !self.assume_v4);
        let v6 = self.v6.iter().filter(|_| !self.assume_v6);
        v4.chain(v6)
            .find(|port| port.is_due(now))
            .map(|port| port.addr)
    }

    /// Picks at random one of `candidates` to ask about `addr`, and remembers it: within a round
    /// no relay is asked twice, unless there are too few. `None` without candidates, or if the
    /// relay has no such address.
    pub fn choose(
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

    /// A probe of `addr` is under way.
    pub fn started(&mut self, addr: SocketAddr, now: Instant) {
        if let Some(port) = self.port(addr)
            && !port.is_reachable()
        {
            port.state = State::Testing(now);
        }
    }

    /// A probe of `addr` has failed, whosever fault it was. The next relay is asked at once, or
    /// after a pause when the round is over.
    pub fn failed(&mut self, addr: SocketAddr, now: Instant) {
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

    /// A probe has reached this relay at `addr`. Returns whether that is news.
    pub fn succeeded(&mut self, addr: SocketAddr, now: Instant) -> bool {
        self.port(addr).is_some_and(|port| port.reached(now))
    }

    /// The relay was reached by other means: a CREATE cell came on a link that it had accepted
    /// from outside, from a peer that calls it `my_addr` in its NETINFO and connected to an
    /// address of that family (C tor's `onionskin_answer`). Returns whether that is news.
    pub fn found_reachable(&mut self, my_addr: IpAddr, now: Instant) -> bool {
        let my_addr = my_addr.to_canonical();
        [&mut self.v4, &mut self.v6]
            .into_iter()
            .flatten()
            .find(|port| port.addr.ip() == my_addr)
            .is_some_and(|port| port.reached(now))
    }

    /// Whether nothing stands in the way of publishing the IPv4 and the IPv6 address: it was
    /// found reachable, is assumed to be, or there is none.
    pub fn is_reachable(&self) -> (bool, bool) {
        let good = |port: &Option<Port>| port.as_ref().is_none_or(Port::is_reachable);
        (
            self.assume_v4 || good(&self.v4),
            self.assume_v6 || good(&self.v6),
        )
    }

    /// When the IPv4 and the IPv6 address were found reachable.
    pub fn reachable_since(&self) -> (Option<Instant>, Option<Instant>) {
        let since = |port: &Option<Port>| match port.as_ref()?.state {
            State::Reachable(when) => Some(when),
            _ => None,
        };
        (since(&self.v4), since(&self.v6))
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
        matches!(self.state, State::Reachable(_))
    }

    fn is_due(&self, now: Instant) -> bool {
        match self.state {
            State::New => true,
            State::Waiting(until) => now >= until,
            State::Testing(since) => now.saturating_duration_since(since) >= LOST,
            State::Reachable(_) => false,
        }
    }

    /// Notes that it was reached; returns whether that is news.
    fn reached(&mut self, now: Instant) -> bool {
        let news = !self.is_reachable();
        if news {
            self.state = State::Reachable(now);
        }
        news
    }
}

/// How long to wait after so many failures.
fn pause_after(failures: u32) -> Duration {
    if !failures.is_multiple_of(RELAYS_PER_ROUND) {
        return Duration::ZERO;
    }
    let rounds = failures / RELAYS_PER_ROUND;
    let factor = 2u32.saturating_pow(rounds.saturating_sub(1));
    FIRST_PAUSE.saturating_mul(factor).min(LONGEST_PAUSE)
}

/// A random number below `bound`, `None` if that is 0. The bias of a remainder of 64 bits is of
/// no account among some thousand relays.
fn below(bound: usize, rng: &mut impl CryptoRng) -> Option<usize> {
    let mut bytes = [0; 8];
    rng.fill_bytes(&mut bytes);
    let bound = u64::try_from(bound).ok()?;
    let number = u64::from_le_bytes(bytes).checked_rem(bound)?;
    usize::try_from(number).ok()
}
