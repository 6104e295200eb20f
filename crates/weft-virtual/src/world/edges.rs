//! The edges of a thread: what is read from them and written to them.

use std::time::{Duration, Instant};

use weft_cell::reason::EndReason;
use weft_core::address::ConnectionId;
use weft_core::stream::edge::{EdgeNews, StreamAt};
use weft_model::hosts::{ConnId, End};
use weft_model::traffic::records::Outcome;

use super::app::{Finished, refusal};
use super::edge::{Edge, Outer, Socket};
use super::ground::{Ground, News, Owner};
use super::thread::{Around, Thread};

/// Bytes read from one edge's socket in one turn.
const READ_PER_TURN: usize = 64 * 1024;
/// Longest wait for bandwidth before the next attempt.
const PATIENCE: Duration = Duration::from_millis(250);

impl Thread {
    /// Begins to connect to a stream's destination.
    pub(super) fn open_edge(
        &mut self,
        id: ConnectionId,
        at: StreamAt,
        (to, ttl): (std::net::SocketAddr, u32),
        host: weft_model::hosts::HostId,
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
        while let Some(news) = self.manager.edges_mut().poll() {
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
                        self.edges.finished.push(Finished { id, app, outcome });
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
        let granted = (self.manager.edges_mut().pace(key, wanted, now))
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
        writing.extend_from_slice(self.manager.edges().to_write());
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
            self.manager.edges_mut().prune(key);
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
            let (bytes, over) = self.manager.edges().out(key);
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
            if self.manager.edges().id(key) == Some(edge.id) {
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
