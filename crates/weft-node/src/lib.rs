//! A running Tor node: controller, connection threads, sockets, TLS, torrc, keys.
//!
//! `weft-core` decides; this crate does. Start with [`torrc`] for what an operator may say,
//! [`keys`] for who the relay is, [`tls`] for how links are encrypted.

pub mod keys;
pub mod logging;
pub mod process;
pub mod reachability;
pub mod tls;
pub mod torrc;
