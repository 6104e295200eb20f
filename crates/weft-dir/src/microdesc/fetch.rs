//! Chooses the microdescriptors, and other documents that are known by digests, to request next.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::Rng;

use super::MdDigest;
use crate::schedule::Backoff;

/// Most digests in one request (C tor `MAX_MICRODESCS_PER_REQUEST`: longer request lines are
/// refused by old proxies).
const MAX_PER_REQUEST: usize = 92;
/// Fewest digests in one request as long as there are more to ask for (C tor
/// `MIN_DL_PER_REQUEST`).
const MIN_PER_REQUEST: usize = 32;
/// Requests among which few digests are shared out, so that no directory knows all that we ask
/// for and a bad one does little harm (C tor `MIN_REQUESTS`).
const SHARES: usize = 3;
/// Requests underway at the same time.
const MAX_UNDERWAY: usize = 8;
/// Number of documents worth requesting at once (C tor `MAX_DL_TO_DELAY`).
const WORTHWHILE: usize = 16;
/// Longest delay of one that no directory had (C tor's schedule grows to its hourly reset, too).
const RETRY_CAP: Duration = Duration::from_secs(3600);
/// Longest delay in a testing network.
const RETRY_CAP_TESTING: Duration = Duration::from_secs(5);

/// Digests asked for together.
pub type Batch = Vec<MdDigest>;

/// The state of one that we lack.
#[derive(Debug)]
struct Wanted {
    /// True while it is being requested.
    underway: bool,
    /// Not before this monotonic time.
    not_before: Duration,
    /// Delays after failures.
    backoff: Backoff,
}

/// The microdescriptors that are lacking.
pub type MicrodescFetch = DigestFetch<MdDigest>;

/// The documents that are lacking.
#[derive(Debug)]
pub struct DigestFetch<D> {
    /// By digest.
    wanted: BTreeMap<D, Wanted>,
    /// Requests underway.
    underway: usize,
    /// Smallest delay after failures, and delay before the first attempt.
    delay: Duration,
    /// Largest delay after failures.
    cap: Duration,
    /// Time that a few missing documents wait for more, after others were requested.
    patience: Duration,
    /// When some were asked for last.
    asked: Option<Duration>,
}

impl<D: Ord + Copy> DigestFetch<D> {
    /// Nothing is lacking yet. `delay` passes before the first attempt at each, and after it failed.
    pub fn new(testing: bool, delay: Duration) -> Self {
        Self {
            wanted: BTreeMap::new(),
            underway: 0,
            delay,
            patience: Duration::ZERO,
            asked: None,
            cap: if testing {
                RETRY_CAP_TESTING
            } else {
                RETRY_CAP
            },
        }
    }

    /// Few have to wait so long for more, after others were asked for.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// These, and no others, are lacking now.
    pub fn want(&mut self, digests: impl IntoIterator<Item = D>, monotonic: Duration) {
        let mut before = std::mem::take(&mut self.wanted);
        for digest in digests {
            let state = before.remove(&digest).unwrap_or_else(|| Wanted {
                underway: false,
                not_before: match self.delay.is_zero() {
                    true => Duration::ZERO,
                    false => monotonic + self.delay,
                },
                backoff: Backoff::new(self.delay, self.cap),
            });
            self.wanted.insert(digest, state);
        }
    }

    /// Number of documents that are lacking.
    pub fn lacking(&self) -> usize {
        self.wanted.len()
    }

    /// True while requests are underway.
    pub(crate) fn is_underway(&self) -> bool {
        self.underway > 0
    }

    /// Digests to ask one directory for now. They count as underway until
    /// [`answered`](Self::answered).
    pub fn next(&mut self, monotonic: Duration) -> Option<Vec<D>> {
        if self.underway >= MAX_UNDERWAY {
            return None;
        }
        let ready = |wanted: &Wanted| !wanted.underway && wanted.not_before <= monotonic;
        let count = self.wanted.values().filter(|wanted| ready(wanted)).count();
        if count == 0 || (count < WORTHWHILE && self.must_wait(monotonic)) {
            return None;
        }
        self.asked = Some(monotonic);
        // With requests underway this is what is left of a share-out that has begun.
        let shares = SHARES.saturating_sub(self.underway).max(1);
        let size = count
            .div_ceil(shares)
            .clamp(MIN_PER_REQUEST, MAX_PER_REQUEST);
        let batch: Vec<D> = self
            .wanted
            .iter_mut()
            .filter(|(_, wanted)| ready(wanted))
            .take(size)
            .map(|(digest, wanted)| {
                wanted.underway = true;
                *digest
            })
            .collect();
        self.underway += 1;
        Some(batch)
    }

    /// Few that are lacking are not asked for yet: a share-out that has begun is completed.
    fn must_wait(&self, monotonic: Duration) -> bool {
        let until = self.asked.map(|asked| asked + self.patience);
        self.underway == 0 && until.is_some_and(|until| monotonic < until)
    }

    /// Ends the request for `batch`. Its documents that [`arrived`](Self::arrived) are no longer
    /// lacking; the others are requested again after a delay.
    pub fn answered(&mut self, batch: &[D], monotonic: Duration, rng: &mut impl Rng) {
        self.underway = self.underway.saturating_sub(1);
        for digest in batch {
            if let Some(wanted) = self.wanted.get_mut(digest) {
                wanted.underway = false;
                wanted.not_before = monotonic + wanted.backoff.failed(rng);
            }
        }
    }

