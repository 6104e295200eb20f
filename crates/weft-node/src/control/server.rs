//! The sockets of controllers, on a thread of their own. The main thread accepts them. The number of
//! connections, the length of a command and the number of unread events are bounded. At the bound of
//! connections a new one replaces one that has not authenticated.

#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, Shutdown};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use rand::RngExt as _;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, mpsc, oneshot};
use weft_dir::clock::Clock;
use weft_dir::sockets::Sockets;
use weft_log::RateLimit;
use weft_share::{Place, Places, network};

use super::backend::{Backend, Signal};
use super::events::Event;
use super::reader::{ReadError, Reader};
use super::session::{Session, Shared, addrmap_events};
use super::view::iso_time_micros;
use crate::logging;

/// Controllers at once, at most.
const MAX_CONTROLLERS: usize = 64;
/// Time that a controller may take to authenticate: some ask their user for the password. (C tor
/// has no limit.) While places are short, silent controllers are closed long before.
const AUTHENTICATION_TIME: Duration = Duration::from_secs(300);
/// The interval of log lines about controllers that were closed for others.
const LOG_INTERVAL: Duration = Duration::from_secs(300);
/// Bytes read from a controller at once, at most.
const READ_SIZE: usize = 16 * 1024;
/// Lookups of one controller at once, at most.
const MAX_LOOKUPS: usize = 64;
/// Bytes after which no more events are added to one write.
const MAX_BATCH: usize = 64 * 1024;

/// The answer to a browser.
const HTTP_PAGE: &str = "HTTP/1.0 501 Tor ControlPort is not an HTTP proxy\r\n\
    Content-Type: text/html; charset=utf-8\r\n\r\n\
    <!DOCTYPE html>\n<html>\n<head><title>This is no proxy</title></head>\n<body>\n\
    <h1>This is a control port, not an HTTP proxy</h1>\n\
    <p>Your browser uses Tor's control port as a proxy. Set the SocksPort as its SOCKS proxy \
    instead.</p>\n</body>\n</html>\n";

/// A controller's socket, non-blocking.
#[derive(Debug)]
pub(crate) enum ControlSocket {
    /// A connection to a ControlPort, with the peer's address.
    Tcp(std::net::TcpStream, IpAddr),
    /// A connection to a ControlSocket.
    Unix(std::os::unix::net::UnixStream),
}

impl ControlSocket {
    /// The peer's address; `None`: of a Unix socket.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        match self {
            ControlSocket::Tcp(_, address) => Some(*address),
            ControlSocket::Unix(_) => None,
        }
    }
}

/// The key by which places are shared: the peer's network, or `None` for all Unix sockets.
type Owner = Option<IpAddr>;
/// A controller's place among [`MAX_CONTROLLERS`]. Authenticated controllers keep theirs.
type ControllerPlace = Place<Owner, oneshot::Sender<()>>;

/// Privileges of a controller when it connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Authenticate.
    Stranger,
    /// Everything: the node belongs to it (`__OwningControllerFD`).
    Owner,
}

/// A new controller: its socket, its standing, its place, and the signal that the place was given to another.
type Controller = (
    ControlSocket,
    Standing,
    ControllerPlace,
    oneshot::Receiver<()>,
);

/// The control thread, as the main thread holds it. Dropping it ends the thread and closes all connections.
#[derive(Debug)]
pub(crate) struct ControlServer {
    /// `None` once the thread is ending.
    to_thread: Option<mpsc::Sender<Controller>>,
    places: Arc<Places<Owner, oneshot::Sender<()>>>,
    displaced_lines: RateLimit,
    sockets: Arc<Sockets>,
    thread: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Starts the thread. `feed` runs on it, too, and sends the events. `clock` times authentication.
    ///
    /// # Errors
    ///
    /// The system has no more threads or file descriptors.
    pub(crate) fn start(
        backend: impl Backend,
        shared: Shared,
        feed: impl Future<Output = ()> + Send + 'static,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (to_thread, mut controllers) = mpsc::channel::<Controller>(MAX_CONTROLLERS);
        let sockets = Arc::new(Sockets::default());
        let (shared, counters) = (Arc::new(shared), sockets.clone());
        let thread = logging::spawn("control", move || {
            runtime.block_on(async move {
                tokio::spawn(feed);
                while let Some(new) = controllers.recv().await {
                    let open = counters.count(new.0.peer());
                    let (backend, shared) = (backend.clone(), shared.clone());
                    let clock = clock.clone();
                    tokio::spawn(async move {
                        serve_controller(new, backend, shared, &*clock).await;
                        drop(open);
                    });
                }
            });
        })?;
        Ok(ControlServer {
            to_thread: Some(to_thread),
            places: Places::new(MAX_CONTROLLERS, MAX_CONTROLLERS),
            displaced_lines: RateLimit::new(LOG_INTERVAL),
            sockets,
            thread: Some(thread),
        })
    }

    /// Takes a controller; it may replace one that has not authenticated. False: all places belong to
    /// authenticated controllers, or the thread does not keep up.
    pub(crate) fn serve(
        &mut self,
        socket: ControlSocket,
        standing: Standing,
        now: Instant,
    ) -> bool {
        let owner = socket.peer().map(network);
        // First room in the channel: no controller is closed for one that the thread cannot take.
        let Some(Ok(to_thread)) = self.to_thread.as_ref().map(mpsc::Sender::try_reserve) else {
            return false;
        };
        let (keep, lost) = oneshot::channel();
        let Some((place, displaced)) = self.places.take(owner, keep) else {
            return false;
        };
        to_thread.send((socket, standing, place, lost));
        if displaced.is_some()
            && let Some(more) = self.displaced_lines.check(now)
        {
            tracing::warn!(
                "There are {MAX_CONTROLLERS} controllers: closed one that had not authenticated, for a \
                 new one{more}"
            );
        }
        true
    }

