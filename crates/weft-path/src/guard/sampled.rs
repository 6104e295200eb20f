//! One guard of a sample: its state, and when it is tried again.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use weft_cell::identity::RsaIdentity;

use super::bias::{PathBias, Suspicion};
use super::env::Env;
use super::info::Restriction;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// Reachability of a guard (guard-spec, `is_reachable`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reachable {
    Yes,
    No,
    Maybe,
}

/// A guard; fields by guard-spec's names.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    // Kept in the state file.
    pub(super) rsa: RsaIdentity,
    /// The address of a bridge; `None`: it is a guard of the consensus.
    pub(super) bridge: Option<SocketAddr>,
    pub(super) nickname: String,
    pub(super) sampled_on: SystemTime,
    pub(super) sampled_idx: u32,
    pub(super) sampled_by: Option<String>,
    pub(super) listed: bool,
    pub(super) unlisted_since: Option<SystemTime>,
    pub(super) confirmed: Option<(SystemTime, u32)>,
    pub(super) bias: PathBias,
    /// Fields that Weft does not know.
    pub(super) extra: Vec<String>,
    // Not kept.
    pub(super) reachable: Reachable,
    pub(super) failing_since: Option<SystemTime>,
    pub(super) last_tried: Option<SystemTime>,
    pub(super) pending: bool,
    pub(super) filtered: bool,
    /// True if its row is known: the microdescriptor of a relay, or the descriptor of a bridge.
    pub(super) described: bool,
    /// The worst suspicion that its failures have raised.
    pub(super) bias_noted: Option<Suspicion>,
    /// Set where its failures look like an attack and `PathBiasDropGuards` is set.
    pub(super) bias_disabled: bool,
}

impl Guard {
    pub(super) fn is_usable(&self) -> bool {
        self.filtered && self.reachable != Reachable::No
    }

    /// After a while, a guard that failed may be tried again (guard-spec 4.6, "retry schedules").
    pub(super) fn consider_retry(&mut self, primary: bool, now: SystemTime) {
        // Descriptors of bridges are requested by a separate schedule.
        let is_asked = self.bridge.is_some() && !self.described;
        if self.reachable != Reachable::No || is_asked {
            return;
        }
        let elapsed = |since: Option<SystemTime>| {
            since.map_or(Duration::MAX, |since| {
                now.duration_since(since).unwrap_or_default()
            })
        };
        let failing = self
            .failing_since
            .map_or(Duration::ZERO, |since| elapsed(Some(since)));
        if elapsed(self.last_tried) >= retry_delay(failing, primary) {
            self.reachable = Reachable::Maybe;
        }
    }

    /// It may be up again. True: it is a bridge, which can be found out by asking for its descriptor.
    pub(super) fn maybe_reachable(&mut self) -> bool {
        if self.reachable != Reachable::No {
            return false;
        }
        // It keeps `failing_since`: that it is up again is not known yet.
        self.reachable = Reachable::Maybe;
        self.bridge.is_some() && !self.described
    }

    /// Returns true if the restriction permits it.
    pub(super) fn obeys(&self, restriction: Restriction<'_>, env: &Env<'_>) -> bool {
        if restriction.avoid.contains(&self.rsa) {
            return false;
        }
        let Some(exit) = restriction.exit else {
            return true;
        };
        match env.relays.by_rsa(&self.rsa) {
            Some(row) => {
                let subnets = env.options.enforce_distinct_subnets;
                !env.relays.related_by(env.options, row, exit, subnets)
            }
            None => true,
        }
    }
}

/// Time without an attempt after which a guard is tried again, by the time for which it has failed
/// (entrynodes.c, `get_retry_schedule`).
fn retry_delay(failing: Duration, primary: bool) -> Duration {
    let (of_primary, of_others) = if failing <= HOUR * 6 {
        (HOUR / 6, HOUR)
    } else if failing <= DAY * 4 {
        (HOUR * 3 / 2, HOUR * 4)
    } else if failing <= DAY * 7 {
        (HOUR * 4, HOUR * 18)
    } else {
        (HOUR * 9, HOUR * 36)
    };
    if primary { of_primary } else { of_others }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_those_of_guard_spec() {
        // How long it has failed, and after how long a primary guard and another are tried again.
        const MINUTE: Duration = Duration::from_secs(60);
        for (failing, primary, other) in [
            (Duration::ZERO, MINUTE * 10, HOUR),
            (HOUR * 6, MINUTE * 10, HOUR),
            (HOUR * 6 + MINUTE, MINUTE * 90, HOUR * 4),
            (DAY * 4, MINUTE * 90, HOUR * 4),
            (DAY * 4 + MINUTE, HOUR * 4, HOUR * 18),
            (DAY * 7, HOUR * 4, HOUR * 18),
            (DAY * 7 + MINUTE, HOUR * 9, HOUR * 36),
        ] {
            let delays = (retry_delay(failing, true), retry_delay(failing, false));
            assert_eq!(delays, (primary, other), "{failing:?}");
        }
    }
}
