//! A client and its user: what the client thread of a node and an application beside it do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use weft_cell::identity::RsaIdentity;
use weft_client::{
    CircuitInfo, CircuitPurpose, CircuitStatus, Client, ClientConfig, ClientEvent, ListenerConfig,
    Now, Output, PathParams, Paths, StreamNews,
};
use weft_core::address::ConnectionId;
use weft_core::origin::traffic::CircuitReport;
use weft_core::origin::{
    AppCredentials, AppOpening, AppProtocol, AppRequest, OriginCommand, OriginEvent, OriginId,
};
use weft_datadir::state::Lines;
use weft_model::traffic::records::Outcome;
use weft_model::traffic::{Action, ClientStream, Model, Record, StreamEvent, User};
use weft_path::{CircuitSelection, RelayName, Relays};
use weft_sim::compromise::abra::pools::Choice;

use super::app::{App, Finished};
use super::choosing::Choosing;
use super::files::Files;
use super::measuring::Measuring;
use super::odd::{Asked, Odd, REFUSED_PORT};
use super::pools::Recorder;
use crate::results::{CircuitResults, MeasuredCircuit, TunnelResults};
use crate::setup::NodeOptions;

/// Circuits that a client builds each second while it learns.
const LEARNT_AT_ONCE: usize = 3;
/// Time after which these are closed.
const LEARNT_IN: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(super) struct ClientSide {
    pub(super) client: Client<Choosing>,
    name: String,
    model_name: String,
    model: Model,
    user: User,
    /// The user opens no more streams.
    pub(super) is_done: bool,
    /// The user's randomness.
    rng: ChaCha8Rng,
    servers: Vec<SocketAddr>,
    /// Streams so far.
    opened: usize,
    /// When the user's timer goes off, in nanoseconds.
    pub(super) user_timer: Option<u64>,
    pub(super) records: Vec<Record>,
    circuits: BTreeMap<OriginId, Known>,
    /// Circuits that are over.
    done: Vec<CircuitResults>,
    /// Hostnames of relays, for results.
    names: Arc<BTreeMap<RsaIdentity, String>>,
    /// Relays' places in the setup.
    places: Arc<BTreeMap<RsaIdentity, u32>>,
    /// Bytes of relay cells that its circuits carried through each relay, since they were taken last.
    carried: BTreeMap<u32, u64>,
    /// Streams that were attached and are not connected.
    attached: BTreeMap<ConnectionId, (OriginId, Duration)>,
    /// Circuits are built to learn from until then. Zero: it is over.
    learning: Duration,
    /// Circuits to learn from, each with the time at which it is closed.
    learnt_from: VecDeque<(Duration, OriginId)>,
    /// It measures circuits.
    measuring: Option<Measuring>,
    /// Its choices are recorded.
    pub(super) recorder: Option<Recorder>,
    one_hop: bool,
    /// The relays of the circuits that streams were put on; `None`: they are those of a tunnel's legs.
    through: BTreeMap<ConnectionId, Option<BTreeSet<u32>>>,
    /// Streams whose circuits a hostile node had keys of: nothing is promised of them.
    excused: BTreeSet<u32>,
    /// Behaviour beyond plain streams.
    odd: Odd,
    asked: Asked,
    /// Streams that a controller has to attach.
    held: VecDeque<ConnectionId>,
    /// Its state file and its torrc.
    pub(super) files: Option<Box<Files>>,
    /// Lines of the state file as it would have written them when it began.
    pub(super) begun: Vec<Lines>,
    /// The first thing that its client did wrong.
    pub(super) defect: Option<String>,
}

/// A circuit that is not over.
#[derive(Debug)]
struct Known {
    results: CircuitResults,
    /// The places of its relays.
    relays: Vec<u32>,
}

/// The network as all clients know it.
#[derive(Debug)]
pub(super) struct ClientNetwork {
    pub(super) relays: Arc<Relays>,
    /// Hostnames of relays.
    pub(super) names: Arc<BTreeMap<RsaIdentity, String>>,
    /// Relays' places in the setup.
    pub(super) places: Arc<BTreeMap<RsaIdentity, u32>>,
    pub(super) params: PathParams,
}

