//! A small directory authority, for private networks alone.
//!
//! One authority, without voting: it takes the descriptors of relays (dir-spec 4.1), makes
//! microdescriptors of them, and signs a consensus of its own in both flavours. Documents are C tor's
//! byte for byte where other nodes compare digests (microdescriptors), and accepted by C tor's relays
//! and clients everywhere else.
//!
//! It accepts relays and gives flags by C tor's rules: it tests whether relays can be reached, watches how steadily they
//! run (`history`), and compares them with each other (`flags`). What it does not do, because a private network has no
//! use for it: vote, measure, agree on shared random values, keep descriptors over a restart. Relays publish again when
//! they miss themselves in the consensus.
//!
//! [`PrivateAuthority`] takes the time as an argument and does no I/O; [`server`] answers HTTP and has relays tested.

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
mod flags;
mod history;
mod keys;
mod lists;
mod pins;
mod reach;
mod room;
mod router;
pub mod server;
#[cfg(test)]
mod testing;
mod versions;

pub use authority::{Answer, MAX_RELAYS, PrivateAuthority};
pub use config::{AuthorityConfig, Granted, parse_bandwidths};
pub use keys::{AuthorityKeyError, AuthorityKeys, CERTIFICATE};
pub use lists::{CountryTable, Lists, NamedRelays};
pub use reach::{ReachabilityOptions, ReachabilityTest};
pub use versions::is_tor_version;
/// Of [`AuthorityConfig`].
pub use weft_policy::FlagThresholds;

// `testing` is also a module of a fuzz target and names this crate as that does.
#[cfg(test)]
extern crate self as weft_authority;
