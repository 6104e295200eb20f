//! What a directory sends over a circuit: messages of the stream, and the answer that they are together. SENDMEs are as many as
//! cells call for, and nothing is kept past the bound.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use weft_cell::RelayCmd;
use weft_dir::http::{Limits, answer};
use weft_fuzz::Bytes;
use weft_node::reachability::conversation::{Conversation, Step};

const LONGEST: usize = 40_000;

fuzz_target!(|data: &[u8]| {
    let mut bytes = Bytes::new(data);
    let mut conversation = Conversation::new(LONGEST);
    let (mut asked, mut cells, mut acknowledged) = (0, 0_usize, 0);
    let commands = [
        RelayCmd::CONNECTED,
        RelayCmd::DATA,
        RelayCmd::DATA,
        RelayCmd::DATA,
        RelayCmd::SENDME,
        RelayCmd::END,
    ];
    // The first message of most directories.
    let mut command = RelayCmd::CONNECTED;
    loop {
        // A whole cell is more than a byte can say.
        let payload = [bytes.data(), bytes.data()].concat();
        cells += usize::from(command == RelayCmd::DATA);
        match conversation.take(command, &payload) {
            Step::Wait => {}
            Step::Ask => asked += 1,
            Step::Acknowledge { of_circuit } => {
                acknowledged += 1;
                assert!(cells.is_multiple_of(50));
                assert_eq!(of_circuit, cells.is_multiple_of(100));
            }
            Step::Over => break,
        }
        if bytes.is_empty() {
            break;
        }
        command = bytes.pick(commands).unwrap_or(RelayCmd::END);
    }
    assert!(asked <= 1 && acknowledged <= cells / 50);
    let received = conversation.answer();
    assert!(received.len() <= LONGEST + 510);
    let limits = Limits {
        head: 1000,
        body: 20_000,
        decompressed: 30_000,
        ..Limits::with_stall(Duration::from_secs(1))
    };
    if let Ok(response) = answer(received, limits) {
        assert!(response.body.len() <= 30_000);
    }
});
