//! Order, limits and faults of our own.

use super::*;
use crate::handshake::identity::hex;

fn unexpected(cell: &str, expected: &'static str) -> HandshakeError {
    HandshakeError::UnexpectedCell {
        cell: cell.to_owned(),
        expected,
    }
}

#[test]
fn an_initiator_insists_on_the_order() {
    let cell_at = |order: &[usize]| {
        let mut alice = relay();
        let (_, flight) = greeted(&mut alice);
        let flight = responder_cells(&flight);
        let bytes: Vec<u8> = order.iter().flat_map(|i| flight[*i].clone()).collect();
        alice.feed_err(&bytes)
    };
    assert_eq!(cell_at(&[0, 3]), unexpected("NETINFO", "CERTS"));
    assert_eq!(cell_at(&[0, 2]), unexpected("AUTH_CHALLENGE", "CERTS"));
    assert_eq!(cell_at(&[0, 1, 1]), HandshakeError::DuplicateCell("CERTS"));
    assert_eq!(
        cell_at(&[0, 1, 2, 1]),
        HandshakeError::DuplicateCell("CERTS")
    );
    assert_eq!(
        cell_at(&[0, 1, 2, 2]),
        HandshakeError::DuplicateCell("AUTH_CHALLENGE")
    );
    // CERTS with a 4-byte circuit id read as a first cell: command 0, whatever it is.
    assert_eq!(cell_at(&[1]).class(), ErrorClass::ProtocolViolation);

    let mut alice = relay();
    let (_, flight) = greeted(&mut alice);
    let [versions, certs, ..] = responder_cells(&flight);
    alice.feed(&[versions, certs].concat()).unwrap();
    assert_eq!(
        alice.feed_err(&variable(131, &[0; 400])),
        unexpected("AUTHENTICATE", "AUTH_CHALLENGE or NETINFO")
    );
}

#[test]
fn a_responder_insists_on_the_order() {
    let mut bob = responder();
    bob.feed(&versions(&[5])).unwrap();
    assert_eq!(
        bob.feed_err(&variable(131, &[0; 400])),
        unexpected("AUTHENTICATE", "CERTS or NETINFO")
    );

    let mut bob = responder();
    bob.feed(&versions(&[5])).unwrap();
    assert_eq!(
        bob.feed_err(&variable(130, &[0; 36])),
        unexpected("AUTH_CHALLENGE", "CERTS or NETINFO")
    );

    let (mut bob, ..) = certified();
    assert_eq!(
        bob.feed_err(&certs_cell(&ALICE_ID.initiator_certs())),
        HandshakeError::DuplicateCell("CERTS")
    );

    let (mut bob, sent, heard) = certified();
    let proof = authenticate_cell(&sent, &heard, |_| {}, &[]);
    bob.feed(&proof).unwrap();
    assert_eq!(
        bob.feed_err(&proof),
        HandshakeError::DuplicateCell("AUTHENTICATE")
    );

    for command in [ChanCmd::CREATE2, ChanCmd::CREATE_FAST, ChanCmd::RELAY] {
        let mut bob = responder();
        bob.feed(&versions(&[5])).unwrap();
        let error = bob.feed_err(Cell::new(1, command).as_bytes());
        assert_eq!(error, unexpected(&command.to_string(), "CERTS or NETINFO"));
        assert_eq!(error.class(), ErrorClass::ProtocolViolation);
    }
}

#[test]
fn a_link_opens_with_versions() {
    let mut bob = responder();
    let error = bob.feed_err(b"GET / HTTP/1.1\r\n");
    assert!(
        matches!(
            error,
            HandshakeError::NotACell(FrameError::NotVersions { .. })
        ),
        "{error}"
    );
    assert!(bob.out().is_empty());
    let mut bob = responder();
    let error = bob.feed_err(&[0, 0, 7, 0, 3, 0, 4, 0]);
    assert_eq!(error, HandshakeError::NotACell(FrameError::OddVersions(3)));
}

#[test]
fn link_cells_have_no_circuit_id() {
    let mut cell = certs_cell(&ALICE_ID.initiator_certs());
    cell[3] = 1;
    assert_eq!(from_alice(&cell), HandshakeError::NonZeroCircuitId("CERTS"));
}

