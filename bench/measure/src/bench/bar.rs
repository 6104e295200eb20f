//! A bar that Weft is held to: a ratio, its limits and the verdict.

use std::fmt;

use serde::{Deserialize, Serialize};
use weft_stats::Summary;

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bar {
    pub(crate) name: String,
    /// The ratio, or the number, must be at least `bar`; otherwise at most.
    pub(crate) at_least: bool,
    pub(crate) bar: f64,
    pub(crate) goal: f64,
    pub(crate) parts: Vec<Part>,
    pub(crate) verdict: Verdict,
    /// Why there is no verdict, or what else is to be known.
    pub(crate) note: Option<String>,
}

/// One of several ratios; the worst decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Name of the part, if there are several.
    pub(crate) what: String,
    /// Numerator.
    pub(crate) over: Side,
    /// Denominator; `None`: the part is an absolute value.
    pub(crate) under: Option<Side>,
    /// The ratio of the two medians; its range over the repetitions, each with its own two numbers.
    pub(crate) ratio: Summary,
}

/// One side of a ratio.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Side {
    pub(crate) target: String,
    pub(crate) value: Summary,
}

/// Result of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// Bar and goal are met.
    Goal,
    /// The bar is met, the goal is not.
    Met,
    Missed,
    /// This machine has too few cores.
    NotMeasurable,
    /// It was not part of this run, or failed.
    NotMeasured,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Goal => "met, goal too",
            Verdict::Met => "met",
            Verdict::Missed => "missed",
            Verdict::NotMeasurable => "not measurable here",
            Verdict::NotMeasured => "not measured",
        })
    }
}

impl Bar {
    /// The part that decides: the one furthest on the wrong side.
    pub(crate) fn worst(&self) -> Option<&Part> {
        let ratio = |part: &&Part| part.ratio.median;
        let order = |a: &&Part, b: &&Part| f64::total_cmp(&ratio(a), &ratio(b));
        match self.at_least {
            true => self.parts.iter().min_by(order),
            false => self.parts.iter().max_by(order),
        }
    }

    /// True if the ratio is on the right side of the limit.
    fn passes(&self, ratio: f64, limit: f64) -> bool {
        match self.at_least {
            true => ratio >= limit,
            false => ratio <= limit,
        }
    }

    pub(super) fn judge(mut self, complete: bool) -> Bar {
        if self.verdict == Verdict::NotMeasurable {
            return self;
        }
        self.verdict = match self.worst() {
            Some(worst) if complete => {
                let ratio = worst.ratio.median;
                match (self.passes(ratio, self.bar), self.passes(ratio, self.goal)) {
                    (true, true) => Verdict::Goal,
                    (true, false) => Verdict::Met,
                    _ => Verdict::Missed,
                }
            }
            // A part that is missing might be the worst; but one that misses is enough.
            Some(worst) if !self.passes(worst.ratio.median, self.bar) => Verdict::Missed,
            _ => Verdict::NotMeasured,
        };
        if !complete {
            let note = match self.parts.is_empty() {
                true => "not part of this run, or failed in it",
                false => "a direction is not part of this run, or failed in it",
            };
            self.note.get_or_insert_with(|| note.to_owned());
        }
        self
    }
}
