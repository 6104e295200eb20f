//! `cargo xtask wheel`: the Python package `weft_sim`, built by maturin, and its tests.
//!
//! maturin and NumPy come from pip, into the virtual environment of `python.rs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};

use crate::machine;
use crate::python::Environment;

/// What pip installs; versions up to the next that may break something.
const PACKAGES: [&str; 2] = ["maturin>=1.8,<2", "numpy>=1.26"];

/// Build the Python package of the simulator, as a wheel.
#[derive(clap::Args, Debug)]
pub(crate) struct WheelArgs {
    /// Install it into the virtual environment and run its tests
    #[arg(long)]
    test: bool,
    /// Compile as tests do: soon done, slow to run
    #[arg(long)]
    dev: bool,
    /// The Python whose virtual environment it is tested in
    #[arg(long, default_value = "python3", value_name = "PROGRAM")]
    python: String,
}

/// `cargo xtask wheel`.
pub(crate) fn run(args: &WheelArgs) -> Result<()> {
    let environment = Environment::with(&args.python, &PACKAGES)?;
    let wheel = build(&environment, args.dev)?;
    println!("{}", wheel.display());
    if args.test {
        test(&environment, &wheel)?;
    }
    Ok(())
}

/// Builds and tests for `cargo xtask test`.
pub(crate) fn check() -> Result<()> {
    run(&WheelArgs {
        test: true,
        dev: true,
        python: "python3".to_owned(),
    })
}

/// Builds the wheel; the result is where it is.
fn build(environment: &Environment, dev: bool) -> Result<PathBuf> {
    let wheels = machine::target().join("wheels");
    let mut maturin = Command::new(environment.program("maturin"));
    maturin
        .current_dir(machine::root().join("crates/weft-sim-py"))
        .args(["build", "--locked", "--out"])
        .arg(&wheels);
    if !dev {
        maturin.arg("--release");
    }
    machine::succeed(&mut maturin)?;
    newest(&wheels)?.with_context(|| format!("there is no wheel in {}", wheels.display()))
}

/// The wheel that was written last.
fn newest(folder: &Path) -> Result<Option<PathBuf>> {
    let mut found: Option<(SystemTime, PathBuf)> = None;
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        let path = entry.path();
        let written = entry.metadata()?.modified()?;
        let is_newer = found.as_ref().is_none_or(|(other, _)| written > *other);
        if path.extension().is_some_and(|end| end == "whl") && is_newer {
            found = Some((written, path));
        }
    }
    Ok(found.map(|(_, path)| path))
}

/// Installs the wheel beside NumPy and runs the tests of the package.
fn test(environment: &Environment, wheel: &Path) -> Result<()> {
    // Reinstalled always: the version stays while the code changes.
    let install = ["install", "--no-deps", "--force-reinstall"];
    environment.pip(&install, &[&wheel.to_string_lossy()])?;
    let tests = machine::root().join("crates/weft-sim-py/tests");
    ensure!(tests.is_dir(), "there is no folder {}", tests.display());
    let mut unittest = Command::new(environment.program("python"));
    unittest
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args(["-m", "unittest", "discover", "--start-directory"])
        .arg(&tests);
    machine::succeed(&mut unittest)
}
