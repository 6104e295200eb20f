//! The developers' commands: `cargo xtask demo | bench | roles | chaos | test | check | flaky |
//! coverage | fuzz | instructions | wheel | deb | pack`.

mod check;
mod coverage;
mod deb;
mod flaky;
mod fuzz;
mod install;
mod instructions;
mod interrupt;
mod linted;
mod machine;
mod measure;
mod networks;
mod nextest;
mod pack;
mod passed;
mod python;
mod test;
mod tested;
mod tools;
mod wheel;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::measure::What;

/// Weft's developer commands.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, about)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

/// One of them.
#[derive(Subcommand, Debug)]
enum Command {
    /// Show Weft at work: a private Tor network of Weft alone; with `--with-tor` also among C tor nodes,
    /// and C tor in the same place.
    Demo(measure::MeasureArgs),
    /// Measure Weft, C tor and the bare pipe side by side; `--quick` takes two minutes.
    Bench(measure::MeasureArgs),
    /// Measure Weft, C tor and Arti as client, and Weft and C tor as exit and guard, side by side.
    Roles(measure::MeasureArgs),
    /// Find defects: random networks in virtual time in which random things go wrong (docs/chaos.md).
    Chaos(measure::MeasureArgs),
    /// Everything that must pass before a change lands.
    Test(test::TestArgs),
    /// Check in minutes what a change can have broken: formatting, clippy, tests of the crates that
    /// it touches.
    Check(check::CheckArgs),
    /// Run all tests again and again, and list those that fail now and then.
    Flaky(flaky::FlakyArgs),
    /// Count the lines of the deciding crates that tests, chaos and fuzzing's corpora reach.
    Coverage(coverage::CoverageArgs),
    /// Fuzz the parsers and state machines.
    Fuzz(fuzz::FuzzArgs),
    /// Count instructions for each relayed cell, and compare with what was recorded.
    Instructions(instructions::InstructionsArgs),
    /// Build the Python package of the simulator, as a wheel.
    Wheel(wheel::WheelArgs),
    /// Build the Debian package.
    Deb(deb::DebArgs),
    /// Pack what measures a larger machine: programs, C tor and a script, for any Linux (bench/README.md).
    Pack(pack::PackArgs),
}

fn main() -> ExitCode {
    match run(CommandLine::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nError: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Demo(args) => measure::run(What::Demo, &args),
        Command::Bench(args) => measure::run(What::Bench, &args),
        Command::Roles(args) => measure::run(What::Roles, &args),
        Command::Chaos(args) => measure::run(What::Chaos, &args),
        Command::Test(args) => interrupt::handle().and_then(|()| test::run(&args)),
        Command::Check(args) => interrupt::handle().and_then(|()| check::run(&args)),
        Command::Flaky(args) => interrupt::handle().and_then(|()| flaky::run(&args)),
        Command::Coverage(args) => coverage::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Instructions(args) => instructions::run(&args),
        Command::Wheel(args) => wheel::run(&args),
        Command::Deb(args) => deb::run(&args),
        Command::Pack(args) => pack::run(&args),
    }
}
