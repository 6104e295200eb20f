//! The circuit machine: connection managers and the controller, with peers that send anything and
//! messages that arrive in any order.
//!
//! Input: one byte of how many threads (1 to 3), then operations: a byte of which, and its
//! arguments, as [`Play::operate`] reads them. What is missing at the end is zero.
//!
//! After every operation the tables of each thread fit together; when all messages have arrived, those
//! of all threads and of the controller do: every edge has one stream, and every stream one edge or one
//! decision that it waits for; when all connections have closed, nothing is left.
#![no_main]

// The same relay without sockets that weft-core's own tests run.
#[path = "../../crates/weft-core/tests/it/world/mod.rs"]
mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tor_llcrypto::pk::ed25519::Keypair;
use weft_cell::circ_msg::{CreateReply, CreateRequest};
use weft_cell::circpad_msg::{CircpadCommand, CircpadNegotiate};
use weft_cell::conflux_msg::{DesiredUx, Link, Switch};
use weft_cell::hs_msg::ESTABLISH_INTRO_PREFIX;
use weft_cell::link_msg::Destroy;
use weft_cell::mtor_msg::{
    self, Join, MtorAck, MtorDrop, Multipath, MultipathAck, SequenceNumber, TunnelId,
};
use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::relay::RelayBody;
use weft_cell::relay_command::RelayCommand;
use weft_cell::stream_msg::End;
use weft_cell::{Cell, ChanCmd, RelayCmd, relay};
use weft_core::address::ConnectionId;
use weft_core::controller::Sharing;
use weft_core::handshake::PeerIdentity;
use weft_core::link::loss::TcpCounters;
use weft_core::origin::LinkFailure;
use weft_crypto::circuit::OriginCircuit;
use weft_crypto::handshake::fast;
use weft_crypto::intro::{KH_LEN, handshake_auth};
use weft_fuzz::{Bytes, zero_padded};
use world::{Circuit, World, relay_identity};

/// Operations of one input at most, so that none takes long.
const MAX_OPERATIONS: usize = 2000;
/// Links that the input may open.
const MAX_LINKS: usize = 12;
/// Failures of connections that end their circuits for different reasons.
const FAILURES: [LinkFailure; 4] = [
    LinkFailure::Refused,
    LinkFailure::Identity,
    LinkFailure::Resource,
    LinkFailure::Other,
];

/// A circuit id: one of eight that a client may choose, of eight that it may not, or none.
fn circ_id(input: &mut Bytes<'_>) -> u32 {
    match input.byte() {
        255 => 0,
        id if id & 0x80 != 0 => u32::from(id & 7) + 1,
        id => 0x8000_0001 + u32::from(id & 7),
    }
}

/// What the peers know.
struct Play {
    world: World,
    links: Vec<ConnectionId>,
    /// Circuits that clients asked for, by connection and circuit id.
    asked: BTreeMap<(ConnectionId, u32), fast::ClientState>,
    /// Circuits that clients have the keys of.
    circuits: BTreeMap<(ConnectionId, u32), OriginCircuit>,
    /// And the KH of their handshakes.
    khs: BTreeMap<(ConnectionId, u32), [u8; KH_LEN]>,
    /// Circuits that the relay extended to a peer.
    extended: Vec<(ConnectionId, u32)>,
    /// Tunnels that it made.
    tunnels: Vec<TunnelId>,
}

impl Play {
    fn new(threads: u16) -> Self {
        let mut world = World::new(threads, 1);
        world.serve_streams = true;
        Play {
            world,
            links: Vec::new(),
            asked: BTreeMap::new(),
            circuits: BTreeMap::new(),
            khs: BTreeMap::new(),
            extended: Vec::new(),
            tunnels: Vec::new(),
        }
    }

