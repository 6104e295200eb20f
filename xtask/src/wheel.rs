//! `cargo xtask wheel`: the Python package `weft_sim`, built by maturin, and its tests.
//!
//! maturin and NumPy come from pip, into a virtual environment under the build folder: nothing of the
//! machine's own Python is changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};

use crate::machine;

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
    let environment = environment(&args.python)?;
    let wheel = build(&environment, args.dev)?;
    println!("{}", wheel.display());
    if args.test {
        test(&environment, &wheel)?;
    }
    Ok(())
}

/// Builds and tests for `cargo xtask test`. The result is why it was not done.
pub(crate) fn check() -> Result<Option<&'static str>> {
    if machine::find("python3").is_none() {
        return Ok(Some("python3 is not installed"));
    }
    run(&WheelArgs {
        test: true,
        dev: true,
        python: "python3".to_owned(),
    })?;
    Ok(None)
}

/// The virtual environment, made where it is missing. The result is its folder of programs.
fn environment(python: &str) -> Result<PathBuf> {
    let folder = machine::target().join("python");
    let programs = folder.join("bin");
    // Written last: without it an environment is half made, or has other packages.
    let stamp = folder.join("packages");
    let wanted = format!("{python}\n{}\n", PACKAGES.join("\n"));
    if fs::read_to_string(&stamp).is_ok_and(|there| there == wanted) {
        return Ok(programs);
    }
    let mut make = Command::new(python);
    make.args(["-m", "venv", "--clear"]).arg(&folder);
    machine::succeed(&mut make).with_context(|| {
        format!(
            "{python} makes no virtual environment (Debian, Ubuntu: apt-get install python3-venv)"
        )
    })?;
    let mut pip = Command::new(programs.join("python"));
    pip.args(["-m", "pip", "install", "--quiet"])
        .arg("--disable-pip-version-check")
        .args(PACKAGES);
    machine::succeed(&mut pip)?;
    fs::write(&stamp, wanted).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(programs)
}

/// Builds the wheel; the result is where it is.
fn build(programs: &Path, dev: bool) -> Result<PathBuf> {
    let wheels = machine::target().join("wheels");
    let mut maturin = Command::new(programs.join("maturin"));
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
fn test(programs: &Path, wheel: &Path) -> Result<()> {
    let python = programs.join("python");
    let mut pip = Command::new(&python);
    // Reinstalled always: the version stays while the code changes.
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps"])
        .args(["--force-reinstall", "--disable-pip-version-check"])
        .arg(wheel);
    machine::succeed(&mut pip)?;
    let tests = machine::root().join("crates/weft-sim-py/tests");
    ensure!(tests.is_dir(), "there is no folder {}", tests.display());
    let mut unittest = Command::new(&python);
    unittest
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args(["-m", "unittest", "discover", "--start-directory"])
        .arg(&tests);
    machine::succeed(&mut unittest)
}
