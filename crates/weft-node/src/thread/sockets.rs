//! The sockets of links.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use slab::Slab;
use weft_core::address::ConnectionId;
use weft_core::slots::{LinkKey, SlotKey as _};

use super::connection::Connection;
use super::reading::Listed;

/// The connections of links by token, and the indexes to find them.
#[derive(Debug, Default)]
pub(super) struct LinkSockets {
    /// Connections by token. Boxed: the slab never shrinks, and a crowd that has left should not
    /// leave more than a pointer each.
    pub(super) all: Slab<Box<Connection>>,
    /// Tokens by connection.
    pub(super) by_id: BTreeMap<ConnectionId, usize>,
    /// Tokens by link.
    pub(super) by_link: Vec<Option<usize>>,
    /// Handshakes in the order of their deadlines.
    pub(super) handshakes: VecDeque<(Instant, ConnectionId)>,
}

impl LinkSockets {
    /// The connection of a socket in a list, unless it is closed.
    pub(super) fn listed(&mut self, listed: Listed) -> Option<&mut Connection> {
        let connection = self.all.get_mut(listed.token)?;
        (connection.id == listed.id).then_some(&mut **connection)
    }

    /// Notes which connection a link has.
    pub(super) fn note_link(&mut self, link: LinkKey, token: usize) {
        let index = link.index();
        if self.by_link.len() <= index {
            self.by_link.resize(index + 1, None);
        }
        if let Some(entry) = self.by_link.get_mut(index) {
            *entry = Some(token);
        }
    }
}
