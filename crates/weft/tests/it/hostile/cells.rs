//! Cells that are malformed, out of order, replayed or too many, on a link that is open.

use weft_cell::circ_msg::{Extend2, handshake_type};
use weft_cell::link_msg::Destroy;
use weft_cell::reason::DestroyReason;
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_core::handshake::PeerIdentity;

use crate::hostile::circuit::{Circuit, FIRST, Through, create2, extend2};
use crate::hostile::peer::{Peer, identity};
use crate::hostile::with_hostile_peers;

/// RELAY_EARLY cells that a circuit may carry (tor-spec 5.6).
const MAX_RELAY_EARLY: usize = 8;

/// A cell with all of its body this byte.
fn filled(circ_id: u32, command: ChanCmd, byte: u8) -> Cell {
    let mut cell = Cell::new(circ_id, command);
    cell.body_mut().fill(byte);
    cell
}

#[test]
fn cells_for_nobody_are_dropped() {
    with_hostile_peers(|weft| {
        let mut peer = Peer::client(weft.or_port);
        let mut circuit = Circuit::create(&mut peer, FIRST);
        for command in 0..128u8 {
            let command = ChanCmd::from(command);
            let creates = matches!(
                command,
                ChanCmd::CREATE | ChanCmd::CREATE2 | ChanCmd::CREATE_FAST
            );
            if command == ChanCmd::VERSIONS {
                continue;
            }
            // On no circuit, and on one that is not there.
            peer.send(&filled(0, command, 0xff));
            if !creates {
                peer.send(&filled(FIRST + 1, command, 0xff));
                peer.send(&filled(7, command, 0));
            }
        }
        circuit.answers(&mut peer);
    });
}

#[test]
fn a_create_that_cannot_be_is_refused_and_its_link_lives() {
    with_hostile_peers(|weft| {
        let mut peer = Peer::client(weft.or_port);
        let mut circuit = Circuit::create(&mut peer, FIRST);
        let refused = [
            // TAP, which nobody may use any more.
            filled(FIRST + 1, ChanCmd::CREATE, 1),
            // A length that runs out of the cell.
            filled(FIRST + 1, ChanCmd::CREATE2, 0xff),
            // ntor for another relay, or for no key that this one has.
            create2(FIRST + 1, &[0x11; 84]),
            // An id that only the relay may choose.
            filled(0x0000_0001, ChanCmd::CREATE_FAST, 1),
        ];
        for cell in refused {
            peer.send(&cell);
            peer.expect_destroy(cell.circ_id(), DestroyReason::PROTOCOL);
            // The id is free again.
            Circuit::create(&mut peer, FIRST + 1).answers(&mut peer);
            let reason = DestroyReason::NONE;
            peer.send(&Destroy { reason }.encode(FIRST + 1));
        }
        // A CREATE that was there before changes nothing.
        peer.send(&filled(FIRST, ChanCmd::CREATE_FAST, 1));
        peer.send(&create2(FIRST, &[0x11; 84]));
        circuit.answers(&mut peer);
    });
}

