//! The relay: its threads, its controller, and what is on the way between them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use weft_cell::abra::{AbraReason, Claim};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_cell::reason::DestroyReason;
use weft_cell::relay;
use weft_cell::{Cell, ChanCmd};
use weft_core::address::{ConnectionId, HalfAddr, StreamAddr, ThreadId};
use weft_core::controller::{
    Action, ControllerParams, EdgePeer, Notice, OnionskinKind, RelayController, Sharing,
};
use weft_core::handshake::{Established, LinkRole, PeerIdentity};
use weft_core::limits::dos::DosParams;
use weft_core::manager::{ControllerLoad, LinkError, LocalConnectionManager, Received};
use weft_core::memory::ledger::{Cut, Ledger, relieve};
use weft_core::message::{Control, FromController, LaneMsg, StreamRequest, ToController, Totals};
use weft_core::origin::{LinkFailure, OriginEvent};
use weft_core::params::RelayParams;
use weft_core::slots::{EdgeKey, LinkKey};
use weft_crypto::handshake::{self, OnionKeys, ReplyParams};

/// The relay under test.
pub const OWN_RSA: RsaIdentity = RsaIdentity([0xaa; 20]);

/// The relay under test.
pub const OWN_ED: Ed25519Identity = Ed25519Identity([0xab; 32]);

/// Divisor of the times without anything under way at which all state is compared.
const AUDITED: usize = 64;

/// Cells and empties on their way between two threads.
type Batch = (Vec<LaneMsg>, Vec<Box<Cell>>);

/// One lane pair between two threads.
#[derive(Default)]
struct Channel {
    control: VecDeque<Control>,
    cells: VecDeque<Batch>,
}

/// Something that may happen next.
#[derive(Clone, Copy)]
enum Step {
    Turn(usize),
    Controller,
}

/// A relay without sockets: its managers, its controller, and the messages between them.
pub struct World {
    pub managers: Vec<LocalConnectionManager>,
    pub controller: RelayController,
    pub onion_keys: OnionKeys,
    pub now: Instant,
    pub notices: Vec<Notice>,
    /// Streams that circuits asked for.
    pub streams: Vec<StreamRequest>,
    /// Events for the client thread.
    pub events: Vec<OriginEvent>,
    /// Connections that the controller wants opened.
    pub connects: Vec<Connect>,
    /// Connections that the node had closed.
    pub closed: Vec<ConnectionId>,
    /// Cells that the relay wrote to each connection.
    pub written: BTreeMap<ConnectionId, VecDeque<Cell>>,
    /// Connections whose peer does not read.
    pub not_reading: Vec<ConnectionId>,
    /// Cells that a link takes in one run of the scheduler; with none, everything stays in the
    /// circuits' queues.
    pub room: u32,
    /// Onionskins are answered as they arrive.
    pub answer_onionskins: bool,
    /// Onionskins that workers then have, and never answer.
    pub with_workers: Vec<(HalfAddr, OnionskinKind)>,
    /// Congestion control that answers to onionskins grant, whatever was asked for.
    pub sendme_inc: Option<u8>,
    /// Streams that circuits ask for get an edge as they arrive, on the next thread in turn.
    pub serve_streams: bool,
    /// The controller takes no requests of circuits, for the time being.
    pub is_behind: bool,
    /// Edges of these, and the threads that they are on.
    pub edges: Vec<(usize, EdgeKey)>,
    /// Streams that circuits asked for and that did not end before they were decided about.
    asked: BTreeSet<StreamAddr>,
    /// Statements of the relay's weight that were signed: the time of each is its number.
    pub statements: u64,
    /// Number of times that nothing was under way.
    rests: usize,
    /// Number of links that move while something is under way, each time that the world
    /// [settles](World::settle).
    pub moves: u32,
    /// Bytes that came on links which are about to leave their threads or are on their way, and whether these were closed
    /// by their peers.
    unread: BTreeMap<ConnectionId, (Vec<u8>, bool)>,
    threads: BTreeMap<ConnectionId, usize>,
    channels: BTreeMap<(usize, usize), Channel>,
    from_controller: Vec<VecDeque<FromController>>,
    to_controller: VecDeque<ToController>,
    rng: StdRng,
}

