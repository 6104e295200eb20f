//! Faults of a network, for tests: each method begins or ends one.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use weft_core::address::{ConnectionId, ThreadId};
use weft_core::handshake::PeerIdentity;
use weft_core::memory::ledger::{Ledger, relieve};
use weft_core::message::FromController;
use weft_model::hosts::HostId;
use weft_model::traffic::records::Outcome;
use weft_model::traffic::{Failure, FailureKind};

use super::client::{ClientSide, Parts};
use super::files::{DiskFault, Files};
use super::ground::{Listener, News, Wake};
use super::node::Node;
use super::odd::Odd;
use super::state::World;
use crate::setup::Fault;

impl World {
    /// A host stalls when the scenario has it.
    pub(super) fn plan_fault(&mut self, fault: Fault) {
        let host = fault.host;
        let nanos = |at: Duration| u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        let begin = Wake::Fault { host, begins: true };
        self.ground.wake(nanos(fault.at), begin);
        if let Some(lasts) = fault.lasts {
            let end = Wake::Fault {
                host,
                begins: false,
            };
            self.ground.wake(nanos(fault.at.saturating_add(lasts)), end);
        }
    }

    fn node_host(&self, number: usize) -> Option<HostId> {
        Some(self.nodes.get(number)?.host)
    }

    /// A relay's process ends. With `silent` its host ends as well: nothing answers. Otherwise its connections are reset.
    pub(crate) fn kill_relay(&mut self, number: usize, silent: bool, seed: u64) {
        let Some(setup) = self.setups.get(number).cloned() else {
            return;
        };
        let Some(node) = self.nodes.get(number) else {
            return;
        };
        let (host, unlisted) = (node.host, node.unlisted.clone());
        self.end_connections(number, silent);
        self.ground.unlisten(host, setup.or_port);
        if silent {
            self.ground.net.set_silent(host, true);
        }
        self.waits.retain(|(node, _), _| *node != number);
        // What begins anew knows nothing.
        let (Ok(id), seed) = (u32::try_from(number), StdRng::seed_from_u64(seed).random()) else {
            return;
        };
        self.ground.enter(id);
        let now = self.ground.now();
        let threads = setup.threads.max(1);
        let mut node = Node::new(id, host, threads, setup.limit, &self.common, seed, now);
        node.unlisted = unlisted;
        node.serve(&setup, &self.common, now);
        if let Some(place) = self.nodes.get_mut(number) {
            *place = node;
        }
        if let Some(before) = self.before.get_mut(number) {
            *before = 0;
        }
    }

    /// All connections of a node end: they are reset, or, where it is silent, nobody hears of it.
    fn end_connections(&mut self, number: usize, silent: bool) {
        let threads = self.nodes.get(number).into_iter();
        for thread in threads.flat_map(|node| &node.threads) {
            let links = thread.links.iter().map(|(_, link)| (link.conn, link.end));
            // One that is on its way to another thread, perhaps.
            let links = links.chain(thread.sent_away);
            let edges = thread.edges.sockets();
            let edges = edges.map(|(_, conn, _)| (conn, weft_model::hosts::End::Opener));
            for (conn, end) in links.chain(edges) {
                match silent {
                    true => self.ground.net.vanish(conn, end),
                    false => self.ground.net.reset(conn, end),
                }
            }
        }
    }

    /// A client has files from the beginning on, and writes them every so often.
    pub(crate) fn give_files(&mut self, client: usize, every: Duration, rng: ChaCha8Rng) {
        let Some(number) = self.enter_client(client) else {
            return;
        };
        let now = self.ground.both();
        let node = self.nodes.get_mut(number as usize);
        let Some(client) = node.and_then(|node| node.client.as_mut()) else {
            return;
        };
        match Files::new(every, rng) {
            Ok(files) => client.files = Some(Box::new(files)),
            Err(wrong) => client.defect = Some(wrong),
        }
        client.follow_options(now);
    }

    /// Writes of a client's files end at that step, or do not any more.
    pub(crate) fn set_disk(&mut self, client: usize, disk: Option<(u32, DiskFault)>) {
        let node = self.nodes.get_mut(self.relays + client);
        let files = node.and_then(|node| node.client.as_mut()?.files.as_mut());
        if let Some(files) = files {
            files.disk = disk;
        }
    }

