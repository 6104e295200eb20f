//! Bytes that are moved for a purpose: seeded, framed, hashed at both ends, timed.
//!
//! A [`Server`] on loopback sends and takes payloads; [`transfer`] asks it for one by way of a SOCKS
//! proxy. Every payload is a function of its seed, so each end knows what it must be without the
//! other's word: a download must have the hash that its seed gives, and an upload is answered with the hash
//! of what arrived. Both ends wait for an answer before they close, because C tor ends a stream when
//! the application half-closes it.

mod names;
mod payload;
mod request;
mod server;
pub mod socks;
mod transfer;

pub use names::NameServer;
pub use request::{Direction, Request};
pub use server::Server;
pub use socks::Far;
pub use transfer::{Transfer, connect, resolve, transfer, transfers};
