//! A client's directory before made-up directories, on a clock that the test moves.

use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use crate::testing::{TestAuthority, TestConsensus, microdesc, now, secs};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_dir::cache;
use weft_dir::client::{
    ClientDirectory, ClientHandle, ClientOptions, DirConnection, DirOutcome, DirServer, DirSource,
    DirStreams, Network, OpenFuture,
};
use weft_dir::clock::{Clock, ManualClock};
use weft_dir::command::{Event, Severity};
use weft_dir::microdesc;

/// Longest wait for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(120);

/// A directory's reaction to a request.
enum Reply {
    /// Answers so.
    Answer(Vec<u8>),
    /// Cannot be reached.
    Unreachable,
    /// Is never reached.
    Hangs,
}

/// Reactions of directories to requests, by the directory's name and the path.
type Script = Box<dyn FnMut(&str, &str) -> Reply + Send>;

/// Directories that follow a script.
struct Directories {
    script: Mutex<Script>,
    /// Names and paths that were asked for, and how the client judged the answers.
    asked: Mutex<Vec<(String, String)>>,
    outcomes: Mutex<Vec<DirOutcome>>,
}

impl Directories {
    fn new(script: impl FnMut(&str, &str) -> Reply + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(Box::new(script)),
            asked: Mutex::default(),
            outcomes: Mutex::default(),
        })
    }

    fn asked(&self, prefix: &str) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        let paths = asked.iter().filter(|(_, path)| path.starts_with(prefix));
        paths.map(|(name, _)| name.clone()).collect()
    }
}

/// Opens streams to [`Directories`].
struct Streams(Arc<Directories>);

impl DirStreams for Streams {
    fn open(&self, source: DirSource) -> OpenFuture<'_> {
        let directories = self.0.clone();
        Box::pin(async move {
            let name = match source {
                DirSource::Server(server) => server.nickname,
                DirSource::Guard => "guard".into(),
            };
            let reach = (directories.script.lock().unwrap())(&name, "");
            match reach {
                Reply::Unreachable => return Err(std::io::Error::other("nobody there")),
                Reply::Hangs => std::future::pending::<()>().await,
                Reply::Answer(_) => {}
            }
            let (ours, mut theirs) = tokio::io::duplex(1 << 16);
            let directory = name.clone();
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = theirs.read_u8().await else {
                        return;
                    };
                    request.push(byte);
                }
                let request = String::from_utf8(request).unwrap();
                assert!(
                    request.contains(
                        "Accept-Encoding: x-tor-lzma, x-zstd, deflate, gzip, identity\r\n"
                    ),
                    "{request}"
                );
                let path = request.split(' ').nth(1).unwrap().to_string();
                let reply = (directories.script.lock().unwrap())(&directory, &path);
                directories.asked.lock().unwrap().push((directory, path));
                if let Reply::Answer(bytes) = reply {
                    let _ = theirs.write_all(&bytes).await;
                }
            });
            Ok(DirConnection {
                io: Box::new(ours),
                name,
                token: 0,
            })
        })
    }

    fn outcome(&self, _token: u64, outcome: DirOutcome) {
        self.0.outcomes.lock().unwrap().push(outcome);
    }
}

/// A well-formed answer, compressed.
fn ok(body: &str) -> Reply {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(body.as_bytes()).unwrap();
    raw(&encoder.finish().unwrap())
}

/// An answer with this compressed body.
fn raw(body: &[u8]) -> Reply {
    let mut bytes = b"HTTP/1.0 200 OK\r\nContent-Encoding: deflate\r\n\r\n".to_vec();
    bytes.extend(body);
    Reply::Answer(bytes)
}

fn not_found() -> Reply {
    Reply::Answer(b"HTTP/1.0 404 Not found\r\n\r\n".to_vec())
}

/// A network of `relays` relays; every third is an exit, and one that is not a guard.
#[derive(Clone)]
struct World {
    authority: Arc<TestAuthority>,
    relays: Vec<(RsaIdentity, &'static str)>,
}

impl World {
    fn new(relays: u16) -> Self {
        let relays = (0..relays).map(|number| {
            let mut id = [1; 20];
            id[..2].copy_from_slice(&number.to_be_bytes());
            let flags = if number % 3 == 0 {
                "Exit Fast Running V2Dir Valid"
            } else {
                "Fast Guard Running Stable V2Dir Valid"
            };
            (id.into(), flags)
        });
        Self {
            authority: Arc::new(TestAuthority::new(1)),
            relays: relays.collect(),
        }
    }

