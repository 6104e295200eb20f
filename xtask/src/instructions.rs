//! `cargo xtask instructions`: how many instructions relaying one cell takes, and whether that is
//! more than what was recorded.
//!
//! Time is noisy, above all on machines that others use too; the number of instructions is the same
//! in every run (rustls watches itself in the same way). `bench/instructions` relays cells without
//! sockets. It runs under callgrind, which counts the turns between the first ones and the end apart: what it takes to start,
//! most of a run, is left out.
//!
//! The count depends a little on the machine: the C library chooses its `memcpy` by the processor
//! (2 % between the oldest and the newest), and callgrind knows AVX2 and AES-NI but no AVX-512 and
//! no wide AES. Where code chooses by processor, the count is of the AVX2 choice. The tolerance
//! covers the C library. An instruction is not a unit of time: this guards against doing more work
//! for each cell, and `cargo bench` measures how long the work takes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::machine;
use crate::passed::{self, Passed};

/// Count instructions for each relayed cell, and compare with what was recorded.
#[derive(clap::Args, Debug)]
pub(crate) struct InstructionsArgs {
    /// Write the numbers to bench/instructions/recorded.json
    #[arg(long)]
    record: bool,
    /// Name so many functions for each load, the most expensive first
    #[arg(long, default_value_t = 0)]
    functions: usize,
}

/// Arguments of `bench/instructions`, each with two numbers of turns: those that are not counted,
/// in which pools and queues fill, and those that are.
const CASES: [(&str, [u32; 2]); 20] = [
    ("forward 1 few", [4, 32]),
    ("forward 1 many", [2, 6]),
    ("forward 1 thin", [400, 800]),
    ("forward 1 asked", [2, 50]),
    ("forward 2 few", [4, 32]),
    ("forward 2 many", [2, 6]),
    ("forward 2 thin", [400, 800]),
    ("backward 1 few", [4, 32]),
    ("backward 1 many", [2, 6]),
    ("backward 1 thin", [400, 800]),
    ("backward 1 asked", [2, 50]),
    ("backward 2 few", [4, 32]),
    ("backward 2 many", [2, 6]),
    ("backward 2 thin", [400, 800]),
    ("down plain", [25, 50]),
    ("down conflux", [25, 50]),
    ("down mtor", [25, 50]),
    ("up plain", [25, 50]),
    ("up conflux", [25, 50]),
    ("up mtor", [25, 50]),
];
/// The program whose instructions are counted, in `bench/instructions`.
const PROGRAM: &str = "weft-instructions";
/// The crates that a cell passes through are compiled as for a release, without optimization across
/// crates. All others are those of the tests: compiling a few hundred crates again took ten times
/// as long as counting.
const PATH: [&str; 8] = [
    "weft-cell",
    "weft-core",
    "weft-counts",
    "weft-crypto",
    "weft-instructions",
    "weft-planted",
    "weft-share",
    "weft-sync",
];
const RELEASED: [&str; 4] = [
    "opt-level=3",
    "codegen-units=1",
    "debug-assertions=false",
    "overflow-checks=false",
];
/// As [`Passed`] knows the step.
const REMEMBERED: &str = "instructions";
/// In these functions of `bench/instructions` alone instructions are counted where an exit is played beside its client.
const COUNTED: &str = "*exit::node_*";
/// The function of `bench/instructions` before and after the turns that are counted.
const BORDER: &str = "*counted_turns_border*";
/// The part between its two calls, as callgrind numbers what it writes.
const COUNTED_PART: &str = "2";
/// Functions that are named when a bound is passed.
const FUNCTIONS_ON_FAILURE: usize = 12;

/// The recorded numbers, `recorded.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Recorded {
    /// Percent above the recorded number that still pass.
    tolerance_percent: f64,
    /// Where the numbers come from; for people.
    recorded_on: BTreeMap<String, String>,
    /// Instructions for each relayed cell, by the arguments of `bench/instructions`.
    instructions_per_cell: BTreeMap<String, f64>,
}

/// The tolerance of a new file.
const TOLERANCE_PERCENT: f64 = 3.0;

/// The cost of relaying a cell in one case.
struct Cost {
    /// Instructions.
    total: f64,
    /// The functions that they are in, the most expensive first.
    functions: Vec<(String, f64)>,
}

