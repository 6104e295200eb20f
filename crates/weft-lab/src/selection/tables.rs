//! Tables for the terminal and the report.

use std::fmt;
use std::path::PathBuf;

use anyhow::Result;
use weft_plot::Folder;
use weft_sim::compromise::abra::pools;
use weft_sim::selection::tuples;

use super::aggregate::{OfArm, QUANTITIES};
use super::figures;
use super::results::Results;
use crate::comparison::{MEAN, PERCENTILES, Quantity, regions};
use crate::experiment::{Report, json};
use crate::report::{Metric, Table, Values, table_text};

/// Changes that Schrock 2017 reports of ABRA against the default (section 3.3): quantity, number,
/// and the range of the change in percent.
const PAPER: [(&str, &str, [f64; 2]); 2] = [
    ("relayed_bytes", MEAN, [14.0, 14.0]),
    ("bulk_ms", "p50", [-10.0, -5.0]),
];
/// Percent of the percentiles of the time to the first byte that are worse with ABRA (Schrock
/// 2017): from, to.
const PAPER_WORSE: [f64; 2] = [12.0, 13.0];

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

impl Results {
    /// Each arm with its name, in order.
    fn each(&self) -> impl Iterator<Item = (String, &OfArm)> {
        let arms = self.samples.iter().map(|(arm, _)| arm.json_key());
        arms.filter_map(|name| {
            let arm = self.arms.get(&name)?;
            Some((name, arm))
        })
    }

    fn numbers(&self, title: &str, note: &str, of: fn(&OfArm, &str) -> Option<Quantity>) -> Table {
        let metrics = PERCENTILES.map(|(name, _)| name).into_iter().chain([MEAN]);
        let metrics = metrics.map(|name| Metric::plain(name, ""));
        let mut table = Table::new(title, ["quantity", "arm"], metrics).note(note);
        for (quantity, _) in QUANTITIES {
            for (name, arm) in self.each() {
                let Some(numbers) = of(arm, quantity) else {
                    continue;
                };
                let names = PERCENTILES.map(|(name, _)| name).into_iter().chain([MEAN]);
                let values = names.map(|name| numbers.value(name, arm.repetitions));
                table.push([quantity, &name], values);
            }
        }
        table
    }

    fn counts(&self) -> Table {
        let metrics = [
            Metric::less("worse times to first byte", "%"),
            Metric::plain("scarce", "%"),
            Metric::less("compromised", "%"),
            Metric::plain("streams", ""),
            Metric::less("failed", ""),
            Metric::plain("open at the end", ""),
            Metric::plain("circuits launched", ""),
            Metric::plain("built", ""),
            Metric::plain("used", ""),
        ];
        let mut table = Table::new("Streams and circuits", ["arm"], metrics).note(
            "Of all repetitions. Worse is the share of percentiles from 0.5 to 99.5 at which the time to the first byte is \
             longer than the default's in the same repetition. Scarce are bytes of relays with a weight above 0 at the end of the 10 s; \
             where nobody asks, none has one. Compromised are streams on circuits that begin and end at an adversary's \
             relays.",
        );
        for (name, arm) in self.each() {
            let counts = arm.counts;
            let numbers = [
                counts.streams,
                counts.failed,
                counts.open,
                counts.circuits_launched,
                counts.circuits_built,
                counts.circuits_used,
            ];
            let worse = arm.worse_percent.value(MEAN, arm.repetitions);
            let share = |of: &Option<Quantity>| {
                of.as_ref()
                    .map_or(Values::None, |percent| percent.value(MEAN, arm.repetitions))
            };
            let shares = [share(&arm.scarce_percent), share(&arm.compromised_percent)];
            let values = numbers.map(|number| Values::one(number as f64));
            table.push([name], [worse].into_iter().chain(shares).chain(values));
        }
        table
    }

    /// The paper's numbers beside those of the arm `abra`.
    fn beside_paper(&self) -> Vec<String> {
        let Some(arm) = self.arms.get("abra") else {
            return Vec::new();
        };
        let changes = PAPER.iter().filter_map(|(quantity, number, paper)| {
            let what = format!("{quantity} {number} of abra against default");
            Some((what, arm.change_percent.get(quantity)?, *number, *paper))
        });
        let worse = "times to the first byte that are worse with abra".to_owned();
        let all = changes.chain([(worse, &arm.worse_percent, MEAN, PAPER_WORSE)]);
        let sentences = all.map(|(what, quantity, number, paper)| {
            verdict(
                &what,
                quantity.mean(number),
                quantity.interval(number),
                paper,
            )
        });
        sentences.collect()
    }
}

/// A sentence that states whether the paper's effect appears.
fn verdict(what: &str, mean: Option<f64>, ci95: Option<f64>, [low, high]: [f64; 2]) -> String {
    let paper = match low < high {
        true => format!("{low:+} to {high:+} %"),
        false => format!("{low:+} %"),
    };
    let Some(mean) = mean else {
        return format!("{what}: not known; the paper has {paper}.");
    };
    let Some(ci95) = ci95 else {
        return format!("{what}: {mean:+.1} %, one repetition; the paper has {paper}.");
    };
    let found = match mean {
        _ if mean.abs() <= ci95 => "no effect appears",
        _ if (mean > 0.0) != (low > 0.0) => "the effect is the opposite",
        _ if mean.abs() + ci95 < low.abs().min(high.abs()) => "the effect is smaller",
        _ if mean.abs() - ci95 > low.abs().max(high.abs()) => "the effect is larger",
        _ => "the effect appears",
    };
    format!("{what}: {mean:+.1} ± {ci95:.1} %; the paper has {paper}: {found}.")
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
        let quantity = |arm: &OfArm, name: &str| arm.quantities.get(name).cloned();
        let change = |arm: &OfArm, name: &str| arm.change_percent.get(name).cloned();
        vec![
            self.numbers(
                "Bytes and times",
                "Bytes of all relays in 10 s; times of streams that began after the warm-up, in ms. Streams that are open at \
                 the end count until then (Kaplan and Meier). Means over repetitions.",
                quantity,
            ),
            self.numbers(
                "Change against default, %",
                "Means of each repetition's change: both arms have the same network and users.",
                change,
            ),
            self.counts(),
        ]
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.beside_paper();
        let failures = self.failures.iter().map(|failed| {
            let job = &failed.job;
            format!(
                "Not measured: {}, repetition {}: {}",
                job.arm, job.repetition, failed.why
            )
        });
        notes.extend(failures);
        if self.measuring_clients > 0 {
            notes.push(format!(
                "{} clients measured {} circuits of the arm default: circuits.csv.",
                self.measuring_clients, self.measured_circuits
            ));
        }
        notes
    }

    fn files(&self) -> Result<Vec<(&'static str, String)>> {
        let own = self.text.contains(regions::FILE);
        let graph = own.then(|| (regions::FILE, regions::graph()));
        let files = [
            ("results.json", json(self)?),
            ("scenario.toml", self.text.clone()),
        ];
        let mut files: Vec<_> = files.into_iter().chain(graph).collect();
        let circuits = self.circuits();
        if !circuits.is_empty() {
            files.push(("circuits.csv", tuples::csv(&circuits)));
        }
        let pools = self.pools();
        if !pools.is_empty() {
            files.push(("pools.jsonl", pools::text(&pools)?));
        }
        Ok(files)
    }

    fn draw(&self, folder: &Folder) -> Result<Vec<PathBuf>> {
        figures::draw(self, folder)
    }

    fn caption(&self, plot: &str) -> String {
        figures::caption(plot).to_owned()
    }
}
