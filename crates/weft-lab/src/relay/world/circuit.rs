//! A circuit through the target, and how far it has come.

use weft_crypto::circuit::OriginCircuit;
use weft_crypto::handshake::ntor;

use crate::relay::latency::Times;

/// The bit of circuit ids that a link's initiator chooses (tor-spec 5.1.1).
pub(super) const INITIATOR: u32 = 1 << 31;

/// Progress of building a circuit.
pub(super) enum Build {
    /// CREATE2 has been sent.
    Creating(ntor::ClientState),
    /// EXTEND2 has been sent; the relay's layer.
    Extending(OriginCircuit),
    /// A cell that opens a circuit through a pipe has been sent.
    Announced,
}

impl std::fmt::Debug for Build {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Build::Creating(_) => "Creating",
            Build::Extending(_) => "Extending",
            Build::Announced => "Announced",
        })
    }
}

impl Build {
    pub(super) fn is_extending(&self) -> bool {
        !matches!(self, Build::Creating(_))
    }
}

/// One direction of a circuit.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    pub(super) sent: u64,
    pub(super) arrived: u64,
    /// Cells that the schedule has released.
    pub(super) due: u64,
    /// In the list of its link.
    pub(super) active: bool,
    pub(super) times: Times,
}

/// A circuit through the target.
#[derive(Debug)]
pub(super) struct Circuit {
    /// Keys of the links.
    pub(super) origin: usize,
    pub(super) next: usize,
    /// Its ids there.
    pub(super) origin_id: u32,
    pub(super) next_id: u32,
    /// Index of our relay that it is extended to.
    pub(super) hop: usize,
    /// `None` once it can carry cells.
    pub(super) build: Option<Box<Build>>,
    pub(super) end: CircuitEnd,
    pub(super) up: Flow,
    pub(super) down: Flow,
}

/// Progress of a circuit's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CircuitEnd {
    /// It has not.
    Open,
    /// It gets no more cells; those on their way arrive first.
    Draining,
    /// DESTROY has been sent, and comes to our relay behind the target.
    Destroyed,
    /// It came there; the circuit's number may be used again.
    Vacant,
}
