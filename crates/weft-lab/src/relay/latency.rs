//! Latency of cells: the histogram, and the times at which cells were sent.
//!
//! Cells of one circuit and direction arrive in the order in which they were sent, so the number of
//! a cell in its direction identifies it; the cell itself need not carry anything.

use std::collections::VecDeque;
use std::time::Duration;

use super::report::Latency;

/// At full speed, one in this number of cells is timed: enough for percentiles, cheap enough not to
/// matter.
pub(super) const SAMPLE: u64 = 16;

/// Buckets for each power of two of nanoseconds. A latency is reported within one part in 128: the
/// idea of HdrHistogram, in the few lines that are needed here.
const PARTS: u64 = 1 << PARTS_LOG;
const PARTS_LOG: u32 = 7;
/// Powers of two from [`PARTS`] up to more than an hour; longer latencies count as the longest.
const POWERS: u64 = 35;

/// Latencies of many cells, in constant memory.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

/// Index of the bucket of a number of nanoseconds.
fn bucket(nanoseconds: u64) -> usize {
    let Some(power) = nanoseconds
        .checked_ilog2()
        .and_then(|log| log.checked_sub(PARTS_LOG))
    else {
        return nanoseconds as usize;
    };
    // The leading bit and the seven after it.
    let part = (nanoseconds >> power) - PARTS;
    let index = (u64::from(power) + 1) * PARTS + part;
    index.min((POWERS + 1) * PARTS - 1) as usize
}

/// The most nanoseconds that belong to a bucket.
fn upper_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    match (bucket / PARTS).checked_sub(1) {
        None => bucket,
        Some(power) => ((bucket % PARTS + PARTS + 1) << power) - 1,
    }
}

impl Latencies {
    pub(super) fn new() -> Latencies {
        Latencies {
            buckets: vec![0; ((POWERS + 1) * PARTS) as usize],
            count: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }

    /// Counts a cell with this latency.
    pub(super) fn record(&mut self, nanoseconds: u64) {
        if let Some(count) = self.buckets.get_mut(bucket(nanoseconds)) {
            *count += 1;
        }
        self.count += 1;
        self.sum += u128::from(nanoseconds);
        self.min = self.min.min(nanoseconds);
        self.max = self.max.max(nanoseconds);
    }

    pub(super) fn add(&mut self, other: &Latencies) {
        for (ours, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *ours += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Latency of the `share`-th permille of cells, nanoseconds.
    fn per_mille(&self, share: u64) -> u64 {
        let wanted = (self.count * share).div_ceil(1000);
        let mut seen = 0;
        for (number, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_end(number).min(self.max);
            }
        }
        self.max
    }

    /// Their part of the report; `None` if nothing was timed.
    pub(super) fn report(&self) -> Option<Latency> {
        let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        (self.count > 0).then(|| Latency {
            samples: self.count,
            min_us: us(self.min),
            mean_us: self.sum as f64 / self.count as f64 / 1e3,
            p50_us: us(self.per_mille(500)),
            p90_us: us(self.per_mille(900)),
            p99_us: us(self.per_mille(990)),
            p999_us: us(self.per_mille(999)),
            max_us: us(self.max),
        })
    }
}

/// Times at which the timed cells of one circuit and direction were sent or due, each with the
/// number of cells.
#[derive(Clone, Debug, Default)]
pub(super) struct Times(VecDeque<(u64, u32)>);

impl Times {
    /// Times this number of cells from now on.
    pub(super) fn begin(&mut self, now: u64, cells: u32) {
        match self.0.back_mut() {
            Some((since, count)) if *since == now => *count += cells,
            _ => self.0.push_back((now, cells)),
        }
    }

    /// The cell that has been timed for longest has arrived now; how long it took.
    pub(super) fn arrived(&mut self, now: u64) -> Option<u64> {
        let (since, count) = self.0.front_mut()?;
        let took = now.saturating_sub(*since);
        *count -= 1;
        if *count == 0 {
            self.0.pop_front();
        }
        Some(took)
    }

    /// Forgets those that will not arrive.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Cells at a fixed rate: in equal ticks, each cell of a tick due at the tick's beginning. A cell's
/// latency is counted from when it was due, so that a target that falls behind cannot hide it by
/// slowing the generator down (no "coordinated omission").
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    /// Nanoseconds from one cell to the next, on average.
    interval: f64,
}

/// The length of a tick: what waking up for every cell would cost is saved, and a burst stays small.
pub(super) const TICK: Duration = Duration::from_micros(200);

impl Schedule {
    pub(super) fn new(cells_per_second: f64) -> Schedule {
        Schedule {
            interval: 1e9 / cells_per_second,
        }
    }

    /// Number of cells that are due after `elapsed` nanoseconds.
    pub(super) fn due(self, elapsed: u64) -> u64 {
        let ticks = elapsed / TICK.as_nanos() as u64;
        ((ticks * TICK.as_nanos() as u64) as f64 / self.interval) as u64
    }

    /// When cell `number` (from 0) is due, in nanoseconds.
    pub(super) fn time_of(self, number: u64) -> u64 {
        let tick = TICK.as_nanos() as f64;
        (((number + 1) as f64 * self.interval / tick).ceil() * tick) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_timed_in_order() {
        let mut times = Times::default();
        for (now, cells) in [(100, 2), (200, 1), (200, 1)] {
            times.begin(now, cells);
        }
        let took: Vec<u64> = (0..9).filter_map(|_| times.arrived(1000)).collect();
        assert_eq!(took, [900, 900, 800, 800]);
        times.begin(300, 5);
        times.clear();
        assert_eq!(times.arrived(1000), None);
    }

    #[test]
    fn buckets_are_narrow_and_leave_no_gap() {
        let mut last = 0;
        for nanoseconds in (0..2000).chain([1 << 20, (1 << 20) + 9_000, 1 << 40, 1 << 41]) {
            let bucket = bucket(nanoseconds);
            assert!(bucket >= last);
            let end = upper_end(bucket);
            assert!(
                end >= nanoseconds && end - nanoseconds <= nanoseconds / 128,
                "{nanoseconds}"
            );
            assert_eq!(super::bucket(end), bucket);
            assert_eq!(super::bucket(end + 1), bucket + 1);
            last = bucket;
        }
        assert!(bucket(u64::MAX) < Latencies::new().buckets.len());
    }

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut one = Latencies::new();
        assert_eq!(one.report(), None);
        let mut other = Latencies::new();
        for n in 1..=500 {
            one.record(n * 2_000);
            other.record(n * 2_000 - 1_000);
        }
        one.add(&other);
        let report = one.report().expect("a thousand");
        assert_eq!(report.samples, 1000);
        for (value, expected) in [
            (report.p50_us, 500.0),
            (report.p90_us, 900.0),
            (report.p99_us, 990.0),
            (report.p999_us, 999.0),
            (report.max_us, 1000.0),
        ] {
            assert!((value - expected).abs() < expected * 0.008, "{report:?}");
        }
    }

    #[test]
    fn cells_are_due_by_the_schedule() {
        // 10,000 cells a second are two in a tick.
        let schedule = Schedule::new(10_000.0);
        let tick = TICK.as_nanos() as u64;
        assert_eq!(schedule.due(tick - 1), 0);
        assert_eq!(schedule.due(tick), 2);
        assert_eq!(schedule.due(10 * tick + 5), 20);
        for number in 0..100 {
            let time = schedule.time_of(number);
            assert!(schedule.due(time) > number, "{number}");
            assert!(schedule.due(time - tick) <= number, "{number}");
        }
    }
}
