//! When to publish our descriptor, where it has arrived, and when to try again.
//!
//! The rules are dir-spec 2.1's and C tor's (`mark_my_descriptor_dirty_if_too_old`,
//! `check_descriptor_bandwidth_changed`): every 18 hours; at once when something of it changes;
//! after 90 minutes when the consensus does not list us or calls our descriptor stale; when the
//! observed bandwidth doubles or halves during our first day. Unlike C tor, an upload that failed
//! is repeated with growing delays until the authority answered, and a descriptor that an authority
//! declines because another of ours is not older is made anew. No I/O and no clock: time is an
//! argument, and what to do is returned.

use std::time::{Duration, SystemTime};

use rand::Rng;
use tor_llcrypto::pk::rsa::RsaIdentity;

use crate::command::UploadOutcome;
use crate::schedule::Backoff;

/// A descriptor this old is always replaced (`FORCE_REGENERATE_DESCRIPTOR_INTERVAL`).
pub(crate) const FORCE_REGENERATE: Duration = Duration::from_secs(18 * 3600);
/// A descriptor this old is replaced if the consensus ignores it (`FAST_RETRY_DESCRIPTOR_INTERVAL`).
pub(crate) const FAST_RETRY: Duration = Duration::from_secs(90 * 60);
/// Change of observed bandwidth that is worth publishing (`BANDWIDTH_CHANGE_FACTOR`).
const BANDWIDTH_FACTOR: u64 = 2;
/// Shortest time between publications because of bandwidth (`MAX_BANDWIDTH_CHANGE_FREQ`).
const BANDWIDTH_INTERVAL: Duration = Duration::from_secs(3 * 3600);
/// Uptime past which bandwidth waits for the next regular publication
/// (`MAX_UPTIME_BANDWIDTH_CHANGE`).
const BANDWIDTH_UPTIME: Duration = Duration::from_secs(24 * 3600);
/// Two uploads of different descriptors are at least this far apart, so that a flood of changes
/// is one publication; authorities count seconds.
const MIN_INTERVAL: Duration = Duration::from_secs(2);
/// Longest wait for the clock to pass the publication time of a descriptor that an authority has;
/// then that is looked at again, as the clock may have been set meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Our listing in the newest live consensus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnListing {
    /// There is no live consensus.
    Unknown,
    /// It does not list us.
    Unlisted,
    /// It lists us.
    Listed {
        /// It wants a newer descriptor (`StaleDesc`).
        stale: bool,
        /// When that consensus became valid.
        valid_after: SystemTime,
    },
}

/// Inputs of the rules of publication.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    /// The wall clock.
    pub(crate) now: SystemTime,
    /// Our listing in the consensus.
    pub(crate) listing: OwnListing,
    /// Time since our start.
    pub(crate) uptime: Duration,
    /// Observed bandwidth, in bytes per second.
    pub(crate) observed: u64,
    /// True if this is a testing network.
    pub(crate) testing: bool,
}

/// Where the descriptor is on its way to one authority.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    /// To be uploaded at this monotonic time.
    Due(Duration),
    /// Being uploaded.
    Underway,
    /// Answered: taken, or refused for good.
    Done(bool),
}

/// One authority.
#[derive(Debug)]
struct Upload {
    /// Its identity.
    authority: RsaIdentity,
    /// Progress of the upload to it.
    progress: Progress,
    /// True once it has answered or failed at least once for this descriptor.
    tried: bool,
    /// Delays after failures.
    backoff: Backoff,
}

/// Counts of a publication in which every authority has been tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    /// Authorities that have the descriptor.
    pub(crate) accepted: usize,
    /// Authorities asked.
    pub(crate) of: usize,
}

/// Decides when to publish and keeps track of uploads.
#[derive(Debug)]
pub(crate) struct Publisher {
    /// Why a new descriptor is wanted, if it is.
    dirty: Option<&'static str>,
    /// Publication time of the descriptor that is out, and the observed bandwidth in it;
    /// none if it could not be made.
    published: Option<(SystemTime, Option<u64>)>,
    /// When, in monotonic time, it was made.
    made_at: Option<Duration>,
    /// Before this monotonic time a descriptor would not be newer than one that an authority has.
    not_before: Duration,
    /// When bandwidth was last the reason.
    bandwidth_changed: Option<SystemTime>,
    /// Counts descriptors; answers about an older one are ignored.
    generation: u64,
    /// The authorities.
    uploads: Vec<Upload>,
    /// True once this generation's round has been reported.
    round_reported: bool,
}

impl Default for Publisher {
    fn default() -> Self {
        Self {
            dirty: None,
            published: None,
            made_at: None,
            not_before: Duration::ZERO,
            bandwidth_changed: None,
            generation: 0,
            uploads: Vec::new(),
            round_reported: true,
        }
    }
}

