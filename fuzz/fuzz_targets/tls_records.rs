//! TLS records of an opened link.
//!
//! Input: a row of records, each a content type, a length and as many bytes; the peer's keys seal them.
//! An odd first byte also puts the input itself on the wire, as bytes that nobody sealed. What was
//! data arrives as it was; nothing else is ever taken for data.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_node::tls::records::{Content, Records, whole};

const APPLICATION_DATA: u8 = 23;

fuzz_target!(|input: &[u8]| {
    let Ok((mut peer, mut ours)) = Records::loopback() else {
        return;
    };
    let Some((first, mut rest)) = input.split_first() else {
        return;
    };
    if first % 2 == 1 {
        let mut raw = rest.to_vec();
        if let Ok(Some(length)) = whole(&raw) {
            // Without the keys nothing decrypts.
            assert!(ours.open(&mut raw[..length]).is_err());
        }
        return;
    }
    while let Some(([kind, length], after)) = rest.split_first_chunk::<2>() {
        let (content, after) = after.split_at(after.len().min(usize::from(*length)));
        rest = after;
        // Zeros at the end are padding; the content type is the last byte before them.
        let inner = [content, &[*kind]].concat();
        let end = inner.iter().rposition(|byte| *byte != 0);
        let expected = end.and_then(|end| Some((*inner.get(end)?, inner.get(..end)?)));
        let mut wire = Vec::new();
        if peer.seal_as(*kind, [content], &mut wire).is_err() {
            return;
        }
        assert_eq!(whole(&wire), Ok(Some(wire.len())));
        match ours.open(&mut wire) {
            Ok(Content::Data(bytes)) => assert_eq!(expected, Some((APPLICATION_DATA, bytes))),
            Ok(_) => assert!(expected.is_some_and(|(kind, _)| kind != APPLICATION_DATA)),
            Err(_) => return,
        }
        // What we answer must be a record as well, new keys and all.
        let mut answer = Vec::new();
        if ours.seal([&b"answer"[..]], &mut answer).is_ok() {
            assert!(matches!(whole(&answer), Ok(Some(_))));
        }
    }
});
