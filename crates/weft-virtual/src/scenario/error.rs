//! Why a scenario is no network.

use weft_model::links::source::TextError;
use weft_model::links::{DrawError, UnknownCountry};
use weft_sim::read::ReadError;

/// Why a scenario is no network, with the place.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// In its own text, or in a topology's.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A consensus is damaged.
    #[error(transparent)]
    Consensus(#[from] ReadError),
    /// A graph of countries or a model of traffic is damaged.
    #[error("{file}: {error}")]
    Graph {
        /// The file.
        file: String,
        /// Error of the parser, with the line in the file.
        error: weft_model::traffic::ModelError,
    },
    /// A country that the graph has not.
    #[error("{place}: {error}")]
    Country {
        /// File and line of the scenario.
        place: String,
        /// The unknown code, with the nearest known one.
        error: UnknownCountry,
    },
    /// Two countries that the graph does not join.
    #[error("{place}: {error}")]
    NoPath {
        /// File and line of the scenario.
        place: String,
        /// Error of the graph, which names the countries.
        error: DrawError,
    },
    /// A file that the scenario names was not read.
    #[error("{place}: the file \"{file}\" is not there")]
    Missing {
        /// File and line of the scenario.
        place: String,
        /// The file.
        file: String,
    },
    /// A file is no text.
    #[error("{0}: it is no text (UTF-8); is it compressed?")]
    NoText(String),
    /// There is no arm of that number.
    #[error("there is no arm number {0}: there are {1}")]
    NoArm(usize, usize),
    /// The documents that were made of it are not taken.
    #[error("{place}: clients cannot use this network: {problem}")]
    Unusable {
        /// File and line of the scenario.
        place: String,
        /// Description of the problem.
        problem: String,
    },
}
