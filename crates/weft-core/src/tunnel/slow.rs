//! Detection of legs so slow that their circuits should be replaced (Yang and Li 2015, IV-B;
//! docs/extensions/mtor.md).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Messages whose time is measured together.
const BATCH: u32 = 50;
/// Batches that are remembered.
const RECORDS: usize = 10;
/// Outliers in a row that make a leg slow.
const OUTLIERS: u32 = 3;
/// A leg is also slow if it brings nothing for this time, or for as long as a slow batch takes,
/// while others bring 50 messages each.
const STALLED: Duration = Duration::from_secs(1);
/// Like [`STALLED`], for a leg without a measured batch.
const UNKNOWN: Duration = Duration::from_secs(3);
/// After a pause of this length of the whole tunnel, batches start again: nothing was sent.
const PAUSE: Duration = Duration::from_millis(500);

/// The times of a leg's batches.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the batch began, and how many messages it has.
    batch: Option<(Instant, u32)>,
    /// Times of the last batches that were no outliers, oldest first.
    records: VecDeque<Duration>,
    /// Outliers in a row.
    outliers: u32,
    /// When the last message came, and how many the tunnel had received by then.
    last: Option<(Instant, u64)>,
}

impl Pace {
    /// When the last message came.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.last.map(|(at, _)| at)
    }

    /// Forgets the batches: another leg shares the way from now on.
    pub(crate) fn begin_anew(&mut self) {
        self.batch = None;
        self.records.clear();
        self.outliers = 0;
    }

    /// A message arrived, the tunnel's `count`th; `before` is when the one before it did. True: the leg is slow.
    pub(crate) fn arrived(&mut self, count: u64, before: Option<Instant>, now: Instant) -> bool {
        self.last = Some((now, count));
        let paused = before.is_none_or(|before| now.saturating_duration_since(before) > PAUSE);
        let (began, in_batch) = match self.batch {
            Some((began, in_batch)) if !paused => (began, in_batch + 1),
            _ => (now, 0),
        };
        if in_batch < BATCH {
            self.batch = Some((began, in_batch));
            return false;
        }
        self.batch = Some((now, 0));
        let took = now.saturating_duration_since(began);
        let outlier = self.limit().is_some_and(|limit| took > limit);
        if outlier {
            self.outliers += 1;
            return self.outliers >= OUTLIERS;
        }
        self.outliers = 0;
        if self.records.len() >= RECORDS {
            self.records.pop_front();
        }
        self.records.push_back(took);
        false
    }

    /// True if the leg brings nothing although `legs` others have brought enough messages that it
    /// should have: the tunnel has received `count` messages so far.
    pub(crate) fn is_stalled(&self, count: u64, legs: usize, now: Instant) -> bool {
        let Some((last, count_then)) = self.last else {
            return false;
        };
        let slowest = || self.records.iter().max().copied();
        let batch = self.limit().or_else(slowest).unwrap_or(UNKNOWN);
        let patience = STALLED.max(batch);
        now.saturating_duration_since(last) > patience
            && count.saturating_sub(count_then) >= u64::from(BATCH) * legs as u64
    }

    /// Q₃ + 1.5 (Q₃ − Q₁) of the batches that are remembered. `None`: they are too few.
    fn limit(&self) -> Option<Duration> {
        if self.records.len() < RECORDS {
            return None;
        }
        let mut sorted: Vec<Duration> = self.records.iter().copied().collect();
        sorted.sort_unstable();
        let (first, third) = (quartile(&sorted, 1)?, quartile(&sorted, 3)?);
        Some(third + (third.saturating_sub(first)) * 3 / 2)
    }
}