    /// One operation.
    fn operate(&mut self, input: &mut Bytes<'_>) {
        match input.byte() % 23 {
            0 => self.open(PeerIdentity::Unauthenticated, input),
            1 => {
                let peer = relay_identity(input.byte() % 4 + 1);
                self.open(peer, input);
            }
            // Anything at all on a link.
            2 => {
                let (circ_id, command) = (circ_id(input), ChanCmd::from(input.byte() % 128));
                let mut cell = Cell::new(circ_id, command);
                *cell.body_mut() = zero_padded(input.data());
                self.receive(input, &cell);
            }
            3 => {
                if let Some(connection) = self.link(input) {
                    let bytes = input.data();
                    // A prefix of a cell may stay; what is no cell ends the link.
                    if self.world.receive_bytes(connection, bytes).is_err() {
                        self.close(connection);
                    }
                }
            }
            4 | 5 => self.create(input),
            6..=8 => self.relay(input),
            // A next hop answers, sends a cell, or refuses.
            9 => self.answer(input),
            10 => {
                if let Some((connection, circ_id)) = input.pick(&self.extended).copied() {
                    let mut cell = Cell::new(circ_id, ChanCmd::RELAY);
                    *cell.body_mut() = zero_padded(input.data());
                    self.send(connection, &cell);
                }
            }
            11 => {
                let reason = DestroyReason::from(input.byte());
                let cell = Destroy { reason }.encode(circ_id(input));
                self.receive(input, &cell);
            }
            // Messages arrive, in an order that the input chooses.
            12..=14 => {
                for _ in 0..input.byte() % 8 + 1 {
                    if !self.world.step(usize::from(input.byte())) {
                        break;
                    }
                }
            }
            15 => self.connect(input),
            16 => {
                self.world
                    .pass(Duration::from_millis(250) * u32::from(input.byte()));
            }
            17 => {
                if let Some(connection) = self.link(input) {
                    self.close(connection);
                }
            }
            18 => match input.byte() % 10 {
                0 => self.world.room = u32::from(input.byte()),
                1 => self.world.room = u32::MAX,
                2 => self.world.not_reading.clear(),
                3 => self.world.not_reading.extend(self.links.last()),
                4 => self.world.answer_onionskins = false,
                5 => self.world.answer_onionskins = true,
                6 => self.free_memory(input),
                7 => self.world.sendme_inc = Some(31),
                8 => self.world.sendme_inc = None,
                _ => self.world.controller.set_draining(true),
            },
            19 => self.world.settle(),
            20 => self.stream(input),
            21 => self.decide(input),
            _ => self.share(input),
        }
        self.read();
        self.links.retain(|link| self.world.is_open(*link));
    }

    /// The socket of a stream that a circuit asked for has bytes, takes some, or is done.
    fn stream(&mut self, input: &mut Bytes<'_>) {
        let Some((thread, edge)) = input.pick(&self.world.edges).copied() else {
            return;
        };
        let now = self.world.now;
        let manager = &mut self.world.managers[thread];
        match input.byte() % 4 {
            0 => {
                let bytes = input.data();
                let room = manager.edge_room(edge, now).min(bytes.len());
                manager.edge_data(edge, &bytes[..room], now);
            }
            1 => {
                let room = manager.edge_room(edge, now);
                manager.edge_data(edge, &vec![7; room], now);
            }
            2 => {
                let (bytes, _) = manager.edges().out(edge);
                let taken = bytes.len().min(usize::from(input.byte()) * 256);
                manager.edge_wrote(edge, taken, now);
            }
            _ => manager.end_edge(edge, EndReason::from(input.byte()), now),
        }
    }

    /// Streams wait for a decision, or one that waits gets it, whatever has become of it meanwhile.
    fn decide(&mut self, input: &mut Bytes<'_>) {
        match input.byte() % 4 {
            0 => self.world.serve_streams = false,
            1 => self.world.serve_streams = true,
            how if !self.world.streams.is_empty() => {
                let at = usize::from(input.byte()) % self.world.streams.len();
                let request = self.world.streams.remove(at);
                if how == 2 {
                    return self.world.serve(&request);
                }
                let end = End::new(EndReason::from(input.byte()));
                self.world.controller.refuse_stream(request.at.addr, &end);
                self.world.do_actions();
            }
            _ => {}
        }
    }

