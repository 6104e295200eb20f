//! The client machine, in a network whose relays, applications and controllers say anything at any
//! time.
//!
//! Input: operations, each a byte of which and its arguments, as [`Play::operate`] reads them. What
//! is missing at the end is zero. Handshakes are real; time moves only as the input says.
//!
//! Whatever happens: a stream is on one circuit at most, is refused once, and is asked only of
//! circuits that live; nobody's streams share a circuit with another's; when all relays fall silent
//! every application is answered in the end, and nothing is left when the client is closed.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use libfuzzer_sys::fuzz_target;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use weft_cell::circ_msg::{CreateReply, CreateRequest, Extend2};
use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::stream_msg::Resolved;
use weft_core::address::ConnectionId;
use weft_core::origin::{
    AppCredentials, AppOpening, AppProtocol, AppRequest, EndedBy, OriginCommand, OriginEvent,
    OriginId, StreamOpening,
};
use weft_crypto::handshake::{OnionKeys, ReplyParams, negotiate};
use weft_node::client::chooser::{BuildNews, BuildTimeouts, Chooser, Chosen};
use weft_node::client::config::ClientConfig;
use weft_node::client::events::CircuitPurpose;
use weft_node::client::machine::{Client, DirectoryTarget, Now, Output};
use weft_path::{GuardUse, Hop, Outcome, PathError, RelayName, Usage};

/// Operations of one input at most, so that none takes long.
const MAX_OPERATIONS: usize = 300;
/// Streams that the input may open.
const MAX_STREAMS: u64 = 64;
/// Relays: guards and middle relays, then exits.
const RELAYS: u8 = 8;
const FIRST_EXIT: u8 = 4;

/// An input that is read from its beginning.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn pick<T: Clone>(&mut self, mut from: impl ExactSizeIterator<Item = T>) -> Option<T> {
        let number = usize::from(self.byte());
        let length = from.len();
        from.nth(number.checked_rem(length)?)
    }

    /// A length, then so many bytes.
    fn data(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (data, rest) = self.0.split_at(length);
        self.0 = rest;
        data
    }

    fn host(&mut self) -> String {
        match self.byte() % 8 {
            0 => String::from_utf8_lossy(self.data()).into_owned(),
            1 => "192.0.2.7".to_owned(),
            2 => "2001:db8::7".to_owned(),
            3 => "www.example.com.relay5.exit".to_owned(),
            4 => "10.0.0.1".to_owned(),
            _ => "example.com".to_owned(),
        }
    }

    fn addr(&mut self) -> IpAddr {
        match self.byte() {
            number if number & 1 == 0 => IpAddr::from([192, 0, 2, number]),
            number => IpAddr::from([10, 0, 0, number]),
        }
    }
}

/// Path selection: guards in turn, exits as they come.
#[derive(Debug, Default)]
struct Paths {
    relays: Vec<Hop>,
    ready: bool,
    /// Guards so far, by their circuits' tickets.
    tickets: BTreeMap<u64, [u8; 20]>,
    next_ticket: u64,
    down: BTreeSet<[u8; 20]>,
    /// What guards of circuits that are complete are said to be good for.
    verdict: u8,
    later: Vec<u64>,
}

impl Paths {
    fn hop(&self, exit: bool, not: Option<[u8; 20]>, turn: u32) -> Option<Hop> {
        let mut hops: Vec<&Hop> = self
            .relays
            .iter()
            .filter(|hop| hop.is_exit == exit && Some(hop.rsa) != not)
            .filter(|hop| exit || !self.down.contains(&hop.rsa))
            .collect();
        let place = usize::try_from(turn).ok()?.checked_rem(hops.len())?;
        Some(hops.swap_remove(place).clone())
    }

    fn ticket(&mut self, rsa: [u8; 20]) -> u64 {
        self.next_ticket += 1;
        self.tickets.insert(self.next_ticket, rsa);
        self.next_ticket
    }
}

