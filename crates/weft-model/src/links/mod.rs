//! Networks of links that delay and lose packets.
//!
//! A [`Topology`] has hosts, switches and the links between them, each with a rate, a one-way
//! delay, jitter, random loss and a queue limit. It is read from TOML ([`Topology::parse`]), is one
//! of the [built-in ones](builtin), or is made of hosts around a switch ([`star`]) or at the
//! [`Countries`] of a graph. A [`Network`] carries packets along its links: [`Network::send`] takes
//! a packet at the host that sends it, [`Network::deliver`] returns the packets that are due at
//! their destinations, and [`Network::next_due`] returns the time of the next call. Below them are
//! [`Link`], one direction of one link, and [`Wheel`], which holds packets until they are due.
//!
//! It does no I/O, and has no clock: times are [`Moment`]s that the caller passes in, and random
//! numbers come from one seed. With the same seed, the same packets at the same times have the same
//! fate. The testbed that moves real packets is `weft-testnet/src/net/`. This is not a simulator of
//! hosts or of TCP: its packets come from real ones.

pub mod builtin;
mod countries;
mod draw;
mod link;
mod moment;
mod network;
mod paths;
mod quantity;
mod routes;
pub mod source;
#[cfg(test)]
mod tests;
mod text;
mod topology;
mod wheel;

pub use countries::{Countries, CountryId, UnknownCountry};
pub use draw::{Access, DrawError, star};
pub use link::{Counters, Fate, Link};
pub use moment::Moment;
pub use network::{Delivery, MAX_PACKET, Network, OtherShape, Refusal, Totals};
pub use paths::{Path, Paths};
pub use quantity::{Loss, QueueLimit, Rate, nearest, parse_bytes, parse_time};
pub use routes::{DirectionId, Routes};
pub use text::TopologyError;
pub use topology::{HostId, LinkSettings, LinkSpec, NodeId, RouteRule, Topology, is_name};
pub use wheel::Wheel;
