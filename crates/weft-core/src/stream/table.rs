//! The streams that end at a circuit half (Engler and Goldberg 2021, 4.2, Figure 3).
//!
//! A stream's own state (its windows, its buffers, its socket) is with its edge, perhaps on another
//! thread. Here is what concerns the circuit: which stream ids lead to which edges, what the circuit
//! as a whole may send, and the cells that wait for that.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use weft_cell::Cell;
use weft_cell::relay::RelayBody;
use weft_cell::relay_command::{FlowControl, StreamMessage, flow_control};
use weft_planted::{Fault, planted};

use crate::address::{EdgeAddr, HalfAddr, HopIndex, StreamAddr};
use crate::flow::{CcParams, CircuitFlow, Left, Rtt};
use crate::limits::stream_dos::{StreamBucket, StreamDosParams, StreamVerdict};
use crate::memory::cells::CellPool;
use crate::memory::ledger::{Held, Waits, map_entry, queue_memory, shrink};
use crate::stream::credit::{Lender, Loan};
use crate::stream::early::{Early, Kept};
use crate::stream::ended::{Ended, Late};

/// Streams that one circuit may have at once: more than any client opens, and less than there are
/// stream ids.
pub(crate) const MAX_STREAMS: usize = 16384;

/// The streams of one half.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// Streams by id.
    table: BTreeMap<u16, Stream>,
    /// The stream that was looked up last: cells come in runs.
    last: Option<(u16, HopIndex, EdgeAddr)>,
    /// One end for each hop that streams may lead to; a relay has one, the origin.
    pub ends: Vec<HopEnd>,
    /// Streams that this side ended first.
    pub ended: Ended,
    /// Where the search for a free stream id continues.
    next_id: u16,
    /// Number of streams so far.
    generation: u32,
    /// Streams that may still be opened, once one was.
    bucket: Option<StreamBucket>,
    /// Memory of what came for streams that have no edge yet.
    early: usize,
    /// The time from which on there is some.
    early_since: Option<Instant>,
}

/// Flow control and pending cells between this half and one other node.
#[derive(Debug)]
pub(crate) struct HopEnd {
    /// Flow control of the circuit. `None`: the windows of a tunnel's legs count instead.
    pub flow: Option<CircuitFlow>,
    /// DATA, and what must not overtake it, that waits for that.
    pub pending: VecDeque<(EdgeAddr, Box<Cell>)>,
    /// Number of pending cells of streams that have ended; they are never sent.
    dead: usize,
    /// Cells that waited here before those.
    taken: u64,
    /// Their waiting time.
    waits: Waits,
    /// Credit for edges that send here.
    pub(crate) lender: Lender,
}

impl HopEnd {
    /// An end with these rules, or without a window.
    pub(crate) fn new(flow: Option<CircuitFlow>) -> Self {
        HopEnd {
            flow,
            pending: VecDeque::new(),
            dead: 0,
            taken: 0,
            waits: Waits::default(),
            lender: Lender::default(),
        }
    }

    /// True if its streams have XON and XOFF. Tunnels' streams always do.
    pub(crate) fn is_vegas(&self) -> bool {
        self.flow.as_ref().is_none_or(CircuitFlow::is_vegas)
    }

    /// Cells that count and that may be sent now.
    pub(crate) fn room(&self) -> u32 {
        self.flow.as_ref().map_or(0, CircuitFlow::room)
    }

    /// Notes whether the circuit's queue is full.
    pub(crate) fn set_blocked(&mut self, blocked: bool) {
        if let Some(flow) = &mut self.flow {
            flow.set_blocked(blocked);
        }
    }

    /// Round-trip times of the circuit, if any were measured.
    pub(crate) fn rtt(&self) -> Option<Rtt> {
        self.flow.as_ref()?.rtt()
    }

    /// Pending cells of streams that have ended.
    pub(crate) fn dead(&self) -> usize {
        self.dead
    }

