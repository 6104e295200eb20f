//! A running `weft`: its torrc, its data, what it logs, how it ends.

use std::cell::Cell;
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::hostile::peer::{Identity, identity};

/// Limit on the wait for anything that must happen. Nothing is measured by it: it ends tests that
/// would otherwise hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Polls a condition until it holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "it never came that {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Lines that a process printed.
#[derive(Debug, Default)]
struct Printed {
    lines: Mutex<Vec<String>>,
    more: Condvar,
}

/// Where a relay keeps its torrc and its data.
#[derive(Debug)]
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes the torrc of a relay that nobody lists, with more lines.
    pub(crate) fn torrc(&self, more: &str) {
        let text = format!(
            "TestingTorNetwork 1\n\
             AssumeReachable 1\n\
             PublishServerDescriptor 0\n\
             ORPort 127.0.0.1:auto IPv4Only\n\
             Address 127.0.0.1\n\
             Nickname attacked\n\
             ContactInfo nobody\n\
             ExitRelay 0\n\
             DirAuthority none orport=1 v3ident=0123456789ABCDEF0123456789ABCDEF01234567 \
             127.0.0.1:1 89ABCDEF0123456789ABCDEF0123456789ABCDEF\n\
             DataDirectory {}\n\
             Log info stdout\n\
             {more}\n",
            self.path("data").display()
        );
        fs::write(self.path("torrc"), text).unwrap();
        fs::write(self.path("defaults"), "").unwrap();
    }

    /// The command that starts the relay.
    pub(crate) fn command(&self, program: &Path) -> Command {
        self.with_torrc(Command::new(program))
    }

    /// The command that starts the relay, which may open this many files.
    pub(crate) fn command_with_files(&self, program: &Path, files: usize) -> Command {
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(format!("ulimit -n {files} && exec \"$0\" \"$@\""))
            .arg(program);
        self.with_torrc(shell)
    }

    fn with_torrc(&self, mut command: Command) -> Command {
        command
            .arg("-f")
            .arg(self.path("torrc"))
            .arg("--defaults-torrc")
            .arg(self.path("defaults"))
            .current_dir(self.0.path())
            .env("HOME", self.0.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

/// The program under test.
pub(crate) fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_weft"))
}

/// A running relay. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Weft {
    child: Child,
    printed: Arc<Printed>,
    readers: Vec<thread::JoinHandle<()>>,
    /// Its ORPort.
    pub(crate) or_port: SocketAddr,
    /// Its connection threads: each may log a line of one kind once, and so may the main thread
    /// where it is the only one.
    threads: usize,
    pub(crate) folder: Folder,
    /// Next hops that it was shown.
    hops: Cell<usize>,
}

impl Weft {
    /// Starts a relay with this many connection threads.
    pub(crate) fn start(threads: usize) -> Self {
        Self::start_with(threads, "")
    }

    /// Starts a relay with more lines in torrc.
    pub(crate) fn start_with(threads: usize, more: &str) -> Self {
        let folder = Folder::new();
        folder.torrc(&format!(
            "ConnectionThreads {threads}\nUseAllThreads 1\n{more}"
        ));
        Self::start_in(folder, threads)
    }

    /// Starts a node with the torrc in this folder.
    pub(crate) fn start_in(folder: Folder, threads: usize) -> Self {
        Self::run(folder.command(program()), folder, threads)
    }

    /// Runs a command that starts a node with the torrc in this folder.
    pub(crate) fn run(mut command: Command, folder: Folder, threads: usize) -> Self {
        let mut child = command.spawn().unwrap();
        let printed = Arc::new(Printed::default());
        let readers = vec![
            collect(child.stdout.take().unwrap(), printed.clone()),
            collect(child.stderr.take().unwrap(), printed.clone()),
        ];
        let mut weft = Weft {
            child,
            printed,
            readers,
            or_port: "127.0.0.1:1".parse().unwrap(),
            threads,
            folder,
            hops: Cell::new(0),
        };
        let line = weft.wait_for("Opened OR listener connection (ready) on ");
        let (_, port) = line
            .split_once("Opened OR listener connection (ready) on ")
            .unwrap();
        weft.or_port = port.trim().parse().unwrap();
        weft.wait_for("onionskin worker");
        weft
    }

