//! The protocols by which applications of this machine ask a client for streams and lookups: SOCKS 4, 4a
//! and 5, HTTP CONNECT, and DNS; and connections that a firewall redirects.
//!
//! No sockets here. A [`Handshake`] is one connection, from its first byte until its reply; the caller
//! passes bytes and sends replies. [`DnsPort`] is the same for datagrams. [`check`] decides which
//! destinations are allowed. All bytes are hostile: a page in a browser can make it send some here
//! (architecture rule 6).
//!
//! `tor-socksproto` is not used: it has no replies for methods and commands that it refuses, and
//! knows neither C tor's tolerance (a user name that was not asked for) nor its preferences
//! (`PreferSOCKSNoAuth`), nor a bound of its own on SOCKS 4.

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

mod destination;
mod dns;
mod handshake;
mod http_reply;
mod notice;
mod phase;
mod rules;
pub mod senders;
mod socks_reply;
mod step;
#[cfg(test)]
mod tests;

pub use destination::{DestinationRules, Refused, check, clean_host, is_onion_address};
pub use dns::{DnsPort, DnsStep};
pub use handshake::Handshake;
pub use notice::Notice;
pub use rules::AppRules;
pub use step::{Failure, MAX_HANDSHAKE, Step};
