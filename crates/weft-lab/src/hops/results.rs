//! The numbers of `weft lab hops`: the shape of `results.json`.

use std::collections::BTreeMap;

use serde::Serialize;
use weft_stats::{Spread, Summary};

use super::group::{Group, Program, classify, short};
use super::ipv8::{self, Tunnels};
use super::profile::Folded;
use super::stages::{Counted, Stages};
use crate::machine::{Machine, Versions};

/// The version of this shape.
pub const SCHEMA: u32 = 2;
/// Functions of each role in the results.
const TOP: usize = 15;
/// What cryptography and networking together must be of a node's processor time.
const GROUPS_BAR: f64 = 0.8;

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

/// A function's part of the processor time of its process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Function {
    /// Its name, without types.
    pub name: String,
    /// Its group.
    pub group: Group,
    /// Of all samples.
    pub percent: f64,
}

/// A role at so many hops and circuits.
#[derive(Clone, Debug, Serialize)]
pub struct Role {
    /// Relays between sink and seeder.
    pub hops: usize,
    /// Circuits at once.
    pub circuits: usize,
    /// Whether circuits have congestion control (`cc_alg` of the consensus), or windows that are fixed; none where no
    /// circuit of a client carries the data.
    pub congestion_control: Option<bool>,
    /// `sink` (Weft as client), `entry`, `middle`, `exit`, `relay` (the only one of one hop), or `lab`, this
    /// program, which plays all that is not Weft.
    pub role: &'static str,
    /// Processor seconds for 10⁹ payload bytes, the median of the repetitions.
    pub cpu_s_per_gb: f64,
    /// Their range.
    pub cpu_s_per_gb_range: Summary,
    /// Half the 95 % confidence interval of their mean; none of one repetition.
    pub cpu_s_per_gb_ci95: Option<f64>,
    /// The part of the processor time that the system used on its behalf, by the system's own count.
    pub kernel: f64,
    /// Part of the samples in cryptography, from 0 to 1.
    pub crypto: f64,
    /// The same in networking.
    pub networking: f64,
    /// The same in neither.
    pub other: f64,
    /// The functions with the most samples.
    pub top_functions: Vec<Function>,
    /// Samples of all repetitions.
    pub samples: u64,
    /// Payload over all circuits in 10⁶ bits a second, the median of the repetitions.
    pub mbit: f64,
    /// Their range.
    pub mbit_range: Summary,
    /// Half the 95 % confidence interval of their mean; none of one repetition.
    pub mbit_ci95: Option<f64>,
    /// How many cells each step of a node's connection threads handles at once; none of this program, and where
    /// counters did not change.
    pub stages: Option<Stages>,
    #[serde(skip)]
    pub(super) folded: Folded,
    /// Of each repetition: processor seconds for 10⁹ bytes, and 10⁶ bits a second.
    #[serde(skip)]
    pub(super) measured: Vec<(f64, f64)>,
}

impl Role {
    /// It is a node of Tor.
    #[must_use]
    pub fn is_node(&self) -> bool {
        self.role != LAB
    }

    /// It is a relay.
    #[must_use]
    pub fn is_relay(&self) -> bool {
        self.is_node() && self.role != SINK
    }

    pub(super) fn share(&self, group: Group) -> f64 {
        match group {
            Group::Crypto => self.crypto,
            Group::Networking => self.networking,
            Group::Other => self.other,
        }
    }
}

/// The role of this program.
pub(super) const LAB: &str = "lab";
/// The role of the client.
pub(super) const SINK: &str = "sink";

/// A bar, and whether it is met.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    /// What is compared.
    pub what: String,
    /// What was found.
    pub found: f64,
    /// The least that it must be.
    pub at_least: f64,
    /// Whether it is.
    pub met: bool,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Numbers of relays.
    pub hops: Vec<usize>,
    /// Numbers of circuits.
    pub circuits: Vec<usize>,
    /// Without congestion control of circuits, with it, or both.
    pub congestion_control: Vec<bool>,
    /// 10⁶ bytes of payload of one transfer, over all circuits together.
    pub megabytes: u64,
    /// How often each was measured.
    pub repetitions: u32,
    /// Connection threads of each node.
    pub threads: u32,
    /// Samples in a second of processor time that were asked of the system.
    pub samples_hz: i32,
    /// Payloads and the order of measurements are functions of this.
    pub seed: u64,
}

/// An experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When it began, UTC, RFC 3339.
    pub started_at: String,
    /// Everything was measured as often as planned; otherwise these are partial results.
    pub finished: bool,
    /// What it ran on.
    pub machine: Machine,
    /// What ran.
    pub versions: Versions,
    /// What was asked for.
    pub settings: Settings,
    /// What was found.
    pub roles: Vec<Role>,
    /// The same over py-ipv8's tunnels, if they were measured.
    pub tunnels: Option<Tunnels>,
    /// Why they were not.
    pub tunnels_missing: Option<String>,
    /// The bars that can be checked by it.
    pub bars: Vec<Bar>,
}

impl Results {
    /// Takes in what was measured so far.
    pub(super) fn update(&mut self, samples: &[Sample]) {
        self.roles = roles(samples);
        self.bars = groups_bar(&self.roles).into_iter().collect();
        if let Some(tunnels) = &self.tunnels {
            self.bars.extend(ipv8::bars(&self.roles, &tunnels.roles));
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

/// So many of something, in words.
pub(super) fn many(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Half the 95 % confidence interval of the mean; one number has none.
pub(super) fn ci95(numbers: &[f64]) -> Option<f64> {
    Spread::of(numbers)?.ci95
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

/// Cryptography and networking together, of the relay in which they have the least.
fn groups_bar(roles: &[Role]) -> Option<Bar> {
    let relays = roles.iter().filter(|one| one.is_relay() && one.samples > 0);
    let least = relays
        .map(|one| one.crypto + one.networking)
        .min_by(f64::total_cmp)?;
    Some(Bar {
        what: "least share of crypto and networking together in a relay".to_owned(),
        found: least,
        at_least: GROUPS_BAR,
        met: least >= GROUPS_BAR,
    })
}

#[cfg(test)]
pub(super) mod tests {
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
