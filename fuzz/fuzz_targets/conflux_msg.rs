//! The messages of conflux sets, read and written again.
//!
//! Input: `l` (CONFLUX_LINK or CONFLUX_LINKED), `a` (CONFLUX_LINKED_ACK) or `s` (CONFLUX_SWITCH), and the data of a
//! relay message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_cell::conflux_msg::{Link, LinkedAck, Switch};
use weft_cell::relay::MAX_DATA;

fuzz_target!(|input: &[u8]| {
    let [kind, data @ ..] = input else {
        return;
    };
    if data.len() > MAX_DATA {
        return;
    }
    match kind {
        b'l' => {
            if let Ok(link) = Link::decode(data) {
                assert!(data.starts_with(&link.encode()));
            }
        }
        b'a' => assert!(LinkedAck::decode(data).encode().is_empty()),
        b's' => {
            if let Ok(switch) = Switch::decode(data) {
                assert!(data.starts_with(&switch.encode()));
            }
        }
        _ => {}
    }
});
