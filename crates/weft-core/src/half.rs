//! A circuit half: what one link knows of one circuit (seeds/000 4.2, Figure 5).
//!
//! A circuit crossing this relay is two halves, one per link. They hold no reference to each other,
//! only an address to send messages to. The keys live in the half nearest the circuit's origin; at
//! a rendezvous point two halves that are each nearest to their own origin are each other's peers,
//! and both hold keys. A circuit that begins here is one half, which holds the keys of all hops.

use std::time::Instant;

use weft_crypto::circuit::{OriginCircuit, RelayCircuit};

use crate::address::{HalfAddr, ThreadId};
use crate::cells::CellQueue;
use crate::flow::{CcParams, CircuitFlow};
use crate::ledger::Held;
use crate::origin::OriginId;
use crate::scheduler::LinkKey;
use crate::slots::Slots;
use crate::streams::Streams;
use crate::traffic::CircuitTraffic;

/// RELAY_EARLY cells that one circuit may carry (tor-spec 5.6).
pub const MAX_RELAY_EARLY: u8 = 8;

/// One side of a circuit.
#[derive(Debug)]
pub struct CircuitHalf {
    /// The link that the half sends to.
    pub link: LinkKey,
    /// Its circuit id there.
    pub circ_id: u32,
    /// Cells waiting for the scheduler.
    pub queue: CellQueue,
    /// The queue is full, and edges with more to send wait.
    pub blocked: bool,
    /// Who takes what arrives here.
    pub peer: Peer,
    /// Which way the half faces, and what that side holds.
    pub role: Role,
}

/// Memory of a half without cells and keys: its places in the tables of its thread, its link and the
/// scheduler, the last three nearly.
const HALF_COST: usize = size_of::<(u32, Option<CircuitHalf>)>() + size_of::<Wait>() + 80;

/// Which way a half faces.
#[derive(Debug)]
pub enum Role {
    /// The link leads toward the circuit's origin; this half holds this relay's keys.
    TowardOrigin(Toward),
    /// The link leads to the next hop; the keys are with the peer.
    AwayFromOrigin(Away),
    /// The circuit begins here; the link leads to its first hop.
    Origin(Box<Origin>),
}

/// What the half of a circuit that begins here holds.
#[derive(Debug)]
pub struct Origin {
    /// What the client thread calls the circuit.
    pub id: OriginId,
    /// The keys of all hops.
    pub crypt: OriginCircuit,
    /// Its streams.
    pub streams: Streams,
    /// RELAY_EARLY cells still allowed.
    pub relay_early_left: u8,
    /// What the client thread waits for.
    pub waiting: Waiting,
    /// What the circuit has carried since that was reported.
    pub traffic: CircuitTraffic,
}

/// What an origin's circuit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// CREATED2 or CREATED_FAST.
    Created,
    /// EXTENDED2.
    Extended,
    /// Nothing, or the client thread.
    Nothing,
}

/// What the half nearest the origin holds.
#[derive(Debug)]
pub struct Toward {
    /// Present once the onionskin was answered.
    pub crypt: Option<RelayCircuit>,
    /// RELAY_EARLY cells still allowed.
    pub relay_early_left: u8,
    /// Streams that end here. Most circuits have none.
    pub streams: Option<Box<Streams>>,
    /// One SENDME for so many cells, if the handshake agreed on congestion control.
    pub sendme_inc: Option<u8>,
    /// Counts EXTEND2s, so that an answer to one that was truncated is told from the current one's.
    pub extension: u32,
    /// What the circuit is for, if it ends here.
    pub purpose: Purpose,
}

/// What a circuit that ends here is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// An ordinary circuit.
    General,
    /// Asked the controller to keep a rendezvous cookie, or has one kept (rend-spec-v3 4.1).
    RendezvousWaiting,
    /// Spliced to another circuit, or about to be.
    Rendezvous,
}

/// What the half nearest the next hop waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// CREATE2 was sent.
    AwaitingCreated,
    /// CREATED2 arrived.
    Open,
}

