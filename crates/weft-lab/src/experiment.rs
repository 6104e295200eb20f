//! The frame that all experiments of `weft lab` share: arguments, repetitions, progress, an early
//! end that keeps what was measured, the report and the folder of the results.
//!
//! An [`Experiment`] has a name, reads its arguments, and runs; [`perform`] does the rest. Its
//! [`Session`] provides everything else that a run needs: [`Session::progress`] shows its progress,
//! [`Session::keep`] writes the results so far, Ctrl-C sets [`Session::stop`]. `experiments.rs`
//! lists the experiments; CONTRIBUTING.md has the steps to a new one.
//!
//! Nothing here depends on a terminal: the program passes a [`Watcher`], and prints the
//! [`Conclusion`].

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use weft_plot::{Folder, Style};
use weft_testnet::stop::Stop;

use crate::machine::{Cpus, Machine, Versions};
use crate::report::{self, Ending, Invocation, Plot, Run, Setting, Table};

/// An experiment, with its settings.
pub trait Experiment: Sized {
    /// Prefix of the results' folder, unless another is given.
    const FOLDER: &'static str;
    /// Title of its report; empty: that of the folder.
    const TITLE: &'static str = "";
    /// The question that it answers, in one sentence.
    const QUESTION: &'static str = "";
    /// The arguments of its command; the comment on them is its help.
    type Args: clap::Args;
    /// Its results.
    type Report: Report;

    /// Reads the arguments and checks them. Nothing is started or written here.
    ///
    /// # Errors
    ///
    /// The arguments contradict each other, or name what is not there.
    fn prepare(args: &Self::Args) -> Result<Prepared<Self>>;

    /// Measures. When [`Session::stop`] is requested it ends early, and reports what it has.
    ///
    /// # Errors
    ///
    /// Nothing could be measured, or results cannot be kept.
    fn run(&self, session: &mut Session<'_>) -> Result<Self::Report>;
}

/// Results of an experiment: printed by `Display` as a table, and kept as JSON. The frame writes
/// the files that all experiments share, `run.json`, `raw.jsonl`, `raw.csv` and `report.html`, from
/// [`tables`](Report::tables) and the methods after it.
pub trait Report: Serialize + fmt::Display {
    /// Nothing was measured yet.
    fn is_empty(&self) -> bool;

    /// It came to its planned end and met its bars; otherwise the exit status is 1.
    fn is_passed(&self) -> bool;

    /// Why it did not pass, where the table does not show that.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Tables for the report and for comparisons, with the rows measured so far.
    fn tables(&self) -> Vec<Table> {
        Vec::new()
    }

    /// Sentences under the tables: bars that were missed, what failed, what bounds the numbers.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Settings that no argument has: what was chosen by the machine, or is fixed. Names that are
    /// arguments as well replace these.
    fn settings(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Everything that was planned was measured, whether bars are met or not; `None`: it was if nobody
    /// stopped the run.
    fn is_complete(&self) -> Option<bool> {
        None
    }

    /// Caption of a plot, by its name without `.svg`; may be empty.
    fn caption(&self, _plot: &str) -> String {
        String::new()
    }

    /// The experiment's own files of the folder: name and content.
    ///
    /// # Errors
    ///
    /// The report cannot be written as JSON.
    fn files(&self) -> Result<Vec<(&'static str, String)>> {
        Ok(vec![("results.json", json(self)?)])
    }

    /// Draws the plots, if it has any. The result is their paths.
    ///
    /// # Errors
    ///
    /// A plot cannot be drawn, or the system refuses.
    fn draw(&self, _folder: &Folder) -> Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }
}

/// As JSON, with a line's end.
///
/// # Errors
///
/// It has no form in JSON.
pub fn json(report: &(impl Serialize + ?Sized)) -> Result<String> {
    Ok(serde_json::to_string_pretty(report).context("writing JSON")? + "\n")
}

/// The request that the arguments make.
#[derive(Debug)]
pub enum Prepared<E> {
    /// A run.
    Run(E, Output),
    /// This text, such as a list, and no run.
    Text(String),
}

/// Where results go.
#[derive(Clone, Debug)]
pub struct Output {
    /// Where they are kept.
    pub place: Place,
    /// Format of the printed results.
    pub format: Format,
    /// Style of the plots.
    pub style: Style,
}

/// Where results are kept.
#[derive(Clone, Debug)]
pub enum Place {
    /// In a new folder at this path.
    Folder(PathBuf),
    /// In a new folder in this one, named by experiment, date and time.
    NewFolderIn(PathBuf),
    /// Nowhere but in the report, which is printed, or written to this new file.
    Report(Option<PathBuf>),
}

/// Output at the end.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Format {
    /// A table.
    Human,
    /// One JSON object.
    Json,
}

