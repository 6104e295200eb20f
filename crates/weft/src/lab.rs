//! `weft lab` and `weft sim`: the workbench, which is a separate program beside this one. A relay
//! does not need it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use weft_cli::VERSION_OF_WEFT;

/// The program.
const LAB: &str = "weft-lab";

/// Becomes `weft-lab` with these words. Returns only if that cannot be.
pub(crate) fn start(words: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let this = std::env::current_exe().context("cannot find this program's own file")?;
    let lab = this.with_file_name(LAB);
    ensure!(lab.exists(), "{}", missing(&lab));
    let error = Command::new(&lab)
        .args(words)
        .env(VERSION_OF_WEFT, env!("CARGO_PKG_VERSION"))
        .exec();
    Err(error).with_context(|| format!("cannot start {}", lab.display()))
}

fn missing(lab: &Path) -> String {
    format!(
        "`weft lab` and `weft sim` are a program of their own, {LAB}, and there is no {}: install the package {LAB}, or, in a \
         checkout of this version, `cargo install --path crates/{LAB} --locked`",
        lab.display()
    )
}