    /// A client's process is killed, and begins again from its files, where it has some. Meanwhile a line of its state file is damaged, or none.
    pub(crate) fn restart_client(&mut self, client: usize, damages: bool) {
        let Some(number) = self.enter_client(client) else {
            return;
        };
        let node = self.nodes.get_mut(number as usize);
        let Some(client) = node.and_then(|node| node.client.as_mut()) else {
            return;
        };
        if let Some(files) = client.files.as_mut().filter(|_| damages)
            && let Err(wrong) = files.damage()
        {
            client.defect.get_or_insert(wrong);
        }
        self.begin_again(number);
    }

    /// The number of a client's node, whose code runs now.
    fn enter_client(&mut self, client: usize) -> Option<u32> {
        let number = u32::try_from(self.relays + client).ok()?;
        self.enter(number);
        Some(number)
    }

    /// A client's process was killed, and begins again. Its user goes on.
    pub(super) fn begin_again(&mut self, number: u32) {
        self.end_connections(number as usize, false);
        let (now, place) = (self.ground.both(), number as usize);
        let setup = self.clients.get(place.saturating_sub(self.relays));
        let (Some(setup), Some(old)) = (setup, self.nodes.get_mut(place)) else {
            return;
        };
        let failure = Failure::new(FailureKind::Closed, "the client was killed");
        let mut finished = Vec::new();
        for thread in &mut old.threads {
            thread.abort_apps(&Outcome::Failed(failure.clone()), now.mono);
            finished.extend(thread.edges.take_finished());
        }
        let (seed, host) = (old.rng().random(), old.host);
        let Some(mut client) = old.client.take() else {
            return;
        };
        let begun = client.files.as_mut().map(|files| {
            files.disk = None;
            files.begin()
        });
        let state = begun.unwrap_or_else(|| Ok(Vec::new()));
        let state = state.unwrap_or_else(|wrong| {
            client.defect.get_or_insert(wrong);
            Vec::new()
        });
        let mut node = Node::new(number, host, 1, None, &self.common, seed, now.mono);
        let parts = Parts {
            setup,
            name: client.name(),
            servers: client.servers().to_vec(),
            network: &self.network,
            entry: setup.entry_of(&self.setups),
            options: &self.common.options,
            pools: 0,
            state: &state,
        };
        let new = ClientSide::new(&parts, node.rng(), now);
        client.replace_process(new, now);
        client.follow_options(now);
        if let Some(files) = &client.files
            && let Err(wrong) = files.check_begun(&state, &client.begun)
        {
            client.defect.get_or_insert(wrong);
        }
        node.use_network(*client);
        if let Some(thread) = node.threads.first_mut() {
            thread.edges.finished = finished;
        }
        node.act(&self.common, &mut self.ground);
        self.waits.retain(|(node, _), _| *node != place);
        if let Some(place) = self.nodes.get_mut(place) {
            *place = node;
        }
        self.after(number);
    }

    /// A relay's process begins.
    pub(crate) fn start_relay(&mut self, number: usize) {
        let (Some(host), Some(setup), Ok(id)) = (
            self.node_host(number),
            self.setups.get(number),
            u32::try_from(number),
        ) else {
            return;
        };
        self.ground
            .listen(host, setup.or_port, Listener::OrPort(id));
        self.ground.net.set_silent(host, false);
        self.ground.net.probe_idle();
    }

    /// Breaks one of the connections that there are: the one that `pick` falls on.
    pub(crate) fn break_connection(&mut self, pick: usize) {
        let all: Vec<_> = self.ground.net.connections().collect();
        if let Some((conn, _)) = all.get(pick % all.len().max(1)) {
            self.ground.net.break_both(*conn);
        }
    }

    /// A node's links all break: what it made on them, as a hostile one, ends.
    pub(crate) fn break_links(&mut self, number: usize) {
        let threads = self
            .nodes
            .get(number)
            .into_iter()
            .flat_map(|node| &node.threads);
        let links = threads.flat_map(|thread| thread.links.iter().map(|(_, link)| link.conn));
        for conn in links.collect::<Vec<_>>() {
            self.ground.net.break_both(conn);
        }
    }

