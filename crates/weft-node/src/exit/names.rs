//! Names that streams wait for: which of them name servers are being asked about, which wait for their
//! turn, and which give way.
//!
//! So many names are asked about at once as the DNS thread can; the others wait, and each previous hop,
//! in it each circuit, has its turn. Somebody whose names nobody answers holds places until time is up:
//! when another who holds fewer has a name, the oldest of his is asked no more and waits again. Those
//! that wait share a bound, too.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_core::address::{HalfAddr, StreamAddr};
use weft_share::{PreviousHop, Shares, Ticket};

use super::cache::Known;
use super::{Asked, Kind, Query, Waiter};

/// Names that may wait for their turn (C tor's resolver: 8192 names in all).
pub(super) const MAX_QUEUED: usize = 8192;
/// Streams that may wait for answers at once.
pub(super) const MAX_WAITING: usize = 1 << 16;

/// Whose share a name or a stream is part of: a circuit of a previous hop.
pub(super) type Owner = (PreviousHop, HalfAddr);

/// What is to be done.
#[derive(Debug)]
pub(super) enum Order {
    /// Ask name servers.
    Ask(Query),
    /// Ask no more; no answer is expected.
    Cancel(Query),
    /// The stream gave way.
    Refuse(Waiter),
}

/// A stream that waits.
#[derive(Debug)]
struct Waiting {
    name: Arc<[u8]>,
    owner: Owner,
    waiter: Waiter,
}

/// Where a name is.
#[derive(Debug)]
enum Place {
    /// Between the others.
    Nowhere,
    /// Waits for its turn.
    Queued(Ticket),
    /// Is being asked about.
    Asking(Ticket),
}

/// A name that is not known yet.
#[derive(Debug)]
pub(super) struct LookUp {
    since: Instant,
    /// What is known.
    pub(super) known: Known,
    /// What is still to come.
    pub(super) missing: Vec<Kind>,
    /// Whose share it is part of.
    owner: Owner,
    place: Place,
    waiters: BTreeSet<Ticket>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Names {
    look_ups: HashMap<Arc<[u8]>, LookUp>,
    waiting: Shares<PreviousHop, HalfAddr, Waiting>,
    tickets: BTreeMap<StreamAddr, Ticket>,
    queue: Shares<PreviousHop, HalfAddr, Arc<[u8]>>,
    asking: Shares<PreviousHop, HalfAddr, Arc<[u8]>>,
    at_once: usize,
    orders: VecDeque<Order>,
}

impl Names {
    /// None yet; so many are asked about at once.
    pub(super) fn new(at_once: usize) -> Self {
        Self {
            look_ups: HashMap::new(),
            waiting: Shares::default(),
            tickets: BTreeMap::new(),
            queue: Shares::default(),
            asking: Shares::default(),
            at_once,
            orders: VecDeque::new(),
        }
    }

    /// Has so many be asked about at once, at least one.
    pub(super) fn set_at_once(&mut self, at_once: usize) {
        self.at_once = at_once.max(1);
        self.go_on();
    }

    /// The next thing to do.
    pub(super) fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// Streams that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Names that are not known yet, and those of them that are being asked about.
    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize) {
        (self.look_ups.len(), self.asking.len())
    }

    /// Compares the tables with each other.
    pub(super) fn audit(&self) -> Result<(), String> {
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
                return Err("every stream that waits for a name is known to".to_owned());
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

    /// A name that is not known yet.
    pub(super) fn get_mut(&mut self, name: &[u8]) -> Option<&mut LookUp> {
        self.look_ups.get_mut(name)
    }

    /// Has a stream, which came by a hop, wait for what there is to know of a name.
    pub(super) fn wait(
        &mut self,
        name: Arc<[u8]>,
        missing: Vec<Kind>,
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
            Err(refused) => return self.orders.push_back(Order::Refuse(refused.waiter)),
        };
        if let Some((ticket, gone)) = admitted.displaced {
            self.tickets.remove(&gone.waiter.stream().addr);
            self.leave(&gone.name, ticket);
            self.orders.push_back(Order::Refuse(gone.waiter));
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

    /// A stream waits no more.
    pub(super) fn forget(&mut self, stream: StreamAddr) {
        if let Some(ticket) = self.tickets.remove(&stream)
            && let Some(gone) = self.waiting.release(ticket)
        {
            self.leave(&gone.name, ticket);
        }
    }

    /// All is known of a name that can be, or nothing will be: what is known, and who waited for it.
    pub(super) fn take(&mut self, name: &[u8]) -> Option<(Known, Vec<Waiter>)> {
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

    /// Those that waited for a name for so long, or longer.
    pub(super) fn expire(&mut self, most: Duration, now: Instant) -> Vec<Waiter> {
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

    /// A stream left a name. One that nobody waits for is not asked about, but an answer that is on its
    /// way is worth knowing.
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

    /// As many names as can be are asked about, each owner's in turn.
    fn go_on(&mut self) {
        while self.asking.len() < self.at_once
            && let Some(name) = self.queue.serve()
        {
            self.ask(name);
        }
    }

    /// Asks about a name, if it has a share of what is asked at once; otherwise it waits.
    fn ask(&mut self, name: Arc<[u8]>) {
        let Some(look_up) = self.look_ups.get_mut(&name) else {
            return;
        };
        let (hop, half) = look_up.owner;
        match self.asking.admit(hop, half, self.at_once, name) {
            Err(name) => self.enqueue(name),
            Ok(admitted) => {
                // Only one who holds less takes the place of what is being asked.
                self.asking.prove(admitted.ticket);
                look_up.place = Place::Asking(admitted.ticket);
                let name = self.asking.get(admitted.ticket);
                let ask = name.map(|name| queries(name, look_up)).unwrap_or_default();
                self.orders.extend(ask.into_iter().map(Order::Ask));
                if let Some((_, other)) = admitted.displaced {
                    if let Some(look_up) = self.look_ups.get_mut(&other) {
                        look_up.place = Place::Nowhere;
                        let cancel = queries(&other, look_up);
                        self.orders.extend(cancel.into_iter().map(Order::Cancel));
                    }
                    self.enqueue(other);
                }
            }
        }
    }

    /// Has a name wait for its turn; others may have to give way.
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

    /// The owner of a name loses it. If others wait for it, too, it is theirs.
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
            let refused = self.release(ticket).map(Order::Refuse);
            self.orders.extend(refused);
        }
    }
}

/// What is to be asked about a name.
fn queries(name: &Arc<[u8]>, look_up: &LookUp) -> Vec<Query> {
    let query = |kind: &Kind| Query {
        name: name.clone(),
        kind: *kind,
        asked: Asked::Stream,
    };
    look_up.missing.iter().map(query).collect()
}
