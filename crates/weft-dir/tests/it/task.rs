//! The directory task before a made-up authority, on a clock that the test moves.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::testing::{self, TestAuthority, TestConsensus, now, secs};
use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_dir::authority::Authority;
use weft_dir::bandwidth::Totals;
use weft_dir::cache;
use weft_dir::circuits::{AnswerFuture, CircuitRequest, Circuits, NoCircuits};
use weft_dir::clock::ManualClock;
use weft_dir::command::{Command, DirectoryOptions, Event, Severity, UploadOutcome};
use weft_dir::diff_maker::NoDiffs;
use weft_dir::task::{Config, DirectoryTask};

/// The authority's whole answer to a request line.
type Answers = Box<dyn FnMut(&str) -> Vec<u8> + Send>;

/// An HTTP server on loopback that sends the answers that it was given and keeps the requests.
struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(mut answers: Answers) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        // Ends with the test's process; a listener cannot be stopped otherwise.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut bytes = Vec::new();
                let mut chunk = [0; 4096];
                while !complete(&bytes) {
                    match stream.read(&mut chunk) {
                        Ok(read) if read > 0 => bytes.extend(&chunk[..read]),
                        _ => break,
                    }
                }
                let text = String::from_utf8(bytes).unwrap();
                let line = text.lines().next().unwrap_or_default().to_string();
                let answer = answers(&line);
                seen.lock().unwrap().push(text);
                let _ = stream.write_all(&answer);
            }
        });
        Self { address, requests }
    }

    /// Number of requests that began with `request`.
    fn asked(&self, request: &str) -> usize {
        let requests = self.requests.lock().unwrap();
        requests
            .iter()
            .filter(|text| text.starts_with(request))
            .count()
    }

    /// Bodies of the descriptors that were posted.
    fn posted(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests
            .iter()
            .filter(|text| text.starts_with("POST"))
            .cloned()
            .collect()
    }
}

/// True if a whole request has arrived.
fn complete(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}

/// A well-formed answer.
fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.0 {status}\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A directory task and its clock.
struct Node {
    clock: Arc<ManualClock>,
    commands: tokio::sync::mpsc::Sender<Command>,
    events: mpsc::Receiver<Event>,
    thread: std::thread::JoinHandle<()>,
}

impl Node {
    fn start(options: DirectoryOptions) -> Self {
        Self::with_circuits(options, Arc::new(NoCircuits))
    }

