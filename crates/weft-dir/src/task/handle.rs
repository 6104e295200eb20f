//! A directory task on a thread of its own, as the node holds it, and the streams that it serves.

use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::mpsc;
use weft_share::PreviousHop;

use super::{Config, DirectoryTask, EventSink};
use crate::PairSocket;
use crate::cache_server::{CacheServer, Requests};
use crate::clock::SystemClock;
use crate::command::Command;
use crate::sockets::Sockets;

/// Commands that may wait; a node that is further ahead gets an error and is not blocked.
const QUEUE: usize = 256;

/// Streams and listeners that wait to be served.
const INCOMING: usize = 256;

/// What there is to serve.
#[derive(Debug)]
enum Incoming {
    /// The other end of a BEGIN_DIR stream, the address that it comes from, and the hop.
    Stream(UnixStream, IpAddr, PreviousHop),
    /// A DirPort.
    Listener(TcpListener),
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
    thread: Option<JoinHandle<()>>,
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
        let server = CacheServer::new(task.documents(), clock);
        let requests = server.requests().clone();
        let thread = std::thread::Builder::new()
            .name("directory".into())
            .spawn(move || {
                runtime.spawn(serve_all(server, waiting));
                runtime.block_on(task.run(receiver));
                // What is being compressed is not waited for: its file appears whole or not at all.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            commands: sender,
            incoming,
            sockets,
            requests,
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

    /// Sends a command without waiting.
    pub fn send(&self, command: Command) -> Result<(), NotTaken> {
        self.commands.try_send(command).map_err(|_| NotTaken)
    }

    /// Serves the directory on `stream`, which came from `peer` by `hop`: one request, one answer.
    /// False: too many wait; the stream is closed.
    pub fn serve(&self, stream: UnixStream, peer: IpAddr, hop: PreviousHop) -> bool {
        let incoming = Incoming::Stream(stream, peer, hop);
        self.incoming.try_send(incoming).is_ok()
    }

    /// Serves the directory on all connections that `listener` accepts. False: too much waits.
    pub fn listen(&self, listener: TcpListener) -> bool {
        let incoming = Incoming::Listener(listener);
        self.incoming.try_send(incoming).is_ok()
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
async fn serve_all(server: CacheServer, mut incoming: mpsc::Receiver<Incoming>) {
    while let Some(incoming) = incoming.recv().await {
        let server = server.clone();
        // A socket that cannot be made ready is closed, which its other end notices.
        match incoming {
            Incoming::Stream(stream, peer, hop) => {
                if let Ok(stream) = PairSocket::from_std(stream) {
                    tokio::spawn(async move { server.serve_tunneled(stream, peer, hop).await });
                }
            }
            Incoming::Listener(listener) => {
                let listener = listener
                    .set_nonblocking(true)
                    .and_then(|()| tokio::net::TcpListener::from_std(listener));
                if let Ok(listener) = listener {
                    tokio::spawn(async move { server.accept(listener).await });
                }
            }
        }
    }
}
