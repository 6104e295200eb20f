//! `cargo xtask test`: everything that must pass before a change lands.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::python::Environment;
use crate::{deb, fuzz, install, instructions, machine, wheel};

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
    /// Clippy finds nothing
    Clippy,
    /// Unit, property, integration and documentation tests
    Unit,
    /// Every interleaving of the rings and leases between threads
    Loom,
    /// No more instructions for each relayed cell than recorded
    Instructions,
    /// Each fuzz target over its corpus, and some seconds more
    Fuzz,
    /// Licences, bans and sources of dependencies, by cargo-deny
    Deny,
    /// The simulator's Python package
    Wheel,
    /// The program as `cargo install` makes it
    Install,
    /// The Debian package
    Deb,
    /// Stem as a library, and its own integration tests; nyx in a terminal
    Stem,
    /// Networks of Weft, of C tor and of both
    Interop,
    /// A page in a real browser through a network of Weft (not run where there is no package of Chromium)
    Page,
}

const STEPS: [Step; 13] = [
    Step::Fmt,
    Step::Clippy,
    Step::Unit,
    Step::Loom,
    Step::Instructions,
    Step::Fuzz,
    Step::Deny,
    Step::Wheel,
    Step::Install,
    Step::Deb,
    Step::Stem,
    Step::Interop,
    Step::Page,
];

/// Where the fuzzing of a test run starts: a test finds what the last one found, and
/// `cargo xtask fuzz` is there to find more.
const FUZZ_SEED: u32 = 1;

/// The module whose tests need a private network; they have a step of their own.
const INTEROP: &str = "private_network";

/// The modules whose tests need Stem or nyx; they have a step of their own.
const WITH_STEM: &str = "with_stem";

/// Stem's last version, as pip names it, and what some of its tests need.
const STEM: [&str; 2] = ["stem", "1.8.2"];
const STEM_NEEDS: &str = "cryptography";

/// nyx's last version, as pip names it.
const NYX: &str = "nyx==2.1.0";

/// Which cargo-deny is installed where there is none.
const CARGO_DENY: &str = "0.20.2";

/// The variable that names the file to which a test that cannot run here appends a line
/// (`weft_testing::REPORT`).
const REPORT: &str = "WEFT_NOT_RUN";

