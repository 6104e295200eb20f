//! The local connection manager: everything that one connection thread knows (seeds/000 4.2).
//!
//! It owns the thread's opened links, its circuit halves, its scheduler and its cell memory, and
//! holds no reference to anything of another thread. It does no I/O. The caller
//!
//! 1. hands it what arrived: [`receive`](LocalConnectionManager::receive) for bytes of a link,
//!    [`handle_controls`](LocalConnectionManager::handle_controls) and
//!    [`handle_cells`](LocalConnectionManager::handle_cells) for another thread's messages,
//!    [`handle_controller`](LocalConnectionManager::handle_controller) for the controller's,
//!    [`handle_timeout`](LocalConnectionManager::handle_timeout) for the time;
//! 2. lets it choose what to send: [`schedule`](LocalConnectionManager::schedule);
//! 3. carries away what came of it: [`outgoing`](LocalConnectionManager::outgoing) for each of
//!    [`links_to_write`](LocalConnectionManager::links_to_write),
//!    [`outbox`](LocalConnectionManager::outbox) for each other thread, and
//!    [`poll_controller`](LocalConnectionManager::poll_controller).
//!
//! Control messages must be handled before the cells that were sent after them: take note of how
//! many cells a ring holds, handle its control lane, then that many cells.

mod audit;
mod circuit;
mod edges;
mod links;
mod memory;
mod origin;
mod params;
mod recognized;
mod requests;
mod sending;
mod streams;
mod timers;
mod traffic;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use slab::Slab;
use weft_cell::Cell;
use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::stream_msg::End;

use crate::address::{ConnectionId, EdgeAddr, HalfAddr, StreamAddr, ThreadId};
use crate::buffer::Spares;
use crate::cells::{CellPool, Empties};
use crate::edge::{EdgeNews, Edges};
use crate::half::{Halves, Wait};
use crate::link::Link;
use crate::message::{
    Carried, Control, FromController, HalfCell, HalfControl, ToController, Totals,
};
use crate::scheduler::{LinkKey, Scheduler};
use crate::worklist::Worklist;

use requests::{Asker, Requests};

pub use requests::MAX_REQUESTS;

pub use links::{LinkError, Received};
pub use params::RelayParams;
pub use timers::Expiry;

/// Messages for another thread, gathered over one turn of the loop.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The control lane.
    pub control: Vec<Control>,
    /// The cell lane.
    pub cells: Vec<Carried>,
    /// Memory that this thread has from that one, going home.
    pub empties: Empties,
    /// Cells that came from there and were not given back yet.
    owed: usize,
}

impl Outbox {
    /// Nothing is to be sent.
    pub fn is_empty(&self) -> bool {
        self.control.is_empty() && self.cells.is_empty() && self.empties.is_empty()
    }
}

/// Empties go home in parcels of this many.
const EMPTIES_PARCEL: usize = 256;

/// Something that a peer did against the protocol, for which a circuit was closed or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The peer's connection.
    pub connection: ConnectionId,
    /// What it did.
    pub what: &'static str,
}

