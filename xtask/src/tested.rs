//! Selects and runs tests, and shows and keeps the output of those that failed.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Lines of a failed test's output that are shown, and the longest of them in characters.
const REASON: usize = 6;
const REASON_WIDTH: usize = 240;

/// The selection of tests to run, and the settings of the run.
#[derive(Default)]
pub(crate) struct Run {
    /// nextest's expression of the tests, in its own language; empty: none.
    pub(crate) filter: String,
    /// Modules of the tests that share a private network or a port ([`networks`]).
    pub(crate) networks: Vec<&'static str>,
    /// Substrings of names; empty: all of `filter`.
    pub(crate) names: Vec<String>,
    /// Variables of the tests' environment.
    pub(crate) variables: Vec<(&'static str, OsString)>,
}

/// A test that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ended {
    /// Its program (`weft-core::it`, `weft-cell`) and its name, with a space between them.
    pub(crate) name: String,
    pub(crate) seconds: f64,
    /// Its output, if it failed.
    pub(crate) failure: Option<String>,
}

impl Ended {
    /// Its program, as nextest names it.
    pub(crate) fn program(&self) -> &str {
        self.name
            .split_once(' ')
            .map_or(&self.name, |(program, _)| program)
    }

    /// The name without the program: an argument of `cargo xtask test`.
    pub(crate) fn short(&self) -> &str {
        self.name
            .split_once(' ')
            .map_or(&self.name, |(_, name)| name)
    }
}

/// Writes the output of each failed test to its own file in `folder`; returns their paths.
pub(crate) fn keep_logs(folder: &Path, tests: &[Ended]) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for test in tests {
        let Some(output) = &test.failure else {
            continue;
        };
        let name = test.name.replace("::", ".").replace([' ', '/'], "-");
        let path = folder.join(format!("{name}.log"));
        fs::write(&path, output).with_context(|| format!("writing {}", path.display()))?;
        paths.push(path);
    }
    Ok(paths)
}

/// The lines of a failed test's output that say why it failed: from its panic on, or the last ones. Where they are many,
/// the first and the last: some errors have a log between.
pub(crate) fn reason(output: &str) -> String {
    let told = |line: &&str| !line.trim().is_empty() && !line.starts_with("note: ");
    let (output, _backtrace) = output
        .split_once("\nstack backtrace:\n")
        .unwrap_or((output, ""));
    let lines: Vec<&str> = output.lines().filter(told).collect();
    let panicked = lines.iter().position(|line| line.contains("panicked at"));
    let lines = lines
        .get(panicked.unwrap_or_default()..)
        .unwrap_or_default();
    let head = if panicked.is_some() { REASON } else { 0 };
    let (first, rest) = lines.split_at(head.min(lines.len()));
    let last = rest
        .get(rest.len().saturating_sub(REASON)..)
        .unwrap_or_default();
    let left_out = (head > 0 && last.len() < rest.len()).then_some("…");
    let all = first
        .iter()
        .copied()
        .chain(left_out)
        .chain(last.iter().copied());
    all.fold(String::new(), |text, line| {
        let line: String = line.chars().take(REASON_WIDTH).collect();
        text + "\n    | " + &line
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;

    #[test]
    fn the_output_of_what_failed_is_kept() {
        let ended = |name: &str, failure: Option<&str>| Ended {
            name: name.to_owned(),
            seconds: 0.5,
            failure: failure.map(str::to_owned),
        };
        let ended = [
            ended("weft-core::it moves::one", None),
            ended("weft-core::it moves::two", Some("thread panicked")),
        ];
        let folder = machine::target().join("tests-of-xtask");
        fs::create_dir_all(&folder).unwrap();
        let paths = keep_logs(&folder, &ended).unwrap();
        assert_eq!(paths, [folder.join("weft-core.it-moves.two.log")]);
        assert_eq!(fs::read_to_string(&paths[0]).unwrap(), "thread panicked");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_long_reason_has_its_beginning_and_its_end() {
        let log: String = (0..100).map(|line| format!("line {line}\n")).collect();
        let shown = reason(&format!(
            "before\nx panicked at y\n{log}stack backtrace:\n 0: f\nnote: run\n"
        ));
        let shown: Vec<&str> = shown.trim().lines().map(str::trim).collect();
        assert_eq!(shown[..2], ["| x panicked at y", "| line 0"]);
        assert_eq!(shown[REASON..=REASON + 1], ["| …", "| line 94"]);
        assert_eq!(shown[2 * REASON], "| line 99");
        assert_eq!(shown.len(), 2 * REASON + 1);
        // Without a panic the end says most.
        assert_eq!(reason(&log).trim().lines().count(), REASON);
    }
}
