//! A directory task on a thread of its own, as the node holds it, and the streams that it serves.

use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::mpsc;

use super::{Config, DirectoryTask, EventSink};
use crate::PairSocket;
use crate::cache_server::{Asker, CacheServer, Requests};
use crate::clock::SystemClock;
use crate::command::Command;
use crate::hs_dir::HsDir;
use crate::sockets::Sockets;

/// Commands that may wait; a node that is further ahead gets an error and is not blocked.
const QUEUE: usize = 256;

/// Streams and connections that wait to be served.
const INCOMING: usize = 256;

/// What there is to serve.
#[derive(Debug)]
enum Incoming {
    /// The other end of a BEGIN_DIR stream, and who asks on it.
    Stream(UnixStream, Asker),
    /// A connection to the DirPort, and who asks on it.
    Connection(TcpStream, Asker),
}

/// A directory task on a thread of its own. Dropping it ends the task.
#[derive(Debug)]
pub struct DirectoryHandle {
    /// Where commands go.
    commands: mpsc::Sender<Command>,
    /// Where streams go.
    incoming: mpsc::Sender<Incoming>,
    sockets: Arc<Sockets>,
    requests: Arc<Requests>,
    received: Arc<Sockets>,
    hs_dir: Arc<HsDir>,
    thread: Option<JoinHandle<()>>,
}

/// Where connections to the DirPort go.
#[derive(Clone, Debug)]
pub struct DirPort(mpsc::Sender<Incoming>);

impl DirPort {
    /// Serves the directory on `connection`, on which `asker` asks: one request, one answer. False: too many wait; it is
    /// closed.
    pub fn serve(&self, connection: TcpStream, asker: Asker) -> bool {
        let incoming = Incoming::Connection(connection, asker);
        self.0.try_send(incoming).is_ok()
    }
}

/// The task does not take commands: it is overwhelmed or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the directory task does not take commands")]
pub struct NotTaken;

impl DirectoryHandle {
    /// Starts a task on the machine's clocks.
    pub fn start(config: Config, events: EventSink) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        let (incoming, waiting) = mpsc::channel(INCOMING);
        let clock = Arc::new(SystemClock::default());
        let task = DirectoryTask::new(config, clock.clone(), events);
        let sockets = task.sockets();
        let hs_dir = Arc::<HsDir>::default();
        let served = hs_dir.clone();
        let received = Arc::<Sockets>::default();
        let counted = received.clone();
        let server = CacheServer::new(task.documents(), served, clock);
        let requests = server.requests().clone();
        let thread = std::thread::Builder::new()
            .name("directory".into())
            .spawn(move || {
                let cleaning = server.clone();
                runtime.spawn(async move { cleaning.clean().await });
                runtime.spawn(serve_all(server, waiting, counted));
                runtime.block_on(task.run(receiver));
                // What is being compressed is not waited for: its file appears whole or not at all.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            commands: sender,
            incoming,
            sockets,
            requests,
            received,
            hs_dir,
            thread: Some(thread),
        })
    }

    /// Connections to authorities.
    pub fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// What is counted of the requests that are served.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Connections to the DirPort.
    pub fn received(&self) -> &Sockets {
        &self.received
    }

    /// Descriptors of onion services that are kept.
    pub fn hs_dir(&self) -> &HsDir {
        &self.hs_dir
    }

    /// Sends a command without waiting.
    pub fn send(&self, command: Command) -> Result<(), NotTaken> {
        self.commands.try_send(command).map_err(|_| NotTaken)
    }

    /// Serves the directory on `stream`, on which `asker` asks: one request, one answer. False: too many wait; the
    /// stream is closed.
    pub fn serve(&self, stream: UnixStream, asker: Asker) -> bool {
        let incoming = Incoming::Stream(stream, asker);
        self.incoming.try_send(incoming).is_ok()
    }

    /// Where connections to the DirPort go.
    pub fn dir_port(&self) -> DirPort {
        DirPort(self.incoming.clone())
    }

    /// Ends the task and waits for it; its last event is [`Event::State`].
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
async fn serve_all(
    server: CacheServer,
    mut incoming: mpsc::Receiver<Incoming>,
    received: Arc<Sockets>,
) {
    while let Some(incoming) = incoming.recv().await {
        let server = server.clone();
        // A socket that cannot be made ready is closed, which its other end notices.
        match incoming {
            Incoming::Stream(stream, asker) => {
                if let Ok(stream) = PairSocket::from_std(stream) {
                    tokio::spawn(async move { server.serve_tunneled(stream, asker).await });
                }
            }
            Incoming::Connection(stream, asker) => {
                let open = received.count(Some(asker.peer));
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
