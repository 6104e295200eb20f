//! Rounds in files.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::Serialize;
use weft_virtual::chaos::{MAX_FILE, Round};

/// Reads a round, as [`write`] leaves one.
pub(super) fn read(file: &Path) -> Result<Round> {
    let reading = || format!("reading {}", file.display());
    let mut text = String::new();
    let opened = File::open(file).with_context(reading)?;
    opened
        .take(MAX_FILE + 1)
        .read_to_string(&mut text)
        .with_context(reading)?;
    ensure!(
        text.len() as u64 <= MAX_FILE,
        "{} is no round of chaos: it has more than {MAX_FILE} bytes",
        file.display()
    );
    Round::from_json(&text).map_err(|why| anyhow!("{} is no round of chaos: {why}", file.display()))
}

/// Writes a round, or what has one.
pub(super) fn write(file: &Path, round: &impl Serialize) -> Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    fs::write(file, serde_json::to_string_pretty(round)?)
        .with_context(|| format!("writing {}", file.display()))
}