    /// Notes that a stream with this number of pending cells has ended. They are taken out once
    /// they are half of all: so no more cells wait than twice those of live streams, and each cell
    /// is moved a bounded number of times, however streams begin and end.
    fn abandon(&mut self, cells: usize, table: &BTreeMap<u16, Stream>, pool: &mut CellPool) {
        if cells == 0 || !planted(Fault::DeadCellsNotCounted) {
            self.dead += cells;
        }
        if self.dead == 0 || self.dead * 2 < self.pending.len() {
            return;
        }
        for (edge, cell) in std::mem::take(&mut self.pending) {
            let id = RelayBody::new(cell.body()).stream_id();
            match table.get(&id).is_some_and(|stream| stream.is_for(edge)) {
                true => self.pending.push_back((edge, cell)),
                false => pool.put(cell),
            }
        }
        self.dead = 0;
        // `taken` stays: were these counted there, a cell that was before them would be taken for a younger one.
        if self.pending.is_empty() {
            self.waits = Waits::default();
        }
        shrink(&mut self.pending);
    }

    /// Takes the first cell that waits.
    pub(crate) fn take(&mut self) -> Option<(EdgeAddr, Box<Cell>)> {
        let front = self.pending.pop_front()?;
        self.taken += 1;
        shrink(&mut self.pending);
        Some(front)
    }

    /// Memory of what waits, and of what is known of the other node.
    fn held(&self, now: Instant) -> Held {
        let flow = self.flow.as_ref().map_or(0, CircuitFlow::memory);
        let cells = self.pending.len() * size_of::<Cell>() + queue_memory(&self.pending);
        Held::kept(flow + self.lender.memory()) + Held::waiting(cells, self.waits.age(now))
    }

    /// Notes that cells were added, or taken.
    pub(crate) fn note(&mut self, now: Instant) {
        let end = self.taken + self.pending.len() as u64;
        self.waits.note(self.taken, end, now);
    }
}

/// A stream as its half sees it.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The hop it leads to.
    pub hop: HopIndex,
    /// Its edge, or what came before it had one.
    pub edge: Place,
    /// It is a question and an answer (RESOLVE), without data.
    pub resolves: bool,
    /// Generation of the stream, among those that have had its id.
    pub generation: u32,
    /// Credit of its edge.
    loan: Loan,
    /// Its cells among [`HopEnd::pending`].
    pending: u32,
}

impl Stream {
    /// True if this edge's cells belong to the stream.
    #[inline]
    fn is_for(&self, edge: EdgeAddr) -> bool {
        match self.edge {
            Place::At(own) | Place::Over(own) => own == edge,
            Place::Deciding(_) | Place::Probe(_) => false,
        }
    }

    /// Its cells that wait at the half.
    pub(crate) fn pending(&self) -> u32 {
        self.pending
    }

    /// Cells that its edge may send, or has sent and that have not arrived.
    pub(crate) fn lent(&self) -> u32 {
        self.loan.lent()
    }
}

/// Where a stream's edge is.
#[derive(Debug)]
pub(crate) enum Place {
    /// Still being decided (exit policy, DNS): what came early.
    Deciding(Early),
    /// There. It stays there until the stream is over or has ended.
    At(EdgeAddr),
    /// It has sent END, or is about to, and what comes is for [`Streams::ended`]. Its last cells
    /// still wait to be sent.
    Over(EdgeAddr),
    /// It has none: the stream only measures the circuit.
    Probe(Probe),
}

/// A stream that the last hop must refuse.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// The last bytes of the address that was asked for.
    pub nonce: [u8; 3],
    /// When.
    pub asked: Instant,
}

impl Streams {
    /// Streams of a half with one end, with these rules or without a window.
    pub(crate) fn one(flow: Option<CircuitFlow>) -> Self {
        Streams {
            ends: vec![HopEnd::new(flow)],
            ..Streams::default()
        }
    }

    /// The origin asks for a stream that leads out of the network.
    pub(crate) fn asked(&mut self, params: &StreamDosParams, now: Instant) -> StreamVerdict {
        if !params.enabled {
            return StreamVerdict::Allow;
        }
        let bucket = self
            .bucket
            .get_or_insert_with(|| StreamBucket::new(params, now));
        bucket.stream_asked(params, now)
    }

    /// True if there is no stream, and nothing may still arrive for one that has ended.
    pub(crate) fn is_unused(&self) -> bool {
        self.table.is_empty() && self.ended.is_empty()
    }

    /// True if the stream id is taken.
    pub(crate) fn has(&self, id: u16) -> bool {
        self.table.contains_key(&id)
    }

