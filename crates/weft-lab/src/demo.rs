//! `weft lab demo`, which `cargo xtask demo` runs: a Tor network of Weft alone at work; with `--with-tor`
//! also Weft among real Tor nodes, and C tor in the same place.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weft_load::bulk::{Circuits, Phase, Place};
use weft_load::surf::{Surf, surf};
use weft_stats::bounds::Bounds;
use weft_testnet::network::{Config, Network, Node, Program, Target};
use weft_testnet::programs::weft_program;
use weft_testnet::traffic::Direction;
use weft_testnet::up::{Plan, Up};

use crate::args::{CONNECTION_THREADS, MEGABYTES, STREAMS};
use weft_cli::say;

/// Shows Weft at work: a private network of Weft alone, and bytes through it.
///
/// With --with-tor Weft also stands among C tor nodes, and C tor in the same place; `tor` must be installed.
/// Ctrl-C ends all of it. Run a release build with --with-tor: what is printed about cost is of no use
/// otherwise.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Also put Weft among C tor nodes, and C tor in the same place.
    #[arg(long)]
    with_tor: bool,
    /// Program in the middle of C tor's circuits.
    #[arg(long, value_enum, default_value_t = Which::Both, requires = "with_tor")]
    target: Which,
    /// Connection threads of Weft in the middle, one row for each.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,2,0",
        value_parser = CONNECTION_THREADS.parser(),
        requires = "with_tor"
    )]
    threads: Vec<u32>,
    /// Payload megabytes in each direction, over all circuits.
    #[arg(long, default_value_t = 400, value_parser = MEGABYTES.parser())]
    megabytes: u64,
    /// Circuits.
    #[arg(long, default_value_t = 20, value_parser = STREAMS.parser())]
    circuits: usize,
    /// Repeat the transfers through the middle for so many minutes, to see whether memory grows.
    #[arg(long, value_parser = MINUTES.parser(), requires = "with_tor")]
    minutes: Option<u64>,
}

/// Up to a week.
const MINUTES: Bounds<u64> = Bounds::new(1, 10_080);

/// Program in the middle.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    /// Weft alone.
    Weft,
    /// C tor alone.
    Tor,
    /// One after the other.
    Both,
}

/// The nicknames of the two targets.
const WEFT: &str = "weft";
const TOR: &str = "ctor";

/// One line of the table.
struct Row {
    relay: String,
    threads: String,
    phases: [Phase; 2],
}

/// Shows it.
///
/// # Errors
///
/// The arguments make no sense, a network does not start, or bytes get lost.
pub fn run(args: &Args) -> Result<()> {
    ensure!(
        !args.threads.is_empty(),
        "--threads: name at least one number"
    );
    let weft = weft_program(None)?;
    alone(&weft, args)?;
    match args.with_tor {
        true => among_tor(&weft, args),
        false => Ok(()),
    }
}

