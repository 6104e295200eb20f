//! What the node knows of the network.

use std::collections::BTreeSet;
use std::sync::Arc;

use weft_cell::identity::RsaIdentity;
use weft_dir::consensus::Consensus;
use weft_dir::downloads::Downloads;
use weft_dir::params::Params;

/// The newest consensus and what follows from it.
#[derive(Debug, Default)]
pub(super) struct NetworkView {
    pub(super) consensus: Option<Arc<Consensus>>,
    /// How the relay's fetches of it go.
    pub(super) downloads: Option<Arc<Downloads>>,
    /// Whether an authority has taken the relay's descriptor.
    pub(super) accepted: bool,
    /// The consensus' parameters, or the defaults.
    pub(super) params: Params,
    /// RSA identities of the consensus' relays, where connections to others are limited.
    pub(super) relays: Arc<BTreeSet<RsaIdentity>>,
}
