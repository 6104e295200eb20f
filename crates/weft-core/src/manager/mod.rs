//! The local connection manager: the state of one connection thread (Engler and Goldberg 2021, 4.2).
//!
//! Each duty is a type with its state, or a view of what it needs; none knows the manager, which calls all of them:
//!
//! - `path`: links, circuit halves, and the cells between them; halves close here;
//! - `edges`: streams' edges; they and halves reach each other by the path's outboxes alone;
//! - `streams`: a half's side of its streams; `tunnels`: several circuits as one, above these;
//! - `circuits`: the life of circuits, weights (ABRA) and padding; `transfer`: links that move to another thread.
//!
//! The manager's own methods are what the owner of the sockets calls, and the dispatch to duties:
//!
//! - `dispatch`: each cell, relay message and control message for halves goes to its duty;
//! - `sockets`, `links`: sockets of edges, and of links; `timers`, `memory`: time and memory;
//! - `audit`: what always holds; `inject`: messages of hostile nodes, for tests.

mod audit;
mod circuits;
mod dispatch;
mod edges;
mod inject;
mod links;
mod memory;
mod path;
mod sockets;
mod streams;
mod sure;
mod timers;
mod transfer;
mod tunnels;

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_cell::Cell;
use weft_cell::reason::{DestroyReason, EndReason};

use crate::address::{ConnectionId, ThreadId};
use crate::message::{
    Control, FromController, HalfCell, HalfControl, LaneMsg, QueueUse, ToController, Totals,
};
use crate::origin::LinkFailure;
use crate::params::RelayParams;
use crate::slots::{HalfKey, LinkKey};

use circuits::abra::Abra;
use circuits::circpad::CircuitPaddings;
use dispatch::HalfView;
use edges::EdgeView;
use path::CellPath;
use path::closing::Notify;
use path::outbox::Local;
use transfer::{Listed, Transfers};
use tunnels::Watched;

pub use audit::Inspection;
pub use edges::EdgeSide;
pub use inject::{Injected, Keyed};
pub use links::{LinkError, LinkView, Received};
pub use path::ProtocolViolation;
pub use path::outbox::Outbox;
pub use path::requests::{ControllerLoad, MAX_REQUESTS};
pub use path::scheduling::Room;
pub use timers::Expiry;
pub use transfer::Arrival;

/// One connection thread's opened links, circuit halves, edges, scheduler and cell memory.
///
/// It holds no reference to anything of another thread, and does no I/O. The caller
///
/// 1. hands it what arrived: [`receive`](Self::receive) for bytes of a link,
///    [`handle_controls`](Self::handle_controls) and [`handle_cells`](Self::handle_cells) for another
///    thread's messages, [`handle_controller`](Self::handle_controller) for the controller's,
///    [`handle_timeout`](Self::handle_timeout) for the time, `edge_*` for edges' sockets;
/// 2. lets it choose what to send: [`schedule`](Self::schedule);
/// 3. carries out what follows: [`LinkView::outgoing`] for each of [`Links::listed`](crate::link::Links::listed),
///    [`EdgeSide::out`] for each of [`EdgeSide::to_write`], [`EdgeSide::poll`],
///    [`outbox`](Self::outbox) for each other thread, and
///    [`poll_controller`](Self::poll_controller).
///
/// Control messages must be handled before the cells that were sent after them: take note of how
/// many cells a ring holds, handle its control lane, then that many cells.
///
/// It holds the state of each duty and hands it what the duty needs: edges, tunnels, transfers, weights and padding do not
/// know each other, nor the manager. Halves and edges use each other by messages alone (architecture rule 2), on one thread
/// as on two. These and the halves that have closed wait in the `CellPath` until the manager hands them on, in one place,
/// before a call ends: `settle`.
#[derive(Debug)]
pub struct LocalConnectionManager {
    path: CellPath,
    edge_side: EdgeSide,
    watched: Watched,
    transfers: Transfers,
    abra: Abra,
    circpad: CircuitPaddings,
    /// Padding of links on which this node is a client that is due soon, the next one last.
    link_padding: Vec<(Instant, LinkKey)>,
    /// Number of times that memory was freed.
    memory_rounds: u64,
}

