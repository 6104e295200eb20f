//! Values of command line options, and the program that they name.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;

/// Off or on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Off.
    Off,
    /// On.
    On,
}

impl Switch {
    /// Those that are asked for, each once: off, then on.
    pub(crate) fn each(asked: &[Switch]) -> Vec<bool> {
        let both = [(Switch::Off, false), (Switch::On, true)];
        let wanted = both
            .into_iter()
            .filter(|(switch, _)| asked.contains(switch));
        wanted.map(|(_, on)| on).collect()
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Switch::Off => "off",
            Switch::On => "on",
        })
    }
}

/// A number of seconds, with decimals.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| "no number of seconds".to_owned())?;
    Duration::try_from_secs_f64(number).map_err(|error| error.to_string())
}

/// A number of bytes, with a unit or without.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (number, unit) = text.split_at(
        text.find(|c: char| c.is_ascii_alphabetic())
            .unwrap_or(text.len()),
    );
    let unit: u64 = match unit {
        "" | "B" => 1,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return Err(format!("{unit:?} is none of B, kB, MB, KiB, MiB")),
    };
    let number: u64 = number
        .trim()
        .parse()
        .map_err(|_| "no number of bytes".to_owned())?;
    number
        .checked_mul(unit)
        .filter(|bytes| *bytes <= 1 << 40)
        .ok_or_else(|| "more than a tebibyte for each stream".to_owned())
}

/// The weft that nodes run: the one at this path, or this program.
///
/// # Errors
///
/// There is no file at the path.
pub fn weft_program(named: Option<&Path>) -> Result<PathBuf> {
    match named {
        Some(path) => {
            ensure!(path.is_file(), "there is no program at {}", path.display());
            // Nodes run in folders of their own.
            path.canonicalize()
                .with_context(|| format!("finding {}", path.display()))
        }
        None => std::env::current_exe().context("cannot find this program's own file"),
    }
}