    /// Circuits share connections by another rule, or the kernel has counted something of a link.
    fn share(&mut self, input: &mut Bytes<'_>) {
        let how = input.byte();
        let (per_relay, total) = (usize::from(how / 8 % 4), 12);
        let sharing = match how % 8 {
            0 => Sharing::All,
            1 => Sharing::PerCircuit { per_relay, total },
            2 => Sharing::Auto { per_relay, total },
            _ => return self.count_losses(input),
        };
        self.world.share(sharing);
    }

    /// Seconds in which segments of a link were lost, or none.
    fn count_losses(&mut self, input: &mut Bytes<'_>) {
        let Some(connection) = self.link(input) else {
            return;
        };
        let (seconds, step) = (input.byte() % 20, u32::from(input.byte()));
        let now = self.world.now;
        for manager in &mut self.world.managers {
            let Some(link) = manager.links().of(connection) else {
                continue;
            };
            if !manager.watches_loss(link) {
                continue;
            }
            for second in 0..=u32::from(seconds) {
                let counters = TcpCounters {
                    sent: second * 1000,
                    retransmitted: second * step,
                    received: second.wrapping_mul(step << 24),
                    out_of_order: second * step,
                    round_trip: Duration::from_millis(step.into()),
                };
                let at = now + Duration::from_secs(second.into());
                manager.links_mut().tcp_read(link, counters, at);
            }
        }
    }

    fn link(&self, input: &mut Bytes<'_>) -> Option<ConnectionId> {
        input.pick(&self.links).copied()
    }

    fn open(&mut self, peer: PeerIdentity, input: &mut Bytes<'_>) {
        if self.links.len() < MAX_LINKS {
            let thread = usize::from(input.byte()) % self.world.managers.len();
            let link = self.world.link_on(thread, peer);
            self.links.push(link);
        }
    }

    fn close(&mut self, connection: ConnectionId) {
        self.world.close(connection);
        self.asked.retain(|(on, _), _| *on != connection);
        self.circuits.retain(|(on, _), _| *on != connection);
        self.extended.retain(|(on, _)| *on != connection);
    }

    /// Lets the relay receive a cell on a link that the input chooses.
    fn receive(&mut self, input: &mut Bytes<'_>, cell: &Cell) {
        if let Some(connection) = self.link(input) {
            self.send(connection, cell);
        }
    }

    /// Lets the relay receive a cell.
    fn send(&mut self, connection: ConnectionId, cell: &Cell) {
        if self.world.is_open(connection)
            && self
                .world
                .receive_bytes(connection, cell.as_bytes())
                .is_err()
        {
            self.close(connection);
        }
    }

    /// CREATE_FAST, whose answer can be used.
    fn create(&mut self, input: &mut Bytes<'_>) {
        let circ_id = circ_id(input);
        let Some(connection) = self.link(input) else {
            return;
        };
        let state = fast::ClientState::start(self.world.rng());
        let request = CreateRequest::Fast { x: *state.x() };
        if let Ok(cell) = request.encode(circ_id) {
            self.send(connection, &cell);
            self.asked.insert((connection, circ_id), state);
        }
    }

