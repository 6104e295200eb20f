//! The numbers of an experiment with roles, and the table of them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::machine::{Machine, Versions};
use crate::report::{Metric, Table, Values};
use weft_stats::Summary;

/// The version of this shape.
pub const SCHEMA: u32 = 3;
/// The programs, as samples name them.
const PROGRAMS: [&str; 3] = ["tor", "weft", "arti"];

/// Measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Client, processor seconds for 10⁹ payload bytes, down.
    ClientDown,
    /// Client, processor seconds for 10⁹ payload bytes, up.
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
    /// One download by one stream through C tor relays, in Mbit/s. The clients of C tor and Weft spread it over
    /// two circuits (Conflux).
    OneStream,
    /// [`OneStream`](Self::OneStream) in a network in which the program runs every node.
    OneStreamAlone,
    /// One download over one circuit of C tor relays, in Mbit/s: their scheduler and the window of the
    /// exit bound it.
    OneCircuit,
    /// [`OneCircuit`](Self::OneCircuit) in a network in which the program runs every node.
    OneCircuitAlone,
    /// [`WarmFirstByte`](Self::WarmFirstByte) in such a network.
    WarmFirstByteAlone,
    /// One download by one stream through guards and middle relays of C tor between a client and an exit of the program, which
    /// spread it over two circuits (Conflux), in Mbit/s.
    OneStreamEnds,
    /// Exit of [`OneStreamEnds`](Self::OneStreamEnds), processor seconds for 10⁹ payload bytes
    /// down, each stream on one circuit.
    ExitOneCircuit,
    /// Each stream on a conflux set.
    ExitConflux,
    /// Each stream on a tunnel of five circuits (mTor), which C tor does not have.
    ExitTunnel,
    /// The most memory that the client ever had, in MB.
    ClientMemory,
}

impl Figure {
    /// All of them, in the order of the table.
    pub const ALL: [Figure; 18] = [
        Figure::ClientDown,
        Figure::ClientUp,
        Figure::ExitDown,
        Figure::ExitUp,
        Figure::GuardDown,
        Figure::GuardUp,
        Figure::FromNothing,
        Figure::WarmFirstByte,
        Figure::WarmFirstByteAlone,
        Figure::OneStream,
        Figure::OneStreamAlone,
        Figure::OneCircuit,
        Figure::OneCircuitAlone,
        Figure::OneStreamEnds,
        Figure::ExitOneCircuit,
        Figure::ExitConflux,
        Figure::ExitTunnel,
        Figure::ClientMemory,
    ];

    /// Its name in tables.
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
            Figure::OneStream => "one stream, Mbit/s",
            Figure::OneStreamAlone => "the same, own network",
            Figure::OneCircuit => "one circuit, Mbit/s",
            Figure::OneCircuitAlone => "the same, own network",
            Figure::OneStreamEnds => "one stream, own ends",
            Figure::ExitOneCircuit => "exit, one circuit, s/GB",
            Figure::ExitConflux => "exit, Conflux, s/GB",
            Figure::ExitTunnel => "exit, mTor of 5, s/GB",
            Figure::ClientMemory => "client, peak RSS, MB",
        }
    }

    /// The table of the report that has it, and its column there.
    fn metric(self) -> (&'static str, Metric) {
        let cpu = |name| ("CPU time", Metric::less(name, "s/GB"));
        let speed = |name| ("Speed", Metric::more(name, "Mbit/s"));
        match self {
            Figure::ClientDown => cpu("client, down"),
            Figure::ClientUp => cpu("client, up"),
            Figure::ExitDown => cpu("exit, down"),
            Figure::ExitUp => cpu("exit, up"),
            Figure::GuardDown => cpu("guard, down"),
            Figure::GuardUp => cpu("guard, up"),
            Figure::FromNothing => ("Times", Metric::less("nothing to first byte", "s")),
            Figure::WarmFirstByte => ("Times", Metric::less("first byte, warm", "ms")),
            Figure::WarmFirstByteAlone => {
                ("Times", Metric::less("first byte, warm, own network", "ms"))
            }
            Figure::OneStream => speed("one stream"),
            Figure::OneStreamAlone => speed("one stream, own network"),
            Figure::OneCircuit => speed("one circuit"),
            Figure::OneCircuitAlone => speed("one circuit, own network"),
            Figure::OneStreamEnds => speed("one stream, own ends"),
            Figure::ExitOneCircuit => cpu("exit of one circuit, own ends"),
            Figure::ExitConflux => cpu("exit of a conflux set, own ends"),
            Figure::ExitTunnel => cpu("exit of a tunnel of five, own ends"),
            Figure::ClientMemory => ("Memory", Metric::less("client, peak resident", "MB")),
        }
    }

    /// It is of a client in the network that all programs are measured in: so Arti has one too.
    pub(crate) fn of_clients(self) -> bool {
        matches!(
            self,
            Figure::ClientDown
                | Figure::ClientUp
                | Figure::FromNothing
                | Figure::WarmFirstByte
                | Figure::OneStream
                | Figure::OneCircuit
                | Figure::ClientMemory
        )
    }

    /// The most that Weft's median may be, divided by Arti's.
    pub(crate) fn bar_beside_arti(self) -> Option<f64> {
        match self {
            Figure::WarmFirstByte => Some(0.7),
            _ => None,
        }
    }

    /// More is better.
    pub(crate) fn more_is_better(self) -> bool {
        matches!(
            self,
            Figure::OneStream
                | Figure::OneStreamAlone
                | Figure::OneCircuit
                | Figure::OneCircuitAlone
                | Figure::OneStreamEnds
        )
    }
}

