//! The nodes of a network, by what they do in it.

use std::net::SocketAddr;

use anyhow::Result;

use super::node::Node;
use crate::control::{Control, Fingerprint};
use crate::ports::Port;

/// A relay of the network.
#[derive(Debug)]
pub struct Relay {
    pub(super) node: Node,
    pub(super) or: Port,
    pub(super) fingerprint: Fingerprint,
    /// True if its exit policy allows streams.
    pub(super) exit: bool,
}

impl Relay {
    /// Its process.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Its RSA identity.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// Where it accepts links.
    pub fn or_port(&self) -> SocketAddr {
        self.or.address()
    }
}

/// A C tor client of the network.
#[derive(Debug)]
pub struct Client {
    pub(super) node: Node,
    pub(super) socks: Port,
}

impl Client {
    /// Its process.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Its SOCKS port.
    pub fn socks(&self) -> SocketAddr {
        self.socks.address()
    }

    /// A new connection to its control socket.
    pub fn control(&self) -> Result<Control> {
        Control::connect(&self.node.control_socket())
    }
}

/// A client that finds its own way, as a user's does: its circuits are not the lab's to choose, and
/// it may be of any program.
#[derive(Debug)]
pub struct Proxy {
    pub(super) node: Node,
    pub(super) socks: Port,
}

impl Proxy {
    /// Its process.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Its SOCKS port.
    pub fn socks(&self) -> SocketAddr {
        self.socks.address()
    }
}
