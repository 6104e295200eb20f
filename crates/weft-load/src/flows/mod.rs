//! Users of the traffic models (`weft-model`) on real sockets: [`run`] drives any number of them through
//! SOCKS ports, or straight, against a [`FlowServer`], for a bounded time.
//!
//! A few threads wait in epoll for all streams; no stream has its own thread. A user's actions are
//! a function of the seed and of the times at which its streams end; every byte is checked at both
//! ends. When the time is over, the stop is requested, or nothing can happen any more, what was
//! measured is returned, and streams that are open are records, too (`Unfinished`).
//!
//! `weft lab traffic` is the experiment that measures them. [`weft_testnet::traffic`] moves single payloads with hashes, for tests
//! and measurements that need no users.

mod client;
mod clients;
mod connection;
mod drive;
pub mod overlay;
mod server;
mod socket;
#[cfg(test)]
mod tests;

pub use clients::{FlowClient, FlowSettings, Site};
pub use drive::{run, run_on};
pub use server::FlowServer;
