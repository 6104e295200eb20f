//! What a client sends to the server of traffic streams.
//!
//! Input: a byte that is the length of pieces, and what arrives. How the bytes are cut changes nothing.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use weft_model::traffic::ServerStream;

/// The first bytes that the server sends, and whether it gave up.
fn receive(input: &[u8], piece: usize) -> (Vec<u8>, bool) {
    let mut server = ServerStream::default();
    for piece in input.chunks(piece.max(1)) {
        if server.receive(piece, Duration::ZERO).is_err() {
            return (Vec::new(), true);
        }
    }
    let mut sent = Vec::new();
    while sent.len() < 50_000 {
        let output = server.output(Duration::ZERO);
        if output.is_empty() {
            break;
        }
        sent.extend_from_slice(output);
        let count = output.len();
        server.sent(count);
    }
    sent.truncate(50_000);
    (sent, false)
}

fuzz_target!(|input: &[u8]| {
    let Some((length, bytes)) = input.split_first() else {
        return;
    };
    assert_eq!(
        receive(bytes, (*length).into()),
        receive(bytes, bytes.len())
    );
});
