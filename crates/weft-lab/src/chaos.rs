//! `weft lab chaos`: random networks in virtual time, in which random things go wrong (`weft_virtual::chaos`).
//! `cargo xtask chaos` runs it.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use weft_stats::bounds::{Bounds, SEED};
use weft_virtual::chaos::{Checks, Counts, Failure, MAX_FILE, Ran, Round, run, shrink};

use weft_cli::say;

/// How often a line shows how far it is.
const SHOWN: Duration = Duration::from_secs(10);
/// Events of the network: months of this machine's time.
const EVENTS: Bounds<u64> = Bounds::new(1, 1_000_000_000_000);
/// Rounds of a seed.
const ROUND: Bounds<u64> = Bounds::new(0, 1_000_000_000);
/// Runs while a round is made smaller.
const TRIES: Bounds<u32> = Bounds::new(0, 1_000_000);

/// Finds defects of Weft: runs random networks in virtual time in which random things go wrong, and checks what must hold
/// all the same (docs/chaos.md).
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// What everything follows from.
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
    /// Where rounds that fail are written to.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    keep: PathBuf,
}

/// Runs it; prints what comes of it. Whether everything held.
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
    if let Some(file) = &args.replay {
        let round = read(file)?;
        return replay(&round, checks, base);
    }
    if let Some(number) = args.round {
        let round = Round::draw(args.seed, number);
        let holds = replay(&round, checks, base)?;
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

/// Reads a round, as [`write`] leaves one.
fn read(file: &Path) -> Result<Round> {
    let reading = || format!("reading {}", file.display());
    let mut text = String::new();
    let opened = File::open(file).with_context(reading)?;
    opened
        .take(MAX_FILE + 1)
        .read_to_string(&mut text)
        .with_context(reading)?;
    ensure!(
        text.len() as u64 <= MAX_FILE,
        "{} is no round of chaos: it has more than {MAX_FILE} bytes",
        file.display()
    );
    Round::from_json(&text).map_err(|why| anyhow!("{} is no round of chaos: {why}", file.display()))
}

fn summary(seed: u64, rounds: u64, events: u64, counts: &Counts, since: Instant) -> String {
    let seconds = since.elapsed().as_secs_f64();
    format!(
        "seed {seed}: {rounds} rounds, {events} events ({} while users were at it) in {seconds:.1} s, {:.2} million each second; \
         {} streams complete, {} not; {} circuits; {} MB relayed",
        counts.busy_events,
        events as f64 / seconds / 1e6,
        counts.complete,
        counts.failed,
        counts.circuits,
        counts.relayed_bytes / 1_000_000
    )
}

/// Runs one round and prints it.
fn replay(round: &Round, checks: Checks, base: Instant) -> Result<bool> {
    say!("{}", serde_json::to_string_pretty(round)?);
    let Ran {
        events,
        counts,
        digest,
        failure,
    } = run(round, checks, base);
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

fn write(file: &Path, round: &Round) -> Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    fs::write(file, serde_json::to_string_pretty(round)?)
        .with_context(|| format!("writing {}", file.display()))
}