impl Chooser for Paths {
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
        let exit = match usage {
            Usage::Exact(names) => {
                let hops = names
                    .iter()
                    .map(|name| {
                        let unknown = || PathError::UnknownRelay(name.to_string());
                        self.find(name).ok_or_else(unknown)
                    })
                    .collect::<Result<_, _>>()?;
                return Ok(Chosen { hops, guard: None });
            }
            Usage::Exit(wanted) => match &wanted.exit {
                Some(name) => {
                    let unknown = || PathError::UnknownRelay(name.to_string());
                    Some(self.find(name).ok_or_else(unknown)?)
                }
                None => {
                    let exit = self.hop(true, None, rng.next_u32());
                    let exit = exit.filter(|exit| !wanted.avoid.contains(&exit.rsa));
                    let exit = exit.filter(|exit| wanted.ports.iter().all(|p| exit.allows(*p)));
                    Some(exit.ok_or(PathError::NoExit(""))?)
                }
            },
            Usage::Directory => None,
            Usage::Internal { .. } => return Err(PathError::NoMiddle),
        };
        let first = self.hop(false, None, 0).ok_or(PathError::NoGuard)?;
        let mut hops = vec![first.clone()];
        if let Some(exit) = exit {
            let middle = self.hop(false, Some(first.rsa), rng.next_u32());
            hops.push(middle.ok_or(PathError::NoMiddle)?);
            hops.push(exit);
        }
        let guard = Some(self.ticket(first.rsa));
        Ok(Chosen { hops, guard })
    }

    fn guard(&mut self, guard: &u64, outcome: Outcome, _now: Now, _rng: &mut StdRng) -> GuardUse {
        let rsa = *self
            .tickets
            .get(guard)
            .expect("a ticket that was forgotten");
        if outcome == Outcome::GuardFailed {
            self.down.insert(rsa);
        }
        match (outcome, self.verdict % 4) {
            (Outcome::Built, 2) => {
                self.later.push(*guard);
                GuardUse::Later
            }
            (Outcome::Built, 3) => GuardUse::Never,
            _ => GuardUse::Now,
        }
    }

    fn settled_guards(&mut self, _now: Now) -> Vec<(u64, GuardUse)> {
        let verdict = match self.verdict & 8 {
            0 => GuardUse::Now,
            _ => GuardUse::Never,
        };
        std::mem::take(&mut self.later)
            .into_iter()
            .map(|guard| (guard, verdict))
            .collect()
    }

    fn forget(&mut self, guard: &u64) {
        assert!(self.tickets.remove(guard).is_some(), "forgotten twice");
        self.later.retain(|later| later != guard);
    }

    fn timeouts(&self) -> BuildTimeouts {
        BuildTimeouts {
            timeout: Duration::from_secs(10),
            close: Duration::from_secs(60),
            measure: self.verdict & 16 != 0,
            wants_circuits: self.verdict & 32 != 0,
        }
    }

    fn built(&mut self, _news: BuildNews, _now: Now) {}

    fn is_ready(&self) -> bool {
        self.ready
    }

    fn congestion(&self) -> Option<u8> {
        (self.verdict & 64 != 0).then_some(31)
    }

    fn find(&self, name: &RelayName) -> Option<Hop> {
        let is_it = |hop: &&Hop| match name {
            RelayName::Rsa(rsa) => hop.rsa == *rsa,
            RelayName::Ed25519(ed25519) => hop.ed25519 == *ed25519,
            RelayName::Nickname(nickname) => hop.nickname == *nickname,
        };
        self.relays.iter().find(is_it).cloned()
    }
}

/// A circuit as the network sees it.
#[derive(Debug, Default)]
struct Far {
    /// Hops whose keys the client has.
    hops: usize,
    /// The relay that was asked last, and what.
    asked: Option<([u8; 20], CreateRequest)>,
    /// The first user whose streams were put on it, unless a controller mixed them.
    user: Option<u8>,
}

/// Where a stream is, as the network and its application see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Waits,
    Asked(OriginId),
    Open(OriginId),
}

/// A stream that is not over.
#[derive(Clone, Debug)]
struct Stream {
    place: Place,
    /// Whose it is; `None` for streams of the client's own.
    user: Option<u8>,
    lookup: bool,
}

struct Play {
    client: Client<Paths>,
    now: Now,
    keys: BTreeMap<[u8; 20], OnionKeys>,
    rng: StdRng,
    circuits: BTreeMap<OriginId, Far>,
    seen: BTreeSet<OriginId>,
    streams: BTreeMap<ConnectionId, Stream>,
    next_stream: u64,
    /// A controller puts streams where it likes.
    mixed: bool,
}

