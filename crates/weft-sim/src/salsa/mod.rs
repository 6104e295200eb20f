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

use crate::full::NoPaths;
use crate::links::LinksError;
use crate::network::Network;

pub use compare::{Comparison, Unit};
pub use measure::measure;

/// How much to run.
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
    /// Its name as files have it.
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
    /// What the legend calls it.
    pub series: String,
    /// Where on the horizontal axis: per cent of the network (4, 6), number of the class (5) or model
    /// (11), circuits of the link (7), circuits (8), nothing (text).
    pub at: f64,
    /// Per cent, a number for each repetition.
    pub percent: Vec<f64>,
}

impl Point {
    /// Of its numbers.
    pub fn mean(&self) -> f64 {
        mean(&self.percent)
    }

    /// Of its numbers, of a sample; 0 for a single one.
    pub fn stddev(&self) -> f64 {
        stddev(&self.percent)
    }
}

/// What a million circuits cost here (Table 2).
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
    /// What could not be run, and why.
    pub left_out: Vec<String>,
    /// Documents, with their numbers of relays and of exits.
    pub documents: Vec<(String, usize, usize)>,
}

impl Results {
    /// The points of one figure.
    pub fn of(&self, what: What) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(move |point| point.what == what)
    }

    /// All numbers of a series at a place, over all documents.
    fn numbers(&self, what: What, series: &str, at: f64) -> Vec<f64> {
        let here = |point: &&Point| point.series == series && point.at == at;
        self.of(what)
            .filter(here)
            .flat_map(|point| point.percent.iter().copied())
            .collect()
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

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len().max(1) as f64
}

fn stddev(numbers: &[f64]) -> f64 {
    if numbers.len() < 2 {
        return 0.0;
    }
    let mean = mean(numbers);
    let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
    (squares / (numbers.len() - 1) as f64).sqrt()
}

fn ends(numbers: &[f64]) -> (f64, f64) {
    numbers
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), number| {
            (low.min(*number), high.max(*number))
        })
}
