//! What must hold of a connection manager between any two calls, for tests and fuzzing to check.

mod streams;

use std::collections::{BTreeMap, BTreeSet};

use super::LocalConnectionManager;
use super::requests::Asker;
use crate::address::{HalfAddr, StreamAddr};
use crate::half::{Away, Peer, Role};
use crate::scheduler::LinkKey;

/// Nothing, or what does not hold.
fn sure(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

impl LocalConnectionManager {
    /// Compares all tables with each other.
    ///
    /// # Errors
    ///
    /// What does not fit.
    pub fn audit(&self) -> Result<(), String> {
        let key_of = |key: usize| LinkKey::try_from(key).unwrap_or(LinkKey::MAX);
        // Once for all links: a node audits itself with thousands of them.
        let mut halves_on: BTreeMap<LinkKey, Vec<u32>> = BTreeMap::new();
        for (slot, half) in self.halves.iter() {
            halves_on.entry(half.link).or_default().push(slot);
        }
        let to_write = self.to_write.as_slice();

        sure(
            self.by_connection.len() == self.links.len(),
            "every link has one connection",
        )?;
        for (key, link) in &self.links {
            let key = key_of(key);
            let slots = halves_on.get(&key).map(Vec::as_slice).unwrap_or_default();
            let mut on_it = slots.iter().filter_map(|slot| self.halves.get(*slot));
            let active = (on_it.clone())
                .filter(|half| !half.queue.is_empty())
                .count();
            sure(
                self.link_of(link.connection) == Some(key),
                "a connection leads to its link",
            )?;
            sure(link.slots() == slots, "a link knows its halves, each once")?;
            sure(
                on_it.all(|half| link.has(half.circ_id)),
                "a link knows its halves' circuit ids",
            )?;
            sure(
                link.active_halves == active,
                "a link counts its halves with cells",
            )?;
            sure(
                (link.listed).is_none_or(|place| to_write.get(place) == Some(&key)),
                "a link is listed where it says",
            )?;
            sure(
                link.listed.is_some() || link.is_empty(),
                "a link with something to write is listed",
            )?;
            sure(
                link.idle_since.is_some() == slots.is_empty(),
                "a link is idle without circuits only",
            )?;
        }
        sure(
            to_write.len() == (self.links.iter().filter(|(_, link)| link.listed.is_some())).count(),
            "only links are listed, each once",
        )?;
        sure(
            self.halves
                .iter()
                .all(|(_, half)| self.links.contains(half.link as usize)),
            "every half has a link",
        )?;
        sure(
            self.circuits()
                == self
                    .halves
                    .iter()
                    .filter(|(_, half)| half.has_keys())
                    .count(),
            "circuits are counted by their halves with keys",
        )?;
        let scheduled: BTreeSet<LinkKey> = self.scheduler.waiting_links().iter().copied().collect();
        let active: BTreeSet<LinkKey> = self
            .links
            .iter()
            .filter(|(_, link)| link.active_halves > 0)
            .map(|(key, _)| key_of(key))
            .collect();
        sure(
            scheduled == active,
            "the scheduler knows the links with cells, and no others",
        )?;
        let waits: BTreeSet<(HalfAddr, u32)> = (self.waits.iter())
            .map(|wait| (wait.half, wait.extension))
            .collect();
        for (slot, half) in self.halves.iter() {
            let bound = match half.role {
                Role::TowardOrigin(_) => self.params.max_queue_toward,
                Role::AwayFromOrigin(_) | Role::Origin(_) => self.params.max_queue_away,
            };
            sure(half.queue.len() <= bound, "a queue keeps to its bound")?;
            let awaited = match &half.role {
                Role::TowardOrigin(toward) if toward.crypt.is_none() => Some(0),
                Role::TowardOrigin(toward) if half.peer == Peer::Extending => {
                    Some(toward.extension)
                }
                Role::AwayFromOrigin(Away::AwaitingCreated) => Some(0),
                _ => None,
            };
            let addr = self.halves.addr(slot);
            let ends = |extension| addr.is_some_and(|addr| waits.contains(&(addr, extension)));
            sure(awaited.is_none_or(ends), "every wait ends")?;
        }
        sure(
            self.waits.iter().is_sorted_by_key(|wait| wait.deadline),
            "waits are in order",
        )?;
        sure(
            self.local_control.is_empty(),
            "this thread's halves have heard each other",
        )?;
        self.audit_requests()?;
        Self::audit_streams(&[self])
    }

    /// What waits for the controller is for somebody.
    fn audit_requests(&self) -> Result<(), String> {
        if self.requests.is_empty() {
            return Ok(());
        }
        let deciding: BTreeSet<StreamAddr> = self.deciding().collect();
        let mut askers = self.requests.askers();
        let lives = askers.all(|asker| match asker {
            Asker::Half(half) => self.halves.addr(half.slot) == Some(half),
            Asker::Stream(stream) => deciding.contains(&stream),
        });
        sure(lives, "whoever asks the controller is there")
    }

    /// Every half, and the half that it is joined to.
    pub fn joints(&self) -> Vec<(HalfAddr, Option<HalfAddr>)> {
        self.halves
            .iter()
            .filter_map(|(slot, half)| {
                let peer = match half.peer {
                    Peer::Joined(peer) => Some(peer),
                    Peer::None | Peer::Extending => None,
                };
                Some((self.halves.addr(slot)?, peer))
            })
            .collect()
    }
}
