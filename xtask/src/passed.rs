//! Memory of passed tests. A program that asks no clock, no network and no other program ends the
//! same way each time, so it need not run again while its bytes and its inputs are unchanged. A fresh
//! clone remembers nothing.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hasher as _};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};

use crate::linted::Build;
use crate::machine;
use crate::tested::Ended;

/// Programs of tests that do the same each time, as nextest names them.
const DETERMINISTIC: [&str; 16] = [
    "weft-cell",
    "weft-client",
    "weft-core",
    "weft-core::it",
    "weft-core::ledger_allocator",
    "weft-counts",
    "weft-crypto::relay_cell",
    "weft-exit",
    "weft-path",
    "weft-policy",
    "weft-share",
    "weft-sim",
    "weft-stats",
    "weft-virtual::chaos",
    "weft-virtual::climb",
    "weft-virtual::planted",
];

/// The program whose tests of these modules run `weft lab` in virtual time.
const LAB: &str = "weft-lab::it";
const IN_VIRTUAL_TIME: [&str; 2] = ["lab_mtor", "selection"];
/// Programs that they run.
const LAB_PROGRAMS: [&str; 2] = ["weft", "weft-lab"];

/// Read by some of them, beside the files of their own packages.
const EXAMPLES: &str = "examples";

/// Why something is not run.
pub(crate) const UNCHANGED: &str = "passed before, and is unchanged (--again runs it)";

/// Variables by which a user asks for other random cases.
const VARIABLES: [&str; 2] = ["PROPTEST_CASES", "PROPTEST_RNG_SEED"];

/// Passed tests, counts and fuzz targets by name, each with the hash of all inputs.
#[derive(Debug)]
pub(crate) struct Passed {
    file: PathBuf,
    known: Mutex<BTreeMap<String, u64>>,
}

impl Passed {
    /// Memory of the runs before; empty if all shall run `again`, or if the file cannot be read.
    pub(crate) fn before(again: bool) -> Self {
        Self::kept_in(machine::target().join("passed.json"), again)
    }

    fn kept_in(file: PathBuf, again: bool) -> Self {
        let kept = if again { None } else { fs::read(&file).ok() };
        let known = kept.and_then(|text| serde_json::from_slice(&text).ok());
        Self {
            file,
            known: Mutex::new(known.unwrap_or_default()),
        }
    }

    /// True if `what` passed with the same inputs.
    pub(crate) fn has(&self, what: &str, decided_by: u64) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(what) == Some(&decided_by)
    }

    /// Remembers that `what` passed.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(crate) fn note(&self, what: &str, decided_by: u64) -> Result<()> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(what.to_owned(), decided_by);
        let text = serde_json::to_vec(&*known).context("writing JSON")?;
        fs::write(&self.file, text).with_context(|| format!("writing {}", self.file.display()))
    }
}

/// Tests that do the same each time: those of a program, or of one of its modules.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    /// As nextest names it.
    program: String,
    /// Empty: all.
    module: &'static str,
    /// The hash of what decides how they end.
    decided_by: u64,
}

impl Group {
    fn name(&self) -> String {
        [&self.program, " ", self.module]
            .concat()
            .trim_end()
            .to_owned()
    }

    /// nextest's expression of them.
    pub(crate) fn filter(&self) -> String {
        let program = format!("binary_id({})", self.program);
        match self.module {
            "" => program,
            module => format!("({program} and test(/^{module}::/))"),
        }
    }

    fn has(&self, test: &Ended) -> bool {
        let name = test.short().strip_prefix(self.module);
        let is_of_module =
            name.is_some_and(|rest| self.module.is_empty() || rest.starts_with("::"));
        test.program() == self.program && is_of_module
    }

    /// True if they passed before with the same inputs.
    pub(crate) fn passed(&self, passed: &Passed) -> bool {
        passed.has(&self.name(), self.decided_by)
    }
}

/// The tests that do the same each time.
///
/// # Errors
///
/// A program, or what it reads, cannot be read.
pub(crate) fn deterministic(build: &Build) -> Result<Vec<Group>> {
    let variables = VARIABLES.map(|name| env::var(name).unwrap_or_default());
    let mut groups = Vec::new();
    for program in build.programs().filter(|program| program.is_test) {
        let id = program.id();
        let (modules, runs): (&[&'static str], &[&str]) = match id.as_str() {
            LAB => (&IN_VIRTUAL_TIME, &LAB_PROGRAMS),
            id if DETERMINISTIC.contains(&id) => (&[""], &[]),
            _ => continue,
        };
        let folders = [program.folder.clone(), machine::root().join(EXAMPLES)];
        let runs = runs
            .iter()
            .map(|name| machine::target().join("debug").join(name));
        let inputs: Vec<PathBuf> = [program.path.clone()]
            .into_iter()
            .chain(folders)
            .chain(runs)
            .collect();
        let decided_by = hash(&variables, &inputs)?;
        groups.extend(modules.iter().map(|module| Group {
            program: id.clone(),
            module,
            decided_by,
        }));
    }
    Ok(groups)
}

/// Remembers the groups of which tests have ended, all of them well.
///
/// # Errors
///
/// The file cannot be written.
pub(crate) fn note_tests(passed: &Passed, groups: &[Group], tests: &[Ended]) -> Result<()> {
    for group in groups {
        let mut own = tests.iter().filter(|test| group.has(test)).peekable();
        if own.peek().is_some() && own.all(|test| test.failure.is_none()) {
            passed.note(&group.name(), group.decided_by)?;
        }
    }
    Ok(())
}

/// The hash of words and of files: those of a folder too, with their names, but for the sources that a program is made from.
///
/// # Errors
///
/// One of them cannot be read.
pub(crate) fn hash(words: &[String], files: &[PathBuf]) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    let mut add = |bytes: &[u8]| {
        hasher.write_usize(bytes.len());
        hasher.write(bytes);
    };
    for word in words {
        add(word.as_bytes());
    }
    for file in files {
        add_file(file, &mut add).with_context(|| format!("reading {}", file.display()))?;
    }
    Ok(hasher.finish())
}

