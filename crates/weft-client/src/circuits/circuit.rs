//! One circuit, as the client knows it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use weft_core::address::ConnectionId;
use weft_core::origin::OriginId;
use weft_path::TargetPort;

use super::hop::{Hop, HopHandshake};
use super::sets::Leg;
use super::weights::Places;
use crate::events::{CircuitInfo, CircuitPurpose, CircuitStatus};
use crate::isolation::CircuitIsolation;

/// State of a circuit.
#[derive(Debug)]
pub(crate) enum Stage {
    /// A CREATE2 or EXTEND2 was sent; these are the handshake's secrets. `None`: they are in use.
    Building(Option<HopHandshake>),
    /// All hops are there; whether better guards must be tried first.
    Waiting,
    /// All hops are there; it is not used until its round trip is known.
    Probing,
    /// It carries streams.
    Open,
}

/// A circuit that begins here.
#[derive(Debug)]
pub(crate) struct Circuit<G> {
    pub(crate) id: OriginId,
    pub(crate) purpose: CircuitPurpose,
    pub(crate) stage: Stage,
    /// From the first relay on.
    pub(crate) hops: Vec<Hop>,
    /// Hops that are built.
    pub(crate) built: usize,
    /// The last relay, with its exit policy; `None` if it is unknown.
    pub(crate) exit: Option<weft_path::Hop>,
    /// Every relay is stable.
    pub(crate) stable: bool,
    /// The ticket to report the outcome for the guard; `None`: the path has no guard.
    pub(crate) guard: Option<G>,
    /// When it was launched.
    pub(crate) created: Instant,
    pub(crate) created_wall: SystemTime,
    /// When the CREATE went out: its time runs from here.
    pub(crate) began: Option<Instant>,
    /// The link on which it went out.
    pub(crate) link: Option<ConnectionId>,
    /// Duration of building.
    pub(crate) took: Option<Duration>,
    /// When its last hop was asked for the refusal that shows how long the round trip takes; no answer has come.
    pub(crate) probed: Option<Instant>,
    /// Its last hop counts by congestion control.
    pub(crate) congestion: bool,
    /// The conflux set that it is a leg of.
    pub(crate) leg: Option<Leg>,
    /// Round-trip time, once it is measured.
    pub(crate) round_trip: Option<Duration>,
    /// When a stream used it first.
    pub(crate) dirty: Option<Instant>,
    /// No more streams.
    pub(crate) unusable: bool,
    /// Its time was extended because no circuit was open.
    pub(crate) relaxed: bool,
    /// The isolation of its streams; while it is being built, of the streams that wait for it.
    pub(crate) isolation: CircuitIsolation,
    /// Its relays among those whose weights are known; empty where they were not asked.
    pub(crate) weighed: Places,
    /// Streams that it was given so far.
    pub(crate) uses: u32,
    /// The streams on it.
    pub(crate) streams: BTreeSet<ConnectionId>,
    /// Time for which it may be unused.
    pub(crate) idle: Duration,
    /// Addresses that the exit refused.
    pub(crate) refused: Vec<IpAddr>,
}

impl<G> Circuit<G> {
    /// For a list.
    pub(crate) fn info(&self) -> CircuitInfo {
        CircuitInfo {
            id: self.id,
            status: match self.stage {
                Stage::Open => CircuitStatus::Built,
                Stage::Waiting => CircuitStatus::GuardWait,
                Stage::Building(_) if self.built == 0 => CircuitStatus::Launched,
                Stage::Building(_) | Stage::Probing => CircuitStatus::Extended,
            },
            path: self
                .hops
                .iter()
                .map(|hop| (hop.rsa, hop.nickname.clone()))
                .collect(),
            built: self.built,
            purpose: self.purpose,
            need_uptime: self.stable,
            need_capacity: self.purpose == CircuitPurpose::General || self.purpose.is_leg(),
            created: self.created_wall,
            build_time: self.took,
            round_trip: self.round_trip,
            conflux: self.leg.and_then(|leg| leg.nonce.first_chunk().copied()),
            weight: None,
            stated: 0,
            uses: self.uses,
            used_by: match self.stage {
                // C tor's LAUNCHED does not have the user yet.
                Stage::Building(_) if self.built == 0 => None,
                _ => self
                    .isolation
                    .first()
                    .map(|(fields, mixed)| (fields.clone(), mixed)),
            },
        }
    }

    /// Returns true if it is open for streams.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Returns true while hops are missing.
    pub(crate) fn is_building(&self) -> bool {
        matches!(self.stage, Stage::Building(_))
    }

    /// True while its building is a measure of three hops. Extension of an open circuit by a
    /// controller is not measured.
    pub(crate) fn is_timed(&self) -> bool {
        self.hops.len() == 3 && self.took.is_none()
    }

    /// Returns true if it stands for a conflux set or a tunnel.
    pub(crate) fn is_set(&self) -> bool {
        self.purpose.is_set()
    }

    /// Returns true if its first use by a stream was `most` ago or longer.
    pub(crate) fn is_too_dirty(&self, most: Duration, now: Instant) -> bool {
        self.dirty
            .is_some_and(|dirty| now.saturating_duration_since(dirty) >= most)
    }

    /// Returns true if the exit allows streams to this port, as far as is known. For a lookup,
    /// which has no port: true if the circuit ends at an exit at all.
    pub(crate) fn allows(&self, target: Option<TargetPort>) -> bool {
        let Some(exit) = &self.exit else {
            return false;
        };
        match target {
            Some(target) => exit.allows(target),
            None => exit.policy_v4.allows_some_port() || exit.policy_v6.allows_some_port(),
        }
    }

    /// The last hop's number for the connection threads. A set as a whole has one.
    pub(crate) fn last_hop(&self) -> u8 {
        if self.is_set() {
            return 0;
        }
        u8::try_from(self.built.saturating_sub(1)).unwrap_or(u8::MAX)
    }
}
