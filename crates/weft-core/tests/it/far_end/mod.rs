//! The far end of a tunnel, played message by message with the keys of its circuits: the client of an exit, or the exit of a client.

// Each test binary uses its own part of it.
#![allow(dead_code, unreachable_pub)]

mod circuits;
pub mod play;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use weft_cell::conflux_msg::{DesiredUx, Link};
use weft_cell::link_msg::Destroy;
use weft_cell::mtor_msg::{MtorAck, SequenceNumber, Subdata, TunnelId};
use weft_cell::reason::DestroyReason;
use weft_cell::relay::{self, RelayBody};
use weft_cell::relay_command::{FlowControl, RelayCommand, flow_control, is_multiplexed};
use weft_cell::stream_msg::{BeginFlags, Seen, Sendme};
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_core::address::{ConnectionId, HopIndex, ThreadId};
use weft_core::controller::Sharing;
use weft_core::origin::{OriginCommand, OriginId, StreamOpening};
use weft_core::slots::EdgeKey;
use weft_crypto::circuit::{OriginCircuit, RelayCircuit};

use crate::world::{World, destroy_reason};

/// The name of the tunnel of an origin.
pub const TUNNEL: OriginId = OriginId(50);
/// Name of a conflux set.
pub const NONCE: [u8; 32] = [9; 32];
/// Proof that mTor legs belong to one client.
pub const SECRET: [u8; 16] = [8; 16];
/// The id that the test gives an origin's tunnel.
pub const TUNNEL_ID: TunnelId = TunnelId(0x7766_5544);
/// Cells that one SENDME acknowledges under congestion control.
const SENDME_INC: u8 = 31;

/// The end that the test plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client: the node is an exit.
    Client,
    /// The exit: circuits begin at the node.
    Exit,
}

/// Protocol that joins the legs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Conflux,
    Mtor,
}

/// The far end's keys of a circuit.
enum Crypt {
    Client(OriginCircuit),
    Exit(Box<RelayCircuit>),
}

impl Crypt {
    fn seal(&mut self, body: &mut weft_cell::Body) {
        match self {
            Crypt::Client(crypt) => {
                let sealed = crypt.encrypt_forward(0, ChanCmd::RELAY, body);
                sealed.expect("tor1 can encode any message");
            }
            Crypt::Exit(crypt) => crypt.originate_backward(body).expect("the same"),
        }
    }

    /// True if the message is for the far end.
    fn open(&mut self, body: &mut weft_cell::Body) -> bool {
        match self {
            Crypt::Client(crypt) => crypt.decrypt_backward(body) == Some(0),
            Crypt::Exit(crypt) => {
                let sealed = *body;
                crypt.decrypt_forward_to(ChanCmd::RELAY, &sealed, body)
            }
        }
    }

    fn received(&self) -> Seen {
        match self {
            Crypt::Client(crypt) => crypt.received(0).expect("it has a hop"),
            Crypt::Exit(crypt) => crypt.received(),
        }
    }
}

/// A circuit.
pub struct Leg {
    pub connection: ConnectionId,
    /// Its name at an origin.
    pub circuit: OriginId,
    circ_id: u32,
    crypt: Crypt,
    /// Neither side has closed it.
    pub open: bool,
    /// The reason that the node gave when it closed it.
    pub reason: Option<DestroyReason>,
    /// Digests that SENDMEs must carry for the cells that arrived, oldest first.
    due: VecDeque<Seen>,
    counted: u8,
    /// Messages of the tunnel that the node has sent on it.
    pub received: u64,
}

/// A relay message of the node's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub leg: usize,
    pub command: RelayCommand,
    pub stream: u16,
    pub data: Vec<u8>,
}

/// A world with one node under test, and its far end, which the test plays.
pub struct FarEnd {
    pub world: World,
    pub side: Side,
    pub kind: Kind,
    pub legs: Vec<Leg>,
    vegas: bool,
    /// The id of a tunnel that an exit made.
    pub id: Option<TunnelId>,
    /// The number of the far end's next message.
    pub number: u64,
    /// Numbers of SUBDATA that arrived.
    numbers: BTreeSet<u32>,
    /// Applications' connections at an origin.
    pub applications: Vec<(usize, EdgeKey)>,
    /// Streams that the origin has opened.
    pub opened: Vec<u16>,
}

impl FarEnd {
    /// A node without circuits.
    pub fn new(side: Side, kind: Kind, threads: u16, seed: u64, vegas: bool) -> Self {
        let mut world = World::new(threads, seed);
        match side {
            Side::Client => {
                world.sendme_inc = vegas.then_some(SENDME_INC);
                world.serve_streams = true;
            }
            Side::Exit => {
                world.share(Sharing::PerCircuit {
                    per_relay: 64,
                    total: 1000,
                });
                world.controller.serve_client();
            }
        }
        FarEnd {
            world,
            side,
            kind,
            legs: Vec::new(),
            vegas,
            id: None,
            number: 1,
            numbers: BTreeSet::new(),
            applications: Vec::new(),
            opened: Vec::new(),
        }
    }

