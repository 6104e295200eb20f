//! A hostile node that has the keys of circuits: a client its own, a relay those that end at it or pass through it. It sends relay
//! messages of its own making on them, sealed as its honest ones are, while it goes on as an honest node besides.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use rand::{Rng as _, RngExt as _};
use rand_chacha::ChaCha8Rng;
use weft_cell::RelayCmd;
use weft_cell::circ_msg::Extend2;
use weft_cell::conflux_msg::{DesiredUx, Link, Switch};
use weft_cell::identity::RsaIdentity;
use weft_cell::mtor_msg::{Join, Multipath, TunnelId};
use weft_cell::reason::EndReason;
use weft_cell::relay::MAX_DATA;
use weft_cell::relay_command::RelayCommand;
use weft_cell::stream_msg::{Begin, BeginFlags, End, Xoff, Xon};
use weft_core::address::{HopIndex, ThreadId};
use weft_core::handshake::PeerIdentity;
use weft_core::manager::{Injected, Keyed};
use weft_model::traffic::{ClientStream, Plan};

use super::hostile::pick;
use super::node::Common;
use super::odd;
use super::state::World;

/// Relay messages of a hostile node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Messages {
    /// Streams that are begun, connected, resolved and ended in any order, with DATA before they are open.
    Streams,
    /// DATA without regard to windows.
    Data,
    /// SENDME, XON and XOFF of all kinds.
    Flow,
    /// EXTEND2 to all kinds of places, TRUNCATE, and RELAY_EARLY cells.
    Extensions,
    /// Messages that make legs of circuits, and those that legs carry.
    Legs,
    /// Messages of all known commands with random data.
    Commands,
    /// Messages of unknown commands, or that claim to be longer than they are.
    Broken,
    /// DROP, as many as the circuit's queue takes.
    Flood,
    /// All of these but the last.
    Mixed,
}

impl Messages {
    /// All of them.
    pub const ALL: [Messages; 9] = [
        Messages::Streams,
        Messages::Data,
        Messages::Flow,
        Messages::Extensions,
        Messages::Legs,
        Messages::Commands,
        Messages::Broken,
        Messages::Flood,
        Messages::Mixed,
    ];

    /// Number of kinds, from the first on, that [`Messages::Mixed`] mixes.
    const MIXED: usize = 7;
}

/// State of a node that forges messages on one circuit.
struct Forger<'a> {
    common: &'a Common,
    circuit: Keyed,
    rng: &'a mut ChaCha8Rng,
    /// Each message may break rules. Otherwise most are such as a client may send that has such streams and legs, and the circuit
    /// goes on.
    is_wild: bool,
    /// A secret, a nonce or a cookie: the same ones again and again, so that circuits meet.
    word: [u8; 32],
    /// The stream that was begun last.
    begun: u16,
    /// Streams that were begun and not ended.
    open: Vec<u16>,
    /// Messages that were made.
    made: u32,
    /// Legs are of a tunnel of mTor, not of a conflux set.
    is_mtor: bool,
    /// Messages within SUBDATA.
    within: u32,
}

/// Streams that are begun here, where no client's own are.
const FIRST: u16 = 20_000;

impl World {
    /// These nodes are hostile: nothing is promised to them, nor to streams that go through them.
    pub(crate) fn set_hostile(&mut self, nodes: impl IntoIterator<Item = usize>) {
        let numbers = nodes
            .into_iter()
            .filter_map(|node| u32::try_from(node).ok());
        self.hostile = numbers.collect();
    }

    /// Streams of users that went through a hostile node: client and number.
    pub(crate) fn excused(&self) -> BTreeSet<(String, u32)> {
        let clients = self.nodes.iter().filter_map(|node| node.client.as_ref());
        clients.flat_map(|client| client.excused()).collect()
    }

    /// Messages that were forged.
    pub(crate) fn forged(&self) -> u64 {
        self.forged
    }

