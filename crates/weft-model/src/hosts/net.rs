//! Hosts, the paths between them, and TCP connections over these: discrete events in virtual time.
//!
//! A host has an access line: a rate and a queue each way, which all its connections share. Between
//! two hosts' lines is a path with a delay and a loss. Packets of a path do not overtake each
//! other. Events of the same nanosecond happen in the order in which they were caused, so one seed
//! gives one course of events.

use std::collections::VecDeque;

use crate::links::{Fate, Link, LinkSettings, Loss, Moment, Topology};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

use crate::hosts::connection::{Connection, Direction, End, Ends, HostId, SEND_BUFFER};
use crate::hosts::events::Events;
use crate::hosts::faults::Faults;
use crate::hosts::packet::{Kind, Packet};
use crate::hosts::socket::{ConnId, Happening, PathSettings};
use crate::hosts::tcp::Algorithm;
use crate::hosts::ways::{Node, Ways, node};

/// First timeout of a SYN, in nanoseconds; it doubles with each retransmission.
const SYN_AGAIN: u64 = 1_000_000_000;
/// A SYN is sent so often.
const SYNS: u32 = 6;
/// Consecutive timeouts after which an end considers the other one dead (`tcp_retries2` of Linux).
const MOST_TIMEOUTS: u32 = 15;

/// A packet at a host or a switch of a topology.
#[derive(Clone, Copy, Debug)]
struct Forwarded {
    conn: ConnId,
    to: End,
    at: Node,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A packet reaches a node of a topology.
    AtNode(Forwarded),
    /// A packet reaches the access line of its destination.
    AtLine(Packet),
    /// A packet reaches its destination.
    Arrives(Packet),
    /// A sender's timer, of the end that sends.
    Sender(ConnId, End, u64),
    /// A receiver's.
    Receiver(ConnId, End, u64),
    Syn(ConnId, u32),
    Timer(u64),
}

#[derive(Debug)]
struct Host {
    up: Link,
    down: Link,
    /// Initial settings of both.
    line: [LinkSettings; 2],
    place: u32,
}

/// The network.
#[derive(Debug)]
pub struct Net {
    now: u64,
    events: Events<Event>,
    hosts: Vec<Host>,
    /// By places: from, to.
    paths: Vec<Vec<PathSettings>>,
    /// Of a topology, which has neither lines nor paths.
    ways: Option<Ways>,
    pub(crate) connections: Vec<Option<Connection>>,
    generations: Vec<u32>,
    spare: Vec<u32>,
    pub(crate) happened: VecDeque<Happening>,
    algorithm: Algorithm,
    pub(crate) faults: Faults,
    rng: ChaCha12Rng,
    handled: u64,
}

impl Net {
    /// A network without hosts, whose places have these paths between them: `paths[from][to]`.
    #[must_use]
    pub fn new(paths: Vec<Vec<PathSettings>>, algorithm: Algorithm, seed: u64) -> Net {
        Net {
            now: 0,
            events: Events::new(),
            hosts: Vec::new(),
            paths,
            ways: None,
            connections: Vec::new(),
            generations: Vec::new(),
            spare: Vec::new(),
            happened: VecDeque::new(),
            algorithm,
            faults: Faults::default(),
            rng: ChaCha12Rng::seed_from_u64(seed),
            handled: 0,
        }
    }

    /// A network of a topology's hosts, in their order, which no others join: each packet crosses
    /// the links on its way one after the other, with their delays and losses. The caller runs the
    /// links' background streams.
    #[must_use]
    pub fn of_topology(topology: &Topology, algorithm: Algorithm, seed: u64) -> Net {
        Net {
            ways: Some(Ways::new(topology)),
            ..Net::new(Vec::new(), algorithm, seed)
        }
    }

    /// A host in a place, with the two directions of its access line. Their delays and losses should be none: paths
    /// have them.
    pub fn host(&mut self, place: u32, up: &LinkSettings, down: &LinkSettings) -> HostId {
        let id = HostId(u32::try_from(self.hosts.len()).unwrap_or(u32::MAX));
        self.hosts.push(Host {
            up: Link::new(up),
            down: Link::new(down),
            line: [up.clone(), down.clone()],
            place,
        });
        id
    }

    /// The two directions of a host's access line, up and down. `None`: no such host, or a topology's, which has none.
    #[must_use]
    pub fn line(&self, host: HostId) -> Option<&[LinkSettings; 2]> {
        self.hosts.get(host.0 as usize).map(|host| &host.line)
    }

