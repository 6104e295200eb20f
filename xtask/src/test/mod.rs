//! `cargo xtask test`: everything that must pass before a change lands.

mod summary;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

pub(crate) use self::summary::{Outcome, Summary};
use crate::passed::{self, Group, Passed};
use crate::python::Environment;
use crate::tested::Run;
use crate::{
    deb, fuzz, install, instructions, interrupt, linted, machine, networks, nextest, pack, tools,
    wheel,
};

/// Everything that must pass before a change lands.
#[derive(clap::Args, Debug)]
pub(crate) struct TestArgs {
    /// Run only these steps (default: all, in order)
    #[arg(long, value_enum, value_name = "STEP")]
    only: Vec<Step>,
    /// Leave these steps out
    #[arg(long, value_enum, value_name = "STEP")]
    skip: Vec<Step>,
    /// Run also what passed before and is unchanged: fuzz targets, counts of instructions, tests that do the same each time
    #[arg(long)]
    again: bool,
    /// Longest time to fuzz each target, in seconds
    #[arg(long, default_value_t = 5)]
    fuzz_seconds: u64,
    /// Run only the tests whose names contain one of these, and no other step
    #[arg(value_name = "TEST")]
    names: Vec<String>,
}

/// One part of the whole.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Every file is formatted
    Fmt,
    /// Clippy finds nothing (it is what compiles the tests)
    Clippy,
    /// Unit, property and integration tests
    Unit,
    /// Stem as a library, and its own integration tests; nyx in a terminal
    Stem,
    /// Networks of Weft, of C tor and of both
    Interop,
    /// A page in a real browser through a network of Weft (not run where there is no package of Chromium)
    Page,
    /// Examples in the documentation of the crates
    Doc,
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
    /// The pack for larger machines, in a bare root folder
    Pack,
}

/// In this order. Tests that are run by nextest stand side by side, and are run together.
const STEPS: [Step; 15] = [
    Step::Fmt,
    Step::Clippy,
    Step::Unit,
    Step::Stem,
    Step::Interop,
    Step::Page,
    Step::Doc,
    Step::Loom,
    Step::Instructions,
    Step::Deny,
    Step::Wheel,
    Step::Install,
    Step::Deb,
    Step::Pack,
    Step::Fuzz,
];

/// Where the fuzzing of a test run starts, and how many inputs each target gets: a test finds what the last one found, also
/// on a faster machine, and `cargo xtask fuzz` is there to find more.
const FUZZ_SEED: u32 = 1;
const FUZZ_INPUTS: u64 = 20_000;

/// Modules of `tests/` whose tests share a private network, or Stem's ports, which `networks` runs.
pub(crate) const PRIVATE_NETWORK: &str = "private_network";
pub(crate) const WITH_STEM: &str = "with_stem";

/// nextest's expression of the tests of these modules.
const SHARING: &str = "(binary_id(weft::networks) and test(/::(private_network|with_stem)::/) and not test(/^page::/))";

/// nextest's expression of the other tests that need a private network.
const INTEROP: &str = "(test(/(^|::)private_network::/) and not binary_id(weft::networks))";

/// Priority of what is run beside tests, from -20 (first) to 19 (last).
const NICE: &str = "19";

/// nextest's expression of the tests that need Stem as a library.
const STEM_ALONE: &str = "(test(/(^|::)with_stem::/) and not binary_id(weft::networks))";

/// nextest's expression of the tests that need a browser.
const PAGE: &str = "(binary_id(weft::networks) and test(/^page::private_network::/))";

/// Stem's last version, as pip names it, and what some of its tests need.
const STEM: [&str; 2] = ["stem", "1.8.2"];
const STEM_NEEDS: &str = "cryptography";

/// nyx's last version, as pip names it.
const NYX: &str = "nyx==2.1.0";

/// The variable that names the file to which a test that cannot run here appends a line
/// (`weft_testing::REPORT`).
const REPORT: &str = "WEFT_NOT_RUN";

impl Step {
    /// nextest's expression of the step's tests, if it is one that nextest runs.
    pub(crate) fn tests(self) -> Option<String> {
        match self {
            Step::Unit => Some(format!(
                "not {SHARING} and not {INTEROP} and not {STEM_ALONE} and not {PAGE}"
            )),
            Step::Stem => Some(STEM_ALONE.to_owned()),
            Step::Interop => Some(INTEROP.to_owned()),
            Step::Page => Some(PAGE.to_owned()),
            _ => None,
        }
    }

