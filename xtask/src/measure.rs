//! `cargo xtask demo | bench | roles`: builds Weft and what measures it (`bench/measure`), and runs that.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::machine;

/// What is handed on.
#[derive(clap::Args, Debug)]
pub(crate) struct Words {
    /// Handed on as they are; `-- --help` builds Weft and tells all of them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// What `weft-measure` can do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Demo,
    Bench,
    Roles,
}

/// Builds, and does what was asked for. Returns only if that could not be begun: this process becomes the
/// other, which so alone hears of Ctrl-C.
pub(crate) fn run(what: What, words: &Words) -> Result<()> {
    let name = match what {
        What::Demo if words.words.iter().any(|word| word == "--with-tor") => {
            machine::prepare()?;
            "demo"
        }
        What::Demo => {
            machine::prepare_building()?;
            "demo"
        }
        What::Bench => {
            machine::prepare()?;
            machine::prepare_for_plots()?;
            "bench"
        }
        What::Roles => {
            machine::prepare()?;
            "roles"
        }
    };
    println!("Building Weft (release) …");
    let status = machine::cargo()
        .args(["build", "--release"])
        .args(["--package", "weft", "--package", "weft-measure"])
        .status()
        .context("running cargo")?;
    ensure!(status.success(), "Weft does not build: see above");
    let program = machine::target().join("release").join("weft-measure");
    let error = Command::new(&program).arg(name).args(&words.words).exec();
    Err(error).with_context(|| format!("running {}", program.display()))
}