    fn consensus(&self, valid_after: std::time::SystemTime) -> String {
        TestConsensus {
            valid_after,
            relays: self.relays.clone(),
            ..TestConsensus::default()
        }
        .signed_by(&[&self.authority])
    }

    /// All microdescriptors that `path` asks for.
    fn microdescs(&self, path: &str) -> String {
        assert!(path.split('-').count() <= 92, "{path}");
        let wanted = path.strip_prefix("/tor/micro/d/").unwrap();
        let texts = self.relays.iter().map(|(id, _)| microdesc(id));
        texts
            .filter(|text| {
                let digest = microdesc::split(text).next().unwrap().digest();
                let path = microdesc::path(&[digest]);
                let one = path.strip_prefix("/tor/micro/d/").unwrap();
                wanted.contains(one.strip_suffix(".z").unwrap())
            })
            .collect()
    }

    /// The reply of a good directory.
    fn good(&self, path: &str) -> Reply {
        if path.starts_with("/tor/status-vote/current/consensus-microdesc/") {
            ok(&self.consensus(now() - secs(60)))
        } else if path.starts_with("/tor/keys/fp") {
            ok(&self.authority.cert)
        } else if path.starts_with("/tor/micro/d/") {
            ok(&self.microdescs(path))
        } else {
            not_found()
        }
    }
}

/// Reports when the client's thread has nothing left to do before the clock moves.
#[derive(Default)]
struct Rest {
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Default, PartialEq)]
enum Stage {
    #[default]
    Busy,
    /// The last task of the queue has run: what follows is work that others made.
    Last,
    /// Every task waits for the clock or for the test.
    Waiting,
}

impl Rest {
    fn set(&self, stage: Stage) {
        *self.stage.lock().unwrap() = stage;
        self.changed.notify_all();
    }

    /// The runtime finds no task to run.
    fn nothing_to_do(&self) {
        let mut stage = self.stage.lock().unwrap();
        if *stage == Stage::Last {
            *stage = Stage::Waiting;
            self.changed.notify_all();
        }
    }

    /// Waits until everything has been done that can be done now.
    fn wait(self: &Arc<Self>, runtime: &tokio::runtime::Handle) {
        self.set(Stage::Busy);
        let rest = self.clone();
        // Behind whatever the clock has woken.
        runtime.spawn(async move { rest.set(Stage::Last) });
        let stage = self.stage.lock().unwrap();
        let stage = self
            .changed
            .wait_timeout_while(stage, PATIENCE, |stage| *stage != Stage::Waiting)
            .unwrap();
        assert!(!stage.1.timed_out(), "the client never rests");
    }
}

/// A client's directory on a separate thread.
struct Client {
    clock: Arc<ManualClock>,
    rest: Arc<Rest>,
    runtime: tokio::runtime::Handle,
    handle: ClientHandle,
    events: mpsc::Receiver<Event>,
    seen: Vec<Event>,
    thread: std::thread::JoinHandle<()>,
}

impl Client {
    fn start(world: &World, directory: Option<&Path>, directories: &Arc<Directories>) -> Self {
        Self::start_at(Duration::ZERO, world, directory, directories)
    }

    fn start_at(
        late: Duration,
        world: &World,
        directory: Option<&Path>,
        directories: &Arc<Directories>,
    ) -> Self {
        Self::start_with(late, Self::options(world, directory), directories)
    }

    fn options(world: &World, directory: Option<&Path>) -> ClientOptions {
        let server = |name: &str, authority| DirServer {
            nickname: name.into(),
            rsa: [3; 20].into(),
            ed25519: None,
            or_addrs: vec![],
            dir_addr: None,
            weight: if authority { 0.0 } else { 1.0 },
            authority,
        };
        ClientOptions {
            // The clock of the test outruns the directories.
            max_stall: secs(86_400),
            ..ClientOptions::new(
                vec![world.authority.configured("127.0.0.1:1".parse().unwrap())],
                vec![server("fallback", false), server("authority", true)],
                directory.map(Path::to_path_buf),
                true,
            )
        }
    }

