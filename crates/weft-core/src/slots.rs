//! A thread's things by slot, each tenant of a slot told from those before it.

/// Tenants by slot. An address of slot and generation may outlive its tenant and then finds nothing.
#[derive(Debug)]
pub struct Slots<T> {
    /// Tenants and the generation of each slot.
    slots: Vec<(u32, Option<T>)>,
    /// Free slots, last freed first.
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots {
            slots: Vec::new(),
            free: Vec::new(),
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
        self.slots.push((0, Some(tenant)));
        Some((slot, 0))
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
