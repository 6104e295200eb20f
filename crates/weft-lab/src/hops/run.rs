//! The measurements, one after the other.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::command::Options;
use super::group::Program;
use super::ipv8::{self, Order, Python};
use super::profile::{FREQUENCY, Remote, SOCKET, Sampler};
use super::results::{LAB, Results, SCHEMA, SINK, Sample, Settings};
use super::transfer::{Seeder, Sink, block, take_all};
use crate::bench;
use crate::bench::aim::Known;
use crate::control::{Attacher, Fingerprint};
use crate::experiment::{Progress, Session, rotating_turns};
use crate::network::Node;
use crate::process::Usage;
use crate::up::{More, Plan, Up};

/// How long the load of one hop is on before it is measured, and how long it is measured.
const WARM_UP: Duration = Duration::from_millis(500);
const ONE_HOP: Duration = Duration::from_secs(2);
/// Bytes over each circuit before it is measured: buffers and windows find their size.
const WARM_UP_BYTES: u64 = 2_000_000;
/// How long a node may take.
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
    let subjects: Vec<(usize, usize)> = options
        .hops
        .iter()
        .flat_map(|hops| {
            options
                .circuits
                .iter()
                .map(move |circuits| (*hops, *circuits))
        })
        .collect();
    session.progress(&Progress {
        step: "starting the network".to_owned(),
        ..Progress::default()
    });
    let block = block(options.seed);
    let mut lab = Lab {
        options,
        seeder: Seeder::start(&block)?,
        block,
        network: match options.hops.iter().any(|hops| *hops > 0) {
            true => Some(start(options, session)?),
            false => None,
        },
        number: 0,
    };
    let mut samples = Vec::new();
    for turn in rotating_turns(options.repetitions, subjects.len()) {
        let Some((hops, circuits)) = subjects.get(turn.subject).copied() else {
            continue;
        };
        if stop.is_requested() {
            return Ok(results);
        }
        session.progress(&Progress {
            done: turn.done() * weft_part(options),
            step: format!(
                "repetition {} of {}: {hops} hops, {circuits} circuits",
                turn.repetition, options.repetitions
            ),
            detail: String::new(),
        });
        let measured = lab.measure(hops, circuits, session);
        if stop.is_requested() && measured.is_err() {
            // What it had not finished is no failure.
            return Ok(results);
        }
        let measured = measured.with_context(|| format!("{hops} hops and {circuits} circuits"))?;
        samples.extend(measured);
        results.update(&samples);
        session.keep(&results)?;
    }
    if let Some(network) = lab.network.take() {
        network.stop()?;
    }
    tunnels(options, session, &mut results, &samples)?;
    results.finished = !stop.is_requested();
    Ok(results)
}

/// The same over py-ipv8's tunnels, where that is wanted and possible.
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

