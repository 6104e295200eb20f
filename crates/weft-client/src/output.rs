//! The client's outputs for its caller, and the arguments and errors of its methods.

use weft_cell::stream_msg::Resolved;
use weft_core::address::ConnectionId;
use weft_core::origin::OriginCommand;
use weft_log::Line;
use weft_path::PathError;

use crate::circuits::Hop;
use crate::events::ClientEvent;

/// An action or event for the caller.
#[derive(Debug)]
pub enum Output {
    /// Send this command to the relay controller.
    Command(OriginCommand),
    /// Report this event to controllers.
    Event(ClientEvent),
    /// Write this line to the log.
    Log(Line),
    /// BEGIN_DIR was sent on a directory stream: requests may follow.
    DirectoryReady {
        /// The stream.
        stream: ConnectionId,
        /// The nickname of the relay.
        name: String,
    },
    /// A directory stream failed or ended.
    DirectoryGone {
        /// The stream.
        stream: ConnectionId,
        /// The reason, for the log.
        why: String,
    },
    /// A lookup for a controller has this result, perhaps an error. (Those of a DNSPort end at its edge.)
    LookedUp {
        /// The stream.
        stream: ConnectionId,
        /// The answer.
        resolved: Resolved,
    },
}

/// The directory that a stream leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryTarget {
    /// A relay known from torrc, perhaps without its onion key.
    Relay(Hop),
    /// A guard that is a directory cache.
    Guard,
}

/// Why a controller's command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// There is no such circuit.
    #[error("Unknown circuit \"{0}\"")]
    NoCircuit(u64),
    /// There is no such stream.
    #[error("Unknown stream \"{0}\"")]
    NoStream(u64),
    /// The circuit is not open.
    #[error("Can't attach stream to non-open origin circuit")]
    NotOpen,
    /// Streams are not put on circuits of one hop.
    #[error("Can't attach stream to this one-hop circuit.")]
    OneHop,
    /// The circuit has no such hop, or it is the first.
    #[error("Can't attach stream at that hop.")]
    NoHop,
    /// A leg of a conflux set is used with its set alone.
    #[error("This circuit is part of a conflux set")]
    Conflux,
    /// The stream does not wait.
    #[error("Connection is not managed by controller.")]
    NotWaiting,
    /// The rules for destinations refuse the stream: it has failed.
    #[error("Unable to attach stream")]
    Refused,
    /// There is no path.
    #[error("Couldn't start circuit: {0}")]
    NoPath(PathError),
    /// The circuit would be too long.
    #[error("No path could be made: too many hops")]
    TooLong,
    /// There is too much already.
    #[error("Too many streams or maps")]
    TooMany,
}
