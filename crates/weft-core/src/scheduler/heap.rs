//! A binary heap of slots that can be changed and taken out anywhere in the middle.
//!
//! Each slot knows where in the heap it stands ([`Placed`]), so that an entry is found without a
//! search, and entries carry their priority, so that comparing them touches nothing else.

use smallvec::SmallVec;

use crate::slots::SlotKey;

/// The order of slots: the lowest count first, and among equal counts the one that has
/// waited longest. Ordered as the tuple that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Priority {
    /// The bits of a count that is not negative: they are ordered as the counts are.
    count: u64,
    /// Rises with each insertion and each cell, so no two priorities of a heap are equal.
    order: u64,
}

impl Priority {
    pub(super) fn new(count: f64, order: u64) -> Self {
        debug_assert!(count >= 0.0, "a count of cells is not negative: {count}");
        Self {
            count: count.to_bits(),
            order,
        }
    }

    pub(super) fn scaled(self, factor: f64) -> Self {
        Self::new(f64::from_bits(self.count) * factor, self.order)
    }
}

/// The place of a slot that is in no heap.
pub(super) const NOWHERE: u32 = u32::MAX;

/// A slot that remembers its place in one heap.
pub(super) trait Placed {
    fn place(&self) -> u32;
    fn set_place(&mut self, place: u32);
}

#[derive(Debug, Clone, Copy)]
struct Entry<K> {
    priority: Priority,
    slot: K,
}

/// A heap over some of the slots of a slice, lowest priority value first. Every method must be
/// given the same slice.
///
/// Most of a link's heaps have one slot at a time: it needs no memory elsewhere.
#[derive(Debug)]
pub(super) struct Heap<K> {
    entries: SmallVec<[Entry<K>; 1]>,
}

impl<K> Default for Heap<K> {
    fn default() -> Self {
        Heap {
            entries: SmallVec::new(),
        }
    }
}

