//! A network of relays that answer with real handshakes, and the applications of a client.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use weft_cell::circ_msg::{CreateRequest, Extend2};
use weft_cell::identity::RsaIdentity;
use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::stream_msg::{Answer, AnswerKind, Resolved};
use weft_core::address::{ConnectionId, HopIndex};
use weft_core::origin::{
    AppCredentials, AppOpening, AppProtocol, AppRefusal, AppRequest, DesiredUx, EndedBy,
    LinkFailure, LinkState, LinkTarget, OriginCommand, OriginEvent, OriginId, StreamOpening,
    TunnelKind,
};
use weft_crypto::handshake::{OnionKeys, ReplyParams, negotiate};
use weft_path::{
    ExitWanted, GuardUse, Hop, LegKind, LegWanted, Outcome, PathError, RelayName, Usage,
};

use crate::chooser::{BuildNews, BuildTimeouts, Chooser, Chosen};
use crate::config::ClientConfig;
use crate::events::{CircuitInfo, ClientEvent, StreamNews};
use crate::{Client, ConfluxParams, Now, Output};

/// Behaviour of a relay on a CREATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Answers.
    Good,
    /// Cannot be connected to.
    Unreachable,
    /// Answers after 61 seconds, during which nothing else happens.
    Slow,
    /// Takes the CREATE and sends no reply.
    Silent,
    /// No file is left here for a connection to it.
    Full,
    /// Answers DESTROY.
    Refuses,
    /// Answers with a wrong handshake.
    Lies,
}

/// Behaviour of an exit on a BEGIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exits {
    /// Connects.
    Connects,
    /// Sends no reply.
    Silent,
    /// Ends with this reason.
    Ends(EndReason, Option<IpAddr>),
}

/// Behaviour of an exit on CONFLUX_LINK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// Links, after this time.
    In(Duration),
    /// Sends no reply.
    Silent,
    /// Answers DESTROY.
    Refuses,
}

/// A relay.
pub(super) struct Relay {
    pub(super) keys: OnionKeys,
    pub(super) manner: Manner,
    pub(super) exits: Exits,
    pub(super) links: Links,
}

/// A conflux set or a tunnel of mTor, as the network sees it.
#[derive(Debug)]
pub(super) struct Tunnel {
    pub(super) kind: TunnelKind,
    pub(super) legs: Vec<OriginId>,
}

impl Tunnel {
    /// The nonce and the aim of a conflux set.
    pub(super) fn conflux(&self) -> ([u8; 32], DesiredUx) {
        match self.kind {
            TunnelKind::Conflux { nonce, ux } => (nonce, ux),
            TunnelKind::Mtor { .. } => panic!("{self:?} is no conflux set"),
        }
    }
}

/// Path selection of a test: guards in turn, exits at random.
#[derive(Debug, Default)]
pub(super) struct Fake {
    pub(super) relays: Vec<Hop>,
    pub(super) ready: bool,
    /// The guard that is used: the first that is not down.
    pub(super) down: BTreeSet<RsaIdentity>,
    pub(super) outcomes: Vec<(RsaIdentity, Outcome)>,
    pub(super) built: Vec<BuildNews>,
    pub(super) verdict: Option<GuardUse>,
    pub(super) settled: Vec<(u64, GuardUse)>,
    pub(super) guards: BTreeMap<u64, RsaIdentity>,
    pub(super) bridges: BTreeSet<RsaIdentity>,
    pub(super) next_guard: u64,
    pub(super) measure: bool,
    /// The time that circuits may take; a minute, if there is none.
    pub(super) timeout: Option<Duration>,
    pub(super) probe: bool,
    pub(super) round_trip: Option<Duration>,
    pub(super) congestion: Option<u8>,
    pub(super) conflux: Option<ConfluxParams>,
}

impl Fake {
    fn guard_hop(&self, not: &[RsaIdentity]) -> Option<Hop> {
        self.relays
            .iter()
            .filter(|hop| !hop.is_exit && !not.contains(&hop.rsa))
            .find(|hop| !self.down.contains(&hop.rsa))
            .cloned()
    }

