//! The outer end of a stream, and the table of those that a thread has: an exit's connections to destinations, and the
//! streams of a client's user.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use slab::Slab;
use weft_core::address::ConnectionId;
use weft_core::manager::LocalConnectionManager;
use weft_core::slots::{EdgeKey, SlotKey as _};
use weft_model::hosts::ConnId;

use super::app::{App, Finished};

/// A connection to a destination.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) conn: ConnId,
    /// Its address, until it is connected.
    pub(super) connecting: Option<(IpAddr, u32)>,
    pub(super) readable: bool,
    pub(super) writable: bool,
    pub(super) broken: bool,
}

#[derive(Debug)]
pub(super) enum Outer {
    Socket(Socket),
    App(Box<App>),
}

#[derive(Debug)]
pub(super) struct Edge {
    pub(super) id: ConnectionId,
    pub(super) key: EdgeKey,
    pub(super) outer: Outer,
    pub(super) listed: bool,
}

/// The edges of a thread.
#[derive(Debug, Default)]
pub(super) struct Edges {
    pub(super) all: Slab<Edge>,
    pub(super) by_id: BTreeMap<ConnectionId, usize>,
    /// By the manager's slot.
    by_edge: Vec<Option<usize>>,
    pub(super) to_read: VecDeque<usize>,
    /// Edges that wait for bandwidth, or for the rate that the far end's XON set.
    pub(super) resting: Vec<(u64, usize)>,
    /// When users' streams are looked at.
    pub(super) timers: BTreeSet<(u64, usize)>,
    pub(super) finished: Vec<Finished>,
    /// Users take nothing: something is wrong with them, or they rest.
    pub(super) deaf: bool,
    pub(super) rests: bool,
    pub(super) scratch: Vec<u8>,
    pub(super) writing: Vec<EdgeKey>,
}

impl Edges {
    /// Some may be read at once.
    pub(super) fn is_ready(&self) -> bool {
        !self.to_read.is_empty()
    }

    /// When one needs a turn without anything having happened, in nanoseconds.
    pub(super) fn next_time(&self) -> Option<u64> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let resting = self.resting.iter().map(|(at, _)| *at).min();
        timer.into_iter().chain(resting).min()
    }

    /// The streams of the user's that are over.
    pub(super) fn take_finished(&mut self) -> Vec<Finished> {
        std::mem::take(&mut self.finished)
    }

    pub(super) fn list(&mut self, place: usize) {
        if let Some(edge) = self.all.get_mut(place)
            && !edge.listed
        {
            edge.listed = true;
            self.to_read.push_back(place);
        }
    }

    pub(super) fn place_of(&self, key: EdgeKey) -> Option<usize> {
        self.by_edge.get(key.index()).copied().flatten()
    }

    pub(super) fn insert(&mut self, id: ConnectionId, key: EdgeKey, outer: Outer) -> usize {
        let place = self.all.insert(Edge {
            id,
            key,
            outer,
            listed: false,
        });
        self.by_id.insert(id, place);
        let index = key.index();
        if self.by_edge.len() <= index {
            self.by_edge.resize(index + 1, None);
        }
        if let Some(entry) = self.by_edge.get_mut(index) {
            *entry = Some(place);
        }
        place
    }

    /// Takes an edge out.
    pub(super) fn remove(&mut self, place: usize) -> Option<Outer> {
        let edge = self.all.try_remove(place)?;
        self.by_id.remove(&edge.id);
        if let Some(entry) = self.by_edge.get_mut(edge.key.index())
            && *entry == Some(place)
        {
            *entry = None;
        }
        if let Outer::App(app) = &edge.outer
            && let Some(at) = app.timer
        {
            self.timers.remove(&(at, place));
        }
        Some(edge.outer)
    }

    /// Compares the edges with the manager's.
    ///
    /// # Errors
    ///
    /// What does not fit.
    pub(super) fn check(&self, manager: &LocalConnectionManager) -> Result<(), String> {
        for (place, edge) in &self.all {
            let id = edge.id;
            if self.by_id.get(&id) != Some(&place) || self.place_of(edge.key) != Some(place) {
                return Err(format!(
                    "the edge {id} is not known by its identifier and its key"
                ));
            }
            if manager.edges().id(edge.key) != Some(id) {
                return Err(format!("the edge {id} is not the manager's"));
            }
            if edge.listed && !self.to_read.contains(&place) {
                return Err(format!("the edge {id} is listed to be read, and is not"));
            }
        }
        let count = self.all.len();
        let known = (self.by_id.len(), self.by_edge.iter().flatten().count());
        if known != (count, count) || manager.edges().len() != count {
            let edges = manager.edges().len();
            return Err(format!(
                "{count} edges, {known:?} known, the manager has {edges}"
            ));
        }
        Ok(())
    }

    /// Edges with sockets: the identifier, the connection, whether it is broken.
    pub(super) fn sockets(&self) -> impl Iterator<Item = (ConnectionId, ConnId, bool)> {
        self.all.iter().filter_map(|(_, edge)| match &edge.outer {
            Outer::Socket(socket) => Some((edge.id, socket.conn, socket.broken)),
            Outer::App(_) => None,
        })
    }

    /// The connection of the edge at a place.
    pub(super) fn conn(&self, place: usize) -> Option<ConnId> {
        match &self.all.get(place)?.outer {
            Outer::Socket(socket) => Some(socket.conn),
            Outer::App(_) => None,
        }
    }

    /// Streams of users.
    pub(super) fn apps(&self) -> usize {
        let edges = self.all.iter();
        edges
            .filter(|(_, edge)| matches!(edge.outer, Outer::App(_)))
            .count()
    }

    /// Looks at a user's stream again when it says. A time that has passed is no time to wait for: something else is.
    pub(super) fn set_timer(&mut self, place: usize, now: u64) {
        let Some(Edge {
            outer: Outer::App(app),
            ..
        }) = self.all.get_mut(place)
        else {
            return;
        };
        let next = app.traffic.next_time();
        let next = next.map(|at| u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
        let next = next.filter(|at| *at > now);
        if next != app.timer {
            if let Some(at) = app.timer {
                self.timers.remove(&(at, place));
            }
            app.timer = next;
            self.timers.extend(next.map(|at| (at, place)));
        }
    }
}
