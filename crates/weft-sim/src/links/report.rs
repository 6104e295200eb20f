//! The results of a simulation, as numbers for programs and as a table for people.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use super::count::Links;
use super::sample::DocumentResult;
pub use super::sample::{CLASSES, ClassCounts, Sample};
use weft_stats::Spread;

/// The version of [`Report`]'s shape.
pub const SCHEMA: u32 = 1;

/// What was asked for, in words.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Setting {
    /// `simple` (SALSA) or `full`.
    pub model: String,
    /// `external`, `internal` or `mixed`.
    pub kind: String,
    /// `directed` or `undirected`.
    pub direction: String,
    /// The class of exits, or `mixture`.
    pub exits: String,
    /// Circuits of a client.
    pub circuits_per_client: u32,
    /// Guards of a client.
    pub guards_per_client: u32,
    /// The part of the network's relays.
    pub scale: f64,
    /// On each document.
    pub repetitions: u32,
    /// All draws are functions of it.
    pub seed: u64,
    /// What ran at the same time.
    pub threads: usize,
}

/// Links of a position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OfPosition {
    /// Different links.
    pub links: f64,
    /// Shared ones.
    pub shared_links: f64,
    /// Shared ones of different ones, percent.
    pub shared_percent: Spread,
}

/// Links with a number of circuits (Pahl et al. 2023, Figure 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OfNumber {
    /// On one link.
    pub circuits: u64,
    /// Mean number of such links.
    pub links: f64,
    /// Of all links.
    pub percent: Spread,
}

/// A class of bandwidth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Class {
    /// From so many kilobytes per second.
    pub from_kb_s: u64,
    /// Mean number of its relays.
    pub relays: f64,
    /// Mean number of those in shared links.
    pub in_shared_links: f64,
    /// Of all ends of shared links, percent.
    pub percent_of_ends: f64,
}

/// A document's own numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OneDocument {
    /// Its file.
    pub name: String,
    /// Its `valid-after`.
    pub valid_after: String,
    /// Its relays, after scaling.
    pub relays: usize,
    /// Over its repetitions.
    pub shared_percent: Spread,
    /// Reading it, after unpacking.
    pub parse_s: f64,
    /// Simulating it.
    pub elapsed_s: f64,
}

/// A simulation's results. Numbers of links are means over all runs: documents times repetitions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What was asked for.
    pub setting: Setting,
    /// Of the documents, the mean, rounded.
    pub relays: u64,
    /// With the flag Guard.
    pub guards: u64,
    /// With the flag Exit, without BadExit.
    pub exits: u64,
    /// In each run.
    pub circuits: u64,
    /// Different links, rounded.
    pub links: u64,
    /// Those with two circuits or more, rounded.
    pub shared_links: u64,
    /// Shared links of different links, percent, over all runs.
    pub shared_percent_mean: f64,
    /// Standard deviation; 0 of a single run.
    pub shared_percent_stddev: f64,
    /// Half the width of the mean's 95 % confidence interval; 0 of a single run.
    pub shared_percent_ci95: f64,
    /// First links, among themselves.
    pub guard_middle: OfPosition,
    /// Second links, among themselves.
    pub middle_exit: OfPosition,
    /// Circuits without shared link, with one, with two: percent of all.
    pub circuits_percent_by_shared: [Spread; 3],
    /// Circuits per link.
    pub distribution: Vec<OfNumber>,
    /// Relays in circuits, mean.
    pub relays_used: f64,
    /// Relays in shared links, mean.
    pub relays_in_shared_links: f64,
    /// By bandwidth.
    pub bandwidth_classes: Vec<Class>,
    /// One by one.
    pub documents: Vec<OneDocument>,
    /// Drawing and counting: of all documents, added.
    pub elapsed_s: f64,
    /// Reading, after unpacking: of all documents, added.
    pub parse_s: f64,
    /// The most memory that was resident.
    pub peak_rss_bytes: u64,
}