/// One number of one run.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) figure: Figure,
    pub(super) program: &'static str,
    pub(super) value: f64,
}

/// One figure of all programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// The measured quantity.
    pub figure: Figure,
    /// C tor's, where it has such a thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tor: Option<Summary>,
    /// Weft's.
    pub weft: Summary,
    /// Factor by which Weft is better than C tor, by the medians.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times_better: Option<f64>,
    /// Arti's, of clients only, and only if it was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arti: Option<Summary>,
    /// Each program's numbers of all repetitions. Files of before they were kept have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub samples: BTreeMap<String, Vec<f64>>,
}

impl Measure {
    /// Weft's median divided by Arti's.
    pub(crate) fn beside_arti(&self) -> Option<f64> {
        Some(self.weft.median / self.arti?.median)
    }
}

/// An experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When it began, UTC, as RFC 3339 writes it.
    pub started_at: String,
    /// Everything was measured as often as planned. Files of before this was noted have no less.
    #[serde(default = "yes")]
    pub finished: bool,
    /// The machine that it ran on.
    pub machine: Machine,
    /// Versions of the programs.
    pub versions: Versions,
    /// Version of Arti's client, with its optional features, if it was installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arti: Option<String>,
    /// Weft's connection threads.
    pub threads: u32,
    /// Streams at once.
    pub streams: usize,
    /// Payload bytes of each.
    pub bytes: u64,
    /// Number of repetitions.
    pub repetitions: u32,
    /// Payloads are functions of this.
    pub seed: u64,
    /// The measurements.
    pub measures: Vec<Measure>,
}

/// Samples as figures; those that Weft lacks are left out, and those that C tor lacks but could have.
pub(super) fn measures(samples: &[Sample]) -> Vec<Measure> {
    let numbers = |figure: Figure, program: &str| -> Vec<f64> {
        let numbers = samples
            .iter()
            .filter(|sample| sample.figure == figure && sample.program == program);
        numbers.map(|sample| sample.value).collect()
    };
    let of = |figure, program| Summary::of(numbers(figure, program));
    Figure::ALL
        .into_iter()
        .filter_map(|figure| {
            let weft = of(figure, "weft")?;
            let tor = of(figure, "tor");
            if tor.is_none() && figure != Figure::ExitTunnel {
                return None;
            }
            let times_better = tor.map(|tor| match figure.more_is_better() {
                true => weft.median / tor.median,
                false => tor.median / weft.median,
            });
            Some(Measure {
                figure,
                tor,
                weft,
                times_better,
                arti: of(figure, "arti"),
                samples: PROGRAMS
                    .into_iter()
                    .map(|program| (program.to_owned(), numbers(figure, program)))
                    .filter(|(_, numbers)| !numbers.is_empty())
                    .collect(),
            })
        })
        .collect()
}

impl Results {
    /// The figures of each unit, a row for each program.
    pub(super) fn report_tables(&self) -> Vec<Table> {
        let tables = ["CPU time", "Times", "Speed", "Memory"].map(|title| {
            let of_table: Vec<(&Measure, Metric)> = self
                .measures
                .iter()
                .map(|measure| (measure, measure.figure.metric()))
                .filter(|(_, (table, _))| *table == title)
                .map(|(measure, (_, metric))| (measure, metric))
                .collect();
            let metrics = of_table.iter().map(|(_, metric)| metric.clone());
            let mut table = Table::new(title, ["program"], metrics);
            for program in PROGRAMS {
                let values: Vec<Values> = of_table
                    .iter()
                    .map(|(measure, _)| {
                        let numbers = measure.samples.get(program);
                        Values::samples(numbers.into_iter().flatten().copied())
                    })
                    .collect();
                if values.iter().any(|one| *one != Values::None) {
                    table.push([program], values);
                }
            }
            table
        });
        tables
            .into_iter()
            .filter(|one| !one.rows.is_empty())
            .collect()
    }
}

