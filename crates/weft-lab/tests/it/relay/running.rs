//! Runs `weft lab relay`, and a relay that runs by itself.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weft_lab::relay::report::{PAYLOAD_PER_CELL, Report, SCHEMA};
use weft_testnet::ports::Port;

/// Only a hang takes as long as this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn weft() -> Command {
    let mut command = Command::new(crate::weft());
    command.stdin(Stdio::null());
    command
}

/// Prefixes of lines about progress.
pub(crate) const PROGRESS: [&str; 7] = [
    "making keys",
    "opening links",
    "building circuits",
    "warming up",
    "measuring",
    "waiting for the last cells",
    "settling",
];

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    /// Its messages other than progress. On a busy machine it takes long enough to print lines of
    /// progress.
    pub(crate) fn complaints(&self) -> String {
        let is_progress = |line: &&str| PROGRESS.iter().any(|step| line.starts_with(step));
        let lines = self.err.lines().filter(|line| !is_progress(line));
        lines.collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn report(&self) -> Report {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Starts `weft lab relay` with these words.
pub(crate) fn start(words: &str) -> Child {
    weft()
        .args(["lab", "relay"])
        .args(words.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

pub(crate) fn finish(child: Child) -> Run {
    let output = child.wait_with_output().unwrap();
    Run {
        status: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

pub(crate) fn run(words: &str) -> Run {
    finish(start(words))
}

/// A relay that runs by itself.
pub(crate) struct Relay {
    child: Child,
    folder: tempfile::TempDir,
    pub(crate) port: Port,
    metrics: Port,
}

impl Relay {
    pub(crate) fn start() -> Self {
        Self::start_with("ExtendAllowPrivateAddresses 1")
    }

    pub(crate) fn start_with(line: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = Port::reserve().unwrap();
        let metrics = Port::reserve().unwrap();
        let torrc = folder.path().join("torrc");
        let text = format!(
            "TestingTorNetwork 1\nAssumeReachable 1\nPublishServerDescriptor 0\n\
             {line}\nDoSConnectionEnabled 0\nDoSCircuitCreationEnabled 0\n\
             ConnectionThreads 1\nShutdownWaitLength 0\nExitRelay 0\nExitPolicy reject *:*\n\
             Address 127.0.0.1\nORPort {} IPv4Only\nMetricsPort {}\n\
             MetricsPortPolicy accept 127.0.0.1\nContactInfo nobody\nNickname attached\n\
             DataDirectory {}\nLog err stderr\n\
             DirAuthority nobody orport=1 no-v2 v3ident={nobody} 127.0.0.1:1 {nobody}\n",
            port.address(),
            metrics.address(),
            folder.path().join("data").display(),
            nobody = "A".repeat(40),
        );
        fs::write(&torrc, text).unwrap();
        let child = weft()
            .args(["--defaults-torrc", "/dev/null", "-f"])
            .arg(&torrc)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let relay = Relay {
            child,
            folder,
            port,
            metrics,
        };
        // Written last of all keys.
        eventually("the relay has its keys", || {
            relay.data().join("fingerprint-ed25519").exists()
        });
        eventually("the relay listens", || {
            TcpStream::connect(relay.port.address()).is_ok()
        });
        relay
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The words that name it.
    pub(crate) fn words(&self) -> String {
        format!(
            "--address {} --data-directory {} --pid {}",
            self.port.address(),
            self.data().display(),
            self.pid()
        )
    }

    /// Waits until it has relayed so many cells that circuits are built and measuring has begun.
    ///
    /// Neither time nor CPU time show that: a relay also makes keys after it listens.
    pub(crate) fn is_measured(&self) {
        const CELLS: u64 = 10_000;
        // The generator samples every 50 ms, and a fast machine relays so many cells in less.
        const SAMPLES: Duration = Duration::from_secs(1);
        let relayed = || cells_relayed(self.metrics.address()).unwrap_or(0);
        eventually("the relay relays cells", || relayed() >= CELLS);
        let seen = relayed();
        thread::sleep(SAMPLES);
        eventually("the relay goes on", || relayed() >= seen + CELLS);
    }
}

/// The cells that a relay has relayed, by its MetricsPort.
pub(crate) fn cells_relayed(metrics: SocketAddr) -> Option<u64> {
    let mut stream = TcpStream::connect(metrics).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let name = "weft_thread_cells_total{";
    let mut lines = text.lines().filter(|line| line.starts_with(name));
    let line = lines.find(|line| line.contains("result=\"relayed\""))?;
    line.rsplit(' ').next()?.parse().ok()
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "it never came that {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

/// Everything of a complete run with cells fits together.
pub(crate) fn is_sound(report: &Report) {
    assert_eq!((report.schema, report.complete), (SCHEMA, true), "{report}");
    let measured = report.measured.as_ref().expect("it was measured");
    let cells = measured.cells.as_ref().expect("cells were driven");
    assert_eq!(cells.sent, cells.arrived, "none is lost, none doubled");
    let window = cells.upload + cells.download;
    assert!(window > 0 && window <= cells.sent, "{report}");
    assert_eq!(cells.payload_bytes, window * PAYLOAD_PER_CELL);
    let latency = measured.latency.as_ref().expect("cells were timed");
    assert!(latency.samples > 0 && latency.samples <= cells.sent);
    assert!(latency.min_us <= latency.p50_us && latency.p99_us <= latency.max_us);
    let usage = measured
        .usage
        .as_ref()
        .expect("the target is on this machine");
    assert!(usage.cpu_s_per_gb.is_some() && usage.peak_rss_bytes >= usage.rss_bytes / 2);
}
