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
    let has = |flags: &[&str]| {
        let words = words.words.iter().filter_map(|word| word.to_str());
        words
            .filter_map(|word| word.split('=').next())
            .any(|word| flags.contains(&word))
    };
    machine::prepare_building()?;
    let (name, measures, draws) = match what {
        What::Demo => ("demo", has(&["--with-tor"]), false),
        What::Bench => {
            let measures = !has(&["--plan", "--tables", "--plots"]);
            ("bench", measures, measures || has(&["--plots"]))
        }
        What::Roles => ("roles", true, false),
    };
    // Who only asks how to use it needs nothing installed.
    let asks = has(&["--help", "-h"]);
    if measures && !asks {
        machine::prepare()?;
    }
    if draws && !asks {
        machine::prepare_for_plots()?;
    }
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
