//! Traffic of connections and of circuits' queues, for controllers (CONN_BW and CELL_STATS,
//! control-spec 4.1.22 and 4.1.23) and statistics (`CellStatistics`). Measured only on request.

use std::time::{Duration, Instant};

use crate::address::{ConnectionId, HalfAddr, OriginId};

/// Measurements of a thread since its last report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Bytes of connections.
    pub connections: Vec<ConnectionBytes>,
    /// Cells that left the queues of circuits.
    pub queues: Vec<QueueUse>,
}

/// Bytes of one connection, as its socket gave and took them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionBytes {
    /// The connection.
    pub connection: ConnectionId,
    /// It leads to a stream's destination; otherwise to a relay or a client.
    pub exit: bool,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

/// The direction of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// Toward the origin of a circuit that comes from elsewhere.
    Inbound,
    /// Away from it.
    Outbound,
    /// The queue of a circuit that begins here, toward its first hop.
    Origin(OriginId),
}

/// Cells of one command that left a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandUse {
    /// The cells' command.
    pub command: u8,
    /// Number of cells.
    pub cells: u64,
    /// Sum of their waiting times.
    pub waited: Duration,
}

/// Cells that left the queue of a circuit half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueUse {
    /// The circuit, by its half that has the keys.
    pub circuit: HalfAddr,
    /// The queue among the circuit's.
    pub kind: QueueKind,
    /// The connection that the cells left by.
    pub connection: ConnectionId,
    /// The circuit's id there.
    pub circ_id: u32,
    /// When the first of these cells left.
    pub since: Instant,
    /// The cells, in the order of their commands.
    pub commands: Vec<CommandUse>,
    /// The half has closed.
    pub closed: bool,
}

impl QueueUse {
    /// All cells, and how long they waited together.
    #[must_use]
    pub fn total(&self) -> (u64, Duration) {
        let add = |(cells, waited), used: &CommandUse| (cells + used.cells, waited + used.waited);
        self.commands.iter().fold((0, Duration::ZERO), add)
    }
}
