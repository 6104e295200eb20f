//! A client's bridges, as the main thread sees them: the programs of their transports, and how they are connected to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use mio::Registry;
use weft_client::Transports;
use weft_config::Options;
use weft_config::options::{BridgeLine, PluginKind};
use weft_core::origin::LinkFailure;
use weft_proxy::transports::{Offer, Role};
use weft_proxy::{Credentials, Protocol, Proxy, Route, Secret};

use super::Relay;
use crate::client::ToClient;
use crate::control::events::Event;
use crate::logging::safe;
use crate::transports::{Change, Plan, Programs, Wanted};

/// The transports of a client.
#[derive(Debug)]
pub(super) struct ClientTransports {
    programs: Programs,
    /// As last sent to the client.
    sent: Option<Transports>,
}

impl ClientTransports {
    /// Nothing runs yet. `registry` is of the main thread's poll.
    pub(super) fn new(registry: Registry) -> Self {
        ClientTransports {
            programs: Programs::new(registry),
            sent: None,
        }
    }

    /// The next turn has something to do at once.
    pub(super) fn has_more(&self) -> bool {
        self.programs.has_more()
    }

    /// Ends the programs.
    pub(super) fn end(&mut self, now: Instant) {
        self.programs.end(now);
    }

    /// The proxy that a transport of this name is, with what it needs to know of a bridge.
    fn proxy(&self, name: &str, bridge: &BridgeLine, options: &Options) -> Option<Proxy> {
        let plugins = options.bridges.plugins.iter();
        let mut of_name = plugins.filter(|plugin| plugin.transports.iter().any(|one| one == name));
        let (addr, is_socks5) = match of_name.next()?.kind {
            PluginKind::Socks4(addr) => (addr, false),
            PluginKind::Socks5(addr) => (addr, true),
            PluginKind::Exec(_) => {
                let mut running = self.programs.transports();
                let found = running.find(|transport| transport.name == name)?;
                (found.address, found.offer == Offer::Socks5)
            }
        };
        let args = bridge.socks_args();
        let protocol = match is_socks5 {
            true => Protocol::Socks5(args.as_deref().map(Credentials::of_transport)),
            false => Protocol::Socks4(args.map(Secret::new)),
        };
        Some(Proxy { addr, protocol })
    }

    /// Transports that the client can use.
    fn transports(&self, options: &Options) -> Transports {
        let plugins = &options.bridges.plugins;
        let external = plugins.iter().filter(|plugin| match plugin.kind {
            PluginKind::Socks4(_) | PluginKind::Socks5(_) => true,
            PluginKind::Exec(_) => false,
        });
        let running = self.programs.transports().map(|one| one.name.clone());
        let named = plugins.iter().flat_map(|plugin| &plugin.transports);
        Transports {
            ready: external
                .flat_map(|plugin| plugin.transports.clone())
                .chain(running)
                .collect(),
            pending: self.programs.is_configuring(),
            named: named.cloned().collect(),
        }
    }
}

/// The programs that torrc's bridges need; of two that name the same transports the first.
fn wanted(options: &Options) -> Vec<Wanted> {
    let bridges = &options.bridges;
    if !bridges.in_use || options.network.disabled {
        return Vec::new();
    }
    let is_needed = |name: &String| {
        let mut all = bridges.bridges.iter();
        all.any(|bridge| bridge.transport.as_ref() == Some(name))
    };
    let proxy = &options.network.proxy;
    let bound = options.network.outbound_bind.for_transports();
    let mut programs = Vec::new();
    for plugin in &bridges.plugins {
        let PluginKind::Exec(command) = &plugin.kind else {
            continue;
        };
        if !plugin.transports.iter().any(is_needed) {
            let names = plugin.transports.join(",");
            tracing::info!(
                "Pluggable transport proxy ({names} exec {}) does not provide any needed transports and will not be \
                 launched.",
                command.join(" ")
            );
            continue;
        }
        let proxy = proxy.as_ref().map(|proxy| proxy.uri());
        // Its environment is fixed at its start.
        let lines = proxy.iter().cloned().collect();
        let plan = Plan {
            command,
            transports: &plugin.transports,
            outbound: (bound.v4, bound.v6),
            data_directory: &options.files.data_directory,
            role: Role::Client { proxy },
        };
        programs.push(Wanted::new(plan, lines));
    }
    programs
}

impl Relay {
    /// Follows torrc: starts the programs that bridges need, and ends others.
    pub(super) fn follow_client_transports(&mut self, now: Instant) {
        if self.client.is_none() {
            return;
        }
        let changes = self
            .client_transports
            .programs
            .follow(wanted(&self.options), now);
        self.on_transport_changes(changes);
        self.turn_client_transports(now);
    }