    /// Creates a tunnel with this number of legs.
    pub fn with_legs(side: Side, kind: Kind, legs: usize, seed: u64) -> Self {
        let mut far = Self::new(side, kind, 2, seed, true);
        for _ in 0..legs {
            far.add_circuit();
            assert!(far.link(far.legs.len() - 1));
        }
        far
    }

    // ---- messages ----

    /// A message reaches the node, on a circuit that is open.
    pub fn send(&mut self, leg: usize, command: RelayCmd, stream: u16, data: &[u8]) {
        let Some(circuit) = self.legs.get_mut(leg) else {
            return;
        };
        if !circuit.open || !self.world.is_open(circuit.connection) {
            return;
        }
        let mut cell = Cell::new(circuit.circ_id, ChanCmd::RELAY);
        let encoded = relay::encode(cell.body_mut(), command, stream, data, self.world.rng());
        if encoded.is_ok() {
            circuit.crypt.seal(cell.body_mut());
            let connection = circuit.connection;
            self.world.receive(connection, &cell);
        }
    }

    /// A message of a stream, with a number of the test's choice.
    pub fn subdata(&mut self, leg: usize, number: u64, command: u8, stream: u16, data: &[u8]) {
        let [_, _, _, _, a, b, c, d] = number.to_be_bytes();
        let data = [&[a, b, c, d, command][..], data].concat();
        self.send(leg, RelayCommand::Subdata.wire(), stream, &data);
    }

    /// The next message of a stream, as an honest far end sends it. With conflux it must be the turn of the leg.
    pub fn say(&mut self, leg: usize, command: RelayCmd, stream: u16, data: &[u8]) {
        match self.kind {
            Kind::Conflux => self.send(leg, command, stream, data),
            Kind::Mtor => self.subdata(leg, self.number, command.into(), stream, data),
        }
        self.number += 1;
    }

    /// DESTROY reaches the node.
    pub fn destroy(&mut self, leg: usize) {
        let Some(leg) = self.legs.get_mut(leg).filter(|leg| leg.open) else {
            return;
        };
        leg.open = false;
        let reason = DestroyReason::NONE;
        let cell = Destroy { reason }.encode(leg.circ_id);
        let connection = leg.connection;
        if self.world.is_open(connection) {
            self.world.receive(connection, &cell);
        }
    }

    /// Acknowledges what has arrived on a leg, as far as a SENDME is due. False: none is.
    pub fn sendme(&mut self, leg: usize) -> bool {
        let Some(seen) = (self.legs.get_mut(leg)).and_then(|leg| leg.due.pop_front()) else {
            return false;
        };
        let seen = Some(seen);
        let data = Sendme { version: 1, seen }.encode();
        self.send(leg, RelayCmd::SENDME, 0, &data);
        true
    }

    /// Acknowledges everything that has arrived.
    pub fn sendmes(&mut self) {
        for leg in 0..self.legs.len() {
            while self.sendme(leg) {}
        }
    }

    /// Lets everything happen, and reads what the node wrote.
    pub fn collect(&mut self) -> Vec<Message> {
        self.world.settle();
        let mut messages = Vec::new();
        let increment = if self.vegas { SENDME_INC } else { 100 };
        let connections: BTreeSet<ConnectionId> =
            self.legs.iter().map(|leg| leg.connection).collect();
        for connection in connections {
            while let Some(cell) = self.world.take(connection) {
                let of =
                    |leg: &&mut Leg| (leg.connection, leg.circ_id) == (connection, cell.circ_id());
                let Some((number, leg)) =
                    (self.legs.iter_mut().enumerate()).find(|(_, leg)| of(leg))
                else {
                    continue;
                };
                if cell.command() == ChanCmd::DESTROY {
                    leg.open = false;
                    leg.reason = Some(destroy_reason(&cell));
                    continue;
                }
                let mut body = *cell.body();
                if !matches!(cell.command(), ChanCmd::RELAY) || !leg.crypt.open(&mut body) {
                    continue;
                }
                let body = RelayBody::new(&body);
                if flow_control(body.command()) == FlowControl::Counted {
                    leg.counted += 1;
                    if leg.counted >= increment {
                        leg.counted = 0;
                        leg.due.push_back(leg.crypt.received());
                    }
                }
                let command =
                    RelayCommand::of(body.command()).expect("the node sends what it knows");
                let data = body.data().expect("a message fits its cell").to_vec();
                let multiplexed = is_multiplexed(body.command());
                leg.received += u64::from(multiplexed || command == RelayCommand::Subdata);
                let within = match command {
                    RelayCommand::Subdata => {
                        let subdata = Subdata::decode(&data).expect("the node's SUBDATA is one");
                        self.numbers.insert(subdata.sequence.0);
                        subdata.command
                    }
                    other => other,
                };
                if matches!(within, RelayCommand::Begin | RelayCommand::Resolve) {
                    self.opened.push(body.stream_id());
                }
                messages.push(Message {
                    leg: number,
                    command,
                    stream: body.stream_id(),
                    data,
                });
            }
        }
        messages
    }

