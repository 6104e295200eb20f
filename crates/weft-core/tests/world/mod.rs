//! A whole relay without sockets: connection managers and a controller joined by queues that a
//! seed drains in any order, and peers that the test plays cell by cell.

// Each test binary uses its own part of the world.
#![allow(dead_code, unused_imports, unreachable_pub)]

mod circuit;
mod relay;

pub use circuit::{CLIENT, Circuit, destroy_reason, relay_identity, spliced};
pub use relay::{Connect, OWN_ED, OWN_RSA, World};
