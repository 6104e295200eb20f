//! What each role of a Tor node costs, Weft's and C tor's side by side in one private network: a
//! client, an exit, a guard; and how soon a client is of use. Arti's client is measured beside theirs
//! where it is installed.
//!
//! One network of C tor nodes stands for the whole experiment, with one relay, the *target*, that
//! programs take turns to run, and clients that start from nothing for each measurement. Programs
//! alternate within a repetition, so that what the machine does otherwise hits both.
//!
//! One stream on one circuit is as fast as the slowest of its hops lets it be, which here are C tor's. So
//! it is also measured in two networks more, of which all nodes are run by one program. C tor's client
//! spreads a stream over two circuits (Conflux): one circuit is what it has when told not to.

mod results;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::interop::takes_over;
use crate::load::{Circuits, Place};
use crate::machine::{Cpus, Machine, Versions};
use crate::network::{Config, Network, Program, Target, TargetOptions};
use crate::stats::Summary;
use crate::surf::{Surf, first_byte, surf};
use crate::traffic::{Direction, Request, Server, transfer};
use crate::up::{Kind, Plan, Up};

pub use results::{Figure, Measure, Results, SCHEMA, table};

/// The relay that programs take turns to run.
const TARGET: &str = "target";
/// How long a client may take from nothing to its first byte.
const PATIENCE: Duration = Duration::from_secs(90);
/// A small download.
const SMALL: u64 = 50 << 10;

/// What is measured, and how often.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `weft` that is measured.
    pub weft: PathBuf,
    /// Its connection threads.
    pub threads: u32,
    /// Arti's client, if it is there.
    pub arti: Option<PathBuf>,
    /// A checkout of Weft's sources, to note the commit.
    pub checkout: PathBuf,
    /// Streams at once.
    pub streams: usize,
    /// Payload bytes of each.
    pub bytes: u64,
    /// Small downloads on a client that has circuits.
    pub small: usize,
    /// How often everything is measured.
    pub repetitions: u32,
    /// Payloads are functions of this.
    pub seed: u64,
    /// Asked while waiting: whether to give up.
    pub stopped: fn() -> bool,
    /// Where the lines about progress go.
    pub progress: fn(&str),
}

/// Measures all roles.
///
/// # Errors
///
/// The network does not start, or a program does not do its role: nothing is left out silently.
pub fn run(options: &Options, started_at: String) -> Result<Results> {
    let weft = Program::weft(&options.weft, Some(options.threads))?;
    let tor = Program::tor()?;
    let mut clients = vec![("tor", Program::tor_of_its_own()?), ("weft", weft.clone())];
    let mut version = None;
    if let Some(path) = &options.arti {
        clients.push(("arti", Program::arti(path)?));
        version = Some(arti_version(path)?);
    }
    let config = Config {
        authorities: 1,
        guards: 2,
        exits: 2,
        clients: 2,
        stopped: options.stopped,
        progress: options.progress,
        ..Config::default()
    };
    let target = Target::new(TARGET, weft.clone()).options(TargetOptions {
        exit: true,
        ..TargetOptions::default()
    });
    let mut network = Network::start(config, vec![target])?;
    let mut lab = Lab {
        options,
        server: Server::start()?,
        figures: Vec::new(),
        clients: 0,
    };
    for repetition in 0..options.repetitions {
        let seed = options.seed.wrapping_add(1000 * u64::from(repetition));
        for (name, program) in [("tor", &tor), ("weft", &weft)] {
            (options.progress)(&format!(
                "repetition {} of {}: {name}",
                repetition + 1,
                options.repetitions
            ));
            lab.relay(&mut network, name, program, seed)
                .with_context(|| format!("{name} as relay"))?;
        }
        for (name, program) in &clients {
            lab.client(&mut network, name, program, seed)
                .with_context(|| format!("{name} as client"))?;
        }
        for ((name, program), kind) in clients.iter().zip([Kind::Tor, Kind::Weft]) {
            lab.alone(name, kind, program, seed)
                .with_context(|| format!("a network of {name} alone"))?;
        }
    }
    Ok(Results {
        schema: SCHEMA,
        started_at,
        machine: Machine::here(&Cpus::here(), None),
        versions: Versions::here(&options.weft, &options.checkout, true),
        arti: version,
        threads: options.threads,
        streams: options.streams,
        bytes: options.bytes,
        repetitions: options.repetitions,
        seed: options.seed,
        measures: results::measures(&lab.figures),
    })
}

/// What Arti calls itself, in one line: its version, the runtime and TLS that it was built with, and its
/// optional features.
fn arti_version(path: &Path) -> Result<String> {
    let doing = || format!("{} --version", path.display());
    let output = Command::new(path)
        .arg("--version")
        .output()
        .with_context(doing)?;
    ensure!(output.status.success(), "{}: {}", doing(), output.status);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    Ok(lines.join("; "))
}

/// One number of one run.
#[derive(Clone, Debug)]
struct Sample {
    figure: Figure,
    program: &'static str,
    value: f64,
}

struct Lab<'a> {
    options: &'a Options,
    server: Server,
    figures: Vec<Sample>,
    clients: usize,
}

