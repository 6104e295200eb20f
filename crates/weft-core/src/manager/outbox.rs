//! Messages for halves and edges, on this thread and on others.

use std::collections::VecDeque;

use weft_cell::Cell;
use weft_planted::{Fault, planted};

use crate::address::{EdgeAddr, HalfAddr, ThreadId};
use crate::memory::cells::{CellPool, Empties, empties_memory};
use crate::memory::ledger::queue_memory;
use crate::message::{Control, LaneMsg};
use crate::moves::routes::{Kept, Place, Routes};

/// Free cells are returned to the thread that they came from in batches of this many.
const FREE_BATCH: usize = 256;

/// Messages for another thread, gathered over one turn of the loop.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The control lane.
    pub control: Vec<Control>,
    /// The cell lane.
    pub cells: Vec<LaneMsg>,
    /// Free cells that are returned to that thread.
    pub empties: Empties,
    /// Cells that came from there and were not returned yet.
    owed: usize,
}

impl Outbox {
    /// Nothing is to be sent.
    pub fn is_empty(&self) -> bool {
        self.control.is_empty() && self.cells.is_empty() && self.empties.is_empty()
    }
}

/// What halves and edges of this thread send to others, by the receiver's thread.
///
/// A control message for this thread waits here until the manager takes it ([`next_local`]), before
/// anything else arrives. A cell for this thread never comes here: the manager hands it to its receiver
/// at once. The caller of the manager moves the content of each [`Outbox`] out once a turn.
///
/// [`next_local`]: Self::next_local
#[derive(Debug)]
pub(super) struct Outboxes {
    me: ThreadId,
    /// By thread; this thread's own stays empty.
    by_thread: Vec<Outbox>,
    /// Control messages between halves and edges of this thread.
    local: VecDeque<Control>,
    /// Where halves are that have moved.
    pub(super) routes: Routes,
}

impl Outboxes {
    pub(super) fn new(me: ThreadId, threads: u16) -> Self {
        Outboxes {
            me,
            by_thread: (0..threads).map(|_| Outbox::default()).collect(),
            local: VecDeque::new(),
            routes: Routes::default(),
        }
    }

    /// This thread.
    pub(super) fn me(&self) -> ThreadId {
        self.me
    }

    /// Queues a control message for the half or the edge that it names.
    pub(super) fn send(&mut self, control: Control) {
        let half = match &control {
            Control::Half(half) => half.to(),
            Control::Edge(edge) => {
                let thread = edge.to().thread;
                return self.send_to(thread, control);
            }
            // Sent to a thread, not to what is there.
            Control::Transfer(_) => return,
        };
        match self.routes.place(half) {
            Place::Thread(thread) => self.send_to(thread, control),
            Place::OnItsWay => self.routes.keep(half, Kept::Control(control)),
        }
    }

    /// Queues a control message for a thread.
    pub(super) fn send_to(&mut self, thread: ThreadId, control: Control) {
        if thread == self.me {
            self.local.push_back(control);
        } else if let Some(outbox) = self.by_thread.get_mut(usize::from(thread.0)) {
            outbox.control.push(control);
        }
    }

    /// Whether a half is on this thread, if it lives.
    #[inline]
    pub(super) fn is_here(&self, half: HalfAddr) -> bool {
        self.routes.place(half) == Place::Thread(self.me)
    }

    /// Whether an edge is.
    #[inline]
    pub(super) fn has_edge(&self, edge: EdgeAddr) -> bool {
        edge.thread == self.me
    }

    /// The other threads.
    pub(super) fn others(&self) -> impl Iterator<Item = ThreadId> + use<> {
        let (me, count) = (self.me, self.by_thread.len());
        let all = (0u16..).map(ThreadId).take(count);
        all.filter(move |thread| *thread != me)
    }

    /// Queues a cell for a half that is not here.
    #[inline]
    pub(super) fn send_half_cell(&mut self, half: HalfAddr, message: LaneMsg) {
        match self.routes.place(half) {
            Place::Thread(thread) => self.send_cell(thread, message),
            Place::OnItsWay if planted(Fault::CellOvertakesMove) => {
                self.send_cell(half.thread, message);
            }
            Place::OnItsWay => self.routes.keep(half, Kept::Cell(message)),
        }
    }

    /// Queues a cell for another thread.
    #[inline]
    pub(super) fn send_cell(&mut self, thread: ThreadId, message: LaneMsg) {
        if let Some(outbox) = self.by_thread.get_mut(usize::from(thread.0)) {
            outbox.cells.push(message);
        }
    }

    /// Whether no message waits.
    pub(super) fn are_empty(&self) -> bool {
        let mut outboxes = self.by_thread.iter();
        let is_empty = |outbox: &Outbox| outbox.control.is_empty() && outbox.cells.is_empty();
        self.local.is_empty() && outboxes.all(is_empty)
    }

    /// The next control message for this thread.
    pub(super) fn next_local(&mut self) -> Option<Control> {
        self.local.pop_front()
    }

    /// Whether a control message for this thread waits.
    pub(super) fn has_local(&self) -> bool {
        !self.local.is_empty()
    }

    /// Counts cells that arrived from a thread: as many free ones are returned to it.
    pub(super) fn owe(&mut self, thread: ThreadId, cells: usize) {
        if let Some(outbox) = self.by_thread.get_mut(usize::from(thread.0)) {
            outbox.owed += cells;
        }
    }

    /// The messages for another thread, with the free cells that are returned to it.
    pub(super) fn outbox(&mut self, thread: ThreadId, pool: &mut CellPool) -> Option<&mut Outbox> {
        let outbox = self.by_thread.get_mut(usize::from(thread.0))?;
        // As many batches as are owed and there: a turn may bring many more cells than one holds.
        let batches = outbox.owed.min(pool.len()) / FREE_BATCH;
        if batches > 0 {
            pool.give(batches * FREE_BATCH, &mut outbox.empties);
            outbox.owed -= batches * FREE_BATCH;
        }
        Some(outbox)
    }

    /// Memory of the messages that wait.
    pub(super) fn memory(&self) -> usize {
        let outbox = |outbox: &Outbox| {
            outbox.control.capacity() * size_of::<Control>()
                + outbox.cells.capacity() * size_of::<LaneMsg>()
                + outbox.cells.len() * size_of::<Cell>()
        };
        self.by_thread.iter().map(outbox).sum::<usize>()
            + queue_memory::<Control>(&self.local)
            + self.routes.memory()
    }

    /// Memory of the free cells that are about to be returned.
    pub(super) fn free_cells_memory(&self) -> usize {
        let outboxes = self.by_thread.iter();
        outboxes.map(|outbox| empties_memory(&outbox.empties)).sum()
    }

    /// Frees these cells, and memory that nothing is in.
    pub(super) fn shrink(&mut self) {
        for outbox in &mut self.by_thread {
            outbox.empties.clear();
            outbox.empties.shrink_to_fit();
        }
        self.local.shrink_to_fit();
        self.routes.shrink();
    }
}
