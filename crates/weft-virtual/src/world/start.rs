//! Construction of a network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use weft_core::handshake::PeerIdentity;
use weft_model::hosts::HostId;
use weft_path::Relays;

use super::background;
use super::client::{ClientNetwork, ClientSide, Parts};
use super::ground::{Ground, Listener, Wake};
use super::node::{Common, Node};
use super::server::Servers;
use super::state::{SECOND, World, nanos};
use crate::results::RelayResults;
use crate::setup::Setup;

impl World {
    /// A network at its first moment. `base` is what nodes take for the time at the beginning; nothing depends on which it is.
    #[must_use]
    pub fn new(setup: Setup, base: Instant) -> World {
        let mut rng = StdRng::seed_from_u64(setup.seed);
        let or_addrs: Vec<_> = setup
            .relays
            .iter()
            .map(|relay| setup.or_addr(relay))
            .collect();
        let addrs = setup.hosts.iter().map(|host| host.addr).collect();
        let mut ground = Ground::new(setup.net, addrs, base, setup.directory.epoch);
        let now = ground.now();
        let identities = setup.relays.iter().map(|relay| PeerIdentity::Relay {
            rsa: relay.rsa,
            ed25519: relay.ed25519,
        });
        let listed = setup.relays.iter().zip(&or_addrs);
        let common = Common {
            options: setup.options,
            costs: setup.costs,
            identities: identities.collect(),
            relays: listed
                .filter_map(|(relay, addr)| Some((relay.rsa, vec![(*addr)?])))
                .collect::<BTreeMap<_, _>>(),
            servers: (setup.servers.iter())
                .filter_map(|server| {
                    let addr = setup.hosts.get(server.host as usize)?.addr;
                    Some(SocketAddr::new(addr, server.port))
                })
                .collect(),
            sendme_inc: setup.directory.params.congestion,
        };
        let mut nodes = Vec::new();
        for (number, relay) in (0..).zip(&setup.relays) {
            let host = HostId(relay.host);
            let threads = relay.threads.max(1);
            let mut node = Node::new(
                number,
                host,
                threads,
                relay.limit,
                &common,
                rng.random(),
                now,
            );
            node.serve(relay, &common, now);
            ground.listen(host, relay.or_port, Listener::OrPort(number));
            nodes.push(node);
        }
        let relays = nodes.len();
        let servers: Vec<Option<SocketAddr>> = (setup.servers.iter())
            .map(|server| {
                let host = HostId(server.host);
                ground.listen(host, server.port, Listener::Server);
                Some(SocketAddr::new(ground.addr_of(host)?, server.port))
            })
            .collect();
        let called = setup.relays.iter().filter_map(|relay| {
            let host = setup.hosts.get(relay.host as usize)?;
            Some((relay.rsa, host.name.clone()))
        });
        let places = setup.relays.iter().map(|relay| relay.rsa).zip(0..);
        let network = ClientNetwork {
            relays: Arc::new(Relays::new(&setup.directory.netdir)),
            names: Arc::new(called.collect()),
            places: Arc::new(places.collect()),
            params: setup.directory.params,
        };
        let choosing = setup.clients.iter().filter(|client| !client.measures);
        let choosing = u32::try_from(choosing.count()).unwrap_or(u32::MAX);
        for client in &setup.clients {
            let number = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
            let host = HostId(client.host);
            let mut node = Node::new(number, host, 1, None, &common, rng.random(), now);
            let of = |place: &u32| servers.get(*place as usize).copied().flatten();
            let name = (setup.hosts.get(client.host as usize)).map_or("", |host| &host.name);
            let parts = Parts {
                setup: client,
                name,
                servers: client.servers.iter().filter_map(of).collect(),
                network: &network,
                entry: client.entry_of(&setup.relays),
                options: &common.options,
                pools: common.options.pools.checked_div(choosing).unwrap_or(0),
                state: &[],
            };
            let side = ClientSide::new(&parts, node.rng(), ground.both());
            node.use_network(side);
            nodes.push(node);
        }
        let series = setup.relays.iter().map(|relay| {
            let host = setup.hosts.get(relay.host as usize);
            let line = ground.net.line(HostId(relay.host));
            let line = line.and_then(|[up, _]| up.rate).map(|rate| rate.bits() / 8);
            let limit = relay.limit.map(|(rate, _)| rate);
            RelayResults {
                rate: limit.or(line).unwrap_or(0),
                name: host.map_or_else(String::new, |host| host.name.clone()),
                adversary: relay.adversary,
                bandwidth: relay.bandwidth,
                ..RelayResults::default()
            }
        });
        let series = series.collect();
        let mut world = World {
            ground,
            common,
            relays,
            servers: Servers::default(),
            interval: setup.interval.max(Duration::from_millis(1)),
            series,
            before: vec![0; relays],
            began: Duration::ZERO,
            relayed_before: 0,
            setups: setup.relays,
            clients: setup.clients,
            network,
            defects: Vec::new(),
            waits: BTreeMap::new(),
            jumped: BTreeMap::new(),
            hostile: BTreeSet::new(),
            forged: 0,
            touched: None,
            nodes,
        };
        background::begin(&setup.background, &mut world.ground);
        for fault in &setup.faults {
            world.plan_fault(*fault);
        }
        world.begin(&mut rng);
        world
    }

    /// Arms the first timers.
    fn begin(&mut self, rng: &mut StdRng) {
        for (number, node) in (0..).zip(&mut self.nodes) {
            for (thread, _) in (0..).zip(&node.threads) {
                // Nodes do not all begin at the same moment: their ticks are spread.
                let at = rng.random_range(0..SECOND / 4);
                self.ground.wake(
                    at,
                    Wake::Tick {
                        node: number,
                        thread,
                    },
                );
            }
            if node.client.is_some() {
                let at = rng.random_range(0..SECOND);
                self.ground.wake(at, Wake::Second { node: number });
                self.ground.wake(0, Wake::User { node: number });
            }
        }
        let first = nanos(self.interval);
        self.ground.wake(first, Wake::Sample);
        for number in 0..self.nodes.len() {
            // What clients want at once.
            if let Some(node) = self.nodes.get_mut(number) {
                node.act(&self.common, &mut self.ground);
            }
        }
    }
}
