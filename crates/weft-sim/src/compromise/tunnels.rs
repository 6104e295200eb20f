//! Figure 7 and Table III of Yang and Li 2015, by formula and with clients that choose paths in a network.

use std::fmt::Write as _;

use serde::Serialize;
use weft_path::PathError;
use weft_plot::{Figure, Group, Kind, Look, Panel, Series, Value, Whiskers};
use weft_stats::bounds::{Bounds, OutOfBounds};

use super::clients::{Clients, Entry, MOST_CIRCUITS};
use super::count::{Counted, GROUP, Grant, Sample, count, groups};
use super::tunnel::{Adversary, Guards, probability};
use crate::csv::known;
use crate::network::Network;

/// Table III: the printed probabilities for 1 to 5 circuits, percent.
pub const TABLE_III: [f64; 5] = [0.12, 0.23, 0.34, 0.45, 0.56];
/// Section VI-B on Figure 7, at its right end: circuits, and percent.
pub const FIGURE_7: [(u32, f64); 2] = [(1, 4.0), (5, 13.45)];
/// The lines of Figure 7.
const WIDTHS: [u32; 4] = [1, 2, 3, 5];
/// The adversary at the right end of Figure 7. All of the figure has its exits.
const FIFTH: Adversary = Adversary {
    guards: 0.2,
    exits: 0.2,
};
/// The guard sets that tables compare.
const SETS: [Guards; 3] = [Guards::AsMany, Guards::Set(3), Guards::Common];
/// Consensus weight of the realistic adversary (section VI-B), and how many parts of it are guards'
/// for each that is exits'.
pub const REALISTIC: (f64, f64) = (560_210.0, 5.0);
/// Clients: the most need minutes.
pub const CLIENTS: Bounds<u64> = Bounds::new(1, 100_000_000);
/// Circuits of the widest tunnel.
pub const CIRCUITS: Bounds<u32> = Bounds::new(1, MOST_CIRCUITS);
/// An adversary's consensus weight.
pub const WEIGHT: Bounds<f64> = Bounds::new(0.0, 1e12);
/// Parts of it that are guards', for each that is exits'.
pub const PARTS: Bounds<f64> = Bounds::new(0.0, 1e6);

/// Share of compromised clients, for one kind of tunnel and one adversary.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Circuits of a tunnel.
    pub circuits: u32,
    /// Their guards.
    pub guards: Guards,
    /// Shares of guard and exit bandwidth that the adversary owns.
    pub adversary: Adversary,
    /// By the formula, percent.
    pub formula_percent: f64,
    /// Of the clients that were counted, percent.
    pub counted_percent: f64,
    /// Half the width of its 95 % confidence interval, percent of the clients; `None` if there are too few for one.
    pub ci95_percent: Option<f64>,
    /// Difference of formula and count, in standard errors of the count.
    pub standard_errors: Option<f64>,
}

/// All that is compared with the paper.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Clients that built a tunnel of each kind.
    pub clients: u64,
    /// Circuits of the widest.
    pub circuits: u32,
    /// `valid-after` of the network in which they did.
    pub valid_after: String,
    /// Relays in the consensus.
    pub relays: usize,
    /// Lines of Figure 7, by guards' share and then circuits.
    pub figure_7: Vec<Row>,
    /// Its right end with tunnels of all widths, by guard set and then circuits.
    pub fifth: Vec<Row>,
    /// Table III, by guard set and then circuits.
    pub table_iii: Vec<Row>,
    /// The realistic adversary in the network, if one was given.
    pub network: Option<InNetwork>,
}

/// The realistic adversary in a network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InNetwork {
    /// `valid-after` of the network.
    pub valid_after: String,
    /// Shares of this network that the adversary's weight is (guards to exits 5:1, weighed as
    /// guards and exits).
    pub of_weight: Adversary,
    /// For that.
    pub rows: Vec<Row>,
    /// For adversaries with relays of this network that hold a fifth of all bandwidth, whatever
    /// their flags. The adversary's shares of guards and exits are means.
    pub fifth: Vec<Row>,
}

/// Options of [`compare`].
#[derive(Clone, Debug, PartialEq)]
pub struct TunnelOptions {
    /// The clients.
    pub sample: Sample,
    /// Guards of their tunnels.
    pub entries: Vec<Entry>,
    /// The realistic adversary in this network: its weight, and how many parts of it are guards' for each that is exits'.
    pub weight: Option<(f64, f64)>,
}

