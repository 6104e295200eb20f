//! What developers run: `cargo xtask demo | bench | roles | test | fuzz | instructions | wheel`.

mod bench;
mod demo;
mod fuzz;
mod instructions;
mod machine;
mod roles;
mod test;
mod wheel;

use clap::{Parser, Subcommand};

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
    /// Show Weft at work: a private Tor network of Weft alone; with C tor, too, if asked.
    Demo(demo::DemoArgs),
    /// Measure Weft, C tor and the bare pipe side by side.
    Bench(bench::BenchArgs),
    /// Measure Weft and C tor as client, exit and guard side by side.
    Roles(roles::RolesArgs),
    /// Everything that must pass before a change lands.
    Test(test::TestArgs),
    /// Fuzz the parsers and state machines.
    Fuzz(fuzz::FuzzArgs),
    /// Count instructions for each relayed cell, and compare with what was recorded.
    Instructions(instructions::InstructionsArgs),
    /// Build the Python package of the simulator, as a wheel.
    Wheel(wheel::WheelArgs),
}

fn main() -> anyhow::Result<()> {
    match CommandLine::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Roles(args) => roles::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Instructions(args) => instructions::run(&args),
        Command::Wheel(args) => wheel::run(&args),
    }
}
