//! Peers that never become a link, or take their time.

use std::io::Write as _;
use std::net::{Shutdown, TcpStream};

use weft_cell::frame;
use weft_cell::link_msg::Netinfo;
use weft_cell::{Cell, ChanCmd};

use crate::hostile::circuit::{Circuit, FIRST, Through};
use crate::hostile::peer::{Peer, initiator};
use crate::hostile::process::eventually;
use crate::hostile::with_hostile_peers;

/// VERSIONS with these versions.
fn versions(versions: &[u16]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode_versions(versions, &mut bytes).unwrap();
    bytes
}

/// A variable-length cell.
fn variable(command: ChanCmd, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode_variable(0, command, body, &mut bytes).unwrap();
    bytes
}

fn netinfo() -> Vec<u8> {
    Netinfo::default().encode().unwrap().as_bytes().to_vec()
}

#[test]
fn what_is_no_link_handshake_is_closed() {
    let good = [versions(&[4, 5]), netinfo()];
    let certs = variable(ChanCmd::CERTS, &[1, 2, 0, 3, 1, 2, 3]);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("bytes that are nothing", vec![0x5a; 2000]),
        ("an HTTP request", b"GET / HTTP/1.0\r\n\r\n".to_vec()),
        ("no version that the relay speaks", versions(&[1, 2, 3, 99])),
        (
            "half a version",
            [&[0, 0, 7, 0, 3], &[0u8, 4, 0][..]].concat(),
        ),
        ("NETINFO before VERSIONS", netinfo()),
        (
            "a circuit before the end of the handshake",
            [
                versions(&[5]),
                Cell::new(FIRST, ChanCmd::CREATE_FAST).as_bytes().to_vec(),
            ]
            .concat(),
        ),
        (
            "a certificate that is none",
            [versions(&[5]), certs.clone()].concat(),
        ),
        (
            "a signature without certificates",
            [
                versions(&[5]),
                variable(ChanCmd::AUTHENTICATE, &[0, 3, 0, 4, 1, 2, 3, 4]),
            ]
            .concat(),
        ),
        (
            "a challenge from the wrong side",
            [versions(&[5]), variable(ChanCmd::AUTH_CHALLENGE, &[0; 36])].concat(),
        ),
        ("a NETINFO whose addresses run out of the cell", {
            let mut cell = Cell::new(0, ChanCmd::NETINFO);
            cell.body_mut().fill(0xff);
            [versions(&[5]), cell.as_bytes().to_vec()].concat()
        }),
        (
            "more than a handshake may have",
            [versions(&[5]), variable(ChanCmd::VPADDING, &[0; 20_000])].concat(),
        ),
        (
            "more than a handshake may have, in small pieces",
            [
                versions(&[5]),
                variable(ChanCmd::VPADDING, &[0; 10]).repeat(2000),
            ]
            .concat(),
        ),
    ];
    with_hostile_peers(|weft| {
        for (what, bytes) in &cases {
            println!("{what}");
            let mut peer = Peer::tls(weft.or_port);
            peer.send_raw(bytes);
            peer.expect_closed_below_tls();
        }
        // Not even TLS, and TLS that breaks in its middle.
        let mut socket = TcpStream::connect(weft.or_port).unwrap();
        socket.write_all(&[0; 600]).unwrap();
        let mut peer = Peer::tls(weft.or_port);
        peer.send_raw(&good[0]);
        peer.send_below_tls(&[23, 3, 3, 0, 40]);
        peer.send_below_tls(&[0; 40]);
        peer.expect_closed_below_tls();
        // Handshakes that their peer leaves at any point.
        for length in [0, 1, 5, 8, good[0].len(), 200, 520] {
            let mut peer = Peer::tls(weft.or_port);
            let bytes = good.concat();
            peer.send_raw(&bytes[..length.min(bytes.len() - 1)]);
        }
        drop(socket);
        // Only the bystander's two connections are left.
        eventually("all of them were forgotten", || weft.connections() == 2);
    });
}

