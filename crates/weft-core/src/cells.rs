//! Where cells wait: the pool that their memory comes from, and a circuit half's queue.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use weft_cell::{CELL_LEN, Cell, ChanCmd};

use crate::ledger::{Held, queue_memory, shrink};

/// Cells that a pool keeps for reuse at most (about 2 MiB).
const POOL_KEEPS: usize = 4096;

/// Memory of cells that were sent or dropped. Boxed: a cell keeps its place in memory from the read
/// to the write, and only its address moves between queues.
pub type Empties = Vec<Box<Cell>>;

/// Memory of one cell that was used and can be used again.
///
/// A thread that mostly sends what another thread reads gathers empties; it hands them back
/// through the rings (see `Outbox`), so that no allocation is made per cell in a steady state.
#[derive(Debug, Default)]
pub(crate) struct CellPool {
    /// Empty cells.
    free: Empties,
}

impl CellPool {
    /// Memory for a cell; what is in it is what was in it before.
    #[inline]
    pub(crate) fn take(&mut self) -> Box<Cell> {
        match self.free.pop() {
            Some(cell) => cell,
            None => Box::new(Cell::new(0, ChanCmd::PADDING)),
        }
    }

    /// A cell with these bytes.
    pub(crate) fn copy_of(&mut self, bytes: &[u8; CELL_LEN]) -> Box<Cell> {
        match self.free.pop() {
            Some(mut cell) => {
                *cell.as_bytes_mut() = *bytes;
                cell
            }
            None => Box::new(Cell::from(bytes)),
        }
    }

    /// A cell with an all-zero body.
    pub(crate) fn blank(&mut self, circ_id: u32, command: ChanCmd) -> Box<Cell> {
        self.hold(Cell::new(circ_id, command))
    }

    /// Memory for a cell that was made elsewhere.
    pub(crate) fn hold(&mut self, made: Cell) -> Box<Cell> {
        match self.free.pop() {
            Some(mut cell) => {
                *cell = made;
                cell
            }
            None => Box::new(made),
        }
    }

    /// Takes back a cell that was sent or dropped.
    pub(crate) fn put(&mut self, cell: Box<Cell>) {
        if self.free.len() < POOL_KEEPS {
            self.free.push(cell);
        }
    }

    /// Empty cells at hand.
    pub(crate) fn len(&self) -> usize {
        self.free.len()
    }

    /// Memory that the pool holds.
    pub(crate) fn memory(&self) -> usize {
        empties_memory(&self.free)
    }

    /// Gives all memory back.
    pub(crate) fn clear(&mut self) {
        self.free = Empties::new();
    }

    /// Moves up to `count` empties elsewhere.
    pub(crate) fn give(&mut self, count: usize, to: &mut Empties) {
        let keep = self.free.len().saturating_sub(count);
        to.extend(self.free.drain(keep..));
    }
}

/// Memory of empty cells.
pub(crate) fn empties_memory(empties: &Empties) -> usize {
    empties.len() * size_of::<Cell>() + empties.capacity() * size_of::<Box<Cell>>()
}

/// The cells of one circuit half that wait for the scheduler, with their times of arrival.
#[derive(Debug, Default)]
pub(crate) struct CellQueue {
    /// Oldest first.
    cells: VecDeque<(Instant, Box<Cell>)>,
    /// Cells that left it since it was made.
    departed: u64,
}

impl CellQueue {
    /// Cells waiting.
    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }

    /// Nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Adds a cell at the end.
    pub(crate) fn push(&mut self, cell: Box<Cell>, now: Instant) {
        self.cells.push_back((now, cell));
    }

    /// Cells that were ever added: the number of the one that was added last.
    pub(crate) fn added(&self) -> u64 {
        self.departed + self.cells.len() as u64
    }

    /// Cells that were taken since the queue was made: those up to this number have left.
    pub(crate) fn departed(&self) -> u64 {
        self.departed
    }

    /// Takes the oldest cell. [`taken`](Self::taken) must follow the last of a run.
    pub(crate) fn pop(&mut self) -> Option<Box<Cell>> {
        self.cells.pop_front().map(|(_, cell)| cell)
    }

    /// Notes that so many cells were taken, once for the run and not for each. A queue that was long
    /// gives its memory back.
    pub(crate) fn taken(&mut self, count: u32) {
        self.departed += u64::from(count);
        shrink(&mut self.cells);
    }

    /// What the queue holds, and how long the oldest cell has waited.
    pub(crate) fn held(&self, now: Instant) -> Held {
        let front = self.cells.front();
        Held {
            bytes: self.cells.len() * size_of::<Cell>() + queue_memory(&self.cells),
            age: front.map_or(Duration::ZERO, |(at, _)| now.saturating_duration_since(*at)),
        }
    }
}