    fn with_circuits(options: DirectoryOptions, circuits: Arc<dyn Circuits>) -> Self {
        let clock = Arc::new(ManualClock::new(now()));
        let (commands, receiver) = tokio::sync::mpsc::channel(64);
        let (sender, events) = mpsc::channel();
        let sink = Box::new(move |event| {
            let _ = sender.send(event);
        });
        let task = DirectoryTask::new(
            Config {
                options,
                state: Vec::new(),
                seed: [1; 32],
                circuits,
            },
            Box::new(NoDiffs),
            clock.clone(),
            sink,
        );
        let thread = std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap()
                .block_on(task.run(receiver));
        });
        Self {
            clock,
            commands,
            events,
            thread,
        }
    }

    fn send(&self, command: Command) {
        self.commands.blocking_send(command).unwrap();
    }

    /// Moves the clock, a tenth of a second at a time, until an event that `pick` wants.
    fn until<T>(&self, what: &str, pick: impl Fn(Event) -> Option<T>) -> T {
        let mut seen = Vec::new();
        for _ in 0..60_000 {
            match self.events.recv_timeout(Duration::from_millis(2)) {
                Ok(event) => {
                    seen.push(format!("{event:?}"));
                    if let Some(picked) = pick(event) {
                        return picked;
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    self.clock.advance(Duration::from_millis(100))
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        panic!("waited in vain for {what}: {seen:#?}");
    }

    fn shutdown(self) -> Vec<Event> {
        self.send(Command::Shutdown);
        self.thread.join().unwrap();
        self.events.try_iter().collect()
    }
}

/// A network of one authority that serves a consensus from the third request on.
fn network(
    directory: &std::path::Path,
    upload: fn(usize) -> Vec<u8>,
) -> (Server, DirectoryOptions) {
    let authority = TestAuthority::new(1);
    let mut asked = 0;
    let mut uploads = 0;
    let text = TestConsensus {
        relays: vec![(testing::relay(1).rsa_id(), "Fast Running Valid")],
        ..TestConsensus::default()
    }
    .signed_by(&[&authority]);
    let cert = authority.cert.clone();
    let server = Server::start(Box::new(move |line| {
        if line.starts_with("POST /tor/ ") {
            uploads += 1;
            upload(uploads)
        } else if line.starts_with("GET /tor/keys/fp-sk/") {
            answer("200 OK", "", &cert)
        } else if line.starts_with("GET /tor/status-vote/current/consensus-microdesc/") {
            asked += 1;
            if asked < 3 {
                answer("404 Not found", "", "")
            } else {
                answer("200 OK", "", &text)
            }
        } else {
            answer("400 Bad request", "", "")
        }
    }));
    let options = DirectoryOptions {
        // The clock of the test outruns real connections.
        max_stall: secs(86_400),
        ..DirectoryOptions::new(
            vec![authority.configured(server.address)],
            directory.to_path_buf(),
            true,
        )
    };
    (server, options)
}

#[test]
fn from_nothing_to_published_and_listed() {
    let directory = tempfile::tempdir().unwrap();
    let (server, options) = network(directory.path(), |_| answer("200 Fine", "", ""));
    let node = Node::start(options);
    node.send(Command::Descriptor(Box::new(testing::relay(1))));

    let consensus = node.until("a consensus", |event| match event {
        Event::Consensus(consensus) => Some(consensus),
        Event::Message(severity, text) => {
            assert!(
                severity < Severity::Notice,
                "a young network is no reason to worry: {text}"
            );
            None
        }
        _ => None,
    });
    assert_eq!(consensus.params.circwindow, 500);
    assert!(
        node.until("being listed", |event| match event {
            Event::Listed(flags) => Some(flags),
            _ => None,
        })
        .is_some()
    );
    assert!(
        cache::read(directory.path(), cache::CONSENSUS)
            .unwrap()
            .is_some()
    );
    assert!(
        cache::read(directory.path(), cache::CERTS)
            .unwrap()
            .is_some()
    );

    // Nothing is published before somebody found the ORPort reachable.
    node.clock.advance(secs(30));
    assert!(server.posted().is_empty());
    node.send(Command::Reachable {
        ipv4: true,
        ipv6: true,
    });
    let (accepted, of, reason) = node.until("publication", |event| match event {
        Event::Published {
            accepted,
            of,
            reason,
            ..
        } => Some((accepted, of, reason)),
        _ => None,
    });
    assert_eq!((accepted, of, reason), (1, 1, "initialized"));
    node.until("the end of the start", |event| match event {
        Event::Bootstrap { percent: 100, .. } => Some(()),
        _ => None,
    });
    let posted = server.posted();
    assert!(
        posted[0].contains("\nrouter-signature\n") && posted[0].contains("\nextra-info weft1 ")
    );

    // An unchanged descriptor is not published again, a changed one is.
    node.send(Command::Descriptor(Box::new(testing::relay(1))));
    let mut changed = testing::relay(1);
    changed.contact = Some("me".into());
    node.send(Command::Descriptor(Box::new(changed)));
    let reason = node.until("publication", |event| match event {
        Event::Published { reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(reason, "config change");
    assert_eq!(server.posted().len(), 2);
    assert!(server.posted()[1].contains("\ncontact me\n"));

    let last = node.shutdown();
    assert!(matches!(last.last(), Some(Event::State(_))), "{last:?}");
}

/// A relay accepts connections then: who comes earlier is taken for no relay.
#[test]
fn that_the_cache_was_read_comes_after_its_consensus_and_before_any_other() {
    let before_the_cache = |node: &Node| {
        let before = Cell::new(None);
        node.until("the cache to be read", |event| match event {
            Event::Consensus(consensus) => {
                before.set(Some(consensus.valid_after));
                None
            }
            Event::CacheRead => Some(()),
            _ => None,
        });
        before.get()
    };
    let cache = tempfile::tempdir().unwrap();
    let (node, _server) = bridge(cache.path(), FakeCircuits::new(|_, _| Ok(Vec::new())));
    assert_eq!(before_the_cache(&node), Some(now()));
    node.shutdown();

    let empty = tempfile::tempdir().unwrap();
    let (_server, options) = network(empty.path(), |_| answer("200 Fine", "", ""));
    let node = Node::start(options);
    assert_eq!(before_the_cache(&node), None);
    node.shutdown();
}

#[test]
fn bandwidth_reaches_the_descriptor() {
    let directory = tempfile::tempdir().unwrap();
    let (server, options) = network(directory.path(), |_| answer("200 Fine", "", ""));
    let node = Node::start(DirectoryOptions {
        assume_reachable: true,
        ..options
    });
    node.send(Command::Descriptor(Box::new(testing::relay(1))));
    node.until("publication", |event| match event {
        Event::Published { observed, .. } => (observed == 0).then_some(()),
        _ => None,
    });
    for second in 0..=20 {
        node.clock.advance(secs(1));
        let bytes = 3000 * second;
        node.send(Command::Bandwidth(Totals {
            read: bytes,
            written: bytes,
            ..Totals::default()
        }));
        // Each report must be taken at its own second.
        while node.commands.capacity() < node.commands.max_capacity() {
            std::thread::yield_now();
        }
    }
    let (reason, observed) = node.until("publication", |event| match event {
        Event::Published {
            reason, observed, ..
        } => Some((reason, observed)),
        _ => None,
    });
    assert_eq!(reason, "bandwidth has changed");
    assert!((300..=3300).contains(&observed), "{observed}");
    let published = format!(" {observed}\n");
    let posted = server.posted();
    assert!(posted.iter().any(|posted| posted.contains(&published)));
    node.shutdown();
}

#[test]
fn an_upload_that_failed_is_repeated_and_a_refusal_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let (server, options) = network(directory.path(), |uploads| match uploads {
        1 => Vec::new(),
        2 => answer("503 Busy", "", ""),
        _ => answer("400 Fingerprint is marked rejected", "", ""),
    });
    let node = Node::start(DirectoryOptions {
        assume_reachable: true,
        ..options
    });
    node.send(Command::Descriptor(Box::new(testing::relay(1))));
    let outcome = || {
        node.until("an answer", |event| match event {
            Event::Uploaded { outcome, authority } => {
                assert_eq!(authority, "auth");
                Some(outcome)
            }
            _ => None,
        })
    };
    assert!(matches!(outcome(), UploadOutcome::Failed(_)));
    assert_eq!(outcome(), UploadOutcome::Failed("status 503 (Busy)".into()));
    assert_eq!(
        outcome(),
        UploadOutcome::Refused("Fingerprint is marked rejected".into())
    );
    node.clock.advance(secs(3600));
    let last = node.shutdown();
    assert!(
        !last
            .iter()
            .any(|event| matches!(event, Event::Uploaded { .. })),
        "{last:?}"
    );
    assert_eq!(server.posted().len(), 3);
}

#[test]
fn a_directory_with_another_time_is_reported_once() {
    let directory = tempfile::tempdir().unwrap();
    let authority = TestAuthority::new(1);
    // Two hours behind `now()`.
    let server = Server::start(Box::new(|_| {
        answer(
            "404 Not found",
            "Date: Fri, 20 Nov 2026 23:00:00 GMT\r\nX-Your-Address-Is: 192.0.2.7\r\n",
            "",
        )
    }));
    let options = DirectoryOptions {
        max_stall: secs(86_400),
        ..DirectoryOptions::new(
            vec![authority.configured(server.address)],
            directory.path().to_path_buf(),
            true,
        )
    };
    let node = Node::start(options);
    let seconds = node.until("a warning", |event| match event {
        Event::ClockSkew { seconds, .. } => Some(seconds),
        Event::AddressSuggested { address, .. } => {
            assert_eq!(address.to_string(), "192.0.2.7");
            None
        }
        _ => None,
    });
    assert!((7200..7500).contains(&seconds), "{seconds}");
    for _ in 0..3 {
        node.until("another answer", |event| match event {
            Event::ClockSkew { .. } => panic!("reported again"),
            Event::AddressSuggested { .. } => Some(()),
            _ => None,
        });
    }
    node.shutdown();
}

#[test]
fn what_cannot_be_written_or_signed_is_reported_and_survived() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let (_server, options) = network(&file, |_| answer("200 Fine", "", ""));
    let node = Node::start(DirectoryOptions {
        assume_reachable: true,
        ..options
    });
    let mut broken = testing::relay(1);
    broken.nickname = "no nickname".into();
    node.send(Command::Descriptor(Box::new(broken)));
    let warning = |about: &'static str| {
        node.until(about, |event| match event {
            Event::Message(Severity::Warn, text) if text.contains(about) => Some(()),
            _ => None,
        });
    };
    warning("no nickname");
    warning(cache::CERTS);
    node.send(Command::Descriptor(Box::new(testing::relay(1))));
    node.until("publication", |event| match event {
        Event::Published { .. } => Some(()),
        _ => None,
    });
    node.shutdown();
}

/// C tor's authorities keep the descriptor that they have of two of the same second, and
/// another program may have published one with our keys a moment ago.
#[test]
fn a_descriptor_that_another_of_the_same_second_overtook_is_published_again() {
    let directory = tempfile::tempdir().unwrap();
    let authority = TestAuthority::new(1);
    let before = testing::relay(1);
    let held = before
        .sign(&weft_dir::descriptor::Moment {
            published: now() + secs(60),
            ..testing::moment()
        })
        .unwrap();
    let id = hex::encode_upper(before.rsa_id().as_bytes());
    let server = Server::start(Box::new(move |line| {
        let of_the_first = format!("GET /tor/server/fp/{id} ");
        if line.starts_with(&of_the_first) {
            answer("200 OK", "", &held.router)
        } else if line.starts_with("POST /tor/ ") {
            answer("200 OK", "X-Descriptor-Not-New: Yes\r\n", "")
        } else {
            answer("404 Not found", "", "")
        }
    }));
    let options = DirectoryOptions {
        max_stall: secs(86_400),
        assume_reachable: true,
        ..DirectoryOptions::new(
            vec![authority.configured(server.address)],
            directory.path().to_path_buf(),
            true,
        )
    };
    let node = Node::start(options);
    let mut own = testing::relay(1);
    own.contact = Some("me".into());
    node.send(Command::Descriptor(Box::new(own)));
    // The clock stands until the task has it.
    while node.commands.capacity() < node.commands.max_capacity() {
        std::thread::yield_now();
    }
    let outcome = || {
        node.until("an answer", |event| match event {
            Event::Uploaded { outcome, .. } => Some(outcome),
            _ => None,
        })
    };
    assert_eq!(outcome(), UploadOutcome::Overtaken(now() + secs(60)));
    // The next one is newer than what the authority has, so that is the same or older.
    assert_eq!(outcome(), UploadOutcome::NotNew);
    let posted = server.posted();
    let published = |text: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("published "));
        line.unwrap().to_string()
    };
    assert_eq!(posted.len(), 2);
    assert!(published(&posted[0]).as_str() <= "2026-11-21 01:01:00");
    assert!(published(&posted[1]).as_str() > "2026-11-21 01:01:00");
    node.shutdown();
}

/// A directory's answer to a request line, by the relays of the circuit.
type ByCircuit = Box<dyn Fn(&[RsaIdentity], &str) -> std::io::Result<Vec<u8>> + Send + Sync>;

/// Circuits to directories whose answers the test chooses; the requests are kept.
struct FakeCircuits {
    asked: Mutex<Vec<(Vec<RsaIdentity>, String)>>,
    answers: ByCircuit,
}

impl FakeCircuits {
    fn new(
        answers: impl Fn(&[RsaIdentity], &str) -> std::io::Result<Vec<u8>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            asked: Mutex::default(),
            answers: Box::new(answers),
        })
    }

    /// The paths of requests that begin so.
    fn paths(&self, of: &str) -> Vec<Vec<RsaIdentity>> {
        let asked = self.asked.lock().unwrap();
        let asked = asked.iter().filter(|(_, line)| line.starts_with(of));
        asked.map(|(path, _)| path.clone()).collect()
    }

    /// The directories that were asked.
    fn directories(&self) -> BTreeSet<RsaIdentity> {
        let paths = self.paths("GET");
        paths.iter().map(|path| path[0]).collect()
    }
}