fn rsa(number: u8) -> [u8; 20] {
    [number + 1; 20]
}

impl Play {
    fn new() -> Self {
        let now = Now {
            mono: Instant::now(),
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        };
        let mut paths = Paths::default();
        let mut keys = BTreeMap::new();
        for number in 0..RELAYS {
            let rsa = rsa(number);
            let onion = OnionKeys::new(rsa, [number; 32], &[number + 1; 32], None);
            let is_exit = number >= FIRST_EXIT;
            let ports = if is_exit {
                "accept 80,443"
            } else {
                "reject 1-65535"
            };
            let ports = Arc::new(ports.parse().expect("a list of ports"));
            paths.relays.push(Hop {
                rsa,
                ed25519: [number; 32],
                ntor: onion.current_public(),
                addrs: vec![([192, 0, 2, number + 1], 9001).into()],
                nickname: format!("relay{number}"),
                supports_ntor_v3: number.is_multiple_of(2),
                supports_cgo: number.is_multiple_of(3),
                supports_cc: number.is_multiple_of(2),
                is_dir_cache: true,
                is_exit,
                is_stable: number.is_multiple_of(3),
                policy_v4: Arc::clone(&ports),
                policy_v6: ports,
            });
            keys.insert(rsa, onion);
        }
        Play {
            client: Client::new(ClientConfig::default(), paths, [1; 32], now),
            now,
            keys,
            rng: StdRng::seed_from_u64(1),
            circuits: BTreeMap::new(),
            seen: BTreeSet::new(),
            streams: BTreeMap::new(),
            next_stream: 0,
            mixed: false,
        }
    }

    /// One operation.
    fn operate(&mut self, input: &mut Bytes<'_>) {
        match input.byte() % 20 {
            0 => {
                let time = Duration::from_millis(u64::from(input.byte()) * 400);
                self.pass(time);
            }
            1..=3 => self.request(input),
            4..=7 => self.answer(input, true),
            8 => self.answer(input, false),
            9 => self.destroy(input),
            10 | 11 => self.far_end(input),
            12 => self.application_ends(input),
            13 | 14 => self.order(input),
            15 => {
                let target = match input.byte() % 4 {
                    0 => {
                        let hop = self.client.chooser_ref().relays.first().expect("a relay");
                        DirectoryTarget::Relay(hop.into())
                    }
                    _ => DirectoryTarget::Guard,
                };
                if self.next_stream < MAX_STREAMS
                    && let Ok(stream) = self.client.open_directory(&target, self.now)
                {
                    self.next_stream += 1;
                    self.adopt(stream);
                    self.client.serve_now(self.now);
                }
            }
            16 => {
                let mut config = self.client.config().clone();
                let flags = input.byte();
                config.disable_network = flags & 1 != 0;
                config.leave_streams_unattached = flags & 2 != 0;
                config.disable_predicted = flags & 4 != 0;
                config.reject_internal = flags & 8 == 0;
                self.client.set_config(config, self.now);
            }
            17 => {
                let paths = self.client.chooser();
                paths.ready = !input.byte().is_multiple_of(4);
                paths.down.clear();
                self.client.directory_changed(self.now);
            }
            18 => self.client.chooser().verdict = input.byte(),
            _ => self.stale(input),
        }
        self.run();
    }

    fn pass(&mut self, time: Duration) {
        self.now.mono += time;
        self.now.wall += time;
        self.client.tick(self.now);
    }

