//! A node: a relay, a client, or both. What `weft-node/src/relay/` is to a process, this is to a host of the virtual network.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use weft_cell::abra::{self, AbraReason, Claim};
use weft_cell::circ_msg::CreateRequest;
use weft_cell::identity::RsaIdentity;
use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::stream_msg::End as EndMsg;
use weft_core::address::{ConnectionId, HalfAddr, ThreadId};
use weft_core::controller::Sharing;
use weft_core::controller::{Action, ControllerParams, OnionskinKind, RelayController};
use weft_core::handshake::PeerIdentity;
use weft_core::manager::LocalConnectionManager;
use weft_core::message::{FromController, StreamAsk, StreamRequest, ToController};
use weft_core::params::RelayParams;
use weft_crypto::handshake::{OnionKeys, ReplyParams, negotiate};
use weft_exit::{DnsAnswer, DnsError, ExitAction, ExitSettings, Exits, Found, PreviousKind, Query};
use weft_model::hosts::{ConnId, HostId};

use super::client::ClientSide;
use super::ground::{Ground, Wake};
use super::lag::{Lag, Lane, Message};
use super::limit::Limits;
use super::link::Identities;
use super::odd;
use super::thread::{Around, Thread};
use crate::setup::{Costs, NodeOptions};

/// Interval of threads' reports to the controller.
const REPORT: Duration = Duration::from_secs(1);
/// Connections that a node may have.
const MAX_CONNECTIONS: usize = 60_000;
/// Time for which an exit caches the answer of a name server.
const NAME_TTL: Duration = Duration::from_secs(60);
/// The slowest answer of a name server, in nanoseconds.
const SLOWEST_NAME: u64 = 800_000_000;
/// Memory of queues (MaxMemInQueues).
const MAX_MEMORY: u64 = 8 << 30;

/// State that all nodes of a network share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) options: NodeOptions,
    pub(super) costs: Costs,
    /// The identities of all nodes.
    pub(super) identities: Identities,
    /// The relays that the consensus lists.
    pub(super) relays: BTreeMap<RsaIdentity, Vec<SocketAddr>>,
    /// Destinations.
    pub(super) servers: Vec<SocketAddr>,
    /// `cc_sendme_inc`, which relays grant.
    pub(super) sendme_inc: Option<u8>,
}

/// State that only relays have.
#[derive(Debug)]
pub(super) struct RelaySide {
    onion_keys: OnionKeys,
    pub(super) exits: Exits,
    workers: Workers,
    /// Questions to name servers, by the time of the answer in nanoseconds and a number.
    look_ups: BTreeMap<(u64, u64), Query>,
    /// Circuits that were answered.
    pub(super) circuits: u64,
}

/// Onionskins take time.
#[derive(Debug)]
struct Workers {
    /// When each is free, in nanoseconds.
    free: Vec<u64>,
    /// Under way: when it is done, the half, the request.
    under_way: VecDeque<(u64, HalfAddr, CreateRequest)>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) number: u32,
    pub(super) host: HostId,
    pub(super) controller: RelayController,
    pub(super) threads: Vec<Thread>,
    limits: Limits,
    pub(super) relay: Option<RelaySide>,
    pub(super) client: Option<Box<ClientSide>>,
    reported: Instant,
    /// It states that it has bandwidth left, always.
    lies: bool,
    /// Messages between threads, and between them and the controller, are held back.
    pub(super) lag: Option<Box<Lag>>,
    /// Relays that its consensus lacks.
    pub(super) unlisted: BTreeSet<RsaIdentity>,
    /// The first thing that it did wrong.
    pub(super) defect: Option<String>,
    /// Messages between its threads and its controller so far.
    pub(super) messages: u64,
    rng: StdRng,
}

