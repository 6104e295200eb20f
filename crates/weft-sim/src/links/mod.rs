//! Shared links: SALSA (Pahl et al. 2023, 3.1.4 and Algorithm 1).
//!
//! Circuits are drawn from a network ([`salsa`], or another model of paths that implements
//! [`Paths`]), the links between their relays are counted ([`count`]), and this is repeated ([`run`]).

mod class;
pub mod count;
mod error;
pub mod exits;
pub mod files;
pub mod full;
pub mod many;
pub mod report;
pub mod run;
pub mod salsa;
mod sample;

pub use class::Class;
pub use error::LinksError;

use weft_stats::bounds::Bounds;

use crate::random::{CHUNK, Generator};

/// Circuits of a run: they need 29 bytes each.
pub const CIRCUITS: Bounds<u64> = Bounds::new(1, 100_000_000);

/// Circuits of a client, which fits a chunk.
pub const CIRCUITS_PER_CLIENT: Bounds<u32> = Bounds::new(1, CHUNK as u32);

/// Guards of a client: C tor samples 60 (guard-spec 4.1).
pub const GUARDS_PER_CLIENT: Bounds<u32> = Bounds::new(1, 60);

/// Repetitions on each document.
pub const REPETITIONS: Bounds<u32> = Bounds::new(1, 10_000);

/// A model of paths.
pub trait Paths: Sync {
    /// Relays in the network; relays that are drawn are below this number.
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

/// Destination of circuits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CircuitKind {
    /// To the Internet: the last relay is an exit.
    #[default]
    External,
    /// Within the network: the last relay is drawn as middles are (Pahl et al. 2023, 4.1.5).
    Internal,
    /// Ten internal circuits for each external one, as measured (Pahl et al. 2023, 4.1.7).
    Mixed,
}
