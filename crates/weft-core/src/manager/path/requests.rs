//! Messages for the controller, and what circuits of this thread ask of it and that has not been sent
//! yet: onionskins, extensions and streams.
//!
//! A controller that is behind takes no more than it can answer soon; the rest waits here, where each
//! address, and of an address each circuit, has its turn. So a flood of one client delays and displaces
//! its own requests. What ends while it waits is never sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Instant;

use weft_cell::RelayCmd;
use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::stream_msg::End;
use weft_planted::{Fault, planted};
use weft_share::{Shares, Ticket};

use super::CellPath;
use super::closing::Notify;
use crate::address::{HalfAddr, HopIndex, StreamAddr};
use crate::circuit::half::CircuitHalf;
use crate::flow::{Left, Side, Terms};
use crate::memory::ledger::{map_entry, queue_memory};
use crate::message::{Asker, ToController};
use crate::origin::OriginEvent;
use crate::slots::HalfKey;

/// Requests that may wait on one thread: those of a second in which 4,000 circuits are made.
pub const MAX_REQUESTS: usize = 4096;

/// Readiness of the controller for circuits' requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerLoad {
    /// Requests are sent.
    Ready,
    /// It has enough to do: requests wait, which circuits that exist do not notice.
    Busy,
}

/// Queue of this thread's messages and requests to the controller.
///
/// Messages ([`push`](Self::push)) are sent in order and without a bound: each is the consequence of
/// something that was admitted. Requests ([`ask`](Self::ask)) are bounded and sent after them, fairly.
/// A request whose asker is gone must be taken back by [`cancel`](Self::cancel).
#[derive(Debug, Default)]
pub(in crate::manager) struct ToControllerQueue {
    /// Oldest first.
    messages: VecDeque<ToController>,
    requests: Requests,
}

impl ToControllerQueue {
    /// Queues a message.
    pub(in crate::manager) fn push(&mut self, message: ToController) {
        self.messages.push_back(message);
    }

    /// Queues an event for the client thread.
    pub(in crate::manager) fn origin(&mut self, event: OriginEvent) {
        self.push(ToController::Origin(event));
    }

    /// A stream ended before anything was decided about it.
    pub(in crate::manager) fn cancel_stream(&mut self, stream: StreamAddr) {
        if !self.cancel(Asker::Stream(stream)) {
            self.push(ToController::StreamGone(stream));
        }
    }

    /// Queues a request that came from this network. Returns the asker that has to be refused for want
    /// of room: another, or this one.
    pub(in crate::manager) fn ask(
        &mut self,
        network: IpAddr,
        asker: Asker,
        request: ToController,
    ) -> Option<Asker> {
        self.requests.add(network, asker, request)
    }

    /// The asker is gone. False: its request has been sent, if it had one.
    pub(in crate::manager) fn cancel(&mut self, asker: Asker) -> bool {
        self.requests.cancel(asker)
    }

    /// Takes out what these halves, and streams on them, ask for: they move to another thread.
    pub(in crate::manager) fn take(
        &mut self,
        halves: &BTreeSet<HalfAddr>,
    ) -> Vec<(Asker, ToController)> {
        self.requests.take(halves)
    }

    /// The next message, or the next request if there is no message and the controller is ready.
    pub(in crate::manager) fn next(&mut self, load: ControllerLoad) -> Option<ToController> {
        match (self.messages.pop_front(), load) {
            (None, ControllerLoad::Ready) => self.requests.next(),
            (message, _) => message,
        }
    }

    /// True if neither messages nor requests wait.
    pub(in crate::manager) fn is_empty(&self) -> bool {
        self.messages.is_empty() && !self.has_requests()
    }

    /// True if requests wait.
    pub(in crate::manager) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// The askers whose requests wait.
    pub(in crate::manager) fn askers(&self) -> impl Iterator<Item = Asker> {
        self.requests.askers()
    }

    /// Memory that this takes, about.
    pub(in crate::manager) fn memory(&self) -> usize {
        queue_memory::<ToController>(&self.messages) + self.requests.memory()
    }
}

/// Requests that wait.
#[derive(Debug, Default)]
struct Requests {
    /// By the network of the previous hop's address, and by circuit.
    shares: Shares<IpAddr, HalfAddr, (Asker, ToController)>,
    tickets: BTreeMap<Asker, Ticket>,
}

