//! What must hold of a connection manager between any two calls, for tests and fuzzing to check.

use std::collections::BTreeSet;

use super::LocalConnectionManager;
use crate::address::HalfAddr;
use crate::half::{Away, Peer, Role};
use crate::scheduler::LinkKey;

impl LocalConnectionManager {
    /// Compares all tables with each other.
    ///
    /// # Errors
    ///
    /// What does not fit.
    pub fn audit(&self) -> Result<(), String> {
        let key_of = |key: usize| LinkKey::try_from(key).unwrap_or(LinkKey::MAX);
        let sure = |holds: bool, what: &str| if holds { Ok(()) } else { Err(what.to_owned()) };

        sure(
            self.by_connection.len() == self.links.len(),
            "every link has one connection",
        )?;
        for (key, link) in &self.links {
            let key = key_of(key);
            let on_it = || self.halves.iter().filter(move |(_, half)| half.link == key);
            let mut slots: Vec<u32> = on_it().map(|(slot, _)| slot).collect();
            slots.sort_unstable();
            let active = on_it().filter(|(_, half)| !half.queue.is_empty()).count();
            let listed = self.to_write.iter().filter(|other| **other == key).count();
            sure(
                self.link_of(link.connection) == Some(key),
                "a connection leads to its link",
            )?;
            sure(link.slots() == slots, "a link knows its halves, each once")?;
            sure(
                on_it().all(|(_, half)| link.has(half.circ_id)),
                "a link knows its halves' circuit ids",
            )?;
            sure(
                link.active_halves == active,
                "a link counts its halves with cells",
            )?;
            sure(
                listed == usize::from(link.listed),
                "a link is listed once, if it says so",
            )?;
            sure(
                link.listed || link.is_empty(),
                "a link with something to write is listed",
            )?;
            sure(
                link.idle_since.is_some() == slots.is_empty(),
                "a link is idle without circuits only",
            )?;
        }
        sure(
            self.to_write
                .iter()
                .all(|key| self.links.contains(*key as usize)),
            "only links are listed",
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
            let ends = |extension| {
                self.waits
                    .iter()
                    .any(|wait| Some(wait.half) == addr && wait.extension == extension)
            };
            sure(awaited.is_none_or(ends), "every wait ends")?;
        }
        sure(
            self.waits.iter().is_sorted_by_key(|wait| wait.deadline),
            "waits are in order",
        )?;
        sure(
            self.local_control.is_empty(),
            "this thread's halves have heard each other",
        )
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
