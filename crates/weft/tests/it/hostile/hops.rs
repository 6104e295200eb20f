//! Next hops that vanish, have another identity, or answer nonsense.

use std::net::{SocketAddr, TcpListener};

use weft_cell::circ_msg::{CreateRequest, Extend2, handshake_type};
use weft_cell::link_msg::Destroy;
use weft_cell::reason::DestroyReason;
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_core::handshake::PeerIdentity;
use weft_crypto::handshake::ntor::ClientState;

use crate::hostile::circuit::{Circuit, FIRST, Through, answer_create, create2, extend2};
use crate::hostile::peer::{Identity, Peer};
use crate::hostile::{process::Weft, with_hostile_peers};

/// A circuit of one hop that asks for one more: the client's side, and where the relay will go.
struct Asking {
    client: Peer,
    wanted: &'static Identity,
    listener: TcpListener,
}

impl Asking {
    /// Asks for a relay that the one under test has not met.
    fn new(weft: &Weft) -> Self {
        let mut asking = Asking {
            client: Peer::client(weft.or_port),
            wanted: weft.stranger(),
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
        };
        asking.ask(FIRST);
        asking
    }

    /// Asks for the same relay on a new circuit.
    fn ask(&mut self, id: u32) {
        let at = self.listener.local_addr().unwrap();
        let mut circuit = Circuit::create(&mut self.client, id);
        let message = extend2(self.wanted, at, &[1; 84]);
        circuit.send(&mut self.client, RelayCmd::EXTEND2, &message);
    }

    /// The relay that was asked for is there.
    fn accept(&self) -> Peer {
        Peer::accept(&self.listener, self.wanted).unwrap()
    }
}

#[test]
fn a_bridge_pads_the_links_that_it_opens() {
    let weft = Weft::start_with(1, "BridgeRelay 1\n");
    let asking = Asking::new(&weft);
    let mut hop = asking.accept();
    assert_eq!(hop.next().unwrap().command(), ChanCmd::CREATE2);
    // Within ten seconds of silence (padding-spec 2); the next keepalive is minutes away.
    while let Some(cell) = hop.next_of_any_kind() {
        if cell.command() == ChanCmd::PADDING {
            return weft.terminate();
        }
    }
    panic!("the bridge closed the link without padding");
}

#[test]
fn a_circuit_whose_next_hop_vanishes_is_destroyed() {
    with_hostile_peers(|weft| {
        // While it carries data.
        let Through {
            mut client,
            circuit,
            hop,
            ..
        } = {
            let mut through = Through::new(weft);
            through.carries_data();
            through
        };
        drop(hop);
        client.expect_destroy(circuit.id, DestroyReason::CHANNEL_CLOSED);
        // Before it answers CREATE2.
        let mut asking = Asking::new(weft);
        let mut hop = asking.accept();
        assert_eq!(hop.next().unwrap().command(), ChanCmd::CREATE2);
        drop(hop);
        let closed = DestroyReason::CHANNEL_CLOSED;
        asking.client.expect_destroy(FIRST, closed);
        // Before the link is open.
        let mut asking = Asking::new(weft);
        drop(asking.listener.accept().unwrap());
        let cell = asking.client.expect(ChanCmd::DESTROY, FIRST);
        assert!(matches!(
            Destroy::decode(cell.body()).reason,
            DestroyReason::CHANNEL_CLOSED | DestroyReason::CONNECTFAILED
        ));
        // And the other way: the client vanishes.
        let Through {
            client,
            mut hop,
            hop_id,
            ..
        } = Through::new(weft);
        drop(client);
        hop.expect_destroy(hop_id, DestroyReason::CHANNEL_CLOSED);
    });
}

#[test]
fn a_next_hop_that_is_somebody_else_gets_no_circuit() {
    with_hostile_peers(|weft| {
        let mut asking = Asking::new(weft);
        // The relay finds out from CERTS; how far we think the handshake went does not matter.
        if let Ok(mut hop) = Peer::accept(&asking.listener, weft.stranger()) {
            assert!(hop.next().is_none());
        }
        let other = DestroyReason::OR_IDENTITY;
        asking.client.expect_destroy(FIRST, other);
        weft.wait_for("is not who it should be");
    });
}

#[test]
fn a_next_hop_is_known_by_its_rsa_identity_alone_where_the_client_names_no_other() {
    with_hostile_peers(|weft| {
        let next = weft.stranger();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut client = Peer::client(weft.or_port);
        let extend = |client: &mut Peer, id, rsa| {
            let key = next.onion.current_public();
            let onionskin = ClientState::start(&next.rsa, &key, &mut client.rng).onionskin();
            let SocketAddr::V4(ipv4) = at else {
                panic!("IPv4 only");
            };
            let message = Extend2 {
                ipv4: Some(ipv4),
                rsa: Some(rsa),
                handshake_type: handshake_type::NTOR,
                handshake: onionskin.to_vec(),
                ..Extend2::default()
            };
            let mut circuit = Circuit::create(client, id);
            circuit.send(client, RelayCmd::EXTEND2, &message.encode().unwrap());
            circuit
        };
        // Another relay is there than the one that was asked for.
        let mut other = next.rsa;
        other.0[0] ^= 1;
        extend(&mut client, FIRST, other);
        if let Ok(mut hop) = Peer::accept(&listener, next) {
            assert!(hop.next().is_none());
        }
        client.expect_destroy(FIRST, DestroyReason::OR_IDENTITY);
        // The right one; and again, over the link that is there.
        let mut hop = None;
        for id in [FIRST, FIRST + 1] {
            let mut circuit = extend(&mut client, id, next.rsa);
            let hop = hop.get_or_insert_with(|| Peer::accept(&listener, next).unwrap());
            answer_create(hop, next);
            let (_, command, _) = circuit.receive(&mut client);
            assert_eq!(command, RelayCmd::EXTENDED2);
        }
        // A client that names both finds that link, too.
        let mut circuit = Circuit::create(&mut client, FIRST + 2);
        let message = extend2(next, at, &[1; 84]);
        circuit.send(&mut client, RelayCmd::EXTEND2, &message);
        assert_eq!(hop.unwrap().next().unwrap().command(), ChanCmd::CREATE2);
    });
}

