//! Scripts by which a shell completes the words of a program.

use std::process::ExitCode;

use anyhow::Result;
use clap::Command;
use clap_complete::Shell;

use crate::print::print;

/// Arguments of the command that prints completions.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell.
    shell: Shell,
}

/// Prints the completions of `command`, whose program has this name.
///
/// # Errors
///
/// Standard output cannot be written.
pub fn completions(args: &Args, mut command: Command, program: &str) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, program, &mut script);
    let mut script = String::from_utf8(script)?;
    if args.shell == Shell::Bash {
        // clap_complete 4.6 writes the hyphen of a program's own name in two ways, so that nothing below its commands is found.
        script = script.replace(
            &program.replace('-', "__subcmd__"),
            &program.replace('-', "__"),
        );
    }
    print(script)?;
    Ok(ExitCode::SUCCESS)
}
