//! The results of a simulation, as numbers for programs and as a table for people.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use super::count::Links;
use super::sample::DocumentResult;
pub use super::sample::{CLASSES, ClassCounts, Sample};
use crate::over::Over;
use weft_stats::Spread;

/// The version of [`Report`]'s shape.
pub const SCHEMA: u32 = 2;

/// Settings of the simulation, in words.
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
    /// Threads that simulated.
    pub threads: usize,
}

/// Links of a position.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OfPosition {
    /// Different links.
    pub links: f64,
    /// Shared ones.
    pub shared_links: f64,
    /// Shared ones of different ones, percent.
    pub shared_percent: Over,
}

/// Links with a number of circuits (Pahl et al. 2023, Figure 7).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OfNumber {
    /// On one link.
    pub circuits: u64,
    /// Mean number of such links.
    pub links: f64,
    /// Of all links.
    pub percent: Over,
}

/// A class of bandwidth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Class {
    /// Least bandwidth, in kB/s.
    pub from_kb_s: u64,
    /// Mean number of its relays.
    pub relays: f64,
    /// Mean number of those in shared links.
    pub in_shared_links: f64,
    /// Of all ends of shared links, percent.
    pub percent_of_ends: f64,
}

/// A document's own numbers, over its repetitions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OneDocument {
    /// Its file.
    pub name: String,
    /// Its `valid-after`.
    pub valid_after: String,
    /// Its relays, after scaling.
    pub relays: usize,
    /// Relays with the flag Guard.
    pub guards: usize,
    /// Relays with the flag Exit and without BadExit.
    pub exits: usize,
    /// Different links, the mean.
    pub links: f64,
    /// Links with two circuits or more, the mean.
    pub shared_links: f64,
    /// Shared links of different links.
    pub shared_percent: Spread,
    /// Shared links of different links between first and second hops.
    pub guard_middle_percent: Spread,
    /// Shared links of different links between second and third hops.
    pub middle_exit_percent: Spread,
    /// Reading it, after unpacking.
    pub parse_s: f64,
    /// Simulating it.
    pub elapsed_s: f64,
}

/// A simulation's results. Numbers of links are means over the documents; all intervals are as in
/// [`Over`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Settings of the simulation.
    pub setting: Setting,
    /// Samples that the intervals are over: `repetitions` of one document, or `documents`.
    pub intervals_over: &'static str,
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
    /// Links with two circuits or more, rounded.
    pub shared_links: u64,
    /// Shared links of different links, percent.
    pub shared_percent_mean: f64,
    /// Standard deviation; `None`: one repetition has none.
    pub shared_percent_stddev: Option<f64>,
    /// Half the width of the mean's 95 % confidence interval.
    pub shared_percent_ci95: Option<f64>,
    /// All that is known of it.
    pub shared_percent: Over,
    /// First links, among themselves.
    pub guard_middle: OfPosition,
    /// Second links, among themselves.
    pub middle_exit: OfPosition,
    /// Circuits without shared link, with one, with two: percent of all.
    pub circuits_percent_by_shared: [Over; 3],
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
    /// Makes the report of these documents, with the given number of circuits each. `None`: there
    /// are no documents, or one was not simulated.
    pub fn new(
        setting: Setting,
        circuits: u64,
        documents: &[DocumentResult],
        peak_rss_bytes: u64,
    ) -> Option<Report> {
        let over = |number: &dyn Fn(&Sample) -> f64| {
            let each = documents
                .iter()
                .map(|one| one.samples.iter().map(number).collect());
            Over::of(&each.collect::<Vec<Vec<f64>>>())
        };
        let mean = |number: &dyn Fn(&Sample) -> f64| Some(over(number)?.spread.mean);
        let over_documents = |number: &dyn Fn(&DocumentResult) -> usize| {
            let numbers: Vec<f64> = documents.iter().map(|one| number(one) as f64).collect();
            Some(Spread::of(&numbers)?.mean.round() as u64)
        };
        let position = |links: &dyn Fn(&Sample) -> Links| {
            Some(OfPosition {
                links: mean(&|one| links(one).links as f64)?,
                shared_links: mean(&|one| links(one).shared as f64)?,
                shared_percent: over(&|one| links(one).percent_shared())?,
            })
        };
        let all = position(&|one| one.all)?;
        let of_circuits = |place: usize| {
            over(&|one| {
                let count = one.circuits_by_shared.get(place).copied();
                count.unwrap_or_default() as f64 * 100.0 / circuits.max(1) as f64
            })
        };
        let samples = documents.iter().flat_map(|one| &one.samples);
        let numbers: BTreeSet<u64> = samples
            .flat_map(|one| one.by_circuits.keys().copied())
            .collect();
        let distribution = numbers.into_iter().map(|number| {
            Some(OfNumber {
                circuits: number,
                links: mean(&|one| one.links_with(number))?,
                percent: over(&|one| one.percent_with(number))?,
            })
        });
        let ends = mean(&|one| one.classes.iter().map(|class| class.ends).sum::<u64>() as f64)?;
        let classes = CLASSES.into_iter().enumerate().map(|(place, from_kb_s)| {
            let of = |number: &dyn Fn(&ClassCounts) -> u64| {
                mean(&|one| one.classes.get(place).map_or(0, number) as f64)
            };
            Some(Class {
                from_kb_s,
                relays: of(&|class| class.relays)?,
                in_shared_links: of(&|class| class.in_shared)?,
                percent_of_ends: of(&|class| class.ends)? * 100.0 / ends.max(1.0),
            })
        });
        let shared = all.shared_percent.spread;
        Some(Report {
            schema: SCHEMA,
            setting,
            intervals_over: match documents.len() {
                1 => "repetitions",
                _ => "documents",
            },
            relays: over_documents(&|one| one.relays)?,
            guards: over_documents(&|one| one.guards)?,
            exits: over_documents(&|one| one.exits)?,
            circuits,
            links: all.links.round() as u64,
            shared_links: all.shared_links.round() as u64,
            shared_percent_mean: shared.mean,
            shared_percent_stddev: shared.stddev,
            shared_percent_ci95: shared.ci95,
            shared_percent: all.shared_percent,
            guard_middle: position(&|one| one.guard_middle)?,
            middle_exit: position(&|one| one.middle_exit)?,
            circuits_percent_by_shared: [of_circuits(0)?, of_circuits(1)?, of_circuits(2)?],
            distribution: distribution.collect::<Option<_>>()?,
            relays_used: mean(&|one| one.relays_used as f64)?,
            relays_in_shared_links: mean(&|one| one.relays_in_shared as f64)?,
            bandwidth_classes: classes.collect::<Option<_>>()?,
            documents: documents
                .iter()
                .map(OneDocument::new)
                .collect::<Option<_>>()?,
            elapsed_s: documents.iter().map(|one| one.elapsed.as_secs_f64()).sum(),
            parse_s: documents.iter().map(|one| one.parse.as_secs_f64()).sum(),
            peak_rss_bytes,
        })
    }

    /// A row of the table: of one document with deviation and half interval, of several with the range.
    pub fn row(&self, name: &str, over: &Over) -> String {
        let Over {
            spread,
            range: [low, high],
            documents,
        } = *over;
        let mean = format!("{name:<34}{:>8.3} %", spread.mean);
        match (documents, spread.stddev, spread.ci95) {
            (1, Some(stddev), Some(ci95)) => {
                format!("{mean}  ± {ci95:.3} (95 %), deviation {stddev:.3}")
            }
            (1, _, _) | (_, _, None) => mean,
            (_, _, Some(ci95)) => {
                format!(
                    "{mean}  {low:.3} to {high:.3} in {documents} documents, ± {ci95:.3} (95 %, n = {documents})"
                )
            }
        }
    }
}

