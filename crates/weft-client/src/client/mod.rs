//! [`Client`]: the circuits that begin here, and the streams that applications, directory requests and
//! controllers want on them. Each of its duties is a file beside this one.

use weft_cell::identity::RsaIdentity;

mod building;
mod conflux;
mod control;
mod directory;
mod liveness;
mod mtor;
mod predict;
mod probing;
mod requests;
mod retries;
mod selecting;
mod sets;
mod streams;
#[cfg(test)]
mod tests;
mod track;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use weft_core::address::ConnectionId;
use weft_core::origin::{LinkState, OriginCommand, OriginEvent, OriginId};
use weft_log::{Line, RateLimit};
use weft_path::TargetPort;

use crate::addresses::AddressMap;
use crate::chooser::Chooser;
use crate::circuits::{Circuit, FirstHops, Launches, Set, TunnelCounts, Weights};
use crate::config::ClientConfig;
use crate::events::{CircuitInfo, ClientEvent, StreamInfo};
use crate::network::{Dormancy, Outage, Remembered};
use crate::now::Now;
use crate::output::Output;
use crate::streams::{Predicted, Stream, StreamEnded, StreamKind, Tracked};

pub use probing::ProbeCounts;

/// Streams at most: each has a port of its application's machine, or of ours.
const MAX_STREAMS: usize = 65_536;
/// The number of our own first stream: controllers know numbers of at most 16 digits (control-spec 2.4).
const FIRST_OWN_STREAM: u64 = 9_999_999_999_999_999;
/// The interval of log lines about requests that break rules.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(300);
/// The interval of log lines about streams that get no tunnel.
const NO_TUNNEL_INTERVAL: Duration = Duration::from_secs(3600);
/// Predicted use of the first tunnel.
const FIRST_TUNNEL: TargetPort = TargetPort {
    ipv6: false,
    port: 443,
};

/// The state of a client. It does no I/O, and reads neither clock nor ambient randomness.
///
/// - Events: [`on_event`](Self::on_event) for what happens on the connection threads,
///   [`tick`](Self::tick) about once a second, [`directory_changed`](Self::directory_changed) and
///   [`set_config`](Self::set_config).
/// - Requests: [`open_directory`](Self::open_directory) for the directory client, and what a controller may
///   ask for ([`new_circuit`](Self::new_circuit) and the other methods of that file).
/// - After each of these, call [`poll`](Self::poll) until it returns `None`, and carry out every
///   [`Output`] in order.
#[derive(Debug)]
pub struct Client<C: Chooser> {
    config: ClientConfig,
    chooser: C,
    rng: StdRng,
    circuits: BTreeMap<OriginId, Circuit<C::Guard>>,
    /// Conflux sets and tunnels of mTor. One that carries streams is among the circuits, too, under the same name.
    sets: BTreeMap<OriginId, Set>,
    /// No conflux set is begun before: there was no path for one, or one failed.
    no_sets_until: Option<Instant>,
    /// Until then no tunnel of mTor is launched: no exit, or no path, was found.
    no_tunnels_until: Option<Instant>,
    /// When a stream was last for a tunnel, or the first of them was expected, and to which port.
    tunnel_wanted: Option<(Instant, TargetPort)>,
    /// Limits log lines about streams that get no tunnel.
    no_tunnel_lines: RateLimit,
    tunnel_counts: TunnelCounts,
    streams: BTreeMap<ConnectionId, Stream>,
    outputs: VecDeque<Output>,
    /// The number of the last circuit.
    last_circuit: u64,
    /// The number of the last of our own streams: they count downward.
    last_stream: u64,
    /// The time of the last tick.
    ticked: Now,
    predicted: Predicted,
    launches: Launches,
    first_hops: FirstHops,
    addresses: AddressMap,
    dormancy: Dormancy,
    tracked: Tracked,
    nym_epoch: u64,
    /// RSA identities of exits that refused a stream that their policy allows, or are full.
    refusing: BTreeSet<RsaIdentity>,
    /// A circuit has carried or could have carried streams since the network came up.
    established: bool,
    outage: Outage,
    /// Limits log lines about requests that break rules.
    refusals: RateLimit,
    probes: ProbeCounts,
    weights: Weights,
    /// Limits log lines about statements of relays that are ignored.
    ignored: RateLimit,
}