/// One connection thread's state. See the module.
#[derive(Debug)]
pub struct LocalConnectionManager {
    /// This thread.
    me: ThreadId,
    /// What the relay was told to do.
    params: Arc<RelayParams>,
    /// Opened links by key.
    links: Slab<Link>,
    /// Their keys by connection.
    by_connection: BTreeMap<ConnectionId, LinkKey>,
    /// Circuit halves.
    halves: Halves,
    /// Edges of streams.
    edges: Edges,
    /// Their slots by connection.
    edge_ids: BTreeMap<ConnectionId, u32>,
    /// Edges with bytes for their sockets.
    edges_to_write: Worklist<u32>,
    /// For whoever holds the edges' sockets.
    edge_news: VecDeque<EdgeNews>,
    /// Credit that edges are about to get back; empty between calls.
    credits: Vec<(EdgeAddr, StreamAddr, u32)>,
    /// Halves whose queues have room again; empty between calls.
    unblocked: Vec<u32>,
    /// The half that is being closed was closed by the other side.
    closed_by_peer: bool,
    /// Something came on a circuit that begins here and was dropped: that is reported soon.
    dropped_at_origin: bool,
    /// When it was last reported what circuits that begin here, and their streams, have carried.
    traffic_reported: Option<Instant>,
    /// Who sends next.
    scheduler: Scheduler,
    /// Memory of cells.
    pool: CellPool,
    /// Memory of edges' buffers.
    spares: Spares,
    /// How many times memory was freed.
    memory_rounds: u64,
    /// By thread; this thread's own stays empty.
    outboxes: Vec<Outbox>,
    /// For the controller, oldest first.
    to_controller: VecDeque<ToController>,
    /// What is asked of it, for when it can answer.
    requests: Requests,
    /// Messages between halves and edges of this thread, handled before anything else arrives.
    local_control: VecDeque<Control>,
    /// Waits in the order of their deadlines.
    waits: VecDeque<Wait>,
    /// Links that have something to write or a circuit that does.
    to_write: Worklist<LinkKey>,
    /// Randomness: circuit ids, padding.
    rng: StdRng,
    /// New circuits are refused: the relay is going down.
    draining: bool,
    /// The first thing since the last [`take_complaint`](Self::take_complaint) that broke the
    /// protocol.
    complaint: Option<Complaint>,
    /// Counters.
    totals: Totals,
}

impl LocalConnectionManager {
    /// A manager without links. `threads` is the number of connection threads; `seed` is the
    /// source of all its randomness.
    pub fn new(me: ThreadId, threads: u16, params: Arc<RelayParams>, seed: [u8; 32]) -> Self {
        LocalConnectionManager {
            me,
            links: Slab::new(),
            by_connection: BTreeMap::new(),
            halves: Halves::new(me),
            edges: Edges::new(me),
            edge_ids: BTreeMap::new(),
            edges_to_write: Worklist::default(),
            edge_news: VecDeque::new(),
            credits: Vec::new(),
            unblocked: Vec::new(),
            closed_by_peer: false,
            dropped_at_origin: false,
            traffic_reported: None,
            scheduler: Scheduler::new(params.circuit_priority_half_life),
            pool: CellPool::default(),
            spares: Spares::default(),
            memory_rounds: 0,
            outboxes: (0..threads).map(|_| Outbox::default()).collect(),
            to_controller: VecDeque::new(),
            requests: Requests::default(),
            local_control: VecDeque::new(),
            waits: VecDeque::new(),
            to_write: Worklist::default(),
            rng: StdRng::from_seed(seed),
            draining: false,
            complaint: None,
            totals: Totals::default(),
            params,
        }
    }

    // ---- messages ----

    /// Handles another thread's control messages, in order.
    pub fn handle_controls(&mut self, controls: impl IntoIterator<Item = Control>, now: Instant) {
        for control in controls {
            self.on_message(control, now);
        }
        self.settle(now);
    }

    /// Handles another thread's cells, in order, and takes the empties that come with them.
    pub fn handle_cells(
        &mut self,
        from: ThreadId,
        cells: impl IntoIterator<Item = Carried>,
        empties: impl IntoIterator<Item = Box<Cell>>,
        now: Instant,
    ) {
        let mut count = 0;
        for message in cells {
            count += 1;
            match message {
                Carried::Along(HalfCell { to, from, cell }) => self.deliver(to, from, cell, now),
                Carried::Off(message) => self.on_off(message, now),
                Carried::On(message) => self.on_on(message, now),
            }
        }
        for empty in empties {
            self.pool.put(empty);
        }
        if let Some(outbox) = self.outboxes.get_mut(usize::from(from.0)) {
            outbox.owed += count;
        }
        self.settle(now);
    }

