//! Tor cells and messages as checked views over bytes.
//!
//! For link protocols 4 and 5, whose circuit ids have four bytes (tor-spec 3).
//! Every byte that a peer sends is first read here. Decoding is total: whatever
//! the bytes, it returns a value or an error that names what was wrong; it does
//! not panic, and allocates no more than a small multiple of its input.
//!
//! * [`frame`] cuts a link's byte stream into cells without copying them;
//! * [`Cell`] and [`CellView`] are one fixed-length cell, owned and borrowed;
//! * [`relay`] is the layout of a relay message inside a decrypted cell body;
//! * [`link_msg`] and [`circ_msg`] are the control messages of links and circuits;
//! * [`stream_msg`] are those of streams and of flow control;
//! * [`reason`] names the reasons of DESTROY, TRUNCATED and END.
//!
//! Not here: encryption, handshakes, and what to do about any message.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::cast_possible_truncation
    )
)]

mod cell;
pub mod circ_msg;
mod fields;
pub mod frame;
pub mod link_msg;
pub mod reason;
pub mod relay;
pub mod relay_v1;
pub mod stream_msg;

pub use cell::{BODY_LEN, Body, CELL_LEN, CIRC_ID_LEN, Cell, CellView};
pub use fields::CutShort;
pub use tor_cell::chancell::ChanCmd;
pub use tor_cell::relaycell::RelayCmd;
