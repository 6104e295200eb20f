//! The command `weft lab relay`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::ValueEnum;
use weft_cell::identity::Ed25519Identity;
use weft_plot::Style;
use weft_stats::bounds::{Bounds, SEED};
use weft_testnet::programs::{check_program, lab_program, weft_program};

use super::capacity::{Capacity, P99, RESOLUTION, STEPS};
use super::live::Preset;
use super::mode::{Direction, Mode};
use super::options::{CIRCUITS, LINKS, Options, RATE, Target, WINDOW};
use super::program::Program;
use super::report::PAYLOAD_PER_CELL;
use super::{aim, pin, report, search};
use crate::args::{CONNECTION_THREADS, LASTS, PATIENCE, PAUSE, THREADS};
use crate::experiment::{self, Experiment, Format, Output, Place, Prepared, Progress, Session};

/// Puts a load on a relay and reports how it bears it.
///
/// The generator plays both neighbours of the relay: it opens links to it, builds circuits over
/// them, has the relay extend each to one of its own relays, and drives cells through. Nothing else
/// is needed: no consensus, no other relay.
///
/// Cells are driven as fast as windows of cells in flight let them (full speed), or at a fixed rate
/// (--rate). Goodput counts 498 bytes for a cell, what it can carry as data. A gigabyte is 10^9
/// bytes of it.
///
/// Without --target, name a relay that runs: by --address and --data-directory, or by --descriptors,
/// or by --address, --fingerprint and --ntor-key. It must be your own, on loopback or in a private
/// network, with ExtendAllowPrivateAddresses 1, DoSConnectionEnabled 0 and
/// DoSCircuitCreationEnabled 0.
///
/// The exit status is 1 if the run did not come to its planned end; what was measured is printed all
/// the same.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Start this program, alone on loopback, and measure it: weft, weft:THREADS, tor, arti (the
    /// program arti-relay), or pipe (the physical limit: TLS and one pass of AES for each cell,
    /// nothing else).
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["address", "data_directory", "descriptors", "fingerprint", "ntor_key", "ed25519", "pid"])]
    target: Option<String>,
    /// Start the program at this path, not this weft or the tor or arti-relay that is installed.
    #[arg(long, value_name = "FILE", requires = "target")]
    program: Option<PathBuf>,

    /// The relay's ORPort.
    #[arg(long, value_name = "IP:PORT")]
    address: Option<SocketAddr>,
    /// The relay's DataDirectory, or state_dir of Arti's relay: its keys are read there.
    #[arg(long, value_name = "DIR")]
    data_directory: Option<PathBuf>,
    /// A file with the relay's server descriptor or microdescriptor, such as cached-descriptors.
    #[arg(long, value_name = "FILE")]
    descriptors: Option<PathBuf>,
    /// The relay's nickname or fingerprint, where that file has several.
    #[arg(long, value_name = "NAME", requires = "descriptors")]
    relay: Option<String>,
    /// The relay's RSA identity: 40 hexadecimal digits.
    #[arg(long, value_name = "HEX")]
    fingerprint: Option<String>,
    /// The relay's ntor onion key, base64.
    #[arg(long, value_name = "BASE64")]
    ntor_key: Option<String>,
    /// The relay's ed25519 identity, base64; not checked without.
    #[arg(long, value_name = "BASE64")]
    ed25519: Option<String>,
    /// The relay's process on this machine: its CPU time and memory are measured.
    #[arg(long, value_parser = PID.parser())]
    pid: Option<u32>,

    /// Quantity to measure.
    #[arg(long, value_enum, default_value_t = Mode::Cells)]
    mode: Mode,
    /// Distribution of cells over circuits and time. The live loads are those of a relay of the
    /// public network, as far as they are published: most circuits carry a handful of cells and
    /// most links are idle, circuits live for minutes and new ones replace them, links close and
    /// open. The relay that is started gets the public consensus's KISTSchedRunInterval 3.
    #[arg(long, value_enum, default_value_t = LoadKind::Even)]
    load: LoadKind,
    /// Direction of cells: up is forward, from the circuit's origin [default: download]. The live
    /// loads have both directions.
    #[arg(long, value_enum)]
    direction: Option<Direction>,
    /// Circuits through the relay [default: 20; live: 12500, live-guard 4000].
    #[arg(long, value_parser = CIRCUITS.parser())]
    circuits: Option<usize>,
    /// Links of the relay [default: 4; live: 2000]: half of them ours to it, half its own to us; of
    /// live-guard four fifths are ours, of live-exit-side three quarters. With --mode onionskins,
    /// links or idle-links all are ours.
    #[arg(long, value_parser = LINKS.parser())]
    links: Option<usize>,
    /// Cells of a circuit in one direction that may be on their way [default: 20000 divided by the
    /// circuits, between 16 and 500; live: 500]; with --mode onionskins, unanswered CREATE2 cells of a
    /// link [default: 32].
    #[arg(long, value_name = "CELLS", value_parser = WINDOW.parser())]
    window: Option<u64>,
    /// Send at this rate over all circuits, in each direction: cells per second, or payload bytes
    /// per second with B, kB or MB at the end. Of a live load it is the mean of both directions
    /// together [default: what so many circuits carry if they live as long as measured, 9.2 minutes];
    /// the higher it is, the sooner circuits end, so that each carries as much as before.
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// Look for the highest rate at which p99 stays under a bound and no cell or circuit is lost: the
    /// rate is doubled from --rate (5MB without it, and a live load's own) until the relay fails, and
    /// then bisected. Each try takes --warm-up and --seconds.
    #[arg(long)]
    capacity: bool,
    /// The bound of p99, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 50.0, requires = "capacity", value_parser = P99.parser())]
    p99_bound: f64,
    /// Rates that are tried at most.
    #[arg(long, value_name = "N", default_value_t = 12, requires = "capacity", value_parser = STEPS.parser())]
    capacity_steps: u32,
    /// Largest distance between the highest rate that passed and the lowest that failed, in
    /// percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, requires = "capacity", value_parser = RESOLUTION.parser())]
    resolution: f64,
    /// Have the weft that is started count its turns, and how often it reads and writes sockets, for each
    /// cell. It then has a MetricsPort, which takes some memory.
    #[arg(long, requires = "target")]
    counters: bool,
    /// Threads that answer onionskins, of the relay that is started (its NumCPUs); without it, as many as it chooses.
    #[arg(long, value_name = "N", requires = "target", value_parser = WORKERS.parser())]
    workers: Option<u32>,
    /// Length of the measurement, in seconds.
    #[arg(long, value_name = "S", default_value = "10", value_parser = LASTS.parser())]
    seconds: Duration,
    /// Length of the load before the measurement, in seconds; with --mode idle-links and
    /// idle-circuits, time to let memory settle.
    #[arg(long, value_name = "S", default_value = "2", value_parser = PAUSE.parser())]
    warm_up: Duration,
    /// Longest wait for a sign of life from the relay, in seconds.
    #[arg(long, value_name = "S", default_value = "20", value_parser = PATIENCE.parser())]
    timeout: Duration,
    /// Threads of the generator.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = THREADS.parser())]
    generator_threads: usize,
    /// Bind relay and generator to processors: the relay's, a slash, the generator's, as in 0/1 or
    /// 0-3/4,5.
    #[arg(long, value_name = "CPUS/CPUS")]
    pin: Option<String>,
    /// The address of the generator's own relays. Arti's relay extends to no loopback or private
    /// address: docs/measuring.md explains which serves.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    own_address: IpAddr,
    /// The generator's keys and noise are functions of this.
    #[arg(long, default_value_t = 1, value_parser = SEED.parser())]
    seed: u64,

    /// Output at the end.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
    /// Write there and not to standard output; a file that exists is left alone.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Distribution of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LoadKind {
    /// Every circuit carries as much as the next, at full speed or at --rate
    Even,
    /// Many clients before the relay, other relays behind it
    LiveGuard,
    /// Guards before it, exits behind it
    LiveMiddle,
    /// Many relays before it, few exits behind it
    LiveExitSide,
}

