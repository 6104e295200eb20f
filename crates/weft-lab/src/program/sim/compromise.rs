//! `weft sim compromise`: how often an adversary has both ends.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use weft_cli::print;
use weft_sim::compromise::abra::pools::{self, PoolPoint, Pools};
use weft_sim::compromise::abra::{self, Grant, Point};
use weft_sim::compromise::clients::Entry;
use weft_sim::compromise::count::Sample;
use weft_sim::compromise::tunnels::{self, FIGURE_7, Row, TABLE_III, TunnelOptions};
use weft_sim::sample::scaled;
use weft_sim::synth;

use super::given::{Common, file, network};
use super::output::Format;
use crate::program::progress::progress_bar;

/// The horizontal axis of Schrock's Figure 1.
const PERCENT: &str =
    "0,2.5,5,7.5,10,12.5,15,17.5,20,22.5,25,27.5,30,32.5,35,37.5,40,42.5,45,47.5,50";

/// Computes how often an adversary with relays has both ends of what a client uses.
#[derive(Debug, Args)]
pub(super) struct CompromiseArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Tunnels(Box<TunnelArgs>),
    Abra(Box<AbraArgs>),
}

/// Clients whose traffic takes several circuits at once, as in mTor (Yang and Li 2015, section VI,
/// Figure 7 and Table III).
///
/// Every probability is computed by the paper's formula, and counted with clients that choose paths as Weft's own do (its code): each
/// draws its guards and builds a tunnel, and is held against adversaries with relays of its network. Without --consensus that is a
/// synthetic one of 6500 relays. With --consensus also for what an adversary's weight is in that network, and for adversaries with a fifth of
/// its bandwidth.
#[derive(Debug, Args)]
struct TunnelArgs {
    /// A consensus document.
    #[arg(long, value_name = "FILE")]
    consensus: Option<PathBuf>,
    /// Guards of a tunnel's circuits: different ones, or that of the first.
    #[arg(
        long,
        value_enum,
        value_name = "ENTRY,ENTRY",
        value_delimiter = ',',
        default_value = "distinct,common"
    )]
    entry: Vec<EntryArg>,
    /// The widest tunnel, circuits.
    #[arg(long, value_name = "M", default_value_t = 5, value_parser = tunnels::CIRCUITS.parser())]
    circuits: u32,
    /// The adversary's consensus weight in it.
    #[arg(long, value_name = "WEIGHT", default_value_t = tunnels::REALISTIC.0, value_parser = tunnels::WEIGHT.parser())]
    weight: f64,
    /// Parts of this weight that are guards', for each that is exits'.
    #[arg(long, value_name = "PARTS", default_value_t = tunnels::REALISTIC.1, value_parser = tunnels::PARTS.parser())]
    guards_to_exits: f64,
    /// Clients, each with a tunnel of each kind.
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = tunnels::CLIENTS.parser())]
    clients: u64,
    #[command(flatten)]
    common: Common,
}

/// `MultipathEntry`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum EntryArg {
    Distinct,
    Common,
}

