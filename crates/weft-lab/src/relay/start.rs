//! Starting a program to be measured: alone on loopback, in a folder of its own, for as long as the
//! measurement takes.
//!
//! No network is needed. A relay answers CREATE2 and EXTEND2 without ever having seen a consensus,
//! as everything that it must know is in them; the only directory authority that it knows is a
//! port on loopback where nobody listens.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;
use weft_testnet::guardian::Guardian;
use weft_testnet::ports::Port;

use super::aim::{Aim, Known, Peer};
use super::arti;
use super::program::Program;

/// Longest time for a target to end after SIGTERM.
const FAREWELL: Duration = Duration::from_secs(10);

/// A target that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
    /// The peer at its address.
    pub(super) peer: Peer,
    _guardian: Guardian,
    _folder: TempDir,
    _port: Port,
}

impl Running {
    /// Starts the program and waits until it listens. A pipe connects on to `next_hop`; the torrc of a
    /// relay has these lines besides those that every target has. `files` is the limit of file
    /// descriptors, where it is not ours. `prepare` may put files into its DataDirectory before.
    pub(crate) fn start(
        program: &Program,
        next_hop: Option<SocketAddr>,
        patience: Duration,
        torrc: &str,
        files: Option<u32>,
        prepare: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Running> {
        let path = program.path()?;
        let port = Port::reserve()?;
        let address = port.address();
        let folder = tempfile::Builder::new()
            .prefix("weft-bench-")
            .tempdir()
            .context("making a folder for the target")?;
        let data = folder.path().join("data");
        DirBuilder::new()
            .mode(0o700)
            .create(&data)
            .with_context(|| format!("creating {}", data.display()))?;
        prepare(&data)?;
        let words: Vec<OsString> = match (program, next_hop) {
            (Program::Pipe(_), Some(next_hop)) => [
                "pipe",
                "--listen",
                &address.to_string(),
                "--connect",
                &next_hop.to_string(),
            ]
            .map(OsString::from)
            .into(),
            (Program::Pipe(_), None) => bail!("a pipe needs somewhere to connect to"),
            (Program::Tor(_) | Program::Weft(..), _) => {
                let file = folder.path().join("torrc");
                fs::write(&file, relay_torrc(program, &data, address) + torrc)
                    .with_context(|| format!("writing {}", file.display()))?;
                vec![
                    "--defaults-torrc".into(),
                    "/dev/null".into(),
                    "-f".into(),
                    file.into(),
                ]
            }
            (Program::Arti(_), _) => {
                let config = folder.path().join("arti-relay.toml");
                fs::write(&config, arti::config(address))
                    .with_context(|| format!("writing {}", config.display()))?;
                vec![
                    // The folder above ours may be anybody's; ours is not.
                    "--disable-fs-permission-checks".into(),
                    "--config".into(),
                    config.into(),
                    "run".into(),
                ]
            }
        };
        let log = folder.path().join("log");
        let file = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        // The guardian removes the folder if we cannot.
        let mut guardian = Guardian::start(Some(folder.path()))?;
        let mut command = match files {
            None => Command::new(&path),
            Some(files) => {
                let mut shell = Command::new("sh");
                let limited = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
                shell.arg("-c").arg(limited).arg(&path);
                shell
            }
        };
        let child = command
            .args(words)
            .stdin(Stdio::null())
            .stdout(file.try_clone().context("duplicating a log file")?)
            .stderr(file)
            .current_dir(folder.path())
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}", path.display()))?;
        let watched = guardian.watch(child.id());
        let mut running = Running {
            child,
            log,
            peer: Peer::Pipe(address),
            _guardian: guardian,
            _folder: folder,
            _port: port,
        };
        watched?;
        running.wait(address, patience)?;
        if !matches!(program, Program::Pipe(_)) {
            let known = Known {
                address: Some(address),
                ..Known::default()
            };
            let keys = running.wait_for_keys(&data, patience)?;
            running.peer = Peer::Relay(known.or(keys).aim()?);
        }
        Ok(running)
    }

    /// A relay listens before it has made its keys.
    fn wait_for_keys(&mut self, data: &Path, patience: Duration) -> Result<Known> {
        let deadline = Instant::now() + patience;
        loop {
            match Known::from_data_directory(data) {
                Err(_) if Instant::now() < deadline => {
                    self.check()?;
                    thread::sleep(Duration::from_millis(10));
                }
                known => return known,
            }
        }
    }

    fn wait(&mut self, address: SocketAddr, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while TcpStream::connect(address).is_err() {
            self.check()?;
            if Instant::now() >= deadline {
                bail!(
                    "the target did not listen on {address} within {patience:?}; the end of its log:\n{}",
                    self.log_tail()
                );
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Where it is and what it proves itself with; `None` for a pipe.
    pub(crate) fn aim(&self) -> Option<Aim> {
        match self.peer {
            Peer::Relay(aim) => Some(aim),
            Peer::Pipe(_) => None,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// An error, with the end of its log, if it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self
            .child
            .try_wait()
            .context("asking for the target's end")?
        {
            None => Ok(()),
            Some(status) => bail!(
                "the target has ended ({status}); the end of its log:\n{}",
                self.log_tail()
            ),
        }
    }

    /// All that it has logged.
    pub(crate) fn log(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Size of its log, in bytes.
    pub(crate) fn log_bytes(&self) -> u64 {
        fs::metadata(&self.log).map_or(0, |log| log.len())
    }

    fn log_tail(&self) -> String {
        let text = self.log();
        let lines: Vec<&str> = text.lines().collect();
        lines
            .get(lines.len().saturating_sub(10)..)
            .unwrap_or_default()
            .join("\n")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Ok(group) = i32::try_from(self.child.id()).map(Pid::from_raw) else {
            return;
        };
        let _ = killpg(group, Signal::SIGTERM);
        let deadline = Instant::now() + FAREWELL;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                let _ = killpg(group, Signal::SIGKILL);
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Torrc of a target that only relays cells.
pub(crate) const MIDDLE: &str = "ExitRelay 0\nExitPolicy reject *:*\nSocksPort 0\n";

/// A lone relay that extends to loopback, and that no limit meant for strangers slows down.
fn relay_torrc(program: &Program, data: &Path, address: SocketAddr) -> String {
    let more = match program {
        Program::Weft(_, Some(threads)) => format!("ConnectionThreads {threads}\n"),
        _ => String::new(),
    };
    format!(
        "TestingTorNetwork 1\n\
         DirAuthority nobody orport=1 no-v2 v3ident={nobody} 127.0.0.1:1 {nobody}\n\
         AddressDisableIPv6 1\n\
         AssumeReachable 1\n\
         PublishServerDescriptor 0\n\
         ExtendAllowPrivateAddresses 1\n\
         DoSConnectionEnabled 0\n\
         DoSCircuitCreationEnabled 0\n\
         ServerDNSDetectHijacking 0\n\
         ServerDNSAllowBrokenConfig 1\n\
         ShutdownWaitLength 0\n\
         BandwidthRate 2047 MBytes\n\
         BandwidthBurst 2047 MBytes\n\
         Nickname target\n\
         ContactInfo measured on loopback\n\
         Address {ip}\n\
         ORPort {address} IPv4Only\n\
         DataDirectory {data}\n\
         Log notice stdout\n\
         {more}",
        nobody = "A".repeat(40),
        ip = address.ip(),
        data = data.display(),
    )
}
