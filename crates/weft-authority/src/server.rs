//! HTTP/1.0 for an authority: descriptors in, documents out (dir-spec 4, 6), bounded in every
//! direction: requests at once, shared by the addresses that they come from; bytes of a request, time, and the bytes that
//! all streams hold ([`Budget`]).

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, oneshot};
use weft_dir::PairSocket;
use weft_dir::clock::{Clock, SystemClock};
use weft_dir::command::Severity;
use weft_dir::http::{Compression, http_date};
use weft_dir::sockets::Sockets;
use weft_dircache::answer::BUSY;
use weft_dircache::budget::{Budget, Charge};
use weft_dircache::pieces::{Part, Pieces};
use weft_dircache::request::{Parsed, Request};
use weft_dircache::resource::Resource;
use weft_dircache::server::{Asker, read_head};
use weft_share::{Places, network};

use crate::authority::storage::Storage;
use crate::authority::{Answer, PrivateAuthority};
use crate::config::AuthorityConfig;
use crate::reach::ReachabilityTest;
use crate::reach::TESTS_AT_ONCE;

/// Requests that are answered at the same time.
pub(super) const AT_ONCE: usize = 1024;
/// Of these, those that came whole and do not give way to others. Not all, since a peer may ask and not
/// read the answer.
const ANSWERED_AT_ONCE: usize = AT_ONCE / 2;
/// Bytes of an upload: a descriptor and an extra-info document, with room.
const MAX_BODY: usize = 256 << 10;
/// Time for a request and its answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// After an answer, time for the peer to close.
const FAREWELL: Duration = Duration::from_secs(2);
/// Bytes of an answer made and written at once.
const CHUNK: usize = 16 << 10;
/// Streams that wait to be served.
const QUEUE: usize = 256;

/// Whether an address may use the DirPort.
pub type Allowed = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// Where log lines go.
pub type Log = Arc<dyn Fn(Severity, String) + Send + Sync>;

/// Runs a test, and returns whether the relay was reached; it may take a minute.
pub type Tester = Arc<dyn Fn(&ReachabilityTest) -> bool + Send + Sync>;

/// What an authority uses of the node that it is part of.
pub struct Surroundings {
    /// Whether an address may use the DirPort.
    pub allowed: Allowed,
    /// Where log lines go.
    pub log: Log,
    /// Tests relays; without it none is.
    pub tester: Option<Tester>,
    /// The folder of its files; without it none is kept.
    pub folder: Option<PathBuf>,
}

/// An authority that answers HTTP.
#[derive(Clone)]
pub struct AuthorityServer {
    authority: Arc<Mutex<PrivateAuthority>>,
    clock: Arc<dyn Clock>,
    /// A relay came or changed, or a test ended.
    posted: Arc<Notify>,
    places: Arc<Places<IpAddr, oneshot::Sender<()>>>,
    /// What their streams hold.
    budget: Arc<Budget>,
    /// Connections to the DirPort.
    sockets: Arc<Sockets>,
    storage: Option<Arc<Mutex<Storage>>>,
    /// Whether the bandwidth is used up.
    busy: Arc<AtomicBool>,
}

impl AuthorityServer {
    /// A server by `clock`.
    pub fn new(authority: PrivateAuthority, clock: Arc<dyn Clock>) -> Self {
        Self {
            authority: Arc::new(Mutex::new(authority)),
            clock,
            posted: Arc::default(),
            places: Places::new(AT_ONCE, ANSWERED_AT_ONCE),
            budget: Arc::default(),
            sockets: Arc::default(),
            storage: None,
            busy: Arc::default(),
        }
    }

    /// Keeps files in `folder`, and begins with what is there.
    fn keep_files(&mut self, folder: PathBuf, log: &Log) -> io::Result<()> {
        let storage = Storage::new(folder);
        for (severity, line) in storage.load(&mut self.authority(), self.clock.wall())? {
            log(severity, line);
        }
        self.storage = Some(Arc::new(Mutex::new(storage)));
        Ok(())
    }

    /// Writes files that are due; `ends`: all.
    fn save(&self, log: &Log, ends: bool) {
        let Some(storage) = &self.storage else {
            return;
        };
        let mut storage = storage.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(why) = storage.save(&mut self.authority(), self.clock.wall(), ends) {
            log(Severity::Warn, format!("{why}."));
        }
    }

