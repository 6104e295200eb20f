//! What `cargo xtask demo | bench | roles` runs: Weft at work, and beside C tor and Arti.
//!
//! Not a part of xtask: in the release profile, as Weft itself is, whatever both of them need is compiled
//! once; and xtask, which everything begins with, needs little.

mod bench;
mod demo;
mod roles;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

/// Shows and measures Weft.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

/// In which way.
#[derive(Subcommand, Debug)]
enum Command {
    Demo(demo::DemoArgs),
    Bench(bench::BenchArgs),
    Roles(roles::RolesArgs),
}

fn main() -> Result<()> {
    match CommandLine::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Roles(args) => roles::run(&args),
    }
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
