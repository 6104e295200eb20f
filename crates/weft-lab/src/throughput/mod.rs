//! The throughput experiment of seeds/000, section 5.2: client proxies, entries, exits and a server
//! around one target, streams on circuits that were built by hand, and what the target sustains.
//!
//! All nodes but the target are C tor. Each circuit goes through an entry, the target and an exit, and
//! carries one stream. All streams are opened first and begin at once; the server notes when each
//! stream's first and last byte arrive, and the target's own count of bytes is read every 500 ms.
//! Targets, each a relay of its own in the same network, take turns within each repetition, each
//! freshly started.
//!
//! What differs from the paper: all runs on one machine, where the nodes around the target compete
//! with it for processors (so how busy the target was is told with each number); the control port is
//! spoken by this crate and not by Stem; and one thread serves all streams instead of a process each.

pub mod figures;
mod meter;
mod report;
mod results;
mod streams;
mod sustained;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

pub use meter::INTERVAL;
pub use results::{Results, Run, SCHEMA, StreamTimes, TargetSummary};
pub use sustained::{Rule, Sample};

use crate::load::{Circuits, Place};
use crate::machine::{Cpus, Machine, Versions};
use crate::network::{Config, Network, Program, Target, TargetOptions};
use crate::ports::Port;
use crate::process::Usage;
use meter::Meter;
use streams::{Load, Sink};
use weft_plot::{Folder, Look};

/// After so many failures in a row the experiment ends: the next run would fail, too.
const FAILURES: usize = 3;

/// Seconds from one consensus to the next, as in seeds/000 5.2.
const VOTING_INTERVAL: u32 = 40;

/// What a C tor takes at most in a small network, bytes, measured.
const MEMORY_OF_A_NODE: u64 = 45_000_000;

/// Processors of the paper's control server (seeds/000, Table 2), which ran all nodes but the target.
const PROCESSORS_OF_THE_PAPER: f64 = 64.0;

/// A program to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Which {
    /// The C tor that is installed.
    Tor,
    /// Weft with so many connection threads, or as many as it chooses.
    Weft(Option<u32>),
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Which, String> {
        match text.split_once(':') {
            None if text == "tor" => Ok(Which::Tor),
            None if text == "weft" => Ok(Which::Weft(None)),
            Some(("weft", threads)) => match threads.parse() {
                Ok(threads) => Ok(Which::Weft(Some(threads))),
                Err(_) => Err(format!("{threads:?} is no number of threads")),
            },
            _ => Err(format!(
                "{text:?} is no program to be measured: tor, weft or weft:THREADS"
            )),
        }
    }
}

impl TryFrom<String> for Which {
    type Error = String;

    fn try_from(text: String) -> Result<Which, String> {
        text.parse()
    }
}

impl From<Which> for String {
    fn from(which: Which) -> String {
        which.to_string()
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::Tor => f.write_str("tor"),
            Which::Weft(None) => f.write_str("weft"),
            Which::Weft(Some(threads)) => write!(f, "weft:{threads}"),
        }
    }
}

impl Which {
    /// As a plot names it.
    pub fn in_words(self) -> String {
        match self {
            Which::Tor => "C tor".to_owned(),
            Which::Weft(None) => "Weft, its own choice of threads".to_owned(),
            Which::Weft(Some(0)) => "Weft, no connection threads".to_owned(),
            Which::Weft(Some(1)) => "Weft, 1 connection thread".to_owned(),
            Which::Weft(Some(threads)) => format!("Weft, {threads} connection threads"),
        }
    }

    /// Of its relay. Each program has a relay of its own in the network: clients go by what a relay's
    /// descriptor promises, and C tor promises more than Weft speaks (CGO), so that clients would need
    /// a new consensus after each turn.
    fn nickname(self) -> String {
        format!("target{}", self.to_string().replace(':', ""))
    }

    fn look(self) -> Look {
        match self {
            Which::Tor => Look::grey(),
            Which::Weft(threads) => Look::number(threads.map_or(5, |threads| threads as usize)),
        }
    }
}

/// How large the network is, and what it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Client proxies.
    pub clients: usize,
    /// Entry relays.
    pub entries: usize,
    /// Exit relays.
    pub exits: usize,
    /// Circuits of each client, one stream on each.
    pub streams_per_client: usize,
    /// Payload of each stream.
    pub bytes_per_stream: u64,
}

