//! A whole network: packets on their way through a topology.

use std::net::Ipv4Addr;

use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;

use crate::links::link::{Counters, Fate, Link};
use crate::links::routes::{DirectionId, Routes};
use crate::links::topology::{HostId, NodeId, Topology};
use crate::links::{Moment, Wheel};

/// The longest packet, in bytes.
pub const MAX_PACKET: usize = 1_500;
/// Most packets under way, 200 MB of them: 50 ms at 30 Gbit/s.
const MAX_UNDER_WAY: u32 = 131_072;

/// Why a packet was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is no IPv4 packet, or longer than [`MAX_PACKET`].
    Malformed,
    /// There is no host of its destination, or no way.
    NoRoute,
    /// The first link lost it, or its queue is full.
    Dropped,
    /// Too many packets are under way.
    Full,
}

/// The nodes or links of a topology are not those of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its hosts or links are not those of the testbed that is up")]
pub struct OtherShape;

/// Totals over all packets, of fates that the [`Counters`] of a link do not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets that hosts sent.
    pub sent: u64,
    /// Packets that arrived at their destinations.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Packets that were no IPv4, or too long.
    pub malformed: u64,
    /// Packets without a way.
    pub no_route: u64,
    /// Packets that were dropped because too many were under way.
    pub full: u64,
}

/// A packet at its destination.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The host that it was sent to.
    pub to: HostId,
    /// When it arrived.
    pub at: Moment,
    /// The packet, as it was sent.
    pub packet: &'a [u8],
}

/// The links of a topology, and the packets on them.
///
/// Call [`send`](Self::send) when a host sends a packet, and [`deliver`](Self::deliver) until it returns
/// nothing, at [`next_due`](Self::next_due) and before each `send`, so that every link sees its packets in the
/// order of time. A packet that crosses several links is offered to each at the time when it arrives there,
/// however late the call, so that lateness does not add up.
#[derive(Debug)]
pub struct Network {
    topology: Topology,
    routes: Routes,
    directions: Vec<Direction>,
    wheel: Wheel<Flight>,
    packets: Packets,
    /// The packet that was delivered last; its place is freed at the next call.
    delivered: Option<u32>,
    totals: Totals,
}

/// One direction of a link, and where it leads.
#[derive(Debug)]
struct Direction {
    link: Link,
    rng: ChaCha8Rng,
    ends: [NodeId; 2],
}

/// A packet that arrives at a node.
#[derive(Clone, Copy, Debug)]
struct Flight {
    packet: u32,
    node: NodeId,
    to: HostId,
}

