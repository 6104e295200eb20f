//! What goes wrong: hosts that do not answer, paths that lose everything, connections that break.

use std::collections::BTreeSet;

use crate::connection::{End, HostId};
use crate::net::Net;
use crate::socket::{ConnId, Happening};

/// What is wrong now.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Hosts that neither send nor receive.
    silent: BTreeSet<HostId>,
    /// Pairs that do not reach each other, the smaller number first.
    cut: BTreeSet<(HostId, HostId)>,
    /// There is any of them.
    any: bool,
}

impl Faults {
    /// Whether a packet from one to the other is lost.
    pub(crate) fn lose(&self, from: HostId, to: HostId) -> bool {
        self.any
            && (self.silent.contains(&from)
                || self.silent.contains(&to)
                || self.cut.contains(&pair(from, to)))
    }

    fn update(&mut self) {
        self.any = !self.silent.is_empty() || !self.cut.is_empty();
    }
}

fn pair(one: HostId, other: HostId) -> (HostId, HostId) {
    (one.min(other), one.max(other))
}

impl Net {
    /// Whether all that a host sends from now on, and all that is sent to it, is lost. What is under way arrives.
    pub fn set_silent(&mut self, host: HostId, is_silent: bool) {
        match is_silent {
            true => self.faults.silent.insert(host),
            false => self.faults.silent.remove(&host),
        };
        self.faults.update();
    }

    /// Whether all that two hosts send each other from now on is lost.
    pub fn set_cut(&mut self, one: HostId, other: HostId, is_cut: bool) {
        match is_cut {
            true => self.faults.cut.insert(pair(one, other)),
            false => self.faults.cut.remove(&pair(one, other)),
        };
        self.faults.update();
    }

    /// A connection breaks, and both ends hear of it at once.
    pub fn break_both(&mut self, conn: ConnId) {
        let Some(connection) = self.connection(conn) else {
            return;
        };
        let closed = connection.is_closed;
        // One that nobody has accepted yet is known at one end alone.
        let known = connection.is_open.accepter;
        self.forget(conn);
        if !closed.opener {
            self.happened
                .push_back(Happening::Broken(conn, End::Opener));
        }
        if known && !closed.accepter {
            self.happened
                .push_back(Happening::Broken(conn, End::Accepter));
        }
    }

    /// An end's host forgets a connection, as if its power had failed: nothing is sent about it before something arrives.
    pub fn vanish(&mut self, conn: ConnId, end: End) {
        if let Some(connection) = self.connection(conn) {
            *connection.is_closed.of_mut(end) = true;
            *connection.is_gone.of_mut(end) = true;
            match connection.is_open.accepter {
                true => self.forget_if_done(conn),
                // Nobody else knows of it.
                false => self.forget(conn),
            }
        }
    }

    /// Has every end whose other end is gone find out, as probes of idle connections do (SO_KEEPALIVE).
    pub fn probe_idle(&mut self) {
        let gone = self.connections.iter().zip(0..);
        let gone: Vec<(ConnId, End)> = gone
            .filter_map(|(connection, index)| {
                let connection = connection.as_ref()?;
                let generation = connection.generation;
                let end = match (connection.is_gone.opener, connection.is_gone.accepter) {
                    (true, _) => End::Opener,
                    (_, true) => End::Accepter,
                    _ => return None,
                };
                Some((ConnId { index, generation }, end))
            })
            .collect();
        for (conn, end) in gone {
            self.send_reset(conn, end);
        }
    }

    /// An end has heard nothing for too long.
    pub(crate) fn give_up(&mut self, conn: ConnId, end: End) {
        let Some(connection) = self.connection(conn) else {
            return;
        };
        let was_closed = *connection.is_closed.of(end);
        *connection.is_closed.of_mut(end) = true;
        *connection.is_gone.of_mut(end) = true;
        let other_knows = match end {
            End::Opener => connection.is_open.accepter && !connection.is_gone.accepter,
            End::Accepter => !connection.is_gone.opener,
        };
        match other_knows {
            true => self.forget_if_done(conn),
            false => self.forget(conn),
        }
        if !was_closed {
            self.happened.push_back(Happening::Broken(conn, end));
        }
    }

    /// Every connection with the ends that have not closed: the opener's, the accepter's.
    pub fn connections(&self) -> impl Iterator<Item = (ConnId, [bool; 2])> + '_ {
        (0..)
            .zip(&self.connections)
            .filter_map(|(index, connection)| {
                let connection = connection.as_ref()?;
                let generation = connection.generation;
                let lives = [
                    !connection.is_closed.opener,
                    connection.is_open.accepter && !connection.is_closed.accepter,
                ];
                Some((ConnId { index, generation }, lives))
            })
    }

    /// Something has happened that [`Net::next`] has not returned yet.
    pub fn has_happened(&self) -> bool {
        !self.happened.is_empty()
    }

    /// Whether a connection is there, as far as one end knows.
    pub fn knows(&self, conn: ConnId) -> bool {
        self.hosts_of(conn).is_some()
    }

    /// The hosts of a connection: the opener's, the accepter's.
    pub fn hosts_of(&self, conn: ConnId) -> Option<[HostId; 2]> {
        let connection = self.connections.get(conn.index())?.as_ref()?;
        let hosts = connection.hosts;
        (connection.generation == conn.generation).then_some([hosts.opener, hosts.accepter])
    }
}