    /// Has relays tested that it is time for, each on a thread of its own. Returns when the next test is due.
    fn test_relays(&self, tester: Option<&Tester>) -> Option<SystemTime> {
        let tester = tester?;
        let (tests, next) = self.authority().begin_tests(self.clock.wall());
        for test in tests {
            let (server, tester) = (self.clone(), tester.clone());
            // The authority begins no more than there are threads.
            tokio::task::spawn_blocking(move || {
                let reached = tester(&test);
                let now = server.clock.wall();
                server.authority().tested(&test, reached, now);
                server.posted.notify_one();
            });
        }
        next
    }

    /// Held for one decision at a time; none panics with the lock.
    pub(super) fn authority(&self) -> MutexGuard<'_, PrivateAuthority> {
        self.authority
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes consensuses whenever they are due, has relays tested and keeps files; ends never.
    pub async fn vote(&self, log: Log, tester: Option<Tester>) {
        loop {
            let next_test = self.test_relays(tester.as_ref());
            let now = self.clock.wall();
            let (before, outcome, after, relays) = {
                let mut authority = self.authority();
                let before = authority.valid_after();
                let outcome = authority.tick(now);
                (before, outcome, authority.valid_after(), authority.relays())
            };
            if after != before {
                log(
                    Severity::Info,
                    format!("A consensus with {relays} relay(s) is signed."),
                );
            }
            if before.is_none() && after.is_some() {
                log(Severity::Notice, "The first consensus is signed.".into());
            }
            let due = outcome.unwrap_or_else(|error| {
                log(Severity::Warn, format!("{error}."));
                now + PATIENCE
            });
            self.save(&log, false);
            let due = next_test.map_or(due, |test| test.min(due));
            let wait = due.duration_since(now).unwrap_or_default();
            // Never busy, whatever clocks do.
            let wait = wait.clamp(Duration::from_millis(50), PATIENCE);
            tokio::select! {
                () = self.clock.sleep(wait) => {}
                () = self.posted.notified() => {}
            }
        }
    }

    /// Accepts connections, and closes those of addresses that are not allowed; ends never.
    pub async fn accept(&self, listener: TcpListener, allowed: Allowed) {
        loop {
            let Ok((stream, peer)) = listener.accept().await else {
                // Out of files, most likely: that passes.
                self.clock.sleep(Duration::from_millis(100)).await;
                continue;
            };
            if !allowed(peer.ip()) {
                continue;
            }
            let (server, open) = (self.clone(), self.sockets.count(Some(peer.ip())));
            tokio::spawn(async move {
                let asker = Asker::direct(peer.ip(), None);
                server.serve_limited(stream, asker, true).await;
                drop(open);
            });
        }
    }