    fn adopt(&mut self, stream: ConnectionId) {
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

    fn request(&mut self, input: &mut Bytes<'_>) {
        if self.next_stream >= MAX_STREAMS {
            return;
        }
        self.next_stream += 1;
        let stream = ConnectionId(self.next_stream);
        let user = input.byte() % 3;
        let opening = match input.byte() % 6 {
            0 => AppOpening::Resolve { name: input.host() },
            1 => AppOpening::ResolvePtr { addr: input.addr() },
            kind => AppOpening::Connect {
                host: input.host(),
                port: [80, 443, 22, 0][usize::from(kind) - 2],
            },
        };
        let lookup = !matches!(opening, AppOpening::Connect { .. });
        let place = Place::Waits;
        let known = Stream {
            place,
            user: Some(user),
            lookup,
        };
        self.streams.insert(stream, known);
        let request = AppRequest {
            opening,
            from: Some(IpAddr::from([127, 0, 0, 1])),
            from_port: 1,
            listener: 0,
            protocol: AppProtocol::Socks5,
            credentials: Some(Arc::new(AppCredentials {
                user: vec![user],
                password: Vec::new(),
            })),
        };
        self.event(OriginEvent::Request { stream, request });
    }

    /// A relay answers, as it should or not.
    fn answer(&mut self, input: &mut Bytes<'_>, honest: bool) {
        let Some(circuit) = input.pick(self.circuits.keys().copied()) else {
            return;
        };
        let far = self.circuits.get_mut(&circuit).expect("one of them");
        let reply = match (far.asked.take(), honest) {
            (Some((relay, create)), true) => {
                let grants = ReplyParams {
                    sendme_inc: Some(input.byte()),
                };
                let keys = self.keys.get(&relay).expect("a relay");
                let answered = negotiate(&create, keys, &grants, &mut self.rng);
                answered.expect("an honest handshake").reply
            }
            (None, true) => return,
            (asked, false) => {
                far.asked = asked;
                let data = input.data().to_vec();
                CreateReply::Created2 { data }
            }
        };
        self.event(OriginEvent::Answered { circuit, reply });
    }

    /// A circuit dies, its streams with it.
    fn destroy(&mut self, input: &mut Bytes<'_>) {
        let Some(circuit) = input.pick(self.circuits.keys().copied()) else {
            return;
        };
        let reason = DestroyReason::from(input.byte());
        self.lose(circuit, reason, true);
    }

    fn lose(&mut self, circuit: OriginId, reason: DestroyReason, remote: bool) {
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
    fn leave(&mut self, stream: ConnectionId, waiting: bool) {
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

    /// An exit answers a stream, or ends it.
    fn far_end(&mut self, input: &mut Bytes<'_>) {
        let Some(id) = input.pick(self.streams.keys().copied()) else {
            return;
        };
        let known = self.streams.get_mut(&id).expect("one of them");
        match (input.byte() % 3, known.place) {
            (0, Place::Asked(circuit)) if !known.lookup => {
                known.place = Place::Open(circuit);
                self.event(OriginEvent::Connected {
                    stream: id,
                    circuit,
                    addr: Some(input.addr()),
                    ttl: 60,
                });
            }
            (0, Place::Asked(circuit)) => {
                let resolved = Resolved::decode(input.data()).unwrap_or_default();
                self.streams.remove(&id);
                self.event(OriginEvent::Resolved {
                    stream: id,
                    circuit,
                    resolved,
                });
            }
            (_, Place::Asked(circuit) | Place::Open(circuit)) => {
                let waiting = matches!(known.place, Place::Asked(_));
                self.leave(id, waiting);
                self.event(OriginEvent::Ended {
                    stream: id,
                    circuit: Some(circuit),
                    reason: EndReason::from(input.byte() % 16),
                    addr: input.byte().is_multiple_of(2).then(|| input.addr()),
                    by: EndedBy::Exit,
                    waiting,
                    bytes: (1, 1),
                });
            }
            (_, Place::Waits) => {}
        }
    }

    /// An application leaves.
    fn application_ends(&mut self, input: &mut Bytes<'_>) {
        let Some((stream, known)) = input.pick(self.streams.clone().into_iter()) else {
            return;
        };
        self.streams.remove(&stream);
        self.event(OriginEvent::Ended {
            stream,
            circuit: match known.place {
                Place::Waits => None,
                Place::Asked(circuit) | Place::Open(circuit) => Some(circuit),
            },
            reason: EndReason::DONE,
            addr: None,
            by: EndedBy::Application,
            waiting: false,
            bytes: (0, 0),
        });
    }

    /// A controller asks for something.
    fn order(&mut self, input: &mut Bytes<'_>) {
        let now = self.now;
        let circuit = OriginId(u64::from(input.byte() % 32));
        let circuit = input.pick(self.circuits.keys().copied()).unwrap_or(circuit);
        let stream = input
            .pick(self.streams.keys().copied())
            .unwrap_or(ConnectionId(99));
        let relays: Vec<RelayName> = input
            .data()
            .iter()
            .map(|byte| match byte % 16 {
                number if number < RELAYS => RelayName::Rsa(rsa(number)),
                number => RelayName::Nickname(format!("relay{number}")),
            })
            .collect();
        // Errors are answers as good as others.
        match input.byte() % 11 {
            0 => {
                let _ = self
                    .client
                    .new_circuit(&relays, CircuitPurpose::Controller, now);
            }
            1 => {
                let _ = self
                    .client
                    .new_circuit(&relays, CircuitPurpose::General, now);
            }
            2 => {
                let _ = self.client.extend_circuit(circuit, &relays, now);
            }
            3 => {
                let purpose = match input.byte() % 2 {
                    0 => CircuitPurpose::General,
                    _ => CircuitPurpose::Controller,
                };
                let _ = self.client.set_purpose(circuit, purpose, now);
                self.mixed = true;
            }
            4 => {
                let _ = self
                    .client
                    .close(circuit, input.byte().is_multiple_of(2), now);
            }
            5 => {
                self.mixed = true;
                let hop = input.byte().is_multiple_of(2).then(|| input.byte() % 6);
                let to = (!input.byte().is_multiple_of(4)).then_some((circuit, hop));
                let _ = self.client.attach_stream(stream, to, now);
            }
            6 => {
                let port = input.byte().is_multiple_of(2).then_some(443);
                let host = input.host();
                let _ = self.client.redirect_stream(stream, &host, port);
            }
            7 => {
                let reason = EndReason::from(input.byte() % 16);
                let _ = self.client.close_stream(stream, reason, now);
            }
            8 => {
                let (from, to) = (input.host(), input.host());
                let _ = self.client.map_address(&from, &to);
            }
            9 if self.next_stream < MAX_STREAMS => {
                self.next_stream += 1;
                let name = input.host();
                let _ = self.client.look_up(AppOpening::Resolve { name }, now);
            }
            9 => self.client.abandon_circuits(),
            _ => self.client.new_identity(now),
        }
    }

    /// What was on its way when its circuit or stream was given up.
    fn stale(&mut self, input: &mut Bytes<'_>) {
        let circuit = OriginId(u64::from(input.byte()) + 1_000_000);
        let stream = ConnectionId(u64::from(input.byte()) + 1_000_000);
        let event = match input.byte() % 4 {
            0 => OriginEvent::Closed {
                circuit,
                reason: DestroyReason::NONE,
                remote: true,
            },
            1 => OriginEvent::Connected {
                stream,
                circuit,
                addr: None,
                ttl: 0,
            },
            2 => OriginEvent::Resolved {
                stream,
                circuit,
                resolved: Resolved::default(),
            },
            _ => OriginEvent::Ended {
                stream,
                circuit: Some(circuit),
                reason: EndReason::DONE,
                addr: None,
                by: EndedBy::Exit,
                waiting: true,
                bytes: (0, 0),
            },
        };
        self.event(event);
    }

    fn event(&mut self, event: OriginEvent) {
        self.client.on_event(event, self.now);
        self.run();
    }

    /// Does what the client wants until it wants nothing.
    fn run(&mut self) {
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
            OriginCommand::CloseCircuit { circuit, .. } => {
                if self.circuits.contains_key(&circuit) {
                    self.lose(circuit, DestroyReason::NONE, false);
                }
            }
            OriginCommand::Attach {
                stream,
                circuit,
                hop,
                opening,
            } => self.attach(stream, circuit, hop, &opening),
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
        known.place = Place::Asked(circuit);
        let Some(far) = self.circuits.get_mut(&circuit) else {
            panic!("{stream} on {circuit}, which is gone");
        };
        assert!(usize::from(hop) < far.hops, "hop {hop} of {}", far.hops);
        if let Some(user) = known.user
            && !self.mixed
        {
            let first = *far.user.get_or_insert(user);
            assert_eq!(first, user, "{circuit} is shared");
        }
    }

    /// Relays fall silent: every application is answered in time, and then all is closed.
    fn finish(&mut self) {
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
        assert_eq!(self.client.streams().count(), 0);
        assert_eq!(self.client.circuits().count(), 0);
        assert!(self.client.chooser_ref().tickets.is_empty());
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Bytes(input);
    let mut play = Play::new();
    for _ in 0..MAX_OPERATIONS {
        if input.0.is_empty() {
            break;
        }
        play.operate(&mut input);
    }
    play.finish();
});
