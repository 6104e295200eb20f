//! A circuit edge: a stream's end on this node (seeds/000 4.2, Figure 3).
//!
//! It stands between a socket and a circuit half, which may be on another thread: bytes on one side,
//! relay messages on the other. It has the stream's own state: its windows or XON and XOFF, the
//! bytes that the socket has not taken yet, and the credit that its half has given it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use weft_cell::reason::EndReason;
use weft_cell::relay::MAX_DATA;
use weft_cell::stream_msg::Resolved;

use crate::address::{ConnectionId, EdgeAddr, HalfAddr, StreamAddr, ThreadId};
use crate::flow::{MAX_CWND, StreamFlow, Terms};
use crate::origin::{AppRefusal, OriginId};
use crate::slots::Slots;
use crate::streams::EDGE_CREDIT;

/// Bytes for a socket that may wait in an edge: what makes us say XOFF (cc_xoff_client and
/// cc_xoff_exit are 10,000 cells at most) and as much as the largest congestion window brings until
/// that has arrived. The stream of a far end that sends more is ended. C tor has no such bound; in
/// both, streams whose bytes have waited longest are ended when all queues together have too much
/// (`MaxMemInQueues`, [`crate::memory`]).
pub const MAX_WAITING: usize = (10_000 + MAX_CWND as usize) * MAX_DATA;
/// Bytes that an application may send before its stream is connected ("optimistic data"). They are
/// kept until then: another circuit may have to be tried.
pub const MAX_OPTIMISTIC: usize = 16 << 10;
/// Bytes at the end of some DATA cells that are left to randomness, so that nobody who knows what is
/// transferred can foretell digests (proposal 289; C tor leaves as many).
pub const RANDOM_BYTES: usize = 16;
/// Memory that an edge without bytes keeps at most.
const KEEPS: usize = 256 << 10;

/// What an edge has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// On no circuit (origin's side): the client thread decides.
    Waiting,
    /// Asked of a circuit, which has not answered (origin's side); or its socket is being connected
    /// (exit's side).
    Opening,
    /// Data flows.
    Open,
    /// Nothing more comes from the circuit, nothing more goes there: when the socket has taken what
    /// is left, it is closed.
    Over,
}

/// The stream that an edge is for, and its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamAt {
    /// The stream.
    pub addr: StreamAddr,
    /// What the circuit's ends agreed on.
    pub terms: Terms,
}

/// A half was asked for a stream and has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The half.
    pub half: HalfAddr,
    /// Which of the edge's requests this is: an answer to an earlier one does not count.
    pub request: u32,
}

/// The origin's side of an edge.
#[derive(Clone, Debug, Default)]
pub struct OriginSide {
    /// The circuit that it is on, or was asked of.
    pub circuit: Option<OriginId>,
    /// What the application sent before the stream was connected.
    pub optimistic: Vec<u8>,
}

