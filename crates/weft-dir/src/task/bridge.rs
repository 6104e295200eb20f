//! How a bridge asks directories: so that neither an observer of its line nor an authority learns from its requests where it is.
//! Its descriptor goes to authorities of bridges alone, over circuits of three hops (C tor: `DIRIND_ANONYMOUS`). Everything else
//! it asks of the first relay of these circuits, as clients ask their guards; an authority is asked without a circuit while
//! nothing else is known.
//!
//! The path is chosen here, where the documents are; [`Circuits`](crate::circuits::Circuits) makes the circuit.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rand::seq::IndexedRandom as _;
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::doc::microdesc::MicrodescAndHash;
use tor_netdoc::types::relay_flags::RelayFlag;

use super::DirectoryTask;
use super::request::{Finished, Purpose};
use crate::authority::Authority;
use crate::circuits::{CircuitRequest, Hop};
use crate::command::{Event, Severity};
use crate::consensus::{Consensus, KnownRelay};
use crate::http::{self, HttpError, Limits, Request, Response};

/// Directories that fail in a row before an authority is asked without a circuit (as C tor's clients do).
const MOST_FAILURES: u8 = 3;
/// A circuit and an answer have this long, at least: three links and as many handshakes.
const CIRCUIT_TIMEOUT: Duration = Duration::from_secs(120);

/// The relays that a bridge asks over circuits.
#[derive(Debug, Default)]
pub(super) struct BridgePaths {
    /// The first relay of circuits, and the directory: the same as long as it is listed, as a guard is.
    guard: Option<RsaIdentity>,
    /// Directories that have failed in a row.
    failures: u8,
}

impl DirectoryTask {
    /// Makes a request over a circuit. What comes back is for the authority, without a circuit.
    pub(super) fn request_by_circuit(
        &mut self,
        authority: &Authority,
        purpose: Purpose,
        request: &Request,
    ) -> Result<(), Purpose> {
        let (path, nickname) = match purpose.is_of_authority() {
            true => (
                self.path_to(&authority.identity),
                authority.nickname.clone(),
            ),
            false => match self.directory() {
                Some(directory) => {
                    let name = hex::encode_upper(directory.rsa.as_bytes());
                    (Some(vec![directory]), format!("${name}"))
                }
                None => return Err(purpose),
            },
        };
        let text = format!("Asking {nickname} over a circuit.");
        (self.events)(Event::Message(Severity::Info, text));
        let limits = Limits::with_stall(self.options.max_stall);
        let asking = path.map(|path| {
            let socket = self.sockets.count(path.first().map(|hop| hop.addr.ip()));
            let asking = self.circuits.ask(CircuitRequest {
                path,
                route: self.options.route.clone(),
                request: request.encode(None, None),
                longest: limits.head.saturating_add(limits.body),
                timeout: self.options.max_stall.max(CIRCUIT_TIMEOUT),
            });
            (socket, asking)
        });
        let (sent, authority) = (self.clock.wall(), authority.identity);
        let mut stop = self.stop.subscribe();
        self.requests.spawn(async move {
            let failed = |source| HttpError::Io {
                action: "ask over a circuit",
                source,
            };
            let result = match asking {
                None => Err(failed(io::Error::other(
                    "none can be built with what is known of the network",
                ))),
                Some((_open, asking)) => tokio::select! {
                    answer = asking => answer.map_err(failed).and_then(|bytes| http::answer(bytes, limits)),
                    Ok(_) = stop.wait_for(|stop| *stop) => Err(HttpError::Unreachable),
                },
            };
            Finished {
                purpose,
                authority,
                nickname,
                by_circuit: true,
                sent,
                result,
            }
        });
        Ok(())
    }

    /// A directory that was asked over a circuit has answered, or not.
    pub(super) fn directory_answered(&mut self, result: &Result<Response, HttpError>) {
        let is_good = result.as_ref().is_ok_and(|answer| answer.status < 500);
        self.paths.failures = match is_good {
            true => 0,
            false => self.paths.failures.saturating_add(1),
        };
    }

    /// The directory to ask for what every directory has. `None`: nobody is known yet, or several have failed, or our own address is
    /// not known, which only an authority is believed about.
    fn directory(&mut self) -> Option<Hop> {
        let consensus = self.fetcher.consensus()?.clone();
        let own = self.descriptor.as_ref()?.rsa_id();
        match self.paths.failures {
            0 => {
                let (id, guard) = self.guard(&consensus, &[own])?;
                let is_directory = |relay: &KnownRelay| relay.has(RelayFlag::V2Dir);
                consensus
                    .relay(&id)
                    .filter(|relay| is_directory(relay))
                    .map(|_| guard)
            }
            MOST_FAILURES.. => {
                // The authority's turn; then directories again.
                self.paths.failures = 0;
                None
            }
            _ => self
                .pick(&consensus, &[RelayFlag::V2Dir], &[own])
                .map(|(_, hop)| hop),
        }
    }