impl Lab<'_> {
    fn note(&mut self, figure: Figure, program: &'static str, value: f64) {
        (self.options.progress)(&format!("{program}: {} {value:.3}", figure.words()));
        self.figures.push(Sample {
            figure,
            program,
            value,
        });
    }

    /// The target as exit and as guard.
    fn relay(
        &mut self,
        network: &mut Network,
        name: &'static str,
        program: &Program,
        seed: u64,
    ) -> Result<()> {
        let platform = if program.is_weft() { "Weft" } else { "Tor" };
        takes_over(network, TARGET, program, platform, PATIENCE)?;
        network.wait_exit(TARGET)?;
        for (place, down, up) in [
            (Place::Exit, Figure::ExitDown, Figure::ExitUp),
            (Place::Guard, Figure::GuardDown, Figure::GuardUp),
        ] {
            let circuits = self.circuits(network, place)?;
            // Caches, allocators and windows find their size.
            circuits.run(Direction::Down, 1 << 20, seed)?;
            circuits.run(Direction::Up, 1 << 20, seed)?;
            let moved = circuits.run(Direction::Down, self.options.bytes, seed)?;
            self.note(down, name, moved.cpu_per_gigabyte());
            let moved = circuits.run(Direction::Up, self.options.bytes, seed)?;
            self.note(up, name, moved.cpu_per_gigabyte());
        }
        Ok(())
    }

    /// Circuits through the target. Some may fail at first: C tor does not try a relay again for a minute
    /// after it was refused, and the target was away while its program changed.
    fn circuits<'a>(&self, network: &'a Network, place: Place) -> Result<Circuits<'a>> {
        let start = Instant::now();
        loop {
            match Circuits::build(network, TARGET, place, self.options.streams) {
                Err(_) if start.elapsed() < PATIENCE && !(self.options.stopped)() => {
                    thread::sleep(Duration::from_secs(1));
                }
                outcome => return outcome,
            }
        }
    }

    /// Small downloads by a client that has circuits: the median of their first bytes.
    fn small(
        &mut self,
        figure: Figure,
        name: &'static str,
        proxy: SocketAddr,
        server: SocketAddr,
        seed: u64,
    ) -> Result<()> {
        let mut times = Vec::new();
        for number in 0..self.options.small as u64 {
            let request = Request {
                direction: Direction::Down,
                bytes: SMALL,
                seed: seed.wrapping_add(number),
            };
            let moved = transfer(proxy, "small", server, request)?;
            times.push(moved.first_byte.as_secs_f64() * 1e3);
        }
        if let Some(times) = Summary::of(times) {
            self.note(figure, name, times.median);
        }
        Ok(())
    }

    /// A network in which one program runs every node, with as many connection threads as it likes.
    fn alone(
        &mut self,
        name: &'static str,
        kind: Kind,
        program: &Program,
        seed: u64,
    ) -> Result<()> {
        let mut network = Up::start(&Plan {
            relays: 2,
            relays_run: kind,
            exits: 1,
            exits_run: kind,
            clients_run: kind,
            authority: kind,
            patience: 2 * PATIENCE,
            stopped: self.options.stopped,
            progress: self.options.progress,
            ..Plan::of_weft(self.options.weft.clone())
        })?;
        let client = network.clients().first().context("a client")?;
        let (proxy, server) = (client.socks(), network.server().address());
        self.small(Figure::WarmFirstByteAlone, name, proxy, server, seed)?;
        let speed = self.one_stream(proxy, network.server(), seed)?;
        self.note(Figure::OneStreamAlone, name, speed);
        let speed = match program.without_conflux() {
            None => speed,
            Some(program) => {
                let proxy = network
                    .add_client("single", &program, &[], PATIENCE)?
                    .socks();
                self.one_stream(proxy, network.server(), seed)?
            }
        };
        self.note(Figure::OneCircuitAlone, name, speed);
        network.stop()
    }

    /// A client from nothing.
    fn client(
        &mut self,
        network: &mut Network,
        name: &'static str,
        program: &Program,
        seed: u64,
    ) -> Result<()> {
        self.clients += 1;
        let nickname = format!("surfer{}", self.clients);
        let first = first_byte(network, &nickname, program, &self.server, PATIENCE)?;
        self.note(Figure::FromNothing, name, first.as_secs_f64());
        let proxy = network.proxy(&nickname)?.socks();
        let server = self.server.address();
        self.small(Figure::WarmFirstByte, name, proxy, server, seed)?;
        let speed = self.one_stream(proxy, &self.server, seed)?;
        self.note(Figure::OneStream, name, speed);
        for (figure, direction) in [
            (Figure::ClientDown, Direction::Down),
            (Figure::ClientUp, Direction::Up),
        ] {
            let proxy = network.proxy(&nickname)?;
            // Circuits for every stream's user are there before they are measured.
            let load = Surf {
                streams: self.options.streams,
                bytes: 100_000,
                direction,
                seed,
            };
            surf(proxy.socks(), &self.server, load, &[proxy.node()])?;
            let load = Surf {
                bytes: self.options.bytes,
                ..load
            };
            let moved = surf(proxy.socks(), &self.server, load, &[proxy.node()])?;
            self.note(figure, name, moved.cpu_per_gigabyte(0));
        }
        let peak = network.proxy(&nickname)?.node().usage()?.peak_rss;
        self.note(Figure::ClientMemory, name, peak as f64 / 1e6);
        network.stop_proxy(&nickname)?;
        let speed = match program.without_conflux() {
            None => speed,
            Some(program) => {
                let nickname = format!("single{}", self.clients);
                first_byte(network, &nickname, &program, &self.server, PATIENCE)?;
                let proxy = network.proxy(&nickname)?.socks();
                let speed = self.one_stream(proxy, &self.server, seed)?;
                network.stop_proxy(&nickname)?;
                speed
            }
        };
        self.note(Figure::OneCircuit, name, speed);
        Ok(())
    }

    /// How fast one large download is, in Mbit/s.
    fn one_stream(&self, proxy: SocketAddr, server: &Server, seed: u64) -> Result<f64> {
        let load = Surf {
            streams: 1,
            bytes: self.options.bytes * self.options.streams as u64,
            direction: Direction::Down,
            seed,
        };
        Ok(surf(proxy, server, load, &[])?.megabits_per_second())
    }
}