fn add_file(path: &Path, add: &mut impl FnMut(&[u8])) -> std::io::Result<()> {
    match fs::read(path) {
        Ok(bytes) => add(&bytes),
        Err(error) if error.kind() == ErrorKind::IsADirectory => {
            let entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path()));
            let mut entries = entries.collect::<std::io::Result<Vec<PathBuf>>>()?;
            entries.sort();
            entries.retain(|entry| entry.extension().is_none_or(|end| end != "rs"));
            for entry in entries {
                add(entry.as_os_str().as_encoded_bytes());
                add_file(&entry, add)?;
            }
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = machine::target().join("tests-of-passed").join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("corpus")).unwrap();
        folder
    }

    #[test]
    fn what_passed_is_remembered_until_a_byte_of_what_decides_it_changes() {
        let folder = folder("remembered");
        let (program, corpus) = (folder.join("program"), folder.join("corpus"));
        fs::write(&program, "one").unwrap();
        fs::write(corpus.join("a"), "input").unwrap();
        fs::write(corpus.join("source.rs"), "is in the program").unwrap();
        let words = ["5 s".to_owned()];
        let now = |words: &[String]| hash(words, &[program.clone(), corpus.clone()]).unwrap();
        let first = now(&words);
        let file = folder.join("passed.json");
        let passed = Passed::kept_in(file.clone(), false);
        assert!(!passed.has("fuzz cells", first));
        passed.note("fuzz cells", first).unwrap();
        let later = Passed::kept_in(file.clone(), false);
        assert!(later.has("fuzz cells", first) && !later.has("fuzz links", first));
        assert!(!Passed::kept_in(file.clone(), true).has("fuzz cells", first));

        fs::write(corpus.join("source.rs"), "changed").unwrap();
        assert_eq!(now(&words), first);
        assert_ne!(now(&["6 s".to_owned()]), first);
        fs::rename(corpus.join("a"), corpus.join("b")).unwrap();
        assert_ne!(now(&words), first);
        fs::rename(corpus.join("b"), corpus.join("a")).unwrap();
        assert_eq!(now(&words), first);
        fs::write(&program, "two").unwrap();
        assert!(!later.has("fuzz cells", now(&words)));

        fs::write(&file, "no JSON").unwrap();
        assert!(!Passed::kept_in(file, false).has("fuzz cells", first));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_group_is_remembered_if_all_its_tests_pass() {
        let folder = folder("tests");
        let passed = Passed::kept_in(folder.join("passed.json"), false);
        let groups = [
            ("weft-cell", ""),
            ("weft-core", ""),
            ("weft-core::it", ""),
            ("weft-lab::it", "lab_mtor"),
            ("weft-lab::it", "selection"),
        ];
        let groups = groups.map(|(program, module)| Group {
            program: program.to_owned(),
            module,
            decided_by: 1,
        });
        let ended = |name: &str, failure: Option<&str>| Ended {
            name: name.to_owned(),
            seconds: 0.1,
            failure: failure.map(str::to_owned),
        };
        let tests = [
            ended("weft-core one", None),
            ended("weft-core::it one", None),
            ended("weft-core::it two", Some("panicked")),
            ended("weft-lab::it lab_mtor::one", None),
            ended("weft-lab::it lab_up::one", Some("panicked")),
            ended("weft-lab::it selections::one", None),
        ];
        note_tests(&passed, &groups, &tests).unwrap();
        let remembered = groups.each_ref().map(|group| group.passed(&passed));
        assert_eq!(remembered, [false, true, false, true, false]);
        let filters = groups.each_ref().map(Group::filter);
        assert_eq!(filters[2], "binary_id(weft-core::it)");
        assert_eq!(
            filters[3],
            "(binary_id(weft-lab::it) and test(/^lab_mtor::/))"
        );
        fs::remove_dir_all(folder).unwrap();
    }

    /// Words of a source that asks for what differs from run to run.
    const ASKS: [&str; 9] = [
        "SystemTime::now",
        "OffsetDateTime::now",
        "TcpListener",
        "TcpStream",
        "UdpSocket",
        "Command::new(",
        "thread::sleep",
        "OsRng",
        "not_run!",
    ];

    #[test]
    fn what_is_remembered_asks_no_clock_no_network_and_no_program() {
        for id in DETERMINISTIC {
            let (package, target) = id.split_once("::").unwrap_or((id, ""));
            let package = machine::root().join("crates").join(package);
            let place = match target {
                "" => package.join("src"),
                "it" => package.join("tests/it"),
                target => package.join("tests").join(format!("{target}.rs")),
            };
            for source in machine::sources(&place) {
                let text = fs::read_to_string(&source).unwrap();
                let asks = ASKS.iter().find(|word| text.contains(**word));
                assert_eq!(asks, None, "{id}: {}", source.display());
            }
        }
    }
}
