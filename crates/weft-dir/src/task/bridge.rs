//! A bridge's directory requests, made so that neither an observer of its network nor an authority
//! learns from them where it is. Its descriptor goes to authorities of bridges alone, over circuits
//! of three hops (C tor: `DIRIND_ANONYMOUS`). It asks the first relay of these circuits for
//! everything else, as clients ask their guards. It asks an authority without a circuit while the
//! network, or its own address, is unknown.
//!
//! The path is chosen here, where the documents are; [`Circuits`](crate::circuits::Circuits) makes the circuit.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rand::seq::IndexedRandom as _;
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::doc::microdesc::MicrodescAndHash;
use tor_netdoc::types::relay_flags::RelayFlag;

use super::DirectoryTask;
use super::bridge_paths::MOST_GUARDS;
use super::request::{Asked, Finished, Purpose};
use crate::authority::Authority;
use crate::circuits::{CircuitRequest, Hop};
use crate::command::{Event, Severity};
use crate::consensus::{Consensus, KnownRelay};
use crate::http::{self, HttpError, Limits, Request};

/// The time for a circuit, a request and an answer.
const TIMEOUT: Duration = Duration::from_secs(120);
/// After this time from the start an own address that is not known is asked of an authority.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(60);
/// Limits on the cost of an answer. Honest answers are far smaller.
fn limits(purpose: &Purpose, stall: Duration) -> Limits {
    let all = Limits::with_stall(stall);
    let each = |count: usize, length: usize| count.saturating_add(1).saturating_mul(length);
    let body = match purpose {
        Purpose::Upload(_) => 8 << 10,
        Purpose::Held(_) => 64 << 10,
        Purpose::Microdescs(batch) => each(batch.len(), 16 << 10),
        Purpose::Descriptors(_, batch) => each(batch.len(), 64 << 10),
        Purpose::Fetch | Purpose::FetchNs => 8 << 20,
    };
    Limits {
        body: body.min(all.body),
        decompressed: body.saturating_mul(2).min(all.decompressed),
        ..all
    }
}

impl DirectoryTask {
    /// Makes a request over a circuit. Returns the request if it must be made to the authority,
    /// without a circuit.
    pub(super) fn request_by_circuit(
        &mut self,
        authority: &Authority,
        purpose: Purpose,
        request: &Request,
    ) -> Result<(), Purpose> {
        let is_upload = purpose.is_of_authority();
        let (path, nickname) = match is_upload {
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
        let limits = limits(&purpose, self.options.max_stall);
        let circuit = path
            .as_ref()
            .and_then(|path| path.first())
            .map(|hop| Asked {
                guard: hop.rsa,
                failures: self.paths.failures,
            });
        let asking = path.map(|path| {
            self.circuits.ask(CircuitRequest {
                path,
                route: self.options.route.clone(),
                request: request.encode(None, None),
                longest: limits.head.saturating_add(limits.body),
                timeout: TIMEOUT,
                is_upload,
                sockets: self.sockets.clone(),
            })
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
                Some(asking) => tokio::select! {
                    answer = asking => answer.map_err(failed).and_then(|bytes| http::answer(bytes, limits)),
                    Ok(_) = stop.wait_for(|stop| *stop) => Err(HttpError::Unreachable),
                },
            };
            Finished {
                purpose,
                authority,
                nickname,
                circuit,
                sent,
                result,
            }
        });
        Ok(())
    }

    /// The network as far as circuits may be built with it: the consensus is not past, and most of its relays are known. With few
    /// of them the one that has sent these would choose the paths.
    fn usable_network(&self) -> Option<Arc<Consensus>> {
        let consensus = self.fetcher.consensus()?.clone();
        let (mut known, mut all) = (0, 0);
        self.documents.with_microdescs(|store| {
            for (_, relay) in consensus.relays() {
                all += 1;
                known += usize::from(store.get(&relay.microdesc).is_some());
            }
        });
        // C tor wants as large a part of all paths of a client (`get_frac_paths_needed_for_circs`).
        let is_enough = known * 10 >= all * 6;
        (is_enough && consensus.is_reasonably_live(self.clock.wall())).then_some(consensus)
    }

