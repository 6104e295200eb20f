//! The numbers of an experiment with roles, and the table of them.

use serde::{Deserialize, Serialize};

use super::Sample;
use crate::machine::{Machine, Versions};
use crate::stats::Summary;

/// The version of this shape.
pub const SCHEMA: u32 = 2;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Client, processor seconds for 10⁹ payload bytes, down.
    ClientDown,
    /// The same, up.
    ClientUp,
    /// Exit, down.
    ExitDown,
    /// Exit, up.
    ExitUp,
    /// Guard, down.
    GuardDown,
    /// Guard, up.
    GuardUp,
    /// From the start of a client without files to its first byte, in seconds.
    FromNothing,
    /// From the connection to the SOCKS port to the first byte, in milliseconds, on a client that has
    /// circuits.
    WarmFirstByte,
    /// One download over one circuit of C tor relays, in Mbit/s: their scheduler and the window of the
    /// exit bound it.
    OneCircuit,
    /// The same in a network in which the program runs every node.
    OneCircuitAlone,
    /// [`WarmFirstByte`](Self::WarmFirstByte) in such a network.
    WarmFirstByteAlone,
    /// The most memory that the client ever had, in MB.
    ClientMemory,
}

impl Figure {
    /// All of them, in the order of the table.
    pub const ALL: [Figure; 12] = [
        Figure::ClientDown,
        Figure::ClientUp,
        Figure::ExitDown,
        Figure::ExitUp,
        Figure::GuardDown,
        Figure::GuardUp,
        Figure::FromNothing,
        Figure::WarmFirstByte,
        Figure::WarmFirstByteAlone,
        Figure::OneCircuit,
        Figure::OneCircuitAlone,
        Figure::ClientMemory,
    ];

    /// What a table calls it.
    pub fn words(self) -> &'static str {
        match self {
            Figure::ClientDown => "client, CPU s/GB down",
            Figure::ClientUp => "client, CPU s/GB up",
            Figure::ExitDown => "exit, CPU s/GB down",
            Figure::ExitUp => "exit, CPU s/GB up",
            Figure::GuardDown => "guard, CPU s/GB down",
            Figure::GuardUp => "guard, CPU s/GB up",
            Figure::FromNothing => "nothing to first byte, s",
            Figure::WarmFirstByte => "first byte, warm, ms",
            Figure::WarmFirstByteAlone => "the same, own network, ms",
            Figure::OneCircuit => "one circuit, Mbit/s",
            Figure::OneCircuitAlone => "the same, own network",
            Figure::ClientMemory => "client, peak RSS, MB",
        }
    }

    /// More is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Figure::OneCircuit | Figure::OneCircuitAlone)
    }
}

/// One figure of both programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Which.
    pub figure: Figure,
    /// C tor's.
    pub tor: Summary,
    /// Weft's.
    pub weft: Summary,
    /// How many times better Weft is, by the medians.
    pub times_better: f64,
}

/// An experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When it began, UTC, as RFC 3339 writes it.
    pub started_at: String,
    /// What it ran on.
    pub machine: Machine,
    /// What ran.
    pub versions: Versions,
    /// Weft's connection threads.
    pub threads: u32,
    /// Streams at once.
    pub streams: usize,
    /// Payload bytes of each.
    pub bytes: u64,
    /// How often everything was measured.
    pub repetitions: u32,
    /// Payloads are functions of this.
    pub seed: u64,
    /// What was found.
    pub measures: Vec<Measure>,
}

/// Samples as figures; those that one program lacks are left out.
pub(super) fn measures(samples: &[Sample]) -> Vec<Measure> {
    let of = |figure: Figure, program: &str| {
        let numbers = samples
            .iter()
            .filter(|sample| sample.figure == figure && sample.program == program);
        Summary::of(numbers.map(|sample| sample.value))
    };
    Figure::ALL
        .into_iter()
        .filter_map(|figure| {
            let (tor, weft) = (of(figure, "tor")?, of(figure, "weft")?);
            let times_better = match figure.more_is_better() {
                true => weft.median / tor.median,
                false => tor.median / weft.median,
            };
            Some(Measure {
                figure,
                tor,
                weft,
                times_better,
            })
        })
        .collect()
}

/// The figures as a table of text.
pub fn table(results: &Results) -> String {
    use std::fmt::Write as _;
    let mut text = format!(
        "{:<26}{:>22}{:>22}{:>14}\n",
        "", "tor", "weft", "times better"
    );
    let cell = |summary: &Summary| {
        format!(
            "{:.2} ({:.2}-{:.2})",
            summary.median, summary.min, summary.max
        )
    };
    for measure in &results.measures {
        let _ = writeln!(
            text,
            "{:<26}{:>22}{:>22}{:>14.2}",
            measure.figure.words(),
            cell(&measure.tor),
            cell(&measure.weft),
            measure.times_better
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_is_less_cost_or_more_speed() {
        let sample = |figure, program, value| Sample {
            figure,
            program,
            value,
        };
        let found = measures(&[
            sample(Figure::ClientDown, "tor", 4.0),
            sample(Figure::ClientDown, "weft", 1.0),
            sample(Figure::OneCircuit, "tor", 100.0),
            sample(Figure::OneCircuit, "weft", 300.0),
            // Of one program only.
            sample(Figure::ExitUp, "tor", 1.0),
        ]);
        let times: Vec<(Figure, f64)> = found
            .iter()
            .map(|measure| (measure.figure, measure.times_better))
            .collect();
        assert_eq!(
            times,
            [(Figure::ClientDown, 4.0), (Figure::OneCircuit, 3.0)]
        );
    }
}
