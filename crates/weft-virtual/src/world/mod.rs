//! A network that runs: nodes, destinations and users on the hosts of a [`Setup`], in virtual time.
//!
//! [`World::run_until`] hands events, in order of time, to the nodes and servers that they concern. A node
//! is a [`weft_core::controller::RelayController`] and as many [`weft_core::manager::LocalConnectionManager`]s as it has
//! threads, joined by queues, as in `weft-node`; what there is a system call, here is a call of [`weft_world::Net`].
//!
//! ```text
//! ground   sockets, the clock, timers, who owns which connection
//! node     controller, exits, onionskin workers      weft-node/src/relay
//! thread   connections, turns                        weft-node/src/thread
//! links    links of a thread, read and written       weft-node/src/thread
//! link     handshakes and records as bytes           weft-tls, weft-core/src/handshake
//! edges    streams' outer ends                       weft-node/src/thread/edges
//! apps     streams of users, which are edges, too
//! client   the client and its user                   weft-node/src/client, an application
//! choosing, measuring, pools   what clients measure and record of circuits
//! server   destinations
//! ```

mod apps;
mod background;
mod check;
mod choosing;
mod client;
mod edges;
mod faults;
mod ground;
mod hostile;
mod lag;
mod limit;
mod link;
mod links;
mod measuring;
mod node;
mod pools;
mod record;
mod series;
mod server;
#[cfg(test)]
mod tests;
mod thread;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use weft_core::handshake::PeerIdentity;
use weft_links::Moment;
use weft_path::Relays;
use weft_traffic::FailureKind;
use weft_traffic::records::Outcome;
use weft_world::{ConnId, End, Happening, HostId};

pub(crate) use check::Remains;
pub use hostile::Attack;

use crate::results::{RelayResults, Results, TunnelResults};
use crate::setup::{Background, Setup};
use client::{ClientResults, ClientSide, Parts};
use ground::{Ground, Listener, Owner, Wake};
use node::{Common, Node};
use server::Servers;
use thread::{News, Thread};

/// The work of each second.
const SECOND: u64 = 1_000_000_000;

