//! The measurements, one after the other.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use weft_testnet::control::{Attacher, Fingerprint};
use weft_testnet::network::{Node, PROFILER};
use weft_testnet::process::Usage;
use weft_testnet::up::{More, Plan, Up};

use super::aggregate::Sample;
use super::group::Program;
use super::ipv8::{self, Order, Python};
use super::options::Options;
use super::profile::{FREQUENCY, Remote, Sampler};
use super::results::{LAB, Results, SCHEMA, SINK, Settings, many};
use super::stages::Counted;
use super::transfer::{Seeder, Sink, block, take_all};
use crate::experiment::{Progress, Session, rotating_turns};
use crate::relay;
use crate::relay::aim::Known;

/// Warm-up of the load of one hop, and length of its measurement.
const WARM_UP: Duration = Duration::from_millis(500);
const ONE_HOP: Duration = Duration::from_secs(2);
/// Bytes over each circuit before it is measured: buffers and windows find their size.
const WARM_UP_BYTES: u64 = 2_000_000;
/// Longest wait for a node.
const PATIENCE: Duration = Duration::from_secs(90);
/// The part of the whole that is Weft's, where py-ipv8 is measured after it.
const WEFT_PART: f64 = 0.8;
/// The nicknames of the nodes, from the sink on.
const CLIENT: &str = "client0";
const ENTRY: &str = "relay0";
const MIDDLE: &str = "relay1";
const EXIT: &str = "exit0";

/// Measures all of it, and keeps the results after each step.
///
/// # Errors
///
/// The network does not start, or a transfer fails: nothing is left out silently.
pub(super) fn hops(options: &Options, session: &mut Session<'_>) -> Result<Results> {
    let stop = session.stop();
    let mut results = empty(options, session);
    let subjects = subjects(options);
    session.progress(&Progress {
        step: "starting the networks".to_owned(),
        ..Progress::default()
    });
    let block = block(options.seed);
    let mut lab = Lab {
        options,
        seeder: Seeder::start(&block)?,
        block,
        networks: networks(options, &subjects, session)?,
        number: 0,
    };
    let mut samples = Vec::new();
    for turn in rotating_turns(options.repetitions, subjects.len()) {
        let Some(&subject) = subjects.get(turn.subject) else {
            continue;
        };
        if stop.is_requested() {
            return Ok(results);
        }
        session.progress(&Progress {
            done: turn.done() * weft_part(options),
            step: format!(
                "repetition {} of {}: {subject}",
                turn.repetition, options.repetitions
            ),
            detail: String::new(),
        });
        let measured = lab.measure(subject, session);
        if stop.is_requested() && measured.is_err() {
            // An interrupted measurement is no failure.
            return Ok(results);
        }
        let measured = measured.with_context(|| subject.to_string())?;
        samples.extend(measured);
        results.update(&samples);
        session.keep(&results)?;
    }
    for network in std::mem::take(&mut lab.networks).into_values() {
        network.stop()?;
    }
    tunnels(options, session, &mut results, &samples)?;
    results.finished = !stop.is_requested();
    Ok(results)
}

/// Measures py-ipv8's tunnels, if that is requested and possible.
fn tunnels(
    options: &Options,
    session: &mut Session<'_>,
    results: &mut Results,
    samples: &[Sample],
) -> Result<()> {
    let hops: Vec<usize> = options
        .hops
        .iter()
        .copied()
        .filter(|hops| *hops > 0)
        .collect();
    let python = match options.ipv8 {
        _ if hops.is_empty() => return Ok(()),
        false => {
            results.tunnels_missing = Some("--without-ipv8".to_owned());
            return Ok(());
        }
        true => match Python::find(options.python.as_deref()) {
            Ok(python) => python,
            // Weft's own numbers are worth keeping without.
            Err(why) => {
                let why = format!("{why:#}");
                session.note(&format!("py-ipv8 is not measured: {why}"));
                results.tunnels_missing = Some(why);
                return Ok(());
            }
        },
    };
    let order = Order {
        python,
        hops,
        circuits: options.circuits.clone(),
        megabytes: options.megabytes,
        repetitions: options.repetitions,
        seed: options.seed,
    };
    let measured = ipv8::measure(&order, &session.stop(), |done, all| {
        session.progress(&Progress {
            done: WEFT_PART + (1.0 - WEFT_PART) * done as f64 / all as f64,
            step: format!("py-ipv8, {done} of {all}"),
            detail: String::new(),
        });
    });
    match measured {
        Ok(measured) => results.tunnels = Some(measured),
        Err(why) => {
            let why = format!("{why:#}");
            session.note(&format!("py-ipv8 failed: {why}"));
            results.tunnels_missing = Some(why);
        }
    }
    results.update(samples);
    session.keep(results)
}

