//! Streams of clients that behave and of some that do not.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::hs_dir::testing::Service;
use crate::pieces::tests::noise;
use crate::places;
use crate::testing::{now, secs};
use tokio::io::DuplexStream;
use weft_dir::clock::ManualClock;
use weft_share::PreviousHop;

/// MiB of memory that the process has.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<usize>().unwrap() >> 10
}

/// Has `server` keep as many microdescriptors as one request may name, 10 MB; a request for all of them.
fn large_request(server: &CacheServer) -> String {
    let digests: Vec<[u8; 32]> = (0..512_u32)
        .map(|number| {
            let mut digest = [7; 32];
            digest[..4].copy_from_slice(&number.to_be_bytes());
            digest
        })
        .collect();
    let fillings = String::from_utf8(noise(512 * 20_000)).unwrap();
    server.documents.with_microdescs(|store| {
        for (number, digest) in digests.iter().enumerate() {
            let filling = &fillings[number * 20_000..][..20_000];
            store.add(*digest, &format!("onion-key\n{filling}\n"), now());
        }
    });
    let path = weft_dir::microdesc::path(&digests);
    format!("GET {} HTTP/1.0\r\n", path.strip_suffix(".z").unwrap())
}

/// Streams by this circuit of this hop that send `request` and read nothing.
async fn unread(
    server: &CacheServer,
    (hop, circuit): (PreviousHop, u128),
    request: &str,
    count: usize,
) -> Vec<(DuplexStream, tokio::task::JoinHandle<()>)> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let asker = Asker {
            hop,
            circuit,
            ..Asker::direct(PEER, None)
        };
        let serving = server.clone();
        let task = tokio::spawn(async move { serving.serve(theirs, asker).await });
        let mut stream = ours;
        stream.write_all(request.as_bytes()).await.unwrap();
        settle().await;
        streams.push((stream, task));
    }
    streams
}

/// The status lines of those of `streams` that are answered so far, and how many there are of each.
async fn statuses(
    streams: Vec<(DuplexStream, tokio::task::JoinHandle<()>)>,
) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (mut stream, _) in streams {
        let mut head = [0; 20];
        let read = stream.read(&mut head).await.unwrap();
        let status = String::from_utf8_lossy(&head[..read]).into_owned();
        let status = status.split_once("\r\n").map_or(&*status, |(line, _)| line);
        *counts.entry(status.to_owned()).or_default() += 1;
    }
    counts
}

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 7));

fn server() -> (CacheServer, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(now()));
    let documents = Arc::new(CachedDocuments::default());
    (
        CacheServer::new(documents, Arc::default(), clock.clone()),
        clock,
    )
}

/// A stream that the server serves, and its end.
fn open(server: &CacheServer, peer: IpAddr) -> (DuplexStream, tokio::task::JoinHandle<()>) {
    open_by(server, PreviousHop::at(peer))
}

/// Opens a stream of a client that comes by `hop`.
fn open_by(server: &CacheServer, hop: PreviousHop) -> (DuplexStream, tokio::task::JoinHandle<()>) {
    open_as(server, hop, false)
}

/// Opens a stream on a circuit that a relay or a client has made.
fn open_as(
    server: &CacheServer,
    hop: PreviousHop,
    by_relay: bool,
) -> (DuplexStream, tokio::task::JoinHandle<()>) {
    let (ours, theirs) = tokio::io::duplex(1024);
    let server = server.clone();
    let asker = Asker {
        hop,
        by_relay,
        ..Asker::direct(PEER, None)
    };
    let task = tokio::spawn(async move { server.serve(theirs, asker).await });
    (ours, task)
}

