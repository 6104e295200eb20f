//! Sets of circuits to one exit, over which streams are spread, as the client knows them: conflux sets (proposal 329) and tunnels
//! of mTor (docs/extensions/mtor.md).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use weft_cell::identity::RsaIdentity;
use weft_cell::mtor_msg::SECRET_LEN;
use weft_core::origin::{DesiredUx, OriginId, TunnelKind};

use crate::isolation::CircuitIsolation;

/// Legs of a set at most, whatever the consensus has: a tunnel has no more.
pub(crate) const MAX_LEGS: usize = 16;

/// Legs that an exit closes in succession instead of joining them to a tunnel that it has named, until it is held to have
/// forgotten the tunnel. One may have been closed by a relay on its way.
const FORGOTTEN: u32 = 2;

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
    /// The parameters where this share of exits has conflux (`conflux_params_get_max_prebuilt`);
    /// `None`: no set is built.
    #[must_use]
    pub fn with_exits(self, share: f64) -> Option<Self> {
        if share <= 0.0 || self.num_legs_set == 0 {
            return None;
        }
        let few = share < f64::from(self.low_exit_threshold) / 10_000.0;
        let most = u32::try_from(MAX_LEGS).unwrap_or(u32::MAX);
        Some(Self {
            max_prebuilt_set: if few { 1 } else { self.max_prebuilt_set },
            num_legs_set: self.num_legs_set.min(most),
            ..self
        })
    }
}

/// A set: it is named as its tunnel.
#[derive(Debug)]
pub(crate) struct Set {
    /// Identifier on the control port, and at the exit of a conflux set.
    pub(crate) nonce: [u8; 32],
    /// Aim of the exit's scheduling.
    pub(crate) ux: DesiredUx,
    /// By whose rules it is built.
    pub(crate) policy: SetPolicy,
    /// Its exit joins the legs as a tunnel of mTor; `None`: as a conflux set, in which bytes that a
    /// leg loses are lost.
    pub(crate) numbered: Option<Numbered>,
    /// Its exit.
    pub(crate) exit: RsaIdentity,
    /// Its legs, linked or not.
    pub(crate) legs: Vec<OriginId>,
    /// Number of legs that it should have.
    pub(crate) wanted: usize,
    /// Legs that were launched so far.
    pub(crate) launched: usize,
    /// Before it carries streams: legs that may be launched.
    pub(crate) most_launched: usize,
    /// The tunnel was named to the connection threads.
    pub(crate) asked: bool,
    /// It carries streams: all legs of a conflux set are linked, or the first of a tunnel of mTor.
    pub(crate) linked: bool,
    /// It will carry no more streams.
    pub(crate) unusable: bool,
}

/// By whose rules a set is built.
#[derive(Debug)]
pub(crate) enum SetPolicy {
    /// C tor's.
    Conflux,
    /// Yang and Li's.
    Mtor(Box<MtorSet>),
}

/// A set whose messages have numbers, so that what a leg loses is sent again (docs/extensions/mtor.md).
#[derive(Debug)]
pub(crate) struct Numbered {
    /// Secret that proves to the exit that the legs are one client's.
    pub(crate) secret: [u8; SECRET_LEN],
    /// The exit has named the tunnel: legs can join it.
    pub(crate) named: bool,
    /// The leg that has asked for the tunnel, while there is no answer.
    pub(crate) first: Option<OriginId>,
    /// Legs that the exit has closed instead of joining them, since it joined one.
    refused: u32,
}

impl Numbered {
    /// For a set that nothing was asked for yet.
    pub(crate) fn new(secret: [u8; SECRET_LEN]) -> Self {
        Self {
            secret,
            named: false,
            first: None,
            refused: 0,
        }
    }
}

/// State that only tunnels of mTor have.
#[derive(Debug)]
pub(crate) struct MtorSet {
    /// The streams that wait for it.
    pub(crate) reserved: CircuitIsolation,
    /// When legs were launched in place of others, in the last minute.
    pub(crate) replaced: VecDeque<Instant>,
    /// Since when it has carried no stream.
    pub(crate) quiet: Option<Instant>,
}

