//! Fault injection: hosts that do not answer, paths that lose everything, ends that vanish.

use crate::hosts::connection::{End, HostId};
use crate::hosts::net::Net;
use crate::hosts::socket::ConnId;

impl Net {
    /// Starts or ends the silence of a host: while it is silent, all packets from and to it are
    /// lost. Packets under way arrive.
    pub fn set_silent(&mut self, host: HostId, is_silent: bool) {
        self.faults.set_silent(host, is_silent);
    }

    /// Cuts or restores the path between two hosts: while it is cut, all packets that they send
    /// each other are lost.
    pub fn set_cut(&mut self, one: HostId, other: HostId, is_cut: bool) {
        self.faults.set_cut(one, other, is_cut);
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
}
