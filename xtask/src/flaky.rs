//! `cargo xtask flaky`: the tests again and again, to find those that fail by chance.
//!
//! A test that waits for a time in place of an event passes on an idle machine and fails on a busy one. With
//! `--busy` each core also runs a loop that never sleeps, so that a test gets half of it at most.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Result, bail, ensure};

use crate::nextest;
use crate::test::{self, Outcome, Step};
use crate::tested::{self, Run};
use crate::{interrupt, machine};

/// Run all tests again and again, and list those that fail now and then.
#[derive(clap::Args, Debug)]
pub(crate) struct FlakyArgs {
    /// Number of runs
    #[arg(long, default_value_t = 10)]
    repeat: u32,
    /// Keep every core busy with something else at the same time
    #[arg(long)]
    busy: bool,
    /// Only these groups of tests
    #[arg(long, value_enum, value_name = "STEP", default_values = ["unit", "stem", "interop", "page"])]
    only: Vec<Step>,
    /// Run only the tests whose names contain one of these
    #[arg(value_name = "TEST")]
    names: Vec<String>,
}

/// `cargo xtask flaky`.
///
/// # Errors
///
/// A test failed at least once, or the tests do not compile.
pub(crate) fn run(args: &FlakyArgs) -> Result<()> {
    machine::prepare_testing(false)?;
    let (run, missing) = test::prepare_tests(&args.only, &args.names);
    for (step, why) in missing {
        match why? {
            Outcome::Skipped(why) => println!("{step:?} is not run: {why}"),
            Outcome::Passed | Outcome::Tests(_) => {}
        }
    }
    ensure!(!run.filter.is_empty(), "no tests are left");
    test::new_logs()?;
    let folder = machine::target().join("flaky");
    machine::remove(&folder)?;
    // Before the cores are busy.
    nextest::build()?;
    let busy = AtomicBool::new(args.busy);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let failures = thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let mut turns = 0_u64;
                while busy.load(Ordering::Relaxed) {
                    turns = black_box(turns.wrapping_add(1));
                }
            });
        }
        let failures = repeat(args.repeat, &run, &folder);
        busy.store(false, Ordering::Relaxed);
        failures
    })?;
    if failures.is_empty() {
        println!("\nNo test failed in {} runs.", args.repeat);
        return Ok(());
    }
    let lines: Vec<String> = failures
        .iter()
        .map(|(name, times)| format!("  {times} of {} {name}", args.repeat))
        .collect();
    bail!(
        "these failed; {} has their output:\n{}",
        folder.display(),
        lines.join("\n")
    );
}

/// Runs them so often; the result counts failures by name.
fn repeat(times: u32, run: &Run, folder: &Path) -> Result<BTreeMap<String, u32>> {
    let mut failures = BTreeMap::new();
    for turn in 1..=times {
        println!("\n== Run {turn} of {times}");
        let ended = run.start()?;
        ensure!(!interrupt::asked(), "interrupted");
        let logs = folder.join(turn.to_string());
        fs::create_dir_all(&logs)?;
        tested::keep_logs(&logs, &ended)?;
        for test in ended.into_iter().filter(|test| test.failure.is_some()) {
            *failures.entry(test.name).or_insert(0) += 1;
        }
    }
    Ok(failures)
}