impl Circuits for FakeCircuits {
    fn ask(&self, request: CircuitRequest) -> AnswerFuture {
        let path: Vec<RsaIdentity> = request.path.iter().map(|hop| hop.rsa).collect();
        let text = String::from_utf8(request.request).unwrap();
        let line = text.lines().next().unwrap_or_default().to_string();
        let answer = (self.answers)(&path, &line);
        self.asked.lock().unwrap().push((path, line));
        Box::pin(async { answer })
    }
}

/// The authority of bridges, which the consensus lists.
const OF_BRIDGES: [u8; 20] = [7; 20];
const NETWORK: [[u8; 20]; 5] = [[1; 20], [2; 20], [3; 20], [4; 20], OF_BRIDGES];
const CONSENSUS: &str = "GET /tor/status-vote/current/consensus-microdesc/";

/// A consensus of that many minutes after the first.
fn minutes_later(minutes: u64) -> String {
    let directory = "Fast Guard Running V2Dir Valid";
    let mut relays: Vec<(RsaIdentity, &str)> =
        (1..=4).map(|id| ([id; 20].into(), directory)).collect();
    relays.push((OF_BRIDGES.into(), "Authority Running Valid"));
    TestConsensus {
        valid_after: now() - secs(60) + secs(60 * minutes),
        interval: 60,
        relays,
        ..TestConsensus::default()
    }
    .signed_by(&[&TestAuthority::new(1)])
}

