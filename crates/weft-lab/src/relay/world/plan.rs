//! Task of one world.

use std::net::IpAddr;
use std::time::Duration;

use crate::relay::aim::Peer;
use crate::relay::live::Preset;
use crate::relay::mode::{Direction, Mode};

/// Task of one world.
#[derive(Debug)]
pub(in crate::relay) struct Plan {
    pub(in crate::relay) peer: Peer,
    pub(in crate::relay) mode: Mode,
    pub(in crate::relay) direction: Direction,
    pub(in crate::relay) origin_links: usize,
    pub(in crate::relay) next_hops: usize,
    pub(in crate::relay) circuits: usize,
    pub(in crate::relay) window: u64,
    /// The part of the rate that is this world's.
    pub(in crate::relay) share: f64,
    /// The mix of a relay of the public network; else cells are spread evenly.
    pub(in crate::relay) live: Option<Preset>,
    pub(in crate::relay) seed: u64,
    /// Nothing may take longer without a sign of life.
    pub(in crate::relay) patience: Duration,
    /// The address of our relays.
    pub(in crate::relay) own_ip: IpAddr,
    /// The listener of a pipe's next hop, which the pipe must know before the world begins.
    pub(in crate::relay) listener: Option<std::net::TcpListener>,
}

impl Plan {
    /// Number of circuits that `Stage::BuildHalf` builds.
    pub(in crate::relay) fn half(&self) -> usize {
        let links = self.origin_links.max(self.next_hops);
        links.max(self.circuits / 2).min(self.circuits)
    }
}
