//! What the relay says about itself, and to whom.

use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs as _, UdpSocket};
use std::sync::Arc;

use tor_llcrypto::pk::curve25519;
use tor_llcrypto::pk::ed25519::ExpandedKeypair;
use tor_llcrypto::pk::rsa::{self, RsaIdentity};
use weft_core::routable;
use weft_dir::authority::Authority;
use weft_dir::command::Options as DirectoryOptions;
use weft_dir::descriptor::{DescriptorKeys, OwnDescriptor};

use crate::keys::RelayKeys;
use crate::torrc::Options;

/// The subprotocols that this relay speaks, and no more: links, link authentication, circuits
/// by ntor and ntor-v3 with EXTEND2 over IPv6 (Relay=2-4), connection padding (Padding=1), the
/// documents that it reads. Streams, directory and onion services come with later versions.
const PROTOCOLS: &str = "Cons=2 Desc=2 Link=4-5 LinkAuth=3 Microdesc=2 Padding=1 Relay=2-4";

/// The addresses that others reach the relay at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Addresses {
    /// By IPv4; a descriptor needs one.
    pub(super) v4: Option<SocketAddrV4>,
    /// By IPv6.
    pub(super) v6: Option<SocketAddrV6>,
}

impl Addresses {
    /// Finds the addresses: `Address`, else the ORPort lines', else this machine's, else what
    /// others say (`seen`). `ports` are the advertised ports by family, as bound.
    pub(super) fn find(
        options: &Options,
        ports: &[(IpAddr, u16)],
        seen: Option<IpAddr>,
    ) -> Addresses {
        let configured: Vec<IpAddr> = options
            .network
            .addresses
            .iter()
            .flat_map(|name| resolve(name))
            .collect();
        let port_of = |v4: bool| ports.iter().find(|(addr, _)| addr.is_ipv4() == v4).copied();
        let usable = |addr: &IpAddr| {
            !addr.is_unspecified()
                && (routable::is_public(*addr) || options.directory.allow_private_addresses)
        };
        let find = |v4: bool| {
            let (bound, port) = port_of(v4)?;
            let family = |addr: &IpAddr| addr.is_ipv4() == v4;
            let addr = configured
                .iter()
                .copied()
                .find(family)
                .or_else(|| Some(bound).filter(usable))
                .or_else(|| interface_address(v4).filter(usable))
                .or_else(|| seen.filter(family).filter(usable))?;
            Some(SocketAddr::new(addr, port))
        };
        Addresses {
            v4: find(true).and_then(|addr| match addr {
                SocketAddr::V4(addr) => Some(addr),
                SocketAddr::V6(_) => None,
            }),
            v6: find(false)
                .filter(|_| !options.network.address_disable_ipv6)
                .and_then(|addr| match addr {
                    SocketAddr::V6(addr) => Some(addr),
                    SocketAddr::V4(_) => None,
                }),
        }
    }

    /// All of them.
    pub(super) fn ips(&self) -> Vec<IpAddr> {
        let v4 = self.v4.map(|addr| IpAddr::V4(*addr.ip()));
        let v6 = self.v6.map(|addr| IpAddr::V6(*addr.ip()));
        v4.into_iter().chain(v6).collect()
    }
}

/// A literal address, or what the system's resolver knows.
fn resolve(name: &str) -> Vec<IpAddr> {
    if let Ok(addr) = name.trim_matches(['[', ']']).parse() {
        return vec![addr];
    }
    match (name, 0).to_socket_addrs() {
        Ok(addrs) => addrs.map(|addr| addr.ip()).collect(),
        Err(error) => {
            tracing::warn!("Could not resolve Address \"{name}\": {error}");
            Vec::new()
        }
    }
}

/// The address that this machine would send from to the Internet; nothing is sent.
fn interface_address(v4: bool) -> Option<IpAddr> {
    // Addresses that C tor asks the routing table about, too.
    let (bind, far) = if v4 {
        ("0.0.0.0:0", "18.0.0.1:9")
    } else {
        ("[::]:0", "[2002::]:9")
    };
    let socket = UdpSocket::bind(bind).ok()?;
    socket.connect(far).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The descriptor, once an IPv4 address is known.
pub(super) fn own_descriptor(
    options: &Options,
    keys: &RelayKeys,
    addresses: &Addresses,
) -> Option<OwnDescriptor> {
    let ipv4 = addresses.v4?;
    let own = format!("${}", keys.fingerprint());
    let bandwidth = &options.bandwidth;
    Some(OwnDescriptor {
        keys: Arc::new(DescriptorKeys {
            rsa_identity: rsa_copy(&keys.rsa_identity),
            ed_identity: keys.ed_identity,
            signing: ExpandedKeypair::from_secret_key_bytes(keys.signing.to_secret_key_bytes())?,
            signing_cert: keys.signing_cert.clone(),
            ntor: curve25519::StaticSecret::from(*keys.ntor.current.secret),
            tap: rsa_copy(&keys.tap),
        }),
        nickname: options.identity.nickname.clone(),
        ipv4,
        ipv6: addresses.v6,
        platform: OwnDescriptor::default_platform(),
        protocols: PROTOCOLS.parse().ok()?,
        bandwidth_rate: bandwidth.effective_rate(),
        bandwidth_burst: bandwidth.effective_burst(),
        max_advertised: Some(bandwidth.max_advertised),
        relay_bandwidth_rate: bandwidth.relay_rate,
        contact: options.identity.contact_info.clone(),
        family: options
            .identity
            .my_family
            .iter()
            .filter(|member| **member != own)
            .cloned()
            .collect(),
        exit_policy: Vec::new(),
        ipv6_policy: None,
        hidden_service_dir: false,
        tunnelled_dir_server: false,
        hibernating: false,
        extra_info_statistics: true,
    })
}

/// The same key pair again; the type has no `Clone`.
fn rsa_copy(pair: &rsa::KeyPair) -> rsa::KeyPair {
    rsa::KeyPair::from(pair.as_key().clone())
}

/// What the directory task follows.
pub(super) fn directory_options(options: &Options) -> DirectoryOptions {
    let authorities = options
        .directory
        .authorities
        .iter()
        .map(|authority| Authority {
            nickname: authority
                .nickname
                .clone()
                .unwrap_or_else(|| authority.dir_address.to_string()),
            dir_addr: SocketAddr::V4(authority.dir_address),
            identity: RsaIdentity::from(authority.fingerprint),
            v3_ident: authority.v3ident.map(RsaIdentity::from),
        })
        .collect();
    let testing = &options.testing;
    DirectoryOptions {
        publish: options.directory.publish,
        assume_reachable: options.directory.assume_reachable,
        bind: options.network.outbound_bind.any.v4.map(IpAddr::V4),
        min_time_to_report_bandwidth: testing.min_time_to_report_bandwidth,
        consensus_initial_delay: testing.server_consensus_download_initial_delay,
        max_stall: testing.dir_connection_max_stall,
        ..DirectoryOptions::new(
            authorities,
            options.files.cache_directory.clone(),
            testing.network,
        )
    }
}
