//! Tor cells and messages as checked views over bytes.
//!
//! For link protocols 4 and 5, whose circuit ids have four bytes (tor-spec 3).
//! Every byte that a peer sends is first read here. Decoding is total: whatever
//! the bytes, it returns a value or an error that names what was wrong; it does
//! not panic, and allocates no more than a small multiple of its input.
//!
//! * [`frame`] cuts a link's byte stream into cells without copying them;
//! * [`Cell`] and [`CellView`] are one fixed-length cell, owned and borrowed;
//! * [`cell_command`] is the table of cell commands and of their handling on open links;
//! * [`relay`] is the layout of a relay message inside a decrypted cell body;
//! * [`relay_command`] is the table of relay commands and of what each may do;
//! * [`link_msg`] and [`circ_msg`] are the control messages of links and circuits;
//! * [`stream_msg`] are those of streams and of flow control;
//! * [`abra`] are those by which a relay states how scarce its bandwidth is;
//! * [`conflux_msg`] and [`mtor_msg`] are those by which circuits share the messages of streams;
//! * [`hs_msg`] are those of introduction points, [`circpad_msg`] those of padding on circuits;
//! * [`identity`] has the types of relays' identities, of rendezvous cookies and of services' keys;
//! * [`reason`] names the reasons of DESTROY, TRUNCATED and END.
//!
//! Not here: encryption, handshakes, and what to do about any message.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::disallowed_types,
        clippy::disallowed_methods,
        clippy::disallowed_macros
    )
)]

pub mod abra;
mod cell;
pub mod cell_command;
pub mod circ_msg;
pub mod circpad_msg;
pub mod conflux_msg;
mod fields;
pub mod frame;
pub mod hs_msg;
pub mod identity;
pub mod link_msg;
pub mod mtor_msg;
pub mod reason;
pub mod relay;
pub mod relay_command;
mod relay_limits;
pub mod relay_v1;
pub mod stream_msg;

pub use cell::{BODY_LEN, Body, CELL_LEN, Cell, CellView};
pub use fields::CutShort;
pub use tor_cell::chancell::ChanCmd;
pub use tor_cell::relaycell::RelayCmd;
