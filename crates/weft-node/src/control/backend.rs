//! What a control port asks of the node.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::broadcast;
use weft_cell::stream_msg::Resolved;
use weft_path::Countries;

use super::events::Event;
use super::view::{BootstrapView, CircuitView, LinkView, NodeView, StreamView};

/// Something that a controller wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// EXTENDCIRCUIT: a new circuit over these relays; without any, over relays of our choice.
    NewCircuit {
        /// As the controller names them.
        path: Vec<String>,
        /// It is the controller's (`purpose=controller`).
        controller: bool,
    },
    /// EXTENDCIRCUIT: more relays at the end.
    ExtendCircuit {
        /// The circuit.
        circuit: u64,
        /// As the controller names them.
        path: Vec<String>,
    },
    /// SETCIRCUITPURPOSE.
    SetPurpose {
        /// The circuit.
        circuit: u64,
        /// It is the controller's.
        controller: bool,
    },
    /// CLOSECIRCUIT.
    CloseCircuit {
        /// The circuit.
        circuit: u64,
        /// Only if no stream uses it.
        if_unused: bool,
    },
    /// ATTACHSTREAM.
    AttachStream {
        /// The stream.
        stream: u64,
        /// `None`: to what circuit the client likes.
        circuit: Option<u64>,
        /// The hop from which it goes on, from 1.
        hop: Option<u8>,
    },
    /// REDIRECTSTREAM.
    RedirectStream {
        /// The stream.
        stream: u64,
        /// Its new destination.
        host: String,
        /// And port.
        port: Option<u16>,
    },
    /// CLOSESTREAM.
    CloseStream {
        /// The stream.
        stream: u64,
        /// END's reason.
        reason: u8,
    },
    /// MAPADDRESS.
    MapAddress {
        /// The name; `.`, `0.0.0.0` or `::`: one of our choice.
        from: String,
        /// What it stands for.
        to: String,
    },
    /// DROPGUARDS.
    DropGuards,
    /// DROPTIMEOUTS.
    DropTimeouts,
}

/// What came of an [`Order`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// Just that.
    Done,
    /// A circuit, new or extended.
    Circuit(u64),
    /// The name that was mapped.
    Name(String),
}

/// Why an order cannot be carried out: the reply's code and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderFailed {
    /// 551, 552 and so on.
    pub code: u16,
    /// What the controller reads.
    pub text: String,
}

impl OrderFailed {
    /// With code and text.
    pub fn new(code: u16, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }
}

/// A signal, as SIGNAL and its event name it (control.c, `signal_table`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
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
    /// Share no circuits with what was.
    NewNym,
    /// Forget answers of the DNS.
    ClearDnsCache,
    /// Write the heartbeat.
    Heartbeat,
    /// Wake up.
    Active,
    /// Fall asleep.
    Dormant,
}

/// All names, in C tor's order; the first of a signal is its canonical one.
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
    pub fn name(self) -> &'static str {
        let mut found = SIGNALS.iter().filter(|(signal, _)| *signal == self);
        found.next().map_or("", |(_, name)| name)
    }

    /// By any of its names.
    pub(super) fn named(name: &str) -> Option<Self> {
        let mut found = SIGNALS
            .iter()
            .filter(|(_, known)| known.eq_ignore_ascii_case(name));
        found.next().map(|(signal, _)| *signal)
    }
}

/// What a controller wants of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// SETCONF: these options; no value: nothing, or zero.
    Set(Vec<(String, Option<String>)>),
    /// RESETCONF: these options; no value: the default.
    Reset(Vec<(String, Option<String>)>),
    /// LOADCONF: this torrc.
    Load(String),
    /// SAVECONF; even where the torrc includes others.
    Save {
        /// Whether it was said so.
        force: bool,
    },
}

/// What a document of a relay is asked by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// RSA identity.
    Id([u8; 20]),
    /// Nickname.
    Name(String),
    /// All that there are.
    All,
}

/// Which document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document {
    /// The entry of a consensus, as version 2 of the directory protocol had it (`ns/…`).
    RouterStatus,
    /// The microdescriptor.
    Microdescriptor,
    /// The server descriptor.
    Descriptor,
    /// The consensus of microdescriptors.
    Consensus,
    /// The consensus of the other flavour.
    ConsensusNs,
    /// The versions of Tor that the consensus recommends to clients.
    Versions,
    /// When the consensus begins.
    ValidAfter,
    /// Until when it is the newest.
    FreshUntil,
    /// When it ends.
    ValidUntil,
}

/// The node, as a control port needs it.
pub trait Backend: Clone + Send + Sync + 'static {
    /// What is known without asking.
    fn node(&self) -> Arc<NodeView>;

    /// Everything that happens from now on. Who is too slow misses some, and is told so.
    fn events(&self) -> broadcast::Receiver<Event>;

    /// Our circuits.
    fn circuits(&self) -> impl Future<Output = Vec<CircuitView>> + Send;

    /// Our streams.
    fn streams(&self) -> impl Future<Output = Vec<StreamView>> + Send;

    /// Links to relays.
    fn links(&self) -> impl Future<Output = Vec<LinkView>> + Send;

    /// How far the start has come; `None`: there is no client.
    fn bootstrap(&self) -> impl Future<Output = Option<BootstrapView>> + Send;

    /// Whether circuits can be built, and whether there is enough of a directory.
    fn readiness(&self) -> impl Future<Output = (bool, bool)> + Send;

    /// Guards, best first: their [`long_name`](super::view::long_name) and state, as
    /// `entry-guards` has them.
    fn guards(&self) -> impl Future<Output = Vec<String>> + Send;

    /// Mapped addresses: from, to, and when the map ends.
    fn maps(&self) -> impl Future<Output = Vec<(String, String, Option<String>)>> + Send;

    /// A document; `None`: there is no such relay, or it is not here.
    fn document(
        &self,
        which: Which,
        document: Document,
    ) -> impl Future<Output = Option<String>> + Send;

    /// The tables of countries, GeoIPFile and GeoIPv6File.
    fn countries(&self) -> Arc<Countries>;

    /// Our descriptor and its extra-info document as they would be published now; or why not.
    fn fresh_descriptors(&self) -> impl Future<Output = Result<String, &'static str>> + Send;

    /// Carries out an order.
    fn order(&self, order: Order) -> impl Future<Output = Result<Done, OrderFailed>> + Send;

    /// Looks a name up, or an address.
    fn look_up(
        &self,
        name: String,
        address: Option<IpAddr>,
    ) -> impl Future<Output = Option<Resolved>> + Send;

    /// Changes the configuration: how it went, in C tor's codes.
    fn configure(&self, change: Change) -> impl Future<Output = Result<(), OrderFailed>> + Send;

    /// Does what it does at a signal.
    fn signal(&self, signal: Signal);

    /// A controller wants log lines of this kind, `INFO` or `DEBUG`, which are not told otherwise.
    fn want_log(&self, kind: &'static str);
}
