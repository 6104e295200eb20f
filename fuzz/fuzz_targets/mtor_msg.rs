//! The messages of mTor's tunnels, read and written again; SUBDATA also where it lies in a body.
//!
//! Input: `m` (MULTIPATH), `k` (MULTIPATH_ACK), `j` (JOIN), `n` (JOINED), `d` (MTOR_DROP), `p` (MTOR_DROPPED), `s`
//! (MTOR_STOPPED) or `u` (SUBDATA), and the data of a relay message; or `b` and a body.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_cell::Body;
use weft_cell::mtor_msg::{
    Join, Joined, MtorAck, MtorDrop, MtorDropped, MtorStopped, Multipath, MultipathAck, Subdata,
    unwrap_subdata, wrap_subdata,
};
use weft_cell::relay::{MAX_DATA, RelayBody};
use weft_cell::relay_command::{RelayCommand, is_multiplexed};
use weft_cell::relay_v1::MAX_STREAM_DATA;

fuzz_target!(|input: &[u8]| {
    let [kind, data @ ..] = input else {
        return;
    };
    if *kind == b'b' {
        if let Ok(body) = Body::try_from(data) {
            in_its_body(body);
        }
    } else if data.len() <= MAX_DATA {
        message(*kind, data);
    }
});

fn message(kind: u8, data: &[u8]) {
    match kind {
        b'm' => {
            if let Ok(multipath) = Multipath::decode(data) {
                assert_eq!(multipath.encode(), data);
            }
        }
        b'k' => {
            if let Ok(ack) = MultipathAck::decode(data) {
                assert_eq!(ack.encode(), data);
            }
        }
        b'j' => {
            if let Ok(join) = Join::decode(data) {
                assert_eq!(join.encode(), data);
            }
        }
        b'n' => {
            if let Ok(joined) = Joined::decode(data) {
                assert_eq!(joined.encode(), data);
            }
        }
        b'd' => {
            if let Ok(drop) = MtorDrop::decode(data) {
                assert_eq!(drop.encode(), data);
            }
        }
        b'a' => {
            if let Ok(ack) = MtorAck::decode(data) {
                assert_eq!(ack.encode(), data);
            }
        }
        b'p' => assert_eq!(MtorDropped::decode(data).is_ok(), data.is_empty()),
        b's' => {
            if let Ok(stopped) = MtorStopped::decode(data) {
                assert_eq!(stopped.encode(), data);
            }
        }
        b'u' => {
            if let Ok(message) = Subdata::decode(data) {
                assert!(is_multiplexed(message.command.wire()));
                let mut buffer = [0; MAX_STREAM_DATA];
                match message.encode(&mut buffer) {
                    Ok(again) => assert_eq!(again, data),
                    // What tor1's cells have room for may be too long for every hop's.
                    Err(_) => assert!(data.len() > MAX_STREAM_DATA),
                }
            }
        }
        _ => {}
    }
}

fn in_its_body(mut body: Body) {
    let whole = body;
    let view = RelayBody::new(&whole);
    let decoded = view.data().ok().map(Subdata::decode);
    match unwrap_subdata(&mut body) {
        Ok(sequence) => {
            let message = decoded.unwrap().unwrap();
            assert_eq!(sequence, message.sequence);
            let within = RelayBody::new(&body);
            assert_eq!(within.command(), message.command.wire());
            assert_eq!(within.stream_id(), view.stream_id());
            assert_eq!(within.data(), Ok(message.data));
            if wrap_subdata(&mut body, sequence).is_ok() {
                let again = RelayBody::new(&body);
                assert_eq!(again.command(), RelayCommand::Subdata.wire());
                assert_eq!(again.data(), view.data());
            }
        }
        Err(_) => {
            assert!(decoded.is_none_or(|decoded| decoded.is_err()));
            assert_eq!(body, whole);
        }
    }
}
