//! `cargo xtask check`: what a change can have broken, in a minute or two: formatting, clippy, and the tests of
//! the crates that it touches and of those that depend on them. Networks of real processes are left to `cargo xtask test`,
//! and experiments, too, where neither weft-lab nor what starts and drives its networks is touched.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::test::{self, Outcome, Step, Summary};
use crate::tested::Run;
use crate::{interrupt, machine, nextest};

/// Check what a change touches: formatting, clippy, tests of its crates and of those that depend on them.
#[derive(clap::Args, Debug)]
pub(crate) struct CheckArgs {
    /// The commit that the working tree is compared with; `HEAD`: only what is not committed
    #[arg(long, default_value = "HEAD", value_name = "COMMIT")]
    since: String,
}

/// Folders outside of all packages, and the packages whose tests read them. A change of any other such file
/// (Cargo.toml, Cargo.lock, .cargo/config.toml) can break everything.
const READ_BY: [(&str, &[&str]); 9] = [
    ("docs", &["xtask", "weft-config", "weft"]),
    ("tests", &["weft"]),
    (
        "examples",
        &["weft", "weft-model", "weft-virtual", "weft-lab"],
    ),
    ("packages", &["weft"]),
    ("bench", &["weft-measure", "weft-lab"]),
    ("README.md", &["xtask"]),
    ("CONTRIBUTING.md", &["xtask"]),
    ("CHANGELOG.md", &["xtask"]),
    ("fuzz", &["weft-fuzz", "weft-lab", "weft-model", "xtask"]),
];

/// The experiments are run where one of these is touched: what they are, and what starts and drives their networks.
const EXPERIMENTS_USE: [&str; 3] = ["weft-lab", "weft-load", "weft-testnet"];

/// The parts of `cargo metadata`'s output that are used here.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// A package of the workspace.
#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
}

/// `cargo xtask check`.
///
/// # Errors
///
/// Something fails, or git or cargo do not say what was changed.
pub(crate) fn run(args: &CheckArgs) -> Result<()> {
    let files = changed(&args.since)?;
    if files.is_empty() {
        println!("Nothing differs from {}.", args.since);
        return Ok(());
    }
    let touched = touched(&files, &packages()?);
    machine::prepare_testing(false)?;
    let logs = test::new_logs()?;
    let summary = Summary::new(logs);
    let step = |name: &str, alone: &str, run: &mut dyn FnMut() -> Result<Outcome>| {
        summary.run(name, alone, run);
        !interrupt::asked()
    };
    let mut build = None;
    let mut all = step("fmt", "cargo fmt --all --check", &mut test::fmt)
        && step("clippy", "cargo xtask test --only clippy", &mut || {
            let built = build.insert(nextest::build()?);
            built.clean().map(|()| Outcome::Passed)
        });
    if let (true, Some(build)) = (all, &build) {
        all = step("tests", "cargo xtask test --only unit", &mut || {
            let run = Run {
                filter: filter(touched.as_ref()),
                ..Run::default()
            };
            run.run(build).map(Outcome::Tests)
        });
    }
    ensure!(all, "interrupted");
    println!("{}", summary.text());
    summary.judge()
}

/// nextest's expression of the tests of these packages and of those that depend on them, without
/// those of separate steps. `None`: all packages.
fn filter(touched: Option<&BTreeSet<String>>) -> String {
    let unit = Step::Unit.tests().unwrap_or_default();
    let Some(touched) = touched else {
        return unit;
    };
    let packages: Vec<String> = touched
        .iter()
        .map(|package| format!("rdeps(={package})"))
        .collect();
    let experiments = match EXPERIMENTS_USE
        .iter()
        .any(|package| touched.contains(*package))
    {
        true => "",
        false => " and not binary_id(weft-lab::it)",
    };
    format!("({}) and ({unit}){experiments}", packages.join(" or "))
}

/// Files that differ from a commit, from the root of the checkout, new ones too.
fn changed(since: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for words in [
        &["diff", "--name-only", "-z", since, "--"][..],
        &["ls-files", "--others", "--exclude-standard", "-z"],
    ] {
        let text = machine::git(words)?;
        let names = text.split('\0').filter(|name| !name.is_empty());
        files.extend(names.map(PathBuf::from));
    }
    Ok(files)
}

/// The packages of the workspace: name and folder, from the root of the checkout.
fn packages() -> Result<Vec<(String, PathBuf)>> {
    let mut cargo = machine::cargo();
    let text = machine::output(cargo.args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Metadata =
        serde_json::from_str(&text).context("reading what cargo metadata prints")?;
    let root = machine::root();
    let folder = |package: Package| {
        let folder = package.manifest_path.parent()?;
        let folder = folder.strip_prefix(&root).ok()?.to_owned();
        Some((package.name, folder))
    };
    Ok(metadata.packages.into_iter().filter_map(folder).collect())
}

/// The packages that these files are of, or whose tests read them. `None`: a file that all packages depend on.
fn touched(files: &[PathBuf], packages: &[(String, PathBuf)]) -> Option<BTreeSet<String>> {
    let mut touched = BTreeSet::new();
    for file in files {
        let package = packages
            .iter()
            .filter(|(_, folder)| file.starts_with(folder))
            .max_by_key(|(_, folder)| folder.components().count());
        if let Some((name, _)) = package {
            touched.insert(name.clone());
            continue;
        }
        let (_, readers) = READ_BY
            .iter()
            .find(|(folder, _)| file.starts_with(Path::new(folder)))?;
        touched.extend(readers.iter().map(|name| (*name).to_owned()));
    }
    Some(touched)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched_by(files: &[&str]) -> Option<Vec<String>> {
        let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
        touched(&files, &packages().unwrap()).map(|names| names.into_iter().collect())
    }

    #[test]
    fn a_file_is_of_the_package_in_whose_folder_it_is() {
        let touched = touched_by(&[
            "crates/weft-exit/src/lib.rs",
            "crates/weft-core/tests/it/moves.rs",
            "bench/instructions/src/main.rs",
            "tests/client.rs",
        ]);
        let names = ["weft", "weft-core", "weft-exit", "weft-instructions"];
        assert_eq!(touched.unwrap(), names);
    }

    #[test]
    fn what_no_package_has_touches_those_that_read_it_or_all() {
        let names = touched_by(&["docs/options.md"]).unwrap();
        assert_eq!(names, ["weft", "weft-config", "xtask"]);
        assert_eq!(touched_by(&["docs/options.md", "Cargo.lock"]), None);
        for (_, readers) in READ_BY {
            for name in readers {
                assert!(packages().unwrap().iter().any(|(known, _)| known == name));
            }
        }
    }

    #[test]
    fn the_tests_are_those_of_the_packages_and_of_what_depends_on_them() {
        let touched = BTreeSet::from(["weft-exit".to_owned(), "xtask".to_owned()]);
        let filter = filter(Some(&touched));
        assert!(
            filter.starts_with("(rdeps(=weft-exit) or rdeps(=xtask)) and (not ("),
            "{filter}"
        );
        assert!(
            filter.ends_with(" and not binary_id(weft-lab::it)"),
            "{filter}"
        );
    }
}
