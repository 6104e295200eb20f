//! The circuit halves of a thread, by slot.

use std::collections::HashMap;
use std::hint::black_box;

use weft_crypto::circuit::BackwardMark;
use weft_planted::{Fault, planted};

use super::half::{Backward, CircuitHalf, Peer, Purpose, Role};
use crate::address::{AddrHasher, HalfAddr, ThreadId};
use crate::slots::{HalfKey, LinkKey, SlotKey as _, Slots};

/// A connection thread's circuit halves, by slot; addresses of earlier tenants do not match.
///
/// The slot of a guest, which came with its link from another thread, is not that of its address: who has an address
/// asks for the [`slot`](Self::slot).
#[derive(Debug)]
pub(crate) struct Halves {
    /// The owning thread.
    thread: ThreadId,
    /// The halves.
    slots: Slots<HalfKey, CircuitHalf>,
    /// The slots of guests.
    guests: HashMap<HalfAddr, HalfKey, AddrHasher>,
    /// The addresses of guests.
    addrs: HashMap<HalfKey, HalfAddr, AddrHasher>,
    /// The number of halves that hold this node's end of a circuit's keys: each circuit counted once.
    circuits: usize,
    /// The slot at which the next [`trim`](Self::trim) starts.
    trim_next: usize,
}

/// Calls of [`Halves::trim`] in which every half has its turn.
const TRIM_TURNS: usize = 16;

impl Halves {
    /// No halves yet.
    pub(crate) fn new(thread: ThreadId) -> Self {
        Halves {
            thread,
            slots: Slots::default(),
            guests: HashMap::default(),
            addrs: HashMap::default(),
            circuits: 0,
            trim_next: 0,
        }
    }

    /// Moves a half in. `None` when 2³² slots are taken.
    pub(crate) fn insert(&mut self, half: CircuitHalf) -> Option<HalfAddr> {
        let keyed = usize::from(half.has_keys());
        let (slot, generation) = self.slots.insert(half)?;
        self.circuits += keyed;
        Some(HalfAddr {
            thread: self.thread,
            slot,
            generation,
        })
    }

    /// Moves a half in that was made elsewhere: it keeps its address. `None` when 2³² slots are taken.
    pub(crate) fn insert_moved(
        &mut self,
        mut half: CircuitHalf,
        addr: HalfAddr,
    ) -> Option<HalfKey> {
        half.is_guest = true;
        let keyed = usize::from(half.has_keys());
        let (slot, _) = self.slots.insert(half)?;
        self.circuits += keyed;
        self.guests.insert(addr, slot);
        self.addrs.insert(slot, addr);
        Some(slot)
    }

    /// Moves a half out. Its address finds nothing here from now on.
    pub(crate) fn remove(&mut self, slot: HalfKey) -> Option<CircuitHalf> {
        let half = self.slots.remove(slot)?;
        if half.is_guest
            && let Some(addr) = self.addrs.remove(&slot)
        {
            self.guests.remove(&addr);
        }
        self.circuits -= usize::from(half.has_keys());
        Some(half)
    }

