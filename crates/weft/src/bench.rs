//! `weft bench`: measuring a relay.

use std::io::{IsTerminal as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use std::{ffi::OsString, fs, io};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use weft_lab::bench::report::{PAYLOAD_PER_CELL, Report};
use weft_lab::bench::start::Program;
use weft_lab::bench::{Direction, Mode, Options, Progress, Target, aim, pin, pipe, run};

/// Measures a Tor relay, and what limits any relay on this machine.
#[derive(Debug, Parser)]
#[command(name = "weft bench", bin_name = "weft bench")]
struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Relay(Box<RelayWords>),
    Pipe(PipeWords),
}

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
#[derive(Debug, Args)]
struct RelayWords {
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
    #[arg(long)]
    pid: Option<u32>,

    /// What to measure.
    #[arg(long, value_enum, default_value_t = ModeWord::Cells)]
    mode: ModeWord,
    /// Which way cells go: up is away from the origin.
    #[arg(long, value_enum, default_value_t = DirectionWord::Download)]
    direction: DirectionWord,
    /// Circuits through the relay.
    #[arg(long, default_value_t = 20)]
    circuits: usize,
    /// Links of the relay: half of them ours to it, half its own to us. With --mode onionskins,
    /// links or idle-links all are ours.
    #[arg(long, default_value_t = 4)]
    links: usize,
    /// Cells of a circuit in one direction that may be on their way [default: 20000 divided by the
    /// circuits, between 16 and 500]; with --mode onionskins, unanswered CREATE2 cells of a link
    /// [default: 32].
    #[arg(long, value_name = "CELLS")]
    window: Option<u64>,
    /// Send at this rate over all circuits, in each direction: cells per second, or payload bytes
    /// per second with B, kB or MB at the end.
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// How long to measure, in seconds.
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    seconds: Duration,
    /// How long the load is on before that, in seconds; how long to let memory settle with --mode
    /// idle-links and idle-circuits.
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    warm_up: Duration,
    /// How long to wait for a sign of life from the relay, in seconds.
    #[arg(long, value_name = "S", default_value = "20", value_parser = seconds)]
    timeout: Duration,
    /// Threads of the generator.
    #[arg(long, value_name = "N", default_value_t = 1)]
    generator_threads: usize,
    /// Bind relay and generator to processors: the relay's, a slash, the generator's, as in 0/1 or
    /// 0-3/4,5.
    #[arg(long, value_name = "CPUS/CPUS")]
    pin: Option<String>,
    /// The address of the generator's own relays. Arti's relay extends to no loopback or private
    /// address: docs/measuring.md says which serves.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    own_address: IpAddr,
    /// The generator's keys and noise are functions of this.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// What to print.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
    /// Write there and not to standard output; a file that exists is left alone.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs a bare pipe: each link that it accepts goes on to another address, through TLS and one pass
/// of AES for each cell. It ends on SIGINT or SIGTERM.
#[derive(Debug, Args)]
struct PipeWords {
    /// Where to listen.
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,
    /// Where to connect to.
    #[arg(long, value_name = "IP:PORT")]
    connect: SocketAddr,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeWord {
    /// Cells on circuits that are there.
    Cells,
    /// How many circuits the relay makes in a second.
    Onionskins,
    /// How many links the relay opens in a second.
    Links,
    /// Memory of idle links.
    IdleLinks,
    /// Memory of idle circuits.
    IdleCircuits,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DirectionWord {
    #[value(alias = "up")]
    Upload,
    #[value(alias = "down")]
    Download,
    Both,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A table.
    Human,
    /// One JSON object.
    Json,
}

/// Does what the words after `weft` ask for, `bench` being the first.
pub(crate) fn main(words: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let bench = match Bench::try_parse_from(words) {
        Ok(bench) => bench,
        Err(error) => {
            error.print().context("cannot print")?;
            return Ok(match error.exit_code() {
                0 => ExitCode::SUCCESS,
                _ => ExitCode::FAILURE,
            });
        }
    };
    let stop = crate::stop::on_signals()?;
    match bench.what {
        What::Relay(words) => relay(&words, &stop),
        What::Pipe(words) => {
            pipe::run(words.listen, words.connect, &stop)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn relay(words: &RelayWords, stop: &AtomicBool) -> Result<ExitCode> {
    let (target_cpus, generator_cpus) = match &words.pin {
        None => (Vec::new(), Vec::new()),
        Some(cpus) => {
            let (target, generator) = cpus
                .split_once('/')
                .context("--pin wants the relay's processors, a slash, the generator's")?;
            (pin::parse(target)?, pin::parse(generator)?)
        }
    };
    let options = Options {
        target: target(words)?,
        mode: match words.mode {
            ModeWord::Cells => Mode::Cells,
            ModeWord::Onionskins => Mode::Onionskins,
            ModeWord::Links => Mode::Links,
            ModeWord::IdleLinks => Mode::IdleLinks,
            ModeWord::IdleCircuits => Mode::IdleCircuits,
        },
        direction: match words.direction {
            DirectionWord::Upload => Direction::Upload,
            DirectionWord::Download => Direction::Download,
            DirectionWord::Both => Direction::Both,
        },
        circuits: words.circuits,
        links: words.links,
        window: words.window,
        rate: words.rate,
        warm_up: words.warm_up,
        seconds: words.seconds,
        threads: words.generator_threads,
        target_cpus,
        generator_cpus,
        patience: words.timeout,
        own_ip: words.own_address,
        seed: words.seed,
    };
    // Before the measurement, so that it is not made for nothing.
    let mut file = match &words.out {
        None => None,
        Some(path) => Some(
            fs::File::create_new(path)
                .with_context(|| format!("{} is not overwritten", path.display()))?,
        ),
    };
    let bar = progress_bar();
    let outcome = run(&options, stop, &mut |progress| show(&bar, progress));
    bar.finish_and_clear();
    let report = match outcome {
        Ok(report) => report,
        Err(error) => {
            if let Some(path) = &words.out {
                // It is empty, and we have just made it.
                let _ = fs::remove_file(path);
            }
            return Err(error);
        }
    };
    let text = match words.format {
        Format::Human => report.to_string(),
        Format::Json => serde_json::to_string_pretty(&report)? + "\n",
    };
    match &mut file {
        Some(file) => file
            .write_all(text.as_bytes())
            .context("cannot write the report")?,
        None => io::stdout()
            .write_all(text.as_bytes())
            .context("cannot write to standard output")?,
    }
    Ok(status(&report))
}

/// A run that did not come to its end fails, and says why where nobody overlooks it.
fn status(report: &Report) -> ExitCode {
    if report.complete {
        return ExitCode::SUCCESS;
    }
    let why = report
        .why
        .as_deref()
        .unwrap_or("the run did not come to its end");
    eprintln!("weft: {}", why.replace('\n', "\nweft: "));
    ExitCode::FAILURE
}

fn target(words: &RelayWords) -> Result<Target> {
    if let Some(name) = &words.target {
        let this = || match &words.program {
            Some(path) => Ok(path.clone()),
            None => std::env::current_exe().context("cannot find this program's own file"),
        };
        let program = match name.split_once(':').unwrap_or((name, "")) {
            ("weft", "") => Program::Weft(this()?, None),
            ("weft", threads) => {
                let threads = threads
                    .parse()
                    .with_context(|| format!("{threads:?} is no number of threads"))?;
                Program::Weft(this()?, Some(threads))
            }
            ("tor", "") => Program::Tor(words.program.clone()),
            ("pipe", "") => Program::Pipe(this()?),
            ("arti", "") => Program::Arti(words.program.clone()),
            _ => bail!(
                "{name:?} is no program to be measured: weft, weft:THREADS, tor, arti or pipe"
            ),
        };
        if let Some(path) = &words.program {
            ensure!(path.is_file(), "there is no program at {}", path.display());
        }
        return Ok(Target::Start(program));
    }
    let mut known = aim::Known {
        address: words.address,
        rsa: words
            .fingerprint
            .as_deref()
            .map(aim::fingerprint)
            .transpose()?,
        ed25519: words.ed25519.as_deref().map(aim::key).transpose()?,
        ntor: words.ntor_key.as_deref().map(aim::key).transpose()?,
    };
    if let Some(path) = &words.descriptors {
        known = known.or(aim::Known::from_descriptors(path, words.relay.as_deref())?);
    }
    if let Some(folder) = &words.data_directory {
        known = known.or(aim::Known::from_data_directory(folder)?);
    }
    let aim = known
        .aim()
        .context("name what to measure, by --target or by the relay's address and keys")?;
    Ok(Target::Relay(aim, words.pid))
}

/// On a terminal only.
pub(crate) fn progress_bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(1000);
    // The template is a constant.
    if let Ok(style) = ProgressStyle::with_template("{msg:30} [{bar:30}] {percent:>3} %") {
        bar.set_style(style);
    }
    bar
}

fn show(bar: &ProgressBar, progress: &Progress) {
    bar.set_position((progress.fraction * 1000.0) as u64);
    let mut message = progress.doing.to_owned();
    if progress.per_second > 0.0 {
        message += &format!(", {:.0}/s", progress.per_second);
    }
    bar.set_message(message);
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| "no number of seconds".to_owned())?;
    Duration::try_from_secs_f64(number).map_err(|error| error.to_string())
}

fn rate(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (number, factor) = match text.find(|c: char| c.is_ascii_alphabetic()) {
        None => (text, 1.0),
        Some(at) => {
            let (number, unit) = text.split_at(at);
            let bytes = match unit {
                "B" => 1.0,
                "kB" => 1e3,
                "MB" => 1e6,
                _ => return Err(format!("{unit:?} is none of B, kB, MB")),
            };
            (number, bytes / PAYLOAD_PER_CELL as f64)
        }
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number * factor),
        _ => Err("no rate above 0".to_owned()),
    }
}
