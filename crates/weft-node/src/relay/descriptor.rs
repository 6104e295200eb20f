//! The relay's own descriptor, and where it is published.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tor_llcrypto::pk::curve25519;
use tor_llcrypto::pk::ed25519::ExpandedKeypair;
use tor_llcrypto::pk::rsa;
use weft_config::Options;
use weft_dir::command::DirectoryOptions;
use weft_dir::descriptor::{DescriptorKeys, OwnDescriptor};
use weft_policy::ExitPolicy;
use weft_policy::Family;

use super::address::Addresses;
use super::dir_port;
use crate::directory;
use weft_datadir::keys::RelayKeys;

/// The subprotocols that this relay speaks, and no more: links, link authentication, circuits by
/// ntor and ntor-v3 with EXTEND2 over IPv6 and Counter Galois Onion, authenticated SENDMEs and congestion control, introduction and
/// rendezvous points of onion services, padding on circuits, the documents that it reads.
const PROTOCOLS: &str = "Cons=2 Desc=2-4 FlowCtrl=1-2 HSIntro=4-5 HSRend=2 Link=4-5 LinkAuth=3 Microdesc=2-3 Padding=2 Relay=2-6";
/// Additional subprotocol of a relay whose circuits can join conflux sets (proposal 329).
const CONFLUX: &str = "Conflux=1";
/// Additional subprotocol of a relay that serves a directory.
const DIRECTORY: &str = "DirCache=2";
/// Additional subprotocol of a directory that keeps descriptors of onion services.
const HS_DIRECTORY: &str = "HSDir=2";
/// Additional subprotocol of a relay that states its weight to circuits (docs/extensions/abra.md).
const ABRA: &str = "WeftAbra=1";
/// Additional subprotocol of an exit at which mTor tunnels can end (docs/extensions/mtor.md).
const MTOR: &str = "WeftMtor=1";

/// The summary of a policy that lets nothing out.
const NO_PORT: &str = "reject 1-65535";

/// The descriptor, once an IPv4 address is known; `policy` is what the relay lets out now.
pub(super) fn own_descriptor(
    options: &Options,
    keys: &RelayKeys,
    families: &[ExpandedKeypair],
    addresses: &Addresses,
    policy: &ExitPolicy,
) -> Option<OwnDescriptor> {
    let ipv4 = addresses.v4?;
    let bandwidth = &options.bandwidth;
    let directory = options.directory.cache;
    // The private authority keeps no descriptors of onion services.
    let hs_directory = directory && options.authority.is_none();
    let mut protocols = PROTOCOLS.to_string();
    // In alphabetic order, as dir-spec wants it of a list: C tor compares them as they are.
    if options.circuits.conflux != Some(false) {
        protocols = format!("{CONFLUX} {protocols}");
    }
    if directory {
        protocols = format!("{protocols} {DIRECTORY}");
    }
    if hs_directory {
        protocols = format!("{protocols} {HS_DIRECTORY}");
    }
    if options.network.abra_weights {
        protocols = format!("{protocols} {ABRA}");
    }
    if options.network.multipath_exit && !policy.rejects_all() {
        protocols = format!("{protocols} {MTOR}");
    }
    Some(OwnDescriptor {
        keys: Arc::new(DescriptorKeys {
            rsa_identity: rsa_copy(&keys.rsa_identity),
            ed_identity: keys.ed_identity,
            signing: ed25519_copy(&keys.signing)?,
            signing_cert: keys.signing_cert.clone(),
            ntor: curve25519::StaticSecret::from(*keys.ntor.current.secret),
            tap: rsa_copy(&keys.tap),
            families: families.iter().filter_map(ed25519_copy).collect(),
        }),
        nickname: options.identity.nickname.clone(),
        ipv4,
        ipv6: addresses.v6,
        platform: OwnDescriptor::default_platform(),
        protocols: protocols.parse().ok()?,
        bandwidth_rate: bandwidth.effective_rate(),
        bandwidth_burst: bandwidth.effective_burst(),
        max_advertised: Some(bandwidth.max_advertised),
        relay_bandwidth_rate: bandwidth.relay_rate,
        contact: options.identity.contact_info.clone(),
        // A bridge's family would show where it is.
        family: match options.bridge_relay.enabled {
            true => Vec::new(),
            false => family(
                &options.identity.my_family,
                &options.identity.nickname,
                &keys.fingerprint(),
            ),
        },
        // None at all is "reject *:*".
        exit_policy: match policy.rejects_all() {
            true => Vec::new(),
            false => policy.descriptor_lines(),
        },
        ipv6_policy: Some(policy.summary(Family::V6)).filter(|summary| summary != NO_PORT),
        bridge_distribution: options.bridge_relay.distribution.clone(),
        transports: Vec::new(),
        hidden_service_dir: hs_directory,
        tunnelled_dir_server: directory,
        hibernating: false,
        extra_info_statistics: options.directory.extra_info_statistics,
        overload_statistics: options.directory.overload_statistics,
    })
}

