//! The thread of the extended ORPort: transport programs authenticate there and send the client's
//! address; then the socket returns to the main thread, as one of the ORPort.
//! [`weft_proxy::transports::ExtOr`] parses their messages.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream as StdTcpStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{AbortHandle, LocalSet};
use weft_dir::sockets::{OpenSocket, Sockets};
use weft_log::RateLimit;
use weft_proxy::transports::{Client, ExtOr, Progress, Refused};

use crate::logging;
use crate::wake::WakeUp;

/// Connections whose programs have not proved yet that they know the cookie, at most: for one more the oldest is closed.
const MOST_STRANGERS: usize = 128;
/// The time that they have for it.
const PROVE_WITHIN: Duration = Duration::from_secs(5);
/// Connections of programs that know the cookie and that the main thread has not taken yet, at most: others are closed.
const MOST: usize = 1024;
/// The time that these have. Their clients' bytes wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);
/// Connections that may be open where the node has as many files as it may: handed over they take the place of another
/// connection, as those to the ORPort do.
const MOST_IF_FULL: usize = 16;
/// Bytes that are read at once: less than the client's first bytes, as these must come after our answer.
const READ: usize = 1024;
/// The interval of warnings about programs that do not know the cookie.
const QUIET: Duration = Duration::from_secs(60);

/// A connection whose client is known.
#[derive(Debug)]
pub(crate) struct HandedOver {
    pub(crate) socket: StdTcpStream,
    pub(crate) client: Client,
    /// It counts for our bounds until it is taken.
    _counted: Counted,
}

#[derive(Debug)]
struct Counted {
    _open: OpenSocket,
    _place: OwnedSemaphorePermit,
}

/// A connection that was accepted.
#[derive(Debug)]
struct Arrived {
    socket: StdTcpStream,
    protocol: ExtOr,
    open: OpenSocket,
    /// Number of connections without proof that may be open together with it.
    most_strangers: usize,
}

/// The thread, as the main thread holds it. Dropping it ends the thread and closes its connections.
#[derive(Debug)]
pub(crate) struct ExtOrServer {
    /// `None` once the thread is ending.
    to_thread: Option<mpsc::Sender<Arrived>>,
    handed_over: Receiver<HandedOver>,
    sockets: Arc<Sockets>,
    /// Places of connections whose programs know the cookie.
    places: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
}

impl ExtOrServer {
    /// Starts the thread. `main` wakes the main thread.
    ///
    /// # Errors
    ///
    /// The system has no thread for it.
    pub(crate) fn start(main: WakeUp) -> io::Result<Self> {
        ExtOrServer::with_patience(main, PROVE_WITHIN)
    }

    fn with_patience(main: WakeUp, prove_within: Duration) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (to_thread, arrived) = mpsc::channel(MOST_STRANGERS);
        let (sender, handed_over) = sync_channel(MOST);
        let places = Arc::new(Semaphore::new(MOST));
        let of_thread = places.clone();
        let thread = logging::spawn("ext-orport", move || {
            let server = Server {
                sender,
                main,
                prove_within,
                places: of_thread,
                strangers: RefCell::default(),
                wrong_hashes: RefCell::new(RateLimit::new(QUIET)),
            };
            // Dropped before the runtime is, with its connections.
            LocalSet::new().block_on(&runtime, Rc::new(server).run(arrived));
        })?;
        Ok(ExtOrServer {
            to_thread: Some(to_thread),
            handed_over,
            sockets: Arc::default(),
            places,
            thread: Some(thread),
        })
    }

    /// Takes a non-blocking connection; false: too many wait, and it is closed. `is_full`: the node has as many files as it
    /// may.
    pub(crate) fn serve(&self, socket: StdTcpStream, protocol: ExtOr, is_full: bool) -> bool {
        let proven = MOST.saturating_sub(self.places.available_permits());
        if is_full && proven >= MOST_IF_FULL {
            return false;
        }
        let peer = socket.peer_addr().ok().map(|peer| peer.ip());
        let arrived = Arrived {
            open: self.sockets.count(peer),
            socket,
            protocol,
            most_strangers: match is_full {
                true => MOST_IF_FULL,
                false => MOST_STRANGERS,
            },
        };
        let to_thread = self.to_thread.as_ref();
        to_thread.is_some_and(|to| to.try_send(arrived).is_ok())
    }

    /// The next connection whose client is known.
    pub(crate) fn next(&self) -> Option<HandedOver> {
        self.handed_over.try_recv().ok()
    }

    /// Connections that [`next`](Self::next) has not returned yet.
    pub(crate) fn open_files(&self) -> u64 {
        self.sockets.open()
    }
}