/// The part of the whole that is Weft's.
fn weft_part(options: &Options) -> f64 {
    match options.ipv8 {
        true => WEFT_PART,
        false => 1.0,
    }
}

/// Without what is to be found.
fn empty(options: &Options, session: &Session<'_>) -> Results {
    Results {
        schema: SCHEMA,
        started_at: session.started_at().to_owned(),
        finished: false,
        machine: session.machine(),
        versions: session.versions(Some(&options.weft)),
        settings: Settings {
            hops: options.hops.clone(),
            circuits: options.circuits.clone(),
            congestion_control: options.congestion_control.clone(),
            megabytes: options.megabytes,
            repetitions: options.repetitions,
            threads: options.threads,
            samples_hz: FREQUENCY,
            seed: options.seed,
        },
        roles: Vec::new(),
        tunnels: None,
        tunnels_missing: None,
        bars: Vec::new(),
    }
}

/// Subject of one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Subject {
    hops: usize,
    circuits: usize,
    /// None: no circuit of a client carries the data.
    congestion_control: Option<bool>,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {}",
            many(self.hops, "hop"),
            many(self.circuits, "circuit")
        )?;
        match self.congestion_control {
            Some(true) => f.write_str(", with congestion control"),
            Some(false) => f.write_str(", without congestion control"),
            None => Ok(()),
        }
    }
}

/// All of them, in order.
fn subjects(options: &Options) -> Vec<Subject> {
    let mut subjects = Vec::new();
    for &hops in &options.hops {
        let controls: Vec<Option<bool>> = match hops {
            0 | 1 => vec![None],
            _ => options
                .congestion_control
                .iter()
                .copied()
                .map(Some)
                .collect(),
        };
        for &circuits in &options.circuits {
            subjects.extend(controls.iter().map(|&congestion_control| Subject {
                hops,
                circuits,
                congestion_control,
            }));
        }
    }
    subjects
}

/// The networks that these subjects need, with congestion control and without.
fn networks(
    options: &Options,
    subjects: &[Subject],
    session: &Session<'_>,
) -> Result<BTreeMap<bool, Up>> {
    let mut networks = BTreeMap::new();
    for subject in subjects {
        if let Some(control) = subject.congestion_control
            && !networks.contains_key(&control)
        {
            networks.insert(control, start(options, control, session)?);
        }
    }
    // A relay alone needs one, of either kind.
    if networks.is_empty() && subjects.iter().any(|one| one.hops == 1) {
        networks.insert(false, start(options, false, session)?);
    }
    Ok(networks)
}

/// Two relays, an exit and a client, each of which profiles itself when it is asked to.
fn start(options: &Options, congestion_control: bool, session: &Session<'_>) -> Result<Up> {
    let threads = vec![format!("ConnectionThreads {}", options.threads)];
    Up::start(&Plan {
        relays: 2,
        exits: 1,
        profiled: true,
        params: vec![format!("cc_alg={}", if congestion_control { 2 } else { 0 })],
        more: More {
            relays: threads.clone(),
            exits: threads.clone(),
            clients: threads,
        },
        patience: PATIENCE * 2,
        stop: session.stop(),
        ..Plan::of_weft(options.weft.clone())
    })
}

struct Lab<'a> {
    options: &'a Options,
    seeder: Seeder,
    block: Arc<[u8]>,
    /// By whether they have congestion control; as many as subjects need.
    networks: BTreeMap<bool, Up>,
    /// Of measurements so far.
    number: u64,
}

