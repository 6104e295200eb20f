//! A host of a testbed, and how programs run in it.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::Result;

use super::namespace::Namespace;

/// A host of a testbed.
#[derive(Clone, Debug)]
pub struct Host {
    pub(super) name: String,
    pub(super) address: Ipv4Addr,
    pub(super) namespace: Namespace,
}

impl Host {
    /// Its name in the topology.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address in the testbed.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Its network namespace, as `ip netns` lists it.
    #[must_use]
    pub fn namespace_name(&self) -> &str {
        &self.namespace.name
    }

    pub(super) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// A command that runs this program in the host. The process is the program's own: `ip` replaces itself by
    /// it.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.namespace.name])
            .arg(program);
        command
    }

    /// Runs this on its own thread in the host. Sockets that it opens stay there.
    ///
    /// # Errors
    ///
    /// The host is gone.
    pub fn enter<T: Send>(&self, run: impl FnOnce() -> T + Send) -> Result<T> {
        self.namespace.enter(run)
    }
}
