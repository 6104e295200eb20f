//! Circuit cryptography: the handshakes that give a circuit its keys, and the
//! encryption of relay cells under them.
//!
//! * [`handshake`] answers onionskins (CREATE_FAST, ntor, ntor-v3) and holds
//!   the client sides of the same handshakes.
//! * [`Tor1Keys`] and [`HopKeys`] are what a handshake leaves: the keys of one hop.
//! * [`relay_cell`] adds and removes one hop's layer of tor1 relay encryption,
//!   in place; [`cgo`] does it by Counter Galois Onion.
//! * [`intro`] is the MAC that binds an ESTABLISH_INTRO to its circuit.
//!
//! Nothing here reads a clock, draws ambient randomness or does I/O: random number generators are
//! arguments. *Not* here: link TLS and the link handshake's certificates (weft-core, weft-node),
//! and onion-service handshakes.

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

mod aes_ctr;
pub mod cgo;
pub mod circuit;
pub mod handshake;
pub mod intro;
mod keys;
pub mod relay_cell;
mod x25519_lanes;

pub use circuit::HopKeys;
pub use keys::Tor1Keys;
