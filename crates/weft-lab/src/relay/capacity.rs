//! The search for the highest rate that a target bears: `--capacity`.

use weft_stats::bounds::Bounds;

/// Requirements on a target, and precision of the search for its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// The p99 that it must stay under, in milliseconds.
    pub p99_ms: f64,
    /// Most rates to try.
    pub steps: u32,
    /// Largest distance between the highest rate that passed and the lowest that failed, in
    /// percent.
    pub resolution: f64,
}

/// A bound of latency.
pub(super) const P99: Bounds<f64> = Bounds::new(0.1, 60_000.0).of("milliseconds");
/// Tries.
pub(super) const STEPS: Bounds<u32> = Bounds::new(2, 40);
/// Percent.
pub(super) const RESOLUTION: Bounds<f64> = Bounds::new(0.5, 100.0).of("percent");

/// A bisection over rates: doubled until one fails (or halved until one passes), then between the highest that
/// passed and the lowest that failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    first: f64,
    most: f64,
    left: u32,
    /// Rates may differ by this factor.
    apart: f64,
    passed: Option<f64>,
    failed: Option<f64>,
}

impl Search {
    /// Begins at `first`, and tries nothing above `most`.
    pub(super) fn new(capacity: &Capacity, first: f64, most: f64) -> Search {
        Search {
            first: first.min(most),
            most,
            left: capacity.steps,
            apart: 1.0 + capacity.resolution / 100.0,
            passed: None,
            failed: None,
        }
    }

    /// The rate to try; `None`: the search is over.
    pub(super) fn next(&self) -> Option<f64> {
        if self.left == 0 {
            return None;
        }
        match (self.passed, self.failed) {
            (None, None) => Some(self.first),
            (Some(passed), None) if passed >= self.most => None,
            (Some(passed), None) => Some((2.0 * passed).min(self.most)),
            (None, Some(failed)) => Some(failed / 2.0),
            (Some(passed), Some(failed)) if failed <= passed * self.apart => None,
            (Some(passed), Some(failed)) => Some((passed * failed).sqrt()),
        }
    }

    /// Notes whether the target sustained the rate that [`next`](Self::next) gave.
    pub(super) fn note(&mut self, rate: f64, passed: bool) {
        self.left = self.left.saturating_sub(1);
        match passed {
            true => self.passed = Some(rate),
            false => self.failed = Some(rate),
        }
    }

    /// The highest rate that passed.
    pub(super) fn passed(&self) -> Option<f64> {
        self.passed
    }

    /// The lowest rate that failed; `None`: the highest that is tried passed, or the steps did not suffice.
    pub(super) fn failed(&self) -> Option<f64> {
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Capacity = Capacity {
        p99_ms: 50.0,
        steps: 12,
        resolution: 5.0,
    };

    /// Searches for a limit; the bracket and the rates that were tried.
    fn search(mut search: Search, limit: f64) -> (Option<f64>, Option<f64>, Vec<f64>) {
        let mut tried = Vec::new();
        while let Some(rate) = search.next() {
            tried.push(rate);
            search.note(rate, rate <= limit);
        }
        (search.passed(), search.failed(), tried)
    }

    #[test]
    fn the_limit_is_between_the_two_rates_that_are_found() {
        for limit in [3.0, 777.0, 1000.0, 54_321.0, 2e6] {
            let (passed, failed, tried) = search(Search::new(&FINE, 1000.0, 1e9), limit);
            let (passed, failed) = (passed.expect("one passed"), failed.expect("one failed"));
            assert!(
                passed <= limit && limit < failed,
                "{passed} {limit} {failed}"
            );
            if tried.len() < 12 {
                assert!(failed <= passed * 1.05, "{passed} {failed}");
            }
        }
    }

    #[test]
    fn the_steps_are_bounded_and_the_bracket_is_as_narrow_as_they_allow() {
        let few = Capacity { steps: 4, ..FINE };
        let (passed, failed, tried) = search(Search::new(&few, 1000.0, 1e9), 3000.0);
        assert_eq!(tried.len(), 4);
        assert_eq!((passed, failed), (Some(2000.0 * 2f64.sqrt()), Some(4000.0)));
    }

    #[test]
    fn a_target_that_bears_nothing_or_everything_ends_the_search() {
        let (passed, failed, tried) = search(Search::new(&FINE, 1000.0, 1e9), 0.0);
        assert_eq!((passed, tried.len()), (None, 12));
        assert!(failed.is_some());
        let (passed, failed, tried) = search(Search::new(&FINE, 1000.0, 6000.0), f64::INFINITY);
        assert_eq!((passed, failed), (Some(6000.0), None));
        assert_eq!(tried, [1000.0, 2000.0, 4000.0, 6000.0]);
        let (passed, _, tried) = search(Search::new(&FINE, 1e12, 6000.0), f64::INFINITY);
        assert_eq!((passed, tried.len()), (Some(6000.0), 1));
    }
}
