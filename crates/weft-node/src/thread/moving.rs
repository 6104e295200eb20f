//! Links that move to another thread and from there: what the manager decides is carried out with
//! their sockets (docs/architecture/links.md, "How a link moves").

use std::time::Instant;

use mio::{Interest, Token};
use weft_core::address::ConnectionId;
use weft_core::manager::Arrival;
use weft_core::origin::LinkFailure;
use weft_core::slots::SlotKey as _;

use super::ConnectionThread;
use super::close_reason::CloseReason;
use super::connection::{Connection, Phase};
use super::reading::Listed;

impl ConnectionThread {
    /// Sends the link away that is ready, takes the one in that has come, and handles what the controller had sent for it
    /// to the other thread.
    pub(super) fn move_links(&mut self, now: Instant) {
        if let Some(id) = self.manager.departing() {
            self.send_away(id, now);
        }
        if let Some(arrival) = self.manager.take_arrival() {
            self.take_in(arrival, now);
        }
        while let Some(message) = self.manager.poll_forwarded() {
            self.handle_controller(message, &CloseReason::Requested, now);
        }
    }

    fn send_away(&mut self, id: ConnectionId, now: Instant) {
        let Some(token) = self.sockets.by_id.remove(&id) else {
            return;
        };
        let Some(mut connection) = self.sockets.all.try_remove(token) else {
            return;
        };
        // Deregistering fails only for sockets that the kernel has forgotten.
        let _ = self.poll.registry().deregister(&mut connection.socket);
        if let Phase::Open(link, _) = &connection.phase
            && let Some(entry) = self.sockets.by_link.get_mut(link.index())
        {
            *entry = None;
        }
        self.manager.pack(connection, now);
    }

    fn take_in(&mut self, mut arrival: Arrival, now: Instant) {
        let cargo = arrival.take_cargo();
        let link = self.manager.install(arrival, now);
        let Ok(mut connection) = cargo.downcast::<Connection>() else {
            return self.manager.close_link(link, LinkFailure::Resource, now);
        };
        match std::mem::replace(&mut connection.phase, Phase::Transition) {
            Phase::Open(_, records) => connection.phase = Phase::Open(link, records),
            Phase::Handshake(_) | Phase::Transition => {}
        }
        let entry = self.sockets.all.vacant_entry();
        let token = entry.key();
        let registered = self.poll.registry().register(
            &mut connection.socket,
            Token(token),
            Interest::READABLE | Interest::WRITABLE,
        );
        if let Err(error) = registered {
            tracing::warn!("Could not watch a connection's socket: {error}");
            return self.manager.close_link(link, LinkFailure::Resource, now);
        }
        // Parameters may have changed on the way, and bytes may have come.
        connection.allowance.follow(&self.params, now);
        connection.readable = true;
        connection.listed = true;
        let id = connection.id;
        entry.insert(connection);
        self.reading.queue.push_back(Listed { token, id });
        self.sockets.by_id.insert(id, token);
        self.sockets.note_link(link, token);
    }
}
