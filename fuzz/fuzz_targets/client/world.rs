//! The client machine in a network that does what the client commands: relays with keys, circuits and
//! streams as their far ends see them. Checks the rules that the client keeps whatever happens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use weft_cell::circ_msg::{CreateRequest, Extend2};
use weft_cell::identity::RsaIdentity;
use weft_cell::reason::{DestroyReason, EndReason};
use weft_client::{Client, ClientConfig, Now, Output};
use weft_core::address::ConnectionId;
use weft_core::origin::{EndedBy, OriginCommand, OriginEvent, OriginId, StreamOpening};
use weft_crypto::handshake::OnionKeys;
use weft_path::Hop;

use crate::paths::Paths;

/// Relays: guards and middle relays, then exits.
pub(crate) const RELAYS: u8 = 8;
const FIRST_EXIT: u8 = 4;

/// A circuit as the network sees it.
#[derive(Debug, Default)]
pub(crate) struct Far {
    /// Hops whose keys the client has.
    pub(crate) hops: usize,
    /// The relay that was asked last, and what.
    pub(crate) asked: Option<(RsaIdentity, CreateRequest)>,
    /// When its last hop was asked for a refusal.
    pub(crate) probed: Option<Instant>,
    /// The tunnel that its last hop was asked to link it to.
    pub(crate) link: Option<OriginId>,
    /// When it was asked, and had not answered.
    pub(crate) link_asked: Option<Instant>,
    /// The first user whose streams were put on it, unless a controller mixed them.
    pub(crate) user: Option<u8>,
}

/// Where a stream is, as the network and its application see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Waits,
    Asked(OriginId),
    Open(OriginId),
}

/// A stream that is not over.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) place: Place,
    /// Whose it is; `None` for streams of the client's own.
    pub(crate) user: Option<u8>,
    pub(crate) lookup: bool,
}

/// A client and its network.
pub(crate) struct World {
    pub(crate) client: Client<Paths>,
    pub(crate) now: Now,
    pub(crate) keys: BTreeMap<RsaIdentity, OnionKeys>,
    pub(crate) rng: StdRng,
    pub(crate) circuits: BTreeMap<OriginId, Far>,
    /// Tunnels with a leg that is linked: the first user whose streams were put on each.
    pub(crate) tunnels: BTreeMap<OriginId, Option<u8>>,
    seen: BTreeSet<OriginId>,
    pub(crate) streams: BTreeMap<ConnectionId, Stream>,
    pub(crate) next_stream: u64,
    /// A controller puts streams where it likes.
    pub(crate) mixed: bool,
}

/// The identity of a relay.
pub(crate) fn rsa(number: u8) -> RsaIdentity {
    [number + 1; 20].into()
}

impl World {
    pub(crate) fn new() -> Self {
        let now = Now {
            mono: Instant::now(),
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        };
        let mut paths = Paths::default();
        let mut keys = BTreeMap::new();
        for number in 0..RELAYS {
            let rsa = rsa(number);
            let onion = OnionKeys::new(rsa, [number; 32].into(), &[number + 1; 32], None);
            let is_exit = number >= FIRST_EXIT;
            let ports = if is_exit {
                "accept 80,443"
            } else {
                "reject 1-65535"
            };
            let ports = Arc::new(ports.parse().expect("a list of ports"));
            paths.relays.push(Hop {
                rsa,
                ed25519: [number; 32].into(),
                ntor: onion.current_public(),
                addrs: vec![([192, 0, 2, number + 1], 9001).into()],
                nickname: format!("relay{number}"),
                supports_ntor_v3: number.is_multiple_of(2),
                supports_cgo: number.is_multiple_of(3),
                supports_abra: !number.is_multiple_of(4),
                supports_conflux: is_exit,
                supports_mtor: is_exit,
                bandwidth: u64::from(number) * 100,
                supports_cc: number.is_multiple_of(2),
                is_dir_cache: true,
                is_exit,
                is_stable: number.is_multiple_of(3),
                policy_v4: Arc::clone(&ports),
                policy_v6: ports,
            });
            keys.insert(rsa, onion);
        }
        World {
            client: Client::new(ClientConfig::default(), paths, [1; 32], now),
            now,
            keys,
            rng: StdRng::seed_from_u64(1),
            circuits: BTreeMap::new(),
            tunnels: BTreeMap::new(),
            seen: BTreeSet::new(),
            streams: BTreeMap::new(),
            next_stream: 0,
            mixed: false,
        }
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now.mono += time;
        self.now.wall += time;
        self.client.tick(self.now);
    }

