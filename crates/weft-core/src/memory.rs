//! Which circuits die when queues take more memory than they may (`MaxMemInQueues`).
//!
//! As in C tor (`circuits_handle_oom`, "the sniper attack" being why): those whose oldest queued
//! cell has waited longest, until usage is back under nine tenths of the limit. No thread sees all
//! circuits. Each tells the controller how many bytes it has queued by the age of the oldest cell
//! of their circuit ([`AgeHistogram`]); the controller works out the age ([`age_to_kill`]), and
//! each thread closes its circuits that are as old.

use std::collections::BTreeMap;
use std::time::Duration;

/// What is left after a cleaning up, of the limit: `FRACTION_OF_DATA_TO_RETAIN_ON_OOM`.
const RETAIN_TENTHS: u128 = 9;

/// Ages are told apart to one part in this many, a power of two.
const STEPS_PER_OCTAVE: u64 = 16;

/// Queued bytes by the age of the oldest cell of their circuit.
///
/// Ages are in milliseconds: exact below 16, then in steps of a sixteenth of each power of two, so
/// that a year still takes no more than some hundreds of steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgeHistogram {
    /// Bytes by step.
    steps: BTreeMap<u64, u64>,
    total: u64,
}

impl AgeHistogram {
    /// Counts the queue of a circuit.
    pub fn add(&mut self, oldest: Duration, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let step = self.steps.entry(step_of(oldest)).or_default();
        *step = step.saturating_add(bytes);
        self.total = self.total.saturating_add(bytes);
    }

    /// Counts everything that another thread has counted.
    pub fn merge(&mut self, other: &Self) {
        for (step, bytes) in &other.steps {
            let step = self.steps.entry(*step).or_default();
            *step = step.saturating_add(*bytes);
        }
        self.total = self.total.saturating_add(other.total);
    }

    /// All bytes counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }
}

/// If queued cells and `buffered` bytes together reach `allowed` bytes: the age of the youngest
/// circuits that must die, so that at most nine tenths of `allowed` remain. Circuits are told apart
/// by the steps of the histogram, so the last step may free more than is needed. `None`: nothing
/// has to be done, or nothing is queued that could be freed.
#[must_use]
pub fn age_to_kill(queued: &AgeHistogram, buffered: u64, allowed: u64) -> Option<Duration> {
    let used = queued.total().saturating_add(buffered);
    if used < allowed {
        return None;
    }
    let retained = u64::try_from(u128::from(allowed) * RETAIN_TENTHS / 10).unwrap_or(u64::MAX);
    let to_free = used.saturating_sub(retained);
    let mut freed = 0_u64;
    let mut youngest = None;
    for (step, bytes) in queued.steps.iter().rev() {
        youngest = Some(step_start(*step));
        freed = freed.saturating_add(*bytes);
        if freed >= to_free {
            break;
        }
    }
    youngest
}

/// The step that an age is in.
fn step_of(age: Duration) -> u64 {
    let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    // Powers of two past the exact steps; each halves the resolution.
    let octave = (age / STEPS_PER_OCTAVE)
        .checked_ilog2()
        .map_or(0, |log| u64::from(log) + 1);
    match octave {
        0 => age,
        _ => octave * STEPS_PER_OCTAVE + (age >> (octave - 1)) % STEPS_PER_OCTAVE,
    }
}

/// The least age in a step.
fn step_start(step: u64) -> Duration {
    let octave = step / STEPS_PER_OCTAVE;
    let age = match octave {
        0 => step,
        _ => (STEPS_PER_OCTAVE + step % STEPS_PER_OCTAVE) << (octave - 1),
    };
    Duration::from_millis(age)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn msec(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn histogram(circuits: &[(u64, u64)]) -> AgeHistogram {
        let mut queued = AgeHistogram::default();
        for (age, bytes) in circuits {
            queued.add(msec(*age), *bytes);
        }
        queued
    }

    #[test]
    fn below_the_limit_nobody_dies() {
        let queued = histogram(&[(10_000, 500)]);
        assert_eq!(age_to_kill(&queued, 499, 1_000), None);
        assert!(age_to_kill(&queued, 500, 1_000).is_some());
    }

    #[test]
    fn the_oldest_die_until_nine_tenths_are_left() {
        let queued = histogram(&[(1, 400), (5, 300), (9, 200), (15, 100)]);
        assert_eq!(
            age_to_kill(&queued, 0, 1_000),
            Some(msec(15)),
            "900 are left"
        );
        assert_eq!(
            age_to_kill(&queued, 1, 1_000),
            Some(msec(9)),
            "one more was used"
        );
        assert_eq!(age_to_kill(&queued, 400, 1_000), Some(msec(5)));
    }

    #[test]
    fn buffers_that_exceed_the_limit_alone_take_every_circuit_with_them() {
        let queued = histogram(&[(0, 10), (3, 10)]);
        assert_eq!(age_to_kill(&queued, 5_000, 1_000), Some(msec(0)));
        assert_eq!(
            age_to_kill(&histogram(&[]), 5_000, 1_000),
            None,
            "there is none"
        );
    }

    #[test]
    fn what_threads_count_adds_up() {
        let mut all = histogram(&[(1, 10), (700, 20)]);
        all.merge(&histogram(&[(1, 5), (90_000, 7)]));
        assert_eq!(all, histogram(&[(90_000, 7), (1, 15), (700, 20)]));
        assert_eq!(all.total(), 42);
    }

    #[test]
    fn absurd_numbers_saturate() {
        let mut queued = histogram(&[(1, u64::MAX), (u64::MAX, u64::MAX)]);
        queued.add(Duration::MAX, 1);
        assert_eq!(queued.total(), u64::MAX);
        assert!(age_to_kill(&queued, u64::MAX, u64::MAX).is_some());
        assert!(age_to_kill(&queued, 0, 0).is_some());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn steps_are_ordered_and_fine(age in any::<u64>(), more in 0..1_000_000_u64) {
            let step = step_of(msec(age));
            let start = step_start(step);
            prop_assert!(start <= msec(age));
            prop_assert_eq!(step_of(start), step);
            prop_assert!(msec(age) - start <= msec(age / STEPS_PER_OCTAVE));
            prop_assert!(step_of(msec(age.saturating_add(more))) >= step);
        }

        #[test]
        fn enough_is_freed_and_the_young_are_spared(
            circuits in proptest::collection::vec((0..100_000_u64, 1..10_000_u64), 1..50),
            buffered in 0..20_000_u64,
        ) {
            let queued = histogram(&circuits);
            let allowed = (queued.total() + buffered) * 3 / 4;
            let age = age_to_kill(&queued, buffered, allowed).unwrap();
            let left = |age| -> u64 {
                buffered + circuits.iter().filter(|c| msec(c.0) < age).map(|c| c.1).sum::<u64>()
            };
            let enough = allowed * 9 / 10;
            prop_assert!(left(age) <= enough || left(age) == buffered);
            // Sparing the youngest step that dies would not be enough.
            let older = step_start(step_of(age) + 1);
            prop_assert!(left(older) > enough);
        }
    }
}
