//! The maximum sustained throughput (Engler and Goldberg 2021, 5.3.1): the most that a moving average of so many
//! seconds comes to, once the first seconds are discarded.

use serde::{Deserialize, Serialize};

/// Bytes that the target had moved at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since all streams began.
    pub at_s: f64,
    /// Bytes that it had read from its links until then, since its start.
    pub read: u64,
    /// Bytes that it had written to them.
    pub written: u64,
    /// The share of the time since the sample before that its busiest thread worked, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<f64>,
}

/// Selection of the seconds that count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// Seconds at the beginning that do not.
    pub discard_s: f64,
    /// Length of the moving average, seconds.
    pub window_s: f64,
}

impl Rule {
    /// The paper's: 30 s, after the first 30 s.
    #[cfg(test)]
    pub(crate) const PAPER: Rule = Rule {
        discard_s: 30.0,
        window_s: 30.0,
    };

    /// Scales the rule down in proportion if it does not fit into the shortest run. One rule
    /// applies to all runs of an experiment: averages of different lengths cannot be compared.
    pub fn fitting(self, shortest_s: f64, interval_s: f64) -> Rule {
        let whole = self.discard_s + self.window_s;
        if whole <= shortest_s || whole <= 0.0 {
            return self;
        }
        // Down to whole intervals, as a window of less than one has no average. A fifth is left for
        // samples that come late.
        let part = |seconds: f64| (seconds / whole * shortest_s * 0.8 / interval_s).floor();
        Rule {
            discard_s: part(self.discard_s) * interval_s,
            window_s: part(self.window_s).max(1.0) * interval_s,
        }
    }

    /// The most bytes per second that the relay read over a window; `None` if no window fits. A
    /// relay in the middle writes the bytes that it reads, so only one of both counts.
    pub(crate) fn sustained(self, samples: &[Sample]) -> Option<f64> {
        self.best(samples).map(|(rate, _)| rate)
    }

    /// The share of that window that the target's busiest thread worked.
    pub(crate) fn busiest(self, samples: &[Sample]) -> Option<f64> {
        let (_, window) = self.best(samples)?;
        // The first sample's share is of the time before it.
        let shares = window.get(1..)?.iter().map(|sample| sample.busy);
        let shares: Vec<f64> = shares.collect::<Option<_>>()?;
        Some(shares.iter().sum::<f64>() / shares.len() as f64)
    }

    /// The window with the most bytes, and its rate.
    fn best(self, samples: &[Sample]) -> Option<(f64, &[Sample])> {
        // Samples come when the kernel lets them: a hundredth of a window more or less is no other.
        let least = self.window_s * 0.99;
        let kept = samples.partition_point(|sample| sample.at_s < self.discard_s);
        let kept = samples.get(kept..)?;
        let mut best: Option<(f64, &[Sample])> = None;
        let mut end = 0;
        for (start, first) in kept.iter().enumerate() {
            end = end.max(start);
            while kept
                .get(end)
                .is_some_and(|last| last.at_s - first.at_s < least)
            {
                end += 1;
            }
            let Some(last) = kept.get(end) else { break };
            let rate = last.read.saturating_sub(first.read) as f64 / (last.at_s - first.at_s);
            if rate.is_finite() && best.is_none_or(|(most, _)| rate > most) {
                best = kept.get(start..=end).map(|window| (rate, window));
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample each half second with these bytes in between.
    fn samples(steps: impl IntoIterator<Item = u64>) -> Vec<Sample> {
        let mut read = 1_000_000;
        let mut all = vec![Sample {
            at_s: 0.0,
            read,
            written: 0,
            busy: None,
        }];
        for (number, step) in (1u32..).zip(steps) {
            read += step;
            all.push(Sample {
                at_s: f64::from(number) * 0.5,
                read,
                written: 0,
                busy: Some(step as f64 / 100.0),
            });
        }
        all
    }

    #[test]
    fn a_steady_rate_is_its_own_average() {
        let steady = samples([50; 200]);
        assert_eq!(Rule::PAPER.sustained(&steady), Some(100.0));
    }

    #[test]
    fn the_beginning_is_discarded_and_the_best_window_counts() {
        // 30 s of 1,000 a step that do not count; then 20 s of 10, 30 s of 40, 20 s of 10.
        let steps = [vec![1000; 60], vec![10; 40], vec![40; 60], vec![10; 40]].concat();
        assert_eq!(Rule::PAPER.sustained(&samples(steps)), Some(80.0));
    }

    #[test]
    fn the_busiest_thread_is_that_of_the_window_that_counts() {
        let steps = [vec![10; 100], vec![40; 60], vec![10; 40]].concat();
        let share = Rule::PAPER.busiest(&samples(steps)).expect("a window");
        assert!((share - 0.4).abs() < 1e-9, "{share}");
        let mut unknown = samples([50; 200]);
        unknown.iter_mut().for_each(|sample| sample.busy = None);
        assert_eq!(Rule::PAPER.busiest(&unknown), None);
    }

    #[test]
    fn a_run_without_a_whole_window_has_none() {
        assert_eq!(Rule::PAPER.sustained(&samples([50; 119])), None);
        assert_eq!(Rule::PAPER.sustained(&samples([50; 120])), Some(100.0));
        assert_eq!(Rule::PAPER.sustained(&[]), None);
    }

    #[test]
    fn late_samples_do_not_raise_an_average() {
        let mut late = samples([50; 200]);
        for sample in late.iter_mut().step_by(3) {
            // The count is of the moment at which it was read.
            sample.at_s += 0.1;
            sample.read += 10;
        }
        let rate = Rule::PAPER.sustained(&late).expect("a window");
        assert!((99.0..101.0).contains(&rate), "{rate}");
    }

    #[test]
    fn short_runs_have_a_rule_in_proportion_and_long_ones_the_papers() {
        assert_eq!(Rule::PAPER.fitting(60.0, 0.5), Rule::PAPER);
        let half = Rule::PAPER.fitting(30.0, 0.5);
        assert_eq!((half.discard_s, half.window_s), (12.0, 12.0));
        let least = Rule::PAPER.fitting(0.2, 0.5);
        assert_eq!((least.discard_s, least.window_s), (0.0, 0.5));
        let short = samples([50; 60]);
        assert_eq!(half.sustained(&short), Some(100.0));
    }
}