/// The answer of a directory that has this consensus.
fn directory(line: &str, consensus: &str) -> Vec<u8> {
    if line.starts_with(CONSENSUS) {
        answer("200 OK", "", consensus)
    } else if line.starts_with("GET /tor/keys/fp-sk/") {
        answer("200 OK", "", &TestAuthority::new(1).cert)
    } else if line.starts_with("GET /tor/micro/d/") {
        let all = NETWORK.map(|id| testing::microdesc(&id.into()));
        answer("200 OK", "", &all.concat())
    } else if line.starts_with("POST /tor/ ") {
        answer("200 OK", "", "")
    } else {
        answer("404 Not found", "", "")
    }
}

/// A bridge with these circuits, which knows its address, and a network from its cache; the authority, which has the next
/// consensus.
fn bridge(cache: &std::path::Path, circuits: Arc<FakeCircuits>) -> (Node, Server) {
    bridge_that_knows(cache, circuits, &minutes_later(1), NETWORK.len())
}

/// A bridge whose cache has this consensus and the first `known` microdescriptors.
fn bridge_that_knows(
    cache: &std::path::Path,
    circuits: Arc<FakeCircuits>,
    consensus: &str,
    known: usize,
) -> (Node, Server) {
    let authority = TestAuthority::new(1);
    let write = |name, text: &str| cache::write(cache, name, text).unwrap();
    write(cache::CONSENSUS, consensus);
    write(cache::CERTS, &authority.cert);
    let microdescs = NETWORK.map(|id| testing::microdesc(&id.into()));
    let listed = microdescs.map(|text| format!("@last-listed 2026-11-21 01:00:00\n{text}"));
    write(cache::MICRODESCS, &listed[..known].concat());
    let server = Server::start(Box::new(|line| directory(line, &minutes_later(2))));
    let of_bridges = Authority {
        nickname: "bauth".to_owned(),
        identity: OF_BRIDGES.into(),
        v3_ident: None,
        bridge: true,
        ..authority.configured(server.address)
    };
    let options = DirectoryOptions {
        max_stall: secs(86_400),
        bridge: true,
        dir_cache: true,
        ..DirectoryOptions::new(
            vec![authority.configured(server.address), of_bridges],
            cache.to_path_buf(),
            true,
        )
    };
    let node = Node::with_circuits(options, circuits);
    node.send(Command::Descriptor(Box::new(testing::relay(9))));
    node.send(Command::Reachable {
        ipv4: true,
        ipv6: true,
    });
    // The clock stands until the task knows all that.
    while node.commands.capacity() < node.commands.max_capacity() {
        std::thread::yield_now();
    }
    (node, server)
}

