//! The node as a control port uses it ([`Backend`]), and the commands that controllers give it.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::broadcast;
use weft_cell::identity::RsaIdentity;
use weft_cell::stream_msg::Resolved;
use weft_client::MapSource;
use weft_dir::downloads::Downloads;
use weft_path::Countries;

use super::events::Event;
use super::view::{BootstrapView, CircuitView, LinkView, NodeView, StreamView};

/// A command about circuits, streams, addresses or guards, for the node's client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClientCommand {
    /// EXTENDCIRCUIT with circuit 0: build a circuit over these relays; if there are none, over relays that
    /// the client chooses.
    NewCircuit {
        /// The relays' names, as the controller sent them.
        path: Vec<String>,
        /// `purpose=controller`: the client puts no stream on it.
        controller: bool,
    },
    /// EXTENDCIRCUIT: add relays at the end.
    ExtendCircuit {
        circuit: u64,
        /// The relays' names, as the controller sent them.
        path: Vec<String>,
    },
    /// SETCIRCUITPURPOSE.
    SetPurpose {
        circuit: u64,
        /// `purpose=controller`.
        controller: bool,
    },
    /// CLOSECIRCUIT.
    CloseCircuit {
        circuit: u64,
        /// Close it only if no stream uses it.
        if_unused: bool,
    },
    /// ATTACHSTREAM.
    AttachStream {
        stream: u64,
        /// `None`: the client chooses a circuit.
        circuit: Option<u64>,
        /// The hop that opens the connection, counted from 1; `None`: the last one.
        hop: Option<u8>,
    },
    /// REDIRECTSTREAM.
    RedirectStream {
        stream: u64,
        /// The new destination.
        host: String,
        /// `None`: the port stays.
        port: Option<u16>,
    },
    /// CLOSESTREAM.
    CloseStream {
        stream: u64,
        /// The reason of the END.
        reason: u8,
    },
    /// MAPADDRESS.
    MapAddress {
        /// The name to map; `.`, `0.0.0.0` or `::`: the client chooses a virtual one.
        from: String,
        /// The name or address that replaces it.
        to: String,
    },
    /// DROPGUARDS.
    DropGuards,
    /// DROPTIMEOUTS.
    DropTimeouts,
}

/// The result of a [`ClientCommand`] that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommandOutput {
    /// The command returns nothing.
    None,
    /// The circuit that was built or extended.
    Circuit(u64),
    /// The name that was mapped.
    MappedName(String),
}

/// A command that failed: code and text of the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandError {
    /// As control-spec 4 numbers errors.
    pub code: u16,
    pub text: String,
}

impl CommandError {
    pub(crate) fn new(code: u16, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }
}

/// A signal that the SIGNAL command and event name (control.c, `signal_table`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGHUP.
    Reload,
    /// SIGINT.
    Shutdown,
    /// SIGUSR1.
    Dump,
    /// SIGUSR2.
    Debug,
    /// SIGTERM.
    Halt,
    /// New streams share no circuit with earlier ones.
    NewNym,
    ClearDnsCache,
    /// Log the heartbeat now.
    Heartbeat,
    Active,
    Dormant,
}

/// The names of signals, in C tor's order; a signal's first name is its canonical one.
pub(super) const SIGNALS: [(Signal, &str); 15] = [
    (Signal::Reload, "RELOAD"),
    (Signal::Reload, "HUP"),
    (Signal::Shutdown, "SHUTDOWN"),
    (Signal::Dump, "DUMP"),
    (Signal::Dump, "USR1"),
    (Signal::Debug, "DEBUG"),
    (Signal::Debug, "USR2"),
    (Signal::Halt, "HALT"),
    (Signal::Halt, "TERM"),
    (Signal::Halt, "INT"),
    (Signal::NewNym, "NEWNYM"),
    (Signal::ClearDnsCache, "CLEARDNSCACHE"),
    (Signal::Heartbeat, "HEARTBEAT"),
    (Signal::Active, "ACTIVE"),
    (Signal::Dormant, "DORMANT"),
];

impl Signal {
    /// The canonical name.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        let mut found = SIGNALS.iter().filter(|(signal, _)| *signal == self);
        found.next().map_or("", |(_, name)| name)
    }

    /// The signal of this name, in any case of letters.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let mut found = SIGNALS
            .iter()
            .filter(|(_, known)| known.eq_ignore_ascii_case(name));
        found.next().map(|(signal, _)| *signal)
    }
}

/// A command that changes or saves the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigCommand {
    /// SETCONF: options and their values. Without a value an option becomes empty or 0.
    Set(Vec<(String, Option<String>)>),
    /// RESETCONF: options and their values. Without a value an option gets its default.
    Reset(Vec<(String, Option<String>)>),
    /// LOADCONF: the text of a torrc.
    Load(String),
    /// SAVECONF.
    Save {
        /// FORCE: overwrite the torrc even if it includes other files.
        force: bool,
    },
}

