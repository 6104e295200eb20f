//! `cargo xtask wheel`: the Python package `weft_sim`, as a wheel, or installed as its users do, with its tests.
//!
//! What is needed comes from pip, into the virtual environment of `python.rs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};

use crate::python::Environment;
use crate::{linted, machine};

/// The build backend of the wheel, as in the package's pyproject.toml.
const MATURIN: &str = "maturin>=1.8,<2";
/// The package's dependency at run time, up to the next version that may break something.
const NUMPY: &str = "numpy>=1.26";

/// Build the Python package of the simulator, as a wheel.
#[derive(clap::Args, Debug)]
pub(crate) struct WheelArgs {
    /// Instead, install the package with pip, as its users do, and run its tests
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
    if args.test {
        let environment = Environment::with(&args.python, &[NUMPY])?;
        return test(&environment, args.dev);
    }
    let environment = Environment::with(&args.python, &[MATURIN, NUMPY])?;
    let wheel = build(&environment, args.dev)?;
    println!("{}", wheel.display());
    Ok(())
}

/// Installs and tests for `cargo xtask test`.
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

/// Installs the package beside NumPy by the command that its users give, and runs its tests.
fn test(environment: &Environment, dev: bool) -> Result<()> {
    let package = machine::root().join("crates/weft-sim-py");
    // Reinstalled always: the version stays while the code changes.
    let mut install = vec!["install", "--no-deps", "--force-reinstall"];
    if dev {
        // Reuses the artifacts of the test build.
        install.push("--config-settings=build-args=--profile=dev --features=shared");
    }
    let mut pip = environment.pip_command(&install, &[&package.to_string_lossy()]);
    if dev {
        linted::by_clippy(&mut pip)?;
    }
    machine::succeed(&mut pip)?;
    let tests = package.join("tests");
    ensure!(tests.is_dir(), "there is no folder {}", tests.display());
    let mut unittest = Command::new(environment.program("python"));
    unittest
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args(["-m", "unittest", "discover", "--start-directory"])
        .arg(&tests);
    machine::succeed(&mut unittest)
}
