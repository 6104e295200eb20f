//! The controller's counters.

use std::net::{IpAddr, SocketAddr};

use weft_cell::circ_msg::{CreateRequest, handshake_type};

/// The controller's counters, for the heartbeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections opened.
    pub connected: u64,
    /// Connections refused because there were too many.
    pub refused_full: u64,
    /// Connections refused by a defence.
    pub refused_dos: u64,
    /// Connections from addresses of relays, which the defences do not count.
    pub exempted: u64,
    /// Connections of `exempted` that were accepted when the node was full except for displaceable
    /// connections.
    pub exempted_full: u64,
    /// CREATEs handed to the workers.
    pub onionskins: u64,
    /// CREATEs refused because too many waited, or because they gave way to those of another hop.
    pub onionskins_dropped: u64,
    /// CREATEs of relays alone, by handshake. Clients' are left out, as in C tor, so that public
    /// counters reveal less about clients.
    pub relay_onionskins: HandshakeCounts,
    /// Connections that were booked, by the side that opened them.
    pub booked: ConnectionCounts,
    /// Connections that were refused when they came.
    pub refused: FamilyCounts,
    /// CREATEs refused by a defence.
    pub circuits_refused_dos: u64,
    /// EXTEND2s served by a connection that was open.
    pub extends_joined: u64,
    /// EXTEND2s that waited for a new connection.
    pub extends_waited: u64,
    /// Connections opened to relays to which there was another, for one circuit each.
    pub connected_again: u64,
    /// Connections of `connected_again` that were opened because lost packets hold up the other.
    pub connected_for_loss: u64,
    /// EXTEND2s that share a connection because there are as many as may be, where circuits otherwise
    /// do not share.
    pub extends_shared: u64,
    /// EXTEND2s that failed.
    pub extends_failed: u64,
    /// ESTABLISH_RENDEZVOUS with a cookie that is kept already.
    pub cookies_taken: u64,
    /// Rendezvous cookies that gave way to those of another hop, or found no room.
    pub cookies_displaced: u64,
    /// ESTABLISH_INTRO whose signature is not of their key.
    pub intro_unsigned: u64,
    /// Introduction circuits that gave way to those of another hop, or found no room.
    pub intros_displaced: u64,
    /// INTRODUCE1 that cannot be read, or not be passed on.
    pub introduce_malformed: u64,
    /// INTRODUCE1 for a service that is not here.
    pub introduce_unknown: u64,
    /// INTRODUCE1 past what its service gets.
    pub introduce_limited: u64,
    /// INTRODUCE1 of clients whose circuits have one hop.
    pub introduce_single_hop: u64,
    /// Connections to addresses that are not listed, that gave way while they were being opened or
    /// found no room.
    pub connections_displaced: u64,
    /// Links and streams' sockets that were closed for others at the bound of connections.
    pub open_displaced: u64,
    /// Extensions that gave way while they waited for a connection.
    pub extends_displaced: u64,
    /// RENDEZVOUS1 with an unknown cookie.
    pub cookies_unknown: u64,
    /// Sockets of edges whose peers were noted.
    pub edges: EdgeCounts,
    /// Times that memory was freed.
    pub(crate) memory_freed: u64,
    /// Links that were to move to another thread.
    pub moves: u64,
    /// Links that could not, or closed before they did.
    pub moves_failed: u64,
}

/// A number for each IP family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyCounts {
    /// IPv4.
    pub ipv4: u64,
    /// IPv6.
    pub ipv6: u64,
}

impl FamilyCounts {
    /// The number for an address' family.
    pub fn of(&mut self, addr: IpAddr) -> &mut u64 {
        match addr.to_canonical() {
            IpAddr::V4(_) => &mut self.ipv4,
            IpAddr::V6(_) => &mut self.ipv6,
        }
    }
}

/// Numbers of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// That others opened.
    pub received: FamilyCounts,
    /// That we opened.
    pub initiated: FamilyCounts,
}

impl ConnectionCounts {
    /// The number for a connection.
    pub(crate) fn of(&mut self, accepted: bool, addr: IpAddr) -> &mut u64 {
        match accepted {
            true => self.received.of(addr),
            false => self.initiated.of(addr),
        }
    }
}

/// Peer of an edge's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgePeer {
    /// Where an exit's stream leads.
    Destination(SocketAddr),
    /// An application of this node's client.
    Application(IpAddr),
}

/// Numbers of edges' sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeCounts {
    /// To where exits' streams lead.
    pub destinations: FamilyCounts,
    /// To applications.
    pub applications: FamilyCounts,
}

impl EdgeCounts {
    /// The number for such a socket.
    pub(super) fn of(&mut self, peer: EdgePeer) -> &mut u64 {
        match peer {
            EdgePeer::Destination(addr) => self.destinations.of(addr.ip()),
            EdgePeer::Application(addr) => self.applications.of(addr),
        }
    }
}

/// The results of onionskins of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handled {
    /// Handed to the workers.
    pub processed: u64,
    /// Refused because too many waited.
    pub dropped: u64,
}

/// Onionskins by handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandshakeCounts {
    /// CREATE_FAST.
    pub fast: Handled,
    /// ntor.
    pub ntor: Handled,
    /// ntor-v3.
    pub ntor_v3: Handled,
}

impl HandshakeCounts {
    /// The numbers for an onionskin; `None`: of an unknown kind.
    pub(super) fn of(&mut self, request: &CreateRequest) -> Option<&mut Handled> {
        match request {
            CreateRequest::Fast { .. } => Some(&mut self.fast),
            CreateRequest::Create2 { handshake_type, .. } => match *handshake_type {
                handshake_type::NTOR => Some(&mut self.ntor),
                handshake_type::NTOR_V3 => Some(&mut self.ntor_v3),
                _ => None,
            },
        }
    }
}
