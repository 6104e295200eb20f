//! What directories answer and what state and cache files hold: HTTP answers, consensuses,
//! certificates, bandwidth histories.
//!
//! Input: one letter for the kind (`h`, `c`, `k`, `b`), and the document. For `b` it is lines
//! of a state file: key, space, value.
#![no_main]

use std::time::{Duration, SystemTime};

use libfuzzer_sys::fuzz_target;
use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_dir::bandwidth::BandwidthHistory;
use weft_dir::certs::Certs;
use weft_dir::consensus::{ConsensusError, REASONABLY_LIVE, verify};
use weft_dir::http::{decode, parse_head};
use weft_dir::listing::Listing;

/// Identities of the authorities that the corpus's documents are signed by.
const AUTHORITIES: [&str; 2] = [
    "6D61FFB2DF95BCFDFBFAAEB22B6F17B3403322A6",
    "3AF99C8779E272BA4DD0B07D52ED7EE46BAEDCA1",
];
/// No body may grow past this.
const LIMIT: usize = 1 << 16;

/// When the corpus's documents are valid.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_222_800)
}

/// [`AUTHORITIES`] as identities.
fn authorities() -> [RsaIdentity; 2] {
    AUTHORITIES.map(|id| RsaIdentity::from_hex(id).expect("these are forty hexadecimal digits"))
}

fuzz_target!(|input: &[u8]| {
    let Some((kind, input)) = input.split_first() else {
        return;
    };
    match kind {
        b'h' => answer(input),
        b'c' => document(input, consensus),
        b'k' => document(input, certs),
        b'b' => document(input, bandwidth),
        _ => {}
    }
});

/// Passes `input` on if it is text, as the callers of these parsers do.
fn document(input: &[u8], read: fn(&str)) {
    if let Ok(text) = std::str::from_utf8(input) {
        read(text);
    }
}

/// An HTTP answer: its head must be all there or not, and its body must not grow past the limit.
fn answer(input: &[u8]) {
    let Ok(Some(head)) = parse_head(input) else {
        return;
    };
    let (bytes, body) = input.split_at(head.length);
    assert!(bytes.ends_with(b"\n"));
    assert_eq!(
        parse_head(bytes).expect("it was complete"),
        Some(head.clone())
    );
    assert!(head.reason.chars().all(|c| !c.is_control()));
    if let Ok(decoded) = decode(body.to_vec(), head.compression, LIMIT) {
        assert!(decoded.len() <= LIMIT.max(body.len()));
    }
}

/// A consensus: without certificates it is never believed. Its relays, as controllers are shown them, are
/// whole lines.
fn consensus(text: &str) {
    let authorities = authorities();
    let error = verify(
        text,
        &authorities,
        &Certs::default(),
        now(),
        REASONABLY_LIVE,
    )
    .expect_err("nobody can have signed it");
    assert!(!matches!(error, ConsensusError::BadSignature(_)));
    for entry in Listing::read(text).entries {
        assert!(entry.status.starts_with("r ") && entry.status.ends_with('\n'));
    }
}

/// Certificates: what is kept can be written and read again.
fn certs(text: &str) {
    let authorities = authorities();
    let mut certs = Certs::default();
    let added = certs.add(text, &authorities, now()).added;
    assert!(certs.len() <= added);
    let mut again = Certs::default();
    assert_eq!(
        again.add(&certs.text(), &authorities, now()).added,
        certs.len()
    );
}

/// A bandwidth history: what is restored can be stored, and no bandwidth appears from nowhere.
fn bandwidth(text: &str) {
    let state: Vec<(String, String)> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    let Ok(history) = BandwidthHistory::from_state(&state, now()) else {
        return;
    };
    let again = BandwidthHistory::from_state(&history.state(), now()).expect("we wrote it");
    assert!(again.observed(Duration::ZERO) <= history.observed(Duration::ZERO));
    for line in history.lines(None) {
        assert!(line.contains("-history ") && !line.contains('\n'));
    }
}
