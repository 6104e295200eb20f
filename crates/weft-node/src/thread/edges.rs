//! The sockets of circuit edges: destinations of an exit, applications of a client, and ends of
//! socket pairs toward this node's own directory (seeds/000 4.2, 4.4).
//!
//! What flows is decided in weft-core (`manager/edges/`); this is the shell around it. A socket is
//! read only as far as its circuit takes bytes, and what the socket does not take waits in its edge,
//! which then says so to the far end.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Token};
use slab::Slab;
use weft_cell::reason::EndReason;
use weft_core::address::{ConnectionId, HalfAddr};
use weft_core::edge::EdgeNews;
use weft_core::flow::Terms;

use super::limit::{Allowance, Direction};
use super::{ConnectionThread, TICK};
use crate::apps::{AppRules, Handshake, MAX_HANDSHAKE, Notice, Step};
use crate::logging::RateLimit;

/// Tokens of edges have this bit.
const EDGE: usize = 1 << 62;
/// Bytes read from one edge's socket in one turn.
const READ_PER_TURN: usize = 64 * 1024;
/// Bytes read from all edges' sockets in one turn.
const READ_IN_ALL: usize = 1024 * 1024;
/// Bytes written to one edge's socket in one turn.
const WRITE_PER_TURN: usize = 1024 * 1024;
/// How long a destination whose stream has ended may take nothing of what is left for it (C tor:
/// `connection_expire_held_open`). Applications, which are this machine's own, may take their time.
const LAST_WORDS: Duration = Duration::from_secs(15);

/// A stream's socket that a thread is given.
#[derive(Debug)]
pub struct AdoptEdge {
    /// Its identifier.
    pub id: ConnectionId,
    /// Non-blocking; perhaps still connecting.
    pub socket: EdgeSocket,
    /// What it is for.
    pub kind: AdoptKind,
}

/// What bytes of a stream come from and go to.
#[derive(Debug)]
pub enum EdgeSocket {
    /// TCP.
    Tcp(std::net::TcpStream),
    /// One end of a socket pair, or an application on a Unix socket.
    Unix(std::os::unix::net::UnixStream),
    /// Nothing: a stream that is one question and one answer (RESOLVE).
    None,
}

/// What a stream's socket is for.
#[derive(Debug)]
pub enum AdoptKind {
    /// A stream that a circuit asked for.
    Exit {
        /// The half that asked.
        half: HalfAddr,
        /// The stream's number.
        stream: u16,
        /// It uses XON and XOFF.
        terms: Terms,
        /// Where the socket leads; `None` for the directory.
        peer: Option<SocketAddr>,
        /// How long the address is good, in seconds: CONNECTED says it.
        ttl: u32,
    },
    /// An application that came to a listener.
    Application {
        /// What the listener does.
        rules: Arc<AppRules>,
        /// Where it came from; `None` on a Unix socket.
        from: Option<SocketAddr>,
    },
    /// A stream of this node's own.
    Internal,
}

/// A socket as the event loop knows it.
#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    None,
}

impl Socket {
    fn source(&mut self) -> Option<&mut dyn Source> {
        match self {
            Socket::Tcp(socket) => Some(socket),
            Socket::Unix(socket) => Some(socket),
            Socket::None => None,
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.read(buffer),
            Socket::Unix(socket) => socket.read(buffer),
            Socket::None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.write(bytes),
            Socket::Unix(socket) => socket.write(bytes),
            Socket::None => Ok(bytes.len()),
        }
    }
}

/// How far a socket has come.
#[derive(Debug)]
enum Stage {
    /// TCP connects, for an exit: where to, and for how long that is good.
    Connecting(Option<IpAddr>, u32),
    /// An application says what it wants, or waits for an answer.
    Asking(Box<Handshake>),
    /// Bytes are bytes.
    Open,
}

