//! `weft lab`: experiments in private networks, a network to play with, and a load generator.
//!
//! The experiments are weft-lab's; here is the terminal: a progress bar, signals, what is printed.

mod net;
mod up;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};
use indicatif::ProgressBar;
use weft_lab::bench::pipe;
use weft_lab::demo;
use weft_lab::experiment::{Conclusion, Progress, Watcher};
use weft_lab::experiments::Experiments;
use weft_lab::stop::Stop;

use crate::progress::progress_bar;

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
    Up(up::UpArgs),
    Net(net::NetArgs),
    Demo(demo::Args),
    Pipe(PipeArgs),
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

/// Does what the arguments after `weft` ask for, `lab` being the first.
pub(crate) fn main(args: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let lab = match Lab::try_parse_from(args) {
        Ok(lab) => lab,
        Err(error) => {
            error.print().context("cannot print")?;
            return Ok(match error.exit_code() {
                0 => ExitCode::SUCCESS,
                _ => ExitCode::FAILURE,
            });
        }
    };
    match lab.command {
        // It keeps nothing: a signal ends it, and its guardian ends the nodes.
        Command::Demo(args) => demo::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Experiment(experiment) => {
            let stop = Stop::on_signals()?;
            let mut terminal = Terminal::new();
            let conclusion = experiment.perform(&stop, &mut terminal);
            terminal.bar.finish_and_clear();
            conclude(&conclusion?)
        }
        Command::Up(args) => up::up(&args, &Stop::on_signals()?),
        Command::Net(args) => net::net(&args),
        Command::Pipe(args) => {
            pipe::run(args.listen, args.connect, Stop::on_signals()?.flag())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Prints the results, and returns the exit status. Why a run did not come to its end is printed where
/// nobody overlooks it.
fn conclude(conclusion: &Conclusion) -> Result<ExitCode> {
    io::stdout()
        .write_all(conclusion.text.as_bytes())
        .context("cannot write to standard output")?;
    if let Some(why) = &conclusion.failure {
        eprintln!("weft: {}", why.replace('\n', "\nweft: "));
    }
    Ok(match conclusion.is_passed {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// A bar where standard error is a terminal, a line for each step where it is not.
struct Terminal {
    bar: ProgressBar,
    /// The step of the latest line.
    step: String,
}

impl Terminal {
    fn new() -> Self {
        Terminal {
            bar: progress_bar(),
            step: String::new(),
        }
    }
}

impl Watcher for Terminal {
    fn progress(&mut self, progress: &Progress) {
        self.bar.set_position((progress.done * 1000.0) as u64);
        let message = progress.to_string();
        if self.bar.is_hidden() && self.step != progress.step {
            self.step.clone_from(&progress.step);
            eprintln!("{message}");
        }
        self.bar.set_message(message);
    }

    fn note(&mut self, line: &str) {
        match self.bar.is_hidden() {
            true => eprintln!("{line}"),
            false => self.bar.println(line),
        }
    }
}
