//! The sockets of circuit edges: destinations of an exit, applications of a client, and ends of
//! socket pairs of this node's own directory (Engler and Goldberg 2021, 4.2 and 4.4).
//!
//! weft-core decides what is sent (`manager/edges/`); this is the shell around it. A socket is read
//! only as far as its circuit takes bytes, and bytes that the socket does not take wait in its
//! edge, which then signals the far end (XOFF, or no SENDMEs).

mod applications;
mod socket;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Token};
use slab::Slab;
use weft_cell::reason::EndReason;
use weft_config::options::AppService;
use weft_core::address::ConnectionId;
use weft_core::manager::LocalConnectionManager;
use weft_core::message::ConnectionBytes;
use weft_core::slots::{EdgeKey, SlotKey as _};
use weft_core::stream::edge::EdgeNews;
use weft_counts::extrainfo::PortUse;

use self::applications::Warnings;
use self::socket::{EdgeConnection, Socket, Stage, end_reason};
use super::audit::sure;
use super::limit::{Allowance, Direction};
use super::{ConnectionThread, TICK};
use weft_apps::Handshake;

pub(crate) use self::socket::{AdoptEdge, AdoptKind, EdgeSocket};

/// Tokens of edges have this bit.
const EDGE: usize = 1 << 62;
/// Bytes read from one edge's socket in one turn.
const READ_PER_TURN: usize = 64 * 1024;
/// Bytes read from all edges' sockets in one turn.
const READ_IN_ALL: usize = 1024 * 1024;
/// Bytes written to one edge's socket in one turn.
const WRITE_PER_TURN: usize = 1024 * 1024;
/// Bytes written to all edges' sockets in one turn.
const WRITE_IN_ALL: usize = 1024 * 1024;
/// Edges whose sockets are read in one turn, and of those whose sockets are written or closed. One
/// client can have thousands arrive, connect and end at once, and each costs system calls of some
/// microseconds (closing a TCP connection about twenty). After this number of edges the cells of
/// all circuits get their turn.
pub(super) const EDGES_PER_TURN: usize = 64;
/// Time for which a destination whose stream has ended may accept none of the remaining bytes (C
/// tor: `connection_expire_held_open`). Applications, which are this machine's own, may take their
/// time.
const LAST_WORDS: Duration = Duration::from_secs(15);

/// Memory of a thread's edge sockets, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SocketMemory {
    /// Bytes from and for sockets.
    pub(super) buffered: usize,
    /// Memory for sockets whose edges are freed.
    pub(super) ownerless: usize,
}

/// A thread's edge sockets.
#[derive(Debug, Default)]
pub(super) struct EdgeSockets {
    /// Edges by token without its bit.
    all: Slab<Box<EdgeConnection>>,
    /// Tokens by connection.
    by_id: BTreeMap<ConnectionId, usize>,
    /// Tokens by the manager's slot.
    by_edge: Vec<Option<usize>>,
    /// Edges whose sockets may have bytes.
    to_read: VecDeque<usize>,
    /// Edges that wait for bandwidth, and until when.
    rate_limited: Vec<(Instant, usize)>,
    /// When the first of them has waited long enough.
    rest_until: Option<Instant>,
    /// The place, among the edges with something to write, where the next turn begins.
    write_next: usize,
    /// The last turn ended before all of them had theirs.
    more_to_write: bool,
    /// Warnings about what applications ask for.
    warnings: Warnings,
    /// Applications that have not asked yet, by deadline.
    asking: VecDeque<(Instant, ConnectionId)>,
}

impl EdgeSockets {
    /// Something may be read, written or closed at once.
    pub(super) fn is_ready(&self) -> bool {
        !self.to_read.is_empty() || self.more_to_write
    }

