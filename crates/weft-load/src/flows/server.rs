//! The server of all streams: one thread, which sends and takes what each request has.

use std::collections::{BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use slab::Slab;
use weft_model::traffic::ServerStream;

use super::clients::BEAT;
use super::socket::{self, CHUNK, Reading, TURNS};

const LISTENER: Token = Token(usize::MAX);
/// The most connections at once; one more is closed at once.
const CONNECTIONS: usize = 20_000;

/// A server of the streams of [`super::run`]. Ends when dropped, with its connections.
#[derive(Debug)]
pub struct FlowServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FlowServer {
    /// Starts it on this address; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// The address is in use, or the system refuses a thread or epoll.
    pub fn start(address: SocketAddr) -> Result<FlowServer> {
        let mut listener = TcpListener::bind(address)
            .with_context(|| format!("starting the traffic server on {address}"))?;
        let address = listener
            .local_addr()
            .context("starting the traffic server")?;
        let poll = Poll::new().context("starting the traffic server")?;
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)
            .context("starting the traffic server")?;
        let stop = Arc::new(AtomicBool::new(false));
        let serving = Serving {
            poll,
            listener,
            is_behind: false,
            stop: Arc::clone(&stop),
            start: Instant::now(),
            connections: Slab::new(),
            timers: BTreeSet::new(),
            ready: VecDeque::new(),
            buffer: vec![0; CHUNK],
        };
        let thread = thread::Builder::new()
            .name("flow server".into())
            .spawn(move || serving.run())
            .context("starting the traffic server's thread")?;
        Ok(FlowServer {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for FlowServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Connection {
    stream: TcpStream,
    traffic: ServerStream,
    timer: Option<Duration>,
    is_ready: bool,
}

struct Serving {
    poll: Poll,
    listener: TcpListener,
    /// There may be connections to accept, though epoll does not report them again.
    is_behind: bool,
    stop: Arc<AtomicBool>,
    start: Instant,
    connections: Slab<Connection>,
    timers: BTreeSet<(Duration, usize)>,
    ready: VecDeque<usize>,
    buffer: Vec<u8>,
}

impl Serving {
    fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        while !self.stop.load(Ordering::SeqCst) {
            let now = self.start.elapsed();
            let next = self
                .timers
                .first()
                .map_or(BEAT, |(at, _)| at.saturating_sub(now));
            let wait = match self.ready.is_empty() {
                true => next.min(BEAT),
                false => Duration::ZERO,
            };
            match self.poll.poll(&mut events, Some(wait)) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // Clients see their connections end and report that.
                Err(_) => return,
            }
            if std::mem::take(&mut self.is_behind) {
                self.accept();
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(),
                    Token(place) => self.make_ready(place),
                }
            }
            let now = self.start.elapsed();
            while let Some((at, place)) = self.timers.first().copied()
                && at <= now
            {
                self.timers.remove(&(at, place));
                if let Some(connection) = self.connections.get_mut(place) {
                    connection.timer = None;
                }
                self.make_ready(place);
            }
            for _ in 0..self.ready.len() {
                if let Some(place) = self.ready.pop_front() {
                    self.turn(place);
                }
            }
        }
    }

    fn make_ready(&mut self, place: usize) {
        if let Some(connection) = self.connections.get_mut(place)
            && !std::mem::replace(&mut connection.is_ready, true)
        {
            self.ready.push_back(place);
        }
    }

    fn accept(&mut self) {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) =>
                {
                    continue;
                }
                // No files: the connections that wait are accepted when there are some again.
                Err(_) => {
                    self.is_behind = true;
                    return;
                }
            };
            if self.connections.len() >= CONNECTIONS {
                continue;
            }
            let _ = stream.set_nodelay(true);
            let entry = self.connections.vacant_entry();
            let both = Interest::READABLE | Interest::WRITABLE;
            let token = Token(entry.key());
            if self
                .poll
                .registry()
                .register(&mut stream, token, both)
                .is_ok()
            {
                entry.insert(Connection {
                    stream,
                    traffic: ServerStream::default(),
                    timer: None,
                    is_ready: false,
                });
            }
        }
    }

    fn turn(&mut self, place: usize) {
        let now = self.start.elapsed();
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        connection.is_ready = false;
        let goes_on = connection.turn(now, &mut self.buffer);
        let next = match goes_on {
            Some(_) => connection.traffic.next_time(),
            None => None,
        };
        if let Some(at) = connection.timer.take() {
            self.timers.remove(&(at, place));
        }
        connection.timer = next;
        self.timers.extend(next.map(|at| (at, place)));
        match goes_on {
            Some(true) => self.make_ready(place),
            Some(false) => {}
            None => {
                self.connections.remove(place);
            }
        }
    }
}

impl Connection {
    /// Reads and writes what can be. `None` if the connection is over, else whether there may be more.
    fn turn(&mut self, now: Duration, buffer: &mut [u8]) -> Option<bool> {
        for _ in 0..TURNS {
            let read = match socket::read(&mut self.stream, buffer).ok()? {
                Reading::End => return None,
                Reading::Blocked => false,
                Reading::Bytes(count) => {
                    let bytes = buffer.get(..count).unwrap_or_default();
                    self.traffic.receive(bytes, now).ok()?;
                    true
                }
            };
            let output = self.traffic.output(now);
            let written = match output.is_empty() {
                true => None,
                false => socket::write(&mut self.stream, output).ok()?,
            };
            self.traffic.sent(written.unwrap_or(0));
            if !read && written.is_none() {
                return Some(false);
            }
        }
        Some(true)
    }
}
