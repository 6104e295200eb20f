//! `cargo xtask fuzz`: builds the fuzz targets with coverage on stable Rust, and runs
//! each for some seconds.
//!
//! The crates of this workspace are compiled by `fuzz/rustc-cov`, which is clippy's compiler with
//! libFuzzer's instrumentation; dependencies are those of the dev build. `fuzz/README.md` explains
//! how to add a target, and what to do with a finding.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Context, Result, bail, ensure};

use crate::linted::{self, Program};
use crate::passed::{self, Passed};

/// Memory past which a target has failed, in MiB.
const RSS_LIMIT_MIB: u32 = 2048;
/// Time for a single input past which a target has failed, in seconds.
const INPUT_TIMEOUT_S: u32 = 10;
/// Lines of a failed target's log that are printed.
const LOG_TAIL_LINES: usize = 40;

/// Fuzz the parsers and state machines.
#[derive(clap::Args, Debug)]
pub(crate) struct FuzzArgs {
    /// Time to run each target, in seconds; 0 runs the corpus only
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Where libFuzzer's randomness starts, to have the same inputs again (default:
    /// elsewhere each time)
    #[arg(long)]
    seed: Option<u32>,
    /// Run only this target (default: all in fuzz/fuzz_targets)
    target: Option<String>,
}

/// `cargo xtask fuzz [--seconds N] [--seed N] [TARGET]`.
pub(crate) fn run(args: &FuzzArgs) -> Result<()> {
    let effort = Effort {
        seconds: args.seconds,
        inputs: None,
    };
    run_each(effort, args.seed, args.target.as_deref(), None)
}

/// The step of `cargo xtask test`: all targets, but for those that passed with this effort and seed before, and are unchanged.
///
/// # Errors
///
/// A target fails, or does not compile.
pub(crate) fn run_all(effort: Effort, seed: u32, passed: &Passed) -> Result<()> {
    run_each(effort, Some(seed), None, Some(passed))
}

/// Limits on the fuzzing of one target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Seconds; 0: the corpus only.
    pub(crate) seconds: u64,
    /// Inputs, those of the corpus with them.
    pub(crate) inputs: Option<u64>,
}

/// Builds the targets and runs each over its corpus, then over what libFuzzer makes of it, with
/// this effort; all targets, or the one named. `seed` is the random seed; without one, runs differ.
///
/// As many run at once as there are processors. Inputs that reach new code go to
/// `fuzz/found/TARGET`, never into the committed corpus; inputs that fail go to
/// `fuzz/artifacts/TARGET`. Fails when any target fails, naming it and the input.
fn run_each(
    effort: Effort,
    seed: Option<u32>,
    target: Option<&str>,
    passed: Option<&Passed>,
) -> Result<()> {
    let targets = targets(target)?;
    build_selected(&targets)?;
    println!(
        "Fuzzing, {} s at most for each of {} targets:",
        effort.seconds,
        targets.len()
    );

    let next = AtomicUsize::new(0);
    let worker = || {
        let mut failures = Vec::new();
        while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
            let remembering = |passed| run_unless_passed(target, effort, seed, passed);
            let ended = passed.map_or_else(|| run_one(target, effort, seed), remembering);
            match ended {
                Ok(summary) => println!("  {target}: {summary}"),
                Err(error) => {
                    println!("  {target}: FAILED");
                    failures.push(format!("{error:#}"));
                }
            }
        }
        failures
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let failures: Vec<String> = thread::scope(|scope| {
        let running: Vec<_> = (0..workers.min(targets.len()))
            .map(|_| scope.spawn(worker))
            .collect();
        let ended = running.into_iter().map(ScopedJoinHandle::join);
        ended
            .flat_map(|failures| failures.unwrap_or_else(|_| vec!["xtask panicked".into()]))
            .collect()
    });
    ensure!(
        failures.is_empty(),
        "{} of {} fuzz targets failed\n\n{}",
        failures.len(),
        targets.len(),
        failures.join("\n\n")
    );
    Ok(())
}

