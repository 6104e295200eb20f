//! A connection to a relay or a client: the round trips of its handshake, then cells.

use std::net::SocketAddr;
use std::time::Instant;

use weft_cell::identity::RsaIdentity;
use weft_core::address::ConnectionId;
use weft_core::handshake::{Established, LinkRole, PeerIdentity};
use weft_core::slots::LinkKey;
use weft_model::hosts::{ConnId, End};

use super::record;

/// The identity of each node, by its number.
pub(super) type Identities = Vec<PeerIdentity>;

/// Progress of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// So many flights have come.
    Handshake(u8),
    /// It is a link.
    Open(LinkKey),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: ConnectionId,
    pub(super) conn: ConnId,
    pub(super) end: End,
    pub(super) peer: SocketAddr,
    pub(super) phase: Phase,
    /// The identity that the other end must have, if this one opened the connection.
    wanted: Option<RsaIdentity>,
    /// The node at the other end, which its identity is known by: nobody lies about that here.
    pub(super) peer_node: Option<u32>,
    pub(super) readable: bool,
    pub(super) writable: bool,
    pub(super) broken: bool,
    /// Nothing more is written: its node is hostile.
    pub(super) muted: bool,
    /// When it began, by the node's clock.
    pub(super) since: Instant,
    /// It stands among those to be read.
    pub(super) listed: bool,
    /// Bytes that the socket has not accepted.
    pub(super) out: Vec<u8>,
}

impl Link {
    pub(super) fn new(
        id: ConnectionId,
        conn: ConnId,
        end: End,
        peer: SocketAddr,
        wanted: Option<RsaIdentity>,
        since: Instant,
    ) -> Link {
        Link {
            id,
            conn,
            end,
            peer,
            phase: Phase::Handshake(0),
            wanted,
            peer_node: None,
            readable: false,
            writable: end == End::Accepter,
            broken: false,
            muted: false,
            since,
            listed: false,
            out: Vec::new(),
        }
    }

    /// A flight of the handshake has come: puts the next one into `out`. The result once it is over for this end; an error if
    /// the other end is not who it should be. `node` is this end's.
    pub(super) fn shake_hands(
        &mut self,
        node: u32,
        identities: &Identities,
    ) -> Result<Option<Established>, ()> {
        let Phase::Handshake(flights) = self.phase else {
            return Ok(None);
        };
        self.phase = Phase::Handshake(flights + 1);
        let peer = peer_of(identities, self.peer_node);
        let (next, is_over) = match (self.end, flights) {
            (End::Accepter, 0) => (Some(record::SERVER_HELLO), false),
            (End::Opener, 0) => (Some(record::VERSIONS), false),
            (End::Accepter, 1) => (Some(record::RESPONSE), false),
            (End::Opener, _) => (Some(record::NETINFO), true),
            (End::Accepter, _) => (None, true),
        };
        if let Some(length) = next {
            record::put_flight(&mut self.out, length);
        }
        if !is_over {
            return Ok(None);
        }
        if let Some(wanted) = self.wanted
            && !matches!(peer, PeerIdentity::Relay { rsa, .. } if rsa == wanted)
        {
            return Err(());
        }
        Ok(Some(Established {
            link_protocol: 5,
            role: match (self.end, peer_of(identities, Some(node))) {
                (End::Accepter, _) => LinkRole::Accepted,
                (End::Opener, PeerIdentity::Relay { .. }) => LinkRole::OpenedAsRelay,
                (End::Opener, PeerIdentity::Unauthenticated) => LinkRole::OpenedAsClient,
            },
            peer,
            clock_skew: None,
            my_addr: None,
            peer_addrs: Vec::new(),
            canonical: true,
        }))
    }
}

/// The identity of a node's peer.
fn peer_of(identities: &Identities, node: Option<u32>) -> PeerIdentity {
    let known = node.and_then(|node| identities.get(node as usize));
    known.copied().unwrap_or(PeerIdentity::Unauthenticated)
}
