//! A thread's things by slot, each tenant of a slot told from those before it.

/// Tenants by slot. An address of slot and generation may outlive its tenant and then finds nothing.
#[derive(Debug)]
pub struct Slots<T> {
    /// Tenants and the generation of each slot.
    slots: Vec<(u32, Option<T>)>,
    /// Free slots, last freed first.
    free: Vec<u32>,
    /// The generation of slots that are new: past those of slots that were given up.
    first_generation: u32,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots {
            slots: Vec::new(),
            free: Vec::new(),
            first_generation: 0,
        }
    }
}

impl<T> Slots<T> {
    /// Moves a tenant in: slot and generation. `None` when 2³² slots are taken.
    pub fn insert(&mut self, tenant: T) -> Option<(u32, u32)> {
        if let Some(slot) = self.free.pop() {
            let (generation, place) = self.slots.get_mut(slot as usize)?;
            *place = Some(tenant);
            return Some((slot, *generation));
        }
        let slot = u32::try_from(self.slots.len()).ok()?;
        self.slots.push((self.first_generation, Some(tenant)));
        Some((slot, self.first_generation))
    }

    /// Moves a tenant out; its address is dead from here on.
    pub fn remove(&mut self, slot: u32) -> Option<T> {
        let (generation, place) = self.slots.get_mut(slot as usize)?;
        let tenant = place.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(slot);
        Some(tenant)
    }

    /// The tenant of a slot.
    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.1.as_mut()
    }

    /// The tenant of a slot.
    #[inline]
    pub fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.1.as_ref()
    }

    /// The tenant of a slot, if it is still that one.
    #[inline]
    pub fn at(&mut self, slot: u32, generation: u32) -> Option<&mut T> {
        match self.slots.get_mut(slot as usize)? {
            (now, tenant) if *now == generation => tenant.as_mut(),
            _ => None,
        }
    }

    /// The tenant of a slot, if it is still that one, to look at.
    pub fn peek(&self, slot: u32, generation: u32) -> Option<&T> {
        self.get(slot)
            .filter(|_| self.generation(slot) == Some(generation))
    }

    /// The generation of a slot that has a tenant.
    #[inline]
    pub fn generation(&self, slot: u32) -> Option<u32> {
        let (generation, tenant) = self.slots.get(slot as usize)?;
        tenant.as_ref().map(|_| *generation)
    }

    /// Tenants in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0u32..)
            .zip(&self.slots)
            .filter_map(|(slot, (_, tenant))| Some((slot, tenant.as_ref()?)))
    }

    /// Memory of the slots that have no tenant.
    pub fn vacant_memory(&self) -> usize {
        (self.slots.capacity() - self.len()) * size_of::<(u32, Option<T>)>()
            + self.free.capacity() * size_of::<u32>()
    }

    /// Gives back the memory of slots behind the last tenant.
    pub fn shrink(&mut self) {
        let last = self.slots.iter().rposition(|(_, tenant)| tenant.is_some());
        let keep = last.map_or(0, |last| last + 1);
        let given_up = self.slots.get(keep..).unwrap_or_default();
        // An address of a tenant of theirs must not find one that comes later.
        let past = given_up.iter().map(|(generation, _)| *generation).max();
        self.first_generation = self.first_generation.max(past.unwrap_or(0));
        self.slots.truncate(keep);
        self.slots.shrink_to_fit();
        self.free.retain(|slot| (*slot as usize) < keep);
        self.free.shrink_to_fit();
    }

    /// Tenants in slot order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        (0u32..)
            .zip(&mut self.slots)
            .filter_map(|(slot, (_, tenant))| Some((slot, tenant.as_mut()?)))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_that_are_given_up_are_not_found_by_old_addresses() {
        let mut slots = Slots::default();
        let all: Vec<_> = (0..100).map(|n| slots.insert(n).unwrap()).collect();
        for (slot, _) in &all[10..] {
            slots.remove(*slot);
        }
        slots.remove(5);
        slots.shrink();
        assert_eq!(slots.len(), 9);
        let vacant = slots.vacant_memory();
        assert!(vacant < 3 * size_of::<(u32, Option<i32>)>(), "{vacant}");
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