#[test]
fn malformed_cells_are_named() {
    for (command, body, name) in [
        (129, &[][..], "CERTS"),
        (129, &[1, 2, 0, 9], "CERTS"),
        (129, &[2, 9, 0, 0, 9, 0, 0], "CERTS"),
    ] {
        let error = from_alice(&variable(command, body));
        let HandshakeError::MalformedCell { cell, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(cell, name);
    }
    let mut bob = responder();
    bob.feed(&versions(&[5])).unwrap();
    let mut netinfo = Cell::new(0, ChanCmd::NETINFO);
    netinfo.body_mut().fill(255);
    assert!(matches!(
        bob.feed_err(netinfo.as_bytes()),
        HandshakeError::MalformedCell {
            cell: "NETINFO",
            ..
        }
    ));
}

#[test]
fn an_error_is_final() {
    let mut bob = responder();
    let error = bob.feed_err(&versions(&[2]));
    assert_eq!(bob.feed_err(&versions(&[5])), error);
    assert_eq!(bob.handshake.established(), None);
    assert!(bob.out().is_empty());
}

#[test]
fn a_peer_that_only_pads_is_cut_off() {
    let mut bob = responder();
    bob.feed(&versions(&[5])).unwrap();
    let cell = variable(128, &[0; 1000]);
    let mut sent = 9;
    let error = loop {
        match bob.feed(&cell) {
            Ok(consumed) => sent += consumed,
            Err(error) => break error,
        }
    };
    assert_eq!(
        error,
        HandshakeError::TooManyBytes {
            limit: MAX_HANDSHAKE_BYTES
        }
    );
    assert_eq!(error.class(), ErrorClass::LimitExceeded);
    assert!(sent <= MAX_HANDSHAKE_BYTES && sent + cell.len() > MAX_HANDSHAKE_BYTES);

    // All at once is no better.
    let mut bob = responder();
    let mut bytes = versions(&[5]);
    bytes.extend(cell.repeat(100));
    assert_eq!(bob.feed_err(&bytes), error);
}

#[test]
fn a_huge_cell_is_refused_by_its_header() {
    let mut bob = responder();
    bob.feed(&versions(&[5])).unwrap();
    let error = bob.feed_err(&[0, 0, 0, 0, 129, 255, 255]);
    assert_eq!(error.class(), ErrorClass::LimitExceeded);
    // One that would just pass the limit is not waited for either.
    let mut bob = responder();
    bob.feed(&versions(&[5])).unwrap();
    let cell = variable(129, &vec![0; MAX_HANDSHAKE_BYTES]);
    assert_eq!(
        bob.feed_err(&cell[..MAX_HANDSHAKE_BYTES]),
        HandshakeError::TooManyBytes {
            limit: MAX_HANDSHAKE_BYTES
        }
    );
}

#[test]
fn a_handshake_that_fits_the_limit_passes_with_any_amount_behind_it() {
    let (mut client, mut bob) = (client(), responder());
    bob.feed(&client.out()).unwrap();
    client.feed(&bob.out()).unwrap();
    let netinfo = client.out();
    let pad = MAX_HANDSHAKE_BYTES - 9 - netinfo.len() - 7;
    let mut bytes = variable(128, &vec![0; pad]);
    bytes.extend_from_slice(&netinfo);
    let handshake = bytes.len();
    bytes.extend_from_slice(&[1; 100_000]);
    assert_eq!(bob.feed(&bytes), Ok(handshake));
    assert_eq!(bob.established().peer, PeerIdentity::Unauthenticated);
}

#[test]
fn a_responder_needs_the_identity_of_its_tls_certificate() {
    let mut nobody = responder();
    nobody.handshake.me = None;
    assert_eq!(nobody.feed_err(&versions(&[5])), HandshakeError::NoIdentity);
    let mut confused = responder();
    confused.handshake.me = Some(ALICE_ID.clone());
    let error = confused.feed_err(&versions(&[5]));
    assert!(matches!(error, HandshakeError::Tls(_)));
    assert_eq!(error.class(), ErrorClass::Local);
}

#[test]
fn identities_do_not_print_their_secrets() {
    let shown = format!("{:?}", *ALICE_ID);
    assert!(shown.contains(&hex(ALICE_ID.rsa_id().as_ref())));
    assert!(!shown.contains("link_auth"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_bytes_never_panic_and_never_authenticate(
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
        cut in 1usize..500,
        as_responder: bool,
    ) {
        let mut side = if as_responder { responder() } else { relay() };
        side.feed(&versions(&[5])).unwrap();
        for chunk in bytes.chunks(cut) {
            if side.feed(chunk).is_err() {
                break;
            }
        }
        let peer = side.handshake.established().map(|found| found.peer);
        prop_assert!(peer.is_none_or(|peer| peer == PeerIdentity::Unauthenticated));
    }

    #[test]
    fn chunks_of_any_size_give_the_same_result(cut in 1usize..3000) {
        let (mut alice, mut bob) = (relay(), responder());
        for _ in 0..3 {
            for chunk in alice.out().chunks(cut) {
                prop_assert_eq!(bob.feed(chunk), Ok(chunk.len()));
            }
            for chunk in bob.out().chunks(cut) {
                prop_assert_eq!(alice.feed(chunk), Ok(chunk.len()));
            }
        }
        prop_assert_eq!(alice.established().peer, is_relay(&BOB_ID));
        prop_assert_eq!(bob.established().peer, is_relay(&ALICE_ID));
    }
}