/// Builds all targets.
///
/// # Errors
///
/// One of them does not compile.
pub(crate) fn build() -> Result<()> {
    build_selected(&targets(None)?)
}

/// The targets there are, by the names of their files; or the one asked for.
fn targets(wanted: Option<&str>) -> Result<Vec<String>> {
    let dir = fuzz_dir().join("fuzz_targets");
    let entries = fs::read_dir(&dir).with_context(|| format!("listing {}", dir.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs")
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    ensure!(!names.is_empty(), "no fuzz targets in {}", dir.display());
    match wanted {
        None => Ok(names),
        Some(wanted) if names.iter().any(|name| name == wanted) => Ok(vec![wanted.to_owned()]),
        Some(wanted) => bail!("no fuzz target {wanted}; there are: {}", names.join(", ")),
    }
}

/// Builds these targets, and so also checks that `fuzz/Cargo.toml` lists them.
fn build_selected(targets: &[String]) -> Result<()> {
    let mut cargo = linted::cargo()?;
    cargo
        .env(linted::WRAPPER, fuzz_dir().join("rustc-cov"))
        .env("CLIPPY_DRIVER", linted::compiler()?);
    compile(&mut cargo, targets)?.clean()
}

/// Builds all targets by this cargo; the result is their programs.
///
/// # Errors
///
/// One of them does not compile.
pub(crate) fn build_by(cargo: &mut Command) -> Result<impl Iterator<Item = Program>> {
    let targets = targets(None)?;
    let programs = compile(cargo, &targets)?.into_programs();
    Ok(programs.filter(move |program| targets.contains(&program.target)))
}

fn compile(cargo: &mut Command, targets: &[String]) -> Result<linted::Build> {
    // Not the package alone: features, and so the dependencies, shall be those of the dev build.
    cargo
        .args(["build", "--quiet", "--workspace"])
        .arg("--target-dir")
        .arg(target_dir());
    for target in targets {
        cargo.args(["--bin", target]);
    }
    linted::build(cargo).context(
        "building the fuzz targets failed; each file of fuzz/fuzz_targets needs its line \
         in fuzz/Cargo.toml, and libFuzzer needs a C++ compiler (Debian: g++)",
    )
}

/// The examples of what a target reads.
pub(crate) fn corpus(target: &str) -> PathBuf {
    fuzz_dir().join("corpus").join(target)
}

/// As [`run_one`], unless it passed before, and is unchanged.
fn run_unless_passed(
    target: &str,
    effort: Effort,
    seed: Option<u32>,
    passed: &Passed,
) -> Result<String> {
    let what = format!("fuzz {target}");
    let words = [format!("{effort:?} {seed:?}")];
    let decided_by = passed::hash(&words, &[program(target), corpus(target)])?;
    if passed.has(&what, decided_by) {
        return Ok(passed::UNCHANGED.to_owned());
    }
    let summary = run_one(target, effort, seed)?;
    passed.note(&what, decided_by)?;
    Ok(summary)
}

fn program(target: &str) -> PathBuf {
    target_dir().join("debug").join(target)
}

/// Runs one target, and returns a short summary.
fn run_one(target: &str, effort: Effort, seed: Option<u32>) -> Result<String> {
    let corpus = corpus(target);
    let inputs = fs::read_dir(&corpus).map_or(0, Iterator::count);
    ensure!(
        inputs > 0,
        "{target}: no inputs in {}; libFuzzer needs examples of what the target reads",
        corpus.display()
    );
    let found = fuzz_dir().join("found").join(target);
    let artifacts = fuzz_dir().join("artifacts").join(target);
    for dir in [&found, &artifacts] {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    }
    let log_path = fuzz_dir().join("artifacts").join(format!("{target}.log"));
    let log = File::create(&log_path).with_context(|| format!("making {}", log_path.display()))?;

    let program = program(target);
    let mut command = Command::new(&program);
    match effort.seconds {
        // libFuzzer takes 0 for "without end".
        0 => command.arg("-runs=0"),
        seconds => command
            .arg(format!("-max_total_time={seconds}"))
            .args(effort.inputs.map(|inputs| format!("-runs={inputs}"))),
    };
    let status = command
        .current_dir(root())
        .args(seed.map(|seed| format!("-seed={seed}")))
        .arg(format!("-rss_limit_mb={RSS_LIMIT_MIB}"))
        .arg(format!("-timeout={INPUT_TIMEOUT_S}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg("-print_final_stats=1")
        // New inputs are written to the first directory.
        .args([&found, &corpus])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()
        .with_context(|| format!("{target}: starting {}", program.display()))?;

    let log = fs::read(&log_path).with_context(|| format!("reading {}", log_path.display()))?;
    let log = String::from_utf8_lossy(&log);
    if !status.success() {
        bail!("{}", failure(target, status, &log, &program));
    }
    // Without counters libFuzzer runs blindly, and succeeds.
    ensure!(
        log.contains("inline 8-bit counters"),
        "{target}: was built without coverage instrumentation; see fuzz/rustc-cov"
    );
    let statistic = |name: &str| {
        let line = log.lines().rev().find_map(|line| line.strip_prefix(name));
        line.map_or("?", str::trim)
    };
    Ok(format!(
        "{} inputs tried, {} found to reach more",
        statistic("stat::number_of_executed_units:"),
        statistic("stat::new_units_added:"),
    ))
}

/// The report of a failed target: the end of its log, and the command that reproduces the failure.
fn failure(target: &str, status: ExitStatus, log: &str, program: &Path) -> String {
    let input = log
        .lines()
        .rev()
        .find_map(|line| line.split_once("Test unit written to "))
        .map(|(_, path)| path.trim());
    let next = match input {
        Some(input) => format!(
            "The input that fails is {input}. To see it fail again:\n  {} {input}\n\
             Once mended, keep it as an example in fuzz/corpus/{target}.",
            program.display()
        ),
        None => "libFuzzer has written no input that fails.".to_owned(),
    };
    let lines: Vec<&str> = log.lines().collect();
    let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
    format!(
        "{target} failed ({status}). The end of its log:\n{}\n{next}",
        tail.join("\n")
    )
}

fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

fn fuzz_dir() -> PathBuf {
    root().join("fuzz")
}

/// Where Cargo builds: the dev build's directory, so that dependencies are shared.
fn target_dir() -> PathBuf {
    // A relative CARGO_TARGET_DIR is relative to where Cargo was started.
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => std::path::absolute(&dir).unwrap_or_else(|_| dir.into()),
        None => root().join("target"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn every_target_has_examples() {
        for target in targets(None).unwrap() {
            let corpus = corpus(&target);
            let inputs = fs::read_dir(&corpus).map_or(0, Iterator::count);
            assert!(inputs > 0, "no inputs in {}", corpus.display());
        }
    }

    #[test]
    fn an_unknown_target_is_refused_with_the_names_there_are() {
        let error = targets(Some("sells")).unwrap_err().to_string();
        assert!(error.contains("no fuzz target sells"), "{error}");
        assert!(error.contains("cells"), "{error}");
    }

    #[test]
    fn a_failure_names_the_target_and_the_input() {
        let log =
            "INFO: x\nthread panicked\nartifact_prefix='a/'; Test unit written to a/crash-1\n";
        let status = ExitStatus::from_raw(77 << 8);
        let text = failure("cells", status, log, Path::new("/t/debug/cells"));
        assert!(text.starts_with("cells failed (exit status: 77)"), "{text}");
        assert!(text.contains("thread panicked"), "{text}");
        assert!(text.contains("/t/debug/cells a/crash-1\n"), "{text}");
    }
}