    /// The guard of a tunnel's leg: the one that is named, or that with the fewest legs.
    fn guard_of_tunnel(&self, wanted: &LegWanted) -> Option<Hop> {
        let usable = self.relays.iter();
        let usable = usable.filter(|hop| !hop.is_exit && !self.down.contains(&hop.rsa));
        let legs = |hop: &&Hop| wanted.guards.iter().filter(|one| **one == hop.rsa).count();
        usable
            .filter(|hop| wanted.entry.is_none_or(|entry| entry == hop.rsa))
            .min_by_key(legs)
            .cloned()
    }

    /// A path to such an exit; as a leg, to one with conflux, by guards and middle relays that no
    /// other leg has.
    fn through(
        &mut self,
        wanted: &ExitWanted,
        leg: Option<&LegWanted>,
        rng: &mut StdRng,
    ) -> Result<Chosen<u64>, PathError> {
        let none = LegWanted::default();
        let others = leg.unwrap_or(&none);
        if let Some(name) = &wanted.exit
            && self.find(name).is_none()
        {
            return Err(PathError::UnknownRelay(name.to_string()));
        }
        let exits: Vec<Hop> = self
            .relays
            .iter()
            .filter(|hop| hop.is_exit && !wanted.avoid.contains(&hop.rsa))
            .filter(|hop| wanted.ports.iter().all(|port| hop.allows(*port)))
            .filter(|hop| !wanted.stable || hop.is_stable)
            .filter(|hop| match leg.map(|leg| leg.kind) {
                None => true,
                Some(LegKind::Conflux) => hop.joins_sets(),
                Some(LegKind::Mtor) => hop.serves_mtor(),
            })
            .filter(|hop| match &wanted.exit {
                Some(RelayName::Nickname(name)) => hop.nickname == *name,
                Some(RelayName::Rsa(rsa)) => hop.rsa == *rsa,
                _ => true,
            })
            .cloned()
            .collect();
        if exits.is_empty() {
            return Err(PathError::NoExit(""));
        }
        let exit = exits[rng.random_range(0..exits.len())].clone();
        let is_tunnel = leg.is_some_and(|leg| leg.kind == LegKind::Mtor);
        let first = match is_tunnel {
            true => self.guard_of_tunnel(others),
            false => self.guard_hop(&others.guards),
        };
        let first = first.ok_or(PathError::NoGuard)?;
        let fit = |hop: &&Hop| {
            let below = others
                .middle_below
                .is_none_or(|below| hop.bandwidth < below.into());
            !hop.is_exit && hop.rsa != first.rsa && below
        };
        let free = |hop: &&Hop| fit(hop) && !others.middles.contains(&hop.rsa);
        let middle = (self.relays.iter().rfind(free))
            .or_else(|| self.relays.iter().rfind(fit).filter(|_| is_tunnel))
            .cloned()
            .ok_or(PathError::NoMiddle)?;
        let guard = Some(self.ticket(first.rsa));
        Ok(Chosen {
            hops: vec![first, middle, exit],
            guard,
        })
    }

    fn ticket(&mut self, rsa: RsaIdentity) -> u64 {
        self.next_guard += 1;
        self.guards.insert(self.next_guard, rsa);
        self.next_guard
    }
}

impl Chooser for Fake {
    type Guard = u64;

    fn path(
        &mut self,
        usage: &Usage,
        _now: Now,
        rng: &mut StdRng,
    ) -> Result<Chosen<u64>, PathError> {
        if !self.ready {
            return Err(PathError::NoDirectory);
        }
        match usage {
            Usage::Directory => {
                let hop = self.guard_hop(&[]).ok_or(PathError::NoGuard)?;
                let guard = Some(self.ticket(hop.rsa));
                Ok(Chosen {
                    hops: vec![hop],
                    guard,
                })
            }
            Usage::Exact(names) => {
                let hops = names
                    .iter()
                    .map(|name| {
                        self.find(name)
                            .ok_or_else(|| PathError::UnknownRelay(name.to_string()))
                    })
                    .collect::<Result<_, _>>()?;
                Ok(Chosen { hops, guard: None })
            }
            Usage::Exit(wanted) => self.through(wanted, None, rng),
            Usage::Leg(wanted) => self.through(&wanted.exit, Some(wanted), rng),
            Usage::Internal { .. } => Err(PathError::NoMiddle),
        }
    }

    fn guard(&mut self, guard: &u64, outcome: Outcome, _now: Now, _rng: &mut StdRng) -> GuardUse {
        let rsa = self.guards[guard];
        self.outcomes.push((rsa, outcome));
        if outcome == Outcome::GuardFailed {
            self.down.insert(rsa);
        }
        self.verdict.unwrap_or(GuardUse::Now)
    }

