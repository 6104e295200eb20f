//! Tables of what a connection thread owns, by slot, and the keys that name slots.
//!
//! A slot is used again when its tenant has left. A key alone names the tenant that the slot has
//! now: only the thread that owns the table may hold one, and only while it knows that the tenant
//! is there. A name that may outlive the tenant is an address
//! ([`HalfAddr`](crate::address::HalfAddr), [`EdgeAddr`](crate::address::EdgeAddr)): a key and the
//! generation of the slot.

pub(crate) mod worklist;

use std::fmt;

/// A slot's number in one kind of table, so that a key of one table cannot be used in another.
pub trait SlotKey: Copy + Eq + fmt::Debug {
    /// The key of the slot with this number. Past 2³² - 1 it is that of the last slot, which no table
    /// reaches: each tenant needs more than a byte.
    fn from_index(index: usize) -> Self;
    /// The slot's number.
    fn index(self) -> usize;
}

/// Declares a key of one kind of table.
macro_rules! slot_key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl SlotKey for $name {
            #[inline]
            fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }
            #[inline]
            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

slot_key! {
    /// A link's slot in the tables of the thread that owns it.
    LinkKey
}
impl LinkKey {
    /// No link: that of a half which sends on other halves (a tunnel).
    pub(crate) const NONE: LinkKey = LinkKey(u32::MAX);
}
slot_key! {
    /// A circuit half's slot in the tables of the thread that owns it.
    HalfKey
}
slot_key! {
    /// A circuit edge's slot in the tables of the thread that owns it.
    EdgeKey
}

/// Tenants by slot. An address of slot and generation may outlive its tenant and then finds nothing.
#[derive(Debug)]
pub(crate) struct Slots<K, T> {
    slots: Vec<Slot<T>>,
    /// Free slots, last freed first.
    free: Vec<K>,
    /// The generation of slots that are new: past those of slots that were given up.
    first_generation: u32,
}

/// A slot begins with a line of the processor's cache: a tenant that has no more than two lines is in no more.
#[derive(Debug)]
#[repr(align(64))]
struct Slot<T> {
    /// Number of tenants that it has had.
    generation: u32,
    tenant: Option<T>,
}

impl<K, T> Default for Slots<K, T> {
    fn default() -> Self {
        Slots {
            slots: Vec::new(),
            free: Vec::new(),
            first_generation: 0,
        }
    }
}

impl<K: SlotKey, T> Slots<K, T> {
    /// Memory of a slot.
    pub(crate) const COST: usize = size_of::<Slot<T>>();

    /// Moves a tenant in: slot and generation. `None` when 2³² slots are taken.
    pub(crate) fn insert(&mut self, tenant: T) -> Option<(K, u32)> {
        if let Some(slot) = self.free.pop() {
            let place = self.slots.get_mut(slot.index())?;
            place.tenant = Some(tenant);
            return Some((slot, place.generation));
        }
        let number = u32::try_from(self.slots.len()).ok()?;
        self.slots.push(Slot {
            generation: self.first_generation,
            tenant: Some(tenant),
        });
        Some((K::from_index(number as usize), self.first_generation))
    }

    /// Moves a tenant out; its address is dead from here on.
    pub(crate) fn remove(&mut self, slot: K) -> Option<T> {
        let place = self.slots.get_mut(slot.index())?;
        let tenant = place.tenant.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(slot);
        Some(tenant)
    }

    /// The tenant of a slot.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: K) -> Option<&mut T> {
        self.slots.get_mut(slot.index())?.tenant.as_mut()
    }

    /// The tenant of a slot.
    #[inline]
    pub(crate) fn get(&self, slot: K) -> Option<&T> {
        self.slots.get(slot.index())?.tenant.as_ref()
    }

    /// The tenant of a slot, with the slot's generation.
    #[inline]
    pub(crate) fn get_with_generation(&self, slot: K) -> Option<(u32, &T)> {
        let place = self.slots.get(slot.index())?;
        Some((place.generation, place.tenant.as_ref()?))
    }

    /// The tenant of a slot, if it is still that one.
    #[inline]
    pub(crate) fn at(&mut self, slot: K, generation: u32) -> Option<&mut T> {
        let place = self.slots.get_mut(slot.index())?;
        match place.generation == generation {
            true => place.tenant.as_mut(),
            false => None,
        }
    }

    /// The tenant of a slot, if it is still that one, to look at.
    pub(crate) fn peek(&self, slot: K, generation: u32) -> Option<&T> {
        self.get(slot)
            .filter(|_| self.generation(slot) == Some(generation))
    }

    /// The generation of a slot that has a tenant.
    #[inline]
    pub(crate) fn generation(&self, slot: K) -> Option<u32> {
        let place = self.slots.get(slot.index())?;
        place.tenant.as_ref().map(|_| place.generation)
    }

    /// Tenants in slot order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        (self.slots.iter().enumerate())
            .filter_map(|(slot, place)| Some((K::from_index(slot), place.tenant.as_ref()?)))
    }

    /// Memory of the slots that have no tenant.
    pub(crate) fn vacant_memory(&self) -> usize {
        (self.slots.capacity() - self.len()) * Self::COST + self.free.capacity() * size_of::<K>()
    }

    /// Gives back the memory of slots behind the last tenant.
    pub(crate) fn shrink(&mut self) {
        let last = (self.slots.iter()).rposition(|place| place.tenant.is_some());
        let keep = last.map_or(0, |last| last + 1);
        let given_up = self.slots.get(keep..).unwrap_or_default();
        // An address of a tenant of theirs must not find one that comes later.
        let past = given_up.iter().map(|place| place.generation).max();
        self.first_generation = self.first_generation.max(past.unwrap_or(0));
        self.slots.truncate(keep);
        self.slots.shrink_to_fit();
        self.free.retain(|slot| slot.index() < keep);
        self.free.shrink_to_fit();
    }

    /// Tenants in slot order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut T)> {
        (self.slots.iter_mut().enumerate())
            .filter_map(|(slot, place)| Some((K::from_index(slot), place.tenant.as_mut()?)))
    }

    /// Slots, with and without a tenant.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Number of tenants.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_that_are_given_up_are_not_found_by_old_addresses() {
        let mut slots = Slots::<HalfKey, i32>::default();
        let all: Vec<_> = (0..100).map(|n| slots.insert(n).unwrap()).collect();
        for (slot, _) in &all[10..] {
            slots.remove(*slot);
        }
        slots.remove(HalfKey(5));
        slots.shrink();
        assert_eq!(slots.len(), 9);
        let vacant = slots.vacant_memory();
        assert!(vacant < 3 * Slots::<HalfKey, i32>::COST, "{vacant}");
        let again: Vec<_> = (0..100).map(|n| slots.insert(1000 + n).unwrap()).collect();
        assert!(all.iter().all(|old| !again.contains(old)));
        for (slot, generation) in &all[10..] {
            assert_eq!(slots.at(*slot, *generation), None);
        }
        for (slot, generation) in again {
            assert!(slots.at(slot, generation).is_some());
        }
    }
}
