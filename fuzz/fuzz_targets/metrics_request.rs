//! A request to the MetricsPort.
//!
//! Input: what a client sends. It may come in any pieces: what is decided of its beginning is not
//! changed by what follows, and a decision comes before the head's bound is passed.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
use weft_node::fuzzing::{MAX_HEAD, Verdict, parse};

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let whole = parse(input, true);
    assert!(whole.is_some() || input.len() < MAX_HEAD);
    if let Some(verdict) = whole {
        let mut more = input.to_vec();
        more.extend_from_slice(b"GET /metrics HTTP/1.0\r\n\r\n");
        assert_eq!(parse(&more, true), Some(verdict));
    }
    let half = input.get(..input.len() / 2).unwrap_or_default();
    if let Some(verdict) = parse(half, true) {
        assert_eq!(whole, Some(verdict));
    }
    if whole == Some(Verdict::Metrics) {
        assert!(input.windows(8).any(|window| window == b"/metrics"));
    }
});

/// Without `--cfg fuzzing` weft-node does not export the parser, and there is nothing to run.
#[cfg(not(fuzzing))]
fn main() {}
