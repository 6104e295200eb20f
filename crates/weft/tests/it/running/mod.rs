//! A relay as its operator runs it: a torrc in a folder, the program, its log.

// Each test binary uses its own part of it.
#![allow(dead_code)]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Ends tests that would otherwise hang; nothing is measured by it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a torrc in it.
pub(crate) struct Bench {
    pub(crate) folder: tempfile::TempDir,
}

/// Runs a command at home in a folder, with this on standard input, to its end.
pub(crate) fn run_in(folder: &Path, command: &mut Command, input: &str) -> Output {
    let mut child = command
        .current_dir(folder)
        .env("HOME", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that fails early, or reads nothing, has closed its end.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// A relay of that torrc. Killed when dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) log: PathBuf,
    /// Lines of the log that the test has seen.
    pub(crate) seen: usize,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("defaults"), "").unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the torrc of a relay that nobody lists, with these lines.
    pub(crate) fn torrc(&self, lines: &str) {
        let text = format!(
            "TestingTorNetwork 1\nAssumeReachable 1\nPublishServerDescriptor 0\n\
             Nickname options\nContactInfo nobody\nExitRelay 0\nSafeLogging 0\n\
             DirAuthority none orport=1 v3ident=0123456789ABCDEF0123456789ABCDEF01234567 \
             127.0.0.1:1 89ABCDEF0123456789ABCDEF0123456789ABCDEF\n\
             DataDirectory {}\n{lines}\n",
            self.path("data").display()
        );
        fs::write(self.path("torrc"), text).unwrap();
    }

    /// Starts the relay and waits until it runs. It logs to `log`.
    pub(crate) fn start(&self) -> Running {
        let mut running = self.spawn();
        running.wait_for("onionskin worker");
        running
    }

    /// Starts it.
    pub(crate) fn spawn(&self) -> Running {
        let child = Command::new(env!("CARGO_BIN_EXE_weft"))
            .args(["-f".as_ref(), self.path("torrc").as_os_str()])
            .args([
                "--defaults-torrc".as_ref(),
                self.path("defaults").as_os_str(),
            ])
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Running {
            child,
            log: self.path("log"),
            seen: 0,
        }
    }

    /// The torrc line of a log in this folder.
    pub(crate) fn log_line(&self, name: &str) -> String {
        format!("Log info file {}\n", self.path(name).display())
    }
}

impl Running {
    /// The first line that the test has not seen yet and that has this in it; those before it count
    /// as seen.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            // The last line may not be whole yet.
            let whole = log.rfind('\n').map_or("", |end| &log[..end]);
            let lines: Vec<&str> = whole.lines().collect();
            let new = lines.iter().enumerate().skip(self.seen);
            if let Some((at, line)) = new.clone().find(|(_, line)| line.contains(text)) {
                self.seen = at + 1;
                return (*line).to_owned();
            }
            assert!(Instant::now() < deadline, "no \"{text}\" in:\n{log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for a line "Opened OR listener on" and returns the port.
    pub(crate) fn opened(&mut self) -> u16 {
        let line = self.wait_for("Opened OR listener connection (ready) on ");
        line.rsplit(':').next().unwrap().trim().parse().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// Sends SIGTERM and waits until it has ended; it must end well.
    pub(crate) fn terminate(mut self) {
        self.signal(Signal::SIGTERM);
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
