//! Hashed timing wheel, which holds packets until they are due.
//!
//! The wheel has slots of 65.5 µs. Each has a list of the packets due in it, in this turn of the
//! wheel or in a later one. When a slot's time comes, its due packets move to a small heap, which
//! orders them exactly. So insertion takes constant time, and only packets due at about the same
//! time are sorted (Varghese and Lauck 1987, scheme 6).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::links::Moment;

/// A slot covers 2^16 ns.
const SLOT_BITS: u32 = 16;
/// One turn of the wheel is 268 ms; later packets wait for more turns in their slot.
const SLOTS: usize = 4096;
/// The end of a list.
const NONE: u32 = u32::MAX;

/// Values that are due later, up to a bound. Values due at the same time leave in the order of
/// their insertion.
#[derive(Clone, Debug)]
pub struct Wheel<T> {
    entries: Vec<Entry<T>>,
    /// The first of the entries that are not in use.
    spare: u32,
    capacity: u32,
    length: usize,
    slots: Vec<u32>,
    /// A bit for each slot, set where the list is not empty.
    occupied: [u64; SLOTS / 64],
    /// All slots' times before this one are in `near`.
    tick: u64,
    /// Values due before `tick`: time, order of insertion, entry.
    near: BinaryHeap<Reverse<(Moment, u64, u32)>>,
    inserted: u64,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    at: Moment,
    order: u64,
    next: u32,
    value: Option<T>,
}

fn tick_of(at: Moment) -> u64 {
    at.nanos() >> SLOT_BITS
}

fn slot_of(tick: u64) -> usize {
    usize::try_from(tick % SLOTS as u64).unwrap_or(0)
}

impl<T> Wheel<T> {
    /// An empty one that takes up to `capacity` values.
    #[must_use]
    pub fn new(capacity: u32) -> Wheel<T> {
        Wheel {
            entries: Vec::new(),
            spare: NONE,
            capacity: capacity.min(NONE - 1),
            length: 0,
            slots: vec![NONE; SLOTS],
            occupied: [0; SLOTS / 64],
            tick: 0,
            near: BinaryHeap::new(),
            inserted: 0,
        }
    }

    /// Number of values that it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns true if it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Holds a value until it is due.
    ///
    /// # Errors
    ///
    /// It is full; the value comes back.
    pub fn insert(&mut self, at: Moment, value: T) -> Result<(), T> {
        let index = match self.spare {
            NONE if self.entries.len() < self.capacity as usize => {
                self.entries.push(Entry {
                    at,
                    order: 0,
                    next: NONE,
                    value: None,
                });
                u32::try_from(self.entries.len() - 1).unwrap_or(NONE)
            }
            spare => spare,
        };
        let order = self.inserted;
        let tick = tick_of(at);
        let is_near = tick < self.tick;
        let slot = slot_of(tick);
        let Some(entry) = self.entries.get_mut(index as usize) else {
            return Err(value);
        };
        if index == self.spare {
            self.spare = entry.next;
        }
        (entry.at, entry.order, entry.value) = (at, order, Some(value));
        self.inserted += 1;
        self.length += 1;
        match self.slots.get_mut(slot) {
            Some(head) if !is_near => {
                entry.next = *head;
                *head = index;
                set(&mut self.occupied, slot, true);
            }
            _ => self.near.push(Reverse((at, order, index))),
        }
        Ok(())
    }

    /// The earliest value that is due by `now`, with its time.
    pub fn pop(&mut self, now: Moment) -> Option<(Moment, T)> {
        self.advance(tick_of(now));
        let &Reverse((at, _, index)) = self.near.peek()?;
        if at > now {
            return None;
        }
        self.near.pop();
        let entry = self.entries.get_mut(index as usize)?;
        entry.next = self.spare;
        self.spare = index;
        self.length -= 1;
        Some((at, entry.value.take()?))
    }

    /// When [`pop`](Self::pop) should be called again; nothing is due before. Nothing: it is empty.
    pub fn next_due(&mut self) -> Option<Moment> {
        if self.is_empty() {
            return None;
        }
        for _ in 0..SLOTS {
            if let Some(Reverse((at, _, _))) = self.near.peek() {
                return Some(*at);
            }
            // Values in the slot may be due only in a later turn; then the next slot is checked.
            match self.next_occupied() {
                Some(tick) => self.advance(tick),
                None => break,
            }
        }
        let near = self.near.peek().map(|Reverse((at, _, _))| *at);
        // All that there is is due in a later turn of the wheel.
        Some(near.unwrap_or(Moment::from_nanos(self.tick.saturating_mul(1 << SLOT_BITS))))
    }

    /// Moves what is due until the end of slot time `last` to the heap.
    fn advance(&mut self, last: u64) {
        if last < self.tick {
            return;
        }
        if last - self.tick >= SLOTS as u64 {
            // A whole turn or more: every slot has its time.
            for slot in 0..SLOTS {
                self.take_slot(slot, last);
            }
        }
        while let Some(tick) = self.next_occupied().filter(|tick| *tick <= last) {
            self.take_slot(slot_of(tick), last);
            self.tick = tick + 1;
        }
        self.tick = last.saturating_add(1);
    }

    /// Moves what a slot has until the end of slot time `last` to the heap; the rest stays.
    fn take_slot(&mut self, slot: usize, last: u64) {
        let Some(head) = self.slots.get_mut(slot) else {
            return;
        };
        let mut index = std::mem::replace(head, NONE);
        let mut kept = NONE;
        while let Some(entry) = self.entries.get_mut(index as usize) {
            let next = entry.next;
            if tick_of(entry.at) <= last {
                self.near.push(Reverse((entry.at, entry.order, index)));
            } else {
                entry.next = kept;
                kept = index;
            }
            index = next;
        }
        *head = kept;
        set(&mut self.occupied, slot, kept != NONE);
    }

    /// The first slot time from `tick` on, within one turn, whose slot has something in it.
    fn next_occupied(&self) -> Option<u64> {
        let first = slot_of(self.tick);
        let words = SLOTS / 64;
        (0..=words).find_map(|step| {
            let word = (first / 64 + step) % words;
            let mut bits = *self.occupied.get(word)?;
            match step {
                0 => bits &= u64::MAX << (first % 64),
                // The part of the first word that was left out.
                step if step == words => bits &= !(u64::MAX << (first % 64)),
                _ => {}
            }
            let slot = word * 64 + bits.trailing_zeros() as usize;
            (bits != 0).then(|| self.tick + ((slot + SLOTS - first) % SLOTS) as u64)
        })
    }
}

fn set(occupied: &mut [u64; SLOTS / 64], slot: usize, is_occupied: bool) {
    if let Some(word) = occupied.get_mut(slot / 64) {
        match is_occupied {
            true => *word |= 1 << (slot % 64),
            false => *word &= !(1 << (slot % 64)),
        }
    }
}
