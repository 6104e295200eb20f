//! Links over IPv6, with a real C tor at their other end.

use std::net::{SocketAddr, SocketAddrV6};

use weft_cell::RelayCmd;
use weft_cell::circ_msg::{Extend2, Extended2, handshake_type};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_core::handshake::PeerIdentity;
use weft_crypto::handshake::ntor::ClientState;

use crate::hostile::circuit::{Circuit, FIRST};
use crate::hostile::peer::Peer;
use crate::hostile::process::Weft;
use weft_testing::ctor::CTor;

/// EXTEND2's data: to this relay, and only over IPv6.
fn extend2(
    rsa: RsaIdentity,
    ed25519: Ed25519Identity,
    at: SocketAddr,
    onionskin: &[u8],
) -> Vec<u8> {
    let SocketAddr::V6(at) = at else {
        panic!("{at} is not IPv6");
    };
    Extend2 {
        ipv6: Some(SocketAddrV6::new(*at.ip(), at.port(), 0, 0)),
        rsa: Some(rsa),
        ed25519: Some(ed25519),
        handshake_type: handshake_type::NTOR,
        handshake: onionskin.to_vec(),
        ..Extend2::default()
    }
    .encode()
    .unwrap()
}

/// Extends a client's circuit from one relay to another over IPv6 and sees that it is the one that
/// has this onion key.
fn extends(
    from: SocketAddr,
    rsa: RsaIdentity,
    ed25519: Ed25519Identity,
    key: [u8; 32],
    at: SocketAddr,
) {
    let mut client = Peer::client(from);
    let mut circuit = Circuit::create(&mut client, FIRST);
    let state = ClientState::start(&rsa, &key, &mut client.rng);
    let message = extend2(rsa, ed25519, at, &state.onionskin());
    circuit.send(&mut client, RelayCmd::EXTEND2, &message);
    let (hop, command, data) = circuit.receive(&mut client);
    assert_eq!((hop, command), (0, RelayCmd::EXTENDED2));
    let reply = Extended2::decode(&data).unwrap();
    state.finish(&reply.data).expect("another relay's keys");
}

#[test]
fn c_tor_and_weft_extend_circuits_to_each_other_over_ipv6() {
    for threads in [0, 1, 2] {
        let mut tor = CTor::relay_with_ipv6();
        let mut weft = Weft::start_with(threads, "ORPort [::1]:auto IPv6Only");
        let line = weft.wait_for("Opened OR listener connection (ready) on [::1]:");
        let (_, port) = line.split_once("[::1]:").unwrap();
        let weft_ipv6: SocketAddr = format!("[::1]:{}", port.trim()).parse().unwrap();
        let tor_ipv6 = tor.or_port_ipv6();
        let contact = tor.contact();
        let PeerIdentity::Relay { rsa, ed25519 } = Peer::client(weft_ipv6).identity else {
            panic!("the relay did not prove its identity");
        };

        // C tor opens the link; then a second relay does not need another.
        extends(contact.addr, rsa, ed25519, weft.onion_key(), weft_ipv6);
        extends(
            weft.or_port,
            contact.rsa,
            contact.ed25519,
            contact.ntor,
            tor_ipv6,
        );
        assert_eq!(weft.statistic("accepted, "), 0);

        // Weft opens the link.
        let mut other = CTor::relay_with_ipv6();
        let other_ipv6 = other.or_port_ipv6();
        let other = (other.contact(), other);
        extends(
            weft.or_port,
            other.0.rsa,
            other.0.ed25519,
            other.0.ntor,
            other_ipv6,
        );
        assert_eq!(weft.statistic("accepted, "), 1);
        tor.assert_content();
        other.1.assert_content();
        weft.is_calm();
        weft.terminate();
    }
}
