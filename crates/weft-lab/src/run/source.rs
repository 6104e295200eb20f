//! A scenario with the files that it names.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use weft_model::links::nearest;
use weft_sim::read;
use weft_testnet::stop::Stop;
use weft_virtual::{Files, Scenario};

use super::job::Job;

/// Inputs that all jobs of a run share.
pub(crate) struct Inputs<'a> {
    pub(crate) source: &'a Source,
    pub(crate) seed: u64,
    /// The `weft` that runs real nodes.
    pub(crate) weft: &'a Path,
    pub(crate) stop: &'a Stop,
}

/// A scenario, read and parsed.
#[derive(Debug)]
pub(crate) struct Source {
    /// The name of its file, without the folder.
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) scenario: Scenario,
    /// Contents of the files that it names.
    pub(crate) files: Files,
}

impl Source {
    /// Reads it. Names of files are relative to the scenario's folder.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or the scenario is wrong: file, line, and what to do.
    pub(crate) fn read(path: &Path) -> Result<Source> {
        let shown = path.display().to_string();
        let text = read::file(path)
            .context("the scenario cannot be used")?
            .text;
        let text = String::from_utf8(text)
            .with_context(|| format!("{shown} is no scenario: it is no text in UTF-8"))?;
        Source::parse(&shown, text, path.parent().unwrap_or(Path::new("")), &[])
    }

    /// A text, which errors name like that. Names of files are relative to this folder, but for these own ones, whose contents are
    /// here.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or the scenario is wrong: file, line, and what to do.
    pub(crate) fn parse(
        shown: &str,
        text: String,
        folder: &Path,
        own: &[(&str, String)],
    ) -> Result<Source> {
        let scenario = Scenario::parse(shown, &text)?;
        let mut files = Files::default();
        for (named, _) in scenario.files() {
            if let Some((_, text)) = own.iter().find(|(name, _)| *name == named) {
                files.insert(named, text.clone().into_bytes());
                continue;
            }
            let content = read::file(&folder.join(named))
                .with_context(|| format!("{shown} names a file that cannot be used"))?;
            files.insert(named, content.text);
        }
        let name = Path::new(shown).file_name().map_or_else(
            || shown.to_owned(),
            |name| name.to_string_lossy().into_owned(),
        );
        Ok(Source {
            name,
            text,
            scenario,
            files,
        })
    }

    /// The jobs of these arms, or of all where none is named, in the order in which they begin: every arm once in each
    /// repetition.
    ///
    /// # Errors
    ///
    /// There is no such arm or repetition.
    pub(crate) fn jobs(&self, arms: &[String], repetition: Option<u32>) -> Result<Vec<Job>> {
        let known: Vec<&str> = self.scenario.arms.iter().map(|arm| &*arm.name).collect();
        for arm in arms {
            if known.contains(&arm.as_str()) {
                continue;
            }
            match nearest(arm, known.iter().copied()) {
                Some(near) => bail!("{} has no arm {arm:?}; did you mean {near}?", self.name),
                None => bail!(
                    "{} has no arm {arm:?}; it has: {}",
                    self.name,
                    known.join(", ")
                ),
            }
        }
        let repetitions = self.scenario.repetitions;
        if let Some(repetition) = repetition {
            ensure!(
                (1..=repetitions).contains(&repetition),
                "--repetition {repetition}: {} has repetitions 1 to {repetitions}",
                self.name
            );
        }
        let chosen = (1..=repetitions).filter(|one| repetition.is_none_or(|only| only == *one));
        let jobs = chosen.flat_map(|repetition| {
            let named = known.iter().enumerate();
            let named =
                named.filter(|(_, arm)| arms.is_empty() || arms.iter().any(|one| one == *arm));
            named.map(move |(arm_number, arm)| Job {
                repetition,
                arm_number,
                arm: (*arm).to_owned(),
            })
        });
        Ok(jobs.collect())
    }
}