impl<C: Chooser> Client<C> {
    /// A client without a circuit.
    pub fn new(config: ClientConfig, chooser: C, seed: [u8; 32], now: Now) -> Self {
        let tunnel_wanted = (config.offers_tunnels()).then_some((now.mono, FIRST_TUNNEL));
        let mut client = Client {
            ticked: now,
            predicted: Predicted::new(now.mono),
            launches: Launches::new(now.mono),
            first_hops: FirstHops::default(),
            chooser,
            rng: StdRng::from_seed(seed),
            circuits: BTreeMap::new(),
            sets: BTreeMap::new(),
            no_sets_until: None,
            no_tunnels_until: None,
            tunnel_wanted,
            no_tunnel_lines: RateLimit::new(NO_TUNNEL_INTERVAL),
            tunnel_counts: TunnelCounts::default(),
            streams: BTreeMap::new(),
            outputs: VecDeque::new(),
            last_circuit: 0,
            last_stream: FIRST_OWN_STREAM,
            addresses: AddressMap::default(),
            dormancy: Dormancy::new(&config.dormancy, Remembered::NOTHING, now.mono),
            tracked: Tracked::default(),
            nym_epoch: 0,
            refusing: BTreeSet::new(),
            established: false,
            outage: Outage::default(),
            refusals: RateLimit::new(REFUSAL_INTERVAL),
            probes: ProbeCounts::default(),
            weights: Weights::default(),
            ignored: RateLimit::new(REFUSAL_INTERVAL),
            config,
        };
        client.configure_maps();
        client
    }

    /// Replaces the maps of torrc.
    fn configure_maps(&mut self) {
        if !self.addresses.configure(&self.config.maps) {
            self.log(Line::warn(
                "There are too many MapAddress lines: some are ignored.",
            ));
        }
    }

    /// Goes on where the run before this one ended.
    pub fn remember(&mut self, remembered: Remembered, now: Now) {
        self.dormancy = Dormancy::new(&self.config.dormancy, remembered, now.mono);
    }

    /// Idle times and dormancy, for the state file.
    pub fn remembered(&self, now: Now) -> Remembered {
        self.dormancy.remembered(now)
    }

    /// It takes no part in the network: no circuit is built before it is needed, and nothing should be fetched.
    pub fn is_dormant(&self) -> bool {
        self.dormancy.is_dormant()
    }

    /// Somebody uses it.
    pub fn wake(&mut self, now: Now) {
        if self.dormancy.used(now.mono) {
            self.log(Line::notice("Tor is no longer dormant."));
        }
    }

    /// A controller wants it to sleep.
    pub fn go_dormant(&mut self) {
        self.log(Line::notice("Going dormant because of controller request."));
        self.dormancy.sleep();
    }

    /// Checks whether it is in use.
    fn check_use(&mut self, now: Now) {
        let is_users = |stream: &Stream| !matches!(stream.kind, StreamKind::Directory(_));
        let has_streams = self.streams.values().any(is_users);
        if self
            .dormancy
            .check(&self.config.dormancy, has_streams, now.mono)
        {
            self.log(match self.dormancy.is_dormant() {
                true => Line::notice("No user activity in a long time: becoming dormant."),
                false => Line::notice("Tor is no longer dormant."),
            });
        }
    }