/// The arguments of an experiment that keeps its results in a folder.
#[derive(Clone, Debug, clap::Args)]
pub struct FolderArgs {
    /// The new folder for the results [default: EXPERIMENT-DATE-TIME].
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Where that folder is made if --out does not name it [default: the current one].
    #[arg(
        long,
        value_name = "FOLDER",
        conflicts_with = "out",
        default_value = ".",
        hide_default_value = true
    )]
    within: PathBuf,
    /// Output at the end.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
    #[command(flatten)]
    style: Style,
}

impl FolderArgs {
    /// Where the results go.
    #[must_use]
    pub fn output(&self) -> Output {
        Output {
            place: match &self.out {
                Some(path) => Place::Folder(path.clone()),
                None => Place::NewFolderIn(self.within.clone()),
            },
            format: self.format,
            style: self.style,
        }
    }
}

/// Progress of an experiment.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Done of the whole, from 0 to 1.
    pub done: f64,
    /// The step that is under way, such as a run; a log has one line for each. Empty: it has none.
    pub step: String,
    /// State that changes within the step.
    pub detail: String,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress { step, detail, .. } = self;
        match (step.is_empty(), detail.is_empty()) {
            (_, true) => f.write_str(step),
            (true, false) => f.write_str(detail),
            (false, false) => write!(f, "{step}, {detail}"),
        }
    }
}

/// The program around an experiment: shows its progress on a terminal or in a log, or not at all (`()`), and
/// knows the command line.
pub trait Watcher {
    /// It has come so far.
    fn progress(&mut self, progress: &Progress);

    /// A line that stays: a run that failed, a number that was found.
    fn note(&mut self, line: &str);

    /// The command line that asked for the experiment, if there is one.
    fn invocation(&self) -> Invocation {
        Invocation::default()
    }
}

impl Watcher for () {
    fn progress(&mut self, _: &Progress) {}
    fn note(&mut self, _: &str) {}
}

/// Environment of one run of an experiment.
pub struct Session<'a> {
    /// The experiment's name, title and question.
    about: [&'static str; 3],
    started_at: String,
    since: Instant,
    machine: OnceCell<Machine>,
    versions: RefCell<Option<Versions>>,
    /// Plots drawn so far.
    plots: RefCell<Vec<Plot>>,
    stop: Stop,
    folder: Option<Folder>,
    watcher: &'a mut dyn Watcher,
}

