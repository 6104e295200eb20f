//! The command `weft lab report`.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use weft_plot::Folder;

use super::compare::{Comparison, Named};
use super::invocation::{Invocation, quote};
use super::model::Run;
use super::{html, text};
use crate::experiment::{Progress, Watcher, perform};
use crate::scenario;
use crate::stop::Stop;

/// Writes the report of a results folder anew, or compares several folders of one experiment.
///
/// With one folder its report.html is written from what it has, also that of a run that was killed, and the
/// tables are printed. With several the same rows stand side by side, on the terminal and in a page of its
/// own: differences from the first folder in percent, with 95 % intervals where both have repetitions, and
/// first of all what else differs. Folders of `weft lab run` that have different jobs of one scenario and one seed are
/// parts of one run instead: a new folder is made with all of it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folders that experiments of `weft lab` wrote.
    #[arg(required = true, value_name = "FOLDER")]
    folders: Vec<PathBuf>,
    /// The new file for a comparison, or the new folder for a run of several parts [default: comparison.html; merged].
    #[arg(long, value_name = "FILE|FOLDER")]
    out: Option<PathBuf>,
}

/// Does it. The result is to be printed.
///
/// # Errors
///
/// A folder is none of `weft lab`, has a broken file, or runs cannot be compared; the page cannot be written.
pub fn report(args: &Args) -> Result<String> {
    match args.folders.as_slice() {
        [folder] => {
            ensure!(
                args.out.is_none(),
                "--out is for comparisons: the report of one folder is report.html in it"
            );
            refresh(folder)
        }
        folders if scenario::are_parts(folders) => {
            let out = args.out.as_deref();
            merge(folders, out.unwrap_or(Path::new("merged")))
        }
        folders => {
            let out = args.out.as_deref();
            compare(folders, out.unwrap_or(Path::new("comparison.html")))
        }
    }
}

fn refresh(folder: &Path) -> Result<String> {
    let run = Run::read(folder)?;
    html::write_page(&run, &Folder::existing(folder)?)?;
    Ok(format!(
        "{}\nThe report is {}.\n",
        text::run(&run),
        folder.join(html::FILE).display()
    ))
}

/// Makes one run of parts.
fn merge(folders: &[PathBuf], out: &Path) -> Result<String> {
    let mut words = "weft lab report".to_owned();
    for path in folders
        .iter()
        .map(PathBuf::as_path)
        .chain([Path::new("--out"), out])
    {
        words += &format!(" {}", quote(&path.to_string_lossy()));
    }
    let mut watcher = Merging(Invocation {
        command: words,
        settings: Vec::new(),
    });
    let args = scenario::MergeArgs {
        folders: folders.to_vec(),
        out: out.to_owned(),
    };
    let merged = perform::<scenario::Merging>(&args, &Stop::default(), &mut watcher)?;
    Ok(merged.text)
}

/// Knows the command line, and shows nothing.
struct Merging(Invocation);

impl Watcher for Merging {
    fn progress(&mut self, _: &Progress) {}
    fn note(&mut self, _: &str) {}
    fn invocation(&self) -> Invocation {
        self.0.clone()
    }
}

fn compare(folders: &[PathBuf], out: &Path) -> Result<String> {
    let runs: Result<Vec<Run>> = folders.iter().map(|folder| Run::read(folder)).collect();
    let names = names(folders).into_iter();
    let runs = names.zip(runs?).map(|(name, run)| Named { name, run });
    let comparison = Comparison::of(runs.collect())?;
    let page = html::comparison(&comparison);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(out)
        .with_context(|| {
            format!(
                "cannot make the new file {} (nothing is overwritten: name another by --out)",
                out.display()
            )
        })?;
    let written = file.write_all(page.as_bytes());
    written.with_context(|| format!("writing {}", out.display()))?;
    Ok(format!(
        "{}\nThe comparison is {}.\n",
        text::comparison(&comparison),
        out.display()
    ))
}

/// The folders' own names, or their whole paths where two have the same.
fn names(folders: &[PathBuf]) -> Vec<String> {
    let short: Vec<String> = folders
        .iter()
        .map(|folder| match folder.file_name() {
            Some(name) => name.to_string_lossy().into_owned(),
            None => folder.display().to_string(),
        })
        .collect();
    let mut once = short.clone();
    once.sort();
    once.dedup();
    match once.len() == short.len() {
        true => short,
        false => folders
            .iter()
            .map(|folder| folder.display().to_string())
            .collect(),
    }
}
