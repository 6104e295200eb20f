//! The sockets of controllers, on a thread of their own. They come accepted; how many there are, how
//! much one may say at once, and how many events one may leave unread is bounded.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::SystemTime;

use rand::RngExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::backend::{Backend, Signal};
use super::events::Event;
use super::reader::{ReadError, Reader};
use super::session::{Session, Shared, mapped};
use super::view::iso_time_micros;

/// Controllers at once.
const MAX_CONTROLLERS: usize = 64;
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
    /// From a ControlPort.
    Tcp(std::net::TcpStream),
    /// From a ControlSocket.
    Unix(std::os::unix::net::UnixStream),
}

/// A controller, and its place among those that may be.
type Client = (ControlSocket, OwnedSemaphorePermit);

/// The thread, as the main thread sees it. Dropping it ends it, and every connection.
#[derive(Debug)]
pub struct ControlServer {
    /// `None` once it shall end.
    clients: Option<mpsc::Sender<Client>>,
    places: Arc<Semaphore>,
    open: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Starts the thread. `feed` runs on it, too, and is what makes events of what happens.
    ///
    /// # Errors
    ///
    /// The system has no more threads or file descriptors.
    pub fn start(
        backend: impl Backend,
        shared: Shared,
        feed: impl Future<Output = ()> + Send + 'static,
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
                    while let Some((socket, place)) = clients.recv().await {
                        count.fetch_add(1, Ordering::Relaxed);
                        let (backend, shared, count) =
                            (backend.clone(), shared.clone(), count.clone());
                        tokio::spawn(async move {
                            client(socket, backend, shared).await;
                            count.fetch_sub(1, Ordering::Relaxed);
                            drop(place);
                        });
                    }
                });
            })?;
        Ok(ControlServer {
            clients: Some(sender),
            places: Arc::new(Semaphore::new(MAX_CONTROLLERS)),
            open,
            thread: Some(thread),
        })
    }

    /// Takes a controller; false: there are too many.
    pub fn serve(&self, socket: ControlSocket) -> bool {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return false;
        };
        self.clients
            .as_ref()
            .is_some_and(|clients| clients.try_send((socket, place)).is_ok())
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
async fn client<B: Backend>(socket: ControlSocket, backend: B, shared: Arc<Shared>) {
    let mut session = Session::new(backend.clone(), shared);
    let ended = match socket {
        ControlSocket::Tcp(socket) => match tokio::net::TcpStream::from_std(socket) {
            Ok(socket) => {
                let _ = socket.set_nodelay(true);
                talk(socket, &mut session, &backend).await
            }
            Err(error) => Err(error),
        },
        ControlSocket::Unix(socket) => match tokio::net::UnixStream::from_std(socket) {
            Ok(socket) => talk(socket, &mut session, &backend).await,
            Err(error) => Err(error),
        },
    };
    if let Err(error) = ended {
        tracing::debug!("A controller's connection ended: {error}");
    }
    if session.is_owner() {
        crate::notice!("Owning controller connection has closed -- exiting now.");
        backend.signal(Signal::Halt);
    }
}

/// Commands and replies, and events between them.
async fn talk<B: Backend>(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    session: &mut Session<B>,
    backend: &B,
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