impl<K: SlotKey> Heap<K> {
    /// Gives back memory that more entries needed.
    pub(super) fn shrink(&mut self) {
        self.entries.shrink_to_fit();
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn first(&self) -> Option<(Priority, K)> {
        self.entries
            .first()
            .map(|entry| (entry.priority, entry.slot))
    }

    /// Puts `slot` in, or changes its priority if it is in.
    pub(super) fn set<T: Placed>(&mut self, slots: &mut [T], slot: K, priority: Priority) {
        let place = slots[slot.index()].place();
        let entry = Entry { priority, slot };
        if place == NOWHERE {
            self.entries.push(entry);
            let place = self.entries.len() - 1;
            rise(&mut self.entries, slots, place);
        } else {
            let entries = &mut self.entries[..];
            entries[place as usize] = entry;
            settle(entries, slots, place as usize);
        }
    }

    /// Takes `slot` out, if it is in.
    pub(super) fn remove<T: Placed>(&mut self, slots: &mut [T], slot: K) {
        let place = slots[slot.index()].place();
        if place == NOWHERE {
            return;
        }
        slots[slot.index()].set_place(NOWHERE);
        let place = place as usize;
        self.entries.swap_remove(place);
        let entries = &mut self.entries[..];
        if place < entries.len() {
            settle(entries, slots, place);
        }
    }

    /// Takes everything out, in no order that means anything.
    pub(super) fn clear<T: Placed>(&mut self, slots: &mut [T]) {
        for entry in self.entries.drain(..) {
            slots[entry.slot.index()].set_place(NOWHERE);
        }
    }

    /// Multiplies every count by `factor`, and calls `each` with every slot.
    pub(super) fn scale<T: Placed>(
        &mut self,
        slots: &mut [T],
        factor: f64,
        mut each: impl FnMut(&mut T),
    ) {
        for entry in &mut self.entries {
            entry.priority = entry.priority.scaled(factor);
            each(&mut slots[entry.slot.index()]);
        }
        // Small counts may have become equal, and then the order of insertion decides.
        let entries = &mut self.entries[..];
        for place in (0..entries.len() / 2).rev() {
            sink(entries, slots, place);
        }
    }
}

/// Moves the entry at `place` up or down to where it belongs.
#[inline]
fn settle<K: SlotKey, T: Placed>(entries: &mut [Entry<K>], slots: &mut [T], place: usize) {
    if rise(entries, slots, place) == place {
        sink(entries, slots, place);
    }
}

fn rise<K: SlotKey, T: Placed>(
    entries: &mut [Entry<K>],
    slots: &mut [T],
    mut place: usize,
) -> usize {
    let entry = entries[place];
    while place > 0 {
        let parent = (place - 1) / 2;
        if entries[parent].priority <= entry.priority {
            break;
        }
        put(entries, slots, place, entries[parent]);
        place = parent;
    }
    put(entries, slots, place, entry);
    place
}

fn sink<K: SlotKey, T: Placed>(entries: &mut [Entry<K>], slots: &mut [T], mut place: usize) {
    let entry = entries[place];
    loop {
        let mut child = 2 * place + 1;
        if child >= entries.len() {
            break;
        }
        if child + 1 < entries.len() && entries[child + 1].priority < entries[child].priority {
            child += 1;
        }
        if entry.priority <= entries[child].priority {
            break;
        }
        put(entries, slots, place, entries[child]);
        place = child;
    }
    put(entries, slots, place, entry);
}

#[inline]
fn put<K: SlotKey, T: Placed>(
    entries: &mut [Entry<K>],
    slots: &mut [T],
    place: usize,
    entry: Entry<K>,
) {
    entries[place] = entry;
    #[allow(clippy::cast_possible_truncation)] // slots are numbered by u32, each is in once
    slots[entry.slot.index()].set_place(place as u32);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::slots::HalfKey;

    struct Slot(u32);

    impl Placed for Slot {
        fn place(&self) -> u32 {
            self.0
        }
        fn set_place(&mut self, place: u32) {
            self.0 = place;
        }
    }

    #[derive(Debug, Clone)]
    enum Op {
        Set(u32, u32),
        Remove(u32),
        Scale,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (0..12_u32, 0..5_u32).prop_map(|(slot, count)| Op::Set(slot, count)),
            3 => (0..12_u32).prop_map(Op::Remove),
            1 => Just(Op::Scale),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_first_is_always_the_lowest(ops in proptest::collection::vec(op(), 0..120)) {
            let mut slots: Vec<Slot> = (0..12).map(|_| Slot(NOWHERE)).collect();
            let mut heap = Heap::<HalfKey>::default();
            let mut expected: Vec<Option<Priority>> = vec![None; 12];
            for (order, op) in (0_u64..).zip(ops) {
                match op {
                    Op::Set(slot, count) => {
                        let priority = Priority::new(f64::from(count), order);
                        heap.set(&mut slots, HalfKey(slot), priority);
                        expected[slot as usize] = Some(priority);
                    }
                    Op::Remove(slot) => {
                        heap.remove(&mut slots, HalfKey(slot));
                        expected[slot as usize] = None;
                    }
                    Op::Scale => {
                        let mut seen = 0;
                        heap.scale(&mut slots, 0.5, |_| seen += 1);
                        prop_assert_eq!(seen, expected.iter().flatten().count());
                        for priority in expected.iter_mut().flatten() {
                            *priority = priority.scaled(0.5);
                        }
                    }
                }
                let lowest = (0_u32..)
                    .zip(&expected)
                    .filter_map(|(slot, priority)| priority.map(|p| (p, HalfKey(slot))))
                    .min();
                prop_assert_eq!(heap.first(), lowest);
            }
            heap.clear(&mut slots);
            prop_assert!(heap.is_empty() && slots.iter().all(|slot| slot.0 == NOWHERE));
        }
    }
}