/// See the module.
#[derive(Debug)]
pub struct World {
    ground: Ground,
    common: Common,
    /// Relays in the setup's order, then clients.
    nodes: Vec<Node>,
    relays: usize,
    servers: Servers,
    interval: Duration,
    /// What each relay did in the intervals that are over.
    series: Vec<RelayResults>,
    /// What each relay had written at the last sample.
    before: Vec<u64>,
    /// Since the beginning of the run: from then on is measured.
    began: Duration,
    /// What relays had written to links by then.
    relayed_before: u64,
    /// How relays are set, for those that begin anew.
    setups: Vec<crate::setup::Relay>,
    /// Streams that got bytes that nobody sent, and the like, as far as they were looked for.
    defects: Vec<String>,
    /// The node whose code ran last.
    touched: Option<u32>,
}

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
        let known = Arc::new(Relays::new(&setup.directory.netdir));
        let called = setup.relays.iter().filter_map(|relay| {
            let host = setup.hosts.get(relay.host as usize)?;
            Some((relay.rsa, host.name.clone()))
        });
        let called = Arc::new(called.collect::<BTreeMap<_, _>>());
        let places = setup.relays.iter().map(|relay| relay.rsa).zip(0..);
        let places = Arc::new(places.collect::<BTreeMap<_, _>>());
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
                relays: &known,
                names: &called,
                entry: (client.entry)
                    .and_then(|place| setup.relays.get(place as usize))
                    .map(|relay| relay.rsa),
                params: &setup.directory.params,
                options: &common.options,
                pools: common.options.pools.checked_div(choosing).unwrap_or(0),
                places: &places,
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
            defects: Vec::new(),
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

    /// The time since the beginning.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.ground.elapsed()
    }

    /// Discrete events of the network so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.ground.net.handled()
    }

    /// Lets time pass until then.
    pub fn run_until(&mut self, at: Duration) {
        let until = Moment::after_start(at);
        while self.step(until) {}
    }

    /// Lets one thing happen: a turn of a thread, or what the network has next. False: nothing does until then.
    pub(crate) fn step(&mut self, until: Moment) -> bool {
        if let Some((node, thread)) = self.ground.ready.pop_front() {
            self.turn(node, thread);
            return true;
        }
        match self.ground.net.next(until) {
            Some(happening) => {
                self.on_happening(happening);
                true
            }
            None => false,
        }
    }

    /// The code of a node runs now.
    fn enter(&mut self, number: u32) {
        self.touched = Some(number);
        self.ground.enter(number);
    }

    fn turn(&mut self, number: u32, thread: u16) {
        self.enter(number);
        if let Some(node) = self.nodes.get_mut(number as usize) {
            node.turn(thread, &self.common, &mut self.ground);
            self.after(number);
        }
    }

    fn on_happening(&mut self, happening: Happening) {
        match happening {
            Happening::Accepted(conn, host, port) => self.on_accepted(conn, host, port),
            Happening::Connected(conn) => self.note(conn, End::Opener, News::Connected),
            Happening::Readable(conn, end) => self.note(conn, end, News::Readable),
            Happening::Writable(conn, end) => self.note(conn, end, News::Writable),
            Happening::Broken(conn, end) => self.note(conn, end, News::Broken),
            Happening::Timer(tag) => self.on_timer(Wake::from_tag(tag)),
        }
    }

    fn on_accepted(&mut self, conn: ConnId, host: HostId, port: u16) {
        match self.ground.listener(host, port) {
            Some(Listener::OrPort(number)) => {
                let opener = match self.ground.owner(conn, End::Opener) {
                    Some(Owner::Link { node, .. }) => Some(node),
                    _ => None,
                };
                let addr = (self.ground.net.host_of(conn, End::Opener))
                    .and_then(|host| self.ground.addr_of(host));
                let Some(addr) = addr else {
                    return;
                };
                // Port numbers mean nothing here.
                let from = SocketAddr::new(addr, 40_000);
                self.enter(number);
                if let Some(node) = self.nodes.get_mut(number as usize) {
                    node.accept(conn, from, opener, &mut self.ground);
                }
            }
            Some(Listener::Server) => self.servers.accept(conn, &mut self.ground),
            Some(Listener::Background) => background::accept(conn, &mut self.ground),
            None => self.ground.net.reset(conn, End::Accepter),
        }
    }

    /// Hands an event of a connection to the owner of its end.
    fn note(&mut self, conn: ConnId, end: End, news: News) {
        let Some(owner) = self.ground.owner(conn, end) else {
            return;
        };
        match owner {
            Owner::Link {
                node,
                thread,
                place,
            }
            | Owner::Edge {
                node,
                thread,
                place,
            } => {
                let node = self.nodes.get_mut(node as usize);
                let Some(thread) = node.and_then(|node| node.threads.get_mut(usize::from(thread)))
                else {
                    return;
                };
                match owner {
                    Owner::Link { .. } => thread.note_link(place as usize, conn, news),
                    _ => thread.note_edge(place as usize, conn, news),
                }
                thread.ask_turn(self.ground.nanos(), &mut self.ground);
            }
            Owner::Server { place } => self.servers.note(place, news, &mut self.ground),
            Owner::Background { from, to } => {
                let stream = Background { from, to };
                background::note(stream, conn, end, news, &mut self.ground);
            }
        }
    }

    fn on_timer(&mut self, wake: Wake) {
        match wake {
            Wake::Turn { node, thread } => self.turn(node, thread),
            Wake::Lag { node } => self.end_lag(node),
            Wake::Tick { node, thread } => {
                self.enter(node);
                let node = self.nodes.get_mut(node as usize);
                if let Some(thread) =
                    node.and_then(|node| node.threads.get_mut(usize::from(thread)))
                {
                    thread.on_tick_timer(&mut self.ground);
                }
            }
            Wake::User { node } => self.run_user(node),
            Wake::Second { node } => {
                self.enter(node);
                if let Some(found) = self.nodes.get_mut(node as usize) {
                    found.second(&self.common, &mut self.ground);
                }
                let next = self.ground.nanos() + SECOND;
                self.ground.wake(next, Wake::Second { node });
            }
            Wake::Onionskin { node } => {
                self.enter(node);
                if let Some(found) = self.nodes.get_mut(node as usize) {
                    found.workers_done(&self.common, &mut self.ground);
                }
            }
            Wake::Server { place } => self.servers.on_timer(place, &mut self.ground),
            Wake::Sample => self.sample(),
            Wake::Fault { host, begins } => self.ground.net.set_silent(HostId(host), begins),
        }
    }

    /// After a node's turn: hands the streams that ended in it to the node's user.
    fn after(&mut self, number: u32) {
        let Some(node) = self.nodes.get_mut(number as usize) else {
            return;
        };
        let Some(client) = &mut node.client else {
            return;
        };
        let elapsed = self.ground.elapsed();
        let finished: Vec<_> = (node.threads.iter_mut())
            .flat_map(|thread| thread.edges.take_finished())
            .collect();
        if finished.is_empty() {
            return;
        }
        for one in finished {
            self.defects.extend(defect(&one));
            client.finished(one, elapsed);
        }
        self.run_user(number);
    }

    /// Lets a user do what it does now.
    fn run_user(&mut self, number: u32) {
        self.enter(number);
        let now = self.ground.nanos();
        let elapsed = self.ground.elapsed();
        let Some(node) = self.nodes.get_mut(number as usize) else {
            return;
        };
        while let Some((app, request)) =
            (node.client.as_mut()).and_then(|one| one.next_stream(elapsed))
        {
            let Some(id) = node.place_application() else {
                break;
            };
            if let Some(thread) = node.threads.first_mut() {
                thread.open_app(id, app, request, now);
                thread.ask_turn(now, &mut self.ground);
            }
        }
        let Some(client) = &mut node.client else {
            return;
        };
        let next = client.user_time().map(|at| at.max(now + 1));
        if let Some(at) = next
            && client.user_timer != Some(at)
        {
            client.user_timer = Some(at);
            self.ground.wake(at, Wake::User { node: number });
        }
    }

    /// Begins the measurement anew: all streams end, clients leave their circuits, users begin after `pause`, and nothing from
    /// before that is in the results.
    pub fn restart(&mut self, pause: Duration) {
        let begin = self.ground.elapsed() + pause;
        for number in self.relays..self.nodes.len() {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            self.enter(number);
            let now = self.ground.both();
            let Some(node) = self.nodes.get_mut(number as usize) else {
                continue;
            };
            for thread in &mut node.threads {
                thread.abort_apps(now.mono);
                // Nobody hears how they went.
                drop(thread.edges.take_finished());
                thread.ask_turn(self.ground.nanos(), &mut self.ground);
            }
            if let Some(client) = &mut node.client {
                client.restart(begin, now);
            }
            node.act(&self.common, &mut self.ground);
            self.run_user(number);
        }
        self.began = begin;
        self.relayed_before = self.relayed();
        for series in &mut self.series {
            series.written.clear();
            series.queued.clear();
            series.weights.clear();
            series.carried.clear();
        }
    }

    /// How long the circuits took to be built that clients have, or had since the measurement began.
    #[must_use]
    pub fn build_times(&self) -> Vec<Duration> {
        let clients = self.nodes.iter().filter_map(|node| node.client.as_ref());
        clients.flat_map(|client| client.build_times()).collect()
    }

    /// Bytes that relays have written to links.
    fn relayed(&self) -> u64 {
        let relays = self.nodes.iter().take(self.relays);
        let threads = relays.flat_map(|node| &node.threads);
        threads.map(|thread| thread.link_bytes).sum()
    }

    /// Connections that relays have now, of every kind.
    #[must_use]
    pub fn sockets(&self) -> usize {
        let relays = self.nodes.iter().take(self.relays);
        let threads = relays.flat_map(|node| &node.threads);
        threads.map(Thread::sockets).sum()
    }

    /// What came of it. Streams that are open are unfinished.
    #[must_use]
    pub fn into_results(mut self) -> Results {
        let end = self.ground.elapsed();
        let simulated = end.saturating_sub(self.began);
        let mut results = Results {
            simulated,
            interval: self.interval,
            events: self.ground.net.handled(),
            relayed_bytes: self.relayed().saturating_sub(self.relayed_before),
            ..Results::default()
        };
        for (node, series) in self.nodes.iter().zip(self.series) {
            let worked = node.threads.iter().map(|thread| thread.worked).max();
            results.relays.push(RelayResults {
                busy: worked.unwrap_or(0) as f64 / (nanos(end).max(1)) as f64,
                circuits: node.relay.as_ref().map_or(0, |relay| relay.circuits),
                ..series
            });
        }
        for node in self.nodes.drain(self.relays..) {
            let Node {
                mut threads,
                client: Some(mut client),
                ..
            } = node
            else {
                continue;
            };
            let most = threads.iter().map(|thread| {
                let totals = thread.manager.totals();
                totals.tunnels.reorder_bytes_max
            });
            let most = most.max().unwrap_or(0);
            for app in threads
                .iter_mut()
                .flat_map(|thread| thread.take_open_apps())
            {
                client.record(app, Outcome::Unfinished, end);
            }
            let ClientResults {
                streams,
                circuits,
                measured,
                choices,
                tunnels,
            } = client.into_results();
            results.streams.extend(streams);
            results.circuits.extend(circuits);
            results.measured.extend(measured);
            results.choices.extend(choices);
            *results.tunnels.get_or_insert_default() += TunnelResults {
                reorder_bytes_max: most,
                ..tunnels
            };
        }
        for record in &mut results.streams {
            record.started = record.started.saturating_sub(self.began);
        }
        results.streams.sort_by_key(|record| record.started);
        results.circuits.sort_by_key(|circuit| circuit.began);
        results.measured.sort_by_key(|circuit| circuit.began);
        results
            .choices
            .sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
        results
    }
}

/// A stream whose bytes are not those that were sent: that is wrong whatever others do.
fn defect(finished: &apps::Finished) -> Option<String> {
    let Outcome::Failed(failure) = &finished.outcome else {
        return None;
    };
    let is_wrong = matches!(failure.kind, FailureKind::Corrupt | FailureKind::Protocol);
    is_wrong.then(|| failure.to_string())
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
