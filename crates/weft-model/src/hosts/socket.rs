//! Interface of the network: hosts, connections, their events, and the kernel's information about a
//! socket.

use std::time::Duration;

use crate::links::Loss;

use crate::hosts::connection::{End, HostId};
use crate::hosts::tcp::Sent;

/// A connection; its number is used again after both ends have closed, with another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ConnId {
    /// A small number that no other connection has at the same time.
    #[must_use]
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// Effect of a path on packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSettings {
    /// One way.
    pub delay: Duration,
    /// Packets that are lost at random.
    pub loss: Loss,
}

/// Event that the network reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A host has a new connection, for this port.
    Accepted(ConnId, HostId, u16),
    /// A connection that was opened is there.
    Connected(ConnId),
    /// There is something to be read, or the other end sends no more.
    Readable(ConnId, End),
    /// An end takes bytes again after it had refused some.
    Writable(ConnId, End),
    /// The other end has closed at once, or does not answer. The connection is gone.
    Broken(ConnId, End),
    /// A timer.
    Timer(u64),
}

/// The kernel's information about an end's socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Socket {
    /// Bytes that may be on their way.
    pub window: u64,
    /// Bytes of a full segment.
    pub mss: u32,
    /// Bytes that were sent and not acknowledged.
    pub unacknowledged: u64,
    /// Bytes that were written and not sent.
    pub unsent: u64,
    /// The smoothed round trip.
    pub round_trip: Duration,
    /// Segments, and those that were sent again.
    pub sent: Sent,
    /// Segments that came before an earlier one.
    pub out_of_order: u64,
}
