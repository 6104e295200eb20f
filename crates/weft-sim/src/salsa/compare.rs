//! The paper's values beside ours.

use super::paper::{self, Reported};
use super::{Results, What, ends};

/// What numbers are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Per cent.
    Percent,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

/// One of the paper's values, and ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Figure, table or text.
    pub figure: &'static str,
    /// What was measured.
    pub what: String,
    /// Where it stands in the paper.
    pub place: &'static str,
    /// From, to; of the paper.
    pub paper: (f64, f64),
    /// From, to; ours. The least and the most mean of a document, or of a series where the paper's
    /// interval is over series.
    pub ours: (f64, f64),
    /// Of both.
    pub unit: Unit,
}

impl Results {
    /// All that was run and that the paper has a value of.
    pub fn comparisons(&self) -> Vec<Comparison> {
        let mut all = Vec::new();
        let shadow = paper::FIGURE4.iter().zip(paper::FIGURE4_DIFFERENCES);
        for ((reported, difference), at) in shadow.zip([1.0, 10.0, 25.0]) {
            let shadow = Reported {
                what: reported.what,
                place: reported.place,
                low: reported.low,
                high: reported.low + difference,
            };
            let (low, high) = (shadow.low.min(shadow.high), shadow.low.max(shadow.high));
            let shadow = Reported {
                low,
                high,
                ..shadow
            };
            self.by_document(&mut all, What::Figure4, &shadow, "external, directed", at);
        }
        for (reported, at) in paper::FIGURE5.iter().zip(0_u32..) {
            self.by_document(&mut all, What::Figure5, reported, "directed", f64::from(at));
        }
        for (reported, clients) in paper::FIGURE6.iter().zip([1, 64]) {
            let series = per_client(clients);
            self.by_document(&mut all, What::Figure6, reported, &series, 100.0);
        }
        let [two, more] = &paper::FIGURE7;
        self.by_document(&mut all, What::Figure7, two, FIGURE7_SERIES, 2.0);
        self.by_document(&mut all, What::Figure7, more, FIGURE7_MORE, 3.0);
        let demands = [paper::PRESENT_CIRCUITS, paper::CAPACITY_CIRCUITS];
        for (reported, circuits) in paper::FIGURE8.iter().zip(demands) {
            self.over_series(&mut all, What::Figure8, reported, circuits as f64);
        }
        for reported in &paper::POSITIONS {
            self.over_series_named(&mut all, reported);
        }
        self.over_series_named(&mut all, &paper::LIVE);
        for reported in &paper::SHARED_CIRCUITS {
            self.over_series_named(&mut all, reported);
        }
        self.costs(&mut all);
        all
    }

    /// Ours is from the least to the most mean of a document.
    fn by_document(
        &self,
        all: &mut Vec<Comparison>,
        what: What,
        reported: &Reported,
        series: &str,
        at: f64,
    ) {
        let here = self
            .of(what)
            .filter(|point| point.series == series && point.at == at);
        let means = here.filter_map(|point| Some(point.spread()?.mean));
        let means: Vec<f64> = means.collect();
        push(all, what.name(), reported, &means);
    }

    /// Ours is from the least to the most mean of a series over all documents.
    fn over_series(&self, all: &mut Vec<Comparison>, what: What, reported: &Reported, at: f64) {
        let means: Vec<f64> = self
            .series(what)
            .into_iter()
            .filter_map(|series| Some(self.over(what, series, at)?.spread.mean))
            .collect();
        push(all, what.name(), reported, &means);
    }

    /// The same of results in the text, whose series are called `WHAT; ONE OF THEM`.
    fn over_series_named(&self, all: &mut Vec<Comparison>, reported: &Reported) {
        let means: Vec<f64> = self
            .series(What::Text)
            .into_iter()
            .filter(|series| series.split(';').next() == Some(reported.what))
            .filter_map(|series| Some(self.over(What::Text, series, 0.0)?.spread.mean))
            .collect();
        push(all, What::Text.name(), reported, &means);
    }

    fn costs(&self, all: &mut Vec<Comparison>) {
        let seconds: Vec<f64> = self.cost.iter().map(|cost| cost.seconds).collect();
        let bytes = self.cost.iter().filter_map(|cost| cost.peak_rss_bytes);
        let bytes: Vec<f64> = bytes.map(|bytes| bytes as f64).collect();
        for simulator in &paper::TABLE2 {
            let rows = [
                ("seconds", Unit::Seconds, simulator.seconds, &seconds),
                ("memory", Unit::Bytes, simulator.bytes, &bytes),
            ];
            for (word, unit, theirs, ours) in rows {
                if ours.is_empty() {
                    continue;
                }
                all.push(Comparison {
                    figure: "table2",
                    what: format!("a million circuits, {word}: {}", simulator.name),
                    place: "4.4",
                    paper: (theirs, theirs),
                    ours: ends(ours),
                    unit,
                });
            }
        }
    }
}

/// Figure 7's series with a point for each number of circuits.
pub(super) const FIGURE7_SERIES: &str = "links";
/// All links of more than two circuits together.
pub(super) const FIGURE7_MORE: &str = "links of more than two";

/// A series of Figure 6.
pub(super) fn per_client(circuits: u64) -> String {
    match circuits {
        1 => "1 circuit for each client".to_owned(),
        _ => format!("{circuits} circuits"),
    }
}

fn push(all: &mut Vec<Comparison>, figure: &'static str, reported: &Reported, ours: &[f64]) {
    if ours.is_empty() {
        return;
    }
    all.push(Comparison {
        figure,
        what: reported.what.to_owned(),
        place: reported.place,
        paper: (reported.low, reported.high),
        ours: ends(ours),
        unit: Unit::Percent,
    });
}
