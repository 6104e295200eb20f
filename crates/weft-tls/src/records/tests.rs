//! Records against rustls: every cipher and version, both directions, new keys, broken bytes.

use std::io::{Read as _, Write as _};
use std::mem::offset_of;
use std::sync::Arc;

use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
use rustls::{Connection, SupportedCipherSuite};
use weft_core::handshake::EphemeralKeys;

use super::messages::{HELLO_REQUEST, NEW_SESSION_TICKET};
use super::*;
use crate::{LinkLifetimes, LinkSession, LinkTls};

/// Two ends of a session: `ours` is taken over, `peer` stays rustls's.
struct Pair {
    ours: Records,
    peer: Connection,
}

fn tls() -> LinkTls {
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    let now = std::time::SystemTime::now();
    let keys = EphemeralKeys::generate(now, &mut rng).unwrap();
    LinkTls::relay(keys.keys(), LinkLifetimes::default(), now, &mut rng).unwrap()
}

/// Moves records one way, whole ones only; returns whether there were any.
fn carry(from: &mut Connection, to: &mut Connection) -> bool {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).unwrap();
    }
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        to.read_tls(&mut rest).unwrap();
        to.process_new_packets().unwrap();
    }
    !bytes.is_empty()
}

impl Pair {
    /// A session with this suite and tickets from the server; `ours` is the server or the client.
    fn new(tls: &mut LinkTls, suite: SupportedCipherSuite, server: bool) -> Pair {
        let client_config = Arc::make_mut(&mut tls.client);
        let mut provider = (**client_config.crypto_provider()).clone();
        provider.cipher_suites = vec![suite];
        let versions = [suite.version()];
        let builder = rustls::ClientConfig::builder_with_provider(Arc::new(provider.clone()))
            .with_protocol_versions(&versions)
            .unwrap();
        let verifier =
            crate::verifier::AnyCertificate::new(provider.signature_verification_algorithms);
        *client_config = builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        client_config.enable_secret_extraction = true;
        if !server && let Some(relay) = &mut tls.relay {
            // As another implementation might.
            Arc::make_mut(&mut relay.server).send_tls13_tickets = 2;
        }
        let mut client = tls.connect(&mut ChaCha12Rng::seed_from_u64(2)).unwrap();
        let mut accepted = tls.accept().unwrap();
        loop {
            let there = carry(client.tls(), accepted.tls());
            // Messages that the server sends after its handshake are left for the client's new
            // owner.
            if !client.tls().is_handshaking() && !accepted.tls().is_handshaking() {
                break;
            }
            let back = carry(accepted.tls(), client.tls());
            assert!(there | back, "the handshake stands still");
        }
        let (ours, mut peer): (LinkSession, Connection) = if server {
            (accepted, client.connection)
        } else {
            (client, accepted.connection)
        };
        let (unsent, ours) = ours.into_records().unwrap();
        let mut rest = unsent.as_slice();
        while !rest.is_empty() {
            peer.read_tls(&mut rest).unwrap();
            peer.process_new_packets().unwrap();
        }
        Pair { ours, peer }
    }

    /// Sends from us to rustls.
    fn send(&mut self, data: &[u8]) {
        let mut wire = Vec::new();
        // In pieces, as cells are.
        for record in data.chunks(MAX_PLAINTEXT) {
            self.ours.seal(record.chunks(514), &mut wire).unwrap();
        }
        let mut got = Vec::new();
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            self.peer.read_tls(&mut rest).unwrap();
            self.peer.process_new_packets().unwrap();
            let _ = self.peer.reader().read_to_end(&mut got);
        }
        assert!(got == data);
    }

    /// Opens all records that rustls has to send: their data, and true if the peer closed.
    fn take(&mut self) -> Result<(Vec<u8>, bool), RecordError> {
        let mut wire = Vec::new();
        while self.peer.wants_write() {
            self.peer.write_tls(&mut wire).unwrap();
        }
        let (mut data, mut closed) = (Vec::new(), false);
        let mut rest = wire.as_mut_slice();
        while let Some(length) = whole(rest)? {
            let (record, after) = rest.split_at_mut(length);
            rest = after;
            match self.ours.open(record)? {
                Content::Data(bytes) => data.extend_from_slice(bytes),
                Content::Nothing => {}
                Content::Closed => closed = true,
            }
        }
        assert!(rest.is_empty());
        Ok((data, closed))
    }

    /// Sends from rustls to us.
    fn receive(&mut self, data: &[u8]) {
        self.peer.writer().write_all(data).unwrap();
        assert!(self.take().unwrap().0 == data);
    }
}

