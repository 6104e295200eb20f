//! What the client asks of path selection, so that its tests can choose paths themselves.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use weft_path::{GuardUse, Outcome, PathError, RelayName, Usage};

use super::building::Hop;
use super::machine::Now;

/// A path to build.
#[derive(Debug)]
pub struct Chosen<G> {
    /// From the first relay on; never empty.
    pub hops: Vec<weft_path::Hop>,
    /// By which the guard's fate is told.
    pub guard: Option<G>,
}

/// How long building a circuit may take (path-spec 2.4).
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
}

/// How building a circuit went, as far as time is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildNews {
    /// Something answered: the network is there.
    Alive,
    /// A circuit of three hops was built.
    Built {
        /// In so long.
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
}

/// Path selection, as the client sees it.
pub trait Chooser {
    /// A guard's name for one circuit.
    type Guard: Clone + PartialEq + std::fmt::Debug;

    /// A path.
    ///
    /// # Errors
    ///
    /// There is none now.
    fn path(
        &mut self,
        usage: &Usage,
        now: Now,
        rng: &mut StdRng,
    ) -> Result<Chosen<Self::Guard>, PathError>;

    /// Something is known of a circuit's guard. Answers whether the circuit may carry streams.
    fn guard(
        &mut self,
        guard: &Self::Guard,
        outcome: Outcome,
        now: Now,
        rng: &mut StdRng,
    ) -> GuardUse;

    /// Circuits that had to wait for better guards and need not any more.
    fn settled_guards(&mut self, now: Now) -> Vec<(Self::Guard, GuardUse)>;

    /// A circuit is gone, and its name for the guard with it.
    fn forget(&mut self, guard: &Self::Guard);

    /// How long building may take.
    fn timeouts(&self) -> BuildTimeouts;

    /// How long building took.
    fn built(&mut self, news: BuildNews, now: Now);

    /// There is a directory to choose paths from.
    fn is_ready(&self) -> bool;

    /// The consensus' cc_sendme_inc, where it wants congestion control.
    fn congestion(&self) -> Option<u8>;

    /// What is known of a relay.
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
            nickname: hop.nickname.clone(),
        }
    }
}