    /// The directory to ask for what every directory has. `None`: the network is not known yet, or our own address is not, and
    /// only an authority is believed about that.
    fn directory(&mut self) -> Option<Hop> {
        let since = self.clock.monotonic().saturating_sub(self.started);
        if self.descriptor.is_none() && since >= ADDRESS_PATIENCE {
            return None;
        }
        let consensus = self.usable_network()?;
        self.guard(&consensus, &[]).map(|(_, hop)| hop)
    }

    /// Two relays, and the authority.
    fn path_to(&mut self, authority: &RsaIdentity) -> Option<Vec<Hop>> {
        let consensus = self.usable_network()?;
        let last = self.hop(authority, consensus.relay(authority)?)?;
        let (first_id, first) = self.guard(&consensus, &[*authority])?;
        // Networks on one machine have one subnet.
        let apart = (!self.options.testing).then(|| subnet(first.addr));
        let (_, middle) = self.pick(&consensus, &[], &[*authority, first_id], apart)?;
        Some(vec![first, middle, last])
    }

    /// The guard whose turn it is.
    fn guard(&mut self, consensus: &Consensus, not: &[RsaIdentity]) -> Option<(RsaIdentity, Hop)> {
        let before = self.paths.guards.clone();
        let is_listed = |id: &RsaIdentity| {
            let relay = consensus.relay(id);
            relay.is_some_and(|relay| {
                relay.has(RelayFlag::Fast)
                    && relay.has(RelayFlag::V2Dir)
                    && !relay.has(RelayFlag::MiddleOnly)
            })
        };
        self.paths.guards.retain(is_listed);
        while self.paths.guards.len() < MOST_GUARDS {
            let taken = [not, &self.paths.guards].concat();
            let found = self
                .pick(
                    consensus,
                    &[RelayFlag::Guard, RelayFlag::V2Dir],
                    &taken,
                    None,
                )
                .or_else(|| self.pick(consensus, &[RelayFlag::V2Dir], &taken, None));
            match found {
                Some((id, _)) => self.paths.guards.push(id),
                None => break,
            }
        }
        if self.paths.guards.first() != before.first() {
            self.paths.failures = 0;
        }
        if self.paths.guards != before {
            self.send_state();
        }
        let mut usable = self.paths.guards.iter().filter(|id| !not.contains(id));
        usable.find_map(|id| Some((*id, self.hop(id, consensus.relay(id)?)?)))
    }

    /// A fast relay with these flags, by its weight, which is none of those and not in that subnet.
    fn pick(
        &mut self,
        consensus: &Consensus,
        flags: &[RelayFlag],
        not: &[RsaIdentity],
        apart: Option<[u8; 2]>,
    ) -> Option<(RsaIdentity, Hop)> {
        let relays: Vec<(&RsaIdentity, &KnownRelay)> = consensus
            .relays()
            .filter(|(id, relay)| relay.has(RelayFlag::Fast) && !not.contains(id))
            .filter(|(_, relay)| flags.iter().all(|flag| relay.has(*flag)))
            // First and last hops are chosen by a flag; MiddleOnly keeps relays from being either.
            .filter(|(_, relay)| flags.is_empty() || !relay.has(RelayFlag::MiddleOnly))
            .collect();
        for _ in 0..16 {
            let weight = |(_, relay): &(&RsaIdentity, &KnownRelay)| u64::from(relay.weight.max(1));
            let (id, relay) = relays.choose_weighted(&mut self.rng, weight).ok()?;
            if let Some(hop) = self.hop(id, relay)
                && apart.is_none_or(|apart| apart != subnet(hop.addr))
            {
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
    /// A hop with the keys of a relay's microdescriptor.
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

/// The network of 16 bits of a hop, whose address is IPv4.
fn subnet(addr: SocketAddr) -> [u8; 2] {
    match addr {
        SocketAddr::V4(addr) => {
            let [first, second, ..] = addr.ip().octets();
            [first, second]
        }
        SocketAddr::V6(_) => [0; 2],
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
    fn an_answer_may_be_as_large_as_what_was_asked_for() {
        let of = |purpose| limits(&purpose, Duration::from_secs(300)).body;
        assert_eq!(of(Purpose::Upload(1)), 8 << 10);
        assert_eq!(of(Purpose::Microdescs(vec![[1; 32]; 92])), 93 << 14);
        assert!(of(Purpose::Fetch) <= 8 << 20);
    }
}