impl Report {
    /// Of these documents, which had so many circuits each.
    pub fn new(
        setting: Setting,
        circuits: u64,
        documents: &[DocumentResult],
        peak_rss_bytes: u64,
    ) -> Report {
        let samples: Vec<&Sample> = documents.iter().flat_map(|one| &one.samples).collect();
        let over = |number: &dyn Fn(&Sample) -> f64| {
            Spread::of(&samples.iter().map(|one| number(one)).collect::<Vec<_>>())
        };
        let over_documents = |number: &dyn Fn(&DocumentResult) -> usize| {
            let numbers: Vec<f64> = documents.iter().map(|one| number(one) as f64).collect();
            Spread::of(&numbers).mean.round() as u64
        };
        let position = |links: &dyn Fn(&Sample) -> Links| OfPosition {
            links: over(&|one| links(one).links as f64).mean,
            shared_links: over(&|one| links(one).shared as f64).mean,
            shared_percent: over(&|one| links(one).percent_shared()),
        };
        let all = position(&|one| one.all);
        let of_circuits = |place: usize| {
            over(&|one| {
                let count = one.circuits_by_shared.get(place).copied();
                count.unwrap_or_default() as f64 * 100.0 / circuits.max(1) as f64
            })
        };
        let numbers: BTreeSet<u64> = samples
            .iter()
            .flat_map(|one| one.by_circuits.keys().copied())
            .collect();
        let distribution = numbers.into_iter().map(|number| {
            let links = |one: &Sample| one.by_circuits.get(&number).copied().unwrap_or(0) as f64;
            OfNumber {
                circuits: number,
                links: over(&links).mean,
                percent: over(&|one| links(one) * 100.0 / one.all.links.max(1) as f64),
            }
        });
        let ends = over(&|one| one.classes.iter().map(|class| class.ends).sum::<u64>() as f64);
        let classes = CLASSES.into_iter().enumerate().map(|(place, from_kb_s)| {
            let of = |number: &dyn Fn(&ClassCounts) -> u64| {
                over(&|one| one.classes.get(place).map_or(0, number) as f64).mean
            };
            Class {
                from_kb_s,
                relays: of(&|class| class.relays),
                in_shared_links: of(&|class| class.in_shared),
                percent_of_ends: of(&|class| class.ends) * 100.0 / ends.mean.max(1.0),
            }
        });
        Report {
            schema: SCHEMA,
            setting,
            relays: over_documents(&|one| one.relays),
            guards: over_documents(&|one| one.guards),
            exits: over_documents(&|one| one.exits),
            circuits,
            links: all.links.round() as u64,
            shared_links: all.shared_links.round() as u64,
            shared_percent_mean: all.shared_percent.mean,
            shared_percent_stddev: all.shared_percent.stddev,
            shared_percent_ci95: all.shared_percent.ci95,
            guard_middle: position(&|one| one.guard_middle),
            middle_exit: position(&|one| one.middle_exit),
            circuits_percent_by_shared: [of_circuits(0), of_circuits(1), of_circuits(2)],
            distribution: distribution.collect(),
            relays_used: over(&|one| one.relays_used as f64).mean,
            relays_in_shared_links: over(&|one| one.relays_in_shared as f64).mean,
            bandwidth_classes: classes.collect(),
            documents: documents
                .iter()
                .map(|one| OneDocument {
                    name: one.name.clone(),
                    valid_after: one.valid_after.clone(),
                    relays: one.relays,
                    shared_percent: Spread::of(
                        &one.samples
                            .iter()
                            .map(|sample| sample.all.percent_shared())
                            .collect::<Vec<_>>(),
                    ),
                    parse_s: one.parse.as_secs_f64(),
                    elapsed_s: one.elapsed.as_secs_f64(),
                })
                .collect(),
            elapsed_s: documents.iter().map(|one| one.elapsed.as_secs_f64()).sum(),
            parse_s: documents.iter().map(|one| one.parse.as_secs_f64()).sum(),
            peak_rss_bytes,
        }
    }
}

/// A row of the table: mean, deviation, half interval.
fn row(f: &mut fmt::Formatter<'_>, name: &str, spread: &Spread) -> fmt::Result {
    writeln!(
        f,
        "{name:<34}{:>8.3} %  ± {:.3} (95 %), deviation {:.3}",
        spread.mean, spread.ci95, spread.stddev
    )
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let setting = &self.setting;
        let runs = self.documents.len() * setting.repetitions as usize;
        writeln!(
            f,
            "{} relays ({} guards, {} exits), {} circuits, {}, {}, exits for {}, model {}",
            self.relays,
            self.guards,
            self.exits,
            self.circuits,
            setting.kind,
            setting.direction,
            setting.exits,
            setting.model
        )?;
        writeln!(
            f,
            "{} documents, {} repetitions each, seed {}: {runs} runs",
            self.documents.len(),
            setting.repetitions,
            setting.seed
        )?;
        writeln!(f)?;
        writeln!(f, "{:<34}{:>8}", "links", self.links)?;
        writeln!(f, "{:<34}{:>8}", "shared links", self.shared_links)?;
        let shared = Spread {
            mean: self.shared_percent_mean,
            stddev: self.shared_percent_stddev,
            ci95: self.shared_percent_ci95,
        };
        row(f, "shared links of all links", &shared)?;
        row(
            f,
            "  between guard and middle",
            &self.guard_middle.shared_percent,
        )?;
        row(
            f,
            "  between middle and exit",
            &self.middle_exit.shared_percent,
        )?;
        let names = [
            "circuits without shared link",
            "circuits with one shared link",
            "circuits with two shared links",
        ];
        for (name, spread) in names.iter().zip(&self.circuits_percent_by_shared) {
            row(f, name, spread)?;
        }
        writeln!(f, "{:<34}{:>8.0}", "relays in circuits", self.relays_used)?;
        writeln!(
            f,
            "{:<34}{:>8.0}",
            "relays in shared links", self.relays_in_shared_links
        )?;
        writeln!(f, "\ncircuits on a link       links   of all links")?;
        for number in self.distribution.iter().take(12) {
            writeln!(
                f,
                "{:>17} {:>12.1} {:>12.4} %",
                number.circuits, number.links, number.percent.mean
            )?;
        }
        if self.distribution.len() > 12 {
            writeln!(f, "{:>17}", "…")?;
        }
        writeln!(
            f,
            "\nbandwidth from, kB/s   relays   in shared links   ends of shared links"
        )?;
        for class in &self.bandwidth_classes {
            writeln!(
                f,
                "{:>20} {:>8.0} {:>17.1} {:>20.2} %",
                class.from_kb_s, class.relays, class.in_shared_links, class.percent_of_ends
            )?;
        }
        writeln!(
            f,
            "\nread in {:.4} s, simulated in {:.4} s, peak memory {:.1} MB",
            self.parse_s,
            self.elapsed_s,
            self.peak_rss_bytes as f64 / 1e6
        )
    }
}
