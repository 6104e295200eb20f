//! The sockets of controllers, on a thread of their own. They come accepted; how many there are, how
//! much one may say at once, and how many events one may leave unread is bounded. At the bound one that
//! has not authenticated gives way to a newcomer.

#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use rand::RngExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, mpsc, oneshot};
use weft_dir::clock::Clock;
use weft_share::{Place, Places, network};

use super::backend::{Backend, Signal};
use super::events::Event;
use super::reader::{ReadError, Reader};
use super::session::{Session, Shared, mapped};
use super::view::iso_time_micros;
use crate::logging::RateLimit;

/// Controllers at once.
const MAX_CONTROLLERS: usize = 64;
/// How long a controller may take to authenticate. Some ask a human for the password meanwhile. C tor
/// waits without end, but where places are short, silent controllers give way long before.
const AUTHENTICATION_TIME: Duration = Duration::from_secs(300);
/// Log lines about controllers that give way.
const QUIET: Duration = Duration::from_secs(300);
/// Bytes read from a controller at once.
const READ: usize = 16 * 1024;
/// Lookups of one controller at once.
const MAX_LOOK_UPS: usize = 64;
/// Bytes of events that are written together, at least one.
const MAX_BATCH: usize = 64 * 1024;

/// What a browser that was made to come here reads.
const HTTP_PAGE: &str = "HTTP/1.0 501 Tor ControlPort is not an HTTP proxy\r\n\
    Content-Type: text/html; charset=utf-8\r\n\r\n\
    <!DOCTYPE html>\n<html>\n<head><title>This is no proxy</title></head>\n<body>\n\
    <h1>This is a control port, not an HTTP proxy</h1>\n\
    <p>Your browser uses Tor's control port as a proxy. Set the SocksPort as its SOCKS proxy \
    instead.</p>\n</body>\n</html>\n";

/// A controller's socket, non-blocking.
#[derive(Debug)]
pub enum ControlSocket {
    /// From a ControlPort, and whose it is.
    Tcp(std::net::TcpStream, IpAddr),
    /// From a ControlSocket.
    Unix(std::os::unix::net::UnixStream),
}

/// Whose a controller is: its address, or `None` for all that come by Unix sockets.
type Owner = Option<IpAddr>;
/// A controller's place among those that may be. Authenticated controllers are kept.
type Seat = Place<Owner, oneshot::Sender<()>>;

/// A controller, its place, and what resolves when it has to give that up.
type Client = (ControlSocket, Seat, oneshot::Receiver<()>);

/// The thread, as the main thread sees it. Dropping it ends it, and every connection.
#[derive(Debug)]
pub struct ControlServer {
    /// `None` once it shall end.
    clients: Option<mpsc::Sender<Client>>,
    places: Arc<Places<Owner, oneshot::Sender<()>>>,
    displaced: RateLimit,
    open: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Starts the thread. `feed` runs on it, too, and is what makes events of what happens. How long
    /// controllers take to authenticate goes by `clock`.
    ///
    /// # Errors
    ///
    /// The system has no more threads or file descriptors.
    pub fn start(
        backend: impl Backend,
        shared: Shared,
        feed: impl Future<Output = ()> + Send + 'static,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (sender, mut clients) = mpsc::channel::<Client>(MAX_CONTROLLERS);
        let open = Arc::new(AtomicUsize::new(0));
        let (shared, count) = (Arc::new(shared), open.clone());
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                runtime.block_on(async move {
                    tokio::spawn(feed);
                    while let Some(new) = clients.recv().await {
                        count.fetch_add(1, Ordering::Relaxed);
                        let (backend, shared) = (backend.clone(), shared.clone());
                        let (clock, count) = (clock.clone(), count.clone());
                        tokio::spawn(async move {
                            client(new, backend, shared, &*clock).await;
                            count.fetch_sub(1, Ordering::Relaxed);
                        });
                    }
                });
            })?;
        Ok(ControlServer {
            clients: Some(sender),
            places: Places::new(MAX_CONTROLLERS, MAX_CONTROLLERS),
            displaced: RateLimit::new(QUIET),
            open,
            thread: Some(thread),
        })
    }

    /// Takes a controller; one that has not authenticated may have to give way to it. False: there are
    /// too many that have, or the thread does not keep up.
    pub fn serve(&mut self, socket: ControlSocket, now: Instant) -> bool {
        let owner = match &socket {
            ControlSocket::Tcp(_, address) => Some(network(*address)),
            ControlSocket::Unix(_) => None,
        };
        // Nobody gives way to one whom the thread cannot take.
        let Some(Ok(to_thread)) = self.clients.as_ref().map(mpsc::Sender::try_reserve) else {
            return false;
        };
        let (stays, lost) = oneshot::channel();
        let Some((place, displaced)) = self.places.take(owner, stays) else {
            return false;
        };
        to_thread.send((socket, place, lost));
        if displaced.is_some()
            && let Some(more) = self.displaced.check(now)
        {
            tracing::warn!(
                "There are {MAX_CONTROLLERS} controllers: closed one that had not authenticated, for a \
                 new one{more}"
            );
        }
        true
    }

    /// How many controllers there are.
    #[must_use]
    pub fn controllers(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        // The thread ends when nobody can send to it, and its connections with its runtime.
        self.clients = None;
        if let Some(thread) = self.thread.take() {
            // One that panicked has nothing left to say.
            let _ = thread.join();
        }
    }
}