    /// Handles a message of the controller's. Returns the links whose connections the caller must
    /// close now, mostly none; [`close_link`](Self::close_link) was done already.
    pub fn handle_controller(
        &mut self,
        message: FromController,
        now: Instant,
    ) -> Vec<ConnectionId> {
        let mut close = Vec::new();
        match message {
            FromController::Join {
                connection,
                request,
            } => self.on_join(connection, request, now),
            FromController::ExtendFailed {
                half,
                extension,
                reason,
            } => self.on_control(
                HalfControl::ExtendFailed {
                    to: half,
                    extension,
                    reason,
                },
                now,
            ),
            FromController::Created {
                half,
                reply,
                keys,
                sendme_inc,
            } => self.on_onionskin_answered(half, &reply, &keys, sendme_inc, now),
            FromController::RefuseStream { stream, end } => {
                self.on_stream_refused(stream, &end, now);
            }
            FromController::Resolved { stream, resolved } => {
                self.on_resolved(stream, &resolved, now);
            }
            FromController::AddHop { half, keys, flow } => self.on_add_hop(half, &keys, &flow),
            FromController::SendExtend { half, extend2 } => {
                self.on_send_extend(half, &extend2, now);
            }
            FromController::Attach {
                stream,
                circuit,
                half,
                hop,
                opening,
            } => self.on_attach(stream, circuit, half, hop, &opening),
            FromController::RefuseApp { stream, why } => self.on_refuse_app(stream, why, now),
            FromController::AnswerApp { stream, resolved } => self.on_answer_app(stream, resolved),
            FromController::Detach { stream, reason } => self.on_detach(stream, reason, now),
            FromController::CloseStream { stream, reason } => {
                self.on_close_stream(stream, reason, now);
            }
            FromController::CreateRefused { half, reason }
            | FromController::CloseHalf { half, reason } => {
                if self.halves.at(half).is_some() {
                    self.close_half(half.slot, reason, Tell::Both, now);
                }
            }
            FromController::RendezvousEstablished { half } => {
                self.on_rendezvous_established(half, now);
            }
            FromController::Splice {
                half,
                with,
                handshake,
            } => self.on_splice(half, with, handshake, now),
            FromController::CloseConnection { connection } => match self.edge_of(connection) {
                Some(edge) => self.give_up(edge, now),
                None => {
                    if let Some(key) = self.link_of(connection) {
                        self.close_link(key, now);
                    }
                    close.push(connection);
                }
            },
            FromController::FreeMemory(cut) => close = self.free_memory(cut, now),
            FromController::Params(params) => {
                self.scheduler
                    .set_half_life(params.circuit_priority_half_life, now);
                self.params = params;
            }
            FromController::Drain => self.draining = true,
        }
        self.settle(now);
        close
    }

    /// Handles what halves of this thread said to each other, and what comes of that.
    fn settle(&mut self, now: Instant) {
        while let Some(control) = self.local_control.pop_front() {
            self.on_message(control, now);
        }
    }

    /// Handles what a half or an edge says.
    fn on_message(&mut self, control: Control, now: Instant) {
        match control {
            Control::Half(control) => self.on_control(control, now),
            Control::Edge(control) => self.on_edge_control(control, now),
        }
    }

    /// Sends a control message to a half, wherever it is.
    fn send_control(&mut self, control: HalfControl) {
        self.send(control.into());
    }

    /// Sends a control message to a half or an edge, wherever it is.
    fn send(&mut self, control: Control) {
        let thread = control.thread();
        if thread == self.me {
            self.local_control.push_back(control);
        } else if let Some(outbox) = self.outboxes.get_mut(usize::from(thread.0)) {
            outbox.control.push(control);
        }
    }

