//! Builds by clippy's compiler, which finds what clippy finds and compiles as well: what is linted need not be
//! compiled a second time for its tests. Only the crates of the workspace differ from those of a plain build.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::machine;

/// cargo's variable for the compiler of the workspace's own crates.
pub(crate) const WRAPPER: &str = "RUSTC_WORKSPACE_WRAPPER";

/// Programs and warnings of a build.
#[derive(Debug, Default)]
pub(crate) struct Build {
    programs: Vec<Program>,
    /// Warnings as the compiler writes them, each once: a library is compiled with and without its tests.
    warnings: BTreeSet<String>,
}

/// A program that cargo has built.
#[derive(Debug)]
pub(crate) struct Program {
    /// The name of its target.
    pub(crate) target: String,
    /// The folder of its crate.
    pub(crate) folder: PathBuf,
    pub(crate) path: PathBuf,
    /// True if it is a program of tests.
    pub(crate) is_test: bool,
}

impl Program {
    /// As nextest names it: its package, and the target where that is not the library.
    pub(crate) fn id(&self) -> String {
        let package = self.folder.file_name().unwrap_or_default();
        let package = package.to_string_lossy();
        match self.target.replace('_', "-") == package {
            true => package.into_owned(),
            false => format!("{package}::{}", self.target),
        }
    }
}

impl Build {
    /// The program of a target.
    pub(crate) fn program(&self, target: &str) -> Option<&Path> {
        let mut programs = self.programs.iter();
        let program = programs.find(|program| program.target == target)?;
        Some(&program.path)
    }

    /// All programs.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &Program> {
        self.programs.iter()
    }

    /// All programs.
    pub(crate) fn into_programs(self) -> impl Iterator<Item = Program> {
        self.programs.into_iter()
    }

    /// Fails if something was found.
    ///
    /// # Errors
    ///
    /// The number of warnings; they themselves are printed while the build goes on.
    pub(crate) fn clean(&self) -> Result<()> {
        let found = self.warnings.len();
        ensure!(
            found == 0,
            "warnings, which are denied (see above): {found}"
        );
        Ok(())
    }

    /// Takes one line of what cargo reports; the result: what a person should read of it.
    fn take(&mut self, line: &str) -> Option<String> {
        match serde_json::from_str(line).ok()? {
            Report::Artifact {
                target,
                manifest_path,
                executable,
                profile,
            } => {
                self.programs.push(Program {
                    target: target.name,
                    folder: manifest_path.parent()?.to_owned(),
                    path: executable?,
                    is_test: profile.test,
                });
                None
            }
            Report::Message { message } => {
                let text = message.rendered?;
                // "3 warnings emitted" has neither: it is none.
                let is_about = message.code.is_some() || !message.spans.is_empty();
                let counts = message.level == "warning" && is_about;
                match counts {
                    true => self.warnings.insert(text.clone()).then_some(text),
                    false => (message.level == "error").then_some(text),
                }
            }
            Report::Other => None,
        }
    }
}

/// A line of cargo's report.
#[derive(Deserialize)]
#[serde(tag = "reason")]
enum Report {
    #[serde(rename = "compiler-artifact")]
    Artifact {
        target: Target,
        manifest_path: PathBuf,
        executable: Option<PathBuf>,
        #[serde(default)]
        profile: Profile,
    },
    #[serde(rename = "compiler-message")]
    Message { message: Message },
    #[serde(other)]
    Other,
}

#[derive(Default, Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Message {
    level: String,
    #[serde(default)]
    code: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    spans: Vec<serde::de::IgnoredAny>,
    rendered: Option<String>,
}

/// Clippy's compiler, beside cargo.
pub(crate) fn compiler() -> Result<PathBuf> {
    let cargo = machine::cargo();
    let beside = Path::new(cargo.get_program()).with_file_name("clippy-driver");
    match beside.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => {
            ensure!(
                beside.is_file(),
                "there is no clippy (no {}): rustup component add clippy",
                beside.display()
            );
            Ok(beside)
        }
        // cargo is found on PATH, and so is this.
        _ => Ok(PathBuf::from("clippy-driver")),
    }
}

/// Has cargo, or what starts it, compile the crates of the workspace by clippy's compiler.
///
/// # Errors
///
/// There is no clippy.
pub(crate) fn by_clippy(command: &mut Command) -> Result<&mut Command> {
    // With another value of the second variable, or without it, all are compiled again.
    Ok(command.env(WRAPPER, compiler()?).env("CLIPPY_ARGS", ""))
}

/// cargo with [`by_clippy`].
///
/// # Errors
///
/// As of that.
pub(crate) fn cargo() -> Result<Command> {
    let mut cargo = machine::cargo();
    by_clippy(&mut cargo)?;
    Ok(cargo)
}

/// cargo for what is built as tests are, which so have compiled nearly all of it, or else for a release.
///
/// # Errors
///
/// As of [`cargo`].
pub(crate) fn cargo_as(tests: bool) -> Result<Command> {
    match tests {
        true => cargo(),
        false => Ok(machine::cargo()),
    }
}

/// Runs a build; what it finds is printed.
///
/// # Errors
///
/// Something does not compile.
pub(crate) fn build(cargo: &mut Command) -> Result<Build> {
    cargo
        .args(["--message-format", "json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    machine::print(cargo);
    let mut child = cargo.spawn().context("starting cargo")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let mut build = Build::default();
    for line in BufReader::new(output).lines() {
        let line = line.context("reading what cargo prints")?;
        if let Some(text) = build.take(&line) {
            eprintln!("{}", text.trim_end());
        }
    }
    let status = child.wait().context("waiting for cargo")?;
    ensure!(status.success(), "cargo: {status} (see above)");
    Ok(build)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: &str = r#"{"reason":"compiler-message","target":{"name":"a"},"message":{"level":"warning","spans":[{"line_start":1}],"rendered":"warning: needless"}}"#;

    #[test]
    fn a_warning_is_shown_and_counted_once() {
        let mut build = Build::default();
        assert_eq!(build.take(FOUND).as_deref(), Some("warning: needless"));
        assert_eq!(build.take(FOUND), None);
        let error = build.clean().unwrap_err().to_string();
        assert!(error.ends_with(": 1"), "{error}");
    }

    #[test]
    fn programs_are_known_by_their_targets() {
        let mut build = Build::default();
        for line in [
            r#"{"reason":"compiler-artifact","target":{"name":"networks"},"manifest_path":"/c/Cargo.toml","executable":"/t/networks-1"}"#,
            r#"{"reason":"compiler-artifact","target":{"name":"weft-cell"},"manifest_path":"/c/Cargo.toml","executable":null}"#,
            r#"{"reason":"compiler-message","message":{"level":"warning","spans":[],"rendered":"2 warnings emitted"}}"#,
            r#"{"reason":"build-finished","success":true}"#,
            "no JSON",
        ] {
            assert_eq!(build.take(line), None);
        }
        assert_eq!(build.program("networks"), Some(Path::new("/t/networks-1")));
        assert_eq!(build.program("weft-cell"), None);
        build.clean().unwrap();
    }
}
