//! A small directory authority, for private networks alone.
//!
//! One authority, without voting: it takes the descriptors of relays (dir-spec 4.1), makes
//! microdescriptors of them, and signs a consensus of its own in both flavours. Documents are C tor's
//! byte for byte where other nodes compare digests (microdescriptors), and accepted by C tor's relays
//! and clients everywhere else.
//!
//! Its networks live for minutes on one machine, so it believes relays: each one that publishes is listed, as Fast and
//! Stable, until its descriptor is a day old, and has the other flags for what it states. It watches, tests and measures
//! nobody, votes with nobody and keeps nothing over a restart. Relays publish again when they miss themselves in the
//! consensus.
//!
//! [`PrivateAuthority`] takes the time as an argument and does no I/O. The directory of its relay (weft-dircache) answers by
//! HTTP with what a [`SharedAuthority`] has. Consensuses are made when they are due and somebody asks.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::disallowed_methods
    )
)]

mod authority;
mod config;
mod consensus;
mod documents;
mod keys;
mod lookup;
mod router;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use authority::{MAX_RELAYS, PrivateAuthority, SharedAuthority};
pub use config::{AuthorityConfig, parse_bandwidths};
pub use keys::{AuthorityKeyError, AuthorityKeys};

// `testing` is also a module of a fuzz target and names this crate as that does.
#[cfg(test)]
extern crate self as weft_authority;