/// See the module.
#[derive(Debug)]
pub struct Edge {
    /// Its connection.
    pub id: ConnectionId,
    /// Where it is.
    pub at: Option<StreamAt>,
    /// The request for a stream that has no answer yet (origin's side).
    pub asked: Option<Asked>,
    /// How many requests there were.
    requests: u32,
    /// How far it has come.
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
    pub listed: Option<usize>,
    /// DATA cells until the next one that is left some room for randomness (see `cut`).
    pub full_cells_left: u8,
    /// Bytes taken off the circuit.
    pub got: u64,
    /// Bytes put onto it.
    pub gave: u64,
    /// Since when bytes wait for the socket.
    waiting: Waits,
}

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
            credit: EDGE_CREDIT,
            out: Bytes::default(),
            listed: None,
            full_cells_left: 0,
            got: 0,
            gave: 0,
            waiting: Waits::default(),
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
            waiting: Waits::default(),
        }
    }

    /// Notes that a half is asked for a stream.
    pub fn ask(&mut self, half: HalfAddr) -> Asked {
        self.requests = self.requests.wrapping_add(1);
        let asked = Asked {
            half,
            request: self.requests,
        };
        self.asked = Some(asked);
        asked
    }

    /// Whether the edge is for this stream.
    #[inline]
    pub fn is_at(&self, stream: StreamAddr) -> bool {
        self.at.is_some_and(|at| at.addr == stream)
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

    /// Bytes that may be sent now.
    pub fn room_bytes(&self) -> usize {
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
    pub fn note_out(&mut self, now: Instant) {
        let front = self.got.saturating_sub(self.out.len() as u64);
        self.waiting.note(front, self.got, now);
    }

    /// For how long the first of the bytes for the socket has waited; somewhat too much at times.
    pub fn age(&self, now: Instant) -> Duration {
        let since = self.waiting.since.filter(|_| !self.out.is_empty());
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

/// Since when bytes wait, without a note for each of them.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    /// When the first of those that wait came, or one before it.
    since: Option<Instant>,
    /// A byte that waits, by its number, and when it came.
    next: Option<(u64, Instant)>,
}

impl Waits {
    /// Bytes from number `front` up to `end` wait now.
    fn note(&mut self, front: u64, end: u64, now: Instant) {
        if front == end {
            *self = Waits::default();
            return;
        }
        self.since.get_or_insert(now);
        match self.next {
            Some((byte, came)) if front >= byte => {
                self.since = Some(came);
                self.next = Some((end, now));
            }
            Some(_) => {}
            None => self.next = Some((end, now)),
        }
    }
}

/// Bytes in order, taken from the front.
#[derive(Debug, Default)]
pub struct Bytes {
    /// Those taken, then those that wait.
    bytes: Vec<u8>,
    /// How many were taken.
    taken: usize,
}

impl Bytes {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// None waits.
    pub fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    /// Adds bytes at the end.
    pub fn push(&mut self, bytes: &[u8]) {
        // Only when what was taken outweighs what must be moved.
        if self.taken > self.len() && self.taken >= 1 << 16 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Those that wait.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    /// Takes bytes from the front.
    pub fn take(&mut self, count: usize) {
        self.taken = (self.taken + count).min(self.bytes.len());
        if self.is_empty() {
            self.taken = 0;
            if self.bytes.capacity() > KEEPS {
                self.bytes = Vec::new();
            } else {
                self.bytes.clear();
            }
        }
    }

    /// Bytes of memory.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

/// What an edge has for whoever holds its socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeNews {
    /// The socket may be read again.
    Room {
        /// The edge.
        edge: u32,
    },
    /// The stream is connected: an application is answered now.
    Connected {
        /// The edge.
        edge: u32,
        /// Where to, if the exit says so.
        addr: Option<IpAddr>,
    },
    /// A resolve request is answered; the edge is gone.
    Resolved {
        /// The connection.
        id: ConnectionId,
        /// The answer.
        resolved: Resolved,
    },
    /// The request fails; the edge is gone.
    Refused {
        /// The connection.
        id: ConnectionId,
        /// Why.
        why: AppRefusal,
    },
    /// The far end has ended the stream: when the socket has taken what is left, close it.
    Over {
        /// The edge.
        edge: u32,
        /// Why.
        reason: EndReason,
    },
}

/// A connection thread's edges.
#[derive(Debug)]
pub struct Edges {
    /// The owning thread.
    thread: ThreadId,
    /// The edges.
    slots: Slots<Edge>,
}

impl Edges {
    /// No edges yet.
    pub fn new(thread: ThreadId) -> Self {
        Edges {
            thread,
            slots: Slots::default(),
        }
    }

    /// Moves an edge in.
    pub fn insert(&mut self, edge: Edge) -> Option<EdgeAddr> {
        let (slot, generation) = self.slots.insert(edge)?;
        Some(EdgeAddr {
            thread: self.thread,
            slot,
            generation,
        })
    }

    /// Moves an edge out.
    pub fn remove(&mut self, slot: u32) -> Option<Edge> {
        self.slots.remove(slot)
    }

    /// The edge in a slot.
    pub fn get(&self, slot: u32) -> Option<&Edge> {
        self.slots.get(slot)
    }

    /// The edge in a slot.
    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut Edge> {
        self.slots.get_mut(slot)
    }

    /// The edge at an address, if it still lives.
    #[inline]
    pub fn at(&mut self, addr: EdgeAddr) -> Option<&mut Edge> {
        if addr.thread != self.thread {
            return None;
        }
        self.slots.at(addr.slot, addr.generation)
    }

    /// The edge at an address, if it still lives, to look at.
    pub fn peek(&self, addr: EdgeAddr) -> Option<&Edge> {
        (addr.thread == self.thread)
            .then(|| self.slots.peek(addr.slot, addr.generation))
            .flatten()
    }

    /// The present address of the edge in a slot.
    pub fn addr(&self, slot: u32) -> Option<EdgeAddr> {
        Some(EdgeAddr {
            thread: self.thread,
            slot,
            generation: self.slots.generation(slot)?,
        })
    }

    /// Edges in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Edge)> {
        self.slots.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order_however_they_are_taken() {
        let mut bytes = Bytes::default();
        let mut expected = 0u32;
        let mut next = 0u32;
        for round in 0..2000u32 {
            for _ in 0..round % 90 {
                bytes.push(&next.to_be_bytes());
                next += 1;
            }
            for _ in 0..round % 83 {
                if bytes.is_empty() {
                    break;
                }
                let front = bytes.as_slice().first_chunk::<4>().copied();
                assert_eq!(front, Some(expected.to_be_bytes()));
                bytes.take(4);
                expected += 1;
            }
            assert_eq!(bytes.len(), 4 * (next - expected) as usize);
        }
    }

    #[test]
    fn much_memory_is_given_back_when_all_is_taken() {
        let mut bytes = Bytes::default();
        bytes.push(&vec![1; 2 * KEEPS]);
        bytes.take(2 * KEEPS);
        assert_eq!(bytes.capacity(), 0);
        bytes.push(&[1; 100]);
        bytes.take(200);
        assert!(bytes.is_empty() && bytes.capacity() > 0);
    }
}