/// The family as C tor publishes it (`get_my_declared_family`, nodefamily.c): sorted, nicknames first,
/// no relay twice, this one among them, by fingerprint; empty if this relay is the only one.
fn family(members: &[String], nickname: &str, fingerprint: &str) -> Vec<String> {
    let own = format!("${fingerprint}");
    let mut family: Vec<String> = members
        .iter()
        .filter(|member| !member.eq_ignore_ascii_case(nickname))
        .chain([&own])
        .cloned()
        .collect();
    family.sort_by_key(|member| (member.starts_with('$'), member.clone()));
    family.dedup();
    if family == [own] {
        family.clear();
    }
    family
}

/// Copies a key pair; the type has no `Clone`.
fn rsa_copy(pair: &rsa::KeyPair) -> rsa::KeyPair {
    rsa::KeyPair::from(pair.as_key().clone())
}

/// Copies a key pair; `None` if the key is invalid.
fn ed25519_copy(key: &ExpandedKeypair) -> Option<ExpandedKeypair> {
    ExpandedKeypair::from_secret_key_bytes(key.to_secret_key_bytes())
}

/// Options for the directory task.
pub(super) fn directory_options(options: &Options) -> DirectoryOptions {
    let authorities = directory::authorities(options);
    let testing = &options.testing;
    DirectoryOptions {
        disabled: options.network.disabled,
        bridge: options.bridge_relay.enabled,
        publish: options.directory.publish,
        assume_reachable: options.directory.assume_reachable,
        dir_cache: options.directory.cache,
        download_extra_info: options.directory.download_extra_info,
        max_diff_age: options.directory.max_diff_age,
        front_page: dir_port::front_page(options),
        // The addresses of directories are IPv4.
        route: options
            .network
            .route(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
        min_time_to_report_bandwidth: testing.min_time_to_report_bandwidth,
        consensus_initial_delay: testing.server_consensus_download_initial_delay,
        download_initial_delay: testing.server_download_initial_delay,
        fetch: options.directory.fetch,
        earliness: directory::earliness(options),
        max_stall: testing.dir_connection_max_stall,
        ..DirectoryOptions::new(
            authorities,
            options.files.cache_directory.clone(),
            testing.network,
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::*;
    use crate::relay::testing::options;
    use weft_datadir::keys::KeyConfig;

    const RELAY: &str = "ORPort 9001\nContactInfo x\nExitRelay 0\nNickname me\n";
    const A: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    const B: &str = "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB";
    const OWN: &str = "ABABABABABABABABABABABABABABABABABABABAB";

    fn family_of(torrc: &str) -> Vec<String> {
        let options = options(&format!("{RELAY}{torrc}"));
        family(&options.identity.my_family, "me", OWN)
    }

    #[test]
    fn a_family_is_published_as_by_c_tor() {
        let torrc = format!(
            "MyFamily {}, Me, Friend\nMyFamily ${A}=friend,{B}~other,${OWN},friend\n",
            B.to_lowercase()
        );
        let expected = [
            "friend".into(),
            format!("${A}"),
            format!("${OWN}"),
            format!("${B}"),
        ];
        assert_eq!(family_of(&torrc), expected);
        assert_eq!(family_of(""), [""; 0]);
        assert_eq!(family_of(&format!("MyFamily {OWN},me\n")), [""; 0]);
    }

    #[test]
    fn directories_follow_torrc() {
        let directory = |torrc: &str| directory_options(&options(&format!("{RELAY}{torrc}")));
        let plain = directory("");
        assert!(plain.publish && !plain.assume_reachable && plain.route.bind.is_none());
        assert_eq!(plain.max_stall, Duration::from_secs(300));
        assert_eq!(
            plain.authorities.len(),
            10,
            "the bridge authority among them"
        );
        assert!(!directory("PublishServerDescriptor 0\n").publish);
        assert!(directory("AssumeReachable 1\n").assume_reachable);
        let bind = |torrc| directory(torrc).route.bind.map(|addr| addr.to_string());
        let any = "OutboundBindAddress 192.0.2.1\nOutboundBindAddress [2001:db8::1]\n";
        assert_eq!(bind(any).as_deref(), Some("192.0.2.1"));
        let or = format!("{any}OutboundBindAddressOR 192.0.2.2\n");
        assert_eq!(bind(&or).as_deref(), Some("192.0.2.2"));
        let testing = directory(&format!(
            "DirAuthority a orport=1 v3ident={A} 127.0.0.1:2 {B}\nTestingTorNetwork 1\n\
             TestingDirConnectionMaxStall 7 seconds\nTestingMinTimeToReportBandwidth 8 seconds\n\
             TestingServerConsensusDownloadInitialDelay 9\nCacheDirectory /c\n"
        ));
        assert_eq!(testing.max_stall, Duration::from_secs(7));
        assert_eq!(testing.min_time_to_report_bandwidth, Duration::from_secs(8));
        assert_eq!(testing.consensus_initial_delay, Duration::from_secs(9));
        assert_eq!(testing.authorities.len(), 1);
        assert_eq!(testing.cache_directory.to_str(), Some("/c"));
    }

    #[test]
    fn the_descriptor_has_what_the_operator_set() {
        let folder = tempfile::tempdir().unwrap();
        let config = KeyConfig::new(folder.path().join("data"));
        config.prepare_directories().unwrap();
        let mut rng = StdRng::seed_from_u64(1);
        let keys = RelayKeys::load_or_create(&config, SystemTime::now(), &mut rng).unwrap();
        let addresses = Addresses {
            v4: Some("192.0.2.1:9001".parse().unwrap()),
            v6: None,
        };
        let own = |torrc: &str| {
            let options = options(&format!("{RELAY}{torrc}"));
            own_descriptor(&options, &keys, &[], &addresses, &options.exit.policy).unwrap()
        };
        let plain = own("");
        assert_eq!(plain.nickname, "me");
        assert_eq!(plain.contact.as_deref(), Some("x"));
        assert_eq!(
            (plain.bandwidth_rate, plain.bandwidth_burst),
            (1 << 30, 1 << 30)
        );
        assert!(plain.extra_info_statistics && plain.overload_statistics);
        let set = own("RelayBandwidthRate 200 KB\nRelayBandwidthBurst 300 KB\n\
             MaxAdvertisedBandwidth 100 KB\nExtraInfoStatistics 0\nOverloadStatistics 0\n");
        assert_eq!(
            (set.bandwidth_rate, set.bandwidth_burst),
            (100 << 10, 300 << 10)
        );
        assert_eq!(set.max_advertised, Some(100 << 10));
        assert_eq!(set.relay_bandwidth_rate, Some(200 << 10));
        assert!(!set.extra_info_statistics && !set.overload_statistics);
        let is_directory = |own: &OwnDescriptor| {
            let listed = own.protocols.to_string().contains("DirCache=2");
            assert_eq!(own.tunnelled_dir_server, listed);
            let of_services = own.protocols.to_string().contains("HSDir=2");
            assert_eq!((of_services, own.hidden_service_dir), (listed, listed));
            listed
        };
        assert!(is_directory(&plain) && is_directory(&set));
        assert!(!is_directory(&own("DirCache 0\n")));
        let nowhere = Addresses::default();
        let policy = ExitPolicy::reject_all();
        assert!(own_descriptor(&options(RELAY), &keys, &[], &nowhere, &policy).is_none());
        assert!(plain.exit_policy.is_empty() && plain.ipv6_policy.is_none());
        let exit =
            own("ExitRelay 1\nExitPolicyRejectPrivate 0\nExitPolicy accept *:80,reject *:*\n");
        assert_eq!(exit.exit_policy, ["accept *:80", "reject *:*"]);
        assert_eq!(exit.ipv6_policy, None);
        let six = own("ExitRelay 1\nIPv6Exit 1\nExitPolicy accept *:443,reject *:*\n");
        assert_eq!(six.ipv6_policy.as_deref(), Some("accept 443"));
        assert!(six.exit_policy.contains(&"reject 10.0.0.0/8:*".to_owned()));
    }
}