impl Sizes {
    /// Table 1 of seeds/000, first row.
    pub const INTEL_SERVER: Sizes = Sizes {
        clients: 150,
        entries: 300,
        exits: 300,
        streams_per_client: 10,
        bytes_per_stream: 10 << 20,
    };

    /// Table 1 of seeds/000, second row.
    pub const RASPBERRY_PI: Sizes = Sizes {
        clients: 100,
        entries: 300,
        exits: 300,
        streams_per_client: 6,
        bytes_per_stream: 5 << 20,
    };

    /// This part of the proxies and relays, at least one of each, with as many streams for each proxy
    /// and as much data for each stream.
    pub fn scaled(self, scale: f64) -> Sizes {
        let part = |count: usize| ((count as f64 * scale).round() as usize).max(1);
        Sizes {
            clients: part(self.clients),
            entries: part(self.entries),
            exits: part(self.exits),
            ..self
        }
    }

    /// Circuits through the target.
    pub fn circuits(self) -> usize {
        self.clients.saturating_mul(self.streams_per_client)
    }

    /// Payload of a run, bytes.
    pub fn payload(self) -> u64 {
        (self.circuits() as u64).saturating_mul(self.bytes_per_stream)
    }

    /// Processes around the target, authorities included.
    fn nodes(self) -> usize {
        let nodes = self.clients.saturating_add(self.entries);
        nodes.saturating_add(self.exits).saturating_add(3)
    }

    /// The largest scale, 1 at most, at which a machine with this much free memory (bytes) holds all
    /// nodes, and has for each as much processor time as the paper's had. In hundredths.
    pub fn scale_for(self, free_memory: u64, processors: usize) -> f64 {
        let memory = free_memory as f64 * 0.8 / (self.nodes() as f64 * MEMORY_OF_A_NODE as f64);
        let scale = memory.min(processors as f64 / PROCESSORS_OF_THE_PAPER);
        ((scale * 100.0).floor() / 100.0).clamp(0.01, 1.0)
    }
}

/// Free memory of this machine, bytes; 0 if the kernel does not say.
pub fn free_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

/// An experiment to be made.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is put in the middle.
    pub targets: Vec<Which>,
    /// The `weft` that is run.
    pub weft: PathBuf,
    /// What Table 1 calls the sizes that were scaled.
    pub setting: String,
    /// The scale.
    pub scale: f64,
    /// The sizes after scaling.
    pub sizes: Sizes,
    /// How often each target is measured.
    pub repetitions: u32,
    /// How throughput is found.
    pub rule: Rule,
    /// Payloads are functions of this.
    pub seed: u64,
    /// Whether the network's start is to be given up.
    pub stopped: fn() -> bool,
}

/// How far an experiment has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Which run, from 1; 0 while the network starts.
    pub run: usize,
    /// How many there will be.
    pub runs: usize,
    /// What is in the middle.
    pub target: Option<Which>,
    /// Payload of this run that has arrived, 0 to 1.
    pub fraction: f64,
    /// How long the run's streams have been at it.
    pub elapsed: Duration,
}

impl Options {
    /// The first thing that is wrong.
    fn check(&self) -> Result<()> {
        let sizes = self.sizes;
        ensure!(!self.targets.is_empty(), "name at least one target");
        for (place, target) in self.targets.iter().enumerate() {
            let again = self.targets.iter().skip(place + 1).any(|one| one == target);
            ensure!(!again, "{target} is named twice");
        }
        ensure!(self.repetitions > 0, "0 repetitions measure nothing");
        ensure!(
            sizes.clients > 0
                && sizes.entries > 0
                && sizes.exits > 0
                && sizes.streams_per_client > 0,
            "at least one client proxy, entry, exit and stream are needed"
        );
        ensure!(
            sizes.bytes_per_stream >= streams::LEAST,
            "a stream has at least {} bytes",
            streams::LEAST
        );
        ensure!(
            self.rule.window_s >= INTERVAL.as_secs_f64() && self.rule.discard_s >= 0.0,
            "the window is at least {} s, the time of a reading",
            INTERVAL.as_secs_f64()
        );
        let need = sizes.nodes() as u64 * MEMORY_OF_A_NODE;
        let free = free_memory();
        ensure!(
            need <= free || free == 0,
            "{} nodes take about {:.1} GB of memory, and {:.1} are free: choose a smaller --scale",
            sizes.nodes(),
            need as f64 * 1e-9,
            free as f64 * 1e-9
        );
        Ok(())
    }