    /// A stream of the client's own begins.
    pub(crate) fn adopt(&mut self, stream: ConnectionId) {
        let place = Place::Waits;
        let (user, lookup) = (None, false);
        self.streams.insert(
            stream,
            Stream {
                place,
                user,
                lookup,
            },
        );
    }

    /// Lets the client handle an event, and obeys it.
    pub(crate) fn event(&mut self, event: OriginEvent) {
        self.client.on_event(event, self.now);
        self.run();
    }

    /// Does what the client wants until it wants nothing.
    pub(crate) fn run(&mut self) {
        for _ in 0..10_000 {
            match self.client.poll() {
                None => return,
                Some(Output::Command(command)) => self.obey(command),
                Some(_) => {}
            }
        }
        panic!("it does not come to rest");
    }

    fn obey(&mut self, command: OriginCommand) {
        match command {
            OriginCommand::Launch {
                circuit,
                first,
                create,
            } => {
                assert!(self.seen.insert(circuit), "{circuit} again");
                let far = Far {
                    asked: Some((first.rsa, create)),
                    ..Far::default()
                };
                self.circuits.insert(circuit, far);
                let connection = ConnectionId(1 << 32);
                self.client.on_event(
                    OriginEvent::Launched {
                        circuit,
                        connection,
                    },
                    self.now,
                );
            }
            OriginCommand::AddHop { circuit, .. } => {
                if let Some(far) = self.circuits.get_mut(&circuit) {
                    far.hops += 1;
                }
            }
            OriginCommand::Extend { circuit, extend2 } => {
                let extend = Extend2::decode(&extend2).expect("an EXTEND2");
                let create = CreateRequest::Create2 {
                    handshake_type: extend.handshake_type,
                    data: extend.handshake,
                };
                if let Some(far) = self.circuits.get_mut(&circuit) {
                    assert!(far.hops > 0, "an EXTEND2 without a hop");
                    far.asked = Some((extend.rsa.expect("an identity"), create));
                }
            }
            OriginCommand::AskWeight { circuit, hop } => {
                if let Some(far) = self.circuits.get(&circuit) {
                    assert!(
                        usize::from(hop.0) < far.hops,
                        "hop {} of {}",
                        hop.0,
                        far.hops
                    );
                }
            }
            OriginCommand::Link {
                circuit,
                hop,
                tunnel,
                kind: _,
            } => {
                assert!(
                    !self.circuits.contains_key(&tunnel),
                    "{tunnel} is a circuit"
                );
                if let Some(far) = self.circuits.get_mut(&circuit) {
                    assert!(usize::from(hop.0) + 1 == far.hops, "not the last hop");
                    assert!(far.link.replace(tunnel).is_none(), "linked twice");
                    far.link_asked = Some(self.now.mono);
                }
            }
            OriginCommand::RetireLink { .. } => {}
            OriginCommand::DropLeg { circuit } => panic!("{circuit} is no leg of mTor's"),
            OriginCommand::Probe { circuit, .. } => {
                if let Some(far) = self.circuits.get_mut(&circuit) {
                    assert!(far.hops == 3, "measured with {} hops", far.hops);
                    assert!(
                        far.probed.replace(self.now.mono).is_none(),
                        "measured twice"
                    );
                }
            }
            OriginCommand::CloseCircuit { circuit, .. } => {
                if self.tunnels.contains_key(&circuit) {
                    self.lose_tunnel(circuit, false);
                } else if self.circuits.contains_key(&circuit) {
                    self.lose(circuit, DestroyReason::NONE, false);
                }
            }
            OriginCommand::Attach {
                stream,
                circuit,
                hop,
                opening,
            } => self.attach(stream, circuit, hop.0, &opening),
            OriginCommand::Detach { stream, .. } => {
                if let Some(stream) = self.streams.get_mut(&stream) {
                    assert!(!matches!(stream.place, Place::Open(_)), "it is open");
                    stream.place = Place::Waits;
                }
            }
            OriginCommand::Refuse { stream, .. } => {
                let known = self.streams.remove(&stream).expect("it waits");
                assert!(!matches!(known.place, Place::Open(_)), "it is open");
            }
            OriginCommand::AnswerResolve { stream, .. } => {
                let known = self.streams.remove(&stream).expect("it waits");
                assert!(known.lookup && known.place == Place::Waits);
            }
            OriginCommand::CloseStream { stream, .. } => {
                self.streams.remove(&stream);
            }
            OriginCommand::AdoptInternal { stream, .. } => self.adopt(stream),
            OriginCommand::AdoptResolve { stream } => {
                self.adopt(stream);
                if let Some(stream) = self.streams.get_mut(&stream) {
                    stream.lookup = true;
                }
            }
        }
    }