    /// A relay cell, rightly encrypted, for the relay under test or for a hop beyond it.
    fn relay(&mut self, input: &mut Bytes<'_>) {
        let known: Vec<(ConnectionId, u32)> = self.circuits.keys().copied().collect();
        let Some((connection, circ_id)) = input.pick(&known).copied() else {
            return;
        };
        let how = input.byte();
        let (command, data) = match how & 15 {
            0..=2 => (
                RelayCmd::EXTEND2,
                Circuit::extend_message(input.byte() % 5 + 1, &[1; 84]),
            ),
            3 => (RelayCmd::TRUNCATE, vec![input.byte()]),
            4 => (RelayCmd::DROP, Vec::new()),
            5 => (RelayCmd::BEGIN, b"a:80\0".to_vec()),
            6 => (RelayCmd::DATA, vec![7; 498]),
            7 => (RelayCmd::ESTABLISH_RENDEZVOUS, vec![input.byte() % 4; 20]),
            8 => (
                RelayCmd::RENDEZVOUS1,
                [vec![input.byte() % 4; 20], vec![3; 64]].concat(),
            ),
            9..=12 => self.of_tunnel(input),
            13 => self.of_onion_service((connection, circ_id), input),
            _ => (RelayCmd::from(input.byte()), input.data().to_vec()),
        };
        let outer = match how & 16 {
            0 => ChanCmd::RELAY_EARLY,
            _ => ChanCmd::RELAY,
        };
        let stream = u16::from(how & 32 != 0);
        let mut cell = Cell::new(circ_id, outer);
        if relay::encode(cell.body_mut(), command, stream, &data, self.world.rng()).is_err() {
            return;
        }
        let Some(crypt) = self.circuits.get_mut(&(connection, circ_id)) else {
            return;
        };
        // Past its only hop the circuit's cells are noise, which is what a relay sees.
        if how & 64 == 0 {
            crypt
                .encrypt_forward(0, outer, cell.body_mut())
                .expect("tor1 can encode any message");
        }
        self.send(connection, &cell);
    }

    /// A message of conflux or of mTor, of a few sets and tunnels.
    fn of_tunnel(&self, input: &mut Bytes<'_>) -> (RelayCmd, Vec<u8>) {
        let (how, number) = (input.byte(), input.byte());
        let secret = [number % 3; mtor_msg::SECRET_LEN];
        match how % 8 {
            0 => {
                let link = Link {
                    nonce: [number % 3; 32],
                    last_seqno_sent: u64::from(number / 64),
                    last_seqno_recv: u64::from(number / 128),
                    desired_ux: DesiredUx::of(number % 5).unwrap_or(DesiredUx::NoOpinion),
                };
                (RelayCmd::CONFLUX_LINK, link.encode().to_vec())
            }
            1 => (RelayCmd::CONFLUX_LINKED_ACK, Vec::new()),
            2 => {
                let relative = u32::from(number) * u32::from(number);
                (
                    RelayCmd::CONFLUX_SWITCH,
                    Switch { relative }.encode().to_vec(),
                )
            }
            3 => {
                let data = Multipath { secret }.encode();
                (RelayCommand::Multipath.wire(), data.to_vec())
            }
            4 => {
                let tunnel = input.pick(&self.tunnels).copied().unwrap_or(TunnelId(7));
                let data = Join { tunnel, secret }.encode();
                (RelayCommand::Join.wire(), data.to_vec())
            }
            5 => {
                let received = u64::from(number);
                let data = MtorDrop { received }.encode();
                (RelayCommand::MtorDrop.wire(), data.to_vec())
            }
            6 => {
                let next = SequenceNumber(u32::from(number));
                let data = MtorAck { next }.encode();
                (RelayCommand::MtorAck.wire(), data.to_vec())
            }
            _ => {
                let within = match how / 8 % 5 {
                    0 => [&[1][..], b"a:80\0"].concat(),
                    1 => [&[2][..], &[7; 400]].concat(),
                    2 => vec![3, 6],
                    3 => vec![43, 0],
                    _ => input.data().to_vec(),
                };
                let sequence = u32::from(number).to_be_bytes();
                (
                    RelayCommand::Subdata.wire(),
                    [&sequence[..], &within].concat(),
                )
            }
        }
    }

