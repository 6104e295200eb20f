//! First hops that do not answer over links that are open.
//!
//! Only a connection that cannot be opened is the guard's fault: a circuit fails by anybody on its path, and in C tor
//! (TROVE-2026-030, -038, -041) others could drive a client from guard to guard. But a link can stall, and a relay can
//! open links and answer nothing. A link on which nothing has answered for a minute takes no new circuits (C tor bug
//! 41412). If the next one to the same relay does not answer either, that counts as a connection that cannot be opened.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weft_cell::identity::RsaIdentity;
use weft_core::address::ConnectionId;

/// The least time that a first hop has to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Consequence of a CREATE without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The link takes no new circuits.
    Retire,
    /// The same, and the link before it was retired, too: the relay cannot be reached.
    Unreachable,
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
}

impl FirstHops {
    /// A relay answered a CREATE, if only by refusing it.
    pub(crate) fn answered(&mut self, rsa: &RsaIdentity) {
        self.silent.remove(rsa);
    }

    /// A CREATE that was sent at `began` is not waited for any longer.
    pub(crate) fn silent(
        &mut self,
        rsa: RsaIdentity,
        link: ConnectionId,
        (began, now): (Instant, Instant),
        patience: Duration,
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
        let is_over = !silent.retired && waited >= patience;
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
    fn a_link_is_retired_once_and_the_second_in_a_row_is_a_relay_that_cannot_be_reached() {
        let mut hops = FirstHops::default();
        let (rsa, start) = (RsaIdentity([1; 20]), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut silent = |link, began, now| {
            let times = (after(began), after(now));
            hops.silent(rsa, ConnectionId(link), times, PATIENCE)
        };
        // Short timeouts add up.
        assert_eq!(silent(1, 0, 10), None);
        assert_eq!(silent(1, 40, 50), None);
        assert_eq!(silent(1, 50, 60), Some(Silence::Retire));
        assert_eq!(silent(1, 50, 70), None);
        assert_eq!(silent(2, 100, 159), None);
        assert_eq!(silent(1, 90, 159), None);
        assert_eq!(silent(2, 100, 160), Some(Silence::Unreachable));
        assert_eq!(silent(2, 100, 161), None);
        assert_eq!(silent(3, 200, 260), Some(Silence::Unreachable));
        hops.answered(&rsa);
        let times = (after(300), after(360));
        let first = hops.silent(rsa, ConnectionId(4), times, PATIENCE);
        assert_eq!(first, Some(Silence::Retire));
        hops.answered(&rsa);
        assert!(hops.silent.is_empty());
    }
}
