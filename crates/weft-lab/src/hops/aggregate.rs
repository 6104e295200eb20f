//! Measured intervals of a role over all repetitions.

use std::collections::BTreeMap;

use weft_stats::Summary;

use super::bars::{groups_bar, tunnel_bars};
use super::group::{Group, Program, classify, short};
use super::profile::Folded;
use super::results::{Function, Results, Role, ci95};
use super::stages::Counted;

/// Functions of each role in the results.
const TOP: usize = 15;

/// One measured interval of one process.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) hops: usize,
    pub(super) circuits: usize,
    pub(super) congestion_control: Option<bool>,
    pub(super) role: &'static str,
    pub(super) program: Program,
    pub(super) cpu_s_per_gb: f64,
    pub(super) kernel: f64,
    pub(super) mbit: f64,
    pub(super) folded: Folded,
    pub(super) counted: Option<Counted>,
}

impl Results {
    /// Takes in what was measured so far.
    pub(super) fn update(&mut self, samples: &[Sample]) {
        self.roles = roles(samples);
        self.bars = groups_bar(&self.roles).into_iter().collect();
        if let Some(tunnels) = &self.tunnels {
            self.bars.extend(tunnel_bars(&self.roles, &tunnels.roles));
        }
    }
}

/// Samples of the same role, hops and circuits together, in the order of their first.
fn roles(samples: &[Sample]) -> Vec<Role> {
    let key = |sample: &Sample| {
        let network = (sample.hops, sample.circuits, sample.congestion_control);
        (network, sample.role)
    };
    let mut keys: Vec<_> = Vec::new();
    for sample in samples {
        if !keys.contains(&key(sample)) {
            keys.push(key(sample));
        }
    }
    keys.sort_by_key(|(network, _)| *network);
    keys.into_iter()
        .filter_map(|wanted| {
            let of: Vec<&Sample> = samples.iter().filter(|one| key(one) == wanted).collect();
            role(&of)
        })
        .collect()
}

fn role(of: &[&Sample]) -> Option<Role> {
    let first = of.first()?;
    let cpu = Summary::of(of.iter().map(|one| one.cpu_s_per_gb))?;
    let mbit = Summary::of(of.iter().map(|one| one.mbit))?;
    let kernel = Summary::of(of.iter().map(|one| one.kernel))?;
    let mut folded = Folded::default();
    of.iter().for_each(|one| folded.merge(&one.folded));
    let (shares, functions) = shares(first.program, &folded);
    let measured: Vec<(f64, f64)> = of.iter().map(|one| (one.cpu_s_per_gb, one.mbit)).collect();
    let (cpus, mbits): (Vec<f64>, Vec<f64>) = measured.iter().copied().unzip();
    let counted = of.iter().filter_map(|one| one.counted);
    let share = |group| shares.get(&group).copied().unwrap_or(0.0);
    Some(Role {
        hops: first.hops,
        circuits: first.circuits,
        congestion_control: first.congestion_control,
        role: first.role,
        cpu_s_per_gb: cpu.median,
        cpu_s_per_gb_range: cpu,
        cpu_s_per_gb_ci95: ci95(&cpus),
        kernel: kernel.median,
        crypto: share(Group::Crypto),
        networking: share(Group::Networking),
        other: share(Group::Other),
        top_functions: functions,
        samples: folded.samples(),
        mbit: mbit.median,
        mbit_range: mbit,
        mbit_ci95: ci95(&mbits),
        stages: counted.sum::<Counted>().stages(),
        folded,
        measured,
    })
}

/// The share of each group, and the functions with the most samples.
fn shares(program: Program, folded: &Folded) -> (BTreeMap<Group, f64>, Vec<Function>) {
    let all = folded.samples().max(1) as f64;
    let mut groups: BTreeMap<Group, f64> = BTreeMap::new();
    let mut functions: BTreeMap<(String, Group), f64> = BTreeMap::new();
    for (stack, count) in folded.stacks() {
        let (group, name) = classify(program, stack.iter().copied());
        let part = count as f64 / all;
        *groups.entry(group).or_default() += part;
        *functions.entry((short(name), group)).or_default() += part;
    }
    let mut functions: Vec<Function> = functions
        .into_iter()
        .map(|((name, group), part)| Function {
            name,
            group,
            percent: part * 100.0,
        })
        .collect();
    functions.sort_by(|one, other| other.percent.total_cmp(&one.percent));
    functions.truncate(TOP);
    (groups, functions)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::bars::groups_bar;
    use super::super::results::{LAB, SINK};
    use super::*;

    pub(in crate::hops) fn sample(hops: usize, role: &'static str, mbit: f64) -> Sample {
        let mut folded = Folded::default();
        folded.add("thread;weft_node::run;weft_crypto::f", 5);
        folded.add("thread;weft_node::run;recv", 3);
        folded.add("thread;weft_node::run", 2);
        Sample {
            hops,
            circuits: 1,
            congestion_control: None,
            role,
            program: Program::Node,
            cpu_s_per_gb: 2.0,
            kernel: 0.5,
            mbit,
            folded,
            counted: None,
        }
    }

    pub(in crate::hops) fn roles_of(wanted: &[(usize, &'static str)]) -> Vec<Role> {
        let samples: Vec<Sample> = wanted
            .iter()
            .map(|(hops, role)| sample(*hops, role, 200.0))
            .collect();
        roles(&samples)
    }

    #[test]
    fn repetitions_of_a_role_are_one() {
        let samples = [
            sample(3, "exit", 100.0),
            sample(1, "relay", 300.0),
            sample(3, "exit", 200.0),
        ];
        let roles = roles(&samples);
        assert_eq!(roles.len(), 2);
        assert_eq!((roles[0].role, roles[0].mbit), ("relay", 300.0));
        let exit = &roles[1];
        assert_eq!((exit.hops, exit.mbit, exit.samples), (3, 150.0, 20));
        let shares = [exit.crypto, exit.networking, exit.other];
        for (share, expected) in shares.into_iter().zip([0.5, 0.3, 0.2]) {
            assert!((share - expected).abs() < 1e-9, "{shares:?}");
        }
        assert_eq!(exit.top_functions[0].name, "weft_crypto::f");
        assert!((exit.top_functions[0].percent - 50.0).abs() < 1e-9);
    }

    #[test]
    fn the_bar_is_of_relays_alone() {
        assert!(groups_bar(&roles(&[sample(0, LAB, 1.0)])).is_none());
        assert!(groups_bar(&roles(&[sample(2, SINK, 1.0)])).is_none());
        let bar = groups_bar(&roles(&[sample(2, "exit", 1.0)])).expect("a bar");
        assert!(bar.met && (bar.found - 0.8).abs() < 1e-9, "{bar:?}");
    }

    #[test]
    fn without_samples_there_is_no_share() {
        let empty = Sample {
            folded: Folded::default(),
            ..sample(2, "exit", 1.0)
        };
        let roles = roles(&[empty]);
        assert_eq!((roles[0].samples, roles[0].crypto), (0, 0.0));
        assert!(groups_bar(&roles).is_none());
    }
}
