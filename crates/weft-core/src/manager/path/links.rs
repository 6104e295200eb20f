//! Links of a thread: opened, worn and closed.

use std::net::IpAddr;
use std::time::Instant;

use rand::{Rng as _, RngExt as _};
use weft_cell::reason::DestroyReason;
use weft_planted::{Fault, planted};

use super::CellPath;
use super::closing::Notify;
use crate::address::ConnectionId;
use crate::handshake::Established;
use crate::link::Link;
use crate::link::padding::{Ends, LinkPadding};
use crate::message::ToController;
use crate::origin::LinkFailure;
use crate::slots::LinkKey;

impl CellPath {
    /// A connection finished its handshake: from now on its bytes are given to
    /// [`receive`](Self::receive). The controller is notified.
    pub(in crate::manager) fn open_link(
        &mut self,
        connection: ConnectionId,
        addr: IpAddr,
        established: &Established,
        now: Instant,
    ) -> LinkKey {
        let (peer, role) = (established.peer, established.role);
        let ends = Ends::of(role, &peer);
        let padding = LinkPadding::new(ends, established.link_protocol >= 5, now);
        let mut link = Link::new(
            connection,
            peer,
            addr,
            role,
            self.rng.next_u64(),
            padding,
            now,
        );
        link.idle_part = self.rng.random();
        let key = self.links.insert(link);
        self.scheduler.link_added(key);
        self.follow_padding_params(key);
        self.to_controller.push(ToController::LinkOpened {
            connection,
            peer,
            canonical: established.canonical,
            clock_skew: established.clock_skew,
            my_addr: established.my_addr,
        });
        key
    }

    /// A link gets no new circuits from here. The controller is notified once, before anything that is sent to it later.
    pub(in crate::manager) fn retire_link(&mut self, key: LinkKey) {
        if let Some(link) = self.links.get_mut(key)
            && !std::mem::replace(&mut link.worn, true)
        {
            let connection = link.connection;
            self.to_controller
                .push(ToController::LinkWorn { connection });
        }
    }

    /// The connection under a link is closed: its circuits close, and the controller is notified. Returns it.
    pub(in crate::manager) fn close_link(
        &mut self,
        key: LinkKey,
        why: LinkFailure,
        now: Instant,
    ) -> Option<ConnectionId> {
        let link = self.links.get(key)?;
        let connection = link.connection;
        for slot in link.slots() {
            if planted(Fault::HalfOutlivesLink) {
                continue;
            }
            self.close_half(slot, DestroyReason::CHANNEL_CLOSED, Notify::Peer, now);
        }
        self.scheduler.link_removed(key);
        if let Some(link) = self.links.remove(key) {
            for cell in link.out {
                self.pool.put(cell);
            }
        }
        self.to_controller
            .push(ToController::ConnectionClosed { connection, why });
        Some(connection)
    }

    /// The padding of a link follows the parameters; its peer is sent what this node, as its client, wants.
    pub(in crate::manager) fn follow_padding_params(&mut self, key: LinkKey) {
        let Some(link) = self.links.get_mut(key) else {
            return;
        };
        if let Some(wish) = link.padding.follow(&self.params.padding) {
            let cell = self.pool.hold(wish.encode());
            self.links.push_out(key, cell);
        }
    }

    /// The padding of all links follows the parameters.
    pub(in crate::manager) fn follow_padding_params_everywhere(&mut self) {
        let keys: Vec<LinkKey> = self.links.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.follow_padding_params(key);
        }
    }
}