    /// Whether the bandwidth is used up.
    pub(super) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
    }

    /// What its streams hold.
    pub(super) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Answers one request, of `asker`, as BEGIN_DIR streams have them. One that has not come whole may have to give way
    /// to another.
    pub async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin, asker: Asker) {
        self.serve_limited(stream, asker, false).await;
    }

    /// The same; `limited`: at the DirPort, which gets less where the bandwidth is used up. Circuits have limits of their
    /// own.
    pub(super) async fn serve_limited(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        asker: Asker,
        limited: bool,
    ) {
        let peer = asker.peer;
        let (stays, mut lost) = oneshot::channel();
        let Some((place, _)) = self.places.take(network(peer), stays) else {
            return;
        };
        let (charge, ended) = self.budget.charge(asker.hop, asker.circuit);
        let exchange = async {
            let request = read_request(&mut stream, &charge).await?;
            if !place.keep() {
                return Ok(());
            }
            let (head, mut body) = match &request {
                Ok(request) => self.answer(request, peer, limited),
                Err(refused) => encode(refused, Compression::Identity, self.clock.wall(), peer),
            };
            drop(request);
            let mut chunk = head.into_bytes();
            if !charge.set(chunk.capacity() + body.memory()) {
                let now = self.clock.wall();
                let busy = encode(&Answer::short(503, BUSY), Compression::Identity, now, peer);
                (chunk, body) = (busy.0.into_bytes(), busy.1);
                charge.set(chunk.capacity());
            }
            // The first write carries head and body, so that a small answer is one cell or two.
            chunk.extend(body.next(CHUNK).unwrap_or_default());
            loop {
                stream.write_all(&chunk).await?;
                chunk = match body.next(CHUNK) {
                    Some(chunk) => chunk,
                    None => break,
                };
            }
            stream.shutdown().await
        };
        tokio::select! {
            // A peer that goes away has lost nothing but its own answer.
            _ = exchange => {}
            () = self.clock.sleep(PATIENCE) => {}
            _ = &mut lost => return,
            _ = ended => return,
        }
        drop(charge);
        // A close with unread bytes would be a reset, which may overtake the answer.
        let mut rest = [0; 512];
        let drain = async { while matches!(stream.read(&mut rest).await, Ok(1..)) {} };
        tokio::select! {
            () = drain => {}
            () = self.clock.sleep(FAREWELL) => {}
            _ = lost => {}
        }
    }

    fn answer(&self, asked: &Asked, peer: IpAddr, limited: bool) -> (String, Pieces) {
        let now = self.clock.wall();
        let plain = |answer| encode(&answer, Compression::Identity, now, peer);
        let request = match asked {
            Asked::Post { path, body } => return plain(self.post(path, body, peer, now)),
            Asked::Get(request) => request,
        };
        if limited
            && self.busy.load(Ordering::Relaxed)
            && !self.authority().answers_under_load(peer)
        {
            return plain(Answer::short(503, BUSY));
        }
        let answer = self.authority().get(&request.path, now);
        let old = request.since.zip(answer.modified);
        if answer.status == 200 && old.is_some_and(|(since, modified)| modified <= since) {
            return plain(Answer::short(304, "Not modified"));
        }
        let coding = match request.accepts.has(Compression::Deflate) && !answer.page {
            true => Compression::Deflate,
            false => Compression::Identity,
        };
        encode(&answer, coding, now, peer)
    }

    fn post(&self, path: &str, body: &[u8], peer: IpAddr, now: SystemTime) -> Answer {
        if !matches!(Resource::post(path), Some((Resource::RelayUpload, _))) {
            return Answer::short(404, "Not found");
        }
        let (answer, has_news) = {
            let mut authority = self.authority();
            (
                authority.post(body, network(peer), now),
                authority.take_news(),
            )
        };
        if has_news {
            self.posted.notify_one();
        }
        answer
    }
}

/// A request that came whole.
enum Asked {
    Get(Request),
    Post { path: String, body: Vec<u8> },
}

/// Reads a request; the inner error is an answer.
async fn read_request(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    charge: &Charge,
) -> io::Result<Result<Asked, Answer>> {
    let bad = |status, reason: &'static str| Ok(Err(Answer::short(status, reason)));
    let (upload, mut bytes) = match read_head(stream, charge).await? {
        Some((Parsed::Get(request), _)) => return Ok(Ok(Asked::Get(request))),
        Some((Parsed::Post(upload), bytes)) => (upload, bytes),
        Some((Parsed::Bad(status, reason), _)) => return bad(status, reason),
        Some((Parsed::Partial, _)) | None => return bad(400, "Bad request"),
    };
    if upload.length > MAX_BODY {
        return bad(400, "Router descriptor was too large.");
    }
    bytes.drain(..upload.head);
    while bytes.len() < upload.length {
        if stream.read_buf(&mut bytes).await? == 0 {
            return bad(400, "Bad request");
        }
        if !charge.set(bytes.capacity()) {
            return bad(503, BUSY);
        }
    }
    bytes.truncate(upload.length);
    Ok(Ok(Asked::Post {
        path: upload.path,
        body: bytes,
    }))
}