impl Set {
    /// The state that only tunnels of mTor have; `None`: this is a conflux set.
    pub(crate) fn mtor(&self) -> Option<&MtorSet> {
        match &self.policy {
            SetPolicy::Mtor(mtor) => Some(mtor),
            SetPolicy::Conflux => None,
        }
    }

    /// The state that only tunnels of mTor have, mutable.
    pub(crate) fn mtor_mut(&mut self) -> Option<&mut MtorSet> {
        match &mut self.policy {
            SetPolicy::Mtor(mtor) => Some(mtor),
            SetPolicy::Conflux => None,
        }
    }

    /// Returns true if it is a conflux set.
    pub(crate) fn is_conflux(&self) -> bool {
        self.mtor().is_none()
    }

    /// Identity by which the connection threads join its legs.
    pub(crate) fn kind(&self) -> TunnelKind {
        match &self.numbered {
            None => TunnelKind::Conflux {
                nonce: self.nonce,
                ux: self.ux,
            },
            Some(numbered) => TunnelKind::Mtor {
                secret: numbered.secret,
            },
        }
    }

    /// Returns true if a leg that is built may ask the exit now. Until the exit has named a tunnel,
    /// only its first leg may.
    pub(crate) fn may_ask(&mut self, leg: OriginId) -> bool {
        match &mut self.numbered {
            Some(numbered) if !numbered.named => *numbered.first.get_or_insert(leg) == leg,
            _ => true,
        }
    }

    /// Returns true if the exit seems to have forgotten the tunnel. It sends no error then, but
    /// closes the legs that should join the tunnel.
    pub(crate) fn is_forgotten(&self) -> bool {
        let numbered = self.numbered.as_ref();
        numbered.is_some_and(|numbered| numbered.refused >= FORGOTTEN)
    }

    /// The exit has linked a leg.
    pub(crate) fn note_linked(&mut self) {
        if let Some(numbered) = &mut self.numbered {
            numbered.named = true;
            numbered.first = None;
            numbered.refused = 0;
        }
    }

    /// A leg has closed. `refused`: its circuit was closed while it joined. `alone`: no other leg
    /// is linked, so the exit has dropped the tunnel.
    pub(crate) fn note_gone(&mut self, leg: OriginId, refused: bool, alone: bool) {
        if let Some(numbered) = &mut self.numbered {
            numbered.refused += u32::from(refused && numbered.named);
            numbered.named &= !alone;
            numbered.first = numbered.first.filter(|first| *first != leg);
        }
    }
}

/// A circuit as a leg of a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leg {
    /// The set.
    pub(crate) set: OriginId,
    /// Its nonce.
    pub(crate) nonce: [u8; 32],
    /// When the exit was asked to link it; no answer has come.
    pub(crate) asked: Option<Instant>,
    /// Time that the exit took to answer.
    pub(crate) round_trip: Option<Duration>,
    /// The connection threads have found it too slow (mTor).
    pub(crate) slow: bool,
    /// It was given up (mTor): the connection threads close it when all that was sent on it has arrived.
    pub(crate) dropped: bool,
}

impl Leg {
    /// A leg of a set, which is not built.
    pub(crate) fn new(set: OriginId, nonce: [u8; 32]) -> Self {
        Self {
            set,
            nonce,
            asked: None,
            round_trip: None,
            slow: false,
            dropped: false,
        }
    }

    /// Returns true once the exit has linked it.
    pub(crate) fn is_linked(&self) -> bool {
        self.round_trip.is_some()
    }

    /// Returns true if it should be kept.
    pub(crate) fn is_good(&self) -> bool {
        !self.slow && !self.dropped
    }
}

/// Counters of mTor tunnels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelCounts {
    /// Tunnels that were begun.
    pub begun: u64,
    /// Tunnels that carried streams.
    pub ready: u64,
    /// Legs that were launched, and among them those in place of others.
    pub legs: u64,
    /// Legs that were launched in place of others, which were slow or closed.
    pub replaced: u64,
    /// Legs that were found too slow.
    pub slow: u64,
    /// Legs that were linked and closed before they were given up.
    pub lost: u64,
    /// Streams that should have had a tunnel and got another circuit.
    pub without: u64,
}
