//! The control port: other programs watch the node and control it (control-spec).
//!
//! [`reader`] parses bytes into commands, [`session`] carries one out and returns the reply,
//! [`events`] encodes events; none of them has a socket. [`server`] has the sockets, on a separate
//! thread. They reach the node by [`Backend`](backend::Backend): [`node_backend`] is the real one,
//! tests have a fake.
//!
//! Replies and codes are C tor's, so that Stem and programs built on it work. Commands for onion services
//! and bridges get 551: Weft has none yet.

/// The version of C tor whose control protocol this is, then Weft's own: controllers, and programs that
/// start a Tor, decide by it which commands they send.
pub const VERSION: &str = concat!("0.4.9.11 (Weft-", env!("CARGO_PKG_VERSION"), ")");

pub(crate) mod activity;
mod args;
pub(crate) mod auth;
mod backend;
mod client_commands;
mod client_view;
mod commands;
mod document_cache;
mod downloads;
pub(crate) mod events;
#[cfg(test)]
mod fake;
mod fields;
mod info;
pub(crate) mod inherited;
mod keys;
pub(crate) mod node_backend;
mod onion;
mod reader;
mod reply;
mod server;
mod session;
mod settings;
#[cfg(test)]
mod tests;
pub(crate) mod view;

pub(crate) use args::quote;
pub use auth::hash_password;
pub(crate) use backend::{CommandError, ConfigCommand, Signal};
#[cfg(test)]
pub(crate) use commands::Command;
#[cfg(test)]
pub(crate) use events::EVENTS;
#[cfg(test)]
pub(crate) use keys::KEYS;
pub(crate) use server::{ControlServer, ControlSocket, Standing};
pub(crate) use session::Shared;
pub(crate) use settings::assignments;
