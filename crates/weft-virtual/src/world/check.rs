//! Invariants of a network between any two steps: each table fits the others, and everything has
//! one owner (docs/architecture.md, rule 8).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use weft_client::Now;
use weft_core::address::{ConnectionId, ThreadId};
use weft_core::manager::LocalConnectionManager;
use weft_core::origin::OriginId;
use weft_core::slots::SlotKey as _;
use weft_model::hosts::{ConnId, End};
use weft_share::PreviousHop;

use super::ground::Owner;
use super::link::Phase;
use super::node::Node;
use super::state::World;
use super::thread::Thread;

type Checked = Result<(), String>;

/// Time after which a link without circuits to what the consensus does not list is closed: 4.5 minutes (tor-spec has 3 to
/// 4.5), and some turns.
const LONGEST_IDLE: Duration = Duration::from_secs(270 + 30);
/// Time in which a client writes to a link that it pads and that has no circuit. Each end draws 1.5 to 9.5 s after each cell, and the one that drew less
/// pads: so many times in a row it is not the same end.
const LONGEST_SILENCE: Duration = Duration::from_secs(150);
/// Time after a jump of a node's clock in which timers have run.
const SETTLED: Duration = Duration::from_secs(30);

/// Nothing, or what does not hold.
fn sure(holds: bool, what: &str) -> Checked {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

/// State that a network still holds at the end of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remains {
    pub(crate) halves: usize,
    /// Halves that threads look for elsewhere than where they were made.
    pub(crate) routes: usize,
    pub(crate) edges: usize,
    pub(crate) links: usize,
    /// Streams of users, and destinations' ends of streams.
    pub(crate) apps: usize,
    pub(crate) server_streams: usize,
    pub(crate) onionskins: usize,
    /// Messages between threads and controllers.
    pub(crate) messages: usize,
    /// Circuits and streams that clients know.
    pub(crate) client_circuits: usize,
    pub(crate) client_streams: usize,
    /// Connections of the network.
    pub(crate) connections: usize,
    /// Bytes of owners in ledgers.
    pub(crate) owned: u64,
}

impl World {
    /// First error that users found in their streams' bytes.
    pub(crate) fn defect(&self) -> Option<&str> {
        self.defects.first().map(String::as_str)
    }

    /// First error of the node whose code ran last, or of its client.
    pub(crate) fn wrong(&self) -> Option<&str> {
        let node = self.nodes.get(self.touched? as usize)?;
        let client = || node.client.as_ref()?.defect.as_deref();
        node.defect.as_deref().or_else(client)
    }

    /// Checks the node whose code ran last.
    pub(crate) fn check_touched(&self) -> Checked {
        match self.touched.filter(|number| !self.hostile.contains(number)) {
            Some(number) => self.check_node(number),
            None => Ok(()),
        }
    }

    /// Checks everything. What a hostile node has is its own affair.
    pub(crate) fn check(&self) -> Checked {
        for (number, _) in (0..).zip(&self.nodes) {
            if !self.hostile.contains(&number) {
                self.check_node(number)?;
            }
        }
        self.check_connections()
    }

    fn check_node(&self, number: u32) -> Checked {
        let Some(node) = self.nodes.get(number as usize) else {
            return Ok(());
        };
        node.check(self.ground.both())
            .map_err(|what| format!("node {number}: {what}"))
    }

    /// Checks times: links without circuits are closed, clients pad theirs, and bytes that wait are no younger than they are.
    pub(crate) fn check_times(&mut self) -> Checked {
        let mut waits = BTreeMap::new();
        for (number, node) in self.nodes.iter().enumerate() {
            if self.hostile.contains(&node.number) {
                continue;
            }
            self.ground.enter(node.number);
            let (now, elapsed) = (self.ground.now(), self.ground.elapsed());
            let jumped = self.jumped.get(&number).copied();
            let settled = jumped.is_none_or(|at| elapsed.saturating_sub(at) > SETTLED);
            for thread in &node.threads {
                if settled {
                    node.check_links(thread, now)
                        .map_err(|what| format!("node {number}: {what}"))?;
                }
                for (edge, left, come, age) in thread.manager.edges().waits(now) {
                    let known = self.waits.get(&(number, edge)).copied();
                    let (come, since) = match known.filter(|(come, _)| left < *come) {
                        Some(known) => known,
                        None => (come, now),
                    };
                    let waited = now.saturating_duration_since(since);
                    if left < come && age < waited {
                        return Err(format!(
                            "node {number}: bytes of {edge:?} have waited for {waited:?} and are taken to be {age:?} old"
                        ));
                    }
                    waits.insert((number, edge), (come, since));
                }
            }
        }
        self.waits = waits;
        Ok(())
    }

