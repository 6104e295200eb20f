//! `weft lab`: experiments in private networks, a network to play with, and a load generator.
//!
//! The experiments are weft-lab's; here is the terminal: a progress bar, signals, what is printed.

mod net;
mod shadow;
mod up;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, Args, Parser, Subcommand};
use weft_cli::args::{self, Asked, prepared};
use weft_cli::print::print;
use weft_cli::{completions, manual, manual::Page};
use weft_lab::circuits;
use weft_lab::demo;
use weft_lab::experiments::Experiments;
use weft_lab::hops;
use weft_lab::relay::pipe;
use weft_lab::report::Invocation;
use weft_lab::report_command;
use weft_testnet::stop::Stop;

use super::terminal::{NAME, Terminal, conclude};
use super::{node, sim};

/// Experiments in private networks on loopback, and measurements of one relay.
#[derive(Debug, Parser)]
#[command(name = "weft lab", bin_name = "weft lab")]
struct Lab {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Experiment(Experiments),
    Report(report_command::Args),
    Up(up::UpArgs),
    Net(net::NetArgs),
    Circuits(circuits::Args),
    Shadow(shadow::ShadowArgs),
    Demo(demo::Args),
    Pipe(PipeArgs),
    /// Prints a manual page, for `man -l -` or a file in a folder man1.
    Man(manual::Args),
    /// Prints what makes a shell complete the words of `weft-lab`.
    Completions(completions::Args),
    #[command(hide = true)]
    Chaos(weft_lab::chaos::Args),
    #[command(hide = true)]
    ProfiledNode(ProfiledNodeArgs),
    #[command(hide = true)]
    FlowClient(Box<weft_lab::flow_processes::ClientArgs>),
    #[command(hide = true)]
    FlowServer(weft_lab::flow_processes::ServerArgs),
    #[command(hide = true)]
    SimulatedHost(weft_lab::run::HostArgs),
}

/// Runs a bare pipe: each link that it accepts goes on to another address, through TLS and one pass
/// of AES for each cell. It ends on SIGINT or SIGTERM.
#[derive(Debug, Args)]
struct PipeArgs {
    /// Where to listen.
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,
    /// Where to connect to.
    #[arg(long, value_name = "IP:PORT")]
    connect: SocketAddr,
}

/// Runs a node as `weft` does, with a profiler that waits at a socket for orders.
#[derive(Debug, Args)]
struct ProfiledNodeArgs {
    /// Where it waits.
    #[arg(long, value_name = "FILE")]
    socket: PathBuf,
    /// The arguments of the node, as `weft` takes them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    node: Vec<OsString>,
}

/// Does what the words ask for, the first being the program.
pub(super) fn main(args: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let Asked {
        args: lab,
        command,
        matches,
    } = match args::read::<Lab>(args)? {
        Ok(asked) => asked,
        Err(status) => return Ok(status),
    };
    match lab.command {
        // It keeps nothing: a signal ends it, and its guardian ends the nodes.
        Command::Demo(args) => demo::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Experiment(experiment) => {
            let stop = Stop::on_signals()?;
            let mut terminal = Terminal::new();
            terminal.invocation = invocation(&command, &matches);
            let conclusion = experiment.perform(&stop, &mut terminal);
            terminal.bar.finish_and_clear();
            conclude(&conclusion?)
        }
        Command::Report(args) => {
            let text = report_command::report(&args)?;
            print(&text).map(|()| ExitCode::SUCCESS)
        }
        Command::ProfiledNode(args) => {
            hops::profile::serve(&args.socket)?;
            node::run(args.node)
        }
        Command::Man(args) => manual::man(&args, &pages()?),
        Command::Completions(args) => {
            let sim = sim::command().name("sim").bin_name("weft-lab sim");
            let whole = listed().subcommand(sim);
            completions::completions(&args, prepared(whole), NAME)
        }
        Command::Chaos(args) => weft_lab::chaos::chaos(&args).map(|holds| match holds {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }),
        Command::Up(args) => up::up(&args, &Stop::on_signals()?),
        Command::Net(args) => net::net(&args),
        Command::Circuits(args) => {
            let text = circuits::circuits(&args)?;
            print(&text).map(|()| ExitCode::SUCCESS)
        }
        Command::Shadow(args) => shadow::shadow(&args, invocation(&command, &matches)),
        Command::FlowClient(args) => weft_lab::flow_processes::client(&args, &Stop::on_signals()?)
            .map(|()| ExitCode::SUCCESS),
        Command::FlowServer(args) => weft_lab::flow_processes::server(&args, &Stop::on_signals()?)
            .map(|()| ExitCode::SUCCESS),
        Command::SimulatedHost(args) => {
            weft_lab::run::measure(&args, &Stop::on_signals()?).map(|()| ExitCode::SUCCESS)
        }
        Command::Pipe(args) => {
            pipe::run(args.listen, args.connect, Stop::on_signals()?.flag())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The experiment's own part of the command line.
fn invocation(command: &clap::Command, matches: &ArgMatches) -> Invocation {
    let (mut words, mut command, mut matches) = ("weft lab".to_owned(), command, matches);
    while let Some((name, inner)) = matches.subcommand()
        && let Some(known) = command.find_subcommand(name)
    {
        words = format!("{words} {name}");
        (command, matches) = (known, inner);
    }
    Invocation::of(&words, command, matches)
}

/// The command line, with what is internal.
pub(super) fn command() -> clap::Command {
    <Lab as clap::CommandFactory>::command()
}

/// The command line with what help lists.
pub(super) fn listed() -> clap::Command {
    let whole = command();
    let below = whole.get_subcommands();
    clap::Command::new("lab")
        .about(whole.get_about().cloned().unwrap_or_default())
        .subcommand_required(true)
        .subcommands(below.filter(|command| !command.is_hide_set()).cloned())
}

/// Every manual page of this program.
pub(super) fn pages() -> Result<Vec<Page>> {
    let lab = manual::pages(prepared(listed()))?;
    let sim = manual::pages(prepared(sim::command().name("sim")))?;
    Ok([lab, sim].concat())
}
