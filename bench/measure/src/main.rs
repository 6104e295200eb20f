//! What `cargo xtask bench` runs: Weft beside C tor and the bare pipe.
//!
//! Not a part of xtask: in one profile with Weft itself, whatever both of them need is compiled
//! once; and xtask, which everything begins with, needs little.

mod bench;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Parser;

/// What xtask hands on.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench", version)]
struct CommandLine {
    #[command(flatten)]
    args: bench::BenchArgs,
}

fn main() -> Result<()> {
    bench::run(&CommandLine::parse().args)
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