    /// A new stream: which tenant of its id it is. `None`: there is one of this id, or too many.
    pub(crate) fn add(&mut self, id: u16, hop: HopIndex, edge: Place) -> Option<u32> {
        if id == 0 || self.has(id) || self.table.len() >= MAX_STREAMS {
            return None;
        }
        self.generation = self.generation.wrapping_add(1);
        let stream = Stream {
            hop,
            edge,
            resolves: false,
            generation: self.generation,
            loan: Loan::default(),
            pending: 0,
        };
        self.table.insert(id, stream);
        Some(self.generation)
    }

    /// A stream id that is free, after the last one that was given. `None`: there are too many.
    pub(crate) fn free_id(&mut self) -> Option<u16> {
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
    pub(crate) fn get_mut(&mut self, id: u16) -> Option<&mut Stream> {
        self.table.get_mut(&id)
    }

    /// The edge of a stream that leads to this hop and has one. Another hop knows the circuit's
    /// streams as well, and must not send in this one's place.
    #[inline]
    pub(crate) fn edge(&mut self, id: u16, hop: HopIndex) -> Option<EdgeAddr> {
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
            Place::Deciding(_) | Place::Over(_) | Place::Probe(_) => None,
        }
    }

    /// All streams, by stream id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &Stream)> {
        self.table.iter().map(|(id, stream)| (*id, stream))
    }

    /// The stream of this address, unless another has its id by now, to look at.
    pub(crate) fn peek(&self, addr: StreamAddr) -> Option<&Stream> {
        let stream = self.table.get(&addr.id)?;
        (stream.generation == addr.generation).then_some(stream)
    }

    /// The stream of this address, unless another has its id by now.
    fn at(&mut self, addr: StreamAddr) -> Option<&mut Stream> {
        let stream = self.table.get_mut(&addr.id)?;
        (stream.generation == addr.generation).then_some(stream)
    }

    /// Gives a stream that waits for one its edge, and the caller what came before. `None`: this
    /// stream waits for none (any more).
    pub(crate) fn place(&mut self, addr: StreamAddr, edge: EdgeAddr) -> Option<Early> {
        let stream = self.at(addr)?;
        match &mut stream.edge {
            Place::Deciding(early) => {
                let early = std::mem::take(early);
                stream.edge = Place::At(edge);
                self.forget_early(early.memory());
                Some(early)
            }
            Place::At(_) | Place::Over(_) | Place::Probe(_) => None,
        }
    }

    /// Ends a stream that waits for an edge, and gives the caller what came for it. `None`: this
    /// stream waits for none (any more).
    pub(crate) fn refuse(&mut self, addr: StreamAddr) -> Option<Early> {
        match &mut self.at(addr)?.edge {
            Place::Deciding(early) => {
                let early = std::mem::take(early);
                self.table.remove(&addr.id);
                self.forget_early(early.memory());
                Some(early)
            }
            Place::At(_) | Place::Over(_) | Place::Probe(_) => None,
        }
    }

    /// A stream of our own begins. `resolves`: as a question that needs one answer. `cells`: see
    /// [`Lender::begin`].
    pub(crate) fn begin(&mut self, id: u16, resolves: bool, cells: u32) -> Option<()> {
        let stream = self.table.get_mut(&id)?;
        stream.resolves = resolves;
        let end = self.ends.get_mut(stream.hop.index())?;
        end.lender.begin(&mut stream.loan, cells);
        Some(())
    }

    /// A stream's edge wants to send: the hop it leads to. `None`: there is no such stream.
    pub(crate) fn ask(&mut self, addr: StreamAddr) -> Option<HopIndex> {
        let count = self.table.len();
        let stream =
            (self.table.get_mut(&addr.id)).filter(|stream| stream.generation == addr.generation)?;
        let hop = stream.hop;
        let end = self.ends.get_mut(hop.index())?;
        // With cells that wait here it is lent more when those are sent.
        if matches!(stream.edge, Place::At(_)) && stream.pending == 0 {
            end.lender.ask((addr.id, addr.generation), &mut stream.loan);
        }
        let table = &self.table;
        end.lender.sweep(count, |id, generation| {
            (table.get(&id)).is_some_and(|stream| stream.generation == generation)
        });
        Some(hop)
    }

    /// A stream's edge gives back what it does not use: the hop it leads to.
    pub(crate) fn returned(&mut self, addr: StreamAddr, cells: u32) -> Option<HopIndex> {
        let stream =
            (self.table.get_mut(&addr.id)).filter(|stream| stream.generation == addr.generation)?;
        let hop = stream.hop;
        let end = self.ends.get_mut(hop.index())?;
        end.lender.returned(&mut stream.loan, cells);
        Some(hop)
    }

    /// An edge's message is to be sent on the circuit: the hop that it is for, and that hop's end. `None`:
    /// the edge's stream has ended.
    #[inline]
    pub(crate) fn accept(
        &mut self,
        cell: &Cell,
        edge: EdgeAddr,
    ) -> Option<(HopIndex, &mut HopEnd)> {
        let body = RelayBody::new(cell.body());
        let stream = self.table.get_mut(&body.stream_id())?;
        if !stream.is_for(edge) {
            return None;
        }
        let hop = stream.hop;
        let end = self.ends.get_mut(hop.index())?;
        match flow_control(body.command()) {
            FlowControl::Counted => {
                stream.pending += 1;
                end.lender.arrived(&mut stream.loan);
            }
            FlowControl::InOrder => {
                stream.pending += 1;
                stream.edge = Place::Over(edge);
                end.lender.ended(&mut stream.loan);
                self.last = None;
            }
            FlowControl::Free => {}
        }
        Some((hop, end))
    }

    /// True if the answer fits the request: CONNECTED answers BEGIN and BEGIN_DIR, RESOLVED answers
    /// RESOLVE. Also true for messages that are no answers.
    #[inline]
    pub(crate) fn may_answer(&self, id: u16, message: StreamMessage) -> bool {
        let resolved = match message {
            StreamMessage::Connected => false,
            StreamMessage::Resolved => true,
            StreamMessage::Data
            | StreamMessage::End
            | StreamMessage::Sendme
            | StreamMessage::Xoff
            | StreamMessage::Xon => return true,
        };
        (self.table.get(&id)).is_none_or(|stream| stream.resolves == resolved)
    }

    /// The edge of a stream is about to send END. `connected`: the far end has not
    /// answered yet; `left`: what it may still send.
    pub(crate) fn edge_ends(&mut self, addr: StreamAddr, connected: bool, left: Left) {
        let Some(stream) = self.at(addr) else {
            return;
        };
        let Place::At(edge) = stream.edge else {
            return;
        };
        stream.edge = Place::Over(edge);
        let (connected, left) = match left {
            _ if stream.resolves => (false, Left::NOTHING),
            left => (connected, left),
        };
        let late = Late {
            hop: stream.hop,
            connected,
            left,
        };
        self.last = None;
        // Where this side gives no ids, the far end does, in turn as well.
        let newest = match self.next_id {
            0 => addr.id,
            newest => newest,
        };
        self.ended.add(addr.id, late, newest);
    }

    /// This side ends a stream at once that has no edge and leads to this hop: END, or RESOLVED, is sent now.
    pub(crate) fn ended_at_once(&mut self, id: u16, hop: HopIndex, left: Left, now: Instant) {
        let late = Late {
            hop,
            connected: false,
            left,
        };
        self.ended.add(id, late, id);
        self.ended.end_sent(id, None, now);
    }

    /// Keeps a cell of a stream that has no edge yet.
    pub(crate) fn keep_early(
        &mut self,
        id: u16,
        cell: Box<Cell>,
        cc: &CcParams,
        now: Instant,
    ) -> Kept {
        let Some(stream) = self.table.get_mut(&id) else {
            return Kept::TooMany(cell);
        };
        let Place::Deciding(early) = &mut stream.edge else {
            return Kept::TooMany(cell);
        };
        let end = self.ends.get(stream.hop.index());
        let cc = end.filter(|end| end.is_vegas()).map(|_| cc);
        let before = early.memory();
        let kept = early.push(cell, cc, now);
        self.early += early.memory() - before;
        self.early_since.get_or_insert(now);
        kept
    }

    /// Memory of what came for streams that have no edge yet, as it is counted.
    pub(crate) fn early(&self) -> usize {
        self.early
    }

    /// Subtracts the memory of early cells that no longer wait here.
    fn forget_early(&mut self, memory: usize) {
        if planted(Fault::EarlyStaysCounted) {
            return;
        }
        self.early = self.early.saturating_sub(memory);
        if self.early == 0 {
            self.early_since = None;
        }
    }

    /// Ends a stream: what its edge has sent and still waits is never sent.
    pub(crate) fn remove(&mut self, id: u16, pool: &mut CellPool) -> Option<Stream> {
        self.last = None;
        let mut stream = self.table.remove(&id)?;
        if let Some(end) = self.ends.get_mut(stream.hop.index()) {
            end.lender.ended(&mut stream.loan);
            end.abandon(stream.pending as usize, &self.table, pool);
        }
        Some(stream)
    }

    /// The ends and the table, to be used together.
    pub(crate) fn split(&mut self) -> (&mut [HopEnd], Table<'_>) {
        (
            &mut self.ends,
            Table {
                table: &mut self.table,
                last: &mut self.last,
                ended: &mut self.ended,
            },
        )
    }

    /// All streams, by stream id.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (u16, Stream)> {
        self.last = None;
        self.early = 0;
        self.early_since = None;
        std::mem::take(&mut self.table).into_iter()
    }

    /// Memory of the streams here, beside their own structure.
    pub(crate) fn held(&self, now: Instant) -> Held {
        let tables = self.table.len() * map_entry::<u16, Stream>()
            + self.ended.memory()
            + self.ends.capacity() * size_of::<HopEnd>();
        let early =
            (self.early_since).map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let mut held = Held::kept(tables) + Held::waiting(self.early, early);
        for end in &self.ends {
            held += end.held(now);
        }
        held
    }
}

