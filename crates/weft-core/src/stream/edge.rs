//! A circuit edge: a stream's end on this node (Engler and Goldberg 2021, 4.2, Figure 3).
//!
//! It stands between a socket and a circuit half, which may be on another thread: bytes on one side,
//! relay messages on the other. It has the stream's own state: its windows or XON and XOFF, the
//! bytes that the socket has not taken yet, and the credit that its half has given it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::address::{ConnectionId, EdgeAddr, HalfAddr, OriginId, StreamAddr, ThreadId};
use crate::flow::{MAX_CWND, StreamFlow, Terms};
use crate::memory::buffer::Bytes;
use crate::memory::ledger::{Held, Waits, map_entry};
use crate::origin::AppRefusal;
use crate::slots::worklist::Place;
use crate::slots::{EdgeKey, Slots};
use weft_cell::reason::EndReason;
use weft_cell::relay::MAX_DATA;
use weft_cell::relay_v1;
use weft_cell::stream_msg::Resolved;
use weft_planted::{Fault, planted};

/// Bytes for a socket that may wait in an edge: what makes us send XOFF (cc_xoff_client and
/// cc_xoff_exit are 10,000 cells at most) and as much as the largest congestion window brings until
/// that has arrived. The stream of a far end that sends more is ended. C tor has no such bound; in
/// both, streams whose bytes have waited longest are ended when all queues together have too much
/// (`MaxMemInQueues`, [`crate::memory::ledger`]).
pub const MAX_WAITING: usize = (10_000 + MAX_CWND as usize) * MAX_DATA;
/// Bytes that an application may send before its stream is connected ("optimistic data"). They are
/// kept until then: another circuit may have to be tried.
pub(crate) const MAX_OPTIMISTIC: usize = 16 << 10;
/// Bytes at the end of some DATA cells that are left to randomness, so that an observer who knows
/// the data cannot predict digests (proposal 289; C tor leaves as many).
pub(crate) const RANDOM_BYTES: usize = 16;

/// Progress of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// On no circuit (origin's side): the client thread decides.
    Waiting,
    /// Asked of a circuit, which has not answered (origin's side); or its socket is being connected
    /// (exit's side).
    Opening,
    /// Data flows.
    Open,
    /// Nothing more arrives from the circuit and nothing more is sent on it: when the socket has taken
    /// the remaining bytes, it is closed.
    Over,
}

/// The stream that an edge is for, and its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamAt {
    /// The stream.
    pub addr: StreamAddr,
    /// Stream rules that the circuit's ends negotiated.
    pub terms: Terms,
}

/// A half was asked for a stream and has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The half.
    pub half: HalfAddr,
    /// Number of the edge's request: an answer to an earlier one does not count.
    pub request: u32,
    /// Credit that the stream begins with: cells for what the application has sent already.
    pub cells: u32,
}

/// The origin's side of an edge.
#[derive(Clone, Debug, Default)]
pub struct OriginSide {
    /// The circuit that it is on, or was asked of.
    pub circuit: Option<OriginId>,
    /// Bytes that the application sent before the stream was connected.
    pub(crate) optimistic: Vec<u8>,
}

/// A stream's end on this node, between a socket and a circuit half.
#[derive(Debug)]
pub struct Edge {
    /// Its connection.
    pub id: ConnectionId,
    /// Where it is.
    pub at: Option<StreamAt>,
    /// The request for a stream that has no answer yet (origin's side).
    pub asked: Option<Asked>,
    /// Number of requests so far.
    requests: u32,
    /// Progress between its connect and its end.
    pub phase: Phase,
    /// For streams that begin here.
    pub origin: Option<Box<OriginSide>>,
    /// The stream's rules.
    pub flow: StreamFlow,
    /// Cells that the half will take.
    pub credit: u32,
    /// Bytes for the socket.
    pub out: Bytes,
    /// Its place among the edges with bytes for their sockets.
    pub listed: Option<Place>,
    /// DATA cells until the next one that is left some room for randomness (see `cut`).
    pub(crate) full_cells_left: u8,
    /// Bytes taken off the circuit.
    pub got: u64,
    /// Bytes put onto it.
    pub gave: u64,
    /// Parts of `got` and `gave` that were reported.
    reported: (u64, u64),
    /// Credit was asked for, and none has come.
    pub(crate) asked_credit: bool,
    /// Bytes put onto the circuit when the edge was looked at last.
    gave_before: u64,
    /// Waiting time of bytes for the socket.
    waiting: Waits,
    /// Memory that the owner of the socket holds for it, as of the last report.
    pub(crate) socket_holds: usize,
}

