//! The path of cells through one thread: links, circuit halves and what carries cells between them.
//!
//! - `forward`: a relayed cell, from a link to the queue of a half; `scheduling`: from there to the link;
//! - `sealing`: messages of a half's own; `legs`: those of a tunnel, on its legs;
//! - `links`: links are opened and closed; `load`: how much they carry; `closing`: halves close;
//! - `outbox`, `requests`: messages for halves, edges, other threads and the controller;
//! - `queues`, `traffic`, `memory`: measurements and reports.

pub(in crate::manager) mod closing;
pub(in crate::manager) mod forward;
pub(in crate::manager) mod legs;
mod links;
mod load;
mod memory;
pub(in crate::manager) mod outbox;
pub(in crate::manager) mod queues;
pub(in crate::manager) mod requests;
pub(in crate::manager) mod scheduling;
pub(in crate::manager) mod sealing;
pub(in crate::manager) mod traffic;

use std::sync::Arc;
use std::time::Instant;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use weft_cell::Cell;
use weft_cell::reason::DestroyReason;
use weft_planted::{Fault, planted};

use crate::address::{ConnectionId, EdgeAddr, HalfAddr, StreamAddr, ThreadId};
use crate::circuit::activity::Activity;
use crate::circuit::half::{CircuitHalf, Role};
use crate::circuit::halves::Halves;
use crate::circuit::waits::Waits;
use crate::handshake::PeerIdentity;
use crate::link::Links;
use crate::memory::cells::CellPool;
use crate::message::Totals;
use crate::params::RelayParams;
use crate::scheduler::Scheduler;
use crate::slots::{HalfKey, LinkKey};
use crate::tunnel::{Choice, LegLink};

use closing::Notify;
use outbox::Outboxes;
use queues::QueueMeasuring;
use requests::ToControllerQueue;
use traffic::TrafficReports;

/// Something that a peer did against the protocol, for which a circuit was closed or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolViolation {
    /// The peer's connection.
    pub connection: ConnectionId,
    /// Description of the violation.
    pub what: &'static str,
}

/// The path of cells on one thread, and the state that closes a circuit wherever one of its cells
/// may end.
///
/// Other duties of circuits (streams, tunnels, padding, moves) have separate state and are handed
/// the path, which knows none of it. A half that closes is noted, and
/// [`take_closed`](Self::take_closed) returns it for the tables that list it.
#[derive(Debug)]
pub(in crate::manager) struct CellPath {
    pub(in crate::manager) params: Arc<RelayParams>,
    pub(in crate::manager) links: Links,
    pub(in crate::manager) halves: Halves,
    pub(in crate::manager) scheduler: Scheduler,
    /// Memory of cells.
    pub(in crate::manager) pool: CellPool,
    /// For halves and edges, of this thread and of others.
    pub(in crate::manager) outboxes: Outboxes,
    pub(in crate::manager) to_controller: ToControllerQueue,
    /// Links of which the controller does not know how many circuits they carry, and wants to.
    unreported: Vec<LinkKey>,
    pub(in crate::manager) waits: Waits,
    pub(in crate::manager) traffic: TrafficReports,
    /// Waiting times of cells, while they are measured.
    queues: Option<Box<QueueMeasuring>>,
    pub(in crate::manager) activity: Activity,
    /// Halves that have closed and that tables beside the path may still list.
    closed: Vec<HalfAddr>,
    scratch: Scratch,
    /// Randomness: circuit ids, padding.
    pub(in crate::manager) rng: StdRng,
    /// New circuits are refused: the relay is going down.
    pub(in crate::manager) draining: bool,
    /// The first since the last [`take_violation`](super::LocalConnectionManager::take_violation).
    pub(in crate::manager) violation: Option<ProtocolViolation>,
    pub(in crate::manager) totals: Totals,
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

impl CellPath {
    /// A path without links.
    pub(in crate::manager) fn new(
        me: ThreadId,
        threads: u16,
        params: Arc<RelayParams>,
        seed: [u8; 32],
    ) -> Self {
        CellPath {
            links: Links::default(),
            halves: Halves::new(me),
            scheduler: Scheduler::new(params.circuit_priority_half_life),
            pool: CellPool::default(),
            outboxes: Outboxes::new(me, threads),
            to_controller: ToControllerQueue::default(),
            unreported: Vec::new(),
            waits: Waits::default(),
            traffic: TrafficReports::default(),
            queues: QueueMeasuring::wanted(&params),
            activity: Activity::default(),
            closed: Vec::new(),
            scratch: Scratch::default(),
            rng: StdRng::from_seed(seed),
            draining: false,
            violation: None,
            totals: Totals::default(),
            params,
        }
    }