    /// The path between the lines of two hosts. `None` as for [`Net::line`].
    #[must_use]
    pub fn path(&self, from: HostId, to: HostId) -> Option<PathSettings> {
        let place = |host: HostId| Some(self.hosts.get(host.0 as usize)?.place as usize);
        self.paths.get(place(from)?)?.get(place(to)?).copied()
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Moment {
        Moment::from_nanos(self.now)
    }

    /// Events so far.
    #[must_use]
    pub fn handled(&self) -> u64 {
        self.handled
    }

    /// Opens a connection.
    pub fn connect(&mut self, from: HostId, to: HostId, port: u16) -> ConnId {
        let index = match self.spare.pop() {
            Some(index) => index,
            None => {
                self.connections.push(None);
                self.generations.push(0);
                u32::try_from(self.connections.len() - 1).unwrap_or(u32::MAX)
            }
        };
        let generation = self.generations.get(index as usize).copied().unwrap_or(0);
        let conn = ConnId { index, generation };
        if let Some(slot) = self.connections.get_mut(index as usize) {
            *slot = Some(Connection {
                generation,
                hosts: Ends {
                    opener: from,
                    accepter: to,
                },
                directions: Ends {
                    opener: Direction::new(self.algorithm),
                    accepter: Direction::new(self.algorithm),
                },
                syn_at: self.now,
                is_open: Ends::default(),
                is_closed: Ends::default(),
                is_gone: Ends::default(),
            });
        }
        self.syn(conn, port, 0);
        conn
    }

    fn syn(&mut self, conn: ConnId, port: u16, times: u32) {
        let now = self.now;
        if let Some(connection) = self.connection(conn) {
            connection.syn_at = now;
        }
        self.send(Packet {
            conn,
            to: End::Accepter,
            kind: Kind::Syn(port),
        });
        let wait = SYN_AGAIN << times.min(6);
        // The port comes with the count.
        let tag = (times << 16) | u32::from(port);
        self.at(self.now + wait, Event::Syn(conn, tag));
    }

    /// Wakes the caller at this time with [`Happening::Timer`].
    pub fn timer(&mut self, at: Moment, tag: u64) {
        self.at(at.nanos(), Event::Timer(tag));
    }

    fn at(&mut self, at: u64, event: Event) {
        self.events.insert(at.max(self.now), event);
    }

    pub(crate) fn connection(&mut self, conn: ConnId) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(conn.index as usize)?.as_mut()?;
        (connection.generation == conn.generation).then_some(connection)
    }

    pub(crate) fn forget_if_done(&mut self, conn: ConnId) {
        let Some(connection) = self.connection(conn) else {
            return;
        };
        let closed = connection.is_closed;
        let directions = &connection.directions;
        let has_sent = |one: &Direction| one.sender.unacknowledged() + one.sender.unsent() == 0;
        let all_sent = has_sent(&directions.opener) && has_sent(&directions.accepter);
        let both_gone = connection.is_gone.opener && connection.is_gone.accepter;
        if both_gone || (closed.opener && closed.accepter && all_sent) {
            self.forget(conn);
        }
    }

    pub(crate) fn forget(&mut self, conn: ConnId) {
        if let Some(slot) = self.connections.get_mut(conn.index as usize) {
            *slot = None;
            if let Some(generation) = self.generations.get_mut(conn.index as usize) {
                *generation += 1;
            }
            self.spare.push(conn.index);
        }
    }

    /// Puts a packet on its way: through the sender's line, then over the path.
    pub(crate) fn send(&mut self, packet: Packet) {
        let now = Moment::from_nanos(self.now);
        let Some(connection) = self.connection(packet.conn) else {
            return;
        };
        let from = *connection.hosts.of(packet.to.other());
        let to = *connection.hosts.of(packet.to);
        if self.faults.lose(from, to) {
            return;
        }
        if self.ways.is_some() {
            let Packet { conn, to, kind } = packet;
            let at = node(from.0 as usize);
            return self.forward(Forwarded { conn, to, at, kind });
        }
        let Some(to_place) = self.hosts.get(to.0 as usize).map(|host| host.place) else {
            return;
        };
        let Some(host) = self.hosts.get_mut(from.0 as usize) else {
            return;
        };
        let place = host.place;
        let Fate::Arrives(sent) = host.up.offer(now, packet.length(), &mut self.rng) else {
            return;
        };
        let path = self.paths.get(place as usize);
        let path = path.and_then(|paths| paths.get(to_place as usize));
        let path = path.copied().unwrap_or_default();
        let loss = path.loss.per_billion();
        if loss > 0 && self.rng.random_range(0..Loss::BILLION) < loss {
            return;
        }
        let delay = u64::try_from(path.delay.as_nanos()).unwrap_or(u64::MAX);
        self.at(sent.plus(delay).nanos(), Event::AtLine(packet));
    }