    fn start_with(late: Duration, options: ClientOptions, directories: &Arc<Directories>) -> Self {
        let clock = Arc::new(ManualClock::new(now()));
        clock.advance(late);
        let (sender, events) = mpsc::channel();
        let (client, handle) = ClientDirectory::new(
            options,
            [1; 32],
            Arc::new(Streams(directories.clone())),
            clock.clone(),
            Box::new(move |event| {
                let _ = sender.send(event);
            }),
        );
        let rest = Arc::new(Rest::default());
        let idle = rest.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_park(move || idle.nothing_to_do())
            .build()
            .unwrap();
        let thread_runtime = runtime.handle().clone();
        // As a task it is in the queue like all others, and so seen by [`Rest`].
        let thread = std::thread::spawn(move || {
            runtime
                .block_on(async { tokio::spawn(client.run()).await })
                .unwrap();
        });
        Self {
            clock,
            rest,
            runtime: thread_runtime,
            handle,
            events,
            seen: Vec::new(),
            thread,
        }
    }

    /// Moves the clock, `step` at a time, until `done` is true. It stands still while anything is done.
    fn until(&mut self, what: &str, step: Duration, done: impl Fn(&Self) -> bool) {
        for _ in 0..20_000 {
            self.rest.wait(&self.runtime);
            self.seen.extend(self.events.try_iter());
            if done(self) {
                return;
            }
            self.clock.advance(step);
        }
        panic!("waited in vain for {what}: {:#?}", self.seen);
    }

    fn network(&self) -> Option<Arc<Network>> {
        self.handle.network().borrow().clone()
    }

    /// Waits for a network in which `relays` relays are usable.
    fn until_relays(&mut self, relays: usize) -> Arc<Network> {
        self.until("relays", secs(1), |client| {
            client
                .network()
                .is_some_and(|network| network.netdir.relays().count() == relays)
        });
        self.network().unwrap()
    }

    fn messages(&self, at_least: Severity) -> Vec<&str> {
        let messages = self.seen.iter().filter_map(|event| match event {
            Event::Message(severity, text) if *severity >= at_least => Some(text.as_str()),
            _ => None,
        });
        messages.collect()
    }

    fn percents(&self) -> Vec<(u8, &'static str)> {
        let phases = self.seen.iter().filter_map(|event| match event {
            Event::Bootstrap { percent, tag, .. } => Some((*percent, *tag)),
            _ => None,
        });
        phases.collect()
    }

    fn end(self) {
        drop(self.handle);
        self.thread.join().unwrap();
    }
}

#[test]
fn a_network_that_is_switched_off_asks_nobody() {
    let cache = tempfile::tempdir().unwrap();
    let world = World::new(30);
    let script = world.clone();
    let directories = Directories::new(move |_, path| script.good(path));
    let on = Client::options(&world, Some(cache.path()));
    let off = ClientOptions {
        disabled: true,
        ..on.clone()
    };
    let client = Client::start_with(Duration::ZERO, off.clone(), &directories);
    for _ in 0..100 {
        client.clock.advance(secs(3600));
        std::thread::yield_now();
    }
    // Orders are obeyed one after the other, so that a second look at the clock is over.
    assert!(client.handle.set_options(off));
    assert_eq!(directories.asked("/"), Vec::<String>::new());
    assert!(client.network().is_none());
    client.end();

    let mut client = Client::start_with(
        Duration::ZERO,
        ClientOptions {
            disabled: true,
            ..on.clone()
        },
        &directories,
    );
    assert!(client.handle.set_options(on));
    client.until_relays(30);
    assert_eq!(client.percents().first(), Some(&(25, "requesting_status")));
    client.end();
}

#[test]
fn from_nothing_to_a_network_and_from_the_cache_without_asking_anybody() {
    let cache = tempfile::tempdir().unwrap();
    let world = World::new(200);
    let script = world.clone();
    let directories = Directories::new(move |_, path| script.good(path));
    let mut client = Client::start(&world, Some(cache.path()), &directories);
    let network = client.until_relays(200);
    assert_eq!(network.netdir.lifetime().valid_after(), now() - secs(60));
    let phases = client.percents();
    for phase in [
        (25, "requesting_status"),
        (30, "loading_status"),
        (45, "requesting_descriptors"),
        (75, "enough_dirinfo"),
    ] {
        assert!(phases.contains(&phase), "{phase:?} in {phases:?}");
    }
    assert!(phases.is_sorted(), "{phases:?}");
    assert_eq!(client.messages(Severity::Notice), Vec::<&str>::new());
    assert_eq!(directories.asked("/tor/micro/d/").len(), 3);
    let guards = directories.asked("/tor/micro/d/");
    assert_eq!(guards, ["fallback"; 3], "authorities are the last resort");
    client.end();
    let outcomes = directories.outcomes.lock().unwrap().clone();
    assert_eq!(outcomes, [DirOutcome::Good; 5]);

    let nobody = Directories::new(|_, _| Reply::Unreachable);
    let mut client = Client::start(&world, Some(cache.path()), &nobody);
    client.until_relays(200);
    assert_eq!(client.percents(), [(75, "enough_dirinfo")]);
    client.end();
    for name in [cache::CONSENSUS, cache::CERTS, cache::MICRODESCS] {
        assert!(cache.path().join(name).metadata().unwrap().len() > 1000);
    }
}