#[test]
fn a_next_hop_that_is_no_relay_gets_no_circuit() {
    with_hostile_peers(|weft| {
        use std::io::Write as _;
        let mut asking = Asking::new(weft);
        let (mut socket, _) = asking.listener.accept().unwrap();
        socket
            .write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            .unwrap();
        let cell = asking.client.expect(ChanCmd::DESTROY, FIRST);
        assert!(matches!(
            Destroy::decode(cell.body()).reason,
            DestroyReason::CHANNEL_CLOSED | DestroyReason::CONNECTFAILED
        ));
    });
}

#[test]
fn a_next_hop_without_a_listener_is_reported_as_unreachable() {
    with_hostile_peers(|weft| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        drop(listener);
        let mut client = Peer::client(weft.or_port);
        let mut circuit = Circuit::create(&mut client, FIRST);
        circuit.send(
            &mut client,
            RelayCmd::EXTEND2,
            &extend2(weft.stranger(), at, &[1; 84]),
        );
        client.expect_destroy(FIRST, DestroyReason::CONNECTFAILED);
        Circuit::create(&mut client, FIRST).answers(&mut client);
    });
}

#[test]
fn a_next_hop_that_answers_nonsense_ends_both_sides() {
    with_hostile_peers(|weft| {
        let nonsense = [
            (ChanCmd::CREATED_FAST, 1),
            (ChanCmd::CREATED, 1),
            (ChanCmd::CREATED2, 0xff),
            (ChanCmd::RELAY, 1),
            (ChanCmd::RELAY_EARLY, 1),
        ];
        let mut asking = Asking::new(weft);
        let mut hop = asking.accept();
        for (id, (command, byte)) in (FIRST..).zip(nonsense) {
            if id != FIRST {
                asking.ask(id);
            }
            let create = hop.next().unwrap();
            assert_eq!(create.command(), ChanCmd::CREATE2);
            let mut cell = Cell::new(create.circ_id(), command);
            cell.body_mut().fill(byte);
            hop.send(&cell);
            hop.expect_destroy(create.circ_id(), DestroyReason::PROTOCOL);
            asking.client.expect_destroy(id, DestroyReason::PROTOCOL);
        }
    });
}

#[test]
fn the_reason_in_a_next_hops_destroy_is_not_passed_on() {
    with_hostile_peers(|weft| {
        let mut through = Through::new(weft);
        let reason = DestroyReason::from(250);
        through.hop.send(&Destroy { reason }.encode(through.hop_id));
        let id = through.circuit.id;
        through.client.expect_destroy(id, DestroyReason::DESTROYED);
        // A second one, and cells that follow, are for nobody.
        through.hop.send(&Destroy { reason }.encode(through.hop_id));
        let cell = through.backward(&[1; 400]);
        through.hop.send(&cell);
        let client = &mut through.client;
        Circuit::create(client, FIRST).answers(client);
    });
}

#[test]
fn a_second_created_ends_the_circuit() {
    with_hostile_peers(|weft| {
        let mut through = Through::new(weft);
        let mut cell = Cell::new(through.hop_id, ChanCmd::CREATED2);
        cell.body_mut()[1] = 64;
        through.hop.send(&cell);
        let (id, hop_id) = (through.circuit.id, through.hop_id);
        through.hop.expect_destroy(hop_id, DestroyReason::PROTOCOL);
        through.client.expect_destroy(id, DestroyReason::PROTOCOL);
    });
}

/// The class of CVE-2011-2769: a relay's requests on a link that a bridge opened to it.
#[test]
fn a_relay_does_not_learn_that_a_bridge_has_connected_to_it() {
    let mut weft = Weft::start_with(1, "BridgeRelay 1");
    let asking = Asking::new(&weft);
    let mut hop = asking.accept();
    assert_eq!(hop.identity, PeerIdentity::Unauthenticated);
    assert_eq!(hop.next().unwrap().command(), ChanCmd::CREATE2);
    let fast = CreateRequest::Fast { x: [1; 20] };
    let ntor = create2(6, &[1; 84]);
    for (id, cell) in [(5, fast.encode(5).unwrap()), (6, ntor)] {
        hop.send(&cell);
        hop.expect_destroy(id, DestroyReason::PROTOCOL);
    }
    weft.is_calm();
    weft.terminate();
}
