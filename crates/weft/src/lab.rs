//! `weft lab`: experiments in private networks.

mod attack;
mod soak;
mod up;

use std::ffi::OsString;
use std::io;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};
use indicatif::ProgressBar;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use weft_lab::machine::Cpus;
use weft_lab::throughput::{
    Options, Progress, Results, Rule, Sizes, Which, figures, free_memory, run,
};

use weft_plot::Folder;

use crate::bench::{progress_bar, seconds};

/// Experiments in private networks on loopback.
#[derive(Debug, Parser)]
#[command(name = "weft lab", bin_name = "weft lab")]
struct Lab {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Throughput(Box<ThroughputWords>),
    Up(up::UpWords),
    Attack(Box<attack::AttackArgs>),
    Soak(Box<soak::SoakArgs>),
}

/// Measures what a relay sustains in the middle of a private network, as Engler and Goldberg did
/// (seeds/000, section 5.2).
///
/// C tor's clients, entries and exits stand around one target. Each circuit goes through an entry, the
/// target and an exit, and carries one upload to a server; all uploads begin at once. The bytes that
/// the target moves are read every 500 ms, and the maximum of their moving average is its sustained
/// throughput; the server notes the first and last byte of each stream. Targets take turns, freshly
/// started for each run.
///
/// All of it runs on this machine, on loopback; `tor` must be installed. Results go into a new folder:
/// results.json, bytes.csv, streams.csv and Figures 7, 8 and 9 as SVG and PNG. Ctrl-C ends the
/// experiment; what was measured until then is in the folder. The exit status is 1 if a run failed or
/// is missing.
#[derive(Debug, Args)]
struct ThroughputWords {
    /// What to put in the middle, with commas between: tor, weft, weft:THREADS [default: tor, and
    /// weft with 0, 1, 2 … connection threads, up to the cores].
    #[arg(long, value_delimiter = ',', value_name = "PROGRAM")]
    target: Vec<Which>,
    /// Run the weft at this path, not this one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,

    /// The row of the paper's Table 1.
    #[arg(long, value_enum, default_value_t = Setting::IntelServer)]
    setting: Setting,
    /// The part of that row's clients, entries and exits, up to 1 [default: what this machine holds].
    #[arg(long, value_parser = scale)]
    scale: Option<f64>,
    /// Client proxies [default: by scale].
    #[arg(long, value_name = "N")]
    clients: Option<usize>,
    /// Entry relays [default: by scale].
    #[arg(long, value_name = "N")]
    entries: Option<usize>,
    /// Exit relays [default: by scale].
    #[arg(long, value_name = "N")]
    exits: Option<usize>,
    /// Circuits of each client, with one stream each [default: by setting].
    #[arg(long, value_name = "N")]
    streams: Option<usize>,
    /// Data of each stream: bytes, or with kB, MB, KiB or MiB at the end [default: by setting].
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    data: Option<u64>,

