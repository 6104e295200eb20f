//! The server at the far end: takes uploads, sends downloads, one after another on a connection.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, ensure};

use super::payload::{CHUNK, Hasher, Payload};
use super::request::{Direction, Request, STALL};

/// The most connections at once; one more is closed at once.
const CONNECTIONS: usize = 1024;

/// A server on a free loopback port. Ends when dropped; connections end with their clients.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server.
    pub fn start() -> Result<Server> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("starting the traffic server")?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("traffic server".into())
            .spawn(move || accept(&listener, &stopped))
            .context("starting the traffic server's thread")?;
        Ok(Server {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the accepting thread; if that fails it has ended already.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, stopped: &AtomicBool) {
    let open = Arc::new(AtomicUsize::new(0));
    while let Ok((stream, _)) = listener.accept() {
        if stopped.load(Ordering::SeqCst) {
            return;
        }
        if open.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS {
            open.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let counted = Arc::clone(&open);
        let serving = thread::Builder::new()
            .name("traffic".into())
            .spawn(move || {
                // The client sees a broken connection and reports what it was doing.
                let _ = serve(stream);
                counted.fetch_sub(1, Ordering::SeqCst);
            });
        if serving.is_err() {
            open.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn serve(mut stream: TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(STALL))?;
    stream.set_write_timeout(Some(STALL))?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; CHUNK];
    loop {
        let mut frame = [0; Request::LENGTH];
        stream.read_exact(&mut frame)?;
        let request = Request::decode(frame).context("not a request")?;
        let digest = match request.direction {
            Direction::Down => {
                let mut payload = Payload::new(request.seed, request.bytes);
                loop {
                    let count = payload.fill(&mut buffer);
                    if count == 0 {
                        break payload.digest();
                    }
                    stream.write_all(&buffer[..count])?;
                }
            }
            Direction::Up => {
                let mut hash = Hasher::default();
                let mut left = request.bytes;
                while left > 0 {
                    let most = buffer
                        .len()
                        .min(usize::try_from(left).unwrap_or(usize::MAX));
                    let count = stream.read(&mut buffer[..most])?;
                    ensure!(count > 0, "the client left");
                    hash.update(&buffer[..count]);
                    left -= count as u64;
                }
                hash.digest()
            }
        };
        stream.write_all(&digest)?;
    }
}
