//! The relays, the options and the time by which guards are judged.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use weft_cell::identity::RsaIdentity;

use crate::nodes::Recognised;
use crate::options::PathOptions;
use crate::relays::{Relays, Row};

const DAY: Duration = Duration::from_secs(86_400);

/// The relays, the options and the time by which guards are judged.
pub(super) struct Env<'a> {
    pub(super) relays: &'a Relays,
    pub(super) options: &'a PathOptions,
    pub(super) now: SystemTime,
}

impl Env<'_> {
    /// GUARD_LIFETIME and GUARD_CONFIRMED_MIN_LIFETIME.
    pub(super) fn lifetimes(&self) -> (Duration, Duration) {
        let params = &self.relays.guard_params;
        match self.options.guard_lifetime {
            Some(set) if set >= DAY => (set, set),
            _ => (params.lifetime, params.confirmed_min_lifetime),
        }
    }

    /// Returns true if the options permit connections to such a guard (entrynodes.c,
    /// `node_passes_guard_filter`).
    pub(super) fn allows(&self, relay: &Recognised<'_>, row: Option<&Row>) -> bool {
        !self.options.exclude_nodes.contains(relay)
            && self
                .options
                .entry_nodes
                .as_ref()
                .is_none_or(|set| set.contains(relay))
            && self.options.own_identity.as_ref() != Some(relay.rsa)
            && row.is_none_or(|row| self.options.reachable.choose(&row.hop.addrs).is_some())
    }

    /// Returns true if the options permit connections to a bridge, to which `EntryNodes` does not
    /// apply.
    pub(super) fn allows_bridge(&self, addr: SocketAddr, rsa: &RsaIdentity) -> bool {
        let bridge = self.relays.bridge(addr, rsa);
        bridge.is_some_and(|bridge| bridge.is_allowed(self.options))
    }

    pub(super) fn allows_row(&self, row: &Row) -> bool {
        self.allows(&row.recognised(), Some(row))
    }

    pub(super) fn is_possible_guard(&self, row: &Row) -> bool {
        row.possible_guard && self.options.own_identity != Some(row.hop.rsa)
    }
}
