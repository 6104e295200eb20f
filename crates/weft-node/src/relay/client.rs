//! The client's thread, as the main thread sees it.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use rand::{CryptoRng, RngExt as _};
use weft_cell::identity::RsaIdentity;
use weft_client::Remembered;
use weft_config::Options;
use weft_config::options::AppPort;
use weft_core::origin::OriginCommand;
use weft_log::RateLimit;

use super::Relay;
use super::error::{StartError, thread_ended};
use crate::client::{Access, ClientSettings, ClientThread, FromClient, ToClient};
use crate::thread::edges::{AdoptEdge, AdoptKind, EdgeSocket};
use crate::thread::mesh::ToThread;
use crate::wake::WakeUp;
use weft_datadir::keys::RelayKeys;
use weft_datadir::state;

/// Log lines about a state file that cannot be written.
const UNSAVED_INTERVAL: Duration = Duration::from_secs(600);
/// Messages of the client handled in one turn.
const MESSAGES_PER_TURN: usize = 1024;

/// The client's thread, and what its settings are made of besides torrc.
#[derive(Debug)]
pub(super) struct ClientSide {
    thread: ClientThread,
    /// From 0 to 1: varies timeouts among clients, so that they differ.
    spread: f64,
    /// Our own identity as a relay.
    own: Option<RsaIdentity>,
    state: StateLines,
}

/// The client's lines of the state file: guards and build times, for the next start.
#[derive(Debug)]
struct StateLines {
    keeper: state::Keeper,
    /// Log lines about a state file that cannot be written.
    unsaved: RateLimit,
}

impl StateLines {
    fn save(&mut self, data_directory: &Path, lines: Vec<state::Lines>) {
        let saved = self.keeper.save(data_directory, SystemTime::now(), lines);
        // It is tried again with the next ones.
        if let Err(error) = saved
            && let Some(more) = self.unsaved.check(Instant::now())
        {
            tracing::warn!("Could not save the state: {error}{more}");
        }
    }
}

/// The minutes without use, which always differ, are saved with the others.
const MINOR: [&str; 1] = {
    let [_, minutes] = Remembered::KEYS;
    [minutes]
};

impl ClientSide {
    /// Starts the thread, if torrc has ports for applications.
    ///
    /// # Errors
    ///
    /// The system gives no thread.
    pub(super) fn start(
        options: &Options,
        ports: &[AppPort],
        keys: Option<&RelayKeys>,
        state: &[(String, String)],
        main: &WakeUp,
        rng: &mut impl CryptoRng,
    ) -> io::Result<Option<Self>> {
        if !options.is_client() {
            return Ok(None);
        }
        let spread = rng.random();
        let own = keys.map(|keys| keys.rsa_id().into());
        let settings = ClientSettings::new(options, ports, own, spread);
        let thread = ClientThread::start(settings, state, rng.random(), main.clone())?;
        Ok(Some(ClientSide {
            thread,
            spread,
            own,
            state: StateLines {
                keeper: state::Keeper::new(&MINOR),
                unsaved: RateLimit::new(UNSAVED_INTERVAL),
            },
        }))
    }

    /// True if messages to the client wait for room.
    pub(super) fn is_stuck(&self) -> bool {
        self.thread.is_stuck()
    }

    /// The client, for controllers.
    pub(super) fn access(&self) -> Access {
        self.thread.access()
    }

    /// Sends the client a message.
    pub(super) fn send(&mut self, message: ToClient) {
        self.thread.send(message);
    }
}

impl Relay {
    /// Takes the messages of the client.
    pub(super) fn take_from_client(&mut self, now: Instant) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(message) = self.client.as_mut().and_then(|client| client.thread.poll()) else {
                break;
            };
            self.on_client(message, now);
        }
        let Some(client) = &mut self.client else {
            return;
        };
        client.thread.flush();
        if client.thread.has_ended() && !self.shutdown.is_under_way() {
            self.fail(thread_ended("the client thread"), now);
        }
    }

    /// Handles a message of the client.
    fn on_client(&mut self, message: FromClient, now: Instant) {
        match message {
            FromClient::Command(command) => self.on_origin(command, now),
            FromClient::State(lines) => {
                if let Some(client) = &mut self.client {
                    client.state.save(&self.options.files.data_directory, lines);
                }
            }
            FromClient::Network(network) => {
                // A relay takes the parameters from its own directory.
                if self.directory.handle.is_none() {
                    self.network.adopt(network.consensus.clone(), now);
                    self.apply_params();
                }
            }
            FromClient::Counts(counts) => self.metrics.client = Some(counts),
            FromClient::TooOld(protocols) => {
                let of = "clients";
                self.fail(StartError::TooOld { of, protocols }, now);
            }
        }
    }

    /// Carries out a command of the client's.
    fn on_origin(&mut self, command: OriginCommand, now: Instant) {
        self.note_decision(&command);
        match command {
            OriginCommand::AdoptInternal { stream, socket } => {
                let thread = self.controller.place_internal(stream);
                let adopt = AdoptEdge {
                    id: stream,
                    socket: EdgeSocket::Unix(socket),
                    kind: AdoptKind::Internal,
                };
                self.threads
                    .send(thread.0, ToThread::AdoptEdge(Box::new(adopt)));
            }
            OriginCommand::AdoptResolve { stream } => {
                let thread = self.controller.place_internal(stream);
                let adopt = AdoptEdge {
                    id: stream,
                    socket: EdgeSocket::None,
                    kind: AdoptKind::Internal,
                };
                self.threads
                    .send(thread.0, ToThread::AdoptEdge(Box::new(adopt)));
            }
            other => self.controller.origin(other, now),
        }
    }

    /// Starts the client where a new torrc has the first port for applications.
    pub(super) fn start_client_late(&mut self) {
        if self.client.is_some() || !self.options.is_client() {
            return;
        }
        let lines = match state::load(&self.options.files.data_directory) {
            Ok(state) => state.lines(),
            Err(error) => {
                tracing::warn!("The client begins without its guards of before: {error}");
                Vec::new()
            }
        };
        let (ports, keys) = (self.apps.ports.known(), self.identity.keys.as_ref());
        match ClientSide::start(
            &self.options,
            ports,
            keys,
            &lines,
            &self.event_loop.wake,
            &mut self.rng,
        ) {
            Ok(client) => {
                self.client = client;
                self.controller.serve_client();
            }
            Err(error) => {
                tracing::warn!("Could not start the client; applications are not served: {error}");
            }
        }
    }

    /// Sends the client the new settings.
    pub(super) fn reload_client(&mut self) {
        if let Some(client) = &mut self.client {
            let ports = self.apps.ports.known();
            let mut settings = ClientSettings::new(&self.options, ports, client.own, client.spread);
            settings.config.disable_network |= self.accounting.is_asleep();
            client.send(ToClient::Settings(Box::new(settings)));
        }
    }

    /// Ends the client's thread.
    pub(super) fn end_client(&mut self) {
        let Some(client) = self.client.take() else {
            return;
        };
        let ClientSide {
            thread, mut state, ..
        } = client;
        let mut last = Vec::new();
        thread.end(|message| {
            if let FromClient::State(lines) = message {
                last.extend(lines);
            }
        });
        state.save(&self.options.files.data_directory, last);
    }
}
