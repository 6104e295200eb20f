//! `weft sim`: simulations of paths through Tor networks. Nothing is sent to any network.

mod balance;
mod compromise;
mod figures;
mod given;
mod idle;
mod links;
mod model;
mod output;
mod selection;
mod synth;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use weft_cli::args::{self, Asked};

/// Simulates paths through Tor networks, real and synthetic. Nothing is sent to any network.
///
/// Networks are read from consensus documents, plain or packed, as CollecTor archives them. Their
/// signatures are not checked.
#[derive(Debug, Parser)]
#[command(name = "weft sim", bin_name = "weft sim")]
struct Sim {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Links(Box<links::LinksArgs>),
    Idle(Box<idle::IdleArgs>),
    Balance(balance::BalanceArgs),
    Compromise(compromise::CompromiseArgs),
    Selection(selection::SelectionArgs),
    Figures(figures::FiguresArgs),
    Synth(synth::SynthArgs),
}

/// Runs `weft sim`; `sim` is the first argument.
pub(super) fn main(args: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let sim = match args::read(args)? {
        Ok(Asked {
            args: Sim { what }, ..
        }) => what,
        Err(status) => return Ok(status),
    };
    match sim {
        What::Links(args) => links::main(&args)?,
        What::Idle(args) => idle::main(&args)?,
        What::Balance(args) => balance::main(&args)?,
        What::Compromise(args) => compromise::main(&args)?,
        What::Selection(args) => selection::main(&args)?,
        What::Figures(args) => figures::main(&args)?,
        What::Synth(args) => synth::main(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The command line.
pub(super) fn command() -> clap::Command {
    <Sim as clap::CommandFactory>::command()
}
