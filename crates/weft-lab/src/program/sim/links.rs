//! `weft sim links`: shared links, as SALSA simulates them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use weft_cli::print::{self, note};
use weft_sim::idle::figure::thousands;
use weft_sim::links::exits::{self, Exits};
use weft_sim::links::files;
use weft_sim::links::many::{Build, DocumentResult, Done, Work, of_network, simulate};
use weft_sim::links::report::{Report, Setting};
use weft_sim::links::run::Plan;
use weft_sim::links::salsa::{Model, Salsa};
use weft_sim::links::{self, CircuitKind, Class};
use weft_sim::microdesc::Microdescs;
use weft_sim::network::Network;
use weft_sim::sample::{SCALE, scaled};
use weft_sim::synth;

use super::given::Common;
use super::model::{Both, ModelArgs};
use super::output::Format;
use crate::program::progress::progress_bar;

/// Counts the links between relays that circuits share.
///
/// Circuits are drawn from the network of a consensus document; then the links between their relays are
/// counted. A link with two circuits or more is shared: the circuits compete for one connection (SALSA,
/// Pahl and others, 2023).
///
/// Without --consensus the network is a synthetic one of 6500 relays.
#[derive(Debug, Args)]
pub(super) struct LinksArgs {
    /// Consensus documents of either flavour, plain, .xz, .gz or .zst; folders of them; CollecTor's
    /// .tar archives.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    consensus: Vec<PathBuf>,
    /// Active circuits.
    #[arg(long, value_name = "N", default_value_t = 96_000, value_parser = links::CIRCUITS.parser())]
    circuits: u64,
    /// Where circuits lead: to the Internet, within the network, or ten of these to one of those.
    #[arg(long, value_enum, default_value_t = KindArg::External)]
    kind: KindArg,
    /// Direction of links: if directed, a link from A to B is another than one from B to A.
    #[arg(long, value_enum, default_value_t = DirectionArg::Directed)]
    direction: DirectionArg,
    /// Purpose of external circuits: their exits allow all of its ports. All but `all` need exit
    /// policies, which only plain consensuses have.
    #[arg(long, value_enum, default_value_t = ExitsArg::All)]
    exits: ExitsArg,
    /// Shares of web, BitTorrent base, BitTorrent extended, other file-sharing and various, for --exits
    /// mixture [default: 1,0.425,0.425,0.425,0.425].
    #[arg(long, value_name = "W,B,E,F,V", value_delimiter = ',', num_args = 1, value_parser = exits::SHARE.parser())]
    mixture: Vec<f64>,
    #[command(flatten)]
    paths: ModelArgs,
    /// Circuits of each client; they have one guard.
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = links::CIRCUITS_PER_CLIENT.parser())]
    circuits_per_client: u32,
    /// Guards of each client; each of its circuits takes one of them.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = links::GUARDS_PER_CLIENT.parser())]
    guards_per_client: u32,
    /// Keep this part of the relays, as tornettools samples them; circuits stay as many.
    #[arg(long, value_name = "PART", default_value_t = 1.0, value_parser = SCALE.parser())]
    scale: f64,
    /// Repetitions on each document.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = links::REPETITIONS.parser())]
    repeat: u32,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KindArg {
    External,
    Internal,
    Mixed,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum DirectionArg {
    Directed,
    Undirected,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ExitsArg {
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

/// Shares of the classes, those that were measured if none are given (Pahl et al. 2023, 4.1.7).
fn mixture(shares: &[f64]) -> Result<[f64; 5]> {
    match shares {
        [] => Ok([1.0, 0.425, 0.425, 0.425, 0.425]),
        [web, base, extended, sharing, various] => Ok([*web, *base, *extended, *sharing, *various]),
        others => bail!("--mixture wants five shares, not {}", others.len()),
    }
}

pub(super) fn main(args: &LinksArgs) -> Result<()> {
    ensure!(
        args.mixture.is_empty() || matches!(args.exits, ExitsArg::Mixture),
        "--mixture sets the shares of --exits mixture: give both or none"
    );
    let model = Model {
        kind: match args.kind {
            KindArg::External => CircuitKind::External,
            KindArg::Internal => CircuitKind::Internal,
            KindArg::Mixed => CircuitKind::Mixed,
        },
        exits: match args.exits {
            ExitsArg::All => Exits::One(Class::All),
            ExitsArg::Web => Exits::One(Class::Web),
            ExitsArg::BittorrentBase => Exits::One(Class::BitTorrentBase),
            ExitsArg::BittorrentExtended => Exits::One(Class::BitTorrentExtended),
            ExitsArg::FileSharing => Exits::One(Class::FileSharing),
            ExitsArg::Various => Exits::One(Class::Various),
            ExitsArg::Mixture => Exits::Mixture(mixture(&args.mixture)?),
        },
        circuits_per_client: args.circuits_per_client,
        guards_per_client: args.guards_per_client,
    };
    let microdescs = args.paths.microdescs()?;
    let full = args
        .paths
        .full(args.guards_per_client, microdescs.as_ref())?;
    // Before the simulation: what cannot be kept should not be made.
    let folder = args.common.folder()?;
    let microdescs = microdescs.as_deref();
    let salsa = || {
        let build: &Build<'_> = &|network| Ok(Box::new(Salsa::new(network, &model)?));
        simulated(args, microdescs, build)
    };
    let report = |model: &str, results: &[DocumentResult]| {
        let setting = setting(args, model);
        Report::new(
            setting,
            args.circuits,
            results,
            super::output::peak_memory(),
        )
        .context("nothing was simulated")
    };
    let (results, human, as_json) = match &full {
        None => {
            let results = salsa()?;
            let report = report("simple", &results)?;
            let as_json = serde_json::to_string_pretty(&report)?;
            (results, report.to_string(), as_json)
        }
        Some(full) => {
            let build: &Build<'_> = &|network| Ok(full.build(network, &model)?);
            let results = simulated(args, microdescs, build)?;
            full.check()?;
            let both = Both {
                full: report("full", &results)?,
                simple: report("simple", &salsa()?)?,
            };
            (results, both.human(), both.json()?)
        }
    };
    let as_json = as_json + "\n";
    if let Some(folder) = folder {
        let model = if full.is_some() { "full" } else { "simple" };
        let report = report(model, &results)?;
        folder.write("results.json", &as_json)?;
        folder.write("runs.csv", files::runs_csv(&results))?;
        folder.write("documents.csv", files::documents_csv(&report))?;
        folder.write(
            "distribution.csv",
            files::distribution_csv(&report, &results),
        )?;
        folder.plot("distribution", &files::distribution(&report))?;
    }
    print::print(&match args.common.format {
        Format::Human => human,
        Format::Json => as_json,
    })
}

/// Draws and counts, in all documents.
fn simulated(
    args: &LinksArgs,
    microdescs: Option<&Microdescs>,
    build: &Build<'_>,
) -> Result<Vec<DocumentResult>> {
    let threads = args.common.threads();
    let bar = progress_bar();
    bar.set_message("simulating");
    let repetitions = AtomicU64::new(0);
    let documents = AtomicU64::new(0);
    let work = Work {
        prepare: &|mut network| {
            if let Some(microdescs) = microdescs {
                let matched = microdescs.complete(&mut network)?;
                if matched < network.relays.len() {
                    bar.suspend(|| note(missing(&network, matched)));
                }
            }
            if args.scale == 1.0 {
                return Ok(network);
            }
            Ok(scaled(&network, args.scale)?)
        },
        build,
        plan: Plan {
            circuits: args.circuits,
            directed: args.direction == DirectionArg::Directed,
            repetitions: args.repeat,
            seed: args.common.seed,
            threads,
        },
        done: &|done| match done {
            Done::Repetition => {
                let count = repetitions.fetch_add(1, Ordering::Relaxed) + 1;
                // The number of documents in an archive is known once it has been read.
                let all = u64::from(args.repeat).max(1);
                bar.set_position(count % all * 1000 / all);
            }
            Done::Document => {
                let count = documents.fetch_add(1, Ordering::Relaxed) + 1;
                bar.set_message(format!("{count} documents"));
                // The bar is that of one document.
                bar.reset_elapsed();
            }
        },
    };
    let results = match args.consensus.as_slice() {
        [] => {
            let network = synth::network(6500, args.common.seed)?;
            let name = "a synthetic network".to_owned();
            vec![of_network(name, network, Duration::ZERO, &work, threads)?]
        }
        paths => simulate(paths, &work)?,
    };
    bar.finish_and_clear();
    Ok(results)
}

/// A warning: the files do not have all microdescriptors of a network.
fn missing(network: &Network, matched: usize) -> String {
    format!(
        "weft: {} of {} relays of {} have a microdescriptor in these files: the others have no family or exit policy that is \
         known, and the full model leaves them out",
        thousands(matched as u64),
        thousands(network.relays.len() as u64),
        network.valid_after
    )
}

/// The arguments, for the report.
fn setting(args: &LinksArgs, model: &str) -> Setting {
    Setting {
        model: model.to_owned(),
        kind: word(args.kind),
        direction: word(args.direction),
        exits: word(args.exits),
        circuits_per_client: args.circuits_per_client,
        guards_per_client: args.guards_per_client,
        scale: args.scale,
        repetitions: args.repeat,
        seed: args.common.seed,
        threads: args.common.threads(),
    }
}