fn noise(length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| u8::try_from(i % 253).unwrap())
        .collect()
}

#[test]
fn every_cipher_of_both_versions_carries_data_both_ways() {
    let mut tls = tls();
    for suite in ALL_CIPHER_SUITES {
        // The link certificate is RSA's.
        if format!("{suite:?}").contains("ECDSA") {
            continue;
        }
        for server in [false, true] {
            let mut pair = Pair::new(&mut tls, *suite, server);
            for length in [1, 514, 16384, 0, 40_000] {
                pair.send(&noise(length));
                pair.receive(&noise(length));
            }
            let mut wire = Vec::new();
            pair.ours.seal_close_notify(&mut wire).unwrap();
            pair.peer.read_tls(&mut wire.as_slice()).unwrap();
            assert!(pair.peer.process_new_packets().unwrap().peer_has_closed());
            pair.peer.send_close_notify();
            assert!(pair.take().unwrap().1);
        }
    }
}

#[test]
fn both_sides_may_change_keys_again_and_again() {
    let mut tls = tls();
    for suite in ALL_CIPHER_SUITES {
        if suite.tls13().is_none() {
            continue;
        }
        for server in [false, true] {
            let mut pair = Pair::new(&mut tls, *suite, server);
            for round in 0..5 {
                // rustls asks for new keys in return.
                pair.peer.refresh_traffic_keys().unwrap();
                pair.receive(&noise(100 + round));
                assert!(pair.ours.owes_update);
                pair.send(&noise(200 + round));
                assert!(!pair.ours.owes_update);
                pair.send(&noise(300 + round));
                // And ours are used up.
                pair.ours.tx.most = pair.ours.tx.sequence;
                pair.send(&noise(400 + round));
                assert_eq!(pair.ours.tx.sequence, 1);
            }
        }
    }
}

fn tls12(aead: &str) -> SupportedCipherSuite {
    let wanted = |suite: &&SupportedCipherSuite| {
        suite.tls13().is_none() && format!("{suite:?}").contains(&format!("ECDHE_RSA_WITH_{aead}"))
    };
    *ALL_CIPHER_SUITES.iter().find(wanted).unwrap()
}

#[test]
fn tls12_keys_that_are_used_up_end_the_session() {
    let mut tls = tls();
    let mut pair = Pair::new(&mut tls, tls12("AES_128_GCM"), true);
    pair.ours.tx.most = pair.ours.tx.sequence;
    let mut wire = Vec::new();
    assert_eq!(
        pair.ours.seal([&[1u8][..]], &mut wire),
        Err(RecordError::UsedUp)
    );
    assert!(wire.is_empty());
}

#[test]
fn tls12_keys_know_how_far_they_are_used_in_either_direction() {
    let mut tls = tls();
    for server in [false, true] {
        let mut pair = Pair::new(&mut tls, tls12("AES_128_GCM"), server);
        let before = pair.ours.key_use().unwrap();
        // The Finished went under them.
        assert_eq!(before.used, 1);
        assert_eq!(before.used + before.left, RECORDS_PER_KEY);
        pair.send(&noise(1));
        pair.receive(&noise(1));
        pair.receive(&noise(1));
        assert_eq!(pair.ours.key_use().unwrap().used, 3);
        pair.send(&noise(3 * MAX_PLAINTEXT));
        assert_eq!(pair.ours.key_use().unwrap().used, 5);

        let mut pair = Pair::new(&mut tls, tls12("CHACHA20"), server);
        pair.send(&noise(1));
        assert!(pair.ours.key_use().unwrap().left > 1 << 60);
    }
    let (client, _) = mirrored();
    assert_eq!(client.key_use(), None);
}

