//! Makes the settings of `weft-dir` of the options of torrc.

use std::net::SocketAddr;

use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_config::{DirAuthority, Options};
use weft_dir::authority::Authority;
use weft_dir::client::{BootstrapOptions, ClientOptions, DirServer};
use weft_dir::command::Earliness;

/// The authorities whose signatures make a consensus valid.
pub(crate) fn authorities(options: &Options) -> Vec<Authority> {
    let authorities = options.directory.authorities.iter();
    authorities
        .map(|authority| Authority {
            nickname: name(authority),
            dir_addr: SocketAddr::V4(authority.dir_address),
            identity: RsaIdentity::from(authority.fingerprint),
            v3_ident: authority.v3ident.map(RsaIdentity::from),
            bridge: authority.bridge,
        })
        .collect()
}

/// The directory settings of a client: the authorities, and the servers to use before there are guards. A
/// relay in the same process uses the same cache files.
pub(crate) fn client_options(options: &Options) -> ClientOptions {
    let v3 = options.directory.authorities.iter().filter(|of| of.is_v3());
    let authority_servers = v3.map(|of| DirServer {
        nickname: name(of),
        rsa: of.fingerprint.into(),
        ed25519: None,
        or_addrs: (of.or_address().map(SocketAddr::V4))
            .into_iter()
            .chain(of.ipv6.map(SocketAddr::V6))
            .collect(),
        dir_addr: Some(SocketAddr::V4(of.dir_address)),
        weight: of.weight * options.directory.authority_fallback_rate,
        authority: true,
    });
    let fallbacks = options.directory.fallbacks.iter().map(|of| DirServer {
        nickname: of.or_address.to_string(),
        rsa: of.fingerprint.into(),
        ed25519: None,
        or_addrs: [Some(of.or_address), of.ipv6]
            .into_iter()
            .flatten()
            .collect(),
        dir_addr: None,
        weight: of.weight,
        authority: false,
    });
    // The servers that the client can connect to, each with its preferred address.
    let reachable = |mut of: DirServer| {
        of.or_addrs = vec![options.paths.reachable.choose(&of.or_addrs)?];
        Some(of)
    };
    let servers = fallbacks
        .chain(authority_servers)
        .filter_map(reachable)
        .collect();
    ClientOptions {
        disabled: options.network.disabled,
        by_bridges: options.bridges.in_use,
        paths_needed: options.directory.paths_needed,
        max_stall: options.testing.dir_connection_max_stall,
        initial_delay: options.testing.client_consensus_download_initial_delay,
        download_initial_delay: options.testing.client_download_initial_delay,
        max_interval_without_request: options.testing.client_max_interval_without_request,
        bootstrap: bootstrap(options),
        fetch: options.directory.fetch,
        earliness: earliness(options),
        ..ClientOptions::new(
            authorities(options),
            servers,
            Some(options.files.cache_directory.clone()),
            options.testing.network,
        )
    }
}

/// Options for fetching the first consensus.
fn bootstrap(options: &Options) -> BootstrapOptions {
    let torrc = &options.directory.bootstrap;
    BootstrapOptions {
        max_tries: torrc.max_tries,
        fallback_delay: torrc.fallback_delay,
        authority_delay: Some(torrc.authority_delay),
        authority_only_delay: torrc.authority_only_delay,
    }
}

/// When documents are fetched.
pub(crate) fn earliness(options: &Options) -> Earliness {
    match (
        options.directory.fetch_early,
        options.directory.fetch_extra_early,
    ) {
        (false, _) => Earliness::Usual,
        (true, false) => Earliness::Early,
        (true, true) => Earliness::ExtraEarly,
    }
}

/// The name of an authority in log lines.
fn name(authority: &DirAuthority) -> String {
    authority
        .nickname
        .clone()
        .unwrap_or_else(|| authority.dir_address.to_string())
}
