//! The links of a thread: their connections, what is read from them and written to them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Instant;

use weft_cell::ChanCmd;
use weft_core::address::ConnectionId;
use weft_core::manager::Arrival;
use weft_core::origin::LinkFailure;
use weft_core::slots::{LinkKey, SlotKey as _};
use weft_model::hosts::{ConnId, End};

use super::ground::{Ground, News, Owner};
use super::link::{Link, Phase};
use super::record;
use super::thread::{Around, TICK, Thread};

/// Bytes read from one link in one turn.
const READ_PER_TURN: usize = 128 * 1024;
/// Bytes read from all links in one turn.
const READ_IN_ALL: usize = 1024 * 1024;
/// Records written to one link before its socket is asked again.
const RECORDS_AT_ONCE: usize = 4;

impl Thread {
    /// Opens a connection to a relay.
    pub(super) fn connect(
        &mut self,
        id: ConnectionId,
        to: SocketAddr,
        rsa: weft_cell::identity::RsaIdentity,
        ground: &mut Ground,
        host: weft_model::hosts::HostId,
    ) {
        let place = self.links.vacant_key();
        let conn = ground.connect(host, to, self.owner(place));
        let Some(conn) = conn else {
            return self
                .manager
                .links_mut()
                .connection_failed(id, LinkFailure::Refused);
        };
        let mut link = Link::new(id, conn, End::Opener, to, Some(rsa), ground.now());
        link.peer_node = ground.relay_at(to);
        self.links.insert(link);
        self.by_id.insert(id, place);
    }

    /// Takes over a connection that was accepted, from the node with this number.
    pub(super) fn accept(
        &mut self,
        id: ConnectionId,
        conn: ConnId,
        from: SocketAddr,
        node: Option<u32>,
        ground: &mut Ground,
    ) {
        let place = self.links.vacant_key();
        ground.own(conn, End::Accepter, self.owner(place));
        let mut link = Link::new(id, conn, End::Accepter, from, None, ground.now());
        link.peer_node = node;
        self.links.insert(link);
        self.by_id.insert(id, place);
    }

    fn owner(&self, place: usize) -> Owner {
        Owner::Link {
            node: self.node,
            thread: self.me.0,
            place: u32::try_from(place).unwrap_or(u32::MAX),
        }
    }

    /// Something has happened to a link's connection.
    pub(super) fn note_link(&mut self, place: usize, conn: ConnId, news: News) {
        let link = self.links.get_mut(place);
        let Some(link) = link.filter(|link| link.conn == conn) else {
            return;
        };
        match news {
            News::Connected => {
                link.writable = true;
                record::put_flight(&mut link.out, record::HELLO);
            }
            News::Readable => link.readable = true,
            News::Writable => link.writable = true,
            News::Broken => link.broken = true,
        }
        if !link.listed {
            link.listed = true;
            self.to_read.push_back(place);
        }
    }

    /// Sends the link away that is ready, takes the one in that has come, and handles what the controller had sent for
    /// it to the other thread.
    pub(super) fn move_links(&mut self, now: Instant, ground: &mut Ground) {
        if let Some(id) = self.manager.departing()
            && let Some(place) = self.by_id.remove(&id)
            && let Some(link) = self.links.try_remove(place)
        {
            if let Phase::Open(key) = link.phase
                && let Some(entry) = self.by_link.get_mut(key.index())
            {
                *entry = None;
            }
            self.rate_limited.retain(|other| *other != place);
            self.to_read.retain(|other| *other != place);
            self.sent_away = Some((link.conn, link.end));
            self.manager.pack(Box::new(link), now);
        }
        if let Some(arrival) = self.manager.take_arrival() {
            self.take_in(arrival, now, ground);
        }
        while let Some(message) = self.manager.poll_forwarded() {
            for id in self.manager.handle_controller(message, now) {
                self.close_by_id(id, ground);
            }
        }
    }

    fn take_in(&mut self, mut arrival: Arrival, now: Instant, ground: &mut Ground) {
        let cargo = arrival.take_cargo();
        let key = self.manager.install(arrival, now);
        let Ok(mut link) = cargo.downcast::<Link>() else {
            return self.manager.close_link(key, LinkFailure::Other, now);
        };
        let place = self.links.vacant_key();
        link.phase = Phase::Open(key);
        // Nobody has heard of what came on the way.
        (link.readable, link.writable, link.listed) = (true, true, true);
        link.broken |= ground.net.socket(link.conn, link.end).is_none();
        if !link.broken {
            // Another connection may have the place of one that has broken.
            ground.own(link.conn, link.end, self.owner(place));
        }
        self.to_read.push_back(place);
        self.by_id.insert(link.id, place);
        self.note_key(key, place);
        self.links.insert(*link);
    }

