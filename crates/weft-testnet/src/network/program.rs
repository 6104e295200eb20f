//! A program that takes C tor's `-f torrc`: `tor` itself, or `weft`. And Arti's client, which takes
//! a different configuration.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use weft_cli::VERSION_OF_WEFT;

use crate::control::Fingerprint;
use crate::net::Host;
use crate::programs::{check_program, find, lab_program};

/// The program of a node, and its arguments besides those that name its configuration.
#[derive(Clone, Debug)]
pub struct Program {
    name: String,
    path: PathBuf,
    overrides: Vec<String>,
    host: Option<Host>,
    /// The weft-lab in which it runs, if it profiles itself when it is asked to (`weft_lab::hops::profile`).
    profiler: Option<PathBuf>,
}

impl Program {
    /// The installed C tor. It builds no circuits unless asked: in so small a network it would warn
    /// that it finds no relays for them.
    pub fn tor() -> Result<Program> {
        let path = find("tor").context(
            "the program `tor` is not installed: private networks are made of it (Debian and Ubuntu: apt-get install tor)",
        )?;
        find("tor-gencert")
            .context("`tor` is installed and `tor-gencert` is not (both are in the package tor)")?;
        let overrides = ["--__DisablePredictedCircuits", "1"]
            .map(String::from)
            .to_vec();
        Ok(Program {
            name: TOR.into(),
            path,
            overrides,
            host: None,
            profiler: None,
        })
    }

    /// The `weft` at this path, with this many connection threads, or as many as it chooses.
    pub fn weft(path: &Path, threads: Option<u32>) -> Result<Program> {
        check_program(path)?;
        let overrides =
            threads.map(|threads| vec!["--ConnectionThreads".into(), threads.to_string()]);
        let name = threads.map_or_else(|| "weft".into(), |threads| format!("weft-{threads}"));
        Ok(Program {
            name,
            path: path.to_owned(),
            overrides: overrides.unwrap_or_default(),
            host: None,
            profiler: None,
        })
    }

    /// Adds an option to its command line.
    #[must_use]
    pub fn with_option(mut self, name: &str, value: &str) -> Program {
        self.overrides
            .extend([format!("--{name}"), value.to_owned()]);
        self
    }

    /// Adds a profiler that waits for orders at a socket in the node's folder.
    ///
    /// # Errors
    ///
    /// There is no weft-lab beside it.
    pub(crate) fn profiled(self) -> Result<Program> {
        Ok(Program {
            profiler: Some(lab_program(&self.path)?),
            ..self
        })
    }

    /// The installed C tor, as users run it: it builds circuits without being asked.
    pub fn tor_of_its_own() -> Result<Program> {
        Ok(Program {
            overrides: Vec::new(),
            ..Program::tor()?
        })
    }

    /// The `arti` at this path, which can be a client only.
    pub fn arti(path: &Path) -> Result<Program> {
        check_program(path)?;
        Ok(Program {
            name: ARTI.into(),
            path: path.to_owned(),
            overrides: Vec::new(),
            host: None,
            profiler: None,
        })
    }

    /// The program, set to run in a host of a testbed.
    pub(crate) fn on(&self, host: &Host) -> Program {
        Program {
            host: Some(host.clone()),
            ..self.clone()
        }
    }

    /// `tor`, `arti`, or `weft-2` for Weft with two threads.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True if it is Weft.
    pub fn is_weft(&self) -> bool {
        self.name.starts_with("weft")
    }

    /// A client that would spread a stream over two circuits (Conflux), with Conflux off. `None`
    /// for Arti, which has none.
    pub fn without_conflux(&self) -> Option<Program> {
        (self.name == TOR || self.is_weft()).then(|| {
            let mut program = self.clone();
            let words = ["--ConfluxEnabled", "0"].map(String::from);
            program.overrides.extend(words);
            program
        })
    }

    /// True if it is Arti, which reads no torrc.
    pub(crate) fn is_arti(&self) -> bool {
        self.name == ARTI
    }

    /// The name of the file that it is configured by.
    pub(crate) fn file(&self) -> &'static str {
        match self.is_arti() {
            true => "arti.toml",
            false => TORRC,
        }
    }

    /// The command that runs it with this configuration and no other.
    pub(crate) fn command(&self, file: &Path) -> Command {
        let path = self.profiler.as_ref().unwrap_or(&self.path);
        let mut command = match &self.host {
            Some(host) => host.command(path),
            None => Command::new(path),
        };
        if self.is_arti() {
            // Its folder is under one in which everybody may write.
            command
                .args(["proxy", "--disable-fs-permission-checks", "--config"])
                .arg(file);
        } else {
            if self.profiler.is_some() {
                let socket = file.with_file_name(PROFILER);
                // Its version is that of the weft beside it, not of the one that started this program.
                command
                    .env_remove(VERSION_OF_WEFT)
                    .args(["profiled-node", "--socket"])
                    .arg(socket)
                    .arg("--");
            }
            command
                .args(["--defaults-torrc", "/dev/null", "-f"])
                .arg(file);
        }
        command.args(&self.overrides);
        command
    }

    /// The signal after which it ends with success: Arti handles Ctrl-C only.
    pub(crate) fn farewell(&self) -> Signal {
        match self.is_arti() {
            true => Signal::SIGINT,
            false => Signal::SIGTERM,
        }
    }

    /// True if SIGUSR1 makes it log statistics. The signal ends other programs.
    pub(crate) fn logs_statistics(&self) -> bool {
        !self.is_arti()
    }

    /// Runs `--list-fingerprint`, which makes the identity keys if there are none.
    pub fn fingerprint(&self, torrc: &Path) -> Result<Fingerprint> {
        let doing = || {
            format!(
                "{} --list-fingerprint -f {}",
                self.path.display(),
                torrc.display()
            )
        };
        let own = Program {
            profiler: None,
            ..self.clone()
        };
        let output = own
            .command(torrc)
            .arg("--list-fingerprint")
            .output()
            .with_context(doing)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "{}: {}\n{text}{}",
            doing(),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        // "nickname 0123 4567 …", after log lines.
        let last = text.lines().rev().find_map(|line| {
            let (_, digits) = line.split_once(' ')?;
            Fingerprint::parse(digits).ok()
        });
        last.with_context(|| format!("{}: no fingerprint in its output:\n{text}", doing()))
    }
}

/// The socket at which a node with a profiler waits for orders, in its folder.
pub const PROFILER: &str = "profile";
/// The name of Arti's client.
const ARTI: &str = "arti";
/// C tor's program.
const TOR: &str = "tor";
/// The file that the others read.
pub(super) const TORRC: &str = "torrc";
