//! The thread that answers requests. The main thread accepts sockets and applies the port's policy. The
//! number of connections, the time of each and the length of a request are bounded. At the bound a new
//! connection replaces one that has not sent its request.

#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, TcpStream as StdTcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use weft_core::controller::FamilyCounts;
use weft_dir::sockets::Sockets;
use weft_share::{Place, Places, network};

use super::render::render;
use super::request::{self, Verdict};
use super::snapshot::Snapshots;
use crate::logging;

/// Connections at once, at most.
const MAX_CONNECTIONS: usize = 16;
/// Connections with a complete request, which are not replaced. Fewer than all, because a peer may not read
/// its response; one that reads it is done at once, mostly.
const MAX_ANSWERED: usize = MAX_CONNECTIONS / 2;
/// Connections that may wait for the thread. More than there are places, because replaced connections
/// are among them.
const MAX_NEW: usize = 4 * MAX_CONNECTIONS;
/// The time limit of a connection.
const MAX_TIME: Duration = Duration::from_secs(10);
/// Bytes that are read and ignored after a response. Closing a socket that holds unread bytes would make
/// the kernel reset the connection, and the response could be lost.
const MAX_REST: usize = 64 * 1024;
/// The format of HTTP dates (RFC 1123).
const DATE: &[BorrowedFormatItem<'static>] = format_description!(
    "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
);

/// A connection's place among [`MAX_CONNECTIONS`], by the peer's network.
type ConnectionPlace = Place<IpAddr, oneshot::Sender<()>>;

/// A new connection: its socket, its place, and the signal that the place was given to another.
type Connection = (StdTcpStream, ConnectionPlace, oneshot::Receiver<()>);

/// The thread, as the main thread holds it. Dropping it ends the thread and closes all connections.
#[derive(Debug)]
pub(crate) struct MetricsServer {
    /// `None` once the thread is ending.
    to_thread: Option<mpsc::Sender<Connection>>,
    places: Arc<Places<IpAddr, oneshot::Sender<()>>>,
    /// `None` once joined.
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system has no more threads or file descriptors.
    pub(crate) fn start(snapshots: Arc<Snapshots>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (to_thread, mut connections) = mpsc::channel::<Connection>(MAX_NEW);
        let places = Places::new(MAX_CONNECTIONS, MAX_ANSWERED);
        let sockets = Arc::new(Sockets::default());
        let thread = logging::spawn("metrics", move || {
            runtime.block_on(async move {
                while let Some(new) = connections.recv().await {
                    tokio::spawn(serve_connection(new, snapshots.clone(), sockets.clone()));
                }
            });
        })?;
        Ok(MetricsServer {
            to_thread: Some(to_thread),
            places,
            thread: Some(thread),
        })
    }

    /// Takes a non-blocking connection of this peer; it may replace one that has not sent its request.
    /// False: there is no place, or the thread does not keep up.
    pub(crate) fn serve(&self, socket: StdTcpStream, from: IpAddr) -> bool {
        // First room in the channel: no connection is closed for one that the thread cannot take.
        let Some(Ok(to_thread)) = self.to_thread.as_ref().map(mpsc::Sender::try_reserve) else {
            return false;
        };
        let (keep, lost) = oneshot::channel();
        let Some((place, _)) = self.places.take(network(from), keep) else {
            return false;
        };
        to_thread.send((socket, place, lost));
        true
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        // The thread ends when the channel closes, and the connections with its runtime.
        self.to_thread = None;
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Serves one connection, within its time limit.
async fn serve_connection(
    (socket, place, lost): Connection,
    snapshots: Arc<Snapshots>,
    sockets: Arc<Sockets>,
) {
    // A peer that has left already has no address any more; which one is listening shows the family.
    let listening = socket
        .local_addr()
        .ok()
        .map(|addr| addr.ip().to_canonical());
    let _open = sockets.count(listening);
    let loopback = listening.is_none_or(|addr| addr.is_loopback());
    let metrics = || {
        let (ipv4, ipv6) = (sockets.ipv4().open, sockets.ipv6().open);
        render(&snapshots.all(), FamilyCounts { ipv4, ipv6 })
    };
    let served = async {
        tokio::select! {
            served = answer_request(TcpStream::from_std(socket)?, loopback, &place, metrics) => served,
            _ = lost => Err(io::Error::other("another took its place")),
        }
    };
    match tokio::time::timeout(MAX_TIME, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("A connection to the MetricsPort ended: {error}"),
        Err(_) => tracing::debug!("A connection to the MetricsPort took too long"),
    }
}

/// Reads a request, sends the response, and closes.
async fn answer_request(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    loopback: bool,
    place: &ConnectionPlace,
    metrics: impl FnOnce() -> String,
) -> io::Result<()> {
    let mut head = Vec::new();
    let verdict = loop {
        if let Some(verdict) = request::parse(&head, loopback) {
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
        .write_all(response(verdict, metrics).as_bytes())
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

/// The response: HTTP/1.0, as C tor's, so that it ends with the connection.
fn response(verdict: Verdict, metrics: impl FnOnce() -> String) -> String {
    let (status, more, body) = match verdict {
        Verdict::Metrics => (
            "200 OK",
            "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n",
            metrics(),
        ),
        Verdict::Bad => ("400 Bad Request", "", String::new()),
        Verdict::NotFound => ("404 Not Found", "", String::new()),
        Verdict::OtherHost => ("403 Forbidden", "", String::new()),
        Verdict::NotAllowed => ("405 Method Not Allowed", "Allow: GET\r\n", String::new()),
    };
    let date = OffsetDateTime::from(SystemTime::now()).format(DATE);
    let date = date.map_or(String::new(), |date| format!("Date: {date}\r\n"));
    let length = body.len();
    format!(
        "HTTP/1.0 {status}\r\n{date}{more}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}