/// Computes the gain of relays that lie under ABRA (Schrock 2017, section 5.2 and Figure 1; Geddes
/// et al. 2016).
///
/// Clients with pools of circuits download through a network in which links share capacity fairly,
/// and choose by the weights that relays report. Then each choice is repeated with an adversary's
/// relays: reporting their true weights, reporting 0, and reporting 0 but for one that reports a
/// tiny weight.
///
/// Without --consensus the network is a synthetic one of 6500 relays; of either, a sample is taken. With --pools nothing is
/// simulated: the choices are those that Weft's own clients made in virtual time.
#[derive(Debug, Args)]
struct AbraArgs {
    /// Choices that `weft lab selection --pools` recorded.
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "consensus", "relays", "web_clients", "bulk_clients", "pool", "guards", "capacity", "circuit_rate", "seconds", "stating"
    ])]
    pools: Option<PathBuf>,
    /// A consensus document.
    #[arg(long, value_name = "FILE")]
    consensus: Option<PathBuf>,
    /// Relays of the sample.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = synth::RELAYS.parser())]
    relays: u32,
    /// Clients that download 320 kB and pause for up to a minute.
    #[arg(long, value_name = "N", default_value_t = 1350, value_parser = abra::CLIENTS.parser())]
    web_clients: u32,
    /// Clients that download 5 MB again and again.
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = abra::CLIENTS.parser())]
    bulk_clients: u32,
    /// Circuits that a client has ready.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = abra::POOL.parser())]
    pool: u32,
    /// Guards of a client.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = abra::GUARDS.parser())]
    guards: u32,
    /// Capacity of all relays together, as a part of what these clients would use if no relay
    /// delayed a download. With less, lies gain more.
    #[arg(long, value_name = "PART", default_value_t = 0.8, value_parser = abra::CAPACITY.parser())]
    capacity: f64,
    /// The most that a circuit moves, bytes per second.
    #[arg(long, value_name = "BYTES", default_value_t = 1e6, value_parser = abra::CIRCUIT_RATE.parser())]
    circuit_rate: f64,
    /// Seconds for which choices are noted, after 300 of warm-up.
    #[arg(long, value_name = "S", default_value_t = 1200, value_parser = abra::SECONDS.parser())]
    seconds: u32,
    /// Relays that state weights, percent; the others state none, as C tor's.
    #[arg(long, value_name = "P", default_value_t = 100.0, value_parser = abra::PERCENT.parser())]
    stating: f64,
    /// Measure of the adversary's part of the network: bandwidth, or number of relays.
    #[arg(long, value_enum, default_value_t = GrantArg::Bandwidth)]
    grant: GrantArg,
    /// Parts of the network that adversaries have, percent.
    #[arg(long, value_name = "P,P", value_delimiter = ',', default_value = PERCENT, value_parser = abra::PERCENT.parser())]
    percent: Vec<f64>,
    /// Adversaries for each part.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = abra::ADVERSARIES.parser())]
    adversaries: u32,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum GrantArg {
    Bandwidth,
    Relays,
}

pub(super) fn main(args: &CompromiseArgs) -> Result<()> {
    match &args.what {
        What::Tunnels(args) => of_tunnels(args),
        What::Abra(args) => of_abra(args),
    }
}

fn of_tunnels(args: &TunnelArgs) -> Result<()> {
    let entry = |arg: &EntryArg| match arg {
        EntryArg::Distinct => Entry::Distinct,
        EntryArg::Common => Entry::Common,
    };
    let weight = (args.weight, args.guards_to_exits);
    let options = TunnelOptions {
        sample: Sample {
            clients: args.clients,
            circuits: args.circuits,
            seed: args.common.seed,
            threads: args.common.threads(),
        },
        entries: args.entry.iter().map(entry).collect(),
        weight: args.consensus.is_some().then_some(weight),
    };
    options.check()?;
    let (name, network) = network(args.consensus.as_ref(), args.common.seed)?;
    let folder = args.common.folder()?;
    let bar = progress_bar();
    bar.set_message("building tunnels");
    let (done, all) = (AtomicU64::new(0), options.sample.groups());
    let report = tunnels::compare(&network, &options, || {
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        bar.set_position(done * 1000 / all.max(1));
    })
    .with_context(|| name)?;
    bar.finish_and_clear();
    let as_json = serde_json::to_string_pretty(&report)? + "\n";
    if let Some(folder) = folder {
        folder.write("results.json", &as_json)?;
        folder.write("tunnels.csv", report.csv())?;
        folder.plot("tunnels", &report.figure())?;
    }
    print::print(&match args.common.format {
        Format::Json => as_json,
        Format::Human => tunnel_tables(&report),
    })
}

