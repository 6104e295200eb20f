//! Reads the folder of a run back. Its files may be anything: each is checked whole before it is used.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use weft_plot::CAPTION;

use super::model::{Run, SCHEMA, Table, Values};

/// The file that every folder has.
pub(crate) const FILE: &str = "run.json";
/// The most that is read of it, bytes.
const LARGEST: u64 = 16 << 20;
/// More tables, or columns of one, than any experiment has.
const MOST: usize = 100;
/// More cells than all tables of any experiment have. A page repeats the head of a column in each.
const MOST_CELLS: usize = 200_000;
/// A longer head of a column than any experiment has, bytes.
const LONGEST_HEAD: usize = 100;
/// A longer title or label than any experiment has, bytes. Comparisons repeat labels.
const LONGEST: usize = 4_000;
/// The most of a plot.
const LARGEST_PLOT: u64 = 4 << 20;
/// The most of what a plot is drawn of.
pub(crate) const LARGEST_PLOT_DATA: u64 = 16 << 20;
/// The most of a plot's caption.
const LARGEST_CAPTION: u64 = 64 << 10;

impl Run {
    /// The run of this folder.
    ///
    /// # Errors
    ///
    /// It has none, or one that is broken or of another version; the message names the file and what to do.
    pub fn read(folder: &Path) -> Result<Run> {
        ensure!(
            folder.is_dir(),
            "there is no folder {}: name one that an experiment of `weft lab` wrote",
            folder.display()
        );
        let path = folder.join(FILE);
        if !path.exists() {
            match folder.join("results.json").exists() {
                true => bail!(
                    "{} has results.json, but no {FILE}: a Weft from before reports wrote it; measure again",
                    folder.display()
                ),
                false => bail!(
                    "{} is no folder of `weft lab`: it has no {FILE}; name one that an experiment wrote (its --out)",
                    folder.display()
                ),
            }
        }
        let bytes = bounded(&path, LARGEST)?;
        Run::parse(&bytes).with_context(|| format!("{} cannot be used", path.display()))
    }

    /// The run in these bytes.
    ///
    /// # Errors
    ///
    /// They have none.
    pub fn parse(bytes: &[u8]) -> Result<Run> {
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let broken = "it is broken, or no run of `weft lab`: restore it, or measure again";
        let version: Version = serde_json::from_slice(bytes).context(broken)?;
        ensure!(
            version.schema == SCHEMA,
            "it has schema {}, and this Weft reads {SCHEMA}: use the Weft that wrote it, or measure again",
            version.schema
        );
        let run: Run = serde_json::from_slice(bytes).context(broken)?;
        run.check().context(broken)?;
        Ok(run)
    }

    /// Checks the bounds and the consistency of a run that was read.
    fn check(&self) -> Result<()> {
        let columns = |table: &Table| table.labels.len().saturating_add(table.metrics.len());
        let of = |table: &Table| columns(table).saturating_mul(table.rows.len());
        let cells = self.tables.iter().map(of).fold(0, usize::saturating_add);
        ensure!(
            self.tables.len() <= MOST
                && self.tables.iter().all(|table| columns(table) <= MOST)
                && cells <= MOST_CELLS,
            "it has over {MOST} tables, {MOST} columns in one, or {MOST_CELLS} cells in all"
        );
        for (at, table) in self.tables.iter().enumerate() {
            table
                .check()
                .with_context(|| format!("table {:?}", table.title))?;
            let mut others = self.tables.iter().skip(at + 1);
            ensure!(
                others.all(|other| other.title != table.title),
                "two tables are called {:?}",
                table.title
            );
        }
        let plots = self.plots.iter().map(|plot| &plot.file);
        for name in plots.chain(&self.files) {
            ensure!(is_plain(name), "{name:?} is no name of a file in a folder");
        }
        ensure!(
            is_possible(self.seconds),
            "it took no time that can be told"
        );
        Ok(())
    }
}

impl Table {
    fn check(&self) -> Result<()> {
        let metrics = self.metrics.iter().flat_map(|one| [&one.name, &one.unit]);
        let mut heads = self.labels.iter().chain(metrics);
        let mut labels = self.rows.iter().flat_map(|row| &row.labels);
        ensure!(
            heads.all(|head| head.len() <= LONGEST_HEAD)
                && self.title.len() <= LONGEST
                && labels.all(|label| label.len() <= LONGEST),
            "it has a head of over {LONGEST_HEAD} bytes, or a title or label of over {LONGEST}"
        );
        for row in &self.rows {
            ensure!(
                row.labels.len() == self.labels.len() && row.values.len() == self.metrics.len(),
                "a row has not as many cells as there are columns"
            );
            for values in &row.values {
                let is_number = match values {
                    Values::None => true,
                    Values::Samples(numbers) => {
                        !numbers.is_empty() && numbers.iter().all(|number| is_possible(*number))
                    }
                    Values::Mean { mean, ci95, n } => {
                        is_possible(*mean) && is_possible(*ci95) && *ci95 >= 0.0 && *n > 0
                    }
                };
                ensure!(is_number, "a value is no number that can be measured");
            }
        }
        Ok(())
    }
}

/// Not so large that its square, or a sum of many, is infinite.
fn is_possible(number: f64) -> bool {
    number.abs() <= 1e100
}

/// A plot of the folder, if it is there and no larger than a plot.
pub(crate) fn plot(folder: &Path, name: &str) -> Option<Vec<u8>> {
    match is_plain(name) {
        true => bounded(&folder.join(name), LARGEST_PLOT).ok(),
        false => None,
    }
}

/// Caption that a plot for a paper leaves out, if its file exists and is not too long.
pub(crate) fn caption(folder: &Path, name: &str) -> Option<String> {
    let name = name.strip_suffix(".svg").unwrap_or(name);
    let text = bounded(&folder.join(format!("{name}{CAPTION}")), LARGEST_CAPTION).ok()?;
    String::from_utf8(text).ok()
}

/// A file of this very folder, whose name needs no escape in a link.
fn is_plain(name: &str) -> bool {
    let is_known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !name.is_empty() && name.len() <= 200 && !name.starts_with('.') && name.chars().all(is_known)
}

/// Reads a regular file of bounded size.
pub(crate) fn bounded(path: &Path, most: u64) -> Result<Vec<u8>> {
    let reading = || format!("reading {}", path.display());
    let about = fs::symlink_metadata(path).with_context(reading)?;
    ensure!(about.is_file(), "{} is no file", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(reading)?;
    let read = file.take(most + 1).read_to_end(&mut bytes);
    let read = read.with_context(reading)?;
    ensure!(
        read as u64 <= most,
        "{} is larger than {} MiB: no experiment writes so much there",
        path.display(),
        most >> 20
    );
    Ok(bytes)
}
