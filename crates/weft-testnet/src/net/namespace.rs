//! A network namespace, by name: one that `ip netns` lists.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail};
use nix::sched::{CloneFlags, setns};

use super::{tcp, tun};

/// Where `ip netns` has its namespaces.
const FOLDER: &str = "/run/netns";
/// The device of every host.
pub(super) const DEVICE: &str = "weft0";
/// Packets that a device holds for the emulator: it should be the links that drop, not the device.
const DEVICE_QUEUE: u32 = 5_000;

/// A namespace of this name, which may not be there.
#[derive(Clone, Debug)]
pub(super) struct Namespace {
    pub(super) name: String,
}

impl Namespace {
    fn path(&self) -> PathBuf {
        PathBuf::from(FOLDER).join(&self.name)
    }

    /// True if the namespace exists.
    pub(super) fn is_there(&self) -> bool {
        self.path().exists()
    }

    /// Makes all of these.
    pub(super) fn create(all: &[Namespace]) -> Result<()> {
        let lines: String = all
            .iter()
            .map(|space| format!("netns add {}\n", space.name))
            .collect();
        ip_batch(&lines).context("cannot make network namespaces")
    }

    /// Ends what runs in it and removes it, if it is there.
    pub(super) fn remove(&self) -> Result<()> {
        if !self.is_there() {
            return Ok(());
        }
        for process in self.processes()? {
            // It may have ended by itself.
            let _ = nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL);
        }
        ip_batch(&format!("netns del {}\n", self.name))
            .with_context(|| format!("cannot remove the network namespace {}", self.name))
    }

    fn processes(&self) -> Result<Vec<nix::unistd::Pid>> {
        let output = Command::new("ip")
            .args(["netns", "pids", &self.name])
            .output()
            .context("cannot run `ip`")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let numbers = text.lines().filter_map(|line| line.trim().parse().ok());
        Ok(numbers.map(nix::unistd::Pid::from_raw).collect())
    }

    /// Makes its device, with this address and a route to everything; its TCP has this congestion control.
    pub(super) fn set_up(&self, address: Ipv4Addr, tcp: Option<&str>) -> Result<File> {
        let file = self.enter(|| -> Result<File> {
            // No packets but those of its programs: no router is asked for, no address is checked.
            let ipv6 = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
            if PathBuf::from(ipv6).exists() {
                fs::write(ipv6, "1").with_context(|| format!("cannot write {ipv6}"))?;
            }
            if let Some(tcp) = tcp {
                tcp::choose(tcp)?;
            }
            let file = tun::create(DEVICE)?;
            ip_batch(&format!(
                "link set lo up\n\
                 addr add {address}/32 dev {DEVICE}\n\
                 link set {DEVICE} mtu {mtu} txqueuelen {DEVICE_QUEUE} up\n\
                 route add default dev {DEVICE} src {address}\n",
                mtu = weft_model::links::MAX_PACKET,
            ))?;
            Ok(file)
        })?;
        file.with_context(|| format!("cannot set up the host {}", self.name))
    }

    /// Runs this on its own thread in the namespace. Sockets that it opens stay there.
    pub(super) fn enter<T: Send>(&self, run: impl FnOnce() -> T + Send) -> Result<T> {
        thread::scope(|scope| {
            let thread = scope.spawn(|| -> Result<T> {
                self.join_for_good()?;
                Ok(run())
            });
            let result = thread.join();
            result.map_err(|_| anyhow!("a thread in {} panicked", self.name))?
        })
    }

    /// Moves the calling thread into the namespace.
    pub(super) fn join_for_good(&self) -> Result<()> {
        let path = self.path();
        let file = File::open(&path)
            .with_context(|| format!("there is no network namespace {}", path.display()))?;
        setns(file, CloneFlags::CLONE_NEWNET)
            .with_context(|| format!("cannot enter the network namespace {}", self.name))
    }
}

/// Runs `ip` with these lines, in the network namespace of the calling thread.
fn ip_batch(lines: &str) -> Result<()> {
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run `ip`: install Debian's package `iproute2`")?;
    let mut pipe = ip.stdin.take().context("no pipe to `ip`")?;
    // When it ends early, its own message is the better one.
    let written = pipe.write_all(lines.as_bytes());
    drop(pipe);
    let output = ip.wait_with_output().context("cannot wait for `ip`")?;
    if !output.status.success() {
        bail!(
            "`ip` failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    written.context("cannot write to `ip`")
}