    /// How often each target is measured.
    #[arg(long, value_name = "N", default_value_t = 10)]
    repetitions: u32,
    /// Seconds at the beginning of a run that do not count for throughput.
    #[arg(long, value_name = "S", default_value = "30", value_parser = seconds)]
    discard: Duration,
    /// Length of the moving average, in seconds. If runs are too short, this and --discard are made
    /// shorter in proportion, for all runs alike, and the plot says so.
    #[arg(long, value_name = "S", default_value = "30", value_parser = seconds)]
    window: Duration,
    /// The data is a function of this.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// The new folder for the results [default: throughput-DATE-TIME].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// What to print at the end.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
    /// Draw the plots of an earlier experiment's folder again, and measure nothing.
    #[arg(long, value_name = "DIR", exclusive = true)]
    plots: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Setting {
    /// 150 clients, 300 entries, 300 exits; 10 streams of 10 MiB for each client.
    IntelServer,
    /// 100 clients, 300 entries, 300 exits; 6 streams of 5 MiB for each client.
    RaspberryPi,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A table.
    Human,
    /// The results as one JSON object.
    Json,
}

/// Does what the words after `weft` ask for, `lab` being the first.
pub(crate) fn main(words: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let lab = match Lab::try_parse_from(words) {
        Ok(lab) => lab,
        Err(error) => {
            error.print().context("cannot print")?;
            return Ok(match error.exit_code() {
                0 => ExitCode::SUCCESS,
                _ => ExitCode::FAILURE,
            });
        }
    };
    match lab.what {
        What::Throughput(words) => throughput(&words),
        What::Up(words) => up::up(&words),
        What::Attack(args) => attack::attack(&args),
        What::Soak(args) => soak::soak(&args),
    }
}

/// Set by signals. The network asks a plain function.
static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

fn throughput(words: &ThroughputWords) -> Result<ExitCode> {
    if let Some(folder) = &words.plots {
        return draw_again(folder);
    }
    let options = options(words)?;
    let stop = STOP.get_or_init(Arc::default);
    crate::stop::set_on_signals(stop)?;
    let now = OffsetDateTime::now_utc();
    let path = match &words.out {
        Some(path) => path.clone(),
        None => {
            let name = now.format(format_description!(
                "throughput-[year]-[month]-[day]-[hour][minute][second]"
            ))?;
            name.into()
        }
    };
    let folder = Folder::create(&path)?;
    let bar = progress_bar();
    let mut shown = 0;
    let outcome = run(
        &options,
        &folder,
        &now.format(&Rfc3339)?,
        stop,
        &mut |progress| {
            show(&bar, &progress, &mut shown);
        },
    );
    bar.finish_and_clear();
    let results = outcome?;
    if results.runs.is_empty() {
        bail!("stopped before anything was measured");
    }
    if !results.summaries.is_empty() {
        figures::draw(&results, &folder)?;
    }
    let text = match words.format {
        Format::Human => format!(
            "{results}\nResults and plots are in {}.\n",
            folder.path().display()
        ),
        Format::Json => serde_json::to_string_pretty(&results)? + "\n",
    };
    io::stdout()
        .write_all(text.as_bytes())
        .context("cannot write to standard output")?;
    Ok(status(&results))
}

/// Whether all runs were made and came to their ends.
fn status(results: &Results) -> ExitCode {
    match results.finished && results.runs.iter().all(|run| run.failure.is_none()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn draw_again(path: &Path) -> Result<ExitCode> {
    let folder = Folder::existing(path)?;
    let results = Results::read(&path.join("results.json"))?;
    for file in figures::draw(&results, &folder)? {
        println!("{}", file.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn options(words: &ThroughputWords) -> Result<Options> {
    let (setting, whole) = match words.setting {
        Setting::IntelServer => ("Intel Server", Sizes::INTEL_SERVER),
        Setting::RaspberryPi => ("Raspberry Pi", Sizes::RASPBERRY_PI),
    };
    let cpus = Cpus::here();
    let scale = match words.scale {
        Some(scale) => scale,
        None => whole.scale_for(free_memory(), cpus.cores.len()),
    };
    let scaled = whole.scaled(scale);
    let sizes = Sizes {
        clients: words.clients.unwrap_or(scaled.clients),
        entries: words.entries.unwrap_or(scaled.entries),
        exits: words.exits.unwrap_or(scaled.exits),
        streams_per_client: words.streams.unwrap_or(scaled.streams_per_client),
        bytes_per_stream: words.data.unwrap_or(scaled.bytes_per_stream),
    };
    let targets = match words.target.is_empty() {
        false => words.target.clone(),
        true => {
            let cores = u32::try_from(cpus.cores.len()).context("too many cores")?;
            let weft = (0..=cores).map(|threads| Which::Weft(Some(threads)));
            std::iter::once(Which::Tor).chain(weft).collect()
        }
    };
    let weft = weft_program(words.program.as_deref())?;
    Ok(Options {
        targets,
        weft,
        setting: setting.to_owned(),
        scale,
        sizes,
        repetitions: words.repetitions,
        rule: Rule {
            discard_s: words.discard.as_secs_f64(),
            window_s: words.window.as_secs_f64(),
        },
        seed: words.seed,
        stopped: || STOP.get().is_some_and(|stop| stop.load(Ordering::SeqCst)),
    })
}

/// The weft that nodes run: the one at this path, or this program.
fn weft_program(named: Option<&Path>) -> Result<PathBuf> {
    match named {
        Some(path) => {
            ensure!(path.is_file(), "there is no program at {}", path.display());
            // Nodes run in folders of their own.
            path.canonicalize()
                .with_context(|| format!("finding {}", path.display()))
        }
        None => std::env::current_exe().context("cannot find this program's own file"),
    }
}

/// On a terminal a bar; elsewhere a line for each run.
fn show(bar: &ProgressBar, progress: &Progress, shown: &mut usize) {
    let Some(target) = progress.target else {
        return;
    };
    let part = progress.run as f64 - 1.0 + progress.fraction;
    bar.set_position((part / progress.runs as f64 * 1000.0) as u64);
    bar.set_message(format!(
        "run {} of {}: {target}, {:.0} %",
        progress.run,
        progress.runs,
        progress.fraction * 100.0
    ));
    if bar.is_hidden() && *shown != progress.run {
        *shown = progress.run;
        eprintln!("run {} of {}: {target}", progress.run, progress.runs);
    }
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale <= 1.0 => Ok(scale),
        _ => Err("a scale is above 0 and at most 1".to_owned()),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (number, unit) = text.split_at(
        text.find(|c: char| c.is_ascii_alphabetic())
            .unwrap_or(text.len()),
    );
    let unit: u64 = match unit {
        "" | "B" => 1,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return Err(format!("{unit:?} is none of B, kB, MB, KiB, MiB")),
    };
    let number: u64 = number
        .trim()
        .parse()
        .map_err(|_| "no number of bytes".to_owned())?;
    number
        .checked_mul(unit)
        .filter(|bytes| *bytes <= 1 << 40)
        .ok_or_else(|| "more than a tebibyte for each stream".to_owned())
}
