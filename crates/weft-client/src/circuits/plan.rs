//! The relays of a circuit that is about to be built.

use super::hop::Hop;

/// Hops that a circuit of ours has at most: RELAY_EARLY cells do for eight extensions
/// (tor-spec 5.6).
pub(crate) const MAX_HOPS: usize = 8;

/// The relays of a new circuit.
#[derive(Debug)]
pub(crate) struct Plan<G> {
    /// From the first on.
    pub(crate) hops: Vec<Hop>,
    /// The last hop, with its exit policy.
    pub(crate) exit: Option<weft_path::Hop>,
    /// The ticket to report the outcome for the guard; `None`: the path has no guard.
    pub(crate) guard: Option<G>,
    /// Every relay is stable.
    pub(crate) stable: bool,
}