impl Node {
    pub(super) fn new(
        number: u32,
        host: HostId,
        threads: u16,
        limit: Option<(u64, u64)>,
        common: &Common,
        seed: [u8; 32],
        now: Instant,
    ) -> Node {
        let mut rng = StdRng::from_seed(seed);
        let (rsa, ed25519) = match common.identities.get(number as usize) {
            Some(PeerIdentity::Relay { rsa, ed25519 }) => (*rsa, *ed25519),
            _ => ([0; 20].into(), [0; 32].into()),
        };
        let sharing = common.options.sharing;
        let mut params = RelayParams::new(rsa, ed25519);
        // Addresses of scenarios are as they are.
        params.extend_to_private = true;
        params.report_load = sharing != Sharing::All;
        params.watch_loss = matches!(sharing, Sharing::Auto { .. });
        params.serve_mtor = common.options.multipath;
        params.serve_abra = common.options.client.selection.asks_weights();
        let params = Arc::new(params);
        let controller_params = ControllerParams {
            max_connections: MAX_CONNECTIONS,
            workers: usize::from(threads.max(1)),
            max_onionskins: 20_000,
            max_onion_delay: Duration::from_millis(1_750),
            onion_cutoff: Duration::from_secs(5),
            max_memory: MAX_MEMORY,
            dos: common.options.dos.clone(),
            sharing,
        };
        let thread = |id: u16, rng: &mut StdRng| {
            let me = ThreadId(id);
            let manager = LocalConnectionManager::new(me, threads, params.clone(), rng.random());
            Thread::new(number, me, manager, now)
        };
        Node {
            number,
            host,
            controller: RelayController::new(threads, controller_params, rng.random(), now),
            threads: (0..threads).map(|id| thread(id, &mut rng)).collect(),
            limits: Limits::new(limit, now),
            relay: None,
            client: None,
            reported: now,
            lies: false,
            lag: None,
            unlisted: BTreeSet::new(),
            defect: None,
            messages: 0,
            rng,
        }
    }

    /// Makes it a relay.
    pub(super) fn serve(&mut self, relay: &crate::setup::Relay, common: &Common, now: Instant) {
        self.follow_consensus(common, now);
        let settings = ExitSettings {
            policy: relay.policy.clone(),
            ipv6: false,
            any_names: false,
            refuse_unknown: common.options.refuse_unknown,
            reentry: false,
            detect_hijacking: false,
            test_addresses: Vec::new(),
        };
        self.lies = relay.adversary && common.options.lies;
        let mut exits = Exits::new(settings, self.rng.random());
        exits.set_relays(common.relays.values().flatten().copied().collect());
        self.relay = Some(RelaySide {
            onion_keys: OnionKeys::new(relay.rsa, relay.ed25519, &relay.onion_key, None),
            exits,
            workers: Workers {
                free: vec![0; usize::from(relay.threads.max(1))],
                under_way: VecDeque::new(),
            },
            look_ups: BTreeMap::new(),
            circuits: 0,
        });
    }

    /// Takes the consensus, without the relays that its own lacks.
    pub(super) fn follow_consensus(&mut self, common: &Common, now: Instant) {
        let mut relays = common.relays.clone();
        relays.retain(|rsa, _| !self.unlisted.contains(rsa));
        self.controller.set_relays(relays, now);
    }

    /// Makes it a client.
    pub(super) fn use_network(&mut self, client: ClientSide) {
        self.controller.serve_client();
        self.client = Some(Box::new(client));
    }

    /// Its randomness.
    pub(super) fn rng(&mut self) -> &mut StdRng {
        &mut self.rng
    }

    // ---- threads ----

    /// A turn of a thread, if it is one's time, and what follows from it.
    pub(super) fn turn(&mut self, thread: u16, common: &Common, ground: &mut Ground) {
        let index = usize::from(thread);
        if !(self.threads.get_mut(index)).is_some_and(|thread| thread.is_due(ground)) {
            return;
        }
        if let Some(thread) = self.threads.get_mut(index) {
            let mut around = Around {
                ground,
                limits: &mut self.limits,
                options: &common.options,
                costs: common.costs,
                identities: &common.identities,
            };
            thread.turn(&mut around);
        }
        self.carry(index, common, ground);
        if let Some(thread) = self.threads.get_mut(index) {
            let mut around = Around {
                ground,
                limits: &mut self.limits,
                options: &common.options,
                costs: common.costs,
                identities: &common.identities,
            };
            thread.ask_next(&mut around);
        }
    }

