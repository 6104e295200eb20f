//! `weft sim idle`: relays that no circuit goes through.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::json;
use weft_cli::print;
use weft_sim::idle::figure::{paper, thousands};
use weft_sim::idle::{self, IdleOptions, Report, chunks, simulate};
use weft_stats::Spread;

use super::given::{Common, networks};
use super::output::Format;
use crate::program::progress::progress_bar;

/// Counts the relays that concurrent circuits leave idle, as in mTor (Yang and Li, 2015; section
/// III-A and Figure 1).
///
/// Circuits have three different relays, drawn by weight. A formula beside the count is exact for
/// the mean. Relays below 100 KiB/s by their consensus weight are called slow.
///
/// Without --consensus the network is a synthetic one of 6500 relays.
#[derive(Debug, Args)]
pub(super) struct IdleArgs {
    /// Consensus documents of either flavour, plain, .xz, .gz or .zst; folders of them; CollecTor's
    /// .tar archives.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    consensus: Vec<PathBuf>,
    /// Numbers of concurrent circuits.
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "50000,100000,150000,200000", value_parser = idle::CIRCUITS.parser())]
    circuits: Vec<u64>,
    /// Use relays without the Fast flag, too. Clients do not.
    #[arg(long)]
    any_speed: bool,
    /// Repetitions on each document.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = idle::REPETITIONS.parser())]
    repeat: u64,
    #[command(flatten)]
    common: Common,
}

pub(super) fn main(args: &IdleArgs) -> Result<()> {
    let options = IdleOptions {
        circuits: args.circuits.clone(),
        repetitions: args.repeat,
        seed: args.common.seed,
        any_speed: args.any_speed,
        threads: args.common.threads(),
    };
    let networks = networks(&args.consensus, args.common.seed)?;
    let folder = args.common.folder()?;
    let bar = progress_bar();
    let all = chunks(&options)
        .saturating_mul(networks.len() as u64)
        .max(1);
    let done = AtomicU64::new(0);
    let step = || {
        let count = done.fetch_add(1, Ordering::Relaxed) + 1;
        bar.set_position((count as f64 / all as f64 * 1000.0) as u64);
    };
    bar.set_message("drawing circuits");
    let reports = networks.into_iter().map(|(name, network)| {
        let report = simulate(&network, &options, step).with_context(|| name.clone())?;
        Ok((name, report))
    });
    let reports: Vec<(String, Report)> = reports.collect::<Result<_>>()?;
    bar.finish_and_clear();
    let as_json = json!({
        "options": options,
        "documents": reports
            .iter()
            .map(|(name, report)| json!({ "name": name, "report": report }))
            .collect::<Vec<_>>(),
    });
    let as_json = serde_json::to_string_pretty(&as_json)? + "\n";
    if let Some(folder) = folder {
        folder.write("results.json", &as_json)?;
        for (number, (_, report)) in (1..).zip(&reports) {
            let name = |what: &str| match reports.len() {
                1 => what.to_owned(),
                _ => format!("{what}-{number}"),
            };
            folder.write(&format!("{}.csv", name("idle")), report.csv())?;
            let bandwidths = report.bandwidths_csv();
            folder.write(&format!("{}.csv", name("idle-bandwidths")), &bandwidths)?;
            folder.plot(&name("idle"), &report.figure())?;
        }
    }
    print::print(&match args.common.format {
        Format::Json => as_json,
        Format::Human => reports.iter().map(table).collect::<String>(),
    })
}

fn table((name, report): &(String, Report)) -> String {
    let repetitions = report.points.first().map_or(0, |point| point.idle.n);
    let mut text = format!(
        "{name}, valid after {}: {} relays, {} below 100 KiB/s, {} that no circuit can have\n\n\
         circuits{:>20}    formula   of all   slow of idle   idle of slow   of all bandwidth\n",
        report.valid_after,
        report.relays,
        report.slow_relays,
        report.never_used,
        match repetitions {
            1 => "idle",
            _ => "idle ± 95 %",
        },
    );
    let percent = |spread: Option<Spread>| match spread {
        Some(spread) => format!("{:.1} %", spread.mean),
        None => "-".to_owned(),
    };
    for point in &report.points {
        let _ = writeln!(
            text,
            "{:>9} {:>20.1} {:>10.1} {:>6.1} % {:>14} {:>14} {:>16.2} %",
            thousands(point.circuits),
            point.idle,
            point.expected,
            point.idle_percent.mean,
            percent(point.slow_percent_of_idle),
            percent(point.idle_percent_of_slow),
            point.idle_bandwidth_percent.mean,
        );
    }
    let _ = writeln!(
        text,
        "{:>9} {:>20} {:>10} {:>6.1} % {:>12.1} % {:>12.1} %   Yang and Li 2015, text",
        thousands(paper::CIRCUITS),
        paper::IDLE,
        "",
        paper::IDLE_PERCENT,
        paper::SLOW_PERCENT_OF_IDLE,
        paper::IDLE_PERCENT_OF_SLOW,
    );
    if let Some(point) = report.points.last()
        && let (Some(least), Some(median), Some(most)) = (point.least, point.median, point.most)
    {
        let kibibytes = |bytes: u64| bytes as f64 / 1024.0;
        let _ = writeln!(
            text,
            "\nIdle with {} circuits: {:.0} to {:.0} KiB/s, median {:.0} (Yang and Li 2015: 1 to 7400)",
            thousands(point.circuits),
            kibibytes(least),
            kibibytes(most),
            kibibytes(median),
        );
    }
    text + "\n"
}