#[test]
fn a_circuit_that_breaks_the_protocol_is_destroyed_alone() {
    type Misdeed = fn(&mut Circuit, &mut Peer);
    let misdeeds: [(&str, Misdeed); 15] = [
        ("a cell that nobody recognizes", |circuit, peer| {
            peer.send(&filled(circuit.id, ChanCmd::RELAY, 0x77));
        }),
        ("a cell sent twice", |circuit, peer| {
            let data = [0; 10];
            let cell = circuit.cell(peer, 0, ChanCmd::RELAY, RelayCmd::DROP, &data);
            peer.send_all(&[cell.clone(), cell]);
        }),
        ("two cells in the wrong order", |circuit, peer| {
            let first = circuit.cell(peer, 0, ChanCmd::RELAY, RelayCmd::DROP, &[1]);
            let second = circuit.cell(peer, 0, ChanCmd::RELAY, RelayCmd::DROP, &[2]);
            peer.send_all(&[second, first]);
        }),
        ("a length longer than the cell", |circuit, peer| {
            let cell = circuit.cell_of_length(peer, 499);
            peer.send(&cell);
        }),
        ("an answer to what was never asked", |circuit, peer| {
            peer.send(&filled(circuit.id, ChanCmd::CREATED2, 0));
        }),
        ("a message that only clients get", |circuit, peer| {
            circuit.send(peer, RelayCmd::EXTENDED2, &[0, 2, 1, 1]);
        }),
        ("a SENDME for nothing", |circuit, peer| {
            let cell = circuit.cell_of_no_stream(peer, RelayCmd::SENDME);
            peer.send(&cell);
        }),
        ("DATA of a stream that never was", |circuit, peer| {
            circuit.send(peer, RelayCmd::DATA, &[1; 498]);
        }),
        ("an END too many", |circuit, peer| {
            // The stream is refused, and ended twice.
            circuit.answers(peer);
            circuit.send(peer, RelayCmd::END, &[6]);
            circuit.send(peer, RelayCmd::END, &[6]);
            for _ in 0..10 {
                circuit.send(peer, RelayCmd::SENDME, &[]);
            }
        }),
        ("CONNECTED, which only exits send", |circuit, peer| {
            circuit.send(peer, RelayCmd::CONNECTED, &[]);
        }),
        ("a message that nobody knows", |circuit, peer| {
            circuit.send(peer, RelayCmd::from(200), &[1; 498]);
        }),
        ("an EXTEND2 without link specifiers", |circuit, peer| {
            circuit.send(peer, RelayCmd::EXTEND2, &[]);
        }),
        ("an EXTEND2 with a specifier cut short", |circuit, peer| {
            circuit.send(peer, RelayCmd::EXTEND2, &[1, 0, 6, 127, 0]);
        }),
        ("an EXTEND2 that is not early", |circuit, peer| {
            let message = extend2(identity(0), "127.0.0.1:9".parse().unwrap(), &[1; 84]);
            let cell = circuit.cell(peer, 0, ChanCmd::RELAY, RelayCmd::EXTEND2, &message);
            peer.send(&cell);
        }),
        ("an EXTEND2 to the relay itself", |circuit, peer| {
            let PeerIdentity::Relay { rsa, ed25519 } = peer.identity else {
                panic!("the relay did not prove its identity");
            };
            let message = Extend2 {
                ipv4: Some("127.0.0.1:9".parse().unwrap()),
                rsa: Some(rsa),
                ed25519: Some(ed25519),
                handshake_type: handshake_type::NTOR,
                handshake: vec![1; 84],
                ..Extend2::default()
            };
            circuit.send(peer, RelayCmd::EXTEND2, &message.encode().unwrap());
        }),
    ];
    with_hostile_peers(|weft| {
        let mut peer = Peer::client(weft.or_port);
        let mut neighbour = Circuit::create(&mut peer, FIRST);
        for (number, (what, misdeed)) in (1u32..).zip(misdeeds) {
            println!("{what}");
            let mut circuit = Circuit::create(&mut peer, FIRST + number);
            misdeed(&mut circuit, &mut peer);
            peer.expect_destroy(circuit.id, DestroyReason::PROTOCOL);
            neighbour.answers(&mut peer);
        }
        // A relay cell on a circuit whose CREATE was not answered yet.
        let id = FIRST + 100;
        let early = filled(id, ChanCmd::RELAY, 1);
        peer.send_all(&[filled(id, ChanCmd::CREATE_FAST, 1), early]);
        peer.expect_destroy(id, DestroyReason::PROTOCOL);
        neighbour.answers(&mut peer);
    });
}

#[test]
fn too_many_relay_early_cells_end_their_circuit() {
    with_hostile_peers(|weft| {
        let mut through = Through::new(weft);
        // EXTEND2 was the first.
        for n in 1..MAX_RELAY_EARLY {
            let client = &mut through.client;
            let data = [u8::try_from(n).unwrap(); 5];
            let cell = through
                .circuit
                .cell(client, 1, ChanCmd::RELAY_EARLY, RelayCmd::DATA, &data);
            client.send(&cell);
            through.hop.expect(ChanCmd::RELAY_EARLY, through.hop_id);
        }
        let client = &mut through.client;
        let cell = through
            .circuit
            .cell(client, 1, ChanCmd::RELAY_EARLY, RelayCmd::DATA, &[9]);
        client.send(&cell);
        client.expect_destroy(through.circuit.id, DestroyReason::PROTOCOL);
        let hop_id = through.hop_id;
        through.hop.expect_destroy(hop_id, DestroyReason::PROTOCOL);
    });
}

#[test]
fn relay_early_never_moves_toward_the_client() {
    with_hostile_peers(|weft| {
        let mut through = Through::new(weft);
        let mut cell = through.backward(&[1; 10]);
        cell.set_command(ChanCmd::RELAY_EARLY);
        through.hop.send(&cell);
        let (id, hop_id) = (through.circuit.id, through.hop_id);
        through.hop.expect_destroy(hop_id, DestroyReason::PROTOCOL);
        through.client.expect_destroy(id, DestroyReason::PROTOCOL);
    });
}