async fn answer(mut stream: DuplexStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_request_is_answered_however_it_is_cut() {
    for pieces in [
        vec!["GET /tor/robots.txt HTTP/1.0\r\n\r\n"],
        vec!["GET /tor/robots.txt HTTP/1.0\r", "\n", "\r", "\n"],
        vec!["GET /tor/robots.txt HTTP/1.0\n\n and more that nobody reads"],
    ] {
        let (server, _) = server();
        let (mut stream, task) = open(&server, PEER);
        for piece in pieces {
            stream.write_all(piece.as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
        }
        let answer = answer(stream).await;
        assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("Disallow: /\r\n"), "{answer}");
        task.await.unwrap();
        assert_eq!(server.places.len(), 0);
    }
}

#[tokio::test]
async fn garbage_is_a_bad_request_and_silence_ends() {
    let (server, clock) = server();
    let (mut stream, task) = open(&server, PEER);
    stream.write_all(b"\x16\x03\x01\n\r\n").await.unwrap();
    assert!(answer(stream).await.starts_with("HTTP/1.0 400 Bad request"));
    task.await.unwrap();

    // More than a head may have; what is not read any more cannot be written any more.
    let (mut stream, task) = open(&server, PEER);
    let endless = [b"GET /".to_vec(), vec![b'a'; MAX_HEAD]].concat();
    let _ = stream.write_all(&endless).await;
    assert!(answer(stream).await.starts_with("HTTP/1.0 400 Bad request"));
    task.await.unwrap();

    let (mut stream, task) = open(&server, PEER);
    stream.write_all(b"GET /tor/").await.unwrap();
    settle().await;
    clock.advance(secs(9));
    settle().await;
    assert!(!task.is_finished());
    clock.advance(secs(1));
    settle().await;
    assert!(task.is_finished());
    assert_eq!(answer(stream).await, "");
}

#[tokio::test]
async fn one_that_does_not_read_is_given_up() {
    let (server, clock) = server();
    server.documents.with_microdescs(|store| {
        let text = format!("onion-key\n{}", "x".repeat(20_000));
        store.add([1; 32], &text, now());
    });
    let (mut stream, task) = open(&server, PEER);
    let path = weft_dir::microdesc::path(&[[1; 32]]);
    let path = path.strip_suffix(".z").unwrap();
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!task.is_finished());
    for _ in 0..20 {
        clock.advance(secs(10));
        tokio::task::yield_now().await;
    }
    task.await.unwrap();
    assert!(answer(stream).await.len() <= 1024);
}

/// Lets every task do what it can.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

fn relay(number: u8) -> PreviousHop {
    PreviousHop::Relay([number; 20].into())
}

/// A request by this hop, and its answer.
async fn ask(server: &CacheServer, hop: PreviousHop) -> String {
    let (mut stream, _) = open_by(server, hop);
    let request = b"GET /tor/robots.txt HTTP/1.0\r\n\r\n";
    stream.write_all(request).await.unwrap();
    answer(stream).await
}

#[tokio::test]
async fn silent_streams_by_four_hops_do_not_keep_others_from_a_directory() {
    let (server, _) = server();
    let mut held = Vec::new();
    for number in 0..4 * 300 {
        held.push(open_by(&server, relay(number as u8 % 4)));
        settle().await;
    }
    assert_eq!(server.places.len(), places::MAX_STREAMS);
    assert_eq!(
        held.iter().filter(|(_, task)| task.is_finished()).count(),
        176
    );
    // Clients of their own address, those that come by other hops, and even by the same.
    for hop in [PreviousHop::at(PEER), relay(9), relay(1)] {
        let answer = ask(&server, hop).await;
        assert!(answer.starts_with("HTTP/1.0 200 OK"), "{answer}");
    }
    // Nothing is left of those that went.
    for (stream, task) in held {
        drop(stream);
        task.await.unwrap();
    }
    assert_eq!(server.places.len(), 0);
}

#[tokio::test]
async fn where_files_are_few_so_are_streams_and_others_are_served() {
    let (server, _) = server();
    server.places().set_most(10);
    let mut held = Vec::new();
    for _ in 0..30 {
        held.push(open_by(&server, relay(1)));
        settle().await;
    }
    assert_eq!(server.places.len(), 10);
    let answer = ask(&server, relay(2)).await;
    assert!(answer.starts_with("HTTP/1.0 200 OK"), "{answer}");
    server.places().set_most(usize::MAX);
    assert_eq!(server.places().most(), places::MAX_STREAMS);
}

