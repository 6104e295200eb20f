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
mod origin;
mod params;
mod recognized;
mod streams;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use slab::Slab;
use weft_cell::frame::{self, Frame};
use weft_cell::link_msg::Destroy;
use weft_cell::reason::DestroyReason;
use weft_cell::{Cell, CellView, ChanCmd};

use crate::address::{ConnectionId, EdgeAddr, HalfAddr, ThreadId};
use crate::cells::{CellPool, Empties};
use crate::edge::{EdgeNews, Edges};
use crate::half::{Halves, Wait};
use crate::handshake::{Established, PeerIdentity};
use crate::link::{Link, MAX_DESTROYS};
use crate::memory::AgeHistogram;
use crate::message::{
    Carried, Control, FromController, HalfCell, HalfControl, ToController, Totals,
};
use crate::padding::LinkPadding;
use crate::scheduler::{LinkKey, Scheduler};

pub use params::RelayParams;

/// Longest variable-length cell that an opened link may bring; none is expected, VPADDING may come.
const MAX_VARIABLE: usize = 65535;

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

/// DESTROYs made into cells for one write.
const DESTROYS_AT_ONCE: usize = 256;
/// Cells of one circuit that go together, before the scheduler chooses again. In one run a bulk
/// circuit is ahead of another by no more than that; one that has sent little lately still goes
/// before both.
const CELLS_AT_ONCE: u32 = 8;
/// Empties go home in parcels of this many.
const EMPTIES_PARCEL: usize = 256;

/// How many times `KeepalivePeriod` a link may stand still with cells to be written, as in C tor.
const STUCK_PERIODS: u32 = 10;

/// Why a link has had its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// No circuit has used it for long.
    Idle,
    /// Cells wait, and its peer has taken none for long.
    Stuck,
}

/// Something that a peer did against the protocol, for which a circuit was closed or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The peer's connection.
    pub connection: ConnectionId,
    /// What it did.
    pub what: &'static str,
}

/// What became of a link's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes that need not be shown again.
    pub used: usize,
    /// Bytes still to come that need not be shown at all.
    pub skip: usize,
}

