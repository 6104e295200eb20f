//! Counts the requests and bytes of the directory's streams for the extra-info document.
//!
//! A stream is watched from outside, by its first line in each direction, so the code that answers
//! knows nothing of the counting. Requests for a consensus are C tor's `dirreq-*`; bytes of all
//! requests are `dirreq-read-history` and `dirreq-write-history`.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weft_counts::extrainfo::{Country, DirRequests, Download, Response, StatsFile, Way};
use weft_dir::clock::Clock;

use crate::asker::{Asker, Bandwidth};

/// First line of a request for a consensus, up to its flavour.
const CONSENSUS: &[u8] = b"GET /tor/status-vote/current/consensus";
/// Bytes of an answer in which its first line ends.
const MAX_STATUS: usize = 256;

/// The country of an address, by the node's tables.
pub type Countries = Box<dyn Fn(IpAddr) -> Country + Send + Sync>;

/// The state of counting requests for a consensus.
struct Counting {
    requests: DirRequests,
    countries: Countries,
    rng: StdRng,
}

/// The counters of a directory's requests.
pub struct Requests {
    clock: Arc<dyn Clock>,
    counting: Mutex<Option<Counting>>,
    read: AtomicU64,
    written: AtomicU64,
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

impl Requests {
    /// Bytes are counted from now on, requests once [`begin`](Self::begin) is called.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            counting: Mutex::new(None),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    /// Rare work: a request for a consensus is a large answer.
    fn counting(&self) -> MutexGuard<'_, Option<Counting>> {
        self.counting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to count requests (DirReqStatistics); where that is done already, by these countries.
    pub fn begin(&self, countries: Countries, now: SystemTime, seed: [u8; 32]) {
        let mut counting = self.counting();
        if let Some(counting) = &mut *counting {
            counting.countries = countries;
            return;
        }
        let mut rng = StdRng::from_seed(seed);
        *counting = Some(Counting {
            requests: DirRequests::new(now, &mut rng),
            countries,
            rng,
        });
    }

    /// Counts requests no more, and forgets those that were counted.
    pub fn end(&self) {
        *self.counting() = None;
    }

    /// The lines of a day that is over.
    pub fn end_day(&self, now: SystemTime) -> Option<(StatsFile, String)> {
        let monotonic = self.clock.monotonic();
        let mut counting = self.counting();
        let Counting { requests, rng, .. } = counting.as_mut()?;
        requests.end_day(now, monotonic, rng)
    }

    /// Bytes read and written, since the start.
    pub fn bytes(&self) -> (u64, u64) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (of(&self.read), of(&self.written))
    }

    /// Watches a stream of `asker`.
    pub(super) fn watch<S>(self: &Arc<Self>, stream: S, asker: &Asker, way: Way) -> Watched<S> {
        Watched {
            stream,
            requests: self.clone(),
            peer: asker.peer,
            bandwidth: asker.bandwidth.clone(),
            way,
            asked: 0,
            seen: Seen::Request,
            sent: 0,
        }
    }

    /// The first line of an answer to a request for a consensus.
    fn answered(&self, line: &[u8], peer: IpAddr, way: Way) -> Option<Download> {
        let line = String::from_utf8_lossy(line);
        let (status, reason) = line.strip_prefix("HTTP/1.0 ")?.split_once(' ')?;
        let response = Response::of(status.parse().ok()?, reason)?;
        let now = self.clock.monotonic();
        let mut counting = self.counting();
        let counting = counting.as_mut()?;
        let countries = &counting.countries;
        counting
            .requests
            .answered(response, peer, countries, way, now)
    }

    /// A download has ended: complete, after this number of bytes; or before its end.
    fn ended(&self, download: Download, all: Option<u64>) {
        let now = self.clock.monotonic();
        if let Some(Counting { requests, rng, .. }) = &mut *self.counting() {
            match all {
                Some(bytes) => requests.complete(download, bytes, now, rng),
                None => requests.failed(download),
            }
        }
    }
}

/// Progress of a stream.
#[derive(Debug)]
enum Seen {
    /// Its request begins as one for a consensus, so far.
    Request,
    /// The answer's first line, as far as it was sent.
    Status(Vec<u8>),
    /// A consensus is sent.
    Download(Download),
    /// Nothing that counts.
    Other,
}

/// A stream that is watched.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    requests: Arc<Requests>,
    peer: IpAddr,
    /// Counts the bytes, too.
    bandwidth: Option<Arc<dyn Bandwidth>>,
    way: Way,
    /// Bytes of the request that are [`CONSENSUS`].
    asked: usize,
    seen: Seen,
    sent: u64,
}

impl<S> Watched<S> {
    fn note_read(&mut self, bytes: &[u8]) {
        let count = bytes.len() as u64;
        self.requests.read.fetch_add(count, Ordering::Relaxed);
        if let Some(bandwidth) = &self.bandwidth {
            bandwidth.note(bytes.len(), 0);
        }
        if matches!(self.seen, Seen::Request) && self.asked < CONSENSUS.len() {
            let wanted = CONSENSUS.get(self.asked..).unwrap_or_default();
            let common = wanted.len().min(bytes.len());
            match wanted.get(..common) == bytes.get(..common) {
                true => self.asked += common,
                false => self.seen = Seen::Other,
            }
        }
    }