#[test]
fn a_peer_that_sends_byte_by_byte_is_served_and_holds_up_nobody() {
    with_hostile_peers(|weft| {
        // The first bytes of TLS, and then silence.
        let mut silent = TcpStream::connect(weft.or_port).unwrap();
        for byte in [22, 3, 1] {
            silent.write_all(&[byte]).unwrap();
            Through::new(weft).carries_data();
        }
        // A link whose handshake and cells come one byte to a TLS record.
        let mut peer = Peer::tls(weft.or_port);
        peer.byte_by_byte = true;
        peer.link_handshake(initiator()).unwrap();
        Circuit::create(&mut peer, FIRST).answers(&mut peer);
        drop(silent);
    });
}

#[test]
fn variable_length_cells_on_an_open_link_are_noise() {
    with_hostile_peers(|weft| {
        let mut peer = Peer::client(weft.or_port);
        for length in [0, 1, 514, 65_535] {
            peer.send_raw(&variable(ChanCmd::VPADDING, &vec![1; length]));
            peer.send_raw(&variable(ChanCmd::CERTS, &vec![2; length]));
            peer.send_raw(&variable(ChanCmd::from(255), &vec![3; length]));
        }
        Circuit::create(&mut peer, FIRST).answers(&mut peer);
        // One whose end never comes holds no more than itself.
        let cut = variable(ChanCmd::VPADDING, &[0; 65_535]);
        peer.send_raw(&cut[..cut.len() - 1]);
    });
}

#[test]
fn a_peer_that_closes_only_its_own_side_is_gone() {
    with_hostile_peers(|weft| {
        let socket = TcpStream::connect(weft.or_port).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        eventually("the half-closed connection was closed", || {
            weft.connections() == 2
        });
        drop(socket);
    });
}

/// 27 bytes each on the wire: 27 MB, and a second and a half of CPU if a relay took them all.
const MANY_UPDATES: usize = 1_000_000;

#[test]
fn a_flood_of_key_updates_ends_its_link_before_and_after_it_opens() {
    with_hostile_peers(|weft| {
        // Before, with a byte of a cell between and without: each byte of data would give rustls's
        // own limit new room.
        for some in [0, 1] {
            let mut peer = Peer::tls(weft.or_port);
            let versions = versions(&[5]);
            let mut updates = 0;
            for byte in &versions[..some * (versions.len() - 1)] {
                peer.send_raw(&[*byte]);
                updates += peer.update_keys(30);
            }
            updates += peer.update_keys(MANY_UPDATES);
            assert!(updates < MANY_UPDATES);
            peer.expect_closed_below_tls();
        }
        // One update before the link opens: its keys are not taken over (RFC 8446 5.3: no nonce twice).
        let mut peer = Peer::tls(weft.or_port);
        peer.update_keys(1);
        peer.send_raw(&[versions(&[5]), netinfo()].concat());
        peer.expect_closed_below_tls();
        // After, on a link that works.
        let mut peer = Peer::client(weft.or_port);
        Circuit::create(&mut peer, FIRST).answers(&mut peer);
        assert!(peer.update_keys(MANY_UPDATES) < MANY_UPDATES);
        peer.expect_closed_below_tls();
        eventually("all of them were forgotten", || weft.connections() == 2);
    });
}

#[test]
fn a_few_key_updates_change_nothing_but_the_keys() {
    with_hostile_peers(|weft| {
        let mut peer = Peer::client(weft.or_port);
        for circ_id in FIRST..FIRST + 10 {
            peer.update_keys(1);
            Circuit::create(&mut peer, circ_id).answers(&mut peer);
        }
    });
}

#[test]
fn records_with_little_in_them_end_a_link_that_sends_nothing_else() {
    with_hostile_peers(|weft| {
        let mut peer = Peer::client(weft.or_port);
        peer.byte_by_byte = true;
        let cells = vec![0; 514 * 64];
        // PADDING cells, a byte to a record.
        peer.send_raw(&cells);
        peer.expect_closed_below_tls();
    });
}