/// `cargo xtask instructions`.
pub(crate) fn run(args: &InstructionsArgs) -> Result<()> {
    if let Some(why) = unsupported() {
        bail!("instructions are not counted here: {why}");
    }
    build()?;
    let costs = measure()?;
    let before = recorded();
    if args.record {
        record(&costs)?;
    }
    print(&costs, before.as_ref().ok());
    for (case, cost) in &costs {
        print_functions(case, cost, args.functions);
    }
    if args.record {
        println!("Written to {}.", file().display());
        return Ok(());
    }
    judge(&costs, &before?)
}

/// The step of `cargo xtask test`. Gives the reason when it cannot be run here.
///
/// # Errors
///
/// A cell takes more instructions than recorded, or they cannot be counted.
pub(crate) fn check(passed: &Passed) -> Result<Option<&'static str>> {
    if let Some(why) = unsupported() {
        return Ok(Some(why));
    }
    let recorded = recorded()?;
    let program = build()?;
    let decided_by = passed::hash(&[format!("{CASES:?}")], &[program, file()])?;
    if passed.has(REMEMBERED, decided_by) {
        return Ok(Some(passed::UNCHANGED));
    }
    let costs = measure()?;
    print(&costs, Some(&recorded));
    judge(&costs, &recorded)?;
    passed.note(REMEMBERED, decided_by)?;
    Ok(None)
}

/// Why the recorded numbers mean nothing on this machine.
fn unsupported() -> Option<&'static str> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the numbers were recorded for x86_64");
    }
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags: Vec<&str> = flags
        .lines()
        .find(|line| line.starts_with("flags"))
        .map(|line| line.split_whitespace().collect())
        .unwrap_or_default();
    if !(flags.contains(&"aes") && flags.contains(&"avx2")) {
        return Some("the numbers were recorded for a processor with AES-NI and AVX2");
    }
    None
}

/// Path of the counted program.
fn program() -> PathBuf {
    machine::target().join("debug").join(PROGRAM)
}

/// The file of recorded numbers.
fn file() -> PathBuf {
    machine::root().join("bench/instructions/recorded.json")
}

fn recorded() -> Result<Recorded> {
    let file = file();
    let text = fs::read(&file).with_context(|| {
        format!(
            "{} cannot be read; `cargo xtask instructions --record` makes it",
            file.display()
        )
    })?;
    serde_json::from_slice(&text).with_context(|| format!("in {}", file.display()))
}

fn record(costs: &[(&str, Cost)]) -> Result<()> {
    let recorded = Recorded {
        tolerance_percent: TOLERANCE_PERCENT,
        recorded_on: [
            ("processor", processor()),
            ("rustc", first_line("rustc", &["--version"])?),
            ("valgrind", first_line("valgrind", &["--version"])?),
            (
                "C library",
                first_line("getconf", &["GNU_LIBC_VERSION"]).unwrap_or_default(),
            ),
        ]
        .map(|(what, which)| (what.to_owned(), which))
        .into(),
        instructions_per_cell: costs
            .iter()
            .map(|(case, cost)| ((*case).to_owned(), cost.total.round()))
            .collect(),
    };
    let mut text = serde_json::to_string_pretty(&recorded)?;
    text.push('\n');
    fs::write(file(), text).with_context(|| format!("writing {}", file().display()))
}

fn processor() -> String {
    fs::read_to_string("/proc/cpuinfo")
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or_else(String::new, |(_, name)| name.to_owned())
}