/// A network of Weft nodes and nothing else: bytes go down and up through its client.
fn alone(weft: &Path, args: &Args) -> Result<()> {
    say!("Starting a private network of Weft alone on loopback (Ctrl-C ends all of it) …");
    let plan = Plan {
        progress: |line| say!("  {line}"),
        ..Plan::of_weft(weft.to_owned())
    };
    let mut network = Up::start(&plan)?;
    say!(
        "  carries traffic after {:.1} s",
        network.took().as_secs_f64()
    );
    say!(
        "\nOne client, {} streams on circuits of their own, {} MB each way, all hashes equal.\n",
        args.circuits,
        args.megabytes
    );
    say!(
        "{:<4} | {:>7} | CPU s/GB: {:>7} {:>15} {:>7}",
        "",
        "Mbit/s",
        "client",
        "guards, middles",
        "exits"
    );
    for (direction, name) in [(Direction::Down, "down"), (Direction::Up, "up")] {
        let client = network.clients().first().context("a client")?;
        let (exits, relays): (Vec<&Node>, Vec<&Node>) = network
            .relay_nodes()
            .partition(|node| node.nickname().starts_with("exit"));
        let watched: Vec<&Node> = std::iter::once(client.node())
            .chain(relays.iter().copied())
            .chain(exits)
            .collect();
        let load = Surf {
            streams: args.circuits,
            bytes: per_circuit(args),
            direction,
            seed: 3,
        };
        let moved = surf(client.socks(), network.server(), load, &watched)?;
        let cost = |nodes: std::ops::Range<usize>| -> f64 {
            nodes.map(|node| moved.cpu_per_gigabyte(node)).sum()
        };
        let first_exit = 1 + relays.len();
        say!(
            "{name:<4} | {:>7.0} |           {:>7.2} {:>15.2} {:>7.2}",
            moved.megabits_per_second(),
            cost(0..1),
            cost(1..first_exit),
            cost(first_exit..watched.len()),
        );
    }
    network.check()?;
    if cfg!(debug_assertions) {
        say!(
            "\nThis is a debug build. A release build costs less: `cargo xtask demo --with-tor` makes \
             one, and puts C tor beside it."
        );
    }
    say!("\n`weft lab up` keeps such a network up, to play with.");
    network.stop()
}

/// Weft in the middle of C tor's circuits, and C tor in the same place.
fn among_tor(weft: &Path, args: &Args) -> Result<()> {
    let start = Instant::now();
    let first = args.threads.first().copied();
    let mut targets = Vec::new();
    if args.target != Which::Tor {
        targets.push(Target::new(WEFT, Program::weft(weft, first)?));
    }
    if args.target != Which::Weft {
        targets.push(Target::new(TOR, Program::tor()?));
    }
    say!("\nStarting a private network of C tor around Weft …");
    let config = Config {
        progress: |line| say!("  {line}"),
        ..Config::default()
    };
    let mut network = Network::start(config, targets)?;
    say!("  ready after {:.0} s", start.elapsed().as_secs_f64());

    let mut rows = Vec::new();
    if args.target != Which::Tor {
        for (index, threads) in args.threads.iter().enumerate() {
            if index > 0 {
                network.restart(WEFT, Program::weft(weft, Some(*threads))?)?;
            }
            rows.push(Row {
                relay: "Weft".to_owned(),
                threads: threads.to_string(),
                phases: load(&network, WEFT, args)?,
            });
        }
    }
    if args.target != Which::Weft {
        rows.push(Row {
            relay: tor_version()?,
            threads: "-".to_owned(),
            phases: load(&network, TOR, args)?,
        });
    }
    print(&rows, args);
    if let Some(minutes) = args.minutes {
        let nickname = if args.target == Which::Tor { TOR } else { WEFT };
        soak(&network, nickname, args, Duration::from_secs(60 * minutes))?;
    }
    say!("\nDone after {:.0} s.", start.elapsed().as_secs_f64());
    Ok(())
}

/// `C tor 0.4.9.11`.
fn tor_version() -> Result<String> {
    let output = Command::new("tor")
        .arg("--version")
        .output()
        .context("running tor --version")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("Tor version "))
        .map_or("", |version| version.trim_end_matches('.'));
    Ok(format!("C tor {version}").trim_end().to_owned())
}

/// Moves the bytes down, then up, over fresh circuits; hashes are compared at both ends.
fn load(network: &Network, nickname: &str, args: &Args) -> Result<[Phase; 2]> {
    say!(
        "  {} MB down and up through {nickname}, over {} circuits",
        args.megabytes,
        args.circuits
    );
    let circuits = Circuits::build(network, nickname, Place::Middle, args.circuits)?;
    let bytes = per_circuit(args);
    Ok([
        circuits.run(Direction::Down, bytes, 1)?,
        circuits.run(Direction::Up, bytes, 2)?,
    ])
}