fn tunnel_tables(report: &tunnels::Report) -> String {
    let mut text = format!(
        "{} of Weft's clients in the network of {} ({} relays). Paper: Yang and Li 2015.\n\n",
        report.clients, report.valid_after, report.relays
    );
    let table = |text: &mut String,
                 title: &str,
                 rows: &[Row],
                 paper: &dyn Fn(u32) -> Option<f64>| {
        let _ = writeln!(
            text,
            "{title}\n{:>10}   {:<24} {:>10} {:>8}   {:>9}   {:<19} {:>6}   {:>7}",
            "circuits",
            "guards",
            "guards'",
            "exits'",
            "formula",
            "counted (95 %)",
            "errors",
            "paper"
        );
        for row in rows {
            let of_paper = match paper(row.circuits) {
                Some(percent) => format!("   {percent:>5.2} %"),
                None => String::new(),
            };
            let counted = match row.ci95_percent {
                Some(half) => format!("{:.3} ± {half:.3} %", row.counted_percent),
                None => format!("{:.3} %", row.counted_percent),
            };
            let errors = row.standard_errors;
            let line = format!(
                "{:>10}   {:<24} {:>8.2} % {:>6.2} %   {:>7.3} %   {counted:<19} {:>6}{of_paper}",
                row.circuits,
                tunnels::name(row.guards),
                row.adversary.guards * 100.0,
                row.adversary.exits * 100.0,
                row.formula_percent,
                errors.map_or(String::new(), |errors| format!("{errors:.2}")),
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text.push('\n');
    };
    let none = |_| None;
    table(
        &mut text,
        "Figure 7, right end: a fifth of guards and exits",
        &report.fifth,
        &|circuits| {
            let mut known = FIGURE_7.iter();
            known
                .find(|(of, _)| *of == circuits)
                .map(|(_, percent)| *percent)
        },
    );
    table(&mut text, "Table III", &report.table_iii, &|circuits| {
        TABLE_III.get(circuits.checked_sub(1)? as usize).copied()
    });
    if let Some(network) = &report.network {
        let title = format!(
            "The adversary's weight in the consensus of {}",
            network.valid_after
        );
        table(&mut text, &title, &network.rows, &none);
        let title = "Relays that have a fifth of its bandwidth";
        table(&mut text, title, &network.fifth, &none);
    }
    text += "errors: standard errors between formula and count\n";
    text
}

impl AbraArgs {
    /// Parts of the network, 0 to 1.
    fn fractions(&self) -> Vec<f64> {
        self.percent.iter().map(|one| one / 100.0).collect()
    }

    fn grant(&self) -> Grant {
        match self.grant {
            GrantArg::Bandwidth => Grant::Bandwidth,
            GrantArg::Relays => Grant::Relays,
        }
    }
}

fn of_pools(args: &AbraArgs, path: &Path) -> Result<()> {
    let name = path.display().to_string();
    let recorded = pools::read(file(path)?).with_context(|| name.clone())?;
    let folder = args.common.folder()?;
    let fractions = args.fractions();
    let bar = progress_bar();
    bar.set_message("choosing again");
    let (done, all) = (
        AtomicU64::new(0),
        fractions.len() as u64 * u64::from(args.adversaries),
    );
    let (seed, threads) = (args.common.seed, args.common.threads());
    let points = pools::replay(
        &recorded,
        &fractions,
        (args.grant(), args.adversaries, seed, threads),
        || {
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            bar.set_position(done * 1000 / all.max(1));
        },
    )?;
    bar.finish_and_clear();
    let choices: usize = recorded.iter().map(|one: &Pools| one.choices.len()).sum();
    let (with_free_circuit, circuits) = pools::shape(&recorded);
    let as_json = json!({
        "pools": name,
        "networks": recorded.len(),
        "relays": recorded.iter().map(|one| one.network.relays.len()).max(),
        "grant": args.grant(),
        "adversaries": args.adversaries,
        "choices": choices,
        "circuits_of_a_choice": circuits,
        "with_free_circuit": with_free_circuit,
        "points": points,
    });
    let as_json = serde_json::to_string_pretty(&as_json)? + "\n";
    let what = format!(
        "{name}: {choices} choices in {} networks, of {circuits:.1} circuits on average",
        recorded.len()
    );
    if let Some(folder) = folder {
        folder.write("results.json", &as_json)?;
        folder.write("abra.csv", abra::figure::pools_csv(&points))?;
        folder.plot("abra", &abra::figure::of_pools(&points, &what))?;
    }
    print::print(&match args.common.format {
        Format::Json => as_json,
        Format::Human => pools_table(&what, with_free_circuit, &points),
    })
}

fn pools_table(what: &str, with_free_circuit: f64, points: &[PoolPoint]) -> String {
    let mut text = format!(
        "{what}; {:.0} % of the choices had a circuit without bottlenecks.\n\n\
         Circuits compromised, median (10th to 90th percentile of adversaries and networks), percent:\n\
         {:>8}   {:<22} {:<22} {:<22} {:<22} {:<22}\n",
        with_free_circuit * 100.0,
        "has",
        "honest",
        "lying",
        "and one states a bit",
        "any circuit of pool",
        "chosen in the run",
    );
    for point in points {
        let _ = match point.fraction {
            Some(fraction) => write!(text, "{:>6.1} %", fraction * 100.0),
            None => write!(text, "recorded"),
        };
        let all = [
            point.honest,
            point.lying,
            point.tiny,
            point.blind,
            point.chosen,
        ];
        for one in all {
            let range = format!("{:.2} ({:.2} to {:.2})", one.median, one.low, one.high);
            let _ = write!(text, "   {range:<20}");
        }
        text.push('\n');
    }
    text += &paper_line();
    text
}

fn paper_line() -> String {
    format!(
        "Schrock 2017, text: with {:.0} % about {:.0} honest and {:.0} lying (medians)\n",
        abra::figure::paper::FRACTION * 100.0,
        abra::figure::paper::HONEST,
        abra::figure::paper::LYING,
    )
}

fn of_abra(args: &AbraArgs) -> Result<()> {
    if let Some(path) = &args.pools {
        return of_pools(args, path);
    }
    let (name, whole) = network(args.consensus.as_ref(), args.common.seed)?;
    let part = f64::from(args.relays) / whole.relays.len().max(1) as f64;
    let network = match part < 1.0 {
        true => scaled(&whole, part)?,
        false => whole,
    };
    let options = abra::AbraOptions {
        web_clients: args.web_clients,
        bulk_clients: args.bulk_clients,
        pool: args.pool,
        guards: args.guards,
        seconds: args.seconds,
        circuit_rate: args.circuit_rate,
        capacity: args.capacity,
        stating: args.stating / 100.0,
        seed: args.common.seed,
        ..abra::AbraOptions::default()
    };
    let (fractions, grant) = (args.fractions(), args.grant());
    let folder = args.common.folder()?;
    let bar = progress_bar();
    bar.set_message("downloading");
    let triples = abra::triples(&network).with_context(|| name.clone())?;
    let choices = abra::simulate(&network, &triples, &options, |part| {
        bar.set_position((part * 500.0) as u64);
    })?;
    bar.set_message("choosing again");
    let (done, all) = (
        AtomicU64::new(0),
        fractions.len() as u64 * u64::from(args.adversaries),
    );
    let points = abra::replay(
        &choices,
        &triples,
        &fractions,
        (
            grant,
            args.adversaries,
            args.common.seed,
            args.common.threads(),
        ),
        || {
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            bar.set_position(500 + done * 500 / all.max(1));
        },
    )?;
    bar.finish_and_clear();
    let as_json = json!({
        "network": name,
        "valid_after": network.valid_after,
        "relays": network.relays.len(),
        "options": options,
        "grant": grant,
        "adversaries": args.adversaries,
        "choices": choices.len(),
        "utilisation": choices.utilisation,
        "full_by_capacity": choices.full_by_capacity,
        "with_free_circuit": choices.with_free_circuit,
        "points": points,
    });
    let as_json = serde_json::to_string_pretty(&as_json)? + "\n";
    let what = format!(
        "{} relays of {}, {} web and {} bulk clients, {} choices",
        network.relays.len(),
        network.valid_after,
        args.web_clients,
        args.bulk_clients,
        choices.len()
    );
    if let Some(folder) = folder {
        folder.write("results.json", &as_json)?;
        folder.write("abra.csv", abra::figure::csv(&points))?;
        folder.plot("abra", &abra::figure::figure(&points, &what))?;
    }
    print::print(&match args.common.format {
        Format::Json => as_json,
        Format::Human => abra_table(&what, &choices, &points),
    })
}

fn abra_table(what: &str, choices: &abra::Choices, points: &[Point]) -> String {
    let mut text = format!(
        "{what}\nUsed: {:.0} % of the capacity; relays with {:.0} % of it were full; {:.0} % of the choices had a circuit without bottlenecks.\n\n\
         Circuits compromised, median (10th to 90th percentile of adversaries), percent:\n\
         {:>8}   {:<22} {:<22} {:<22} {:<22} {:<22}\n",
        choices.utilisation * 100.0,
        choices.full_by_capacity * 100.0,
        choices.with_free_circuit * 100.0,
        "has",
        "honest",
        "lying",
        "and one states a bit",
        "any circuit of pool",
        "formula, any circuit",
    );
    for point in points {
        let _ = write!(text, "{:>6.1} %", point.fraction * 100.0);
        for one in point.columns() {
            let range = format!("{:.2} ({:.2} to {:.2})", one.median, one.low, one.high);
            let _ = write!(text, "   {range:<20}");
        }
        text.push('\n');
    }
    text += &paper_line();
    text
}
