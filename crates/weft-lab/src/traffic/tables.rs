//! Tables of the streams, for the terminal and the report.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use weft_model::traffic::Record;
use weft_model::traffic::records::{Figure, Summary, tgen_analysis};
use weft_plot::Folder;

use super::figures;
use super::results::{OfModel, Results};
use crate::experiment::{Report, json};
use crate::report::{Metric, Table, Values, table_text};

/// A quantity of streams.
type Quantity = fn(&Summary) -> Option<Figure>;

const QUANTITIES: [(&str, &str, Quantity); 4] = [
    ("time to first byte", "ms", |streams| streams.ttfb_ms),
    ("time to last byte", "ms", |streams| streams.ttlb_ms),
    ("goodput", "Mbit/s", |streams| streams.goodput_mbit),
    ("round trip", "ms", |streams| streams.rtt_ms),
];

impl OfModel {
    /// A number of each repetition.
    fn each(&self, number: impl Fn(&Summary) -> Option<f64>) -> Values {
        let repetitions = self.repetitions.iter();
        Values::samples(repetitions.filter_map(|one| number(&one.streams)))
    }

    /// The means of the repetitions. Streams of one depend on each other: its error cannot be known from them.
    fn mean(&self, quantity: Quantity) -> Values {
        self.each(|streams| quantity(streams).map(|figure| figure.mean))
    }
}

impl Results {
    fn users(&self) -> Table {
        let metrics = [
            Metric::plain("users", ""),
            Metric::more("streams complete", ""),
            Metric::less("failed", ""),
            Metric::plain("open at the end", ""),
            Metric::more("payload of all", "Mbit/s"),
            Metric::less("time to first byte", "ms"),
            Metric::less("time to last byte", "ms"),
            Metric::more("goodput of a stream", "Mbit/s"),
            Metric::less("round trip", "ms"),
        ];
        let intervals = match self.records.len() {
            1 => "One repetition has no intervals: --repetitions gives some.",
            _ => "Intervals are over the repetitions.",
        };
        let mut table = Table::new("Users", ["model"], metrics).note(&format!(
            "Times are from the beginning of a connection. Time to last byte and goodput are of streams that completed. \
             {intervals}"
        ));
        for model in &self.models {
            let count = |count: fn(&Summary) -> usize| model.each(|one| Some(count(one) as f64));
            let payload = model.repetitions.iter().map(|one| one.mbit);
            let mut values = vec![
                Values::one(model.users as f64),
                count(|streams| streams.complete),
                count(|streams| streams.failed),
                count(|streams| streams.streams - streams.complete - streams.failed),
                Values::samples(payload),
            ];
            values.extend(QUANTITIES.map(|(_, _, quantity)| model.mean(quantity)));
            table.push([&*model.model], values);
        }
        table
    }

    fn percentiles(&self) -> Table {
        let metrics = ["10 %", "50 %", "90 %", "99 %"].map(|share| Metric::plain(share, ""));
        let mut table = Table::new("Percentiles", ["model", "quantity"], metrics)
            .note("The share of streams that have no more.");
        for model in &self.models {
            for (name, unit, quantity) in QUANTITIES {
                if quantity(&model.all).is_none() {
                    continue;
                }
                let shares: [fn(&Figure) -> f64; 4] =
                    [|one| one.p10, |one| one.p50, |one| one.p90, |one| one.p99];
                let values =
                    shares.map(|share| model.each(|streams| quantity(streams).as_ref().map(share)));
                table.push([model.model.clone(), format!("{name}, {unit}")], values);
            }
        }
        table
    }

    fn failures(&self) -> Table {
        let mut table = Table::new(
            "Failed streams",
            ["model", "in which part"],
            [Metric::less("streams", "")],
        );
        for model in &self.models {
            for (part, count) in &model.failures {
                table.push([&*model.model, *part], [Values::one(*count as f64)]);
            }
        }
        table
    }

    /// Every stream, one JSON object in each line, with its repetition.
    fn streams(&self) -> Result<String> {
        let mut text = String::new();
        for (repetition, records) in &self.records {
            for record in records {
                let mut line = serde_json::to_value(record).context("writing JSON")?;
                if let Some(object) = line.as_object_mut() {
                    object.insert("repetition".into(), (*repetition).into());
                }
                text += &line.to_string();
                text.push('\n');
            }
        }
        Ok(text)
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Through {}.", self.through)?;
        for table in self.tables() {
            write!(f, "\n{}", table_text(&table))?;
        }
        for note in self.notes() {
            writeln!(f, "\n{note}")?;
        }
        Ok(())
    }
}

impl Report for Results {
    fn is_empty(&self) -> bool {
        self.records.iter().all(|(_, records)| records.is_empty())
    }

    fn is_passed(&self) -> bool {
        self.finished && self.models.iter().any(|model| model.all.complete > 0)
    }