fn per_circuit(args: &Args) -> u64 {
    (args.megabytes * 1_000_000)
        .div_ceil(u64::try_from(args.circuits).unwrap_or(u64::MAX))
        .max(1)
}

/// The table, and a summary of it.
fn print(rows: &[Row], args: &Args) {
    say!(
        "\nMiddle relay among C tor nodes on this machine, {} circuits, {} MB each way, all hashes \
         equal.\n",
        args.circuits,
        args.megabytes
    );
    say!(
        "{:<18} {:>7} | {:>11} {:>9} | {:>11} {:>9} | {:>8} | busiest threads",
        "relay",
        "threads",
        "down Mbit/s",
        "CPU s/GB",
        "up Mbit/s",
        "CPU s/GB",
        "RSS MB"
    );
    for row in rows {
        let [down, up] = &row.phases;
        say!(
            "{:<18} {:>7} | {:>11.0} {:>9.2} | {:>11.0} {:>9.2} | {:>8} | {}",
            row.relay,
            row.threads,
            down.megabits_per_second(),
            down.cpu_per_gigabyte(),
            up.megabits_per_second(),
            up.cpu_per_gigabyte(),
            up.used.peak_rss / 1_000_000,
            busiest(up),
        );
    }
    let cost = |row: &Row| {
        let [down, up] = &row.phases;
        down.cpu_per_gigabyte() + up.cpu_per_gigabyte()
    };
    let one = rows
        .iter()
        .find(|row| row.relay == "Weft" && row.threads == "1");
    let tor = rows.iter().find(|row| row.threads == "-");
    if let (Some(one), Some(tor)) = (one, tor) {
        say!(
            "\nWith one connection thread Weft spends {:.2} times less CPU per byte than C tor in \
             the same place.",
            cost(tor) / cost(one)
        );
    }
}

/// The two threads that did most, with their share of one core.
fn busiest(phase: &Phase) -> String {
    let mut threads = phase.used.threads.clone();
    threads.sort_by_key(|thread| std::cmp::Reverse(thread.cpu));
    let shares: Vec<String> = threads
        .iter()
        .take(2)
        .map(|thread| {
            let share = thread.cpu.as_secs_f64() / phase.wall.as_secs_f64();
            format!("{} {:.0} %", thread.name, 100.0 * share)
        })
        .collect();
    shares.join(", ")
}

/// Repeats the transfers, and prints the memory every minute.
fn soak(network: &Network, nickname: &str, args: &Args, time: Duration) -> Result<()> {
    say!(
        "\nTransfers through {nickname} for {} minutes:",
        time.as_secs() / 60
    );
    let circuits = Circuits::build(network, nickname, Place::Middle, args.circuits)?;
    let start = Instant::now();
    let (mut bytes, mut seed, mut next) = (0u64, 10, Duration::ZERO);
    let mut first = None;
    loop {
        let elapsed = start.elapsed();
        if elapsed >= next {
            let usage = network.target(nickname)?.node().usage()?;
            say!(
                "  {:>4} s: {:>6.1} GB moved, RSS {:.1} MB",
                elapsed.as_secs(),
                bytes as f64 / 1e9,
                usage.rss as f64 / 1e6
            );
            next += Duration::from_secs(30);
            // Pools and buffers that fill in the first half minute are no growth.
            if elapsed >= Duration::from_secs(30) {
                first.get_or_insert(usage.rss);
            }
        }
        if elapsed >= time {
            break;
        }
        for direction in [Direction::Down, Direction::Up] {
            seed += 1;
            bytes += circuits.run(direction, per_circuit(args), seed)?.bytes();
        }
    }
    let last = network.target(nickname)?.node().usage()?.rss;
    if let Some(first) = first {
        say!(
            "  From the first half minute to the end RSS went from {:.1} to {:.1} MB.",
            first as f64 / 1e6,
            last as f64 / 1e6
        );
    }
    Ok(())
}
