//! The measurements, one after the other.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weft_load::bulk::{Circuits, Place};
use weft_load::interop::takes_over;
use weft_load::surf::{Surf, first_byte, surf};
use weft_testnet::network::{Config, Network, Program, Target, TargetOptions};
use weft_testnet::traffic::{Direction, Request, Server, transfer};
use weft_testnet::up::{Kind, More, Plan, Up};

use super::options::Options;
use super::results::{Figure, Results, SCHEMA, Sample, measures};
use crate::experiment::{Progress, Session, turns};
use weft_cli::print;
use weft_stats::Summary;

/// The relay that programs take turns to run.
const TARGET: &str = "target";
/// Longest time for a client from nothing to its first byte.
const PATIENCE: Duration = Duration::from_secs(90);
/// Guards and middle relays between a client and an exit of one program: as many as legs of a tunnel want.
const BETWEEN: usize = 6;
/// Legs of a tunnel.
const LEGS: usize = 5;
/// A small download.
const SMALL: u64 = 50 << 10;

/// One step of a repetition.
enum Step {
    /// A program as exit and as guard.
    Relay(&'static str, Program),
    /// A program as client of C tor's relays.
    Client(&'static str, Program),
    /// A program in a network of which it runs every node.
    Alone(&'static str, Program, Kind),
    /// A program as client and exit, with guards and middle relays of C tor between.
    Ends(&'static str, Program, Kind),
}

impl Step {
    fn words(&self) -> String {
        match self {
            Step::Relay(name, _) => format!("{name} as relay"),
            Step::Client(name, _) => format!("{name} as client"),
            Step::Alone(name, ..) => format!("{name} alone"),
            Step::Ends(name, ..) => format!("{name} as client and exit"),
        }
    }
}

/// Measures all roles, and keeps the results after each step.
///
/// # Errors
///
/// The network does not start, or a program does not do its role: nothing is left out silently.
pub(super) fn roles(options: &Options, session: &mut Session<'_>) -> Result<Results> {
    let stop = session.stop();
    let mut results = empty(options, session);
    let weft = Program::weft(&options.weft, Some(options.threads))?;
    let tor = Program::tor()?;
    let (tor_client, weft_client) = (Program::tor_of_its_own()?, weft.clone());
    let mut steps = vec![
        Step::Relay("tor", tor),
        Step::Relay("weft", weft.clone()),
        Step::Client("tor", tor_client.clone()),
        Step::Client("weft", weft_client.clone()),
    ];
    if let Some(path) = &options.arti {
        steps.push(Step::Client("arti", Program::arti(path)?));
        results.arti = Some(arti_version(path)?);
    }
    steps.push(Step::Alone("tor", tor_client.clone(), Kind::Tor));
    steps.push(Step::Alone("weft", weft_client.clone(), Kind::Weft));
    steps.push(Step::Ends("tor", tor_client, Kind::Tor));
    steps.push(Step::Ends("weft", weft_client, Kind::Weft));
    let config = Config {
        authorities: 1,
        guards: 2,
        exits: 2,
        clients: 2,
        stop: stop.clone(),
        ..Config::default()
    };
    let target = Target::new(TARGET, weft).options(TargetOptions {
        exit: true,
        ..TargetOptions::default()
    });
    let mut network = Network::start(config, vec![target])?;
    let mut lab = Lab {
        options,
        session,
        server: Server::start()?,
        figures: Vec::new(),
        clients: 0,
    };
    for turn in turns(options.repetitions, steps.len()) {
        let Some(step) = steps.get(turn.subject) else {
            continue;
        };
        if stop.is_requested() {
            return Ok(results);
        }
        lab.session.progress(&Progress {
            done: turn.done(),
            step: format!(
                "repetition {} of {}: {}",
                turn.repetition,
                options.repetitions,
                step.words()
            ),
            detail: String::new(),
        });
        let seed = options
            .seed
            .wrapping_add(1000 * u64::from(turn.repetition - 1));
        let outcome = lab.measure(&mut network, step, seed);
        if stop.is_requested() {
            // An interrupted measurement is no failure.
            return Ok(results);
        }
        outcome?;
        results.measures = measures(&lab.figures);
        results.finished = turn.number == turn.of;
        lab.session.keep(&results)?;
    }
    Ok(results)
}

/// Without what is to be found.
fn empty(options: &Options, session: &Session<'_>) -> Results {
    Results {
        schema: SCHEMA,
        started_at: session.started_at().to_owned(),
        finished: false,
        machine: session.machine(),
        versions: match &options.checkout {
            Some(checkout) => session.versions_built_from(&options.weft, checkout),
            None => session.versions(Some(&options.weft)),
        },
        arti: None,
        threads: options.threads,
        streams: options.streams,
        bytes: options.bytes,
        repetitions: options.repetitions,
        seed: options.seed,
        measures: Vec::new(),
    }
}

/// Arti's version in one line, with its runtime, its TLS and its optional features.
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

struct Lab<'a, 's> {
    options: &'a Options,
    session: &'a mut Session<'s>,
    server: Server,
    figures: Vec<Sample>,
    clients: usize,
}

impl Lab<'_, '_> {
    fn measure(&mut self, network: &mut Network, step: &Step, seed: u64) -> Result<()> {
        match step {
            Step::Relay(name, program) => self
                .relay(network, name, program, seed)
                .with_context(|| format!("{name} as relay")),
            Step::Client(name, program) => self
                .client(network, name, program, seed)
                .with_context(|| format!("{name} as client")),
            Step::Alone(name, program, kind) => self
                .alone(name, *kind, program, seed)
                .with_context(|| format!("a network of {name} alone")),
            Step::Ends(name, program, kind) => self
                .ends(name, *kind, program, seed)
                .with_context(|| format!("{name} as client and exit")),
        }
    }

    fn note(&mut self, figure: Figure, program: &'static str, value: f64) {
        self.session
            .note(&format!("{program}: {} {value:.3}", figure.words()));
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
                Err(_) if start.elapsed() < PATIENCE && !self.session.stop().is_requested() => {
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
            stop: self.session.stop(),
            progress: |line| print::note(line),
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

    /// A network of C tor's guards and middle relays between a client and an exit of one program.
    fn ends(&mut self, name: &'static str, kind: Kind, program: &Program, seed: u64) -> Result<()> {
        // Relays of C tor try circuits of their own, of which some come back to them in so small a network.
        let alone = "__DisablePredictedCircuits 1".to_owned();
        let exits = match kind {
            Kind::Weft => vec![
                format!("ConnectionThreads {}", self.options.threads),
                "MultipathExit 1".to_owned(),
            ],
            Kind::Tor | Kind::Mixed => vec![alone.clone()],
        };
        let mut network = Up::start(&Plan {
            relays: BETWEEN,
            relays_run: Kind::Tor,
            exits: 1,
            exits_run: kind,
            clients: 0,
            authority: Kind::Tor,
            patience: 2 * PATIENCE,
            stop: self.session.stop(),
            progress: |line| print::note(line),
            more: More {
                relays: vec![alone],
                exits,
                ..More::default()
            },
            ..Plan::of_weft(self.options.weft.clone())
        })?;
        let users: Vec<String> = (0..self.options.streams)
            .map(|number| format!("stream{number}"))
            .collect();
        let tunnels = [
            format!("MultipathCircuits {LEGS}"),
            format!("MultipathUsers {}", users.join(",")),
        ];
        let single = program.without_conflux();
        let mut ways = vec![(Figure::ExitConflux, program.clone(), Vec::new())];
        ways.extend(single.map(|program| (Figure::ExitOneCircuit, program, Vec::new())));
        if program.is_weft() {
            ways.push((Figure::ExitTunnel, program.clone(), tunnels.to_vec()));
        }
        for (figure, program, more) in ways {
            let nickname = format!("{figure:?}").to_lowercase();
            let proxy = network
                .add_client(&nickname, &program, &more, PATIENCE)?
                .socks();
            // Circuits for every stream's user are there before they are measured.
            let warm = Surf {
                streams: self.options.streams,
                bytes: 100_000,
                direction: Direction::Down,
                seed,
            };
            surf(proxy, network.server(), warm, &[])?;
            let load = Surf {
                bytes: self.options.bytes,
                ..warm
            };
            let exit = network.node("exit0")?;
            let moved = surf(proxy, network.server(), load, &[exit])?;
            self.note(figure, name, moved.cpu_per_gigabyte(0));
            if figure == Figure::ExitConflux {
                let speed = self.one_stream(proxy, network.server(), seed)?;
                self.note(Figure::OneStreamEnds, name, speed);
            }
        }
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

    /// Speed of one large download, in Mbit/s.
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