impl Network {
    /// A network without packets. Each direction of each link draws its losses and jitter from a stream of its
    /// own of this seed, so that what happens on one link does not change what happens on another.
    #[must_use]
    pub fn new(topology: Topology, seed: u64) -> Network {
        let routes = Routes::of(&topology);
        let links = topology.links().iter();
        let ways = links.flat_map(|link| {
            let [first, second] = link.ends;
            [[first, second], [second, first]]
                .into_iter()
                .zip(&link.directions)
        });
        let directions = ways.zip(0..).map(|((ends, settings), stream)| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(stream);
            Direction {
                link: Link::new(settings),
                rng,
                ends,
            }
        });
        Network {
            directions: directions.collect(),
            routes,
            wheel: Wheel::new(MAX_UNDER_WAY),
            packets: Packets::default(),
            delivered: None,
            totals: Totals::default(),
            topology,
        }
    }

    /// The topology that it has.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Gives its links the settings of this topology, which has the same nodes and links. Packets under way keep
    /// their times.
    ///
    /// # Errors
    ///
    /// Its nodes or links are others; nothing has changed.
    pub fn change(&mut self, topology: Topology) -> Result<(), OtherShape> {
        if !self.topology.has_shape_of(&topology) {
            return Err(OtherShape);
        }
        let links = topology.links().iter();
        let settings = links.flat_map(|link| &link.directions);
        for (direction, settings) in self.directions.iter_mut().zip(settings) {
            direction.link.change(settings);
        }
        self.topology = topology;
        Ok(())
    }

    /// Takes an IPv4 packet that a host sends now.
    ///
    /// # Errors
    ///
    /// It will not arrive. [`Totals`] and [`Counters`] count the reasons.
    pub fn send(&mut self, now: Moment, from: HostId, packet: &[u8]) -> Result<(), Refusal> {
        self.totals.sent += 1;
        self.release_delivered();
        let Some(destination) = destination(packet) else {
            self.totals.malformed += 1;
            return Err(Refusal::Malformed);
        };
        let Some(to) = self.topology.host_at(destination) else {
            self.totals.no_route += 1;
            return Err(Refusal::NoRoute);
        };
        let Some(stored) = self.packets.store(packet) else {
            self.totals.full += 1;
            return Err(Refusal::Full);
        };
        let flight = Flight {
            packet: stored,
            node: from.node(),
            to,
        };
        let outcome = self.forward(now, flight);
        if outcome.is_err() {
            self.packets.release(stored);
        }
        outcome
    }

    /// The next packet that is at its destination by now.
    pub fn deliver(&mut self, now: Moment) -> Option<Delivery<'_>> {
        self.release_delivered();
        loop {
            let (at, flight) = self.wheel.pop(now)?;
            if flight.node == flight.to.node() {
                self.totals.delivered += 1;
                self.delivered = Some(flight.packet);
                let packet = self.packets.bytes(flight.packet);
                self.totals.delivered_bytes += packet.len() as u64;
                return Some(Delivery {
                    to: flight.to,
                    at,
                    packet,
                });
            }
            if self.forward(at, flight).is_err() {
                self.packets.release(flight.packet);
            }
        }
    }

    /// When [`deliver`](Self::deliver) should be called again; nothing is due before.
    pub fn next_due(&mut self) -> Option<Moment> {
        self.wheel.next_due()
    }

    /// Number of packets under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.wheel.len()
    }

    /// Totals over all packets.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Each direction of each link, in the order of the topology's links, with its ends and its
    /// counters.
    pub fn counters(&self) -> impl Iterator<Item = ([NodeId; 2], Counters)> {
        let directions = self.directions.iter();
        directions.map(|direction| (direction.ends, direction.link.counters()))
    }

    /// Puts a packet on the next link of its way.
    fn forward(&mut self, at: Moment, flight: Flight) -> Result<(), Refusal> {
        let next = self.routes.next(flight.node, flight.to);
        let Some(direction) = next.and_then(|DirectionId(next)| self.directions.get_mut(next))
        else {
            self.totals.no_route += 1;
            return Err(Refusal::NoRoute);
        };
        let length = self.packets.length(flight.packet);
        match direction.link.offer(at, length, &mut direction.rng) {
            Fate::DroppedByLoss | Fate::DroppedByQueue => Err(Refusal::Dropped),
            Fate::Arrives(at) => {
                let [_, node] = direction.ends;
                self.wheel
                    .insert(at, Flight { node, ..flight })
                    .map_err(|_| {
                        self.totals.full += 1;
                        Refusal::Full
                    })
            }
        }
    }

    fn release_delivered(&mut self) {
        if let Some(packet) = self.delivered.take() {
            self.packets.release(packet);
        }
    }
}

/// The destination of an IPv4 packet.
fn destination(packet: &[u8]) -> Option<Ipv4Addr> {
    let (&first, address) = (packet.first()?, packet.get(16..20)?);
    let is_good = first >> 4 == 4 && packet.len() <= MAX_PACKET;
    let address: [u8; 4] = address.try_into().ok()?;
    is_good.then(|| Ipv4Addr::from(address))
}

/// The packets under way, in buffers that are used again.
#[derive(Debug, Default)]
struct Packets {
    buffers: Vec<Buffer>,
    spare: Vec<u32>,
}

#[derive(Debug)]
struct Buffer {
    bytes: Box<[u8; MAX_PACKET]>,
    length: usize,
}

impl Packets {
    fn store(&mut self, packet: &[u8]) -> Option<u32> {
        let index = match self.spare.pop() {
            Some(index) => index,
            None if self.buffers.len() < MAX_UNDER_WAY as usize => {
                self.buffers.push(Buffer {
                    bytes: Box::new([0; MAX_PACKET]),
                    length: 0,
                });
                u32::try_from(self.buffers.len() - 1).ok()?
            }
            None => return None,
        };
        let buffer = self.buffers.get_mut(index as usize)?;
        buffer
            .bytes
            .get_mut(..packet.len())?
            .copy_from_slice(packet);
        buffer.length = packet.len();
        Some(index)
    }

    fn bytes(&self, index: u32) -> &[u8] {
        let buffer = self.buffers.get(index as usize);
        buffer
            .and_then(|buffer| buffer.bytes.get(..buffer.length))
            .unwrap_or(&[])
    }

    fn length(&self, index: u32) -> u32 {
        let buffer = self.buffers.get(index as usize);
        buffer.map_or(0, |buffer| u32::try_from(buffer.length).unwrap_or(u32::MAX))
    }

    fn release(&mut self, index: u32) {
        self.spare.push(index);
    }
}
