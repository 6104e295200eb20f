//! `weft lab shadow`: networks simulated by Shadow.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use weft_cli::print::print;
use weft_lab::experiment::{Experiment, perform};
use weft_lab::report::Invocation;
use weft_lab::shadow::{self, ReadArgs, ReadBack, RunArgs, Simulate, WriteArgs};
use weft_testnet::stop::Stop;

use crate::program::terminal::{Terminal, conclude};

/// Writes the experiment `cci` for the simulator Shadow, runs it there, and reads its output back.
#[derive(Debug, Args)]
pub(super) struct ShadowArgs {
    #[command(subcommand)]
    command: ShadowCommand,
}

#[derive(Debug, Subcommand)]
enum ShadowCommand {
    Write(Box<WriteArgs>),
    Read(ReadArgs),
    Run(Box<RunArgs>),
}

/// Does what the arguments ask for.
pub(super) fn shadow(args: &ShadowArgs, invocation: Invocation) -> Result<ExitCode> {
    match &args.command {
        ShadowCommand::Write(args) => {
            let text = shadow::write(args)?;
            print(text).map(|()| ExitCode::SUCCESS)
        }
        ShadowCommand::Read(args) => measure::<ReadBack>(args, invocation),
        ShadowCommand::Run(args) => measure::<Simulate>(args, invocation),
    }
}

fn measure<E: Experiment>(args: &E::Args, invocation: Invocation) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let mut terminal = Terminal::new();
    terminal.invocation = invocation;
    let conclusion = perform::<E>(args, &stop, &mut terminal);
    terminal.bar.finish_and_clear();
    conclude(&conclusion?)
}