    fn attach(
        &mut self,
        stream: ConnectionId,
        circuit: OriginId,
        hop: u8,
        opening: &StreamOpening,
    ) {
        let known = self.streams.get_mut(&stream).expect("a stream that lives");
        assert_eq!(known.place, Place::Waits, "{stream} is on a circuit");
        let lookup = matches!(opening, StreamOpening::Resolve { .. });
        assert_eq!(known.lookup, lookup);
        // Whatever controllers and maps did.
        if let StreamOpening::Begin { host, .. } | StreamOpening::Resolve { name: host } = opening {
            assert_eq!(weft_client::Host::new(host).as_str(), host.as_str());
            assert!(
                !host.ends_with(".onion") && !host.ends_with(".exit"),
                "{host}"
            );
        }
        known.place = Place::Asked(circuit);
        let first = match self.tunnels.get_mut(&circuit) {
            Some(first) => {
                assert_eq!(hop, 0, "a tunnel has one end");
                first
            }
            None => {
                let Some(far) = self.circuits.get_mut(&circuit) else {
                    panic!("{stream} on {circuit}, which is gone");
                };
                assert!(far.link.is_none(), "a leg has no streams");
                assert!(usize::from(hop) < far.hops, "hop {hop} of {}", far.hops);
                &mut far.user
            }
        };
        if let Some(user) = known.user
            && !self.mixed
        {
            let first = *first.get_or_insert(user);
            assert_eq!(first, user, "{circuit} is shared");
        }
    }

    /// A tunnel ends, with its legs.
    pub(crate) fn lose_tunnel(&mut self, tunnel: OriginId, remote: bool) {
        self.tunnels.remove(&tunnel);
        let legs: Vec<OriginId> = self
            .circuits
            .iter()
            .filter(|(_, far)| far.link == Some(tunnel) && far.link_asked.is_none())
            .map(|(id, _)| *id)
            .collect();
        self.lose(tunnel, DestroyReason::NONE, remote);
        for leg in legs {
            self.lose(leg, DestroyReason::NONE, remote);
        }
    }

    /// A circuit ends, and its streams with it.
    pub(crate) fn lose(&mut self, circuit: OriginId, reason: DestroyReason, remote: bool) {
        self.circuits.remove(&circuit);
        let on: Vec<(ConnectionId, bool)> = self
            .streams
            .iter()
            .filter_map(|(id, stream)| match stream.place {
                Place::Asked(at) if at == circuit => Some((*id, true)),
                Place::Open(at) if at == circuit => Some((*id, false)),
                _ => None,
            })
            .collect();
        for (stream, waiting) in on {
            self.leave(stream, waiting);
            self.event(OriginEvent::Ended {
                stream,
                circuit: Some(circuit),
                reason: EndReason::DESTROY,
                addr: None,
                by: EndedBy::Circuit,
                waiting,
                bytes: (0, 0),
            });
        }
        self.event(OriginEvent::Closed {
            circuit,
            reason,
            remote,
        });
    }

    /// A stream is off its circuit.
    pub(crate) fn leave(&mut self, stream: ConnectionId, waiting: bool) {
        match waiting {
            true => {
                if let Some(stream) = self.streams.get_mut(&stream) {
                    stream.place = Place::Waits;
                }
            }
            false => {
                self.streams.remove(&stream);
            }
        }
    }

    /// Relays fall silent: every application is answered in time, and then all is closed.
    pub(crate) fn finish(&mut self) {
        let mut config = self.client.config().clone();
        config.disable_network = false;
        config.disable_predicted = true;
        self.client.set_config(config, self.now);
        self.run();
        for _ in 0..30 {
            self.pass(Duration::from_secs(10));
            self.run();
        }
        for (id, stream) in &self.streams {
            assert!(matches!(stream.place, Place::Open(_)), "{id}: {stream:?}");
        }
        self.client.close_all(self.now);
        self.run();
        assert!(self.streams.is_empty() && self.circuits.is_empty());
        assert!(self.tunnels.is_empty());
        assert_eq!(self.client.streams().count(), 0);
        assert_eq!(self.client.circuits().count(), 0);
        assert!(self.client.chooser_ref().tickets.is_empty());
    }
}