    fn program(&self, which: Which) -> Result<Program> {
        match which {
            Which::Tor => Program::tor(),
            Which::Weft(threads) => Program::weft(&self.weft, threads),
        }
    }
}

/// Makes the experiment, fills the folder, and says how far it is. When `stop` becomes true it ends
/// early; what was measured until then is in the results and in the folder, `finished` is false.
///
/// # Errors
///
/// The options make no sense, or the network does not start. Then nothing is in the folder.
pub fn run(
    options: &Options,
    folder: &Folder,
    started_at: &str,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Results> {
    let mut experiment = Experiment::start(options, started_at, progress)?;
    experiment.perform(folder, stop, progress)?;
    Ok(experiment.results)
}

/// What a target's torrc has besides.
fn torrc(metrics: &Port) -> Vec<String> {
    vec![
        format!("MetricsPort {}", metrics.address()),
        "MetricsPortPolicy accept 127.0.0.1".to_owned(),
        // No rate that matters. Bytes on loopback count as any others in testing networks.
        "BandwidthRate 2000 MBytes".to_owned(),
        "BandwidthBurst 2000 MBytes".to_owned(),
        // As in seeds/000 5.2: the directory of so restless a network is no part of this.
        "DirCache 0".to_owned(),
    ]
}

struct Experiment<'a> {
    options: &'a Options,
    network: Network,
    /// The targets' MetricsPorts.
    metrics: Vec<(Which, Port)>,
    results: Results,
}

impl<'a> Experiment<'a> {
    fn start(
        options: &'a Options,
        started_at: &str,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Experiment<'a>> {
        options.check()?;
        crate::process::raise_file_limit();
        let sizes = options.sizes;
        // Before anything runs, as it tells how busy the machine was.
        let machine = Machine::here(&Cpus::here(), None);
        let here = std::env::current_dir().context("finding the current folder")?;
        let versions = Versions::here(&options.weft, &here, false);
        let mut metrics = Vec::new();
        let mut targets = Vec::new();
        for which in &options.targets {
            let port = Port::reserve()?;
            let target = Target::new(&which.nickname(), options.program(*which)?);
            targets.push(target.options(TargetOptions {
                more: torrc(&port),
                ..TargetOptions::default()
            }));
            metrics.push((*which, port));
        }
        progress(Progress {
            run: 0,
            runs: options.targets.len() * options.repetitions as usize,
            target: None,
            fraction: 0.0,
            elapsed: Duration::ZERO,
        });
        let config = Config {
            guards: sizes.entries,
            exits: sizes.exits,
            clients: sizes.clients,
            voting_interval: VOTING_INTERVAL,
            stopped: options.stopped,
            patience: Duration::from_secs(180) + Duration::from_secs(1) * sizes.nodes() as u32,
            ..Config::default()
        };
        let network = Network::start(config, targets)?;
        Ok(Experiment {
            options,
            network,
            metrics,
            results: Results {
                schema: SCHEMA,
                started_at: started_at.to_owned(),
                finished: false,
                machine,
                versions,
                scale: options.scale,
                setting: options.setting.clone(),
                sizes,
                targets: options.targets.clone(),
                repetitions: options.repetitions,
                seed: options.seed,
                asked: options.rule,
                rule: options.rule,
                summaries: Vec::new(),
                runs: Vec::new(),
            },
        })
    }

    fn perform(
        &mut self,
        folder: &Folder,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let targets = &self.options.targets;
        let runs = targets.len() * self.options.repetitions as usize;
        let mut failures = 0;
        for repetition in 1..=self.options.repetitions {
            for place in 0..targets.len() {
                // Each repetition begins with another target.
                let turn = (place + repetition as usize - 1) % targets.len();
                let Some(target) = targets.get(turn).copied() else {
                    continue;
                };
                if stop.load(Ordering::SeqCst) {
                    return Ok(());
                }
                let run = self.one(target, repetition, stop, &mut |fraction, elapsed| {
                    progress(Progress {
                        run: (repetition as usize - 1) * targets.len() + place + 1,
                        runs,
                        target: Some(target),
                        fraction,
                        elapsed,
                    });
                });
                match &run.failure {
                    None => failures = 0,
                    Some(why) => {
                        failures += 1;
                        eprintln!("{target}, repetition {repetition}: {why}");
                    }
                }
                self.results.runs.push(run);
                self.results.sum_up();
                self.results.write(folder)?;
                if failures == FAILURES {
                    eprintln!("{FAILURES} runs in a row failed: the experiment ends here");
                    return Ok(());
                }
            }
        }
        self.results.finished = true;
        self.results.write(folder)
    }

