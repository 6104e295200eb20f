//! Two ends of a circuit or stream, a clock of the test's own, and what lies between.

mod circuit;
mod path;
mod stream;
mod vegas;

use std::time::Instant;

use weft_cell::stream_msg::{Seen, Sendme};

use super::*;

/// A digest that names a cell by its number.
fn digest(cell: u64) -> Seen {
    let mut digest = [0xd1; 20];
    digest[..8].copy_from_slice(&cell.to_be_bytes());
    Seen::Digest(digest)
}

/// The SENDME for that cell.
fn sendme(cell: u64) -> Vec<u8> {
    let sendme = Sendme {
        version: 1,
        seen: Some(digest(cell)),
    };
    sendme.encode()
}

/// Sends `cells` from `first` on.
fn send(flow: &mut CircuitFlow, first: u64, cells: u64, now: Instant) {
    for cell in first..first + cells {
        flow.note_sent(|| digest(cell), now);
    }
}
