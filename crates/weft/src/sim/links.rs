//! `weft sim links`: shared links, as SALSA simulates them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use weft_sim::links::Kind;
use weft_sim::links::exits::{Class, Exits};
use weft_sim::links::files;
use weft_sim::links::many::{Build, Done, OfDocument, Work, of_network, simulate};
use weft_sim::links::report::{Report, Setting};
use weft_sim::links::run::Plan;
use weft_sim::links::salsa::{Model, Salsa};
use weft_sim::microdesc::Microdescs;
use weft_sim::sample::scaled;
use weft_sim::{parallel, synth};

use super::Format;
use super::given::Folder;
use super::model::{Both, ModelWords};
use crate::bench::progress_bar;

/// How many links between relays are shared by circuits.
///
/// Circuits are drawn from the network of a consensus document; then the links between their relays are
/// counted. A link with two circuits or more is shared: the circuits compete for one connection (SALSA,
/// Pahl and others, 2023).
///
/// Without --consensus the network is a synthetic one of 6500 relays.
#[derive(Debug, Args)]
pub(super) struct Words {
    /// Consensus documents of either flavour, plain, .xz, .gz or .zst; folders of them; CollecTor's
    /// .tar archives.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    consensus: Vec<PathBuf>,
    /// Active circuits.
    #[arg(long, value_name = "N", default_value_t = 96_000)]
    circuits: u64,
    /// Where circuits lead: to the Internet, within the network, or ten of these to one of those.
    #[arg(long, value_enum, default_value_t = KindWord::External)]
    kind: KindWord,
    /// Whether a link from A to B is another than one from B to A.
    #[arg(long, value_enum, default_value_t = DirectionWord::Directed)]
    direction: DirectionWord,
    /// What external circuits are for: their exits allow all of its ports. All but `all` need exit
    /// policies, which only plain consensuses have.
    #[arg(long, value_enum, default_value_t = ExitsWord::All)]
    exits: ExitsWord,
    /// Shares of web, BitTorrent base, BitTorrent extended, other file-sharing and various, for --exits
    /// mixture.
    #[arg(long, value_name = "W,B,E,F,V", value_delimiter = ',', num_args = 1, default_values_t = [1.0, 0.425, 0.425, 0.425, 0.425])]
    mixture: Vec<f64>,
    #[command(flatten)]
    paths: ModelWords,
    /// Circuits of each client; they have one guard.
    #[arg(long, value_name = "K", default_value_t = 1)]
    circuits_per_client: u32,
    /// Guards of each client; each of its circuits takes one of them.
    #[arg(long, value_name = "N", default_value_t = 1)]
    guards_per_client: u32,
    /// Keep this part of the relays, as tornettools samples them; circuits stay as many.
    #[arg(long, value_name = "PART", default_value_t = 1.0)]
    scale: f64,
    /// Repetitions on each document.
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u32,
    /// Everything random is a function of it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads; they change no number [default: as many as there are cores].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// What to print.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
    /// Make this folder, with the results as JSON and CSV and a plot of circuits per link; nothing is
    /// overwritten.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KindWord {
    External,
    Internal,
    Mixed,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum DirectionWord {
    Directed,
    Undirected,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ExitsWord {
    /// Whatever has the flag Exit.
    All,
    /// 80, 443.
    Web,
    /// 6881-6889.
    BittorrentBase,
    /// 6890-6999.
    BittorrentExtended,
    /// 1214, 4661-4666, 6346-6429, 6699.
    FileSharing,
    /// 25, 119, 135-139, 445, 563.
    Various,
    /// All of these, by --mixture.
    Mixture,
}

/// The word on the command line.
fn word(value: impl ValueEnum) -> String {
    value
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}

pub(super) fn main(words: &Words) -> Result<()> {
    let model = Model {
        kind: match words.kind {
            KindWord::External => Kind::External,
            KindWord::Internal => Kind::Internal,
            KindWord::Mixed => Kind::Mixed,
        },
        exits: match words.exits {
            ExitsWord::All => Exits::One(Class::All),
            ExitsWord::Web => Exits::One(Class::Web),
            ExitsWord::BittorrentBase => Exits::One(Class::BitTorrentBase),
            ExitsWord::BittorrentExtended => Exits::One(Class::BitTorrentExtended),
            ExitsWord::FileSharing => Exits::One(Class::FileSharing),
            ExitsWord::Various => Exits::One(Class::Various),
            ExitsWord::Mixture => Exits::Mixture(
                words
                    .mixture
                    .as_slice()
                    .try_into()
                    .context("--mixture wants five shares")?,
            ),
        },
        circuits_per_client: words.circuits_per_client,
        guards_per_client: words.guards_per_client,
    };
    let microdescs = words.paths.microdescs()?;
    let full = words
        .paths
        .full(words.guards_per_client, microdescs.as_ref())?;
    let results = simulated(words, microdescs.as_deref(), &|network| match &full {
        Some(full) => Ok(full.build(network, &model)?),
        None => Ok(Box::new(Salsa::new(network, &model)?)),
    })?;
    let report = |model: &str, results: &[OfDocument]| {
        let setting = setting(words, model);
        Report::new(setting, words.circuits, results, super::peak_memory())
    };
    // Before the results are printed: what cannot be kept should not look kept.
    if let Some(path) = &words.out {
        let model = if full.is_some() { "full" } else { "simple" };
        keep(path, &report(model, &results), &results)?;
    }
    let text = match &full {
        None => {
            let report = report("simple", &results);
            match words.format {
                Format::Human => report.to_string(),
                Format::Json => serde_json::to_string_pretty(&report)? + "\n",
            }
        }
        Some(full) => {
            full.check()?;
            let simple = simulated(words, microdescs.as_deref(), &|network| {
                Ok(Box::new(Salsa::new(network, &model)?))
            })?;
            let both = Both {
                full: report("full", &results),
                simple: report("simple", &simple),
            };
            match words.format {
                Format::Human => both.human(),
                Format::Json => both.json()? + "\n",
            }
        }
    };
    super::print(&text)
}

/// Writes the results into a new folder.
fn keep(path: &Path, report: &Report, results: &[OfDocument]) -> Result<()> {
    let folder = Folder::create(path)?;
    folder.write(
        "results.json",
        &(serde_json::to_string_pretty(report)? + "\n"),
    )?;
    folder.write("runs.csv", &files::runs_csv(results))?;
    folder.write("distribution.csv", &files::distribution_csv(report))?;
    folder.plot("distribution", &files::distribution(report))
}

/// Draws and counts, in all documents.
fn simulated(
    words: &Words,
    microdescs: Option<&Microdescs>,
    build: &Build<'_>,
) -> Result<Vec<OfDocument>> {
    let threads = words.threads.unwrap_or_else(parallel::cores);
    let bar = progress_bar();
    bar.set_message("simulating");
    let repetitions = AtomicU64::new(0);
    let documents = AtomicU64::new(0);
    let work = Work {
        prepare: &|mut network| {
            if let Some(microdescs) = microdescs {
                microdescs.complete(&mut network);
            }
            if words.scale == 1.0 {
                return Ok(network);
            }
            Ok(scaled(&network, words.scale)?)
        },
        build,
        plan: Plan {
            circuits: words.circuits,
            directed: words.direction == DirectionWord::Directed,
            repetitions: words.repeat,
            seed: words.seed,
            threads,
        },
        done: &|done| match done {
            Done::Repetition => {
                let count = repetitions.fetch_add(1, Ordering::Relaxed) + 1;
                // How many documents an archive has is known when it was read.
                let all = u64::from(words.repeat).max(1);
                bar.set_position(count % all * 1000 / all);
            }
            Done::Document => {
                let count = documents.fetch_add(1, Ordering::Relaxed) + 1;
                bar.set_message(format!("{count} documents"));
            }
        },
    };
    let results = match words.consensus.as_slice() {
        [] => {
            let network = synth::network(6500, words.seed)?;
            let name = "a synthetic network".to_owned();
            vec![of_network(name, network, Duration::ZERO, &work, threads)?]
        }
        paths => simulate(paths, &work)?,
    };
    bar.finish_and_clear();
    Ok(results)
}

/// What was asked for, for the report.
fn setting(words: &Words, model: &str) -> Setting {
    Setting {
        model: model.to_owned(),
        kind: word(words.kind),
        direction: word(words.direction),
        exits: word(words.exits),
        circuits_per_client: words.circuits_per_client,
        guards_per_client: words.guards_per_client,
        scale: words.scale,
        repetitions: words.repeat,
        seed: words.seed,
        threads: words.threads.unwrap_or_else(parallel::cores),
    }
}
