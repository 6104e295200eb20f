//! Copies of the messages that a tunnel has sent, found by their numbers.
//!
//! They are written one after the other into blocks, not into cells of the pool. A copy lies unused for a round trip, and by then is
//! out of the processor's caches; as a cell of the pool it would be the next that a message is packaged in, and be fetched
//! for that from memory (docs/performance.md).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use weft_cell::{Cell, ChanCmd};

use crate::memory::ledger::{queue_memory, shrink};

/// Copies in a block (8 kB): what a tunnel with one message under way takes.
const BLOCK: usize = 16;

/// Blocks that are kept for the next copies at most: a SENDME acknowledges seven blocks' worth.
const SPARE: usize = 8;

/// Copies of sent messages, in blocks.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// Blocks of copies, with the time of the first copy in each; the one with numbers from `first * BLOCK` on is at the
    /// front.
    blocks: VecDeque<(Instant, Box<[Cell]>)>,
    /// The first block.
    first: u64,
    /// Blocks that have served, for the next copies.
    spare: Vec<Box<[Cell]>>,
}

impl Copies {
    /// Keeps a copy. Numbers follow each other.
    pub(crate) fn push(&mut self, number: u64, message: &Cell, now: Instant) {
        let (block, place) = split(number);
        if self.blocks.is_empty() {
            self.first = block;
        }
        let Some(index) = self.index(block) else {
            return;
        };
        while self.blocks.len() <= index {
            let blank = || vec![Cell::new(0, ChanCmd::PADDING); BLOCK].into_boxed_slice();
            let block = self.spare.pop().unwrap_or_else(blank);
            self.blocks.push_back((now, block));
        }
        if let Some(cell) = (self.blocks.get_mut(index)).and_then(|(_, block)| block.get_mut(place))
        {
            *cell.as_bytes_mut() = *message.as_bytes();
        }
    }

    /// The copy of a message that is kept.
    pub(crate) fn get(&self, number: u64) -> Option<&Cell> {
        let (block, place) = split(number);
        self.blocks.get(self.index(block)?)?.1.get(place)
    }

    /// Copies before this number are not wanted any more.
    pub(crate) fn forget_before(&mut self, number: u64) {
        let (block, _) = split(number);
        while self.first < block
            && let Some((_, served)) = self.blocks.pop_front()
        {
            self.first += 1;
            if self.spare.len() < SPARE {
                self.spare.push(served);
            }
        }
        shrink(&mut self.blocks);
    }

    /// None is wanted any more.
    pub(crate) fn clear(&mut self) {
        *self = Copies::default();
    }

    /// Memory that they take.
    pub(crate) fn memory(&self) -> usize {
        let blocks = self.blocks.len() + self.spare.len();
        blocks * BLOCK * size_of::<Cell>()
            + queue_memory(&self.blocks)
            + self.spare.capacity() * size_of::<Box<[Cell]>>()
    }

    /// Age of the oldest block. Sending a message again does not make its copy younger.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        let oldest = self.blocks.front();
        oldest.map_or(Duration::ZERO, |(at, _)| now.saturating_duration_since(*at))
    }

    /// A block's place in the queue.
    fn index(&self, block: u64) -> Option<usize> {
        usize::try_from(block.checked_sub(self.first)?).ok()
    }
}

/// The block of a number, and its place there.
fn split(number: u64) -> (u64, usize) {
    let each = BLOCK as u64;
    (number / each, usize::try_from(number % each).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: u64) -> Cell {
        Cell::new(number as u32, ChanCmd::RELAY)
    }

    #[test]
    fn copies_are_found_by_number_until_all_before_them_are_forgotten() {
        let now = Instant::now();
        let mut copies = Copies::default();
        // A tunnel's numbers begin at 1, and may begin anywhere once none is kept.
        for first in [1, 1000, 31] {
            for number in first..first + 500 {
                copies.push(number, &message(number), now);
            }
            let most = copies.memory();
            for before in first..first + 500 {
                copies.forget_before(before);
                for kept in [before, first + 499] {
                    let copy = copies.get(kept).unwrap();
                    assert_eq!(u64::from(copy.circ_id()), kept);
                }
            }
            assert!(copies.memory() < most / 2);
            // Served blocks are used again.
            let before = copies.memory();
            for number in first + 500..first + 600 {
                copies.push(number, &message(number), now);
            }
            assert!(copies.memory() <= before.max(10 * 16 * size_of::<Cell>()));
            copies.clear();
            assert_eq!(copies.memory(), 0);
            assert!(copies.get(first).is_none());
        }
    }
}
