//! `cargo xtask coverage`: how many lines of the crates that decide are reached by their own tests, by those of the node and of
//! its program, by networks in virtual time with chaos, by private networks, and by the corpora of fuzzing, all together.
//!
//! The crates of the workspace are compiled by `xtask/rustc-coverage`; dependencies are those of the tests. Lines of tests do
//! not count, be they in files of their own or at the end of a file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::linted::{self, Build, Program};
use crate::tested::Run;
use crate::{fuzz, machine, networks, nextest, test};

/// Count the lines of the deciding crates that tests, chaos and fuzzing's corpora reach.
#[derive(clap::Args, Debug)]
pub(crate) struct CoverageArgs {}

/// Whose lines are counted.
const COUNTED: [&str; 8] = [
    "weft-cell",
    "weft-client",
    "weft-config",
    "weft-core",
    "weft-crypto",
    "weft-exit",
    "weft-path",
    "weft-share",
];
/// Whose tests reach them, besides their own.
const ABOVE: [&str; 3] = ["weft", "weft-node", "weft-virtual"];
/// The variable that says where a program writes what it reaches.
const PROFILE: &str = "LLVM_PROFILE_FILE";
/// Times that each line of a file was reached, by line number.
type Lines = BTreeMap<usize, u64>;

/// `cargo xtask coverage`.
///
/// # Errors
///
/// A test fails, something does not compile, or LLVM's tools are missing.
pub(crate) fn run(_: &CoverageArgs) -> Result<()> {
    let [merge, show] = ["llvm-profdata", "llvm-cov"].map(tool);
    let (merge, show) = (merge?, show?);
    machine::prepare_testing(false)?;
    let folder = machine::target().join("coverage");
    machine::remove(&folder)?;
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let build = tests()?;
    let run = Run {
        networks: vec![test::PRIVATE_NETWORK],
        variables: vec![(PROFILE, profile(&folder))],
        ..Run::default()
    };
    let networks = nextest::networks(&build)?.to_owned();
    let ended = networks::run(&networks, &run)?;
    let failed = ended.iter().filter(|test| test.failure.is_some());
    let failed: Vec<&str> = failed.map(|test| &*test.name).collect();
    let of = |program: &Program| {
        let name = name(&program.folder);
        ABOVE.contains(&&*name) || COUNTED.contains(&&*name) || program.path == networks
    };
    let mut programs: Vec<Program> = build.into_programs().filter(of).collect();
    for program in &programs {
        if !program.is_test || program.path == networks {
            continue;
        }
        let mut command = Command::new(&program.path);
        let command = counting(&mut command, &folder).current_dir(&program.folder);
        // Tests of networks that are no module of `tests/`, which others than this command run.
        machine::succeed(command.args([
            "--skip",
            test::PRIVATE_NETWORK,
            "--skip",
            test::WITH_STEM,
        ]))?;
    }
    for program in fuzz::build_by(&mut compiled()?)? {
        let mut command = Command::new(&program.path);
        machine::succeed(
            counting(&mut command, &folder)
                .arg("-runs=0")
                .arg(fuzz::corpus(&program.target)),
        )?;
        programs.push(program);
    }
    let merged = folder.join("merged");
    machine::succeed(
        Command::new(merge)
            .args(["merge", "--sparse", "--output"])
            .arg(&merged)
            .args(profiles(&folder)?),
    )?;
    let mut export = Command::new(show);
    export
        .args(["export", "--format", "lcov", "--instr-profile"])
        .arg(&merged);
    for program in &programs {
        export.arg("--object").arg(&program.path);
    }
    let output = export.output().context("running llvm-cov")?;
    ensure!(
        output.status.success(),
        "llvm-cov: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let files = counted(&read(&String::from_utf8_lossy(&output.stdout)))?;
    let unreached = folder.join("unreached.txt");
    fs::write(&unreached, gaps(&files))
        .with_context(|| format!("writing {}", unreached.display()))?;
    print!("\n{}", table(&files));
    println!("Lines that nothing reaches: {}", unreached.display());
    ensure!(failed.is_empty(), "tests failed: {}", failed.join(", "));
    Ok(())
}

/// One of the tools of the compiler's own LLVM.
fn tool(name: &str) -> Result<PathBuf> {
    let libraries = machine::output(Command::new("rustc").args(["--print", "target-libdir"]))?;
    let program = Path::new(libraries.trim()).with_file_name("bin").join(name);
    ensure!(
        program.is_file(),
        "there is no {}: rustup component add llvm-tools",
        program.display()
    );
    Ok(program)
}

/// cargo, compiling so that lines are counted.
fn compiled() -> Result<Command> {
    let mut cargo = linted::cargo()?;
    cargo.env(
        linted::WRAPPER,
        machine::root().join("xtask/rustc-coverage"),
    );
    Ok(cargo)
}

/// The build of the tests.
fn tests() -> Result<Build> {
    let mut cargo = compiled()?;
    // Not the packages alone: features, and so the dependencies, shall be those of the tests.
    cargo.args(["test", "--workspace", "--no-run", "--tests"]);
    linted::build(&mut cargo)
}

/// The crate in a folder.
fn name(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// A program that writes what it reaches into a file in `folder`.
fn counting<'c>(command: &'c mut Command, folder: &Path) -> &'c mut Command {
    command.env(PROFILE, profile(folder))
}