impl fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("started_at", &self.started_at)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl Session<'_> {
    /// When the run began, UTC, RFC 3339.
    #[must_use]
    pub fn started_at(&self) -> &str {
        &self.started_at
    }

    /// The request to end early.
    #[must_use]
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// The folder of the results, if they are kept in one.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(Folder::path)
    }

    /// The machine as it is at the first call: before anything runs, as it also reports how busy the
    /// machine was.
    #[must_use]
    pub fn machine(&self) -> Machine {
        let here = || Machine::here(&Cpus::here(), None);
        self.machine.get_or_init(here).clone()
    }

    /// The programs that are here, the `weft` at this path among them; the commit is that of the current
    /// folder.
    #[must_use]
    pub fn versions(&self, weft: Option<&Path>) -> Versions {
        let weft = weft.unwrap_or(Path::new("/nonexistent"));
        self.noted(Versions::here(weft, Path::new("."), false))
    }

    /// Like [`versions`](Self::versions), for a `weft` that was built from this checkout.
    #[must_use]
    pub fn versions_built_from(&self, weft: &Path, checkout: &Path) -> Versions {
        self.noted(Versions::here(weft, checkout, true))
    }

    /// These are what the report names.
    fn noted(&self, versions: Versions) -> Versions {
        *self.versions.borrow_mut() = Some(versions.clone());
        versions
    }

    /// Shows how far the run is.
    pub fn progress(&mut self, progress: &Progress) {
        self.watcher.progress(progress);
    }

    /// Shows a line that stays.
    pub fn note(&mut self, line: &str) {
        self.watcher.note(line);
    }

    /// Writes the files of the report so far, in place of those before: what is there if the run is killed.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn keep(&self, report: &impl Report) -> Result<()> {
        self.write(report, Ending::Running)
    }

    /// Writes the files, and redraws the plots.
    ///
    /// # Errors
    ///
    /// A plot cannot be drawn, or the system refuses.
    pub(crate) fn keep_and_draw(&self, report: &impl Report) -> Result<()> {
        self.write_and_draw(report, Ending::Running)
    }

    fn write_and_draw(&self, report: &impl Report, ending: Ending) -> Result<()> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        // First without plots: if one cannot be drawn, the numbers are there.
        self.write(report, ending)?;
        let plots = report.draw(folder)?.into_iter().filter_map(|path| {
            Some(Plot {
                file: path.file_name()?.to_str()?.to_owned(),
                caption: report.caption(path.file_stem()?.to_str()?),
            })
        });
        *self.plots.borrow_mut() = plots.collect();
        self.write(report, ending)
    }

    fn write(&self, report: &impl Report, ending: Ending) -> Result<()> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let files = report.files()?;
        for (name, text) in &files {
            folder.write(name, text)?;
        }
        let mut run = self.run_of(report, ending);
        let common = ["raw.jsonl", "raw.csv", "run.json"];
        let names = files.iter().map(|(name, _)| *name).chain(common);
        run.files = names.map(str::to_owned).collect();
        folder.write("raw.jsonl", report::jsonl(&run)?)?;
        folder.write("raw.csv", report::csv(&run))?;
        folder.write("run.json", json(&run)?)?;
        report::write_page(&run, folder)
    }

    /// The folder, if it has results.
    fn kept(&self) -> Option<&Path> {
        let path = self.folder.as_ref()?.path();
        path.join(report::FILE).is_file().then_some(path)
    }

    fn run_of(&self, report: &impl Report, ending: Ending) -> Run {
        let Invocation {
            command,
            mut settings,
        } = self.watcher.invocation();
        for (name, value) in report.settings() {
            let is_default = match settings.iter().position(|one| one.name == name) {
                Some(at) => settings.remove(at).is_default,
                None => true,
            };
            settings.push(Setting {
                name,
                value,
                is_default,
            });
        }
        let seed = settings.iter().find(|one| one.name == "seed");
        let [experiment, title, question] = self.about;
        Run {
            schema: report::SCHEMA,
            experiment: experiment.to_owned(),
            title: title.to_owned(),
            question: question.to_owned(),
            started_at: self.started_at.clone(),
            seconds: self.since.elapsed().as_secs_f64(),
            ending,
            passed: ending.is_complete() && report.is_passed(),
            command,
            seed: seed.and_then(|one| one.value.parse().ok()),
            settings,
            machine: self.machine(),
            versions: self.versions.borrow().clone().unwrap_or_default(),
            notes: report.notes(),
            tables: report.tables(),
            plots: self.plots.borrow().clone(),
            files: Vec::new(),
        }
    }

    /// The ending of a run that has returned this report.
    fn ending(&self, report: &impl Report) -> Ending {
        match (report.is_complete(), self.stop.is_requested()) {
            (Some(true), _) | (None, false) => Ending::Complete,
            (_, true) => Ending::Stopped,
            (Some(false), false) => Ending::Incomplete,
        }
    }
}

/// Conclusion of an experiment.
#[derive(Debug)]
pub struct Conclusion {
    /// Text to print.
    pub text: String,
    /// True if the exit status is 0.
    pub is_passed: bool,
    /// Why not, where the text does not show that.
    pub failure: Option<String>,
}

