//! Tables of a run, for the terminal and the report.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use anyhow::Result;
use weft_model::traffic::records::{Figure, Outcome as StreamOutcome, Summary};
use weft_plot::Folder;

use super::figures;
use super::memory::amount;
use super::raw::{self, RESULTS};
use super::results::{Circuits, OfArm, Outcome, Results};
use super::series::{One, busiest, total};
use crate::experiment::{Report, json};
use crate::report::{Metric, Table, Values, table_text};

/// A quantity of streams.
type Quantity = fn(&Summary) -> Option<Figure>;

const QUANTITIES: [(&str, &str, Quantity); 4] = [
    ("time to first byte", "ms", |streams| streams.ttfb_ms),
    ("time to last byte", "ms", |streams| streams.ttlb_ms),
    ("round trip", "ms", |streams| streams.rtt_ms),
    ("goodput", "Mbit/s", |streams| streams.goodput_mbit),
];

/// Name of all users together, beside those of models.
const ALL: &str = "all";

/// A number of each repetition.
fn each(streams: &[Summary], number: impl Fn(&Summary) -> Option<f64>) -> Values {
    Values::samples(streams.iter().filter_map(number))
}

impl OfArm {
    /// Streams of all users by repetition; then, where there are several models, of each.
    fn groups(&self) -> Vec<(&str, &[Summary])> {
        let mut groups = vec![(ALL, self.each.as_slice())];
        if self.models.len() > 1 {
            let models = self.models.iter();
            groups.extend(models.map(|model| (&*model.model, model.each.as_slice())));
        } else if let Some(only) = self.models.first() {
            groups = vec![(&*only.model, only.each.as_slice())];
        }
        groups
    }
}

impl Results {
    fn streams_table(&self) -> Table {
        let metrics = [
            Metric::more("streams complete", ""),
            Metric::less("failed", ""),
            Metric::plain("open at the end", ""),
            Metric::less("time to first byte", "ms"),
            Metric::less("time to last byte", "ms"),
            Metric::more("goodput of a stream", "Mbit/s"),
            Metric::more("payload of all", "Mbit/s"),
        ];
        let mut table = Table::new("Streams", ["arm", "model"], metrics).note(
            "Times are medians of a repetition, from the beginning of a connection; goodput is a mean. Time to last byte \
             and goodput are of streams that completed. Intervals are over the repetitions.",
        );
        for arm in &self.arms {
            let times = self.of_arm(arm).map(|one| one.results.simulated);
            let times: Vec<f64> = times.map(|time| time.as_secs_f64()).collect();
            for (model, streams) in arm.groups() {
                let count = |of: fn(&Summary) -> usize| each(streams, |one| Some(of(one) as f64));
                let median = |of: Quantity| each(streams, |one| Some(of(one)?.p50));
                let payload = streams.iter().zip(&times).map(|(one, seconds)| {
                    one.down_bytes.saturating_add(one.up_bytes) as f64 * 8e-6 / seconds
                });
                table.push(
                    [&*arm.arm, model],
                    [
                        count(|one| one.complete),
                        count(|one| one.failed),
                        count(|one| one.streams - one.complete - one.failed),
                        median(|one| one.ttfb_ms),
                        median(|one| one.ttlb_ms),
                        each(streams, |one| Some(one.goodput_mbit?.mean)),
                        Values::samples(payload),
                    ],
                );
            }
        }
        table
    }

    fn percentiles(&self) -> Table {
        let metrics = ["10 %", "50 %", "90 %", "99 %"].map(|share| Metric::plain(share, ""));
        let mut table = Table::new("Percentiles", ["arm", "model", "quantity"], metrics)
            .note("The share of streams that have no more.");
        for arm in &self.arms {
            for (model, streams) in arm.groups() {
                for (name, unit, quantity) in QUANTITIES {
                    let shares: [fn(&Figure) -> f64; 4] =
                        [|one| one.p10, |one| one.p50, |one| one.p90, |one| one.p99];
                    let values =
                        shares.map(|share| each(streams, |one| quantity(one).as_ref().map(share)));
                    if values.iter().any(|one| one.spread().is_some()) {
                        let quantity = format!("{name}, {unit}");
                        table.push([arm.arm.clone(), model.to_owned(), quantity], values);
                    }
                }
            }
        }
        table
    }