    /// Sends a cell to a half, wherever it is.
    fn send_cell(&mut self, to: HalfAddr, from: HalfAddr, cell: Box<Cell>, now: Instant) {
        if to.thread == self.me {
            self.deliver(to, from, cell, now);
        } else if let Some(outbox) = self.outboxes.get_mut(usize::from(to.thread.0)) {
            let message = HalfCell { to, from, cell };
            outbox.cells.push(Carried::Along(message));
        }
    }

    /// What is to go to another thread. The caller moves the contents out once a turn.
    pub fn outbox(&mut self, thread: ThreadId) -> Option<&mut Outbox> {
        let outbox = self.outboxes.get_mut(usize::from(thread.0))?;
        // As many parcels as are owed and there: a turn may bring many more cells than one holds.
        let parcels = outbox.owed.min(self.pool.len()) / EMPTIES_PARCEL;
        if parcels > 0 {
            self.pool
                .give(parcels * EMPTIES_PARCEL, &mut outbox.empties);
            outbox.owed -= parcels * EMPTIES_PARCEL;
        }
        Some(outbox)
    }

    /// The next message for the controller. Where there is no other, and `ask`, it is what a circuit
    /// asks for, fairly among them: an onionskin, an extension or a stream. Without `ask` these wait,
    /// for a controller that is behind; the waiting requests are bounded, and circuits that exist go
    /// on.
    pub fn poll_controller(&mut self, ask: bool) -> Option<ToController> {
        let message = self.to_controller.pop_front();
        match message {
            None if ask => self.requests.next(),
            other => other,
        }
    }

    /// Whether circuits wait until the controller can be asked.
    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Queues a circuit's request for the controller. The request that finds no room is refused.
    fn ask(&mut self, link: LinkKey, asker: Asker, request: ToController, now: Instant) {
        let Some(link) = self.links.get(link as usize) else {
            return;
        };
        match self.requests.add(link.network, asker, request) {
            None => {}
            Some(Asker::Half(half)) => {
                self.totals.requests_displaced += 1;
                if self.halves.at(half).is_some() {
                    self.close_half(half.slot, DestroyReason::RESOURCELIMIT, Tell::Both, now);
                }
            }
            Some(Asker::Stream(stream)) => {
                self.totals.requests_displaced += 1;
                let end = End::new(EndReason::RESOURCELIMIT);
                self.on_stream_refused(stream, &end.encode(), now);
            }
        }
    }

    /// A stream ended before anything was decided about it.
    fn stream_gone(&mut self, stream: StreamAddr) {
        if !self.requests.cancel(Asker::Stream(stream)) {
            self.to_controller
                .push_back(ToController::StreamGone(stream));
        }
    }

    // ---- what the controller hears about ----

    /// Ends every circuit, with a DESTROY to each side: the relay is going down.
    pub fn end_circuits(&mut self, reason: DestroyReason, now: Instant) {
        let slots: Vec<u32> = self.halves.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.close_half(slot, reason, Tell::Both, now);
        }
        self.settle(now);
    }

    /// The first thing since the last call that broke the protocol; all of them are counted
    /// ([`totals`](Self::totals)).
    pub fn take_complaint(&mut self) -> Option<Complaint> {
        self.complaint.take()
    }

    /// Counters since the start.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Opened links.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Circuit halves.
    pub fn halves(&self) -> usize {
        self.halves.len()
    }

    /// Halves with keys: the circuits, each counted once.
    pub fn circuits(&self) -> usize {
        self.halves.circuits()
    }

    /// Circuits on a link.
    pub fn circuits_on(&self, key: LinkKey) -> usize {
        self.links.get(key as usize).map_or(0, Link::circuits)
    }

    /// The relay's parameters.
    pub fn params(&self) -> &RelayParams {
        &self.params
    }
}

/// Who hears that a half closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tell {
    /// The link (by DESTROY) and the peer half.
    Both,
    /// Both, and the peer half that this half's queue was full.
    Overflowed,
    /// Only the peer half: the link knows, or is gone.
    Peer,
    /// Only the link: the peer half knows, or is gone.
    Link,
}