impl LoadKind {
    fn preset(self) -> Option<Preset> {
        match self {
            LoadKind::Even => None,
            LoadKind::LiveGuard => Some(Preset::Guard),
            LoadKind::LiveMiddle => Some(Preset::Middle),
            LoadKind::LiveExitSide => Some(Preset::ExitSide),
        }
    }
}

/// NumCPUs of C tor, which takes no more than 128.
const WORKERS: Bounds<u32> = Bounds::new(1, 128);
/// Linux has no more processes.
const PID: Bounds<u32> = Bounds::new(1, 1 << 22);

impl Experiment for Options {
    const FOLDER: &'static str = "relay";
    type Args = Args;
    type Report = report::Report;

    fn prepare(args: &Args) -> Result<Prepared<Options>> {
        let pins = args.pin.as_deref().map(pin::both).transpose()?;
        let (target_cpus, generator_cpus) = pins.unwrap_or_default();
        let live = args.load.preset();
        if let (Some(preset), Some(direction)) = (live, args.direction) {
            bail!(
                "--load {} goes both ways as circuits of the public network do: it has no --direction {}",
                preset.name(),
                direction.name()
            );
        }
        let shape = live.map(Preset::shape);
        let options = Options {
            target: target(args)?,
            mode: args.mode,
            live,
            capacity: args.capacity.then_some(Capacity {
                p99_ms: args.p99_bound,
                steps: args.capacity_steps,
                resolution: args.resolution,
            }),
            counters: args.counters,
            workers: args.workers,
            direction: match live {
                Some(_) => Direction::Both,
                None => args.direction.unwrap_or(Direction::Download),
            },
            circuits: args
                .circuits
                .or(shape.map(|shape| shape.circuits))
                .unwrap_or(20),
            links: args.links.or(shape.map(|shape| shape.links)).unwrap_or(4),
            window: args.window,
            rate: args.rate,
            warm_up: args.warm_up,
            seconds: args.seconds,
            threads: args.generator_threads,
            target_cpus,
            generator_cpus,
            patience: args.timeout,
            own_ip: args.own_address,
            seed: args.seed,
        };
        let output = Output {
            place: Place::Report(args.out.clone()),
            format: args.format,
            style: Style::default(),
        };
        Ok(Prepared::Run(options, output))
    }