    /// Notes which connection a link has.
    fn note_key(&mut self, key: LinkKey, place: usize) {
        let index = key.index();
        if self.by_link.len() <= index {
            self.by_link.resize(index + 1, None);
        }
        if let Some(entry) = self.by_link.get_mut(index) {
            *entry = Some(place);
        }
    }

    /// Closes a connection, as the controller or a timer asks; the manager knows.
    pub(super) fn close_by_id(&mut self, id: ConnectionId, ground: &mut Ground) {
        if let Some(place) = self.by_id.get(&id).copied() {
            let now = ground.now();
            self.end_link(place, now, ground);
        }
    }

    /// A link's connection is over: reports it to the manager.
    pub(super) fn end_link(&mut self, place: usize, now: Instant, ground: &mut Ground) {
        if let Some(link) = self.links.get(place) {
            match link.phase {
                Phase::Open(key) => self.manager.close_link(key, LinkFailure::Reset, now),
                _ => self
                    .manager
                    .links_mut()
                    .connection_failed(link.id, LinkFailure::Reset),
            }
        }
        self.forget(place, ground);
    }

    fn forget(&mut self, place: usize, ground: &mut Ground) {
        let Some(link) = self.links.try_remove(place) else {
            return;
        };
        self.by_id.remove(&link.id);
        if let Phase::Open(key) = link.phase
            && let Some(entry) = self.by_link.get_mut(key.index())
            && *entry == Some(place)
        {
            *entry = None;
        }
        if !link.broken {
            ground.net.close(link.conn, link.end);
        }
    }

    pub(super) fn read_links(&mut self, now: Instant, around: &mut Around<'_>) {
        let mut in_all = 0;
        if self.hangs {
            return;
        }
        for _ in 0..self.to_read.len() {
            let Some(place) = self.to_read.pop_front() else {
                break;
            };
            let Some(link) = self.links.get_mut(place) else {
                continue;
            };
            link.listed = false;
            if link.broken {
                self.end_link(place, now, around.ground);
                continue;
            }
            if !link.out.is_empty() && link.writable {
                self.flush(place, around.ground);
            }
            match self.read_link(place, now, around) {
                Ok(count) => in_all += count,
                Err(()) => self.end_link(place, now, around.ground),
            }
            if in_all >= READ_IN_ALL {
                break;
            }
        }
    }

    /// Reads one link; `Err`: it is over.
    fn read_link(
        &mut self,
        place: usize,
        now: Instant,
        around: &mut Around<'_>,
    ) -> Result<usize, ()> {
        let Some(link) = self.links.get_mut(place).filter(|link| link.readable) else {
            return Ok(0);
        };
        if let Phase::Open(key) = link.phase
            && self.manager.is_leaving(key)
        {
            // The thread where it goes reads on.
            return Ok(0);
        }
        let grant = match around.limits.read.take(READ_PER_TURN, now) {
            Ok(grant) => grant,
            Err(wait) => {
                let at = around.ground.nanos_of(now + wait.min(TICK));
                link.listed = true;
                self.rate_limited.push(place);
                self.retry(at);
                return Ok(0);
            }
        };
        let (conn, end) = (link.conn, link.end);
        let (count, is_over) = around.ground.net.hold(conn, end, grant);
        around.limits.read.give_back(grant - count);
        self.load.add(count as u64);
        if count < grant {
            link.readable = false;
        } else if !link.listed {
            link.listed = true;
            self.to_read.push_back(place);
        }
        self.take_records(place, now, around)?;
        match is_over && count < grant {
            true => Err(()),
            false => Ok(count),
        }
    }

