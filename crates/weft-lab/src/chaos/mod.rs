//! `weft lab chaos`: random networks in virtual time, in which random things go wrong (`weft_virtual::chaos`).
//! `cargo xtask chaos` runs it.

mod files;
mod planted;
mod worst;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use weft_planted::Fault;
use weft_stats::bounds::{Bounds, SEED};
use weft_virtual::chaos::{Checks, Counts, Failure, Ran, Round, Settings, run, run_with, shrink};

use weft_cli::say;

use files::{read, write};

/// Interval between lines that show the progress.
const SHOWN: Duration = Duration::from_secs(10);
/// Events of the network: months of this machine's time.
const EVENTS: Bounds<u64> = Bounds::new(1, 1_000_000_000_000);
/// Rounds of a seed.
const ROUND: Bounds<u64> = Bounds::new(0, 1_000_000_000);
/// Most runs while a planted fault's round is made smaller: there are many faults, and their rounds
/// are only kept.
const PLANTED_TRIES: u32 = 40;
/// Runs while a round is made smaller.
const TRIES: Bounds<u32> = Bounds::new(0, 1_000_000);

/// Attempts of a search for the worst.
const ATTEMPTS: Bounds<u32> = Bounds::new(1, 100_000_000);
/// Bytes of a hostile client.
const BUDGET: Bounds<u64> = Bounds::new(16_384, 1_000_000_000);

/// Finds defects of Weft: runs random networks in virtual time in which random things go wrong, and checks what must hold
/// all the same (docs/chaos.md).
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Seed of everything.
    #[arg(long, default_value_t = 1, value_parser = SEED.parser())]
    seed: u64,
    /// Events of the network, after which no other round begins.
    #[arg(long, default_value_t = 20_000_000, value_parser = EVENTS.parser())]
    events: u64,
    /// Run this round of the seed alone.
    #[arg(long, value_name = "K", value_parser = ROUND.parser(), conflicts_with = "replay")]
    round: Option<u64>,
    /// Run the round of a file, as a failure leaves one.
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Check after every step, so that the first one that breaks something is found. Much slower.
    #[arg(long)]
    check_all: bool,
    /// Runs at most while a round that fails is made smaller; 0: it is left as it is.
    #[arg(long, default_value_t = 300, value_parser = TRIES.parser())]
    tries: u32,
    /// Plant these faults in the code, or all of them one after another, and print which are found in how many events
    /// (docs/chaos.md). With `--round` or `--replay`: run that round with one of them.
    #[arg(long, value_name = "FAULT", num_args = 0..)]
    planted: Option<Vec<String>>,
    /// Search for what a hostile client can make relays do and hold for each byte that it sends (docs/chaos.md).
    #[arg(long, conflicts_with_all = ["round", "replay", "planted", "events"])]
    worst: bool,
    /// Attempts of `--worst` for each quantity.
    #[arg(long, default_value_t = 2_000, value_parser = ATTEMPTS.parser(), requires = "worst")]
    attempts: u32,
    /// Bytes that the hostile client of `--worst` may send in each attempt.
    #[arg(long, default_value_t = 262_144, value_parser = BUDGET.parser(), requires = "worst")]
    budget: u64,
    /// Where rounds that fail, and the worst ones, are written to.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    keep: PathBuf,
}

