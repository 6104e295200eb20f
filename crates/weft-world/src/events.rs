//! What will happen, in order of time: a calendar of two levels.
//!
//! The next 67 ms are slots of 4.1 µs, each with a list of its events; what is later waits in coarse lists of 67 ms each,
//! which are spread over the slots when their time comes. When a slot's time comes it is sorted, which is little
//! work, as few events share a slot. So an event is moved three times at most, always along memory, however
//! many there are. (`weft_links::Wheel` is for packets of real networks: it has a bound, and it frees nothing.)

use std::collections::BTreeMap;

/// A slot covers 2^12 ns.
const SLOT_BITS: u32 = 12;
/// So many slots are one page of the calendar.
const PAGE_BITS: u32 = 14;
const SLOTS: usize = 1 << PAGE_BITS;

/// An event, when it is due, and how many were inserted before it.
#[derive(Debug)]
struct Entry<T> {
    at: u64,
    order: u64,
    value: T,
}

impl<T> Entry<T> {
    fn key(&self) -> (u64, u64) {
        (self.at, self.order)
    }
}

/// Events. Those of the same nanosecond leave in the order in which they came.
#[derive(Debug)]
pub(crate) struct Events<T> {
    /// What is due in the slot of `tick` and before, the last first.
    due: Vec<Entry<T>>,
    /// The slot that `due` is of: everything in `slots` is later.
    tick: u64,
    /// Of the page of `tick`.
    slots: Vec<Vec<Entry<T>>>,
    /// A bit for each slot that is not empty.
    occupied: Vec<u64>,
    /// By page.
    later: BTreeMap<u64, Vec<Entry<T>>>,
    inserted: u64,
    length: usize,
}

fn tick_of(at: u64) -> u64 {
    at >> SLOT_BITS
}

fn page_of(tick: u64) -> u64 {
    tick >> PAGE_BITS
}

fn slot_of(tick: u64) -> usize {
    usize::try_from(tick).unwrap_or(0) % SLOTS
}

impl<T> Events<T> {
    pub(crate) fn new() -> Events<T> {
        Events {
            due: Vec::new(),
            tick: 0,
            slots: (0..SLOTS).map(|_| Vec::new()).collect(),
            occupied: vec![0; SLOTS / 64],
            later: BTreeMap::new(),
            inserted: 0,
            length: 0,
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Adds one. What is due before the last that was taken is due now.
    pub(crate) fn insert(&mut self, at: u64, value: T) {
        let order = self.inserted;
        self.inserted += 1;
        self.length += 1;
        let entry = Entry { at, order, value };
        let tick = tick_of(at);
        if tick <= self.tick {
            let place = self.due.partition_point(|one| one.key() > entry.key());
            self.due.insert(place, entry);
        } else if page_of(tick) == page_of(self.tick) {
            self.put(tick, entry);
        } else {
            self.later.entry(page_of(tick)).or_default().push(entry);
        }
    }

    fn put(&mut self, tick: u64, entry: Entry<T>) {
        let slot = slot_of(tick);
        if let Some(list) = self.slots.get_mut(slot) {
            list.push(entry);
        }
        if let Some(word) = self.occupied.get_mut(slot / 64) {
            *word |= 1 << (slot % 64);
        }
    }

    /// The next one, if it is due by then.
    pub(crate) fn pop(&mut self, until: u64) -> Option<(u64, T)> {
        while self.due.is_empty() {
            if !self.turn(tick_of(until)) {
                return None;
            }
        }
        if self.due.last()?.at > until {
            return None;
        }
        let entry = self.due.pop()?;
        self.length -= 1;
        Some((entry.at, entry.value))
    }

    /// Goes on to the next slot that has events, up to `last`. False: none has.
    fn turn(&mut self, last: u64) -> bool {
        let page = page_of(self.tick);
        if let Some(slot) = self.next_slot(slot_of(self.tick) + 1) {
            let tick = (page << PAGE_BITS) + slot as u64;
            if tick > last {
                return false;
            }
            self.tick = tick;
            if let Some(list) = self.slots.get_mut(slot) {
                std::mem::swap(&mut self.due, list);
            }
            if let Some(word) = self.occupied.get_mut(slot / 64) {
                *word &= !(1 << (slot % 64));
            }
            self.due
                .sort_unstable_by_key(|one| std::cmp::Reverse(one.key()));
            return true;
        }
        let Some((&next, _)) = self.later.first_key_value() else {
            return false;
        };
        let first = next << PAGE_BITS;
        if first > last {
            return false;
        }
        self.tick = first;
        for entry in self.later.remove(&next).unwrap_or_default() {
            let tick = tick_of(entry.at);
            match tick == first {
                true => self.due.push(entry),
                false => self.put(tick, entry),
            }
        }
        self.due
            .sort_unstable_by_key(|one| std::cmp::Reverse(one.key()));
        true
    }

    /// The first slot from this one on that has events.
    fn next_slot(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.occupied.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.occupied.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha12Rng;

    use super::*;

    #[test]
    fn events_leave_as_from_a_sorted_list() {
        for seed in 0..30 {
            let mut rng = ChaCha12Rng::seed_from_u64(seed);
            let mut events = Events::new();
            let mut model = BinaryHeap::new();
            let (mut now, mut count) = (0u64, 0u64);
            for _ in 0..4_000 {
                if rng.random_bool(0.6) {
                    // From the same nanosecond to many pages later.
                    let bits = rng.random_range(1..34);
                    let ahead = rng.random_range(0..1u64 << bits);
                    events.insert(now + ahead, count);
                    model.push(Reverse((now + ahead, count)));
                    count += 1;
                    continue;
                }
                let bits = rng.random_range(1..30);
                let until = now + rng.random_range(0..1u64 << bits);
                let expected = model
                    .peek()
                    .filter(|Reverse((at, _))| *at <= until)
                    .copied();
                assert_eq!(
                    events.pop(until),
                    expected.map(|Reverse(one)| one),
                    "seed {seed}"
                );
                match expected {
                    Some(Reverse((at, _))) => {
                        model.pop();
                        now = at;
                    }
                    None => now = until,
                }
                assert_eq!(events.len(), model.len());
            }
            while let Some(Reverse(expected)) = model.pop() {
                assert_eq!(events.pop(u64::MAX), Some(expected));
            }
            assert_eq!(events.pop(u64::MAX), None);
        }
    }
}
