//! One process of a private network: its folder, its torrc, its log, its start and its end.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::output::Output;
use super::program::{Program, TORRC};
use crate::guardian::Guardian;
use crate::process::Usage;

/// Longest time for a node to end after it was asked to (its torrc has `ShutdownWaitLength 0`). A
/// Weft that takes longer is an error. C tor's relays sometimes hang after "exiting cleanly", which
/// is no fault of Weft: they are killed.
const FAREWELL: Duration = Duration::from_secs(60);

/// Longest wait for a node to print its statistics.
const ANSWER: Duration = Duration::from_secs(1);

/// A node of the network, running or not.
#[derive(Debug)]
pub struct Node {
    nickname: String,
    folder: PathBuf,
    child: Option<Child>,
    /// Output of each start, oldest first, with the program that printed it.
    logs: Vec<(Program, Output)>,
}

impl Node {
    /// Makes the folder of a node under `parent`.
    pub(crate) fn create(parent: &Path, nickname: &str) -> Result<Node> {
        let folder = parent.join(nickname);
        let data = folder.join("data");
        let mut private = DirBuilder::new();
        private.mode(0o700).recursive(true);
        private
            .create(&data)
            .with_context(|| format!("creating {}", data.display()))?;
        Ok(Node {
            nickname: nickname.to_owned(),
            folder,
            child: None,
            logs: Vec::new(),
        })
    }

    /// The relay's nickname, which is also the name of its folder.
    pub fn nickname(&self) -> &str {
        &self.nickname
    }

    /// The folder of everything that is this node's.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its torrc.
    pub fn torrc(&self) -> PathBuf {
        self.folder.join(TORRC)
    }

    /// Its control socket, if its torrc opens one.
    pub fn control_socket(&self) -> PathBuf {
        self.folder.join("control")
    }

    /// True if the consensus in its DataDirectory, of either flavour, lists all these relays.
    #[must_use]
    pub fn knows(&self, nicknames: &[&str]) -> bool {
        let data = self.folder.join("data");
        let lists_all = |document: Vec<u8>| {
            let text = String::from_utf8_lossy(&document);
            let lists = |nickname: &&str| text.contains(&format!("\nr {nickname} "));
            nicknames.iter().all(lists)
        };
        ["cached-microdesc-consensus", "cached-consensus"]
            .into_iter()
            .any(|name| fs::read(data.join(name)).is_ok_and(lists_all))
    }

    pub(crate) fn write_torrc(&self, text: &str) -> Result<()> {
        self.write(TORRC, text)
    }

    /// Writes a file into its folder.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// Starts `program` on the node's configuration, in a separate process group that `guardian`
    /// watches.
    pub(crate) fn start(&mut self, program: &Program, guardian: &mut Guardian) -> Result<()> {
        if self.child.is_some() {
            bail!("{} is running already", self.nickname);
        }
        let log = self
            .folder
            .join(format!("log-{}-{}", self.logs.len() + 1, program.name()));
        let (output, [stdout, stderr]) = Output::create(&log)?;
        let child = program
            .command(&self.folder.join(program.file()))
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .current_dir(&self.folder)
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {} as {}", program.name(), self.nickname))?;
        let watched = guardian.watch(child.id());
        self.child = Some(child);
        self.logs.push((program.clone(), output));
        watched
    }

    /// The process id while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Processor time and memory since it started.
    pub fn usage(&self) -> Result<Usage> {
        let pid = self
            .pid()
            .with_context(|| format!("{} is not running", self.nickname))?;
        Usage::of(pid)
    }

    /// An error, with the end of its log, if it has ended by itself.
    pub(crate) fn check(&mut self) -> Result<()> {
        let Some(child) = &mut self.child else {
            bail!("{} is not running", self.nickname);
        };
        if let Some(status) = child.try_wait()? {
            bail!(
                "{} has ended ({status}); the end of its log:\n{}",
                self.nickname,
                self.log_tail()
            );
        }
        Ok(())
    }

    /// Asks it to end and waits; an error if it does not end or ends badly.
    pub(crate) fn stop(&mut self, guardian: &mut Guardian) -> Result<()> {
        let program = self.logs.last().map(|(program, _)| program);
        let signal = program.map_or(Signal::SIGTERM, Program::farewell);
        let status = self.end(signal, guardian)?;
        if status.is_some_and(|status| !status.success()) {
            bail!(
                "{} ended badly after {signal} ({}); the end of its log:\n{}",
                self.nickname,
                status.map(|status| status.to_string()).unwrap_or_default(),
                self.log_tail()
            );
        }
        Ok(())
    }

    /// Ends it at once, without a word to anybody (SIGKILL).
    pub(crate) fn kill(&mut self, guardian: &mut Guardian) -> Result<()> {
        self.end(Signal::SIGKILL, guardian).map(drop)
    }

    fn end(&mut self, signal: Signal, guardian: &mut Guardian) -> Result<Option<ExitStatus>> {
        let Some(mut child) = self.child.take() else {
            return Ok(None);
        };
        let pid = Pid::from_raw(i32::try_from(child.id()).context("a process id beyond i32")?);
        // It may have ended by itself.
        let _ = kill(pid, signal);
        let deadline = Instant::now() + FAREWELL;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() >= deadline {
                let _ = killpg(pid, Signal::SIGKILL);
                child.wait()?;
                guardian.forget(child.id())?;
                let what = format!(
                    "{} did not end within {FAREWELL:?} of {signal}",
                    self.nickname
                );
                let program = self.logs.last().map(|(program, _)| program);
                ensure!(
                    program.is_some_and(|program| !program.is_weft()),
                    "{what}; the end of its log:\n{}",
                    self.log_tail()
                );
                eprintln!("{what}: it is killed");
                return Ok(None);
            }
            thread::sleep(Duration::from_millis(20));
        };
        guardian.forget(child.id())?;
        Ok(Some(status))
    }

    /// Its output in each run: the program and the text, oldest first.
    pub fn logs(&self) -> Result<Vec<(Program, String)>> {
        let read = |(program, output): &(Program, Output)| Ok((program.clone(), output.text()?));
        self.logs.iter().map(read).collect()
    }

    /// Asks it for its statistics (SIGUSR1), if it has any, and returns the last lines that it printed.
    pub fn statement(&self) -> Result<String> {
        let pid = self
            .pid()
            .with_context(|| format!("{} is not running", self.nickname))?;
        let pid = Pid::from_raw(i32::try_from(pid).context("a process id beyond i32")?);
        if self
            .logs
            .last()
            .is_some_and(|(program, _)| program.logs_statistics())
        {
            kill(pid, Signal::SIGUSR1).context("asking for statistics")?;
            thread::sleep(ANSWER);
        }
        Ok(self.log_tail())
    }

    fn log_tail(&self) -> String {
        let last = self.logs.last();
        last.map_or_else(String::new, |(_, output)| output.last_lines())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            if let Ok(pid) = i32::try_from(child.id()) {
                let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
            }
            let _ = child.wait();
        }
    }
}
