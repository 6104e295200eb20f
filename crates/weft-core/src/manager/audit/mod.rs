//! Invariants of a connection manager between any two calls, and other state, for tests and
//! fuzzing.

mod edges;
mod legs;
mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::LocalConnectionManager;
use super::sure::sure;
use crate::address::{ConnectionId, HalfAddr, StreamAddr, ThreadId};
use crate::circuit::half::{CircuitHalf, ForwardStage, Peer, Purpose, Role};
use crate::message::Asker;
use crate::moves::routes;
use crate::slots::{HalfKey, LinkKey};
use crate::stream::table::Streams;
use crate::tunnel::{MAX_REORDER, MAX_WAITING, Policy};

/// The manager of the thread that a half is on, as far as the thread of an edge knows.
pub(super) fn manager_of<'a>(
    here: &LocalConnectionManager,
    all: &BTreeMap<ThreadId, &'a LocalConnectionManager>,
    half: HalfAddr,
) -> Option<&'a LocalConnectionManager> {
    match here.path.outboxes.routes.place(half) {
        routes::Place::Thread(thread) => all.get(&thread).copied(),
        routes::Place::OnItsWay => None,
    }
}

/// Read access to a manager's state for tests and fuzzing.
#[derive(Clone, Copy, Debug)]
pub struct Inspection<'a> {
    pub(super) manager: &'a LocalConnectionManager,
}

impl<'a> Inspection<'a> {
    /// Compares all tables with each other.
    ///
    /// # Errors
    ///
    /// What does not fit.
    pub fn audit(self) -> Result<(), String> {
        self.audit_links()?;
        self.audit_scheduler()?;
        self.audit_halves()?;
        sure(
            self.manager.path.is_settled(),
            "no message between halves and edges of this thread waits, and no half that has closed is to be forgotten",
        )?;
        self.audit_requests()?;
        sure(
            self.manager.path.activity.audit(&self.manager.path.halves),
            "every half that moved something lately is listed",
        )?;
        self.audit_subscribers()?;
        self.audit_circpad()?;
        self.audit_tunnels()?;
        Self::audit_streams(&[self.manager])
    }

    /// The links and the tables that list them and their halves.
    fn audit_links(self) -> Result<(), String> {
        // Once for all links: a node audits itself with thousands of them.
        let mut halves_on: BTreeMap<LinkKey, Vec<HalfKey>> = BTreeMap::new();
        for (slot, half) in self.manager.path.halves.iter() {
            halves_on.entry(half.link).or_default().push(slot);
        }
        sure(
            self.manager.path.links.connections() == self.manager.path.links.len(),
            "every link has one connection",
        )?;
        for (key, link) in self.manager.path.links.iter() {
            let slots = halves_on.get(&key).map(Vec::as_slice).unwrap_or_default();
            let mut on_it = slots
                .iter()
                .filter_map(|slot| self.manager.path.halves.get(*slot));
            let active = (on_it.clone())
                .filter(|half| !half.queue.is_empty())
                .count();
            sure(
                self.manager.path.links.of(link.connection) == Some(key),
                "a connection leads to its link",
            )?;
            sure(link.slots() == slots, "a link knows its halves, each once")?;
            sure(
                on_it.all(|half| link.has(half.circ_id)),
                "a link knows its halves' circuit ids",
            )?;
            sure(
                link.active_halves as usize == active,
                "a link counts its halves with cells",
            )?;
            sure(
                self.manager.path.links.lists(key, link),
                "a link is listed at the places that it has noted",
            )?;
            sure(
                link.listed.is_some() || link.is_empty(),
                "a link with something to write is listed",
            )?;
            sure(
                link.is_listed_to_write() || !link.has_to_write(),
                "a link with something to write itself is listed as such",
            )?;
            sure(
                link.idle_since.is_some() == slots.is_empty(),
                "a link is idle without circuits only",
            )?;
        }
        sure(
            self.manager.path.links.lists_no_others(),
            "only links are listed, each once",
        )?;
        sure(
            self.manager.path.halves.iter().all(|(_, half)| {
                let tunnel = matches!(half.role, Role::Tunnel(_));
                tunnel != self.manager.path.links.get(half.link).is_some()
            }),
            "every half but a tunnel has a link",
        )?;
        sure(
            self.manager.path.halves.circuits()
                == self
                    .manager
                    .path
                    .halves
                    .iter()
                    .filter(|(_, half)| half.has_keys())
                    .count(),
            "circuits are counted by their halves with keys",
        )
    }

