//! The names that streams wait for: which are being looked up, which wait, and which are displaced.
//!
//! As many names are looked up at once as the DNS thread can handle. The others wait; previous hops, and
//! circuits within each, take turns. A circuit whose names no server answers holds places until they time
//! out: when another circuit that holds fewer places has a name, the oldest query of the first is cancelled
//! and waits again. The number of waiting names is bounded and shared, too.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_core::address::{HalfAddr, StreamAddr};
use weft_share::{PreviousHop, Shares, Ticket};

use crate::action::Waiter;
use crate::cache::Known;
use crate::query::{Query, QueryKind, QueryPurpose};

/// Names that may wait, at most (C tor's resolver: 8192 names in all).
pub(crate) const MAX_QUEUED: usize = 8192;
/// Streams that may wait for answers at once, at most.
pub(crate) const MAX_WAITING: usize = 1 << 16;

/// The owner of a name or a stream for its share: a circuit of a previous hop.
pub(crate) type Owner = (PreviousHop, HalfAddr);

/// An action for [`Exits`](crate::Exits).
#[derive(Debug)]
pub(crate) enum NameAction {
    /// Send the query.
    Ask(Query),
    /// Cancel the query; no answer is expected.
    Cancel(Query),
    /// Refuse the stream: it was displaced.
    Refuse(Waiter),
}

/// A stream that waits.
#[derive(Debug)]
struct Waiting {
    name: Arc<[u8]>,
    owner: Owner,
    waiter: Waiter,
}

/// The state of a name.
#[derive(Debug)]
enum Place {
    /// Between the other states.
    Nowhere,
    /// Waits for a place among the lookups.
    Queued(Ticket),
    /// Is being looked up.
    Asking(Ticket),
}

/// The lookup of a name.
#[derive(Debug)]
pub(crate) struct LookUp {
    since: Instant,
    /// The answers so far.
    pub(crate) known: Known,
    /// The queries without an answer.
    pub(crate) missing: Vec<QueryKind>,
    /// The owner of its share.
    owner: Owner,
    place: Place,
    waiters: BTreeSet<Ticket>,
}

/// The names that are looked up or wait, and the streams that wait for them.
#[derive(Debug)]
pub(crate) struct Names {
    look_ups: HashMap<Arc<[u8]>, LookUp>,
    waiting: Shares<PreviousHop, HalfAddr, Waiting>,
    tickets: BTreeMap<StreamAddr, Ticket>,
    queue: Shares<PreviousHop, HalfAddr, Arc<[u8]>>,
    asking: Shares<PreviousHop, HalfAddr, Arc<[u8]>>,
    at_once: usize,
    actions: VecDeque<NameAction>,
}

impl Names {
    /// A state without names; at most `at_once` are looked up at once.
    pub(crate) fn new(at_once: usize) -> Self {
        Self {
            look_ups: HashMap::new(),
            waiting: Shares::default(),
            tickets: BTreeMap::new(),
            queue: Shares::default(),
            asking: Shares::default(),
            at_once,
            actions: VecDeque::new(),
        }
    }

    /// Sets how many names are looked up at once, at least one.
    pub(crate) fn set_at_once(&mut self, at_once: usize) {
        self.at_once = at_once.max(1);
        self.go_on();
    }

    /// The next action, in order.
    pub(crate) fn poll_action(&mut self) -> Option<NameAction> {
        self.actions.pop_front()
    }

    /// Streams that wait.
    pub(crate) fn streams(&self) -> impl Iterator<Item = StreamAddr> {
        self.tickets.keys().copied()
    }