#[tokio::test]
async fn a_stream_that_has_asked_is_not_ended_for_those_that_have_not() {
    let (server, _) = server();
    server.documents.with_microdescs(|store| {
        let text = format!("onion-key\n{}", "x".repeat(20_000));
        store.add([1; 32], &text, now());
    });
    let (mut stream, task) = open_by(&server, relay(1));
    let path = weft_dir::microdesc::path(&[[1; 32]]);
    let path = path.strip_suffix(".z").unwrap();
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    settle().await;
    let mut held = Vec::new();
    // By as many hops as there are places, and by its own.
    for number in 0..3_000_u32 {
        let mut hop = [7; 20];
        hop[..4].copy_from_slice(&number.to_be_bytes());
        held.push(open_by(&server, PreviousHop::Relay(hop.into())));
        held.push(open_by(&server, relay(1)));
        tokio::task::yield_now().await;
    }
    settle().await;
    assert!(!task.is_finished());
    assert!(answer(stream).await.len() > 20_000);
}

/// The status line that a request is answered with, which comes by a relay or a client.
async fn status(server: &CacheServer, request: &str, by_relay: bool) -> String {
    let (mut stream, _) = open_as(server, relay(1), by_relay);
    // The server may leave the body of a refused upload unread.
    let _ = stream.write_all(request.as_bytes()).await;
    let answer = answer(stream).await;
    let line = answer.lines().next().unwrap_or_default();
    line.strip_prefix("HTTP/1.0 ")
        .unwrap_or_default()
        .to_owned()
}

fn upload(path: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}")
}

const PUBLISH: &str = "/tor/hs/3/publish";

#[tokio::test]
async fn a_service_publishes_and_its_clients_fetch() {
    let (server, _) = server();
    let service = Service::new(1);
    let text = service.descriptor(1);
    let fetch = format!("GET {} HTTP/1.0\r\n\r\n", service.path());
    assert_eq!(status(&server, &fetch, true).await, "404 Not found");
    let published = status(&server, &upload(PUBLISH, &text), true).await;
    assert_eq!(published, "200 HS descriptor stored successfully.");
    let (mut stream, task) = open_as(&server, relay(1), true);
    stream.write_all(fetch.as_bytes()).await.unwrap();
    let answer = answer(stream).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, text);
    assert_eq!(
        head,
        format!(
            "HTTP/1.0 200 OK\r\nDate: Sat, 21 Nov 2026 01:00:00 GMT\r\nContent-Type: text/plain\r\n\
             X-Your-Address-Is: {PEER}\r\nContent-Encoding: identity\r\nContent-Length: {}\r\n\
             Pragma: no-cache",
            text.len()
        )
    );
    task.await.unwrap();
    for bad in ["AAAA", "%20", &"A".repeat(44)] {
        let request = format!("GET /tor/hs/3/{bad} HTTP/1.0\r\n\r\n");
        assert_eq!(status(&server, &request, true).await, "404 Not found");
    }
}

#[tokio::test]
async fn an_upload_is_read_however_it_is_cut_and_no_further() {
    let text = Service::new(1).descriptor(1);
    let request = upload(PUBLISH, &text);
    for cuts in [vec![1, 40, 41, 300], vec![request.len() - 1], vec![]] {
        let (server, _) = server();
        let (mut stream, task) = open_as(&server, relay(1), true);
        let mut begin = 0;
        let whole = format!("{request}and more that nobody reads");
        for end in cuts.into_iter().chain([whole.len()]) {
            stream
                .write_all(&whole.as_bytes()[begin..end])
                .await
                .unwrap();
            settle().await;
            begin = end;
        }
        assert!(
            answer(stream)
                .await
                .starts_with("HTTP/1.0 200 HS descriptor")
        );
        task.await.unwrap();
        assert_eq!(server.hs_dir.counts().stored, 1);
    }
}

