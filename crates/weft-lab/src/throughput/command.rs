//! The command `weft lab throughput`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use weft_plot::{Folder, Style};
use weft_stats::bounds::{Bounds, SEED};
use weft_testnet::programs::weft_program;

use super::options::Options;
use super::results::Results;
use super::sizes::{Sizes, free_memory};
use super::sustained::Rule;
use super::which::Which;
use super::{figures, run};
use crate::args::{LASTS, PAUSE, REPETITIONS, STREAMS, bytes};
use crate::experiment::{Experiment, FolderArgs, Prepared, Report, Session};
use crate::machine::Cpus;
use crate::relay::pin;
use crate::report::Table;

/// Measures what a relay sustains in the middle of a private network, as Engler and Goldberg did
/// (2021, section 5.2).
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
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Programs in the middle, with commas between: tor, weft, weft:THREADS [default: tor, and weft
    /// with 0, 1, 2 … connection threads, up to the cores].
    #[arg(long, value_delimiter = ',', value_name = "PROGRAM")]
    target: Vec<Which>,
    /// Run the weft at this path, not this one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,

    /// The row of the paper's Table 1.
    #[arg(long, value_enum, default_value_t = Setting::IntelServer)]
    setting: Setting,
    /// The part of that row's clients, entries and exits, up to 1 [default: what this machine holds].
    #[arg(long, value_parser = PART.parser())]
    scale: Option<f64>,
    /// Client proxies [default: by scale].
    #[arg(long, value_name = "N", value_parser = NODES.parser())]
    clients: Option<usize>,
    /// Entry relays [default: by scale].
    #[arg(long, value_name = "N", value_parser = NODES.parser())]
    entries: Option<usize>,
    /// Exit relays [default: by scale].
    #[arg(long, value_name = "N", value_parser = NODES.parser())]
    exits: Option<usize>,
    /// Circuits of each client, with one stream each [default: by setting].
    #[arg(long, value_name = "N", value_parser = STREAMS.parser())]
    streams: Option<usize>,
    /// Data of each stream: bytes, or with kB, MB, KiB or MiB at the end [default: by setting].
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    data: Option<u64>,

    /// Measurements of each target.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = REPETITIONS.parser())]
    repetitions: u32,
    /// Seconds at the beginning of a run that do not count for throughput.
    #[arg(long, value_name = "S", default_value = "30", value_parser = PAUSE.parser())]
    discard: Duration,
    /// Length of the moving average, in seconds. If runs are too short, this and --discard are made
    /// shorter in proportion, for all runs alike, and the plot notes it.
    #[arg(long, value_name = "S", default_value = "30", value_parser = LASTS.parser())]
    window: Duration,
    /// The data is a function of this.
    #[arg(long, default_value_t = 1, value_parser = SEED.parser())]
    seed: u64,
    /// The program of entries and exits. Weft takes less processor time, so that more of the machine
    /// is left for the target; clients are C tor in either case.
    #[arg(long, value_enum, default_value_t = Around::Tor)]
    around: Around,
    /// Bind the target and all other nodes to processors: the target's, a slash, the others', as in
    /// 0/1 or 0-3/4,5.
    #[arg(long, value_name = "CPUS/CPUS")]
    pin: Option<String>,

    #[command(flatten)]
    folder: FolderArgs,
    /// Draw the plots of an earlier experiment's folder again, in the style of --style, and measure nothing.
    #[arg(long, value_name = "DIR", conflicts_with_all = OF_A_RUN)]
    plots: Option<PathBuf>,
}

/// Arguments of a measurement: not of drawing plots again.
const OF_A_RUN: [&str; 17] = [
    "target",
    "program",
    "setting",
    "scale",
    "clients",
    "entries",
    "exits",
    "streams",
    "data",
    "repetitions",
    "discard",
    "window",
    "seed",
    "around",
    "pin",
    "out",
    "within",
];

/// Clients, entries or exits: more than the paper had, and more than any machine has held so far.
const NODES: Bounds<usize> = Bounds::new(1, 2_000);
/// The part of the paper's network.
const PART: Bounds<f64> = Bounds::new(0.0001, 1.0);

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Setting {
    /// 150 clients, 300 entries, 300 exits; 10 streams of 10 MiB for each client.
    IntelServer,
    /// 100 clients, 300 entries, 300 exits; 6 streams of 5 MiB for each client.
    RaspberryPi,
}

/// Program of the nodes before and behind the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Around {
    /// The C tor that is installed
    Tor,
    /// The weft that is measured
    Weft,
}

impl Experiment for Options {
    const FOLDER: &'static str = "throughput";
    const TITLE: &'static str = "Throughput of a relay in a network";
    const QUESTION: &'static str = "What does a relay sustain in the middle of a private network (Engler and Goldberg 2021, section 5.2)?";
    type Args = Args;
    type Report = Results;