    /// One run; what goes wrong is in it.
    fn one(
        &mut self,
        target: Which,
        repetition: u32,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(f64, Duration),
    ) -> Run {
        let mut run = Run {
            target,
            repetition,
            failure: None,
            seconds: 0.0,
            bytes: Vec::new(),
            streams: Vec::new(),
            cpu_s: 0.0,
            busiest_thread_s: 0.0,
            peak_rss_bytes: 0,
            others_cpu_s: 0.0,
        };
        if let Err(error) = self.fill(&mut run, stop, progress) {
            run.failure = Some(format!("{error:#}"));
        }
        run
    }

    fn fill(
        &mut self,
        run: &mut Run,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(f64, Duration),
    ) -> Result<()> {
        let program = self.options.program(run.target)?;
        let nickname = run.target.nickname();
        let metrics = self.metrics.iter().find(|(which, _)| *which == run.target);
        let metrics = metrics
            .context("a target without a MetricsPort")?
            .1
            .address();
        self.network.restart(&nickname, program)?;
        let sizes = self.options.sizes;
        let load = Load {
            streams: sizes.circuits(),
            bytes: sizes.bytes_per_stream,
            seed: self.options.seed.wrapping_add(u64::from(run.repetition)),
        };
        let circuits = Circuits::build(&self.network, &nickname, Place::Middle, load.streams)?;
        let sink = Sink::start(load)?;
        let streams = streams::open(&circuits.proxies(), sink.address())
            .with_context(|| circuits.troubles())?;
        if stop.load(Ordering::SeqCst) {
            bail!("stopped");
        }

        let before = Moment::now(&self.network, &nickname)?;
        let zero = Instant::now();
        let meter = Meter::start(metrics, zero)?;
        let payload = sizes.payload() as f64;
        let sent = streams::send(streams, load, &sink, stop, &mut |arrived| {
            progress(arrived as f64 / payload, zero.elapsed());
        });
        let arrivals = sink.end(sent);
        run.seconds = zero.elapsed().as_secs_f64();
        // Also of a run that failed.
        run.bytes = meter.end()?;
        let arrivals = arrivals.with_context(|| circuits.troubles())?;
        let after = Moment::now(&self.network, &nickname)?;
        let since = |moment: Instant| moment.saturating_duration_since(zero).as_secs_f64();
        run.streams = arrivals
            .iter()
            .map(|one| StreamTimes {
                first_byte_s: since(one.first),
                last_byte_s: since(one.last),
            })
            .collect();
        run.seconds = run
            .streams
            .iter()
            .map(|one| one.last_byte_s)
            .fold(0.0, f64::max);
        let used = after.target.since(&before.target);
        run.cpu_s = used.cpu.as_secs_f64();
        let threads = used.threads.iter().map(|thread| thread.cpu.as_secs_f64());
        run.busiest_thread_s = threads.fold(0.0, f64::max);
        run.peak_rss_bytes = used.peak_rss;
        run.others_cpu_s = after.others.saturating_sub(before.others).as_secs_f64();
        Ok(())
    }
}

/// What has been used until now.
struct Moment {
    target: Usage,
    /// Processor time of all other nodes that carry the streams, and of this program.
    others: Duration,
}

impl Moment {
    fn now(network: &Network, target: &str) -> Result<Moment> {
        let relays = network.guards().iter().chain(network.exits());
        let nodes = relays.map(|relay| relay.node());
        let nodes = nodes.chain(network.clients().iter().map(|client| client.node()));
        let mut others = Usage::of(std::process::id())?.cpu;
        for node in nodes {
            others += node.usage()?.cpu;
        }
        Ok(Moment {
            target: network.target(target)?.node().usage()?,
            others,
        })
    }
}

/// SOCKS port and user name of each circuit.
type Proxies = Vec<(SocketAddr, String)>;

impl Circuits<'_> {
    /// Where a stream asks for each circuit: the client's SOCKS port, and the user name there.
    fn proxies(&self) -> Proxies {
        let clients = self.network().clients();
        let circuits = self.circuits().iter();
        circuits
            .filter_map(|(client, circuit)| {
                Some((clients.get(*client)?.socks(), circuit.to_string()))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
