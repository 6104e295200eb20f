//! What a client takes for a relay's word about its bandwidth: ABRA_WEIGHT's body, its certificate and signature, and their order.
//!
//! Input: statements, each after a byte for the seconds that pass before it and two for its length.
#![no_main]

use std::time::{Duration, SystemTime};

use libfuzzer_sys::fuzz_target;
use weft_cell::abra::MAX_WEIGHT;
use weft_cell::identity::Ed25519Identity;
use weft_core::extensions::abra::{MAX_AGE, Memo};

/// The relay of `weft-core`'s tests, which signed the examples.
const RELAY: Ed25519Identity = Ed25519Identity([
    255, 135, 160, 176, 163, 199, 192, 206, 130, 126, 156, 173, 165, 255, 121, 231, 90, 68, 160,
    99, 59, 252, 181, 181, 15, 153, 48, 125, 219, 38, 179, 55,
]);
const BEGIN: u64 = 1_795_000_000;

fuzz_target!(|input: &[u8]| {
    let (mut rest, mut memo) = (input, Memo::default());
    let (mut now, mut last) = (BEGIN, 0);
    while let [pause, high, low, more @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(more.len());
        let (body, after) = more.split_at(length);
        rest = after;
        now += u64::from(*pause);
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(now);
        // Virtual time has no signatures, and the same rules otherwise.
        let _ = Memo::default().accept_unsigned(body, wall);
        let Ok(claim) = memo.accept(body, &RELAY, wall) else {
            continue;
        };
        assert!((0.0..=MAX_WEIGHT).contains(&claim.weight));
        assert!(claim.time >= last && claim.time + MAX_AGE.as_secs() >= now);
        last = claim.time;
    }
});