/// Arguments of [`ClientSide::new`].
pub(super) struct Parts<'a> {
    pub(super) setup: &'a crate::setup::Client,
    pub(super) name: &'a str,
    pub(super) servers: Vec<SocketAddr>,
    pub(super) network: &'a ClientNetwork,
    /// Its only guard.
    pub(super) entry: Option<RsaIdentity>,
    pub(super) options: &'a NodeOptions,
    /// Choices of circuits that it records at most.
    pub(super) pools: u32,
    /// Lines of its state file.
    pub(super) state: &'a [(String, String)],
}

pub(super) struct ClientResults {
    pub(super) streams: Vec<Record>,
    pub(super) circuits: Vec<CircuitResults>,
    pub(super) measured: Vec<MeasuredCircuit>,
    pub(super) choices: Vec<Choice>,
    pub(super) tunnels: TunnelResults,
}

impl ClientSide {
    pub(super) fn new(parts: &Parts<'_>, rng: &mut StdRng, now: Now) -> ClientSide {
        let options = parts.options;
        let mut own = StdRng::from_seed(rng.random());
        let mut path_options = options.paths.clone();
        if let Some(entry) = parts.entry {
            path_options.entry_nodes = RelayName::Rsa(entry).to_string().parse().ok();
        }
        let paths = Paths::new(path_options, options.times, parts.state, now, &mut own);
        let begun = match parts.state {
            [] => Vec::new(),
            _ => paths.all_state_lines(),
        };
        let measures = parts.setup.measures;
        let mut config = ClientConfig {
            listeners: vec![ListenerConfig {
                multipath: options.multipath && parts.setup.multipath == Some(true),
                ..ListenerConfig::default()
            }],
            ..options.client.clone()
        };
        if parts.setup.multipath == Some(false) {
            config.conflux = Some(false);
        }
        if measures {
            config.disable_predicted = true;
            config.selection = CircuitSelection::Default;
        }
        let paths = Choosing::new(paths, measures, parts.setup.one_hop);
        let mut client = Client::new(config, paths, own.random(), now);
        let network = parts.network;
        let relays = Arc::clone(&network.relays);
        (client.chooser()).set_relays(relays, &network.params, now, &mut own);
        client.directory_changed(now);
        client.tick(now);
        let setup = parts.setup;
        ClientSide {
            client,
            name: parts.name.to_owned(),
            model_name: setup.model_name.clone(),
            model: setup.model.clone(),
            user: User::starting_at(setup.model.clone(), setup.start),
            is_done: false,
            rng: ChaCha8Rng::from_seed(rng.random()),
            servers: parts.servers.clone(),
            opened: 0,
            user_timer: None,
            records: Vec::new(),
            circuits: BTreeMap::new(),
            done: Vec::new(),
            names: Arc::clone(&network.names),
            places: Arc::clone(&network.places),
            carried: BTreeMap::new(),
            attached: BTreeMap::new(),
            learning: match measures {
                true => Duration::ZERO,
                false => options.learning,
            },
            learnt_from: VecDeque::new(),
            measuring: measures.then(Measuring::default),
            recorder: (parts.pools > 0 && !measures)
                .then(|| Recorder::new(parts.name, parts.pools, options.learning, &network.places)),
            one_hop: parts.setup.one_hop,
            through: BTreeMap::new(),
            excused: BTreeSet::new(),
            odd: Odd::default(),
            asked: Asked::default(),
            held: VecDeque::new(),
            files: None,
            begun,
            defect: None,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The addresses of its destinations.
    pub(super) fn servers(&self) -> &[SocketAddr] {
        &self.servers
    }

    /// Its process was killed, and this one begins: what is its user's goes on.
    pub(super) fn replace_process(&mut self, new: ClientSide, now: Now) {
        self.client = new.client;
        self.begun = new.begun;
        let over = std::mem::take(&mut self.circuits).into_values();
        self.done.extend(over.map(|known| known.results));
        self.attached.clear();
        self.learnt_from.clear();
        self.asked = Asked::default();
        self.held.clear();
        self.set_odd(self.odd, now);
    }

    /// Sets the behaviour beyond plain streams, from the beginning on.
    pub(super) fn set_odd(&mut self, odd: Odd, now: Now) {
        self.odd = odd;
        let mut config = self.client.config().clone();
        config.leave_streams_unattached = odd.held;
        config.maps = odd.maps(&self.servers);
        config.reject_plaintext_ports = vec![REFUSED_PORT];
        self.client.set_config(config, now);
    }

    /// Writes its files, if that is due. Returns whether its process was killed meanwhile.
    pub(super) fn write_files(&mut self, now: Now, elapsed: Duration) -> bool {
        let Some(files) = self.files.as_mut().filter(|_| !self.is_done) else {
            return false;
        };
        let written = files.write(self.client.chooser(), now, elapsed);
        self.follow_options(now);
        written.unwrap_or_else(|wrong| {
            self.defect.get_or_insert(wrong);
            false
        })
    }

    /// Takes what its torrc's options, or those of its controller, have for it.
    pub(super) fn follow_options(&mut self, now: Now) {
        let max_dirtiness = self.files.as_ref().map(|files| files.max_dirtiness());
        let mut config = self.client.config().clone();
        if let Some(max_dirtiness) = max_dirtiness
            && config.max_dirtiness != max_dirtiness
        {
            config.max_dirtiness = max_dirtiness;
            self.client.set_config(config, now);
        }
    }

    /// The work of each second.
    pub(super) fn tick(&mut self, now: Now, elapsed: Duration) {
        self.client.tick(now);
        self.learn(now, elapsed);
        if elapsed >= self.odd.unmapped_at && !self.client.config().maps.is_empty() {
            let mut config = self.client.config().clone();
            config.maps.clear();
            self.client.set_config(config, now);
        }
        // Nobody reads the log.
        drop(self.client.chooser().take_lines());
    }

    /// True if its users read nothing at that time.
    pub(super) fn rests_at(&self, elapsed: Duration) -> bool {
        self.odd.rests_at(elapsed)
    }

    /// Builds circuits to learn from, and closes those that no stream has used. When that is over, streams from now on use
    /// circuits that were built with what was learnt; otherwise those from the beginning, slow ones among them, would be in use
    /// for ten minutes.
    fn learn(&mut self, now: Now, elapsed: Duration) {
        if elapsed < self.learning {
            for _ in 0..LEARNT_AT_ONCE {
                // There may be no path now; then there is none to learn from.
                if let Ok(circuit) = self.client.new_circuit(&[], CircuitPurpose::General, now) {
                    self.learnt_from.push_back((elapsed + LEARNT_IN, circuit));
                }
            }
        } else if !self.learning.is_zero() {
            self.learning = Duration::ZERO;
            self.new_identity(now);
        }
        while let Some((at, circuit)) = self.learnt_from.front().copied()
            && at <= elapsed
        {
            self.learnt_from.pop_front();
            // It may be over.
            let _ = self.client.close(circuit, true, now);
        }
    }

    /// Streams from now on get new circuits.
    fn new_identity(&mut self, now: Now) {
        if let Some(recorder) = &mut self.recorder {
            recorder.leave(&self.client);
        }
        self.client.new_identity(now);
    }

    /// An event of the client's circuits and streams.
    pub(super) fn on_event(&mut self, event: OriginEvent, now: Now, elapsed: Duration) {
        if let OriginEvent::Connected {
            stream, circuit, ..
        } = &event
            && let Some((asked, since)) = self.attached.remove(stream)
            && asked == *circuit
            && let Some(known) = self.circuits.get_mut(circuit)
        {
            known
                .results
                .round_trips
                .push(elapsed.saturating_sub(since));
        }
        match &event {
            OriginEvent::Ended {
                stream, waiting, ..
            } => {
                self.attached.remove(stream);
                if !waiting {
                    self.asked.forget_stream(*stream);
                }
            }
            OriginEvent::Request { stream, request } => {
                let mapped = !self.client.config().maps.is_empty();
                self.asked.note(*stream, request, mapped);
            }
            _ => {}
        }
        if let (Some(measuring), OriginEvent::Request { stream, request }) =
            (&mut self.measuring, &event)
        {
            measuring.asked(*stream, request);
        }
        if let Some(recorder) = &mut self.recorder
            && let OriginEvent::Weight {
                circuit,
                hop,
                statement,
            } = &event
        {
            recorder.stated(&self.client, (*circuit, *hop), statement, now);
        }
        self.client.on_event(event, now);
    }

    /// Commands of the client since the last call.
    pub(super) fn take_commands(&mut self, now: Now, elapsed: Duration) -> Vec<OriginCommand> {
        let mut commands = Vec::new();
        loop {
            let Some(output) = self.client.poll() else {
                match self.held.pop_front() {
                    Some(stream) => self.attach_held(stream, now),
                    None => break,
                }
                continue;
            };
            match output {
                Output::Command(command) => {
                    let wrong = self.asked.check(&command, self.odd.held);
                    self.defect = self.defect.take().or(wrong);
                    if let OriginCommand::Attach {
                        stream, circuit, ..
                    } = &command
                    {
                        let before = self.attached.insert(*stream, (*circuit, elapsed));
                        self.note_attached(*stream, *circuit, before, (now, elapsed));
                    }
                    commands.push(command);
                }
                Output::Event(ClientEvent::Circuit { circuit, .. }) => {
                    self.on_circuit(&circuit, elapsed);
                }
                Output::Event(ClientEvent::Stream {
                    stream,
                    what: StreamNews::ControllerWait,
                }) => self.held.push_back(stream.id),
                Output::Event(ClientEvent::CircuitBytes(reports)) => {
                    for report in &reports {
                        self.note_carried(report);
                    }
                }
                Output::Event(_)
                | Output::Log(_)
                | Output::DirectoryReady { .. }
                | Output::DirectoryGone { .. }
                | Output::LookedUp { .. } => {}
            }
        }
        commands
    }

    /// A controller attaches a stream: to the first circuit that is open, if there is one.
    fn attach_held(&mut self, stream: ConnectionId, now: Now) {
        let is_open = |circuit: &CircuitInfo| {
            circuit.status == CircuitStatus::Built
                && circuit.purpose == CircuitPurpose::General
                && circuit.path.len() > 1
        };
        let circuit = self.client.circuits().find(is_open);
        let to = circuit.map(|circuit| (circuit.id, None));
        // One that is not attached has failed, or waits for the client.
        if self.client.attach_stream(stream, to, now).is_err() && to.is_some() {
            let _ = self.client.attach_stream(stream, None, now);
        }
    }

    /// A stream is put on a circuit, after it waited in vain on another or not.
    fn note_attached(
        &mut self,
        stream: ConnectionId,
        circuit: OriginId,
        before: Option<(OriginId, Duration)>,
        (now, elapsed): (Now, Duration),
    ) {
        let relays = self.circuits.get(&circuit);
        let relays = relays.map(|known| known.relays.iter().copied());
        let through = self.through.entry(stream);
        let through = through.or_insert_with(|| Some(BTreeSet::new()));
        match (through.as_mut(), relays) {
            (Some(through), Some(relays)) => through.extend(relays),
            _ => *through = None,
        }
        if let Some(measuring) = &mut self.measuring {
            measuring.attached(stream, circuit, elapsed);
        }
        if let Some(recorder) = &mut self.recorder {
            if let Some((before, _)) = before {
                recorder.failed(before);
            }
            recorder.chosen(&self.client, (stream, circuit), elapsed, now);
        }
    }

    fn on_circuit(&mut self, circuit: &CircuitInfo, elapsed: Duration) {
        let known = self.circuits.entry(circuit.id).or_insert_with(|| Known {
            results: CircuitResults {
                client: self.name.clone(),
                path: Vec::new(),
                began: elapsed,
                built: None,
                round_trips: Vec::new(),
            },
            relays: Vec::new(),
        });
        let Known {
            results: known,
            relays,
        } = known;
        if known.path.len() != circuit.path.len() {
            let places = circuit.path.iter();
            *relays = places
                .filter_map(|(rsa, _)| self.places.get(rsa).copied())
                .collect();
            let names = circuit.path.iter().map(|(rsa, nickname)| {
                let name = self.names.get(rsa).unwrap_or(nickname);
                name.clone()
            });
            known.path = names.collect();
        }
        match circuit.status {
            CircuitStatus::Built | CircuitStatus::GuardWait => {
                let took = elapsed.saturating_sub(known.began);
                known.built.get_or_insert(took);
            }
            CircuitStatus::Failed | CircuitStatus::Closed => {
                self.asked.forget_circuit(circuit.id);
                let over = self.circuits.remove(&circuit.id);
                self.done.extend(over.map(|known| known.results));
            }
            CircuitStatus::Launched | CircuitStatus::Extended => {}
        }
    }

    /// Bytes of a circuit went through each of its relays.
    fn note_carried(&mut self, report: &CircuitReport) {
        let relays = self.circuits.get(&report.circuit);
        for relay in relays.map_or(&[][..], |known| &known.relays) {
            let carried = self.carried.entry(*relay).or_default();
            *carried += report.traffic.read + report.traffic.written;
        }
    }

    /// Name of its user's model, and bytes that its circuits carried through each relay since the
    /// last call.
    pub(super) fn take_carried(&mut self) -> (&str, BTreeMap<u32, u64>) {
        (&self.model_name, std::mem::take(&mut self.carried))
    }

    /// Circuits have each relay once, and weigh what their relays state; the options of its files are in force.
    pub(super) fn check(&self, now: Now) -> Result<(), String> {
        let has = self.client.config().max_dirtiness;
        if let Some(files) = &self.files
            && files.max_dirtiness() != has
        {
            let set = files.max_dirtiness();
            return Err(format!(
                "MaxCircuitDirtiness is {set:?}, and {has:?} in force"
            ));
        }
        for circuit in self.client.weighed_circuits(now) {
            let relays: BTreeSet<_> = circuit.path.iter().map(|(rsa, _)| *rsa).collect();
            if relays.len() < circuit.path.len() {
                return Err(format!("{} has a relay twice", circuit.id));
            }
            if circuit.stated == 0 && circuit.weight.is_some_and(|weight| weight > 0.0) {
                return Err(format!(
                    "{} weighs {:?}, and none of its relays states anything",
                    circuit.id, circuit.weight
                ));
            }
        }
        Ok(())
    }

    // ---- the user ----

    /// A stream that the user opens now, if it opens one.
    pub(super) fn next_stream(&mut self, elapsed: Duration) -> Option<(App, AppRequest)> {
        if self.is_done {
            return None;
        }
        let Action::Open {
            stream,
            isolation,
            plan,
        } = self.user.poll_action(elapsed, &mut self.rng)?;
        let (number, place) = (self.opened, self.opened % self.servers.len().max(1));
        self.opened += 1;
        let (host, port) = match self.servers.get(place) {
            Some(server) => self.odd.target(number, *server),
            // A scenario without servers: every stream fails.
            None => ("0.0.0.0".to_owned(), 9),
        };
        let traffic = ClientStream::new(plan, self.rng.next_u64(), elapsed);
        let request = AppRequest {
            opening: AppOpening::Connect { host, port },
            from: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            from_port: 1,
            listener: 0,
            protocol: AppProtocol::Socks5,
            credentials: Some(Arc::new(AppCredentials {
                user: match self.measuring {
                    Some(_) => Measuring::credentials(stream.0),
                    None => (isolation ^ self.odd.user(number)).to_be_bytes().to_vec(),
                },
                password: Vec::new(),
            })),
        };
        Some((App::new(stream, isolation, traffic), request))
    }

    /// When the user does something next, in nanoseconds, if no stream ends before.
    pub(super) fn user_time(&self) -> Option<u64> {
        let at = self.user.poll_timeout().filter(|_| !self.is_done)?;
        Some(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX))
    }

    /// True if a finished stream may have passed through one of these nodes, or if this client is
    /// one.
    pub(super) fn went_through(
        &mut self,
        finished: &Finished,
        number: u32,
        hostile: &BTreeSet<u32>,
    ) -> bool {
        let through = self.through.remove(&finished.id);
        let relays = through.unwrap_or_else(|| Some(BTreeSet::new()));
        let relays_are = relays.is_none_or(|relays| !relays.is_disjoint(hostile));
        let is_excused = !hostile.is_empty() && (hostile.contains(&number) || relays_are);
        if is_excused {
            self.excused.insert(finished.app.stream.0);
        }
        is_excused
    }

    /// Its streams that went through a hostile node.
    pub(super) fn excused(&self) -> impl Iterator<Item = (String, u32)> {
        let streams = self.excused.iter();
        streams.map(|stream| (self.name.clone(), *stream))
    }

    /// A stream is over.
    pub(super) fn finished(&mut self, finished: Finished, elapsed: Duration) {
        let Finished { app, outcome, .. } = finished;
        let event = match outcome {
            Outcome::Complete => StreamEvent::Complete,
            _ => StreamEvent::Failed,
        };
        let stream = app.stream;
        self.record(*app, outcome, elapsed);
        let answered = self
            .records
            .last()
            .is_some_and(|one| one.times.answered.is_some());
        if self.one_hop && answered && self.defect.is_none() {
            let what = "a stream on circuits of one hop reached its destination";
            self.defect = Some(what.to_owned());
        }
        self.measured(stream.0, elapsed);
        self.user.handle(elapsed, stream, event);
    }

    /// Notes the circuit of the stream that was recorded last, if circuits are measured. It is closed at the next tick.
    fn measured(&mut self, number: u32, elapsed: Duration) {
        let Some(measuring) = &mut self.measuring else {
            return;
        };
        let Some((id, begun)) = measuring.ended(number) else {
            return;
        };
        self.learnt_from.push_back((elapsed, id));
        let mut circuits = self.client.circuits();
        let circuit = circuits.find(|circuit| circuit.id == id);
        let began = self.circuits.get(&id).map(|known| known.results.began);
        if let (Some(record), Some(circuit), Some(began)) = (self.records.last(), circuit, began) {
            measuring.note(record, begun, &circuit, began);
        }
    }

    /// Notes how a stream went.
    pub(super) fn record(&mut self, app: App, outcome: Outcome, elapsed: Duration) {
        let (started, times) = app.traffic.into_times();
        self.records.push(Record {
            client: self.name.clone(),
            model: self.model_name.clone(),
            stream: app.stream.0,
            isolation: app.isolation,
            started,
            times,
            ended: elapsed.saturating_sub(started),
            outcome,
        });
    }

    /// Build times of circuits, open and closed.
    pub(super) fn build_times(&self) -> impl Iterator<Item = Duration> {
        let open = self.circuits.values().map(|known| &known.results);
        let circuits = open.chain(&self.done);
        circuits.filter_map(|circuit| circuit.built)
    }

    /// Begins anew: another identity, no records, and a user that begins at that time.
    pub(super) fn restart(&mut self, at: Duration, now: Now) {
        self.records.clear();
        self.done.clear();
        self.carried.clear();
        self.user = User::starting_at(self.model.clone(), at);
        self.user_timer = None;
        if let Some(measuring) = &mut self.measuring {
            measuring.measured.clear();
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.choices.clear();
        }
        self.new_identity(now);
    }

    /// All streams and circuits of the run.
    pub(super) fn into_results(self) -> ClientResults {
        let mut circuits = self.done;
        let open = self.circuits.into_values();
        circuits.extend(open.map(|known| known.results));
        let tunnels = self.client.tunnel_counts();
        ClientResults {
            tunnels: TunnelResults {
                begun: tunnels.begun,
                legs: tunnels.legs,
                replaced: tunnels.replaced,
                without: tunnels.without,
                // The threads know.
                reorder_bytes_max: 0,
            },
            streams: self.records,
            circuits,
            measured: self.measuring.map_or_else(Vec::new, |one| one.measured),
            choices: self.recorder.map_or_else(Vec::new, |one| one.choices),
        }
    }
}