    fn bridge(&mut self, rsa: &RsaIdentity, _now: Now) -> Option<u64> {
        self.bridges.contains(rsa).then(|| self.ticket(*rsa))
    }

    fn settled_guards(&mut self, _now: Now) -> Vec<(u64, GuardUse)> {
        std::mem::take(&mut self.settled)
    }

    fn forget(&mut self, guard: &u64) {
        self.guards.remove(guard);
    }

    fn timeouts(&self) -> BuildTimeouts {
        BuildTimeouts {
            timeout: self.timeout.unwrap_or(Duration::from_secs(60)),
            close: Duration::from_secs(120),
            measure: self.measure,
            wants_circuits: false,
            probe: self.probe,
            round_trip: self.round_trip,
        }
    }

    fn built(&mut self, news: BuildNews, _now: Now) {
        self.built.push(news);
    }

    fn is_ready(&self) -> bool {
        self.ready
    }

    fn congestion(&self) -> Option<u8> {
        self.congestion
    }

    fn conflux(&self) -> Option<ConfluxParams> {
        self.conflux
    }

    fn find(&self, name: &RelayName) -> Option<Hop> {
        self.relays
            .iter()
            .find(|hop| match name {
                RelayName::Rsa(rsa) => hop.rsa == *rsa,
                RelayName::Ed25519(ed25519) => hop.ed25519 == *ed25519,
                RelayName::Nickname(nickname) => hop.nickname == *nickname,
            })
            .cloned()
    }
}

/// A circuit as the network sees it.
#[derive(Debug, Default)]
struct Far {
    relays: Vec<RsaIdentity>,
    hops_added: usize,
}

/// Everything.
pub(super) struct World {
    pub(super) client: Client<Fake>,
    pub(super) now: Now,
    pub(super) relays: BTreeMap<RsaIdentity, Relay>,
    rng: StdRng,
    circuits: BTreeMap<OriginId, Far>,
    /// Tunnels with a linked leg.
    pub(super) tunnels: BTreeMap<OriginId, Tunnel>,
    /// Legs that were given up.
    pub(super) dropped: Vec<OriginId>,
    /// Answers to CONFLUX_LINK are kept here until a test releases them.
    pub(super) held: Option<Vec<OriginEvent>>,
    pub(super) attached: BTreeMap<ConnectionId, OriginId>,
    pub(super) refused: BTreeMap<ConnectionId, AppRefusal>,
    pub(super) answered: BTreeMap<ConnectionId, Resolved>,
    pub(super) connected: BTreeSet<ConnectionId>,
    pub(super) closed_streams: BTreeSet<ConnectionId>,
    pub(super) openings: Vec<(ConnectionId, StreamOpening)>,
    pub(super) events: Vec<ClientEvent>,
    pub(super) outputs: Vec<Output>,
    pub(super) launches: usize,
    /// Circuits whose last hops were asked for a refusal and have not answered.
    pub(super) probes: Vec<OriginId>,
    /// Hops that were asked for their weights.
    pub(super) asked_weights: Vec<(OriginId, HopIndex)>,
    /// Every CREATE, and the relay that it was for.
    pub(super) creates: Vec<(RsaIdentity, CreateRequest)>,
    /// Links that take no new circuits.
    pub(super) retired: Vec<ConnectionId>,
    next_stream: u64,
}

/// An identity from a small number.
pub(super) fn rsa(number: u8) -> RsaIdentity {
    [number; 20].into()
}

impl World {
    /// Guards 1 to 4, middle relays among them, and exits 11 to 10 + `exits`, which take `ports`.
    pub(super) fn new(seed: u64, exits: u8, ports: &'static str) -> Self {
        let now = Now {
            mono: Instant::now(),
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        };
        let mut world = World {
            client: Client::new(ClientConfig::default(), Fake::default(), [1; 32], now),
            now,
            relays: BTreeMap::new(),
            rng: StdRng::seed_from_u64(seed),
            circuits: BTreeMap::new(),
            tunnels: BTreeMap::new(),
            held: None,
            dropped: Vec::new(),
            attached: BTreeMap::new(),
            refused: BTreeMap::new(),
            answered: BTreeMap::new(),
            connected: BTreeSet::new(),
            closed_streams: BTreeSet::new(),
            openings: Vec::new(),
            events: Vec::new(),
            outputs: Vec::new(),
            launches: 0,
            probes: Vec::new(),
            asked_weights: Vec::new(),
            creates: Vec::new(),
            retired: Vec::new(),
            next_stream: 0,
        };
        for number in 1..=4 {
            world.add(number, "reject 1-65535", true);
        }
        for number in 0..exits {
            world.add(11 + number, ports, true);
        }
        world
    }

