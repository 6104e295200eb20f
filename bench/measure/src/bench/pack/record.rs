//! The record of a pack: a results file that a second run continues.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::bench::results::{File, Pack, Results, Run};

/// The record at this path to go on with, or a new one. It is written, so that a place where nothing can be written is
/// found now.
///
/// # Errors
///
/// The record there is of something else, or cannot be written.
pub(super) fn open(path: &Path, new: Results) -> Result<(File, Results)> {
    let results = match path.exists() {
        true => go_on(Results::read(path)?, new)
            .with_context(|| format!("{} cannot be gone on with", path.display()))?,
        false => new,
    };
    let file = File {
        path: path.to_owned(),
    };
    write(&file, &results)?;
    Ok((file, results))
}

/// Writes the whole record.
pub(super) fn write(file: &File, results: &Results) -> Result<()> {
    file.write(results)
        .context("the record cannot be kept: make room, or name another place by --record")
}

/// The old record, if it is of the same pack, machine and plan. Failed rows are measured again.
fn go_on(old: Results, new: Results) -> Result<Results> {
    let hint = "move it away, or name another by --record";
    ensure!(old.pack.is_some(), "it is no record of a pack: {hint}");
    ensure!(
        old.versions == new.versions,
        "it is of {}, and this pack of {}: {hint}",
        old.weft(),
        new.weft()
    );
    let machine = |results: &Results| {
        let machine = &results.machine;
        format!(
            "{}, {} cores, {}",
            machine.cpu, machine.cores, machine.kernel
        )
    };
    ensure!(
        machine(&old) == machine(&new),
        "it is of another machine ({}), and this is {}: {hint}",
        machine(&old),
        machine(&new)
    );
    ensure!(
        old.options == new.options,
        "it is {}of --quick, and this run is {}: {hint}",
        if old.options.quick { "" } else { "not " },
        if new.options.quick { "" } else { "not" }
    );
    let sessions = old.pack.map(|pack| pack.sessions).unwrap_or_default();
    let runs = old.runs.into_iter().filter(|run| run.failure.is_none());
    Ok(Results {
        started_at: old.started_at,
        runs: runs.collect(),
        pack: new.pack.map(|pack| Pack { sessions, ..pack }),
        ..new
    })
}

/// Adds a run, in the place of one of the same row.
pub(super) fn add(results: &mut Results, run: Run) {
    results
        .runs
        .retain(|other| other.point != run.point || other.target != run.target);
    results.runs.push(run);
}

/// `pack.json`, which `cargo xtask pack` writes.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Stamp {
    pub(super) commit: String,
    /// The checkout had changes that no commit has.
    pub(super) dirty: bool,
    pub(super) rustc: Option<String>,
}

impl Stamp {
    pub(super) fn read(folder: &Path) -> Result<Stamp> {
        let path = folder.join("pack.json");
        let text = fs::read_to_string(&path)
            .with_context(|| format!("reading {}: is this a pack?", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::testing;

    fn record() -> Results {
        let mut results = testing::results();
        results.pack = Some(Pack {
            sessions: vec![10.0],
            ..Pack::default()
        });
        results
    }

    #[test]
    fn a_second_run_goes_on_and_measures_again_what_failed() {
        let mut old = record();
        old.runs[0].failure = Some("it was interrupted".to_owned());
        let new = Results {
            started_at: "later".to_owned(),
            runs: Vec::new(),
            pack: Some(Pack::default()),
            ..record()
        };
        let gone_on = go_on(old.clone(), new).expect("the same");
        assert_eq!(gone_on.runs, old.runs[1..]);
        assert_eq!(gone_on.started_at, old.started_at);
        assert_eq!(gone_on.pack.expect("of a pack").sessions, [10.0]);
    }

    #[test]
    fn a_record_of_something_else_is_refused_and_stays() {
        type Spoil = fn(&mut Results);
        let wrong: [(&str, Spoil); 4] = [
            (
                "commit 0123456789, and this pack of Weft, commit abc",
                |new| {
                    new.versions.commit = Some("abc".to_owned());
                },
            ),
            (
                "another machine (Some Processor, 2 cores, Linux 6)",
                |new| {
                    new.machine.cores = 1;
                },
            ),
            ("it is not of --quick", |new| new.options.quick = true),
            ("another machine", |new| {
                new.machine.cpu = "Another".to_owned()
            }),
        ];
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("record.json");
        let (_, old) = open(&path, record()).expect("a new one");
        for (words, spoil) in wrong {
            let mut new = record();
            spoil(&mut new);
            let error = open(&path, new).map(drop).expect_err(words);
            assert!(format!("{error:#}").contains(words), "{error:#}");
            assert_eq!(
                Results::read(&path).expect("there").runs.len(),
                old.runs.len()
            );
        }
        let none = Results {
            pack: None,
            ..record()
        };
        let error = go_on(none, record()).expect_err("no pack");
        assert!(error.to_string().contains("no record of a pack"), "{error}");
    }

    #[test]
    fn a_row_is_in_the_record_once() {
        let mut results = record();
        let count = results.runs.len();
        let again = Run {
            took_s: 99.0,
            ..results.runs[3].clone()
        };
        let same = |run: &&Run| run.point == again.point && run.target == again.target;
        let before = results.runs.iter().filter(same).count();
        add(&mut results, again.clone());
        assert_eq!(results.runs.len(), count + 1 - before);
        assert_eq!(results.runs.last(), Some(&again));
    }
}
