//! The control messages of a link, read and written again.
//!
//! Input: one byte of cell command, then the body.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_cell::ChanCmd;
use weft_cell::frame::{self, Frame};
use weft_cell::link_msg::{AuthChallenge, Authenticate, Certs, Destroy, Netinfo, PaddingNegotiate};
use weft_fuzz::zero_padded;

/// The body of the one variable-length cell in `wire`.
fn body(wire: &[u8]) -> &[u8] {
    match frame::next(wire, usize::MAX) {
        Ok(Some((Frame::Variable { body, .. }, used))) if used == wire.len() => body,
        other => panic!("not one variable-length cell: {other:?}"),
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((command, input)) = input.split_first() else {
        return;
    };
    // No cell has a longer body.
    let input = &input[..input.len().min(usize::from(u16::MAX))];
    let mut wire = Vec::new();
    match ChanCmd::from(*command) {
        ChanCmd::CERTS => {
            if let Ok(certs) = Certs::decode(input) {
                certs.encode(&mut wire).expect("these came in a cell");
                assert_eq!(Certs::decode(body(&wire)), Ok(certs));
            }
        }
        ChanCmd::AUTH_CHALLENGE => {
            if let Ok(challenge) = AuthChallenge::decode(input) {
                challenge.encode(&mut wire).expect("this came in a cell");
                assert_eq!(AuthChallenge::decode(body(&wire)), Ok(challenge));
            }
        }
        ChanCmd::AUTHENTICATE => {
            if let Ok(authenticate) = Authenticate::decode(input) {
                authenticate.encode(&mut wire).expect("this came in a cell");
                assert_eq!(Authenticate::decode(body(&wire)), Ok(authenticate));
            }
        }
        ChanCmd::NETINFO => {
            if let Ok(netinfo) = Netinfo::decode(&zero_padded::<509>(input)) {
                // An absent address takes more room than a skipped one did, so not
                // everything that was read fits into a cell again.
                if let Ok(cell) = netinfo.encode() {
                    assert_eq!(Netinfo::decode(cell.body()), Ok(netinfo));
                }
            }
        }
        ChanCmd::PADDING_NEGOTIATE => {
            if let Ok(negotiate) = PaddingNegotiate::decode(&zero_padded::<509>(input)) {
                let cell = negotiate.encode();
                assert_eq!(PaddingNegotiate::decode(cell.body()), Ok(negotiate));
            }
        }
        ChanCmd::DESTROY => {
            let destroy = Destroy::decode(&zero_padded(input));
            assert_eq!(Destroy::decode(destroy.encode(1).body()), destroy);
            // Naming a reason that nobody knows must work, too.
            assert!(!destroy.reason.to_string().is_empty());
        }
        _ => {}
    }
});
