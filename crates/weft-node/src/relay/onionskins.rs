//! Detection of so many refused onionskins that the descriptor must report it (C tor
//! `overload_general_onionskin_assessment`).

use std::time::{Duration, Instant, SystemTime};

use weft_core::controller::HandshakeCounts;
use weft_dir::command::Command;
use weft_dir::params::Params;

use super::Relay;
use crate::notice;

/// Number of onionskins from which on a share of them is significant.
const ENOUGH: u64 = 1000;
/// The consensus gives the share in thousandths of a percent.
const SCALE: f64 = 100_000.0;

/// Onionskins of relays by ntor and ntor-v3: clients' are left out, since the descriptor is public.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Asked for.
    requested: u64,
    /// Onionskins refused, of those requested.
    dropped: u64,
}

impl Seen {
    fn of(counts: &HandshakeCounts) -> Seen {
        let both = [counts.ntor, counts.ntor_v3];
        let dropped = both.iter().map(|handled| handled.dropped).sum();
        let processed: u64 = both.iter().map(|handled| handled.processed).sum();
        Seen {
            requested: processed + dropped,
            dropped,
        }
    }

    fn since(self, before: Seen) -> Seen {
        Seen {
            requested: self.requested.saturating_sub(before.requested),
            dropped: self.dropped.saturating_sub(before.dropped),
        }
    }

    fn share(self) -> f64 {
        self.dropped as f64 / self.requested.max(1) as f64
    }
}

/// A period that ends only when it has seen enough.
#[derive(Debug)]
pub(super) struct Assessment {
    began: Instant,
    before: Seen,
}

impl Assessment {
    pub(super) fn new(now: Instant) -> Assessment {
        Assessment {
            began: now,
            before: Seen::default(),
        }
    }

    /// Counts of the period that ends now, if too many onionskins were refused in it.
    fn end(&mut self, all: Seen, period: Duration, most: f64, now: Instant) -> Option<Seen> {
        let seen = all.since(self.before);
        if now < self.began + period || seen.requested < ENOUGH {
            return None;
        }
        (self.began, self.before) = (now, all);
        (seen.share() >= most).then_some(seen)
    }
}

/// The share that the consensus allows.
fn most(params: &Params) -> f64 {
    f64::from(params.overload_onionskin_ntor_scale_percent) / SCALE
}

impl Relay {
    /// Once a second.
    pub(super) fn assess_onionskins(&mut self, now: Instant) {
        let params = &self.network.params;
        let (period, most) = (params.overload_onionskin_ntor_period_secs, most(params));
        let all = Seen::of(&self.controller.counts().relay_onionskins);
        if let Some(seen) = self.onionskins.end(all, period, most, now) {
            notice!(
                "General overload: {} of {} onionskins of relays were refused, {:.1} %. The descriptor states it, \
                 since the network wants less than {:.1} %",
                seen.dropped,
                seen.requested,
                100.0 * seen.share(),
                100.0 * most,
            );
            self.directory(Command::Overloaded(SystemTime::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::controller::Handled;

    const HOUR: Duration = Duration::from_secs(3600);

    fn seen(requested: u64, dropped: u64) -> Seen {
        Seen { requested, dropped }
    }

    #[test]
    fn relays_onionskins_of_both_kinds_of_ntor_are_seen() {
        let handled = |processed, dropped| Handled { processed, dropped };
        let counts = HandshakeCounts {
            fast: handled(100, 100),
            ntor: handled(5, 1),
            ntor_v3: handled(7, 2),
        };
        assert_eq!(Seen::of(&counts), seen(15, 3));
    }

    /// One that is refused among a million is no overload, as it was to Weft until November 2026.
    #[test]
    fn the_descriptor_states_a_share_of_a_period_with_enough() {
        let start = Instant::now();
        let mut params = Params::default();
        assert_eq!(params.overload_onionskin_ntor_period_secs, 6 * HOUR);
        assert_eq!(most(&params), 0.01);
        // As the network had it in 2026.
        params.overload_onionskin_ntor_scale_percent = 500;
        let most = most(&params);
        let mut assessment = Assessment::new(start);
        let mut at = |hours, all| assessment.end(all, 3 * HOUR, most, start + hours * HOUR);
        assert_eq!(at(2, seen(100_000, 90_000)), None, "too soon");
        assert_eq!(at(3, seen(1_000_000, 1)), None, "one of a million");
        // The next period counts from there.
        assert_eq!(at(5, seen(1_009_000, 9_000)), None, "too soon");
        assert_eq!(at(6, seen(1_010_000, 51)), Some(seen(10_000, 50)));
        assert_eq!(at(9, seen(1_020_000, 100)), None, "49 of 10,000");
        // Too few: the period goes on.
        assert_eq!(at(12, seen(1_020_999, 1_099)), None);
        assert_eq!(at(13, seen(1_021_000, 1_100)), Some(seen(1000, 1000)));
    }

    #[test]
    fn periods_and_shares_of_zero_do_no_harm() {
        let now = Instant::now();
        let mut assessment = Assessment::new(now);
        assert_eq!(assessment.end(seen(0, 0), Duration::ZERO, 0.0, now), None);
        let enough = seen(ENOUGH, 0);
        assert_eq!(
            assessment.end(enough, Duration::ZERO, 0.0, now),
            Some(enough)
        );
    }
}
