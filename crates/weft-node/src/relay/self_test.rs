//! Whether our ORPort can be reached from outside: relays that connect prove it, or probes.

use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use weft_cell::identity::RsaIdentity;
use weft_config::Options;
use weft_core::handshake::PeerIdentity;
use weft_core::message::ToController;
use weft_dir::command::Command;

use super::Relay;
use super::address::Addresses;
use crate::notice;
use crate::reachability::{Candidate, Probe, ProbeError, Reachability};

/// How long a probe of our own ORPort may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);

/// The test of our ORPort.
#[derive(Debug)]
pub(super) struct SelfTest {
    pub(super) reachability: Reachability,
    /// Probes that run, by the address that they test.
    probes: Vec<(SocketAddr, JoinHandle<Result<(), ProbeError>>)>,
}

impl SelfTest {
    /// A test of these addresses that has not begun.
    pub(super) fn new(options: &Options, addresses: &Addresses) -> Self {
        SelfTest {
            reachability: Reachability::new(
                addresses.v4.map(SocketAddr::V4),
                addresses.v6.map(SocketAddr::V6),
                options.directory.assume_reachable,
                options.directory.assume_reachable_ipv6,
            ),
            probes: Vec::new(),
        }
    }
}

impl Relay {
    /// A relay that opened a connection to us proves that it can; its NETINFO has the address.
    pub(super) fn note_reachable(&mut self, message: &ToController) {
        if let ToController::LinkOpened {
            connection,
            peer: PeerIdentity::Relay { .. },
            my_addr: Some(my_addr),
            ..
        } = message
            && self.controller.was_accepted(*connection)
            && self.self_test.reachability.found_reachable(*my_addr)
        {
            self.found_reachable();
        }
    }

    /// Starts and collects probes of our own ORPort.
    pub(super) fn test_reachability(&mut self, now: Instant) {
        let (done, running): (Vec<_>, Vec<_>) = std::mem::take(&mut self.self_test.probes)
            .into_iter()
            .partition(|(_, probe)| probe.is_finished());
        self.self_test.probes = running;
        for (addr, probe) in done {
            match probe.join() {
                Ok(Ok(())) => {
                    if self.self_test.reachability.succeeded(addr) {
                        self.found_reachable();
                    }
                }
                Ok(Err(error)) => {
                    self.self_test.reachability.failed(addr, now);
                    if error.is_verdict() {
                        tracing::warn!("Testing whether our ORPort is reachable: {error}");
                    } else {
                        tracing::info!("Testing whether our ORPort is reachable: {error}");
                    }
                }
                Err(_) => self.self_test.reachability.failed(addr, now),
            }
        }
        let Some(consensus) = self
            .network
            .consensus
            .clone()
            .filter(|_| !self.options.network.disabled)
        else {
            return;
        };
        let Some(addr) = self
            .self_test
            .reachability
            .due(now)
            .filter(|_| self.self_test.probes.len() < 2)
        else {
            return;
        };
        let Some(own_ntor) = self
            .identity
            .keys
            .as_ref()
            .map(|keys| keys.ntor.current.public)
        else {
            return;
        };
        let own = self.threads.params.own_rsa;
        let candidates: Vec<Candidate> = consensus
            .relays()
            .filter_map(|(id, relay)| {
                let rsa = RsaIdentity::from(id);
                // Over a link that is open already a relay would prove nothing.
                if rsa == own || self.controller.has_link_to(&rsa) {
                    return None;
                }
                let via = relay
                    .or_ports
                    .iter()
                    .find(|port| port.is_ipv4() == addr.is_ipv4())?;
                Some(Candidate { addr: *via, rsa })
            })
            .collect();
        let Some(via) = self
            .self_test
            .reachability
            .choose(addr, &candidates, &mut self.rng)
        else {
            return;
        };
        let probe = Probe {
            via: via.addr,
            via_rsa: via.rsa,
            own_addr: addr,
            own_rsa: self.threads.params.own_rsa,
            own_ed25519: self
                .names_ed25519()
                .then_some(self.threads.params.own_ed25519),
            own_ntor,
            route: self.options.network.route(via.addr),
            timeout: PROBE_TIMEOUT,
        };
        let mut rng = {
            use rand::SeedableRng as _;
            StdRng::from_rng(&mut self.rng)
        };
        let started = std::thread::Builder::new()
            .name("reachability".into())
            .spawn(move || probe.run(&mut rng));
        if let Ok(handle) = started {
            self.self_test.reachability.started(addr, now);
            self.self_test.probes.push((addr, handle));
        }
    }

    /// Whether our EXTEND2s name ed25519 identities (`ExtendByEd25519ID`).
    fn names_ed25519(&self) -> bool {
        self.options
            .network
            .extend_by_ed25519_id
            .unwrap_or(self.network.params.extend_by_ed25519_id)
    }

    /// Our ORPort was reached from outside: the descriptor may be published.
    fn found_reachable(&mut self) {
        let (ipv4, ipv6) = self.self_test.reachability.is_reachable();
        if ipv4 {
            notice!("Self-testing indicates your ORPort is reachable from the outside. Excellent.");
        }
        self.directory(Command::Reachable { ipv4, ipv6 });
    }
}