    fn network(&self) -> Table {
        let metrics = [
            Metric::more("relayed", "MB"),
            Metric::plain("circuits built", ""),
            Metric::less("circuits not built", ""),
            Metric::less("build time", "ms"),
            Metric::less("round trip of circuits", "ms"),
            Metric::less("held in relays", "MB"),
            Metric::less("busiest thread", "%"),
        ];
        let mut table = Table::new("Networks", ["arm"], metrics).note(
            "Relayed is what relays write to links. Times are medians. A round trip is from BEGIN to CONNECTED. Held in \
             relays is the most in queues and buffers of all relays at the end of an interval. The busiest thread of any \
             relay works so much of the time, where the scenario gives work a cost.",
        );
        for arm in &self.arms {
            let of = |number: &dyn Fn(&weft_virtual::Results) -> Option<f64>| {
                Values::samples(self.of_arm(arm).filter_map(|one| number(&one.results)))
            };
            let circuits = |results: &weft_virtual::Results| Circuits::of(results.circuits.iter());
            let busiest = |results: &weft_virtual::Results| {
                let busy = results.relays.iter().map(|relay| relay.busy);
                Some(busy.fold(0.0, f64::max) * 100.0).filter(|busy| *busy > 0.0)
            };
            table.push(
                [&*arm.arm],
                [
                    of(&|results| Some(results.relayed_bytes as f64 * 1e-6)),
                    of(&|results| Some(circuits(results).built as f64)),
                    of(&|results| {
                        let circuits = circuits(results);
                        Some((circuits.count - circuits.built) as f64)
                    }),
                    of(&|results| Some(circuits(results).build_ms?.p50)),
                    of(&|results| Some(circuits(results).round_trip_ms?.p50)),
                    of(&|results| {
                        let held = total(results.relays.iter().map(|relay| &relay.queued));
                        held.into_iter().max().map(|bytes| bytes as f64 * 1e-6)
                    }),
                    of(&busiest),
                ],
            );
        }
        table
    }

    fn relays_table(&self) -> Table {
        let metrics = [
            Metric::plain("written", "MB"),
            Metric::plain("mean", "Mbit/s"),
            Metric::plain("most in an interval", "Mbit/s"),
            Metric::plain("most held", "MB"),
            Metric::plain("circuits", ""),
            Metric::plain("busy", "%"),
        ];
        let mut table = Table::new("Busiest relays", ["arm", "relay"], metrics).note(
            "Those that wrote most to links and destinations; relays.csv has all, in each interval. Where a repetition draws a \
             network anew, relays of one name are different ones.",
        );
        for arm in &self.arms {
            let outcomes: Vec<&Outcome> = self.of_arm(arm).collect();
            for name in busiest(&outcomes) {
                let of = |number: &dyn Fn(&One<'_>) -> Option<f64>| {
                    let ones = outcomes
                        .iter()
                        .filter_map(|one| One::of(&one.results, name));
                    Values::samples(ones.filter_map(|one| number(&one)))
                };
                table.push(
                    [arm.arm.as_str(), name],
                    [
                        of(&|one| Some(one.bytes() as f64 * 1e-6)),
                        of(&|one| Some(one.bytes() as f64 * 8e-6 / one.seconds())),
                        of(&|one| one.rates().into_iter().reduce(f64::max)),
                        of(&|one| Some(*one.relay.queued.iter().max()? as f64 * 1e-6)),
                        of(&|one| Some(one.relay.circuits as f64)),
                        of(&|one| Some(one.relay.busy * 100.0).filter(|busy| *busy > 0.0)),
                    ],
                );
            }
        }
        table
    }