#[tokio::test]
async fn what_a_directory_does_not_take_is_refused_in_c_tor_s_words() {
    const INVALID: &str = "400 Invalid HS descriptor. Rejected.";
    const NO_AUTHORITY: &str =
        "400 Nonauthoritative directory does not accept posted server descriptors";
    let (server, _) = server();
    let text = Service::new(1).descriptor(2);
    let newer = Service::new(1).descriptor(3);
    for (path, body, expected) in [
        (
            PUBLISH,
            text.as_str(),
            "200 HS descriptor stored successfully.",
        ),
        (PUBLISH, &text, INVALID),
        (PUBLISH, "", INVALID),
        (PUBLISH, "router x", INVALID),
        ("/tor/hs/2/publish", &newer, INVALID),
        ("/tor/hs/3/", &newer, INVALID),
        ("/tor/hs/", &newer, INVALID),
        ("/tor/", &newer, NO_AUTHORITY),
        ("/tor/post/vote", &newer, NO_AUTHORITY),
    ] {
        assert_eq!(
            status(&server, &upload(path, body), true).await,
            expected,
            "{path}"
        );
    }
    // Too long: refused by its length, before a byte of it has come.
    let head = format!("POST {PUBLISH} HTTP/1.0\r\nContent-Length: 50000\r\n\r\n");
    assert_eq!(status(&server, &head, true).await, INVALID);
    assert_eq!(server.hs_dir.counts().too_long, 1);
    // As many bytes as are taken, without a descriptor in them.
    let nonsense = upload(PUBLISH, &"x".repeat(49_999));
    assert_eq!(status(&server, &nonsense, true).await, INVALID);
    assert_eq!(server.hs_dir.memory().fixed, server.hs_dir.counts().bytes);
}

#[tokio::test]
async fn clients_of_the_first_hop_neither_publish_nor_fetch() {
    let (server, _) = server();
    let service = Service::new(1);
    let publish = upload(PUBLISH, &service.descriptor(1));
    assert_eq!(
        status(&server, &publish, false).await,
        "503 Rejecting single hop HS descriptor post"
    );
    assert_eq!(server.hs_dir.counts().stored, 0);
    status(&server, &publish, true).await;
    let fetch = format!("GET {} HTTP/1.0\r\n\r\n", service.path());
    assert_eq!(
        status(&server, &fetch, false).await,
        "503 Rejecting single hop HS v3 descriptor request"
    );
    assert_eq!(server.hs_dir.counts().single_hop, 2);
    assert!(status(&server, &fetch, true).await.starts_with("200"));
}

#[tokio::test]
async fn an_upload_that_stalls_is_given_up_and_gives_way() {
    let (server, clock) = server();
    let request = upload(PUBLISH, &Service::new(1).descriptor(1));
    let (mut stream, task) = open_as(&server, relay(1), true);
    let part = &request.as_bytes()[..request.len() - 1];
    stream.write_all(part).await.unwrap();
    settle().await;
    assert!(server.budget.total() > part.len());
    for _ in 0..11 {
        clock.advance(secs(10));
        settle().await;
    }
    assert!(!task.is_finished());
    clock.advance(secs(10));
    settle().await;
    assert!(task.is_finished());
    assert_eq!(answer(stream).await, "");
    assert_eq!(server.budget.total(), 0);

    // One that its peer gives up leaves nothing, either.
    let (mut stream, task) = open_as(&server, relay(1), true);
    stream.write_all(part).await.unwrap();
    settle().await;
    drop(stream);
    task.await.unwrap();
    assert_eq!(server.budget.total(), 0);

    // One that has not come whole has not proven itself: others have its place.
    let (mut stream, task) = open_as(&server, relay(1), true);
    stream.write_all(part).await.unwrap();
    settle().await;
    let mut held = Vec::new();
    for _ in 0..places::MAX_STREAMS {
        held.push(open_by(&server, relay(1)));
        settle().await;
    }
    held.push(open_by(&server, relay(2)));
    settle().await;
    assert!(task.is_finished());
}