/// The other end of the channel that a half's traffic goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The circuit ends here.
    None,
    /// An EXTEND2 is with the controller.
    Extending,
    /// The other half.
    Joined(HalfAddr),
}

impl Toward {
    /// Its streams, which there may not have been before.
    pub fn streams_or_new(&mut self, cc: &CcParams) -> &mut Streams {
        let sendme_inc = self.sendme_inc;
        self.streams.get_or_insert_with(|| {
            Box::new(Streams::one(match sendme_inc {
                Some(inc) => CircuitFlow::vegas(cc, inc),
                None => CircuitFlow::fixed(),
            }))
        })
    }
}

impl CircuitHalf {
    /// A half for a CREATE that just arrived; its onionskin is still to be answered.
    pub fn toward_origin(link: LinkKey, circ_id: u32) -> Self {
        CircuitHalf {
            link,
            circ_id,
            queue: CellQueue::default(),
            blocked: false,
            peer: Peer::None,
            role: Role::TowardOrigin(Toward {
                crypt: None,
                relay_early_left: MAX_RELAY_EARLY,
                streams: None,
                sendme_inc: None,
                extension: 0,
                purpose: Purpose::General,
            }),
        }
    }

    /// A half for a circuit that is being extended over `link` on behalf of `peer`.
    pub fn away_from_origin(link: LinkKey, circ_id: u32, peer: HalfAddr) -> Self {
        CircuitHalf {
            link,
            circ_id,
            queue: CellQueue::default(),
            blocked: false,
            peer: Peer::Joined(peer),
            role: Role::AwayFromOrigin(Away::AwaitingCreated),
        }
    }

    /// A half for a circuit that begins here, over `link` to its first hop.
    pub fn origin(link: LinkKey, circ_id: u32, id: OriginId) -> Self {
        CircuitHalf {
            link,
            circ_id,
            queue: CellQueue::default(),
            blocked: false,
            peer: Peer::None,
            role: Role::Origin(Box::new(Origin {
                id,
                crypt: OriginCircuit::new(),
                streams: Streams::default(),
                relay_early_left: MAX_RELAY_EARLY,
                waiting: Waiting::Created,
                traffic: CircuitTraffic::default(),
            })),
        }
    }

    /// Whether the half holds this node's keys of its circuit: of a circuit's halves here, exactly
    /// one does (two at a rendezvous point, whose circuits are two).
    pub fn has_keys(&self) -> bool {
        !matches!(self.role, Role::AwayFromOrigin(_))
    }

    /// The streams that end at this half, if there ever were some.
    pub fn streams_mut(&mut self) -> Option<&mut Streams> {
        match &mut self.role {
            Role::TowardOrigin(toward) => toward.streams.as_deref_mut(),
            Role::Origin(origin) => Some(&mut origin.streams),
            Role::AwayFromOrigin(_) => None,
        }
    }

    /// The same, to look at.
    pub fn streams(&self) -> Option<&Streams> {
        match &self.role {
            Role::TowardOrigin(toward) => toward.streams.as_deref(),
            Role::Origin(origin) => Some(&origin.streams),
            Role::AwayFromOrigin(_) => None,
        }
    }

    /// What the half holds.
    pub fn held(&self, now: Instant) -> Held {
        let mut held = self.queue.held(now);
        held.bytes += HALF_COST;
        match &self.role {
            Role::TowardOrigin(toward) => {
                held.bytes += toward.crypt.as_ref().map_or(0, RelayCircuit::memory);
                if let Some(streams) = &toward.streams {
                    held.bytes += size_of::<Streams>();
                    held += streams.held(now);
                }
            }
            Role::AwayFromOrigin(_) => {}
            Role::Origin(origin) => {
                held.bytes += size_of::<Origin>() + origin.crypt.memory();
                held += origin.streams.held(now);
            }
        }
        held
    }