impl Lab<'_> {
    fn measure(&mut self, subject: Subject, session: &Session<'_>) -> Result<Vec<Sample>> {
        self.number += 1;
        if subject.hops == 0 {
            return self.straight(subject);
        }
        for network in self.networks.values_mut() {
            network.check()?;
        }
        let network = match subject.congestion_control {
            Some(control) => self.networks.get(&control),
            None => self.networks.values().next(),
        };
        let network = network.context("there is no network")?;
        match subject.hops {
            1 => {
                let seed = self.options.seed.wrapping_add(self.number);
                one_hop(network, subject, seed, session)
            }
            _ => self.through(network, subject),
        }
    }

    /// Bytes of each circuit.
    fn bytes(&self, circuits: usize) -> u64 {
        self.options.megabytes * 1_000_000 / circuits.max(1) as u64
    }

    /// Without Tor: a connection takes the place of a circuit.
    fn straight(&self, subject: Subject) -> Result<Vec<Sample>> {
        let address = self.seeder.address();
        let sinks: Result<Vec<Sink>> = (0..subject.circuits)
            .map(|_| Sink::connect(address, None, &self.block))
            .collect();
        self.transfer(subject, sinks?, &[])
    }

    /// Through the client, over circuits of its own.
    fn through(&self, network: &Up, subject: Subject) -> Result<Vec<Sample>> {
        let roles: Vec<(&'static str, &str)> = match subject.hops {
            2 => vec![(SINK, CLIENT), ("entry", ENTRY), ("exit", EXIT)],
            _ => vec![
                (SINK, CLIENT),
                ("entry", ENTRY),
                ("middle", MIDDLE),
                ("exit", EXIT),
            ],
        };
        let nodes: Result<Vec<Watched<'_>>> = roles
            .into_iter()
            .map(|(role, nickname)| Watched::of(network, role, nickname))
            .collect();
        let nodes = nodes?;
        let relays = nodes.get(1..).unwrap_or_default();
        let path: Result<Vec<Fingerprint>> =
            relays.iter().map(|one| fingerprint(one.node)).collect();
        let path = path?;
        let client = network.client(CLIENT)?;
        let mut control = client.controller()?;
        control.command("SETCONF __LeaveStreamsUnattached=1")?;
        let attacher = Attacher::with(client.controller()?)?;
        let built = control
            .build_circuits(&vec![path; subject.circuits])
            .context("building circuits")?;
        let sinks: Result<Vec<Sink>> = built
            .iter()
            .map(|circuit| {
                let user = circuit.to_string();
                let proxy = Some((client.socks(), &*user));
                Sink::connect(self.seeder.address(), proxy, &self.block)
            })
            .collect();
        let measured = sinks
            .and_then(|sinks| self.transfer(subject, sinks, &nodes))
            .with_context(|| format!("events of the client: {:?}", attacher.troubles()));
        control.close_circuits(&built);
        measured
    }

    /// Moves the data over all connections, and profiles this process and the nodes meanwhile.
    fn transfer(
        &self,
        subject: Subject,
        mut sinks: Vec<Sink>,
        nodes: &[Watched<'_>],
    ) -> Result<Vec<Sample>> {
        take_all(&mut sinks, WARM_UP_BYTES)?;
        let counted_before = counters(nodes)?;
        let profiles: Result<Vec<Remote>> = nodes.iter().map(|one| profile(one.node)).collect();
        let (profiles, own) = (profiles?, Sampler::start()?);
        let before = usages(nodes)?;
        let bytes = self.bytes(subject.circuits);
        let wall = take_all(&mut sinks, bytes)?;
        let after = usages(nodes)?;
        let counted = counters(nodes)?.into_iter().zip(counted_before);
        let counted = counted.map(|(after, before)| Some(after.since(before)));
        let moved = (bytes * subject.circuits as u64) as f64;
        // Not before: naming functions takes processor time.
        let mut folded = vec![own.finish()?];
        for profile in profiles {
            folded.push(profile.stop()?);
        }
        let roles = std::iter::once((LAB, Program::Lab))
            .chain(nodes.iter().map(|one| (one.role, Program::Node)));
        let used = before.iter().zip(&after).zip(folded);
        let used = used.zip(std::iter::once(None).chain(counted));
        Ok(roles
            .zip(used)
            .map(|((role, program), (((before, after), folded), counted))| {
                let used = after.since(before);
                let cpu = used.cpu.as_secs_f64();
                Sample {
                    hops: subject.hops,
                    circuits: subject.circuits,
                    congestion_control: subject.congestion_control,
                    role,
                    program,
                    cpu_s_per_gb: cpu * 1e9 / moved,
                    kernel: part(used.system.as_secs_f64(), cpu),
                    mbit: moved * 8e-6 / wall.as_secs_f64(),
                    folded,
                    counted,
                }
            })
            .collect())
    }
}

