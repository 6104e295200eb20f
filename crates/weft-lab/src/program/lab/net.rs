//! `weft lab net`: testbeds of network namespaces with delay, loss and rates between them.

mod topology;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;
use weft_lab::experiment::perform;
use weft_lab::probe::{self, Probe};
use weft_stats::bounds::{Bounds, SEED};
use weft_testnet::net::{Options, Testbed, clean, down};
use weft_testnet::stop::Stop;

use crate::program::terminal::{Terminal, conclude};

/// Interval at which the end and the emulator are checked.
const LOOK: Duration = Duration::from_millis(100);
/// Seconds that a testbed stays up by itself: a year at most.
const STAYS: Bounds<u64> = Bounds::new(1, 31_536_000);

/// Makes a network of hosts on this machine, with delay, loss, rates and queues on its links.
///
/// Each host is a network namespace. It needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN.
#[derive(Debug, Args)]
pub(super) struct NetArgs {
    #[command(subcommand)]
    command: NetCommand,
}

#[derive(Debug, Subcommand)]
enum NetCommand {
    Up(UpArgs),
    Down(DownArgs),
    /// Removes the remains of testbeds that crashed. Running testbeds are not touched.
    Clean,
    Topology(topology::TopologyArgs),
    Probe(Box<probe::Args>),
}

/// Starts a testbed and keeps it up until Ctrl-C.
///
/// Prints its hosts, their addresses, and how to run a program in one. At the end, programs that still run
/// in its hosts are killed, and everything that it made is removed.
#[derive(Debug, Args)]
struct UpArgs {
    /// A topology: a TOML file, or the name of a built-in one (`weft lab net topology` lists them).
    topology: String,
    /// The testbed's name, if it is not the topology's; two that are up have different ones.
    #[arg(long)]
    name: Option<String>,
    /// Seed of losses and jitter.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = SEED.parser())]
    seed: u64,
    /// End by itself after so many seconds.
    #[arg(long = "for", value_name = "SECONDS", value_parser = STAYS.parser())]
    seconds: Option<u64>,
    /// Print what is up as one JSON object on one line.
    #[arg(long)]
    json: bool,
}

/// Ends a testbed that is up, from another terminal.
#[derive(Debug, Args)]
struct DownArgs {
    /// Its name.
    name: String,
}

/// Does what the arguments ask for.
pub(super) fn net(args: &NetArgs) -> Result<ExitCode> {
    match &args.command {
        NetCommand::Up(args) => up(args, &Stop::on_signals()?),
        NetCommand::Down(args) => {
            down(&args.name)?;
            print(&format!("The testbed {} has ended.\n", args.name))
        }
        NetCommand::Clean => print_cleaned(),
        NetCommand::Probe(args) => run_probe(args),
        NetCommand::Topology(args) => print(&topology::text(args)?),
    }
}

fn up(args: &UpArgs, stop: &Stop) -> Result<ExitCode> {
    let topology = weft_testnet::net::topology(&args.topology)?;
    let options = Options {
        name: args.name.clone(),
        seed: args.seed,
    };
    let mut testbed = Testbed::start(topology, &options)?;
    print(&match args.json {
        true => summary_json(&testbed, args.seed),
        false => summary(&testbed, args.seed),
    })?;
    let begun = Instant::now();
    let is_over = || {
        args.seconds
            .is_some_and(|seconds| begun.elapsed() >= Duration::from_secs(seconds))
    };
    while !stop.is_requested() && !is_over() {
        std::thread::sleep(LOOK);
        testbed.check()?;
    }
    testbed.end()?;
    Ok(ExitCode::SUCCESS)
}

fn run_probe(args: &probe::Args) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let mut terminal = Terminal::new();
    let conclusion = perform::<Probe>(args, &stop, &mut terminal);
    terminal.bar.finish_and_clear();
    conclude(&conclusion?)
}

fn summary(testbed: &Testbed, seed: u64) -> String {
    let name = testbed.name();
    let hosts = testbed.hosts();
    let wide = hosts
        .iter()
        .map(|host| host.name().len())
        .max()
        .unwrap_or(0);
    let mut text = format!("The testbed {name} is up, with seed {seed}.\n\n");
    for host in hosts {
        text += &format!(
            "{:wide$}  {:<12}  ip netns exec {} PROGRAM\n",
            host.name(),
            host.address().to_string(),
            host.namespace_name()
        );
    }
    text + &format!(
        "\nThe command beside a host runs PROGRAM in it. Ctrl-C, or `weft lab net down {name}`, ends all of it.\n"
    )
}

fn summary_json(testbed: &Testbed, seed: u64) -> String {
    let hosts = testbed.hosts().iter().map(|host| {
        json!({
            "name": host.name(),
            "address": host.address().to_string(),
            "namespace": host.namespace_name(),
        })
    });
    let summary = json!({
        "name": testbed.name(),
        "seed": seed,
        "pid": std::process::id(),
        "hosts": hosts.collect::<Vec<_>>(),
    });
    format!("{summary}\n")
}

fn print_cleaned() -> Result<ExitCode> {
    let cleaned = clean()?;
    let mut text = String::new();
    for name in &cleaned.removed {
        text += &format!("{name}: what a crash had left is removed\n");
    }
    for (name, pid) in &cleaned.up {
        let process = pid.map_or(String::new(), |pid| format!(", process {pid}"));
        text += &format!("{name}: is up{process}; `weft lab net down {name}` ends it\n");
    }
    match text.is_empty() {
        true => print("There is nothing to clean.\n"),
        false => print(&text),
    }
}

fn print(text: &str) -> Result<ExitCode> {
    weft_cli::print::print(text).map(|()| ExitCode::SUCCESS)
}
