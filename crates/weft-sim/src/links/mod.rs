//! Shared links: SALSA (seeds/004, 3.1.4 and Algorithm 1).
//!
//! Circuits are drawn from a network ([`salsa`], or another model of paths that implements
//! [`Paths`]), the links between their relays are counted ([`count`]), and this is repeated ([`run`]).

pub mod count;
pub mod exits;
pub mod files;
pub mod full;
pub mod many;
pub mod report;
pub mod run;
pub mod salsa;

use crate::random::{CHUNK, Generator};

/// No run has more circuits: they need 29 bytes each.
pub const MAX_CIRCUITS: u64 = 100_000_000;

/// No client has more circuits, so that a client fits a chunk.
pub const MAX_CIRCUITS_PER_CLIENT: u32 = CHUNK as u32;

/// No client has more guards: C tor samples 60 (guard-spec 4.1).
pub const MAX_GUARDS_PER_CLIENT: u32 = 60;

/// A model of paths.
pub trait Paths: Sync {
    /// How many relays there are; those drawn are below.
    fn relays(&self) -> u32;

    /// So many circuits, from a multiple of it on, belong together: chunks do not divide them, but are
    /// a few circuits smaller. At most [`CHUNK`].
    fn together(&self) -> usize {
        1
    }

    /// Draws circuits. The first of them is the network's circuit number `first`. All three slices are
    /// equally long.
    fn draw(&self, random: &mut Generator, first: u64, circuits: Chunk<'_>);
}

/// Relays of some circuits, by position.
#[derive(Debug)]
pub struct Chunk<'a> {
    /// First hops.
    pub guards: &'a mut [u32],
    /// Second hops.
    pub middles: &'a mut [u32],
    /// Third hops; of internal circuits, too.
    pub exits: &'a mut [u32],
}

/// Which circuits there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// To the Internet: the last relay is an exit.
    #[default]
    External,
    /// Within the network: the last relay is drawn as middles are (seeds/004, 4.1.5).
    Internal,
    /// Ten internal circuits for each external one, as measured (seeds/004, 4.1.7).
    Mixed,
}

/// What can be asked of a simulation and what cannot be given.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum LinksError {
    /// Nothing to count, or more than memory holds.
    #[error("{0} circuits: there must be between 1 and {MAX_CIRCUITS}")]
    Circuits(u64),
    /// No client, or one larger than a chunk.
    #[error("{0} circuits per client: there must be between 1 and {MAX_CIRCUITS_PER_CLIENT}")]
    CircuitsPerClient(u32),
    /// No guard, or more than any client samples.
    #[error("{0} guards per client: there must be between 1 and {MAX_GUARDS_PER_CLIENT}")]
    GuardsPerClient(u32),
    /// Fewer guards in the network than a client should have.
    #[error("a client should have {asked} guards, but the network has {there}")]
    TooFewGuards {
        /// By a client.
        asked: u32,
        /// In the network.
        there: u32,
    },
    /// Nothing would be run.
    #[error("0 repetitions: there must be at least 1")]
    Repetitions,
    /// No thread to run on.
    #[error("0 threads: there must be at least 1")]
    Threads,
    /// No relay is a guard and has bandwidth and weight.
    #[error(
        "the network has no guards: no relay with the flag Guard has bandwidth and weight above 0"
    )]
    NoGuards,
    /// No relay can be a middle.
    #[error("the network has no middles: no relay has bandwidth and weight above 0")]
    NoMiddles,
    /// No relay is an exit of this class.
    #[error("the network has no exits for {0}: none has bandwidth and weight above 0")]
    NoExits(exits::Class),
    /// The document does not say which ports exits allow.
    #[error(
        "the document has no exit policies (p lines), which exits for {0} need: give the plain consensus, not its microdesc flavour"
    )]
    NoPolicies(exits::Class),
    /// No share of classes is above 0.
    #[error("the shares of the classes of exits must be numbers from 0 on, one of them above 0")]
    Mixture,
    /// More relays than can be numbered.
    #[error("the network has too many relays")]
    TooManyRelays,
}
