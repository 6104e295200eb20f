//! The outer ends of streams: an exit's connections to destinations, and the streams of a client's user.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use slab::Slab;
use weft_cell::reason::EndReason;
use weft_core::address::ConnectionId;
use weft_core::manager::LocalConnectionManager;
use weft_core::slots::{EdgeKey, SlotKey as _};
use weft_core::stream::edge::{EdgeNews, StreamAt};
use weft_traffic::records::Outcome;
use weft_world::{ConnId, End};

use super::apps::{App, Finished, refusal};
use super::ground::{Ground, Owner};
use super::thread::{Around, News, Thread};

/// Bytes read from one edge's socket in one turn.
const READ_PER_TURN: usize = 64 * 1024;
/// How long what waits for bandwidth waits at most.
const PATIENCE: Duration = Duration::from_millis(250);

/// A connection to a destination.
#[derive(Debug)]
pub(super) struct Socket {
    conn: ConnId,
    /// Its address, until it is connected.
    connecting: Option<(IpAddr, u32)>,
    readable: bool,
    writable: bool,
    broken: bool,
}

#[derive(Debug)]
pub(super) enum Outer {
    Socket(Socket),
    App(Box<App>),
}

#[derive(Debug)]
pub(super) struct Edge {
    id: ConnectionId,
    pub(super) key: EdgeKey,
    pub(super) outer: Outer,
    listed: bool,
}

/// The edges of a thread.
#[derive(Debug, Default)]
pub(super) struct Edges {
    pub(super) all: Slab<Edge>,
    by_id: BTreeMap<ConnectionId, usize>,
    /// By the manager's slot.
    by_edge: Vec<Option<usize>>,
    to_read: VecDeque<usize>,
    /// Edges that wait for bandwidth, or for the rate that the far end's XON set.
    resting: Vec<(u64, usize)>,
    /// When users' streams are looked at.
    pub(super) timers: BTreeSet<(u64, usize)>,
    pub(super) finished: Vec<Finished>,
    /// Users take nothing.
    pub(super) deaf: bool,
    scratch: Vec<u8>,
    writing: Vec<EdgeKey>,
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

    fn place_of(&self, key: EdgeKey) -> Option<usize> {
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
            if manager.edge_id(edge.key) != Some(id) {
                return Err(format!("the edge {id} is not the manager's"));
            }
            if edge.listed && !self.to_read.contains(&place) {
                return Err(format!("the edge {id} is listed to be read, and is not"));
            }
        }
        let count = self.all.len();
        let known = (self.by_id.len(), self.by_edge.iter().flatten().count());
        if known != (count, count) || manager.edges() != count {
            let edges = manager.edges();
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
}

impl Thread {
    /// Begins to connect to a stream's destination.
    pub(super) fn open_edge(
        &mut self,
        id: ConnectionId,
        at: StreamAt,
        (to, ttl): (std::net::SocketAddr, u32),
        host: weft_world::HostId,
        ground: &mut Ground,
    ) {
        let now = ground.now();
        let Some(key) = self.manager.adopt_exit(id, at, now) else {
            return;
        };
        let owner = Owner::Edge {
            node: self.node,
            thread: self.me.0,
            place: u32::try_from(self.edges.all.vacant_key()).unwrap_or(u32::MAX),
        };
        match ground.connect(host, to, owner) {
            Some(conn) => {
                let socket = Socket {
                    conn,
                    connecting: Some((to.ip(), ttl)),
                    readable: false,
                    writable: false,
                    broken: false,
                };
                self.edges.insert(id, key, Outer::Socket(socket));
            }
            None => self.manager.end_edge(key, EndReason::NOROUTE, now),
        }
    }

    /// Something has happened to a destination's connection.
    pub(super) fn note_edge(&mut self, place: usize, conn: ConnId, news: News) {
        if let Some(Edge {
            outer: Outer::Socket(socket),
            ..
        }) = self.edges.all.get_mut(place)
            && socket.conn == conn
        {
            match news {
                News::Connected | News::Writable => socket.writable = true,
                News::Readable => socket.readable = true,
                News::Broken => socket.broken = true,
            }
            self.edges.list(place);
        }
    }

    /// Carries out the manager's news of edges.
    fn edge_news(&mut self, ground: &Ground) {
        while let Some(news) = self.manager.poll_edge() {
            match news {
                EdgeNews::Room { edge } => {
                    if let Some(place) = self.edges.place_of(edge) {
                        self.edges.list(place);
                    }
                }
                EdgeNews::Connected { edge, .. } => {
                    let Some(place) = self.edges.place_of(edge) else {
                        continue;
                    };
                    if let Some(Edge {
                        outer: Outer::App(app),
                        ..
                    }) = self.edges.all.get_mut(place)
                    {
                        app.traffic.opened(ground.elapsed());
                        self.edges.set_timer(place, ground.nanos());
                        self.edges.list(place);
                    }
                }
                EdgeNews::Refused { id, why } => {
                    if let Some(place) = self.edges.by_id.get(&id).copied()
                        && let Some(Outer::App(app)) = self.edges.remove(place)
                    {
                        let outcome = Outcome::Failed(refusal(why));
                        self.edges.finished.push(Finished { app, outcome });
                    }
                }
                // It is closed when all bytes are taken.
                EdgeNews::Over { .. } => {}
                EdgeNews::Resolved { id, .. } => {
                    if let Some(place) = self.edges.by_id.get(&id).copied() {
                        self.edges.remove(place);
                    }
                }
            }
        }
    }

