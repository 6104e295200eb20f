//! The client as a machine: events and time go in, commands come out. It does no I/O.
//!
//! It keeps the circuits that begin here ([`circuits`](Client)) and the streams that applications,
//! directory requests and controllers want on them. Each of its duties is a file beside this one.

mod building;
mod circuit;
mod directory;
mod orders;
mod predict;
mod requests;
mod retries;
mod streams;
#[cfg(test)]
mod tests;
mod track;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use weft_core::address::ConnectionId;
use weft_core::origin::{OriginCommand, OriginEvent, OriginId};

use super::address_map::AddressMap;
use super::chooser::Chooser;
use super::config::ClientConfig;
use super::events::{CircuitInfo, ClientEvent, StreamInfo};
use crate::logging::RateLimit;

use circuit::Circuit;
use predict::Predicted;
use streams::Stream;

pub use directory::DirectoryTarget;
pub use orders::OrderError;

/// Streams at most: each has a port of its application's machine, or of ours.
const MAX_STREAMS: usize = 65_536;
/// The number of our own first stream: controllers know numbers of at most 16 digits (control-spec 2.4).
const FIRST_OWN_STREAM: u64 = 9_999_999_999_999_999;
/// Log lines about requests that break rules are so far apart.
const QUIET: Duration = Duration::from_secs(300);
/// Circuits that fail within a `NewCircuitPeriod` before no more are tried in it
/// (C tor's MAX_CIRCUIT_FAILURES).
const MAX_FAILURES: u32 = 5;

/// The two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// For how long something takes.
    pub mono: Instant,
    /// For what others are told, and what is kept.
    pub wall: SystemTime,
}

