//! Connections to the extended ORPort: the first byte of an input is how the rest is cut; where the second one is odd, the
//! program authenticates before it. However it is cut, the same client comes out or none, and nobody who does not know the
//! cookie gets past the beginning.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_proxy::transports::{ExtOr, Progress};

const COOKIE: [u8; 32] = [1; 32];
/// The hash that proves knowledge of the cookie, where both nonces are zeros.
const PROOF: [u8; 32] = [
    0x61, 0xb8, 0xdc, 0x11, 0x86, 0xec, 0x35, 0xf3, 0x35, 0x22, 0x2b, 0xa7, 0x5a, 0x3d, 0x82, 0xea,
    0x7a, 0xf7, 0x70, 0x3e, 0xbf, 0x94, 0xd3, 0x73, 0x11, 0x73, 0xa6, 0xde, 0x43, 0x32, 0x09, 0xab,
];

fn run(sent: &[u8], cut: usize) -> (Option<Result<Progress, String>>, Vec<u8>, bool) {
    let mut connection = ExtOr::new(COOKIE, [0; 32]);
    let mut answer = Vec::new();
    let mut last = None;
    for piece in sent.chunks(cut) {
        let progress = connection.receive(piece, &mut answer);
        let more = progress == Ok(Progress::More);
        last = Some(progress.map_err(|why| why.to_string()));
        if !more {
            break;
        }
    }
    (last, answer, connection.is_authenticated())
}

fuzz_target!(|data: &[u8]| {
    let [cut, login, rest @ ..] = data else {
        return;
    };
    let mut sent = Vec::new();
    if login & 1 == 1 {
        sent.push(1);
        sent.extend_from_slice(&[0; 32]);
        sent.extend_from_slice(&PROOF);
    }
    sent.extend_from_slice(rest);
    let (last, answer, is_authenticated) = run(&sent, usize::from(*cut).max(1));
    // An authentication, a hash and a nonce, its result, and the last word.
    assert!(answer.len() <= 64 + 1 + 4);
    if let Some(Ok(Progress::Done(client))) = &last {
        assert_eq!(answer.len(), 69);
        assert!(is_authenticated && (1..=64).contains(&client.transport_name().len()));
    }
    // A hash, a nonce, and that the program's hash is right.
    assert_eq!(is_authenticated, answer.get(64) == Some(&1));
    // A byte at a time, bytes behind the end are not seen with it.
    let (whole, ..) = run(&sent, sent.len().max(1));
    if let Some(Ok(Progress::Done(_))) = &whole {
        assert_eq!(last, whole);
    }
});
