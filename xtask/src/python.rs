//! A virtual environment of Python under the build folder: nothing of the machine's own Python is changed.
//!
//! Each task asks for the packages that it needs; pip installs those that are not there yet.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::machine;

/// A virtual environment that has what was asked for.
pub(crate) struct Environment {
    folder: PathBuf,
}

impl Environment {
    /// The environment of this Python with these packages, each as pip names it. It is made where it is
    /// missing, and made again where it is another Python's.
    ///
    /// # Errors
    ///
    /// There is no such Python or no such package, or they cannot be installed.
    pub(crate) fn with(python: &str, packages: &[&str]) -> Result<Self> {
        machine::prepare_python(python)?;
        let folder = machine::target().join("python");
        let environment = Self { folder };
        // Its first line is the Python, the others are packages. Written after each step, so that an
        // environment that is half made is made again.
        let stamp = environment.folder.join("packages");
        let text = fs::read_to_string(&stamp).unwrap_or_default();
        let mut lines: Vec<&str> = text.lines().collect();
        let write = |lines: &[&str]| {
            fs::write(&stamp, lines.join("\n"))
                .with_context(|| format!("writing {}", stamp.display()))
        };
        let version = version(python)?;
        if lines.first() != Some(&version.as_str()) {
            let mut make = Command::new(python);
            make.args(["-m", "venv", "--clear"])
                .arg(&environment.folder);
            machine::succeed(&mut make)?;
            lines = vec![&version];
            write(&lines)?;
        }
        let missing = packages.iter().filter(|package| !lines.contains(package));
        let missing: Vec<&str> = missing.copied().collect();
        if !missing.is_empty() {
            environment.pip(&["install"], &missing)?;
            lines.extend(missing);
            write(&lines)?;
        }
        Ok(environment)
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    /// Runs pip: a command with its options, and what it is about.
    ///
    /// # Errors
    ///
    /// pip fails.
    pub(crate) fn pip(&self, command: &[&str], what: &[&str]) -> Result<()> {
        machine::succeed(&mut self.pip_command(command, what))
    }

    /// pip, to be run.
    pub(crate) fn pip_command(&self, command: &[&str], what: &[&str]) -> Command {
        let mut pip = Command::new(self.program("python"));
        pip.args(["-m", "pip"])
            .args(command)
            .args(["--quiet", "--disable-pip-version-check", "--no-input"])
            .args(what);
        pip
    }

    /// The sources of a package as it is published, unpacked: what pip installs lacks its tests.
    ///
    /// # Errors
    ///
    /// pip cannot load them, or they cannot be unpacked.
    pub(crate) fn sources(&self, name: &str, version: &str) -> Result<PathBuf> {
        let folder = self.folder.join("sources");
        let unpacked = folder.join(format!("{name}-{version}"));
        if unpacked.is_dir() {
            return Ok(unpacked);
        }
        let loading = folder.join("loading");
        let text = loading.to_string_lossy();
        let options = [
            "download",
            "--no-deps",
            "--no-binary",
            name,
            "--dest",
            &text,
        ];
        self.pip(&options, &[&format!("{name}=={version}")])?;
        let packed = loading.join(format!("{name}-{version}.tar.gz"));
        let mut unpack = Command::new(self.program("python"));
        unpack
            .args(["-m", "tarfile", "--extract"])
            .args([&packed, &loading]);
        machine::succeed(&mut unpack)?;
        // Last: a folder that is there is whole.
        fs::rename(loading.join(format!("{name}-{version}")), &unpacked)
            .with_context(|| format!("{name} {version} is not in {}", packed.display()))?;
        Ok(unpacked)
    }
}

/// Path and version of this Python, on one line.
fn version(python: &str) -> Result<String> {
    let output = Command::new(python)
        .args(["-c", "import sys; print(sys.executable, sys.version_info)"])
        .output()
        .with_context(|| format!("running {python}"))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(output.status.success(), "{python} does not run");
    Ok(text)
}