    /// The connections of controllers.
    #[must_use]
    pub(crate) fn sockets(&self) -> &Sockets {
        &self.sockets
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        // The thread ends when the channel closes, and the connections with its runtime.
        self.to_thread = None;
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Serves one controller until its connection closes.
async fn serve_controller<B: Backend>(
    (socket, standing, place, lost): Controller,
    backend: B,
    shared: Arc<Shared>,
    clock: &dyn Clock,
) {
    let mut session = Session::new(backend.clone(), shared);
    if standing == Standing::Owner {
        session.own();
        if !place.keep() {
            return;
        }
    }
    // The time runs from before the first reply.
    let time = clock.sleep(AUTHENTICATION_TIME);
    let connection = async {
        match socket {
            ControlSocket::Tcp(socket, _) => {
                let socket = tokio::net::TcpStream::from_std(socket)?;
                let _ = socket.set_nodelay(true);
                run_session(socket, &mut session, &backend, &place).await
            }
            ControlSocket::Unix(socket) => {
                let socket = tokio::net::UnixStream::from_std(socket)?;
                run_session(socket, &mut session, &backend, &place).await
            }
        }
    };
    let overdue = async {
        time.await;
        if place.is_kept() {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        ended = connection => ended,
        _ = lost => Err(io::Error::other("another took its place")),
        () = overdue => Err(io::Error::other("it did not authenticate in time")),
    };
    if let Err(error) = ended {
        tracing::debug!("A controller's connection ended: {error}");
    }
    if session.is_owner() {
        crate::notice!("Owning controller connection has closed -- exiting now.");
        backend.signal(Signal::Halt).await;
    }
}

/// Reads commands and sends replies, and events between them. Keeps the place once the controller has
/// authenticated.
async fn run_session<B: Backend>(
    mut socket: impl AsyncRead + AsyncWrite + AsFd + Unpin,
    session: &mut Session<B>,
    backend: &B,
    place: &ControllerPlace,
) -> io::Result<()> {
    let mut events = backend.events();
    let mut reader = Reader::default();
    if session.is_trusted() {
        reader.trust();
    }
    let mut buffer = vec![0; READ_SIZE];
    let (found, mut looked_up) = mpsc::channel::<Vec<Event>>(MAX_LOOKUPS);
    let lookups = Arc::new(Semaphore::new(MAX_LOOKUPS));
    loop {
        // Commands that were received run before more is read, and replies precede the events that they
        // cause.
        match reader.next_command() {
            Ok(Some(command)) => {
                let nonce: [u8; 32] = rand::rng().random();
                let reply = session.command(&command, nonce).await;
                if session.is_trusted() && !place.keep() {
                    return Ok(());
                }
                if reply.close {
                    // Who has read the reply and writes once more finds a Unix socket closed, however soon that is.
                    let _ = SockRef::from(&socket).shutdown(Shutdown::Read);
                }
                socket.write_all(reply.encode().as_bytes()).await?;
                if reply.close {
                    return socket.shutdown().await;
                }
                if session.is_trusted() {
                    reader.trust();
                }
                for (name, address) in session.take_lookups() {
                    let (backend, found) = (backend.clone(), found.clone());
                    let Ok(place) = lookups.clone().try_acquire_owned() else {
                        let _ = found.try_send(addrmap_events(&name, None));
                        continue;
                    };
                    tokio::spawn(async move {
                        let resolved = backend.look_up(name.clone(), address).await;
                        // The connection may have closed.
                        let _ = found.send(addrmap_events(&name, resolved.as_ref())).await;
                        drop(place);
                    });
                }
                continue;
            }
            Ok(None) => {}
            Err(ReadError::Http) => {
                tracing::warn!(
                    "A browser came to the ControlPort: it was made to, or is set wrong"
                );
                socket.write_all(HTTP_PAGE.as_bytes()).await?;
                return socket.shutdown().await;
            }
            Err(ReadError::TooLong) => {
                tracing::warn!("A controller's command is too long. Closing its connection");
                return Ok(());
            }
        }
        let mut pending = Vec::new();
        tokio::select! {
            // Cancelling this read loses no bytes.
            read = socket.read(&mut buffer) => match read? {
                0 => return Ok(()),
                count => reader.push(buffer.get(..count).unwrap_or_default()),
            },
            event = events.recv() => match event {
                Ok(event) => pending.push(event),
                Err(RecvError::Lagged(missed)) => tracing::warn!(
                    "A controller does not read its events: {missed} were dropped"
                ),
                // The node ends.
                Err(RecvError::Closed) => return Ok(()),
            },
            Some(found) = looked_up.recv() => pending.extend(found),
        }
        let mut text = String::new();
        let now = iso_time_micros(SystemTime::now());
        for event in &pending {
            text.extend(session.encode_event(event, &now));
        }
        while !pending.is_empty() && text.len() < MAX_BATCH {
            match events.try_recv() {
                Ok(event) => text.extend(session.encode_event(&event, &now)),
                Err(_) => break,
            }
        }
        if !text.is_empty() {
            socket.write_all(text.as_bytes()).await?;
        }
    }
}
