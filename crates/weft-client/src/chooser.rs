//! Path selection as the client uses it: a trait, so that tests and simulations can choose paths by
//! other rules.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use weft_cell::identity::RsaIdentity;
use weft_path::{GuardUse, Outcome, PathError, RelayName, Usage};

use crate::circuits::{ConfluxParams, Hop};
use crate::now::Now;

/// A path to build.
#[derive(Debug)]
pub struct Chosen<G> {
    /// From the first relay on; never empty.
    pub hops: Vec<weft_path::Hop>,
    /// The ticket to report the outcome for the guard; `None`: the path has no guard.
    pub guard: Option<G>,
}

/// Timeouts of circuit building (path-spec 2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildTimeouts {
    /// After this a circuit of three hops is not used any more.
    pub timeout: Duration,
    /// After this it is closed; until then it is only measured.
    pub close: Duration,
    /// Circuits that are late are measured further.
    pub measure: bool,
    /// Circuits are wanted in order to learn how long they take.
    pub wants_circuits: bool,
    /// The round trips of circuits are measured.
    pub probe: bool,
    /// A circuit whose round trip takes longer is not used. `None`: each is used.
    pub round_trip: Option<Duration>,
}

/// The time that building or measuring a circuit took, or that it took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildNews {
    /// A relay answered: the network is up.
    Alive,
    /// A circuit of three hops was built.
    Built {
        /// Duration of building.
        took: Duration,
        /// It had not been given up.
        in_time: bool,
    },
    /// It was given up.
    TimedOut {
        /// It had got its first hop.
        first_hop: bool,
    },
    /// It was measured on after it was given up, and was not built in that time either.
    Abandoned {
        /// When it was begun.
        began: Instant,
    },
    /// The round-trip time of a circuit; or the time after which the client stopped waiting for an
    /// answer.
    RoundTrip {
        /// So long.
        took: Duration,
    },
}

/// Path selection, as the client sees it.
pub trait Chooser {
    /// The ticket of one circuit for its guard.
    type Guard: Clone + PartialEq + std::fmt::Debug;

    /// Chooses a path.
    ///
    /// # Errors
    ///
    /// There is no such path now.
    fn path(
        &mut self,
        usage: &Usage,
        now: Now,
        rng: &mut StdRng,
    ) -> Result<Chosen<Self::Guard>, PathError>;

    /// Reports the outcome of a circuit for its guard. Returns whether the circuit may carry streams.
    fn guard(
        &mut self,
        guard: &Self::Guard,
        outcome: Outcome,
        now: Now,
        rng: &mut StdRng,
    ) -> GuardUse;

    /// The ticket of a circuit of one hop to this relay, if that is a bridge that is used: its outcome shows whether the bridge can
    /// be reached.
    fn bridge(&mut self, _rsa: &RsaIdentity, _now: Now) -> Option<Self::Guard> {
        None
    }

    /// The circuits that waited for better guards and need not any more.
    fn settled_guards(&mut self, now: Now) -> Vec<(Self::Guard, GuardUse)>;

    /// Drops the ticket of a circuit that ended.
    fn forget(&mut self, guard: &Self::Guard);

    /// Timeouts of circuit building.
    fn timeouts(&self) -> BuildTimeouts;

    /// Reports how long building took.
    fn built(&mut self, news: BuildNews, now: Now);

    /// Returns true if there is a directory to choose paths from.
    fn is_ready(&self) -> bool;

    /// The consensus' cc_sendme_inc, if it turns congestion control on.
    fn congestion(&self) -> Option<u8>;

    /// The consensus' parameters of conflux sets; `None`: no set can be built.
    fn conflux(&self) -> Option<ConfluxParams>;

    /// Finds a relay of the consensus.
    fn find(&self, name: &RelayName) -> Option<weft_path::Hop>;
}

impl From<&weft_path::Hop> for Hop {
    fn from(hop: &weft_path::Hop) -> Self {
        Hop {
            rsa: hop.rsa,
            ed25519: Some(hop.ed25519),
            ntor: Some(hop.ntor),
            addrs: hop.addrs.clone(),
            ntor_v3: hop.supports_ntor_v3,
            congestion_control: hop.supports_cc,
            cgo: hop.supports_cgo,
            abra: hop.supports_abra,
            bandwidth: hop.bandwidth,
            nickname: hop.nickname.clone(),
        }
    }
}