/// Why a link must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The peer's bytes are not cells.
    #[error("the peer sent bytes that are no cells: {0}")]
    Frame(#[from] frame::FrameError),
    /// The peer makes us answer and does not read.
    #[error("the peer does not read what it asked for: {MAX_DESTROYS} cells wait")]
    NotReading,
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
    edges_to_write: Vec<u32>,
    /// For whoever holds the edges' sockets.
    edge_news: VecDeque<EdgeNews>,
    /// Credit that edges are about to get back; empty between calls.
    credits: Vec<(EdgeAddr, u32)>,
    /// Halves whose queues have room again; empty between calls.
    unblocked: Vec<u32>,
    /// The half that is being closed was closed by the other side.
    closed_by_peer: bool,
    /// Who sends next.
    scheduler: Scheduler,
    /// Memory of cells.
    pool: CellPool,
    /// By thread; this thread's own stays empty.
    outboxes: Vec<Outbox>,
    /// For the controller, oldest first.
    to_controller: VecDeque<ToController>,
    /// Messages between halves and edges of this thread, handled before anything else arrives.
    local_control: VecDeque<Control>,
    /// Waits in the order of their deadlines.
    waits: VecDeque<Wait>,
    /// Links that have something to write or a circuit that does.
    to_write: Vec<LinkKey>,
    /// Randomness: circuit ids, padding.
    rng: StdRng,
    /// New circuits are refused: the relay is going down.
    draining: bool,
    /// The controller is far behind: nothing new is asked of it.
    controller_busy: bool,
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
            edges_to_write: Vec::new(),
            edge_news: VecDeque::new(),
            credits: Vec::new(),
            unblocked: Vec::new(),
            closed_by_peer: false,
            scheduler: Scheduler::new(params.circuit_priority_half_life),
            pool: CellPool::default(),
            outboxes: (0..threads).map(|_| Outbox::default()).collect(),
            to_controller: VecDeque::new(),
            local_control: VecDeque::new(),
            waits: VecDeque::new(),
            to_write: Vec::new(),
            rng: StdRng::from_seed(seed),
            draining: false,
            controller_busy: false,
            complaint: None,
            totals: Totals::default(),
            params,
        }
    }

    // ---- links ----

    /// A connection finished its handshake: from now on its cells come to
    /// [`receive`](Self::receive). The controller is told.
    pub fn open_link(
        &mut self,
        connection: ConnectionId,
        initiated: bool,
        established: &Established,
        now: Instant,
    ) -> LinkKey {
        let peer = established.peer;
        let mut padding = LinkPadding::new(
            &self.params.padding,
            matches!(peer, PeerIdentity::Unauthenticated),
            established.link_protocol >= 5,
            now,
        );
        let announcement = padding.take_announcement();
        let link = Link::new(
            connection,
            peer,
            initiated,
            self.rng.next_u64(),
            padding,
            now,
        );
        let key = self.links.insert(link);
        // A slab of links grows by sockets: 2³² of them cannot be open.
        let key = LinkKey::try_from(key).unwrap_or(LinkKey::MAX);
        self.by_connection.insert(connection, key);
        self.scheduler.link_added(key);
        if let Some(wish) = announcement {
            let cell = self.pool.hold(wish.encode());
            self.push_out(key, cell);
        }
        self.to_controller.push_back(ToController::LinkOpened {
            connection,
            peer,
            canonical: established.canonical,
            clock_skew: established.clock_skew,
            my_addr: established.my_addr,
        });
        key
    }

    /// The connection under a link is gone: its circuits end, and the controller is told.
    pub fn close_link(&mut self, key: LinkKey, now: Instant) {
        let Some(link) = self.links.get(key as usize) else {
            return;
        };
        let connection = link.connection;
        for slot in link.slots() {
            self.close_half(slot, DestroyReason::CHANNEL_CLOSED, Tell::Peer, now);
        }
        self.scheduler.link_removed(key);
        if let Some(link) = self.links.try_remove(key as usize) {
            for cell in link.out {
                self.pool.put(cell);
            }
        }
        self.by_connection.remove(&connection);
        self.to_write.retain(|other| *other != key);
        self.to_controller.push_back(ToController::LinkClosed {
            connection,
            reason: DestroyReason::CHANNEL_CLOSED,
        });
        self.settle(now);
    }

    /// A connection failed before it was a link: the controller is told.
    pub fn connection_failed(&mut self, connection: ConnectionId, reason: DestroyReason) {
        self.to_controller
            .push_back(ToController::LinkClosed { connection, reason });
    }

    /// The link of a connection.
    pub fn link_of(&self, connection: ConnectionId) -> Option<LinkKey> {
        self.by_connection.get(&connection).copied()
    }

    /// Handles the whole cells at the start of `bytes`, which a link received. What is left is the
    /// beginning of a fixed-length cell.
    ///
    /// # Errors
    ///
    /// [`LinkError`]: the caller closes the connection and calls [`close_link`](Self::close_link).
    pub fn receive(
        &mut self,
        key: LinkKey,
        bytes: &[u8],
        now: Instant,
    ) -> Result<Received, LinkError> {
        let mut used = 0;
        while let Some((frame, length)) =
            frame::next(bytes.get(used..).unwrap_or_default(), MAX_VARIABLE)?
        {
            used += length;
            match frame {
                Frame::Fixed(cell) => {
                    self.on_cell(key, cell, now);
                    // As between threads: what halves say goes before the cells that follow.
                    if !self.local_control.is_empty() {
                        self.settle(now);
                    }
                }
                Frame::Variable { command, .. } => {
                    if command == ChanCmd::VPADDING {
                        self.totals.padding_received += 1;
                    } else {
                        self.totals.cells_dropped += 1;
                    }
                }
            }
        }
        self.settle(now);
        // No opened link needs a variable-length cell: what comes of one is not kept.
        let rest = bytes.get(used..).unwrap_or_default();
        let skip = frame::missing_of_variable(rest).unwrap_or(0);
        if skip > 0 {
            self.totals.padding_received += 1;
            used = bytes.len();
        }
        let received = Received { used, skip };
        let Some(link) = self.links.get_mut(key as usize) else {
            return Ok(received);
        };
        if used > 0 {
            link.padding.cell_received(now);
        }
        if link.destroys.len() > MAX_DESTROYS {
            return Err(LinkError::NotReading);
        }
        Ok(received)
    }

    /// One fixed-length cell of a link.
    fn on_cell(&mut self, link: LinkKey, cell: CellView<'_>, now: Instant) {
        match cell.command() {
            ChanCmd::RELAY => self.on_relay(link, cell, false, now),
            ChanCmd::RELAY_EARLY => self.on_relay(link, cell, true, now),
            ChanCmd::CREATE | ChanCmd::CREATE2 | ChanCmd::CREATE_FAST => {
                self.on_create(link, cell, now);
            }
            ChanCmd::CREATED | ChanCmd::CREATED2 | ChanCmd::CREATED_FAST => {
                self.on_created(link, cell, now);
            }
            ChanCmd::DESTROY => self.on_destroy(link, cell, now),
            ChanCmd::PADDING => self.totals.padding_received += 1,
            ChanCmd::PADDING_NEGOTIATE => {
                if let Ok(negotiate) = weft_cell::link_msg::PaddingNegotiate::decode(cell.body())
                    && let Some(link) = self.links.get_mut(link as usize)
                {
                    link.padding.negotiate(&negotiate);
                } else {
                    self.totals.cells_dropped += 1;
                }
            }
            // NETINFO again, or something from the future: tor-spec 3 says to ignore it.
            _ => self.totals.cells_dropped += 1,
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

    /// Handles a message of the controller's. Returns the link whose connection the caller must
    /// close now, if any; [`close_link`](Self::close_link) was done already.
    pub fn handle_controller(
        &mut self,
        message: FromController,
        now: Instant,
    ) -> Option<ConnectionId> {
        let mut close = None;
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
            FromController::RefuseStream { half, stream, end } => {
                self.on_stream_refused(half, stream, &end, now);
            }
            FromController::Resolved {
                half,
                stream,
                resolved,
            } => self.on_resolved(half, stream, &resolved, now),
            FromController::AddHop { half, keys, flow } => self.on_add_hop(half, &keys, &flow, now),
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
            FromController::CloseLink { connection } => {
                if let Some(key) = self.link_of(connection) {
                    self.close_link(key, now);
                }
                close = Some(connection);
            }
            FromController::FreeMemory { older_than } => self.free_memory(older_than, now),
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

    /// The next message for the controller.
    pub fn poll_controller(&mut self) -> Option<ToController> {
        self.to_controller.pop_front()
    }

    /// Says whether the controller is so far behind that new circuits and extensions are to be
    /// refused here; circuits that exist go on.
    pub fn set_controller_busy(&mut self, busy: bool) {
        self.controller_busy = busy;
    }

    // ---- sending ----

    /// Moves cells from the circuits' queues to their links, most urgent circuit first, as far as
    /// the links have room. `room` gives how many cells a link may take now (KIST's limit).
    pub fn schedule(&mut self, now: Instant, mut room: impl FnMut(LinkKey) -> u32) {
        let mut any = false;
        for key in &self.to_write {
            if let Some(link) = self.links.get(*key as usize)
                && link.active_halves > 0
            {
                // What was chosen before and is not written yet (a bandwidth limit holds it back)
                // has its place in that room already.
                let chosen = u32::try_from(link.out.len()).unwrap_or(u32::MAX);
                let budget = room(*key).saturating_sub(chosen);
                self.scheduler.set_budget(*key, budget);
                any = true;
            }
        }
        if !any {
            return;
        }
        self.totals.scheduler_runs += 1;
        while let Some(choice) = self.scheduler.choose() {
            let (Some(half), Some(link)) = (
                self.halves.get_mut(choice.half),
                self.links.get_mut(choice.link as usize),
            ) else {
                self.scheduler.set_active(choice.half, false);
                continue;
            };
            let mut sent = 0;
            while sent < choice.budget.min(CELLS_AT_ONCE)
                && let Some(cell) = half.queue.pop()
            {
                link.out.push_back(cell);
                sent += 1;
            }
            let active = !half.queue.is_empty();
            if half.blocked && half.queue.len() <= self.params.queue_low {
                half.blocked = false;
                self.unblocked.push(choice.half);
            }
            if !active {
                link.active_halves = link.active_halves.saturating_sub(1);
            }
            self.scheduler.sent(choice, sent, active, now);
        }
        let mut unblocked = std::mem::take(&mut self.unblocked);
        for slot in unblocked.drain(..) {
            self.unblock(slot, now);
        }
        self.unblocked = unblocked;
        self.settle(now);
    }

    /// Some circuit has cells that the scheduler has not chosen yet.
    pub fn has_backlog(&self) -> bool {
        self.to_write
            .iter()
            .filter_map(|key| self.links.get(*key as usize))
            .any(|link| link.active_halves > 0 && !link.held)
    }

    /// Links that have cells to be written, or circuits that wait for the scheduler.
    pub fn links_to_write(&self) -> &[LinkKey] {
        &self.to_write
    }

    /// Forgets the links that have nothing to write any more.
    pub fn prune_written(&mut self) {
        let links = &mut self.links;
        self.to_write.retain(|key| {
            let Some(link) = links.get_mut(*key as usize) else {
                return false;
            };
            link.listed = !link.is_empty();
            link.listed
        });
    }

    /// The cells that a link is to write, in order; to be asked for when its socket takes bytes.
    /// The caller takes them from the front and gives their memory back with
    /// [`recycle`](Self::recycle).
    pub fn outgoing(&mut self, key: LinkKey) -> Option<&mut VecDeque<Box<Cell>>> {
        let link = self.links.get_mut(key as usize)?;
        while link.out.len() < DESTROYS_AT_ONCE
            && let Some((circ_id, reason)) = link.destroys.pop_front()
        {
            let cell = Destroy { reason }.encode(circ_id);
            link.out.push_back(self.pool.hold(cell));
        }
        Some(&mut link.out)
    }

    /// Some link that could take them has cells that were chosen and not written.
    pub fn has_unwritten(&self) -> bool {
        self.to_write
            .iter()
            .filter_map(|key| self.links.get(*key as usize))
            .any(|link| !link.held && (!link.out.is_empty() || !link.destroys.is_empty()))
    }

    /// Says whether a link's socket has left something untaken. The link stays listed until it has
    /// taken it.
    pub fn set_held(&mut self, key: LinkKey, held: bool) {
        if let Some(link) = self.links.get_mut(key as usize) {
            link.held = held;
            if held {
                self.list(key);
            }
        }
    }

    /// Says that cells of a link were written.
    pub fn wrote(&mut self, key: LinkKey, now: Instant) {
        if let Some(link) = self.links.get_mut(key as usize) {
            link.padding.cell_sent(now);
            link.last_written = now;
        }
    }

    /// Takes back the memory of a cell that was written.
    pub fn recycle(&mut self, cell: Box<Cell>) {
        self.pool.put(cell);
    }

    /// Lists a link among those that have something to write.
    fn list(&mut self, key: LinkKey) {
        if let Some(link) = self.links.get_mut(key as usize)
            && !link.listed
        {
            link.listed = true;
            self.to_write.push(key);
        }
    }

    /// Queues a cell on the link itself, ahead of everything that the scheduler has not chosen.
    fn push_out(&mut self, key: LinkKey, cell: Box<Cell>) {
        if let Some(link) = self.links.get_mut(key as usize) {
            link.out.push_back(cell);
            self.list(key);
        }
    }

    // ---- time ----

    /// When [`handle_timeout`](Self::handle_timeout) should be called at the latest, not counting
    /// the once-a-second call.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.waits.front().map(|wait| wait.deadline)
    }

    /// Gives up on what has waited too long, sends the padding that is due, and returns the
    /// connections that have been idle or stuck for too long, which the caller must close. To be
    /// called about four times a second.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<(ConnectionId, Expiry)> {
        while let Some(wait) = self.waits.front().copied() {
            if wait.deadline > now {
                break;
            }
            self.waits.pop_front();
            if self
                .halves
                .at(wait.half)
                .is_some_and(|half| half.still_waits(wait.extension))
            {
                self.totals.timed_out += 1;
                self.close_half(wait.half.slot, DestroyReason::TIMEOUT, Tell::Both, now);
            }
        }
        let mut padding = Vec::new();
        let mut expired = Vec::new();
        let keepalive = self.params.keepalive;
        for (key, link) in &mut self.links {
            let empty = link.is_empty();
            if empty {
                link.last_empty = now;
            }
            let silent = now.saturating_duration_since(link.last_written);
            let padding_due = link.padding.poll(now, &mut self.rng);
            if empty && (padding_due || silent >= keepalive) {
                padding.push(LinkKey::try_from(key).unwrap_or(LinkKey::MAX));
            }
            let full = now.saturating_duration_since(link.last_empty);
            if silent.min(full) >= keepalive.saturating_mul(STUCK_PERIODS) {
                expired.push((link.connection, Expiry::Stuck));
                continue;
            }
            let limit = match link.peer {
                PeerIdentity::Relay { .. } => self.params.idle_relay_link,
                PeerIdentity::Unauthenticated => self.params.idle_client_link,
            };
            if link
                .idle_since
                .is_some_and(|since| now.saturating_duration_since(since) >= limit)
            {
                expired.push((link.connection, Expiry::Idle));
            }
        }
        for key in padding {
            let cell = self.pool.blank(0, ChanCmd::PADDING);
            self.totals.padding_sent += 1;
            self.push_out(key, cell);
        }
        self.settle(now);
        expired
    }

    // ---- what the controller hears about ----

    /// Queued bytes by the age of their circuit's oldest cell.
    pub fn queued(&self, now: Instant) -> AgeHistogram {
        let mut ages = AgeHistogram::default();
        for (_, half) in self.halves.iter() {
            if let Some(age) = half.queue.oldest_age(now) {
                ages.add(age, half.queue.bytes() as u64);
            }
        }
        for (_, link) in &self.links {
            let bytes = link.out.len() * crate::cells::QUEUED_CELL_COST
                + link.destroys.len() * size_of::<(u32, DestroyReason)>();
            ages.add(Duration::ZERO, bytes as u64);
        }
        for (_, edge) in self.edges.iter() {
            ages.add(edge.age(now), edge.out.capacity() as u64);
        }
        ages
    }

    /// Closes the circuits whose oldest queued cell is at least this old, and ends the streams whose
    /// socket has not taken what is as old.
    fn free_memory(&mut self, older_than: Duration, now: Instant) {
        let old: Vec<u32> = self
            .halves
            .iter()
            .filter(|(_, half)| {
                half.queue
                    .oldest_age(now)
                    .is_some_and(|age| age >= older_than)
            })
            .map(|(slot, _)| slot)
            .collect();
        for slot in old {
            self.totals.killed_for_memory += 1;
            let queued = self.halves.get(slot).map_or(0, |half| half.queue.bytes());
            self.totals.freed_for_memory += queued as u64;
            self.close_half(slot, DestroyReason::RESOURCELIMIT, Tell::Both, now);
        }
        self.free_edges(older_than, now);
    }

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