    /// The bytes of exits' connections since the last call.
    pub(super) fn take_bytes(&mut self, to: &mut Vec<ConnectionBytes>) {
        for (_, connection) in &mut self.all {
            let (read, written) = std::mem::take(&mut connection.unreported);
            if connection.exit && (read, written) != (0, 0) {
                to.push(ConnectionBytes {
                    connection: connection.id,
                    exit: true,
                    read,
                    written,
                });
            }
        }
    }

    /// Number of edges.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Number of edges that wait for their turn to be read.
    #[cfg(test)]
    pub(super) fn to_read(&self) -> usize {
        self.to_read.len()
    }

    /// Lets a socket wait for bandwidth.
    fn rest(&mut self, until: Instant, token: usize) {
        self.rest_until = Some(self.rest_until.map_or(until, |other| other.min(until)));
        self.rate_limited.push((until, token));
    }

    /// Lists those again that have waited long enough.
    fn resume_rate_limited(&mut self, now: Instant) {
        if self.rest_until.is_none_or(|until| until > now) {
            return;
        }
        self.rest_until = None;
        for (until, token) in std::mem::take(&mut self.rate_limited) {
            match until <= now {
                true => self.list(token),
                false => self.rest(until, token),
            }
        }
    }

    /// Takes note of an event. False: it is not an edge's.
    pub(super) fn note(&mut self, event: &mio::event::Event) -> bool {
        let token = event.token().0;
        if token & EDGE == 0 || token == usize::MAX || token == usize::MAX - 1 {
            return false;
        }
        let token = token & !EDGE;
        if let Some(connection) = self.all.get_mut(token) {
            connection.writable |= event.is_writable();
            connection.peer_ended |= event.is_read_closed() || event.is_error();
            connection.readable |= event.is_readable() || connection.peer_ended;
            let connecting = matches!(connection.stage, Stage::Connecting(..));
            if connection.readable || (connecting && connection.writable) {
                self.list(token);
            }
        }
        true
    }

    /// Lists a socket among those to be read.
    fn list(&mut self, token: usize) {
        if let Some(connection) = self.all.get_mut(token)
            && !connection.listed
        {
            connection.listed = true;
            self.to_read.push_back(token);
        }
    }

    /// Reports to edges what their sockets hold.
    pub(super) fn report_memory(&self, manager: &mut LocalConnectionManager) -> SocketMemory {
        let mut memory = SocketMemory::default();
        for (_, connection) in &self.all {
            let bytes = connection.held.capacity() + connection.reply.capacity();
            memory.buffered += bytes;
            let all = bytes + size_of::<EdgeConnection>() + size_of::<(ConnectionId, usize)>();
            match manager.edges().id(connection.edge) == Some(connection.id) {
                true => manager.edges_mut().set_holds(connection.edge, all),
                false => memory.ownerless += all,
            }
        }
        memory
    }

    /// Compares the sockets with the manager's edges.
    pub(super) fn audit(&self, manager: &LocalConnectionManager) -> Result<(), String> {
        let to_read: BTreeSet<usize> = self.to_read.iter().copied().collect();
        for (token, connection) in &self.all {
            let id = connection.id;
            sure(
                self.by_id.get(&id) == Some(&token)
                    && self.token_of(connection.edge) == Some(token),
                "an edge's socket is known by its identifier and by its edge",
            )?;
            sure(
                manager.edges().id(connection.edge) == Some(id),
                "an edge's socket has its edge",
            )?;
            sure(
                !connection.listed || to_read.contains(&token),
                "an edge with that flag is listed to be read",
            )?;
        }
        // News name slots, which may have another edge in the next turn.
        sure(
            !manager.edges().has_news(),
            "news do not outlive their turn",
        )?;
        sure(
            self.by_id.len() == self.all.len()
                && self.by_edge.iter().flatten().count() == self.all.len()
                && manager.edges().len() == self.all.len(),
            "every edge has one socket",
        )
    }

    /// Tokens that the event loop watches.
    pub(super) fn watched(&self) -> impl Iterator<Item = usize> {
        let sockets = self.all.iter();
        let sockets = sockets.filter(|(_, edge)| !matches!(edge.socket, Socket::None));
        sockets.map(|(token, _)| token | EDGE)
    }

