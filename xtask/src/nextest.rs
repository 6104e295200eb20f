//! Running tests side by side, with cargo-nextest: each test in its own process, as many at a time
//! as keep all cores busy. `.config/nextest.toml` says which of them wait, which compute, and which
//! must not meet.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::linted::{self, Build};
use crate::tested::{Ended, Run};
use crate::{interrupt, machine, networks, tools};

/// Slots for each core. A test that computes takes two, one that mostly waits takes one (`.config/nextest.toml`).
const SLOTS_PER_CORE: usize = 2;

/// A line of progress comes after as many tests.
const PROGRESS: usize = 250;

/// A line of nextest's report, `libtest-json-plus`.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    of: String,
    event: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    exec_time: f64,
    #[serde(default)]
    stdout: String,
    #[serde(default)]
    message: String,
}

impl Run {
    /// Builds the tests and runs them, all of them, whether or not some fail; the result lists them.
    ///
    /// # Errors
    ///
    /// They do not compile, no test was run, or nextest itself failed.
    pub(crate) fn start(&self) -> Result<Vec<Ended>> {
        let build = build()?;
        self.run(&build)
    }

    /// Runs tests that are built; the result lists them.
    ///
    /// # Errors
    ///
    /// As of [`Run::start`].
    pub(crate) fn run(&self, build: &Build) -> Result<Vec<Ended>> {
        let mut ended = Vec::new();
        if !self.filter.is_empty() {
            ended.extend(self.nextest(&self.filter, || {})?);
        }
        if !self.networks.is_empty() && !interrupt::asked() {
            ended.extend(networks::run(networks(build)?, self)?);
        }
        ensure!(!interrupt::asked(), "interrupted");
        self.some(ended.len())?;
        Ok(ended)
    }

    /// Fails if no test was run: none has one of the names that were asked for.
    pub(crate) fn some(&self, tests: usize) -> Result<()> {
        ensure!(
            tests > 0,
            "no test has a name that contains {}",
            self.names.join(" or ")
        );
        Ok(())
    }

    /// Runs those that `filter` chooses with nextest. It calls `begins` when nothing is left to be built, and cargo is free for
    /// others.
    pub(crate) fn nextest(&self, filter: &str, begins: impl FnOnce()) -> Result<Vec<Ended>> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut nextest = linted::cargo()?;
        nextest
            .args(["nextest", "run", "--workspace", "--no-fail-fast"])
            .args(["--no-tests", "pass"])
            .args(["--message-format", "libtest-json-plus"])
            .arg("--test-threads")
            .arg((SLOTS_PER_CORE * cores).to_string())
            .args(["--filterset", filter])
            .args(&self.names)
            .env("PATH", with_nextest(&tools::nextest()?)?)
            .env("NEXTEST_EXPERIMENTAL_LIBTEST_JSON", "1")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        machine::print(&nextest);
        let mut child = nextest.spawn().context("starting cargo nextest")?;
        let output = child.stdout.take().context("nextest has no output")?;
        let mut ended = Vec::new();
        let mut begins = Some(begins);
        for line in BufReader::new(output).lines() {
            let line = line.context("reading nextest's report")?;
            begins.take().into_iter().for_each(|begins| begins());
            let Some(test) = read(&line) else {
                continue;
            };
            ended.push(test);
            if ended.len().is_multiple_of(PROGRESS) {
                println!("  {} tests have ended", ended.len());
            }
        }
        let status = child.wait().context("waiting for cargo nextest")?;
        let failed = ended.iter().any(|test| test.failure.is_some());
        // It fails without a failed test where tests do not compile, where none is chosen, and at Ctrl-C.
        ensure!(
            status.success() || failed,
            "cargo nextest: {status} (see above)"
        );
        Ok(ended)
    }
}

/// Builds all tests, and all else that clippy looks at but the fuzz targets.
pub(crate) fn build() -> Result<Build> {
    // No `--bins`: it also builds those that have no tests, the fuzz targets.
    let kinds = ["--tests", "--examples", "--benches"];
    linted::build(
        linted::cargo()?
            .args(["test", "--workspace", "--no-run"])
            .args(kinds),
    )
}

/// The program of `tests/`.
pub(crate) fn networks(build: &Build) -> Result<&Path> {
    build
        .program(networks::PROGRAM)
        .context("cargo has not built the program of tests/")
}

/// The test that a line reports as ended, if it does.
fn read(line: &str) -> Option<Ended> {
    let line: Line = serde_json::from_str(line).ok()?;
    if line.of != "test" || !matches!(line.event.as_str(), "ok" | "failed" | "timeout") {
        return None;
    }
    let failure = (line.event != "ok").then(|| [line.stdout, line.message].concat());
    Some(Ended {
        // A program of unit tests has the name of its crate, twice.
        name: line.name.replacen('$', " ", 1),
        seconds: line.exec_time,
        failure,
    })
}

/// `PATH` with the folder of nextest first: cargo finds its subcommands there.
fn with_nextest(program: &Path) -> Result<OsString> {
    let folder = program.parent().map(Path::to_path_buf).unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder).chain(std::env::split_paths(&path));
    std::env::join_paths(folders).context("the folder of cargo-nextest cannot be in PATH")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_lists_what_ended_and_the_output_of_what_failed() {
        let report = r#"
{"type":"suite","event":"started","test_count":2,"nextest":{"crate":"weft-core","test_binary":"it","kind":"test"}}
{"type":"test","event":"started","name":"weft-core::it$moves::one"}
{"type":"test","event":"ok","name":"weft-core::it$moves::one","exec_time":0.25}
{"type":"test","event":"started","name":"weft-core::it$moves::two"}
{"type":"test","event":"failed","name":"weft-core::it$moves::two","exec_time":1.5,"stdout":"thread panicked"}
{"type":"test","event":"ignored","name":"weft-core::it$moves::three"}
no JSON
"#;
        let ended: Vec<Ended> = report.lines().filter_map(read).collect();
        let [one, two] = ended.as_slice() else {
            panic!("{ended:?}");
        };
        assert_eq!(one.name, "weft-core::it moves::one");
        assert_eq!((one.short(), one.failure.as_deref()), ("moves::one", None));
        assert_eq!(two.failure.as_deref(), Some("thread panicked"));
        assert_eq!(two.seconds, 1.5);
    }
}