impl Drop for ExtOrServer {
    fn drop(&mut self) {
        self.to_thread = None;
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Tasks of connections whose programs have not proved anything yet, oldest first.
#[derive(Debug, Default)]
struct Strangers {
    last: u64,
    tasks: BTreeMap<u64, AbortHandle>,
}

/// State of the task.
struct Server {
    sender: SyncSender<HandedOver>,
    main: WakeUp,
    prove_within: Duration,
    places: Arc<Semaphore>,
    strangers: RefCell<Strangers>,
    wrong_hashes: RefCell<RateLimit>,
}

impl Server {
    async fn run(self: Rc<Self>, mut arrived: mpsc::Receiver<Arrived>) {
        while let Some(arrived) = arrived.recv().await {
            let mut strangers = self.strangers.borrow_mut();
            let most = arrived.most_strangers;
            strangers.last += 1;
            let number = strangers.last;
            // It begins once this task waits again.
            let task = tokio::task::spawn_local(self.clone().serve(arrived, number));
            strangers.tasks.insert(number, task.abort_handle());
            while strangers.tasks.len() > most
                && let Some((_, oldest)) = strangers.tasks.pop_first()
            {
                tracing::debug!("A connection to the Extended ORPort gave way to another one");
                oldest.abort();
            }
        }
    }

    async fn serve(self: Rc<Self>, arrived: Arrived, number: u64) {
        let Arrived {
            socket,
            mut protocol,
            open,
            ..
        } = arrived;
        let result = async {
            let mut socket = TcpStream::from_std(socket)?;
            let proof = authenticate(&mut socket, &mut protocol);
            let proved = tokio::time::timeout(self.prove_within, proof).await;
            self.strangers.borrow_mut().tasks.remove(&number);
            let progress = proved.map_err(|_| Failed::TooSlow)??;
            let place = self.places.clone().try_acquire_owned();
            let place = place.map_err(|_| Failed::TooMany)?;
            let client = learn_client(&mut socket, &mut protocol, progress);
            let client = tokio::time::timeout(PATIENCE, client).await;
            let counted = Counted {
                _open: open,
                _place: place,
            };
            Ok(HandedOver {
                client: client.map_err(|_| Failed::TooSlow)??,
                socket: socket.into_std()?,
                _counted: counted,
            })
        };
        match result.await {
            Ok(handed_over) => {
                // There is room for all that have a place.
                if self.sender.try_send(handed_over).is_ok() {
                    self.main.notify();
                }
            }
            Err(why) => self.log(&why),
        }
    }

    fn log(&self, why: &Failed) {
        if let Failed::Refused(Refused::WrongHash) = why {
            let mut limit = self.wrong_hashes.borrow_mut();
            // C tor's text and level.
            if let Some(more) = limit.check(Instant::now()) {
                tracing::warn!("{why}{more}");
            }
        } else {
            tracing::info!("A connection to the Extended ORPort failed: {why}");
        }
    }
}

/// Why a connection is not handed over.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Refused(Refused),
    #[error("it took too long")]
    TooSlow,
    #[error("too many are under way")]
    TooMany,
}

/// Goes on until the program has proved that it knows the cookie.
async fn authenticate(socket: &mut TcpStream, protocol: &mut ExtOr) -> Result<Progress, Failed> {
    socket.write_all(&protocol.greeting()).await?;
    loop {
        let progress = take_next(socket, protocol).await?;
        if protocol.is_authenticated() {
            return Ok(progress);
        }
    }
}

/// Goes on until the client is known.
async fn learn_client(
    socket: &mut TcpStream,
    protocol: &mut ExtOr,
    mut progress: Progress,
) -> Result<Client, Failed> {
    loop {
        match progress {
            Progress::Done(client) => return Ok(client),
            Progress::More => progress = take_next(socket, protocol).await?,
        }
    }
}

/// Waits for bytes, and answers them.
async fn take_next(socket: &mut TcpStream, protocol: &mut ExtOr) -> Result<Progress, Failed> {
    let mut buffer = [0; READ];
    let count = socket.read(&mut buffer).await?;
    if count == 0 {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    let mut answer = Vec::new();
    let read = buffer.get(..count).unwrap_or_default();
    let progress = protocol.receive(read, &mut answer);
    socket.write_all(&answer).await?;
    match progress {
        Ok(progress) => Ok(progress),
        Err(why) => {
            socket.shutdown().await?;
            Err(Failed::Refused(why))
        }
    }
}

#[cfg(test)]
mod tests;
