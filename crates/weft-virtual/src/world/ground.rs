//! State that all nodes share: the network of hosts, the clock, and the owner of each socket.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};

use weft_client::Now;
use weft_model::hosts::{ConnId, End, HostId, Net};
use weft_model::links::Moment;

/// The owner of an end of a TCP connection: events of that end go to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A link, by its place on a thread of a node.
    Link { node: u32, thread: u16, place: u32 },
    /// An exit's stream.
    Edge { node: u32, thread: u16, place: u32 },
    /// A destination's end of a stream.
    Server { place: u32 },
    /// An end of a stream that fills links between these hosts.
    Background { from: u32, to: u32 },
}

/// Events of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    Connected,
    Readable,
    Writable,
    Broken,
}

/// Who takes connections at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listener {
    /// The relay with this number.
    OrPort(u32),
    /// A destination.
    Server,
    /// The reader of streams that fill links.
    Background,
}

/// Purposes of timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    /// A turn of a connection thread.
    Turn { node: u32, thread: u16 },
    /// The timers of a connection thread run.
    Tick { node: u32, thread: u16 },
    /// A client's user does something.
    User { node: u32 },
    /// A client's work of each second.
    Second { node: u32 },
    /// A worker has answered an onionskin.
    Onionskin { node: u32 },
    /// A destination has bytes that were not due before.
    Server { place: u32 },
    /// Series get their next numbers.
    Sample,
    /// Messages between a node's threads that were held back arrive.
    Lag { node: u32 },
    /// A host stalls, or goes on.
    Fault { host: u32, begins: bool },
    /// A name server has answered an exit.
    Name { node: u32 },
}

impl Wake {
    fn tag(self) -> u64 {
        let (kind, a, b) = match self {
            Wake::Turn { node, thread } => (0, node, thread),
            Wake::User { node } => (1, node, 0),
            Wake::Second { node } => (2, node, 0),
            Wake::Onionskin { node } => (3, node, 0),
            Wake::Server { place } => (4, place, 0),
            Wake::Sample => (5, 0, 0),
            Wake::Tick { node, thread } => (6, node, thread),
            Wake::Lag { node } => (7, node, 0),
            Wake::Fault { host, begins } => (8, host, u16::from(begins)),
            Wake::Name { node } => (9, node, 0),
        };
        (kind << 48) | (u64::from(b) << 32) | u64::from(a)
    }

    pub(super) fn from_tag(tag: u64) -> Wake {
        let [.., t1, t0, a3, a2, a1, a0] = tag.to_be_bytes();
        let node = u32::from_be_bytes([a3, a2, a1, a0]);
        let thread = u16::from_be_bytes([t1, t0]);
        match tag >> 48 {
            0 => Wake::Turn { node, thread },
            1 => Wake::User { node },
            2 => Wake::Second { node },
            3 => Wake::Onionskin { node },
            4 => Wake::Server { place: node },
            6 => Wake::Tick { node, thread },
            7 => Wake::Lag { node },
            8 => Wake::Fault {
                host: node,
                begins: thread != 0,
            },
            9 => Wake::Name { node },
            _ => Wake::Sample,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) net: Net,
    /// The `Instant` at which the run begins.
    base: Instant,
    epoch: SystemTime,
    hosts: BTreeMap<IpAddr, HostId>,
    addrs: Vec<IpAddr>,
    listeners: BTreeMap<(HostId, u16), Listener>,
    /// By connection, for the opener's end and the accepter's.
    owners: Vec<[Option<(ConnId, Owner)>; 2]>,
    /// Threads that have a turn now.
    pub(super) ready: VecDeque<(u32, u16)>,
    /// Offsets of nodes' clocks, by node number.
    clocks: Vec<Clock>,
    /// That of the node whose code runs.
    clock: Clock,
}

/// Offset of a node's clocks from the network's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock {
    /// The one that only goes forward.
    pub(super) mono: Duration,
    /// The time of day, in seconds, which may go back.
    pub(super) wall: i64,
}

fn side(end: End) -> usize {
    match end {
        End::Opener => 0,
        End::Accepter => 1,
    }
}

impl Ground {
    pub(super) fn new(net: Net, addrs: Vec<IpAddr>, base: Instant, epoch: SystemTime) -> Ground {
        let numbered = (0..).zip(&addrs);
        Ground {
            net,
            base,
            epoch,
            hosts: numbered.map(|(n, addr)| (*addr, HostId(n))).collect(),
            addrs,
            listeners: BTreeMap::new(),
            owners: Vec::new(),
            ready: VecDeque::new(),
            clocks: Vec::new(),
            clock: Clock::default(),
        }
    }