    pub(crate) fn send_reset(&mut self, conn: ConnId, end: End) {
        self.send(Packet {
            conn,
            to: end.other(),
            kind: Kind::Reset,
        });
    }

    /// Sends a packet over the next link of a topology.
    fn forward(&mut self, mut packet: Forwarded) {
        let now = Moment::from_nanos(self.now);
        let Forwarded { conn, to, kind, .. } = packet;
        let plain = Packet { conn, to, kind };
        let host = self.connection(conn).map(|one| *one.hosts.of(to));
        let (Some(host), Some(ways)) = (host, &mut self.ways) else {
            return;
        };
        let next = match u32::from(packet.at) == host.0 {
            // From a host to itself.
            true => Some((now, packet.at)),
            false => ways.forward(now, packet.at, host.0, plain.length(), &mut self.rng),
        };
        if let Some((at, node)) = next {
            packet.at = node;
            self.at(at.nanos(), Event::AtNode(packet));
        }
    }

    /// A packet has come to a node of a topology.
    fn at_node(&mut self, packet: Forwarded) {
        let Forwarded { conn, to, at, kind } = packet;
        let host = self.connection(conn).map(|one| *one.hosts.of(to));
        match host.is_some_and(|host| host.0 == u32::from(at)) {
            true => self.arrives(Packet { conn, to, kind }),
            false => self.forward(packet),
        }
    }

    /// Sends what an end may send, and arms the timers of its direction.
    pub(crate) fn pump(&mut self, conn: ConnId, end: End) {
        let now = self.now;
        loop {
            let Some(connection) = self.connection(conn) else {
                return;
            };
            if !*connection.is_open.of(end) {
                return;
            }
            let Some(segment) = connection.directions.of_mut(end).sender.poll(now) else {
                break;
            };
            self.send(Packet {
                conn,
                to: end.other(),
                kind: Kind::Data(segment),
            });
        }
        self.arm(conn, end);
    }

    /// Arms the timers of a direction. One that is moved on goes off at its old time and is armed again then, as most
    /// are moved on by every packet.
    fn arm(&mut self, conn: ConnId, end: End) {
        let Some(direction) = self.direction(conn, end) else {
            return;
        };
        let sender = sooner(direction.sender.deadline(), &mut direction.sender_armed);
        let receiver = sooner(direction.receiver.deadline(), &mut direction.receiver_armed);
        if let Some(at) = sender {
            self.at(at, Event::Sender(conn, end, at));
        }
        if let Some(at) = receiver {
            self.at(at, Event::Receiver(conn, end, at));
        }
    }

    /// The next thing that happens, until this time; none: nothing does, and it is that time now.
    pub fn next(&mut self, until: Moment) -> Option<Happening> {
        loop {
            if let Some(happening) = self.happened.pop_front() {
                return Some(happening);
            }
            let Some((at, event)) = self.events.pop(until.nanos()) else {
                self.now = self.now.max(until.nanos());
                return None;
            };
            self.now = at;
            self.handled += 1;
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::AtNode(packet) => self.at_node(packet),
            Event::AtLine(packet) => {
                let Some(connection) = self.connection(packet.conn) else {
                    return;
                };
                let to = *connection.hosts.of(packet.to);
                let Some(host) = self.hosts.get_mut(to.0 as usize) else {
                    return;
                };
                let at = Moment::from_nanos(now);
                if let Fate::Arrives(at) = host.down.offer(at, packet.length(), &mut self.rng) {
                    match at.nanos() == now {
                        true => self.arrives(packet),
                        false => self.at(at.nanos(), Event::Arrives(packet)),
                    }
                }
            }
            Event::Arrives(packet) => self.arrives(packet),
            Event::Sender(conn, end, at) => {
                if let Some(direction) = self.direction(conn, end) {
                    if direction.sender_armed == Some(at) {
                        direction.sender_armed = None;
                        direction.sender.timeout(now);
                        if direction.sender.timeouts_in_vain() > MOST_TIMEOUTS {
                            return self.give_up(conn, end);
                        }
                    }
                    self.pump(conn, end);
                }
            }
            Event::Receiver(conn, end, at) => {
                if let Some(direction) = self.direction(conn, end) {
                    let mut ack = None;
                    if direction.receiver_armed == Some(at) {
                        direction.receiver_armed = None;
                        ack = direction.receiver.timeout(now);
                    }
                    if let Some(ack) = ack {
                        self.send(Packet {
                            conn,
                            to: end,
                            kind: Kind::Ack(ack),
                        });
                    }
                    self.arm(conn, end);
                }
            }
            Event::Syn(conn, tag) => {
                let Some(connection) = self.connection(conn) else {
                    return;
                };
                if connection.is_open.opener {
                    return;
                }
                let (times, port) = (tag >> 16, u16::try_from(tag & 0xffff).unwrap_or(0));
                if times + 1 < SYNS {
                    self.syn(conn, port, times + 1);
                } else {
                    self.break_both(conn);
                }
            }
            Event::Timer(tag) => self.happened.push_back(Happening::Timer(tag)),
        }
    }

