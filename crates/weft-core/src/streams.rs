//! What a circuit half knows of the streams that end at it (seeds/000 4.2, Figure 3).
//!
//! A stream's own state (its windows, its buffers, its socket) is with its edge, perhaps on another
//! thread. Here is what concerns the circuit: which stream ids lead to which edges, what the circuit
//! as a whole may send, and the cells that wait for that.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use weft_cell::Cell;

use crate::address::EdgeAddr;
use crate::ended::{Ended, Late, Left};
use crate::flow::CircuitFlow;
use crate::stream_dos::{StreamBucket, StreamDosParams, StreamVerdict};

/// Cells that an edge may have under way to its half before the half gives credit back.
pub const EDGE_CREDIT: u32 = 128;
/// Credit goes back in parcels of at least this many, or when nothing waits.
const CREDIT_PARCEL: u32 = 32;
/// Streams that one circuit may have at once: more than any client opens, and less than there are
/// stream ids.
pub const MAX_STREAMS: usize = 16384;
/// Cells of optimistic data that may come before a stream has an edge (a stream's window).
pub const MAX_EARLY: usize = 500;

/// The streams of one half.
#[derive(Debug, Default)]
pub struct Streams {
    /// By stream id.
    table: BTreeMap<u16, Stream>,
    /// The stream that was looked up last: cells come in runs.
    last: Option<(u16, u8, EdgeAddr)>,
    /// One end for each hop that streams may lead to; a relay has one, toward the origin.
    pub ends: Vec<HopEnd>,
    /// Streams that this side, the origin's, ended first.
    pub ended: Ended,
    /// Where the search for a free stream id goes on.
    next_id: u16,
    /// Streams that may still be opened, once one was.
    bucket: Option<StreamBucket>,
}

/// What runs between this half and one other node.
#[derive(Debug)]
pub struct HopEnd {
    /// What may be sent.
    pub flow: CircuitFlow,
    /// DATA, and what must not overtake it, that waits for that.
    pub pending: VecDeque<(EdgeAddr, Box<Cell>)>,
}

impl HopEnd {
    /// An end with these rules.
    pub fn new(flow: CircuitFlow) -> Self {
        HopEnd {
            flow,
            pending: VecDeque::new(),
        }
    }
}

/// A stream as its half sees it.
#[derive(Debug)]
pub struct Stream {
    /// The hop it leads to.
    pub hop: u8,
    /// Its edge, or what came before it had one.
    pub edge: Place,
    /// It is a question and an answer (RESOLVE), without data.
    pub resolves: bool,
    /// Cells that were sent and for which the edge has no credit back yet.
    owed: u32,
}

/// Where a stream's edge is.
#[derive(Debug)]
pub enum Place {
    /// Still being decided (exit policy, DNS): what came early.
    Deciding(Vec<Box<Cell>>),
    /// There.
    At(EdgeAddr),
    /// Gone: what comes is for [`Streams::ended`]. Its last cells still wait to be sent.
    Over,
}

impl Streams {
    /// Streams of a half with one end.
    pub fn one(flow: CircuitFlow) -> Self {
        Streams {
            ends: vec![HopEnd::new(flow)],
            ..Streams::default()
        }
    }

    /// The origin asks for a stream that leads out of the network.
    pub fn asked(&mut self, params: &StreamDosParams, now: Instant) -> StreamVerdict {
        if !params.enabled {
            return StreamVerdict::Allow;
        }
        let bucket = self
            .bucket
            .get_or_insert_with(|| StreamBucket::new(params, now));
        bucket.stream_asked(params, now)
    }

    /// Whether a stream id is taken.
    pub fn has(&self, id: u16) -> bool {
        self.table.contains_key(&id)
    }

    /// How many streams there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// A new stream. False: there is one of this id, or too many.
    pub fn add(&mut self, id: u16, hop: u8, edge: Place) -> bool {
        if id == 0 || self.has(id) || self.table.len() >= MAX_STREAMS {
            return false;
        }
        let stream = Stream {
            hop,
            edge,
            resolves: false,
            owed: 0,
        };
        self.table.insert(id, stream);
        true
    }

    /// A stream id that is free, after the last one that was given. `None`: there are too many.
    pub fn free_id(&mut self) -> Option<u16> {
        if self.table.len() >= MAX_STREAMS {
            return None;
        }
        loop {
            self.next_id = self.next_id.wrapping_add(1);
            if self.next_id != 0 && !self.has(self.next_id) && !self.ended.has(self.next_id) {
                return Some(self.next_id);
            }
        }
    }