    /// The scheduler's list of links.
    fn audit_scheduler(self) -> Result<(), String> {
        let scheduled: BTreeSet<LinkKey> = self
            .manager
            .path
            .scheduler
            .waiting_links()
            .iter()
            .copied()
            .collect();
        let active: BTreeSet<LinkKey> = self
            .manager
            .path
            .links
            .iter()
            .filter(|(_, link)| link.active_halves > 0)
            .map(|(key, _)| key)
            .collect();
        sure(
            scheduled == active,
            "the scheduler knows the links with cells, and no others",
        )
    }

    /// The queues of halves, and what halves wait for.
    fn audit_halves(self) -> Result<(), String> {
        let waits: BTreeSet<(HalfAddr, u32)> = (self.manager.path.waits.iter())
            .map(|wait| (wait.half, wait.extension))
            .collect();
        for (slot, half) in self.manager.path.halves.iter() {
            let bound = match half.role {
                Role::Backward(_) => self.manager.path.params.max_queue_backward,
                Role::Forward(_) | Role::Origin(_) => self.manager.path.params.max_queue_forward,
                // It sends on other halves.
                Role::Tunnel(_) => 0,
            };
            sure(half.queue.len() <= bound, "a queue keeps to its bound")?;
            sure(
                !half.blocked || half.queue.len() > self.manager.path.params.queue_low,
                "the streams of a circuit go on once its queue has room again",
            )?;
            let awaited = match &half.role {
                Role::Backward(backward) if backward.crypt.is_none() => Some(0),
                Role::Backward(backward) if half.peer == Peer::Extending => {
                    Some(backward.extension)
                }
                Role::Forward(forward) if forward.stage == ForwardStage::AwaitingCreated => Some(0),
                _ => None,
            };
            let addr = self.manager.path.halves.addr(slot);
            let ends = |extension| addr.is_some_and(|addr| waits.contains(&(addr, extension)));
            sure(awaited.is_none_or(ends), "every wait ends")?;
        }
        sure(
            self.manager
                .path
                .waits
                .iter()
                .is_sorted_by_key(|wait| wait.deadline),
            "waits are in order",
        )
    }

    /// Legs and tunnels of this thread know each other, and nothing is sent past a leg.
    fn audit_tunnels(self) -> Result<(), String> {
        for (slot, half) in self.manager.path.halves.iter() {
            let Some(addr) = self.manager.path.halves.addr(slot) else {
                continue;
            };
            if let Some(tunnel) = half.leg.as_ref().and_then(|leg| leg.tunnel)
                && self.manager.path.outboxes.is_here(tunnel)
            {
                let knows =
                    self.manager
                        .path
                        .halves
                        .peek(tunnel)
                        .is_some_and(|half| match &half.role {
                            Role::Tunnel(tunnel) => tunnel.legs.iter().any(|leg| leg.half == addr),
                            _ => false,
                        });
                sure(knows, "the tunnel of a leg knows it")?;
            }
            if let Role::Tunnel(tunnel) = &half.role {
                let legs = tunnel
                    .legs
                    .iter()
                    .filter(|leg| self.manager.path.outboxes.is_here(leg.half));
                let mut sides = legs.map(|leg| self.manager.path.halves.peek(leg.half));
                sure(
                    sides.all(|side| {
                        let leg = side.and_then(|half| half.leg.as_ref());
                        leg.is_some_and(|leg| leg.tunnel == Some(addr))
                    }),
                    "each leg of a tunnel is one",
                )?;
            }
            if let Role::Tunnel(tunnel) = &half.role {
                sure(
                    tunnel.legs.audit(),
                    "copies of a tunnel's messages fit to its legs",
                )?;
                sure(
                    tunnel.reorder.len() <= MAX_REORDER && tunnel.waiting.len() <= MAX_WAITING,
                    "what waits at a tunnel is bounded",
                )?;
            }
            let watched = match &half.role {
                Role::Tunnel(tunnel) => tunnel.policy == Policy::Mtor,
                _ => false,
            };
            sure(
                watched == self.manager.watched.contains(addr),
                "tunnels of mTor are watched, and nothing else",
            )?;
            let own = half.leg.is_some().then(|| half.streams()).flatten();
            sure(
                own.is_none_or(Streams::is_unused),
                "a leg has no streams of its own",
            )?;
        }
        Ok(())
    }

