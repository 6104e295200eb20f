//! Nodes that run, and what can be asked of them.

use std::fs;
use std::iter::Sum;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::control::{Control, Fingerprint};
use crate::net::Host;
use crate::network::{Node, Program};

/// Resources that nodes have used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Processor time since they started.
    pub cpu: Duration,
    /// Resident memory, bytes.
    pub rss: u64,
    /// Sockets that are open now.
    pub sockets: u64,
}

impl Sum for Load {
    fn sum<I: Iterator<Item = Load>>(all: I) -> Load {
        all.fold(Load::default(), |sum, one| Load {
            cpu: sum.cpu + one.cpu,
            rss: sum.rss + one.rss,
            sockets: sum.sockets + one.sockets,
        })
    }
}

/// A relay, an exit or the authority.
#[derive(Debug)]
pub struct Relay {
    pub(super) node: Node,
    pub(super) program: Program,
    pub(super) or: SocketAddr,
    pub(super) is_exit: bool,
}

impl Relay {
    /// Its process.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Its program.
    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// Its ORPort.
    pub(crate) fn or(&self) -> SocketAddr {
        self.or
    }

    /// Its identity.
    pub(crate) fn fingerprint(&self) -> Result<Fingerprint> {
        let path = self.node.folder().join("data/fingerprint");
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let (_, digits) = text.split_once(' ').context("no fingerprint")?;
        Fingerprint::parse(digits)
    }

    /// Resources that it has used.
    pub(crate) fn load(&self) -> Result<Load> {
        let usage = self.node.usage()?;
        let pid = self.node.pid().context("it has ended")?;
        Ok(Load {
            cpu: usage.cpu,
            rss: usage.rss,
            sockets: sockets(pid)?,
        })
    }
}

/// A client that finds its own way.
#[derive(Debug)]
pub struct Client {
    pub(super) node: Node,
    /// Where it is, if not on this machine's own addresses.
    pub(super) host: Option<Host>,
    pub(super) socks: SocketAddr,
    pub(super) control: SocketAddr,
    pub(super) is_weft: bool,
}

impl Client {
    /// Its process.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Its SOCKS port, on its host.
    pub fn socks(&self) -> SocketAddr {
        self.socks
    }

    /// Its control port, on its host.
    pub fn control(&self) -> SocketAddr {
        self.control
    }

    /// True if Weft runs it.
    pub fn is_weft(&self) -> bool {
        self.is_weft
    }

    /// A new connection to its control port.
    pub fn controller(&self) -> Result<Control> {
        let cookie = self.node.folder().join("data/control_auth_cookie");
        let connect = || Control::connect_port(self.control, &cookie);
        match &self.host {
            Some(host) => host.enter(connect)?,
            None => connect(),
        }
    }

    /// True if a circuit of three hops is built.
    pub fn has_circuit(&self) -> bool {
        let circuits = self
            .controller()
            .and_then(|mut control| control.info("circuit-status"));
        circuits.is_ok_and(|circuits| circuits.lines().any(is_usable))
    }

    /// True if it has the documents that circuits need.
    pub fn knows_network(&self) -> bool {
        let enough = self
            .controller()
            .and_then(|mut control| control.info("status/enough-dir-info"));
        enough.is_ok_and(|enough| enough == "1")
    }

    /// Closes all its circuits.
    pub fn close_circuits(&self) -> Result<()> {
        close_circuits(&mut self.controller()?)
    }

    /// Build times of `count` circuits through these relays, built one after another.
    pub(crate) fn build_times(&self, path: &[Fingerprint], count: usize) -> Result<Vec<Duration>> {
        let mut control = self.controller()?;
        let mut built = Vec::new();
        let mut times = Vec::new();
        for _ in 0..count {
            let begun = Instant::now();
            built.extend(control.build_circuits(&[path.to_vec()])?);
            times.push(begun.elapsed());
        }
        control.close_circuits(&built);
        Ok(times)
    }
}

/// Closes all circuits of the client behind this connection.
pub fn close_circuits(control: &mut Control) -> Result<()> {
    let circuits = control.info("circuit-status")?;
    let ids = circuits.lines().filter_map(|line| line.split(' ').next());
    let ids: Vec<u32> = ids.filter_map(|id| id.parse().ok()).collect();
    control.close_circuits(&ids);
    Ok(())
}

/// True if a line of `circuit-status` describes a circuit that streams can use.
fn is_usable(line: &str) -> bool {
    let mut words = line.split(' ');
    let (state, path) = (words.nth(1), words.next());
    // A leg of a conflux set carries streams once the set is linked.
    let unlinked = words.any(|word| word == "PURPOSE=CONFLUX_UNLINKED");
    state == Some("BUILT") && path.is_some_and(|path| path.split(',').count() == 3) && !unlinked
}

/// Open sockets of a process.
fn sockets(pid: u32) -> Result<u64> {
    let folder = format!("/proc/{pid}/fd");
    let files = fs::read_dir(&folder).with_context(|| format!("listing {folder}"))?;
    let is_socket = |file: &std::io::Result<fs::DirEntry>| {
        // It may have been closed since.
        let target = file
            .as_ref()
            .ok()
            .and_then(|file| fs::read_link(file.path()).ok());
        target.is_some_and(|target| target.to_string_lossy().starts_with("socket:"))
    };
    Ok(files.filter(is_socket).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usable_circuit_is_built_and_has_three_hops() {
        let path = |hops: usize| vec!["$AA~a"; hops].join(",");
        assert!(is_usable(&format!(
            "3 BUILT {} BUILD_FLAGS=NEED_CAPACITY",
            path(3)
        )));
        assert!(!is_usable(&format!("3 EXTENDED {}", path(3))));
        for (purpose, usable) in [("CONFLUX_UNLINKED", false), ("CONFLUX_LINKED", true)] {
            let line = format!("3 BUILT {} PURPOSE={purpose} CONFLUX_ID=AB", path(3));
            assert_eq!(is_usable(&line), usable);
        }
        assert!(!is_usable(&format!(
            "3 BUILT {} BUILD_FLAGS=ONEHOP_TUNNEL",
            path(1)
        )));
        assert!(!is_usable(
            "3 LAUNCHED BUILD_FLAGS=IS_INTERNAL PURPOSE=GENERAL"
        ));
    }
}