    /// A stream.
    pub fn get_mut(&mut self, id: u16) -> Option<&mut Stream> {
        self.table.get_mut(&id)
    }

    /// The edge of a stream that leads to this hop and has one. Another hop knows the circuit's
    /// streams as well, and must not speak for this one.
    #[inline]
    pub fn edge(&mut self, id: u16, hop: u8) -> Option<EdgeAddr> {
        if let Some((last, last_hop, edge)) = self.last
            && (last, last_hop) == (id, hop)
        {
            return Some(edge);
        }
        let stream = self.table.get(&id).filter(|stream| stream.hop == hop)?;
        match stream.edge {
            Place::At(edge) => {
                self.last = Some((id, hop, edge));
                Some(edge)
            }
            Place::Deciding(_) | Place::Over => None,
        }
    }

    /// Gives a stream its edge, and the caller what came before.
    pub fn place(&mut self, id: u16, edge: EdgeAddr) -> Option<Vec<Box<Cell>>> {
        let stream = self.table.get_mut(&id)?;
        match std::mem::replace(&mut stream.edge, Place::At(edge)) {
            Place::Deciding(early) => Some(early),
            Place::At(_) | Place::Over => None,
        }
    }

    /// The origin's edge of a stream is about to send END, and is gone. `connected`: the far end has
    /// not answered yet; `left`: what it may still send.
    pub fn edge_ends(&mut self, id: u16, connected: bool, left: Left, now: Instant) {
        let Some(stream) = self.table.get_mut(&id) else {
            return;
        };
        self.last = None;
        stream.edge = Place::Over;
        let (connected, left) = match left {
            Left::Windows { sendmes, .. } if stream.resolves => {
                (false, Left::Windows { data: 0, sendmes })
            }
            left => (connected && !stream.resolves, left),
        };
        let hop = stream.hop;
        let rtt = self
            .ends
            .get(usize::from(hop))
            .and_then(|end| end.flow.rtt())
            .map(|rtt| rtt.max);
        let late = Late {
            hop,
            connected,
            left,
        };
        self.ended.add(id, late, rtt, self.next_id, now);
    }

    /// Ends a stream.
    pub fn remove(&mut self, id: u16) -> Option<Stream> {
        self.last = None;
        self.table.remove(&id)
    }

    /// The ends and the table, to be used together.
    pub fn split(&mut self) -> (&mut [HopEnd], Table<'_>) {
        (
            &mut self.ends,
            Table {
                table: &mut self.table,
                last: &mut self.last,
            },
        )
    }

    /// The edges of all streams, by stream id, with what came early for those that have none.
    pub fn drain(&mut self) -> impl Iterator<Item = (u16, Place)> {
        self.last = None;
        std::mem::take(&mut self.table)
            .into_iter()
            .map(|(id, stream)| (id, stream.edge))
    }

    /// Cells that wait here, on all ends and of streams that have no edge.
    pub fn waiting(&self) -> usize {
        let pending: usize = self.ends.iter().map(|end| end.pending.len()).sum();
        let early: usize = self
            .table
            .values()
            .map(|stream| match &stream.edge {
                Place::Deciding(early) => early.len(),
                Place::At(_) | Place::Over => 0,
            })
            .sum();
        pending + early
    }
}

/// A half's streams without its ends ([`Streams::split`]).
#[derive(Debug)]
pub struct Table<'a> {
    /// See [`Streams`].
    table: &'a mut BTreeMap<u16, Stream>,
    /// See [`Streams`].
    last: &'a mut Option<(u16, u8, EdgeAddr)>,
}

impl Table<'_> {
    /// Ends a stream.
    pub fn remove(&mut self, id: u16) {
        *self.last = None;
        self.table.remove(&id);
    }

    /// Notes that a cell of a stream was sent: the credit that goes back to its edge now. `idle`:
    /// nothing else waits, so that the edge is not to be kept waiting for a whole parcel.
    pub fn sent(&mut self, id: u16, idle: bool) -> u32 {
        match self.table.get_mut(&id) {
            Some(stream) => {
                stream.owed += 1;
                match idle || stream.owed >= CREDIT_PARCEL {
                    true => std::mem::take(&mut stream.owed),
                    false => 0,
                }
            }
            None => 0,
        }
    }
}
