//! The thread of the extended ORPort: programs of transports authenticate there and send whose bytes follow; then the socket
//! goes back to the main thread, as one of the ORPort. What they send is read by [`weft_transports::ExtOr`].

use std::io;
use std::net::TcpStream as StdTcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use weft_transports::{Client, ExtOr, Progress};

use crate::thread::mesh::WakeUp;

/// Connections that have not been handed over, at most: those of a flood are closed.
const MOST: usize = 1024;
/// The time that a program has. Its client's bytes wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that are read at once: less than the client's first bytes, as these must come after our answer.
const READ: usize = 1024;

/// A connection whose client is known.
#[derive(Debug)]
pub(crate) struct HandedOver {
    pub(crate) socket: StdTcpStream,
    pub(crate) client: Client,
}

/// The thread, as the main thread holds it. Dropping it ends the thread and closes its connections.
#[derive(Debug)]
pub(crate) struct ExtOrServer {
    /// `None` once the thread is ending.
    to_thread: Option<mpsc::Sender<(StdTcpStream, ExtOr)>>,
    handed_over: Receiver<HandedOver>,
    thread: Option<JoinHandle<()>>,
}

impl ExtOrServer {
    /// Starts the thread. `main` wakes the main thread.
    ///
    /// # Errors
    ///
    /// The system has no thread for it.
    pub(crate) fn start(main: WakeUp) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (to_thread, mut new) = mpsc::channel::<(StdTcpStream, ExtOr)>(MOST);
        let (sender, handed_over) = sync_channel(MOST);
        let main = Arc::new(main);
        let places = Arc::new(Semaphore::new(MOST));
        let thread = std::thread::Builder::new()
            .name("ext-orport".into())
            .spawn(move || {
                runtime.block_on(async move {
                    while let Some((socket, protocol)) = new.recv().await {
                        // One that finds no place is closed.
                        let Ok(place) = places.clone().try_acquire_owned() else {
                            continue;
                        };
                        let (sender, main) = (sender.clone(), main.clone());
                        tokio::spawn(async move {
                            serve(socket, protocol, &sender, &main).await;
                            drop(place);
                        });
                    }
                });
            })?;
        Ok(ExtOrServer {
            to_thread: Some(to_thread),
            handed_over,
            thread: Some(thread),
        })
    }

    /// Takes a non-blocking connection; false: too many wait, and it is closed.
    pub(crate) fn serve(&self, socket: StdTcpStream, protocol: ExtOr) -> bool {
        let to_thread = self.to_thread.as_ref();
        to_thread.is_some_and(|to| to.try_send((socket, protocol)).is_ok())
    }

    /// The next connection whose client is known.
    pub(crate) fn next(&self) -> Option<HandedOver> {
        self.handed_over.try_recv().ok()
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

async fn serve(
    socket: StdTcpStream,
    protocol: ExtOr,
    sender: &SyncSender<HandedOver>,
    main: &WakeUp,
) {
    let Ok(socket) = TcpStream::from_std(socket) else {
        return;
    };
    match tokio::time::timeout(PATIENCE, talk(socket, protocol)).await {
        Ok(Ok(handed_over)) => {
            // The main thread is a thousand behind: the connection is closed.
            if sender.try_send(handed_over).is_ok() {
                main.notify();
            }
        }
        Ok(Err(why)) => tracing::info!("A connection to the Extended ORPort failed: {why}"),
        Err(_) => tracing::info!("A connection to the Extended ORPort took too long"),
    }
}

async fn talk(mut socket: TcpStream, mut protocol: ExtOr) -> io::Result<HandedOver> {
    socket.write_all(&protocol.greeting()).await?;
    let mut buffer = [0; READ];
    loop {
        let count = socket.read(&mut buffer).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut answer = Vec::new();
        let read = buffer.get(..count).unwrap_or_default();
        let progress = protocol.receive(read, &mut answer);
        socket.write_all(&answer).await?;
        match progress {
            Ok(Progress::More) => {}
            Ok(Progress::Done(client)) => {
                let socket = socket.into_std()?;
                return Ok(HandedOver { socket, client });
            }
            Err(why) => {
                socket.shutdown().await?;
                return Err(io::Error::other(why.to_string()));
            }
        }
    }
}

#[cfg(test)]
mod tests;
