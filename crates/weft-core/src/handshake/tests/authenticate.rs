//! AUTHENTICATE (tor-spec 4.4).

use super::*;

#[test]
fn every_field_of_authenticate_is_checked() {
    let result = |change: &dyn Fn(&mut Fields)| {
        let (mut bob, sent, heard) = certified();
        bob.feed(&authenticate_cell(&sent, &heard, change, &[]))
    };
    result(&|_| {}).unwrap();
    type Change<'a> = &'a dyn Fn(&mut Fields);
    let changes: [(AuthField, Change<'_>); 7] = [
        (AuthField::Cid, &|f| f.cid = f.sid),
        (AuthField::Sid, &|f| f.sid[31] ^= 1),
        (AuthField::CidEd, &|f| f.cid_ed = f.sid_ed),
        (AuthField::SidEd, &|f| f.sid_ed = [0; 32].into()),
        (AuthField::Slog, &|f| f.slog = f.clog),
        (AuthField::Clog, &|f| f.clog = f.slog),
        (AuthField::Scert, &|f| f.scert[0] ^= 128),
    ];
    for (field, change) in changes {
        let error = result(change).unwrap_err();
        assert_eq!(error, HandshakeError::AuthenticationMismatch(field));
        assert_eq!(error.class(), ErrorClass::AuthenticationFailed);
    }
}

#[test]
fn authenticate_is_bound_to_the_tls_session() {
    let (mut bob, sent, heard) = certified();
    bob.tls.secret = 8;
    assert_eq!(
        bob.feed_err(&authenticate_cell(&sent, &heard, |_| {}, &[])),
        HandshakeError::AuthenticationMismatch(AuthField::TlsSecrets)
    );
}

#[test]
fn authenticate_of_another_session_cannot_be_replayed() {
    let (mut bob, sent, heard) = certified();
    let proof = authenticate_cell(&sent, &heard, |_| {}, &[]);
    bob.feed(&proof).unwrap();
    // Even the TLS secret is equal; only the challenge is new.
    let mut again = responder();
    again.rng = rng(1234);
    again.feed(&sent).unwrap();
    assert_eq!(
        again.feed_err(&proof),
        HandshakeError::AuthenticationMismatch(AuthField::Slog)
    );
}

#[test]
fn authenticate_may_have_more_fields_but_not_less() {
    let (mut bob, sent, heard) = certified();
    bob.feed(&authenticate_cell(&sent, &heard, |_| {}, b"more to come"))
        .unwrap();

    for len in [0, 1, 71, 72, 287, 351] {
        let (mut bob, sent, heard) = certified();
        let body = authenticate_cell(&sent, &heard, |_| {}, &[])[11..][..len].to_vec();
        let mut cell = Vec::new();
        Authenticate { method: 3, body }.encode(&mut cell).unwrap();
        assert_eq!(
            bob.feed_err(&cell),
            HandshakeError::AuthenticationTooShort(352 - len)
        );
    }
}

#[test]
fn authenticate_must_be_of_type_3_and_signed() {
    let (mut bob, sent, heard) = certified();
    let mut cell = authenticate_cell(&sent, &heard, |_| {}, &[]);
    cell[8] = 1;
    assert_eq!(bob.feed_err(&cell), HandshakeError::AuthenticationMethod(1));

    let (mut bob, sent, heard) = certified();
    let mut cell = authenticate_cell(&sent, &heard, |_| {}, &[]);
    cell[11 + 7] = b'1';
    assert_eq!(
        bob.feed_err(&cell),
        HandshakeError::AuthenticationMismatch(AuthField::Type)
    );

    // RAND, then the signature itself.
    for at in [11 + 270, 11 + 351] {
        let (mut bob, sent, heard) = certified();
        let mut cell = authenticate_cell(&sent, &heard, |_| {}, &[]);
        cell[at] ^= 1;
        assert_eq!(bob.feed_err(&cell), HandshakeError::AuthenticationSignature);
    }
}

#[test]
fn no_bit_of_a_relays_proof_can_be_changed() {
    let mut alice = relay();
    let (_, flight) = greeted(&mut alice);
    alice.feed(&flight).unwrap();
    let proof = alice.out();
    let netinfo = proof.len() - 514;
    for at in 0..netinfo {
        let mut bytes = proof.clone();
        bytes[at] ^= 1;
        let mut alice = relay();
        let (mut bob, _) = greeted(&mut alice);
        let result = bob.feed(&bytes);
        let peer = bob.handshake.established().map(|found| found.peer);
        assert!(
            result.is_err() || peer.is_none_or(|peer| peer == PeerIdentity::Unauthenticated),
            "byte {at}: {result:?}, {peer:?}"
        );
    }
}

#[test]
fn nobody_can_change_what_the_responder_sent_before_a_proof() {
    // VERSIONS (a downgrade), CERTS (an unknown type more) and AUTH_CHALLENGE, all acceptable.
    let mut more = BOB_ID.responder_certs();
    more.certs.push((99, vec![1, 2, 3]));
    let mut challenge = vec![0; 32];
    challenge.extend_from_slice(&[0, 1, 0, 3]);
    for (index, cell) in [
        (0, versions(&[4])),
        (1, certs_cell(&more)),
        (2, variable(130, &challenge)),
    ] {
        let mut alice = relay();
        let (mut bob, flight) = greeted(&mut alice);
        let mut flight = responder_cells(&flight);
        flight[index] = cell;
        alice.feed(&flight.concat()).unwrap();
        assert_eq!(
            bob.feed_err(&alice.out()),
            HandshakeError::AuthenticationMismatch(AuthField::Slog)
        );
    }
}