/// A quartile of sorted times, interpolated between neighbours.
fn quartile(sorted: &[Duration], quarter: u32) -> Option<Duration> {
    let last = u32::try_from(sorted.len().checked_sub(1)?).ok()?;
    let (place, rest) = (last * quarter / 4, last * quarter % 4);
    let low = *sorted.get(place as usize)?;
    let high = sorted.get(place as usize + 1).copied().unwrap_or(low);
    Some(low + (high.saturating_sub(low)) * rest / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_before_another_leg_joined_is_forgotten() {
        let mut pace = Pace::default();
        let mut now = Instant::now();
        let mut before = None;
        let mut batch = |pace: &mut Pace, took: u64| {
            (0..BATCH).any(|_| {
                now += Duration::from_millis(took) / BATCH;
                let slow = pace.arrived(0, before, now);
                before = Some(now);
                slow
            })
        };
        for _ in 0..RECORDS + 1 {
            assert!(!batch(&mut pace, 10));
        }
        pace.begin_anew();
        // The leg has half of what it had.
        for _ in 0..RECORDS + 3 {
            assert!(!batch(&mut pace, 20));
        }
        assert!((0..OUTLIERS).any(|_| batch(&mut pace, 100)));
    }

    /// A leg that brings messages at these times of each batch of 50, in ms: the batch at which it is slow.
    fn slow_at(batches: &[u64]) -> Option<usize> {
        let mut pace = Pace::default();
        let mut now = Instant::now();
        let mut before = None;
        // The first message begins the first batch.
        assert!(!pace.arrived(0, before, now));
        for (number, took) in batches.iter().enumerate() {
            for _ in 0..BATCH {
                before = Some(now);
                now += Duration::from_millis(*took) / BATCH;
                if pace.arrived(0, before, now) {
                    return Some(number);
                }
            }
        }
        None
    }

    #[test]
    fn three_outliers_in_a_row_make_a_leg_slow() {
        let steady: Vec<u64> = (0..10).map(|n| 100 + n).collect();
        let with = |more: &[u64]| slow_at(&[&steady[..], more].concat());
        assert_eq!(with(&[200, 200, 200]), Some(12));
        assert_eq!(with(&[200, 200, 104, 200, 200]), None);
        assert_eq!(with(&[104; 50]), None);
        // Too little is known yet.
        assert_eq!(slow_at(&[100, 1000, 1000, 1000]), None);
    }

    #[test]
    fn quartiles_are_those_of_the_usual_definition() {
        let times: Vec<Duration> = (1..=10).map(Duration::from_secs).collect();
        // NumPy: percentile(range(1, 11), [25, 75]) is 3.25 and 7.75.
        assert_eq!(quartile(&times, 1), Some(Duration::from_millis(3250)));
        assert_eq!(quartile(&times, 3), Some(Duration::from_millis(7750)));
        assert_eq!(quartile(&[], 1), None);
    }

    #[test]
    fn a_pause_of_the_whole_tunnel_is_no_slowness() {
        let mut pace = Pace::default();
        let mut now = Instant::now();
        for batch in 0..30 {
            for _ in 0..=BATCH {
                let before = now;
                now += Duration::from_millis(2);
                assert!(!pace.arrived(0, Some(before), now), "{batch}");
            }
            let before = now;
            now += Duration::from_secs(20);
            assert!(!pace.arrived(0, Some(before), now));
        }
    }

    #[test]
    fn a_leg_that_brings_nothing_is_stalled_after_a_second_in_which_others_bring_much() {
        let mut pace = Pace::default();
        let now = Instant::now();
        let soon = now + Duration::from_millis(900);
        let late = now + Duration::from_millis(1100);
        let later = now + Duration::from_millis(3100);
        assert!(!pace.is_stalled(1000, 2, later));
        // Of one that has not brought a batch nothing is known.
        pace.arrived(7, None, now);
        assert!(!pace.is_stalled(1000, 2, late));
        assert!(pace.is_stalled(1000, 2, later));
        pace.records.push_back(Duration::from_millis(20));
        assert!(!pace.is_stalled(1000, 2, soon));
        assert!(!pace.is_stalled(106, 2, late));
        assert!(pace.is_stalled(107, 2, late));
        // A thin leg may take as long as a batch takes.
        pace.records.push_back(Duration::from_secs(2));
        assert!(!pace.is_stalled(1000, 2, late));
        assert!(pace.is_stalled(1000, 2, later));
    }
}