    fn note_written(&mut self, bytes: &[u8]) {
        let count = bytes.len() as u64;
        self.requests.written.fetch_add(count, Ordering::Relaxed);
        if let Some(bandwidth) = &self.bandwidth {
            bandwidth.note(0, bytes.len());
        }
        self.sent += count;
        if matches!(self.seen, Seen::Request) {
            self.seen = match self.asked == CONSENSUS.len() {
                true => Seen::Status(Vec::new()),
                false => Seen::Other,
            };
        }
        let Seen::Status(line) = &mut self.seen else {
            return;
        };
        let room = MAX_STATUS.saturating_sub(line.len());
        line.extend(bytes.iter().take(room));
        if let Some(end) = line.iter().position(|byte| *byte == b'\r') {
            let line = line.get(..end).unwrap_or_default();
            let download = self.requests.answered(line, self.peer, self.way);
            self.seen = download.map_or(Seen::Other, Seen::Download);
        } else if line.len() >= MAX_STATUS {
            self.seen = Seen::Other;
        }
    }

    fn end(&mut self, all: bool) {
        if let Seen::Download(download) = self.seen {
            self.seen = Seen::Other;
            self.requests.ended(download, all.then_some(self.sent));
        }
    }
}

impl<S> Drop for Watched<S> {
    fn drop(&mut self) {
        self.end(false);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.note_read(buffer.filled().get(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.note_written(bytes.get(..count).unwrap_or_default());
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        // A directory ends its side when all is sent.
        self.end(true);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use weft_counts::extrainfo::PERIOD;

    use super::*;
    use crate::testing::now;
    use weft_dir::clock::ManualClock;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 7));

    fn requests() -> (Arc<Requests>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(now()));
        let requests = Arc::new(Requests::new(clock.clone()));
        requests.begin(Box::new(|_| *b"de"), now(), [1; 32]);
        (requests, clock)
    }

    /// One request and its answer, byte by byte or at once; `whole`: all of it was sent.
    async fn exchange(
        requests: &Arc<Requests>,
        request: &str,
        answer: &str,
        piece: usize,
        whole: bool,
    ) {
        let (mut client, server) = tokio::io::duplex(4096);
        let mut server = requests.watch(server, &Asker::direct(PEER, None), Way::Tunneled);
        for bytes in request.as_bytes().chunks(piece) {
            client.write_all(bytes).await.unwrap();
            let mut read = vec![0; bytes.len()];
            server.read_exact(&mut read).await.unwrap();
        }
        for bytes in answer.as_bytes().chunks(piece) {
            server.write_all(bytes).await.unwrap();
        }
        if whole {
            server.shutdown().await.unwrap();
        }
    }

    fn day(requests: &Requests) -> String {
        requests.end_day(now() + PERIOD).unwrap().1
    }

    #[tokio::test]
    async fn requests_for_a_consensus_are_counted_however_they_are_cut() {
        let request = "GET /tor/status-vote/current/consensus-microdesc/A+B HTTP/1.0\r\n\r\n";
        for piece in [1, 7, 10_000] {
            let (requests, _) = requests();
            exchange(
                &requests,
                request,
                "HTTP/1.0 200 OK\r\n\r\nbody",
                piece,
                true,
            )
            .await;
            exchange(
                &requests,
                request,
                "HTTP/1.0 304 Not modified\r\n\r\n",
                piece,
                true,
            )
            .await;
            exchange(
                &requests,
                request,
                "HTTP/1.0 200 OK\r\n\r\nbo",
                piece,
                false,
            )
            .await;
            let answer = "HTTP/1.0 503 Directory busy, try again later\r\n\r\n";
            exchange(&requests, request, answer, piece, true).await;
            let text = day(&requests);
            for line in [
                "dirreq-v3-ips de=8\n",
                "dirreq-v3-reqs de=8\n",
                "dirreq-v3-resp ok=8,not-enough-sigs=0,unavailable=0,not-found=0,not-modified=8,busy=8\n",
                "dirreq-v3-direct-dl complete=0,timeout=0,running=0\n",
                "dirreq-v3-tunneled-dl complete=4,timeout=4,running=0\n",
            ] {
                assert!(text.contains(line), "{piece}: {text}");
            }
        }
    }

    #[tokio::test]
    async fn other_requests_count_by_their_bytes_alone() {
        let (requests, _) = requests();
        let request = "GET /tor/status-vote/current/consensu/x HTTP/1.0\r\n\r\n";
        let answer = "HTTP/1.0 200 OK\r\n\r\nbody";
        exchange(&requests, request, answer, 10_000, true).await;
        exchange(&requests, "GET /", "", 10_000, true).await;
        let endless = "x".repeat(1000);
        let consensus = "GET /tor/status-vote/current/consensus HTTP/1.0\r\n\r\n";
        exchange(&requests, consensus, &endless, 1, true).await;
        let (read, written) = requests.bytes();
        assert_eq!(read, (request.len() + 5 + consensus.len()) as u64);
        assert_eq!(written, (answer.len() + 1000) as u64);
        let text = day(&requests);
        assert!(text.contains("dirreq-v3-ips \n"), "{text}");
        assert!(text.contains("resp ok=0,"), "{text}");
    }

    #[tokio::test]
    async fn what_is_switched_off_is_not_counted() {
        let (requests, clock) = requests();
        let request = "GET /tor/status-vote/current/consensus HTTP/1.0\r\n\r\n";
        let answer = "HTTP/1.0 200 OK\r\n\r\n";
        exchange(&requests, request, answer, 10_000, true).await;
        requests.begin(Box::new(|_| *b"us"), now(), [2; 32]);
        requests.end();
        exchange(&requests, request, answer, 10_000, true).await;
        assert_eq!(requests.end_day(now() + PERIOD), None);
        clock.advance(Duration::from_secs(1));
        requests.begin(Box::new(|_| *b"us"), now(), [2; 32]);
        assert!(day(&requests).contains("dirreq-v3-ips \n"));
    }
}
