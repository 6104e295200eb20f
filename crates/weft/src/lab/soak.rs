//! `weft lab soak`: hours of churn and attacks on a relay of one's own.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use weft_lab::attack::soak::{Options, Progress, run};
use weft_lab::bench::start::Program;
use weft_plot::Folder;

use super::{Format, STOP, weft_program};
use crate::bench::{progress_bar, seconds};

/// Keeps a relay of your own under churn and attacks for hours, and watches what it holds.
///
/// A relay with every port (an exit to loopback, a directory cache, SocksPort, ControlPort, MetricsPort) and
/// 64 MB for its queues is started alone on loopback. Honest users come and go, and attackers do one attack
/// after the other (`weft lab attack --list`), all by chance of one seed. In the ebb at the end of each cycle
/// everybody is gone: memory, file descriptors, threads, what the ledger counts, links and circuits are
/// compared from ebb to ebb.
///
/// Results go into a new folder: results.json, results.md, samples.csv and a plot as SVG and PNG, all of them
/// up to date after each cycle. Ctrl-C ends the soak, and what was seen is kept. The exit status is 1 if
/// memory grew by 2 % or more over the last hour, if file descriptors, links or circuits are left, if an
/// honest circuit was closed, or if the soak was stopped early.
#[derive(Debug, Args)]
pub(super) struct SoakArgs {
    /// Start the weft at this path, not this one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// The target's ConnectionThreads.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=256))]
    threads: u32,
    /// How long in all, in minutes; whole cycles.
    #[arg(long, value_name = "MINUTES", default_value_t = 120.0)]
    minutes: f64,
    /// How long a cycle lasts, in seconds.
    #[arg(long, value_name = "S", default_value = "600", value_parser = seconds)]
    cycle: Duration,
    /// How long everybody is gone at the end of a cycle, in seconds.
    #[arg(long, value_name = "S", default_value = "90", value_parser = seconds)]
    ebb: Duration,
    /// How often the target is looked at, in seconds.
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    every: Duration,
    /// Attackers at a time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    attackers: u32,
    /// What they send together at most, in Mbit/s.
    #[arg(long, value_name = "MBIT/S", default_value_t = 8.0)]
    mbits: f64,
    /// What honest circuits carry together, in Mbit/s of payload.
    #[arg(long, value_name = "MBIT/S", default_value_t = 4.0)]
    honest: f64,
    /// All that is drawn is a function of this.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// The new folder for the results [default: soak-DATE-TIME].
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// What to print at the end.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
}

/// Does what the arguments ask for.
pub(super) fn soak(args: &SoakArgs) -> Result<ExitCode> {
    ensure!(
        args.minutes.is_finite() && args.minutes > 0.0 && args.minutes <= 10_080.0,
        "--minutes must be above 0 and at most 10080 (a week)"
    );
    ensure!(!args.every.is_zero(), "--every must be above 0");
    let options = Options {
        program: Program::Weft(weft_program(args.program.as_deref())?, Some(args.threads)),
        length: Duration::from_secs_f64(args.minutes * 60.0),
        cycle: args.cycle,
        ebb: args.ebb,
        every: args.every,
        attackers: args.attackers as usize,
        mbits: args.mbits,
        honest_mbits: args.honest,
        patience: Duration::from_secs(30),
        seed: args.seed,
    };
    let stop = STOP.get_or_init(Arc::default);
    crate::stop::set_on_signals(stop)?;
    let now = OffsetDateTime::now_utc();
    let path = match &args.out {
        Some(path) => path.clone(),
        None => now
            .format(format_description!(
                "soak-[year]-[month]-[day]-[hour][minute][second]"
            ))?
            .into(),
    };
    let folder = Folder::create(&path)?;
    let bar = progress_bar();
    let mut shown = None;
    let mut show = |progress: Progress| {
        let done = progress.elapsed.as_secs_f64() / progress.length.as_secs_f64();
        bar.set_position((done * 1000.0) as u64);
        let minute = progress.elapsed.as_secs() / 60;
        let sample = progress.sample;
        let message = format!(
            "minute {minute} of {:.0}: {:.1} MB, {} files, {} circuit halves",
            progress.length.as_secs_f64() / 60.0,
            sample.rss_bytes as f64 * 1e-6,
            sample.files,
            sample.halves
        );
        if bar.is_hidden() && shown != Some(minute) {
            shown = Some(minute);
            eprintln!("{message}");
        }
        bar.set_message(message);
    };
    let outcome = run(&options, &folder, &now.format(&Rfc3339)?, stop, &mut show);
    bar.finish_and_clear();
    let soak = outcome?;
    let text = match args.format {
        Format::Human => format!(
            "{soak}\nResults and the plot are in {}.\n",
            folder.path().display()
        ),
        Format::Json => serde_json::to_string_pretty(&soak)? + "\n",
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("cannot write to standard output")?;
    Ok(match soak.is_passed() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
