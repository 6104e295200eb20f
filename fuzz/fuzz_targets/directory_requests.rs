//! What clients ask a relay's directory, and what they are answered; heads of what relays post to an authority.
//!
//! Input: the head of an HTTP request.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use libfuzzer_sys::fuzz_target;
use weft_dir::documents::CachedDocuments;
use weft_dir::http::{decode, parse_head};
use weft_dircache::answer::Answer;
use weft_dircache::request::{Parsed, parse};

/// Bytes that no answer of this directory grows past.
const LIMIT: usize = 1 << 20;
/// A microdescriptor's text; the corpus names it by digest.
const TEXT: &str = "onion-key\nntor-onion-key AAAA\nid ed25519 AAAA\n";

/// A directory with one microdescriptor.
static DOCUMENTS: LazyLock<CachedDocuments> = LazyLock::new(|| {
    let documents = CachedDocuments::default();
    documents.with_microdescs(|store| store.add([0; 32], TEXT, now()));
    documents
});

/// When all this happens.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_222_800)
}

/// Refused: a head with two lengths that differ, of which two readers may take either.
fn check_two_lengths(input: &[u8], length: usize) {
    let behind = input
        .iter()
        .position(|byte| *byte == b'\n')
        .expect("a line")
        + 1;
    let (request, headers) = input.split_at(behind);
    let other = length.wrapping_add(1);
    let lengths = format!("Content-Length: {length}\r\ncontent-length: {other}\r\n");
    let head = [request, lengths.as_bytes(), headers].concat();
    assert!(matches!(parse(&head), Parsed::Bad(400, _)));
}

fuzz_target!(|input: &[u8]| {
    let request = match parse(input) {
        Parsed::Get(request) => request,
        // `hs_uploads` and `authority_posts` go on with these.
        Parsed::Post(upload) => {
            assert!(upload.head <= input.len());
            assert!(upload.path.starts_with('/'));
            return check_two_lengths(input, upload.length);
        }
        // What is no request stays none with more bytes behind it.
        Parsed::Bad(status, _) => return assert!((400..500).contains(&status)),
        Parsed::Partial => return,
    };
    assert!(request.path.starts_with("/tor/"));
    let mut answer = Answer::new(&DOCUMENTS, &request, now(), IpAddr::V4(Ipv4Addr::LOCALHOST));
    let head = parse_head(answer.head.as_bytes())
        .expect("we wrote it")
        .expect("it is whole");
    assert_eq!(head.length, answer.head.len());
    assert_eq!(head.status == 200, answer.body.length() > 0);
    let mut body = Vec::new();
    while let Some(more) = answer.body.next(1) {
        body.extend(more);
    }
    let body = decode(body, head.compression, LIMIT).expect("we compressed it");
    if request.path.starts_with("/tor/micro/d/") && head.status == 200 {
        assert_eq!(body, TEXT.as_bytes());
    }
});
