//! The messages between the client thread, the main thread and the control port.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use tokio::sync::oneshot;
use weft_cell::stream_msg::Resolved;
use weft_client::{
    Bootstrap, BootstrapProblem, Client, ClientEvent, Now, Paths, ProbeCounts, StatementCounts,
    Transports, TunnelCounts,
};
use weft_core::address::ConnectionId;
use weft_core::origin::{AppOpening, OriginCommand, OriginEvent};
use weft_dir::client::Network;
use weft_dir::downloads::Downloads;

use super::settings::ClientSettings;
use crate::wake::WakeUp;

/// Time that the client thread may take to end.
pub(super) const END_PATIENCE: Duration = Duration::from_secs(2);

/// Messages of the main thread to the client thread.
#[derive(Debug)]
pub(crate) enum ToClient {
    /// An event of the connection threads.
    Event(OriginEvent),
    /// torrc has changed.
    Settings(Box<ClientSettings>),
    /// Other pluggable transports can be used.
    Transports(Transports),
    /// SIGNAL NEWNYM: new streams share no circuit with earlier ones.
    NewIdentity,
    /// SIGNAL ACTIVE (true) or DORMANT.
    Participate(bool),
    /// Save the state and end.
    Shutdown,
}

/// Messages of the client thread to the main thread.
#[derive(Debug)]
pub(crate) enum FromClient {
    /// A command for the relay controller.
    Command(OriginCommand),
    /// Lines for the state file: all values of each key.
    State(Vec<(&'static str, Vec<String>)>),
    /// A new network: its parameters apply to our own circuits, too.
    Network(Arc<Network>),
    /// The protocols that the network requires of clients and this version lacks.
    TooOld(String),
    /// The client's counts, for the MetricsPort; once a second, if some have changed.
    Counts(ClientCounts),
}

/// Counts of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ClientCounts {
    /// Circuits that streams may use.
    pub(crate) open: u64,
    /// Circuits that were measured.
    pub(crate) probes: ProbeCounts,
    /// The longest round trip of a circuit that is used, if there is a limit.
    pub(crate) round_trip_limit: Option<Duration>,
    /// Statements of relays about their bandwidth.
    pub(crate) statements: StatementCounts,
    /// Tunnels of mTor.
    pub(crate) tunnels: TunnelCounts,
}

/// An event for controllers.
#[derive(Clone, Debug)]
pub(crate) enum ClientNews {
    /// An event of the client.
    Event(Box<ClientEvent>),
    /// A new network is in use (NEWCONSENSUS, NS).
    Network(Arc<Network>),
}

/// The queue of messages to the main thread.
#[derive(Debug)]
pub(super) struct Outgoing {
    sender: SyncSender<FromClient>,
    stuck: VecDeque<FromClient>,
    main: WakeUp,
}

impl Outgoing {
    pub(super) fn new(sender: SyncSender<FromClient>, main: WakeUp) -> Self {
        Outgoing {
            sender,
            stuck: VecDeque::new(),
            main,
        }
    }

    /// Queues a message.
    pub(super) fn send(&mut self, message: FromClient) {
        self.stuck.push_back(message);
    }

    /// Sends as many messages as the channel takes, and wakes the main thread. Returns whether all were sent.
    pub(super) fn flush(&mut self) -> bool {
        let mut sent = false;
        while let Some(message) = self.stuck.pop_front() {
            match self.sender.try_send(message) {
                Ok(()) => sent = true,
                Err(TrySendError::Full(message)) => {
                    self.stuck.push_front(message);
                    break;
                }
                // The main thread has ended.
                Err(TrySendError::Disconnected(_)) => {}
            }
        }
        if sent {
            self.main.notify();
        }
        self.stuck.is_empty()
    }
}

/// The state that a job may use.
pub(crate) struct Inside<'a> {
    /// The client's circuits and streams.
    pub(crate) client: &'a mut Client<Paths>,
    /// The progress of bootstrapping.
    pub(crate) bootstrap: Option<Bootstrap>,
    /// The problem that holds it up.
    pub(crate) problem: Option<BootstrapProblem>,
    /// Progress of the directory's fetches.
    pub(crate) downloads: &'a Arc<Downloads>,
    pub(crate) now: Now,
}

/// A job for the client thread.
pub(super) enum Job {
    /// A function that does not wait.
    Do(Box<dyn FnOnce(Inside<'_>) + Send>),
    /// A lookup.
    LookUp(AppOpening, oneshot::Sender<Resolved>),
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Job")
    }
}

/// The lookups of controllers, by stream.
pub(super) type LookUps = BTreeMap<ConnectionId, oneshot::Sender<Resolved>>;