    /// Takes what programs printed, and starts and ends what is due.
    pub(super) fn turn_client_transports(&mut self, now: Instant) {
        if self.client.is_none() {
            return;
        }
        let changes = self.client_transports.programs.turn(now);
        self.on_transport_changes(changes);
        let transports = self.client_transports.transports(&self.options);
        if self.client_transports.sent.as_ref() == Some(&transports) {
            return;
        }
        if let Some(client) = &mut self.client {
            self.client_transports.sent = Some(transports.clone());
            client.send(ToClient::Transports(transports));
        }
    }

    fn on_transport_changes(&self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Ready(transports) => {
                    for transport in transports {
                        let (name, addr) = (&transport.name, transport.address);
                        tracing::info!("Successfully registered transport {name} at {addr}");
                        let text = format!("client {name} {} {}", addr.ip(), addr.port());
                        self.report(Event::Status("TRANSPORT_LAUNCHED", text));
                    }
                }
                // Links over it end by themselves.
                Change::Lost => {}
            }
        }
    }

    /// Route of a connection to this relay. If bridges are used, only they have one, by their
    /// transports.
    ///
    /// # Errors
    ///
    /// It is none of the bridges, or its transport is not there.
    pub(super) fn route_to(&self, addr: SocketAddr) -> Result<Route, LinkFailure> {
        let options = &self.options;
        if !options.bridges.in_use {
            return Ok(options.network.route(addr));
        }
        let mut bridges = options.bridges.bridges.iter();
        let Some(bridge) = bridges.find(|bridge| bridge.addr == addr) else {
            tracing::info!(
                "Not connecting to {}, which is none of our bridges (UseBridges)",
                safe(addr)
            );
            return Err(LinkFailure::Forbidden);
        };
        let Some(name) = &bridge.transport else {
            return Ok(options.network.route(addr));
        };
        let Some(proxy) = self.client_transports.proxy(name, bridge, options) else {
            tracing::warn!(
                "We were supposed to connect to bridge '{}' using pluggable transport '{name}', but we can't find a \
                 pluggable transport proxy supporting '{name}'. This can happen if you haven't provided a \
                 ClientTransportPlugin line, or if your pluggable transport proxy stopped running.",
                safe(addr)
            );
            return Err(LinkFailure::NoTransport);
        };
        let bind = options.network.outbound_bind.for_relay(proxy.addr.ip());
        Ok(Route {
            bind,
            proxy: Some(Arc::new(proxy)),
            http: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::testing::options;

    const DIGEST: &str = "0123456789ABCDEF0123456789ABCDEF01234567";

    fn side() -> ClientTransports {
        let poll = mio::Poll::new().unwrap();
        ClientTransports::new(poll.registry().try_clone().unwrap())
    }

    fn torrc(more: &str) -> Options {
        options(&format!(
            "UseBridges 1\nBridge obfs9 192.0.2.1:443 {DIGEST} k=v;w\nBridge 192.0.2.2:443\n{more}"
        ))
    }

    #[test]
    fn an_external_transport_is_asked_by_socks_with_the_arguments_of_the_bridge() {
        let options = torrc("ClientTransportPlugin obfs9 socks5 127.0.0.1:9\n");
        let side = side();
        let [bridge, ..] = options.bridges.bridges.as_slice() else {
            panic!("no bridge");
        };
        let proxy = side.proxy("obfs9", bridge, &options).unwrap();
        let credentials = Credentials::of_transport(r"k=v\;w");
        assert_eq!(proxy.protocol, Protocol::Socks5(Some(credentials)));
        assert_eq!(proxy.addr, "127.0.0.1:9".parse().unwrap());
        assert_eq!(side.proxy("obfs8", bridge, &options), None);
        let known = side.transports(&options);
        assert!(known.ready.contains("obfs9") && !known.pending);
        assert!(wanted(&options).is_empty());
    }

    #[test]
    fn programs_are_started_for_transports_that_bridges_have() {
        let plugins = "ClientTransportPlugin obfs9,meek exec /bin/pt a\n\
             ClientTransportPlugin snow exec /bin/snow\n";
        let more = format!(
            "{plugins}Socks5Proxy 127.0.0.1:1\nSocks5ProxyUsername u\nSocks5ProxyPassword p\n\
             OutboundBindAddressPT 127.0.0.2\n"
        );
        let wanted_of = |options: Options| wanted(&options);
        let all = wanted_of(torrc(&more));
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].program.command, ["/bin/pt", "a"]);
        let variables = all[0].environment.variables();
        let of = |name: &str| {
            let found = variables.iter().find(|(of, _)| *of == name);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(of("TOR_PT_CLIENT_TRANSPORTS"), Some("obfs9,meek"));
        assert_eq!(of("TOR_PT_PROXY"), Some("socks5://u:p@127.0.0.1:1"));
        assert_eq!(of("TOR_PT_OUTBOUND_BIND_ADDRESS_V4"), Some("127.0.0.2"));
        let side = side();
        let options = torrc(&more);
        assert_eq!(
            side.proxy("obfs9", &options.bridges.bridges[0], &options),
            None
        );
        assert!(wanted_of(torrc(&format!("{plugins}DisableNetwork 1\n"))).is_empty());
    }
}