    /// The half in a slot.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: HalfKey) -> Option<&mut CircuitHalf> {
        self.slots.get_mut(slot)
    }

    /// Reads the half in a slot, so that it is in the processor's cache when it is needed.
    #[inline]
    pub(crate) fn touch(&self, slot: HalfKey) {
        if let Some(half) = self.slots.get(slot) {
            black_box(half.circ_id);
        }
    }

    /// The half in a slot.
    pub(crate) fn get(&self, slot: HalfKey) -> Option<&CircuitHalf> {
        self.slots.get(slot)
    }

    /// The half at an address, if it still lives.
    #[inline]
    pub(crate) fn at(&mut self, addr: HalfAddr) -> Option<&mut CircuitHalf> {
        let slot = self.find(addr)?;
        self.slots.get_mut(slot)
    }

    /// The slot of the half at an address; if it does not live here, one that no half ever has.
    #[inline]
    pub(crate) fn slot(&self, addr: HalfAddr) -> HalfKey {
        self.find(addr).unwrap_or(HalfKey(u32::MAX))
    }

    #[inline]
    fn find(&self, addr: HalfAddr) -> Option<HalfKey> {
        // A guest's slot has a generation, too, but no address names that.
        if addr.thread == self.thread
            && let Some(generation) = self.slots.generation(addr.slot)
            && (generation == addr.generation || planted(Fault::GenerationIgnored))
        {
            return Some(addr.slot);
        }
        match self.guests.is_empty() {
            true => None,
            false => self.guests.get(&addr).copied(),
        }
    }

    /// The half at an address, if it still lives, to look at.
    pub(crate) fn peek(&self, addr: HalfAddr) -> Option<&CircuitHalf> {
        self.slots.get(self.find(addr)?)
    }

    /// The present address of the half in a slot.
    #[inline]
    pub(crate) fn addr(&self, slot: HalfKey) -> Option<HalfAddr> {
        let generation = self.slots.generation(slot)?;
        if !self.addrs.is_empty() && self.slots.get(slot)?.is_guest {
            return self.addrs.get(&slot).copied();
        }
        Some(HalfAddr {
            thread: self.thread,
            slot,
            generation,
        })
    }

    /// The address of the half in a slot, and its peer.
    #[inline]
    pub(crate) fn addr_and_peer(&self, slot: HalfKey) -> Option<(HalfAddr, Peer)> {
        let (generation, half) = self.slots.get_with_generation(slot)?;
        if half.is_guest {
            return Some((self.addrs.get(&slot).copied()?, half.peer));
        }
        let addr = HalfAddr {
            thread: self.thread,
            slot,
            generation,
        };
        Some((addr, half.peer))
    }

    /// The backward half in a slot: its address, its link, its peer, and what only a backward half has.
    pub(crate) fn backward(
        &mut self,
        slot: HalfKey,
    ) -> Option<(HalfAddr, LinkKey, &mut Peer, &mut Backward)> {
        let addr = self.addr(slot)?;
        let half = self.slots.get_mut(slot)?;
        match &mut half.role {
            Role::Backward(backward) => Some((addr, half.link, &mut half.peer, backward)),
            Role::Forward(_) | Role::Origin(_) | Role::Tunnel(_) => None,
        }
    }

    /// Progress of the backward direction, for a half with this relay's keys.
    pub(crate) fn backward_mark(&self, slot: HalfKey) -> Option<BackwardMark> {
        match &self.get(slot)?.role {
            Role::Backward(backward) => Some(backward.crypt.as_ref()?.backward_mark()),
            Role::Forward(_) | Role::Origin(_) | Role::Tunnel(_) => None,
        }
    }

    /// Gives a circuit that ends here and has no purpose yet this one.
    pub(crate) fn unused_end(&mut self, slot: HalfKey, purpose: Purpose) -> Option<HalfAddr> {
        let (addr, _, peer, backward) = self.backward(slot)?;
        if *peer != Peer::None || !backward.purpose.is_general() {
            return None;
        }
        backward.purpose = purpose;
        Some(addr)
    }

    /// True if `from` is the peer of the half.
    pub(crate) fn is_peer(&self, addr: HalfAddr, from: HalfAddr) -> bool {
        let half = self.peek(addr);
        half.is_some_and(|half| half.peer == Peer::Joined(from))
    }

    /// True if the half waits for the answer to this extension.
    pub(crate) fn is_extending(&self, addr: HalfAddr, extension: u32) -> bool {
        self.peek(addr).is_some_and(|half| {
            half.peer == Peer::Extending
                && matches!(&half.role, Role::Backward(backward) if backward.extension == extension)
        })
    }

    /// True if the half is a tunnel: cells that arrive there were counted on a leg.
    pub(crate) fn is_tunnel(&self, slot: HalfKey) -> bool {
        let half = self.get(slot);
        half.is_some_and(|half| matches!(half.role, Role::Tunnel(_)))
    }

    /// Halves that live, in slot order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (HalfKey, &mut CircuitHalf)> {
        self.slots.iter_mut()
    }

    /// Halves that live, in slot order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (HalfKey, &CircuitHalf)> {
        self.slots.iter()
    }

    /// The number of halves that live.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The number of circuits: of these halves, those that hold keys.
    pub(crate) fn circuits(&self) -> usize {
        self.circuits
    }

    /// Memory of the slots without a half.
    pub(crate) fn vacant_memory(&self) -> usize {
        self.slots.vacant_memory()
    }

    /// Gives back what a part of the halves do not need any more, in turn: every half in some calls.
    pub(crate) fn trim(&mut self) {
        let all = self.slots.slots();
        for _ in 0..all.div_ceil(TRIM_TURNS) {
            if let Some(half) = self.slots.get_mut(HalfKey::from_index(self.trim_next)) {
                half.queue.trim();
            }
            self.trim_next = (self.trim_next + 1) % all;
        }
    }

    /// Memory of the addresses of guests.
    pub(crate) fn guests_memory(&self) -> usize {
        (self.guests.capacity() + self.addrs.capacity()) * size_of::<(HalfAddr, HalfKey)>() * 8 / 7
    }

    /// Gives back what can be of it.
    pub(crate) fn shrink(&mut self) {
        self.slots.shrink();
        self.guests.shrink_to_fit();
        self.addrs.shrink_to_fit();
    }
}