    /// Handles the records that have come as a whole; of others, the network holds what has come.
    fn take_records(
        &mut self,
        place: usize,
        now: Instant,
        around: &mut Around<'_>,
    ) -> Result<(), ()> {
        let link = self.links.get(place).ok_or(())?;
        let (conn, end) = (link.conn, link.end);
        loop {
            let net = &mut around.ground.net;
            let Some(length) = record::length(net.held(conn, end, record::HEADER)) else {
                return Ok(());
            };
            let Some(content) = record::content(net.held(conn, end, length), length) else {
                return Ok(());
            };
            let link = self.links.get_mut(place).ok_or(())?;
            match link.phase {
                Phase::Open(key) if !self.ignored.is_empty() => {
                    let rest = without(content, link.id, &self.ignored);
                    net.release(conn, end, length);
                    self.manager.receive(key, &rest, now).map_err(|_| ())?;
                }
                Phase::Open(key) => {
                    self.manager.receive(key, content, now).map_err(|_| ())?;
                    net.release(conn, end, length);
                }
                Phase::Handshake(_) => {
                    net.release(conn, end, length);
                    let identities = around.identities;
                    if let Some(established) = link.shake_hands(self.node, identities)? {
                        let (id, addr) = (link.id, link.peer.ip());
                        let key = self.manager.open_link(id, addr, &established, now);
                        link.phase = Phase::Open(key);
                        self.note_key(key, place);
                    }
                    self.flush(place, around.ground);
                }
            }
        }
    }

    /// Writes what a link's socket had not taken.
    pub(super) fn flush(&mut self, place: usize, ground: &mut Ground) {
        let may_write = |link: &&mut Link| link.writable && !link.muted;
        let Some(link) = self.links.get_mut(place).filter(may_write) else {
            return;
        };
        if !link.out.is_empty() {
            let count = (ground.net).write_from(link.conn, link.end, &mut link.out);
            link.writable = link.out.is_empty();
            self.written += count as u64;
            self.link_bytes += count as u64;
        }
        if let Phase::Open(key) = link.phase {
            self.manager.links_mut().set_held(key, !link.out.is_empty());
        }
    }

    pub(super) fn write_link(&mut self, key: LinkKey, now: Instant, around: &mut Around<'_>) {
        let Some(place) = self.by_link.get(key.index()).copied().flatten() else {
            return;
        };
        self.flush(place, around.ground);
        let Some(link) = self.links.get_mut(place) else {
            return;
        };
        let Some(cells) = self.manager.links_mut().outgoing(key) else {
            return;
        };
        let mut wrote = false;
        while link.writable && !link.muted && !cells.is_empty() {
            let wanted = cells.len().min(RECORDS_AT_ONCE * record::CELLS) * weft_cell::CELL_LEN;
            let grant = match around.limits.write.take(wanted, now) {
                Ok(grant) => grant,
                Err(wait) => {
                    let at = around.ground.nanos_of(now + wait.min(TICK));
                    self.retry_at = Some(self.retry_at.map_or(at, |other| other.min(at)));
                    // One that had some of it waits for the others.
                    if !wrote {
                        self.manager.links_mut().refused(key);
                    }
                    break;
                }
            };
            let most = (grant / weft_cell::CELL_LEN).max(1);
            let mut count = 0;
            record::reserve(&mut link.out, most.min(cells.len()));
            while count < most && !cells.is_empty() {
                let most = (most - count).min(record::CELLS);
                count += record::put_cells(&mut link.out, cells, most, &mut self.spent);
            }
            around
                .limits
                .write
                .give_back(grant.saturating_sub(count * weft_cell::CELL_LEN));
            let net = &mut around.ground.net;
            let taken = net.write_from(link.conn, link.end, &mut link.out);
            link.writable = link.out.is_empty();
            self.written += taken as u64;
            self.link_bytes += taken as u64;
            self.load.add(taken as u64);
            wrote |= taken > 0;
        }
        let held = !link.out.is_empty() || link.muted;
        self.manager.links_mut().set_held(key, held);
        if wrote {
            self.manager.links_mut().wrote(key, now);
        }
        self.manager
            .links_mut()
            .count_written(key, self.spent.len() as u64);
        for cell in self.spent.drain(..) {
            self.manager.links_mut().recycle(cell);
        }
    }
}

/// Cells without the RELAY cells of these circuits.
fn without(cells: &[u8], id: ConnectionId, ignored: &BTreeSet<(ConnectionId, u32)>) -> Vec<u8> {
    let is_kept = |cell: &&[u8]| match cell {
        [c0, c1, c2, c3, command, ..] => {
            let circuit = u32::from_be_bytes([*c0, *c1, *c2, *c3]);
            ChanCmd::from(*command) != ChanCmd::RELAY || !ignored.contains(&(id, circuit))
        }
        _ => true,
    };
    let cells = cells.chunks(weft_cell::CELL_LEN).filter(is_kept);
    cells.flatten().copied().collect()
}
