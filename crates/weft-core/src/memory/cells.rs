//! Where cells wait: the pool that their memory comes from, and a circuit half's queue.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use weft_cell::{CELL_LEN, Cell, ChanCmd};

use crate::memory::ledger::{Held, queue_memory, shrink};

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
    /// Smallest number of free cells since the last [`trim`](Self::trim): these were not needed.
    least: usize,
}

/// [`CellPool::trim`] frees this part of the cells that were not needed since its last call, as a
/// divisor.
const TRIMMED_PART: usize = 4;

impl CellPool {
    /// Memory for a cell; what is in it is what was in it before.
    #[inline]
    pub(crate) fn take(&mut self) -> Box<Cell> {
        match self.pop() {
            Some(cell) => cell,
            None => Box::new(Cell::new(0, ChanCmd::PADDING)),
        }
    }

    /// A cell with these bytes.
    pub(crate) fn copy_of(&mut self, bytes: &[u8; CELL_LEN]) -> Box<Cell> {
        match self.pop() {
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
        match self.pop() {
            Some(mut cell) => {
                *cell = made;
                cell
            }
            None => Box::new(made),
        }
    }

    #[inline]
    fn pop(&mut self) -> Option<Box<Cell>> {
        let cell = self.free.pop()?;
        if self.free.len() < self.least {
            self.least = self.free.len();
        }
        Some(cell)
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
        self.least = 0;
    }

    /// Gives back a part of what was not needed since the last call. To be called some times a second: after a burst
    /// nearly all is given back within some seconds, and a steady load finds the cells that it needs.
    pub(crate) fn trim(&mut self) {
        let keep = self.free.len() - self.least.div_ceil(TRIMMED_PART);
        self.free.truncate(keep);
        if self.free.capacity() > 64 && self.free.len() < self.free.capacity() / 4 {
            self.free.shrink_to(self.free.len() * 2);
        }
        self.least = self.free.len();
    }

    /// Moves up to `count` empties elsewhere.
    pub(crate) fn give(&mut self, count: usize, to: &mut Empties) {
        let keep = self.free.len().saturating_sub(count);
        self.least = self.least.min(keep);
        to.extend(self.free.drain(keep..));
    }
}

/// Memory of empty cells.
pub(crate) fn empties_memory(empties: &Empties) -> usize {
    empties.len() * size_of::<Cell>() + empties.capacity() * size_of::<Box<Cell>>()
}

/// The cells of one circuit half that wait for the scheduler, with their times of arrival.
///
/// Most circuits have one cell waiting at a time: it has its place here. The others are in a list,
/// which is kept if it was needed lately ([`trim`](Self::trim)).
#[derive(Debug, Default)]
pub(crate) struct CellQueue {
    /// The oldest.
    first: Option<Waiting>,
    /// The cells behind it, oldest first; empty without it. Boxed, because most queues have none
    /// and all have the same size.
    #[allow(clippy::box_collection)]
    rest: Option<Box<VecDeque<Waiting>>>,
    /// Cells that left it since it was made.
    departed: u64,
}

/// A cell, and since when it waits.
type Waiting = (Instant, Box<Cell>);

impl CellQueue {
    /// Cells waiting.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match &self.first {
            None => 0,
            Some(_) => 1 + self.rest.as_ref().map_or(0, |rest| rest.len()),
        }
    }

    /// Nothing waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Adds a cell at the end.
    #[inline]
    pub(crate) fn push(&mut self, cell: Box<Cell>, now: Instant) {
        match &mut self.first {
            None => self.first = Some((now, cell)),
            Some(_) => self.rest.get_or_insert_default().push_back((now, cell)),
        }
    }

    /// Cells that were ever added: the number of the one that was added last.
    pub(crate) fn added(&self) -> u64 {
        self.departed + self.len() as u64
    }

    /// Cells that were taken since the queue was made: those up to this number have left.
    pub(crate) fn departed(&self) -> u64 {
        self.departed
    }

    /// Takes the oldest cell of a queue that ends: it is not counted.
    pub(crate) fn pop(&mut self) -> Option<Box<Cell>> {
        let (_, cell) = self.first.take()?;
        if let Some(rest) = &mut self.rest {
            self.first = rest.pop_front();
        }
        Some(cell)
    }

    /// Moves up to `most` cells, oldest first, and returns how many there were. A queue that was long gives its memory
    /// back.
    #[inline]
    pub(crate) fn move_to(&mut self, out: &mut VecDeque<Box<Cell>>, most: u32) -> u32 {
        self.move_noting(out, most, |_, _| {})
    }

    /// Like [`move_to`](Self::move_to), and passes each cell to `note`, with the time since which
    /// it waited.
    #[inline]
    pub(crate) fn move_noting(
        &mut self,
        out: &mut VecDeque<Box<Cell>>,
        most: u32,
        mut note: impl FnMut(Instant, &Cell),
    ) -> u32 {
        if most == 0 {
            return 0;
        }
        let Some((since, first)) = self.first.take() else {
            return 0;
        };
        note(since, &first);
        out.push_back(first);
        let mut moved = 1;
        if let Some(rest) = &mut self.rest {
            while moved < most
                && let Some((since, cell)) = rest.pop_front()
            {
                note(since, &cell);
                out.push_back(cell);
                moved += 1;
            }
            self.first = rest.pop_front();
            shrink(rest);
        }
        self.departed += u64::from(moved);
        moved
    }

    /// Gives back the memory of the list of a queue that is empty. To be called now and then.
    pub(crate) fn trim(&mut self) {
        if self.first.is_none() {
            self.rest = None;
        }
    }

    /// Age of the oldest cell.
    fn age(&self, now: Instant) -> Duration {
        let front = self.first.as_ref();
        front.map_or(Duration::ZERO, |(at, _)| now.saturating_duration_since(*at))
    }

    /// Memory of its cells and their list.
    pub(crate) fn held(&self, now: Instant) -> Held {
        let list = |rest: &VecDeque<_>| size_of_val(rest) + queue_memory(rest);
        let list = self.rest.as_deref().map_or(0, list);
        Held::waiting(self.len() * size_of::<Cell>() + list, self.age(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue with cells of circuits 0 and up.
    fn queue(cells: u32, now: Instant) -> CellQueue {
        let mut queue = CellQueue::default();
        for circ_id in 0..cells {
            queue.push(Box::new(Cell::new(circ_id, ChanCmd::RELAY)), now);
        }
        queue
    }

    #[test]
    fn cells_leave_a_queue_as_they_came_and_are_counted() {
        let now = Instant::now();
        let mut queue = queue(3, now);
        let mut out = VecDeque::new();
        let later = now + Duration::from_secs(2);
        for circ_id in 0..100 {
            queue.push(Box::new(Cell::new(3 + circ_id, ChanCmd::RELAY)), later);
            assert_eq!((queue.len(), queue.departed()), (4, u64::from(circ_id)));
            assert_eq!(queue.added(), u64::from(circ_id) + 4);
            let age = if circ_id < 3 { 2 } else { 0 };
            assert_eq!(queue.age(later), Duration::from_secs(age));
            assert_eq!(queue.move_to(&mut out, 1), 1);
            assert_eq!(out.pop_front().map(|cell| cell.circ_id()), Some(circ_id));
        }
        assert_eq!(queue.move_to(&mut out, 0), 0);
        assert_eq!(queue.move_to(&mut out, 2), 2);
        assert_eq!((queue.len(), queue.departed()), (1, 102));
        assert_eq!(queue.move_to(&mut out, 8), 1);
        let moved: Vec<u32> = out.iter().map(|cell| cell.circ_id()).collect();
        assert_eq!(moved, [100, 101, 102]);
        assert!(queue.is_empty() && queue.pop().is_none());
        assert_eq!(queue.move_to(&mut out, 8), 0);
    }

    #[test]
    fn a_queue_of_one_cell_has_no_list_and_one_that_is_empty_gives_it_back() {
        let now = Instant::now();
        let mut queue = queue(1, now);
        assert_eq!(queue.held(now).bytes(), size_of::<Cell>());
        for _ in 0..2 {
            queue.push(Box::new(Cell::new(1, ChanCmd::RELAY)), now);
        }
        // Cells that wait are not lost by it.
        queue.trim();
        assert_eq!(queue.len(), 3);
        assert_eq!(queue.move_to(&mut VecDeque::new(), 3), 3);
        assert!(queue.held(now).bytes() > 0);
        queue.trim();
        assert_eq!(queue.held(now).bytes(), 0);
    }

    #[test]
    fn cells_that_a_burst_needed_are_given_back_within_seconds_and_those_of_a_steady_load_stay() {
        let mut pool = CellPool::default();
        let turn = |pool: &mut CellPool, cells: usize| {
            let taken: Vec<_> = (0..cells).map(|_| pool.take()).collect();
            taken.into_iter().for_each(|cell| pool.put(cell));
        };
        turn(&mut pool, POOL_KEEPS);
        assert_eq!(pool.len(), POOL_KEEPS);
        // Five seconds of quarters.
        for _ in 0..20 {
            turn(&mut pool, 100);
            pool.trim();
            assert!(pool.len() >= 100, "none of these is made anew");
        }
        assert!(pool.len() < 120, "{}", pool.len());
        assert!(pool.memory() < 200 * size_of::<Cell>(), "{}", pool.memory());
        for _ in 0..40 {
            pool.trim();
        }
        assert_eq!(pool.len(), 0);
    }
}