#[tokio::test]
async fn uploads_that_stall_give_way_to_those_of_other_hops() {
    let (server, _) = server();
    let part =
        format!("POST {PUBLISH} HTTP/1.0\r\nContent-Length: 40000\r\n\r\n") + &"x".repeat(30_000);
    let most = 200_000;
    server.budget().set_most(most);
    // However small the bound of what is kept.
    server.hs_dir.set_limits(crate::hs_dir::Limits {
        memory: 2 * 40_000,
        descriptor: 50_000,
    });
    let mut held = Vec::new();
    for _ in 0..9 {
        held.push(open_as(&server, relay(1), true));
        let _ = held.last_mut().unwrap().0.write_all(part.as_bytes()).await;
        settle().await;
        assert!(server.budget.total() <= most);
    }
    assert!(server.budget.total() > most / 2);
    let text = Service::new(1).descriptor(1);
    let published = {
        let (mut stream, _) = open_as(&server, relay(2), true);
        stream
            .write_all(upload(PUBLISH, &text).as_bytes())
            .await
            .unwrap();
        answer(stream).await
    };
    assert!(published.starts_with("HTTP/1.0 200 "), "{published}");
    // Nothing is left of those that went.
    for (stream, task) in held {
        drop(stream);
        task.await.unwrap();
    }
    assert_eq!(server.budget.total(), 0);
}

#[tokio::test]
async fn descriptors_are_dropped_when_their_lifetimes_end() {
    let (server, clock) = server();
    let publish = upload(PUBLISH, &Service::new(1).descriptor(1));
    status(&server, &publish, true).await;
    let cleaning = server.clone();
    let task = tokio::spawn(async move { cleaning.clean().await });
    settle().await;
    clock.advance(secs(3 * 3600 - 60));
    settle().await;
    assert_eq!(server.hs_dir.counts().descriptors, 1);
    clock.advance(secs(60));
    settle().await;
    assert_eq!(server.hs_dir.counts().descriptors, 0);
    task.abort();
}

/// A limit whose bytes a test gives.
#[derive(Debug)]
struct Given {
    room: usize,
    left: AtomicUsize,
    moved: Mutex<(usize, usize)>,
}

impl Given {
    fn new(room: usize, left: usize) -> Arc<Self> {
        Arc::new(Given {
            room,
            left: AtomicUsize::new(left),
            moved: Mutex::default(),
        })
    }
}

impl Bandwidth for Given {
    fn room(&self) -> usize {
        self.room
    }

    fn take(&self, wanted: usize) -> Result<usize, Duration> {
        let left = self.left.load(Ordering::Relaxed);
        let granted = wanted.min(left);
        self.left.store(left - granted, Ordering::Relaxed);
        match granted {
            0 => Err(secs(1)),
            _ => Ok(granted),
        }
    }

    fn note(&self, read: usize, written: usize) {
        let mut moved = self.moved.lock().unwrap();
        *moved = (moved.0 + read, moved.1 + written);
    }
}

/// A connection to the DirPort on which there is a request.
async fn open_port(
    server: &CacheServer,
    path: &str,
    bandwidth: Option<Arc<dyn Bandwidth>>,
) -> (DuplexStream, tokio::task::JoinHandle<()>) {
    let (mut stream, theirs) = tokio::io::duplex(64 << 10);
    let server = server.clone();
    let asker = Asker::direct(PEER, bandwidth);
    let task = tokio::spawn(async move { server.serve_direct(theirs, asker).await });
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    (stream, task)
}

/// A request to the DirPort, for whose answer there is so much room.
async fn ask_port(server: &CacheServer, path: &str, room: Option<usize>) -> String {
    let bandwidth = room.map(|room| Given::new(room, usize::MAX) as Arc<dyn Bandwidth>);
    answer(open_port(server, path, bandwidth).await.0).await
}