    fn failure(&self) -> Option<String> {
        match (&self.failure, self.finished) {
            (Some(failure), _) => Some(failure.clone()),
            (None, false) => Some("it ended before everything was measured".to_owned()),
            (None, true) if !self.is_passed() => Some(
                "no stream was complete: the tables and streams.jsonl show how they ended"
                    .to_owned(),
            ),
            (None, true) => None,
        }
    }

    fn is_complete(&self) -> Option<bool> {
        Some(self.finished)
    }

    fn tables(&self) -> Vec<Table> {
        let tables = [self.users(), self.percentiles(), self.failures()];
        tables
            .into_iter()
            .filter(|table| !table.rows.is_empty())
            .collect()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self
            .failure
            .iter()
            .map(|why| format!("It ended early: {why}"))
            .collect();
        for model in &self.models {
            let users = model.users;
            if model.all.complete == 0 && model.all.streams > 0 {
                notes.push(format!(
                    "No stream of the {users} users of {} was complete: a longer --seconds may show more.",
                    model.model
                ));
            }
        }
        notes
    }

    fn settings(&self) -> Vec<(String, String)> {
        vec![
            ("through".into(), self.through.clone()),
            ("seconds".into(), self.seconds.to_string()),
        ]
    }

    fn files(&self) -> Result<Vec<(&'static str, String)>> {
        let records: Vec<Record> = self
            .records
            .iter()
            .flat_map(|(_, records)| records.clone())
            .collect();
        Ok(vec![
            ("results.json", json(self)?),
            ("streams.jsonl", self.streams()?),
            ("tgen.analysis.json", tgen_analysis(&records)),
        ])
    }

    fn draw(&self, folder: &Folder) -> Result<Vec<PathBuf>> {
        figures::draw(self, folder)
    }

    fn caption(&self, _plot: &str) -> String {
        "Of each model's streams, the share that has no more than so much.".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use weft_model::traffic::records::Outcome;
    use weft_model::traffic::{Failure, FailureKind, Times};

    use super::*;
    use crate::machine::{Machine, Versions};

    fn record(model: &str, millis: u64, outcome: Outcome) -> Record {
        let time = |part: u64| Some(Duration::from_millis(millis / part));
        let mut times = Times::new(1000, 0);
        (times.opened, times.answered) = (time(10), time(5));
        times.down.bytes = 1000;
        (times.down.first, times.down.last) = (time(2), time(1));
        Record {
            client: format!("{model}1"),
            model: model.to_owned(),
            stream: 0,
            isolation: 0,
            started: Duration::ZERO,
            times,
            ended: Duration::from_millis(millis),
            outcome,
        }
    }

    fn results(models: &[&str]) -> Results {
        let models = models.iter().map(|model| OfModel {
            model: (*model).to_owned(),
            users: 1,
            failures: BTreeMap::new(),
            all: Summary::of([]),
            repetitions: Vec::new(),
        });
        Results {
            schema: 1,
            started_at: String::new(),
            finished: false,
            failure: None,
            machine: Machine::default(),
            versions: Versions::default(),
            through: "TCP without Tor".to_owned(),
            seconds: 2.0,
            repetitions: 2,
            seed: 1,
            models: models.collect(),
            records: Vec::new(),
        }
    }

    #[test]
    fn one_repetition_has_no_intervals_and_several_have_them_over_repetitions() {
        let mut results = results(&["web", "bulk"]);
        let two = Duration::from_secs(2);
        let streams = |times: [u64; 2]| {
            times
                .map(|ms| record("web", ms, Outcome::Complete))
                .to_vec()
        };
        results.add(1, two, streams([100, 300]));
        let ttlb = |results: &Results| results.users().rows[0].values[6].clone();
        assert_eq!(ttlb(&results), Values::one(200.0));
        assert!(!results.to_string().contains('±'), "{results}");
        assert!(!results.is_passed());
        results.add(2, two, streams([200, 400]));
        results.finished = true;
        assert_eq!(ttlb(&results), Values::Samples(vec![200.0, 300.0]));
        assert!(results.is_passed());
        let web = &results.models[0];
        assert_eq!((web.all.streams, web.repetitions.len()), (4, 2));
        assert!((web.repetitions[0].mbit - 0.008).abs() < 1e-9);
        // Nobody of the other model did anything.
        assert_eq!(results.percentiles().rows.len(), 4);
        assert_eq!(results.streams().expect("JSON").lines().count(), 4);
    }

    #[test]
    fn failures_are_counted_by_their_part() {
        let mut results = results(&["web"]);
        let failure = Failure::new(FailureKind::Proxy, "refused");
        results.add(
            1,
            Duration::from_secs(1),
            vec![record("web", 10, Outcome::Failed(failure))],
        );
        results.finished = true;
        assert!(!results.is_passed());
        assert!(
            results
                .failure()
                .is_some_and(|why| why.contains("no stream was complete"))
        );
        let text = results.to_string();
        assert!(
            text.contains("proxy") && text.contains("Failed streams"),
            "{text}"
        );
    }
}
