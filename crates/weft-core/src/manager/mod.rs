//! The local connection manager: the state of one connection thread (Engler and Goldberg 2021, 4.2).
//!
//! - `links`: links are opened and closed, move to other threads, and their bytes are cut into cells;
//! - `forward`: the path of a relayed cell; `sending`: from the circuits' queues to the links;
//! - `circuits`: the life of circuit halves, and what they ask for and are asked;
//! - `streams`: a half's side of its streams; `edges`: their edges;
//! - `tunnels`: several circuits as one;
//! - `outbox`, `requests`: messages for other threads and for the controller;
//! - `timers`, `memory`, `queues`: time, memory and reports;
//! - `audit`: what always holds; `inject`: messages of hostile nodes, for tests.

mod audit;
mod circuits;
mod edges;
mod forward;
mod inject;
mod links;
mod memory;
mod outbox;
mod queues;
mod requests;
mod sending;
mod streams;
mod timers;
mod tunnels;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use weft_cell::Cell;
use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::stream_msg::End;

use crate::address::{ConnectionId, EdgeAddr, StreamAddr, ThreadId};
use crate::circuit::halves::Halves;
use crate::circuit::waits::Waits;
use crate::extensions::circpad::Machines;
use crate::flow::{Side, StreamFlow, Terms};
use crate::link::Links;
use crate::memory::cells::CellPool;
use crate::message::{
    Asker, Control, FromController, HalfCell, HalfControl, LaneMsg, ToController, Totals,
};
use crate::origin::{LinkFailure, OriginEvent};
use crate::params::RelayParams;
use crate::scheduler::Scheduler;
use crate::slots::{HalfKey, LinkKey};
use crate::tunnel::Choice;

use circuits::traffic::TrafficReports;
use edges::EdgeSide;
use links::transfer::Transfers;
use outbox::Outboxes;
use queues::QueueMeasuring;
use requests::ToControllerQueue;

pub use inject::{Injected, Keyed};
pub use links::transfer::Arrival;
pub use links::{LinkError, Received};
pub use outbox::Outbox;
pub use requests::{ControllerLoad, MAX_REQUESTS};
pub use sending::Room;
pub use timers::Expiry;

/// Something that a peer did against the protocol, for which a circuit was closed or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolViolation {
    /// The peer's connection.
    pub connection: ConnectionId,
    /// What it did.
    pub what: &'static str,
}

/// One connection thread's opened links, circuit halves, edges, scheduler and cell memory.
///
/// It holds no reference to anything of another thread, and does no I/O. The caller
///
/// 1. hands it what arrived: [`receive`](Self::receive) for bytes of a link,
///    [`handle_controls`](Self::handle_controls) and [`handle_cells`](Self::handle_cells) for another
///    thread's messages, [`handle_controller`](Self::handle_controller) for the controller's,
///    [`handle_timeout`](Self::handle_timeout) for the time, `edge_*` for edges' sockets;
/// 2. lets it choose what to send: [`schedule`](Self::schedule);
/// 3. carries out what follows: [`outgoing`](Self::outgoing) for each of
///    [`links_to_write`](Self::links_to_write), [`edge_out`](Self::edge_out) for each of
///    [`edges_to_write`](Self::edges_to_write), [`poll_edge`](Self::poll_edge),
///    [`outbox`](Self::outbox) for each other thread, and
///    [`poll_controller`](Self::poll_controller).
///
/// Control messages must be handled before the cells that were sent after them: take note of how
/// many cells a ring holds, handle its control lane, then that many cells.
///
/// Halves and edges use each other by messages alone (architecture rule 2), on one thread as on two:
/// a half sends by `send_to_edge` and an [`EdgeControl`](crate::message::EdgeControl), an edge by
/// `send_from_edge` and a [`HalfControl`]. The fields of [`EdgeSide`] are private to `edges`, so that
/// nothing of a half can reach an edge otherwise; clippy denies `edges` the fields here that hold halves
/// and links (`clippy.toml`).
#[derive(Debug)]
pub struct LocalConnectionManager {
    params: Arc<RelayParams>,
    links: Links,
    halves: Halves,
    edge_side: EdgeSide,
    scheduler: Scheduler,
    /// Memory of cells.
    pool: CellPool,
    /// For halves and edges, of this thread and of others.
    outboxes: Outboxes,
    to_controller: ToControllerQueue,
    /// Links of which the controller does not know how many circuits they carry, and wants to.
    unreported: Vec<LinkKey>,
    waits: Waits,
    traffic: TrafficReports,
    /// How long cells wait, while that is measured.
    queues: Option<Box<QueueMeasuring>>,
    abra: circuits::abra::Abra,
    /// Tunnels whose legs may stand still (mTor).
    watched_tunnels: BTreeSet<HalfKey>,
    transfers: Transfers,
    /// Padding machines of circuits.
    circpad: Machines,
    /// Padding of links on which this node is a client that is due soon, the next one last.
    link_padding: Vec<(Instant, LinkKey)>,
    scratch: Scratch,
    /// Randomness: circuit ids, padding.
    rng: StdRng,
    /// New circuits are refused: the relay is going down.
    draining: bool,
    /// How many times memory was freed.
    memory_rounds: u64,
    /// The first since the last [`take_violation`](Self::take_violation).
    violation: Option<ProtocolViolation>,
    totals: Totals,
}