/// True if this is the consensus after the cached one.
fn is_next(event: &Event) -> bool {
    matches!(event, Event::Consensus(consensus) if consensus.valid_after == now() + secs(60))
}

#[test]
fn a_bridge_asks_its_guard_and_uploads_over_three_hops() {
    let cache = tempfile::tempdir().unwrap();
    let circuits = FakeCircuits::new(|_, line| Ok(directory(line, &minutes_later(2))));
    let (node, server) = bridge(cache.path(), circuits.clone());
    let (published, consensus) = (Cell::new(false), Cell::new(false));
    node.until("publication and the next consensus", |event| {
        published.set(published.get() || matches!(event, Event::Published { accepted: 1, .. }));
        consensus.set(consensus.get() || is_next(&event));
        (published.get() && consensus.get()).then_some(())
    });
    assert_eq!(server.asked(""), 0);
    let uploads = circuits.paths("POST");
    let [guard, middle, last] = uploads[0][..] else {
        panic!("{uploads:?}");
    };
    assert_eq!(last, OF_BRIDGES.into());
    assert!(guard != middle && middle != last);
    // Also of the flavour that it keeps for its clients.
    let asked = circuits.paths("GET /tor/status-vote");
    assert!(!asked.is_empty() && asked.iter().all(|path| path.len() == 1));
    assert!(circuits.directories().contains(&guard));
    node.shutdown();
}

