//! Where the relay listens, which addresses it may connect to, and how links are padded.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use weft_proxy::{HttpProxy, Proxy, Route};

use crate::host::Host;
use crate::options::proxies;
use crate::report::Report;
use crate::settings::Settings;
use crate::table::key::Key;
use crate::table::keys;
use crate::table::value::ListLine;
use crate::text::address::parse_address;
use crate::text::ports::{OrPort, parse_or_ports};

/// Where the relay listens, and which addresses it may connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkOptions {
    /// `DisableNetwork`: nothing but control ports is opened, and no connection made.
    pub disabled: bool,
    /// `Socks4Proxy`, `Socks5Proxy`, `HTTPSProxy` or `TCPProxy`: connections to relays and directories go
    /// through it.
    pub proxy: Option<Arc<Proxy>>,
    /// `HTTPProxy`: requests to directories without encryption, which relays make, go through it.
    pub http_proxy: Option<Arc<HttpProxy>>,
    /// `ORPort`, ready to bind and to advertise. Empty: this node is not a relay.
    pub or_ports: Vec<OrPort>,
    /// `Address`: the relay's own addresses or host names, as the operator gave them. Empty: to be
    /// found out.
    pub addresses: Vec<String>,
    /// `AddressDisableIPv6`: never find out, nor advertise, an IPv6 address.
    pub address_disable_ipv6: bool,
    /// `OutboundBindAddress…`.
    pub outbound_bind: OutboundBind,
    /// `ExtendAllowPrivateAddresses`: EXTEND cells may name private addresses.
    pub extend_allow_private_addresses: bool,
    /// `ExtendByEd25519ID`: put ed25519 identities into EXTEND2 cells (`None`: by consensus).
    pub extend_by_ed25519_id: Option<bool>,
    /// `ConnectionPerCircuit`: circuits do not share connections (`None`: where packets are lost).
    pub connection_per_circuit: Option<bool>,
    /// `MaxConnectionsPerRelay`: connections to one relay past which they share all the same.
    pub max_connections_per_relay: usize,
    /// `AbraWeights`: state to clients that ask how scarce the relay's bandwidth is.
    pub abra_weights: bool,
    /// `MultipathExit`: tunnels of mTor may end at this exit.
    pub multipath_exit: bool,
    /// `KeepalivePeriod`: idle links get a padding cell this often.
    pub keepalive_period: Duration,
}

/// The source addresses of connections that the relay opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboundBind {
    /// `OutboundBindAddress`: where nothing more exact is set.
    pub any: BindPair,
    /// `OutboundBindAddressOR`: to other relays.
    pub or: BindPair,
    /// `OutboundBindAddressExit`: exit traffic.
    pub exit: BindPair,
    /// `OutboundBindAddressPT`: addresses that programs of pluggable transports connect from.
    pub pt: BindPair,
}

/// One address per family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BindPair {
    /// For IPv4 connections.
    pub v4: Option<Ipv4Addr>,
    /// For IPv6 connections.
    pub v6: Option<Ipv6Addr>,
}

impl OutboundBind {
    /// The address from which to connect to another relay at `to`.
    #[must_use]
    pub fn for_relay(&self, to: IpAddr) -> Option<IpAddr> {
        match to {
            IpAddr::V4(_) => self.or.v4.or(self.any.v4).map(IpAddr::V4),
            IpAddr::V6(_) => self.or.v6.or(self.any.v6).map(IpAddr::V6),
        }
    }

    /// The address from which to connect to `to` for an exit stream.
    #[must_use]
    pub fn for_exit(&self, to: IpAddr) -> Option<IpAddr> {
        match to {
            IpAddr::V4(_) => self.exit.v4.or(self.any.v4).map(IpAddr::V4),
            IpAddr::V6(_) => self.exit.v6.or(self.any.v6).map(IpAddr::V6),
        }
    }

    /// The addresses that programs of pluggable transports shall connect from (config.c, `parse_outbound_addresses`).
    #[must_use]
    pub fn for_transports(&self) -> BindPair {
        BindPair {
            v4: self.pt.v4.or(self.any.v4),
            v6: self.pt.v6.or(self.any.v6),
        }
    }

    /// Every address that this process connects from.
    pub fn all(&self) -> impl Iterator<Item = IpAddr> {
        [self.any, self.or, self.exit].into_iter().flat_map(|pair| {
            let v6 = pair.v6.map(IpAddr::V6);
            pair.v4.map(IpAddr::V4).into_iter().chain(v6)
        })
    }
}

impl NetworkOptions {
    /// Route of a connection to this relay or directory: the address to bind, and the proxy.
    #[must_use]
    pub fn route(&self, to: SocketAddr) -> Route {
        let first = self.proxy.as_ref().map_or(to, |proxy| proxy.addr);
        Route {
            bind: self.outbound_bind.for_relay(first.ip()),
            proxy: self.proxy.clone(),
            http: self.http_proxy.clone(),
        }
    }
}

