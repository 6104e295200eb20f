//! The paper's values beside ours.

use super::paper::{self, Reported};
use super::{Point, Results, What, ends};

/// Unit of compared numbers.
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
    /// The quantity that was measured.
    pub what: String,
    /// Where it stands in the paper.
    pub place: &'static str,
    /// From, to; of the paper.
    pub paper: (f64, f64),
    /// From, to; ours. The least and the most mean of a document, of all series where the paper's interval is over series.
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

    /// Of one series.
    fn by_document(
        &self,
        all: &mut Vec<Comparison>,
        what: What,
        reported: &Reported,
        series: &str,
        at: f64,
    ) {
        self.compare(all, what, reported, &|point| {
            point.series == series && point.at == at
        });
    }

    /// Of all series.
    fn over_series(&self, all: &mut Vec<Comparison>, what: What, reported: &Reported, at: f64) {
        self.compare(all, what, reported, &|point| point.at == at);
    }

    /// Of results in the text, whose series are called `WHAT; ONE OF THEM`.
    fn over_series_named(&self, all: &mut Vec<Comparison>, reported: &Reported) {
        self.compare(all, What::Text, reported, &|point| {
            point.series.split(';').next() == Some(reported.what)
        });
    }

    /// Ours is from the least to the most mean of a document, of all of these points.
    fn compare(
        &self,
        all: &mut Vec<Comparison>,
        what: What,
        reported: &Reported,
        is_of_it: &dyn Fn(&Point) -> bool,
    ) {
        let here = self.of(what).filter(|point| is_of_it(point));
        let means = here.filter_map(|point| Some(point.spread()?.mean));
        push(all, what.name(), reported, &means.collect::<Vec<f64>>());
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
