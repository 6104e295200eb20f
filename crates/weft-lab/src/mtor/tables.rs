//! Tables for the terminal and the report.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use anyhow::Result;
use weft_plot::Folder;

use super::aggregate::{OF_CAPACITY, OF_CARRIED, OfContention, OfStreams};
use super::controlled;
use super::figures;
use super::part::{Kind, Load};
use super::results::{Bar, OfPart, Results};
use crate::comparison::{MEAN, Quantity, STDDEV};
use crate::experiment::{Report, json};
use crate::report::{Metric, Table, Values, table_text};

/// Standard deviations of download times that Yang and Li 2015, V.A report, seconds: megabytes, over one circuit, over several.
const DEVIATIONS: [(u32, f64, f64); 2] = [(5, 19.76, 10.34), (10, 23.98, 12.33)];
/// Table I, percent: load, relays, bandwidth that bulk clients consumed over one circuit, over three.
const TABLE_I: [(Load, &str, f64, f64); 4] = [
    (Load::Medium, "fast", 19.86, 14.69),
    (Load::Medium, "slow", 17.33, 95.16),
    (Load::Heavy, "fast", 34.96, 15.30),
    (Load::Heavy, "slow", 30.32, 95.74),
];

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for table in self.tables() {
            writeln!(f, "{}", table_text(&table))?;
        }
        for note in self.notes() {
            writeln!(f, "{note}\n")?;
        }
        Ok(())
    }
}

fn optional(number: Option<f64>) -> Values {
    number.map_or(Values::None, Values::one)
}

/// Metrics of times, with what [`times`] gives for them.
fn metrics_of_times() -> [Metric; 4] {
    [
        Metric::less("mean", "s"),
        Metric::less("deviation", "s"),
        Metric::less("p50", "s"),
        Metric::less("p90", "s"),
    ]
}

fn times(quantity: &Quantity, repetitions: usize) -> [Values; 4] {
    [MEAN, STDDEV, "p50", "p90"].map(|name| quantity.value(name, repetitions))
}

impl Results {
    /// The arms of a part by their keys in JSON, in order.
    fn order(&self, kind: Kind) -> Vec<String> {
        let part = self.parts.iter().find(|part: &&OfPart| part.kind == kind);
        let arms = part.into_iter().flat_map(|part| &part.samples);
        arms.map(|(arm, _)| arm.json_key()).collect()
    }

    fn downloads(&self) -> Table {
        let metrics = metrics_of_times().into_iter().chain([
            Metric::more("goodput", "Mbit/s"),
            Metric::less("change of the mean", "%"),
            Metric::less("change of the deviation", "%"),
            Metric::plain("downloads", ""),
            Metric::less("failed", ""),
            Metric::less("open at the end", ""),
        ]);
        let mut table = Table::new("Downloads", ["size", "arm"], metrics).note(
            "From the request to the last byte. Means over repetitions; deviations are those within a repetition. Changes are \
             against one circuit in the same network. Downloads that are open at the end count until then.",
        );
        for megabytes in &self.megabytes {
            for name in self.order(Kind::Downloads) {
                let Some(arm) = self.arms.get(&name) else {
                    continue;
                };
                let Some(of) = arm.sizes.get(&format!("{megabytes}_mb")) else {
                    continue;
                };
                let n = arm.repetitions;
                let counts = of.counts;
                let counts = [counts.downloads, counts.failed, counts.open];
                let values = times(&of.seconds.quantity(), n).into_iter().chain([
                    optional(of.goodput_mbit),
                    of.change_percent.value(MEAN, n),
                    of.change_percent.value(STDDEV, n),
                ]);
                let counts = counts.map(|count| Values::one(count as f64));
                table.push([format!("{megabytes} MB"), name], values.chain(counts));
            }
        }
        table
    }

