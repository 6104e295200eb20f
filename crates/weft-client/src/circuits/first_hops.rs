//! First hops that do not answer over links that are open.
//!
//! Only a connection that cannot be opened is the guard's fault: a circuit fails by anybody on its
//! path, and in C tor (TROVE-2026-030, -038, -041) others could drive a client from guard to guard.
//! But a link can stall, and a relay can open links and answer nothing, or after a minute (C tor
//! bugs 41412, 41420: clients were stuck for hours). A first hop has 25 seconds, whatever the time
//! that circuits take to build; a link on which nothing has answered for 25 seconds takes no new
//! circuits. If the next one to the same relay does not answer either, that counts as a connection
//! that cannot be opened: within a minute another guard is taken. So does a relay that refuses
//! every CREATE for that time. An attacker who floods a guard until it refuses can drive its
//! clients away by that; C tor's clients stay, and are without circuits meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weft_cell::identity::RsaIdentity;
use weft_core::address::ConnectionId;

/// The time that a first hop has to answer over a link that is open: many times what a slow line and a busy relay take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(25);

/// Consequence of a CREATE without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The link takes no new circuits.
    Retire,
    /// The link takes no new circuits, and the one before it was retired, too: the relay cannot be
    /// reached.
    Unreachable,
}

/// The least refusals of a relay that show that it refuses all.
const REFUSALS: u32 = 3;

/// The time after which a refusal is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// A relay that refuses.
#[derive(Clone, Copy, Debug)]
struct Refusing {
    since: Instant,
    last: Instant,
    count: u32,
}

/// A relay that has answered nothing for some time.
#[derive(Clone, Copy, Debug)]
struct Silent {
    /// Its newest link.
    link: ConnectionId,
    /// When the first CREATE without an answer was sent on it.
    since: Instant,
    /// It takes no new circuits.
    retired: bool,
    /// The link before it was retired.
    again: bool,
}

/// The first hops that do not answer.
#[derive(Debug, Default)]
pub(crate) struct FirstHops {
    silent: BTreeMap<RsaIdentity, Silent>,
    refusing: BTreeMap<RsaIdentity, Refusing>,
}

impl FirstHops {
    /// A relay took a CREATE.
    pub(crate) fn answered(&mut self, rsa: &RsaIdentity) {
        self.silent.remove(rsa);
        self.refusing.remove(rsa);
    }

    /// A relay refused a CREATE. [`Silence::Unreachable`] if it has refused all for too long.
    pub(crate) fn refused(&mut self, rsa: RsaIdentity, now: Instant) -> Option<Silence> {
        self.silent.remove(&rsa);
        let begins = Refusing {
            since: now,
            last: now,
            count: 0,
        };
        let refusing = self.refusing.entry(rsa).or_insert(begins);
        // Refusals of long ago mean nothing now.
        if now.saturating_duration_since(refusing.last) > FORGOTTEN {
            *refusing = begins;
        }
        refusing.last = now;
        refusing.count = refusing.count.saturating_add(1);
        let long = now.saturating_duration_since(refusing.since) >= PATIENCE;
        let refuses_all = long && refusing.count >= REFUSALS;
        if refuses_all {
            self.refusing.remove(&rsa);
        }
        refuses_all.then_some(Silence::Unreachable)
    }

    /// A CREATE that was sent at `began` is not waited for any longer.
    pub(crate) fn silent(
        &mut self,
        rsa: RsaIdentity,
        link: ConnectionId,
        (began, now): (Instant, Instant),
    ) -> Option<Silence> {
        let known = self.silent.get(&rsa).copied();
        let mut silent = match known {
            Some(known) if known.link == link => known,
            // Circuits of an earlier link show nothing new.
            Some(known) if known.link > link => return None,
            other => Silent {
                link,
                since: began,
                retired: false,
                again: other.is_some_and(|before| before.retired),
            },
        };
        let waited = now.saturating_duration_since(silent.since);
        let is_over = !silent.retired && waited >= PATIENCE;
        silent.retired |= is_over;
        self.silent.insert(rsa, silent);
        is_over.then_some(match silent.again {
            true => Silence::Unreachable,
            false => Silence::Retire,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_that_refuses_all_for_long_cannot_be_reached() {
        let mut hops = FirstHops::default();
        let (rsa, start) = (RsaIdentity([1; 20]), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(hops.refused(rsa, after(0)), None);
        assert_eq!(hops.refused(rsa, after(30)), None, "two");
        assert_eq!(hops.refused(rsa, after(31)), Some(Silence::Unreachable));
        // The time starts again, and does so with every circuit that it takes.
        for second in 40..60 {
            assert_eq!(hops.refused(rsa, after(second)), None);
        }
        hops.answered(&rsa);
        for second in 60..80 {
            assert_eq!(hops.refused(rsa, after(second)), None);
        }
        assert_eq!(hops.refused(rsa, after(85)), Some(Silence::Unreachable));
        // Refusals of different times show nothing.
        for hour in 1..10 {
            assert_eq!(hops.refused(rsa, after(3600 * hour)), None);
        }
    }

    #[test]
    fn a_link_is_retired_once_and_the_second_in_a_row_is_a_relay_that_cannot_be_reached() {
        let mut hops = FirstHops::default();
        let (rsa, start) = (RsaIdentity([1; 20]), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut silent = |link, began, now| {
            let times = (after(began), after(now));
            hops.silent(rsa, ConnectionId(link), times)
        };
        // Short timeouts add up.
        assert_eq!(silent(1, 0, 10), None);
        assert_eq!(silent(1, 15, 24), None);
        assert_eq!(silent(1, 20, 25), Some(Silence::Retire));
        assert_eq!(silent(1, 20, 40), None);
        assert_eq!(silent(2, 100, 124), None);
        assert_eq!(silent(1, 90, 124), None);
        assert_eq!(silent(2, 100, 125), Some(Silence::Unreachable));
        assert_eq!(silent(2, 100, 126), None);
        assert_eq!(silent(3, 200, 225), Some(Silence::Unreachable));
        hops.answered(&rsa);
        let times = (after(300), after(325));
        let first = hops.silent(rsa, ConnectionId(4), times);
        assert_eq!(first, Some(Silence::Retire));
        hops.answered(&rsa);
        assert!(hops.silent.is_empty());
    }
}