/// How a step ended.
enum Outcome {
    Passed,
    /// Not run, and why.
    Skipped(&'static str),
}

/// Runs the steps; the first that fails ends the run.
pub(crate) fn run(args: &TestArgs) -> Result<()> {
    machine::prepare_testing()?;
    let report = report_file();
    fs::create_dir_all(machine::target())?;
    fs::write(&report, "").with_context(|| format!("writing {}", report.display()))?;
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
            Step::Wheel => wheel::check().map(|()| Outcome::Passed),
            Step::Install => install::check().map(skipped),
            Step::Deb => deb::check().map(|()| Outcome::Passed),
            Step::Stem => stem(),
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
    let report =
        fs::read_to_string(&report).with_context(|| format!("reading {}", report.display()))?;
    println!("\n{}", tests_not_run(&report));
    Ok(())
}

/// Where tests report that they cannot run.
fn report_file() -> PathBuf {
    machine::target().join("not-run")
}

/// The contents of [`report_file`], to be printed. A test that several steps run is named once.
fn tests_not_run(report: &str) -> String {
    let mut lines: Vec<&str> = report.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    if lines.is_empty() {
        return "Every test of these steps was run.".to_owned();
    }
    format!("Tests not run here, or in part:\n  {}", lines.join("\n  "))
}

/// cargo, whose tests report here.
fn cargo() -> Command {
    let mut cargo = machine::cargo();
    cargo.env(REPORT, report_file());
    cargo
}

/// How a step ended that may have a reason not to be run.
fn skipped(why: Option<&'static str>) -> Outcome {
    why.map_or(Outcome::Passed, Outcome::Skipped)
}

/// Everything that cargo runs as a test, but for what has a step of its own.
fn unit() -> Result<Outcome> {
    check(
        cargo()
            .args(["test", "--workspace", "--"])
            .args(["--skip", INTEROP, "--skip", WITH_STEM]),
    )
}

/// weft-sync under loom, in a build of its own: `--cfg loom` reaches every dependency.
fn loom() -> Result<Outcome> {
    check(
        cargo()
            .args(["test", "--package", "weft-sync", "--lib", "--release"])
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", machine::target().join("loom")),
    )
}

/// cargo-deny, installed where it is missing. What it knows of vulnerabilities is a database that it
/// loads from the network: that check is left out.
fn deny() -> Result<Outcome> {
    let program = match machine::find("cargo-deny") {
        Some(program) => program,
        None => cargo_deny()?,
    };
    check(
        Command::new(program)
            .current_dir(machine::root())
            .args(["--locked", "check", "bans", "licenses", "sources"]),
    )
}

/// The cargo-deny in the build folder, compiled where it is missing: as fast as can be, since it runs for
/// seconds.
fn cargo_deny() -> Result<PathBuf> {
    let folder = machine::target().join(format!("cargo-deny-{CARGO_DENY}"));
    let program = folder.join("bin/cargo-deny");
    if program.is_file() {
        return Ok(program);
    }
    let building = folder.join("building");
    machine::succeed(
        machine::cargo()
            .args(["install", "--quiet", "--locked", "--debug"])
            .args(["--version", CARGO_DENY, "cargo-deny", "--root"])
            .arg(&folder)
            .env("CARGO_TARGET_DIR", &building)
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_INCREMENTAL", "0"),
    )?;
    fs::remove_dir_all(&building).with_context(|| format!("removing {}", building.display()))?;
    Ok(program)
}

/// Stem, which most controllers are written with: as a library, and its own integration tests; and nyx.
fn stem() -> Result<Outcome> {
    let [name, version] = STEM;
    let package = format!("{name}=={version}");
    let environment = Environment::with("python3", &[&package, STEM_NEEDS, NYX])?;
    machine::prepare_terminal()?;
    check(
        cargo()
            .args(["test", "--workspace", "--lib", "--test", "control", "--"])
            .arg(WITH_STEM)
            .env("WEFT_STEM_PYTHON", environment.program("python"))
            .env("WEFT_STEM_SOURCES", environment.sources(name, version)?),
    )
}

/// Weft as a relay and as a client among C tor nodes; networks of both, and of each alone.
fn interop() -> Result<Outcome> {
    check(
        cargo()
            .args(["test", "--workspace", "--test", "interop"])
            .args(["--test", "client", "--test", "control"])
            .args([
                "--test",
                "networks",
                "--test",
                "bridges",
                "--test",
                "conflux",
                "--test",
                "mtor",
                "--test",
                "edges",
                "--test",
                "onion",
                "--test",
                "onion_directory",
                "--test",
                "lab_up",
                "--",
            ])
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
        cargo()
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
    use std::path::Path;

    use super::*;

    #[test]
    fn a_test_that_cannot_run_is_named_at_the_end() {
        let report = "b: no tor\na: no data\nb: no tor\n";
        let printed = tests_not_run(report);
        assert_eq!(
            printed,
            "Tests not run here, or in part:\n  a: no data\n  b: no tor"
        );
        assert_eq!(tests_not_run(""), "Every test of these steps was run.");
        // xtask depends on no crate of ours.
        let source = include_str!("../../crates/weft-testing/src/lib.rs");
        assert!(source.contains(&format!("pub const REPORT: &str = \"{REPORT}\";")));
    }

    /// The Rust files in a folder and below.
    fn sources(folder: &Path) -> Vec<PathBuf> {
        let paths = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        paths
            .flat_map(|path| match path.is_dir() {
                true => sources(&path),
                false => vec![path],
            })
            .filter(|path| path.extension().is_some_and(|end| end == "rs"))
            .collect()
    }

    /// libtest counts an ignored test, and the count is easily overlooked.
    #[test]
    fn every_ignored_test_is_run_by_another() {
        let mut ignored = 0;
        let folders = ["crates", "tests", "bench"].map(|folder| machine::root().join(folder));
        for path in folders.iter().flat_map(|folder| sources(folder)) {
            let text = fs::read_to_string(&path).unwrap();
            for (_, after) in text
                .match_indices("#[ignore")
                .map(|(at, _)| text.split_at(at))
            {
                let (_, name) = after.split_once("fn ").unwrap();
                let (name, _) = name.split_once('(').unwrap();
                // As words of a command, or in a line of torrc.
                let named = [format!("::{name}\","), format!("::{name} ")];
                let asked =
                    named.iter().any(|named| text.contains(named)) && text.contains("--ignored");
                assert!(asked, "{}: {name} is run by no other test", path.display());
                ignored += 1;
            }
        }
        assert!(ignored > 0, "the tests of drop_privileges need one");
    }
}