/// The relay's ports; `None`: they cannot be read, and `report` has the reason.
pub(crate) fn relay_ports(
    settings: &Settings,
    host: &dyn Host,
    report: &mut Report,
) -> Option<Vec<OrPort>> {
    if settings.flag(keys::ClientOnly) {
        return Some(Vec::new());
    }
    let lines: Vec<_> = settings
        .lines(keys::ORPortLines)
        .iter()
        .map(|l| l.value.as_str())
        .collect();
    let mut warnings = Vec::new();
    let ports = parse_or_ports(&lines, &|name| host.resolve(name), &mut warnings);
    let origin = settings.origin(keys::ORPortLines);
    warnings
        .into_iter()
        .for_each(|warning| report.warn(origin, warning));
    ports.map_err(|why| report.error(origin, why)).ok()
}

/// A relay connects to every other.
pub(crate) fn check_reach(settings: &Settings, is_relay: bool, report: &mut Report) {
    if !is_relay {
        return;
    }
    let restricted = [
        keys::ReachableAddresses,
        keys::ReachableORAddresses,
        keys::ReachableDirAddresses,
    ];
    let mut restricted = restricted
        .into_iter()
        .filter(|key| !settings.lines(*key).is_empty())
        .map(Key::untyped);
    let flags = [(keys::FascistFirewall, true), (keys::ClientUseIPv4, false)];
    let mut flags = flags
        .into_iter()
        .filter(|(key, blocks)| settings.flag(*key) == *blocks)
        .map(|(key, _)| key.untyped());
    let blocked = restricted.next().or_else(|| flags.next());
    if let Some(key) = blocked {
        report.error(
            settings.origin(key),
            format!("{key}: a relay must be able to connect to the whole Internet"),
        );
    }
}

/// A relay pads as its peers ask.
pub(crate) fn check_padding(settings: &Settings, is_relay: bool, report: &mut Report) {
    if !is_relay {
        return;
    }
    if settings.auto_flag(keys::ConnectionPadding).is_some() {
        report.error(
            settings.origin(keys::ConnectionPadding),
            "a relay must leave ConnectionPadding at auto",
        );
    }
    for (key, wanted) in [
        (keys::ReducedConnectionPadding, false),
        (keys::CircuitPadding, true),
        (keys::ReducedCircuitPadding, false),
    ] {
        if settings.flag(key) != wanted {
            report.error(
                settings.origin(key),
                format!("a relay must leave {key} at {}", u8::from(wanted)),
            );
        }
    }
}

/// Reads them; `or_ports` are from [`relay_ports`].
pub(crate) fn read(
    or_ports: Vec<OrPort>,
    settings: &Settings,
    host: &dyn Host,
    report: &mut Report,
) -> NetworkOptions {
    NetworkOptions {
        disabled: settings.flag(keys::DisableNetwork),
        proxy: proxies::proxy(settings, host, report).map(Arc::new),
        http_proxy: proxies::http_proxy(settings, host, report).map(Arc::new),
        or_ports,
        addresses: settings
            .texts(keys::Address)
            .into_iter()
            .map(str::to_owned)
            .collect(),
        address_disable_ipv6: settings.flag(keys::AddressDisableIPv6),
        outbound_bind: OutboundBind {
            any: bind_pair(keys::OutboundBindAddress, settings, report),
            or: bind_pair(keys::OutboundBindAddressOR, settings, report),
            exit: bind_pair(keys::OutboundBindAddressExit, settings, report),
            pt: bind_pair(keys::OutboundBindAddressPT, settings, report),
        },
        extend_allow_private_addresses: settings.flag(keys::ExtendAllowPrivateAddresses),
        extend_by_ed25519_id: settings.auto_flag(keys::ExtendByEd25519ID),
        connection_per_circuit: settings.auto_flag(keys::ConnectionPerCircuit),
        max_connections_per_relay: usize::try_from(settings.number(keys::MaxConnectionsPerRelay))
            .unwrap_or(1),
        abra_weights: settings.flag(keys::AbraWeights),
        multipath_exit: settings.flag(keys::MultipathExit),
        keepalive_period: settings.time(keys::KeepalivePeriod),
    }
}

fn bind_pair(key: Key<Vec<ListLine>>, settings: &Settings, report: &mut Report) -> BindPair {
    let mut pair = BindPair::default();
    for line in settings.lines(key) {
        let taken = match parse_address(line.value.trim()) {
            Some(IpAddr::V4(address)) => pair.v4.replace(address).is_some(),
            Some(IpAddr::V6(address)) => pair.v6.replace(address).is_some(),
            None => {
                let text = format!("{key}: \"{}\" is not an IP address", line.value);
                report.error(Some(&line.origin), text);
                continue;
            }
        };
        if taken {
            let text = format!("{key}: only one IPv4 and one IPv6 address can be set");
            report.error(Some(&line.origin), text);
        }
    }
    pair
}