#[test]
fn a_bridge_whose_directories_fail_asks_few_others_and_no_authority() {
    let cache = tempfile::tempdir().unwrap();
    let circuits = FakeCircuits::new(|_, _| Err(std::io::Error::other("it is down")));
    let (node, server) = bridge(cache.path(), circuits.clone());
    let down = UploadOutcome::Failed("cannot ask over a circuit: it is down".to_owned());
    let failed = Cell::new(false);
    node.until(
        "failures of three directories, and of them again",
        |event| {
            failed.set(
                failed.get()
                    || matches!(&event, Event::Uploaded { outcome, .. } if *outcome == down),
            );
            let rounds = circuits.paths("GET").len() >= 40;
            (failed.get() && rounds).then_some(())
        },
    );
    // However much fails, no more than these see the bridge.
    assert_eq!(circuits.directories().len(), 3);
    assert_eq!(server.asked("GET"), 0);
    let last = node.shutdown();
    let Some(Event::State(lines)) = last.last() else {
        panic!("{last:?}");
    };
    let (_, guards) = lines.iter().find(|(key, _)| key == "BridgeGuards").unwrap();
    let guards = guards
        .split(',')
        .map(|id| RsaIdentity::from_hex(id).unwrap());
    assert_eq!(guards.collect::<BTreeSet<_>>(), circuits.directories());
}

#[test]
fn a_directory_that_keeps_everything_to_itself_is_followed_by_another() {
    let cache = tempfile::tempdir().unwrap();
    let first = Arc::new(Mutex::new(None));
    let circuits = FakeCircuits::new(move |path, line| {
        let mut first = first.lock().unwrap();
        let is_first = *first.get_or_insert(path[0]) == path[0];
        // Its consensus is never newer than the bridge's.
        let minutes = if is_first { 1 } else { 2 };
        Ok(directory(line, &minutes_later(minutes)))
    });
    let (node, server) = bridge(cache.path(), circuits.clone());
    node.until("the next consensus", |event| is_next(&event).then_some(()));
    assert_eq!(server.asked(CONSENSUS), 0);
    assert!(circuits.directories().len() > 1);
    node.shutdown();
}

#[test]
fn an_authority_is_asked_without_a_circuit_while_the_network_is_not_known() {
    let long_past = TestConsensus {
        valid_after: now() - secs(2 * 86_400),
        relays: NETWORK
            .map(|id| (id.into(), "Fast Guard Running V2Dir Valid"))
            .to_vec(),
        ..TestConsensus::default()
    }
    .signed_by(&[&TestAuthority::new(1)]);
    // A consensus that is long past, or too few of its relays.
    for (consensus, known, asked) in [
        (long_past, NETWORK.len(), CONSENSUS),
        (minutes_later(1), 2, "GET /tor/micro/d/"),
    ] {
        let cache = tempfile::tempdir().unwrap();
        let circuits = FakeCircuits::new(|_, line| Ok(directory(line, &minutes_later(2))));
        let (node, server) = bridge_that_knows(cache.path(), circuits, &consensus, known);
        node.until("the next consensus", |event| is_next(&event).then_some(()));
        assert!(server.asked(asked) > 0);
        // The descriptor waits for a circuit.
        assert!(server.posted().is_empty());
        node.shutdown();
    }
}