/// Memory of an edge without bytes: its place in the thread's tables.
const EDGE_COST: usize = size_of::<(u32, Option<Edge>)>()
    + map_entry::<ConnectionId, EdgeKey>()
    + 2 * size_of::<EdgeKey>();

impl Edge {
    /// An edge for a stream that a circuit asked for.
    pub fn exit(id: ConnectionId, at: StreamAt, flow: StreamFlow) -> Self {
        Edge {
            id,
            at: Some(at),
            asked: None,
            requests: 0,
            phase: Phase::Opening,
            origin: None,
            flow,
            credit: 0,
            out: Bytes::default(),
            listed: None,
            full_cells_left: 0,
            got: 0,
            gave: 0,
            reported: (0, 0),
            asked_credit: false,
            gave_before: 0,
            waiting: Waits::default(),
            socket_holds: 0,
        }
    }

    /// An edge for an application.
    pub fn application(id: ConnectionId) -> Self {
        Edge {
            id,
            at: None,
            asked: None,
            requests: 0,
            phase: Phase::Waiting,
            origin: Some(Box::default()),
            flow: StreamFlow::fixed(),
            credit: 0,
            out: Bytes::default(),
            listed: None,
            full_cells_left: 0,
            got: 0,
            gave: 0,
            reported: (0, 0),
            asked_credit: false,
            gave_before: 0,
            waiting: Waits::default(),
            socket_holds: 0,
        }
    }

    /// Notes that a half is asked for a stream.
    pub fn ask(&mut self, half: HalfAddr) -> Asked {
        self.requests = self.requests.wrapping_add(1);
        let sent = self.origin.as_ref().map_or(0, |side| side.optimistic.len());
        let cells = sent.div_ceil(relay_v1::MAX_STREAM_DATA - RANDOM_BYTES);
        let asked = Asked {
            half,
            request: self.requests,
            cells: u32::try_from(cells).unwrap_or(u32::MAX),
        };
        self.asked = Some(asked);
        asked
    }

    /// True if the edge belongs to this stream.
    #[inline]
    pub(crate) fn is_at(&self, stream: StreamAddr) -> bool {
        self.at.is_some_and(|at| at.addr == stream)
    }

    /// Bytes got and given since the last report, if there were any.
    pub(crate) fn take_traffic(&mut self) -> Option<(u64, u64)> {
        let (got, gave) = std::mem::replace(&mut self.reported, (self.got, self.gave));
        // Bytes are counted from 0 when the edge is given to another circuit.
        let new = (self.got.saturating_sub(got), self.gave.saturating_sub(gave));
        (new != (0, 0)).then_some(new)
    }

    /// DATA cells that may be sent now.
    pub fn room(&self) -> u32 {
        match (self.phase, self.at) {
            (Phase::Open, Some(_)) => self.credit.min(self.flow.room()),
            // Before a stream is connected, the application's first words may go already.
            (Phase::Opening, Some(_)) if self.origin.is_some() => self.credit.min(self.flow.room()),
            _ => 0,
        }
    }

    /// True if the edge lacks nothing but credit to send something.
    pub(crate) fn needs_credit(&self) -> bool {
        let may_send = match self.phase {
            Phase::Open => true,
            Phase::Opening => self.origin.is_some(),
            Phase::Waiting | Phase::Over => false,
        };
        may_send && self.credit == 0 && self.flow.room() > 0
    }

    /// Takes the credit of an edge that has sent nothing since this was called last.
    pub(crate) fn unused_credit(&mut self) -> Option<(StreamAddr, u32)> {
        let idle = self.gave == std::mem::replace(&mut self.gave_before, self.gave);
        let at = self.at.filter(|_| idle && self.credit > 0)?;
        if planted(Fault::CreditReturnedTwice) {
            return Some((at.addr, self.credit));
        }
        Some((at.addr, std::mem::take(&mut self.credit)))
    }

    /// Bytes that may be sent now.
    pub(crate) fn room_bytes(&self) -> usize {
        // Were all cells such as leave room for randomness, they would still be no more than may go.
        let cell = (self.at).map_or(0, |at| at.terms.max_data() - RANDOM_BYTES);
        let cells = self.room() as usize * cell;
        match (self.phase, &self.origin) {
            (Phase::Opening, Some(side)) => {
                cells.min(MAX_OPTIMISTIC.saturating_sub(side.optimistic.len()))
            }
            _ => cells,
        }
    }