    /// The token of an edge.
    fn token_of(&self, edge: EdgeKey) -> Option<usize> {
        self.by_edge.get(edge.index()).copied().flatten()
    }
}

impl ConnectionThread {
    /// Takes over a stream's socket.
    pub(super) fn adopt_edge(&mut self, adopt: AdoptEdge, now: Instant) {
        let AdoptEdge { id, socket, kind } = adopt;
        let edge = match &kind {
            AdoptKind::Exit { at, .. } => self.manager.adopt_exit(id, *at, now),
            AdoptKind::Application { .. } | AdoptKind::Internal => {
                self.manager.edges_mut().adopt_application(id)
            }
        };
        let Some(edge) = edge else {
            return;
        };
        let unix = !matches!(socket, EdgeSocket::Tcp(_));
        let socket = match socket {
            EdgeSocket::Tcp(socket) => {
                // Streams carry what applications wrote together in pieces already.
                let _ = socket.set_nodelay(true);
                Socket::Tcp(TcpStream::from_std(socket))
            }
            EdgeSocket::Unix(socket) => Socket::Unix(UnixStream::from_std(socket)),
            EdgeSocket::None => Socket::None,
        };
        let (mut deadline, mut port, mut asks_at_once) = (None, 0, false);
        let (stage, peer) = match kind {
            AdoptKind::Exit { peer, ttl, .. } => {
                if let Some(peer) = peer.filter(|_| self.params.count_exit_ports) {
                    port = peer.port();
                }
                let peer = peer.map(|peer| peer.ip());
                (Stage::Connecting(peer, ttl), peer)
            }
            AdoptKind::Application { rules, from, to } => {
                deadline = Some(now + self.params.socks_timeout);
                asks_at_once = matches!(rules.service, AppService::Transparent(_));
                let peer = from.map(|from| from.ip());
                let handshake = Handshake::redirected(rules, from, to);
                (Stage::Asking(Box::new(handshake)), peer)
            }
            AdoptKind::Internal => (Stage::Open, None),
        };
        let entry = self.edges.all.vacant_entry();
        let token = entry.key();
        let mut connection = Box::new(EdgeConnection {
            id,
            edge,
            socket,
            port,
            unreported: (0, 0),
            allowance: peer.map(|peer| Allowance::new(peer, &self.params, now)),
            readable: false,
            writable: false,
            listed: false,
            peer_ended: false,
            held: Vec::new(),
            reply: Vec::new(),
            asked: false,
            deadline,
            exit: matches!(stage, Stage::Connecting(..)),
            stage,
            idle_since: None,
        });
        let registered = match connection.socket.source() {
            Some(source) => self.poll.registry().register(
                source,
                Token(token | EDGE),
                Interest::READABLE | Interest::WRITABLE,
            ),
            None => Ok(()),
        };
        let connects = connection.exit && unix;
        entry.insert(connection);
        self.edges.by_id.insert(id, token);
        let index = edge.index();
        if self.edges.by_edge.len() <= index {
            self.edges.by_edge.resize(index + 1, None);
        }
        if let Some(place) = self.edges.by_edge.get_mut(index) {
            *place = Some(token);
        }
        if let Some(deadline) = deadline {
            self.edges.asking.push_back((deadline, id));
        }
        if let Err(error) = registered {
            tracing::warn!("Could not watch a stream's socket: {error}");
            self.close_edge(token, EndReason::RESOURCELIMIT, now);
        } else if connects {
            // A socket pair is connected from the start.
            self.edge_is_open(token, now);
        } else if asks_at_once && let Err(reason) = self.advance_request(token) {
            self.close_edge(token, reason, now);
        }
    }

