//! What a server of traffic streams sends to the client.
//!
//! Input: a byte that is the length of pieces, a byte that is the length of the download in units of 16,
//! and what arrives. How the bytes are cut changes nothing but the error's words, and nothing that the server sends is counted past
//! what was asked for.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use weft_model::traffic::{ClientStream, Plan};

/// What the client counts, and whether it is complete; or that it gave up.
fn receive(input: &[u8], piece: usize, bytes: u64) -> Option<(u64, bool)> {
    let mut client = ClientStream::new(Plan::download(bytes), 7, Duration::ZERO);
    client.opened(Duration::ZERO);
    let request = client.output(Duration::ZERO).len();
    client.sent(request, Duration::ZERO);
    for piece in input.chunks(piece.max(1)) {
        client.receive(piece, Duration::ZERO).ok()?;
    }
    let is_complete = client.is_complete();
    let (_, times) = client.into_times();
    assert!(times.down.bytes <= bytes);
    Some((times.down.bytes, is_complete))
}

fuzz_target!(|input: &[u8]| {
    let Some((&[length, units], bytes)) = input.split_first_chunk() else {
        return;
    };
    let wanted = 16 * u64::from(units);
    assert_eq!(
        receive(bytes, length.into(), wanted),
        receive(bytes, bytes.len(), wanted)
    );
});
