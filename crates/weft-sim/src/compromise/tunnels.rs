//! Figure 7 and Table III of Yang and Li 2015, by formula and by counting, and the same in a network.

use std::fmt::Write as _;

use rand::seq::SliceRandom as _;
use serde::Serialize;
use weft_plot::{Figure, Group, Kind, Look, Panel, Series, Value};

use super::tunnel::{Adversary, Counted, Guards, Sample, count, count_in, probability, shares};
use crate::network::Network;
use crate::random::generator;
use crate::triples::{NoCircuits, Triples};

/// Table III: the printed probabilities for 1 to 5 circuits, percent.
pub const TABLE_III: [f64; 5] = [0.12, 0.23, 0.34, 0.45, 0.56];
/// Section VI-B on Figure 7, at its right end: circuits, and percent.
pub const FIGURE_7: [(u32, f64); 2] = [(1, 4.0), (5, 13.45)];
/// The lines of Figure 7.
const WIDTHS: [u32; 4] = [1, 2, 3, 5];
/// Whose exits all lines of Figure 7 have.
const EXITS: f64 = 0.2;
/// The guard sets that tables compare.
const SETS: [Guards; 3] = [Guards::AsMany, Guards::Set(3), Guards::Common];
/// Consensus weight of the realistic adversary (section VI-B), and how many parts of it are guards'
/// for each that is exits'.
pub const REALISTIC: (f64, f64) = (560_210.0, 5.0);

/// How likely clients of a kind are compromised.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Circuits of a tunnel.
    pub circuits: u32,
    /// Their guards.
    pub guards: Guards,
    /// What the adversary has.
    pub adversary: Adversary,
    /// By the formula, percent.
    pub formula_percent: f64,
    /// By counting, percent.
    pub counted_percent: f64,
    /// How far apart they are, in standard errors of the count.
    pub standard_errors: f64,
}

/// All that is compared with the paper.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Clients of each count.
    pub clients: u64,
    /// Lines of Figure 7, by guards' share and then circuits.
    pub figure_7: Vec<Row>,
    /// Table III, by guard set and then circuits.
    pub table_iii: Vec<Row>,
    /// In a network, if one was given.
    pub network: Option<InNetwork>,
}

/// The realistic adversary in a network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InNetwork {
    /// `valid-after` of the network.
    pub valid_after: String,
    /// What its weight is of this network's (5:1, weighed as guards and exits).
    pub of_weight: Adversary,
    /// By formula and counting for that, with guard sets of three.
    pub rows: Vec<Row>,
    /// An adversary with relays of this network that hold about 20 % of it: formula for its exact shares
    /// against clients that draw different relays.
    pub fifth: Vec<Row>,
}

/// Computes and counts.
///
/// # Errors
///
/// [`NoCircuits`], of the network.
pub fn compare(
    network: Option<&Network>,
    weight: (f64, f64),
    sample: Sample,
    done: impl Fn(),
) -> Result<Report, NoCircuits> {
    let row = |circuits: u32, guards: Guards, adversary: Adversary, sample: Sample| {
        let counted = count(circuits, guards, adversary, sample);
        done();
        compared(circuits, guards, adversary, counted)
    };
    let lines = (0..=10).flat_map(|step| WIDTHS.map(|circuits| (f64::from(step) * 0.02, circuits)));
    let figure_7 = lines.map(|(guards, circuits)| {
        let adversary = Adversary {
            guards,
            exits: EXITS,
        };
        row(circuits, Guards::AsMany, adversary, sample)
    });
    let figure_7 = figure_7.collect();
    let table = SETS.iter().flat_map(|set| (1..=5).map(|m| (m, *set)));
    let table_iii = table.map(|(m, set)| row(m, set, Adversary::TABLE_III, sample));
    let table_iii = table_iii.collect();
    let network = network.map(|network| -> Result<InNetwork, NoCircuits> {
        let triples = Triples::new(network, false)?;
        let of_weight =
            Adversary::of_weight(weight.0, weight.1, network).ok_or(NoCircuits::TooFew)?;
        let is_bad = fifth(network, sample.seed);
        let adversary = shares(&triples, &is_bad);
        // Drawing whole guard sets takes longer.
        let fewer = Sample {
            clients: sample.clients.div_ceil(5),
            ..sample
        };
        Ok(InNetwork {
            valid_after: network.valid_after.clone(),
            of_weight,
            rows: (1..=5)
                .map(|m| row(m, Guards::Set(3), of_weight, sample))
                .collect(),
            fifth: (1..=5)
                .map(|m| {
                    let counted = count_in(&triples, &is_bad, (m, Guards::Set(3)), fewer);
                    done();
                    compared(m, Guards::Set(3), adversary, counted)
                })
                .collect(),
        })
    });
    Ok(Report {
        clients: sample.clients,
        figure_7,
        table_iii,
        network: network.transpose()?,
    })
}

/// How often [`compare`] reports progress.
pub fn steps(with_network: bool) -> u64 {
    11 * WIDTHS.len() as u64 + 5 * SETS.len() as u64 + if with_network { 10 } else { 0 }
}

fn compared(circuits: u32, guards: Guards, adversary: Adversary, counted: Counted) -> Row {
    let chance = probability(circuits, guards, adversary);
    let error = counted.error(chance);
    Row {
        circuits,
        guards,
        adversary,
        formula_percent: chance * 100.0,
        counted_percent: counted.share() * 100.0,
        standard_errors: match error > 0.0 {
            true => (counted.share() - chance) / error,
            false => 0.0,
        },
    }
}