impl TunnelOptions {
    /// Checks the options; [`compare`] does so, too.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    pub fn check(&self) -> Result<(), Refused> {
        CLIENTS.check("clients", self.sample.clients)?;
        CIRCUITS.check("circuits", self.sample.circuits)?;
        if let Some((weight, parts)) = self.weight {
            WEIGHT.check("weight", weight)?;
            PARTS.check("guards to exits", parts)?;
        }
        match self.entries.is_empty() {
            true => Err(Refused::Entries),
            false => Ok(()),
        }
    }
}

/// Why nothing was counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A number that makes no sense, or would take for ever.
    #[error(transparent)]
    Number(#[from] OutOfBounds),
    /// Neither.
    #[error("no kind of entry is asked for")]
    Entries,
    /// Clients find none.
    #[error("the network has no path for a tunnel: {0}")]
    NoPath(#[from] PathError),
    /// Nothing to have a share of.
    #[error("no relay of the network has weight as a guard, or none as an exit")]
    NoWeights,
}

/// Computes and counts; `done` is called [`Sample::groups`] times.
///
/// # Errors
///
/// [`Refused`].
pub fn compare(
    network: &Network,
    options: &TunnelOptions,
    done: impl Fn() + Sync,
) -> Result<Report, Refused> {
    let sample = options.sample;
    options.check()?;
    let of_weight = match options.weight {
        None => None,
        Some((weight, parts)) => {
            let adversary = Adversary::of_weight(weight, parts, network);
            Some(adversary.ok_or(Refused::NoWeights)?)
        }
    };
    let steps = (0..=10).map(|step| Adversary {
        guards: f64::from(step) * 0.02,
        ..FIFTH
    });
    let steps: Vec<Adversary> = steps.collect();
    let shares = (steps.iter().copied())
        .chain([Adversary::TABLE_III])
        .chain(of_weight);
    let mut grants: Vec<Grant> = shares.map(Grant::Shares).collect();
    grants.extend(of_weight.map(|_| Grant::Bandwidth(0.2)));
    let bandwidths: Vec<u64> = network.relays.iter().map(|one| one.bandwidth).collect();
    let counted = count(
        &Clients::new(network),
        &bandwidths,
        &options.entries,
        &grants,
        sample,
        done,
    )?;
    let rows = Rows {
        counted,
        grants,
        entries: &options.entries,
        circuits: sample.circuits,
    };
    let has = |guards: &Guards| options.entries.contains(&entry_of(*guards));
    let sets: Vec<Guards> = SETS.into_iter().filter(has).collect();
    let line = sets.first().copied().unwrap_or(Guards::AsMany);
    let lines = |grant: usize| {
        let widths = WIDTHS.into_iter().filter(|one| *one <= sample.circuits);
        widths.map(move |circuits| (grant, circuits))
    };
    let figure_7 = (0..steps.len()).flat_map(lines);
    let figure_7 = figure_7.filter_map(|(grant, circuits)| rows.row(grant, line, circuits));
    // In the order in which they were granted: ten steps up to a fifth, Table III, and the network's.
    Ok(Report {
        clients: sample.clients,
        circuits: sample.circuits,
        valid_after: network.valid_after.clone(),
        relays: network.relays.len(),
        figure_7: figure_7.collect(),
        fifth: rows.table(steps.len() - 1, &sets),
        table_iii: rows.table(steps.len(), &sets),
        network: of_weight.map(|of_weight| InNetwork {
            valid_after: network.valid_after.clone(),
            of_weight,
            rows: rows.table(steps.len() + 1, &sets),
            fifth: rows.table(steps.len() + 2, &sets),
        }),
    })
}

/// Entry rule of the clients that are counted for a guard set.
fn entry_of(guards: Guards) -> Entry {
    match guards {
        Guards::AsMany | Guards::Set(_) => Entry::Distinct,
        Guards::Common => Entry::Common,
    }
}

/// Rows for the counted clients.
struct Rows<'a> {
    counted: Counted,
    grants: Vec<Grant>,
    entries: &'a [Entry],
    circuits: u32,
}

impl Rows<'_> {
    fn row(&self, grant: usize, guards: Guards, circuits: u32) -> Option<Row> {
        let wanted = entry_of(guards);
        let entry = self.entries.iter().position(|entry| *entry == wanted)?;
        // A client of few guards puts more circuits through the same.
        let different = match guards {
            Guards::Common => circuits,
            _ => guards.used(circuits),
        };
        let (adversary, formula) = match self.grants.get(grant)? {
            Grant::Shares(adversary) => (*adversary, probability(circuits, guards, *adversary)),
            Grant::Bandwidth(_) => {
                let mean = |of: &dyn Fn(Adversary) -> f64| {
                    let all: Vec<f64> = self.counted.adversaries(grant).map(of).collect();
                    all.iter().sum::<f64>() / (all.len() as f64).max(1.0)
                };
                let adversary = Adversary {
                    guards: mean(&|one| one.guards),
                    exits: mean(&|one| one.exits),
                };
                (adversary, mean(&|one| probability(circuits, guards, one)))
            }
        };
        let counted = self.counted.share(grant, entry, different);
        Some(Row {
            circuits,
            guards,
            adversary,
            formula_percent: formula * 100.0,
            counted_percent: counted.share * 100.0,
            ci95_percent: counted.ci95.map(|half| half * 100.0),
            standard_errors: counted
                .error
                .filter(|error| *error > 0.0)
                .map(|error| (counted.share - formula) / error),
        })
    }

    fn table(&self, grant: usize, sets: &[Guards]) -> Vec<Row> {
        let rows = (sets.iter()).flat_map(|set| (1..=self.circuits).map(|m| (m, *set)));
        rows.filter_map(|(circuits, set)| self.row(grant, set, circuits))
            .collect()
    }
}

