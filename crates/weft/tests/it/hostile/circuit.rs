//! Circuits through the relay under test, with their client and their next hop both played here.

use std::net::{SocketAddr, TcpListener};

use weft_cell::circ_msg::{CreateReply, CreateRequest, Extend2, Extended2, handshake_type};
use weft_cell::relay::{self, RelayBody};
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_core::handshake::PeerIdentity;
use weft_crypto::circuit::OriginCircuit;
use weft_crypto::handshake::{self, ReplyParams, fast, ntor};
use weft_crypto::relay_cell::RelayCrypt;

use crate::hostile::peer::{Identity, Peer};
use crate::hostile::process::Weft;

/// The first circuit id of a client.
pub(crate) const FIRST: u32 = 0x8000_0001;

/// A circuit as its client knows it.
pub(crate) struct Circuit {
    /// On the client's link.
    pub(crate) id: u32,
    crypt: OriginCircuit,
}

impl Circuit {
    /// CREATE_FAST and its answer.
    pub(crate) fn create(peer: &mut Peer, id: u32) -> Self {
        let state = fast::ClientState::start(&mut peer.rng);
        peer.send(&CreateRequest::Fast { x: *state.x() }.encode(id).unwrap());
        let created = peer.expect(ChanCmd::CREATED_FAST, id);
        let reply = CreateReply::decode(created.command(), created.body());
        let Ok(CreateReply::Fast { y, kh }) = reply else {
            panic!("{reply:?}");
        };
        let mut crypt = OriginCircuit::new();
        crypt.add_hop(&state.finish(&y, &kh).unwrap().into());
        Circuit { id, crypt }
    }

    /// CREATE2 by ntor and its answer.
    pub(crate) fn create_ntor(peer: &mut Peer, id: u32, onion_key: &[u8; 32]) -> Self {
        let PeerIdentity::Relay { rsa, .. } = peer.identity else {
            panic!("the relay did not prove its identity");
        };
        let state = ntor::ClientState::start(&rsa, onion_key, &mut peer.rng);
        peer.send(&create2(id, &state.onionskin()));
        let data = created2(&peer.expect(ChanCmd::CREATED2, id));
        let mut crypt = OriginCircuit::new();
        crypt.add_hop(&state.finish(&data).unwrap().into());
        Circuit { id, crypt }
    }

    /// A relay cell for one of the circuit's hops.
    pub(crate) fn cell(
        &mut self,
        peer: &mut Peer,
        hop: usize,
        outer: ChanCmd,
        command: RelayCmd,
        data: &[u8],
    ) -> Cell {
        let mut cell = Cell::new(self.id, outer);
        let stream = u16::from(command != RelayCmd::EXTEND2);
        relay::encode(cell.body_mut(), command, stream, data, &mut peer.rng).unwrap();
        self.crypt
            .encrypt_forward(hop, outer, cell.body_mut())
            .unwrap();
        cell
    }

    /// A relay cell of a stream, for the relay under test.
    pub(crate) fn cell_of_stream(
        &mut self,
        peer: &mut Peer,
        stream: u16,
        command: RelayCmd,
        data: &[u8],
    ) -> Cell {
        let mut cell = Cell::new(self.id, ChanCmd::RELAY);
        relay::encode(cell.body_mut(), command, stream, data, &mut peer.rng).unwrap();
        self.crypt
            .encrypt_forward(0, cell.command(), cell.body_mut())
            .unwrap();
        cell
    }

    /// The next message of a stream: its id, command and data.
    pub(crate) fn receive_of_stream(&mut self, peer: &mut Peer) -> (u16, RelayCmd, Vec<u8>) {
        let mut cell = peer.expect(ChanCmd::RELAY, self.id);
        let hop = self.crypt.decrypt_backward(cell.body_mut());
        assert_eq!(hop, Some(0));
        let body = RelayBody::new(cell.body());
        let data = body.data().unwrap().to_vec();
        (body.stream_id(), body.command(), data)
    }

    /// A relay cell for the relay under test with this length field.
    pub(crate) fn cell_of_length(&mut self, peer: &mut Peer, length: u16) -> Cell {
        let mut cell = Cell::new(self.id, ChanCmd::RELAY);
        relay::encode(cell.body_mut(), RelayCmd::DROP, 0, &[], &mut peer.rng).unwrap();
        cell.body_mut()[relay::field::LENGTH].copy_from_slice(&length.to_be_bytes());
        self.crypt
            .encrypt_forward(0, cell.command(), cell.body_mut())
            .unwrap();
        cell
    }

    /// A relay cell for the relay under test that belongs to no stream.
    pub(crate) fn cell_of_no_stream(&mut self, peer: &mut Peer, command: RelayCmd) -> Cell {
        let mut cell = Cell::new(self.id, ChanCmd::RELAY);
        relay::encode(cell.body_mut(), command, 0, &[], &mut peer.rng).unwrap();
        self.crypt
            .encrypt_forward(0, cell.command(), cell.body_mut())
            .unwrap();
        cell
    }

    /// A relay message, sent to the relay under test; EXTEND2 in RELAY_EARLY.
    pub(crate) fn send(&mut self, peer: &mut Peer, command: RelayCmd, data: &[u8]) {
        let outer = match command {
            RelayCmd::EXTEND2 => ChanCmd::RELAY_EARLY,
            _ => ChanCmd::RELAY,
        };
        let cell = self.cell(peer, 0, outer, command, data);
        peer.send(&cell);
    }

