//! What one world has to do.

use std::net::IpAddr;
use std::time::Duration;

use crate::bench::aim::Peer;
use crate::bench::live::Preset;
use crate::bench::mode::{Direction, Mode};

/// What one world has to do.
#[derive(Debug)]
pub(in crate::bench) struct Plan {
    pub(in crate::bench) peer: Peer,
    pub(in crate::bench) mode: Mode,
    pub(in crate::bench) direction: Direction,
    pub(in crate::bench) origin_links: usize,
    pub(in crate::bench) next_hops: usize,
    pub(in crate::bench) circuits: usize,
    pub(in crate::bench) window: u64,
    /// The part of the rate that is this world's.
    pub(in crate::bench) share: f64,
    /// The mix of a relay of the public network; else cells are spread evenly.
    pub(in crate::bench) live: Option<Preset>,
    pub(in crate::bench) seed: u64,
    /// Nothing may take longer without a sign of life.
    pub(in crate::bench) patience: Duration,
    /// The address of our relays.
    pub(in crate::bench) own_ip: IpAddr,
    /// The listener of a pipe's next hop, which the pipe must know before the world begins.
    pub(in crate::bench) listener: Option<std::net::TcpListener>,
}

impl Plan {
    /// How many circuits `Stage::BuildHalf` builds.
    pub(in crate::bench) fn half(&self) -> usize {
        let links = self.origin_links.max(self.next_hops);
        links.max(self.circuits / 2).min(self.circuits)
    }
}