/// Name of a guard set.
pub fn name(guards: Guards) -> String {
    match guards {
        Guards::Set(size) => format!("guard set of {size}"),
        Guards::AsMany => "a guard for each circuit".to_owned(),
        Guards::Common => "one common guard".to_owned(),
    }
}

impl Report {
    /// Figure 7 and Table III beside the paper's values.
    pub fn figure(&self) -> Figure {
        // An adversary's successes against its clients are not independent, so its group counts as
        // one sample.
        let n = usize::try_from(groups(self.clients)).unwrap_or(usize::MAX);
        let counted = |row: &Row| Value::mean(row.counted_percent, row.ci95_percent, n);
        let mut lines = Vec::new();
        let widths = WIDTHS.into_iter().filter(|one| *one <= self.circuits);
        for (number, circuits) in (0..).zip(widths) {
            let rows = || {
                self.figure_7
                    .iter()
                    .filter(move |row| row.circuits == circuits)
            };
            let name = match circuits {
                1 => "Tor (m = 1), counted".to_owned(),
                m => format!("mTor-{m}, counted"),
            };
            let look = Look::number(number);
            lines.push(Series {
                name,
                look,
                values: rows().map(|row| Some(counted(row))).collect(),
            });
            lines.push(Series {
                name: "formula".to_owned(),
                look: Look::grey().dashed(),
                values: rows()
                    .map(|row| Some(Value::exact(row.formula_percent)))
                    .collect(),
            });
        }
        for (circuits, percent) in FIGURE_7 {
            let mut values = vec![None; 10];
            values.push(Some(Value::exact(percent)));
            lines.push(Series {
                name: format!("paper, text: {percent} % with {circuits}"),
                look: Look::grey(),
                values,
            });
        }
        let shares = (0..=10).map(|step| Group {
            at: f64::from(step) * 2.0,
            label: format!("{}", step * 2),
        });
        let sets = SETS.into_iter().enumerate();
        let sets = sets.filter(|(_, set)| self.table_iii.iter().any(|row| row.guards == *set));
        let bars = sets.map(|(number, set)| {
            let rows = self.table_iii.iter().filter(move |row| row.guards == set);
            Series {
                name: name(set),
                look: Look::number(number),
                values: rows.map(|row| Some(counted(row))).collect(),
            }
        });
        let paper = Series {
            name: "paper, Table III".to_owned(),
            look: Look::grey(),
            values: (0..self.circuits as usize)
                .map(|place| TABLE_III.get(place).copied().map(Value::exact))
                .collect(),
        };
        Figure {
            title: "Clients compromised (Yang and Li 2015, Figure 7 and Table III)".to_owned(),
            subtitle: format!(
                "{} of Weft's clients in the network of {}",
                crate::idle::figure::thousands(self.clients),
                self.valid_after
            ),
            panels: vec![
                Panel::of_values(
                    Kind::Lines,
                    "Figure 7: the adversary has 20 % of the exits' bandwidth",
                    "% of the guards' bandwidth",
                    "% of clients",
                    shares.collect(),
                    lines,
                ),
                Panel::of_values(
                    Kind::Bars,
                    "Table III: 2.63 % of the guards, 4.47 % of the exits",
                    "circuits of a tunnel",
                    "% of clients",
                    (1..=self.circuits)
                        .map(|circuits| Group {
                            at: f64::from(circuits),
                            label: circuits.to_string(),
                        })
                        .collect(),
                    [paper].into_iter().chain(bars).collect(),
                ),
            ],
            columns: 1,
            footer: vec![
                "Weft's clients use a guard for each circuit, or one; the paper's formula has a set of three, at which it stops, but its numbers are those of a guard for each."
                    .to_owned(),
            ],
            whiskers: Some(Whiskers::ci95(&format!("groups of {GROUP} clients"))),
            same_scale: false,
            legend: true,
        }
    }