    /// Cuts the path between two nodes, so that it loses everything, or restores it.
    pub(crate) fn set_cut(&mut self, one: usize, other: usize, is_cut: bool) {
        if let (Some(one), Some(other)) = (self.node_host(one), self.node_host(other)) {
            self.ground.net.set_cut(one, other, is_cut);
        }
    }

    /// Stops the destinations of a host from reading, or lets them read again.
    pub(crate) fn set_server_deaf(&mut self, host: u32, is_deaf: bool) {
        self.servers
            .set_deaf(HostId(host), is_deaf, &mut self.ground);
    }

    /// Stops a client's user from reading, or lets it read again.
    pub(crate) fn set_user_deaf(&mut self, client: usize, is_deaf: bool) {
        let now = self.ground.nanos();
        let node = self.nodes.get_mut(self.relays + client);
        for thread in node.into_iter().flat_map(|node| &mut node.threads) {
            thread.edges.deaf = is_deaf;
            thread.ask_turn(now, &mut self.ground);
        }
    }

    /// Stops a node from reading its links, or lets it read again.
    pub(crate) fn set_hangs(&mut self, number: usize, hangs: bool) {
        let now = self.ground.nanos();
        let node = self.nodes.get_mut(number);
        for thread in node.into_iter().flat_map(|node| &mut node.threads) {
            thread.hangs = hangs;
            thread.ask_turn(now, &mut self.ground);
        }
    }

    /// A node is short of memory: as if it could have this part of what it holds, in percent.
    pub(crate) fn press_memory(&mut self, number: usize, percent: u64) {
        let Ok(id) = u32::try_from(number) else {
            return;
        };
        self.ground.enter(id);
        let now = self.ground.now();
        let Some(node) = self.nodes.get_mut(number) else {
            return;
        };
        let managers = || node.threads.iter().map(|thread| &thread.manager);
        let ledgers: Vec<Ledger> = managers().map(|manager| manager.ledger(now)).collect();
        let sum: Ledger = ledgers.iter().sum();
        let Some(missing) = sum.to_free(sum.total() / 100 * percent) else {
            return;
        };
        let holdings: Vec<_> = managers().map(|manager| manager.holdings(now)).collect();
        let cuts = relieve(&holdings, missing, |cause| node.controller.hop_of(cause));
        for (thread, cut) in (0..).zip(cuts) {
            node.send(
                ThreadId(thread),
                FromController::FreeMemory(cut),
                &mut self.ground,
            );
        }
    }

    /// One of a node's links moves to another of its threads.
    pub(crate) fn move_link(&mut self, number: usize, seed: u64) {
        let Ok(id) = u32::try_from(number) else {
            return;
        };
        self.ground.enter(id);
        let Some(node) = self.nodes.get_mut(number) else {
            return;
        };
        let mut rng = StdRng::seed_from_u64(seed);
        let mut places: Vec<(ConnectionId, ThreadId)> = node.controller.places().collect();
        let carries = |(link, on): &(ConnectionId, ThreadId)| {
            let thread = node.threads.get(usize::from(on.0));
            thread.is_some_and(|thread| {
                let manager = &thread.manager;
                let key = manager.links().of(*link);
                key.is_some_and(|key| manager.inspect().circuit_ids(key).next().is_some())
            })
        };
        // Mostly one with circuits, where there is one.
        if rng.random_bool(0.8) && places.iter().any(carries) {
            places.retain(carries);
        }
        let threads = u16::try_from(node.threads.len()).unwrap_or(u16::MAX);
        let place = rng.random_range(0..places.len().max(1));
        let Some((link, on)) = places.get(place).copied() else {
            return;
        };
        let others: Vec<u16> = (0..threads).filter(|thread| *thread != on.0).collect();
        let to = others.get(rng.random_range(0..others.len().max(1)));
        if let Some(to) = to
            && node.controller.move_link(link, ThreadId(*to))
        {
            node.act(&self.common, &mut self.ground);
        }
    }

