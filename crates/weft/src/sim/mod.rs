//! `weft sim`: simulations of paths through Tor networks. Nothing is sent to any network.

mod compromise;
mod figures;
mod given;
mod idle;
mod links;
mod model;
mod synth;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand, ValueEnum};

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
    Links(Box<links::Words>),
    Idle(Box<idle::Words>),
    Compromise(compromise::Words),
    Figures(figures::Words),
    Synth(synth::Words),
}

/// What results are printed as.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A table.
    Human,
    /// One JSON object.
    Json,
}

/// Does what the words after `weft` ask for, `sim` being the first.
pub(crate) fn main(words: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let sim = match Sim::try_parse_from(words) {
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
        What::Links(words) => links::main(&words)?,
        What::Idle(words) => idle::main(&words)?,
        What::Compromise(words) => compromise::main(&words)?,
        What::Figures(words) => figures::main(&words)?,
        What::Synth(words) => synth::main(&words)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints results.
fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}

/// The most memory that was resident since the start, bytes; 0 where the system does not tell.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .map_or(0, |kibibytes| kibibytes * 1024)
}