/// Our own client and server that speak to each other.
fn mirrored() -> (Records, Records) {
    Records::loopback().unwrap()
}

/// Sends one record.
fn send(
    from: &mut Records,
    to: &mut Records,
    kind: u8,
    content: &[u8],
) -> Result<usize, RecordError> {
    let mut wire = Vec::new();
    from.seal_as(kind, [content], &mut wire).unwrap();
    assert_eq!(whole(&wire), Ok(Some(wire.len())));
    match to.open(&mut wire)? {
        Content::Data(bytes) => {
            assert_eq!((kind, bytes), (APPLICATION_DATA, content));
            Ok(bytes.len())
        }
        Content::Nothing | Content::Closed => Ok(0),
    }
}

fn is_unexpected(result: Result<Content<'_>, RecordError>) -> bool {
    matches!(result, Err(RecordError::Unexpected(_)))
}

#[test]
fn what_has_no_place_after_the_handshake_ends_the_session() {
    type Case<'c> = (u8, &'c [u8], fn(Result<Content<'_>, RecordError>) -> bool);
    let cases: [Case<'_>; 10] = [
        (ALERT, &[2, 40], |r| r == Err(RecordError::Alert(40))),
        (ALERT, &[1, USER_CANCELED], |r| r == Ok(Content::Nothing)),
        (ALERT, &[1], is_unexpected),
        (CHANGE_CIPHER_SPEC, &[1], is_unexpected),
        (HANDSHAKE, &[], |r| r == Err(RecordError::Malformed)),
        (HANDSHAKE, &[HELLO_REQUEST, 0, 0, 0], is_unexpected),
        (HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 2], |r| {
            r == Err(RecordError::Malformed)
        }),
        (HANDSHAKE, &[KEY_UPDATE, 0, 0, 2], |r| {
            r == Err(RecordError::Malformed)
        }),
        (
            HANDSHAKE,
            &[KEY_UPDATE, 0, 0, 1, 0, 4, 0, 0, 0],
            is_unexpected,
        ),
        // A client resumes nothing, and has nothing to be resumed.
        (HANDSHAKE, &[NEW_SESSION_TICKET], is_unexpected),
    ];
    for (kind, content, expected) in cases {
        let (mut client, mut server) = mirrored();
        let mut wire = Vec::new();
        client.seal_as(kind, [content], &mut wire).unwrap();
        assert!(expected(server.open(&mut wire)), "{kind} {content:?}");
    }
    // CertificateRequest, which tor-spec never has after the handshake.
    let (mut client, mut server) = mirrored();
    let error = send(&mut server, &mut client, HANDSHAKE, &[13, 0, 0, 3, 0, 0, 0]).unwrap_err();
    assert_eq!(error, RecordError::Unexpected("a handshake message"));
}

#[test]
fn a_client_ignores_tickets_in_any_pieces_but_nothing_may_come_between() {
    let (mut client, mut server) = mirrored();
    let mut send_record = |kind, content: &[u8]| send(&mut server, &mut client, kind, content);
    for part in [
        &[NEW_SESSION_TICKET, 0][..],
        &[0, 3, 1],
        &[1, 1, NEW_SESSION_TICKET, 0, 0, 0, NEW_SESSION_TICKET],
        &[0, 0, 1, 9],
    ] {
        assert_eq!(send_record(HANDSHAKE, part), Ok(0));
    }
    assert_eq!(send_record(APPLICATION_DATA, b"data"), Ok(4));
    for start in [
        &[NEW_SESSION_TICKET, 0][..],
        &[NEW_SESSION_TICKET, 0, 0, 2, 1],
    ] {
        let (mut client, mut server) = mirrored();
        send(&mut server, &mut client, HANDSHAKE, start).unwrap();
        assert_eq!(
            send(&mut server, &mut client, APPLICATION_DATA, b"data"),
            Err(RecordError::Unexpected("data within a handshake message"))
        );
    }
}