/// Makes the experiment that these arguments ask for.
///
/// # Errors
///
/// The arguments make no sense, nothing could be measured, or results cannot be written. A folder or file
/// that was made for the results and has none is removed again.
pub fn perform<E: Experiment>(
    args: &E::Args,
    stop: &Stop,
    watcher: &mut dyn Watcher,
) -> Result<Conclusion> {
    let (experiment, output) = match E::prepare(args)? {
        Prepared::Run(experiment, output) => (experiment, output),
        Prepared::Text(text) => {
            return Ok(Conclusion {
                text,
                is_passed: true,
                failure: None,
            });
        }
    };
    let now = OffsetDateTime::now_utc();
    // Before the measurement, so that it is not made for nothing.
    let (folder, mut file) = match &output.place {
        Place::Folder(path) => (Some(Folder::create(path)?), None),
        Place::NewFolderIn(parent) => {
            let name = dated(E::FOLDER, now)?;
            (Some(Folder::create_free(parent, &name)?), None)
        }
        Place::Report(path) => (None, path.as_deref().map(NewFile::create).transpose()?),
    };
    let title = if E::TITLE.is_empty() {
        E::FOLDER
    } else {
        E::TITLE
    };
    let mut session = Session {
        about: [E::FOLDER, title, E::QUESTION],
        since: Instant::now(),
        machine: OnceCell::new(),
        versions: RefCell::new(None),
        plots: RefCell::new(Vec::new()),
        started_at: now.format(&Rfc3339).context("naming the time")?,
        stop: stop.clone(),
        folder: folder.map(|folder| folder.with_style(output.style)),
        watcher,
    };
    let outcome = experiment.run(&mut session);
    let report = match session.kept() {
        Some(path) => outcome.with_context(|| {
            format!(
                "the experiment failed; what was measured until then is in {}",
                path.display()
            )
        })?,
        None => outcome?,
    };
    ensure!(!report.is_empty(), "stopped before anything was measured");
    let ending = session.ending(&report);
    session.write_and_draw(&report, ending)?;
    let mut text = match (output.format, &session.folder) {
        (Format::Json, _) => json(&report)?,
        (Format::Human, None) => report.to_string(),
        (Format::Human, Some(folder)) => {
            let path = folder.path().display();
            let partial = ending.warning().map(|why| format!("\nPARTIAL: {why}\n"));
            format!(
                "{report}{}\nResults and plots are in {path}; report.html there shows all of it.\n",
                partial.unwrap_or_default()
            )
        }
    };
    if let Some(file) = &mut file {
        file.write(&text)?;
        text.clear();
    }
    Ok(Conclusion {
        text,
        is_passed: report.is_passed(),
        failure: report.failure(),
    })
}

/// A name with date and time.
fn dated(name: &str, now: OffsetDateTime) -> Result<String> {
    let when = now
        .format(format_description!(
            "[year]-[month]-[day]-[hour][minute][second]"
        ))
        .context("naming the time")?;
    Ok(format!("{name}-{when}"))
}

/// A file that was not there; dropped before all of it is written, it is removed.
pub(crate) struct NewFile {
    path: PathBuf,
    file: File,
    is_written: bool,
}

impl NewFile {
    pub(crate) fn create(path: &Path) -> Result<NewFile> {
        let file = File::create_new(path).with_context(|| {
            format!(
                "cannot make the new file {} (nothing is overwritten: name another by --out)",
                path.display()
            )
        })?;
        Ok(NewFile {
            path: path.to_owned(),
            file,
            is_written: false,
        })
    }

    pub(crate) fn write(&mut self, text: &str) -> Result<()> {
        self.file
            .write_all(text.as_bytes())
            .with_context(|| format!("writing {}", self.path.display()))?;
        self.is_written = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_written {
            // We have just made it, and it has no report.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// One measurement among all of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Counted from 1.
    pub number: usize,
    /// Number of measurements.
    pub of: usize,
    /// Counted from 1.
    pub repetition: u32,
    /// Index of what is measured in its list, from 0.
    pub subject: usize,
}

impl Turn {
    /// The part of the whole that is done before it.
    #[must_use]
    pub fn done(&self) -> f64 {
        self.number.saturating_sub(1) as f64 / self.of.max(1) as f64
    }
}

/// Every subject once in each repetition, in their order: what the machine does otherwise affects all.
pub(crate) fn turns(repetitions: u32, subjects: usize) -> impl Iterator<Item = Turn> {
    let of = subjects * repetitions as usize;
    (0..of).map(move |index| Turn {
        number: index + 1,
        of,
        repetition: (index / subjects) as u32 + 1,
        subject: index % subjects,
    })
}

/// [`turns`] of which each repetition begins with another subject, so that none always has the machine as
/// the same other one left it.
pub(crate) fn rotating_turns(repetitions: u32, subjects: usize) -> impl Iterator<Item = Turn> {
    turns(repetitions, subjects).map(move |turn| Turn {
        subject: (turn.subject + turn.repetition as usize - 1) % subjects,
        ..turn
    })
}

#[cfg(test)]
mod tests;
