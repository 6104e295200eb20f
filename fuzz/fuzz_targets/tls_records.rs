//! TLS records of an opened link.
//!
//! Input: a row of records, each a content type, a length and as many bytes; the peer's keys seal them.
//! Content type 255 is a KeyUpdate after which the peer goes on with its new keys. Of the first byte,
//! bit 0 puts the input itself on the wire, as bytes that were never sealed, and bit 1 chooses whether the
//! peer is the client or the server. What was data arrives as it was; nothing else is ever taken for
//! data; and what we answer the peer can open, whatever keys it asked for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_tls::records::{Content, RecordError, Records, whole};

const APPLICATION_DATA: u8 = 23;
const NEW_KEYS: u8 = 255;

fuzz_target!(|input: &[u8]| {
    let Some((first, mut rest)) = input.split_first() else {
        return;
    };
    let Ok((client, server)) = Records::loopback() else {
        return;
    };
    let (mut peer, mut ours) = if first & 2 == 0 {
        (client, server)
    } else {
        (server, client)
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
        let sealed = if *kind == NEW_KEYS {
            peer.seal_key_update(*length & 1 == 1, &mut wire)
        } else {
            peer.seal_as(*kind, [content], &mut wire)
        };
        if sealed.is_err() {
            return;
        }
        assert_eq!(whole(&wire), Ok(Some(wire.len())));
        match ours.open(&mut wire) {
            Ok(Content::Data(bytes)) => assert_eq!(expected, Some((APPLICATION_DATA, bytes))),
            Ok(_) => {
                assert!(expected.is_none_or(|(kind, content)| {
                    kind != APPLICATION_DATA || content.is_empty()
                }))
            }
            Err(_) => return,
        }
        // What we answer are records as well, new keys and all.
        let mut answer = Vec::new();
        if ours.seal([&b"answer"[..]], &mut answer).is_err() {
            return;
        }
        let mut rest = answer.as_mut_slice();
        while let Ok(Some(length)) = whole(rest) {
            let (record, after) = rest.split_at_mut(length);
            rest = after;
            match peer.open(record) {
                Ok(Content::Data(bytes)) => assert_eq!(bytes, b"answer"),
                Ok(Content::Nothing) | Err(RecordError::Overhead(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(rest.is_empty());
    }
});
