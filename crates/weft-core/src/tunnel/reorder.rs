//! Messages of a tunnel that have arrived before others that were sent before them.

use std::collections::BTreeMap;
use std::time::Instant;

use weft_cell::Cell;
use weft_planted::{Fault, planted};

use crate::memory::ledger::{Held, Waits, map_entry};

/// Messages that wait at most: 8 MiB. A far end that keeps to its congestion windows has far fewer under way.
pub(crate) const MAX_REORDER: usize = 16384;

/// Handling of a message that has arrived.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// It is the next one. See [`Reorder::next`] for what follows it.
    Next(Box<Cell>),
    /// It waits.
    Kept,
    /// One of its number was handed on, or waits.
    Repeated(Box<Cell>),
    /// Too many wait.
    TooMany(Box<Cell>),
}

/// Messages that arrived too early, and the number that is due.
#[derive(Debug, Default)]
pub(crate) struct Reorder {
    /// Messages handed on: the number of the last.
    delivered: u64,
    /// The messages that wait, by number.
    waiting: BTreeMap<u64, Box<Cell>>,
    /// The highest number that ever waited.
    highest: u64,
    /// Waiting time of the oldest of them.
    waits: Waits,
}

impl Reorder {
    /// So many messages were handed on.
    #[cfg(test)]
    pub(crate) fn after(delivered: u64) -> Self {
        Reorder {
            delivered,
            ..Reorder::default()
        }
    }

    /// The number of the last message that was handed on.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// A message has arrived.
    pub(crate) fn arrived(&mut self, number: u64, cell: Box<Cell>, now: Instant) -> Arrival {
        if number <= self.delivered || self.waiting.contains_key(&number) {
            return Arrival::Repeated(cell);
        }
        if number == self.delivered + 1 {
            self.delivered = number;
            return Arrival::Next(cell);
        }
        if self.waiting.len() >= MAX_REORDER {
            return Arrival::TooMany(cell);
        }
        self.waiting.insert(number, cell);
        self.highest = self.highest.max(number);
        self.note(now);
        Arrival::Kept
    }

    /// The next message, if it has arrived.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Box<Cell>> {
        let first = self.waiting.first_entry()?;
        if *first.key() != self.delivered + 1 && !planted(Fault::GapSkipped) {
            return None;
        }
        self.delivered += 1;
        let cell = first.remove();
        self.note(now);
        Some(cell)
    }

    /// Notes the numbers that wait. Messages that arrive later, between two of them, leave with
    /// them.
    fn note(&mut self, now: Instant) {
        let front = self.delivered + 1;
        let end = match self.waiting.is_empty() {
            true => front,
            false => self.highest + 1,
        };
        self.waits.note(front, end, now);
    }

    /// All that wait, to be dropped.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Box<Cell>> {
        self.waits = Waits::default();
        std::mem::take(&mut self.waiting).into_values()
    }

    /// True if no message waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Number of messages that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Memory of those that wait.
    pub(crate) fn held(&self, now: Instant) -> Held {
        let bytes = self.waiting.len() * (size_of::<Cell>() + map_entry::<u64, Box<Cell>>());
        Held::waiting(bytes, self.waits.age(now))
    }
}