impl LocalConnectionManager {
    /// A manager without links. `threads` is the number of connection threads; `seed` is the
    /// source of all its randomness.
    pub fn new(me: ThreadId, threads: u16, params: Arc<RelayParams>, seed: [u8; 32]) -> Self {
        LocalConnectionManager {
            path: CellPath::new(me, threads, params, seed),
            edge_side: EdgeSide::new(me),
            watched: Watched::default(),
            transfers: Transfers::default(),
            abra: Abra::default(),
            circpad: CircuitPaddings::default(),
            link_padding: Vec::new(),
            memory_rounds: 0,
        }
    }

    // ---- the duties ----

    fn edge_view(&mut self) -> EdgeView<'_> {
        EdgeView {
            edge_side: &mut self.edge_side,
            params: &self.path.params,
            pool: &mut self.path.pool,
            outboxes: &mut self.path.outboxes,
            to_controller: &mut self.path.to_controller,
            rng: &mut self.path.rng,
            totals: &mut self.path.totals.streams,
        }
    }

    fn half_view(&mut self) -> HalfView<'_> {
        HalfView {
            path: &mut self.path,
            watched: &mut self.watched,
            abra: &mut self.abra,
            circpad: &mut self.circpad,
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

    /// Handles another thread's cells, in order, and takes the free cells that arrive with them.
    pub fn handle_cells(
        &mut self,
        from: ThreadId,
        cells: impl IntoIterator<Item = LaneMsg>,
        empties: impl IntoIterator<Item = Box<Cell>>,
        now: Instant,
    ) {
        let mut count = 0;
        for message in cells {
            count += usize::from(message.cell().is_some());
            self.on_cell_message(message, now);
        }
        for empty in empties {
            self.path.pool.put(empty);
        }
        self.path.outboxes.owe(from, count);
        self.settle(now);
    }

    /// A message of the cell lane.
    fn on_cell_message(&mut self, message: LaneMsg, now: Instant) {
        match message {
            LaneMsg::Relay(HalfCell { to, from, cell }) => self.path.deliver(to, from, cell, now),
            LaneMsg::ToEdge(message) => self.edge_view().handle_to_edge(message, now),
            LaneMsg::FromEdge(message) => self.half_view().streams().handle_from_edge(message, now),
            LaneMsg::ToLeg(message) => self.path.on_to_leg(message, now),
            LaneMsg::FromLeg(message) => self.half_view().tunnels().on_from_leg(message, now),
            LaneMsg::Transfer(step) => self.transfers.on_transfer_cell(&mut self.path, step),
        }
    }

    /// Handles a message of the controller's. Returns the links whose connections the caller must
    /// close now, mostly none; [`close_link`](Self::close_link) was called already.
    pub fn handle_controller(
        &mut self,
        message: FromController,
        now: Instant,
    ) -> Vec<ConnectionId> {
        match self.transfers.pass_on(&mut self.path, message) {
            Some(message) => self.carry_out(message, now),
            None => Vec::new(),
        }
    }

    /// Carries out a message of the controller's that is for this thread.
    fn carry_out(&mut self, message: FromController, now: Instant) -> Vec<ConnectionId> {
        let mut close = Vec::new();
        match message {
            FromController::Join {
                connection,
                request,
            } => self
                .half_view()
                .circuits()
                .on_join(connection, request, now),
            FromController::ExtendFailed {
                half,
                extension,
                reason,
            } => self.half_view().on_control(
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
            } => self
                .half_view()
                .circuits()
                .on_onionskin_answered(half, &reply, &keys, sendme_inc, now),
            FromController::RefuseStream { stream, end } => {
                self.path.on_stream_refused(stream, &end, now);
            }
            FromController::Resolved { stream, resolved } => {
                self.half_view()
                    .streams()
                    .on_resolved(stream, &resolved, now);
            }
            FromController::AddHop { half, keys, flow } => {
                self.half_view().circuits().on_add_hop(half, &keys, &flow)
            }
            FromController::SendExtend { half, extend2 } => {
                self.half_view()
                    .circuits()
                    .on_send_extend(half, &extend2, now);
            }
            FromController::Attach {
                stream,
                circuit,
                half,
                hop,
                opening,
            } => self
                .edge_view()
                .on_attach(stream, circuit, half, hop, &opening),
            FromController::RefuseApp { stream, why } => {
                self.edge_view().on_refuse_app(stream, why)
            }
            FromController::AnswerApp { stream, resolved } => {
                self.edge_view().on_answer_app(stream, resolved)
            }
            FromController::Detach { stream, reason } => self.edge_view().on_detach(stream, reason),
            FromController::CloseStream { stream, reason } => {
                self.edge_view().on_close_stream(stream, reason);
            }
            FromController::CreateRefused { half, reason }
            | FromController::CloseHalf { half, reason } => {
                if self.path.halves.at(half).is_some() {
                    self.path
                        .close_half(self.path.halves.slot(half), reason, Notify::Both, now);
                }
            }
            FromController::Tunnel(order) => self.half_view().tunnels().on_tunnel_order(order, now),
            FromController::Intro(order) => self.half_view().circuits().on_intro_order(order, now),
            FromController::RendezvousEstablished { half } => {
                self.half_view()
                    .circuits()
                    .on_rendezvous_established(half, now);
            }
            FromController::Splice {
                half,
                with,
                handshake,
            } => self
                .half_view()
                .circuits()
                .on_splice(half, with, handshake, now),
            FromController::CloseConnection { connection } => match self.edge_side.of(connection) {
                Some(edge) => self.edge_view().give_up(edge, EndReason::RESOURCELIMIT),
                None => {
                    if let Some(key) = self.path.links.of(connection) {
                        self.close_link(key, LinkFailure::Done, now);
                    }
                    close.push(connection);
                }
            },
            FromController::LinkListed { connection, listed } => {
                if let Some(link) =
                    (self.path.links.of(connection)).and_then(|key| self.path.links.get_mut(key))
                {
                    link.listed_relay = listed;
                }
            }
            FromController::ForbidEdge { connection } => {
                if let Some(edge) = self.edge_side.of(connection) {
                    self.edge_view().give_up(edge, EndReason::EXITPOLICY);
                }
            }
            FromController::CountHoldings => {
                let holdings = self.holdings(now);
                self.report_holdings(holdings);
            }
            FromController::FreeMemory(cut) => close = self.free_memory(cut, now),
            FromController::Params(params) => {
                self.path
                    .scheduler
                    .set_half_life(params.circuit_priority_half_life, now);
                let reported = std::mem::replace(&mut self.path.params, params).report_load;
                if !reported {
                    self.path.report_all_loads();
                }
                self.path.follow_queue_measuring();
                self.path.follow_padding_params_everywhere();
            }
            FromController::AskWeight { half, hop } => {
                self.abra.on_ask_weight(&mut self.path, half, hop, now)
            }
            FromController::Probe { half, nonce } => {
                self.half_view().streams().on_probe(half, nonce, now)
            }
            FromController::MeasureAbra(on) => self.abra.on_measure_abra(&mut self.path, on, now),
            FromController::AbraStatement(statement) => self.abra.set_statement(statement),
            FromController::Move {
                connection,
                to,
                number,
            } => self
                .transfers
                .on_move(&mut self.path, connection, to, number),
            FromController::MovePassed { number } => self.transfers.on_passed(number),
            FromController::MoveOver { connection } => self.transfers.on_move_over(connection),
            FromController::Drain(draining) => self.path.draining = draining,
        }
        self.settle(now);
        close
    }

    /// Handles what calls of the duties have left: messages between halves and edges of this thread, and halves that have
    /// closed, which no table may list any more.
    #[inline]
    fn settle(&mut self, now: Instant) {
        while let Some(message) = self.path.outboxes.next_local() {
            match message {
                Local::Control(control) => self.on_message(control, now),
                Local::Cell(message) => self.on_cell_message(message, now),
            }
        }
        while let Some(half) = self.path.take_closed() {
            self.abra.unsubscribe(half);
            self.circpad.machines.remove(half);
            self.watched.forget(half);
        }
    }

    /// Handles a control message for a half or an edge.
    fn on_message(&mut self, control: Control, now: Instant) {
        match control {
            Control::Half(HalfControl::Controller { message, .. }) => {
                self.on_forwarded(*message, now)
            }
            Control::Half(control) => self.half_view().on_control(control, now),
            Control::Edge(control) => self.edge_view().on_edge_control(control, now),
            Control::Transfer(step) => self.transfers.on_transfer_control(&mut self.path, step),
        }
    }

    /// A message of the controller's for a half that has moved here.
    fn on_forwarded(&mut self, message: FromController, now: Instant) {
        // None of those that are for halves closes a connection.
        let closed = self.carry_out(message, now);
        debug_assert!(closed.is_empty());
    }

    /// The messages for another thread. The caller moves the contents out once a turn.
    pub fn outbox(&mut self, thread: ThreadId) -> Option<&mut Outbox> {
        self.path.outboxes.outbox(thread, &mut self.path.pool)
    }

    /// The next message for the controller. If there is no other, it is a circuit's request, fairly among
    /// circuits: an onionskin, an extension or a stream. These wait while the controller is busy.
    pub fn poll_controller(&mut self, load: ControllerLoad) -> Option<ToController> {
        self.path.report_loads();
        self.path.to_controller.next(load)
    }

    /// True if circuits wait until the controller can be asked.
    pub fn has_requests(&self) -> bool {
        self.path.to_controller.has_requests()
    }

    /// Ends every circuit, with a DESTROY to each side: the relay is going down.
    pub fn end_circuits(&mut self, reason: DestroyReason, now: Instant) {
        let slots: Vec<HalfKey> = self.path.halves.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.path.close_half(slot, reason, Notify::Both, now);
        }
        self.settle(now);
    }

    /// The first violation of the protocol since the last call; all of them are counted
    /// ([`totals`](Self::totals)).
    pub fn take_violation(&mut self) -> Option<ProtocolViolation> {
        self.path.violation.take()
    }

    /// Counters since the start.
    pub fn totals(&self) -> Totals {
        self.path.totals
    }

    /// Circuit halves.
    pub fn halves(&self) -> usize {
        self.path.halves.len()
    }

    /// Halves with keys: the circuits, each counted once.
    pub fn circuits(&self) -> usize {
        self.path.halves.circuits()
    }

    /// The relay's parameters.
    pub fn params(&self) -> &RelayParams {
        &self.path.params
    }

    /// True if [`LinkView::tcp_read`] is of use for a link: it leads to a relay, and the controller
    /// wants reports of loss.
    pub fn watches_loss(&self, key: LinkKey) -> bool {
        self.path.watches_loss(key)
    }

    /// Cells that left queues since the last call, as far as a report is due now.
    pub fn take_queue_use(&mut self, now: Instant) -> Vec<QueueUse> {
        self.path.take_queue_use(now)
    }

    // ---- the relay's weight ----

    /// The bandwidth that all connections share blocked reading or writing.
    pub fn note_limited(&mut self) {
        self.abra.metering.meter.note_limited();
    }

    /// True if the activity of circuits is measured.
    pub fn measures_abra(&self) -> bool {
        self.path.activity.is_on()
    }

    /// A turn of the thread took so long; to be noted while it [is measured](Self::measures_abra).
    pub fn note_turn(&mut self, took: Duration) {
        self.abra.metering.meter.note_turn(took);
    }

    // ---- moves ----

    /// True if a link is about to leave: nothing may be read from it.
    pub fn is_leaving(&self, key: LinkKey) -> bool {
        self.transfers.is_leaving(&self.path.links, key)
    }

    /// The connection of the link that leaves now: to be [packed](Self::pack) at once.
    pub fn departing(&self) -> Option<ConnectionId> {
        self.transfers.departing()
    }

    /// Sends the link that is [departing](Self::departing) away, with what the owner of its socket adds.
    pub fn pack(&mut self, cargo: Box<dyn Any + Send>, now: Instant) {
        let mut listed = Listed {
            abra: &mut self.abra,
            circpad: &mut self.circpad.machines,
        };
        (self.transfers).pack(&mut self.path, &mut listed, cargo, now);
    }

    /// The link that has arrived, if nothing of before it left is under way any more. The caller makes the socket its
    /// own and calls [`install`](Self::install).
    pub fn take_arrival(&mut self) -> Option<Arrival> {
        self.transfers.take_arrival(&self.path.outboxes)
    }

    /// Moves a link in that has arrived. Its bytes are given to [`receive`](Self::receive) from now on.
    pub fn install(&mut self, arrival: Arrival, now: Instant) -> LinkKey {
        let mut listed = Listed {
            abra: &mut self.abra,
            circpad: &mut self.circpad.machines,
        };
        let key = (self.transfers).install(&mut self.path, &mut listed, arrival, now);
        self.settle(now);
        key
    }

    /// The next message of the controller's that came by another thread; to be handled as one that came at once.
    pub fn poll_forwarded(&mut self) -> Option<FromController> {
        self.transfers.poll_forwarded()
    }

    /// So much waits for a link that moves that no socket should be read.
    pub fn holds_much(&self) -> bool {
        self.path.outboxes.routes.holds_much()
    }
}
