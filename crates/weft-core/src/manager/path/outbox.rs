//! Messages for halves and edges, on this thread and on others.

use std::collections::VecDeque;

use weft_cell::Cell;
use weft_cell::reason::{DestroyReason, EndReason};
use weft_planted::{Fault, planted};

use crate::address::{EdgeAddr, HalfAddr, StreamAddr, ThreadId};
use crate::memory::cells::{CellPool, Empties, empties_memory};
use crate::memory::ledger::queue_memory;
use crate::message::{
    Control, EdgeCell, EdgeControl, HalfControl, LaneMsg, LegControl, TransferControl,
};
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

/// A message between halves and edges of one thread.
#[derive(Debug)]
pub(in crate::manager) enum Local {
    /// Between threads it would overtake cells.
    Control(Control),
    /// A cell.
    Cell(LaneMsg),
}

/// Messages of this thread's halves and edges, by the receiver's thread.
///
/// Messages for this thread wait here, too, until the manager takes them ([`next_local`]), before
/// anything else arrives: control messages, and the cells between halves and edges. They are
/// handled in the order in which they were sent. A cell from half to half on this thread is never
/// here: it is handed to its receiver at once. The caller of the manager moves the content of each
/// [`Outbox`] out once a turn.
///
/// [`next_local`]: Self::next_local
#[derive(Debug)]
pub(in crate::manager) struct Outboxes {
    me: ThreadId,
    /// By thread; this thread's own stays empty.
    by_thread: Vec<Outbox>,
    /// Messages between halves and edges of this thread.
    local: VecDeque<Local>,
    /// Where halves are that have moved.
    pub(in crate::manager) routes: Routes,
}

impl Outboxes {
    pub(in crate::manager) fn new(me: ThreadId, threads: u16) -> Self {
        Outboxes {
            me,
            by_thread: (0..threads).map(|_| Outbox::default()).collect(),
            local: VecDeque::new(),
            routes: Routes::default(),
        }
    }

    /// This thread.
    pub(in crate::manager) fn me(&self) -> ThreadId {
        self.me
    }