    /// Each request that waits for the controller has an asker.
    fn audit_requests(self) -> Result<(), String> {
        if !self.manager.path.to_controller.has_requests() {
            return Ok(());
        }
        let deciding: BTreeSet<StreamAddr> = self.deciding().collect();
        let mut askers = self.manager.path.to_controller.askers();
        let lives = askers.all(|asker| match asker {
            Asker::Half(half) => self.manager.path.halves.peek(half).is_some(),
            Asker::Stream(stream) => deciding.contains(&stream),
        });
        sure(lives, "the asker of each request exists")
    }

    /// True if a link's socket has not accepted all bytes, as far as this manager knows.
    pub fn is_held(self, link: LinkKey) -> bool {
        self.manager
            .path
            .links
            .get(link)
            .is_some_and(|link| link.held)
    }

    /// Halves that wait for the answer to their onionskins.
    pub fn awaiting_keys(self) -> usize {
        let waits = |half: &CircuitHalf| matches!(&half.role, Role::Backward(backward) if backward.crypt.is_none());
        self.manager
            .path
            .halves
            .iter()
            .filter(|(_, half)| waits(half))
            .count()
    }

    /// True if no message of this thread waits for another thread, the controller, or a link that moves.
    pub fn is_quiet(self) -> bool {
        self.manager.path.outboxes.are_empty()
            && self.manager.path.to_controller.is_empty()
            && !self.is_transferring()
    }

    /// Times of links: how long each has had no circuit, and for how long nothing was written to it where padding has to be, as
    /// nothing else waits and this node is the peer's client.
    pub fn link_times(
        self,
        now: Instant,
    ) -> impl Iterator<Item = (ConnectionId, Option<Duration>, Option<Duration>)> + 'a {
        self.manager.path.links.iter().map(move |(_, link)| {
            let since = |then: Instant| now.saturating_duration_since(then);
            let pads = link.role.is_client() && link.is_empty() && link.padding.is_on();
            let silent = pads.then(|| since(link.last_written));
            (link.connection, link.idle_since.map(since), silent)
        })
    }

    /// The circuit ids on a link.
    pub fn circuit_ids(self, link: LinkKey) -> impl Iterator<Item = u32> + 'a {
        let halves = self
            .manager
            .path
            .halves
            .iter()
            .filter(move |(_, half)| half.link == link);
        halves.map(|(_, half)| half.circ_id)
    }

    /// Every half, and the half that it is joined to.
    pub fn joints(self) -> Vec<(HalfAddr, Option<HalfAddr>)> {
        self.manager
            .path
            .halves
            .iter()
            .filter_map(|(slot, half)| {
                let peer = match half.peer {
                    Peer::Joined(peer) => Some(peer),
                    Peer::None | Peer::Extending => None,
                };
                Some((self.manager.path.halves.addr(slot)?, peer))
            })
            .collect()
    }

    /// True if this thread knows of a transfer that is under way.
    pub fn is_transferring(self) -> bool {
        self.manager.transfers.is_under_way() || self.manager.path.outboxes.routes.is_freezing()
    }

    /// Halves of which this thread knows that they are not where they were made.
    pub fn routes(self) -> usize {
        self.manager.path.outboxes.routes.len()
    }

    /// Circuits that asked for the relay's weight are backward halves that live here.
    fn audit_subscribers(self) -> Result<(), String> {
        let asks = |half| match self.manager.path.halves.peek(half).map(|half| &half.role) {
            Some(Role::Backward(backward)) => backward.purpose != Purpose::Rendezvous,
            _ => false,
        };
        sure(
            self.manager.abra.subscribers().all(asks),
            "only halves that may ask for the weight are listed",
        )
    }

    /// Padding machines are of backward halves that live here.
    fn audit_circpad(self) -> Result<(), String> {
        let live = |half| {
            let half = self.manager.path.halves.peek(half);
            half.is_some_and(|half| matches!(half.role, Role::Backward(_)))
        };
        let machines = &self.manager.circpad.machines;
        sure(
            machines.halves().all(live),
            "padding machines are of circuits that live",
        )?;
        sure(
            machines.audit(),
            "padding machines are listed by when they are due",
        )
    }
}

impl LocalConnectionManager {
    /// Read access for tests and fuzzing.
    pub fn inspect(&self) -> Inspection<'_> {
        Inspection { manager: self }
    }
}