    /// A node sends so many of these messages on circuits of which it has keys.
    pub(crate) fn forge(
        &mut self,
        number: usize,
        messages: Messages,
        count: u32,
        rng: &mut ChaCha8Rng,
    ) {
        let Ok(id) = u32::try_from(number) else {
            return;
        };
        self.enter(id);
        let Some(node) = self.nodes.get(number) else {
            return;
        };
        let threads = (0..).map(ThreadId).zip(&node.threads);
        let circuits = threads.flat_map(|(id, thread)| {
            let circuits = thread.manager.inspect().keyed();
            circuits.map(move |circuit| (id, circuit))
        });
        let mut circuits: Vec<(ThreadId, Keyed)> = circuits.collect();
        let unused = |one: &Keyed| one.is_origin && one.streams.is_empty();
        let place = match messages {
            // The same one again, as long as it is there.
            Messages::Flood => circuits
                .iter()
                .position(|(_, one)| one.hops > 1)
                .unwrap_or(0),
            Messages::Legs if circuits.iter().any(|(_, one)| unused(one)) => {
                circuits.retain(|(_, one)| unused(one));
                rng.random_range(0..circuits.len().max(1))
            }
            _ => rng.random_range(0..circuits.len().max(1)),
        };
        let Some((thread, circuit)) = circuits.into_iter().nth(place) else {
            return;
        };
        let half = circuit.half;
        // What comes on it is not looked at, so no rule closes it here, and no SENDME is sent.
        let ignores = rng.random_bool(0.4);
        let ignored = (circuit.connection, circuit.circ_id);
        let count = match messages {
            Messages::Flood => circuit.room,
            _ => count as usize,
        };
        let now = self.ground.now();
        let mut forger = Forger {
            common: &self.common,
            circuit,
            is_wild: rng.random_bool(0.4),
            word: [rng.random_range(0..3); 32],
            begun: FIRST + rng.random_range(0..10_000),
            open: Vec::new(),
            made: 0,
            is_mtor: rng.random(),
            within: 0,
            rng,
        };
        let made: Vec<_> = (0..count).map(|_| forger.message(messages)).collect();
        let node = self.nodes.get_mut(number);
        let Some(thread) = node.and_then(|node| node.threads.get_mut(usize::from(thread.0))) else {
            return;
        };
        if ignores {
            thread.ignored.insert(ignored);
        }
        for (hop, message) in made {
            self.forged += u64::from(thread.manager.inject(half, hop, &message, now));
        }
        thread.ask_turn(self.ground.nanos(), &mut self.ground);
    }
}

