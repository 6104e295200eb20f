//! The messages that build and cut circuits, read and written again.
//!
//! Input: `c`, a cell command and a body, without the zeros at its end; or `e`
//! (EXTEND2), `x` (EXTENDED2), `t` (TRUNCATED), `w` (ABRA_WEIGHT), `i` (ESTABLISH_INTRO), `j` (INTRODUCE1) or `p`
//! (PADDING_NEGOTIATE) and the data of a relay message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_cell::ChanCmd;
use weft_cell::abra::{self, Statement};
use weft_cell::circ_msg::{CreateReply, CreateRequest, Extend2, Extended2, Truncated};
use weft_cell::circpad_msg::CircpadNegotiate;
use weft_cell::hs_msg::{EstablishIntro, IntroDefense, introduce1_auth_key};
use weft_cell::relay::MAX_DATA;
use weft_fuzz::zero_padded;

fuzz_target!(|input: &[u8]| {
    match input {
        [b'c', command, body @ ..] => cell(ChanCmd::from(*command), body),
        [kind, data @ ..] if data.len() <= MAX_DATA => relay_message(*kind, data),
        _ => {}
    }
});

fn cell(command: ChanCmd, body: &[u8]) {
    let body = zero_padded(body);
    if let Ok(request) = CreateRequest::decode(command, &body) {
        let cell = request.encode(1).expect("this came in a cell");
        assert_eq!(
            CreateRequest::decode(cell.command(), cell.body()),
            Ok(request)
        );
    }
    if let Ok(reply) = CreateReply::decode(command, &body) {
        let cell = reply.encode(1).expect("this came in a cell");
        assert_eq!(CreateReply::decode(cell.command(), cell.body()), Ok(reply));
    }
}

fn relay_message(kind: u8, data: &[u8]) {
    match kind {
        b'e' => {
            if let Ok(extend) = Extend2::decode(data) {
                // It holds what C tor insists on.
                assert!(extend.rsa.is_some());
                assert!(extend.ipv4.is_some() || extend.ipv6.is_some());
                let again = extend.encode().expect("this came in a message");
                assert!(again.len() <= data.len());
                assert_eq!(Extend2::decode(&again), Ok(extend));
            }
        }
        b'x' => {
            if let Ok(extended) = Extended2::decode(data) {
                let again = extended.encode().expect("this came in a message");
                assert_eq!(Extended2::decode(&again), Ok(extended));
            }
        }
        b't' => {
            if let Ok(truncated) = Truncated::decode(data) {
                assert_eq!(Truncated::decode(&truncated.encode()), Ok(truncated));
            }
        }
        b'w' => {
            if let Ok(statement) = Statement::decode(data) {
                let mut again = abra::unsigned(&statement.claim, &statement.certificate)
                    .expect("this came in a message");
                again.extend_from_slice(&statement.signature);
                assert_eq!(again, data);
            }
        }
        b'i' => {
            if let Ok(read) = EstablishIntro::decode(data) {
                assert!(data.starts_with(read.signed));
                assert!(read.signed.starts_with(read.authenticated));
                assert!(read.signed.ends_with(&read.handshake_auth));
                assert_eq!(&data[3..35], read.auth_key.as_bytes());
                if let IntroDefense::Limit { rate, burst } = read.defense {
                    assert!(rate > 0 && rate <= burst && i32::try_from(burst).is_ok());
                }
            }
        }
        b'j' => {
            if let Ok(key) = introduce1_auth_key(data) {
                assert_eq!(&data[23..55], key.as_bytes());
            }
        }
        b'p' => {
            if let Ok(read) = CircpadNegotiate::decode(data) {
                assert_eq!(CircpadNegotiate::decode(&read.encode()), Ok(read));
            }
        }
        _ => {}
    }
}
