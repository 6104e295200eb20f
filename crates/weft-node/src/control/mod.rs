//! The control port: other programs watch the node and tell it what to do (control-spec).
//!
//! [`reader`] makes commands of bytes, [`session`] carries one out and replies, [`events`] tells of
//! what happens; none of them has a socket. [`server`] has the sockets, on a thread of its own. What
//! they ask of the node is [`Backend`]: tests give them one that is none.
//!
//! Replies and codes are C tor's, so that Stem and what is built on it find what they expect.
//! Commands for onion services and bridges are answered with 551: Weft has none yet.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

/// The C tor whose control protocol this is, and behind it our own version: controllers and
/// programs that start a Tor decide by it what they may ask for.
pub const VERSION: &str = concat!("0.4.9.11 (Weft-", env!("CARGO_PKG_VERSION"), ")");

pub mod auth;
pub mod backend;
pub mod events;
mod info;
mod keys;
pub mod node;
mod orders;
pub mod reader;
pub mod reply;
pub mod server;
pub mod session;
mod settings;
mod shelf;
#[cfg(test)]
mod tests;
pub mod view;
mod words;

pub use backend::{Backend, Change, Document, Done, Order, OrderFailed, Signal, Which};
pub use server::{ControlServer, ControlSocket};
pub use session::{Session, Shared};
pub(crate) use settings::assignments;