    /// Checks what holds where no node is hostile, or clients alone are: nobody else, and no other client, sees a message that
    /// nobody honest sends.
    pub(crate) fn check_honest(&self, hostile: &BTreeSet<usize>) -> Checked {
        for (number, node) in self.nodes.iter().enumerate() {
            if hostile.contains(&number) || !hostile.is_empty() && node.client.is_none() {
                continue;
            }
            for thread in &node.threads {
                let totals = thread.manager.totals();
                let (circuits, streams) = (totals.protocol_errors, totals.streams);
                if circuits + streams.flow_violations + streams.stray > 0 {
                    let whose = match hostile.is_empty() {
                        true => "nobody is hostile",
                        false => "only other clients are hostile",
                    };
                    return Err(format!(
                        "node {number} saw {circuits} protocol errors, {} of flow control, {} of streams that are not there, and \
                         {whose}",
                        streams.flow_violations, streams.stray
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks what holds where nothing goes wrong besides: nothing waits in vain.
    pub(crate) fn check_calm(&self) -> Checked {
        for (number, node) in self.nodes.iter().enumerate() {
            for thread in &node.threads {
                let timed_out = thread.manager.totals().timed_out;
                if timed_out > 0 {
                    return Err(format!(
                        "nothing is wrong with the network, but node {number} waited in vain {timed_out} times"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Every end of a connection has one owner, which knows it.
    fn check_connections(&self) -> Checked {
        if self.ground.net.has_happened() {
            // Owners have not heard of everything.
            return Ok(());
        }
        for (conn, lives) in self.ground.net.connections() {
            for (end, lives) in [End::Opener, End::Accepter].into_iter().zip(lives) {
                if lives && !self.owns(conn, end) {
                    let owner = self.ground.owner(conn, end);
                    return Err(format!(
                        "nobody has the {end:?}'s end of {conn:?} ({owner:?})"
                    ));
                }
            }
        }
        for (number, node) in (0..).zip(&self.nodes) {
            for thread in &node.threads {
                let is_lost = |conn: ConnId, broken: bool| !broken && !self.ground.net.knows(conn);
                for (_, link) in &thread.links {
                    if is_lost(link.conn, link.broken) {
                        return Err(format!("node {number}: {} has no connection", link.id));
                    }
                }
                for (id, conn, broken) in thread.edges.sockets() {
                    if is_lost(conn, broken) {
                        return Err(format!("node {number}: the edge {id} has no connection"));
                    }
                }
            }
        }
        Ok(())
    }

    fn owns(&self, conn: ConnId, end: End) -> bool {
        let thread = |node: u32, thread: u16| -> Option<&Thread> {
            self.nodes
                .get(node as usize)?
                .threads
                .get(usize::from(thread))
        };
        match self.ground.owner(conn, end) {
            Some(Owner::Link {
                node,
                thread: on,
                place,
            }) => thread(node, on).is_some_and(|thread| {
                let link = thread.links.get(place as usize);
                link.is_some_and(|link| link.conn == conn && link.end == end)
                    || (thread.sent_away == Some((conn, end)) && self.is_moving(node))
            }),
            Some(Owner::Edge {
                node,
                thread: on,
                place,
            }) => thread(node, on)
                .is_some_and(|thread| thread.edges.conn(place as usize) == Some(conn)),
            Some(Owner::Server { place }) => self.servers.conn(place) == Some(conn),
            Some(Owner::Background { .. }) => true,
            None => false,
        }
    }

    /// A link of a node is on its way from thread to thread.
    fn is_moving(&self, node: u32) -> bool {
        let node = self.nodes.get(node as usize);
        node.is_some_and(|node| node.controller.is_moving())
    }

    pub(crate) fn remains(&mut self) -> Remains {
        let mut remains = Remains {
            server_streams: self.servers.count(),
            connections: self.ground.net.connections().count(),
            ..Remains::default()
        };
        for (number, node) in (0..).zip(&self.nodes) {
            self.ground.enter(number);
            let now = self.ground.now();
            for thread in &node.threads {
                remains.halves += thread.manager.halves();
                remains.routes += thread.manager.inspect().routes();
                remains.links += thread.links.len();
                remains.edges += thread.manager.edges().len();
                remains.apps += thread.edges.apps();
                remains.messages += thread.mail.count();
                remains.owned += thread.manager.ledger(now).owned();
            }
            remains.messages += usize::from(!node.is_at_rest());
            remains.onionskins += node.controller.onionskins();
            remains.onionskins += node.controller.onionskins_queued();
            if let Some(client) = &node.client {
                remains.client_circuits += client.client.circuits().count();
                remains.client_streams += client.client.streams().count();
            }
        }
        remains
    }

    /// Where something is left, for a message.
    pub(crate) fn where_remains(&self) -> String {
        let mut lines = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            for thread in &node.threads {
                let halves = thread.manager.halves();
                let (edges, links) = (thread.manager.edges().len(), thread.links.len());
                if halves + edges + links > 0 {
                    let thread = thread.me.0;
                    lines.push(format!(
                        "node {number} thread {thread}: {halves} halves, {edges} edges, {links} links"
                    ));
                }
            }
        }
        lines.join("; ")
    }

    /// Longest time that a relay keeps an idle link open.
    pub(crate) fn idle_link(&self) -> Duration {
        let params = self.nodes.iter().flat_map(|node| &node.threads);
        params
            .map(|thread| thread.manager.params().longest_idle())
            .max()
            .unwrap_or_default()
    }
}

impl Node {
    /// Links of a thread are closed when they are idle for too long, and padded where this node is a client.
    fn check_links(&self, thread: &Thread, now: Instant) -> Checked {
        for (id, idle, silent) in thread.manager.inspect().link_times(now) {
            let listed = matches!(self.controller.previous_hop(id), PreviousHop::Relay(_));
            if let Some(idle) = idle.filter(|idle| !listed && *idle > LONGEST_IDLE) {
                return Err(format!(
                    "{id} leads to what the consensus does not list, and is idle since {idle:?}"
                ));
            }
            // Cells of circuits that come put padding off, and a hostile client may have fallen silent.
            let is_unused = idle.is_some_and(|idle| idle > LONGEST_SILENCE);
            let place = thread.by_id.get(&id).copied();
            let link = place.and_then(|place| thread.links.get(place));
            let pads = is_unused && link.is_some_and(|link| !link.muted);
            if let Some(silent) = silent.filter(|silent| pads && *silent > LONGEST_SILENCE) {
                return Err(format!(
                    "a client has sent nothing on {id} for {silent:?}, no padding either"
                ));
            }
        }
        Ok(())
    }

    /// No message is under way between threads, or between these and the controller.
    fn is_at_rest(&self) -> bool {
        self.lag.as_ref().is_none_or(|lag| lag.is_empty())
            && self.threads.iter().all(|thread| thread.mail.count() == 0)
    }

    fn check(&self, now: Now) -> Checked {
        for thread in &self.threads {
            thread
                .check()
                .map_err(|what| format!("thread {}: {what}", thread.me.0))?;
        }
        self.controller.audit()?;
        match &self.relay {
            Some(relay) => relay.exits.audit()?,
            None => sure(
                self.controller.counts().onionskins == 0,
                "a client answers no CREATE",
            )?,
        }
        if let Some(client) = &self.client {
            client.check(now)?;
        }
        match self.is_at_rest() {
            true => self.check_at_rest(),
            false => Ok(()),
        }
    }

    /// Between threads, and between them and the controller.
    fn check_at_rest(&self) -> Checked {
        let managers: Vec<&LocalConnectionManager> =
            self.threads.iter().map(|thread| &thread.manager).collect();
        // An edge that the exit has just opened may have a message for its half that leaves in its thread's next turn.
        let is_quiet = managers.iter().all(|manager| manager.inspect().is_quiet());
        if is_quiet {
            weft_core::manager::Inspection::audit_streams(&managers)
                .map_err(|what| format!("between threads: {what}"))?;
        }
        let waiting: usize = managers
            .iter()
            .map(|one| one.inspect().awaiting_keys())
            .sum();
        let onionskins = self.controller.onionskins();
        if is_quiet && waiting > onionskins {
            return Err(format!(
                "{waiting} halves wait for answers to their onionskins, and there are {onionskins}"
            ));
        }
        let deciding = managers
            .iter()
            .flat_map(|manager| manager.inspect().deciding());
        let deciding: BTreeSet<_> = deciding.collect();
        let relay = self.relay.iter();
        let waiting: BTreeSet<_> = relay.flat_map(|relay| relay.exits.waiting()).collect();
        if is_quiet && deciding != waiting {
            return Err(format!(
                "streams that wait for a decision are {deciding:?}, those that the exit has {waiting:?}"
            ));
        }
        let joints = managers
            .iter()
            .flat_map(|manager| manager.inspect().joints());
        let joints: BTreeMap<_, _> = joints.collect();
        for (half, peer) in &joints {
            if let Some(peer) = peer
                && joints.get(peer) != Some(&Some(*half))
            {
                return Err(format!(
                    "{half} is joined to {peer}, which does not know it"
                ));
            }
        }
        let on = |thread: usize| ThreadId(u16::try_from(thread).unwrap_or(u16::MAX));
        let edges = self.threads.iter().enumerate().flat_map(|(thread, one)| {
            let edges = one.manager.edges().connections();
            edges.map(move |id| (id, on(thread)))
        });
        let edges: BTreeMap<ConnectionId, ThreadId> = edges.collect();
        let placed: BTreeMap<ConnectionId, ThreadId> = self.controller.edge_places().collect();
        if edges != placed {
            return Err(format!(
                "the controller's edges are {placed:?}, the threads' {edges:?}"
            ));
        }
        if let Some(client) = &self.client {
            let known = client.client.circuits().map(|circuit| circuit.id);
            let known: BTreeSet<OriginId> = known.collect();
            let mut made: BTreeSet<OriginId> = self.controller.origin_circuits().collect();
            for tunnel in client.client.tunnels() {
                made.remove(&tunnel);
            }
            if known != made {
                return Err(format!(
                    "the client's circuits are {known:?}, the controller's {made:?}"
                ));
            }
        }
        let links =
            self.threads.iter().enumerate().flat_map(|(thread, one)| {
                one.links.iter().map(move |(_, link)| (link.id, on(thread)))
            });
        let links: BTreeMap<ConnectionId, ThreadId> = links.collect();
        let placed: BTreeMap<ConnectionId, ThreadId> = self.controller.places().collect();
        if links != placed {
            return Err(format!(
                "the controller's links are {placed:?}, the threads' {links:?}"
            ));
        }
        Ok(())
    }
}

impl Thread {
    fn check(&self) -> Checked {
        self.manager.inspect().audit()?;
        let to_read: BTreeSet<usize> = self.to_read.iter().copied().collect();
        let mut open = 0;
        for (place, link) in &self.links {
            sure(
                self.by_id.get(&link.id) == Some(&place),
                "a connection is known by its identifier",
            )?;
            if let Phase::Open(key) = link.phase {
                open += 1;
                let known = self.by_link.get(key.index()).copied().flatten();
                sure(
                    known == Some(place) && self.manager.links().of(link.id) == Some(key),
                    "an open connection has its link",
                )?;
                sure(
                    !self.manager.inspect().is_held(key) || !link.out.is_empty() || link.muted,
                    "a link is written to whose socket has taken everything",
                )?;
            }
            sure(
                !link.broken || to_read.contains(&place) || self.is_rate_limited(place),
                "a broken connection is about to be closed",
            )?;
        }
        sure(
            self.by_id.len() == self.links.len(),
            "only connections are known",
        )?;
        sure(
            self.by_link.iter().flatten().count() == open && self.manager.links().len() == open,
            "every link has its connection",
        )?;
        match self.manager.edges().has_news() {
            true => Ok(()),
            false => self.edges.check(&self.manager),
        }
    }
}