    /// The data of the only message of this command that the node sent on a circuit since.
    pub fn take(&mut self, leg: usize, command: RelayCommand) -> Option<Vec<u8>> {
        let messages = self.collect();
        let mut found = (messages.into_iter())
            .filter(|message| (message.leg, message.command) == (leg, command));
        Some(found.next()?.data)
    }

    /// The number of the first SUBDATA that has not arrived.
    pub fn next_missing(&self) -> u32 {
        (1..).find(|number| !self.numbers.contains(number)).unwrap()
    }

    /// MTOR_ACK reaches the node.
    pub fn acknowledge(&mut self, leg: usize, next: u32) {
        let next = SequenceNumber(next);
        let command = RelayCommand::MtorAck.wire();
        self.send(leg, command, 0, &MtorAck { next }.encode());
    }

    // ---- streams ----

    /// A stream on the tunnel, by its first leg: its id.
    pub fn open_stream(&mut self, leg: usize) -> u16 {
        match self.side {
            Side::Client => {
                let id = 1;
                self.say(leg, RelayCmd::BEGIN, id, b"example.com:80\0\0\0\0\0");
                self.collect();
                id
            }
            Side::Exit => {
                self.attach(TUNNEL);
                let id = *self.opened.last().expect("BEGIN");
                self.say(leg, RelayCmd::CONNECTED, id, &[]);
                self.collect();
                id
            }
        }
    }

    /// An application at the origin asks for a stream.
    pub fn attach(&mut self, circuit: OriginId) {
        let number = self.applications.len();
        let id = ConnectionId(u64::MAX - number as u64);
        let thread = number % self.world.managers.len();
        (self.world.controller).place_at(id, ThreadId(thread as u16));
        let edge = self.world.managers[thread]
            .edges_mut()
            .adopt_application(id)
            .unwrap();
        self.applications.push((thread, edge));
        self.command(OriginCommand::Attach {
            stream: id,
            circuit,
            hop: HopIndex(0),
            opening: StreamOpening::Begin {
                host: "example.com".to_owned(),
                port: 80,
                flags: BeginFlags::default(),
            },
        });
        self.collect();
    }

    /// The sockets of the node's streams.
    pub fn edges(&self) -> &[(usize, EdgeKey)] {
        match self.side {
            Side::Client => &self.world.edges,
            Side::Exit => &self.applications,
        }
    }

    /// The socket of the node's stream of this number gives it bytes: how many it took.
    pub fn write(&mut self, stream: usize, bytes: usize) -> usize {
        let (thread, edge) = self.edges()[stream];
        let now = self.world.now;
        let manager = &mut self.world.managers[thread];
        let room = manager.edge_room(edge, now).min(bytes);
        manager.edge_data(edge, &vec![7; room], now);
        room
    }

    /// The application of a stream at the node takes all bytes: the bytes.
    pub fn read(&mut self, stream: usize) -> Vec<u8> {
        let (thread, edge) = self.edges()[stream];
        let now = self.world.now;
        let manager = &mut self.world.managers[thread];
        let bytes = manager.edges().out(edge).0.to_vec();
        manager.edge_wrote(edge, bytes.len(), now);
        bytes
    }

    /// True if bytes of the node's first stream still arrive here, by the legs that are open.
    /// Acknowledges all cells that have arrived.
    pub fn still_receives(&mut self) -> bool {
        let count = |far: &FarEnd| -> u64 { far.legs.iter().map(|leg| leg.received).sum() };
        self.sendmes();
        self.collect();
        let before = count(self);
        self.write(0, 1000);
        self.collect();
        count(self) > before
    }

    /// Time passes; timers run.
    pub fn pass(&mut self, time: Duration) {
        self.world.pass(time);
    }

    /// Numbers of legs that the node has closed, with its reasons.
    pub fn closed(&self) -> Vec<(usize, DestroyReason)> {
        let legs = self.legs.iter().enumerate();
        legs.filter_map(|(number, leg)| Some((number, leg.reason?)))
            .collect()
    }

    /// True if the node still has the tunnel.
    pub fn has_tunnel(&self) -> bool {
        self.world.controller.tunnels() > 0
    }

    /// Legs that the node has not closed.
    pub fn open_legs(&self) -> usize {
        self.legs.iter().filter(|leg| leg.open).count()
    }
}

/// The content of CONFLUX_LINK and CONFLUX_LINKED.
pub fn link_message(sent: u64, received: u64) -> [u8; 50] {
    Link {
        nonce: NONCE,
        last_seqno_sent: sent,
        last_seqno_recv: received,
        desired_ux: DesiredUx::HighThroughput,
    }
    .encode()
}