/// Runs it and prints the results. Returns true if everything held.
///
/// # Errors
///
/// A file cannot be read or written, or is no round.
pub fn chaos(args: &Args) -> Result<bool> {
    let base = Instant::now();
    let checks = match args.check_all {
        true => Checks::All,
        false => Checks::Often,
    };
    if args.worst {
        let settings = Settings {
            seed: args.seed,
            attempts: args.attempts,
            budget: args.budget,
        };
        return worst::find(settings, &args.keep, base);
    }
    let faults = match &args.planted {
        Some(names) => planted::named(names)?,
        None => Vec::new(),
    };
    let of_one_round = args.replay.is_some() || args.round.is_some();
    if args.planted.is_some() && !of_one_round {
        let settings = planted::Settings {
            seed: args.seed,
            events: args.events,
            tries: args.tries.min(PLANTED_TRIES),
            keep: &args.keep,
        };
        return planted::find(&faults, settings, base);
    }
    ensure!(faults.len() <= 1, "a round is run with one fault: name it");
    let fault = faults.first().copied();
    if let Some(file) = &args.replay {
        let round = read(file)?;
        return replay(&round, fault, checks, base);
    }
    if let Some(number) = args.round {
        let round = Round::draw(args.seed, number);
        let holds = replay(&round, fault, checks, base)?;
        if fault.is_some() {
            return Ok(holds);
        }
        if !holds {
            smaller(args, number, &round, base)?;
        }
        return Ok(holds);
    }
    let (mut events, mut counts, mut shown) = (0, Counts::default(), base);
    for number in 0.. {
        let round = Round::draw(args.seed, number);
        let ran = run(&round, checks, base);
        events += ran.events;
        counts += ran.counts;
        if let Some(failure) = &ran.failure {
            say!("Seed {}, round {number}, fails {failure}", args.seed);
            say!(
                "Run it again, with checks after every step:\n  cargo xtask chaos --seed {} --round {number} --check-all",
                args.seed
            );
            smaller(args, number, &round, base)?;
            return Ok(false);
        }
        let is_over = events >= args.events;
        if is_over || shown.elapsed() >= SHOWN {
            shown = Instant::now();
            say!("{}", summary(args.seed, number + 1, events, &counts, base));
        }
        if is_over {
            break;
        }
    }
    Ok(true)
}

fn summary(seed: u64, rounds: u64, events: u64, counts: &Counts, since: Instant) -> String {
    let seconds = since.elapsed().as_secs_f64();
    format!(
        "seed {seed}: {rounds} rounds, {events} events ({} while users were at it) in {seconds:.1} s, {:.2} million each second; \
         {} streams complete, {} not; {} circuits; {} MB relayed; {} messages forged",
        counts.busy_events,
        events as f64 / seconds / 1e6,
        counts.complete,
        counts.failed,
        counts.circuits,
        counts.relayed_bytes / 1_000_000,
        counts.forged
    )
}

/// Runs one round, perhaps with a fault, and prints it.
fn replay(round: &Round, fault: Option<Fault>, checks: Checks, base: Instant) -> Result<bool> {
    say!("{}", serde_json::to_string_pretty(round)?);
    let (ran, _) = run_with(fault, round, checks, base);
    let Ran {
        events,
        counts,
        digest,
        failure,
    } = ran;
    say!("{events} events, {counts:?}, digest {digest:016x}");
    match &failure {
        Some(failure) => say!("It fails {failure}"),
        None => say!("Everything holds"),
    }
    Ok(failure.is_none())
}

/// Makes a round that fails smaller, writes both to files, and prints how the smaller one fails.
fn smaller(args: &Args, number: u64, round: &Round, base: Instant) -> Result<()> {
    let path = |what: &str| {
        let name = format!("chaos-{}-{number}{what}.json", args.seed);
        args.keep.join(name)
    };
    write(&path(""), round)?;
    if args.tries == 0 {
        return Ok(());
    }
    let mut left = args.tries;
    let best = shrink(round, |candidate| {
        left = left.saturating_sub(1);
        left > 0 && run(candidate, Checks::Often, base).failure.is_some()
    });
    let file = path("-small");
    write(&file, &best)?;
    say!(
        "In {} runs it became {} relays, {} clients and {} faults; run that again:\n  cargo xtask chaos --replay {} --check-all",
        args.tries - left,
        best.relays.len(),
        best.clients.len(),
        best.faults.len(),
        file.display()
    );
    for fault in &best.faults {
        say!("  {fault:?}");
    }
    let failure: Option<Failure> = run(&best, Checks::All, base).failure;
    if let Some(failure) = failure {
        say!("With checks after every step it fails {failure}");
    }
    Ok(())
}
