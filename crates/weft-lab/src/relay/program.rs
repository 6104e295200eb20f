//! The programs that can be started to be measured.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use weft_testnet::programs::find;

use super::arti;

/// A program to be started and measured.
#[derive(Clone, Debug)]
pub enum Program {
    /// C tor; `None`: the one that is installed.
    Tor(Option<PathBuf>),
    /// Weft, with this number of ConnectionThreads or with its own choice.
    Weft(PathBuf, Option<u32>),
    /// Arti's relay; `None`: the one that is installed.
    Arti(Option<PathBuf>),
    /// `weft lab pipe` of this `weft`.
    Pipe(PathBuf),
}

impl Program {
    /// `tor`, `weft`, `arti` or `pipe`.
    pub fn kind(&self) -> &'static str {
        match self {
            Program::Tor(_) => "tor",
            Program::Weft(..) => "weft",
            Program::Arti(_) => "arti",
            Program::Pipe(_) => "pipe",
        }
    }

    /// The `weft` that is started.
    pub(crate) fn weft(&self) -> Option<&Path> {
        match self {
            Program::Weft(path, _) => Some(path),
            Program::Tor(_) | Program::Arti(_) | Program::Pipe(_) => None,
        }
    }

    pub(super) fn path(&self) -> Result<PathBuf> {
        let path = match self {
            Program::Tor(Some(path))
            | Program::Weft(path, _)
            | Program::Arti(Some(path))
            | Program::Pipe(path) => path.clone(),
            Program::Tor(None) => find("tor").context(
                "the program `tor` is not installed (Debian and Ubuntu: apt-get install tor)",
            )?,
            Program::Arti(None) => find(arti::PROGRAM).context(
                "the program `arti-relay` is not installed (docs/measuring.md shows how to build it): \
                 name it by --program, or measure one that runs by --address",
            )?,
        };
        Ok(path)
    }

    /// The first line of `--version`.
    pub(super) fn version(&self) -> Option<String> {
        let output = Command::new(self.path().ok()?).arg("--version").output();
        let text = String::from_utf8_lossy(&output.ok()?.stdout).into_owned();
        text.lines()
            .next()
            .map(|line| line.trim_end_matches('.').to_owned())
    }
}
