//! `cargo xtask bench`: Weft beside C tor and the bare pipe. And the same from a pack of `cargo xtask pack`.
//!
//! Not a part of xtask: in one profile with Weft itself, whatever both of them need is compiled
//! once; and xtask, which everything begins with, needs little.

mod bench;
mod checkout;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use weft_cli::print;
use weft_lab::experiment::perform;
use weft_lab::throughput;
use weft_testnet::stop::Stop;

/// Arguments from xtask.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench", version)]
struct CommandLine {
    #[command(flatten)]
    args: bench::BenchArgs,
}

/// Arguments from a pack's script `run`.
#[derive(Parser, Debug)]
#[command(name = "run", bin_name = "run", version)]
struct PackLine {
    #[command(flatten)]
    args: bench::pack::PackArgs,
}

/// Arguments from the program `weft-pack` itself, which measures each row in a separate process.
#[derive(Parser, Debug)]
struct RowLine {
    #[command(subcommand)]
    row: Row,
}

/// A row, as `weft lab` measures it. `weft-lab` would be more than half of an archive.
#[derive(Subcommand, Debug)]
enum Row {
    Relay(Box<weft_lab::relay::Args>),
    Throughput(Box<throughput::Args>),
}

/// The program `weft-measure`.
///
/// # Errors
///
/// Nothing could be measured, something failed, or results cannot be kept.
pub fn bench() -> Result<()> {
    bench::run(&CommandLine::parse().args)
}

/// The program `weft-pack`.
///
/// # Errors
///
/// As of [`bench`](fn@bench).
pub fn pack() -> Result<ExitCode> {
    let mut words = std::env::args_os().skip(1).peekable();
    if !words
        .peek()
        .is_some_and(|word| word == "lab" || word == "bench")
    {
        return bench::pack::run(&PackLine::parse().args).map(|()| ExitCode::SUCCESS);
    }
    let stop = Stop::on_signals()?;
    let conclusion = match RowLine::parse_from(words).row {
        Row::Relay(args) => perform::<weft_lab::relay::Options>(&args, &stop, &mut ()),
        Row::Throughput(args) => perform::<throughput::Options>(&args, &stop, &mut ()),
    }?;
    print::print(&conclusion.text)?;
    if let Some(why) = &conclusion.failure {
        print::note(why);
    }
    Ok(match conclusion.is_passed {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