#[tokio::test]
async fn what_a_dir_port_writes_is_taken_from_the_limit_of_all_and_counted() {
    let (server, clock) = server();
    server.documents.with_microdescs(|store| {
        let text = format!("onion-key\n{}", "x".repeat(40_000));
        store.add([1; 32], &text, now());
    });
    let path = weft_dir::microdesc::path(&[[1; 32]]);
    let path = path.strip_suffix(".z").unwrap();
    let given = Given::new(usize::MAX, 0);
    let (mut stream, task) = open_port(&server, path, Some(given.clone())).await;
    let mut came = 0;
    for more in [0, 3_000, 0, 30_000] {
        given.left.fetch_add(more, Ordering::Relaxed);
        clock.advance(secs(1));
        settle().await;
        came += more;
        assert_eq!(given.moved.lock().unwrap().1, came);
    }
    given.left.store(usize::MAX, Ordering::Relaxed);
    clock.advance(secs(1));
    let mut all = String::new();
    stream.read_to_string(&mut all).await.unwrap();
    assert!(all.starts_with("HTTP/1.0 200 OK\r\n") && all.len() > 40_000);
    drop(stream);
    task.await.unwrap();
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    assert_eq!(*given.moved.lock().unwrap(), (request.len(), all.len()));
    // A client without bandwidth is given up as one that does not read.
    let given = Given::new(usize::MAX, 0);
    let (stream, task) = open_port(&server, path, Some(given.clone())).await;
    settle().await;
    for _ in 0..60 {
        clock.advance(secs(1));
        settle().await;
    }
    task.await.unwrap();
    assert_eq!(answer(stream).await, "");
}

#[tokio::test]
async fn the_front_page_is_shown_to_people() {
    let (server, _) = server();
    for path in ["/", "/tor/"] {
        let answer = ask_port(&server, path, None).await;
        assert!(answer.starts_with("HTTP/1.0 404 Not found\r\n"), "{answer}");
    }
    let page: Arc<[u8]> = b"<p>This is an exit.</p>".as_slice().into();
    server.documents.set_front_page(Some(page));
    // However little may be written, as in C tor.
    for path in ["/", "/tor/", "http://192.0.2.1/"] {
        let answer = ask_port(&server, path, Some(0)).await;
        let expected = format!(
            "HTTP/1.0 200 OK\r\nDate: Sat, 21 Nov 2026 01:00:00 GMT\r\nContent-Type: text/html\r\n\
             X-Your-Address-Is: {PEER}\r\nContent-Encoding: identity\r\nContent-Length: 23\r\n\
             Expires: Sat, 21 Nov 2026 01:20:00 GMT\r\n\r\n<p>This is an exit.</p>"
        );
        assert_eq!(answer, expected);
    }
    server.documents.set_front_page(None);
    let answer = ask_port(&server, "/", None).await;
    assert!(answer.starts_with("HTTP/1.0 404 "), "{answer}");
}

#[tokio::test]
async fn documents_wait_while_there_is_no_room_to_write_them() {
    let (server, _) = server();
    server.documents.with_microdescs(|store| {
        let text = format!("onion-key\n{}", "x".repeat(20_000));
        store.add([1; 32], &text, now());
    });
    let path = weft_dir::microdesc::path(&[[1; 32]]);
    let path = path.strip_suffix(".z").unwrap();
    for (room, expected) in [
        (None, "200 OK"),
        (Some(20_010), "200 OK"),
        (Some(20_009), "503 Directory busy, try again later"),
        (Some(0), "503 Directory busy, try again later"),
    ] {
        let answer = ask_port(&server, path, room).await;
        let expected = format!("HTTP/1.0 {expected}\r\n");
        assert!(answer.starts_with(&expected), "{room:?}: {answer}");
    }
    // A document that does not exist costs nothing.
    let answer = ask_port(&server, "/tor/none", Some(0)).await;
    assert!(answer.starts_with("HTTP/1.0 404 "), "{answer}");
}

