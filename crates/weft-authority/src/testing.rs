//! Fictitious authorities and relays for this crate's tests and its fuzz target.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_authority::{AuthorityConfig, MAX_RELAYS};
use weft_config::{AuthorityOptions, GrantedFlag};

#[path = "../../weft-dir/src/testing.rs"]
#[allow(dead_code)] // it has more than this needs
mod directory;

pub(crate) use directory::*;

/// The settings of an authority with this identity.
pub(crate) fn authority_config(identity: RsaIdentity) -> AuthorityConfig {
    AuthorityConfig {
        nickname: "auth".into(),
        identity,
        address: Ipv4Addr::LOCALHOST,
        or_port: 5000,
        dir_port: 7000,
        contact: None,
        options: AuthorityOptions {
            dir_port: 7000,
            interval: secs(20),
            vote_delay: secs(2),
            dist_delay: secs(2),
            initial_delay: secs(4),
            intervals_valid: 3,
            params: BTreeMap::new(),
            guards: GrantedFlag::default(),
            exits: GrantedFlag::default(),
            hidden_service_dirs: GrantedFlag::default(),
            bandwidths: None,
            ipv6: false,
            needs_tap: false,
        },
        bandwidths: BTreeMap::new(),
        max_relays: MAX_RELAYS,
    }
}
