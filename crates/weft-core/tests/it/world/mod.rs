//! A whole relay without sockets: connection managers and a controller joined by queues that a
//! seed drains in any order, and peers that the test plays cell by cell.

// Each test binary uses its own part of the world.
#![allow(dead_code, unused_imports, unreachable_pub)]

mod circuit;
mod relay;

pub use circuit::{CLIENT, Circuit, destroy_reason, relay_identity, spliced};
pub use relay::{Connect, OWN_ED, OWN_RSA, World};

use std::time::Duration;

use weft_cell::RelayCmd;
use weft_core::address::ConnectionId;
use weft_core::controller::{ControllerParams, Sharing};
use weft_core::limits::dos::DosParams;

/// Parameters of a relay that may have this number of connections.
pub fn controller_params(max_connections: usize, dos: DosParams) -> ControllerParams {
    ControllerParams {
        max_connections,
        workers: 1,
        max_onionskins: 100,
        max_onion_delay: Duration::from_secs(60),
        onion_cutoff: Duration::from_secs(5),
        max_memory: 1 << 30,
        dos,
        sharing: Sharing::All,
    }
}

/// An EXTEND2 to where relay `to` is, and the connection that the controller opens for it.
pub fn extend(world: &mut World, link: ConnectionId, id: u32, to: u8) -> Option<Connect> {
    let before = world.connects.len();
    let mut circuit = Circuit::create(world, link, id);
    let message = Circuit::extend_message(to, &[1; 84]);
    circuit.send(world, 0, RelayCmd::EXTEND2, &message);
    world.settle();
    world.connects.get(before).copied()
}