impl Forger<'_> {
    /// A message, and the node that it is for.
    fn message(&mut self, messages: Messages) -> (HopIndex, Injected) {
        self.made += 1;
        let last = self.circuit.hops.saturating_sub(1);
        let messages = match messages {
            Messages::Mixed => {
                let some = Messages::ALL.get(..Messages::MIXED).unwrap_or_default();
                pick(some, self.rng).unwrap_or(Messages::Data)
            }
            other => other,
        };
        let any = (self.is_wild || messages == Messages::Extensions) && self.rng.random_bool(0.3);
        let hop = match any {
            true => self.rng.random_range(0..=last),
            false => last,
        };
        let message = match messages {
            Messages::Streams => self.of_stream(),
            Messages::Data => self.data(),
            Messages::Flow => self.of_flow(),
            Messages::Extensions => self.of_extension(),
            Messages::Legs => self.of_leg(),
            Messages::Commands | Messages::Mixed => self.of_command(),
            Messages::Broken => self.broken(),
            Messages::Flood => plain(RelayCmd::DROP, 0, Vec::new()),
        };
        (HopIndex::from_index(hop), message)
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.rng.random_range(0..=most)];
        self.rng.fill_bytes(&mut bytes);
        bytes
    }

    /// A stream: one that there is, one of few others, or any.
    fn stream(&mut self) -> u16 {
        let there = pick(&self.circuit.streams, self.rng);
        let open = pick(&self.open, self.rng);
        match (self.rng.random_range(0..10), there.or(open)) {
            (_, Some(stream)) if !self.is_wild => stream,
            (0..5, Some(stream)) => stream,
            (5..8, _) => self.begun,
            (8, _) => self.rng.random(),
            _ => self.rng.random_range(0..16),
        }
    }

    /// A stream's request to a destination, or bytes of nothing.
    fn payload(&mut self) -> Vec<u8> {
        if self.rng.random_bool(0.5) {
            return self.bytes(MAX_DATA);
        }
        let plan = Plan::download(self.rng.random_range(0..5_000_000));
        let mut traffic = ClientStream::new(plan, self.rng.next_u64(), Duration::ZERO);
        let out = traffic.output(Duration::ZERO);
        out.iter().copied().take(MAX_DATA).collect()
    }

    /// Begins a stream that there is not.
    fn begin_another(&mut self) -> Injected {
        self.begun += 1;
        self.open.push(self.begun);
        let data = self.begin();
        plain(RelayCmd::BEGIN, self.begun, data)
    }

    /// A message of a client that may begin and end streams at will, and may send before they are
    /// open.
    fn of_good_stream(&mut self) -> Injected {
        let open = self.rng.random_range(0..self.open.len().max(1));
        match self.rng.random_range(0..10) {
            0..3 => self.begin_another(),
            3 | 4 if open < self.open.len() => {
                let stream = self.open.swap_remove(open);
                let end = End::new(EndReason(self.rng.random_range(0..20)));
                plain(RelayCmd::END, stream, end.encode())
            }
            _ => match self.open.last().copied() {
                Some(stream) => {
                    let data = self.payload();
                    plain(RelayCmd::DATA, stream, data)
                }
                None => self.begin_another(),
            },
        }
    }

    /// A message that an exit may send on existing streams: more than anybody asked for, or an end.
    fn of_exit(&mut self) -> Injected {
        let stream = self.stream();
        match self.rng.random_range(0..12) {
            0 => plain(RelayCmd::END, stream, End::new(EndReason::DONE).encode()),
            1 => {
                let data = self.bytes(30);
                plain(RelayCmd::CONNECTED, stream, data)
            }
            2 => plain(
                RelayCmd::XOFF,
                stream,
                Xoff { version: 0 }.encode().to_vec(),
            ),
            3 => plain(RelayCmd::DROP, 0, Vec::new()),
            _ => {
                let data = self.payload();
                plain(RelayCmd::DATA, stream, data)
            }
        }
    }

    fn of_stream(&mut self) -> Injected {
        match (self.is_wild, self.circuit.is_origin) {
            (false, true) => return self.of_good_stream(),
            (false, false) => return self.of_exit(),
            (true, _) => {}
        }
        let stream = self.stream();
        match self.rng.random_range(0..12) {
            0..3 => {
                self.begun = self.rng.random_range(1..64);
                let data = self.begin();
                plain(RelayCmd::BEGIN, self.begun, data)
            }
            3..6 => {
                let data = self.payload();
                plain(RelayCmd::DATA, self.begun, data)
            }
            6 | 7 => {
                let reason = EndReason(self.rng.random_range(0..20));
                plain(RelayCmd::END, stream, End::new(reason).encode())
            }
            8 => {
                let data = self.bytes(30);
                plain(RelayCmd::CONNECTED, stream, data)
            }
            9 => {
                let name = pick(odd::NAMES, self.rng).unwrap_or_default();
                let mut data = name.as_bytes().to_vec();
                data.push(0);
                plain(RelayCmd::RESOLVE, stream, data)
            }
            10 => {
                let data = self.bytes(60);
                plain(RelayCmd::RESOLVED, stream, data)
            }
            _ => plain(RelayCmd::BEGIN_DIR, stream, Vec::new()),
        }
    }

    fn begin(&mut self) -> Vec<u8> {
        let server = pick(&self.common.servers, self.rng);
        let server = server.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 80)));
        let name = pick(odd::NAMES, self.rng).unwrap_or_default();
        let target = match self.rng.random_range(0..6) {
            0 => name.to_owned(),
            1 => odd::name_of(server.ip()),
            2 => "127.0.0.1".to_owned(),
            _ => server.ip().to_string(),
        };
        let begin = Begin {
            target: target.into_bytes(),
            port: server.port().max(1),
            flags: BeginFlags::default(),
        };
        begin.encode().unwrap_or_default()
    }

    fn data(&mut self) -> Injected {
        let counted = self.rng.random();
        let (stream, data) = (self.stream(), self.payload());
        Injected {
            counted,
            ..plain(RelayCmd::DATA, stream, data)
        }
    }

    fn of_flow(&mut self) -> Injected {
        let stream = self.stream();
        let first = if self.is_wild { 0 } else { 3 };
        match self.rng.random_range(first..7) {
            0 => plain(RelayCmd::SENDME, 0, Vec::new()),
            1 => {
                // Version 1 with a tag of nothing.
                let mut data = vec![1, 0, 20];
                data.extend_from_slice(self.word.get(..20).unwrap_or_default());
                plain(RelayCmd::SENDME, 0, data)
            }
            2 => plain(RelayCmd::SENDME, stream, Vec::new()),
            3 | 4 => plain(
                RelayCmd::XOFF,
                stream,
                Xoff { version: 0 }.encode().to_vec(),
            ),
            5 => {
                let kbps_ewma = pick(&[0, 1, 100, u32::MAX], self.rng).unwrap_or(0);
                plain(
                    RelayCmd::XON,
                    stream,
                    Xon {
                        version: 0,
                        kbps_ewma,
                    }
                    .encode()
                    .to_vec(),
                )
            }
            6 if self.is_wild => {
                let data = self.bytes(8);
                plain(RelayCmd::XON, stream, data)
            }
            _ => {
                let kbps_ewma = self.rng.random_range(0..1_000);
                let xon = Xon {
                    version: 0,
                    kbps_ewma,
                };
                plain(RelayCmd::XON, stream, xon.encode().to_vec())
            }
        }
    }

    fn of_extension(&mut self) -> Injected {
        let early = self.rng.random_bool(0.7);
        match self.rng.random_range(0..4) {
            0 | 1 => {
                let data = self.extend2().encode().unwrap_or_default();
                Injected {
                    early,
                    ..plain(RelayCmd::EXTEND2, 0, data)
                }
            }
            2 => plain(RelayCmd::TRUNCATE, 0, vec![self.rng.random_range(0..12)]),
            _ => Injected {
                early: true,
                ..plain(RelayCmd::DROP, 0, Vec::new())
            },
        }
    }

    /// An extension: to a relay, a client or nobody, by the right address or another.
    fn extend2(&mut self) -> Extend2 {
        let named = pick(&self.common.identities, self.rng);
        let (rsa, ed25519) = match named {
            Some(PeerIdentity::Relay { rsa, ed25519 }) => (rsa, ed25519),
            _ => (RsaIdentity::from([7; 20]), [7; 32].into()),
        };
        let all: Vec<SocketAddr> = (self.common.relays.values().flatten().copied()).collect();
        let own = (self.common.relays.get(&rsa)).and_then(|addrs| addrs.first().copied());
        let addr = match self.rng.random_range(0..4) {
            0 => pick(&all, self.rng),
            1 => Some(SocketAddr::from(([192, 0, 2, 1], 9001))),
            _ => own,
        };
        let ipv4 = match addr {
            Some(SocketAddr::V4(addr)) => Some(addr),
            _ => None,
        };
        Extend2 {
            ipv4,
            ipv6: None,
            rsa: Some(rsa),
            ed25519: self.rng.random_bool(0.8).then_some(ed25519),
            link_specifiers: Vec::new(),
            handshake_type: self.rng.random_range(0..5),
            handshake: self.bytes(128),
        }
    }

    /// A message that the client of a tunnel or a set may send, with numbers that skip some.
    fn of_good_leg(&mut self) -> Injected {
        let mut secret = [0; 16];
        secret.copy_from_slice(self.word.get(..16).unwrap_or(&[0; 16]));
        let skipped = pick(&[0, 0, 0, 1, 3], self.rng).unwrap_or(0);
        match (self.made, self.is_mtor) {
            (1, true) => {
                let data = Multipath { secret }.encode().to_vec();
                plain(RelayCommand::Multipath.wire(), 0, data)
            }
            (1, false) => {
                let link = Link {
                    nonce: self.word,
                    last_seqno_sent: 0,
                    last_seqno_recv: 0,
                    desired_ux: pick(&DesiredUx::ALL, self.rng).unwrap_or(DesiredUx::MinLatency),
                };
                plain(RelayCommand::ConfluxLink.wire(), 0, link.encode().to_vec())
            }
            (_, true) => {
                self.within += 1 + skipped;
                let inner = self.of_good_stream();
                let mut data = self.within.to_be_bytes().to_vec();
                data.push(inner.command.into());
                data.extend(inner.data);
                data.truncate(MAX_DATA);
                let wire = RelayCommand::Subdata.wire();
                Injected {
                    counted: true,
                    ..plain(wire, inner.stream, data)
                }
            }
            (_, false) if skipped > 0 => {
                let data = Switch { relative: skipped }.encode().to_vec();
                plain(RelayCommand::ConfluxSwitch.wire(), 0, data)
            }
            (_, false) => self.of_good_stream(),
        }
    }

    fn of_leg(&mut self) -> Injected {
        if !self.is_wild && self.circuit.is_origin {
            return self.of_good_leg();
        }
        let (stream, near) = (self.stream(), self.rng.random_range(0..4));
        let number = pick(&[0, 1, near, 5_000, u32::MAX], self.rng).unwrap_or(0);
        let mut secret = [0; 16];
        secret.copy_from_slice(self.word.get(..16).unwrap_or(&[0; 16]));
        let (command, stream, data) = match self.rng.random_range(0..12) {
            0 => {
                let link = Link {
                    nonce: self.word,
                    last_seqno_sent: u64::from(number),
                    last_seqno_recv: u64::from(near),
                    desired_ux: pick(&DesiredUx::ALL, self.rng).unwrap_or(DesiredUx::MinLatency),
                };
                let commands = [RelayCommand::ConfluxLink, RelayCommand::ConfluxLinked];
                let command = pick(&commands, self.rng).unwrap_or(RelayCommand::ConfluxLink);
                (command, 0, link.encode().to_vec())
            }
            1 => (RelayCommand::ConfluxLinkedAck, 0, Vec::new()),
            2 | 3 => {
                let data = Switch { relative: number }.encode().to_vec();
                (RelayCommand::ConfluxSwitch, 0, data)
            }
            4 => {
                let data = Multipath { secret }.encode().to_vec();
                (RelayCommand::Multipath, 0, data)
            }
            5 => {
                let tunnel = TunnelId(near);
                let data = Join { tunnel, secret }.encode().to_vec();
                (RelayCommand::Join, 0, data)
            }
            6 => (RelayCommand::MtorDrop, 0, self.bytes(8)),
            7 | 8 => {
                // A number, a command, and its data.
                let mut data = number.to_be_bytes().to_vec();
                data.push(u8::from(pick(&WITHIN, self.rng).unwrap_or(RelayCmd::DATA)));
                data.extend(self.payload());
                data.truncate(MAX_DATA);
                (RelayCommand::Subdata, stream, data)
            }
            9 => (RelayCommand::MtorAck, 0, number.to_be_bytes().to_vec()),
            10 => (RelayCommand::MtorDropped, 0, Vec::new()),
            _ => (RelayCommand::MtorStopped, 0, self.bytes(8)),
        };
        Injected {
            counted: command == RelayCommand::Subdata && self.rng.random(),
            ..plain(command.wire(), stream, data)
        }
    }

    fn of_command(&mut self) -> Injected {
        let command = pick(RelayCommand::ALL, self.rng).unwrap_or(RelayCommand::Drop);
        let stream = match self.rng.random_bool(0.5) {
            true => 0,
            false => self.stream(),
        };
        let data = match self.rng.random_bool(0.3) {
            // A cookie of few.
            true => self.word.get(..20).unwrap_or_default().to_vec(),
            false => self.bytes(MAX_DATA),
        };
        plain(command.wire(), stream, data)
    }

    fn broken(&mut self) -> Injected {
        let command = match self.rng.random_bool(0.5) {
            true => RelayCmd::from(self.rng.random::<u8>()),
            false => RelayCmd::DATA,
        };
        let (stream, data) = (self.stream(), self.bytes(MAX_DATA));
        Injected {
            length: self.rng.random_bool(0.7).then(|| self.rng.random()),
            ..plain(command, stream, data)
        }
    }
}

/// Commands that SUBDATA carries, and one that it does not.
const WITHIN: [RelayCmd; 6] = [
    RelayCmd::DATA,
    RelayCmd::BEGIN,
    RelayCmd::END,
    RelayCmd::XOFF,
    RelayCmd::XON,
    RelayCmd::EXTEND2,
];

fn plain(command: RelayCmd, stream: u16, data: Vec<u8>) -> Injected {
    Injected {
        command,
        stream,
        data,
        length: None,
        early: false,
        counted: false,
    }
}