    fn failures_table(&self) -> Table {
        let mut table = Table::new(
            "Failed streams",
            ["arm", "model", "in which part"],
            [Metric::less("streams", "")],
        );
        for arm in &self.arms {
            let mut parts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
            for record in self.of_arm(arm).flat_map(|one| &one.streams) {
                if let StreamOutcome::Failed(failure) = &record.outcome {
                    let part = (record.model.as_str(), failure.kind.name());
                    *parts.entry(part).or_default() += 1;
                }
            }
            for ((model, part), count) in parts {
                table.push([&*arm.arm, model, part], [Values::one(count as f64)]);
            }
        }
        table
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for table in self.tables() {
            writeln!(f, "{}", table_text(&table))?;
        }
        for note in self.notes() {
            writeln!(f, "{note}")?;
        }
        Ok(())
    }
}

impl Report for Results {
    fn is_empty(&self) -> bool {
        !self.has_outcome()
    }

    fn is_passed(&self) -> bool {
        self.finished
    }

    fn failure(&self) -> Option<String> {
        let missing = self.missing();
        (!missing.is_empty()).then(|| missing.join("\n"))
    }

    fn is_complete(&self) -> Option<bool> {
        Some(self.finished)
    }

    fn tables(&self) -> Vec<Table> {
        let tables = [
            self.streams_table(),
            self.percentiles(),
            self.network(),
            self.relays_table(),
            self.failures_table(),
        ];
        let tables = tables.into_iter();
        tables.filter(|table| !table.rows.is_empty()).collect()
    }

    fn notes(&self) -> Vec<String> {
        let speed = match self.elapsed_s > 0.0 {
            true => format!(
                ", {:.1} virtual seconds in each second",
                self.simulated_s / self.elapsed_s
            ),
            false => String::new(),
        };
        let mut notes = vec![format!(
            "{} relays and {} clients on the testbed {}: {} s in {:.1} s{speed}, with at most {} of memory.",
            self.relays,
            self.clients,
            self.testbed.name(),
            self.simulated_s,
            self.elapsed_s,
            amount(self.peak_rss_bytes)
        )];
        if !self.parts.is_empty() {
            notes.push(format!(
                "Made of {}, whose own reports have machines and versions.",
                self.parts.join(", ")
            ));
        }
        if self.streams.complete == 0 {
            notes.push(match self.streams.count {
                0 => "No stream began: a longer duration of the scenario may show some.".to_owned(),
                _ => "No stream was complete: streams.jsonl shows how they ended.".to_owned(),
            });
        }
        notes.extend(self.missing());
        notes
    }

    fn settings(&self) -> Vec<(String, String)> {
        let mut arms: Vec<&str> = Vec::new();
        for job in &self.jobs {
            if !arms.contains(&job.arm.as_str()) {
                arms.push(&job.arm);
            }
        }
        let mut repetitions: Vec<u32> = self.jobs.iter().map(|job| job.repetition).collect();
        repetitions.dedup();
        let repetitions: Vec<String> = repetitions.iter().map(u32::to_string).collect();
        vec![
            ("scenario".into(), self.scenario.clone()),
            ("testbed".into(), self.testbed.name().to_owned()),
            ("seed".into(), self.seed.to_string()),
            ("arm".into(), arms.join(", ")),
            ("repetition".into(), repetitions.join(", ")),
            ("seconds of each".into(), self.duration_s.to_string()),
        ]
    }

    fn files(&self) -> Result<Vec<(&'static str, String)>> {
        let mut files = vec![(RESULTS, json(self)?)];
        files.extend(raw::files(self)?);
        Ok(files)
    }

    fn draw(&self, folder: &Folder) -> Result<Vec<PathBuf>> {
        figures::draw(self, folder)
    }

    fn caption(&self, plot: &str) -> String {
        figures::caption(plot).to_owned()
    }
}