    /// A message of one of three onion services, of its clients, or about padding.
    fn of_onion_service(
        &self,
        circuit: (ConnectionId, u32),
        input: &mut Bytes<'_>,
    ) -> (RelayCmd, Vec<u8>) {
        let (how, number) = (input.byte(), input.byte());
        let key = Keypair::from_bytes(&[number % 3; 32]);
        let public = key.verifying_key().to_bytes();
        match how % 3 {
            0 => {
                let defense = [&[1, 1, 10, 1, 1][..], &u64::from(how).to_be_bytes()].concat();
                let extensions = if how & 64 == 0 { vec![0] } else { defense };
                let mut data = [&[2, 0, 32][..], &public, &extensions].concat();
                let kh = self.khs.get(&circuit).copied().unwrap_or_default();
                data.extend(handshake_auth(&kh, &data));
                let signed = [ESTABLISH_INTRO_PREFIX, &data].concat();
                let signature = key.sign(&signed).to_bytes();
                data.extend([0, 64].into_iter().chain(signature));
                (RelayCmd::ESTABLISH_INTRO, data)
            }
            1 => {
                let start = [&[0; 20][..], &[2, 0, 32], &public, &[0]].concat();
                let length = usize::from(input.byte()) * 2;
                let data = [&start[..], &vec![7; length.min(442)]].concat();
                (RelayCmd::INTRODUCE1, data)
            }
            _ => {
                let asked = CircpadNegotiate {
                    command: match how & 64 {
                        0 => CircpadCommand::Start,
                        _ => CircpadCommand::Stop,
                    },
                    machine: number % 3,
                    counter: u32::from(number / 3 % 4),
                };
                (RelayCmd::PADDING_NEGOTIATE, asked.encode().to_vec())
            }
        }
    }

    /// A relay cell reaches the client of a circuit, who learns of tunnels.
    fn read_relay(&mut self, circuit: (ConnectionId, u32), cell: &Cell) {
        let Some(crypt) = self.circuits.get_mut(&circuit) else {
            return;
        };
        let mut body = *cell.body();
        if crypt.decrypt_backward(&mut body) != Some(0) {
            return;
        }
        let body = RelayBody::new(&body);
        if let Some(RelayCommand::MultipathAck) = RelayCommand::of(body.command())
            && let Ok(ack) = body
                .data()
                .map_or(Err(()), |data| MultipathAck::decode(data).map_err(|_| ()))
        {
            self.tunnels.push(ack.tunnel);
        }
    }

    /// CREATED2 of the next hop, of any length.
    fn answer(&mut self, input: &mut Bytes<'_>) {
        if let Some((connection, circ_id)) = input.pick(&self.extended).copied() {
            let data = input.data().to_vec();
            if let Ok(cell) = (CreateReply::Created2 { data }).encode(circ_id) {
                self.send(connection, &cell);
            }
        }
    }

    /// A connection that the controller wanted comes up, to the right relay or another, or fails.
    fn connect(&mut self, input: &mut Bytes<'_>) {
        if self.world.connects.is_empty() {
            return;
        }
        let at = usize::from(input.byte()) % self.world.connects.len();
        let connect = self.world.connects.remove(at);
        let thread = usize::from(connect.thread.0);
        match input.byte() {
            how if how & 1 == 0 => {
                let peer = relay_identity(how / 2 % 5 + 1);
                self.world.open(connect.connection, thread, true, peer);
                self.links.push(connect.connection);
            }
            how => self.world.managers[thread].links_mut().connection_failed(
                connect.connection,
                FAILURES[usize::from(how / 2) % FAILURES.len()],
            ),
        }
    }

    fn free_memory(&mut self, input: &mut Bytes<'_>) {
        let weight = 1 << (input.byte() % 64);
        let bytes = u64::from(input.byte()) << 10;
        self.world.free_heavier(weight, bytes);
    }