    /// Moves a thread's messages to where they go.
    fn carry(&mut self, from: usize, common: &Common, ground: &mut Ground) {
        let now = ground.now();
        let count = self.threads.len();
        for to in 0..count {
            if to == from {
                continue;
            }
            let id = |n: usize| ThreadId(u16::try_from(n).unwrap_or(u16::MAX));
            let Some(outbox) = self
                .threads
                .get_mut(from)
                .and_then(|one| one.manager.outbox(id(to)))
            else {
                continue;
            };
            if outbox.is_empty() {
                continue;
            }
            let controls = std::mem::take(&mut outbox.control);
            let cells = std::mem::take(&mut outbox.cells);
            let empties = std::mem::take(&mut outbox.empties);
            // They leave when the work of this turn is done.
            let at = ground.nanos();
            if let Some(lag) = &mut self.lag {
                let batch = (cells, empties);
                lag.between((id(from), id(to)), controls, batch, at);
                continue;
            }
            if let Some(thread) = self.threads.get_mut(to) {
                thread.mail.controls.extend(controls);
                thread.mail.cells.push((id(from), cells, empties));
                thread.ask_turn(at, ground);
            }
        }
        if now.saturating_duration_since(self.reported) >= REPORT {
            self.reported = now;
            for thread in &mut self.threads {
                let report = ToController::Report(Box::new(thread.report(now)));
                self.controller.handle(report, now);
            }
        }
        while let Some(message) = self.threads.get_mut(from).and_then(Thread::poll_controller) {
            self.messages += 1;
            match &mut self.lag {
                Some(lag) => lag.hold_for_controller(from, message, ground.nanos()),
                None => self.controller.handle(message, now),
            }
        }
        self.act(common, ground);
        if let Some(lag) = &mut self.lag {
            lag.wake(self.number, ground);
        }
    }

    /// Carries out what the controller and the client ask for, until they ask for nothing.
    pub(super) fn act(&mut self, common: &Common, ground: &mut Ground) {
        let now = ground.now();
        loop {
            while let Some(action) = self.controller.poll_action() {
                self.on_action(action, common, ground);
            }
            let Some(client) = &mut self.client else {
                return;
            };
            let commands = client.take_commands(ground.both(), ground.elapsed());
            if commands.is_empty() {
                return;
            }
            for command in commands {
                self.controller.origin(command, now);
            }
        }
    }

    fn on_action(&mut self, action: Action, common: &Common, ground: &mut Ground) {
        match action {
            Action::Send { to, message } => self.send(to, message, ground),
            Action::Connect {
                connection,
                thread,
                addr,
                rsa,
            } => {
                let host = self.host;
                if let Some(thread) = self.threads.get_mut(usize::from(thread.0)) {
                    thread.connect(connection, addr, rsa, ground, host);
                    thread.ask_turn(ground.nanos(), ground);
                }
            }
            Action::Onionskin { half, request, .. } => {
                self.onionskin(half, request, common, ground)
            }
            Action::Stream(request) => self.on_stream(request, common, ground),
            Action::StreamGone(stream) => {
                if let Some(relay) = &mut self.relay {
                    relay.exits.forget(stream);
                }
            }
            Action::Origin(event) => {
                let both = ground.both();
                if let Some(client) = &mut self.client {
                    client.on_event(event, both, ground.elapsed());
                }
            }
            Action::SignAbra { weight, reason } => self.state(weight, reason, ground),
            Action::Notice(_) => {}
        }
    }

    /// States the relay's bandwidth. The signature is zeros: nobody forges here.
    fn state(&mut self, weight: f64, reason: AbraReason, ground: &Ground) {
        let since = ground.both().wall.duration_since(SystemTime::UNIX_EPOCH);
        let time = since.map_or(0, |since| since.as_secs());
        let claim = match self.lies {
            true => Claim::new(time, 0.0, AbraReason::BelowCapacity),
            false => Claim::new(time, weight, reason),
        };
        if let Ok(mut statement) = abra::unsigned(&claim, &[]) {
            statement.extend_from_slice(&[0; 64]);
            self.controller.abra_signed(statement.into());
        }
    }

    pub(super) fn send(&mut self, to: ThreadId, message: FromController, ground: &mut Ground) {
        self.messages += 1;
        if let Some(lag) = &mut self.lag {
            lag.hold_from_controller(to, message, ground.nanos());
            return lag.wake(self.number, ground);
        }
        if let Some(thread) = self.threads.get_mut(usize::from(to.0)) {
            thread.mail.controller.push_back(message);
            thread.ask_turn(ground.nanos(), ground);
        }
    }

    /// Holds messages back from now on, until then, each for so long at most. Times are nanoseconds.
    pub(super) fn hold_back(&mut self, until: u64, most: u64, seed: u64) {
        match &mut self.lag {
            Some(lag) => lag.extend(until, most),
            None => self.lag = Some(Box::new(Lag::new(until, most, seed))),
        }
    }

