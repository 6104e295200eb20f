//! Onionskins and their replies: whatever arrives, an answer or a named error.
//!
//! The first byte is the kind of the rest. The message inside an ntor-v3
//! onionskin stands behind a MAC that a fuzzer does not forge, so one kind of
//! input is encrypted here before it is answered.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use weft_cell::ChanCmd;
use weft_cell::circ_msg::{CreateReply, CreateRequest};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_crypto::HopKeys;
use weft_crypto::cgo::CgoKeys;
use weft_crypto::circuit::{OriginCircuit, RelayCircuit};
use weft_crypto::handshake::{
    Answer, HandshakeError, OnionKeys, ReplyParams, Request, fast, negotiate, negotiate_all, ntor,
    ntor_v3,
};
use weft_crypto::relay_cell::{BODY_LEN, RelayCrypt};

const RSA_IDENTITY: RsaIdentity = RsaIdentity([1; 20]);
const ED_IDENTITY: Ed25519Identity = Ed25519Identity([2; 32]);

fuzz_target!(|input: &[u8]| {
    let Some((kind, data)) = input.split_first() else {
        return;
    };
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let keys = OnionKeys::new(RSA_IDENTITY, ED_IDENTITY, &[3; 32], Some(&[4; 32]));
    match kind {
        0 => request(data, &keys, &mut rng),
        1 => ntor_v3_message(data, &keys, &mut rng),
        2 => replies(data, &keys, &mut rng),
        _ => relay_cells(data, &mut rng),
    }
});

/// A CREATE2: two bytes of handshake type, then the client's handshake.
fn request(data: &[u8], keys: &OnionKeys, rng: &mut ChaCha8Rng) {
    let Some((handshake_type, data)) = data.split_first_chunk::<2>() else {
        return;
    };
    let request = CreateRequest::Create2 {
        handshake_type: u16::from_be_bytes(*handshake_type),
        data: data.to_vec(),
    };
    let params = ReplyParams::default();
    let alone = negotiate(&request, keys, &params, rng);
    if let Err(error) = &alone {
        assert!(
            !matches!(error, HandshakeError::Internal(_)),
            "{error}: {request:?}"
        );
    }
    // Together with an honest one it fares the same, and does that no harm.
    let client = ntor::ClientState::start(&RSA_IDENTITY, &keys.current_public(), rng);
    let honest = CreateRequest::Create2 {
        handshake_type: 2,
        data: client.onionskin().to_vec(),
    };
    let both = [&request, &honest].map(|request| Request {
        request,
        keys,
        params: &params,
    });
    let [together, answer] = <[_; 2]>::try_from(negotiate_all(&both, rng))
        .unwrap_or_else(|answers| panic!("{} answers to two requests", answers.len()));
    let outcome = |result: Result<Answer, HandshakeError>| {
        result
            .map(|answer| answer.sendme_inc)
            .map_err(|error| error.to_string())
    };
    assert_eq!(outcome(together), outcome(alone), "{request:?}");
    let answer = answer.expect("an honest onionskin");
    let CreateReply::Created2 { data } = answer.reply else {
        panic!("a CREATE2 was answered with a CREATED_FAST");
    };
    let keys = client.finish(&data).expect("an honest reply");
    assert!(answer.keys.tor1() == Some(&keys));
}

/// The message of an ntor-v3 client that knows the relay's keys.
fn ntor_v3_message(message: &[u8], keys: &OnionKeys, rng: &mut ChaCha8Rng) {
    let Ok((client, data)) = ntor_v3::ClientState::start_with_message(
        &ED_IDENTITY,
        &keys.current_public(),
        message,
        rng,
    ) else {
        return;
    };
    let request = CreateRequest::Create2 {
        handshake_type: 3,
        data,
    };
    let params = ReplyParams {
        sendme_inc: Some(31),
    };
    match negotiate(&request, keys, &params, rng) {
        Ok(answer) => {
            let CreateReply::Created2 { data } = answer.reply else {
                panic!("a CREATE2 was answered with a CREATED_FAST");
            };
            let (responses, client_keys) = client.finish(&data).expect("an honest reply");
            // This client does not know what its message asks for.
            assert!(client_keys == answer.keys || answer.keys.tor1().is_none());
            assert_eq!(responses.is_empty(), answer.sendme_inc.is_none());
        }
        Err(HandshakeError::BadExtensions(_) | HandshakeError::UnsupportedSubprotocol) => {}
        Err(error) => panic!("an honest onionskin was refused: {error}"),
    }
}

/// Replies to a client that no relay made.
fn replies(reply: &[u8], keys: &OnionKeys, rng: &mut ChaCha8Rng) {
    let client = ntor::ClientState::start(&RSA_IDENTITY, &keys.current_public(), rng);
    assert!(client.finish(reply).is_err());
    if let Ok((client, _)) =
        ntor_v3::ClientState::start(&ED_IDENTITY, &keys.current_public(), &[], rng)
    {
        assert!(client.finish(reply).is_err());
    }
    if let Some((y, rest)) = reply.split_first_chunk::<20>()
        && let Some(kh) = rest.first_chunk::<20>()
    {
        assert!(fast::ClientState::start(rng).finish(y, kh).is_err());
    }
}

/// Relay cells that no other end made, in both directions.
fn relay_cells(data: &[u8], rng: &mut ChaCha8Rng) {
    let keys = fast::server(&[5; 20], rng).keys;
    let mut relay = RelayCrypt::new(&keys);
    let mut client = OriginCircuit::new();
    client.add_hop(&keys.clone().into());
    client.add_hop(&fast::server(&[6; 20], rng).keys.into());
    for chunk in data.chunks(BODY_LEN) {
        let mut body = [0; BODY_LEN];
        body[..chunk.len()].copy_from_slice(chunk);
        let before = relay.forward_digest();
        assert!(!relay.decrypt_forward(&mut body));
        assert_eq!(relay.forward_digest(), before);
        assert_eq!(client.decrypt_backward(&mut body), None);
    }
    // The same, of which the nearer hop speaks Counter Galois Onion.
    let cgo = HopKeys::from(CgoKeys::from_key_material(&[7; CgoKeys::LEN]));
    let mut relay = RelayCircuit::new(&cgo);
    let mut origin = OriginCircuit::new();
    origin.add_hop(&cgo);
    origin.add_hop(&keys.into());
    let mut to = [0; BODY_LEN];
    for chunk in data.chunks(BODY_LEN) {
        let mut body = [0; BODY_LEN];
        body[..chunk.len()].copy_from_slice(chunk);
        assert!(!relay.decrypt_forward_to(ChanCmd::RELAY, &body, &mut to));
        assert_eq!(origin.decrypt_backward_to(&body, &mut to), None);
    }
}