    /// The peers read what the relay wrote.
    fn read(&mut self) {
        let connections: Vec<ConnectionId> = self.world.written.keys().copied().collect();
        for connection in connections {
            while let Some(cell) = self.world.take(connection) {
                let circuit = (connection, cell.circ_id());
                match cell.command() {
                    ChanCmd::CREATED_FAST => self.created(circuit, &cell),
                    ChanCmd::CREATE2 => self.extended.push(circuit),
                    ChanCmd::DESTROY => {
                        self.circuits.remove(&circuit);
                    }
                    ChanCmd::RELAY | ChanCmd::RELAY_EARLY => {
                        assert_ne!(cell.circ_id(), 0, "a relay cell is on a circuit");
                        self.read_relay(circuit, &cell);
                    }
                    ChanCmd::CREATED2 | ChanCmd::PADDING | ChanCmd::PADDING_NEGOTIATE => {}
                    other => panic!("the relay sent {other}"),
                }
            }
        }
    }

    /// The answer to a CREATE_FAST is right.
    fn created(&mut self, circuit: (ConnectionId, u32), cell: &Cell) {
        // A CREATE_FAST that came while the circuit was there was ignored: its answer never comes,
        // and this one may be to the one before.
        if let Some(state) = self.asked.remove(&circuit)
            && let Ok(CreateReply::Fast { y, kh }) =
                CreateReply::decode(cell.command(), cell.body())
            && let Ok(keys) = state.finish(&y, &kh)
        {
            let mut crypt = OriginCircuit::new();
            self.khs.insert(circuit, keys.kh);
            crypt.add_hop(&keys.into());
            self.circuits.insert(circuit, crypt);
        }
    }

    /// Every connection that is being opened fails.
    fn fail_connects(&mut self) {
        for connect in std::mem::take(&mut self.world.connects) {
            let thread = usize::from(connect.thread.0);
            self.world.managers[thread]
                .links_mut()
                .connection_failed(connect.connection, LinkFailure::Refused);
        }
        self.world.settle();
    }

    /// Everybody goes.
    fn end(mut self) {
        self.world.room = u32::MAX;
        self.world.not_reading.clear();
        self.world.settle();
        self.world.audit_at_rest();
        self.read();
        // Nothing waits for a reader who reads.
        for manager in &self.world.managers {
            assert!(manager.links().listed().is_empty());
            assert!(!manager.has_backlog());
        }
        let links = self
            .world
            .managers
            .iter()
            .map(|manager| manager.links().len());
        assert_eq!(
            self.world.controller.connections(),
            links.sum::<usize>() + self.world.connects.len(),
            "the controller knows the connections"
        );
        for link in std::mem::take(&mut self.links) {
            if self.world.is_open(link) {
                self.world.close(link);
            }
        }
        self.fail_connects();
        // What waited for a connection may have joined a link that had just closed: then it asked for another one.
        // Now there is no link to join.
        self.fail_connects();
        self.world.audit();
        assert_eq!(self.world.halves(), 0, "every half has closed");
        self.world.settle();
        let introductions = self.world.controller.introductions();
        assert_eq!(introductions, 0, "no key outlives its circuit");
        // Decisions that come too late.
        for request in std::mem::take(&mut self.world.streams) {
            self.world.serve(&request);
        }
        self.world.settle();
        // Streams whose circuits have gone only wait for their sockets.
        for (thread, edge) in std::mem::take(&mut self.world.edges) {
            let manager = &mut self.world.managers[thread];
            assert!(manager.edges().out(edge).1, "a stream outlives its circuit");
            manager.end_edge(edge, EndReason::DONE, self.world.now);
        }
        self.world.settle();
        self.world.audit_at_rest();
        for manager in &self.world.managers {
            assert_eq!(manager.edges().len(), 0);
        }
        assert_eq!(self.world.controller.connections(), 0);
        assert!(self.world.connects.is_empty());
        for manager in &self.world.managers {
            assert_eq!(manager.links().len(), 0);
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Bytes::new(input);
    let mut play = Play::new(u16::from(input.byte() % 3) + 1);
    for _ in 0..MAX_OPERATIONS {
        if input.is_empty() {
            break;
        }
        play.operate(&mut input);
        play.world.audit();
    }
    play.end();
});