    /// Adds a relay.
    pub(super) fn add(&mut self, number: u8, ports: &'static str, stable: bool) {
        let keys = OnionKeys::new(rsa(number), [number; 32].into(), &[number; 32], None);
        let policy: tor_netdoc::types::policy::PortPolicy = ports.parse().unwrap();
        let hop = Hop {
            rsa: rsa(number),
            ed25519: [number; 32].into(),
            ntor: keys.current_public(),
            addrs: vec![format!("192.0.2.{number}:9001").parse().unwrap()],
            nickname: format!("relay{number}"),
            supports_ntor_v3: true,
            supports_cc: true,
            supports_cgo: false,
            supports_abra: true,
            supports_conflux: policy.allows_some_port(),
            supports_mtor: false,
            bandwidth: 1000 * u64::from(number),
            is_dir_cache: true,
            is_exit: policy.allows_some_port(),
            is_stable: stable,
            policy_v4: Arc::new(policy),
            policy_v6: Arc::new("reject 1-65535".parse().unwrap()),
        };
        self.relays.insert(
            rsa(number),
            Relay {
                keys,
                manner: Manner::Good,
                exits: Exits::Connects,
                links: Links::In(Duration::from_millis(100)),
            },
        );
        self.client.chooser().relays.push(hop);
    }

    /// A relay.
    pub(super) fn relay(&mut self, number: u8) -> &mut Relay {
        self.relays.get_mut(&rsa(number)).unwrap()
    }

    /// The directory comes.
    pub(super) fn ready(&mut self) {
        self.client.chooser().ready = true;
        self.client.directory_changed(self.now);
        self.run();
    }

