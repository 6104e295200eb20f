//! Messages for the controller, and what circuits of this thread ask of it and that has not been sent
//! yet: onionskins, extensions and streams.
//!
//! A controller that is behind takes no more than it can answer soon; the rest waits here, where each
//! address, and of an address each circuit, has its turn. So a flood of one client delays and displaces
//! its own requests. What ends while it waits is never sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use weft_share::{Shares, Ticket};

use crate::address::HalfAddr;
use crate::memory::ledger::{map_entry, queue_memory};
use crate::message::{Asker, ToController};

/// Requests that may wait on one thread: those of a second in which 4,000 circuits are made.
pub const MAX_REQUESTS: usize = 4096;

/// Whether the controller can take circuits' requests now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerLoad {
    /// Requests are sent.
    Ready,
    /// It has enough to do: requests wait, which circuits that exist do not notice.
    Busy,
}

/// What this thread sends to the controller.
///
/// Messages ([`push`](Self::push)) are sent in order and without a bound: each is the consequence of
/// something that was admitted. Requests ([`ask`](Self::ask)) are bounded and sent after them, fairly.
/// A request whose asker is gone must be taken back by [`cancel`](Self::cancel).
#[derive(Debug, Default)]
pub(super) struct ToControllerQueue {
    /// Oldest first.
    messages: VecDeque<ToController>,
    requests: Requests,
}

impl ToControllerQueue {
    /// Queues a message.
    pub(super) fn push(&mut self, message: ToController) {
        self.messages.push_back(message);
    }

    /// Queues a request that came from this network. Returns the asker that has to be refused for want
    /// of room: another, or this one.
    pub(super) fn ask(
        &mut self,
        network: IpAddr,
        asker: Asker,
        request: ToController,
    ) -> Option<Asker> {
        self.requests.add(network, asker, request)
    }

    /// The asker is gone. False: its request has been sent, if it had one.
    pub(super) fn cancel(&mut self, asker: Asker) -> bool {
        self.requests.cancel(asker)
    }

    /// Takes out what these halves, and streams on them, ask for: they move to another thread.
    pub(super) fn take(&mut self, halves: &BTreeSet<HalfAddr>) -> Vec<(Asker, ToController)> {
        self.requests.take(halves)
    }

    /// The next message, or the next request if there is no message and the controller is ready.
    pub(super) fn next(&mut self, load: ControllerLoad) -> Option<ToController> {
        match (self.messages.pop_front(), load) {
            (None, ControllerLoad::Ready) => self.requests.next(),
            (message, _) => message,
        }
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty() && !self.has_requests()
    }

    /// Whether requests wait.
    pub(super) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// The askers whose requests wait.
    pub(super) fn askers(&self) -> impl Iterator<Item = Asker> {
        self.requests.askers()
    }

    /// Memory that this takes, about.
    pub(super) fn memory(&self) -> usize {
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

    /// Those whose requests wait.
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
