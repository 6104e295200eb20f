//! A node's directory task, on a separate thread, and the streams that it serves.

use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::mpsc;
use weft_dir::PairSocket;
use weft_dir::clock::SystemClock;
use weft_dir::command::Command;
use weft_dir::documents::CachedDocuments;
use weft_dir::sockets::{OpenSocket, Sockets};
use weft_dir::task::{Config, DirectoryTask, EventSink};

use crate::authority::Authority;
use crate::budget::Budget;
use crate::consensus_cache::ConsensusCache;
use crate::hs_dir::HsDir;
use crate::places::Places;
use crate::requests::Requests;
use crate::server::{Asker, CacheServer};

/// Commands that may wait; a node that is further ahead gets an error and is not blocked.
const QUEUE: usize = 256;

/// Streams and connections that wait to be served.
const INCOMING: usize = 256;

/// A stream or connection to serve.
#[derive(Debug)]
enum Incoming {
    /// The other end of a BEGIN_DIR stream, and who asks on it.
    Stream(UnixStream, Asker, OpenSocket),
    /// A connection to the DirPort, and who asks on it.
    Connection(TcpStream, Asker, OpenSocket),
}

/// A directory task on a separate thread. Dropping it ends the task.
#[derive(Debug)]
pub struct DirectoryHandle {
    /// Where commands go.
    commands: mpsc::Sender<Command>,
    /// Where streams go.
    incoming: mpsc::Sender<Incoming>,
    sockets: Arc<Sockets>,
    requests: Arc<Requests>,
    received: Arc<Sockets>,
    streams: Arc<Sockets>,
    places: Arc<Places>,
    documents: Arc<CachedDocuments>,
    hs_dir: Arc<HsDir>,
    budget: Arc<Budget>,
    thread: Option<JoinHandle<()>>,
}

/// Where connections to the DirPort go.
#[derive(Clone, Debug)]
pub struct DirPort {
    incoming: mpsc::Sender<Incoming>,
    received: Arc<Sockets>,
    places: Arc<Places>,
}

impl DirPort {
    /// Serves the directory on `connection`, on which `asker` asks: one request, one answer. False: too many wait; it is
    /// closed.
    pub fn serve(&self, connection: TcpStream, asker: Asker) -> bool {
        // Connections that lost their places, and those that have none yet.
        let most = self.places.most() + self.places.most() / 4;
        if self.received.open() >= u64::try_from(most).unwrap_or(u64::MAX) {
            return false;
        }
        let open = self.received.count(Some(asker.peer));
        let incoming = Incoming::Connection(connection, asker, open);
        self.incoming.try_send(incoming).is_ok()
    }
}

/// The task does not take commands: it is overwhelmed or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the directory task does not take commands")]
pub struct NotTaken;

impl DirectoryHandle {
    /// Starts a task on the machine's clocks; where the relay is an authority, `authority` has what is served.
    pub fn start(
        config: Config,
        authority: Option<Arc<dyn Authority>>,
        events: EventSink,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        let (incoming, waiting) = mpsc::channel(INCOMING);
        let clock = Arc::new(SystemClock::default());
        let diffs = Box::new(ConsensusCache::new(&config.options.cache_directory));
        let task = DirectoryTask::new(config, diffs, clock.clone(), events);
        let sockets = task.sockets();
        let hs_dir = Arc::<HsDir>::default();
        let served = hs_dir.clone();
        let received = Arc::<Sockets>::default();
        let documents = task.documents();
        let server = CacheServer::new(documents.clone(), served, clock).with_authority(authority);
        let places = server.places().clone();
        let budget = server.budget().clone();
        let requests = server.requests().clone();
        let thread = std::thread::Builder::new()
            .name("directory".into())
            .spawn(move || {
                let cleaning = server.clone();
                runtime.spawn(async move { cleaning.clean().await });
                runtime.spawn(serve_all(server, waiting));
                runtime.block_on(task.run(receiver));
                // Running compressions are not waited for: a file appears whole or not at all.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            commands: sender,
            incoming,
            sockets,
            requests,
            received,
            streams: Arc::default(),
            places,
            documents,
            hs_dir,
            budget,
            thread: Some(thread),
        })
    }

    /// The documents to serve.
    pub fn documents(&self) -> &Arc<CachedDocuments> {
        &self.documents
    }

    /// Connections to authorities.
    pub fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Counters of the requests that were served.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Connections to the DirPort.
    pub fn received(&self) -> &Sockets {
        &self.received
    }

    /// Files that are open for others' requests and for connections to directories. Of a BEGIN_DIR stream that is the
    /// end that is here.
    pub fn open_files(&self) -> u64 {
        self.sockets.open() + self.received.open() + self.streams.open()
    }

    /// Serves no more than `most` streams and connections at once.
    pub fn set_most_streams(&self, most: usize) {
        self.places.set_most(most);
    }

    /// Descriptors of onion services that are kept.
    pub fn hs_dir(&self) -> &HsDir {
        &self.hs_dir
    }

    /// The memory held by streams and connections, by requester.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Sends a command without waiting.
    pub fn send(&self, command: Command) -> Result<(), NotTaken> {
        self.commands.try_send(command).map_err(|_| NotTaken)
    }

    /// Serves the directory on `stream`, on which `asker` asks: one request, one answer. False: too many wait; the
    /// stream is closed.
    pub fn serve(&self, stream: UnixStream, asker: Asker) -> bool {
        let incoming = Incoming::Stream(stream, asker, self.streams.count(None));
        self.incoming.try_send(incoming).is_ok()
    }

    /// Where connections to the DirPort go.
    pub fn dir_port(&self) -> DirPort {
        DirPort {
            incoming: self.incoming.clone(),
            received: self.received.clone(),
            places: self.places.clone(),
        }
    }

    /// Ends the task and waits for it; its last event is [`Event::State`](weft_dir::command::Event::State).
    pub fn shutdown(mut self) {
        // A full queue cannot take the command; closing the channel below has the same effect.
        let _ = self.commands.try_send(Command::Shutdown);
        self.commands = mpsc::channel(1).0;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves whatever comes.
async fn serve_all(server: CacheServer, mut incoming: mpsc::Receiver<Incoming>) {
    while let Some(incoming) = incoming.recv().await {
        let server = server.clone();
        // A socket that cannot be made ready is closed, which its other end notices.
        match incoming {
            Incoming::Stream(stream, asker, open) => {
                if let Ok(stream) = PairSocket::from_std(stream) {
                    tokio::spawn(async move {
                        server.serve_tunneled(stream, asker).await;
                        drop(open);
                    });
                }
            }
            Incoming::Connection(stream, asker, open) => {
                let stream = stream
                    .set_nonblocking(true)
                    .and_then(|()| tokio::net::TcpStream::from_std(stream));
                if let Ok(stream) = stream {
                    tokio::spawn(async move {
                        server.serve_direct(stream, asker).await;
                        drop(open);
                    });
                }
            }
        }
    }
}
