//! Figures 4 to 8 and 11, Table 2 and the results of 4.1.7 of Pahl et al. 2023, run over networks.
//!
//! Each figure is a list of [`Point`]s: a series at a place on the horizontal axis, of one document.
//! The paper's values are in [`paper`], and [`Results::comparisons`] sets ours beside them.

mod compare;
mod csv;
mod measure;
pub mod paper;
mod plots;
#[cfg(test)]
mod tests;

use weft_stats::Spread;
use weft_stats::bounds::Bounds;

use crate::full::NoPaths;
use crate::links::LinksError;
use crate::network::Network;
use crate::over::Over;

pub use compare::{Comparison, Unit};
pub use measure::measure;

/// Repetitions of each point of each document.
pub const REPETITIONS: Bounds<u32> = Bounds::new(1, 1000);

/// Extent of the runs, and their seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalsaOptions {
    /// Repetitions of each point of each document.
    pub repetitions: u32,
    /// Everything is a function of it and of the documents.
    pub seed: u64,
    /// Threads of the simulation; they change nothing but time.
    pub threads: usize,
}

impl Default for SalsaOptions {
    fn default() -> SalsaOptions {
        SalsaOptions {
            repetitions: 10,
            seed: 1,
            threads: 1,
        }
    }
}

/// A network and where it comes from.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its file, or `synthetic`.
    pub name: String,
    /// Its relays.
    pub network: Network,
}

/// One of the things that are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// By scale of the network, in four kinds of circuits.
    Figure4,
    /// By class of traffic.
    Figure5,
    /// By circuits of each client.
    Figure6,
    /// Links by their circuits.
    Figure7,
    /// By demand.
    Figure8,
    /// The simple model and the full one.
    Figure11,
    /// Results in the text of 4.1.7.
    Text,
}

impl What {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            What::Figure4 => "figure4",
            What::Figure5 => "figure5",
            What::Figure6 => "figure6",
            What::Figure7 => "figure7",
            What::Figure8 => "figure8",
            What::Figure11 => "figure11",
            What::Text => "text",
        }
    }
}

/// One series at one place, of one document.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Where it belongs.
    pub what: What,
    /// [`Document::name`].
    pub document: String,
    /// Name in the legend.
    pub series: String,
    /// Where on the horizontal axis: per cent of the network (4, 6), number of the class (5) or model
    /// (11), circuits of the link (7), circuits (8), nothing (text).
    pub at: f64,
    /// Per cent, a number for each repetition.
    pub percent: Vec<f64>,
}

impl Point {
    /// Of its repetitions.
    pub fn spread(&self) -> Option<Spread> {
        Spread::of(&self.percent)
    }
}

/// Cost of a million circuits on this machine (Table 2).
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// [`Document::name`].
    pub document: String,
    /// Of the simulation on one thread, after parsing, seconds.
    pub seconds: f64,
    /// The most memory of this process until then, bytes, if the system reports it.
    pub peak_rss_bytes: Option<u64>,
}

/// Everything that was run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// By figure, series, place and document.
    pub points: Vec<Point>,
    /// Table 2.
    pub cost: Vec<Cost>,
    /// Parts that could not be run, with the reason.
    pub left_out: Vec<String>,
    /// Documents, with their numbers of relays and of exits.
    pub documents: Vec<(String, usize, usize)>,
}

impl Results {
    /// The points of one figure.
    pub fn of(&self, what: What) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(move |point| point.what == what)
    }

    /// A series at a place, over all documents that have it.
    fn over(&self, what: What, series: &str, at: f64) -> Option<Over> {
        let here = |point: &&Point| point.series == series && point.at == at;
        let documents = self.of(what).filter(here).map(|point| &point.percent);
        Over::of(&documents.collect::<Vec<_>>())
    }

    /// Series of a figure, in the order in which they were run.
    fn series(&self, what: What) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for point in self.of(what) {
            if !names.contains(&&*point.series) {
                names.push(&point.series);
            }
        }
        names
    }

    /// Places of a figure, ascending.
    fn places(&self, what: What) -> Vec<f64> {
        let mut places: Vec<f64> = self.of(what).map(|point| point.at).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        places
    }
}

/// Why the figures cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum SalsaError {
    /// No document.
    #[error("there is no document to run the figures over")]
    NoDocument,
    /// A simulation refuses.
    #[error("{document}: {error}")]
    Links {
        /// [`Document::name`].
        document: String,
        /// Why.
        error: LinksError,
    },
    /// The full model finds no paths.
    #[error("{document}, full model: {error}")]
    Full {
        /// [`Document::name`].
        document: String,
        /// Why.
        error: NoPaths,
    },
}

fn ends(numbers: &[f64]) -> (f64, f64) {
    numbers
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), number| {
            (low.min(*number), high.max(*number))
        })
}