    /// Takes the address of a half that has closed since: what lists it elsewhere is to forget it.
    #[inline]
    pub(in crate::manager) fn take_closed(&mut self) -> Option<HalfAddr> {
        self.closed.pop()
    }

    /// True if the manager has handled all results of a call.
    pub(in crate::manager) fn is_settled(&self) -> bool {
        self.closed.is_empty() && !self.outboxes.has_local() && self.scratch.is_empty()
    }

    /// Puts a half in the tables.
    pub(in crate::manager) fn add_half(
        &mut self,
        half: CircuitHalf,
        now: Instant,
    ) -> Option<HalfAddr> {
        let (key, circ_id) = (half.link, half.circ_id);
        let addr = self.halves.insert(half)?;
        if let Some(link) = self.links.get_mut(key) {
            link.add(circ_id, self.halves.slot(addr));
        }
        self.load_changed(key);
        self.scheduler
            .circuit_added(self.halves.slot(addr), key, now);
        Some(addr)
    }

    /// The half must have its answer before long. `extension` is what it waits for, see
    /// [`Wait`](crate::circuit::half::Wait).
    pub(in crate::manager) fn wait_for(&mut self, half: HalfAddr, extension: u32, now: Instant) {
        if planted(Fault::WaitWithoutTimer) {
            return;
        }
        let wait = (half, extension);
        self.waits
            .add(wait, &mut self.halves, self.params.wait, now);
    }

    /// Ends a half whose link's peer broke the protocol.
    pub(in crate::manager) fn protocol_error(
        &mut self,
        slot: HalfKey,
        what: &'static str,
        now: Instant,
    ) {
        if let Some(link) = self.charged(slot) {
            self.note_violation_by(link.connection, what);
        }
        self.close_half(slot, DestroyReason::PROTOCOL, Notify::Both, now);
    }

    /// Closes a circuit whose hop sent what was not asked for.
    pub(in crate::manager) fn refuse_at_origin(&mut self, slot: HalfKey, now: Instant) {
        let what = "a relay message to the origin of a circuit that it did not ask for";
        self.protocol_error(slot, what, now);
    }

    /// Counts a violation by the peer of a link, and keeps the first of a turn to be logged.
    pub(in crate::manager) fn note_violation(&mut self, key: LinkKey, what: &'static str) {
        if let Some(link) = self.links.get(key) {
            self.note_violation_by(link.connection, what);
        }
    }

    /// Counts a violation by the peer of a connection, and keeps the first of a turn to be logged.
    pub(in crate::manager) fn note_violation_by(
        &mut self,
        connection: ConnectionId,
        what: &'static str,
    ) {
        self.totals.protocol_errors += 1;
        if self.violation.is_none() {
            self.violation = Some(ProtocolViolation { connection, what });
        }
    }

    // tunnels/mod.rs
    /// The link that what a half does is charged to: its own, or that of a tunnel's first leg.
    pub(in crate::manager) fn charged(&self, slot: HalfKey) -> Option<LegLink> {
        let half = self.halves.get(slot)?;
        match &half.role {
            Role::Tunnel(tunnel) => {
                let mut link = tunnel.legs.iter().next()?.link;
                link.from_client &= !planted(Fault::SingleHopTunnel);
                Some(link)
            }
            Role::Backward(_) | Role::Forward(_) | Role::Origin(_) => self.link_under(half.link),
        }
    }

    // tunnels/mod.rs
    /// The link with this key, in the form that [`charged`](Self::charged) returns.
    pub(in crate::manager) fn link_under(&self, key: LinkKey) -> Option<LegLink> {
        let link = self.links.get(key)?;
        Some(LegLink {
            connection: link.connection,
            network: link.network,
            from_client: link.peer == PeerIdentity::Unauthenticated,
        })
    }
}
