//! The Tor protocol as pure state.
//!
//! All of a relay's decisions, and none of its actions: no sockets, threads, clocks, ambient
//! randomness or locks. Time, randomness and bytes are arguments; actions are return values. The
//! same machines run in a node (`weft-node`), in tests with a fake clock and in simulators.
//!
//! Rooms, from below to above; each uses those before it alone:
//!
//! - [`slots`] and [`address`]: the tables that what lives on threads is in, and how it is named;
//! - [`limits`]: limits against floods; [`memory`]: where cells and bytes wait, and what everything holds;
//! - [`origin`]: circuits and streams that begin here, as the client thread orders them;
//! - [`extensions`]: ABRA and padding machines; [`flow`]: flow and congestion control of circuits and streams;
//! - [`handshake`]: a link from its first byte to an authenticated, opened link; [`link`]: an open one;
//! - [`stream`]: streams that end at this node, at their circuits and at their sockets; [`tunnel`]: several circuits as one;
//! - `circuit`: circuit halves; [`scheduler`]: which of them sends its next cell;
//! - [`params`] and [`routable`]: what torrc and consensus set, and which addresses are on the Internet;
//! - [`message`]: what threads send to each other; [`moves`]: which thread has which link;
//! - [`manager`]: what one connection thread knows, and does with all of these;
//! - [`controller`]: what needs a view of the whole relay.

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

pub mod address;
pub(crate) mod circuit;
pub mod controller;
pub mod extensions;
pub mod flow;
pub mod handshake;
pub mod limits;
pub mod link;
pub mod manager;
pub mod memory;
pub mod message;
pub mod moves;
pub mod origin;
pub mod params;
pub mod routable;
pub mod scheduler;
pub mod slots;
pub mod stream;
pub mod tunnel;