fn yes() -> bool {
    true
}

/// The figures as a table.
impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<26}{:>24}{:>24}{:>14}{:>24}{:>13}",
            "", "tor", "weft", "times better", "arti", "weft / arti"
        )?;
        for measure in &self.measures {
            write!(
                f,
                "{:<26}{:>24}{:>24}{:>14}",
                measure.figure.words(),
                measure.tor.as_ref().map_or_else(String::new, cell),
                cell(&measure.weft),
                (measure.times_better).map_or_else(String::new, |times| format!("{times:.2}"))
            )?;
            if let (Some(arti), Some(ratio)) = (&measure.arti, measure.beside_arti()) {
                write!(f, "{:>24}{ratio:>13.2}", cell(arti))?;
                if let Some(bar) = measure.figure.bar_beside_arti() {
                    let verdict = if ratio <= bar { "met" } else { "missed" };
                    write!(f, "  bar {bar}: {verdict}")?;
                }
            } else if measure.figure.of_clients() {
                f.write_str("  not run: arti is not installed")?;
            }
            writeln!(f)?;
        }
        match self.finished {
            true => Ok(()),
            false => writeln!(f, "\nThe experiment ended early."),
        }
    }
}

fn cell(summary: &Summary) -> String {
    summary.show(|number| format!("{number:.2}"))
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
            // Of one program only; the other has no tunnels.
            sample(Figure::ExitUp, "tor", 1.0),
            sample(Figure::GuardUp, "weft", 1.0),
            sample(Figure::ExitTunnel, "weft", 1.0),
        ]);
        let times: Vec<(Figure, Option<f64>)> = found
            .iter()
            .map(|measure| (measure.figure, measure.times_better))
            .collect();
        assert_eq!(
            times,
            [
                (Figure::ClientDown, Some(4.0)),
                (Figure::OneCircuit, Some(3.0)),
                (Figure::ExitTunnel, None),
            ]
        );
    }

    /// A results file of before Arti was measured.
    const OLD: &str = r#"{
        "schema": 2, "started_at": "2026-01-02T03:04:05Z",
        "machine": {
            "name": "m", "cpu": "Some Processor", "cores": 2, "logical_cpus": 2, "memory_bytes": 8,
            "kernel": "Linux 6", "governor": null, "virtual_machine": true, "cpu_flags": [],
            "load_average_before": ""
        },
        "versions": {
            "weft": "weft 0", "tor": "tor 0", "rustc": null, "commit": null, "dirty": false,
            "built_here": true
        },
        "threads": 1, "streams": 8, "bytes": 1, "repetitions": 1, "seed": 1,
        "measures": [
            {
                "figure": "exit-down", "times_better": 2.0,
                "tor": { "median": 4.0, "min": 4.0, "max": 4.0, "count": 1 },
                "weft": { "median": 2.0, "min": 2.0, "max": 2.0, "count": 1 }
            },
            {
                "figure": "warm-first-byte", "times_better": 2.0,
                "tor": { "median": 40.0, "min": 40.0, "max": 40.0, "count": 1 },
                "weft": { "median": 20.0, "min": 20.0, "max": 20.0, "count": 1 }
            }
        ]
    }"#;

    #[test]
    fn without_arti_a_clients_rows_mention_it() {
        let old: Results = serde_json::from_str(OLD).expect("an old file can be read");
        let table = old.to_string();
        let lines: Vec<&str> = table.lines().collect();
        assert!(!lines[1].contains("arti"), "{table}");
        assert!(
            lines[2].ends_with("not run: arti is not installed"),
            "{table}"
        );
        let new = serde_json::to_value(&old).expect("JSON");
        let before: serde_json::Value = serde_json::from_str(OLD).expect("JSON");
        assert_eq!(new["measures"], before["measures"]);
    }

    #[test]
    fn the_bar_is_wefts_part_of_artis() {
        let mut results: Results = serde_json::from_str(OLD).expect("an old file can be read");
        let mut beside = |arti: f64| {
            results.measures[1].arti = Summary::of([arti]);
            results
                .to_string()
                .lines()
                .nth(2)
                .unwrap_or_default()
                .to_owned()
        };
        assert!(
            beside(40.0).ends_with("0.50  bar 0.7: met"),
            "{}",
            beside(40.0)
        );
        assert!(
            beside(25.0).ends_with("0.80  bar 0.7: missed"),
            "{}",
            beside(25.0)
        );
    }
}