    /// The module whose tests `networks` runs for it.
    fn sharing(self) -> Option<&'static str> {
        match self {
            Step::Interop => Some(PRIVATE_NETWORK),
            Step::Stem => Some(WITH_STEM),
            _ => None,
        }
    }

    fn run(self, args: &TestArgs, passed: &Passed) -> Result<Outcome> {
        match self {
            Step::Fmt => fmt(),
            Step::Doc => check(cargo()?.args(["test", "--workspace", "--doc", "--quiet"])),
            Step::Loom => loom(),
            Step::Instructions => instructions::check(passed).map(Outcome::unless),
            Step::Fuzz => {
                let effort = fuzz::Effort {
                    seconds: args.fuzz_seconds,
                    inputs: Some(FUZZ_INPUTS),
                };
                fuzz::run_all(effort, FUZZ_SEED, passed).map(|()| Outcome::Passed)
            }
            Step::Deny => deny(),
            Step::Wheel => wheel::check().map(|()| Outcome::Passed),
            Step::Install => install::check().map(Outcome::unless),
            Step::Deb => deb::check().map(|()| Outcome::Passed),
            Step::Pack => pack::check().map(Outcome::unless),
            Step::Clippy | Step::Unit | Step::Stem | Step::Interop | Step::Page => {
                Ok(Outcome::Passed)
            }
        }
    }

    /// If the build of the tests is a part of it.
    fn is_built(self) -> bool {
        self == Step::Clippy || self.tests().is_some()
    }

    /// As the command line spells it.
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// Runs the steps, all of them even if one fails, and names all that failed at the end.
///
/// Tests wait more than they compute, those of private networks above all: networks run beside the tests of nextest, and the
/// steps that run no tests of their own take what both leave of the processors. Fuzzing gives each input a time, and so comes
/// after nextest.
///
/// # Errors
///
/// Something failed, or Ctrl-C ended it.
pub(crate) fn run(args: &TestArgs) -> Result<()> {
    let (tests, mut others): (Vec<Step>, Vec<Step>) = STEPS
        .into_iter()
        .filter(|step| args.only.is_empty() || args.only.contains(step))
        .filter(|step| !args.skip.contains(step))
        .filter(|step| args.names.is_empty() || step.tests().is_some())
        .partition(|step| step.is_built());
    let steps = args.only.is_empty() && args.names.is_empty();
    machine::can_prepare_testing(steps)?;
    let summary = Summary::new(new_logs()?);
    if others.first() == Some(&Step::Fmt) {
        others.remove(0);
        summary.run("fmt", &alone(&[Step::Fmt]), fmt);
    }
    let mut built = match tests.is_empty() || interrupt::asked() {
        true => None,
        false => Built::new(&tests, args, &summary),
    };
    let passed = Passed::before(args.again);
    let remembered = match &built {
        Some(built) if args.names.is_empty() => passed::deterministic(&built.build)?,
        _ => Vec::new(),
    };
    if let Some(built) = &mut built {
        built.leave_out(&remembered, &passed, &summary);
    }
    let nextest = built.as_ref().filter(|built| !built.run.filter.is_empty());
    let networks = nextest.filter(|built| !built.run.networks.is_empty());
    // Each is said once nextest needs cargo no more, and once it has ended; both at once where it does not run.
    let (begins, begun) = mpsc::channel();
    let (ends, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        if let Some(built) = networks {
            scope.spawn(|| {
                let alone = alone(&[Step::Stem, Step::Interop]);
                summary.run("networks", &alone, || {
                    let program = nextest::networks(&built.build)?;
                    networks::run(program, &built.run).map(Outcome::Tests)
                });
            });
        }
        let (summary, passed) = (&summary, &passed);
        let beside = scope.spawn(move || {
            let _ = begun.recv();
            giving_way(move || {
                for step in others {
                    let unless_interrupted = |name: &str, run: &dyn Fn() -> Result<Outcome>| {
                        if !interrupt::asked() {
                            summary.run(name, &alone(&[step]), run);
                        }
                    };
                    if step == Step::Fuzz {
                        unless_interrupted("fuzz, build", &|| {
                            fuzz::build().map(|()| Outcome::Passed)
                        });
                        let _ = ended.recv();
                    }
                    unless_interrupted(&step.name(), &|| step.run(args, passed));
                }
            })
        });
        if let Some(built) = nextest
            && !interrupt::asked()
        {
            summary.run(&built.words, &built.alone, || {
                let begins = || {
                    let _ = begins.send(());
                };
                let tests = built.run.nextest(&built.run.filter, begins)?;
                passed::note_tests(passed, &remembered, &tests)?;
                Ok(Outcome::Tests(tests))
            });
        }
        drop((begins, ends));
        let beside = beside.join();
        beside.map_err(|_| anyhow!("running steps panicked"))?
    })?;
    if let Some(built) = &built
        && !interrupt::asked()
        && summary.judge().is_ok()
    {
        built.run.some(summary.ended())?;
    }
    let report = report_file();
    let report =
        fs::read_to_string(&report).with_context(|| format!("reading {}", report.display()))?;
    println!("{}\n{}", summary.text(), tests_not_run(&report));
    summary.write_times(&machine::target().join("test-times"))?;
    let judged = summary.judge();
    match interrupt::asked() {
        true => judged.and_then(|()| bail!("interrupted")),
        false => judged,
    }
}