    fn tunnels(&self) -> Table {
        let metrics = [
            Metric::plain("legs launched", ""),
            Metric::plain("replaced", ""),
            Metric::less("streams without a tunnel", ""),
            Metric::less("most bytes out of order", ""),
        ];
        let mut table = Table::new("Tunnels and sets", ["part", "arm"], metrics)
            .note("Of all repetitions, at clients.");
        let contention = self.contention.iter().flat_map(|(load, arms)| {
            let kind = Kind::Contention(*load);
            arms.iter()
                .map(move |(name, arm)| (kind, name, arm.tunnels))
        });
        let downloads = self.arms.iter();
        let downloads = downloads.map(|(name, arm)| (Kind::Downloads, name, arm.tunnels));
        for (kind, name, tunnels) in downloads.chain(contention) {
            let numbers = [
                tunnels.launched,
                tunnels.replaced,
                tunnels.without,
                tunnels.reorder_bytes_max,
            ];
            let values = numbers.map(|number| optional(number.map(|number| number as f64)));
            table.push([kind.name(), name], values);
        }
        table
    }

    fn small(&self) -> Table {
        let metrics = [Metric::less("time", "s"), Metric::more("goodput", "Mbit/s")];
        let mut table = Table::new("Five equal slow circuits", ["network", "arm"], metrics).note(
            &format!(
                "{} MB over circuits of {} Mbit/s and 50 ms each way. In the second network one of the middle relays stalls for good \
                 {} s after the request.",
                controlled::BYTES / 1_000_000,
                controlled::RATE_MBIT,
                controlled::stall_s()
            ),
        );
        for (kind, arms) in [(Kind::Equal, &self.equal), (Kind::Stall, &self.stall)] {
            for name in self.order(kind) {
                let Some(of) = arms.get(&name) else {
                    continue;
                };
                let n = self.repetitions as usize;
                let time = of.seconds.quantity().value(MEAN, n);
                table.push([kind.name(), &name], [time, optional(of.goodput_mbit)]);
            }
        }
        table
    }

    fn contention_of(
        &self,
        title: &str,
        note: &str,
        of: fn(&OfContention) -> (&OfStreams, Quantity, Quantity),
    ) -> Table {
        let metrics = metrics_of_times().into_iter().chain([
            Metric::less("change of the mean", "%"),
            Metric::less("change of p50", "%"),
            Metric::less("change of p90", "%"),
            Metric::plain("streams", ""),
            Metric::less("failed", ""),
            Metric::plain("open at the end", ""),
        ]);
        let mut table = Table::new(title, ["load", "arm"], metrics).note(note);
        for (kind, name, arm) in self.in_order() {
            let (streams, quantity, change) = of(arm);
            let n = arm.repetitions;
            let counts = streams.counts;
            let counts = [counts.downloads, counts.failed, counts.open];
            let changes = [MEAN, "p50", "p90"].map(|name| change.value(name, n));
            let values = times(&quantity, n).into_iter().chain(changes);
            let counts = counts.map(|count| Values::one(count as f64));
            table.push([kind.name(), &*name], values.chain(counts));
        }
        table
    }

    /// Arms with web clients beside bulk clients.
    fn in_order(&self) -> impl Iterator<Item = (Kind, String, &OfContention)> {
        self.contention
            .iter()
            .flat_map(|(load, arms): (_, &BTreeMap<_, _>)| {
                let kind = Kind::Contention(*load);
                let order = self.order(kind).into_iter();
                order.filter_map(move |name| {
                    let arm = arms.get(&name)?;
                    Some((kind, name, arm))
                })
            })
    }

    fn shares(&self) -> Table {
        let metrics = [
            Metric::less("of the bandwidth of fast relays", "%"),
            Metric::plain("of that of slow ones", "%"),
            Metric::less("of what fast relays carried", "%"),
            Metric::plain("of what slow ones carried", "%"),
            Metric::more("all bulk clients", "Mbit/s"),
        ];
        let mut table = Table::new("What bulk clients had", ["load", "arm"], metrics).note(
            "Bytes of relay cells of bulk clients' circuits on relays with a weight of 100 KiB/s and more, and on those with less.",
        );
        for (kind, name, arm) in self.in_order() {
            let n = arm.repetitions;
            let values = [
                arm.fast_percent.value(OF_CAPACITY, n),
                arm.slow_percent.value(OF_CAPACITY, n),
                arm.fast_percent.value(OF_CARRIED, n),
                arm.slow_percent.value(OF_CARRIED, n),
                arm.bulk_mbit.value(MEAN, n),
            ];
            table.push([kind.name(), &*name], values);
        }
        table
    }