/// Lists that are empty between calls, kept for their memory.
#[derive(Debug, Default)]
struct Scratch {
    /// Credit that edges are about to get back.
    credits: Vec<(EdgeAddr, StreamAddr, u32)>,
    /// Halves whose queues have room again.
    unblocked: Vec<HalfKey>,
    /// Messages of a tunnel, with the legs that were chosen for them.
    to_legs: Vec<(Choice, Box<Cell>)>,
}

impl Scratch {
    fn is_empty(&self) -> bool {
        let Scratch {
            credits,
            unblocked,
            to_legs,
        } = self;
        credits.is_empty() && unblocked.is_empty() && to_legs.is_empty()
    }
}

impl LocalConnectionManager {
    /// A manager without links. `threads` is the number of connection threads; `seed` is the
    /// source of all its randomness.
    pub fn new(me: ThreadId, threads: u16, params: Arc<RelayParams>, seed: [u8; 32]) -> Self {
        LocalConnectionManager {
            links: Links::default(),
            halves: Halves::new(me),
            edge_side: EdgeSide::new(me),
            scheduler: Scheduler::new(params.circuit_priority_half_life),
            pool: CellPool::default(),
            outboxes: Outboxes::new(me, threads),
            to_controller: ToControllerQueue::default(),
            unreported: Vec::new(),
            waits: Waits::default(),
            traffic: TrafficReports::default(),
            queues: QueueMeasuring::wanted(&params),
            abra: circuits::abra::Abra::default(),
            watched_tunnels: BTreeSet::new(),
            transfers: Transfers::default(),
            circpad: Machines::default(),
            link_padding: Vec::new(),
            scratch: Scratch::default(),
            rng: StdRng::from_seed(seed),
            draining: false,
            memory_rounds: 0,
            violation: None,
            totals: Totals::default(),
            params,
        }
    }

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
            self.pool.put(empty);
        }
        self.outboxes.owe(from, count);
        self.settle(now);
    }

    /// A message of the cell lane.
    fn on_cell_message(&mut self, message: LaneMsg, now: Instant) {
        match message {
            LaneMsg::Relay(HalfCell { to, from, cell }) => self.deliver(to, from, cell, now),
            LaneMsg::ToEdge(message) => self.handle_to_edge(message, now),
            LaneMsg::FromEdge(message) => self.handle_from_edge(message, now),
            LaneMsg::ToLeg(message) => self.on_to_leg(message, now),
            LaneMsg::FromLeg(message) => self.on_from_leg(message, now),
            LaneMsg::Transfer(step) => self.on_transfer_cell(step, now),
        }
    }

    /// Handles a message of the controller's. Returns the links whose connections the caller must
    /// close now, mostly none; [`close_link`](Self::close_link) was called already.
    pub fn handle_controller(
        &mut self,
        message: FromController,
        now: Instant,
    ) -> Vec<ConnectionId> {
        match self.pass_on(message) {
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
                    self.close_half(self.halves.slot(half), reason, Notify::Both, now);
                }
            }
            FromController::Tunnel(order) => self.on_tunnel_order(order, now),
            FromController::Intro(order) => self.on_intro_order(order, now),
            FromController::RendezvousEstablished { half } => {
                self.on_rendezvous_established(half, now);
            }
            FromController::Splice {
                half,
                with,
                handshake,
            } => self.on_splice(half, with, handshake, now),
            FromController::CloseConnection { connection } => match self.edge_of(connection) {
                Some(edge) => self.give_up(edge, EndReason::RESOURCELIMIT, now),
                None => {
                    if let Some(key) = self.link_of(connection) {
                        self.close_link(key, LinkFailure::Done, now);
                    }
                    close.push(connection);
                }
            },
            FromController::LinkListed { connection, listed } => {
                if let Some(link) =
                    (self.links.of(connection)).and_then(|key| self.links.get_mut(key))
                {
                    link.listed_relay = listed;
                }
            }
            FromController::ForbidEdge { connection } => {
                if let Some(edge) = self.edge_of(connection) {
                    self.give_up(edge, EndReason::EXITPOLICY, now);
                }
            }
            FromController::CountHoldings => {
                let holdings = self.holdings(now);
                self.report_holdings(holdings);
            }
            FromController::FreeMemory(cut) => close = self.free_memory(cut, now),
            FromController::Params(params) => {
                self.scheduler
                    .set_half_life(params.circuit_priority_half_life, now);
                let reported = std::mem::replace(&mut self.params, params).report_load;
                if !reported {
                    self.report_all_loads();
                }
                self.follow_queue_measuring();
                self.follow_padding_params_everywhere();
            }
            FromController::AskWeight { half, hop } => self.on_ask_weight(half, hop, now),
            FromController::Probe { half, nonce } => self.on_probe(half, nonce, now),
            FromController::MeasureAbra(on) => self.on_measure_abra(on, now),
            FromController::AbraStatement(statement) => self.abra.set_statement(statement),
            FromController::Move {
                connection,
                to,
                number,
            } => self.on_move(connection, to, number),
            FromController::MovePassed { number } => self.on_passed(number),
            FromController::MoveOver { connection } => self.on_move_over(connection),
            FromController::Drain(draining) => self.draining = draining,
        }
        self.settle(now);
        close
    }

    /// Handles the control messages between halves and edges of this thread, until none is left.
    fn settle(&mut self, now: Instant) {
        while let Some(control) = self.outboxes.next_local() {
            self.on_message(control, now);
        }
    }

    /// Handles a control message for a half or an edge.
    fn on_message(&mut self, control: Control, now: Instant) {
        match control {
            Control::Half(control) => self.on_control(control, now),
            Control::Edge(control) => self.on_edge_control(control, now),
            Control::Transfer(step) => self.on_transfer_control(step, now),
        }
    }

    /// Sends a control message to a half, wherever it is.
    fn send_control(&mut self, control: impl Into<HalfControl>) {
        self.send(control.into().into());
    }

    /// Sends a control message to a half or an edge, wherever it is.
    fn send(&mut self, control: Control) {
        self.outboxes.send(control);
    }

    /// The messages for another thread. The caller moves the contents out once a turn.
    pub fn outbox(&mut self, thread: ThreadId) -> Option<&mut Outbox> {
        self.outboxes.outbox(thread, &mut self.pool)
    }

    /// The next message for the controller. If there is no other, it is a circuit's request, fairly among
    /// circuits: an onionskin, an extension or a stream. These wait while the controller is busy.
    pub fn poll_controller(&mut self, load: ControllerLoad) -> Option<ToController> {
        self.report_loads();
        self.to_controller.next(load)
    }

    /// Whether circuits wait until the controller can be asked.
    pub fn has_requests(&self) -> bool {
        self.to_controller.has_requests()
    }

    /// Queues a request for the controller of a circuit that comes from this network. The request that finds no room is refused.
    fn ask(&mut self, network: IpAddr, asker: Asker, request: ToController, now: Instant) {
        match self.to_controller.ask(network, asker, request) {
            None => {}
            Some(Asker::Half(half)) => {
                self.totals.requests_displaced += 1;
                if self.halves.at(half).is_some() {
                    self.close_half(
                        self.halves.slot(half),
                        DestroyReason::RESOURCELIMIT,
                        Notify::Both,
                        now,
                    );
                }
            }
            Some(Asker::Stream(stream)) => {
                self.totals.requests_displaced += 1;
                let end = End::new(EndReason::RESOURCELIMIT);
                self.on_stream_refused(stream, &end.encode(), now);
            }
        }
    }

    /// Sends an event to the client thread.
    fn send_origin_event(&mut self, event: OriginEvent) {
        self.to_controller.push(ToController::Origin(event));
    }

    /// The rules of a new stream.
    fn stream_flow(&self, terms: Terms, side: Side) -> StreamFlow {
        match terms.is_vegas() {
            true => StreamFlow::xon_xoff(&self.params.cc, side),
            false => StreamFlow::fixed(),
        }
    }

    /// Ends every circuit, with a DESTROY to each side: the relay is going down.
    pub fn end_circuits(&mut self, reason: DestroyReason, now: Instant) {
        let slots: Vec<HalfKey> = self.halves.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.close_half(slot, reason, Notify::Both, now);
        }
        self.settle(now);
    }

    /// The first violation of the protocol since the last call; all of them are counted
    /// ([`totals`](Self::totals)).
    pub fn take_violation(&mut self) -> Option<ProtocolViolation> {
        self.violation.take()
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

    /// The relay's parameters.
    pub fn params(&self) -> &RelayParams {
        &self.params
    }
}

/// The sides that are notified when a half closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notify {
    /// The link (by DESTROY) and the peer half.
    Both,
    /// Both, and the peer half that this half's queue was full.
    Overflowed,
    /// Only the peer half: the link's peer knows, or the link is closed.
    Peer,
    /// Only the link: the peer half knows, or is closed.
    Link,
}
