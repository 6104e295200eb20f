//! Future events in order of time: a calendar of two levels.
//!
//! The next 67 ms are slots of 4.1 µs, each with a list of its events. Later events wait in coarse
//! lists of 67 ms each, which are spread over the slots when their time comes. A slot is sorted
//! when its time comes, which is cheap, as few events share a slot. Events never move in memory:
//! lists are chains of places, and freed places are used again, the last first, so that they stay
//! in the processor's caches. (`weft_model::links::Wheel` is for packets of real networks: it has a
//! bound, and it frees nothing.)

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A slot covers 2^12 ns.
const SLOT_BITS: u32 = 12;
/// So many slots are one page of the calendar.
const PAGE_BITS: u32 = 14;
const SLOTS: usize = 1 << PAGE_BITS;
/// No place: the end of a chain.
const NONE: u32 = u32::MAX;

/// When an event is due, and how many were inserted before it.
type Key = (u64, u64);

/// Sort key of the event in a place, and the next place of its chain.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    next: u32,
}

/// Events. Events of the same nanosecond leave in the order of their insertion.
#[derive(Debug)]
pub(crate) struct Events<T> {
    /// By place.
    entries: Vec<Entry>,
    /// By place, separate from the data that is read more than once.
    values: Vec<T>,
    /// The chain of free places.
    free: u32,
    /// Places of the events due in the slot of `tick` and before, the last first.
    due: Vec<(Key, u32)>,
    /// The slot that `due` is of: everything in `slots` is later.
    tick: u64,
    /// Chains of the page of `tick`.
    slots: Vec<u32>,
    /// A bit for each slot that is not empty.
    occupied: Vec<u64>,
    /// Chains by page.
    later: BTreeMap<u64, u32>,
    inserted: u64,
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

impl<T: Copy> Events<T> {
    pub(crate) fn new() -> Events<T> {
        Events {
            entries: Vec::new(),
            values: Vec::new(),
            free: NONE,
            due: Vec::new(),
            tick: 0,
            slots: vec![NONE; SLOTS],
            occupied: vec![0; SLOTS / 64],
            later: BTreeMap::new(),
            inserted: 0,
        }
    }

    /// Adds an event. One that is due before the last event taken is due now.
    pub(crate) fn insert(&mut self, at: u64, value: T) {
        let key = (at, self.inserted);
        self.inserted += 1;
        let tick = tick_of(at);
        let place = self.place(key, value);
        if tick <= self.tick {
            let rank = self.due.partition_point(|(other, _)| *other > key);
            self.due.insert(rank, (key, place));
        } else if page_of(tick) == page_of(self.tick) {
            self.put(tick, place);
        } else {
            let head = self.later.entry(page_of(tick)).or_insert(NONE);
            if let Some(entry) = self.entries.get_mut(place as usize) {
                entry.next = std::mem::replace(head, place);
            }
        }
    }

    /// A place for an event, which is there now.
    fn place(&mut self, key: Key, value: T) -> u32 {
        let entry = Entry { key, next: NONE };
        let place = self.free as usize;
        match (self.entries.get_mut(place), self.values.get_mut(place)) {
            (Some(free), Some(held)) => {
                let place = std::mem::replace(&mut self.free, free.next);
                (*free, *held) = (entry, value);
                place
            }
            _ => {
                self.entries.push(entry);
                self.values.push(value);
                u32::try_from(self.entries.len() - 1).unwrap_or(NONE)
            }
        }
    }

    /// Puts the entry at a place into the chain of its slot.
    fn put(&mut self, tick: u64, place: u32) {
        let slot = slot_of(tick);
        if let (Some(head), Some(entry)) = (
            self.slots.get_mut(slot),
            self.entries.get_mut(place as usize),
        ) {
            entry.next = std::mem::replace(head, place);
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
        let ((at, _), place) = *self.due.last()?;
        if at > until {
            return None;
        }
        self.due.pop();
        let entry = self.entries.get_mut(place as usize)?;
        entry.next = std::mem::replace(&mut self.free, place);
        let value = *self.values.get(place as usize)?;
        Some((at, value))
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
            if let Some(head) = self.slots.get_mut(slot) {
                let mut place = std::mem::replace(head, NONE);
                while let Some(entry) = self.entries.get(place as usize) {
                    self.due.push((entry.key, place));
                    place = entry.next;
                }
            }
            if let Some(word) = self.occupied.get_mut(slot / 64) {
                *word &= !(1 << (slot % 64));
            }
            self.due.sort_unstable_by_key(|(key, _)| Reverse(*key));
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
        let mut place = self.later.remove(&next).unwrap_or(NONE);
        while let Some(entry) = self.entries.get(place as usize) {
            let (key, next) = (entry.key, entry.next);
            match tick_of(key.0) {
                tick if tick == first => self.due.push((key, place)),
                tick => self.put(tick, place),
            }
            place = next;
        }
        self.due.sort_unstable_by_key(|(key, _)| Reverse(*key));
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
    use std::collections::BinaryHeap;

    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha12Rng;

    use super::*;

    impl<T> Events<T> {
        fn free_places(&self) -> usize {
            let next = |place: &u32| Some(self.entries.get(*place as usize)?.next);
            std::iter::successors(Some(self.free), next).count() - 1
        }
    }

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
            }
            while let Some(Reverse(expected)) = model.pop() {
                assert_eq!(events.pop(u64::MAX), Some(expected));
            }
            assert_eq!(events.pop(u64::MAX), None);
            // Places are used again.
            assert!(events.entries.len() < 4_000, "{}", events.entries.len());
            assert_eq!(events.free_places(), events.entries.len());
        }
    }
}