impl Publisher {
    /// A new descriptor is wanted for this reason. The first reason stays.
    pub(crate) fn mark_dirty(&mut self, reason: &'static str) {
        self.dirty.get_or_insert(reason);
    }

    /// Applies the rules of time, listing and bandwidth; call every minute or so.
    pub(crate) fn check(&mut self, situation: &Situation) {
        let Some((published, bandwidth)) = self.published else {
            return;
        };
        // A publication time in the future means that the clock was set back: what is out is
        // wrong, so its age counts as past every limit.
        let age = situation
            .now
            .duration_since(published)
            .unwrap_or(FORCE_REGENERATE);
        if age >= FORCE_REGENERATE {
            return self.mark_dirty("time for new descriptor");
        }
        if age >= FAST_RETRY {
            match situation.listing {
                OwnListing::Unlisted => return self.mark_dirty("not listed in consensus"),
                OwnListing::Listed {
                    stale: true,
                    valid_after,
                } if valid_after > published => {
                    return self.mark_dirty("listed as stale in consensus");
                }
                _ => {}
            }
        }
        if let Some(bandwidth) = bandwidth {
            self.check_bandwidth(situation, bandwidth);
        }
    }

    /// The rule of bandwidth: twice or half of what was published, during the first day.
    fn check_bandwidth(&mut self, situation: &Situation, published: u64) {
        if situation.uptime > BANDWIDTH_UPTIME {
            return;
        }
        let observed = situation.observed;
        let changed = (published == 0) != (observed == 0)
            || observed > published.saturating_mul(BANDWIDTH_FACTOR)
            || observed < published / BANDWIDTH_FACTOR;
        let recently = self.bandwidth_changed.is_some_and(|when| {
            situation
                .now
                .duration_since(when)
                .is_ok_and(|since| since < BANDWIDTH_INTERVAL)
        });
        if changed && (!recently || situation.testing || published == 0) {
            self.bandwidth_changed = Some(situation.now);
            self.mark_dirty("bandwidth has changed");
        }
    }

