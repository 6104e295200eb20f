//! The messages that build and cut circuits, read and written again.
//!
//! Input: `c`, a cell command and a body, without the zeros at its end; or `e`
//! (EXTEND2), `x` (EXTENDED2), `t` (TRUNCATED) or `w` (ABRA_WEIGHT) and the data of a relay message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_cell::ChanCmd;
use weft_cell::abra::{self, Statement};
use weft_cell::circ_msg::{CreateReply, CreateRequest, Extend2, Extended2, Truncated};
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
        _ => {}
    }
}
