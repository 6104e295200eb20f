//! Messages that a tunnel has sent and that its far end may not have received: they are sent again on another leg when theirs
//! closes, or stands still (docs/extensions/mtor.md).

use std::collections::{BTreeMap, BTreeSet};

use weft_cell::Cell;

use crate::cells::CellPool;
use crate::ledger::map_entry;

/// A number may be this far past the oldest that is not acknowledged: the far end keeps as many.
pub(crate) const SPAN: u64 = super::reorder::MAX_REORDER as u64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    /// Copies, by number.
    cells: BTreeMap<u64, Box<Cell>>,
    /// Those that are to be sent again.
    again: BTreeSet<u64>,
}

impl Outstanding {
    /// Whether the next number may be given out.
    pub(crate) fn has_room(&self, next: u64) -> bool {
        let oldest = self.cells.first_key_value();
        oldest.is_none_or(|(oldest, _)| next < oldest + SPAN)
    }

    /// A message is sent for the first time.
    pub(crate) fn keep(&mut self, number: u64, copy: Box<Cell>) {
        self.cells.insert(number, copy);
    }

    /// The far end has received a message.
    pub(crate) fn acknowledged(&mut self, number: u64, pool: &mut CellPool) {
        self.again.remove(&number);
        if let Some(cell) = self.cells.remove(&number) {
            pool.put(cell);
        }
    }

    /// The far end has received everything before this number.
    pub(crate) fn acknowledged_before(&mut self, next: u64, pool: &mut CellPool) {
        while let Some(entry) = self.cells.first_entry()
            && *entry.key() < next
        {
            self.again.remove(entry.key());
            pool.put(entry.remove());
        }
    }

    /// Whether a message is not acknowledged.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.cells.contains_key(&number)
    }

    /// Messages are to be sent again.
    pub(crate) fn send_again(&mut self, numbers: impl IntoIterator<Item = u64>) {
        let known = numbers
            .into_iter()
            .filter(|number| self.cells.contains_key(number));
        self.again.extend(known);
    }

    /// Whether some wait for that.
    pub(crate) fn wants_again(&self) -> bool {
        !self.again.is_empty()
    }

    /// The next of these, as it was sent before.
    pub(crate) fn next_again(&mut self) -> Option<(u64, &Cell)> {
        let number = self.again.pop_first()?;
        Some((number, self.cells.get(&number)?))
    }

    /// All copies, to be dropped.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Box<Cell>> {
        self.again.clear();
        std::mem::take(&mut self.cells).into_values()
    }

    /// Memory that this takes.
    pub(crate) fn memory(&self) -> usize {
        self.cells.len() * (size_of::<Cell>() + map_entry::<u64, Box<Cell>>())
            + self.again.len() * map_entry::<u64, ()>()
    }
}