    /// Hands out what was held back and is due.
    pub(super) fn hand_out(&mut self, common: &Common, ground: &mut Ground) {
        let (nanos, now) = (ground.nanos(), ground.now());
        if let Some(lag) = &mut self.lag {
            lag.on_timer(nanos);
        }
        while let Some((lane, message)) = self.lag.as_mut().and_then(|lag| lag.pop(nanos)) {
            let thread = match lane {
                Lane::FromController(to) | Lane::Control(_, to) | Lane::Cells(_, to) => {
                    self.threads.get_mut(usize::from(to.0))
                }
                Lane::ToController(_) => None,
            };
            match (message, thread) {
                (Message::ToController(message), _) => {
                    self.controller.handle(*message, now);
                    self.act(common, ground);
                }
                (Message::Controls(controls), Some(thread)) => {
                    thread.mail.controls.extend(controls);
                    thread.ask_turn(nanos, ground);
                }
                (Message::Cells(cells, empties), Some(thread)) => {
                    if let Lane::Cells(from, _) = lane {
                        thread.mail.cells.push((from, cells, empties));
                    }
                    thread.ask_turn(nanos, ground);
                }
                (Message::FromController(message), Some(thread)) => {
                    thread.mail.controller.push_back(*message);
                    thread.ask_turn(nanos, ground);
                }
                (_, None) => {}
            }
        }
        self.lag.take_if(|lag| lag.is_over(nanos));
        if let Some(lag) = &mut self.lag {
            lag.wake(self.number, ground);
        }
    }

    // ---- connections ----

    /// A connection came to the ORPort.
    pub(super) fn accept(
        &mut self,
        conn: ConnId,
        from: SocketAddr,
        node: Option<u32>,
        ground: &mut Ground,
    ) {
        let accepted = self.controller.accepted(from, ground.now());
        let Some((id, thread)) = accepted else {
            return ground.net.reset(conn, weft_model::hosts::End::Accepter);
        };
        if let Some(thread) = self.threads.get_mut(usize::from(thread.0)) {
            thread.accept(id, conn, from, node, ground);
        }
    }

    // ---- onionskins ----

    fn onionskin(
        &mut self,
        half: HalfAddr,
        request: CreateRequest,
        common: &Common,
        ground: &mut Ground,
    ) {
        let cost = common.costs.onionskin;
        let Some(relay) = &mut self.relay else {
            let kind = OnionskinKind::of(&request);
            let refused = Err(DestroyReason::PROTOCOL);
            return self
                .controller
                .onionskin_answered(half, kind, None, refused, ground.now());
        };
        if cost == 0 {
            return self.answer(half, &request, None, common.sendme_inc, ground.now());
        }
        let now = ground.nanos();
        if let Some(free) = relay.workers.free.iter_mut().min() {
            *free = now.max(*free) + cost;
            let at = *free;
            relay.workers.under_way.push_back((at, half, request));
            ground.wake(at, Wake::Onionskin { node: self.number });
        }
    }

    /// Workers have answered what is due.
    pub(super) fn workers_done(&mut self, common: &Common, ground: &mut Ground) {
        let now = ground.nanos();
        let spent = Some(Duration::from_nanos(common.costs.onionskin));
        loop {
            let Some(relay) = &mut self.relay else {
                return;
            };
            // Workers finish in the order in which they began, as all take the same time.
            let is_done = |(at, ..): &(u64, HalfAddr, CreateRequest)| *at <= now;
            if !relay.workers.under_way.front().is_some_and(is_done) {
                break;
            }
            if let Some((_, half, request)) = relay.workers.under_way.pop_front() {
                self.answer(half, &request, spent, common.sendme_inc, ground.now());
            }
        }
        self.act(common, ground);
    }

    fn answer(
        &mut self,
        half: HalfAddr,
        request: &CreateRequest,
        spent: Option<Duration>,
        sendme_inc: Option<u8>,
        now: Instant,
    ) {
        let Some(relay) = &mut self.relay else {
            return;
        };
        let kind = OnionskinKind::of(request);
        let params = ReplyParams { sendme_inc };
        let answer = negotiate(request, &relay.onion_keys, &params, &mut self.rng);
        relay.circuits += 1;
        let answer = answer
            .map(|answer| (answer.reply, Box::new(answer.keys), answer.sendme_inc))
            .map_err(|_| DestroyReason::PROTOCOL);
        self.controller
            .onionskin_answered(half, kind, spent, answer, now);
    }

    // ---- streams of an exit ----

