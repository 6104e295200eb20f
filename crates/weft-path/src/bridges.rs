//! Bridges: relays that torrc names as first hops, in place of guards of the consensus (guard-spec 4.4; C tor: bridges.c).
//!
//! They are rows among the relays as soon as their descriptors are known, with the address that torrc has, but are drawn
//! as guards alone. Without a consensus they are all the relays that there are, which is enough to ask one of them for it.

use std::net::SocketAddr;

use weft_cell::identity::RsaIdentity;

use crate::nodes::Recognised;
use crate::options::PathOptions;
use crate::path::Hop;

/// A bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// Its address, from torrc.
    pub addr: SocketAddr,
    /// Its identity, by torrc or by a link to it; without one it is not a guard yet.
    pub rsa: Option<RsaIdentity>,
    /// Path data from its descriptor; without it no circuit leads through the bridge.
    pub hop: Option<Hop>,
    /// Families that its descriptor states.
    pub family: StatedFamily,
}

/// Families as the descriptor of a bridge states them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatedFamily {
    /// Relays that it calls its family (`family`); one counts where it calls the bridge so, too.
    pub relays: Vec<RsaIdentity>,
    /// Families whose keys certify it (`family-cert`), as microdescriptors write them (`family-ids`).
    pub keys: Vec<String>,
}

impl Bridge {
    /// Returns true if the options permit connections to it (entrynodes.c,
    /// `bridge_passes_guard_filter`).
    #[must_use]
    pub fn is_allowed(&self, options: &PathOptions) -> bool {
        options.reachable.allows(self.addr) && !self.is_excluded(options)
    }

    /// Returns true if it is in `ExcludeNodes`.
    #[must_use]
    pub fn is_excluded(&self, options: &PathOptions) -> bool {
        let unknown = RsaIdentity([0; 20]);
        let hop = self.hop.as_ref();
        options.exclude_nodes.contains(&Recognised {
            rsa: self.rsa.as_ref().unwrap_or(&unknown),
            ed25519: hop.map(|hop| &hop.ed25519),
            nickname: hop.map_or("", |hop| &hop.nickname),
            addrs: &[self.addr],
        })
    }
}
