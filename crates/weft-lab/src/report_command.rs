//! The command `weft lab report`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use weft_plot::{Folder, KEPT, Style};
use weft_testnet::stop::Stop;

use crate::experiment::{NewFile, Progress, Watcher, perform};
use crate::report::{
    Comparison, Invocation, LARGEST_PLOT_DATA, Named, PAGE, Run, bounded, quote, write_page,
};
use crate::run;

/// Rewrites the report of a results folder, or compares several folders of one experiment.
///
/// With one folder its report.html is written from what it has, also that of a run that was killed, and the
/// tables are printed; with --style its plots are drawn again. With several the same rows stand side by side, on the terminal and in a page of its
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
    #[command(flatten)]
    style: Option<Style>,
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
            refresh(folder, args.style)
        }
        folders if run::are_parts(folders) => {
            let out = args.out.as_deref();
            let style = args.style.unwrap_or_default();
            merge(folders, out.unwrap_or(Path::new("merged")), style)
        }
        folders => {
            ensure!(
                args.style.is_none(),
                "--style is for plots, and a comparison has none"
            );
            let out = args.out.as_deref();
            compare(folders, out.unwrap_or(Path::new("comparison.html")))
        }
    }
}

fn refresh(folder: &Path, style: Option<Style>) -> Result<String> {
    let run = Run::read(folder)?;
    let place = Folder::existing(folder)?;
    let place = match style {
        Some(style) => {
            let place = place.with_style(style);
            for plot in &run.plots {
                draw_again(&place, &plot.file)?;
            }
            place
        }
        None => place,
    };
    write_page(&run, &place)?;
    Ok(format!(
        "{}\nThe report is {}.\n",
        run.text(),
        folder.join(PAGE).display()
    ))
}

/// Draws a plot of a folder again, of the data beside it.
fn draw_again(folder: &Folder, file: &str) -> Result<()> {
    let name = file.strip_suffix(".svg").unwrap_or(file);
    let path = folder.path().join(format!("{name}{KEPT}"));
    ensure!(
        path.exists(),
        "{} cannot be drawn again: {} is missing, as it is in folders of a Weft from before --style",
        folder.path().join(file).display(),
        path.display()
    );
    let data = bounded(&path, LARGEST_PLOT_DATA)?;
    let drawn = folder.plot_again(name, &data);
    drawn.with_context(|| format!("{} cannot be drawn", path.display()))?;
    Ok(())
}

/// Makes one run of parts.
fn merge(folders: &[PathBuf], out: &Path, style: Style) -> Result<String> {
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
    let args = run::MergeArgs {
        folders: folders.to_vec(),
        out: out.to_owned(),
        style,
    };
    let merged = perform::<run::Merging>(&args, &Stop::default(), &mut watcher)?;
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
    let page = comparison.page();
    NewFile::create(out)?.write(&page)?;
    Ok(format!(
        "{}\nThe comparison is {}.\n",
        comparison.text(),
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