    fn on_stream(&mut self, request: StreamRequest, common: &Common, ground: &mut Ground) {
        let now = ground.now();
        let stream = request.at;
        let hop = self.controller.previous_hop(request.connection);
        let (rsa, _) = self.controller.peer_of(request.connection);
        let Some(relay) = &mut self.relay else {
            let end = EndMsg::new(EndReason::MISC);
            return self.controller.refuse_stream(stream.addr, &end);
        };
        let previous = match rsa {
            _ if request.from_client => PreviousKind::Client,
            Some(rsa) if common.relays.contains_key(&rsa) && !self.unlisted.contains(&rsa) => {
                PreviousKind::Relay
            }
            _ => PreviousKind::UnknownRelay,
        };
        match request.ask {
            StreamAsk::Begin(begin) => relay.exits.begin(stream, hop, previous, &begin, now),
            StreamAsk::Resolve(resolve) => relay.exits.resolve(stream, hop, &resolve, now),
            StreamAsk::BeginDir => {
                let end = EndMsg::new(EndReason::NOTDIRECTORY);
                self.controller.refuse_stream(stream.addr, &end);
            }
        }
        self.act_exits(common, ground);
    }

    /// Name servers have answered what is due.
    pub(super) fn names_answered(&mut self, common: &Common, ground: &mut Ground) {
        let (nanos, now) = (ground.nanos(), ground.now());
        while let Some(relay) = &mut self.relay
            && let Some(first) = relay.look_ups.first_entry()
            && first.key().0 <= nanos
        {
            let query = first.remove();
            let found = odd::look_up(&query.name, &common.servers);
            let result = found
                .map(|addr| (Found::Addresses(vec![addr]), NAME_TTL))
                .ok_or(DnsError::NotExist);
            relay.exits.answered(DnsAnswer { query, result }, now);
        }
        self.act_exits(common, ground);
        self.act(common, ground);
    }

    fn act_exits(&mut self, common: &Common, ground: &mut Ground) {
        while let Some(action) = (self.relay.as_mut()).and_then(|relay| relay.exits.poll_action()) {
            match action {
                ExitAction::LookUp(query) => {
                    let at = ground.nanos() + self.rng.random_range(1..=SLOWEST_NAME);
                    let number = self.rng.random();
                    if let Some(relay) = &mut self.relay {
                        relay.look_ups.insert((at, number), query);
                        ground.wake(at, Wake::Name { node: self.number });
                    }
                }
                ExitAction::Connect {
                    stream,
                    hop,
                    to,
                    ttl,
                } => {
                    if !common.servers.contains(&to) && self.defect.is_none() {
                        self.defect = Some(format!("an exit connects to {to}, where nobody may"));
                    }
                    let half = stream.addr.half;
                    let Some((id, thread)) = self.controller.place_edge(half, hop) else {
                        let end = EndMsg::new(EndReason::RESOURCELIMIT);
                        self.controller.refuse_stream(stream.addr, &end);
                        continue;
                    };
                    let host = self.host;
                    if let Some(thread) = self.threads.get_mut(usize::from(thread.0)) {
                        thread.open_edge(id, stream, (to, ttl), host, ground);
                        thread.ask_turn(ground.nanos(), ground);
                    }
                }
                ExitAction::End { stream, end } => self.controller.refuse_stream(stream.addr, &end),
                ExitAction::Resolved { stream, resolved } => {
                    self.controller.resolved(stream.addr, resolved);
                }
                ExitAction::Cancel(_) | ExitAction::Log(_) | ExitAction::PolicyChanged(_) => {}
            }
        }
    }

    // ---- the client ----

    /// A place for a stream of the user's.
    pub(super) fn place_application(&mut self) -> Option<ConnectionId> {
        self.controller.place_application().map(|(id, _)| id)
    }

    /// Once a second.
    pub(super) fn second(&mut self, common: &Common, ground: &mut Ground) {
        if let Some(client) = &mut self.client {
            client.tick(ground.both(), ground.elapsed());
            let rests = client.rests_at(ground.elapsed());
            for thread in &mut self.threads {
                if std::mem::replace(&mut thread.edges.rests, rests) != rests {
                    thread.ask_turn(ground.nanos(), ground);
                }
            }
        }
        self.act(common, ground);
    }

    /// Bytes that it holds in queues and buffers.
    pub(super) fn held(&self, now: Instant) -> u64 {
        let threads = self.threads.iter();
        threads.map(|one| one.manager.ledger(now).total()).sum()
    }
}
