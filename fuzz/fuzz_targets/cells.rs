//! A link's byte stream, cut into cells.
//!
//! Input: what a peer sends after the TLS handshake. With a VERSIONS cell at its
//! start that is read first, else the stream starts with cells of 4-byte circuit ids.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_cell::frame::{self, Frame};

/// Short enough that inputs of a usual length run into it.
const MAX_VARIABLE: usize = 3000;

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    if let Ok(Some((versions, used))) = frame::next_versions(rest) {
        assert!(versions.len() * 2 <= frame::MAX_VERSIONS_LEN);
        let mut again = Vec::new();
        frame::encode_versions(&versions, &mut again).expect("these versions were in a cell");
        // The circuit id of VERSIONS is not kept.
        assert!(rest[..used].ends_with(&again[2..]));
        rest = &rest[used..];
    }
    let mut again = Vec::new();
    while let Ok(Some((cell, used))) = frame::next(rest, MAX_VARIABLE) {
        again.clear();
        match cell {
            Frame::Fixed(view) => again.extend_from_slice(view.as_bytes()),
            Frame::Variable {
                circ_id,
                command,
                body,
            } => {
                assert!(body.len() <= MAX_VARIABLE);
                frame::encode_variable(circ_id, command, body, &mut again)
                    .expect("this body was in a cell");
            }
        }
        assert_eq!(again, rest[..used]);
        rest = &rest[used..];
    }
});