/// Runs what leaves the processors to others that want them.
fn giving_way(run: impl FnOnce() + Send) -> Result<()> {
    let thread = || {
        // The priority of this thread is that of the programs that it starts. Without it everything is only slower.
        let _ = Command::new("renice")
            .args(["-n", NICE, "-p", &nix::unistd::gettid().to_string()])
            .output();
        run();
    };
    let ended = thread::scope(|scope| scope.spawn(thread).join());
    ended.map_err(|_| anyhow!("a step panicked"))
}

/// Tests that are built.
struct Built {
    run: Run,
    build: linted::Build,
    /// The steps that they are of, and the command that runs these alone.
    words: String,
    alone: String,
}

impl Built {
    /// Builds the tests, and meanwhile gets what those of these steps need.
    fn new(steps: &[Step], args: &TestArgs, summary: &Summary) -> Option<Self> {
        println!("\n== build");
        let start = Instant::now();
        let (build, prepared) = thread::scope(|scope| {
            let building = scope.spawn(nextest::build);
            let others = args.only.is_empty() && args.names.is_empty();
            let prepared = machine::prepare_testing(others)
                .and_then(|()| tools::nextest().map(drop))
                .map(|()| prepare_tests(steps, &args.names));
            let build = building.join();
            let build = build.map_err(|_| anyhow!("the build panicked"));
            (build.flatten(), prepared)
        });
        let built = build.and_then(|build| Ok((build, prepared?)));
        let (outcome, built) = match built {
            Ok(built) => (Ok(Outcome::Passed), Some(built)),
            Err(error) => (Err(error), None),
        };
        summary.step("build", &alone(steps), start.elapsed(), outcome);
        let (build, (run, missing)) = built?;
        let mut steps = steps.to_vec();
        if steps.contains(&Step::Clippy) {
            let found = build.clean().map(|()| Outcome::Passed);
            summary.step("clippy", &alone(&[Step::Clippy]), Duration::ZERO, found);
            steps.retain(|step| *step != Step::Clippy);
        }
        for (step, why) in missing {
            steps.retain(|other| *other != step);
            summary.step(&step.name(), &alone(&[step]), Duration::ZERO, why);
        }
        Some(Self {
            run,
            build,
            words: words(&steps),
            alone: alone(&steps),
        })
    }
}

impl Built {
    /// Leaves out the groups of tests that passed before and are unchanged.
    fn leave_out(&mut self, groups: &[Group], passed: &Passed, summary: &Summary) {
        let known: Vec<String> = groups
            .iter()
            .filter(|group| group.passed(passed))
            .map(Group::filter)
            .collect();
        if known.is_empty() || self.run.filter.is_empty() {
            return;
        }
        let filter = &self.run.filter;
        self.run.filter = format!("({filter}) and not ({})", known.join(" or "));
        let name = format!("{} groups of tests", known.len());
        let outcome = Ok(Outcome::Skipped(passed::UNCHANGED));
        summary.step(&name, &self.alone, Duration::ZERO, outcome);
    }
}

/// Steps whose tests cannot be run, and why.
pub(crate) type Missing = Vec<(Step, Result<Outcome>)>;