/// `part` of `whole`; of nothing, nothing.
fn part(part: f64, whole: f64) -> f64 {
    match whole > 0.0 {
        true => part / whole,
        false => 0.0,
    }
}

/// Of this process, and of the nodes.
fn usages(nodes: &[Watched<'_>]) -> Result<Vec<Usage>> {
    std::iter::once(Usage::of(std::process::id()))
        .chain(nodes.iter().map(|one| one.node.usage()))
        .collect()
}

/// The counters of the nodes.
fn counters(nodes: &[Watched<'_>]) -> Result<Vec<Counted>> {
    nodes.iter().map(|one| Counted::read(one.metrics)).collect()
}

/// A node that data go through.
struct Watched<'a> {
    role: &'static str,
    node: &'a Node,
    metrics: SocketAddr,
}

impl<'a> Watched<'a> {
    fn of(network: &'a Up, role: &'static str, nickname: &str) -> Result<Watched<'a>> {
        Ok(Watched {
            role,
            node: network.node(nickname)?,
            metrics: network.metrics(nickname)?,
        })
    }
}

fn profile(node: &Node) -> Result<Remote> {
    Remote::start(&node.folder().join(PROFILER))
        .with_context(|| format!("profiling {}", node.nickname()))
}

fn fingerprint(node: &Node) -> Result<Fingerprint> {
    let path = node.folder().join("data/fingerprint");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let (_, digits) = text.split_once(' ').context("no fingerprint")?;
    Fingerprint::parse(digits)
}

/// A relay alone, between load generators that are the origin and the next hop: exits refuse streams of circuits of
/// one hop.
fn one_hop(
    network: &Up,
    subject: Subject,
    seed: u64,
    session: &Session<'_>,
) -> Result<Vec<Sample>> {
    let Watched { node, metrics, .. } = Watched::of(network, "relay", ENTRY)?;
    let address = network.address(ENTRY)?;
    let known = Known {
        address: Some(address),
        ..Known::default()
    };
    let aim = known
        .or(Known::from_data_directory(&node.folder().join("data"))?)
        .aim()?;
    let options = relay::Options {
        target: relay::Target::Relay(aim, node.pid()),
        mode: relay::Mode::Cells,
        live: None,
        capacity: None,
        counters: false,
        workers: None,
        direction: relay::Direction::Download,
        circuits: subject.circuits,
        links: 2,
        window: None,
        rate: None,
        warm_up: WARM_UP,
        seconds: ONE_HOP,
        threads: 1,
        target_cpus: Vec::new(),
        generator_cpus: Vec::new(),
        patience: PATIENCE,
        own_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
        seed,
    };
    // From the moment that the load is on.
    let mut profiles: Option<Result<(Remote, Sampler)>> = None;
    let stop = session.stop();
    let counted_before = Counted::read(metrics)?;
    let report = relay::run(&options, stop.flag(), &mut |progress| {
        if profiles.is_none() && progress.doing == relay::WARMING_UP {
            profiles = Some(profile(node).and_then(|remote| Ok((remote, Sampler::start()?))));
        }
    })?;
    let (remote, own) = profiles.context("the load was never on")??;
    let counted = Counted::read(metrics)?.since(counted_before);
    let folded = [own.finish()?, remote.stop()?];
    ensure!(
        report.complete,
        "the load on one relay failed: {}",
        report.why.unwrap_or_default()
    );
    let measured = report.measured.context("nothing was measured")?;
    let cells = measured.cells.context("no cells were counted")?;
    let relay = measured.usage.context("the relay's usage is not known")?;
    let roles = [
        (LAB, Program::Lab, measured.generator, None),
        ("relay", Program::Node, relay, Some(counted)),
    ];
    Ok(roles
        .into_iter()
        .zip(folded)
        .map(|((role, program, usage, counted), folded)| Sample {
            hops: 1,
            circuits: subject.circuits,
            congestion_control: None,
            role,
            program,
            cpu_s_per_gb: usage.cpu_s_per_gb.unwrap_or(0.0),
            kernel: part(usage.system_s, usage.user_s + usage.system_s),
            mbit: cells.goodput_bits_per_s * 1e-6,
            folded,
            counted,
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_nothing_is_nothing() {
        assert!((part(1.0, 4.0) - 0.25).abs() < 1e-12);
        assert!(part(1.0, 0.0).abs() < 1e-12);
    }
}