/// Where programs write what they reach: all processes of one count in one file, which they map.
fn profile(folder: &Path) -> OsString {
    folder.join("%c%m.profraw").into()
}

fn profiles(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    let paths: Result<Vec<PathBuf>> = paths.collect();
    let of = |path: &PathBuf| path.extension().is_some_and(|end| end == "profraw");
    Ok(paths?.into_iter().filter(of).collect())
}

/// Lines by file, of what llvm-cov prints as lcov does. A line that several programs have is there as often as the most of
/// them reached it.
fn read(lcov: &str) -> BTreeMap<PathBuf, Lines> {
    let mut files: BTreeMap<PathBuf, Lines> = BTreeMap::new();
    let mut file = PathBuf::new();
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            file = PathBuf::from(path);
        } else if let Some(rest) = line.strip_prefix("DA:")
            && let Some((number, times)) = rest.split_once(',')
            && let (Ok(number), Ok(times)) = (number.parse::<usize>(), times.parse::<u64>())
        {
            let lines = files.entry(file.clone()).or_default();
            let known = lines.entry(number).or_default();
            *known = times.max(*known);
        }
    }
    files
}

/// The files that count: those of crates that decide, without their tests. Paths begin at the
/// folder `crates`.
fn counted(files: &BTreeMap<PathBuf, Lines>) -> Result<BTreeMap<PathBuf, Lines>> {
    let crates = machine::root().join("crates");
    let mut kept = BTreeMap::new();
    for (path, lines) in files {
        let Ok(inside) = path.strip_prefix(&crates) else {
            continue;
        };
        if !is_counted(inside) {
            continue;
        }
        let text =
            fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let end = tests_begin(&text);
        let lines = lines.iter().filter(|(number, _)| **number < end);
        kept.insert(inside.to_owned(), lines.map(|(a, b)| (*a, *b)).collect());
    }
    Ok(kept)
}

/// True if the lines of a file count; its path begins at the folder of crates.
fn is_counted(inside: &Path) -> bool {
    let words: Vec<String> = inside
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    let [of, "src", rest @ ..] = &words.iter().map(String::as_str).collect::<Vec<_>>()[..] else {
        return false;
    };
    let is_test = |word: &&str| matches!(word.trim_end_matches(".rs"), "tests" | "testing");
    COUNTED.contains(of) && !rest.iter().any(is_test)
}

