//! Test that our ORPort can be reached from outside: relays that connect prove it, or probes.

use std::net::{IpAddr, SocketAddr};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use weft_cell::identity::RsaIdentity;
use weft_config::Options;
use weft_core::handshake::PeerIdentity;
use weft_core::message::ToController;
use weft_core::routable::is_public;
use weft_dir::command::Command;
use weft_dir::consensus::Consensus;

use super::Relay;
use super::address::Addresses;
use crate::logging;
use crate::notice;
use crate::reachability::bandwidth_test::{BandwidthTest, CIRCUITS, cells_per_circuit, pace};
use crate::reachability::{Candidate, Probe, ProbeError, Reachability};

/// Time that a probe of our own ORPort may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for which a circuit that measures our bandwidth stays open after its last cell: enough for
/// a slow relay to pass on what waits there.
const LINGER: Duration = Duration::from_secs(10);

/// The test of our ORPort.
#[derive(Debug)]
pub(super) struct SelfTest {
    pub(super) reachability: Reachability,
    /// Probes that run, by the address that they test.
    probes: Vec<(SocketAddr, JoinHandle<Result<(), ProbeError>>)>,
    /// The measurement of our own bandwidth.
    bandwidth: BandwidthTest,
    /// Its circuits that run.
    circuits: Vec<(Candidate, JoinHandle<Result<u64, ProbeError>>)>,
    /// One of them has carried its cells.
    carried: bool,
    /// The bandwidth that was published last.
    pub(super) published: u64,
    /// Bytes that tests have sent, which no thread counts.
    pub(super) sent: u64,
}

impl SelfTest {
    /// A test of these addresses that has not begun.
    pub(super) fn new(options: &Options, addresses: &Addresses, now: Instant) -> Self {
        SelfTest {
            reachability: Reachability::new(
                addresses.v4.map(SocketAddr::V4),
                addresses.v6.map(SocketAddr::V6),
                options.directory.assume_reachable,
                options.directory.assume_reachable_ipv6,
            ),
            probes: Vec::new(),
            bandwidth: BandwidthTest::new(now),
            circuits: Vec::new(),
            carried: false,
            published: 0,
            sent: 0,
        }
    }

