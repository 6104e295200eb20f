//! The node's knowledge of the network.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_cell::identity::RsaIdentity;
use weft_dir::consensus::Consensus;
use weft_dir::downloads::Downloads;
use weft_dir::params::Params;

use crate::control::view::BootstrapView;

/// Time for which a relay stays known after the last consensus that listed it: as long as C tor
/// keeps its descriptor (`ROUTER_MAX_AGE`).
const KNOWN: Duration = Duration::from_secs(48 * 3600);

/// The relays of recent consensuses, with the time at which the last that lists them came.
#[derive(Debug, Default)]
pub(super) struct RecentRelays(HashMap<RsaIdentity, Instant>);

impl RecentRelays {
    /// A new consensus lists these.
    fn list(&mut self, relays: impl Iterator<Item = RsaIdentity>, now: Instant) {
        self.0.extend(relays.map(|id| (id, now)));
        self.0
            .retain(|_, listed| now.saturating_duration_since(*listed) < KNOWN);
    }

    /// True if the identity is a relay's: a relay that misses a consensus still counts (C tor's
    /// `connection_or_digest_is_known_relay`).
    pub(super) fn knows(&self, id: &RsaIdentity) -> bool {
        self.0.contains_key(id)
    }
}

/// The newest consensus and what follows from it.
#[derive(Debug, Default)]
pub(super) struct NetworkView {
    pub(super) consensus: Option<Arc<Consensus>>,
    /// Its relays, and those of the consensuses before it.
    pub(super) recent: RecentRelays,
    /// Progress of the relay's fetches of it.
    pub(super) downloads: Option<Arc<Downloads>>,
    /// Bootstrap progress of a relay that is no client.
    pub(super) bootstrap: Option<BootstrapView>,
    /// An authority has accepted the relay's descriptor.
    pub(super) accepted: bool,
    /// The consensus' parameters, or the defaults.
    pub(super) params: Params,
    /// RSA identities of the consensus' relays, where connections to others are limited.
    pub(super) relays: Arc<BTreeSet<RsaIdentity>>,
}

impl NetworkView {
    /// Takes a consensus in.
    pub(super) fn adopt(&mut self, consensus: Arc<Consensus>, now: Instant) {
        self.params = consensus.params.clone();
        let relays = consensus.relays().map(|(id, _)| (*id).into());
        self.recent.list(relays, now);
        self.consensus = Some(consensus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_that_misses_a_consensus_is_known_for_two_days() {
        let start = Instant::now();
        let [stays, goes] = [1, 2].map(|byte| RsaIdentity::from([byte; 20]));
        let mut recent = RecentRelays::default();
        assert!(!recent.knows(&goes));
        recent.list([stays, goes].into_iter(), start);
        recent.list([stays].into_iter(), start + Duration::from_secs(3600));
        assert!(recent.knows(&stays) && recent.knows(&goes));
        recent.list([stays].into_iter(), start + KNOWN);
        assert!(recent.knows(&stays) && !recent.knows(&goes));
    }
}