/// The number of the line on which the tests at the end of a file begin; of none, one after all.
fn tests_begin(text: &str) -> usize {
    let mut lines = text.lines().zip(1..).peekable();
    while let Some((line, number)) = lines.next() {
        let inline = |(next, _): &(&str, usize)| next.starts_with("mod ") && next.ends_with('{');
        if line == "#[cfg(test)]" && lines.peek().is_some_and(inline) {
            return number;
        }
    }
    usize::MAX
}

/// Lines and those that were reached, by crate.
fn table(files: &BTreeMap<PathBuf, Lines>) -> String {
    let mut crates: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for (path, lines) in files {
        let of = path.components().next();
        let of = of.map(|part| part.as_os_str().to_string_lossy().into_owned());
        let [all, reached] = crates.entry(of.unwrap_or_default()).or_default();
        *all += lines.len();
        *reached += lines.values().filter(|times| **times > 0).count();
    }
    let mut text = format!("{:<14}{:>8}{:>10}{:>9}\n", "crate", "lines", "reached", "");
    for (name, [all, reached]) in crates {
        let percent = reached as f64 / all.max(1) as f64 * 100.0;
        let _ = writeln!(text, "{name:<14}{all:>8}{reached:>10}{percent:>7.1} %");
    }
    text
}

/// Lines that were not reached, one `FILE:FIRST-LAST` per line.
fn gaps(files: &BTreeMap<PathBuf, Lines>) -> String {
    let mut text = String::new();
    for (path, lines) in files {
        let mut missed: Option<(usize, usize)> = None;
        let mut end = |missed: &mut Option<(usize, usize)>| {
            if let Some((first, last)) = missed.take() {
                let _ = writeln!(text, "{}:{first}-{last}", path.display());
            }
        };
        for (number, times) in lines {
            match (times, &mut missed) {
                (0, Some((_, last))) => *last = *number,
                (0, none) => *none = Some((*number, *number)),
                (_, missed) => end(missed),
            }
        }
        end(&mut missed);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LCOV: &str = "SF:/a/b.rs\nFN:1,f\nDA:1,4\nDA:2,0\nDA:3,0\nDA:5,1\nDA:6,0\nend_of_record\nSF:/a/b.rs\nDA:2,0\nDA:3,1\n";

    #[test]
    fn a_line_counts_once_and_is_reached_if_any_program_reaches_it() {
        let files = read(LCOV);
        let lines = &files[Path::new("/a/b.rs")];
        let expected = [(1, 4), (2, 0), (3, 1), (5, 1), (6, 0)];
        assert_eq!(
            lines.iter().map(|(a, b)| (*a, *b)).collect::<Vec<_>>(),
            expected
        );
        assert_eq!(gaps(&files), "/a/b.rs:2-2\n/a/b.rs:6-6\n");
    }

    #[test]
    fn tests_do_not_count() {
        assert!(is_counted(Path::new("weft-cell/src/cells/read.rs")));
        for other in [
            "weft-cell/src/tests.rs",
            "weft-cell/src/cells/tests/read.rs",
            "weft-cell/tests/it/main.rs",
            "weft-core/src/testing/mod.rs",
            "weft-lab/src/main.rs",
        ] {
            assert!(!is_counted(Path::new(other)), "{other}");
        }
        assert_eq!(tests_begin("a\n#[cfg(test)]\nmod tests;\nb\n"), usize::MAX);
        assert_eq!(tests_begin("a\n#[cfg(test)]\nmod tests {\n}\n"), 2);
    }

    #[test]
    fn crates_are_summed() {
        let files = BTreeMap::from([
            (
                PathBuf::from("weft-cell/src/a.rs"),
                Lines::from([(1, 0), (2, 1)]),
            ),
            (
                PathBuf::from("weft-cell/src/b.rs"),
                Lines::from([(1, 1), (2, 1)]),
            ),
        ]);
        let table = table(&files);
        assert!(
            table.ends_with("weft-cell            4         3   75.0 %\n"),
            "{table}"
        );
    }
}