/// Relays in random order until they have a fifth of all bandwidth.
fn fifth(network: &Network, seed: u64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..network.relays.len()).collect();
    order.shuffle(&mut generator(seed, 0x6669_6674, 0));
    let bandwidth = |relay: usize| network.relays.get(relay).map_or(0, |one| one.bandwidth) as f64;
    let mut left = order.iter().map(|relay| bandwidth(*relay)).sum::<f64>() / 5.0;
    let mut is_bad = vec![false; order.len()];
    for relay in order {
        if bandwidth(relay) <= left
            && let Some(is_bad) = is_bad.get_mut(relay)
        {
            left -= bandwidth(relay);
            *is_bad = true;
        }
    }
    is_bad
}

/// What a guard set is called.
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
        let exact = |mid: f64| Value {
            mid,
            low: mid,
            high: mid,
        };
        let counted = |row: &Row| {
            let share = row.formula_percent / 100.0;
            let counted = Counted {
                clients: self.clients,
                compromised: 0,
            };
            let half = 196.0 * counted.error(share);
            Value {
                mid: row.counted_percent,
                low: (row.counted_percent - half).max(0.0),
                high: row.counted_percent + half,
            }
        };
        let mut lines = Vec::new();
        for (number, circuits) in (0..).zip(WIDTHS) {
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
                values: rows().map(|row| Some(exact(row.formula_percent))).collect(),
            });
        }
        for (circuits, percent) in FIGURE_7 {
            let mut values = vec![None; 10];
            values.push(Some(exact(percent)));
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
        let bars = SETS.iter().enumerate().map(|(number, set)| {
            let rows = self.table_iii.iter().filter(move |row| row.guards == *set);
            Series {
                name: name(*set),
                look: Look::number(number),
                values: rows.map(|row| Some(counted(row))).collect(),
            }
        });
        let paper = Series {
            name: "paper, Table III".to_owned(),
            look: Look::grey(),
            values: TABLE_III.map(|percent| Some(exact(percent))).to_vec(),
        };
        Figure {
            title: "Clients compromised (Yang and Li 2015, Figure 7 and Table III)".to_owned(),
            subtitle: format!(
                "{} clients for each point; whiskers are 95 % intervals of the count",
                crate::idle::figure::thousands(self.clients)
            ),
            panels: vec![
                Panel {
                    title: "Figure 7: the adversary has 20 % of the exits' bandwidth".to_owned(),
                    x_label: "% of the guards' bandwidth".to_owned(),
                    y_label: "% of clients".to_owned(),
                    kind: Kind::Lines,
                    groups: shares.collect(),
                    series: lines,
                    curves: Vec::new(),
                },
                Panel {
                    title: "Table III: 2.63 % of the guards, 4.47 % of the exits".to_owned(),
                    x_label: "circuits of a tunnel".to_owned(),
                    y_label: "% of clients".to_owned(),
                    kind: Kind::Bars,
                    groups: (1..=5)
                        .map(|circuits| Group {
                            at: f64::from(circuits),
                            label: circuits.to_string(),
                        })
                        .collect(),
                    series: [paper].into_iter().chain(bars).collect(),
                    curves: Vec::new(),
                },
            ],
            columns: 1,
            footer: vec![
                "The paper's numbers are those of a guard for each circuit; its formula with the guard set of three that it names stops at three circuits."
                    .to_owned(),
            ],
            same_scale: false,
            legend: true,
        }
    }

    /// All rows.
    pub fn csv(&self) -> String {
        let mut text = "what,circuits,guards,guard_share,exit_share,formula_percent,counted_percent,standard_errors\n".to_owned();
        let in_network = self.network.iter();
        let in_network = in_network.flat_map(|one| [("weight", &one.rows), ("fifth", &one.fifth)]);
        let all = [("figure-7", &self.figure_7), ("table-iii", &self.table_iii)];
        for (what, rows) in all.into_iter().chain(in_network) {
            for row in rows {
                let _ = writeln!(
                    text,
                    "{what},{},{},{},{},{},{},{}",
                    row.circuits,
                    name(row.guards),
                    row.adversary.guards,
                    row.adversary.exits,
                    row.formula_percent,
                    row.counted_percent,
                    row.standard_errors
                );
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::testing::mixed;

    #[test]
    fn everything_counted_agrees_with_its_formula() {
        let sample = Sample {
            clients: 20_000,
            seed: 1,
            threads: 2,
        };
        let steps_done = Cell::new(0);
        let network = mixed(800);
        let report = compare(Some(&network), REALISTIC, sample, || {
            steps_done.set(steps_done.get() + 1);
        })
        .expect("circuits");
        assert_eq!(steps_done.get(), steps(true));
        let rows = report.figure_7.iter().chain(&report.table_iii);
        // 64 numbers: one in four hundred sets of them has one farther off.
        for row in rows.chain(&report.network.as_ref().expect("one").rows) {
            assert!(row.standard_errors.abs() < 4.2, "{row:?}");
        }
        let printed = report.table_iii.iter().zip(TABLE_III);
        for (row, paper) in printed.take(5) {
            assert!((row.formula_percent - paper).abs() < 0.005, "{row:?}");
        }
        let svg = report.figure().svg().expect("a plot");
        assert!(svg.contains("mTor-5") && svg.contains("one common guard"));
        assert_eq!(report.csv().lines().count(), 1 + 44 + 15 + 10);
    }
}
