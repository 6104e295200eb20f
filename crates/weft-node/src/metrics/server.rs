//! The thread that answers requests. Sockets come to it accepted and allowed; everything about them
//! is bounded: how many there are, how long one may take, how much of a request is read. At the bound
//! one that has not sent its request gives way to a newcomer.

#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, TcpStream as StdTcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use weft_core::controller::FamilyCounts;
use weft_share::{Place, Places, network};

use super::request::{self, Verdict};
use super::{Snapshot, render};

/// Connections at once.
const MAX_CONNECTIONS: usize = 16;
/// Connections whose requests came and that do not give way. Not all, since a peer may ask and not read
/// the answer; one that reads it has it at once, mostly.
const MAX_ANSWERED: usize = MAX_CONNECTIONS / 2;
/// Connections that may wait for the thread to look at them. Those that gave way before it looked are
/// among them, so that these are more than the places.
const MAX_NEW: usize = 4 * MAX_CONNECTIONS;
/// How long a connection may last.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes that are read and not looked at after an answer. Closing a socket that holds unread bytes
/// would make the kernel reset the connection, and the answer could be lost.
const MAX_REST: usize = 64 * 1024;
/// Dates of HTTP (RFC 1123).
const DATE: &[BorrowedFormatItem<'static>] = format_description!(
    "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
);

/// A connection's place among those that may be open, by the peer's address.
type Seat = Place<IpAddr, oneshot::Sender<()>>;

/// A socket, its place, and what resolves when it has to give that up.
type Client = (StdTcpStream, Seat, oneshot::Receiver<()>);

/// The thread, as the main thread sees it. Dropping it ends it, and every connection.
#[derive(Debug)]
pub struct MetricsServer {
    snapshots: watch::Sender<Arc<Snapshot>>,
    /// `None` once it shall end.
    clients: Option<mpsc::Sender<Client>>,
    places: Arc<Places<IpAddr, oneshot::Sender<()>>>,
    /// `None` once joined.
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Starts the thread, which has this to tell.
    ///
    /// # Errors
    ///
    /// The system has no more threads or file descriptors.
    pub fn start(first: Snapshot) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (snapshots, latest) = watch::channel(Arc::new(first));
        let (sender, mut clients) = mpsc::channel::<Client>(MAX_NEW);
        let places = Places::new(MAX_CONNECTIONS, MAX_ANSWERED);
        let open = Arc::new(Open::default());
        let thread = std::thread::Builder::new()
            .name("metrics".into())
            .spawn(move || {
                runtime.block_on(async move {
                    while let Some(new) = clients.recv().await {
                        tokio::spawn(client(new, latest.clone(), open.clone()));
                    }
                });
            })?;
        Ok(MetricsServer {
            snapshots,
            clients: Some(sender),
            places,
            thread: Some(thread),
        })
    }

    /// Has something newer to tell.
    pub fn publish(&self, snapshot: Snapshot) {
        self.snapshots.send_replace(Arc::new(snapshot));
    }

    /// Takes a connection of this peer, which must not block; another that has not sent its request
    /// may have to give way to it. False: the thread does not keep up.
    pub fn serve(&self, socket: StdTcpStream, from: IpAddr) -> bool {
        // Nobody gives way to one whom the thread cannot take.
        let Some(Ok(to_thread)) = self.clients.as_ref().map(mpsc::Sender::try_reserve) else {
            return false;
        };
        let (stays, lost) = oneshot::channel();
        let Some((place, _)) = self.places.take(network(from), stays) else {
            return false;
        };
        to_thread.send((socket, place, lost));
        true
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        // The thread ends when nobody can send to it, and its connections with its runtime.
        self.clients = None;
        if let Some(thread) = self.thread.take() {
            // One that panicked has nothing left to say.
            let _ = thread.join();
        }
    }
}

/// Connections that are open.
#[derive(Debug, Default)]
struct Open {
    ipv4: AtomicU64,
    ipv6: AtomicU64,
}

impl Open {
    fn counts(&self) -> FamilyCounts {
        FamilyCounts {
            ipv4: self.ipv4.load(Ordering::Relaxed),
            ipv6: self.ipv6.load(Ordering::Relaxed),
        }
    }
}

/// One connection, as long as it may last.
async fn client(
    (socket, place, lost): Client,
    latest: watch::Receiver<Arc<Snapshot>>,
    open: Arc<Open>,
) {
    let ipv6 = socket.local_addr().is_ok_and(|addr| addr.is_ipv6());
    let count = if ipv6 { &open.ipv6 } else { &open.ipv4 };
    count.fetch_add(1, Ordering::Relaxed);
    let metrics = || {
        let snapshot = latest.borrow().clone();
        render(&snapshot, open.counts())
    };
    let served = async {
        tokio::select! {
            served = serve(TcpStream::from_std(socket)?, &place, metrics) => served,
            _ = lost => Err(io::Error::other("it gave way to another")),
        }
    };
    match tokio::time::timeout(PATIENCE, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("A connection to the MetricsPort ended: {error}"),
        Err(_) => tracing::debug!("A connection to the MetricsPort took too long"),
    }
    count.fetch_sub(1, Ordering::Relaxed);
}

/// A request, an answer, the end.
async fn serve(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    place: &Seat,
    metrics: impl FnOnce() -> String,
) -> io::Result<()> {
    let mut head = Vec::new();
    let verdict = loop {
        if let Some(verdict) = request::parse(&head) {
            break verdict;
        }
        let room = request::MAX_HEAD.saturating_sub(head.len());
        let room = u64::try_from(room).unwrap_or(0);
        if (&mut socket).take(room).read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    };
    if !place.keep() {
        return Ok(());
    }
    socket
        .write_all(answer(verdict, metrics).as_bytes())
        .await?;
    socket.shutdown().await?;
    let mut rest = [0; 1024];
    let mut read = 0;
    while read < MAX_REST {
        match socket.read(&mut rest).await? {
            0 => break,
            more => read += more,
        }
    }
    Ok(())
}

/// The whole answer. HTTP/1.0, as C tor's, so that the connection's end is the answer's.
fn answer(verdict: Verdict, metrics: impl FnOnce() -> String) -> String {
    let (status, more, body) = match verdict {
        Verdict::Metrics => (
            "200 OK",
            "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n",
            metrics(),
        ),
        Verdict::Bad => ("400 Bad Request", "", String::new()),
        Verdict::NotFound => ("404 Not Found", "", String::new()),
        Verdict::NotAllowed => ("405 Method Not Allowed", "Allow: GET\r\n", String::new()),
    };
    let date = OffsetDateTime::from(SystemTime::now()).format(DATE);
    let date = date.map_or(String::new(), |date| format!("Date: {date}\r\n"));
    let length = body.len();
    format!(
        "HTTP/1.0 {status}\r\n{date}{more}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}