#[tokio::test]
async fn answers_that_nobody_reads_hold_what_is_being_sent_and_are_counted() {
    let (server, _) = server();
    let request = large_request(&server);
    let before = resident();
    let streams = unread(&server, (relay(1), 1), &format!("{request}\r\n"), 64).await;
    // As whole texts, the answers have 640 MiB.
    let grown = resident().saturating_sub(before);
    assert!(grown < 160, "{grown} MiB more for 64 answers");
    let held = server.budget.held();
    assert_eq!(held.len(), 64);
    assert!(
        held.iter()
            .all(|(hop, bytes)| *hop == relay(1) && (1..64 << 10).contains(bytes))
    );
    drop(streams);
    settle().await;
    assert_eq!(server.budget.total(), 0);
    assert_eq!(server.places.len(), 0);
}

#[tokio::test]
async fn past_what_all_answers_may_hold_one_hop_is_refused_and_others_are_served() {
    let (server, _) = server();
    let request = large_request(&server);
    let compressed = format!("{request}Accept-Encoding: x-zstd\r\n\r\n");
    server.budget.set_most(8 << 20);
    let streams = unread(&server, (relay(1), 1), &compressed, 64).await;
    assert!(server.budget.total() <= 8 << 20);
    // Other hops are served, and other circuits of the hop.
    let mut others = unread(&server, (relay(2), 1), &compressed, 3).await;
    others.extend(unread(&server, (relay(1), 2), &compressed, 1).await);
    assert_eq!(
        statuses(others).await,
        BTreeMap::from([("HTTP/1.0 200 OK".to_owned(), 4)])
    );
    let others = unread(&server, (relay(2), 1), &compressed, 8).await;
    let own = unread(&server, (relay(1), 1), &compressed, 1).await;
    let counts = statuses(own).await;
    assert_eq!(
        counts,
        BTreeMap::from([("HTTP/1.0 503 Directo".to_owned(), 1)])
    );
    let small = ask(&server, relay(1)).await;
    assert!(small.starts_with("HTTP/1.0 200 OK"), "{small}");
    let ended = streams
        .iter()
        .filter(|(_, task)| task.is_finished())
        .count();
    let counts = statuses(streams).await;
    let answered = counts["HTTP/1.0 200 OK"];
    assert!((4..32).contains(&answered), "{counts:?}");
    assert_eq!(counts["HTTP/1.0 503 Directo"] + answered, 64);
    assert!((4..12).contains(&ended), "{ended} gave way");
    drop(others);
}

#[tokio::test]
async fn when_memory_is_short_the_heaviest_answers_end() {
    let (server, _) = server();
    let request = large_request(&server);
    let light = unread(&server, (relay(1), 1), &format!("{request}\r\n"), 3).await;
    let compressed = format!("{request}Accept-Encoding: deflate\r\n\r\n");
    let heavy = unread(&server, (relay(2), 1), &compressed, 3).await;
    let mut most = 2;
    server.budget.end(|_, _| {
        most -= 1;
        most >= 0
    });
    settle().await;
    let ended = |streams: &[(DuplexStream, tokio::task::JoinHandle<()>)]| {
        streams
            .iter()
            .filter(|(_, task)| task.is_finished())
            .count()
    };
    assert_eq!((ended(&light), ended(&heavy)), (0, 2));
    assert_eq!(server.budget.held().len(), 4);
}

#[tokio::test]
async fn a_request_that_comes_slowly_is_counted() {
    let (server, _) = server();
    let head = format!("GET /tor/{}", "a".repeat(30_000));
    let streams = unread(&server, (relay(1), 1), &head, 2).await;
    let held = server.budget.held();
    assert!(
        held.iter()
            .all(|(_, bytes)| (30_000..100_000).contains(bytes)),
        "{held:?}"
    );
    assert_eq!(held.len(), 2);
    server.budget.set_most(50_000);
    let refused = unread(&server, (relay(1), 1), &head, 1).await;
    assert_eq!(
        statuses(refused).await,
        BTreeMap::from([("HTTP/1.0 503 Directo".to_owned(), 1)])
    );
    drop(streams);
}
