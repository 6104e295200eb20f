//! A running Tor node: controller, connection threads, sockets, TLS, torrc, keys.
//!
//! `weft-core` decides; this crate does. Start with [`relay`], the main thread, and [`thread`], a
//! connection thread; [`torrc`] is what an operator may say, [`keys`] who the relay is, [`tls`] how
//! links are encrypted, [`apps`] what applications say, [`client`] the circuits and streams that
//! begin here, [`exit`] what leaves the network here, [`control`] what controllers say,
//! [`workers`] where onionskins are answered, [`reachability`] whether others can reach us,
//! [`metrics`] what an operator may watch, [`process`] and [`logging`] the rest that a daemon needs.

pub mod apps;
pub mod client;
pub mod control;
pub mod exit;
pub mod keys;
pub mod logging;
pub mod metrics;
pub mod process;
pub mod reachability;
pub mod relay;
pub mod thread;
pub mod tls;
pub mod torrc;
pub mod workers;
