//! `weft lab attack`: attacks on a relay of one's own.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use weft_lab::attack::{ATTACKS, Attack, Options, Progress, find, max_connections, run};
use weft_lab::bench::start::Program;
use weft_lab::machine::Cpus;
use weft_plot::Folder;

use super::{Format, STOP, weft_program};
use crate::bench::{progress_bar, seconds};

/// Attacks a relay of your own, and measures what honest circuits still get.
///
/// For each attack a relay is started alone on loopback. Honest circuits carry cells through it at a
/// fixed rate, and an honest user asks again and again for what the attack may take away: a circuit, a
/// stream, a name, an answer at a port. Both are measured without the attack, then with it. Attackers
/// send from addresses of their own, all on loopback, at a bounded rate.
///
/// Results go into a new folder: results.json, results.md, and plots as SVG and PNG. Ctrl-C ends the
/// experiment; what was measured until then is in the folder. The exit status is 1 if honest circuits
/// kept less than 90 % of their throughput under an attack, if one was closed, if new requests were
/// refused, if file descriptors stayed open, or if rounds are missing. docs/attacks.md says how to read
/// the results.
#[derive(Debug, Args)]
pub(super) struct AttackArgs {
    /// The attacks.
    #[arg(value_name = "NAME", conflicts_with_all = ["all", "list"])]
    names: Vec<String>,
    /// All attacks.
    #[arg(long, conflicts_with = "list")]
    all: bool,
    /// Print the name, the deed and the bound of each attack, and attack nothing.
    #[arg(long)]
    list: bool,

    /// What is attacked.
    #[arg(long, value_enum, default_value_t = Victim::Weft)]
    target: Victim,
    /// Start the program at this path, not this weft or the tor that is installed.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// The target's ConnectionThreads; C tor has one anyway.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// How long is measured, without and with each attack, in seconds.
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    seconds: Duration,
    /// How long the loads are on before that, in seconds.
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = seconds)]
    warm_up: Duration,
    /// How long the target may take afterwards to give back what it held, in seconds; it ends when it has.
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    settle: Duration,
    /// How often each attack is measured.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// The most that an attack sends, in Mbit/s.
    #[arg(long, value_name = "MBIT/S", default_value_t = 100.0)]
    mbits: f64,
    /// What honest circuits carry together, in Mbit/s of payload.
    #[arg(long, value_name = "MBIT/S", default_value_t = 100.0)]
    honest: f64,
    /// Keys and contents are functions of this.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// The new folder for the results [default: attacks-DATE-TIME].
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// What to print at the end.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Victim {
    Weft,
    Tor,
}

/// Does what the arguments ask for.
pub(super) fn attack(args: &AttackArgs) -> Result<ExitCode> {
    if args.list {
        return list();
    }
    let attacks = chosen(args)?;
    let options = options(args)?;
    let stop = STOP.get_or_init(Arc::default);
    crate::stop::set_on_signals(stop)?;
    let now = OffsetDateTime::now_utc();
    let path = match &args.out {
        Some(path) => path.clone(),
        None => {
            let name = now.format(format_description!(
                "attacks-[year]-[month]-[day]-[hour][minute][second]"
            ))?;
            name.into()
        }
    };
    let folder = Folder::create(&path)?;
    let bar = progress_bar();
    let mut show = |progress: Progress| {
        let done = progress.round.saturating_sub(1) as f64 / progress.rounds.max(1) as f64;
        bar.set_position((done * 1000.0) as u64);
        let message = format!(
            "round {} of {}: {}",
            progress.round, progress.rounds, progress.attack
        );
        if bar.is_hidden() {
            eprintln!("{message}");
        }
        bar.set_message(message);
    };
    let outcome = run(
        &options,
        &attacks,
        &folder,
        &now.format(&Rfc3339)?,
        stop,
        &mut show,
    );
    bar.finish_and_clear();
    let results = outcome?;
    if results.rounds.is_empty() && results.failed.is_empty() {
        bail!("stopped before anything was measured");
    }
    let text = match args.format {
        Format::Human => format!(
            "{results}\nResults and plots are in {}.\n",
            folder.path().display()
        ),
        Format::Json => serde_json::to_string_pretty(&results)? + "\n",
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("cannot write to standard output")?;
    Ok(match results.is_passed() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn list() -> Result<ExitCode> {
    let mut text = String::new();
    for attack in ATTACKS {
        text += &format!("{}\n    {}.\n", attack.name, attack.what);
        text += &format!("    Bound: {}.\n", attack.bound);
    }
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn chosen(args: &AttackArgs) -> Result<Vec<Attack>> {
    if args.all {
        return Ok(ATTACKS.to_vec());
    }
    ensure!(
        !args.names.is_empty(),
        "name an attack, or --all; --list prints what there is"
    );
    let mut attacks: Vec<Attack> = Vec::new();
    for name in &args.names {
        ensure!(
            !attacks.iter().any(|attack| attack.name == name),
            "the attack {name:?} is named twice"
        );
        attacks.push(find(name)?);
    }
    Ok(attacks)
}

fn options(args: &AttackArgs) -> Result<Options> {
    for (option, rate) in [("--mbits", args.mbits), ("--honest", args.honest)] {
        ensure!(
            rate.is_finite() && rate > 0.0 && rate <= 10_000.0,
            "{option} must be above 0 and at most 10000"
        );
    }
    ensure!(!args.seconds.is_zero(), "--seconds must be above 0");
    let program = match args.target {
        Victim::Weft => Program::Weft(weft_program(args.program.as_deref())?, Some(args.threads)),
        Victim::Tor => {
            if let Some(path) = &args.program {
                ensure!(path.is_file(), "there is no program at {}", path.display());
            }
            Program::Tor(args.program.clone())
        }
    };
    let mut options = Options {
        program,
        seconds: args.seconds,
        warm_up: args.warm_up,
        settle: args.settle,
        memory_left: 16 << 20,
        repetitions: args.repetitions,
        mbits: args.mbits,
        honest_mbits: args.honest,
        max_lead: Duration::MAX,
        max_connections: max_connections(),
        patience: Duration::from_secs(20),
        until_granted: false,
        seed: args.seed,
        target_cpus: Vec::new(),
        generator_cpus: Vec::new(),
    };
    let threads = match args.target {
        Victim::Weft => args.threads as usize,
        Victim::Tor => 1,
    };
    options.part_cpus(threads, &Cpus::here());
    Ok(options)
}
