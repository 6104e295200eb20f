//! A client's circuit through the relay, and its next hop, played cell by cell.

use tor_cell::relaycell::extend::{CcRequest, CircRequestExt};
use weft_cell::circ_msg::{CreateReply, CreateRequest, Extend2, Extended2};
use weft_cell::identity::Ed25519Identity;
use weft_cell::link_msg::Destroy;
use weft_cell::reason::DestroyReason;
use weft_cell::relay::{self, RelayBody};
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_core::address::ConnectionId;
use weft_core::handshake::PeerIdentity;
use weft_crypto::HopKeys;
use weft_crypto::circuit::OriginCircuit;
use weft_crypto::handshake::{self, OnionKeys, ReplyParams, ntor, ntor_v3};
use weft_crypto::relay_cell::RelayCrypt;

use super::relay::{OWN_ED, OWN_RSA, World};

/// A peer that is no relay.
pub const CLIENT: PeerIdentity = PeerIdentity::Unauthenticated;

/// A client's circuit through the relay, and the next hop beyond it, both played by the test.
pub struct Circuit {
    /// The client's connection, and its circuit id there.
    pub client: (ConnectionId, u32),
    /// The client's keys.
    pub crypt: OriginCircuit,
    /// KH of the handshake with the relay.
    pub kh: [u8; 20],
    /// The next hop's connection and circuit id, once extended.
    pub next: Option<(ConnectionId, u32)>,
    /// The next hop's keys.
    pub next_crypt: Option<RelayCrypt>,
}

/// The identity of a relay that the test plays.
pub fn relay_identity(number: u8) -> PeerIdentity {
    PeerIdentity::Relay {
        rsa: [number; 20].into(),
        ed25519: [number; 32].into(),
    }
}

impl Circuit {
    /// CREATE2 and its answer.
    pub fn create(world: &mut World, connection: ConnectionId, circ_id: u32) -> Self {
        let state =
            ntor::ClientState::start(&OWN_RSA, &world.onion_keys.current_public(), world.rng());
        let create = CreateRequest::Create2 {
            handshake_type: 2,
            data: state.onionskin().to_vec(),
        };
        world.receive(connection, &create.encode(circ_id).unwrap());
        world.settle();
        let cell = world.expect(connection, ChanCmd::CREATED2);
        assert_eq!(cell.circ_id(), circ_id);
        let CreateReply::Created2 { data } =
            CreateReply::decode(cell.command(), cell.body()).unwrap()
        else {
            panic!("CREATED2 expected");
        };
        Self::with_keys((connection, circ_id), &state.finish(&data).unwrap().into())
    }

    /// Creates a circuit with ntor-v3 and Counter Galois Onion.
    pub fn create_cgo(world: &mut World, connection: ConnectionId, circ_id: u32) -> Self {
        world.sendme_inc = Some(31);
        let asks = [
            CcRequest::default().into(),
            CircRequestExt::SubprotocolRequest(ntor_v3::cgo_alone()),
        ];
        let public = world.onion_keys.current_public();
        let (state, data) =
            ntor_v3::ClientState::start(&OWN_ED, &public, &asks, world.rng()).unwrap();
        let handshake_type = 3;
        let create = CreateRequest::Create2 {
            handshake_type,
            data,
        };
        world.receive(connection, &create.encode(circ_id).unwrap());
        world.settle();
        let cell = world.expect(connection, ChanCmd::CREATED2);
        let CreateReply::Created2 { data } =
            CreateReply::decode(cell.command(), cell.body()).unwrap()
        else {
            panic!("CREATED2 expected");
        };
        let circuit = Self::with_keys((connection, circ_id), &state.finish(&data).unwrap().1);
        assert!(circuit.crypt.is_cgo(0));
        circuit
    }

    fn with_keys(client: (ConnectionId, u32), keys: &HopKeys) -> Self {
        let mut crypt = OriginCircuit::new();
        crypt.add_hop(keys);
        Circuit {
            client,
            crypt,
            kh: *keys.kh(),
            next: None,
            next_crypt: None,
        }
    }

    /// A relay cell from the client for one of its hops.
    pub fn forward(
        &mut self,
        world: &mut World,
        hop: usize,
        outer: ChanCmd,
        command: RelayCmd,
        stream: u16,
        data: &[u8],
    ) -> Cell {
        let mut cell = Cell::new(self.client.1, outer);
        relay::encode(cell.body_mut(), command, stream, data, world.rng()).unwrap();
        self.crypt
            .encrypt_forward(hop, outer, cell.body_mut())
            .unwrap();
        cell
    }

    /// Hands a forward cell to the relay.
    pub fn send(&mut self, world: &mut World, hop: usize, command: RelayCmd, data: &[u8]) {
        let outer = match command {
            RelayCmd::EXTEND2 => ChanCmd::RELAY_EARLY,
            _ => ChanCmd::RELAY,
        };
        let cell = self.forward(world, hop, outer, command, 1, data);
        world.receive(self.client.0, &cell);
    }

