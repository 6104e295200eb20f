//! `weft sim`: simulations of paths through Tor networks. Nothing is sent to any network.

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

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

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
    Compromise(compromise::CompromiseArgs),
    Selection(selection::SelectionArgs),
    Figures(figures::FiguresArgs),
    Synth(synth::SynthArgs),
}

/// Runs `weft sim`; `sim` is the first argument.
pub(crate) fn main(args: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let sim = match Sim::try_parse_from(args) {
        Ok(sim) => sim,
        Err(error) => {
            error.print().context("cannot print")?;
            return Ok(match error.exit_code() {
                0 => ExitCode::SUCCESS,
                _ => ExitCode::FAILURE,
            });
        }
    };
    match sim.what {
        What::Links(args) => links::main(&args)?,
        What::Idle(args) => idle::main(&args)?,
        What::Compromise(args) => compromise::main(&args)?,
        What::Selection(args) => selection::main(&args)?,
        What::Figures(args) => figures::main(&args)?,
        What::Synth(args) => synth::main(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}
