//! Actions that [`Exits`](crate::Exits) asks its caller to do, and the streams that wait for
//! answers.

use std::net::SocketAddr;

use weft_cell::stream_msg::{BeginFlags, End, Resolved};
use weft_core::stream::edge::StreamAt;
use weft_log::Line;
use weft_share::PreviousHop;

use crate::query::Query;

/// Kind of the hop before this one on the stream's circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreviousKind {
    /// A client: the circuit has one hop.
    Client,
    /// A relay that the consensus lists.
    Relay,
    /// A relay that it does not list.
    UnknownRelay,
}

/// Action for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitAction {
    /// Ask name servers; [`Exits::answered`](crate::Exits::answered) takes the answer.
    LookUp(Query),
    /// Cancel the query: another one has its place. An answer may arrive all the same.
    Cancel(Query),
    /// Connect to this address. If that fails at once, the stream gets an END with the reason of the error.
    Connect {
        /// The stream that the connection is for.
        stream: StreamAt,
        /// The owner of the share of the relay's sockets that it is part of.
        hop: PreviousHop,
        /// The destination.
        to: SocketAddr,
        /// The TTL for CONNECTED, in seconds.
        ttl: u32,
    },
    /// The stream ends here.
    End {
        /// The stream.
        stream: StreamAt,
        /// The END for the client.
        end: End,
    },
    /// The answer to a RESOLVE, which ends the stream.
    Resolved {
        /// The stream.
        stream: StreamAt,
        /// The answer.
        resolved: Resolved,
    },
    /// [`Exits::effective_policy`](crate::Exits::effective_policy) has changed, for this reason: a new
    /// descriptor is due.
    PolicyChanged(&'static str),
    /// Write this line to the log.
    Log(Line),
}

/// A stream that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiter {
    Begin {
        stream: StreamAt,
        hop: PreviousHop,
        port: u16,
        flags: BeginFlags,
    },
    Resolve {
        stream: StreamAt,
    },
}

impl Waiter {
    pub(crate) const fn stream(&self) -> StreamAt {
        match self {
            Self::Begin { stream, .. } | Self::Resolve { stream } => *stream,
        }
    }
}