    fn run(&self, session: &mut Session<'_>) -> Result<report::Report> {
        let stop = session.stop();
        search::run(self, stop.flag(), &mut |progress| {
            let mut detail = progress.doing.to_owned();
            if progress.per_second > 0.0 {
                detail += &format!(", {:.0}/s", progress.per_second);
            }
            session.progress(&Progress {
                done: progress.fraction,
                step: String::new(),
                detail,
            });
        })
    }
}

impl experiment::Report for report::Report {
    fn is_empty(&self) -> bool {
        // The report has the error, if one occurred once the target was known.
        false
    }

    fn is_passed(&self) -> bool {
        self.complete
    }

    fn failure(&self) -> Option<String> {
        let why = self.why.as_deref();
        let why = why.unwrap_or("the run did not come to its end");
        (!self.complete).then(|| why.to_owned())
    }
}

fn target(args: &Args) -> Result<Target> {
    if let Some(name) = &args.target {
        let weft = || weft_program(args.program.as_deref());
        let program = match name.split_once(':').unwrap_or((name, "")) {
            ("weft", "") => Program::Weft(weft()?, None),
            ("weft", threads) => {
                let threads = CONNECTION_THREADS
                    .parse(threads)
                    .map_err(|why| anyhow!("{threads:?} is no number of threads: {why}"))?;
                Program::Weft(weft()?, Some(threads))
            }
            ("tor", "") => Program::Tor(args.program.clone()),
            ("pipe", "") => Program::Pipe(lab_program(&weft()?)?),
            ("arti", "") => Program::Arti(args.program.clone()),
            _ => bail!(
                "{name:?} is no program to be measured: weft, weft:THREADS, tor, arti or pipe"
            ),
        };
        if let Some(path) = &args.program {
            check_program(path)?;
        }
        return Ok(Target::Start(program));
    }
    let mut known = aim::Known {
        address: args.address,
        rsa: args
            .fingerprint
            .as_deref()
            .map(aim::fingerprint)
            .transpose()?,
        ed25519: args
            .ed25519
            .as_deref()
            .map(aim::key)
            .transpose()?
            .map(Ed25519Identity),
        ntor: args.ntor_key.as_deref().map(aim::key).transpose()?,
    };
    if let Some(path) = &args.descriptors {
        known = known.or(aim::Known::from_descriptors(path, args.relay.as_deref())?);
    }
    if let Some(folder) = &args.data_directory {
        known = known.or(aim::Known::from_data_directory(folder)?);
    }
    let aim = known
        .aim()
        .context("name what to measure, by --target or by the relay's address and keys")?;
    Ok(Target::Relay(aim, args.pid))
}

fn rate(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let refused = || format!("{RATE}, or of payload bytes with B, kB or MB at the end");
    let (number, factor) = match text.find(|c: char| c.is_ascii_alphabetic()) {
        None => (text, 1.0),
        Some(at) => {
            let (number, unit) = text.split_at(at);
            let bytes = match unit {
                "B" => 1.0,
                "kB" => 1e3,
                "MB" => 1e6,
                _ => return Err(refused()),
            };
            (number, bytes / PAYLOAD_PER_CELL as f64)
        }
    };
    let number: Option<f64> = number.trim().parse().ok();
    let rate = number.map(|number| number * factor);
    rate.filter(|rate| RATE.allow(*rate)).ok_or_else(refused)
}
