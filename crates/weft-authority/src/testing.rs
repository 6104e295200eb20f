//! What tests of this crate and its fuzz target share: authorities and relays made up.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_authority::{
    AuthorityConfig, FlagThresholds, Granted, Lists, MAX_RELAYS, ReachabilityOptions,
};

#[path = "../../weft-dir/src/testing.rs"]
#[allow(dead_code)] // it has more than this needs
mod directory;

pub(crate) use directory::*;

/// The settings of an authority with this identity: all relays are steady and fast, and none is tested.
pub(crate) fn authority_config(identity: RsaIdentity) -> AuthorityConfig {
    AuthorityConfig {
        nickname: "auth".into(),
        identity,
        address: Ipv4Addr::LOCALHOST,
        or_port: 5000,
        dir_port: 7000,
        contact: None,
        interval: secs(20),
        vote_delay: secs(2),
        dist_delay: secs(2),
        initial_delay: secs(4),
        start_offset: Duration::ZERO,
        intervals_valid: 3,
        params: BTreeMap::new(),
        guards: Granted::default(),
        exits: Granted::default(),
        hidden_service_dirs: Granted::default(),
        // All relays are steady and fast.
        flags: FlagThresholds {
            fast_guarantee: 1,
            guard_bandwidth_guarantee: 2_000_000,
            guard_bandwidth_fraction: 0.75,
            guard_time_known: secs(8 * 86_400),
            guard_uptime_fraction: 0.98,
            stable_uptime: Duration::ZERO,
            stable_mtbf: Duration::ZERO,
            min_measured: 500,
            min_exit: 0,
            min_fast: 0,
            hs_dir_uptime: Duration::ZERO,
            max_per_address: 0,
        },
        lists: Lists::default(),
        reachability: ReachabilityOptions {
            test: false,
            test_ed25519: true,
            ipv6: false,
            time_to_learn: Duration::ZERO,
        },
        max_relays: MAX_RELAYS,
        pin_keys: true,
        reject_under_load: true,
        client_versions: Vec::new(),
        server_versions: Vec::new(),
        front_page: None,
        bandwidths: BTreeMap::new(),
    }
}