    /// This one has come.
    pub fn arrived(&mut self, digest: &D) -> bool {
        self.wanted.remove(digest).is_some()
    }

    /// Delays after failures are forgotten.
    pub(crate) fn retry_now(&mut self) {
        for wanted in self.wanted.values_mut() {
            wanted.not_before = Duration::ZERO;
            wanted.backoff.succeeded();
        }
    }

    /// Time until [`next`](Self::next) may return a request, if nothing else happens.
    pub fn wait(&self, monotonic: Duration) -> Option<Duration> {
        if self.underway >= MAX_UNDERWAY {
            return None;
        }
        let times = || {
            let idle = self.wanted.values().filter(|wanted| !wanted.underway);
            idle.map(|wanted| wanted.not_before)
        };
        let ready = times().min()?;
        let asked = (self.asked).filter(|_| self.underway == 0 && !self.patience.is_zero());
        let at = asked.map_or(ready, |asked| {
            // Few wait until there are more, or until that has lasted long enough.
            let patient = ready.max(asked + self.patience);
            let mut all: Vec<Duration> = times().collect();
            if all.len() < WORTHWHILE {
                return patient;
            }
            let (_, many, _) = all.select_nth_unstable(WORTHWHILE - 1);
            patient.min(*many)
        });
        Some(at.saturating_sub(monotonic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn digests(count: u16) -> Vec<MdDigest> {
        (0..count)
            .map(|number| {
                let mut digest = [0; 32];
                digest[..2].copy_from_slice(&number.to_be_bytes());
                digest
            })
            .collect()
    }

    #[test]
    fn few_go_into_few_requests_and_many_into_full_ones() {
        let mut fetch = MicrodescFetch::new(false, Duration::ZERO);
        fetch.want(digests(150), Duration::ZERO);
        let sizes: Vec<usize> = std::iter::from_fn(|| fetch.next(Duration::ZERO))
            .map(|batch| batch.len())
            .collect();
        assert_eq!(sizes, [50, 50, 50]);

        let mut fetch = MicrodescFetch::new(false, Duration::ZERO);
        fetch.want(digests(5), Duration::ZERO);
        assert_eq!(fetch.next(Duration::ZERO).unwrap().len(), 5);

        let mut fetch = MicrodescFetch::new(false, Duration::ZERO);
        fetch.want(digests(5000), Duration::ZERO);
        let sizes: Vec<usize> = std::iter::from_fn(|| fetch.next(Duration::ZERO))
            .map(|batch| batch.len())
            .collect();
        assert_eq!(sizes, [MAX_PER_REQUEST; MAX_UNDERWAY]);
    }

    #[test]
    fn what_did_not_come_is_asked_for_again_later_and_what_came_never() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut fetch = MicrodescFetch::new(true, Duration::ZERO);
        fetch.want(digests(3), Duration::ZERO);
        let batch = fetch.next(Duration::ZERO).unwrap();
        assert!(fetch.next(Duration::ZERO).is_none());
        assert!(fetch.arrived(&batch[0]));
        assert!(!fetch.arrived(&batch[0]));
        fetch.answered(&batch, Duration::ZERO, &mut rng);
        assert!(!fetch.is_underway());
        assert!(fetch.next(Duration::ZERO).is_none());
        let wait = fetch.wait(Duration::ZERO).unwrap();
        assert!(wait >= Duration::from_secs(1));
        assert_eq!(fetch.next(RETRY_CAP_TESTING).unwrap(), batch[1..]);
        // A new consensus may not list it any more.
        fetch.want(digests(2), Duration::ZERO);
        assert_eq!(fetch.lacking(), 2);
    }

    #[test]
    fn few_wait_for_more_but_not_for_ever() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let second = Duration::from_secs(1);
        let mut fetch = MicrodescFetch::new(true, Duration::ZERO);
        fetch.set_patience(600 * second);
        fetch.want(digests(WORTHWHILE as u16 - 1), Duration::ZERO);
        // Nothing was asked for before them.
        let batch = fetch.next(second).unwrap();
        assert_eq!(batch.len(), WORTHWHILE - 1);
        fetch.answered(&batch, second, &mut rng);
        let later = second + RETRY_CAP_TESTING;
        assert_eq!(fetch.next(later), None);
        assert_eq!(fetch.wait(later), Some(600 * second - RETRY_CAP_TESTING));
        // One more is enough.
        fetch.want(digests(WORTHWHILE as u16), later);
        assert_eq!(fetch.wait(later), Some(Duration::ZERO));
        let batch = fetch.next(later).unwrap();
        assert_eq!(batch.len(), WORTHWHILE);
        fetch.answered(&batch, later, &mut rng);
        batch
            .iter()
            .skip(1)
            .for_each(|digest| assert!(fetch.arrived(digest)));
        assert_eq!(fetch.next(later + 599 * second), None);
        assert_eq!(fetch.next(later + 600 * second).unwrap(), batch[..1]);
    }

    #[test]
    fn the_first_attempt_waits_as_long_as_torrc_has_it() {
        let second = Duration::from_secs(1);
        let mut fetch = MicrodescFetch::new(true, 3 * second);
        fetch.want(digests(1), 10 * second);
        assert_eq!(fetch.wait(10 * second), Some(3 * second));
        assert_eq!(fetch.next(12 * second), None);
        assert!(fetch.next(13 * second).is_some());
    }
}