    fn bars(&self) -> Table {
        let metrics = [
            Metric::plain("value", ""),
            Metric::plain("bar", ""),
            Metric::plain("goal", ""),
        ];
        let mut table = Table::new("Bars", ["quantity"], metrics);
        let n = self.repetitions as usize;
        for (name, bar) in &self.bars {
            let Bar { value, ci95, .. } = *bar;
            let value = match (value, ci95) {
                (Some(value), Some(ci95)) => Values::mean(value, ci95, n),
                (value, _) => optional(value),
            };
            let other = [bar.bar, bar.goal].map(Values::one);
            table.push([*name], [value].into_iter().chain(other));
        }
        table
    }

    /// The paper's numbers that these are to be compared with.
    fn of_paper(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (megabytes, one, several) in DEVIATIONS {
            if !self.arms.is_empty() && self.megabytes.contains(&megabytes) {
                let ratio = several / one;
                notes.push(format!(
                    "Yang and Li 2015: the deviation of {megabytes} MB downloads was {one} s over one circuit and {several} s over several, \
                     {ratio:.2} of it."
                ));
            }
        }
        for (load, relays, one, three) in TABLE_I {
            if self.contention.contains_key(&load) {
                let load = Kind::Contention(load).name();
                notes.push(format!(
                    "Yang and Li 2015, Table I, {load} load: bulk clients consumed {one:.2} % of the bandwidth of {relays} relays over one circuit, \
                     {three:.2} % with mTor-3."
                ));
            }
        }
        notes
    }
}

impl Report for Results {
    fn is_empty(&self) -> bool {
        self.done() == 0
    }

    fn is_passed(&self) -> bool {
        self.is_complete() == Some(true)
    }

    fn is_complete(&self) -> Option<bool> {
        Some(self.finished)
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables = Vec::new();
        if !self.arms.is_empty() {
            tables.push(self.downloads());
        }
        if !self.equal.is_empty() || !self.stall.is_empty() {
            tables.push(self.small());
        }
        if !self.contention.is_empty() {
            let means = "Streams that began after the warm-up. Means over repetitions; changes are against one circuit in the same network. Streams \
                         that are open at the end count until then.";
            tables.push(self.contention_of("Web: to the first byte", means, |arm| {
                let web = &arm.web;
                let change = web.first_byte_change_percent.clone();
                (web, web.first_byte_seconds.quantity(), change)
            }));
            tables.push(self.contention_of("Web: to the last byte", means, |arm| {
                let web = &arm.web;
                (web, web.seconds.quantity(), web.change_percent.clone())
            }));
            tables.push(self.contention_of("Bulk: to the last byte", means, |arm| {
                let bulk = &arm.bulk;
                (bulk, bulk.seconds.quantity(), bulk.change_percent.clone())
            }));
            tables.push(self.shares());
        }
        tables.push(self.tunnels());
        tables.push(self.bars());
        tables
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.of_paper();
        let failures = self.failures.iter().map(|failed| {
            let job = &failed.failed.job;
            format!(
                "Not measured: {}, {}, repetition {}: {}",
                failed.part, job.arm, job.repetition, failed.failed.why
            )
        });
        notes.extend(failures);
        notes
    }

    fn files(&self) -> Result<Vec<(&'static str, String)>> {
        let scenarios = self.parts.iter();
        let scenarios = scenarios.map(|part| (part.kind.file(), part.text.clone()));
        let own = self.own_files.iter().cloned();
        let files = [("results.json", json(self)?)].into_iter();
        Ok(files.chain(scenarios).chain(own).collect())
    }

    fn draw(&self, folder: &Folder) -> Result<Vec<PathBuf>> {
        figures::draw(self, folder)
    }

    fn caption(&self, plot: &str) -> String {
        figures::caption(plot).to_owned()
    }
}
