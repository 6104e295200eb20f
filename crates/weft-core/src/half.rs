//! A circuit half: what one link knows of one circuit (seeds/000 4.2, Figure 5).
//!
//! A circuit crossing this relay is two halves, one per link. They hold no reference to each other,
//! only an address to send messages to. The keys live in the half nearest the circuit's origin; at
//! a rendezvous point two halves that are each nearest to their own origin are each other's peers,
//! and both hold keys.

use std::time::Instant;

use weft_crypto::relay_cell::RelayCrypt;

use crate::address::{HalfAddr, ThreadId};
use crate::cells::CellQueue;
use crate::scheduler::LinkKey;

/// RELAY_EARLY cells that one circuit may carry (tor-spec 5.6).
pub const MAX_RELAY_EARLY: u8 = 8;

/// DATA cells that a circuit may send before a SENDME must have been given (tor-spec 7.3). This
/// relay delivers no data yet and so gives none.
pub const CIRCUIT_WINDOW: u16 = 1000;

/// One side of a circuit.
#[derive(Debug)]
pub struct CircuitHalf {
    /// The link that the half sends to.
    pub link: LinkKey,
    /// Its circuit id there.
    pub circ_id: u32,
    /// Cells waiting for the scheduler.
    pub queue: CellQueue,
    /// Who takes what arrives here.
    pub peer: Peer,
    /// Which way the half faces, and what that side holds.
    pub role: Role,
}

/// Which way a half faces.
#[derive(Debug)]
pub enum Role {
    /// The link leads toward the circuit's origin; this half holds this relay's keys.
    TowardOrigin(Toward),
    /// The link leads to the next hop; the keys are with the peer.
    AwayFromOrigin(Away),
}

/// What the half nearest the origin holds.
#[derive(Debug)]
pub struct Toward {
    /// Present once the onionskin was answered.
    pub crypt: Option<Box<RelayCrypt>>,
    /// RELAY_EARLY cells still allowed.
    pub relay_early_left: u8,
    /// DATA cells still allowed.
    pub deliver_window: u16,
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

impl CircuitHalf {
    /// A half for a CREATE that just arrived; its onionskin is still to be answered.
    pub fn toward_origin(link: LinkKey, circ_id: u32) -> Self {
        CircuitHalf {
            link,
            circ_id,
            queue: CellQueue::default(),
            peer: Peer::None,
            role: Role::TowardOrigin(Toward {
                crypt: None,
                relay_early_left: MAX_RELAY_EARLY,
                deliver_window: CIRCUIT_WINDOW,
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
            peer: Peer::Joined(peer),
            role: Role::AwayFromOrigin(Away::AwaitingCreated),
        }
    }

    /// Whether the half faces its circuit's origin.
    pub fn is_toward_origin(&self) -> bool {
        matches!(self.role, Role::TowardOrigin(_))
    }

    /// Whether the half still waits for what a [`Wait`] of this number is about.
    pub fn still_waits(&self, extension: u32) -> bool {
        match &self.role {
            Role::TowardOrigin(toward) if extension == 0 => toward.crypt.is_none(),
            Role::TowardOrigin(toward) => {
                self.peer == Peer::Extending && toward.extension == extension
            }
            Role::AwayFromOrigin(away) => *away == Away::AwaitingCreated,
        }
    }
}

/// A connection thread's circuit halves, by slot; addresses of earlier tenants do not match.
#[derive(Debug)]
pub struct Halves {
    /// The owning thread.
    thread: ThreadId,
    /// Tenants and the generation of each slot.
    slots: Vec<(u32, Option<CircuitHalf>)>,
    /// Free slots, last freed first.
    free: Vec<u32>,
    /// Tenants that face their circuit's origin.
    toward_origin: usize,
}

impl Halves {
    /// No halves yet.
    pub fn new(thread: ThreadId) -> Self {
        Halves {
            thread,
            slots: Vec::new(),
            free: Vec::new(),
            toward_origin: 0,
        }
    }

    /// Moves a half in. `None` when 2³² slots are taken.
    pub fn insert(&mut self, half: CircuitHalf) -> Option<HalfAddr> {
        let toward_origin = usize::from(half.is_toward_origin());
        if let Some(slot) = self.free.pop() {
            let (generation, tenant) = self.slots.get_mut(slot as usize)?;
            *tenant = Some(half);
            self.toward_origin += toward_origin;
            return Some(HalfAddr {
                thread: self.thread,
                slot,
                generation: *generation,
            });
        }
        let slot = u32::try_from(self.slots.len()).ok()?;
        self.slots.push((0, Some(half)));
        self.toward_origin += toward_origin;
        Some(HalfAddr {
            thread: self.thread,
            slot,
            generation: 0,
        })
    }

    /// Moves a half out; its address is dead from here on.
    pub fn remove(&mut self, slot: u32) -> Option<CircuitHalf> {
        let (generation, tenant) = self.slots.get_mut(slot as usize)?;
        let half = tenant.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(slot);
        self.toward_origin -= usize::from(half.is_toward_origin());
        Some(half)
    }

    /// The half in a slot.
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut CircuitHalf> {
        self.slots.get_mut(slot as usize)?.1.as_mut()
    }

    /// The half in a slot.
    pub fn get(&self, slot: u32) -> Option<&CircuitHalf> {
        self.slots.get(slot as usize)?.1.as_ref()
    }

    /// The half at an address, if it still lives.
    pub fn at(&mut self, addr: HalfAddr) -> Option<&mut CircuitHalf> {
        let (generation, tenant) = self.slots.get_mut(addr.slot as usize)?;
        if addr.thread != self.thread || *generation != addr.generation {
            return None;
        }
        tenant.as_mut()
    }

    /// The present address of the half in a slot.
    pub fn addr(&self, slot: u32) -> Option<HalfAddr> {
        let (generation, tenant) = self.slots.get(slot as usize)?;
        tenant.as_ref()?;
        Some(HalfAddr {
            thread: self.thread,
            slot,
            generation: *generation,
        })
    }

    /// Halves that live, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &CircuitHalf)> {
        (0u32..)
            .zip(&self.slots)
            .filter_map(|(slot, (_, tenant))| Some((slot, tenant.as_ref()?)))
    }

    /// How many live.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// How many of these face their circuit's origin.
    pub fn toward_origin(&self) -> usize {
        self.toward_origin
    }

    /// None lives.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
