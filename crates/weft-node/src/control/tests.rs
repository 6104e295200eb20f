//! Controllers, and a node that is none.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::net::{IpAddr, TcpListener};
use std::process::Command as Process;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::broadcast;
use weft_cell::stream_msg::{Answer, AnswerKind, Resolved};
use weft_core::controller::{Handled, HandshakeCounts};
use weft_dir::clock::SystemClock;
use weft_path::Countries;

use super::auth::hash_password;
use super::events::Event;
use super::reader::Command;
use super::view::{BootstrapView, CircuitView, LinkView, NodeView, StreamView, long_name};
use super::*;
use crate::torrc::settings::Settings;
use crate::torrc::{Host, load_text};

/// A node that remembers what was asked of it.
#[derive(Clone)]
pub(super) struct Fake {
    node: Arc<Mutex<Arc<NodeView>>>,
    events: broadcast::Sender<Event>,
    asked: Arc<Mutex<Vec<String>>>,
}

fn options(torrc: &str) -> Arc<crate::torrc::Options> {
    match load_text(torrc, &Host::empty()) {
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
            addresses: vec![[192, 0, 2, 1].into()],
            // Stem takes what GETINFO says from the time before it asks: a node that starts only now has a
            // negative uptime to it.
            started: Instant::now().checked_sub(Duration::from_secs(10)).unwrap(),
            max_files: 1024,
            max_queues: 1 << 30,
        };
        Self {
            node: Arc::new(Mutex::new(Arc::new(node))),
            events: broadcast::channel(64).0,
            asked: Arc::default(),
        }
    }

    fn note(&self, what: impl std::fmt::Debug) {
        self.asked.lock().unwrap().push(format!("{what:?}"));
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    fn circuit(id: u64, status: &'static str) -> CircuitView {
        CircuitView {
            id,
            status,
            path: vec![
                ([0xaa; 20], "guard".to_owned()),
                ([0xbb; 20], "exit".to_owned()),
            ],
            build_flags: vec!["NEED_CAPACITY"],
            purpose: "GENERAL",
            created: SystemTime::UNIX_EPOCH,
            credentials: None,
        }
    }

    fn stream(id: u64, status: &'static str) -> StreamView {
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
        let target = long_name(&[0xaa; 20], "guard");
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
        })
    }

    async fn readiness(&self) -> (bool, bool) {
        (true, true)
    }

    async fn guards(&self) -> Vec<String> {
        vec![format!("{} up", long_name(&[0xaa; 20], "guard"))]
    }

    async fn maps(&self) -> Vec<(String, String, Option<String>)> {
        vec![("a".to_owned(), "b".to_owned(), None)]
    }

    async fn document(&self, which: Which, document: Document) -> Option<String> {
        let relay = "r guard qqqqqqqqqqqqqqqqqqqqqqqqqqo AAAAAAAAAAAAAAAAAAAAAAAAAAA \
                     2026-01-01 00:00:00 192.0.2.1 9001 0\ns Fast Guard Running Stable Valid\n\
                     w Bandwidth=1000\n";
        match (which, document) {
            (Which::All | Which::Id([0xaa, ..]), Document::RouterStatus) => Some(relay.to_owned()),
            _ => None,
        }
    }

    fn countries(&self) -> Arc<Countries> {
        Arc::new(Countries::parse("1.0.0.0,1.0.0.255,AU\n", "").unwrap())
    }

    async fn fresh_descriptors(&self) -> Result<String, &'static str> {
        Err("Only relays have descriptors")
    }

    async fn order(&self, order: Order) -> Result<Done, OrderFailed> {
        self.note(&order);
        match order {
            Order::NewCircuit { path, .. } if path.iter().any(|name| name == "nobody") => {
                Err(OrderFailed::new(552, "No such router \"nobody\""))
            }
            Order::NewCircuit { .. } => Ok(Done::Circuit(6)),
            Order::ExtendCircuit { circuit, .. } => Ok(Done::Circuit(circuit)),
            Order::MapAddress { from, .. } if from == "." => Ok(Done::Name("x.virtual".to_owned())),
            Order::CloseCircuit { circuit: 99, .. } => {
                Err(OrderFailed::new(552, "Unknown circuit \"99\""))
            }
            _ => Ok(Done::Done),
        }
    }

    async fn look_up(&self, name: String, address: Option<IpAddr>) -> Option<Resolved> {
        let kind = match (name.as_str(), address) {
            ("nowhere", _) => return None,
            (_, Some(_)) => AnswerKind::Hostname(b"name".to_vec()),
            (_, None) => AnswerKind::Ipv4([1, 2, 3, 4].into()),
        };
        Some(Resolved {
            answers: vec![Answer { kind, ttl: 60 }],
        })
    }

    async fn configure(&self, change: Change) -> Result<(), OrderFailed> {
        self.note(&change);
        let mut node = self.node.lock().unwrap();
        let lines = match change {
            Change::Set(lines) | Change::Reset(lines) => lines,
            Change::Load(_) | Change::Save { .. } => return Ok(()),
        };
        if lines.iter().any(|(key, _)| key == "Frob") {
            let text = "Unrecognized option: Unknown option 'Frob'.  Failing.";
            return Err(OrderFailed::new(552, text));
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

    fn want_log(&self, kind: &'static str) {
        self.note(kind);
    }

    fn signal(&self, signal: Signal) {
        self.note(signal);
        let _ = self.events.send(Event::Signal(signal.name()));
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(future)
}

pub(super) fn shared() -> Shared {
    Shared {
        cookie: None,
        version: "0.4.9.11 (Weft-0.1.0)".to_owned(),
    }
}

fn session(fake: &Fake) -> Session<Fake> {
    Session::new(fake.clone(), Arc::new(shared()))
}

fn say(session: &mut Session<Fake>, line: &str) -> String {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let command = Command {
        word: word.to_owned(),
        rest: rest.to_owned(),
        data: String::new(),
    };
    run(session.command(&command, [1; 32])).encode()
}

fn trusted(fake: &Fake) -> Session<Fake> {
    let mut session = session(fake);
    assert_eq!(say(&mut session, "AUTHENTICATE"), "250 OK\r\n");
    session
}

#[test]
fn strangers_may_only_say_who_they_are() {
    let hash = hash_password(b"secret", [1; 8]);
    let fake = Fake::new(&format!("ControlPort 9051\nHashedControlPassword {hash}\n"));
    let mut stranger = session(&fake);
    let closes = |session: &mut Session<Fake>, word: &str| {
        let (word, rest, data) = (word.to_owned(), String::new(), String::new());
        run(session.command(&Command { word, rest, data }, [1; 32])).close
    };
    assert_eq!(
        say(&mut stranger, "GETINFO version"),
        "514 Authentication required.\r\n"
    );
    assert!(closes(&mut stranger, "GETINFO"));
    assert_eq!(
        say(&mut stranger, "PROTOCOLINFO 1"),
        "250-PROTOCOLINFO 1\r\n250-AUTH METHODS=HASHEDPASSWORD\r\n\
         250-VERSION Tor=\"0.4.9.11 (Weft-0.1.0)\"\r\n250 OK\r\n"
    );
    assert!(closes(&mut stranger, "PROTOCOLINFO"), "once is enough");
    assert!(say(&mut stranger, "AUTHENTICATE \"wrong\"").starts_with("515 Authentication failed"));
    assert!(!stranger.is_trusted());
    assert!(stranger.event(&Event::Bandwidth(1, 2), "").is_none());
    assert_eq!(say(&mut stranger, "AUTHENTICATE \"secret\""), "250 OK\r\n");
    assert!(stranger.is_trusted());
    assert_eq!(say(&mut stranger, "QUIT"), "250 closing connection\r\n");
    let mut cookie = session(&Fake::new("ControlPort 9051\nCookieAuthentication 1\n"));
    assert!(say(&mut cookie, "PROTOCOLINFO").contains(
        "AUTH METHODS=COOKIE,SAFECOOKIE COOKIEFILE=\"/home/nobody/.tor/control_auth_cookie\"\r\n"
    ));
}

#[test]
fn questions_have_answers_or_a_552() {
    let fake = Fake::new("ControlPort 9051\n");
    let mut session = trusted(&fake);
    let mut ask = |key: &str| say(&mut session, &format!("GETINFO {key}"));
    assert_eq!(
        ask("version"),
        "250-version=0.4.9.11 (Weft-0.1.0)\r\n250 OK\r\n"
    );
    assert_eq!(
        ask("traffic/read traffic/written"),
        "250-traffic/read=1000\r\n250-traffic/written=2000\r\n250 OK\r\n"
    );
    let circuits = ask("circuit-status");
    assert!(
        circuits.starts_with("250+circuit-status=\r\n4 BUILT $AAAA"),
        "{circuits}"
    );
    assert!(circuits.contains("\r\n5 EXTENDED $") && circuits.ends_with("\r\n.\r\n250 OK\r\n"));
    assert!(ask("stream-status").starts_with("250-stream-status=9 SUCCEEDED 4 example.com:80 "));
    assert!(ask("orconn-status").ends_with("~guard CONNECTED\r\n250 OK\r\n"));
    assert_eq!(
        ask("status/bootstrap-phase"),
        "250-status/bootstrap-phase=NOTICE BOOTSTRAP PROGRESS=100 TAG=done SUMMARY=\"Done\"\r\n\
         250 OK\r\n"
    );
    assert_eq!(
        ask("net/listeners/socks"),
        "250-net/listeners/socks=\"127.0.0.1:9050\"\r\n250 OK\r\n"
    );
    assert_eq!(
        ask("net/listeners/dns"),
        "250-net/listeners/dns=\r\n250 OK\r\n"
    );
    assert_eq!(ask("address"), "250-address=192.0.2.1\r\n250 OK\r\n");
    assert_eq!(ask("address/v6"), "551 Address unknown\r\n");
    assert_eq!(ask("fingerprint"), "551 Not running in server mode\r\n");
    assert!(ask("ns/all").starts_with("250+ns/all=\r\nr guard "));
    assert!(ask(&format!("ns/id/${}", "AA".repeat(20))).starts_with("250+ns/id/"));
    assert!(ask("desc/id/AA").starts_with("552 We fetch microdescriptors, "));
    assert_eq!(ask("ns/id/zz"), "551 Data not decodeable as hex\r\n");
    assert_eq!(ask("md/id/zz"), "552 Unrecognized key \"md/id/zz\"\r\n");
    assert_eq!(
        ask("bw-event-cache"),
        "250-bw-event-cache=1,2 3,4\r\n250 OK\r\n"
    );
    assert_eq!(
        ask("exit-policy/full"),
        "552 Not running in server mode\r\n"
    );
    assert!(ask("dir/status-vote/current/consensus").starts_with("551 Could not open"));
    assert!(ask("status/fresh-relay-descs").starts_with("551 Only relays"));
    let one = |key: &str, value: &str| format!("250-{key}={value}\r\n250 OK\r\n");
    for (key, value) in [
        ("ip-to-country/1.0.0.200", "au"),
        ("ip-to-country/1.0.1.0", "??"),
        ("ip-to-country/ipv4-available", "1"),
        ("ip-to-country/ipv6-available", "0"),
        ("stats/ntor/assigned", "7"),
        ("stats/ntor/requested", "9"),
        ("stats/tap/requested", "0"),
        ("status/reachability-succeeded", "OR=1 DIR=1"),
    ] {
        assert_eq!(ask(key), one(key, value));
    }
    for (key, why) in [
        ("ip-to-country/::1", "GeoIP data not loaded"),
        ("ip-to-country/here", "Invalid address family"),
        ("stats/ntor/frob", "Unrecognized handshake type"),
        ("status/clients-seen", "No bridge-client stats available"),
    ] {
        assert_eq!(ask(key), format!("551 {why}\r\n"));
    }
    // What is said to be known is.
    for (key, _) in keys::KEYS.iter().filter(|(key, _)| !key.ends_with('*')) {
        assert!(!ask(key).contains("Unrecognized key"), "{key}");
    }
    assert!(ask("events/names").ends_with(" PT_STATUS\r\n250 OK\r\n"));
    assert_eq!(
        ask("frob version net/listeners/x"),
        "552-Unrecognized key \"frob\"\r\n552 Unrecognized key \"net/listeners/x\"\r\n"
    );
    for key in [
        "config/names",
        "config/defaults",
        "info/names",
        "events/names",
        "signal/names",
        "features/names",
        "config-text",
        "process/pid",
        "uptime",
        "entry-guards",
        "current-time/utc",
        "current-time/local",
        "address-mappings/all",
        "network-liveness",
        "status/enough-dir-info",
        "status/circuit-established",
        "config-file",
        "process/user",
        "md/all",
        "desc/all-recent",
        "dormant",
        "accounting/enabled",
        "bw-event-cache",
        "consensus/packages",
        "exit-policy/default",
        "exit-policy/reject-private/default",
        "onions/current",
        "status/version/current",
    ] {
        let answer = ask(key);
        assert!(
            answer.starts_with("250") && answer.ends_with("\r\n250 OK\r\n"),
            "{key}: {answer}"
        );
    }
}

#[test]
fn orders_are_passed_on_and_their_ends_told() {
    let fake = Fake::new("ControlPort 9051\n");
    let mut session = trusted(&fake);
    let mut order = |line: &str| (say(&mut session, line), fake.asked().join(";"));
    let done = |asked: &str| ("250 OK\r\n".to_owned(), asked.to_owned());
    assert_eq!(
        order("EXTENDCIRCUIT 0 $AA~x,b purpose=controller"),
        (
            "250 EXTENDED 6\r\n".to_owned(),
            "NewCircuit { path: [\"$AA~x\", \"b\"], controller: true }".to_owned()
        )
    );
    assert_eq!(order("EXTENDCIRCUIT 0").0, "250 EXTENDED 6\r\n");
    assert_eq!(
        order("EXTENDCIRCUIT 0 purpose=general").0,
        "250 EXTENDED 6\r\n"
    );
    assert_eq!(
        order("EXTENDCIRCUIT 0 $AA=old").1,
        "NewCircuit { path: [\"$AA=old\"], controller: false }"
    );
    assert_eq!(order("EXTENDCIRCUIT 4 a").0, "250 EXTENDED 4\r\n");
    assert_eq!(
        order("EXTENDCIRCUIT 4").0,
        "512 syntax error: path required.\r\n"
    );
    assert_eq!(
        order("EXTENDCIRCUIT x a").0,
        "552 Unknown circuit \"x\"\r\n"
    );
    assert_eq!(
        order("EXTENDCIRCUIT 0 nobody").0,
        "552 No such router \"nobody\"\r\n"
    );
    assert_eq!(
        order("EXTENDCIRCUIT 0 a purpose=x").0,
        "552 Unknown purpose \"x\"\r\n"
    );
    assert_eq!(
        order("EXTENDCIRCUIT").0,
        "512 Bad arguments to EXTENDCIRCUIT: Need at least 1 argument(s)\r\n"
    );
    assert_eq!(
        order("SETCIRCUITPURPOSE 4 purpose=controller"),
        done("SetPurpose { circuit: 4, controller: true }")
    );
    assert_eq!(order("SETCIRCUITPURPOSE 4").0, "552 No purpose given\r\n");
    assert_eq!(
        order("CLOSECIRCUIT 4 IfUnused"),
        done("CloseCircuit { circuit: 4, if_unused: true }")
    );
    assert_eq!(order("CLOSECIRCUIT 99").0, "552 Unknown circuit \"99\"\r\n");
    assert_eq!(
        order("ATTACHSTREAM 9 4 HOP=2"),
        done("AttachStream { stream: 9, circuit: Some(4), hop: Some(2) }")
    );
    assert_eq!(
        order("ATTACHSTREAM 9 0"),
        done("AttachStream { stream: 9, circuit: None, hop: None }")
    );
    assert_eq!(order("ATTACHSTREAM 9 4 HOP=x").0, "552 Bad value hop=x\r\n");
    assert!(order("ATTACHSTREAM 9").0.starts_with("512 "));
    assert_eq!(
        order("REDIRECTSTREAM 9 example.org 81"),
        done("RedirectStream { stream: 9, host: \"example.org\", port: Some(81) }")
    );
    assert_eq!(
        order("REDIRECTSTREAM 9 example.org 0").0,
        "512 Cannot parse port \"0\"\r\n"
    );
    assert_eq!(
        order("CLOSESTREAM 9 1"),
        done("CloseStream { stream: 9, reason: 1 }")
    );
    assert_eq!(
        order("CLOSESTREAM 9 x").0,
        "552 Unrecognized reason \"x\"\r\n"
    );
    assert_eq!(
        order("MAPADDRESS a=b.c .=d").0,
        "250-a=b.c\r\n250 x.virtual=d\r\n"
    );
    assert_eq!(
        order("MAPADDRESS a=b@c").0,
        "512 syntax error: invalid address 'b@c'\r\n"
    );
    assert!(
        order("MAPADDRESS")
            .0
            .starts_with("512 syntax error: not enough")
    );
    assert_eq!(order("SIGNAL newnym"), done("NewNym"));
    assert_eq!(
        order("SIGNAL frob").0,
        "552 Unrecognized signal code \"frob\"\r\n"
    );
    assert_eq!(order("FROB x").0, "510 Unrecognized command \"FROB\"\r\n");
    // Onion services are not here.
    for refused in [
        "ADD_ONION NEW:BEST Port=80",
        "HSFETCH aaaa",
        "ONION_CLIENT_AUTH_ADD aaaa x25519:b",
        "ONION_CLIENT_AUTH_REMOVE aaaa",
        "ONION_CLIENT_AUTH_VIEW",
    ] {
        let word = refused.split(' ').next().unwrap();
        let told = format!("551 {word} is not supported by this version of Weft\r\n");
        assert_eq!(order(refused), (told, String::new()));
    }
    assert_eq!(order("DEL_ONION x").0, "512 Malformed Onion Service id\r\n");
    assert_eq!(
        order(&format!("DEL_ONION {}", "a".repeat(56))).0,
        "552 Unknown Onion Service id\r\n"
    );
    assert_eq!(
        order("USEFEATURE verbose_names EXTENDED_EVENTS").0,
        "250 OK\r\n"
    );
    assert_eq!(
        order("USEFEATURE x").0,
        "552 Unrecognized feature \"x\"\r\n"
    );
}

#[test]
fn options_are_set_and_reset() {
    let fake = Fake::new("ControlPort 9051\n");
    let mut session = trusted(&fake);
    assert_eq!(
        say(&mut session, "SETCONF Nickname=\"me\" ContactInfo"),
        "250 OK\r\n"
    );
    let expected = "Set([(\"Nickname\", Some(\"me\")), (\"ContactInfo\", None)])";
    assert_eq!(fake.asked(), [expected]);
    assert_eq!(say(&mut session, "GETCONF Nickname"), "250 Nickname=me\r\n");
    assert_eq!(say(&mut session, "RESETCONF Nickname"), "250 OK\r\n");
    assert_eq!(fake.asked(), ["Reset([(\"Nickname\", None)])"]);
    assert!(say(&mut session, "SETCONF Frob=1").starts_with("552 Unrecognized option"));
    assert!(say(&mut session, "SETCONF A=\"x").starts_with("512 "));
    assert_eq!(say(&mut session, "SAVECONF FORCE"), "250 OK\r\n");
    assert_eq!(fake.asked().pop().unwrap(), "Save { force: true }");
}

#[test]
fn events_come_to_those_who_want_them() {
    let fake = Fake::new("ControlPort 9051\n");
    let mut session = trusted(&fake);
    let circuit = Event::Circuit(Fake::circuit(4, "BUILT"), String::new());
    assert_eq!(session.event(&circuit, ""), None);
    assert_eq!(
        say(&mut session, "SETEVENTS CIRC stream EXTENDED"),
        "250 OK\r\n"
    );
    assert!(
        session
            .event(&circuit, "")
            .unwrap()
            .starts_with("650 CIRC 4 BUILT $AA")
    );
    assert!(session.event(&Event::Bandwidth(1, 2), "").is_none());
    let stream = Event::Stream(
        Fake::stream(9, "FAILED"),
        " REASON=END REMOTE_REASON=DONE".to_owned(),
    );
    let line = session.event(&stream, "").unwrap();
    assert!(
        line.starts_with(
            "650 STREAM 9 FAILED 4 example.com:80 REASON=END REMOTE_REASON=DONE CLIENT"
        )
    );
    assert_eq!(
        say(&mut session, "SETEVENTS CIRC x"),
        "552 Unrecognized event \"x\"\r\n"
    );
    assert!(session.event(&circuit, "").is_some(), "nothing changed");
    assert_eq!(say(&mut session, "SETEVENTS"), "250 OK\r\n");
    assert!(session.event(&circuit, "").is_none());
    assert_eq!(
        say(&mut session, "RESOLVE a.b mode=reverse"),
        "512 syntax error: invalid address 'a.b'\r\n"
    );
    assert_eq!(say(&mut session, "RESOLVE example.com"), "250 OK\r\n");
    assert_eq!(session.take_look_ups(), [("example.com".to_owned(), None)]);
}

/// Starts a server, and connects it to a listener's clients until `until` returns.
fn serve<T>(fake: &Fake, until: impl FnOnce(u16) -> T) -> T {
    let clock = Arc::new(SystemClock::default());
    let mut server = ControlServer::start(fake.clone(), shared(), async {}, clock).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let accept = std::thread::spawn(move || {
        while let Ok((socket, from)) = listener.accept() {
            socket.set_nonblocking(true).unwrap();
            let mut bye = [0; 4];
            // The test's own last connection ends this.
            if socket.peek(&mut bye).is_ok() && &bye == b"BYE\n" {
                return;
            }
            assert!(server.serve(ControlSocket::Tcp(socket, from.ip()), Instant::now()));
        }
    });
    let result = until(port);
    {
        use std::io::Write as _;
        let listener_gone = std::net::TcpStream::connect(("127.0.0.1", port));
        if let Ok(mut last) = listener_gone {
            let _ = last.write_all(b"BYE\n");
        }
    }
    drop(accept);
    result
}

#[test]
fn a_controller_talks_over_a_socket() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let fake = Fake::new("ControlPort 9051\n");
    serve(&fake, |port| {
        let mut socket = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut reader = BufReader::new(socket.try_clone().unwrap());
        let mut line = || {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        socket
            .write_all(b"AUTHENTICATE\r\nSETEVENTS SIGNAL ADDRMAP\r\nSIGNAL NEWNYM\r\n")
            .unwrap();
        assert_eq!([line(), line(), line()], ["250 OK"; 3]);
        assert_eq!(line(), "650 SIGNAL NEWNYM");
        socket
            .write_all(b"RESOLVE example.com nowhere\r\n")
            .unwrap();
        assert_eq!(line(), "250 OK");
        let mut maps = [line(), line()];
        maps.sort();
        assert!(
            maps[0].starts_with("650 ADDRMAP example.com 1.2.3.4 \""),
            "{maps:?}"
        );
        assert!(
            maps[1].starts_with("650 ADDRMAP nowhere <error> \""),
            "{maps:?}"
        );
        assert!(maps[1].contains("error=yes"), "{maps:?}");
        socket.write_all(b"TAKEOWNERSHIP\r\nQUIT\r\n").unwrap();
        assert_eq!([line(), line()], ["250 OK", "250 closing connection"]);
        assert_eq!(line(), "");
        // The owner is gone: the node is told to end.
        let mut events = fake.events.subscribe();
        if !fake.asked().contains(&"Halt".to_owned()) {
            let told = run(events.recv()).unwrap();
            assert!(matches!(told, Event::Signal("HALT")));
        }
    });
}

/// Stem, the library that most controllers are written with. The module's name marks the tests that need
/// it, for `cargo xtask test`, which installs it.
mod with_stem {
    use super::*;

    const PROGRAM: &str = r#"
import os, sys
from stem.control import Controller, EventType
port, password = int(sys.argv[1]), sys.argv[2]
with Controller.from_port(port=port) as c:
    c.authenticate(password)
    assert str(c.get_version()).startswith('0.4.9.11'), c.get_version()
    assert c.get_protocolinfo().protocol_version == 1
    circuits = c.get_circuits()
    assert [x.id for x in circuits] == ['4', '5'], circuits
    assert circuits[0].status == 'BUILT' and circuits[0].path[0][1] == 'guard', circuits[0].path
    streams = c.get_streams()
    assert streams[0].target == 'example.com:80' and streams[0].circ_id == '4', streams[0]
    assert c.get_info('status/bootstrap-phase').endswith('SUMMARY="Done"')
    assert c.get_listeners('SOCKS') == [('127.0.0.1', 9050)], c.get_listeners('SOCKS')
    assert c.get_conf('SafeSocks') == '0'
    c.set_conf('Nickname', 'stem')
    assert c.get_conf('Nickname') == 'stem'
    c.reset_conf('Nickname')
    assert c.new_circuit() == '6'
    assert c.extend_circuit('0', ['guard', 'exit']) == '6'
    c.close_circuit('4')
    c.attach_stream('9', '4')
    c.close_stream('9')
    assert c.map_address({'a.b': 'c.d'}) == {'a.b': 'c.d'}
    assert [r.nickname for r in c.get_network_statuses()] == ['guard']
    assert c.get_network_status('AA' * 20).nickname == 'guard'
    assert int(c.get_info('traffic/read')) == 1000
    assert c.is_user_traffic_allowed() is not None
    assert c.get_pid() == os.getppid(), c.get_pid()
    assert c.get_uptime() > 9, c.get_uptime()
    assert c.get_user() is not None
    assert c.is_alive() and c.is_authenticated()
    import queue
    got = queue.Queue()
    c.add_event_listener(got.put, EventType.SIGNAL)
    c.signal('NEWNYM')
    assert got.get(timeout=30).signal == 'NEWNYM'
    c.enable_feature('VERBOSE_NAMES')
    c.save_conf()
print('stem is content')
"#;

    #[test]
    fn a_controller_finds_what_it_expects() {
        let Some(python) = std::env::var_os("WEFT_STEM_PYTHON") else {
            weft_testing::not_run!(
                "WEFT_STEM_PYTHON names no Python that has Stem; `cargo xtask test --only stem` makes one"
            );
            return;
        };
        let hash = hash_password(b"pass word", [3; 8]);
        let fake = Fake::new(&format!("ControlPort 9051\nHashedControlPassword {hash}\n"));
        serve(&fake, |port| {
            let output = Process::new(&python)
                .args(["-c", PROGRAM, &port.to_string(), "pass word"])
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            assert!(text.contains("stem is content"), "{text}");
        });
    }
}