    /// The number of streams that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Names that are not known yet, and those of them that are being asked about.
    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.look_ups.len(), self.asking.len())
    }

    /// Compares the tables with each other.
    pub(crate) fn audit(&self) -> Result<(), String> {
        let (mut waiters, mut queued, mut asking) = (0, 0, 0);
        for (name, look_up) in &self.look_ups {
            waiters += look_up.waiters.len();
            let known = look_up.waiters.iter().all(|ticket| {
                self.waiting.get(*ticket).is_some_and(|waiting| {
                    let stream = waiting.waiter.stream().addr;
                    waiting.name == *name && self.tickets.get(&stream) == Some(ticket)
                })
            });
            if !known || look_up.missing.is_empty() {
                return Err("each stream that waits for a name is listed there".to_owned());
            }
            let place = match look_up.place {
                Place::Nowhere => None,
                Place::Queued(ticket) => {
                    queued += 1;
                    self.queue.get(ticket)
                }
                Place::Asking(ticket) => {
                    asking += 1;
                    self.asking.get(ticket)
                }
            };
            if place != Some(name) {
                return Err("every name has its place".to_owned());
            }
        }
        if (waiters, waiters) != (self.waiting.len(), self.tickets.len()) {
            return Err("every stream that waits is counted, once".to_owned());
        }
        if (queued, asking) != (self.queue.len(), self.asking.len()) {
            return Err("every name is counted, once".to_owned());
        }
        Ok(())
    }

    /// The lookup of this name.
    pub(crate) fn get_mut(&mut self, name: &[u8]) -> Option<&mut LookUp> {
        self.look_ups.get_mut(name)
    }

    /// Lets a stream from previous hop `hop` wait for the answers about a name.
    pub(crate) fn wait(
        &mut self,
        name: Arc<[u8]>,
        missing: Vec<QueryKind>,
        hop: PreviousHop,
        waiter: Waiter,
        now: Instant,
    ) {
        let stream = waiter.stream().addr;
        self.forget(stream);
        let owner = (hop, stream.half);
        let waiting = Waiting {
            name: name.clone(),
            owner,
            waiter,
        };
        let admitted = match self.waiting.admit(hop, stream.half, MAX_WAITING, waiting) {
            Ok(admitted) => admitted,
            Err(refused) => return self.actions.push_back(NameAction::Refuse(refused.waiter)),
        };
        if let Some((ticket, gone)) = admitted.displaced {
            self.tickets.remove(&gone.waiter.stream().addr);
            self.leave(&gone.name, ticket);
            self.actions.push_back(NameAction::Refuse(gone.waiter));
        }
        self.tickets.insert(stream, admitted.ticket);
        if let Some(look_up) = self.look_ups.get_mut(&name) {
            look_up.waiters.insert(admitted.ticket);
            return;
        }
        let known = Known {
            ttl: u32::MAX,
            ..Known::default()
        };
        let look_up = LookUp {
            since: now,
            known,
            missing,
            owner,
            place: Place::Nowhere,
            waiters: BTreeSet::from([admitted.ticket]),
        };
        self.look_ups.insert(name.clone(), look_up);
        self.ask(name);
    }

    /// Removes a stream.
    pub(crate) fn forget(&mut self, stream: StreamAddr) {
        if let Some(ticket) = self.tickets.remove(&stream)
            && let Some(gone) = self.waiting.release(ticket)
        {
            self.leave(&gone.name, ticket);
        }
    }

    /// Removes a name whose lookup is complete or displaced. Returns the answers, and the streams that waited.
    pub(crate) fn take(&mut self, name: &[u8]) -> Option<(Known, Vec<Waiter>)> {
        let look_up = self.look_ups.remove(name)?;
        match look_up.place {
            Place::Nowhere => {}
            Place::Queued(ticket) => {
                self.queue.release(ticket);
            }
            Place::Asking(ticket) => {
                self.asking.release(ticket);
            }
        }
        let waiters = look_up.waiters.into_iter();
        let waiters = waiters.filter_map(|ticket| self.release(ticket)).collect();
        self.go_on();
        Some((look_up.known, waiters))
    }

    /// Removes and returns the streams that have waited for this time or longer.
    pub(crate) fn expire(&mut self, most: Duration, now: Instant) -> Vec<Waiter> {
        let late = |look_up: &LookUp| now.saturating_duration_since(look_up.since) >= most;
        let late = self.look_ups.iter().filter(|(_, look_up)| late(look_up));
        let mut names: Vec<_> = late.map(|(name, _)| name.clone()).collect();
        names.sort();
        let taken = names.iter().filter_map(|name| self.take(name));
        taken.flat_map(|(_, waiters)| waiters).collect()
    }

    fn release(&mut self, ticket: Ticket) -> Option<Waiter> {
        let Waiting { waiter, .. } = self.waiting.release(ticket)?;
        self.tickets.remove(&waiter.stream().addr);
        Some(waiter)
    }

    /// Handles a stream that no longer waits for a name. A name without streams is not looked up; a query
    /// under way continues, as its answer is worth caching.
    fn leave(&mut self, name: &Arc<[u8]>, ticket: Ticket) {
        let Some(look_up) = self.look_ups.get_mut(name) else {
            return;
        };
        look_up.waiters.remove(&ticket);
        if look_up.waiters.is_empty()
            && let Place::Queued(place) = look_up.place
        {
            self.queue.release(place);
            self.look_ups.remove(name);
        }
    }

    /// Starts lookups of waiting names while there are places, by turns of owners.
    fn go_on(&mut self) {
        while self.asking.len() < self.at_once
            && let Some(name) = self.queue.serve()
        {
            self.ask(name);
        }
    }

    /// Starts a name's lookup, if its owner's share has a place; otherwise the name waits.
    fn ask(&mut self, name: Arc<[u8]>) {
        let Some(look_up) = self.look_ups.get_mut(&name) else {
            return;
        };
        let (hop, half) = look_up.owner;
        match self.asking.admit(hop, half, self.at_once, name) {
            Err(name) => self.enqueue(name),
            Ok(admitted) => {
                // Only an owner that holds fewer places may displace a query under way.
                self.asking.prove(admitted.ticket);
                look_up.place = Place::Asking(admitted.ticket);
                let name = self.asking.get(admitted.ticket);
                let ask = name.map(|name| queries(name, look_up)).unwrap_or_default();
                self.actions.extend(ask.into_iter().map(NameAction::Ask));
                if let Some((_, other)) = admitted.displaced {
                    if let Some(look_up) = self.look_ups.get_mut(&other) {
                        look_up.place = Place::Nowhere;
                        let cancel = queries(&other, look_up);
                        self.actions
                            .extend(cancel.into_iter().map(NameAction::Cancel));
                    }
                    self.enqueue(other);
                }
            }
        }
    }

    /// Lets a name wait; it may displace others.
    fn enqueue(&mut self, mut name: Arc<[u8]>) {
        while let Some(look_up) = self.look_ups.get_mut(&name) {
            let (hop, half) = look_up.owner;
            let Ok(admitted) = self.queue.admit(hop, half, MAX_QUEUED, name) else {
                return;
            };
            look_up.place = Place::Queued(admitted.ticket);
            let Some((_, other)) = admitted.displaced else {
                return;
            };
            self.give_up(&other);
            name = other;
        }
    }

    /// Removes a name from its owner. If streams of others wait for it, too, it becomes theirs.
    fn give_up(&mut self, name: &Arc<[u8]>) {
        let Some(look_up) = self.look_ups.get_mut(name) else {
            return;
        };
        look_up.place = Place::Nowhere;
        let owner = look_up.owner;
        let (mut lost, mut next) = (Vec::new(), None);
        for ticket in &look_up.waiters {
            match self.waiting.get(*ticket).map(|waiting| waiting.owner) {
                Some(other) if other != owner => next = next.or(Some(other)),
                _ => lost.push(*ticket),
            }
        }
        for ticket in &lost {
            look_up.waiters.remove(ticket);
        }
        match next {
            Some(next) => look_up.owner = next,
            None => {
                self.look_ups.remove(name);
            }
        }
        for ticket in lost {
            let refused = self.release(ticket).map(NameAction::Refuse);
            self.actions.extend(refused);
        }
    }
}