    /// The socket of an exit's stream is connected.
    fn edge_is_open(&mut self, token: usize, now: Instant) {
        if let Some(connection) = self.edges.all.get_mut(token)
            && let Stage::Connecting(addr, ttl) = connection.stage
        {
            connection.stage = Stage::Open;
            if connection.port != 0 {
                let opened = PortUse {
                    streams: 1,
                    ..PortUse::default()
                };
                self.reports.exit_ports.add(connection.port, opened);
            }
            let edge = connection.edge;
            self.manager.edge_connected(edge, addr, ttl, now);
        }
    }

    /// Reads the sockets that may have bytes and whose circuits take some, a bounded number of them in
    /// each turn.
    pub(super) fn read_edges(&mut self, now: Instant) {
        if self.is_stuck() {
            return;
        }
        self.edges.resume_rate_limited(now);
        let mut scratch = std::mem::take(&mut self.reading.scratch);
        let mut in_all = 0;
        self.edge_news(now);
        for _ in 0..self.edges.to_read.len().min(EDGES_PER_TURN) {
            let Some(token) = self.edges.to_read.pop_front() else {
                break;
            };
            let Some(connection) = self.edges.all.get_mut(token) else {
                continue;
            };
            connection.listed = false;
            match self.read_edge(token, &mut scratch, now) {
                Ok(used) => in_all += used,
                Err(reason) => self.close_edge(token, reason, now),
            }
            if in_all >= READ_IN_ALL {
                break;
            }
        }
        self.reading.scratch = scratch;
        self.edge_news(now);
    }

    /// Reads one socket: how many bytes came, or why the stream ends.
    fn read_edge(
        &mut self,
        token: usize,
        scratch: &mut [u8],
        now: Instant,
    ) -> Result<usize, EndReason> {
        let Some(connection) = self.edges.all.get_mut(token) else {
            return Ok(0);
        };
        if let Stage::Connecting(..) = connection.stage {
            if let Socket::Tcp(socket) = &connection.socket {
                if let Ok(Some(error)) | Err(error) = socket.take_error() {
                    return Err(end_reason(&error));
                }
                if !connection.writable || socket.peer_addr().is_err() {
                    return Ok(0);
                }
            }
            self.edge_is_open(token, now);
        }
        let Some(connection) = self.edges.all.get_mut(token) else {
            return Ok(0);
        };
        if let Stage::Asking(_) = connection.stage {
            return self.receive_request(token, scratch);
        }
        let edge = connection.edge;
        let mut room = self.manager.edge_room(edge, now);
        if !connection.held.is_empty() && room > 0 {
            let count = room.min(connection.held.len());
            let rest = connection.held.split_off(count);
            let first = std::mem::replace(&mut connection.held, rest);
            self.manager.edge_data(edge, &first, now);
            room = self.manager.edge_room(edge, now);
        }
        let Some(connection) = self.edges.all.get_mut(token) else {
            return Ok(0);
        };
        if room == 0 || !connection.held.is_empty() || !connection.readable {
            // The manager reports when there is room; the kernel reports when there is more.
            return Ok(0);
        }
        let wanted = match self
            .manager
            .edges_mut()
            .pace(edge, room.min(READ_PER_TURN), now)
        {
            Ok(wanted) => wanted,
            Err(wait) => {
                self.edges.rest(now + wait.min(TICK), token);
                return Ok(0);
            }
        };
        let grant = match &mut connection.allowance {
            Some(allowance) => {
                match allowance.take(&mut self.limit, Direction::Read, wanted, now) {
                    Ok(grant) => grant,
                    Err(refused) => {
                        self.edges.rest(now + refused.wait.min(TICK), token);
                        return Ok(0);
                    }
                }
            }
            None => wanted,
        };
        let buffer = scratch.get_mut(..grant.min(wanted)).unwrap_or_default();
        let result = connection.socket.read(buffer);
        let count = *result.as_ref().unwrap_or(&0);
        self.reports.read += count as u64;
        if self.params.count_connections {
            connection.unreported.0 += count as u64;
        }
        if let Some(allowance) = &mut connection.allowance {
            allowance.settle(&mut self.limit, Direction::Read, grant, count);
            self.reports.moved.add(allowance, Direction::Read, count);
            if connection.port != 0 && allowance.is_counted() {
                let read = PortUse {
                    read: count as u64,
                    ..PortUse::default()
                };
                self.reports.exit_ports.add(connection.port, read);
            }
        }
        match result {
            Ok(0) => Err(EndReason::DONE),
            Ok(count) => {
                if count < buffer.len() && !connection.peer_ended {
                    connection.readable = false;
                }
                self.reports.load.add(count as u64);
                self.writing.runs.gathered(count);
                let bytes = scratch.get(..count).unwrap_or_default();
                self.manager.edge_data(edge, bytes, now);
                let more = self
                    .edges
                    .all
                    .get(token)
                    .is_some_and(|connection| connection.readable);
                if more && self.manager.edge_room(edge, now) > 0 {
                    self.edges.list(token);
                }
                Ok(count)
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => {
                    connection.readable = false;
                    Ok(0)
                }
                io::ErrorKind::Interrupted => {
                    self.edges.list(token);
                    Ok(0)
                }
                _ => Err(end_reason(&error)),
            },
        }
    }