/// A half's streams without its ends ([`Streams::split`]).
#[derive(Debug)]
pub(crate) struct Table<'a> {
    /// See [`Streams`].
    table: &'a mut BTreeMap<u16, Stream>,
    /// See [`Streams`].
    last: &'a mut Option<(u16, HopIndex, EdgeAddr)>,
    /// See [`Streams`].
    ended: &'a mut Ended,
}

impl Table<'_> {
    /// END of a stream was sent, which ends it. `rtt`: the circuit's longest round trip.
    pub(crate) fn end_sent(&mut self, id: u16, rtt: Option<Duration>, now: Instant) {
        *self.last = None;
        self.table.remove(&id);
        self.ended.end_sent(id, rtt, now);
    }

    /// A pending cell is about to be sent: what its edge is lent again, with the stream's generation.
    /// `None`: the stream has ended, and the cell is dropped.
    #[inline]
    pub(crate) fn leaving(
        &mut self,
        id: u16,
        edge: EdgeAddr,
        end: &mut HopEnd,
    ) -> Option<(u32, u32)> {
        let stream = self.table.get_mut(&id).filter(|stream| stream.is_for(edge));
        let Some(stream) = stream else {
            end.dead = end.dead.saturating_sub(1);
            return None;
        };
        stream.pending = stream.pending.saturating_sub(1);
        let generation = stream.generation;
        let credit = match stream.edge {
            Place::At(_) => {
                let (mine, all) = (stream.pending, end.pending.len());
                (end.lender).sent((id, generation), &mut stream.loan, mine, all)
            }
            Place::Deciding(_) | Place::Over(_) | Place::Probe(_) => 0,
        };
        Some((credit, generation))
    }

    /// Lends what there is to the edges that wait for credit: streams of `half` at this hop.
    pub(crate) fn lend(
        &mut self,
        end: &mut HopEnd,
        half: HalfAddr,
        credits: &mut Vec<(EdgeAddr, StreamAddr, u32)>,
    ) {
        while let Some((id, generation)) = end.lender.next(end.pending.len()) {
            if let Some(stream) = self.table.get_mut(&id)
                && stream.generation == generation
                && let Place::At(edge) = stream.edge
            {
                let (mine, all) = (stream.pending, end.pending.len());
                let credit = end.lender.serve(&mut stream.loan, mine, all);
                if credit > 0 {
                    let stream = StreamAddr {
                        half,
                        id,
                        generation,
                    };
                    credits.push((edge, stream, credit));
                }
            }
        }
    }
}
