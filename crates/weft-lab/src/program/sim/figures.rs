//! `weft sim figures`: the figures of a paper as named runs, with its values beside ours.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;
use weft_cli::print;
use weft_sim::salsa::{self, Comparison, Document, Results, SalsaOptions, Unit, measure};

use super::given::{Common, networks};
use super::output::Format;
use crate::program::progress::progress_bar;

/// A paper's figures as named runs.
#[derive(Debug, Args)]
pub(super) struct FiguresArgs {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Debug, Subcommand)]
enum Paper {
    Salsa(SalsaArgs),
}

/// Figures 4 to 8 and 11, Table 2 and the results of 4.1.7 of "Examining the Hydra"
/// (Pahl et al. 2023, SALSA).
///
/// Every figure is run over all documents; plots show them together. The paper's values are printed
/// beside ours. With --out, points.csv has every repetition, comparison.csv the table, and each figure
/// is there as SVG and PNG.
#[derive(Debug, Args)]
struct SalsaArgs {
    /// Consensus documents, folders of them, or CollecTor's archives [default: a synthetic network].
    #[arg(long, num_args = 1.., value_name = "PATH")]
    consensus: Vec<PathBuf>,
    /// Repetitions of each point, for each document.
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = salsa::REPETITIONS.parser())]
    repeat: u32,
    #[command(flatten)]
    common: Common,
}

pub(super) fn main(args: &FiguresArgs) -> Result<()> {
    match &args.paper {
        Paper::Salsa(args) => of_salsa(args),
    }
}

fn of_salsa(args: &SalsaArgs) -> Result<()> {
    let networks = networks(&args.consensus, args.common.seed)?.into_iter();
    let networks: Vec<Document> = networks
        .map(|(name, network)| Document {
            name: name.rsplit('/').next().unwrap_or_default().to_owned(),
            network,
        })
        .collect();
    let options = SalsaOptions {
        repetitions: args.repeat,
        seed: args.common.seed,
        threads: args.common.threads(),
    };
    let folder = args.common.folder()?;
    let bar = progress_bar();
    let outcome = measure(&networks, &options, &mut |part, what| {
        bar.set_position((part * 1000.0) as u64);
        bar.set_message(what.to_owned());
    });
    bar.finish_and_clear();
    let results = outcome?;
    let as_json = serde_json::to_string_pretty(&as_json(&results))? + "\n";
    if let Some(folder) = folder {
        folder.write("results.json", &as_json)?;
        folder.write("points.csv", results.points_csv())?;
        folder.write("comparison.csv", results.comparison_csv())?;
        for (name, figure) in results.plots() {
            folder.plot(name, &figure)?;
        }
    }
    print::print(&match args.common.format {
        Format::Human => table(&results),
        Format::Json => as_json,
    })
}

/// The paper beside ours.
fn table(results: &Results) -> String {
    let mut text = String::new();
    for (name, relays, exits) in &results.documents {
        let _ = writeln!(text, "{name}: {relays} relays, {exits} exits");
    }
    let _ = writeln!(
        text,
        "\n{:<9} {:<52} {:<6} {:>17} {:>17}",
        "", "", "", "paper", "Weft"
    );
    for one in results.comparisons() {
        let _ = writeln!(
            text,
            "{:<9} {:<52} {:<6} {:>17} {:>17}",
            one.figure,
            one.what,
            one.place,
            interval(&one, one.paper),
            interval(&one, one.ours)
        );
    }
    for why in &results.left_out {
        let _ = writeln!(text, "left out: {why}");
    }
    let _ = writeln!(
        text,
        "\nAn interval of Weft's goes from the least to the most mean of a document, of all kinds and directions where the\n\
         paper's interval does."
    );
    text
}

fn interval(one: &Comparison, (low, high): (f64, f64)) -> String {
    let number = |number: f64| match one.unit {
        Unit::Percent => format!("{number:.2}"),
        Unit::Seconds if number < 10.0 => format!("{number:.3}"),
        Unit::Seconds => format!("{number:.0}"),
        Unit::Bytes => format!("{:.0}", number / 1e6),
    };
    let unit = match one.unit {
        Unit::Percent => "%",
        Unit::Seconds => "s",
        Unit::Bytes => "MB",
    };
    match number(low) == number(high) {
        true => format!("{} {unit}", number(low)),
        false => format!("{}–{} {unit}", number(low), number(high)),
    }
}

fn as_json(results: &Results) -> serde_json::Value {
    let comparisons: Vec<_> = results
        .comparisons()
        .into_iter()
        .map(|one| {
            json!({
                "figure": one.figure,
                "what": one.what,
                "section": one.place,
                "unit": match one.unit {
                    Unit::Percent => "percent",
                    Unit::Seconds => "s",
                    Unit::Bytes => "bytes",
                },
                "paper": [one.paper.0, one.paper.1],
                "ours": [one.ours.0, one.ours.1],
            })
        })
        .collect();
    let points: Vec<_> = results
        .points
        .iter()
        .map(|point| {
            let spread = point.spread();
            json!({
                "figure": point.what.name(),
                "document": point.document,
                "series": point.series,
                "at": point.at,
                "percent_mean": spread.map(|spread| spread.mean),
                "percent_stddev": spread.and_then(|spread| spread.stddev),
                "percent_ci95": spread.and_then(|spread| spread.ci95),
                "repetitions": point.percent.len(),
            })
        })
        .collect();
    let documents: Vec<_> = results
        .documents
        .iter()
        .map(|(name, relays, exits)| json!({"name": name, "relays": relays, "exits": exits}))
        .collect();
    json!({
        "documents": documents,
        "comparisons": comparisons,
        "points": points,
        "left_out": results.left_out,
    })
}