#[test]
fn bad_consensuses_are_reported_and_cost_nothing_but_time() {
    let world = World::new(6);
    let stranger = World {
        authority: Arc::new(TestAuthority::new(2)),
        ..world.clone()
    };
    let script = world.clone();
    let mut count = 0;
    let directories = Directories::new(move |_, path| {
        if !path.starts_with("/tor/status-vote/") {
            return script.good(path);
        }
        count += 1;
        let good = script.consensus(now() - secs(60));
        match count {
            1 => ok(&stranger.consensus(now() - secs(60))),
            2 => ok(&good.replace("Bandwidth=100", "Bandwidth=900")),
            3 => ok(&script.consensus(now() - secs(40 * 86_400))),
            4 => ok(&script.consensus(now() + secs(40 * 86_400))),
            5 => ok(&good[..good.len() / 2]),
            6 => match ok(&good) {
                Reply::Answer(bytes) => Reply::Answer(bytes[..bytes.len() / 2].to_vec()),
                other => other,
            },
            7 => ok(&"a".repeat(40 << 20)),
            8 => Reply::Answer(b"HTTP/1.0 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_vec()),
            9 => ok("network-status-version 3\nvote-status consensus\n"),
            10 => Reply::Answer(b"HTTP/1.0 503 Directory busy, try again later\r\n\r\n".to_vec()),
            11 => Reply::Answer(b"SSH-2.0-OpenSSH\r\n\r\n".to_vec()),
            12 => Reply::Hangs,
            _ => ok(&good),
        }
    });
    let mut client = Client::start(&world, None, &directories);
    client.until_relays(6);
    let messages = client.messages(Severity::Info).join("\n");
    for words in [
        "signed by 0 of our 1 authorities",
        "do not verify",
        "ended",
        "our clock is slow",
        "malformed",
        "does not decompress",
        "decompressed body is larger than",
        "body is larger than",
        "another flavour",
        "503 (Directory busy, try again later)",
        "not HTTP",
        "cut off",
    ] {
        assert!(messages.contains(words), "{words:?} in {messages}");
    }
    let bad = directories.outcomes.lock().unwrap();
    let bad = bad.iter().filter(|outcome| **outcome == DirOutcome::Bad);
    assert_eq!(bad.count(), 12);
    client.end();
}

#[test]
fn a_directory_that_cannot_be_reached_or_hangs_is_passed_over() {
    for reply in [|| Reply::Unreachable, || Reply::Hangs] {
        let world = World::new(6);
        let script = world.clone();
        let directories = Directories::new(move |name, path| {
            if name == "fallback" {
                reply()
            } else {
                script.good(path)
            }
        });
        let mut client = Client::start(&world, None, &directories);
        client.until_relays(6);
        assert_eq!(directories.asked("/tor/status-vote/"), ["authority"]);
        client.end();
    }
}

#[test]
fn microdescriptors_that_nobody_asked_for_are_refused_and_few_are_not_enough() {
    let world = World::new(60);
    let script = world.clone();
    let mut count = 0;
    let directories = Directories::new(move |_, path| {
        if !path.starts_with("/tor/micro/d/") {
            return script.good(path);
        }
        count += 1;
        let good = script.microdescs(path);
        let pieces: Vec<&str> = microdesc::split(&good).map(|piece| piece.text).collect();
        match count {
            1 | 2 => ok(&good.replace("80,443", "1-65535")),
            3 | 4 => ok(&pieces[..4].concat()),
            5 | 6 => not_found(),
            _ => ok(&good),
        }
    });
    let mut client = Client::start(&world, None, &directories);
    client.until("half a network", Duration::ZERO, |client| {
        !client.messages(Severity::Warn).is_empty()
    });
    assert!(client.network().is_none());
    client.until_relays(60);
    let messages = client.messages(Severity::Info).join("\n");
    for words in [
        "sent none of the 32 microdescriptors that it was asked for, but 32 others",
        "We need more microdescriptors: we have 4/60, and can only build",
        "404 (Not found)",
    ] {
        assert!(messages.contains(words), "{words:?} in {messages}");
    }
    client.end();
}

#[test]
fn the_next_consensus_comes_from_guards_and_what_it_does_not_list_goes() {
    let old = World::new(9);
    let mut new = old.clone();
    new.relays.truncate(6);
    let (first, second) = (old.clone(), new.clone());
    let late = now() + secs(3600);
    let directories = Directories::new(move |name, path| match name {
        "guard" if path.starts_with("/tor/status-vote/") => ok(&second.consensus(late)),
        "guard" => second.good(path),
        _ => first.good(path),
    });
    let mut client = Client::start(&old, None, &directories);
    let before = client.until_relays(9);
    client.until("the next consensus", secs(60), |client| {
        client
            .network()
            .is_some_and(|network| network.consensus.valid_after == late)
    });
    let after = client.until_relays(6);
    let elapsed = client.clock.wall().duration_since(now()).unwrap();
    assert!(elapsed > secs(3540 + 2700) && elapsed < secs(3 * 3600 - 60));
    assert_eq!(
        directories.asked("/tor/status-vote/"),
        ["fallback", "guard"]
    );
    assert_eq!(directories.asked("/tor/micro/d/").len(), 1, "no new ones");
    assert_eq!(before.netdir.relays().count(), 9);
    assert_eq!(after.consensus.relays().count(), 6);
    client.end();
}

#[test]
fn a_network_that_grows_old_is_taken_back_and_comes_again() {
    let world = World::new(6);
    let script = world.clone();
    let back = Arc::new(Mutex::new(None));
    let returned = back.clone();
    let mut count = 0;
    let directories = Directories::new(move |_, path| {
        if !path.starts_with("/tor/status-vote/") {
            return script.good(path);
        }
        count += 1;
        let later: Option<std::time::SystemTime> = *returned.lock().unwrap();
        match (count, later) {
            (1, _) => script.good(path),
            (_, Some(later)) => ok(&script.consensus(later)),
            (_, None) => not_found(),
        }
    });
    let mut client = Client::start(&world, None, &directories);
    client.until_relays(6);
    client.until("the network to be taken back", secs(600), |client| {
        client.network().is_none()
    });
    let elapsed = client.clock.wall().duration_since(now()).unwrap();
    assert!(elapsed >= secs(3 * 3600 - 60 + 86_400), "{elapsed:?}");
    *back.lock().unwrap() = Some(client.clock.wall());
    client.until_relays(6);
    let notices = client.messages(Severity::Notice).join("\n");
    assert!(notices.contains("no longer up-to-date enough"), "{notices}");
    assert!(notices.contains("We now have enough"), "{notices}");
    client.end();
}

#[test]
fn a_cache_of_garbage_is_reported_and_fetched_again() {
    let cache = tempfile::tempdir().unwrap();
    for name in [
        cache::CONSENSUS,
        cache::CERTS,
        cache::MICRODESCS,
        cache::MICRODESCS_NEW,
    ] {
        std::fs::write(cache.path().join(name), b"\xffgarbage\n").unwrap();
    }
    let world = World::new(6);
    let script = world.clone();
    let directories = Directories::new(move |_, path| script.good(path));
    let mut client = Client::start(&world, Some(cache.path()), &directories);
    client.until_relays(6);
    assert_eq!(client.messages(Severity::Warn).len(), 3);
    client.end();
}

#[test]
fn an_old_consensus_from_the_cache_is_not_used_to_build_circuits() {
    let cache = tempfile::tempdir().unwrap();
    let world = World::new(6);
    let script = world.clone();
    let directories = Directories::new(move |_, path| script.good(path));
    let mut client = Client::start(&world, Some(cache.path()), &directories);
    client.until_relays(6);
    client.end();

    let nobody = Directories::new(|_, _| Reply::Unreachable);
    let late = secs(2 * 86_400);
    let mut client = Client::start_at(late, &world, Some(cache.path()), &nobody);
    client.until("an attempt", secs(1), |client| {
        let messages = client.messages(Severity::Info);
        messages.iter().any(|text| text.contains("Cannot reach"))
    });
    assert_eq!(client.percents(), []);
    assert!(client.network().is_none());
    client.end();
}