#[test]
fn a_message_without_end_is_refused_at_its_length() {
    let (mut client, mut server) = mirrored();
    assert_eq!(
        send(
            &mut server,
            &mut client,
            HANDSHAKE,
            &[NEW_SESSION_TICKET, 0, 0x40, 1]
        ),
        Err(RecordError::Malformed)
    );
}

#[test]
fn a_key_update_in_pieces_is_one() {
    let (mut client, mut server) = mirrored();
    for byte in [KEY_UPDATE, 0, 0, 1, 1] {
        assert!(!server.owes_update);
        send(&mut client, &mut server, HANDSHAKE, &[byte]).unwrap();
    }
    assert!(server.owes_update);
    client.tx.update().unwrap();
    send(&mut client, &mut server, APPLICATION_DATA, b"data").unwrap();
}

/// Number of records of this kind that one end may send before the other ends the link, with `data`
/// bytes of application data after each; `None` if 100,000 do not end it.
fn taken(to_server: bool, kind: u8, content: &[u8], data: usize) -> Option<usize> {
    let (mut client, mut server) = mirrored();
    let (from, to) = if to_server {
        (&mut client, &mut server)
    } else {
        (&mut server, &mut client)
    };
    let data = noise(data);
    (0..100_000).position(|_| {
        let result = send(from, to, kind, content);
        if kind == HANDSHAKE && content.first() == Some(&KEY_UPDATE) && result.is_ok() {
            from.tx.update().unwrap();
        }
        match result {
            Ok(_) => {
                if !data.is_empty() {
                    let sent = send(from, to, APPLICATION_DATA, &data);
                    assert_eq!(sent, Ok(data.len()));
                }
                false
            }
            Err(error) => {
                assert!(matches!(error, RecordError::Overhead(_)), "{error}");
                true
            }
        }
    })
}

#[test]
fn what_is_no_data_is_paid_for_by_data() {
    let update = |wants| [KEY_UPDATE, 0, 0, 1, wants];
    // A burst, whichever side sends it and whether or not it wants new keys in return.
    for to_server in [false, true] {
        for wants in [0, 1] {
            assert_eq!(taken(to_server, HANDSHAKE, &update(wants), 0), Some(15));
        }
        assert_eq!(taken(to_server, ALERT, &[1, USER_CANCELED], 0), Some(256));
        assert_eq!(taken(to_server, APPLICATION_DATA, &[], 0), Some(256));
        assert_eq!(taken(to_server, APPLICATION_DATA, &[1], 0), Some(16_644));
    }
    let ticket = [NEW_SESSION_TICKET, 0, 0, 0];
    assert_eq!(taken(false, HANDSHAKE, &ticket, 0), Some(256));
    // Some data between stretches the burst by as much as it pays, and by no more.
    assert_eq!(taken(true, HANDSHAKE, &update(1), 1), Some(15));
    assert_eq!(taken(true, HANDSHAKE, &update(1), 16_384), Some(19));
    assert_eq!(taken(true, APPLICATION_DATA, &[1], 100), Some(38_833));
    // A peer that pays for everything may go on forever: one whose keys end after half a megabyte,
    // and one that sends a cell in two records, one of a single byte.
    let (mut client, mut server) = mirrored();
    let data = noise(MAX_PLAINTEXT);
    for _ in 0..200 {
        send(&mut client, &mut server, HANDSHAKE, &update(1)).unwrap();
        client.tx.update().unwrap();
        for _ in 0..32 {
            send(&mut client, &mut server, APPLICATION_DATA, &data).unwrap();
        }
    }
    assert_eq!(taken(true, APPLICATION_DATA, &[1], 513), None);
}