    /// A message that is about the circuit, from the client for its first hop, handed to the relay.
    pub fn send_to_circuit(&mut self, world: &mut World, command: RelayCmd, data: &[u8]) {
        let cell = self.forward(world, 0, ChanCmd::RELAY, command, 0, data);
        world.receive(self.client.0, &cell);
    }

    /// EXTEND2 to a relay.
    pub fn extend_message(to: u8, onionskin: &[u8]) -> Vec<u8> {
        Extend2 {
            ipv4: Some(format!("127.0.0.{to}:9001").parse().unwrap()),
            rsa: Some([to; 20].into()),
            ed25519: Some([to; 32].into()),
            handshake_type: 2,
            handshake: onionskin.to_vec(),
            ..Extend2::default()
        }
        .encode()
        .unwrap()
    }

    /// EXTEND2 to relay `to` at an address of the client's choice.
    pub fn extend_message_at(to: u8, addr: &str, ed25519: Ed25519Identity) -> Vec<u8> {
        Extend2 {
            ipv4: Some(addr.parse().unwrap()),
            rsa: Some([to; 20].into()),
            ed25519: Some(ed25519),
            handshake_type: 2,
            handshake: vec![1; 84],
            ..Extend2::default()
        }
        .encode()
        .unwrap()
    }

    /// EXTEND2 to relay `to`, whose link is `connection`, and its answer.
    pub fn extend(&mut self, world: &mut World, to: u8, connection: ConnectionId) {
        let keys = OnionKeys::new([to; 20].into(), [to; 32].into(), &[to; 32], None);
        let state = ntor::ClientState::start(&[to; 20].into(), &keys.current_public(), world.rng());
        let message = Self::extend_message(to, &state.onionskin());
        self.send(world, 0, RelayCmd::EXTEND2, &message);
        world.settle();
        let create = world.expect(connection, ChanCmd::CREATE2);
        let request = CreateRequest::decode(create.command(), create.body()).unwrap();
        let answer =
            handshake::negotiate(&request, &keys, &ReplyParams::default(), world.rng()).unwrap();
        let created = answer.reply.encode(create.circ_id()).unwrap();
        world.receive(connection, &created);
        world.settle();
        let (hop, command, data) = self.backward(world);
        assert_eq!((hop, command), (0, RelayCmd::EXTENDED2));
        let extended = Extended2::decode(&data).unwrap();
        self.crypt
            .add_hop(&state.finish(&extended.data).unwrap().into());
        self.next = Some((connection, create.circ_id()));
        self.next_crypt = Some(RelayCrypt::new(answer.keys.tor1().expect("tor1")));
    }

    /// The next relay cell toward the client, decrypted: hop, command, data.
    pub fn backward(&mut self, world: &mut World) -> (usize, RelayCmd, Vec<u8>) {
        let mut cell = world.expect(self.client.0, ChanCmd::RELAY);
        assert_eq!(cell.circ_id(), self.client.1);
        let hop = self
            .crypt
            .decrypt_backward(cell.body_mut())
            .expect("a cell that the client recognizes");
        let body = RelayBody::new(cell.body());
        (hop, body.command(), body.data().unwrap().to_vec())
    }

    /// The next relay cell at the next hop, decrypted.
    pub fn at_next(&mut self, world: &mut World) -> (ChanCmd, RelayCmd, Vec<u8>) {
        let (connection, circ_id) = self.next.unwrap();
        let mut cell = world.take(connection).expect("a cell at the next hop");
        assert_eq!(cell.circ_id(), circ_id);
        assert!(
            self.next_crypt
                .as_mut()
                .unwrap()
                .decrypt_forward(cell.body_mut())
        );
        let body = RelayBody::new(cell.body());
        (
            cell.command(),
            body.command(),
            body.data().unwrap().to_vec(),
        )
    }

    /// A relay cell from the next hop toward the client, handed to the relay.
    pub fn answer(&mut self, world: &mut World, data: &[u8]) {
        let (connection, circ_id) = self.next.unwrap();
        let mut cell = Cell::new(circ_id, ChanCmd::RELAY);
        relay::encode(cell.body_mut(), RelayCmd::DATA, 1, data, world.rng()).unwrap();
        self.next_crypt
            .as_mut()
            .unwrap()
            .originate_backward(cell.body_mut());
        world.receive(connection, &cell);
    }
}

/// A circuit from a client on one thread to a relay on another.
pub fn spliced(threads: u16, from: usize, to: usize, seed: u64) -> (World, Circuit) {
    let mut world = World::new(threads, seed);
    let client = world.link_on(from, CLIENT);
    let next = world.link_on(to, relay_identity(9));
    world.settle();
    let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
    circuit.extend(&mut world, 9, next);
    (world, circuit)
}

/// The reason of a DESTROY.
pub fn destroy_reason(cell: &Cell) -> DestroyReason {
    Destroy::decode(cell.body()).reason
}
