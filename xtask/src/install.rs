//! The step `install` of `cargo xtask test`: the program as its users install it.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::machine;

/// Bytes of the program at most. With the names of its functions and lines it has more than twice as many.
const MOST: u64 = 60_000_000;

/// Runs the command of the book, and what it installs. The result: why it was not run.
pub(crate) fn check() -> Result<Option<&'static str>> {
    if std::env::var_os("CI").is_some() {
        return Ok(Some("a release build takes minutes more than CI has"));
    }
    let folder = machine::target().join("installed");
    for package in ["crates/weft", "crates/weft-lab"] {
        machine::succeed(
            machine::cargo()
                .args(["install", "--path", package, "--locked", "--force"])
                .arg("--root")
                .arg(&folder)
                // The release build that `cargo xtask deb` packs, too.
                .arg("--target-dir")
                .arg(machine::target()),
        )?;
    }
    let program = folder.join("bin/weft");
    let shown = program.display();
    let size = fs::metadata(&program)
        .with_context(|| format!("there is no {shown}"))?
        .len();
    println!("{shown}: {size} bytes");
    ensure!(size <= MOST, "{shown} has {size} bytes: is it stripped?");
    let run = |words: &[&str]| {
        let output = Command::new(&program)
            .args(words)
            .output()
            .with_context(|| format!("running {shown}"))?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        anyhow::Ok((output.status.success(), text))
    };
    let (works, text) = run(&["--version"])?;
    ensure!(works && text.starts_with("Weft version "), "{text}");
    let socket = folder.join("socket").to_string_lossy().into_owned();
    let (works, text) = run(&["lab", "profiled-node", "--socket", &socket])?;
    ensure!(
        !works && text.contains("--profile profiling"),
        "{shown} still has the names of its functions: {text}"
    );
    Ok(None)
}