#[test]
fn altered_repeated_and_missing_records_do_not_decrypt() {
    let seal = |tx: &mut Records| {
        let mut wire = Vec::new();
        tx.seal([&b"some data"[..]], &mut wire).unwrap();
        wire
    };
    for at in 0..HEADER + 9 + 1 + TAG {
        let (mut tx, mut rx) = mirrored();
        let mut wire = seal(&mut tx);
        wire[at] ^= 1;
        assert!(rx.open(&mut wire).is_err(), "byte {at}");
    }
    let (mut tx, mut rx) = mirrored();
    let first = seal(&mut tx);
    assert!(rx.open(&mut first.clone()).is_ok());
    assert_eq!(rx.open(&mut first.clone()), Err(RecordError::Decrypt));
    let (mut tx, mut rx) = mirrored();
    seal(&mut tx);
    assert_eq!(rx.open(&mut seal(&mut tx)), Err(RecordError::Decrypt));
}

#[test]
fn any_bytes_are_a_record_or_part_of_one_or_an_error() {
    assert_eq!(whole(&[]), Ok(None));
    assert_eq!(whole(&[23, 3, 3, 0]), Ok(None));
    assert_eq!(whole(&[23, 3, 3, 0, 2, 1]), Ok(None));
    assert_eq!(whole(&[23, 3, 3, 0, 1, 1, 9]), Ok(Some(6)));
    assert_eq!(whole(b"GET / HTTP/1.1"), Err(RecordError::NotARecord));
    assert_eq!(whole(&[23, 3, 3, 0xff, 0xff]), Err(RecordError::NotARecord));
    let (_, mut rx) = mirrored();
    for length in 0..64 {
        let mut bytes = vec![23; length];
        assert!(rx.open(&mut bytes).is_err());
    }
}

proptest::proptest! {
    #[test]
    fn whatever_a_peer_seals_is_taken_or_refused(
        messages in proptest::collection::vec(
            (19u8..26, proptest::collection::vec(proptest::num::u8::ANY, 0..40)),
            0..8,
        ),
    ) {
        let (mut tx, mut rx) = mirrored();
        for (kind, content) in messages {
            let mut wire = Vec::new();
            tx.seal_as(kind, [content.as_slice()], &mut wire).unwrap();
            if rx.open(&mut wire).is_err() {
                break;
            }
        }
    }
}

/// A session with this suite, both sides still rustls's: the client, the server.
fn before_the_takeover(tls: &LinkTls) -> (LinkSession, LinkSession) {
    let mut client = tls.connect(&mut ChaCha12Rng::seed_from_u64(2)).unwrap();
    let mut server = tls.accept().unwrap();
    while carry(client.tls(), server.tls()) | carry(server.tls(), client.tls()) {}
    (client, server)
}

/// RFC 8446 5.3: each key begins at sequence number 0, so a key that is derived twice is a nonce
/// that is used twice.
#[test]
fn a_key_update_before_the_takeover_ends_the_session() {
    let tls = tls();
    for (update_client, take_client) in [(true, true), (true, false), (false, true), (false, false)]
    {
        let (mut client, mut server) = before_the_takeover(&tls);
        let sender = if update_client {
            &mut client
        } else {
            &mut server
        };
        sender.tls().refresh_traffic_keys().unwrap();
        // The request, and the answer to it.
        while carry(client.tls(), server.tls()) | carry(server.tls(), client.tls()) {}
        let taken = if take_client { client } else { server };
        assert!(matches!(
            taken.into_records(),
            Err(crate::LinkTlsError::Records(RecordError::UpdatedTooEarly))
        ));
    }
}

#[test]
fn key_updates_without_end_end_the_session() {
    let mut tls = tls();
    let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    for server in [false, true] {
        let mut pair = Pair::new(&mut tls, suite, server);
        let taken = (0..1000).position(|_| {
            pair.peer.refresh_traffic_keys().unwrap();
            pair.take().is_err()
        });
        assert!(taken.is_some_and(|taken| taken < 64), "{taken:?}");
    }
}

#[test]
#[cfg(target_pointer_width = "64")]
fn a_record_needs_two_lines_of_the_cache_of_its_session() {
    assert!(offset_of!(Direction, origin) <= 64);
    assert_eq!(offset_of!(Records, rx), 0);
    assert_eq!(offset_of!(Records, tx), 128);
    assert!(size_of::<Records>() <= 256);
}