    /// The next relay cell toward the client: its hop, command and data.
    pub(crate) fn receive(&mut self, peer: &mut Peer) -> (usize, RelayCmd, Vec<u8>) {
        let cell = peer.expect(ChanCmd::RELAY, self.id);
        self.open(cell)
    }

    /// The contents of a backward relay cell.
    pub(crate) fn open(&mut self, mut cell: Cell) -> (usize, RelayCmd, Vec<u8>) {
        let hop = self
            .crypt
            .decrypt_backward(cell.body_mut())
            .expect("a cell that the client recognizes");
        let body = RelayBody::new(cell.body());
        (hop, body.command(), body.data().unwrap().to_vec())
    }

    /// A stream is refused on it: the circuit lives, and its keys are in step.
    pub(crate) fn answers(&mut self, peer: &mut Peer) {
        self.send(peer, RelayCmd::BEGIN, b"example.com:80\0\0\0\0\0");
        let (hop, command, _) = self.receive(peer);
        assert_eq!((hop, command), (0, RelayCmd::END));
    }
}

/// EXTEND2's data: to this relay at this address.
pub(crate) fn extend2(to: &Identity, at: SocketAddr, onionskin: &[u8]) -> Vec<u8> {
    let SocketAddr::V4(at) = at else {
        panic!("IPv4 only");
    };
    Extend2 {
        ipv4: Some(at),
        rsa: Some(to.rsa),
        ed25519: Some(to.ed25519),
        handshake_type: handshake_type::NTOR,
        handshake: onionskin.to_vec(),
        ..Extend2::default()
    }
    .encode()
    .unwrap()
}

/// A CREATE2 cell for ntor.
pub(crate) fn create2(id: u32, onionskin: &[u8]) -> Cell {
    let request = CreateRequest::Create2 {
        handshake_type: handshake_type::NTOR,
        data: onionskin.to_vec(),
    };
    request.encode(id).unwrap()
}

/// Data of a CREATED2 cell.
fn created2(cell: &Cell) -> Vec<u8> {
    match CreateReply::decode(cell.command(), cell.body()) {
        Ok(CreateReply::Created2 { data }) => data,
        other => panic!("{other:?}"),
    }
}

/// Answers the CREATE2 that comes next, as a relay does: the circuit's id there, and its keys.
pub(crate) fn answer_create(hop: &mut Peer, identity: &Identity) -> (u32, RelayCrypt) {
    let create = hop.next().unwrap();
    let request = CreateRequest::decode(create.command(), create.body()).unwrap();
    let params = ReplyParams::default();
    let answer = handshake::negotiate(&request, &identity.onion, &params, &mut hop.rng).unwrap();
    hop.send(&answer.reply.encode(create.circ_id()).unwrap());
    (
        create.circ_id(),
        RelayCrypt::new(answer.keys.tor1().expect("tor1")),
    )
}

/// A circuit through the relay under test to a next hop beyond it.
pub(crate) struct Through {
    pub(crate) client: Peer,
    pub(crate) circuit: Circuit,
    pub(crate) hop: Peer,
    /// On the next hop's link.
    pub(crate) hop_id: u32,
    hop_crypt: RelayCrypt,
}

impl Through {
    /// A new client's circuit through the relay to a next hop that does as it should.
    pub(crate) fn new(weft: &Weft) -> Self {
        Self::from(Peer::client(weft.or_port), weft)
    }

    /// Builds such a circuit over an existing link of a client.
    pub(crate) fn from(mut client: Peer, weft: &Weft) -> Self {
        let next = weft.stranger();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut circuit = Circuit::create_ntor(&mut client, FIRST, &weft.onion_key());
        let key = next.onion.current_public();
        let state = ntor::ClientState::start(&next.rsa, &key, &mut client.rng);
        let message = extend2(next, at, &state.onionskin());
        circuit.send(&mut client, RelayCmd::EXTEND2, &message);
        let mut hop = Peer::accept(&listener, next).unwrap();
        let (hop_id, hop_crypt) = answer_create(&mut hop, next);
        let (from, command, data) = circuit.receive(&mut client);
        assert_eq!((from, command), (0, RelayCmd::EXTENDED2));
        let extended = Extended2::decode(&data).unwrap();
        circuit
            .crypt
            .add_hop(&state.finish(&extended.data).unwrap().into());
        Through {
            client,
            circuit,
            hop,
            hop_id,
            hop_crypt,
        }
    }

    /// A cell from the next hop to the client.
    pub(crate) fn backward(&mut self, data: &[u8]) -> Cell {
        let mut cell = Cell::new(self.hop_id, ChanCmd::RELAY);
        let rng = &mut self.hop.rng;
        relay::encode(cell.body_mut(), RelayCmd::DATA, 1, data, rng).unwrap();
        self.hop_crypt.originate_backward(cell.body_mut());
        cell
    }

    /// Data arrive, whole and in order, both ways.
    pub(crate) fn carries_data(&mut self) {
        for n in 0..20u8 {
            let data = vec![n; 400];
            let client = &mut self.client;
            let cell = self
                .circuit
                .cell(client, 1, ChanCmd::RELAY, RelayCmd::DATA, &data);
            client.send(&cell);
            let cell = self.backward(&data);
            self.hop.send(&cell);
        }
        for n in 0..20u8 {
            let data = vec![n; 400];
            let mut cell = self.hop.expect(ChanCmd::RELAY, self.hop_id);
            assert!(self.hop_crypt.decrypt_forward(cell.body_mut()));
            assert_eq!(RelayBody::new(cell.body()).data().unwrap(), data);
            let received = self.circuit.receive(&mut self.client);
            assert_eq!(received, (1, RelayCmd::DATA, data));
        }
    }
}
