//! Folders of several runs of one scenario, each with other jobs, as one run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use weft_plot::Style;

use super::command::Options;
use super::job::Job;
use super::raw::{self, JOBS, RESULTS, SCENARIO, STREAMS};
use super::results::{FailedJob, Results};
use super::testbed::Testbed;
use crate::experiment::{Experiment, Format, Output, Place, Prepared, Session};
use crate::report::bounded;

/// The most that is read of a file, bytes: millions of streams.
const LARGEST: u64 = 8 << 30;

/// Makes one run of the folders of several.
#[derive(Debug, clap::Args)]
pub struct MergeArgs {
    /// Folders of `weft lab run`.
    #[arg(required = true, value_name = "FOLDER")]
    pub folders: Vec<PathBuf>,
    /// The new folder.
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// Style of the plots.
    #[command(flatten)]
    pub style: Style,
}

/// Runs to merge.
#[derive(Debug)]
pub struct Merging {
    folders: Vec<PathBuf>,
}

/// Contents of a folder besides its measurements.
#[derive(Debug)]
struct Part {
    head: Head,
    /// The scenario.
    text: String,
}

/// The parts of a `results.json` that are read.
#[derive(Debug, Deserialize)]
struct Head {
    scenario: String,
    testbed: Testbed,
    seed: u64,
    duration_s: f64,
    elapsed_s: f64,
    peak_rss_bytes: u64,
    threads: usize,
    jobs: Vec<Job>,
    failures: Vec<FailedJob>,
}

/// True if these folders are runs of one scenario with one seed, and no job is in two of them.
#[must_use]
pub fn are_parts(folders: &[PathBuf]) -> bool {
    // A comparison reports the errors of a folder that is no run.
    let parts: Result<Vec<Part>> = folders.iter().map(|folder| Part::read(folder)).collect();
    parts.is_ok_and(|parts| check(&parts).is_ok())
}

/// Refuses parts that make no run.
fn check(parts: &[Part]) -> Result<()> {
    let mut jobs = BTreeSet::new();
    for part in parts {
        let head = &part.head;
        ensure!(
            parts.iter().all(|other| other.is_like(part)),
            "the folders are of different scenarios, seeds or testbeds"
        );
        for job in &head.jobs {
            ensure!(
                jobs.insert(job),
                "two folders have {}, repetition {}",
                job.arm,
                job.repetition
            );
        }
    }
    Ok(())
}

impl Part {
    fn read(folder: &Path) -> Result<Part> {
        let head = file(folder, RESULTS)?;
        let head = serde_json::from_str(&head)
            .with_context(|| format!("{} has no results of `weft lab run`", folder.display()))?;
        Ok(Part {
            head,
            text: file(folder, SCENARIO)?,
        })
    }

    /// They are runs of one scenario.
    fn is_like(&self, other: &Part) -> bool {
        let of = |part: &Part| {
            (
                part.head.testbed,
                part.head.seed,
                part.head.duration_s.to_bits(),
            )
        };
        self.text == other.text && of(self) == of(other)
    }
}

fn file(folder: &Path, name: &str) -> Result<String> {
    let path = folder.join(name);
    let bytes = bounded(&path, LARGEST)?;
    String::from_utf8(bytes).with_context(|| format!("{} is no text", path.display()))
}

impl Experiment for Merging {
    const FOLDER: &'static str = Options::FOLDER;
    const TITLE: &'static str = Options::TITLE;
    const QUESTION: &'static str = Options::QUESTION;
    type Args = MergeArgs;
    type Report = Results;

    fn prepare(args: &MergeArgs) -> Result<Prepared<Merging>> {
        let output = Output {
            place: Place::Folder(args.out.clone()),
            format: Format::Human,
            style: args.style,
        };
        let folders = args.folders.clone();
        Ok(Prepared::Run(Merging { folders }, output))
    }

    fn run(&self, _: &mut Session<'_>) -> Result<Results> {
        let parts: Result<Vec<Part>> = self.folders.iter().map(|one| Part::read(one)).collect();
        let parts = parts?;
        check(&parts)?;
        let mut jobs: Vec<Job> = parts
            .iter()
            .flat_map(|part| part.head.jobs.clone())
            .collect();
        jobs.sort();
        let (text, first) = parts
            .first()
            .map(|part| (part.text.clone(), &part.head))
            .context("there is nothing to merge")?;
        let (scenario, testbed) = (first.scenario.clone(), first.testbed);
        let mut results =
            Results::empty(scenario, text, testbed, first.seed, first.duration_s, jobs);
        let (mut elapsed, mut peak_rss) = (Duration::ZERO, 0);
        for (folder, part) in self.folders.iter().zip(&parts) {
            let read = raw::outcomes(&file(folder, JOBS)?, &file(folder, STREAMS)?);
            for outcome in read.with_context(|| format!("{} is damaged", folder.display()))? {
                ensure!(
                    part.head.jobs.contains(&outcome.job),
                    "{} is damaged: {JOBS} has a job that {RESULTS} has not",
                    folder.display()
                );
                results.push(outcome);
            }
            results.failures.extend(part.head.failures.clone());
            results.threads = results.threads.max(part.head.threads);
            let its = Duration::try_from_secs_f64(part.head.elapsed_s).unwrap_or_default();
            elapsed = elapsed.saturating_add(its);
            peak_rss = peak_rss.max(part.head.peak_rss_bytes);
        }
        results
            .failures
            .sort_by(|one, other| one.job.cmp(&other.job));
        let parts = self.folders.iter().map(|one| one.display().to_string());
        results.parts = parts.collect();
        results.sum_up(elapsed, peak_rss);
        Ok(results)
    }
}
