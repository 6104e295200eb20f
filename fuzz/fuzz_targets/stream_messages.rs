//! The messages of streams and of flow control, read and written again.
//!
//! Input: `b` (BEGIN), `c` (CONNECTED), `e` (END), `r` (RESOLVE), `a` (RESOLVED), `s`
//! (SENDME), `n` (XON) or `f` (XOFF), and the data of a relay message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_cell::relay::MAX_DATA;
use weft_cell::relay_v1::MAX_STREAM_DATA;
use weft_cell::stream_msg::{Begin, Connected, End, Resolve, Resolved, Sendme, Xoff, Xon};

fuzz_target!(|input: &[u8]| {
    if let [kind, data @ ..] = input
        && data.len() <= MAX_DATA
    {
        message(*kind, data);
    }
});

fn message(kind: u8, data: &[u8]) {
    match kind {
        b'b' => {
            if let Ok(begin) = Begin::decode(data) {
                // It holds what an exit relies on.
                assert!(begin.port != 0 && !begin.target.is_empty());
                assert!(!begin.target.contains(&0));
                match begin.encode() {
                    Ok(again) => {
                        assert!(again.len() <= data.len());
                        assert_eq!(Begin::decode(&again), Ok(begin));
                    }
                    // What tor1's cells have room for may be too long for every hop's.
                    Err(_) => assert!(data.len() > MAX_STREAM_DATA),
                }
            }
        }
        b'c' => {
            if let Ok(connected) = Connected::decode(data) {
                assert_eq!(Connected::decode(&connected.encode()), Ok(connected));
            }
        }
        b'e' => {
            let end = End::decode(data);
            assert_eq!(End::decode(&end.encode()), end);
        }
        b'r' => {
            // What came without its NUL byte may not fit with it.
            if let Ok(resolve) = Resolve::decode(data)
                && let Ok(again) = resolve.encode()
            {
                assert_eq!(Resolve::decode(&again), Ok(resolve));
            }
        }
        b'a' => {
            if let Ok(resolved) = Resolved::decode(data) {
                assert!(resolved.answers.len() <= data.len() / 6);
                // The text of an error may be longer than the one that came.
                if let Ok(again) = resolved.encode() {
                    assert_eq!(Resolved::decode(&again), Ok(resolved));
                }
            }
        }
        b's' => {
            if let Ok(sendme) = Sendme::decode(data) {
                assert_eq!(sendme.seen.is_some(), sendme.version == 1);
                assert_eq!(Sendme::decode(&sendme.encode()), Ok(sendme));
            }
        }
        b'n' => {
            if let Ok(xon) = Xon::decode(data) {
                assert!(data.starts_with(&xon.encode()));
            }
        }
        b'f' => {
            if let Ok(xoff) = Xoff::decode(data) {
                assert!(data.starts_with(&xoff.encode()));
            }
        }
        _ => {}
    }
}