    /// Notes that bytes were added for the socket, or taken.
    pub(crate) fn note_out(&mut self, now: Instant) {
        let front = self.got.saturating_sub(self.out.len() as u64);
        self.waiting.note(front, self.got, now);
    }

    /// Age of the first bytes that wait for the socket.
    pub(crate) fn waited(&self, now: Instant) -> Duration {
        self.waiting.age(now)
    }

    /// Memory of the edge, its bytes and its socket's.
    pub fn held(&self, now: Instant) -> Held {
        let optimistic = (self.origin.as_ref()).map_or(0, |side| {
            size_of::<OriginSide>() + side.optimistic.capacity()
        });
        Held::kept(EDGE_COST + self.flow.memory() + optimistic + self.socket_holds)
            + Held::waiting(self.out.capacity(), self.waiting.age(now))
    }
}

/// News of an edge for the owner of its socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeNews {
    /// The socket may be read again.
    Room {
        /// The edge.
        edge: EdgeKey,
    },
    /// The stream is connected: an application is answered now.
    Connected {
        /// The edge.
        edge: EdgeKey,
        /// The address that it leads to, if the exit gave it.
        addr: Option<IpAddr>,
    },
    /// A resolve request is answered; the edge is removed.
    Resolved {
        /// The connection.
        id: ConnectionId,
        /// The answer.
        resolved: Resolved,
        /// An exit gave it.
        by_exit: bool,
    },
    /// The request fails; the edge is removed.
    Refused {
        /// The connection.
        id: ConnectionId,
        /// Why.
        why: AppRefusal,
    },
    /// The far end has ended the stream: when the socket has taken the remaining bytes, close it.
    Over {
        /// The edge.
        edge: EdgeKey,
        /// Why.
        reason: EndReason,
    },
}

/// A connection thread's edges.
#[derive(Debug)]
pub(crate) struct Edges {
    /// The owning thread.
    thread: ThreadId,
    /// The edges.
    slots: Slots<EdgeKey, Edge>,
}

impl Edges {
    /// No edges yet.
    pub(crate) fn new(thread: ThreadId) -> Self {
        Edges {
            thread,
            slots: Slots::default(),
        }
    }

    /// Moves an edge in.
    pub(crate) fn insert(&mut self, edge: Edge) -> Option<EdgeAddr> {
        let (slot, generation) = self.slots.insert(edge)?;
        Some(EdgeAddr {
            thread: self.thread,
            slot,
            generation,
        })
    }

    /// Moves an edge out.
    pub(crate) fn remove(&mut self, slot: EdgeKey) -> Option<Edge> {
        self.slots.remove(slot)
    }

    /// The edge in a slot.
    pub(crate) fn get(&self, slot: EdgeKey) -> Option<&Edge> {
        self.slots.get(slot)
    }

    /// The edge in a slot.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: EdgeKey) -> Option<&mut Edge> {
        self.slots.get_mut(slot)
    }

    /// The edge at an address, if it still lives.
    #[inline]
    pub(crate) fn at(&mut self, addr: EdgeAddr) -> Option<&mut Edge> {
        if addr.thread != self.thread {
            return None;
        }
        self.slots.at(addr.slot, addr.generation)
    }

    /// The edge at an address, if it still lives, to look at.
    pub(crate) fn peek(&self, addr: EdgeAddr) -> Option<&Edge> {
        (addr.thread == self.thread)
            .then(|| self.slots.peek(addr.slot, addr.generation))
            .flatten()
    }

    /// The present address of the edge in a slot.
    pub(crate) fn addr(&self, slot: EdgeKey) -> Option<EdgeAddr> {
        Some(EdgeAddr {
            thread: self.thread,
            slot,
            generation: self.slots.generation(slot)?,
        })
    }

    /// Edges in slot order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (EdgeKey, &mut Edge)> {
        self.slots.iter_mut()
    }

    /// Edges in slot order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (EdgeKey, &Edge)> {
        self.slots.iter()
    }

    /// Number of edges.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Memory of the slots without an edge.
    pub(crate) fn vacant_memory(&self) -> usize {
        self.slots.vacant_memory()
    }

    /// Gives back what can be of it.
    pub(crate) fn shrink(&mut self) {
        self.slots.shrink();
    }
}
