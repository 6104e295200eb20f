//! Nodes of the tests, beside a network of `weft lab`, each in a folder of its own.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weft_testnet::up::{Kind, Plan};

/// How long one thing may take; nothing is measured by it.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// The program under test.
pub(super) fn weft() -> PathBuf {
    let named = std::env::var_os("WEFT_BIN").map(PathBuf::from);
    named.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_weft")))
}

/// A process of the test.
pub(super) struct Node {
    child: Child,
    folder: PathBuf,
}

impl Node {
    /// Starts a program by this torrc, in this folder, which is made.
    pub(super) fn start(program: &Path, folder: &Path, torrc: &str) -> Result<Node> {
        let file = write_torrc(folder, torrc)?;
        let log = File::create(folder.join("log"))?;
        let child = Command::new(program)
            .args(["--defaults-torrc", "/dev/null", "-f"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(Node {
            child,
            folder: folder.to_owned(),
        })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.child.id().try_into()?), signal)?;
        Ok(())
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// A file of its DataDirectory.
    pub(super) fn file(&self, name: &str) -> Result<String> {
        let path = self.folder.join("data").join(name);
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    }

    /// The digits of its fingerprint.
    pub(super) fn fingerprint(&self) -> Result<String> {
        let line = self.file("fingerprint")?;
        let (_, digits) = line.trim().split_once(' ').context("no fingerprint")?;
        Ok(digits.to_owned())
    }

    /// Waits until its log has this.
    pub(super) fn wait_for(&mut self, text: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while !self.log().contains(text) {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended ({status}):\n{}", self.log());
            }
            ensure!(Instant::now() < end, "no {text:?} in\n{}", self.log());
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Ends it as an operator does; its log.
    pub(super) fn end(&mut self) -> Result<String> {
        self.signal(Signal::SIGTERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "{status}:\n{}", self.log());
        Ok(self.log())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a torrc into this folder, which is made.
pub(super) fn write_torrc(folder: &Path, torrc: &str) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    // Control sockets are in it.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    let file = folder.join("torrc");
    fs::write(&file, torrc)?;
    Ok(file)
}

/// A network of C tor with two exits.
pub(super) fn plan(relays: usize, clients: usize) -> Plan {
    Plan {
        relays,
        relays_run: Kind::Tor,
        exits: 2,
        exits_run: Kind::Tor,
        clients,
        clients_run: Kind::Tor,
        authority: Kind::Tor,
        verbose: std::env::var_os("WEFT_LAB_VERBOSE").is_some(),
        progress: |line| eprintln!("{line}"),
        ..Plan::of_weft(weft())
    }
}
