//! One circuit, as the client knows it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use weft_core::address::ConnectionId;
use weft_core::origin::OriginId;
use weft_path::TargetPort;

use crate::client::building::{Hop, HopHandshake};
use crate::client::events::{CircuitInfo, CircuitPurpose, CircuitStatus};
use crate::client::isolation::CircuitIsolation;

/// How far a circuit has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// A hop was asked; these are our secrets. `None`: they are being used.
    Building(Option<HopHandshake>),
    /// All hops are there; whether better guards must be tried first.
    Waiting,
    /// It carries streams.
    Open,
}

/// A circuit that begins here.
#[derive(Debug)]
pub(super) struct Circuit<G> {
    pub(super) id: OriginId,
    pub(super) purpose: CircuitPurpose,
    pub(super) stage: Stage,
    /// From the first relay on.
    pub(super) hops: Vec<Hop>,
    /// How many of them are there.
    pub(super) built: usize,
    /// The last relay, with what it lets through; `None` if nothing is known of it.
    pub(super) exit: Option<weft_path::Hop>,
    /// Every relay is stable.
    pub(super) stable: bool,
    /// By which the guard's fate is told.
    pub(super) guard: Option<G>,
    /// When it was asked for.
    pub(super) created: Instant,
    pub(super) created_wall: SystemTime,
    /// When the CREATE went out: its time runs from here.
    pub(super) began: Option<Instant>,
    /// When a stream used it first.
    pub(super) dirty: Option<Instant>,
    /// No more streams.
    pub(super) unusable: bool,
    /// Its time was extended because no circuit was open.
    pub(super) relaxed: bool,
    /// What the streams on it were; while it is being built, what the streams are that wait.
    pub(super) isolation: CircuitIsolation,
    /// The streams on it.
    pub(super) streams: BTreeSet<ConnectionId>,
    /// It may be unused for so long.
    pub(super) idle: Duration,
    /// Addresses that the exit refused.
    pub(super) refused: Vec<IpAddr>,
}

impl<G> Circuit<G> {
    /// For a list.
    pub(super) fn info(&self) -> CircuitInfo {
        CircuitInfo {
            id: self.id,
            status: match self.stage {
                Stage::Open => CircuitStatus::Built,
                Stage::Waiting => CircuitStatus::GuardWait,
                Stage::Building(_) if self.built == 0 => CircuitStatus::Launched,
                Stage::Building(_) => CircuitStatus::Extended,
            },
            path: self
                .hops
                .iter()
                .map(|hop| (hop.rsa, hop.nickname.clone()))
                .collect(),
            built: self.built,
            purpose: self.purpose,
            need_uptime: self.stable,
            need_capacity: self.purpose == CircuitPurpose::General,
            created: self.created_wall,
            used_by: match self.stage {
                Stage::Building(_) => None,
                _ => self
                    .isolation
                    .first()
                    .map(|(fields, mixed)| (fields.clone(), mixed)),
            },
        }
    }

    /// Whether it carries streams.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Whether hops are missing.
    pub(super) fn is_building(&self) -> bool {
        matches!(self.stage, Stage::Building(_))
    }

    /// Whether it is too long since a stream used it first.
    pub(super) fn is_too_dirty(&self, most: Duration, now: Instant) -> bool {
        self.dirty
            .is_some_and(|dirty| now.saturating_duration_since(dirty) >= most)
    }

    /// Whether the exit lets a stream to this port through, as far as is known. With no port (a
    /// lookup), whether it is an exit at all.
    pub(super) fn allows(&self, target: Option<TargetPort>) -> bool {
        let Some(exit) = &self.exit else {
            return false;
        };
        match target {
            Some(target) => exit.allows(target),
            None => exit.policy_v4.allows_some_port() || exit.policy_v6.allows_some_port(),
        }
    }

    /// The last hop's number for the connection threads.
    pub(super) fn last_hop(&self) -> u8 {
        u8::try_from(self.built.saturating_sub(1)).unwrap_or(u8::MAX)
    }
}
