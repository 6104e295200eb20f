//! `cargo xtask test`: everything that must pass before a change lands.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::{fuzz, instructions, machine, wheel};

/// Everything that must pass before a change lands.
#[derive(clap::Args, Debug)]
pub(crate) struct TestArgs {
    /// Run only these steps (default: all, in order)
    #[arg(long, value_enum, value_name = "STEP")]
    only: Vec<Step>,
    /// Leave these steps out
    #[arg(long, value_enum, value_name = "STEP")]
    skip: Vec<Step>,
    /// How long to fuzz each target, in seconds
    #[arg(long, default_value_t = 5)]
    fuzz_seconds: u64,
}

/// One part of the whole.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Every file is formatted
    Fmt,
    /// Clippy has nothing to say
    Clippy,
    /// Unit, property, integration and documentation tests
    Unit,
    /// Every interleaving of the rings and leases between threads
    Loom,
    /// No more instructions for each relayed cell than recorded
    Instructions,
    /// Each fuzz target over its corpus, and some seconds more
    Fuzz,
    /// Licences and sources of dependencies (where cargo-deny is installed)
    Deny,
    /// The simulator's Python package (where Python is installed)
    Wheel,
    /// Networks of Weft, of C tor and of both
    Interop,
    /// A page in a real browser through a network of Weft (where Chromium can be had)
    Page,
}

const STEPS: [Step; 10] = [
    Step::Fmt,
    Step::Clippy,
    Step::Unit,
    Step::Loom,
    Step::Instructions,
    Step::Fuzz,
    Step::Deny,
    Step::Wheel,
    Step::Interop,
    Step::Page,
];

/// Where the fuzzing of a test run starts: a test finds what the last one found, and
/// `cargo xtask fuzz` is there to find more.
const FUZZ_SEED: u32 = 1;

/// The module whose tests need a private network; they have a step of their own.
const INTEROP: &str = "private_network";

/// How a step ended.
enum Outcome {
    Passed,
    /// Not run, and why.
    Skipped(&'static str),
}

/// Runs the steps; the first that fails ends the run.
pub(crate) fn run(args: &TestArgs) -> Result<()> {
    machine::prepare()?;
    let chosen = STEPS
        .into_iter()
        .filter(|step| args.only.is_empty() || args.only.contains(step))
        .filter(|step| !args.skip.contains(step));
    let mut summary = Vec::new();
    for step in chosen {
        println!("\n== {step:?}");
        let start = Instant::now();
        let outcome = match step {
            Step::Fmt => check(machine::cargo().args(["fmt", "--all", "--check"])),
            Step::Clippy => check(machine::cargo().args([
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ])),
            Step::Unit => unit(),
            Step::Loom => loom(),
            Step::Instructions => instructions::check().map(skipped),
            Step::Fuzz => {
                fuzz::run_each(args.fuzz_seconds, Some(FUZZ_SEED), None).map(|()| Outcome::Passed)
            }
            Step::Deny => deny(),
            Step::Wheel => wheel::check().map(skipped),
            Step::Interop => interop(),
            Step::Page => page(),
        };
        let outcome = outcome.with_context(|| {
            format!(
                "step {step:?} failed; `cargo xtask test --only {}` runs it alone",
                name(step)
            )
        })?;
        summary.push((step, start.elapsed(), outcome));
    }
    println!("\n== Summary");
    for (step, time, outcome) in &summary {
        let word = match outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Skipped(why) => format!("not run: {why}"),
        };
        println!("  {:<12} {:>7} {word}", name(*step), seconds(*time));
    }
    Ok(())
}

/// How a step ended that may have a reason not to be run.
fn skipped(why: Option<&'static str>) -> Outcome {
    why.map_or(Outcome::Passed, Outcome::Skipped)
}

/// Everything that cargo runs as a test, but for the private network.
fn unit() -> Result<Outcome> {
    check(
        machine::cargo()
            .args(["test", "--workspace", "--", "--skip"])
            .arg(INTEROP),
    )
}

/// weft-sync under loom, in a build of its own: `--cfg loom` reaches every dependency.
fn loom() -> Result<Outcome> {
    check(
        machine::cargo()
            .args(["test", "--package", "weft-sync", "--lib", "--release"])
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", machine::target().join("loom")),
    )
}

fn deny() -> Result<Outcome> {
    if machine::find("cargo-deny").is_none() {
        return Ok(Outcome::Skipped(
            "cargo-deny is not installed (`cargo install cargo-deny`)",
        ));
    }
    check(machine::cargo().args(["deny", "check", "bans", "licenses", "sources"]))
}

/// Weft as a relay and as a client among C tor nodes; networks of both, and of each alone.
fn interop() -> Result<Outcome> {
    check(
        machine::cargo()
            .args(["test", "--workspace", "--test", "interop"])
            .args(["--test", "client", "--test", "control"])
            .args(["--test", "networks", "--test", "edges", "--"])
            .args(["--nocapture", "--test-threads", "1"])
            .arg(INTEROP),
    )
}

/// A browser's page through a network of Weft.
fn page() -> Result<Outcome> {
    if let Err(why) = machine::prepare_browser() {
        println!("{why:#}");
        return Ok(Outcome::Skipped("there is no chromium here (see above)"));
    }
    check(
        machine::cargo()
            // Of the whole workspace, or dependencies would have other features, and be compiled again.
            .args(["test", "--workspace", "--test", "page", "--"])
            .args(["--nocapture", "--test-threads", "1"]),
    )
}

/// Runs a command that must end well.
fn check(command: &mut Command) -> Result<Outcome> {
    machine::succeed(command)?;
    Ok(Outcome::Passed)
}

/// A step as the command line spells it.
fn name(step: Step) -> String {
    format!("{step:?}").to_lowercase()
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who is not named is compiled as dependencies are, which takes longer.
    #[test]
    fn the_dev_profile_names_every_crate_of_ours() {
        let manifest = std::fs::read_to_string(machine::root().join("Cargo.toml")).unwrap();
        for folder in std::fs::read_dir(machine::root().join("crates")).unwrap() {
            let name = folder.unwrap().file_name().into_string().unwrap();
            let line = format!("\n{name} = {{ opt-level = 1 }}\n");
            assert!(manifest.contains(&line), "{name} has no line");
        }
    }
}