/// A connection that the controller wants.
#[derive(Clone, Copy, Debug)]
pub struct Connect {
    pub connection: ConnectionId,
    pub thread: ThreadId,
    pub addr: SocketAddr,
}

fn controller_params(sharing: Sharing) -> ControllerParams {
    ControllerParams {
        max_connections: 10_000,
        workers: 1,
        max_onionskins: 10_000,
        max_onion_delay: Duration::from_secs(60),
        onion_cutoff: Duration::from_secs(5),
        max_memory: 1 << 30,
        dos: DosParams::default(),
        sharing,
    }
}

impl World {
    pub fn new(threads: u16, seed: u64) -> Self {
        let mut params = RelayParams::new(OWN_RSA, OWN_ED);
        params.extend_to_private = true;
        params.serve_abra = true;
        params.serve_mtor = true;
        Self::with_params(threads, seed, params)
    }

    pub fn with_params(threads: u16, seed: u64, params: RelayParams) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let now = Instant::now();
        let params = Arc::new(params);
        let managers = (0..threads)
            .map(|id| {
                LocalConnectionManager::new(ThreadId(id), threads, params.clone(), rng.random())
            })
            .collect();
        let controller =
            RelayController::new(threads, controller_params(Sharing::All), rng.random(), now);
        World {
            managers,
            controller,
            onion_keys: OnionKeys::new(OWN_RSA, OWN_ED, &[7; 32], None),
            now,
            notices: Vec::new(),
            streams: Vec::new(),
            events: Vec::new(),
            connects: Vec::new(),
            closed: Vec::new(),
            written: BTreeMap::new(),
            not_reading: Vec::new(),
            room: u32::MAX,
            answer_onionskins: true,
            with_workers: Vec::new(),
            sendme_inc: None,
            serve_streams: false,
            is_behind: false,
            edges: Vec::new(),
            asked: BTreeSet::new(),
            statements: 0,
            rests: 0,
            moves: 0,
            unread: BTreeMap::new(),
            threads: BTreeMap::new(),
            channels: BTreeMap::new(),
            from_controller: (0..threads).map(|_| VecDeque::new()).collect(),
            to_controller: VecDeque::new(),
            rng,
        }
    }

    /// Has circuits share connections by this rule from now on.
    pub fn share(&mut self, sharing: Sharing) {
        self.controller.set_params(controller_params(sharing));
        let mut params = RelayParams::new(OWN_RSA, OWN_ED);
        params.extend_to_private = true;
        params.report_load = sharing != Sharing::All;
        params.watch_loss = matches!(sharing, Sharing::Auto { .. });
        self.controller.set_relay_params(&Arc::new(params));
        self.do_actions();
    }

    /// Has the controller defend by these parameters from now on.
    pub fn defend(&mut self, dos: DosParams) {
        self.controller.set_params(ControllerParams {
            dos,
            ..controller_params(Sharing::All)
        });
    }

    /// Opens a link from a peer on a thread of the test's choice, past the controller's placement.
    pub fn link_on(&mut self, thread: usize, peer: PeerIdentity) -> ConnectionId {
        self.link_from("127.0.0.1:1", thread, peer)
    }

    /// Opens a link from this address, like [`link_on`](Self::link_on).
    pub fn link_from(&mut self, addr: &str, thread: usize, peer: PeerIdentity) -> ConnectionId {
        let addr = addr.parse().unwrap();
        // Placement goes by load: ask until it is the thread that the test wants.
        for _ in 0..64 {
            let (id, placed) = self.controller.accepted(addr, self.now).unwrap();
            if usize::from(placed.0) == thread {
                self.open(id, thread, false, peer);
                return id;
            }
            self.controller.handle(
                ToController::ConnectionClosed {
                    connection: id,
                    why: LinkFailure::Other,
                },
                self.now,
            );
        }
        panic!("thread {thread} never came up");
    }

    /// Reports a connection as an opened link of a relay.
    pub fn open(&mut self, id: ConnectionId, thread: usize, initiated: bool, peer: PeerIdentity) {
        let role = match initiated {
            true => LinkRole::OpenedAsRelay,
            false => LinkRole::Accepted,
        };
        self.open_as(id, thread, role, peer);
    }

    /// Reports a connection as an opened link.
    pub fn open_as(&mut self, id: ConnectionId, thread: usize, role: LinkRole, peer: PeerIdentity) {
        self.threads.insert(id, thread);
        self.written.insert(id, VecDeque::new());
        let established = Established {
            link_protocol: 5,
            role,
            peer,
            clock_skew: None,
            my_addr: None,
            peer_addrs: Vec::new(),
            canonical: true,
        };
        let (_, addr) = self.controller.peer_of(id);
        let addr = addr.unwrap_or(Ipv4Addr::LOCALHOST.into());
        self.managers[thread].open_link(id, addr, &established, self.now);
    }

    /// Has the controller follow a consensus that lists these relays, each at the address that
    /// [`Circuit::extend_message`] names.
    pub fn list(&mut self, relays: &[u8]) {
        let addr = |n: &u8| format!("127.0.0.{n}:9001").parse().unwrap();
        let listed = relays
            .iter()
            .map(|n| ([*n; 20].into(), vec![addr(n)]))
            .collect();
        self.controller.set_relays(listed, self.now);
    }

    /// Carries out commands for connections, and what follows: one that is still being opened
    /// fails.
    pub fn close_as_asked(&mut self) {
        while !self.closed.is_empty() {
            for id in std::mem::take(&mut self.closed) {
                if self.is_open(id) {
                    self.close(id);
                } else if let Some(connect) = self.connects.iter().find(|one| one.connection == id)
                {
                    let thread = usize::from(connect.thread.0);
                    self.managers[thread]
                        .links_mut()
                        .connection_failed(id, LinkFailure::Other);
                    self.connects.retain(|one| one.connection != id);
                }
            }
            self.settle();
        }
    }

    /// Takes the connection away.
    pub fn close(&mut self, id: ConnectionId) {
        match self.readable(id) {
            Some((thread, link)) => {
                self.managers[thread].close_link(link, LinkFailure::Reset, self.now)
            }
            None => self.unread.entry(id).or_default().1 = true,
        }
    }

    /// The thread that a link is on, or was when it moved last.
    pub fn thread_of(&self, id: ConnectionId) -> usize {
        self.threads[&id]
    }

    /// Where a link is read; `None` while it moves.
    fn readable(&self, id: ConnectionId) -> Option<(usize, LinkKey)> {
        let thread = self.threads[&id];
        let link = self.managers[thread].links().of(id)?;
        (!self.managers[thread].is_leaving(link)).then_some((thread, link))
    }

    /// Lets the relay receive a cell on a connection.
    pub fn receive(&mut self, id: ConnectionId, cell: &Cell) {
        let received = self.receive_bytes(id, cell.as_bytes()).unwrap();
        assert_eq!((received.used, received.skip), (cell.as_bytes().len(), 0));
    }

    /// Lets the relay receive bytes on a connection that is open.
    pub fn receive_bytes(&mut self, id: ConnectionId, bytes: &[u8]) -> Result<Received, LinkError> {
        let Some((thread, link)) = self.readable(id) else {
            let unread = self.unread.entry(id).or_default();
            unread.0.extend_from_slice(bytes);
            let used = bytes.len();
            return Ok(Received { used, skip: 0 });
        };
        self.managers[thread].receive(link, bytes, self.now)
    }

    /// True if the connection is an opened link.
    pub fn is_open(&self, id: ConnectionId) -> bool {
        let thread = self.threads.get(&id);
        thread.is_some_and(|thread| self.managers[*thread].links().of(id).is_some())
    }

    /// Checks every thread's tables.
    pub fn audit(&self) {
        for (thread, manager) in self.managers.iter().enumerate() {
            if let Err(broken) = manager.inspect().audit() {
                panic!("on thread {thread} it does not hold that {broken}");
            }
        }
    }

    /// Checks what must hold between threads, and between them and the controller, when nothing is
    /// under way: a half that is joined is its peer's peer; streams, edges and credits fit together;
    /// the controller knows every connection and every edge, and no others.
    pub fn audit_at_rest(&self) {
        self.audit();
        let managers: Vec<&LocalConnectionManager> = self.managers.iter().collect();
        if let Err(broken) = weft_core::manager::Inspection::audit_streams(&managers) {
            panic!("between threads: {broken}");
        }
        for stream in self
            .managers
            .iter()
            .flat_map(|manager| manager.inspect().deciding())
        {
            assert!(
                self.is_behind || self.asked.contains(&stream),
                "nobody decides about {stream}"
            );
        }
        let placed = self.controller.edge_places();
        let edges = (0u16..).zip(&self.managers).flat_map(|(thread, manager)| {
            let edges = manager.edges().connections();
            edges.map(move |id| (id, ThreadId(thread)))
        });
        assert_eq!(
            placed.collect::<BTreeMap<_, _>>(),
            edges.collect::<BTreeMap<_, _>>(),
            "the controller knows the edges"
        );
        let connections: BTreeMap<ConnectionId, ThreadId> = self.controller.places().collect();
        let opening = self.connects.iter().map(|connect| connect.connection);
        let links = self.threads.keys().copied().filter(|id| self.is_open(*id));
        let known: BTreeSet<ConnectionId> = opening.chain(links).collect();
        assert_eq!(
            connections.keys().copied().collect::<BTreeSet<_>>(),
            known,
            "the controller knows the connections"
        );
        self.audit_joints();
        assert!(
            !self.controller.is_moving() && self.unread.is_empty(),
            "no link moves"
        );
        for (thread, manager) in self.managers.iter().enumerate() {
            assert!(
                !manager.inspect().is_transferring(),
                "thread {thread} knows that no link moves"
            );
        }
        for (id, thread) in self.controller.places() {
            let there = self
                .threads
                .get(&id)
                .is_none_or(|on| *on == usize::from(thread.0));
            assert!(there, "the controller knows where {id} is");
        }
        // Of each half that was made elsewhere, every thread knows where it is; of others, none does.
        let strangers: Vec<usize> = self
            .managers
            .iter()
            .map(|one| one.inspect().routes())
            .collect();
        assert!(
            strangers.iter().all(|routes| *routes == strangers[0]),
            "{strangers:?}"
        );
        if self.halves() == 0 {
            assert_eq!(strangers[0], 0, "no route is left");
        }
    }

    /// A half that is joined is its peer's peer.
    fn audit_joints(&self) {
        let joints: BTreeMap<_, _> = self
            .managers
            .iter()
            .flat_map(|manager| manager.inspect().joints())
            .collect();
        for (half, peer) in &joints {
            if let Some(peer) = peer {
                assert_eq!(
                    joints.get(peer),
                    Some(&Some(*half)),
                    "{half:?} is joined to {peer:?}"
                );
            }
        }
    }

    /// The next cell that the relay wrote to a connection.
    pub fn take(&mut self, id: ConnectionId) -> Option<Cell> {
        self.written.get_mut(&id)?.pop_front()
    }

    /// The next cell that the relay wrote to a connection, which must exist and have this command.
    pub fn expect(&mut self, id: ConnectionId, command: ChanCmd) -> Cell {
        let cell = self
            .take(id)
            .unwrap_or_else(|| panic!("no {command} on {id}"));
        assert_eq!(cell.command(), command, "{cell:?}");
        cell
    }

    /// Lets everything happen that can, in an order that the seed chooses.
    pub fn settle(&mut self) {
        let mut moves = self.moves;
        for _ in 0..1_000_000 {
            let pick = self.rng.random_range(0..1 << 16);
            if moves > 0 && self.rng.random_bool(0.2) && self.move_any() {
                moves -= 1;
            }
            if !self.step(pick) {
                self.rests += 1;
                if self.rests.is_power_of_two() || self.rests.is_multiple_of(AUDITED) {
                    self.audit_at_rest();
                }
                return;
            }
        }
        panic!("the relay never comes to rest");
    }

    /// Lets one thing happen of those that can, after every thread has scheduled and written.
    /// False: nothing can.
    pub fn step(&mut self, pick: usize) -> bool {
        for thread in 0..self.managers.len() {
            self.carry_away(thread);
        }
        let mut steps: Vec<Step> = (0..self.managers.len())
            .filter(|thread| self.has_mail(*thread))
            .map(Step::Turn)
            .collect();
        if !self.to_controller.is_empty() {
            steps.push(Step::Controller);
        }
        if steps.is_empty() {
            return false;
        }
        match steps[pick % steps.len()] {
            Step::Turn(thread) => self.turn(thread),
            Step::Controller => self.run_controller(),
        }
        true
    }

    /// Runs the timers of every thread, and what follows.
    pub fn tick(&mut self) {
        for thread in 0..self.managers.len() {
            for (id, _) in self.managers[thread].handle_timeout(self.now) {
                self.closed.push(id);
                self.close(id);
            }
        }
        self.settle();
    }

    /// Lets time pass in steps of a quarter second.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(250);
            self.tick();
        }
    }

    /// Lets the controller answer the threads' messages, and nothing else happen.
    pub fn carry_to_controller(&mut self) {
        for thread in 0..self.managers.len() {
            self.carry_away(thread);
        }
        while !self.to_controller.is_empty() {
            self.run_controller();
        }
    }

    fn has_mail(&self, thread: usize) -> bool {
        !self.from_controller[thread].is_empty()
            || self.channels.iter().any(|((_, to), channel)| {
                *to == thread && !(channel.control.is_empty() && channel.cells.is_empty())
            })
    }

    /// Schedules, writes, and moves a manager's messages into the channels.
    fn carry_away(&mut self, thread: usize) {
        let manager = &mut self.managers[thread];
        let room = self.room;
        manager.schedule(self.now, |_| room);
        for link in manager.links().listed().to_vec() {
            let id = self
                .threads
                .iter()
                .find(|(id, on)| **on == thread && manager.links().of(**id) == Some(link))
                .map(|(id, _)| *id)
                .unwrap();
            if self.not_reading.contains(&id) {
                continue;
            }
            // Each asking brings some of the DESTROYs that wait.
            let mut cells = 0;
            while let Some(cell) = manager
                .links_mut()
                .outgoing(link)
                .and_then(std::collections::VecDeque::pop_front)
            {
                self.written
                    .get_mut(&id)
                    .unwrap()
                    .push_back(Cell::clone(&cell));
                manager.links_mut().recycle(cell);
                cells += 1;
            }
            manager.links_mut().count_written(link, cells);
            manager.links_mut().wrote(link, self.now);
        }
        manager.links_mut().prune_written();
        for to in 0..self.from_controller.len() {
            if to == thread {
                continue;
            }
            let outbox = manager
                .outbox(ThreadId(u16::try_from(to).unwrap()))
                .unwrap();
            let channel = self.channels.entry((thread, to)).or_default();
            channel.control.extend(outbox.control.drain(..));
            if !outbox.cells.is_empty() || !outbox.empties.is_empty() {
                channel.cells.push_back((
                    std::mem::take(&mut outbox.cells),
                    std::mem::take(&mut outbox.empties),
                ));
            }
        }
        let load = match self.is_behind {
            true => ControllerLoad::Busy,
            false => ControllerLoad::Ready,
        };
        while let Some(message) = manager.poll_controller(load) {
            self.to_controller.push_back(message);
        }
    }

    /// A thread's turn: some of the controller's messages, and of one other thread's.
    fn turn(&mut self, thread: usize) {
        let many = self.rng.random_range(1..4);
        for _ in 0..many {
            if let Some(message) = self.from_controller[thread].pop_front() {
                let closed = self.managers[thread].handle_controller(message, self.now);
                self.closed.extend(closed);
            }
        }
        for from in 0..self.managers.len() {
            if self.rng.random_bool(0.5) {
                continue;
            }
            let Some(channel) = self.channels.get_mut(&(from, thread)) else {
                continue;
            };
            // Like a ring: notes the cells, drains control, then takes those cells.
            let batches: Vec<Batch> = channel.cells.drain(..).collect();
            let controls: Vec<Control> = channel.control.drain(..).collect();
            self.managers[thread].handle_controls(controls, self.now);
            for (cells, empties) in batches {
                let from = ThreadId(u16::try_from(from).unwrap());
                self.managers[thread].handle_cells(from, cells, empties, self.now);
            }
        }
        self.move_links(thread);
    }

    /// Does what a shell does for links that move.
    fn move_links(&mut self, thread: usize) {
        let manager = &mut self.managers[thread];
        if let Some(id) = manager.departing() {
            manager.pack(Box::new(id), self.now);
        }
        if let Some(mut arrival) = manager.take_arrival() {
            let id = arrival.connection();
            assert_eq!(
                arrival.take_cargo().downcast_ref(),
                Some(&id),
                "the same socket"
            );
            let link = manager.install(arrival, self.now);
            self.threads.insert(id, thread);
            if let Some((bytes, closed)) = self.unread.remove(&id) {
                let received = manager.receive(link, &bytes, self.now).unwrap();
                assert_eq!(received.used, bytes.len());
                if closed {
                    manager.close_link(link, LinkFailure::Reset, self.now);
                }
            }
        }
        while let Some(message) = self.managers[thread].poll_forwarded() {
            let closed = self.managers[thread].handle_controller(message, self.now);
            self.closed.extend(closed);
        }
        // A link that was to leave and has closed instead.
        let closed: Vec<ConnectionId> = (self.unread.keys().copied())
            .filter(|id| !self.controller.is_moving() && !self.is_open(*id))
            .collect();
        for id in closed {
            self.unread.remove(&id);
        }
    }

    /// Has a link move to another thread, each drawn. False: none can now.
    pub fn move_any(&mut self) -> bool {
        let threads = self.managers.len();
        let open: Vec<ConnectionId> = (self.threads.keys().copied())
            .filter(|id| self.is_open(*id))
            .collect();
        if open.is_empty() || threads < 2 {
            return false;
        }
        let id = open[self.rng.random_range(0..open.len())];
        let to = ThreadId(u16::try_from(self.rng.random_range(0..threads)).unwrap());
        let moves = self.controller.move_link(id, to);
        self.do_actions();
        moves
    }

    fn run_controller(&mut self) {
        let Some(message) = self.to_controller.pop_front() else {
            return;
        };
        self.controller.handle(message, self.now);
        self.do_actions();
    }

    /// Carries out what the controller asks for.
    pub fn do_actions(&mut self) {
        while let Some(action) = self.controller.poll_action() {
            match action {
                Action::Send { to, message } => {
                    self.from_controller[usize::from(to.0)].push_back(message);
                }
                Action::Connect {
                    connection,
                    thread,
                    addr,
                    ..
                } => self.connects.push(Connect {
                    connection,
                    thread,
                    addr,
                }),
                Action::Onionskin { half, request, .. } => {
                    let kind = OnionskinKind::of(&request);
                    if !self.answer_onionskins {
                        self.with_workers.push((half, kind));
                        continue;
                    }
                    let answer = handshake::negotiate(
                        &request,
                        &self.onion_keys,
                        &ReplyParams {
                            sendme_inc: self.sendme_inc,
                        },
                        &mut self.rng,
                    )
                    .map(|answer| (answer.reply, Box::new(answer.keys), self.sendme_inc))
                    .map_err(|_| DestroyReason::PROTOCOL);
                    self.controller
                        .onionskin_answered(half, kind, None, answer, self.now);
                }
                Action::Stream(request) => {
                    self.asked.insert(request.at.addr);
                    match self.serve_streams {
                        true => self.serve(&request),
                        false => self.streams.push(request),
                    }
                }
                Action::StreamGone(stream) => {
                    assert!(self.asked.remove(&stream), "{stream} was asked for once");
                }
                Action::SignAbra { weight, reason } => self.sign(weight, reason),
                Action::Origin(event) => self.events.push(event),
                Action::Notice(notice) => self.notices.push(notice),
            }
        }
    }

    /// Signs this relay's claim, with a signature that no test checks.
    fn sign(&mut self, weight: f64, reason: AbraReason) {
        self.statements += 1;
        let claim = Claim::new(self.statements, weight, reason);
        let mut statement = weft_cell::abra::unsigned(&claim, &[7; 140]).unwrap();
        statement.extend_from_slice(&[1; 64]);
        self.controller.abra_signed(statement.into());
    }

    /// Gives a stream that a circuit asked for its edge, on the next thread in turn: a socket that
    /// is connected.
    pub fn serve(&mut self, request: &StreamRequest) {
        let hop = self.controller.previous_hop(request.connection);
        let (id, _) = self
            .controller
            .place_edge(request.at.addr.half, hop)
            .unwrap();
        let thread = self.edges.len() % self.managers.len();
        let place = ThreadId(u16::try_from(thread).unwrap());
        self.controller.place_at(id, place);
        // Each stream has a separate port.
        let port = 80 + u16::try_from(self.edges.len()).unwrap();
        let to = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), port));
        self.controller
            .note_edge_peer(id, EdgePeer::Destination(to));
        let manager = &mut self.managers[thread];
        let edge = manager.adopt_exit(id, request.at, self.now).unwrap();
        manager.edge_connected(edge, None, 0, self.now);
        self.edges.push((thread, edge));
    }

    /// Bytes that all threads hold.
    pub fn held(&self) -> u64 {
        let ledgers = self.managers.iter().map(|manager| manager.ledger(self.now));
        ledgers.map(|ledger| ledger.total()).sum()
    }

    /// Lets the threads free what the controller would have them free if `allowed` bytes were the
    /// limit.
    pub fn relieve(&mut self, allowed: u64) {
        let managers = || self.managers.iter();
        let ledgers: Vec<Ledger> = managers().map(|manager| manager.ledger(self.now)).collect();
        let Some(missing) = ledgers.iter().sum::<Ledger>().to_free(allowed) else {
            return;
        };
        let holdings: Vec<_> = managers()
            .map(|manager| manager.holdings(self.now))
            .collect();
        let cuts = relieve(&holdings, missing, |cause| self.controller.hop_of(cause));
        for (thread, cut) in cuts.into_iter().enumerate() {
            self.free(thread, cut);
        }
    }

    /// Has each thread free the given number of bytes, of owners with at least the given weight, in any hop.
    pub fn free_heavier(&mut self, weight: u64, bytes: u64) {
        for thread in 0..self.managers.len() {
            self.free_heavier_on(thread, weight, bytes);
        }
    }

    /// Frees owners of at least this weight on one thread.
    pub fn free_heavier_on(&mut self, thread: usize, weight: u64, bytes: u64) {
        let holdings = self.managers[thread].holdings(self.now);
        self.free(thread, Cut::new(holdings.causes(), weight, bytes));
    }

    fn free(&mut self, thread: usize, cut: Cut) {
        let message = FromController::FreeMemory(cut);
        let closed = self.managers[thread].handle_controller(message, self.now);
        self.closed.extend(closed);
    }

    /// Halves on all threads.
    pub fn halves(&self) -> usize {
        self.managers
            .iter()
            .map(LocalConnectionManager::halves)
            .sum()
    }

    /// Totals of all threads.
    pub fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        for manager in &self.managers {
            sum += manager.totals();
        }
        sum
    }

    /// Randomness of the test.
    pub fn rng(&mut self) -> &mut StdRng {
        &mut self.rng
    }
}
