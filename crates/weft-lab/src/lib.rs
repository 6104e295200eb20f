//! Private Tor networks on loopback, real traffic through them, and what it cost.
//!
//! [`network::Network`] starts a Tor network out of real C tor processes with one or more
//! *target* relays in it: any program that takes C tor's `-f torrc`, so `tor` or `weft`.
//! [`traffic`] moves seeded, hashed bytes through SOCKS; [`flows`] drives users of the traffic models, and [`users`] measures them; [`load`] builds circuits through a
//! target, moves bytes over them and reads what the target paid for it; [`interop`] holds the
//! scenarios that the interoperation tests and the demo run; [`throughput`] is the experiment of
//! Engler and Goldberg 2021, section 5.2; [`up`] starts a network to play with.
//!
//! Nothing here is for the live network, and nothing listens elsewhere than on loopback. Every
//! process is in the care of a [`guardian::Guardian`], so that a panic, Ctrl-C or SIGKILL of the
//! owner leaves nothing running and no file behind.

pub mod args;
pub mod attack;
pub mod bench;
pub mod cci;
pub mod chaos;
pub mod circuits;
mod comparison;
pub mod demo;
pub mod experiment;
pub mod experiments;
pub mod flow_processes;
pub mod flows;
pub mod hops;
pub mod interop;
mod jobs;
pub mod load;
pub mod machine;
pub mod mtor;
pub mod probe;
pub mod proxy;
pub mod report;
pub mod reports;
pub mod roles;
pub mod scenario;
pub mod selection;
pub mod shadow;
pub mod surf;
pub mod throughput;
pub mod users;