    /// The relay's addresses are these now.
    pub(super) fn set_addresses(&mut self, addresses: &Addresses, now: Instant) {
        let before = self.reachability.reachable_v4();
        let (v4, v6) = (addresses.v4.map(SocketAddr::V4), addresses.v6);
        self.reachability.set_addresses(v4, v6.map(SocketAddr::V6));
        if before.is_some() && before != v4 {
            self.bandwidth.address_changed(now);
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
            let addresses = &self.own.addresses;
            let addr = match my_addr.to_canonical() {
                IpAddr::V4(_) => addresses.v4.map(SocketAddr::V4),
                IpAddr::V6(_) => addresses.v6.map(SocketAddr::V6),
            };
            if let Some(addr) = addr {
                self.found_reachable(addr);
            }
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
                        self.found_reachable(addr);
                    }
                }
                Ok(Err(error)) => {
                    self.self_test.reachability.failed(addr, now);
                    if error.is_verdict() {
                        let event = format!("REACHABILITY_FAILED ORADDRESS={addr}");
                        self.report_server_status("WARN", &event);
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
            .filter(|_| !self.options.network.disabled && !self.accounting.is_hibernating())
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
        let mut candidates = self.candidates(&consensus, addr);
        // Over a link that is open already a relay would prove nothing.
        candidates.retain(|candidate| !self.controller.has_link_to(&candidate.rsa));
        let Some(via) = self
            .self_test
            .reachability
            .choose(addr, &candidates, &mut self.rng)
        else {
            return;
        };
        let Some(probe) = self.probe(via, addr) else {
            return;
        };
        let mut rng = StdRng::from_rng(&mut self.rng);
        let started = logging::spawn("reachability", move || probe.run(&mut rng));
        if let Ok(handle) = started {
            self.self_test.reachability.started(addr, now);
            let event = format!("CHECKING_REACHABILITY ORADDRESS={addr}");
            self.report_server_status("NOTICE", &event);
            self.self_test.probes.push((addr, handle));
        }
    }

    /// The relays that can be asked to extend to an address of ours.
    fn candidates(&self, consensus: &Consensus, addr: SocketAddr) -> Vec<Candidate> {
        let own = self.threads.params.own_rsa;
        let relays = consensus.relays().filter_map(|(id, relay)| {
            let rsa = RsaIdentity::from(id);
            let mut ports = relay.or_ports.iter();
            let via = ports.find(|port| port.is_ipv4() == addr.is_ipv4())?;
            (rsa != own).then_some(Candidate { addr: *via, rsa })
        });
        relays.collect()
    }

    /// A probe of our address through a relay.
    fn probe(&self, via: Candidate, own_addr: SocketAddr) -> Option<Probe> {
        Some(Probe {
            via: via.addr,
            via_rsa: via.rsa,
            own_addr,
            own_rsa: self.threads.params.own_rsa,
            own_ed25519: self
                .names_ed25519()
                .then_some(self.threads.params.own_ed25519),
            own_ntor: self.identity.keys.as_ref()?.ntor.current.public,
            route: self.options.network.route(via.addr),
            timeout: PROBE_TIMEOUT,
        })
    }

    /// Measures our own bandwidth, once others can reach us; collects the result of a measurement.
    pub(super) fn test_bandwidth(&mut self, now: Instant) {
        let test = &mut self.self_test;
        let (done, running): (Vec<_>, Vec<_>) = std::mem::take(&mut test.circuits)
            .into_iter()
            .partition(|(_, circuit)| circuit.is_finished());
        test.circuits = running;
        let any = !done.is_empty();
        for (via, circuit) in done {
            match circuit.join() {
                Ok(Ok(bytes)) => {
                    // As threads count, which do not see what a test sends.
                    if self.options.bandwidth.count_private || is_public(via.addr.ip()) {
                        test.sent += bytes;
                    }
                    test.carried = true;
                }
                Ok(Err(error)) => tracing::info!("Measuring our own bandwidth: {error}"),
                Err(_) => {}
            }
        }
        if any && test.circuits.is_empty() {
            if test.carried {
                notice!("Performing bandwidth self-test...done.");
            }
            test.bandwidth.ended(test.carried, now);
        }
        let rate = self.options.bandwidth.rate;
        let Some(addr) = test.reachability.reachable_v4() else {
            return;
        };
        if self.options.network.disabled || !test.bandwidth.due(test.published, rate, now) {
            return;
        }
        let Some(consensus) = self.network.consensus.clone() else {
            return;
        };
        let mut candidates = self.candidates(&consensus, addr);
        candidates.shuffle(&mut self.rng);
        let (cells, pace) = (cells_per_circuit(rate), pace(rate));
        for via in candidates.iter().cycle().take(CIRCUITS as usize) {
            let Some(probe) = self.probe(*via, addr) else {
                return;
            };
            let mut rng = StdRng::from_rng(&mut self.rng);
            let started = logging::spawn("bandwidth", move || {
                probe.send_drops(cells, (pace, LINGER), &mut rng)
            });
            let started = started.map(|circuit| (*via, circuit));
            self.self_test.circuits.extend(started);
        }
        if !self.self_test.circuits.is_empty() {
            self.self_test.carried = false;
            self.self_test.bandwidth.started();
        }
    }

    /// True if our EXTEND2s name ed25519 identities (`ExtendByEd25519ID`).
    fn names_ed25519(&self) -> bool {
        self.options
            .network
            .extend_by_ed25519_id
            .unwrap_or(self.network.params.extend_by_ed25519_id)
    }

    /// Our ORPort was reached from outside: the descriptor may be published.
    fn found_reachable(&mut self, addr: SocketAddr) {
        let event = format!("REACHABILITY_SUCCEEDED ORADDRESS={addr}");
        self.report_server_status("NOTICE", &event);
        let (ipv4, ipv6) = self.self_test.reachability.is_reachable();
        if ipv4 {
            notice!("Self-testing indicates your ORPort is reachable from the outside. Excellent.");
        }
        self.directory(Command::Reachable { ipv4, ipv6 });
    }
}