    /// A connection breaks, and both ends hear of it at once.
    pub fn break_both(&mut self, conn: ConnId) {
        let Some(connection) = self.connection(conn) else {
            return;
        };
        let closed = connection.is_closed;
        // One that nobody has accepted yet is known at one end alone.
        let known = connection.is_open.accepter;
        self.forget(conn);
        if !closed.opener {
            self.happened
                .push_back(Happening::Broken(conn, End::Opener));
        }
        if known && !closed.accepter {
            self.happened
                .push_back(Happening::Broken(conn, End::Accepter));
        }
    }

    /// An end has heard nothing for too long.
    fn give_up(&mut self, conn: ConnId, end: End) {
        let Some(connection) = self.connection(conn) else {
            return;
        };
        let was_closed = *connection.is_closed.of(end);
        *connection.is_closed.of_mut(end) = true;
        *connection.is_gone.of_mut(end) = true;
        let other_knows = match end {
            End::Opener => connection.is_open.accepter && !connection.is_gone.accepter,
            End::Accepter => !connection.is_gone.opener,
        };
        match other_knows {
            true => self.forget_if_done(conn),
            false => self.forget(conn),
        }
        if !was_closed {
            self.happened.push_back(Happening::Broken(conn, end));
        }
    }

    pub(crate) fn direction(&mut self, conn: ConnId, end: End) -> Option<&mut Direction> {
        Some(self.connection(conn)?.directions.of_mut(end))
    }

    fn arrives(&mut self, packet: Packet) {
        let now = self.now;
        let Packet { conn, to, kind } = packet;
        let Some(connection) = self.connection(conn) else {
            return;
        };
        if *connection.is_gone.of(to) {
            match kind {
                Kind::Reset => self.forget(conn),
                _ => self.send_reset(conn, to),
            }
            return;
        }
        match kind {
            Kind::Syn(port) => {
                let is_new = !connection.is_open.accepter;
                connection.is_open.accepter = true;
                let host = connection.hosts.accepter;
                self.send(Packet {
                    conn,
                    to: End::Opener,
                    kind: Kind::SynAck,
                });
                if is_new {
                    self.happened
                        .push_back(Happening::Accepted(conn, host, port));
                }
            }
            Kind::SynAck => {
                if !connection.is_open.opener {
                    connection.is_open.opener = true;
                    let took = now - connection.syn_at;
                    connection.directions.opener.sender.handshake_took(took);
                    connection.directions.accepter.sender.handshake_took(took);
                    self.happened.push_back(Happening::Connected(conn));
                    self.pump(conn, End::Opener);
                }
            }
            Kind::Data(segment) => {
                let is_deaf = *connection.is_closed.of(to);
                let direction = connection.directions.of_mut(to.other());
                let ack = direction.receiver.segment(now, segment);
                if is_deaf {
                    // Nobody reads it.
                    let count = direction.readable();
                    direction.bytes.hold(count);
                    direction.bytes.release(usize::MAX);
                    direction.receiver.consume(now, count as u64, 0);
                } else if !direction.told && (direction.readable() > 0 || direction.is_over()) {
                    direction.told = true;
                    self.happened.push_back(Happening::Readable(conn, to));
                }
                match ack {
                    Some(ack) => self.send(Packet {
                        conn,
                        to: to.other(),
                        kind: Kind::Ack(ack),
                    }),
                    None => self.arm(conn, to.other()),
                }
            }
            Kind::Ack(ack) => {
                let direction = connection.directions.of_mut(to);
                direction.sender.acknowledge(now, &ack);
                let is_free = direction.refused && direction.room() > SEND_BUFFER.0 / 4;
                if is_free {
                    direction.refused = false;
                    self.happened.push_back(Happening::Writable(conn, to));
                }
                self.pump(conn, to);
                self.forget_if_done(conn);
            }
            Kind::Reset => {
                let was_closed = *connection.is_closed.of(to);
                self.forget(conn);
                if !was_closed {
                    self.happened.push_back(Happening::Broken(conn, to));
                }
            }
        }
    }
}

/// The deadline, unless an earlier one is armed already.
fn sooner(deadline: Option<u64>, armed: &mut Option<u64>) -> Option<u64> {
    let at = deadline?;
    if armed.is_some_and(|armed| armed <= at) {
        return None;
    }
    *armed = Some(at);
    Some(at)
}