/// Two relays, an exit and a client, each of which profiles itself when it is asked to.
fn start(options: &Options, session: &Session<'_>) -> Result<Up> {
    let threads = vec![format!("ConnectionThreads {}", options.threads)];
    Up::start(&Plan {
        relays: 2,
        exits: 1,
        profiled: true,
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
    /// There is one if any subject has hops.
    network: Option<Up>,
    /// Of measurements so far.
    number: u64,
}

impl Lab<'_> {
    fn measure(
        &mut self,
        hops: usize,
        circuits: usize,
        session: &Session<'_>,
    ) -> Result<Vec<Sample>> {
        self.number += 1;
        match (hops, &mut self.network) {
            (0, _) => self.straight(circuits),
            (1, Some(network)) => {
                let seed = self.options.seed.wrapping_add(self.number);
                one_hop(network, circuits, seed, session)
            }
            (_, Some(network)) => {
                network.check()?;
                self.through(hops, circuits)
            }
            (_, None) => anyhow::bail!("there is no network"),
        }
    }

    /// Bytes of each circuit.
    fn bytes(&self, circuits: usize) -> u64 {
        self.options.megabytes * 1_000_000 / circuits.max(1) as u64
    }

    /// Without Tor: a connection takes the place of a circuit.
    fn straight(&self, circuits: usize) -> Result<Vec<Sample>> {
        let address = self.seeder.address();
        let sinks: Result<Vec<Sink>> = (0..circuits)
            .map(|_| Sink::connect(address, None, &self.block))
            .collect();
        self.transfer(0, circuits, sinks?, &[])
    }

    /// Through the client, over circuits of its own.
    fn through(&self, hops: usize, circuits: usize) -> Result<Vec<Sample>> {
        let network = self.network.as_ref().context("a network")?;
        let roles: Vec<(&'static str, &str)> = match hops {
            2 => vec![(SINK, CLIENT), ("entry", ENTRY), ("exit", EXIT)],
            _ => vec![
                (SINK, CLIENT),
                ("entry", ENTRY),
                ("middle", MIDDLE),
                ("exit", EXIT),
            ],
        };
        let nodes: Result<Vec<(&'static str, &Node)>> = roles
            .into_iter()
            .map(|(role, nickname)| Ok((role, network.node(nickname)?)))
            .collect();
        let nodes = nodes?;
        let relays = nodes.get(1..).unwrap_or_default();
        let path: Result<Vec<Fingerprint>> =
            relays.iter().map(|(_, node)| fingerprint(node)).collect();
        let path = path?;
        let client = network.client(CLIENT)?;
        let mut control = client.controller()?;
        control.command("SETCONF __LeaveStreamsUnattached=1")?;
        let attacher = Attacher::with(client.controller()?)?;
        let built = control
            .build_circuits(&vec![path; circuits])
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
            .and_then(|sinks| self.transfer(hops, circuits, sinks, &nodes))
            .with_context(|| format!("events of the client: {:?}", attacher.troubles()));
        control.close_circuits(&built);
        measured
    }

    /// Moves the data over all connections, and profiles this process and the nodes meanwhile.
    fn transfer(
        &self,
        hops: usize,
        circuits: usize,
        mut sinks: Vec<Sink>,
        nodes: &[(&'static str, &Node)],
    ) -> Result<Vec<Sample>> {
        take_all(&mut sinks, WARM_UP_BYTES)?;
        let profiles: Result<Vec<Remote>> = nodes.iter().map(|(_, node)| profile(node)).collect();
        let (profiles, own) = (profiles?, Sampler::start()?);
        let before = usages(nodes)?;
        let bytes = self.bytes(circuits);
        let wall = take_all(&mut sinks, bytes)?;
        let after = usages(nodes)?;
        let moved = (bytes * circuits as u64) as f64;
        // Not before: naming functions takes processor time.
        let mut folded = vec![own.finish()?];
        for profile in profiles {
            folded.push(profile.stop()?);
        }
        let roles = std::iter::once((LAB, Program::Lab))
            .chain(nodes.iter().map(|(role, _)| (*role, Program::Node)));
        let used = before.iter().zip(&after).zip(folded);
        Ok(roles
            .zip(used)
            .map(|((role, program), ((before, after), folded))| {
                let used = after.since(before);
                let cpu = used.cpu.as_secs_f64();
                Sample {
                    hops,
                    circuits,
                    role,
                    program,
                    cpu_s_per_gb: cpu * 1e9 / moved,
                    kernel: part(used.system.as_secs_f64(), cpu),
                    mbit: moved * 8e-6 / wall.as_secs_f64(),
                    folded,
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
fn usages(nodes: &[(&'static str, &Node)]) -> Result<Vec<Usage>> {
    std::iter::once(Usage::of(std::process::id()))
        .chain(nodes.iter().map(|(_, node)| node.usage()))
        .collect()
}

fn profile(node: &Node) -> Result<Remote> {
    Remote::start(&node.folder().join(SOCKET))
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
    network: &mut Up,
    circuits: usize,
    seed: u64,
    session: &Session<'_>,
) -> Result<Vec<Sample>> {
    network.check()?;
    let node = network.node(ENTRY)?;
    let address = network.address(ENTRY)?;
    let known = Known {
        address: Some(address),
        ..Known::default()
    };
    let aim = known
        .or(Known::from_data_directory(&node.folder().join("data"))?)
        .aim()?;
    let options = bench::Options {
        target: bench::Target::Relay(aim, node.pid()),
        mode: bench::Mode::Cells,
        direction: bench::Direction::Download,
        circuits,
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
    let report = bench::run(&options, stop.flag(), &mut |progress| {
        if profiles.is_none() && progress.doing == bench::WARMING_UP {
            profiles = Some(profile(node).and_then(|remote| Ok((remote, Sampler::start()?))));
        }
    })?;
    let (remote, own) = profiles.context("the load was never on")??;
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
        (LAB, Program::Lab, measured.generator),
        ("relay", Program::Node, relay),
    ];
    Ok(roles
        .into_iter()
        .zip(folded)
        .map(|((role, program, usage), folded)| Sample {
            hops: 1,
            circuits,
            role,
            program,
            cpu_s_per_gb: usage.cpu_s_per_gb.unwrap_or(0.0),
            kernel: part(usage.system_s, usage.user_s + usage.system_s),
            mbit: cells.goodput_bits_per_s * 1e-6,
            folded,
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