    /// The streams, with what the circuit has carried, if it begins here.
    #[inline]
    pub fn streams_and_traffic(&mut self) -> Option<(&mut Streams, Option<&mut CircuitTraffic>)> {
        match &mut self.role {
            Role::TowardOrigin(toward) => Some((toward.streams.as_deref_mut()?, None)),
            Role::Origin(origin) => Some((&mut origin.streams, Some(&mut origin.traffic))),
            Role::AwayFromOrigin(_) => None,
        }
    }

    /// Whether the half still waits for what a [`Wait`] of this number is about.
    pub fn still_waits(&self, extension: u32) -> bool {
        match &self.role {
            Role::TowardOrigin(toward) if extension == 0 => toward.crypt.is_none(),
            Role::TowardOrigin(toward) => {
                self.peer == Peer::Extending && toward.extension == extension
            }
            Role::AwayFromOrigin(away) => *away == Away::AwaitingCreated,
            // The client thread has its own, better founded patience (circuit build timeouts).
            Role::Origin(_) => false,
        }
    }
}

/// A connection thread's circuit halves, by slot; addresses of earlier tenants do not match.
#[derive(Debug)]
pub struct Halves {
    /// The owning thread.
    thread: ThreadId,
    /// The halves.
    slots: Slots<CircuitHalf>,
    /// Those that hold this node's end of a circuit's keys: each circuit counted once.
    circuits: usize,
}

impl Halves {
    /// No halves yet.
    pub fn new(thread: ThreadId) -> Self {
        Halves {
            thread,
            slots: Slots::default(),
            circuits: 0,
        }
    }

    /// Moves a half in. `None` when 2³² slots are taken.
    pub fn insert(&mut self, half: CircuitHalf) -> Option<HalfAddr> {
        let keyed = usize::from(half.has_keys());
        let (slot, generation) = self.slots.insert(half)?;
        self.circuits += keyed;
        Some(HalfAddr {
            thread: self.thread,
            slot,
            generation,
        })
    }

    /// Moves a half out; its address is dead from here on.
    pub fn remove(&mut self, slot: u32) -> Option<CircuitHalf> {
        let half = self.slots.remove(slot)?;
        self.circuits -= usize::from(half.has_keys());
        Some(half)
    }

    /// The half in a slot.
    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut CircuitHalf> {
        self.slots.get_mut(slot)
    }

    /// The half in a slot.
    pub fn get(&self, slot: u32) -> Option<&CircuitHalf> {
        self.slots.get(slot)
    }

    /// The half at an address, if it still lives.
    #[inline]
    pub fn at(&mut self, addr: HalfAddr) -> Option<&mut CircuitHalf> {
        if addr.thread != self.thread {
            return None;
        }
        self.slots.at(addr.slot, addr.generation)
    }

    /// The half at an address, if it still lives, to look at.
    pub fn peek(&self, addr: HalfAddr) -> Option<&CircuitHalf> {
        (addr.thread == self.thread)
            .then(|| self.slots.peek(addr.slot, addr.generation))
            .flatten()
    }

    /// The present address of the half in a slot.
    #[inline]
    pub fn addr(&self, slot: u32) -> Option<HalfAddr> {
        Some(HalfAddr {
            thread: self.thread,
            slot,
            generation: self.slots.generation(slot)?,
        })
    }

    /// Halves that live, in slot order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut CircuitHalf)> {
        self.slots.iter_mut()
    }

    /// Halves that live, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &CircuitHalf)> {
        self.slots.iter()
    }

    /// How many live.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many of these hold keys: the circuits, each counted once.
    pub fn circuits(&self) -> usize {
        self.circuits
    }

    /// None lives.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Memory of the slots without a half.
    pub fn vacant_memory(&self) -> usize {
        self.slots.vacant_memory()
    }

    /// Gives back what can be of it.
    pub fn shrink(&mut self) {
        self.slots.shrink();
    }
}

/// When a half that waits gives up, in the order in which the waits began.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// When.
    pub deadline: Instant,
    /// Who.
    pub half: HalfAddr,
    /// Which of its extensions it waits for; 0 is the wait of a new half for its handshake.
    pub extension: u32,
}