/// The queries for a name.
fn queries(name: &Arc<[u8]>, look_up: &LookUp) -> Vec<Query> {
    let query = |kind: &QueryKind| Query {
        name: name.clone(),
        kind: *kind,
        purpose: QueryPurpose::Stream,
    };
    look_up.missing.iter().map(query).collect()
}

#[cfg(test)]
mod tests {
    use weft_cell::identity::RsaIdentity;
    use weft_core::address::ThreadId;
    use weft_core::flow::Terms;
    use weft_core::stream::edge::StreamAt;

    use super::*;

    /// Two names, of which one is looked up and one waits; a stream waits for each.
    fn names() -> Names {
        let mut names = Names::new(1);
        for id in [1, 2] {
            let half = HalfAddr {
                thread: ThreadId(0),
                slot: weft_core::slots::HalfKey(1),
                generation: 0,
            };
            let addr = StreamAddr {
                half,
                id,
                generation: 0,
            };
            let stream = StreamAt {
                addr,
                terms: Terms::Windows,
            };
            let hop = PreviousHop::Relay(RsaIdentity([1; 20]));
            let name = format!("n{id}").into_bytes().into();
            let waiter = Waiter::Resolve { stream };
            names.wait(name, vec![QueryKind::V4], hop, waiter, Instant::now());
        }
        names
    }

    #[test]
    fn an_audit_finds_each_table_that_has_lost_an_entry() {
        assert_eq!(names().audit(), Ok(()));
        let losses: [fn(&mut Names); 9] = [
            |names| {
                names.look_ups.remove(&b"n1"[..]);
            },
            |names| {
                names.look_ups.remove(&b"n2"[..]);
            },
            |names| names.tickets.clear(),
            |names| names.waiting = Shares::default(),
            |names| names.queue = Shares::default(),
            |names| names.asking = Shares::default(),
            |names| names.get_mut(b"n1").unwrap().missing.clear(),
            |names| names.get_mut(b"n1").unwrap().waiters.clear(),
            |names| names.get_mut(b"n1").unwrap().place = Place::Nowhere,
        ];
        for (number, lose) in losses.into_iter().enumerate() {
            let mut names = names();
            lose(&mut names);
            assert!(names.audit().is_err(), "{number}");
        }
    }

    #[test]
    fn an_audit_finds_a_stream_that_waits_under_another_name() {
        let mut names = names();
        let ticket = *names.get_mut(b"n1").unwrap().waiters.first().unwrap();
        let other = *names.get_mut(b"n2").unwrap().waiters.first().unwrap();
        names.get_mut(b"n1").unwrap().waiters = BTreeSet::from([other]);
        names.get_mut(b"n2").unwrap().waiters = BTreeSet::from([ticket]);
        assert!(names.audit().is_err());
    }
}
