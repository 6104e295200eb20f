//! A node without threads for tests of the control port: it shows fixed values and records commands.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::broadcast;
use weft_cell::identity::RsaIdentity;
use weft_cell::stream_msg::{Answer, AnswerKind, Resolved};
use weft_client::MapSource;
use weft_config::settings::Settings;
use weft_config::{MemoryHost, load_text};
use weft_core::controller::{Handled, HandshakeCounts};
use weft_dir::downloads::Downloads;
use weft_path::Countries;

use super::backend::{
    Backend, ClientCommand, CommandError, CommandOutput, ConfigCommand, Descriptors, DocumentKind,
    RelaySelector, Signal,
};
use super::events::Event;
use super::session::Shared;
use super::view::{BootstrapView, CircuitView, LinkView, NodeView, Speed, StreamView, long_name};

/// A [`Backend`] that records the commands it gets.
#[derive(Clone)]
pub(super) struct Fake {
    node: Arc<Mutex<Arc<NodeView>>>,
    pub(super) events: broadcast::Sender<Event>,
    recorded: Arc<Mutex<Vec<String>>>,
    /// There is a consensus.
    pub(super) has_consensus: bool,
    /// The client is dormant.
    pub(super) dormant: bool,
}

fn options(torrc: &str) -> Arc<weft_config::Options> {
    match load_text(torrc, &MemoryHost::new()) {
        Ok(loaded) => Arc::new(loaded.options),
        Err(report) => panic!("{report}"),
    }
}

impl Fake {
    pub(super) fn new(torrc: &str) -> Self {
        let node = NodeView {
            options: options(torrc),
            defaults: Arc::new(Settings::new(false)),
            torrc: Some("/etc/tor/torrc".into()),
            defaults_torrc: None,
            bootstrap: None,
            fingerprint: None,
            listeners: vec![("socks", "127.0.0.1:9050".to_owned())],
            read: 1000,
            written: 2000,
            recent: vec![(1, 2), (3, 4)],
            handshakes: Some(HandshakeCounts {
                ntor: Handled {
                    processed: 7,
                    dropped: 2,
                },
                ..HandshakeCounts::default()
            }),
            reachable: true,
            exit_policy: None,
            rejected: vec![[192, 0, 2, 1].into()],
            accepted: true,
            downloads: None,
            addresses: vec![[192, 0, 2, 1].into()],
            // Stem subtracts the uptime from a time before its request: a node that has just started has a
            // negative uptime to it.
            started: Instant::now().checked_sub(Duration::from_secs(10)).unwrap(),
            accounting: weft_counts::accounting::View::default(),
            clients_seen: None,
            exiting: false,
            max_files: 1024,
            max_queues: 1 << 30,
        };
        Self {
            node: Arc::new(Mutex::new(Arc::new(node))),
            events: broadcast::channel(64).0,
            recorded: Arc::default(),
            has_consensus: true,
            dormant: false,
        }
    }

    fn record(&self, what: impl std::fmt::Debug) {
        self.recorded.lock().unwrap().push(format!("{what:?}"));
    }

    pub(super) fn take_recorded(&self) -> Vec<String> {
        std::mem::take(&mut self.recorded.lock().unwrap())
    }

    pub(super) fn circuit(id: u64, status: &'static str) -> CircuitView {
        CircuitView {
            id,
            status,
            path: vec![
                ([0xaa; 20].into(), "guard".to_owned()),
                ([0xbb; 20].into(), "exit".to_owned()),
            ],
            build_flags: vec!["NEED_CAPACITY"],
            purpose: "GENERAL",
            created: SystemTime::UNIX_EPOCH,
            credentials: None,
            speed: Speed::default(),
            conflux: None,
        }
    }

    pub(super) fn stream(id: u64, status: &'static str) -> StreamView {
        StreamView {
            id,
            status,
            circuit: 4,
            target: "example.com:80".to_owned(),
            source: Some(([127, 0, 0, 1], 5000).into()),
            purpose: "USER",
            protocol: "SOCKS5",
            nym_epoch: 0,
            session_group: -2,
            isolation: vec!["CLIENTADDR"],
            credentials: None,
        }
    }
}

