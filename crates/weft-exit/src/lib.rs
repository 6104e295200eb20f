//! Decisions of an exit, off the data path: whether a stream may leave here and to which address,
//! the addresses that a name resolves to, and the END or RESOLVED that the client gets otherwise
//! (tor-spec, "Opening streams", "Closing streams", "Remote hostname lookup"; C tor's
//! `connection_exit_begin_conn`, `connection_exit_connect` and dns.c).
//!
//! No sockets, no name servers and no clock. The caller passes requests of circuits
//! ([`Exits::begin`], [`Exits::resolve`]), answers of name servers ([`Exits::answered`]) and the time,
//! and carries out each [`ExitAction`] that [`Exits::poll_action`] returns. Randomness comes from a seed.
//!
//! In a node, `weft-node/src/exit` asks the name servers and opens the sockets, and
//! `weft-node/src/relay/exits.rs` connects both to this crate.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::disallowed_types,
        clippy::disallowed_methods,
        clippy::disallowed_macros
    )
)]

mod action;
mod cache;
mod counts;
mod exits;
mod hijack;
mod name;
mod names;
mod query;
mod settings;

pub use action::{ExitAction, PreviousKind};
pub use counts::ExitCounts;
pub use exits::{Exits, MAX_ASKING};
pub use query::{DnsAnswer, DnsError, Found, Query, QueryKind, QueryPurpose};
pub use settings::ExitSettings;