    /// The code of this node runs from now on, by its clock.
    pub(super) fn enter(&mut self, node: u32) {
        if !self.clocks.is_empty() {
            self.clock = self.clock_of(node);
        }
    }

    pub(super) fn clock_of(&self, node: u32) -> Clock {
        self.clocks.get(node as usize).copied().unwrap_or_default()
    }

    /// Sets the clocks of a node.
    pub(super) fn set_clock(&mut self, node: u32, clock: Clock) {
        let place = node as usize;
        if self.clocks.len() <= place {
            self.clocks.resize(place + 1, Clock::default());
        }
        if let Some(one) = self.clocks.get_mut(place) {
            *one = clock;
        }
    }

    /// Since the beginning of the run.
    pub(super) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.nanos())
    }

    /// Nanoseconds since the beginning of the run.
    pub(super) fn nanos(&self) -> u64 {
        self.net.now().nanos()
    }

    /// Current time by the clock of the node whose code runs.
    pub(super) fn now(&self) -> Instant {
        self.base + self.elapsed() + self.clock.mono
    }

    /// Current time and time of day by the clocks of the node whose code runs.
    pub(super) fn both(&self) -> Now {
        Now {
            mono: self.now(),
            wall: self.wall(),
        }
    }

    fn wall(&self) -> SystemTime {
        let ahead = Duration::from_secs(self.clock.wall.unsigned_abs());
        let wall = self.epoch + self.elapsed() + self.clock.mono;
        match self.clock.wall < 0 {
            true => wall - ahead,
            false => wall + ahead,
        }
    }

    /// A node's time, in nanoseconds since the beginning.
    pub(super) fn nanos_of(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.base + self.clock.mono);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Has connections to this port accepted.
    pub(super) fn listen(&mut self, host: HostId, port: u16, listener: Listener) {
        self.listeners.insert((host, port), listener);
    }

    pub(super) fn listener(&self, host: HostId, port: u16) -> Option<Listener> {
        self.listeners.get(&(host, port)).copied()
    }

    /// The relay whose ORPort this is.
    pub(super) fn relay_at(&self, addr: SocketAddr) -> Option<u32> {
        let host = self.hosts.get(&addr.ip()).copied()?;
        match self.listener(host, addr.port())? {
            Listener::OrPort(number) => Some(number),
            Listener::Server | Listener::Background => None,
        }
    }

    pub(super) fn addr_of(&self, host: HostId) -> Option<IpAddr> {
        self.addrs.get(host.0 as usize).copied()
    }

    /// Begins to connect. `None`: no host has that address.
    pub(super) fn connect(&mut self, from: HostId, to: SocketAddr, owner: Owner) -> Option<ConnId> {
        let host = self.hosts.get(&to.ip()).copied()?;
        let conn = self.net.connect(from, host, to.port());
        self.own(conn, End::Opener, owner);
        Some(conn)
    }

    /// Nobody accepts connections to this port any more: they are reset.
    pub(super) fn unlisten(&mut self, host: HostId, port: u16) {
        self.listeners.remove(&(host, port));
    }

    /// Who owns an end from now on.
    pub(super) fn own(&mut self, conn: ConnId, end: End, owner: Owner) {
        let index = conn.index();
        if self.owners.len() <= index {
            self.owners.resize(index + 1, [None; 2]);
        }
        if let Some(place) = self.owners.get_mut(index)
            && let Some(place) = place.get_mut(side(end))
        {
            *place = Some((conn, owner));
        }
    }

    pub(super) fn owner(&self, conn: ConnId, end: End) -> Option<Owner> {
        let owners = self.owners.get(conn.index())?;
        let (known, owner) = (*owners.get(side(end))?)?;
        (known == conn).then_some(owner)
    }

    /// Has this come back at that time, in nanoseconds since the beginning.
    pub(super) fn wake(&mut self, at: u64, wake: Wake) {
        self.net.timer(Moment::from_nanos(at), wake.tag());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_say_what_they_are_for() {
        for wake in [
            Wake::Turn {
                node: u32::MAX,
                thread: 63,
            },
            Wake::Tick { node: 3, thread: 1 },
            Wake::User { node: 7 },
            Wake::Second { node: 1_999 },
            Wake::Onionskin { node: 0 },
            Wake::Server { place: 12 },
            Wake::Sample,
            Wake::Lag { node: 5 },
        ] {
            assert_eq!(Wake::from_tag(wake.tag()), wake);
        }
    }
}