impl Backend for Fake {
    fn node(&self) -> Arc<NodeView> {
        self.node.lock().unwrap().clone()
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    async fn circuits(&self) -> Vec<CircuitView> {
        vec![Self::circuit(4, "BUILT"), Self::circuit(5, "EXTENDED")]
    }

    async fn streams(&self) -> Vec<StreamView> {
        vec![Self::stream(9, "SUCCEEDED")]
    }

    async fn links(&self) -> Vec<LinkView> {
        let target = long_name(&RsaIdentity([0xaa; 20]), "guard");
        let status = "CONNECTED";
        vec![LinkView {
            id: 1,
            target,
            status,
        }]
    }

    async fn bootstrap(&self) -> Option<BootstrapView> {
        let (tag, summary) = ("done".to_owned(), "Done".to_owned());
        Some(BootstrapView {
            progress: 100,
            tag,
            summary,
            problem: None,
        })
    }

    async fn readiness(&self) -> (bool, bool) {
        (true, true)
    }

    async fn is_dormant(&self) -> bool {
        self.dormant
    }

    async fn guards(&self) -> Vec<String> {
        vec![format!(
            "{} up",
            long_name(&RsaIdentity([0xaa; 20]), "guard")
        )]
    }

    async fn maps(&self) -> Vec<(String, String, MapSource)> {
        let map = |from: &str, to: &str, source| (from.to_owned(), to.to_owned(), source);
        vec![
            map("a", "b", MapSource::Controller),
            map("c", "d", MapSource::Torrc),
        ]
    }

    async fn document(&self, which: RelaySelector, document: DocumentKind) -> Option<String> {
        let relay = "r guard qqqqqqqqqqqqqqqqqqqqqqqqqqo AAAAAAAAAAAAAAAAAAAAAAAAAAA \
                     2026-01-01 00:00:00 192.0.2.1 9001 0\ns Fast Guard Running Stable Valid\n\
                     w Bandwidth=1000\n";
        match (which, document) {
            _ if !self.has_consensus => None,
            (RelaySelector::All, DocumentKind::ValidUntil) => {
                Some("2026-01-01 03:00:00".to_owned())
            }
            (RelaySelector::All, DocumentKind::CurrentRandom) => Some("BBBB=".to_owned()),
            (
                RelaySelector::All | RelaySelector::Id(RsaIdentity([0xaa, ..])),
                DocumentKind::RouterStatus,
            ) => Some(relay.to_owned()),
            _ => None,
        }
    }

    async fn descriptors(&self, which: Descriptors) -> Option<String> {
        let node = self.node();
        if !(node.options.is_relay() && node.options.directory.cache) {
            return None;
        }
        let id = RsaIdentity([0xaa; 20]);
        match which {
            Descriptors::Of(RelaySelector::All) => Some("router guard\nrouter exit\n".to_owned()),
            Descriptors::Of(which) if which == RelaySelector::Id(id) => {
                Some("router guard\nof id\n".to_owned())
            }
            Descriptors::Of(RelaySelector::Nickname(name)) if name == "guard" => {
                Some("router guard\nof name\n".to_owned())
            }
            Descriptors::ExtraInfo([0xbb, ..]) => Some("extra-info guard\nx\n".to_owned()),
            Descriptors::Servers(which) if which == "authority" => {
                Some("router own\nx\n".to_owned())
            }
            Descriptors::WithHistories => Some("router guard\nread-history\n".to_owned()),
            _ => None,
        }
    }

    async fn downloads(&self) -> Arc<Downloads> {
        Arc::default()
    }

    fn countries(&self) -> Arc<Countries> {
        Arc::new(Countries::parse("1.0.0.0,1.0.0.255,AU\n", "").unwrap())
    }

    async fn fresh_descriptors(&self) -> Result<String, &'static str> {
        Err("Only relays have descriptors")
    }

    async fn run_command(&self, command: ClientCommand) -> Result<CommandOutput, CommandError> {
        self.record(&command);
        match command {
            ClientCommand::NewCircuit { path, .. } if path.iter().any(|name| name == "nobody") => {
                Err(CommandError::new(552, "No such router \"nobody\""))
            }
            ClientCommand::NewCircuit { .. } => Ok(CommandOutput::Circuit(6)),
            ClientCommand::ExtendCircuit { circuit, .. } => Ok(CommandOutput::Circuit(circuit)),
            ClientCommand::MapAddress { from, .. } if from == "." => {
                Ok(CommandOutput::MappedName("x.virtual".to_owned()))
            }
            ClientCommand::CloseCircuit { circuit: 99, .. } => {
                Err(CommandError::new(552, "Unknown circuit \"99\""))
            }
            _ => Ok(CommandOutput::None),
        }
    }

    async fn look_up(&self, name: String, address: Option<IpAddr>) -> Option<Resolved> {
        let kind = match (name.as_str(), address) {
            ("nowhere", _) => return None,
            ("waits", _) => return std::future::pending().await,
            (_, Some(_)) => AnswerKind::Hostname(b"name".to_vec()),
            (_, None) => AnswerKind::Ipv4([1, 2, 3, 4].into()),
        };
        Some(Resolved {
            answers: vec![Answer { kind, ttl: 60 }],
        })
    }

    async fn configure(&self, change: ConfigCommand) -> Result<(), CommandError> {
        self.record(&change);
        let mut node = self.node.lock().unwrap();
        let lines = match change {
            ConfigCommand::Set(lines) | ConfigCommand::Reset(lines) => lines,
            ConfigCommand::Load(_) | ConfigCommand::Save { .. } => return Ok(()),
        };
        if lines.iter().any(|(key, _)| key == "Frob") {
            let text = "Unrecognized option: Unknown option 'Frob'.  Failing.";
            return Err(CommandError::new(552, text));
        }
        let torrc: String = lines
            .iter()
            .map(|(key, value)| format!("{key} {}\n", value.as_deref().unwrap_or_default()))
            .collect();
        *node = Arc::new(NodeView {
            options: options(&torrc),
            ..(**node).clone()
        });
        Ok(())
    }

    async fn enable_events(&self, kind: &'static str) {
        self.record(kind);
    }

    async fn signal(&self, signal: Signal) {
        self.record(signal);
        let _ = self.events.send(Event::Signal(signal.name()));
    }
}

pub(super) fn shared() -> Shared {
    Shared {
        cookie: None,
        version: "0.4.9.11 (Weft-0.1.0)".to_owned(),
    }
}