    /// All rows.
    pub fn csv(&self) -> String {
        let mut text = "what,circuits,guards,guard_share,exit_share,formula_percent,counted_percent,standard_errors,ci95_percent\n".to_owned();
        let in_network = self.network.iter();
        let in_network =
            in_network.flat_map(|one| [("weight", &one.rows), ("bandwidth", &one.fifth)]);
        let all = [
            ("figure-7", &self.figure_7),
            ("fifth", &self.fifth),
            ("table-iii", &self.table_iii),
        ];
        for (what, rows) in all.into_iter().chain(in_network) {
            for row in rows {
                let _ = writeln!(
                    text,
                    "{what},{},{},{},{},{},{},{},{}",
                    row.circuits,
                    name(row.guards),
                    row.adversary.guards,
                    row.adversary.exits,
                    row.formula_percent,
                    row.counted_percent,
                    known(row.standard_errors),
                    known(row.ci95_percent),
                );
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::synth;

    fn options(clients: u64, circuits: u32, entries: &[Entry]) -> TunnelOptions {
        TunnelOptions {
            sample: Sample {
                clients,
                circuits,
                seed: 1,
                threads: 2,
            },
            entries: entries.to_vec(),
            weight: Some(REALISTIC),
        }
    }

    #[test]
    fn everything_counted_is_near_its_formula() {
        let options = options(3000, 6, &[Entry::Distinct, Entry::Common]);
        let steps_done = AtomicU64::new(0);
        let network = synth::network(2000, 1).expect("a network");
        let report = compare(&network, &options, || {
            steps_done.fetch_add(1, Ordering::Relaxed);
        });
        let report = report.expect("paths");
        assert_eq!(steps_done.into_inner(), options.sample.groups());
        let of = report.network.as_ref().expect("one");
        let rows = report.figure_7.iter().chain(&report.table_iii);
        for row in rows.chain(&report.fifth).chain(&of.rows) {
            // Rare cases of few clients have no normal errors. docs/simulation.md has the real
            // differences.
            let error = row.standard_errors.unwrap_or(0.0).abs();
            let off = row.counted_percent / row.formula_percent - 1.0;
            assert!(
                error < 4.5 || off.abs() < 0.03 || row.formula_percent < 0.5,
                "{row:?}"
            );
        }
        let printed = report.table_iii.iter().zip(TABLE_III);
        for (row, paper) in printed {
            assert!((row.formula_percent - paper).abs() < 0.005, "{row:?}");
        }
        let three = |row: &&Row| row.guards == Guards::Set(3) && row.circuits >= 3;
        let counts: Vec<f64> = (report.fifth.iter().filter(three))
            .map(|row| row.counted_percent)
            .collect();
        assert_eq!(
            (counts.len(), counts.iter().all(|one| *one == counts[0])),
            (4, true)
        );
        let svg = report.figure().svg().expect("a plot");
        assert!(svg.contains("mTor-5") && svg.contains("one common guard"));
        assert!(svg.contains("n = 30 groups of 100 clients"), "{svg}");
        assert_eq!(report.csv().lines().count(), 1 + 44 + 4 * 18);
    }

    #[test]
    fn tunnels_of_one_kind_and_few_circuits_are_counted_alone() {
        let network = synth::network(500, 1).expect("a network");
        let common = compare(&network, &options(50, 2, &[Entry::Common]), || ());
        let common = common.expect("paths");
        assert_eq!((common.figure_7.len(), common.table_iii.len()), (22, 2));
        let rows = common.figure_7.iter().chain(&common.table_iii);
        for row in rows {
            assert_eq!((row.guards, row.ci95_percent), (Guards::Common, None));
        }
        assert!(common.figure().svg().is_ok());
        let distinct = compare(&network, &options(50, 1, &[Entry::Distinct]), || ());
        assert_eq!(distinct.expect("paths").table_iii.len(), 2);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let network = synth::network(100, 1).expect("a network");
        let refused = |options: TunnelOptions| compare(&network, &options, || ()).err();
        let both = [Entry::Distinct, Entry::Common];
        for (clients, circuits) in [(0, 5), (10, 0), (10, 17)] {
            let error = refused(options(clients, circuits, &both));
            assert!(matches!(error, Some(Refused::Number(_))), "{error:?}");
        }
        assert_eq!(refused(options(10, 5, &[])), Some(Refused::Entries));
        for weight in [(f64::NAN, 5.0), (-1.0, 5.0), (1.0, f64::INFINITY)] {
            let options = TunnelOptions {
                weight: Some(weight),
                ..options(10, 5, &both)
            };
            let error = refused(options);
            assert!(matches!(error, Some(Refused::Number(_))), "{error:?}");
        }
    }
}