fn first_line(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(args)
        .output()
        .with_context(|| format!("running {program}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Builds the program, its path of a cell as it is released.
fn build() -> Result<PathBuf> {
    machine::prepare_counting()?;
    let settings = PATH.into_iter().flat_map(|package| {
        RELEASED.map(|setting| format!("--config=profile.dev.package.{package}.{setting}"))
    });
    let status = machine::cargo()
        .args(["build", "--workspace", "--bin", PROGRAM])
        .args(settings)
        .status()
        .context("running cargo")?;
    ensure!(
        status.success(),
        "bench/instructions does not build: see above"
    );
    Ok(program())
}

/// Counts.
fn measure() -> Result<Vec<(&'static str, Cost)>> {
    let folder = machine::target().join("instructions");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    // A count does not depend on what else runs, so as many run at once as there are cores.
    let next = AtomicUsize::new(0);
    let worker = || -> Result<Vec<(usize, Cost)>> {
        let mut costs = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((case, turns)) = CASES.get(number).copied() else {
                return Ok(costs);
            };
            costs.push((number, count(&folder, case, turns)?));
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let mut costs: Vec<(usize, Cost)> = thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let ended = running.into_iter().map(|worker| {
            worker
                .join()
                .unwrap_or_else(|_| bail!("counting instructions panicked"))
        });
        ended.collect::<Result<Vec<_>>>()
    })?
    .into_iter()
    .flatten()
    .collect();
    costs.sort_by_key(|(number, _)| *number);
    let costs = CASES
        .iter()
        .zip(costs)
        .map(|((case, _), (_, cost))| (*case, cost));
    Ok(costs.collect())
}

/// Runs the program; returns the cost of a cell of the counted turns.
fn count(folder: &Path, case: &str, [first, turns]: [u32; 2]) -> Result<Cost> {
    let profile = folder.join(format!("callgrind.{}", case.replace(' ', "-")));
    let mut command = Command::new("valgrind");
    command
        .arg("--tool=callgrind")
        .arg(format!("--dump-before={BORDER}"));
    if case.starts_with("down") || case.starts_with("up") {
        command.arg(format!("--toggle-collect={COUNTED}"));
    }
    let output = command
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(program())
        .args(case.split(' '))
        .args([first.to_string(), turns.to_string()])
        .output()
        .context("running valgrind")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let cells = printed
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok());
    let (true, Some(cells)) = (output.status.success(), cells) else {
        bail!(
            "`weft-instructions {case} {first} {turns}` failed under callgrind ({}):\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let profile = profile.with_added_extension(COUNTED_PART);
    let reader = fs::File::open(&profile).with_context(|| profile.display().to_string())?;
    let functions =
        self_costs(BufReader::new(reader)).with_context(|| profile.display().to_string())?;
    cost(cells, functions)
}

/// The cost of each of `cells` cells.
fn cost(cells: u64, functions: BTreeMap<String, u64>) -> Result<Cost> {
    ensure!(cells > 0, "the counted turns relayed no cells");
    let each = |(name, count): (String, u64)| (name, count as f64 / cells as f64);
    let mut functions: Vec<(String, f64)> = functions.into_iter().map(each).collect();
    functions.sort_by(|a, b| b.1.total_cmp(&a.1));
    let total = functions.iter().map(|(_, count)| count).sum();
    Ok(Cost { total, functions })
}

/// The instructions in each function itself, from a profile that callgrind wrote.
///
/// A profile names a function by `fn=(number) name`, later by the number alone, and then has lines
/// of a position and a count. A line after `calls=` is what the called function took, which is
/// counted there already.
fn self_costs(profile: impl BufRead) -> Result<BTreeMap<String, u64>> {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let mut costs: BTreeMap<String, u64> = BTreeMap::new();
    let mut current = String::new();
    let mut of_a_call = false;
    for line in profile.lines() {
        let line = line?;
        if let Some((key @ ("fn" | "cfn"), function)) = line.split_once('=') {
            let (number, name) = function.split_once(' ').unwrap_or((function, ""));
            if !name.is_empty() {
                names.insert(number.to_owned(), name.to_owned());
            }
            if key == "fn" {
                number.clone_into(&mut current);
            }
        } else if line.starts_with("calls=") {
            of_a_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first))
            && !std::mem::take(&mut of_a_call)
        {
            let count: u64 = line
                .split_whitespace()
                .nth(1)
                .and_then(|word| word.parse().ok())
                .with_context(|| format!("no count in the line {line:?}"))?;
            *costs.entry(current.clone()).or_default() += count;
        }
    }
    let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
    for (number, count) in costs {
        let name = names.remove(&number).unwrap_or(number);
        *by_name.entry(without_depth(&name)).or_default() += count;
    }
    ensure!(!by_name.is_empty(), "no function in the profile");
    Ok(by_name)
}

/// A function that called itself is another one to callgrind: `name'2`.
fn without_depth(name: &str) -> String {
    match name.rsplit_once('\'') {
        Some((name, depth)) if depth.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => name,
    }
    .to_owned()
}

fn print(costs: &[(&str, Cost)], recorded: Option<&Recorded>) {
    println!("\nInstructions for each relayed cell, without TLS and kernel:\n");
    println!(
        "{:<18} {:>8} {:>9} {:>8}",
        "load", "now", "recorded", "change"
    );
    for (case, cost) in costs {
        let before = recorded.and_then(|recorded| recorded.instructions_per_cell.get(*case));
        let (before, change) = match before {
            Some(before) => (
                format!("{before:.0}"),
                format!("{:+.1} %", percent(cost, *before)),
            ),
            None => ("-".to_owned(), String::new()),
        };
        println!("{case:<18} {:>8.0} {before:>9} {change:>8}", cost.total);
    }
}

fn print_functions(case: &str, cost: &Cost, count: usize) {
    if count == 0 {
        return;
    }
    println!("\n{case}: instructions for each cell by function");
    for (name, instructions) in cost.functions.iter().take(count) {
        println!("{instructions:>8.1}  {name}");
    }
}

/// Increase over the recorded cost, in percent.
fn percent(cost: &Cost, before: f64) -> f64 {
    100.0 * (cost.total / before - 1.0)
}

/// Fails when something costs more than what was recorded and the tolerance.
fn judge(costs: &[(&str, Cost)], recorded: &Recorded) -> Result<()> {
    let mut dearer = Vec::new();
    let mut cheaper = false;
    for (case, cost) in costs {
        let Some(before) = recorded.instructions_per_cell.get(*case) else {
            bail!("{case} is not recorded: `cargo xtask instructions --record`");
        };
        let change = percent(cost, *before);
        if change > recorded.tolerance_percent {
            dearer.push((case, cost, *before));
        }
        cheaper |= change < -recorded.tolerance_percent;
    }
    for (case, cost, _) in &dearer {
        print_functions(case, cost, FUNCTIONS_ON_FAILURE);
    }
    let lines: Vec<String> = dearer
        .iter()
        .map(|(case, cost, before)| format!("  {case}: {before:.0} -> {:.0}", cost.total))
        .collect();
    ensure!(
        dearer.is_empty(),
        "a relayed cell takes more than {} % more instructions than recorded:\n{}\n\
         Where they went is listed above. If it is worth them, \
         `cargo xtask instructions --record` and commit {} with the reason",
        recorded.tolerance_percent,
        lines.join("\n"),
        file().display()
    );
    if cheaper {
        println!(
            "\nCells became cheaper: `cargo xtask instructions --record` keeps it so (commit the file)."
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two functions, one by its number alone, with inlined code and a call between them.
    const PROFILE: &str = "\
version: 1
creator: callgrind-3.19.0
events: Ir

fl=(1) a.rs
fn=(1) first
12 100
fi=(2) inlined.rs
+3 5
fe=(1)
cfi=(3) b.rs
cfn=(2) second'2
calls=7 30
14 9000
* 1

fl=(3)
fn=(2)
30 4
-1 6

totals: 9116
";

    #[test]
    fn a_function_costs_its_own_lines_and_not_its_calls() {
        let costs = self_costs(PROFILE.as_bytes()).unwrap();
        let expected = [("first", 106), ("second", 10)];
        assert_eq!(costs, expected.map(|(n, c)| (n.to_owned(), c)).into());
        assert!(self_costs(&b"events: Ir\n"[..]).is_err());
        assert!(self_costs(&b"fn=(1) f\n12 many\n"[..]).is_err());
    }

    #[test]
    fn functions_share_what_a_cell_costs() {
        let functions = [("one".to_owned(), 1000), ("two".to_owned(), 3000)];
        let all = cost(40, functions.clone().into()).unwrap();
        assert!((all.total - 100.0).abs() < 1e-9);
        assert_eq!(all.functions[0], ("two".to_owned(), 75.0));
        assert!(cost(0, functions.into()).is_err());
    }

    fn judged(now: f64) -> Result<()> {
        let cost = Cost {
            total: now,
            functions: Vec::new(),
        };
        let recorded = Recorded {
            tolerance_percent: 3.0,
            recorded_on: BTreeMap::new(),
            instructions_per_cell: [("forward 1 few".to_owned(), 1000.0)].into(),
        };
        judge(&[("forward 1 few", cost)], &recorded)
    }

    #[test]
    fn more_than_the_tolerance_fails_and_prints_the_numbers() {
        assert!(judged(1029.0).is_ok());
        assert!(judged(500.0).is_ok());
        let error = judged(1031.0).unwrap_err().to_string();
        assert!(error.contains("forward 1 few: 1000 -> 1031"), "{error}");
        assert!(
            error.contains("cargo xtask instructions --record"),
            "{error}"
        );
    }
}