/// The head of an answer, and its body.
fn encode(answer: &Answer, coding: Compression, now: SystemTime, peer: IpAddr) -> (String, Pieces) {
    let parts: Vec<Part> = answer.body.iter().cloned().map(Part::Text).collect();
    let (content, coding) = match parts.is_empty() {
        true => (Pieces::none(), Compression::Identity),
        false => Pieces::new(parts, coding),
    };
    let mut head = format!("HTTP/1.0 {} {}\r\n", answer.status, answer.reason);
    if let Some(date) = http_date(now) {
        head += &format!("Date: {date}\r\n");
    }
    if answer.status == 200 {
        head += &format!(
            "Content-Type: text/{}\r\nX-Your-Address-Is: {peer}\r\nContent-Encoding: {}\r\n",
            if answer.page { "html" } else { "plain" },
            coding.name(),
        );
        // What is compressed while it is sent ends with the stream, as C tor's does.
        if coding == Compression::Identity {
            head += &format!("Content-Length: {}\r\n", content.length());
        }
        if answer.not_new {
            head += "X-Descriptor-Not-New: Yes\r\n";
        }
        match http_date(now + answer.lifetime).filter(|_| !answer.lifetime.is_zero()) {
            Some(date) => head += &format!("Expires: {date}\r\n"),
            None => head += "Pragma: no-cache\r\n",
        }
    }
    (head + "\r\n", content)
}

/// An authority on a thread of its own. Dropping it ends it.
pub struct AuthorityHandle {
    streams: Option<mpsc::Sender<(UnixStream, Asker)>>,
    pub(super) server: AuthorityServer,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for AuthorityHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthorityHandle")
    }
}

impl AuthorityHandle {
    /// Starts an authority that answers on these listeners, by the machine's clocks.
    ///
    /// # Errors
    /// The system has no thread or no epoll for it, or a file of an earlier run cannot be read.
    pub fn start(
        authority: PrivateAuthority,
        listeners: Vec<std::net::TcpListener>,
        surroundings: Surroundings,
    ) -> io::Result<Self> {
        let Surroundings {
            allowed,
            log,
            tester,
            folder,
        } = surroundings;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(TESTS_AT_ONCE)
            .build()?;
        for listener in &listeners {
            listener.set_nonblocking(true)?;
        }
        let listeners = {
            let _inside = runtime.enter();
            let listeners = listeners.into_iter().map(TcpListener::from_std);
            listeners.collect::<io::Result<Vec<_>>>()?
        };
        let mut server = AuthorityServer::new(authority, Arc::new(SystemClock::default()));
        if let Some(folder) = folder {
            server.keep_files(folder, &log)?;
        }
        let shared = server.clone();
        let (streams, mut waiting) = mpsc::channel::<(UnixStream, Asker)>(QUEUE);
        let run = async move {
            for listener in listeners {
                let (server, allowed) = (server.clone(), allowed.clone());
                tokio::spawn(async move { server.accept(listener, allowed).await });
            }
            let (voting, voting_log) = (server.clone(), log.clone());
            tokio::spawn(async move { voting.vote(voting_log, tester).await });
            while let Some((stream, asker)) = waiting.recv().await {
                let Ok(stream) = PairSocket::from_std(stream) else {
                    continue;
                };
                let server = server.clone();
                tokio::spawn(async move { server.serve(stream, asker).await });
            }
            server.save(&log, true);
        };
        let thread = std::thread::Builder::new()
            .name("authority".into())
            .spawn(move || {
                runtime.block_on(run);
                // Tests that are under way have no use any more.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            streams: Some(streams),
            server: shared,
            thread: Some(thread),
        })
    }

    /// Connections to the DirPort.
    pub fn sockets(&self) -> &Sockets {
        &self.server.sockets
    }

    /// Follows other settings.
    pub fn configure(&self, config: AuthorityConfig) {
        let now = self.server.clock.wall();
        self.server.authority().configure(config, now);
        self.server.posted.notify_one();
    }

    /// Whether the bandwidth is used up.
    pub fn set_busy(&self, busy: bool) {
        self.server.set_busy(busy);
    }

    /// What its streams hold.
    pub fn budget(&self) -> &Budget {
        self.server.budget()
    }

    /// Answers the request that comes on this stream (non-blocking), of `asker`: BEGIN_DIR. Closed
    /// unheard where too many wait.
    pub fn serve(&self, stream: UnixStream, asker: Asker) {
        if let Some(streams) = &self.streams {
            // The peer sees its stream end.
            let _ = streams.try_send((stream, asker));
        }
    }
}

impl Drop for AuthorityHandle {
    fn drop(&mut self) {
        drop(self.streams.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