/// Gets what the tests of these steps need; the result is how they are run, and those that are not.
pub(crate) fn prepare_tests(steps: &[Step], names: &[String]) -> (Run, Missing) {
    let mut run = Run {
        names: names.to_vec(),
        variables: vec![(REPORT, report_file().into())],
        ..Run::default()
    };
    let mut missing = Missing::new();
    let mut filters = Vec::new();
    for step in steps {
        match prepare(*step, &mut run) {
            Ok(None) => {
                filters.extend(step.tests().map(|tests| format!("({tests})")));
                run.networks.extend(step.sharing());
            }
            Ok(Some(why)) => missing.push((*step, Ok(Outcome::Skipped(why)))),
            Err(error) => missing.push((*step, Err(error))),
        }
    }
    run.filter = filters.join(" or ");
    (run, missing)
}

/// The folder of failed tests' output, empty; and an empty report of those that are not run.
pub(crate) fn new_logs() -> Result<PathBuf> {
    let logs = machine::target().join("failed-tests");
    machine::remove(&logs)?;
    fs::create_dir_all(&logs).with_context(|| format!("making {}", logs.display()))?;
    let report = report_file();
    fs::write(&report, "").with_context(|| format!("writing {}", report.display()))?;
    Ok(logs)
}

/// These steps in words.
fn words(steps: &[Step]) -> String {
    let words: Vec<String> = steps.iter().map(|step| step.name()).collect();
    words.join(", ")
}

/// The command that runs these steps alone.
fn alone(steps: &[Step]) -> String {
    let words = steps.iter().map(|step| format!(" --only {}", step.name()));
    format!("cargo xtask test{}", words.collect::<String>())
}

/// Gets what the tests of a step need. The result: why they are not run here.
fn prepare(step: Step, run: &mut Run) -> Result<Option<&'static str>> {
    match step {
        Step::Stem => {
            let [name, version] = STEM;
            let package = format!("{name}=={version}");
            let environment = Environment::with("python3", &[&package, STEM_NEEDS, NYX])?;
            machine::prepare_terminal()?;
            run.variables.extend([
                ("WEFT_STEM_PYTHON", environment.program("python").into()),
                (
                    "WEFT_STEM_SOURCES",
                    environment.sources(name, version)?.into(),
                ),
            ]);
            Ok(None)
        }
        Step::Page => Ok(machine::prepare_browser().err().map(|why| {
            println!("{why:#}");
            "there is no chromium here (see above)"
        })),
        _ => Ok(None),
    }
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
fn cargo() -> Result<Command> {
    let mut cargo = linted::cargo()?;
    cargo.env(REPORT, report_file());
    Ok(cargo)
}

/// Every file is formatted.
pub(crate) fn fmt() -> Result<Outcome> {
    check(machine::cargo().args(["fmt", "--all", "--check"]))
}

/// weft-sync under loom, in a separate build: `--cfg loom` reaches every dependency.
fn loom() -> Result<Outcome> {
    check(
        cargo()?
            .args(["test", "--package", "weft-sync", "--lib", "--release"])
            .env_remove(linted::WRAPPER)
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", machine::target().join("loom")),
    )
}

/// Runs cargo-deny without its check for vulnerabilities, which downloads a database.
fn deny() -> Result<Outcome> {
    check(
        Command::new(tools::deny()?)
            .current_dir(machine::root())
            .args(["--locked", "check", "bans", "licenses", "sources"]),
    )
}

/// Runs a command that must end well.
fn check(command: &mut Command) -> Result<Outcome> {
    machine::succeed(command)?;
    Ok(Outcome::Passed)
}

#[cfg(test)]
mod tests {
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
        let source = include_str!("../../../crates/weft-testing/src/lib.rs");
        assert!(source.contains(&format!("pub const REPORT: &str = \"{REPORT}\";")));
    }

    /// libtest counts an ignored test, and the count is easily overlooked.
    #[test]
    fn every_ignored_test_is_run_by_another() {
        let mut ignored = 0;
        let folders = ["crates", "tests", "bench"].map(|folder| machine::root().join(folder));
        for path in folders.iter().flat_map(|folder| machine::sources(folder)) {
            let text = fs::read_to_string(&path).unwrap();
            for (_, after) in text
                .match_indices("#[ignore")
                .map(|(at, _)| text.split_at(at))
            {
                let (_, name) = after.split_once("fn ").unwrap();
                let (name, _) = name.split_once('(').unwrap();
                // As words of a command, handed to what runs it, or in a line of torrc.
                let named = ["\",", "\")", " "].map(|end| format!("::{name}{end}"));
                let asked =
                    named.iter().any(|named| text.contains(named)) && text.contains("--ignored");
                assert!(asked, "{}: {name} is run by no other test", path.display());
                ignored += 1;
            }
        }
        assert!(ignored > 0, "the tests of drop_privileges need one");
    }
}