/// One edge's socket.
#[derive(Debug)]
struct EdgeConnection {
    id: ConnectionId,
    /// The manager's slot.
    edge: u32,
    socket: Socket,
    stage: Stage,
    /// How much it may move; not asked for Unix sockets.
    allowance: Option<Allowance>,
    readable: bool,
    writable: bool,
    /// Listed among those to be read.
    listed: bool,
    /// The kernel said that nothing more comes.
    peer_ended: bool,
    /// Read and not yet taken: an application's words, then its first data.
    held: Vec<u8>,
    /// To be written before anything of the circuit's.
    reply: Vec<u8>,
    /// It has asked, and is not looked at until it is answered.
    asked: bool,
    /// An application must have said what it wants by then.
    deadline: Option<Instant>,
    /// It is an exit's.
    exit: bool,
    /// Its stream is over, and it has taken nothing of what is left since then.
    idle_since: Option<Instant>,
}

/// A thread's edge sockets.
#[derive(Debug, Default)]
pub(super) struct EdgeSockets {
    /// By token without its bit.
    all: Slab<Box<EdgeConnection>>,
    /// Tokens by connection.
    by_id: BTreeMap<ConnectionId, usize>,
    /// Tokens by the manager's slot.
    by_edge: Vec<Option<usize>>,
    /// Those that may have bytes.
    to_read: VecDeque<usize>,
    /// Those that must wait for bandwidth, and until when.
    resting: Vec<(Instant, usize)>,
    /// Edges being written in this turn.
    writing: Vec<u32>,
    /// Warnings about what applications ask for.
    warnings: Warnings,
    /// Applications that have not asked yet, by deadline.
    asking: VecDeque<(Instant, ConnectionId)>,
}

/// Log lines about applications that ask for what they should not, at C tor's pace
/// (SOCKS_WARN_INTERVAL): every page of a browser can cause as many as it likes.
#[derive(Debug)]
struct Warnings(RateLimit);

impl Default for Warnings {
    fn default() -> Self {
        Warnings(RateLimit::new(Duration::from_secs(5)))
    }
}

impl Warnings {
    fn log(&mut self, notice: &Notice, all: bool) {
        if all || notice.level > tracing::Level::WARN {
            notice.log();
        } else if let Some(more) = self.0.check(Instant::now()) {
            let mut notice = notice.clone();
            notice.text.push_str(&more.to_string());
            notice.log();
        }
    }
}

impl EdgeSockets {
    /// Something may be read at once.
    pub(super) fn is_ready(&self) -> bool {
        !self.to_read.is_empty()
    }