    /// The next output, in order.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Handles an event of the connection threads.
    pub fn on_event(&mut self, event: OriginEvent, now: Now) {
        self.note_liveness(&event, now);
        match event {
            OriginEvent::Launched {
                circuit,
                connection,
            } => self.on_launched(circuit, connection, now),
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
            } => {
                self.note_failed_link(rsa, addr, state, now);
                if state == LinkState::Connected {
                    self.name_unknown(rsa, addr);
                }
                self.emit(ClientEvent::Link {
                    connection,
                    rsa,
                    addr,
                    state,
                });
            }
            // Of use for the phases of bootstrapping alone.
            OriginEvent::LinkStep { .. } => {}
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
                let ended = StreamEnded {
                    circuit,
                    reason,
                    addr,
                    by,
                    waiting,
                };
                self.on_ended(stream, ended, now);
            }
            OriginEvent::Linked {
                circuit,
                tunnel,
                took,
            } => self.on_linked(circuit, tunnel, took, now),
            OriginEvent::LegSlow { circuit, tunnel } => self.on_leg_slow(circuit, tunnel, now),
            OriginEvent::Probed {
                circuit,
                took,
                refused,
            } => self.on_probed(circuit, took, refused, now),
            OriginEvent::Weight {
                circuit,
                hop,
                statement,
            } => self.on_weight(circuit, hop, &statement, now),
            OriginEvent::Traffic {
                mut streams,
                mut circuits,
            } => {
                circuits.retain(|report| !self.sets.contains_key(&report.circuit));
                // Nothing follows CLOSED; and whose use it was is not known any more.
                streams.retain(|(id, ..)| self.streams.contains_key(id));
                if streams
                    .iter()
                    .any(|(id, ..)| self.directory_of(*id).is_none())
                {
                    self.wake(now);
                }
                if !streams.is_empty() {
                    self.emit(ClientEvent::StreamBytes(streams));
                }
                if !circuits.is_empty() {
                    self.emit(ClientEvent::CircuitBytes(circuits));
                }
            }
        }
    }

    /// Handles a new directory, or more microdescriptors of it.
    pub fn directory_changed(&mut self, now: Now) {
        self.refusing.clear();
        self.serve(now);
    }

    /// Replaces the settings.
    pub fn set_config(&mut self, config: ClientConfig, now: Now) {
        let freed = self.config.leave_streams_unattached && !config.leave_streams_unattached;
        let other_tunnels = self.config.multipath != config.multipath;
        if config.offers_tunnels() != self.config.offers_tunnels() {
            let first = (now.mono, FIRST_TUNNEL);
            self.tunnel_wanted = config.offers_tunnels().then_some(first);
        }
        self.config = config;
        self.tracked.keep(&self.config.track_hosts);
        self.addresses.keep_automapped(&self.config.automap);
        self.configure_maps();
        if freed {
            self.release_held(now);
        }
        if self.config.disable_network {
            self.close_all(now);
        }
        self.drop_unwanted_sets();
        if other_tunnels {
            self.abandon_sets(|set| !set.is_conflux());
            self.no_tunnels_until = None;
        }
        self.ask_all_weights();
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

    /// Path selection, read only.
    pub fn chooser_ref(&self) -> &C {
        &self.chooser
    }

    /// The address map (`MapAddress`).
    pub fn addresses(&self) -> &AddressMap {
        &self.addresses
    }

    /// All circuits, oldest first.
    pub fn circuits(&self) -> impl Iterator<Item = CircuitInfo> + '_ {
        let shown = self.circuits.values().filter(|circuit| !circuit.is_set());
        shown.map(|circuit| self.circuit_info(circuit))
    }

    /// The circuits for a list, with their current weights, where relays were asked for them.
    pub fn weighed_circuits(&self, now: Now) -> impl Iterator<Item = CircuitInfo> + '_ {
        let shown = self.circuits.values().filter(|circuit| !circuit.is_set());
        shown.map(move |circuit| CircuitInfo {
            weight: self.weight_of(circuit, now),
            stated: self.weights.stated(&circuit.weighed, now),
            ..self.circuit_info(circuit)
        })
    }

    /// Identifiers of the tunnels of its conflux sets, which no list of circuits shows. Tunnels of
    /// sets without linked legs may not exist yet.
    pub fn tunnels(&self) -> impl Iterator<Item = OriginId> + '_ {
        self.sets.keys().copied()
    }

    /// All streams.
    pub fn streams(&self) -> impl Iterator<Item = StreamInfo> + '_ {
        (self.streams.values()).map(|stream| self.stream_info(stream))
    }

    /// Returns true once a circuit could carry streams since the network came up.
    pub fn is_established(&self) -> bool {
        self.established
    }

    // ---- for the files beside ----

    /// A circuit for a list. The streams of a leg are those of its conflux set.
    fn circuit_info(&self, circuit: &Circuit<C::Guard>) -> CircuitInfo {
        let info = circuit.info();
        match circuit.leg.and_then(|leg| self.circuits.get(&leg.set)) {
            Some(set) => CircuitInfo {
                uses: set.uses,
                used_by: set.info().used_by,
                ..info
            },
            None => info,
        }
    }

    /// A stream for a list or an event. Of a conflux set's streams the circuit is its first leg.
    fn stream_info(&self, stream: &Stream) -> StreamInfo {
        let mut info = stream.info();
        if let (Some(circuit), Some(leg)) = (info.circuit, stream.leg) {
            let set = self.sets.get(&circuit);
            info.circuit = set.and_then(|set| set.legs.first().copied()).or(Some(leg));
        }
        info
    }

    fn command(&mut self, command: OriginCommand) {
        self.outputs.push_back(Output::Command(command));
    }

    fn emit(&mut self, event: ClientEvent) {
        self.outputs.push_back(Output::Event(event));
    }

    fn log(&mut self, line: Line) {
        self.outputs.push_back(Output::Log(line));
    }
}