/// One controller, as long as it stays.
async fn client<B: Backend>(
    (socket, place, lost): Client,
    backend: B,
    shared: Arc<Shared>,
    clock: &dyn Clock,
) {
    let mut session = Session::new(backend.clone(), shared);
    // Its time begins before it hears anything.
    let time = clock.sleep(AUTHENTICATION_TIME);
    let talk = async {
        match socket {
            ControlSocket::Tcp(socket, _) => {
                let socket = tokio::net::TcpStream::from_std(socket)?;
                let _ = socket.set_nodelay(true);
                talk(socket, &mut session, &backend, &place).await
            }
            ControlSocket::Unix(socket) => {
                let socket = tokio::net::UnixStream::from_std(socket)?;
                talk(socket, &mut session, &backend, &place).await
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
        ended = talk => ended,
        _ = lost => Err(io::Error::other("it gave way to another")),
        () = overdue => Err(io::Error::other("it did not authenticate in time")),
    };
    if let Err(error) = ended {
        tracing::debug!("A controller's connection ended: {error}");
    }
    if session.is_owner() {
        crate::notice!("Owning controller connection has closed -- exiting now.");
        backend.signal(Signal::Halt);
    }
}

/// Commands and replies, and events between them. Keeps the place once the controller has
/// authenticated.
async fn talk<B: Backend>(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    session: &mut Session<B>,
    backend: &B,
    place: &Seat,
) -> io::Result<()> {
    let mut events = backend.events();
    let mut reader = Reader::default();
    let mut buffer = vec![0; READ];
    let (found, mut looked_up) = mpsc::channel::<Vec<Event>>(MAX_LOOK_UPS);
    let look_ups = Arc::new(Semaphore::new(MAX_LOOK_UPS));
    loop {
        // What came already is carried out before more is read, and replies come before the events
        // that they cause.
        match reader.next_command() {
            Ok(Some(command)) => {
                let nonce: [u8; 32] = rand::rng().random();
                let reply = session.command(&command, nonce).await;
                if session.is_trusted() && !place.keep() {
                    return Ok(());
                }
                socket.write_all(reply.encode().as_bytes()).await?;
                if reply.close {
                    return socket.shutdown().await;
                }
                if session.is_trusted() {
                    reader.trust();
                }
                for (name, address) in session.take_look_ups() {
                    let (backend, found) = (backend.clone(), found.clone());
                    let Ok(place) = look_ups.clone().try_acquire_owned() else {
                        let _ = found.try_send(mapped(&name, None));
                        continue;
                    };
                    tokio::spawn(async move {
                        let resolved = backend.look_up(name.clone(), address).await;
                        // The controller may have gone.
                        let _ = found.send(mapped(&name, resolved.as_ref())).await;
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
        let mut told = Vec::new();
        tokio::select! {
            // No command is dropped half read: reading has no other effect.
            read = socket.read(&mut buffer) => match read? {
                0 => return Ok(()),
                count => reader.push(buffer.get(..count).unwrap_or_default()),
            },
            event = events.recv() => match event {
                Ok(event) => told.push(event),
                Err(RecvError::Lagged(missed)) => tracing::warn!(
                    "A controller does not read its events: {missed} were dropped"
                ),
                // The node ends.
                Err(RecvError::Closed) => return Ok(()),
            },
            Some(found) = looked_up.recv() => told.extend(found),
        }
        let mut text = String::new();
        let now = iso_time_micros(SystemTime::now());
        for event in &told {
            text.extend(session.event(event, &now));
        }
        while !told.is_empty() && text.len() < MAX_BATCH {
            match events.try_recv() {
                Ok(event) => text.extend(session.event(&event, &now)),
                Err(_) => break,
            }
        }
        if !text.is_empty() {
            socket.write_all(text.as_bytes()).await?;
        }
    }
}