    /// Carries out the manager's actions for edges.
    fn edge_news(&mut self, now: Instant) {
        while let Some(news) = self.manager.edges_mut().poll() {
            match news {
                EdgeNews::Room { edge } => {
                    if let Some(token) = self.edges.token_of(edge)
                        && let Some(connection) = self.edges.all.get(token)
                        && (connection.readable || !connection.held.is_empty())
                    {
                        self.edges.list(token);
                    }
                }
                EdgeNews::Connected { edge, addr } => self.answer_connected(edge, addr, now),
                EdgeNews::Resolved {
                    id,
                    resolved,
                    by_exit,
                } => self.answer_last(id, |handshake| match by_exit {
                    true => handshake.resolved(&resolved),
                    false => handshake.answered(&resolved),
                }),
                EdgeNews::Refused { id, why } => {
                    self.answer_last(id, |handshake| handshake.refused(why));
                }
                EdgeNews::Over { edge, reason } => {
                    tracing::debug!("A stream on edge {edge} is over: {reason}");
                }
            }
        }
    }

    /// Writes what edges have for their sockets, and closes those of streams that are over: a bounded
    /// number in each turn, beginning where the last one ended.
    pub(super) fn write_edges(&mut self, now: Instant) {
        self.edge_news(now);
        let (mut stayed, mut attended, mut in_all) = (0, 0, 0);
        self.edges.more_to_write = false;
        loop {
            let listed = self.manager.edges().to_write();
            if stayed >= listed.len() {
                break;
            }
            if attended >= EDGES_PER_TURN || in_all >= WRITE_IN_ALL {
                self.edges.more_to_write = true;
                break;
            }
            if self.edges.write_next >= listed.len() {
                self.edges.write_next = 0;
            }
            let Some(edge) = listed.get(self.edges.write_next).copied() else {
                break;
            };
            let written = match self.edges.token_of(edge) {
                Some(token) => self.write_edge(token, now).map_err(|reason| {
                    self.close_edge(token, reason, now);
                }),
                None => {
                    self.manager.end_edge(edge, EndReason::MISC, now);
                    Err(())
                }
            };
            // Thousands whose sockets take nothing are not worth a turn.
            attended += usize::from(written != Ok(0));
            in_all += written.unwrap_or(0);
            self.manager.edges_mut().prune(edge);
            // Another has the place of one that has left the list.
            if self.manager.edges().to_write().get(self.edges.write_next) == Some(&edge) {
                self.edges.write_next += 1;
                stayed += 1;
            }
        }
        self.edge_news(now);
    }