    /// Until when the first that rests does so.
    pub(super) fn rest_until(&self) -> Option<Instant> {
        self.resting.iter().map(|(until, _)| *until).min()
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

    /// Bytes that sockets hold.
    pub(super) fn buffered(&self) -> usize {
        self.all
            .iter()
            .map(|(_, connection)| connection.held.capacity() + connection.reply.capacity())
            .sum()
    }

    /// The token of an edge.
    fn token_of(&self, edge: u32) -> Option<usize> {
        self.by_edge.get(edge as usize).copied().flatten()
    }
}

impl ConnectionThread {
    /// Takes over a stream's socket.
    pub(super) fn adopt_edge(&mut self, adopt: AdoptEdge, now: Instant) {
        let AdoptEdge { id, socket, kind } = adopt;
        let edge = match &kind {
            AdoptKind::Exit {
                half,
                stream,
                terms,
                ..
            } => self.manager.adopt_exit(id, *half, *stream, *terms, now),
            AdoptKind::Application { .. } | AdoptKind::Internal => {
                self.manager.adopt_application(id)
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
        let mut deadline = None;
        let (stage, peer) = match kind {
            AdoptKind::Exit { peer, ttl, .. } => {
                let peer = peer.map(|peer| peer.ip());
                (Stage::Connecting(peer, ttl), peer)
            }
            AdoptKind::Application { rules, from } => {
                deadline = Some(now + self.params.socks_timeout);
                let peer = from.map(|from| from.ip());
                (Stage::Asking(Box::new(Handshake::new(rules, from))), peer)
            }
            AdoptKind::Internal => (Stage::Open, None),
        };
        let entry = self.edges.all.vacant_entry();
        let token = entry.key();
        let mut connection = Box::new(EdgeConnection {
            id,
            edge,
            socket,
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
        let index = edge as usize;
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
        }
    }

    /// The socket of an exit's stream is connected.
    fn edge_is_open(&mut self, token: usize, now: Instant) {
        if let Some(connection) = self.edges.all.get_mut(token)
            && let Stage::Connecting(addr, ttl) = connection.stage
        {
            connection.stage = Stage::Open;
            let edge = connection.edge;
            self.manager.edge_connected(edge, addr, ttl, now);
        }
    }

    /// Reads the sockets that may have bytes and whose circuits take some.
    pub(super) fn read_edges(&mut self, now: Instant) {
        if self.is_stuck() {
            return;
        }
        if self.edges.rest_until().is_some_and(|until| until <= now) {
            let resting = std::mem::take(&mut self.edges.resting);
            for (until, token) in resting {
                match until <= now {
                    true => self.edges.list(token),
                    false => self.edges.resting.push((until, token)),
                }
            }
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut in_all = 0;
        self.edge_news(now);
        for _ in 0..self.edges.to_read.len() {
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
        self.scratch = scratch;
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
            return self.hear(token, scratch);
        }
        let edge = connection.edge;
        let mut room = self.manager.edge_room(edge);
        if !connection.held.is_empty() && room > 0 {
            let count = room.min(connection.held.len());
            let rest = connection.held.split_off(count);
            let first = std::mem::replace(&mut connection.held, rest);
            self.manager.edge_data(edge, &first, now);
            room = self.manager.edge_room(edge);
        }
        let Some(connection) = self.edges.all.get_mut(token) else {
            return Ok(0);
        };
        if room == 0 || !connection.held.is_empty() || !connection.readable {
            // News comes when there is room; the kernel tells when there is more.
            return Ok(0);
        }
        let wanted = match self.manager.edge_pace(edge, room.min(READ_PER_TURN), now) {
            Ok(wanted) => wanted,
            Err(wait) => {
                self.edges.resting.push((now + wait.min(TICK), token));
                return Ok(0);
            }
        };
        let grant = match &mut connection.allowance {
            Some(allowance) => {
                match allowance.take(&mut self.common, Direction::Read, wanted, now) {
                    Ok(grant) => grant,
                    Err(wait) => {
                        self.edges.resting.push((now + wait.min(TICK), token));
                        return Ok(0);
                    }
                }
            }
            None => wanted,
        };
        let buffer = scratch.get_mut(..grant.min(wanted)).unwrap_or_default();
        let result = connection.socket.read(buffer);
        let count = *result.as_ref().unwrap_or(&0);
        if let Some(allowance) = &mut connection.allowance {
            allowance.settle(&mut self.common, Direction::Read, grant, count);
            self.moved.add(allowance, Direction::Read, count);
        }
        match result {
            Ok(0) => Err(EndReason::DONE),
            Ok(count) => {
                if count < buffer.len() && !connection.peer_ended {
                    connection.readable = false;
                }
                self.load.add(count as u64);
                let bytes = scratch.get(..count).unwrap_or_default();
                self.manager.edge_data(edge, bytes, now);
                let more = self
                    .edges
                    .all
                    .get(token)
                    .is_some_and(|connection| connection.readable);
                if more && self.manager.edge_wants(edge) {
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

    /// Hears what an application wants.
    fn hear(&mut self, token: usize, scratch: &mut [u8]) -> Result<usize, EndReason> {
        let Some(connection) = self.edges.all.get_mut(token) else {
            return Ok(0);
        };
        let most = MAX_HANDSHAKE.saturating_sub(connection.held.len());
        if !connection.readable || most == 0 {
            return Ok(0);
        }
        let buffer = scratch.get_mut(..most).unwrap_or_default();
        let count = match connection.socket.read(buffer) {
            Ok(0) => return Err(EndReason::DONE),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                connection.readable = false;
                return Ok(0);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(end_reason(&error)),
        };
        connection
            .held
            .extend_from_slice(scratch.get(..count).unwrap_or_default());
        self.edges.list(token);
        while let Some(connection) = self.edges.all.get_mut(token)
            && !connection.asked
        {
            let Stage::Asking(handshake) = &mut connection.stage else {
                break;
            };
            let step = handshake.receive(&connection.held);
            // TestSocks is there to tell of each.
            let all = handshake.tests();
            for notice in handshake.take_notices() {
                self.edges.warnings.log(&notice, all);
            }
            match step {
                Ok(Step::NeedMore) => break,
                Ok(Step::Reply { used, reply }) => {
                    connection.held.drain(..used.min(connection.held.len()));
                    connection.reply.extend_from_slice(&reply);
                    if !connection.flush_reply() {
                        return Err(EndReason::MISC);
                    }
                }
                Ok(Step::Request { used, request }) => {
                    connection.held.drain(..used.min(connection.held.len()));
                    connection.asked = true;
                    connection.deadline = None;
                    let edge = connection.edge;
                    self.manager.edge_asks(edge, request);
                }
                Ok(Step::Answered { reply }) => {
                    connection.reply.extend_from_slice(&reply);
                    connection.flush_reply();
                    return Err(EndReason::DONE);
                }
                Err(failure) => {
                    self.edges.warnings.log(&failure.notice, all);
                    connection.reply.extend_from_slice(&failure.reply);
                    connection.flush_reply();
                    return Err(EndReason::MISC);
                }
            }
        }
        Ok(count)
    }

    /// Does what the manager has to say about edges.
    fn edge_news(&mut self, now: Instant) {
        while let Some(news) = self.manager.poll_edge() {
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
                EdgeNews::Resolved { id, resolved } => {
                    self.answer_last(id, |handshake| handshake.resolved(&resolved));
                }
                EdgeNews::Refused { id, why } => {
                    self.answer_last(id, |handshake| handshake.refused(why));
                }
                EdgeNews::Over { edge, reason } => {
                    tracing::debug!("A stream on edge {edge} is over: {reason}");
                }
            }
        }
    }

    /// Tells an application that it is connected.
    fn answer_connected(&mut self, edge: u32, addr: Option<IpAddr>, now: Instant) {
        let Some(token) = self.edges.token_of(edge) else {
            return;
        };
        let Some(connection) = self.edges.all.get_mut(token) else {
            return;
        };
        if let Stage::Asking(handshake) = &connection.stage {
            if addr.is_some_and(|addr| !handshake.may_be_connected_to(addr)) {
                let reply = handshake.refused(weft_core::origin::AppRefusal::General);
                connection.reply.extend_from_slice(&reply);
                connection.flush_reply();
                return self.close_edge(token, EndReason::MISC, now);
            }
            let reply = handshake.connected();
            connection.reply.extend_from_slice(&reply);
            connection.stage = Stage::Open;
            connection.flush_reply();
        }
        if connection.readable || !connection.held.is_empty() {
            self.edges.list(token);
        }
    }

    /// Tells an application the last thing that it hears; its edge is gone already.
    fn answer_last(&mut self, id: ConnectionId, reply: impl FnOnce(&Handshake) -> Vec<u8>) {
        let Some(token) = self.edges.by_id.get(&id).copied() else {
            return;
        };
        if let Some(connection) = self.edges.all.get_mut(token) {
            if let Stage::Asking(handshake) = &connection.stage {
                let reply = reply(handshake);
                connection.reply.extend_from_slice(&reply);
            }
            // A few bytes, which a socket that has taken nothing yet takes.
            connection.flush_reply();
        }
        self.forget_edge(token);
    }

    /// Writes what edges have for their sockets.
    pub(super) fn write_edges(&mut self, now: Instant) {
        self.edge_news(now);
        let mut writing = std::mem::take(&mut self.edges.writing);
        writing.clear();
        writing.extend_from_slice(self.manager.edges_to_write());
        for edge in writing.iter().copied() {
            match self.edges.token_of(edge) {
                Some(token) => {
                    if let Err(reason) = self.write_edge(token, now) {
                        self.close_edge(token, reason, now);
                    }
                }
                None => self.manager.end_edge(edge, EndReason::MISC, now),
            }
        }
        self.edges.writing = writing;
        self.manager.prune_edges();
        self.edge_news(now);
    }

    /// Writes one socket.
    fn write_edge(&mut self, token: usize, now: Instant) -> Result<(), EndReason> {
        let Some(connection) = self.edges.all.get_mut(token) else {
            return Ok(());
        };
        let edge = connection.edge;
        let blocked = matches!(connection.socket, Socket::Tcp(_)) && !connection.writable;
        if !blocked && !connection.flush_reply() {
            return Err(EndReason::MISC);
        }
        if !connection.reply.is_empty() {
            return Ok(());
        }
        let (bytes, over) = self.manager.edge_out(edge);
        if bytes.is_empty() {
            return match over {
                // All is said, or the client left before its destination was reached.
                true => Err(EndReason::DONE),
                false => Ok(()),
            };
        }
        if over && connection.exit {
            let since = *connection.idle_since.get_or_insert(now);
            if now.saturating_duration_since(since) >= LAST_WORDS {
                return Err(EndReason::TIMEOUT);
            }
        }
        if blocked {
            return Ok(());
        }
        let wanted = bytes.len().min(WRITE_PER_TURN);
        let grant = match &mut connection.allowance {
            Some(allowance) => {
                match allowance.take(&mut self.common, Direction::Write, wanted, now) {
                    Ok(grant) => grant,
                    Err(wait) => {
                        let at = now + wait.min(TICK);
                        self.write_again = Some(self.write_again.map_or(at, |other| other.min(at)));
                        return Ok(());
                    }
                }
            }
            None => wanted,
        };
        let bytes = bytes.get(..grant.min(wanted)).unwrap_or_default();
        let result = connection.socket.write(bytes);
        let count = *result.as_ref().unwrap_or(&0);
        if let Some(allowance) = &mut connection.allowance {
            allowance.settle(&mut self.common, Direction::Write, grant, count);
            self.moved.add(allowance, Direction::Write, count);
        }
        match result {
            Ok(count) => {
                if count < bytes.len() {
                    connection.writable = false;
                }
                if count > 0 {
                    connection.idle_since = None;
                }
                self.load.add(count as u64);
                self.manager.edge_wrote(edge, count, now);
                let (rest, over) = self.manager.edge_out(edge);
                match over && rest.is_empty() {
                    true => Err(EndReason::DONE),
                    false => Ok(()),
                }
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => {
                    connection.writable = false;
                    Ok(())
                }
                io::ErrorKind::Interrupted => Ok(()),
                _ => Err(end_reason(&error)),
            },
        }
    }

    /// Ends a stream and closes its socket.
    fn close_edge(&mut self, token: usize, reason: EndReason, now: Instant) {
        if let Some(connection) = self.edges.all.get(token) {
            let edge = connection.edge;
            if self.manager.edge_id(edge) == Some(connection.id) {
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
        if let Some(place) = self.edges.by_edge.get_mut(connection.edge as usize)
            && *place == Some(token)
        {
            *place = None;
        }
    }

    /// Applications that do not say what they want have had their time.
    pub(super) fn tick_edges(&mut self, now: Instant) {
        while let Some((deadline, id)) = self.edges.asking.front().copied() {
            if deadline > now {
                break;
            }
            self.edges.asking.pop_front();
            if let Some(token) = self.edges.by_id.get(&id).copied()
                && let Some(connection) = self.edges.all.get(token)
                && connection.deadline.is_some()
            {
                tracing::debug!("An application did not say what it wants: {id}");
                self.close_edge(token, EndReason::TIMEOUT, now);
            }
        }
    }

    /// How long until an edge needs attention that no event will call for.
    pub(super) fn edges_wait(&self) -> Option<Option<Instant>> {
        if self.edges.is_ready() || self.manager.has_edge_news() {
            return Some(None);
        }
        self.edges.rest_until().map(Some)
    }
}

impl EdgeConnection {
    /// Writes what is to go before the circuit's bytes. False: the socket is broken.
    fn flush_reply(&mut self) -> bool {
        while !self.reply.is_empty() {
            match self.socket.write(&self.reply) {
                Ok(count) => {
                    self.reply.drain(..count.min(self.reply.len()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writable = false;
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}

/// What END says of a socket's failure (C tor `errno_to_stream_end_reason`).
fn end_reason(error: &io::Error) -> EndReason {
    match error.kind() {
        io::ErrorKind::BrokenPipe => EndReason::DONE,
        io::ErrorKind::ConnectionRefused => EndReason::CONNECTREFUSED,
        io::ErrorKind::ConnectionReset => EndReason::CONNRESET,
        io::ErrorKind::TimedOut => EndReason::TIMEOUT,
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::PermissionDenied => EndReason::NOROUTE,
        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable | io::ErrorKind::OutOfMemory => {
            EndReason::RESOURCELIMIT
        }
        _ => EndReason::MISC,
    }
}