impl OneDocument {
    fn new(of: &DocumentResult) -> Option<OneDocument> {
        let over = |number: &dyn Fn(&Sample) -> f64| {
            Spread::of(&of.samples.iter().map(number).collect::<Vec<f64>>())
        };
        Some(OneDocument {
            name: of.name.clone(),
            valid_after: of.valid_after.clone(),
            relays: of.relays,
            guards: of.guards,
            exits: of.exits,
            links: over(&|one| one.all.links as f64)?.mean,
            shared_links: over(&|one| one.all.shared as f64)?.mean,
            shared_percent: over(&|one| one.all.percent_shared())?,
            guard_middle_percent: over(&|one| one.guard_middle.percent_shared())?,
            middle_exit_percent: over(&|one| one.middle_exit.percent_shared())?,
            parse_s: of.parse.as_secs_f64(),
            elapsed_s: of.elapsed.as_secs_f64(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let setting = &self.setting;
        let runs = self.documents.len() * setting.repetitions as usize;
        writeln!(
            f,
            "{}{} relays ({} guards, {} exits), {} circuits, {}, {}, exits for {}, model {}",
            match self.documents.len() {
                1 => "",
                _ => "on average ",
            },
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
            "{}, {} each, seed {}: {}",
            counted(self.documents.len(), "document"),
            counted(setting.repetitions as usize, "repetition"),
            setting.seed,
            counted(runs, "run"),
        )?;
        writeln!(f)?;
        if self.documents.len() > 1 {
            self.by_document(f)?;
        }
        writeln!(f, "{:<34}{:>8}", "links", self.links)?;
        writeln!(f, "{:<34}{:>8}", "shared links", self.shared_links)?;
        let row = |name: &str, over: &Over| self.row(name, over);
        writeln!(
            f,
            "{}",
            row("shared links of all links", &self.shared_percent)
        )?;
        let positions = [
            ("  between guard and middle", &self.guard_middle),
            ("  between middle and exit", &self.middle_exit),
        ];
        for (name, position) in positions {
            writeln!(f, "{}", row(name, &position.shared_percent))?;
        }
        let names = [
            "circuits without shared link",
            "circuits with one shared link",
            "circuits with two shared links",
        ];
        for (name, over) in names.iter().zip(&self.circuits_percent_by_shared) {
            writeln!(f, "{}", row(name, over))?;
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
                number.circuits, number.links, number.percent.spread.mean
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

impl Report {
    /// A row for each document, with statistics of its repetitions.
    fn by_document(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.documents.iter().map(|one| one.name.chars().count());
        let wide = names.max().unwrap_or(0).max("document".len());
        writeln!(
            f,
            "{:<wide$} {:>7} {:>10}   {:>22} {:>22} {:>22}",
            "document",
            "relays",
            "links",
            "shared links, %",
            "guard to middle, %",
            "middle to exit, %"
        )?;
        for one in &self.documents {
            writeln!(
                f,
                "{:<wide$} {:>7} {:>10.0}   {:>22.3} {:>22.3} {:>22.3}",
                one.name,
                one.relays,
                one.links,
                one.shared_percent,
                one.guard_middle_percent,
                one.middle_exit_percent
            )?;
        }
        writeln!(f, "\nAll documents:\n")
    }
}

/// `1 document`, `2 documents`.
fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}