    /// Reads what destinations and users send, as far as circuits take it.
    pub(super) fn read_edges(&mut self, now: Instant, around: &mut Around<'_>) {
        self.edge_news(around.ground);
        let nanos = around.ground.nanos();
        let resting = std::mem::take(&mut self.edges.resting);
        for (at, place) in resting {
            match at <= nanos {
                true => self.edges.list(place),
                false => self.edges.resting.push((at, place)),
            }
        }
        while let Some((at, place)) = self.edges.timers.first().copied()
            && at <= nanos
        {
            self.edges.timers.remove(&(at, place));
            if let Some(Edge {
                outer: Outer::App(app),
                ..
            }) = self.edges.all.get_mut(place)
            {
                app.timer = None;
            }
            self.check_app(place, now, around.ground);
            self.edges.list(place);
        }
        for _ in 0..self.edges.to_read.len() {
            let Some(place) = self.edges.to_read.pop_front() else {
                break;
            };
            let Some(edge) = self.edges.all.get_mut(place) else {
                continue;
            };
            edge.listed = false;
            match edge.outer {
                Outer::Socket(_) => {
                    if let Err(reason) = self.read_socket(place, now, around) {
                        self.close_edge(place, reason, now, around.ground);
                    }
                }
                Outer::App(_) => self.read_app(place, now, around.ground),
            }
        }
        self.edge_news(around.ground);
    }

    fn read_socket(
        &mut self,
        place: usize,
        now: Instant,
        around: &mut Around<'_>,
    ) -> Result<(), EndReason> {
        let Some(Edge {
            key,
            outer: Outer::Socket(socket),
            ..
        }) = self.edges.all.get_mut(place)
        else {
            return Ok(());
        };
        let key = *key;
        if socket.broken {
            return Err(match socket.connecting {
                Some(_) => EndReason::CONNECTREFUSED,
                None => EndReason::CONNRESET,
            });
        }
        if let Some((addr, ttl)) = socket.connecting.filter(|_| socket.writable) {
            socket.connecting = None;
            self.manager.edge_connected(key, Some(addr), ttl, now);
        }
        let room = self.manager.edge_room(key, now);
        let Some(Edge {
            outer: Outer::Socket(socket),
            ..
        }) = self.edges.all.get_mut(place)
        else {
            return Ok(());
        };
        if room == 0 || !socket.readable {
            return Ok(());
        }
        let wanted = room.min(READ_PER_TURN);
        let granted = (self.manager.edge_pace(key, wanted, now))
            .and_then(|wanted| around.limits.read.take(wanted, now));
        let grant = match granted {
            Ok(grant) => grant,
            Err(wait) => {
                let at = around.ground.nanos_of(now + wait.min(PATIENCE));
                self.edges.resting.push((at, place));
                return Ok(());
            }
        };
        let mut scratch = std::mem::take(&mut self.edges.scratch);
        scratch.clear();
        let net = &mut around.ground.net;
        let is_over = net.read(socket.conn, End::Opener, grant, |piece| {
            scratch.extend_from_slice(piece);
        });
        let count = scratch.len();
        around.limits.read.give_back(grant - count);
        socket.readable = count == grant;
        self.manager.edge_data(key, &scratch, now);
        self.edges.scratch = scratch;
        if count < grant {
            return match is_over {
                true => Err(EndReason::DONE),
                false => Ok(()),
            };
        }
        if self.manager.edge_room(key, now) > 0 {
            self.edges.list(place);
        }
        Ok(())
    }

    /// Writes to destinations, and gives users what is theirs.
    pub(super) fn write_edges(&mut self, now: Instant, around: &mut Around<'_>) {
        self.edge_news(around.ground);
        let mut writing = std::mem::take(&mut self.edges.writing);
        writing.clear();
        writing.extend_from_slice(self.manager.edges_to_write());
        for key in writing.iter().copied() {
            let Some(place) = self.edges.place_of(key) else {
                self.manager.end_edge(key, EndReason::MISC, now);
                continue;
            };
            match self.edges.all.get(place).map(|edge| &edge.outer) {
                Some(Outer::Socket(_)) => self.write_socket(place, now, around),
                Some(Outer::App(_)) => self.write_app(place, now, around.ground),
                None => {}
            }
            self.manager.prune_edge(key);
        }
        self.edges.writing = writing;
        self.edge_news(around.ground);
    }

    fn write_socket(&mut self, place: usize, now: Instant, around: &mut Around<'_>) {
        loop {
            let Some(Edge {
                key,
                outer: Outer::Socket(socket),
                ..
            }) = self.edges.all.get_mut(place)
            else {
                return;
            };
            let key = *key;
            let (bytes, over) = self.manager.edge_out(key);
            if bytes.is_empty() {
                if over {
                    self.close_edge(place, EndReason::DONE, now, around.ground);
                }
                return;
            }
            if !socket.writable {
                return;
            }
            let grant = match around.limits.write.take(bytes.len(), now) {
                Ok(grant) => grant,
                Err(wait) => {
                    let at = around.ground.nanos_of(now + wait.min(PATIENCE));
                    return self.retry(at);
                }
            };
            let bytes = bytes.get(..grant).unwrap_or_default();
            let taken = around.ground.net.write(socket.conn, End::Opener, bytes);
            around.limits.write.give_back(grant - taken);
            socket.writable = taken == bytes.len();
            self.written += taken as u64;
            self.manager.edge_wrote(key, taken, now);
        }
    }

    fn close_edge(&mut self, place: usize, reason: EndReason, now: Instant, ground: &mut Ground) {
        if let Some(edge) = self.edges.all.get(place) {
            let key = edge.key;
            if self.manager.edge_id(key) == Some(edge.id) {
                self.manager.end_edge(key, reason, now);
            }
        }
        if let Some(Outer::Socket(socket)) = self.edges.remove(place)
            && !socket.broken
        {
            ground.net.close(socket.conn, End::Opener);
        }
    }
}