    fn prepare(args: &Args) -> Result<Prepared<Options>> {
        if let Some(folder) = &args.plots {
            return draw_again(folder, args.folder.output().style).map(Prepared::Text);
        }
        let options = options(args)?;
        options.check()?;
        Ok(Prepared::Run(options, args.folder.output()))
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Results> {
        run::throughput(self, session)
    }
}

impl Report for Results {
    fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// All runs were made and came to their ends.
    fn is_passed(&self) -> bool {
        self.finished && self.runs.iter().all(|run| run.failure.is_none())
    }

    fn tables(&self) -> Vec<Table> {
        vec![self.table()]
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            format!("{}.", self.size_in_words()),
            format!("{}.", self.rule_in_words()),
            format!("{}.", self.bottleneck_in_words()),
        ];
        notes.extend(self.runs.iter().filter_map(|run| {
            let why = run.failure.as_ref()?;
            Some(format!(
                "{}, repetition {}, failed: {why}",
                run.target, run.repetition
            ))
        }));
        notes
    }

    fn settings(&self) -> Vec<(String, String)> {
        let sizes = &self.sizes;
        let targets: Vec<String> = self.targets.iter().map(ToString::to_string).collect();
        [
            ("target", targets.join(", ")),
            ("scale", self.scale.to_string()),
            ("clients", sizes.clients.to_string()),
            ("entries", sizes.entries.to_string()),
            ("exits", sizes.exits.to_string()),
            ("streams", sizes.streams_per_client.to_string()),
            ("data", format!("{} bytes", sizes.bytes_per_stream)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn is_complete(&self) -> Option<bool> {
        Some(self.finished)
    }

    fn caption(&self, plot: &str) -> String {
        match plot {
            "figure7" => {
                "Maximum sustained throughput: medians of the repetitions, with their range."
            }
            "figure8" => "Time to the last byte of each stream, all repetitions together.",
            "figure9" => "Time to the first byte of each stream, all repetitions together.",
            _ => "",
        }
        .to_owned()
    }

    fn files(&self) -> Result<Vec<(&'static str, String)>> {
        self.data_files()
    }

    fn draw(&self, folder: &Folder) -> Result<Vec<PathBuf>> {
        match self.summaries.is_empty() {
            true => Ok(Vec::new()),
            false => figures::draw(self, folder),
        }
    }
}

/// Draws the plots of an earlier experiment, and returns their paths, one on a line.
fn draw_again(path: &Path, style: Style) -> Result<String> {
    let folder = Folder::existing(path)?.with_style(style);
    let results = Results::read(&path.join("results.json"))?;
    let plots = figures::draw(&results, &folder)?;
    Ok(plots
        .iter()
        .map(|file| format!("{}\n", file.display()))
        .collect())
}

fn options(args: &Args) -> Result<Options> {
    let (setting, whole) = match args.setting {
        Setting::IntelServer => ("Intel Server", Sizes::INTEL_SERVER),
        Setting::RaspberryPi => ("Raspberry Pi", Sizes::RASPBERRY_PI),
    };
    let cpus = Cpus::here();
    let scale = match args.scale {
        Some(scale) => scale,
        None => whole.scale_for(free_memory(), cpus.cores.len()),
    };
    let scaled = whole.scaled(scale);
    let sizes = Sizes {
        clients: args.clients.unwrap_or(scaled.clients),
        entries: args.entries.unwrap_or(scaled.entries),
        exits: args.exits.unwrap_or(scaled.exits),
        streams_per_client: args.streams.unwrap_or(scaled.streams_per_client),
        bytes_per_stream: args.data.unwrap_or(scaled.bytes_per_stream),
    };
    let targets = match args.target.is_empty() {
        false => args.target.clone(),
        true => {
            let cores = u32::try_from(cpus.cores.len()).context("too many cores")?;
            let weft = (0..=cores).map(|threads| Which::Weft(Some(threads)));
            std::iter::once(Which::Tor).chain(weft).collect()
        }
    };
    let weft = weft_program(args.program.as_deref())?;
    let pins = args.pin.as_deref().map(pin::both).transpose()?;
    let (target_cpus, other_cpus) = pins.unwrap_or_default();
    Ok(Options {
        targets,
        weft,
        setting: setting.to_owned(),
        scale,
        sizes,
        repetitions: args.repetitions,
        rule: Rule {
            discard_s: args.discard.as_secs_f64(),
            window_s: args.window.as_secs_f64(),
        },
        seed: args.seed,
        weft_around: args.around == Around::Weft,
        target_cpus,
        other_cpus,
    })
}