    /// Time goes by, second by second.
    pub(super) fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now.mono += Duration::from_secs(1);
            self.now.wall += Duration::from_secs(1);
            self.client.tick(self.now);
            self.run();
        }
    }

    /// An application asks to connect.
    pub(super) fn connect(&mut self, host: &str, port: u16, user: Option<&str>) -> ConnectionId {
        let opening = AppOpening::Connect {
            host: host.to_owned(),
            port,
        };
        self.ask(opening, user)
    }

    /// An application asks.
    pub(super) fn ask(&mut self, opening: AppOpening, user: Option<&str>) -> ConnectionId {
        self.next_stream += 1;
        let stream = ConnectionId(self.next_stream);
        let credentials = user.map(|user| {
            Arc::new(AppCredentials {
                user: user.as_bytes().to_vec(),
                password: Vec::new(),
            })
        });
        let request = AppRequest {
            opening,
            from: Some(IpAddr::from([127, 0, 0, 1])),
            from_port: 1,
            listener: 0,
            protocol: AppProtocol::Socks5,
            credentials,
        };
        self.client
            .on_event(OriginEvent::Request { stream, request }, self.now);
        self.run();
        stream
    }

    /// Something from outside.
    pub(super) fn event(&mut self, event: OriginEvent) {
        self.client.on_event(event, self.now);
        self.run();
    }

    /// The link on which circuits begin.
    fn link_in_use(&self) -> ConnectionId {
        ConnectionId((1 << 32) + self.retired.len() as u64)
    }

    /// A circuit dies.
    pub(super) fn destroy(&mut self, circuit: OriginId) {
        let streams: Vec<_> = self
            .attached
            .iter()
            .filter(|(_, on)| **on == circuit)
            .map(|(stream, _)| *stream)
            .collect();
        for stream in streams {
            self.attached.remove(&stream);
            let waiting = !self.connected.contains(&stream);
            self.client.on_event(
                OriginEvent::Ended {
                    stream,
                    circuit: Some(circuit),
                    reason: EndReason::DESTROY,
                    addr: None,
                    by: EndedBy::Circuit,
                    waiting,
                    bytes: (0, 0),
                },
                self.now,
            );
        }
        self.circuits.remove(&circuit);
        self.event(OriginEvent::Closed {
            circuit,
            reason: DestroyReason::DESTROYED,
            remote: true,
        });
    }

    /// Does what the client wants until it wants nothing.
    pub(super) fn run(&mut self) {
        let mut events = VecDeque::new();
        let mut steps = 0;
        loop {
            steps += 1;
            assert!(steps < 100_000, "it does not come to rest");
            if let Some(output) = self.client.poll() {
                self.take(output, &mut events);
            } else if let Some(event) = events.pop_front() {
                self.client.on_event(event, self.now);
            } else {
                return;
            }
        }
    }

    fn take(&mut self, output: Output, events: &mut VecDeque<OriginEvent>) {
        match output {
            Output::Command(command) => self.obey(command, events),
            Output::Event(event) => self.events.push(event),
            other => self.outputs.push(other),
        }
    }

    fn obey(&mut self, command: OriginCommand, events: &mut VecDeque<OriginEvent>) {
        match command {
            OriginCommand::Launch {
                circuit,
                first,
                create,
            } => {
                self.launches += 1;
                let addr = first.addrs[0];
                let meets = first.rsa.is_zero();
                // The relay that is there: the last number of the address is the relay's.
                let first = match (meets, addr.ip()) {
                    (true, IpAddr::V4(ip)) => LinkTarget {
                        rsa: rsa(ip.octets()[3]),
                        ..first
                    },
                    _ => first,
                };
                if self.relays[&first.rsa].manner == Manner::Unreachable {
                    events.push_back(OriginEvent::Link {
                        connection: ConnectionId(1 << 33),
                        rsa: first.rsa,
                        addr: first.addrs[0],
                        state: LinkState::Failed(LinkFailure::Refused),
                    });
                    events.push_back(OriginEvent::Closed {
                        circuit,
                        reason: DestroyReason::CONNECTFAILED,
                        remote: false,
                    });
                    return;
                }
                if self.relays[&first.rsa].manner == Manner::Full {
                    events.push_back(OriginEvent::Closed {
                        circuit,
                        reason: DestroyReason::RESOURCELIMIT,
                        remote: false,
                    });
                    return;
                }
                self.circuits.insert(circuit, Far::default());
                if meets {
                    events.push_back(OriginEvent::Link {
                        connection: ConnectionId(1 << 32),
                        rsa: first.rsa,
                        addr,
                        state: LinkState::Connected,
                    });
                }
                events.push_back(OriginEvent::Launched {
                    circuit,
                    connection: self.link_in_use(),
                });
                self.create(circuit, first.rsa, &create, events);
            }
            OriginCommand::AddHop { circuit, .. } => {
                self.circuits.get_mut(&circuit).unwrap().hops_added += 1;
            }
            OriginCommand::Extend { circuit, extend2 } => {
                let extend = Extend2::decode(&extend2).unwrap();
                let create = CreateRequest::Create2 {
                    handshake_type: extend.handshake_type,
                    data: extend.handshake,
                };
                self.create(circuit, extend.rsa.unwrap(), &create, events);
            }
            OriginCommand::Link {
                circuit,
                hop,
                tunnel,
                kind,
            } => self.link((circuit, hop), tunnel, kind, events),
            OriginCommand::DropLeg { circuit } => {
                let mut tunnels = self.tunnels.values();
                let tunnel = tunnels.find(|tunnel| tunnel.legs.contains(&circuit));
                assert!(
                    matches!(tunnel.unwrap().kind, TunnelKind::Mtor { .. }),
                    "{circuit} is no leg of mTor's"
                );
                assert!(!self.dropped.contains(&circuit), "{circuit} was dropped");
                self.dropped.push(circuit);
            }
            OriginCommand::RetireLink { connection } => {
                // A circuit of a link that was retired before can be the one that shows it.
                if !self.retired.contains(&connection) {
                    assert_eq!(connection, self.link_in_use());
                    self.retired.push(connection);
                }
            }
            OriginCommand::Probe { circuit, .. } => {
                self.probes.push(circuit);
            }
            OriginCommand::AskWeight { circuit, hop } => {
                assert!(hop.index() < self.circuits[&circuit].hops_added);
                self.asked_weights.push((circuit, hop));
            }
            OriginCommand::CloseCircuit { circuit, .. } => {
                let tunnel = self.tunnels.remove(&circuit);
                for leg in tunnel.iter().flat_map(|tunnel| &tunnel.legs) {
                    if self.circuits.remove(leg).is_some() {
                        events.push_back(OriginEvent::Closed {
                            circuit: *leg,
                            reason: DestroyReason::NONE,
                            remote: false,
                        });
                    }
                }
                for tunnel in self.tunnels.values_mut() {
                    tunnel.legs.retain(|leg| *leg != circuit);
                }
                if self.circuits.remove(&circuit).is_none() && tunnel.is_none() {
                    return;
                }
                let streams: Vec<_> = self
                    .attached
                    .iter()
                    .filter(|(_, on)| **on == circuit)
                    .map(|(stream, _)| *stream)
                    .collect();
                for stream in streams {
                    self.attached.remove(&stream);
                    events.push_back(OriginEvent::Ended {
                        stream,
                        circuit: Some(circuit),
                        reason: EndReason::DESTROY,
                        addr: None,
                        by: EndedBy::Circuit,
                        waiting: !self.connected.contains(&stream),
                        bytes: (0, 0),
                    });
                }
                events.push_back(OriginEvent::Closed {
                    circuit,
                    reason: DestroyReason::NONE,
                    remote: false,
                });
            }
            OriginCommand::Attach {
                stream,
                circuit,
                hop: _,
                opening,
            } => self.attach(stream, circuit, opening, events),
            OriginCommand::Detach { stream, .. } => {
                self.attached.remove(&stream);
            }
            OriginCommand::Refuse { stream, why } => {
                assert!(self.refused.insert(stream, why).is_none());
            }
            OriginCommand::AnswerResolve { stream, resolved } => {
                self.answered.insert(stream, resolved);
            }
            OriginCommand::CloseStream { stream, .. } => {
                self.attached.remove(&stream);
                self.closed_streams.insert(stream);
            }
            OriginCommand::AdoptInternal { .. } | OriginCommand::AdoptResolve { .. } => {}
        }
    }

    fn link(
        &mut self,
        (circuit, hop): (OriginId, HopIndex),
        tunnel: OriginId,
        kind: TunnelKind,
        events: &mut VecDeque<OriginEvent>,
    ) {
        let far = &self.circuits[&circuit];
        assert_eq!(hop.index() + 1, far.hops_added);
        let exit = *far.relays.last().unwrap();
        let took = match self.relays[&exit].links {
            Links::Silent => return,
            Links::Refuses => {
                self.circuits.remove(&circuit);
                events.push_back(OriginEvent::Closed {
                    circuit,
                    reason: DestroyReason::PROTOCOL,
                    remote: true,
                });
                return;
            }
            Links::In(took) => took,
        };
        let is_held = |event: &OriginEvent| matches!(event, OriginEvent::Linked { tunnel: of, .. } if *of == tunnel);
        let waits = self.held.iter().flatten().any(is_held);
        let set = self.tunnels.entry(tunnel).or_insert(Tunnel {
            kind,
            legs: Vec::new(),
        });
        set.legs.retain(|leg| self.circuits.contains_key(leg));
        if let Some(other) = set.legs.first() {
            assert_eq!(self.circuits[other].relays.last(), Some(&exit));
            assert_eq!(set.kind, kind);
            let joins = matches!(kind, TunnelKind::Mtor { .. });
            assert!(!(joins && waits), "the tunnel has no id yet");
        }
        set.legs.push(circuit);
        set.kind = kind;
        let linked = OriginEvent::Linked {
            circuit,
            tunnel,
            took,
        };
        match &mut self.held {
            Some(held) => held.push(linked),
            None => events.push_back(linked),
        }
    }

    /// Lets answers to CONFLUX_LINK go, from now on all of them.
    pub(super) fn let_links_go(&mut self) {
        for event in self.held.take().unwrap_or_default() {
            self.event(event);
        }
    }

    /// A conflux set ends, with its legs and streams.
    pub(super) fn destroy_tunnel(&mut self, tunnel: OriginId) {
        let legs = self.tunnels.remove(&tunnel).unwrap().legs;
        self.destroy(tunnel);
        for leg in legs {
            self.destroy(leg);
        }
    }

    fn create(
        &mut self,
        circuit: OriginId,
        to: RsaIdentity,
        create: &CreateRequest,
        events: &mut VecDeque<OriginEvent>,
    ) {
        self.creates.push((to, create.clone()));
        let relay = &self.relays[&to];
        let grants = ReplyParams {
            sendme_inc: Some(31),
        };
        match relay.manner {
            Manner::Silent => {}
            Manner::Unreachable | Manner::Full | Manner::Refuses => {
                self.circuits.remove(&circuit);
                events.push_back(OriginEvent::Closed {
                    circuit,
                    reason: DestroyReason::RESOURCELIMIT,
                    remote: true,
                });
            }
            Manner::Good | Manner::Lies | Manner::Slow => {
                if relay.manner == Manner::Slow {
                    self.now.mono += Duration::from_secs(61);
                    self.now.wall += Duration::from_secs(61);
                }
                let mut reply = negotiate(create, &relay.keys, &grants, &mut self.rng)
                    .unwrap()
                    .reply;
                if relay.manner == Manner::Lies {
                    reply = weft_cell::circ_msg::CreateReply::Created2 { data: vec![0; 64] };
                }
                self.circuits.get_mut(&circuit).unwrap().relays.push(to);
                events.push_back(OriginEvent::Answered { circuit, reply });
            }
        }
    }

    fn attach(
        &mut self,
        stream: ConnectionId,
        circuit: OriginId,
        opening: StreamOpening,
        events: &mut VecDeque<OriginEvent>,
    ) {
        self.openings.push((stream, opening.clone()));
        let first = match self.tunnels.get(&circuit) {
            Some(tunnel) => {
                let legs = &tunnel.legs;
                assert!(legs.iter().all(|leg| self.circuits.contains_key(leg)));
                legs[0]
            }
            None => circuit,
        };
        let is_leg = |tunnel: &Tunnel| tunnel.legs.contains(&circuit);
        assert!(!self.tunnels.values().any(is_leg), "a leg has no streams");
        let far = &self.circuits[&first];
        assert_eq!(far.hops_added, far.relays.len());
        let exit = far.relays.last().unwrap();
        self.attached.insert(stream, circuit);
        let event = match (self.relays[exit].exits, opening) {
            (Exits::Silent, _) => return,
            (Exits::Connects, StreamOpening::Resolve { .. }) => {
                self.attached.remove(&stream);
                OriginEvent::Resolved {
                    stream,
                    circuit,
                    resolved: Resolved {
                        answers: vec![Answer {
                            kind: AnswerKind::Ipv4([203, 0, 113, 1].into()),
                            ttl: 60,
                        }],
                    },
                }
            }
            (Exits::Connects, _) => {
                self.connected.insert(stream);
                OriginEvent::Connected {
                    stream,
                    circuit,
                    addr: None,
                    ttl: 60,
                }
            }
            (Exits::Ends(reason, addr), _) => {
                self.attached.remove(&stream);
                OriginEvent::Ended {
                    stream,
                    circuit: Some(circuit),
                    reason,
                    addr,
                    by: EndedBy::Exit,
                    waiting: true,
                    bytes: (0, 0),
                }
            }
        };
        events.push_back(event);
    }

    /// The circuits, as a controller sees them.
    pub(super) fn list(&self) -> Vec<CircuitInfo> {
        self.client.circuits().collect()
    }

    /// The exit that a stream is on.
    pub(super) fn exit_of(&self, stream: ConnectionId) -> RsaIdentity {
        let on = self.attached[&stream];
        let first = self.tunnels.get(&on).map_or(on, |tunnel| tunnel.legs[0]);
        *self.circuits[&first].relays.last().unwrap()
    }

    /// Each stream has one CLOSED, and it is the last of its events.
    pub(super) fn all_ends_were_told(&self) {
        let streams: BTreeSet<ConnectionId> = self
            .events
            .iter()
            .filter_map(|event| match event {
                ClientEvent::Stream { stream, .. } => Some(stream.id),
                _ => None,
            })
            .collect();
        for stream in streams {
            let news = self.news(stream);
            let is_end = |news: &StreamNews| matches!(news, StreamNews::Closed(_));
            let ends = news.iter().filter(|news| is_end(news)).count();
            assert!(
                ends == 1 && news.last().is_some_and(is_end),
                "{stream}: {news:?}"
            );
        }
    }

    /// The events of a stream.
    pub(super) fn news(&self, stream: ConnectionId) -> Vec<StreamNews> {
        self.events
            .iter()
            .filter_map(|event| match event {
                ClientEvent::Stream { stream: info, what } if info.id == stream => {
                    Some(what.clone())
                }
                _ => None,
            })
            .collect()
    }
}