    /// Queues a control message for the half or the edge that it names.
    pub(in crate::manager) fn send(&mut self, control: Control) {
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

    /// Queues a control message for the half that it names.
    pub(in crate::manager) fn send_half(&mut self, control: impl Into<HalfControl>) {
        self.send(control.into().into());
    }

    /// Notifies an edge that it has no stream.
    pub(in crate::manager) fn detach(&mut self, edge: EdgeAddr, stream: StreamAddr) {
        self.send(Control::Edge(EdgeControl::Detached {
            to: edge,
            stream,
            reason: EndReason::DESTROY,
        }));
    }

    /// Does not take a half as a leg.
    pub(in crate::manager) fn refuse_leg(
        &mut self,
        leg: HalfAddr,
        tunnel: HalfAddr,
        reason: DestroyReason,
    ) {
        self.send_half(LegControl::TunnelClosed {
            to: leg,
            tunnel,
            reason,
        });
    }

    /// Closes a half that was made for a half that has closed, or wants another.
    pub(in crate::manager) fn send_destroyed(&mut self, to: HalfAddr, from: HalfAddr) {
        self.send_half(HalfControl::Destroyed {
            to,
            from,
            reason: DestroyReason::DESTROYED,
            overflowed: false,
        });
    }

    /// Queues a step of a transfer for a thread.
    pub(in crate::manager) fn send_transfer(&mut self, to: ThreadId, step: TransferControl) {
        self.send_to(to, Control::Transfer(step));
    }

    /// A half that is not where it was made has closed: no thread needs to know any more where it was.
    pub(in crate::manager) fn forget_route(&mut self, half: HalfAddr) {
        self.routes.forget(half);
        if planted(Fault::RouteNotForgotten) {
            return;
        }
        for thread in self.others() {
            self.send_transfer(thread, TransferControl::Gone { half });
        }
    }

    /// Queues a control message for a thread.
    pub(in crate::manager) fn send_to(&mut self, thread: ThreadId, control: Control) {
        if thread == self.me {
            self.local.push_back(Local::Control(control));
        } else if let Some(outbox) = self.by_thread.get_mut(usize::from(thread.0)) {
            outbox.control.push(control);
        }
    }

    /// True if a half, if it lives, is on this thread.
    #[inline]
    pub(in crate::manager) fn is_here(&self, half: HalfAddr) -> bool {
        self.routes.place(half) == Place::Thread(self.me)
    }

    /// The other threads.
    pub(in crate::manager) fn others(&self) -> impl Iterator<Item = ThreadId> + use<> {
        let (me, count) = (self.me, self.by_thread.len());
        let all = (0u16..).map(ThreadId).take(count);
        all.filter(move |thread| *thread != me)
    }

    /// Queues a cell of a half's for an edge, wherever it is.
    #[inline]
    pub(in crate::manager) fn send_to_edge(
        &mut self,
        half: HalfAddr,
        edge: EdgeAddr,
        cell: Box<Cell>,
    ) {
        let message = LaneMsg::ToEdge(EdgeCell { half, edge, cell });
        self.send_cell(edge.thread, message);
    }

    /// Queues a cell for a half, wherever it is.
    #[inline]
    pub(in crate::manager) fn send_half_cell(&mut self, half: HalfAddr, message: LaneMsg) {
        match self.routes.place(half) {
            Place::Thread(thread) => self.send_cell(thread, message),
            Place::OnItsWay if planted(Fault::CellOvertakesMove) => {
                self.send_cell(half.thread, message);
            }
            Place::OnItsWay => self.routes.keep(half, Kept::Cell(message)),
        }
    }

    /// Queues a cell for a thread.
    #[inline]
    pub(in crate::manager) fn send_cell(&mut self, thread: ThreadId, message: LaneMsg) {
        if thread == self.me {
            self.local.push_back(Local::Cell(message));
        } else if let Some(outbox) = self.by_thread.get_mut(usize::from(thread.0)) {
            outbox.cells.push(message);
        }
    }

    /// True if no message waits.
    pub(in crate::manager) fn are_empty(&self) -> bool {
        let mut outboxes = self.by_thread.iter();
        let is_empty = |outbox: &Outbox| outbox.control.is_empty() && outbox.cells.is_empty();
        !self.has_local() && outboxes.all(is_empty)
    }

    /// The next message for this thread.
    #[inline]
    pub(in crate::manager) fn next_local(&mut self) -> Option<Local> {
        self.local.pop_front()
    }

    /// True if a message for this thread waits.
    #[inline]
    pub(in crate::manager) fn has_local(&self) -> bool {
        !self.local.is_empty()
    }

    /// Counts cells that arrived from a thread: as many free ones are returned to it.
    pub(in crate::manager) fn owe(&mut self, thread: ThreadId, cells: usize) {
        if let Some(outbox) = self.by_thread.get_mut(usize::from(thread.0)) {
            outbox.owed += cells;
        }
    }

    /// The messages for another thread, with the free cells that are returned to it.
    pub(in crate::manager) fn outbox(
        &mut self,
        thread: ThreadId,
        pool: &mut CellPool,
    ) -> Option<&mut Outbox> {
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
    pub(in crate::manager) fn memory(&self) -> usize {
        let outbox = |outbox: &Outbox| {
            outbox.control.capacity() * size_of::<Control>()
                + outbox.cells.capacity() * size_of::<LaneMsg>()
                + outbox.cells.len() * size_of::<Cell>()
        };
        self.by_thread.iter().map(outbox).sum::<usize>()
            + queue_memory::<Local>(&self.local)
            + self.routes.memory()
    }

    /// Memory of the free cells that are about to be returned.
    pub(in crate::manager) fn free_cells_memory(&self) -> usize {
        let outboxes = self.by_thread.iter();
        outboxes.map(|outbox| empties_memory(&outbox.empties)).sum()
    }

    /// Frees these cells, and memory that nothing is in.
    pub(in crate::manager) fn shrink(&mut self) {
        for outbox in &mut self.by_thread {
            outbox.empties.clear();
            outbox.empties.shrink_to_fit();
        }
        self.local.shrink_to_fit();
        self.routes.shrink();
    }
}
