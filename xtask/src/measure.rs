//! `cargo xtask demo | bench | roles | chaos`: builds Weft and runs `weft lab demo | roles | chaos`, or `bench/measure`, which
//! measures it beside C tor.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{linted, machine};

/// The arguments of the program that is built.
#[derive(clap::Args, Debug)]
pub(crate) struct MeasureArgs {
    /// Handed on as they are; `-- --help` builds Weft and lists all of them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// The measurement to build and run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Demo,
    Bench,
    Roles,
    Chaos,
}

impl What {
    /// The package of the program.
    fn package(self) -> &'static str {
        match self {
            What::Demo | What::Roles | What::Chaos => "weft-lab",
            What::Bench => "weft-measure",
        }
    }

    /// The arguments before those of the command line.
    fn command(self) -> &'static [&'static str] {
        match self {
            What::Demo => &["demo"],
            What::Roles => &["roles"],
            What::Chaos => &["chaos"],
            What::Bench => &[],
        }
    }
}

/// Builds the program, and returns where it is: for speed where that is measured, and otherwise as tests do,
/// which takes half as long and leaves them less to build.
/// `features` are those of the packages, by `package/feature`.
fn build(what: What, for_speed: bool, features: &[&str]) -> Result<PathBuf> {
    let package = what.package();
    let mut build = linted::cargo_as(!for_speed)?;
    build.arg("build");
    for feature in features {
        build.args(["--features", feature]);
    }
    let folder = if for_speed {
        println!("Building Weft (as it is released, with names of functions) …");
        build.args(["--profile", "profiling"]);
        "profiling"
    } else {
        println!("Building Weft (as for tests) …");
        // All of the workspace decides which features dependencies have, as in tests.
        build.arg("--workspace");
        "debug"
    };
    let mut programs = vec!["weft", "weft-lab", package];
    programs.dedup();
    for program in programs {
        if for_speed {
            build.args(["--package", program]);
        }
        build.args(["--bin", program]);
    }
    let status = build.status().context("running cargo")?;
    ensure!(status.success(), "Weft does not build: see above");
    Ok(machine::target().join(folder).join(package))
}

/// Builds and runs. Returns only if that cannot be started: this process becomes the other, which so alone
/// gets Ctrl-C.
pub(crate) fn run(what: What, args: &MeasureArgs) -> Result<()> {
    let has = |flags: &[&str]| {
        let args = args.args.iter().filter_map(|arg| arg.to_str());
        args.filter_map(|arg| arg.split('=').next())
            .any(|flag| flags.contains(&flag))
    };
    machine::prepare_building()?;
    let measures = match what {
        What::Demo => has(&["--with-tor"]),
        What::Bench => !has(&["--plan", "--tables", "--plots"]),
        What::Roles => true,
        What::Chaos => false,
    };
    // `--help` needs nothing installed.
    let asks = has(&["--help", "-h"]);
    if measures && !asks {
        machine::prepare()?;
    }
    // Hooks: for planted faults, disks that are full and processes that are killed.
    let features: &[&str] = match what {
        What::Chaos => &["weft-lab/planted"],
        _ => &[],
    };
    let for_speed = measures || matches!(what, What::Bench | What::Chaos);
    let program = build(what, for_speed, features)?;
    let mut command = Command::new(&program);
    command.args(what.command());
    if matches!(what, What::Roles) && !asks {
        if !has(&["--out", "--within"]) {
            command
                .arg("--within")
                .arg(machine::root().join("bench/results"));
        }
        if !has(&["--program", "--weft"]) {
            command.arg("--checkout").arg(machine::root());
        }
    }
    if matches!(what, What::Chaos) && !has(&["--keep"]) {
        command.arg("--keep").arg(machine::target().join("chaos"));
    }
    let error = command.args(&args.args).exec();
    Err(error).with_context(|| format!("running {}", program.display()))
}