    /// Why to make a new descriptor now, if so.
    pub(crate) fn wants(&self, monotonic: Duration) -> Option<&'static str> {
        self.dirty.filter(|_| monotonic >= self.may_make_at())
    }

    /// The monotonic time from which on a descriptor may be made.
    fn may_make_at(&self) -> Duration {
        let earliest = self.made_at.map_or(Duration::ZERO, |at| at + MIN_INTERVAL);
        earliest.max(self.not_before)
    }

    /// An authority keeps a descriptor of ours that differs from the one that it was
    /// sent, because that is not newer than `held`: made in the same second by another program with
    /// our keys, or while the clock was wrong. Another is wanted once it can be newer. Returns how
    /// long that takes.
    pub(crate) fn overtaken(
        &mut self,
        held: SystemTime,
        now: SystemTime,
        monotonic: Duration,
    ) -> Duration {
        // Descriptors have whole seconds.
        let newer = held + Duration::from_secs(1);
        let wait = newer.duration_since(now).unwrap_or_default();
        self.not_before = self.not_before.max(monotonic + wait.min(LONGEST_WAIT));
        self.mark_dirty("an authority has another descriptor that is not older");
        wait
    }

    /// A descriptor has been made: it is due at every one of `authorities` now. Returns its
    /// generation.
    pub(crate) fn made(
        &mut self,
        published: SystemTime,
        observed: u64,
        monotonic: Duration,
        authorities: impl Iterator<Item = RsaIdentity>,
        testing: bool,
    ) -> u64 {
        let (base, cap) = if testing { (1, 10) } else { (60, 3600) };
        let (base, cap) = (Duration::from_secs(base), Duration::from_secs(cap));
        self.dirty = None;
        self.published = Some((published, Some(observed)));
        self.made_at = Some(monotonic);
        self.generation += 1;
        self.round_reported = false;
        self.uploads = authorities
            .map(|authority| Upload {
                authority,
                progress: Progress::Due(monotonic),
                tried: false,
                backoff: Backoff::new(base, cap),
            })
            .collect();
        self.generation
    }

    /// No descriptor could be made: forget the wish until something marks it again.
    pub(crate) fn give_up(&mut self, published: SystemTime) {
        self.dirty = None;
        // Counts as made, so that the regular rules try again later.
        self.published = Some((published, None));
        self.uploads.clear();
    }

    /// An authority to upload to now, which then counts as underway.
    pub(crate) fn next_upload(&mut self, monotonic: Duration) -> Option<RsaIdentity> {
        let upload = self
            .uploads
            .iter_mut()
            .find(|upload| matches!(upload.progress, Progress::Due(at) if at <= monotonic))?;
        upload.progress = Progress::Underway;
        Some(upload.authority)
    }

    /// An upload of `generation` to `authority` ended. `Some` once every authority has been tried.
    pub(crate) fn ended(
        &mut self,
        generation: u64,
        authority: &RsaIdentity,
        outcome: &UploadOutcome,
        monotonic: Duration,
        rng: &mut impl Rng,
    ) -> Option<Round> {
        if generation != self.generation {
            return None;
        }
        let upload = self
            .uploads
            .iter_mut()
            .find(|upload| upload.authority == *authority)?;
        upload.tried = true;
        upload.progress = match outcome {
            UploadOutcome::Failed(_) => Progress::Due(monotonic + upload.backoff.failed(rng)),
            _ => Progress::Done(outcome.is_success()),
        };
        let round = Round {
            accepted: self
                .uploads
                .iter()
                .filter(|upload| upload.progress == Progress::Done(true))
                .count(),
            of: self.uploads.len(),
        };
        let reported = self.round_reported;
        // Reported once when all have been tried, and again when a repetition completes it.
        let complete = self
            .uploads
            .iter()
            .all(|upload| matches!(upload.progress, Progress::Done(_)));
        self.round_reported = reported || self.uploads.iter().all(|upload| upload.tried);
        (self.round_reported && (!reported || complete)).then_some(round)
    }

    /// True if some authority has the newest descriptor.
    pub(crate) fn is_published(&self) -> bool {
        self.uploads
            .iter()
            .any(|upload| upload.progress == Progress::Done(true))
    }

    /// When, in monotonic time, there is something to do without anything else happening.
    pub(crate) fn next_wake(&self) -> Option<Duration> {
        let due = self
            .uploads
            .iter()
            .filter_map(|upload| match upload.progress {
                Progress::Due(at) => Some(at),
                _ => None,
            });
        let make = self.dirty.map(|_| self.may_make_at());
        due.chain(make).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    const MINUTE: Duration = Duration::from_secs(60);
    const HOUR: Duration = Duration::from_secs(3600);

    fn start() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
    }

    fn ids() -> [RsaIdentity; 2] {
        [[1; 20].into(), [2; 20].into()]
    }

    /// A publisher whose descriptor, with 1000 B/s, went out at `start()`.
    fn published() -> (Publisher, u64) {
        let mut publisher = Publisher::default();
        publisher.mark_dirty("first");
        let generation = publisher.made(start(), 1000, Duration::ZERO, ids().into_iter(), false);
        (publisher, generation)
    }

    fn after(age: Duration, listing: OwnListing, observed: u64) -> Option<&'static str> {
        let (mut publisher, _) = published();
        publisher.check(&Situation {
            now: start() + age,
            listing,
            uptime: age,
            observed,
            testing: false,
        });
        publisher.wants(HOUR)
    }

    #[test]
    fn a_descriptor_is_replaced_after_eighteen_hours() {
        assert_eq!(after(18 * HOUR - MINUTE, OwnListing::Unknown, 1000), None);
        assert_eq!(
            after(18 * HOUR, OwnListing::Unknown, 1000),
            Some("time for new descriptor")
        );
    }

    #[test]
    fn a_descriptor_that_the_consensus_ignores_is_replaced_after_ninety_minutes() {
        assert_eq!(after(80 * MINUTE, OwnListing::Unlisted, 1000), None);
        assert_eq!(
            after(90 * MINUTE, OwnListing::Unlisted, 1000),
            Some("not listed in consensus")
        );
        let stale = |valid_after| OwnListing::Listed {
            stale: true,
            valid_after,
        };
        assert_eq!(
            after(90 * MINUTE, stale(start() + HOUR), 1000),
            Some("listed as stale in consensus")
        );
        assert_eq!(
            after(90 * MINUTE, stale(start() - HOUR), 1000),
            None,
            "that consensus is older"
        );
        let listed = OwnListing::Listed {
            stale: false,
            valid_after: start() + HOUR,
        };
        assert_eq!(after(10 * HOUR, listed, 1000), None);
    }

    #[test]
    fn bandwidth_that_doubled_or_halved_in_the_first_day_is_published() {
        let reason = Some("bandwidth has changed");
        assert_eq!(after(HOUR, OwnListing::Unknown, 2000), None);
        assert_eq!(after(HOUR, OwnListing::Unknown, 2001), reason);
        assert_eq!(after(HOUR, OwnListing::Unknown, 499), reason);
        assert_eq!(after(HOUR, OwnListing::Unknown, 0), reason);
        let (mut publisher, _) = published();
        publisher.check(&Situation {
            now: start() + HOUR,
            listing: OwnListing::Unknown,
            uptime: 25 * HOUR,
            observed: 9000,
            testing: false,
        });
        assert_eq!(
            publisher.wants(HOUR),
            None,
            "an old relay waits for its regular time"
        );
    }

    #[test]
    fn bandwidth_is_published_every_three_hours_at_most() {
        let (mut publisher, _) = published();
        let mut published_after = Vec::new();
        let mut observed = 1000;
        for minute in 1..=400_u32 {
            observed += observed / 50;
            let now = start() + minute * MINUTE;
            publisher.check(&Situation {
                now,
                listing: OwnListing::Unknown,
                uptime: minute * MINUTE,
                observed,
                testing: false,
            });
            if publisher.wants(minute * MINUTE).is_some() {
                published_after.push(minute);
                publisher.made(now, observed, minute * MINUTE, ids().into_iter(), false);
            }
        }
        let gaps: Vec<u32> = published_after
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .collect();
        assert!(published_after[0] < 60, "{published_after:?}");
        assert_eq!(gaps, [180, 180], "{published_after:?}");
    }

    #[test]
    fn a_clock_set_back_makes_the_descriptor_wrong() {
        let (mut publisher, _) = published();
        publisher.check(&Situation {
            now: start() - HOUR,
            listing: OwnListing::Unknown,
            uptime: HOUR,
            observed: 1000,
            testing: false,
        });
        assert_eq!(publisher.wants(HOUR), Some("time for new descriptor"));
    }

    #[test]
    fn every_authority_gets_it_once_and_failures_are_repeated_later() {
        let (mut publisher, generation) = published();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let [a, b] = ids();
        assert_eq!(publisher.next_upload(Duration::ZERO), Some(a));
        assert_eq!(publisher.next_upload(Duration::ZERO), Some(b));
        assert_eq!(publisher.next_upload(Duration::ZERO), None);
        assert_eq!(
            publisher.ended(
                generation,
                &a,
                &UploadOutcome::Accepted,
                Duration::ZERO,
                &mut rng
            ),
            None
        );
        let failed = UploadOutcome::Failed("no route".into());
        assert_eq!(
            publisher.ended(generation, &b, &failed, Duration::ZERO, &mut rng),
            Some(Round { accepted: 1, of: 2 })
        );
        let wake = publisher.next_wake().unwrap();
        assert!(wake >= MINUTE);
        assert_eq!(publisher.next_upload(wake - Duration::from_millis(1)), None);
        assert_eq!(publisher.next_upload(wake), Some(b));
        assert_eq!(
            publisher.ended(generation, &b, &UploadOutcome::NotNew, wake, &mut rng),
            Some(Round { accepted: 2, of: 2 })
        );
        assert_eq!(publisher.next_wake(), None);
    }

    #[test]
    fn a_refusal_is_not_repeated_until_the_descriptor_changes() {
        let (mut publisher, generation) = published();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for id in ids() {
            publisher.next_upload(Duration::ZERO);
            publisher.ended(
                generation,
                &id,
                &UploadOutcome::Refused("bad".into()),
                Duration::ZERO,
                &mut rng,
            );
        }
        assert_eq!(publisher.next_wake(), None);
        publisher.mark_dirty("config change");
        assert_eq!(
            publisher.wants(Duration::from_secs(1)),
            None,
            "not within the same seconds"
        );
        assert_eq!(
            publisher.wants(Duration::from_secs(2)),
            Some("config change")
        );
        publisher.made(start() + MINUTE, 1000, MINUTE, ids().into_iter(), false);
        assert!(publisher.next_upload(MINUTE).is_some());
        assert_eq!(
            publisher.ended(
                generation,
                &ids()[0],
                &UploadOutcome::Accepted,
                MINUTE,
                &mut rng
            ),
            None,
            "an answer about the older descriptor does not count"
        );
    }

    #[test]
    fn a_descriptor_that_is_not_newer_than_what_an_authority_has_is_made_anew_when_it_can_be() {
        let (mut publisher, _) = published();
        let later = Duration::from_millis(2500);
        let reason = Some("an authority has another descriptor that is not older");
        // Of the same second: that second is over.
        let wait = publisher.overtaken(start(), start() + later, later);
        assert_eq!(wait, Duration::ZERO);
        assert_eq!(publisher.wants(later), reason);
        publisher.made(start() + later, 1000, later, ids().into_iter(), false);
        // Made while the clock was half a minute fast.
        let held = start() + Duration::from_secs(30);
        let wait = publisher.overtaken(held, start() + later, later);
        assert_eq!(wait, Duration::from_millis(28_500));
        assert_eq!(
            publisher.wants(later + wait - Duration::from_millis(1)),
            None
        );
        assert_eq!(publisher.wants(later + wait), reason);
        // Made while it was years fast: looked at again when the clock may be another.
        let wait = publisher.overtaken(start() + 20_000 * HOUR, start() + later, later);
        assert!(wait > 19_000 * HOUR);
        assert_eq!(publisher.wants(later + HOUR), reason);
    }
}
