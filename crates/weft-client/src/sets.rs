//! Conflux sets, as the client knows them: circuits to one exit over which streams are spread (proposal 329).

use std::time::{Duration, Instant};

use weft_cell::identity::RsaIdentity;
use weft_core::origin::{DesiredUx, OriginId};

/// Legs of a set at most, whatever the consensus has: a tunnel has no more.
const MAX_LEGS: u32 = 16;

/// The consensus parameters of conflux sets, with C tor's defaults and ranges (param-spec, `cfx_…`; conflux_params.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfluxParams {
    /// `cfx_enabled`: where torrc sets nothing.
    pub enabled: bool,
    /// `cfx_low_exit_threshold`: the share of exits with conflux, in 1/10000, below which only one set is built ahead.
    pub low_exit_threshold: u32,
    /// `cfx_max_linked_set`: sets that may carry streams at once.
    pub max_linked_set: u32,
    /// `cfx_max_prebuilt_set`: sets that are kept ready.
    pub max_prebuilt_set: u32,
    /// `cfx_max_unlinked_leg_retry`: legs that a set may have launched in vain.
    pub max_unlinked_leg_retry: u32,
    /// `cfx_num_legs_set`: legs of a set.
    pub num_legs_set: u32,
}

impl Default for ConfluxParams {
    fn default() -> Self {
        Self {
            enabled: true,
            low_exit_threshold: 6000,
            max_linked_set: 10,
            max_prebuilt_set: 3,
            max_unlinked_leg_retry: 3,
            num_legs_set: 2,
        }
    }
}

impl ConfluxParams {
    /// The same where this share of exits has conflux (`conflux_params_get_max_prebuilt`); `None`: no set is built.
    #[must_use]
    pub fn with_exits(self, share: f64) -> Option<Self> {
        if share <= 0.0 || self.num_legs_set == 0 {
            return None;
        }
        let few = share < f64::from(self.low_exit_threshold) / 10_000.0;
        Some(Self {
            max_prebuilt_set: if few { 1 } else { self.max_prebuilt_set },
            num_legs_set: self.num_legs_set.min(MAX_LEGS),
            ..self
        })
    }
}

/// A set: it is named as its tunnel.
#[derive(Debug)]
pub(crate) struct ConfluxSet {
    /// What the exit knows it by.
    pub(crate) nonce: [u8; 32],
    /// What the exit's scheduling shall aim at.
    pub(crate) ux: DesiredUx,
    /// Its exit.
    pub(crate) exit: RsaIdentity,
    /// Its legs, linked or not.
    pub(crate) legs: Vec<OriginId>,
    /// How many it shall have.
    pub(crate) wanted: usize,
    /// Legs that were launched so far.
    pub(crate) launched: usize,
    /// Legs that may be launched.
    pub(crate) most_launched: usize,
    /// The tunnel was named to the connection threads.
    pub(crate) asked: bool,
    /// All legs were linked: it carries streams.
    pub(crate) linked: bool,
    /// It will carry no streams.
    pub(crate) unusable: bool,
}

/// A circuit as a leg of a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leg {
    /// The set.
    pub(crate) set: OriginId,
    /// Its nonce.
    pub(crate) nonce: [u8; 32],
    /// When CONFLUX_LINK was sent; no answer has come.
    pub(crate) asked: Option<Instant>,
    /// How long the exit took to answer it.
    pub(crate) round_trip: Option<Duration>,
}
