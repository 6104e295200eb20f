//! A request to the MetricsPort.
//!
//! Input: what a client sends. It may come in any pieces: what is decided of its beginning is not
//! changed by what follows, and a decision comes before the head's bound is passed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_node::metrics::request::{MAX_HEAD, Verdict, parse};

fuzz_target!(|input: &[u8]| {
    let whole = parse(input);
    assert!(whole.is_some() || input.len() < MAX_HEAD);
    if let Some(verdict) = whole {
        let mut more = input.to_vec();
        more.extend_from_slice(b"GET /metrics HTTP/1.0\r\n\r\n");
        assert_eq!(parse(&more), Some(verdict));
    }
    let half = input.get(..input.len() / 2).unwrap_or_default();
    if let Some(verdict) = parse(half) {
        assert_eq!(whole, Some(verdict));
    }
    if whole == Some(Verdict::Metrics) {
        assert!(input.windows(8).any(|window| window == b"/metrics"));
    }
});