    /// A relay, played by the test, that this one has not met.
    pub(crate) fn stranger(&self) -> &'static Identity {
        let number = self.hops.get();
        self.hops.set(number + 1);
        identity(number)
    }

    /// Lines that it has printed so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.printed.lines.lock().unwrap().clone()
    }

    /// The first line with these words, which may still have to come.
    pub(crate) fn wait_for(&self, words: &str) -> String {
        self.wait_after(0, words)
    }

    /// The first line with these words after the first `seen` lines.
    pub(crate) fn wait_after(&self, seen: usize, words: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut lines = self.printed.lines.lock().unwrap();
        loop {
            if let Some(line) = lines.iter().skip(seen).find(|line| line.contains(words)) {
                return line.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no line with {words:?} in {lines:#?}");
            lines = self.printed.more.wait_timeout(lines, left).unwrap().0;
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Lines that it logs now on SIGUSR1.
    pub(crate) fn statistics(&self) -> Vec<String> {
        let seen = self.lines().len();
        self.signal(Signal::SIGUSR1);
        self.wait_after(seen, "DoS mitigation since startup");
        self.lines().split_off(seen)
    }

    /// Number of connections that it reports.
    pub(crate) fn connections(&self) -> usize {
        self.statistic("Connections: ")
    }

    /// The number that follows these words in its statistics.
    pub(crate) fn statistic(&self, words: &str) -> usize {
        let statistics = self.statistics();
        let (_, rest) = statistics
            .iter()
            .find_map(|line| line.split_once(words))
            .unwrap_or_else(|| panic!("{words:?} is not in {statistics:?}"));
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
        digits.unwrap().parse().unwrap()
    }

    /// Its resident memory, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        kib * 1024
    }

    /// Number of files that it has open.
    pub(crate) fn files(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.child.id());
        fs::read_dir(folder).unwrap().count()
    }

    /// The 32 bytes of its ntor onion key that clients know.
    pub(crate) fn onion_key(&self) -> [u8; 32] {
        let file = fs::read(self.folder.path("data/keys/secret_onion_key_ntor")).unwrap();
        file[file.len() - 32..].try_into().unwrap()
    }

    /// It runs, nothing in it has panicked or called itself an error, and no peer has made any of
    /// its threads log one thing twice.
    pub(crate) fn is_calm(&mut self) {
        assert_eq!(self.child.try_wait().unwrap(), None, "{:#?}", self.lines());
        let lines = self.lines();
        let mut kinds: Vec<(String, usize)> = Vec::new();
        for line in &lines {
            assert!(!line.contains("panicked"), "{lines:#?}");
            assert!(!line.contains("[err]"), "{lines:#?}");
            let kind = kind_of(line);
            match kinds.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, count)) => *count += 1,
                None => kinds.push((kind, 1)),
            }
        }
        for (kind, count) in kinds {
            // Warnings that peers cannot cause.
            let ours = [
                "Cannot fetch the consensus",
                "No key found",
                "system clock just jumped",
                "Heartbeat: ",
                "Connections: ",
                "Circuits: ",
                "Circuits closed: ",
                "Cells: ",
                "DoS mitigation",
                "Onion services: ",
                "fingerprint is",
                "Bootstrapped",
                "Read configuration file",
                // One for each port.
                "listener listening on port",
            ];
            if !ours.iter().any(|ours| kind.contains(ours)) {
                assert!(
                    count <= self.threads.max(1),
                    "{count} times {kind:?}: {lines:#?}"
                );
            }
        }
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("weft ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        status.unwrap()
    }

    /// SIGTERM, which must end it well.
    pub(crate) fn terminate(mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.wait();
        assert_eq!(status.code(), Some(0), "{:#?}", self.lines());
        let lines = self.lines();
        assert!(
            !lines.iter().any(|line| line.contains("panicked")),
            "{lines:#?}"
        );
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }
}

impl Drop for Weft {
    fn drop(&mut self) {
        // Both fail when it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a process' output to its end.
fn collect(output: impl Read + Send + 'static, printed: Arc<Printed>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else {
                return;
            };
            printed.lines.lock().unwrap().push(line);
            printed.more.notify_all();
        }
    })
}

/// A log line without its time, numbers, and count of others like it.
fn kind_of(line: &str) -> String {
    let text = line.split_once('[').map_or(line, |(_, text)| text);
    let text = text.split_once(" [").map_or(text, |(text, _)| text);
    text.chars()
        .map(|c| if c.is_ascii_digit() { '#' } else { c })
        .collect()
}
