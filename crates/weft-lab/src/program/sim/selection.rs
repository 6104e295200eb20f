//! `weft sim selection`: circuits chosen by build time and by round trip.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use weft_cli::print;
use weft_sim::idle::figure::thousands;
use weft_sim::selection::{
    self, Change, Limit, OfRule, Options, Report, compare, paper, synthetic, tuples,
};

use super::given::{Common, file};
use super::output::Format;

/// Computes the gain from choosing circuits by build time (CBT), by round trip (Circuit-RTT) and by
/// both (Annessi and Schmiedecker 2016; Schrock 2017, Tables 1 and 2).
///
/// Circuits are read from a CSV file whose first line is build_ms,rtt_ms,latency_ms,bandwidth_mbit,
/// such as circuits.csv of `weft lab selection --measure`, or are those of a synthetic network
/// (docs/simulation.md). With a column `client` each client has its own limits.
#[derive(Debug, Args)]
pub(super) struct SelectionArgs {
    /// Circuits that were measured.
    #[arg(long, value_name = "FILE")]
    tuples: Option<PathBuf>,
    /// Without a file: so many circuits of a synthetic network.
    #[arg(long, value_name = "N", default_value_t = 100_000, conflicts_with = "tuples",
          value_parser = selection::CIRCUITS.parser())]
    synthetic: usize,
    /// In the synthetic network, how long a handshake waits for the processors of the middle one of all relays.
    #[arg(long, value_name = "MS", default_value_t = synthetic::HANDSHAKE, conflicts_with = "tuples", value_parser = synthetic::HANDSHAKE_WAITS.parser())]
    handshake: f64,
    /// The share of circuits that is to be used.
    #[arg(long, value_name = "SHARE", default_value_t = 0.8, value_parser = selection::QUANTILE.parser())]
    quantile: f64,
    /// Method of finding the limit: learnt circuit by circuit, as clients do, or by rank among all
    /// circuits.
    #[arg(long, value_enum, default_value_t = HowLimited::Learnt)]
    limit: HowLimited,
    /// Samples of the bootstrap from which intervals are.
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = selection::RESAMPLES.parser())]
    resamples: usize,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum HowLimited {
    Learnt,
    Ranked,
}

pub(super) fn main(args: &SelectionArgs) -> Result<()> {
    let (name, circuits) = match &args.tuples {
        Some(path) => {
            let name = path.display().to_string();
            let circuits = tuples::read(file(path)?).with_context(|| name.clone())?;
            (name, circuits)
        }
        None => {
            let count = args.synthetic;
            let circuits = synthetic::tuples(count, args.common.seed, args.handshake);
            ("a synthetic network".to_owned(), circuits)
        }
    };
    let folder = args.common.folder()?;
    let options = Options {
        quantile: args.quantile,
        limit: match args.limit {
            HowLimited::Learnt => Limit::Learnt,
            HowLimited::Ranked => Limit::Ranked,
        },
        resamples: args.resamples,
        seed: args.common.seed,
        threads: args.common.threads(),
    };
    let report = compare(&circuits, &options).with_context(|| name.clone())?;
    let as_json = serde_json::to_string_pretty(&report)? + "\n";
    if let Some(folder) = folder {
        folder.write("results.json", &as_json)?;
        folder.plot("selection", &report.figure())?;
        if args.tuples.is_none() {
            folder.write("tuples.csv", tuples::csv(&circuits))?;
        }
    }
    print::print(&match args.common.format {
        Format::Json => as_json,
        Format::Human => table(&name, &report),
    })
}

fn table(name: &str, report: &Report) -> String {
    let options = &report.options;
    let mut text = format!(
        "{name}: {} circuits{}, {:.0} % are to be used, limits {}\n\n\
         {:<14}{:>10}{:>9}   {:>9}{:>9}   {:>10}{:>9}\n{:<14}{:>10}{:>9}   {:>9}{:>9}   {:>10}{:>9}\n",
        thousands(report.circuits as u64),
        match report.clients {
            0 | 1 => String::new(),
            several => format!(" of {several} clients"),
        },
        options.quantile * 100.0,
        match options.limit {
            Limit::Learnt => "learnt circuit by circuit",
            Limit::Ranked => "by rank",
        },
        "chosen by",
        "kept",
        "",
        "latency",
        "",
        "bandwidth",
        "",
        "",
        "",
        "",
        "p50, ms",
        "p90, ms",
        "p50, Mb/s",
        "p90",
    );
    let rules = [
        ("no rule", &report.none),
        ("build time", &report.cbt),
        ("round trip", &report.rtt),
        ("both", &report.both),
    ];
    for (name, rule) in rules {
        let _ = writeln!(
            text,
            "{name:<14}{:>10}{:>7.1} %   {:>9.0}{:>9.0}   {:>10.2}{:>9.2}",
            thousands(rule.kept as u64),
            rule.share * 100.0,
            rule.latency_ms.p50,
            rule.latency_ms.p90,
            rule.bandwidth.p50,
            rule.bandwidth.p90
        );
    }
    text += "\nAgainst build times, with intervals of 95 %; * no zero in it; beside it Schrock 2017, Tables 1 and 2\n\n";
    let _ = writeln!(
        text,
        "{:<15}{:>26}{:>26}{:>10}",
        "", "round trip", "both", "paper"
    );
    let rows: [Row; 4] = [
        (
            "latency p50",
            |rule| Some(rule.change_percent?.latency_p50),
            paper::LATENCY_P50,
        ),
        (
            "latency p90",
            |rule| Some(rule.change_percent?.latency_p90),
            paper::LATENCY_P90,
        ),
        (
            "bandwidth p50",
            |rule| Some(rule.change_percent?.bandwidth_p50),
            paper::BANDWIDTH_P50,
        ),
        (
            "bandwidth p90",
            |rule| Some(rule.change_percent?.bandwidth_p90),
            paper::BANDWIDTH_P90,
        ),
    ];
    for (name, of, (cbt, rtt)) in rows {
        let show = |rule: &OfRule| of(rule).map_or(String::new(), change);
        let _ = writeln!(
            text,
            "{name:<15}{:>26}{:>26}{:>8.1} %",
            show(&report.rtt),
            show(&report.both),
            (rtt / cbt - 1.0) * 100.0
        );
    }
    if let Some(gev) = &report.gev {
        let _ = writeln!(
            text,
            "\nRound trips: generalized extreme value distribution with shape {:.3} (SciPy's sign), location {:.1} ms, scale {:.1} ms",
            gev.shape, gev.location, gev.scale
        );
    }
    text += "p90 of bandwidth is what nine circuits in ten have at least.\n";
    text
}

/// A number's name, its change by some rule, and the paper's value with build times and with round trips.
type Row = (&'static str, fn(&OfRule) -> Option<Change>, (f64, f64));

fn change(change: Change) -> String {
    let (low, high) = change.ci95;
    let star = if change.is_clear() { "*" } else { " " };
    format!("{:+.1} % ({low:+.1} to {high:+.1}){star}", change.percent)
}