    /// Two relays, and the authority.
    fn path_to(&mut self, authority: &RsaIdentity) -> Option<Vec<Hop>> {
        let consensus = self.fetcher.consensus()?.clone();
        let own = self.descriptor.as_ref()?.rsa_id();
        let last = self.hop(authority, consensus.relay(authority)?)?;
        let (first_id, first) = self.guard(&consensus, &[own, *authority])?;
        let (_, middle) = self.pick(&consensus, &[], &[own, *authority, first_id])?;
        Some(vec![first, middle, last])
    }

    /// The first relay of circuits: a guard that is a directory, where there is one.
    fn guard(&mut self, consensus: &Consensus, not: &[RsaIdentity]) -> Option<(RsaIdentity, Hop)> {
        let kept = self
            .paths
            .guard
            .filter(|id| !not.contains(id))
            .and_then(|id| {
                let relay = consensus
                    .relay(&id)
                    .filter(|relay| relay.has(RelayFlag::Fast))?;
                Some((id, self.hop(&id, relay)?))
            });
        let chosen = match kept {
            Some(kept) => kept,
            None => self
                .pick(consensus, &[RelayFlag::Guard, RelayFlag::V2Dir], not)
                .or_else(|| self.pick(consensus, &[RelayFlag::V2Dir], not))
                .or_else(|| self.pick(consensus, &[], not))?,
        };
        self.paths.guard = Some(chosen.0);
        Some(chosen)
    }

    /// A fast relay with these flags, which is none of those.
    fn pick(
        &mut self,
        consensus: &Consensus,
        flags: &[RelayFlag],
        not: &[RsaIdentity],
    ) -> Option<(RsaIdentity, Hop)> {
        let relays: Vec<(&RsaIdentity, &KnownRelay)> = consensus
            .relays()
            .filter(|(id, relay)| relay.has(RelayFlag::Fast) && !not.contains(id))
            .filter(|(_, relay)| flags.iter().all(|flag| relay.has(*flag)))
            .collect();
        for _ in 0..16 {
            let (id, relay) = relays.choose(&mut self.rng)?;
            if let Some(hop) = self.hop(id, relay) {
                return Some((**id, hop));
            }
        }
        None
    }

    /// A relay as the consensus and its microdescriptor have it.
    fn hop(&self, id: &RsaIdentity, relay: &KnownRelay) -> Option<Hop> {
        let addr = *relay.or_ports.iter().find(|port| port.is_ipv4())?;
        let text = self
            .documents
            .with_microdescs(|store| store.get(&relay.microdesc).cloned())?;
        Hop::of_microdesc(addr, *id, &text)
    }
}

impl Hop {
    /// What a microdescriptor has of a relay's keys.
    fn of_microdesc(addr: SocketAddr, rsa: RsaIdentity, text: &str) -> Option<Self> {
        let relay = MicrodescAndHash::parse(text).ok()?;
        Some(Hop {
            addr,
            rsa,
            ed25519: Some((*relay.ed25519_id()).into()),
            ntor: relay.ntor_key().to_bytes(),
        })
    }
}

/// Whether a descriptor goes to this authority, by whether it is a bridge's.
pub(super) fn takes(authority: &Authority, bridge: bool) -> bool {
    match bridge {
        true => authority.bridge,
        false => authority.v3_ident.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use base64ct::{Base64Unpadded, Encoding as _};

    use super::*;

    #[test]
    fn keys_are_those_of_the_microdescriptor() {
        let key = Base64Unpadded::encode_string(&[7; 32]);
        let id = Base64Unpadded::encode_string(&[8; 32]);
        let text = format!("onion-key\nntor-onion-key {key}\nid ed25519 {id}\n");
        let addr = "192.0.2.1:9001".parse().unwrap();
        let of = |text: &str| Hop::of_microdesc(addr, [1; 20].into(), text);
        let hop = of(&text).unwrap();
        assert_eq!((hop.ntor, hop.ed25519), ([7; 32], Some([8; 32])));
        let padded = format!("onion-key\nntor-onion-key {key}=\nid ed25519 {id}\n");
        assert_eq!(of(&padded).unwrap().ntor, [7; 32]);
        for bad in [
            "onion-key\n".to_owned(),
            format!("onion-key\nid ed25519 {id}\n"),
            format!("onion-key\nntor-onion-key {key}\n"),
            format!("onion-key\nntor-onion-key AAAA\nid ed25519 {id}\n"),
        ] {
            assert!(of(&bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_bridge_s_descriptor_goes_to_authorities_of_bridges_alone() {
        let authority = |bridge, v3: bool| crate::authority::Authority {
            nickname: "a".to_owned(),
            dir_addr: "192.0.2.1:80".parse().unwrap(),
            identity: [1; 20].into(),
            v3_ident: v3.then(|| [2; 20].into()),
            bridge,
        };
        let (v3, of_bridges) = (authority(false, true), authority(true, false));
        assert!(takes(&of_bridges, true) && !takes(&v3, true));
        assert!(takes(&v3, false) && !takes(&of_bridges, false));
    }
}
