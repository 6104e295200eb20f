//! Path of users' streams.

use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use weft_model::links::Topology;
use weft_testnet::net;
use weft_testnet::network::Program;
use weft_testnet::up::Kind;

/// Longest time for a SOCKS port to accept a connection.
const ACCEPT: Duration = Duration::from_secs(3);

/// Path of streams.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// A private network on loopback.
    Loopback {
        kind: Kind,
        relays: usize,
        exits: usize,
        clients: usize,
    },
    /// A private network on a testbed with these links.
    Testbed { kind: Kind, topology: Box<Topology> },
    /// A SOCKS port that is there.
    Socks(SocketAddr),
    /// Nothing.
    Direct,
}

fn program(kind: Kind) -> &'static str {
    match kind {
        Kind::Weft => "Weft",
        Kind::Tor => "C tor",
        Kind::Mixed => "Weft and C tor by turns",
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Loopback {
                kind,
                relays,
                exits,
                clients,
            } => write!(
                f,
                "a private network of {} on loopback (relays: {relays}, exits: {exits}, clients: {clients})",
                program(*kind)
            ),
            Way::Testbed { kind, topology } => write!(
                f,
                "a private network of {} on the testbed {}",
                program(*kind),
                topology.name()
            ),
            Way::Socks(address) => write!(f, "the SOCKS port {address}"),
            Way::Direct => f.write_str("TCP without Tor"),
        }
    }
}

impl Way {
    /// An error if what it needs is not there.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Way::Loopback { kind, .. } => needs_tor(*kind),
            Way::Testbed { kind, .. } => {
                ensure!(
                    *kind != Kind::Mixed,
                    "--kind mixed is for networks on loopback: on a testbed one program runs all nodes, weft or tor"
                );
                if let Some(missing) = net::missing() {
                    anyhow::bail!("{missing}");
                }
                needs_tor(*kind)
            }
            Way::Socks(address) => {
                ensure!(
                    address.ip().is_loopback(),
                    "--socks {address} is not on this machine: name a port of 127.0.0.0/8 or ::1, as `weft lab up` prints it"
                );
                TcpStream::connect_timeout(address, ACCEPT).with_context(|| {
                    format!(
                        "nobody listens at --socks {address}: start a private network with `weft lab up`, which prints \
                         its SOCKS ports, or leave --socks out"
                    )
                })?;
                Ok(())
            }
            Way::Direct => Ok(()),
        }
    }

    /// Approximate duration of its start, for the estimate of the remaining time.
    pub(super) fn start_takes(&self) -> Duration {
        match self {
            Way::Loopback { .. } | Way::Testbed { .. } => Duration::from_secs(12),
            Way::Socks(_) | Way::Direct => Duration::ZERO,
        }
    }
}

fn needs_tor(kind: Kind) -> Result<()> {
    match kind {
        Kind::Weft => Ok(()),
        Kind::Tor | Kind::Mixed => Program::tor_of_its_own().map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ports_of_this_machine_are_asked() {
        let far = Way::Socks(SocketAddr::from(([192, 0, 2, 1], 9050)));
        let error = far.check().expect_err("refused").to_string();
        assert!(error.contains("is not on this machine"), "{error}");
    }
}