    /// Writes one socket: how many bytes it took, or why the stream ends.
    fn write_edge(&mut self, token: usize, now: Instant) -> Result<usize, EndReason> {
        let Some(connection) = self.edges.all.get_mut(token) else {
            return Ok(0);
        };
        let edge = connection.edge;
        let blocked = matches!(connection.socket, Socket::Tcp(_)) && !connection.writable;
        if !blocked && !connection.flush_reply() {
            return Err(EndReason::MISC);
        }
        if !connection.reply.is_empty() {
            return Ok(0);
        }
        let (bytes, over) = self.manager.edges().out(edge);
        if bytes.is_empty() {
            return match over {
                // All bytes are written, or the client left before its destination was reached.
                true => Err(EndReason::DONE),
                false => Ok(0),
            };
        }
        if over && connection.exit {
            let since = *connection.idle_since.get_or_insert(now);
            if now.saturating_duration_since(since) >= LAST_WORDS {
                return Err(EndReason::TIMEOUT);
            }
        }
        if blocked {
            return Ok(0);
        }
        let wanted = bytes.len().min(WRITE_PER_TURN);
        let grant = match &mut connection.allowance {
            Some(allowance) => {
                match allowance.take(&mut self.limit, Direction::Write, wanted, now) {
                    Ok(grant) => grant,
                    Err(refused) => {
                        let at = now + refused.wait.min(TICK);
                        self.writing.retry_at =
                            Some(self.writing.retry_at.map_or(at, |other| other.min(at)));
                        return Ok(0);
                    }
                }
            }
            None => wanted,
        };
        let bytes = bytes.get(..grant.min(wanted)).unwrap_or_default();
        let result = connection.socket.write(bytes);
        let count = *result.as_ref().unwrap_or(&0);
        if self.params.count_connections {
            connection.unreported.1 += count as u64;
        }
        if let Some(allowance) = &mut connection.allowance {
            allowance.settle(&mut self.limit, Direction::Write, grant, count);
            self.reports.moved.add(allowance, Direction::Write, count);
            if connection.port != 0 && allowance.is_counted() {
                let written = PortUse {
                    written: count as u64,
                    ..PortUse::default()
                };
                self.reports.exit_ports.add(connection.port, written);
            }
        }
        match result {
            Ok(count) => {
                if count < bytes.len() {
                    connection.writable = false;
                }
                if count > 0 {
                    connection.idle_since = None;
                }
                self.reports.load.add(count as u64);
                self.manager.edge_wrote(edge, count, now);
                let (rest, over) = self.manager.edges().out(edge);
                match over && rest.is_empty() {
                    true => Err(EndReason::DONE),
                    false => Ok(count),
                }
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => {
                    connection.writable = false;
                    Ok(0)
                }
                io::ErrorKind::Interrupted => Ok(0),
                _ => Err(end_reason(&error)),
            },
        }
    }

    /// Ends a stream and closes its socket.
    fn close_edge(&mut self, token: usize, reason: EndReason, now: Instant) {
        if let Some(connection) = self.edges.all.get(token) {
            let edge = connection.edge;
            if self.manager.edges().id(edge) == Some(connection.id) {
                self.manager.end_edge(edge, reason, now);
            }
        }
        self.forget_edge(token);
    }

    /// Closes the socket of a stream that has ended.
    fn forget_edge(&mut self, token: usize) {
        let Some(mut connection) = self.edges.all.try_remove(token) else {
            return;
        };
        if let Some(source) = connection.socket.source() {
            let _ = self.poll.registry().deregister(source);
        }
        self.edges.by_id.remove(&connection.id);
        if let Some(place) = self.edges.by_edge.get_mut(connection.edge.index())
            && *place == Some(token)
        {
            *place = None;
        }
    }

    /// Time at which an edge needs attention without an event. `Some(None)`: now; `None`: never.
    pub(super) fn edges_wait(&self) -> Option<Option<Instant>> {
        if self.edges.is_ready() || self.manager.edges().has_news() {
            return Some(None);
        }
        self.edges.rest_until.map(Some)
    }
}
