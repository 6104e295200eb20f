//! `cargo xtask bench`: Weft beside C tor and the bare pipe. And the same from a pack of `cargo xtask pack`.
//!
//! Not a part of xtask: in one profile with Weft itself, whatever both of them need is compiled
//! once; and xtask, which everything begins with, needs little.

mod bench;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Parser;

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
pub fn pack() -> Result<()> {
    bench::pack::run(&PackLine::parse().args)
}

/// The top of the checkout.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// The weft that was named, or the one that was built together with this program.
fn weft(named: Option<&Path>) -> Result<PathBuf> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()
            .context("finding this program")?
            .with_file_name("weft"),
    };
    path.canonicalize().with_context(|| {
        format!(
            "there is no program at {}; `cargo xtask` builds Weft, `--weft FILE` names another",
            path.display()
        )
    })
}
