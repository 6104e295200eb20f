//! `cargo xtask roles`: what a client, an exit and a guard cost, beside C tor and Arti's client.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use weft_lab::machine::slug;
use weft_lab::network::find;
use weft_lab::roles::{self, Options};

/// Measures Weft and C tor as client, exit and guard in one private network, and Arti as client.
///
/// Arti's client is used if it is installed (`cargo install --locked arti`).
#[derive(Debug, Args)]
pub(crate) struct RolesArgs {
    /// How often everything is measured.
    #[arg(long, default_value_t = 3)]
    repetitions: u32,
    /// Streams at once.
    #[arg(long, default_value_t = 8)]
    streams: usize,
    /// MiB of each.
    #[arg(long, default_value_t = 20)]
    mebibytes: u64,
    /// Weft's connection threads.
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// Measure the weft at this path, not the one that was built.
    #[arg(long, value_name = "FILE")]
    weft: Option<PathBuf>,
    /// Arti's client [default: the arti on PATH, if there is one].
    #[arg(long, value_name = "FILE")]
    arti: Option<PathBuf>,
    /// Where the results go [default: bench/results/DATE-MACHINE-roles.json].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn run(words: &RolesArgs) -> Result<()> {
    let weft = crate::weft(words.weft.as_deref())?;
    let now = OffsetDateTime::now_utc();
    let options = Options {
        weft,
        arti: words.arti.clone().or_else(|| find("arti")),
        threads: words.threads,
        checkout: crate::root(),
        streams: words.streams,
        bytes: words.mebibytes << 20,
        small: 20,
        repetitions: words.repetitions,
        seed: 1,
        stopped: || false,
        progress: |line| eprintln!("{line}"),
    };
    let started_at = now.format(&Rfc3339).context("naming the time")?;
    let results = roles::run(&options, started_at)?;
    let path = words.out.clone().unwrap_or_else(|| {
        let name = slug(&results.machine.name);
        crate::root().join(format!("bench/results/{}-{name}-roles.json", now.date()))
    });
    let text = serde_json::to_string_pretty(&results).context("writing JSON")?;
    fs::write(&path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    println!("{}", roles::table(&results));
    println!("{}", path.display());
    Ok(())
}