impl Now {
    /// Both clocks now.
    pub fn read() -> Self {
        Now {
            mono: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    /// How long ago something was.
    pub(super) fn since(&self, then: Instant) -> Duration {
        self.mono.saturating_duration_since(then)
    }
}

/// What the machine wants.
#[derive(Debug)]
pub enum Output {
    /// A command for the rest of the node.
    Command(OriginCommand),
    /// Something for controllers and the log.
    Told(ClientEvent),
    /// A directory stream is on its way: requests may be sent.
    DirectoryReady {
        /// The stream.
        stream: ConnectionId,
        /// Whom it leads to.
        name: String,
    },
    /// A directory stream came to nothing, or is over.
    DirectoryGone {
        /// The stream.
        stream: ConnectionId,
        /// Why.
        why: String,
    },
    /// A lookup for a controller was answered, or came to nothing (DNSPort's go to its own).
    Looked {
        /// The stream.
        stream: ConnectionId,
        /// The answer.
        resolved: weft_cell::stream_msg::Resolved,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Client<C: Chooser> {
    config: ClientConfig,
    chooser: C,
    rng: StdRng,
    circuits: BTreeMap<OriginId, Circuit<C::Guard>>,
    streams: BTreeMap<ConnectionId, Stream>,
    outputs: VecDeque<Output>,
    /// The last circuit's number.
    last_circuit: u64,
    /// The last of our own streams' numbers: they count downward.
    last_stream: u64,
    predicted: Predicted,
    /// Circuits that failed in this period.
    failures: u32,
    /// Of these, those since the last tick.
    failures_since_tick: u32,
    /// When the period began.
    period: Instant,
    /// When the last circuit was begun.
    last_launch: Instant,
    /// Too many failed in the period before, too.
    failed_last_period: bool,
    addresses: AddressMap,
    tracked: track::Tracked,
    nym_epoch: u64,
    /// Exits that refused what they should have taken, or have no room.
    refusing: BTreeSet<[u8; 20]>,
    /// A circuit carried or could have carried streams since the network came.
    established: bool,
    /// Lines about requests that break rules.
    refusals: RateLimit,
}

impl<C: Chooser> Client<C> {
    /// A client without a circuit.
    pub fn new(config: ClientConfig, chooser: C, seed: [u8; 32], now: Now) -> Self {
        Client {
            predicted: Predicted::new(now.mono),
            config,
            chooser,
            rng: StdRng::from_seed(seed),
            circuits: BTreeMap::new(),
            streams: BTreeMap::new(),
            outputs: VecDeque::new(),
            last_circuit: 0,
            last_stream: FIRST_OWN_STREAM,
            failures: 0,
            failures_since_tick: 0,
            period: now.mono,
            last_launch: now.mono,
            failed_last_period: false,
            addresses: AddressMap::default(),
            tracked: track::Tracked::default(),
            nym_epoch: 0,
            refusing: BTreeSet::new(),
            established: false,
            refusals: RateLimit::new(QUIET),
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Something happened on the connection threads.
    pub fn on_event(&mut self, event: OriginEvent, now: Now) {
        match event {
            OriginEvent::Launched {
                circuit,
                connection: _,
            } => self.on_launched(circuit, now),
            OriginEvent::Answered { circuit, reply } => self.on_answered(circuit, &reply, now),
            OriginEvent::Closed {
                circuit,
                reason,
                remote,
            } => self.on_closed(circuit, reason, remote, now),
            OriginEvent::Link {
                connection,
                rsa,
                addr,
                state,
            } => self.tell(ClientEvent::Link {
                connection,
                rsa,
                addr,
                state,
            }),
            OriginEvent::Request { stream, request } => self.on_request(stream, &request, now),
            OriginEvent::Connected {
                stream,
                circuit,
                addr,
                ttl,
            } => self.on_connected(stream, circuit, addr, ttl, now),
            OriginEvent::Resolved {
                stream,
                circuit,
                resolved,
            } => self.on_resolved(stream, circuit, resolved, now),
            OriginEvent::Ended {
                stream,
                circuit,
                reason,
                addr,
                by,
                waiting,
                bytes: _,
            } => {
                let ended = streams::Ended {
                    circuit,
                    reason,
                    addr,
                    by,
                    waiting,
                };
                self.on_ended(stream, ended, now);
            }
            OriginEvent::Traffic { streams, circuits } => {
                if !streams.is_empty() {
                    self.tell(ClientEvent::StreamBytes(streams));
                }
                if !circuits.is_empty() {
                    self.tell(ClientEvent::CircuitBytes(circuits));
                }
            }
        }
    }

    /// There is a new directory, or more of it.
    pub fn directory_changed(&mut self, now: Now) {
        self.refusing.clear();
        self.serve(now);
    }

    /// The settings have changed.
    pub fn set_config(&mut self, config: ClientConfig, now: Now) {
        let freed = self.config.leave_streams_unattached && !config.leave_streams_unattached;
        self.config = config;
        self.tracked.keep(&self.config.track_hosts);
        if freed {
            self.release_held(now);
        }
        if self.config.disable_network {
            self.close_all(now);
        }
        self.serve(now);
    }

    /// The settings.
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Path selection.
    pub fn chooser(&mut self) -> &mut C {
        &mut self.chooser
    }

    /// Path selection, to look at.
    pub fn chooser_ref(&self) -> &C {
        &self.chooser
    }

    /// Names that stand for others.
    pub fn addresses(&self) -> &AddressMap {
        &self.addresses
    }

    /// All circuits, oldest first.
    pub fn circuits(&self) -> impl Iterator<Item = CircuitInfo> + '_ {
        self.circuits.values().map(Circuit::info)
    }

    /// All streams.
    pub fn streams(&self) -> impl Iterator<Item = StreamInfo> + '_ {
        self.streams.values().map(Stream::info)
    }

    /// A circuit carried or could have carried streams since the network came.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// Whether a first hop of one of our circuits is at this address: it is told to nobody else.
    pub fn is_first_hop(&self, addr: IpAddr) -> bool {
        self.circuits
            .values()
            .filter_map(|circuit| circuit.hops.first())
            .any(|hop| hop.addrs.iter().any(|at| at.ip() == addr))
    }

    // ---- for the files beside ----

    fn command(&mut self, command: OriginCommand) {
        self.outputs.push_back(Output::Command(command));
    }

    fn tell(&mut self, event: ClientEvent) {
        self.outputs.push_back(Output::Told(event));
    }
}