impl Requests {
    /// Nothing waits.
    fn is_empty(&self) -> bool {
        self.shares.is_empty()
    }

    /// Adds a request that came from this network. Returns the asker that has to be refused for want of
    /// room: another, or this one.
    fn add(&mut self, network: IpAddr, asker: Asker, request: ToController) -> Option<Asker> {
        // A half that asks again waits for nothing else any more.
        self.cancel(asker);
        let half = asker.half();
        match self
            .shares
            .admit(network, half, MAX_REQUESTS, (asker, request))
        {
            Ok(admitted) => {
                self.tickets.insert(asker, admitted.ticket);
                let (_, (displaced, _)) = admitted.displaced?;
                self.tickets.remove(&displaced);
                Some(displaced)
            }
            Err((asker, _)) => Some(asker),
        }
    }

    /// The asker is gone. False: its request has been sent, if it had one.
    fn cancel(&mut self, asker: Asker) -> bool {
        let ticket = self.tickets.remove(&asker);
        ticket.is_some_and(|ticket| self.shares.release(ticket).is_some())
    }

    /// Takes out what these halves, and streams on them, ask for.
    fn take(&mut self, halves: &BTreeSet<HalfAddr>) -> Vec<(Asker, ToController)> {
        let askers = self.tickets.keys().copied();
        let askers: Vec<Asker> = askers
            .filter(|asker| halves.contains(&asker.half()))
            .collect();
        let taken = askers.into_iter().filter_map(|asker| {
            let ticket = self.tickets.remove(&asker)?;
            self.shares.release(ticket)
        });
        taken.collect()
    }

    /// The next request to be sent.
    fn next(&mut self) -> Option<ToController> {
        let (asker, request) = self.shares.serve()?;
        self.tickets.remove(&asker);
        Some(request)
    }

    /// Askers whose requests wait.
    fn askers(&self) -> impl Iterator<Item = Asker> {
        self.tickets.keys().copied()
    }

    /// Memory that this takes, about.
    fn memory(&self) -> usize {
        /// The content of an onionskin or a name, on the heap.
        const CONTENT: usize = 256;
        let each = map_entry::<Asker, Ticket>()
            + 4 * map_entry::<Ticket, (Asker, ToController)>()
            + CONTENT;
        self.tickets.len() * each
    }
}

impl CellPath {
    /// Queues a request for the controller of a circuit that comes from this network. The request that finds no room is refused.
    pub(in crate::manager) fn ask(
        &mut self,
        network: IpAddr,
        asker: Asker,
        request: ToController,
        now: Instant,
    ) {
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

    /// A stream that the circuit asked for will not be opened.
    pub(in crate::manager) fn on_stream_refused(
        &mut self,
        stream: StreamAddr,
        end: &[u8],
        now: Instant,
    ) {
        if planted(Fault::RefusedStreamStays) {
            return;
        }
        let slot = self.halves.slot(stream.half);
        let left = self.left_of_new(slot);
        if self.end_deciding(stream, left, now) {
            self.send_relay_msg(slot, HopIndex::ORIGIN, RelayCmd::END, stream.id, end, now);
        }
    }

    /// Ends a stream that waits for a decision; its END or RESOLVED is sent next. `left`: what its far
    /// end may still send. False: this stream waits for none (any more).
    pub(in crate::manager) fn end_deciding(
        &mut self,
        stream: StreamAddr,
        left: Left,
        now: Instant,
    ) -> bool {
        let half = self.halves.at(stream.half);
        let Some(streams) = half.and_then(CircuitHalf::streams_mut) else {
            return false;
        };
        let Some(early) = streams.refuse(stream) else {
            return false;
        };
        streams.ended_at_once(stream.id, HopIndex::ORIGIN, left, now);
        for cell in early.into_cells() {
            self.pool.put(cell);
        }
        true
    }

    /// Messages that the far end of a refused stream may still send.
    pub(in crate::manager) fn left_of_new(&self, slot: HalfKey) -> Left {
        let half = self.halves.get(slot);
        let terms = half.and_then(|half| half.terms(HopIndex::ORIGIN));
        let vegas = terms.is_some_and(Terms::is_vegas);
        // An exit takes data only: whatever side this is, it is the same.
        self.params
            .stream_flow(Terms::new(vegas, false), Side::Exit)
            .left()
    }
}
