//! A network of hosts in virtual time.
//!
//! A [`Net`] has hosts with access lines, paths between them with delay and loss (or the links of a
//! [topology](crate::links), [`Net::of_topology`]), and TCP connections that carry bytes.
//! [`Net::connect`], [`Net::write`], [`Net::read`] and [`Net::close`] are the calls of sockets,
//! [`Net::next`] advances time to the next event, and [`Net::socket`] returns the kernel's
//! information that schedulers need. Everything is discrete events in integer nanoseconds from one
//! seed: the same calls give the same course of events on every machine.
//!
//! TCP is a model ([`tcp`]): slow start with HyStart, CUBIC or Reno, selective acknowledgements
//! with RACK, probes of the tail, timeouts, delayed acknowledgements, a receive buffer that grows,
//! bytes in order alone. Not modelled: windows that shrink, ECN, Nagle's algorithm, checksums, and
//! packets of headers on top of acknowledgements that data carry back.
//!
//! The testbed `virtual` builds on it: `weft-virtual` runs nodes on it.

mod bytes;
mod calls;
mod connection;
mod events;
mod faults;
mod inject;
mod net;
mod packet;
mod socket;
pub mod tcp;
#[cfg(test)]
mod tests;
mod ways;

pub use connection::{End, HostId, MSS};
pub use net::Net;
pub use socket::{ConnId, Happening, PathSettings, Socket};