    /// Holds the messages between a node's threads and its controller back, for so long in all, each for `most` at most.
    pub(crate) fn hold_back(&mut self, number: usize, lasts: Duration, most: Duration, seed: u64) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let until = self.ground.nanos().saturating_add(nanos(lasts));
        if let Some(node) = self.nodes.get_mut(number) {
            node.hold_back(until, nanos(most), seed);
        }
    }

    /// A node's clocks jump: the one that only goes forward by so much, and the time of day by so many seconds besides.
    pub(crate) fn jump(&mut self, number: usize, mono: Duration, wall: i64) {
        let Ok(id) = u32::try_from(number) else {
            return;
        };
        let mut clock = self.ground.clock_of(id);
        clock.mono += mono;
        clock.wall += wall;
        self.ground.set_clock(id, clock);
        self.jumped.insert(number, self.ground.elapsed());
        let node = self.nodes.get_mut(number);
        for thread in node.into_iter().flat_map(|node| &mut node.threads) {
            thread.ask_turn(self.ground.nanos(), &mut self.ground);
        }
    }

    /// A client does more than plain streams, from the beginning on.
    pub(crate) fn set_odd(&mut self, client: usize, odd: Odd) {
        let number = self.relays + client;
        let Ok(id) = u32::try_from(number) else {
            return;
        };
        self.ground.enter(id);
        let both = self.ground.both();
        let node = self.nodes.get_mut(number);
        if let Some(client) = node.and_then(|node| node.client.as_mut()) {
            client.set_odd(odd, both);
        }
    }

    /// The consensus of a relay lacks another one.
    pub(crate) fn unlist(&mut self, relay: usize, other: usize) {
        let identity = self.common.identities.get(other);
        let Some(PeerIdentity::Relay { rsa, .. }) = identity else {
            return;
        };
        let Some(node) = self.nodes.get_mut(relay) else {
            return;
        };
        node.unlisted.insert(*rsa);
        self.ground.enter(node.number);
        node.follow_consensus(&self.common, self.ground.now());
        node.act(&self.common, &mut self.ground);
    }

    /// Users open no more streams.
    pub(crate) fn stop_users(&mut self) {
        for client in self
            .nodes
            .iter_mut()
            .filter_map(|node| node.client.as_mut())
        {
            client.is_done = true;
        }
    }

    /// Idle connections whose other end is gone find out.
    pub(crate) fn probe_idle(&mut self) {
        self.ground.net.probe_idle();
    }

    /// Clients close all circuits, and open no more.
    pub(crate) fn stop_clients(&mut self) {
        for number in 0..self.nodes.len() {
            let Ok(id) = u32::try_from(number) else {
                return;
            };
            self.ground.enter(id);
            let both = self.ground.both();
            let Some(node) = self.nodes.get_mut(number) else {
                return;
            };
            if let Some(client) = &mut node.client {
                let mut config = client.client.config().clone();
                config.disable_network = true;
                client.client.set_config(config, both);
                node.act(&self.common, &mut self.ground);
            }
        }
    }

    /// The link of a node that `pick` falls on, by thread and place.
    pub(super) fn pick_link(&self, number: usize, pick: usize) -> Option<(usize, usize)> {
        let node = self.nodes.get(number)?;
        let threads = node.threads.iter().enumerate();
        let links: Vec<(usize, usize)> = threads
            .flat_map(|(thread, one)| one.open_links().map(move |place| (thread, place)))
            .collect();
        links.get(pick % links.len().max(1)).copied()
    }

    /// Puts bytes on a link, behind what its socket has not taken, and nothing after them if it is `muted`.
    pub(super) fn put_on_link(
        &mut self,
        number: usize,
        (thread, place): (usize, usize),
        bytes: &[u8],
        muted: bool,
    ) {
        let node = self.nodes.get_mut(number);
        let Some(thread) = node.and_then(|node| node.threads.get_mut(thread)) else {
            return;
        };
        if let Some(link) = thread.links.get_mut(place) {
            link.out.extend_from_slice(bytes);
            let conn = link.conn;
            thread.flush(place, &mut self.ground);
            if let Some(link) = thread.links.get_mut(place) {
                link.muted |= muted;
            }
            thread.note_link(place, conn, News::Readable);
            thread.ask_turn(self.ground.nanos(), &mut self.ground);
        }
    }
}