/// The relays whose documents a GETINFO requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RelaySelector {
    /// The relay of this RSA identity.
    Id(RsaIdentity),
    /// The relay of this nickname, in any case of letters.
    Nickname(String),
    All,
}

/// A directory document, or a field of one, that GETINFO returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentKind {
    /// Entries of the consensus in the format of version 2 of the directory protocol (`ns/…`).
    RouterStatus,
    Microdescriptor,
    /// The consensus of flavour `microdesc`.
    Consensus,
    /// The consensus of flavour `ns`.
    ConsensusNs,
    /// The versions of Tor that the consensus recommends to clients.
    Versions,
    /// `valid-after` of the consensus.
    ValidAfter,
    /// `fresh-until` of the consensus.
    FreshUntil,
    /// `valid-until` of the consensus.
    ValidUntil,
    /// The shared random value of the consensus.
    CurrentRandom,
    /// The one before it.
    PreviousRandom,
}

/// Descriptors and extra-info documents that a GETINFO requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Descriptors {
    /// The descriptors of relays.
    Of(RelaySelector),
    /// All descriptors, with histories of bandwidth in them.
    WithHistories,
    /// The extra-info document of this digest.
    ExtraInfo([u8; 20]),
    /// The descriptors at `/tor/server/WHICH` of a DirPort.
    Servers(String),
}

/// The node as a control port uses it.
pub(crate) trait Backend: Clone + Send + Sync + 'static {
    /// The part of the node's state that the main thread publishes.
    fn node(&self) -> Arc<NodeView>;

    /// Subscribes to events. A receiver that is too slow loses the oldest ones and gets an error once.
    fn events(&self) -> broadcast::Receiver<Event>;

    /// The circuits that begin at this node.
    fn circuits(&self) -> impl Future<Output = Vec<CircuitView>> + Send;

    /// The streams that begin at this node.
    fn streams(&self) -> impl Future<Output = Vec<StreamView>> + Send;

    /// Connections to relays and clients.
    fn links(&self) -> impl Future<Output = Vec<LinkView>> + Send;

    /// The progress of bootstrapping; `None`: the node has no client.
    fn bootstrap(&self) -> impl Future<Output = Option<BootstrapView>> + Send;

    /// Returns two flags: circuits can be built, and there is enough directory information.
    fn readiness(&self) -> impl Future<Output = (bool, bool)> + Send;

    /// The client has been unused for so long that it keeps no circuits.
    fn is_dormant(&self) -> impl Future<Output = bool> + Send;

    /// The guards, best first, in the format of `entry-guards`:
    /// [`long_name`](super::view::long_name) and state.
    fn guards(&self) -> impl Future<Output = Vec<String>> + Send;

    /// The mapped addresses: from what, to what, and whose. None expires.
    fn maps(&self) -> impl Future<Output = Vec<(String, String, MapSource)>> + Send;

    /// A document; `None`: there is no such relay, or the node does not have the document.
    fn document(
        &self,
        which: RelaySelector,
        document: DocumentKind,
    ) -> impl Future<Output = Option<String>> + Send;

    /// Text of these descriptors in the directory cache; `None`: there are none.
    fn descriptors(&self, which: Descriptors) -> impl Future<Output = Option<String>> + Send;

    /// Progress of the directory's fetches.
    fn downloads(&self) -> impl Future<Output = Arc<Downloads>> + Send;

    /// The tables of GeoIPFile and GeoIPv6File.
    fn countries(&self) -> Arc<Countries>;

    /// The relay's descriptor and extra-info document as it would publish them now.
    ///
    /// # Errors
    ///
    /// The text of the reply: the node is no relay, or cannot make them.
    fn fresh_descriptors(&self) -> impl Future<Output = Result<String, &'static str>> + Send;

    fn run_command(
        &self,
        command: ClientCommand,
    ) -> impl Future<Output = Result<CommandOutput, CommandError>> + Send;

    /// Looks up a name, or the name of `address`. `None`: the client is ending.
    fn look_up(
        &self,
        name: String,
        address: Option<IpAddr>,
    ) -> impl Future<Output = Option<Resolved>> + Send;

    /// Changes or saves the configuration. Errors have C tor's codes.
    fn configure(
        &self,
        change: ConfigCommand,
    ) -> impl Future<Output = Result<(), CommandError>> + Send;

    /// Waits while the main thread has too many requests.
    fn signal(&self, signal: Signal) -> impl Future<Output = ()> + Send;

    /// Makes what is no event by default one: log lines of a severity, `INFO` or `DEBUG`, or what is measured for
    /// `CONN_BW` or `CELL_STATS`.
    fn enable_events(&self, kind: &'static str) -> impl Future<Output = ()> + Send;
}
