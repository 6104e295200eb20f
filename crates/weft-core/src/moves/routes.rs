//! A link that moves to another thread, and its halves with it
//! (docs/architecture/links.md, "How a link moves").
//!
//! A half that has moved keeps its address: that is where it was *made*. [`Routes`] has where it
//! *is*, on each thread. Messages under way while a link moves wait at their sender
//! ([`Routes::freeze`]), so that nothing overtakes anything.
//!
//! `manager/transfer.rs` is what threads do about it; [`crate::moves::balance`] decides which link moves.

use std::collections::{BTreeSet, HashMap, VecDeque};

use weft_cell::Cell;

use crate::address::{AddrHasher, HalfAddr, ThreadId};
use crate::memory::ledger::{map_entry, queue_memory};
use crate::message::{Control, LaneMsg};

/// Messages that may wait at a thread for a link that moves, before the thread reads no more from sockets.
const HELD: usize = 4096;

/// Largest number of circuits of a link that may move: packing more would hold up the thread's
/// other links.
pub const MOST_CIRCUITS: usize = 4096;

/// Where halves are that have moved, and what is kept back for those that move now.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// The thread of each half that is not where it was made.
    moved: HashMap<HalfAddr, ThreadId, AddrHasher>,
    /// The transfers that this thread knows not to be over: one, or a second that began before the end of the first was known here.
    frozen: Vec<Frozen>,
}

/// The halves of the link that moves.
#[derive(Debug)]
struct Frozen {
    number: u64,
    halves: BTreeSet<HalfAddr>,
    held: VecDeque<Kept>,
    cells: usize,
}

/// A message that is kept back.
#[derive(Debug)]
pub(crate) enum Kept {
    Control(Control),
    Cell(LaneMsg),
}

/// Where a message for a half goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Thread(ThreadId),
    /// The half is on its way from thread to thread.
    OnItsWay,
}

impl Routes {
    /// The thread of a half.
    #[inline]
    pub(crate) fn place(&self, half: HalfAddr) -> Place {
        if !self.frozen.is_empty() && self.frozen_with(half).is_some() {
            return Place::OnItsWay;
        }
        match self.moved.is_empty() {
            true => Place::Thread(half.thread),
            false => Place::Thread(self.moved.get(&half).copied().unwrap_or(half.thread)),
        }
    }

    fn frozen_with(&self, half: HalfAddr) -> Option<usize> {
        self.frozen
            .iter()
            .position(|frozen| frozen.halves.contains(&half))
    }

    /// Keeps back from now on what is for these halves.
    pub(crate) fn freeze(&mut self, number: u64, halves: &[HalfAddr]) {
        self.frozen.push(Frozen {
            number,
            halves: halves.iter().copied().collect(),
            held: VecDeque::new(),
            cells: 0,
        });
    }

    /// Keeps a message for a half back that is [on its way](Place::OnItsWay).
    pub(crate) fn keep(&mut self, half: HalfAddr, message: Kept) {
        let frozen = self
            .frozen_with(half)
            .and_then(|at| self.frozen.get_mut(at));
        if let Some(frozen) = frozen {
            frozen.cells += usize::from(matches!(message, Kept::Cell(_)));
            frozen.held.push_back(message);
        }
    }

    /// The transfer is over: what was kept back for it.
    pub(crate) fn thaw(&mut self, number: u64) -> VecDeque<Kept> {
        let at = self
            .frozen
            .iter()
            .position(|frozen| frozen.number == number);
        at.map_or_else(VecDeque::new, |at| self.frozen.remove(at).held)
    }

    /// Halves are on this thread from now on.
    pub(crate) fn set(&mut self, halves: &[HalfAddr], to: ThreadId) {
        for half in halves {
            match half.thread == to {
                true => self.moved.remove(half),
                false => self.moved.insert(*half, to),
            };
        }
    }

    /// A half has closed.
    pub(crate) fn forget(&mut self, half: HalfAddr) {
        self.moved.remove(&half);
    }

    /// Number of halves known not to be where they were made.
    pub(crate) fn len(&self) -> usize {
        self.moved.len()
    }

    /// So much is kept back that no more should be read.
    pub(crate) fn holds_much(&self) -> bool {
        self.frozen
            .iter()
            .map(|frozen| frozen.held.len())
            .sum::<usize>()
            >= HELD
    }

    /// True if messages are being kept back.
    pub(crate) fn is_freezing(&self) -> bool {
        !self.frozen.is_empty()
    }

    /// Memory that this takes.
    pub(crate) fn memory(&self) -> usize {
        let frozen = self.frozen.iter().map(|frozen| {
            frozen.halves.len() * map_entry::<HalfAddr, ()>()
                + queue_memory(&frozen.held)
                + frozen.cells * size_of::<Cell>()
        });
        self.moved.capacity() * size_of::<(HalfAddr, ThreadId)>() * 8 / 7 + frozen.sum::<usize>()
    }

    /// Gives back memory that nothing is in.
    pub(crate) fn shrink(&mut self) {
        self.moved.shrink_to_fit();
    }
}
