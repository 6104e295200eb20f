//! Destinations on loopback for streams that leave the target.

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, SockRef, Socket, Type};

/// Behaviour of a server toward everybody who connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behaviour {
    /// Answers the first byte with this number of bytes, and closes.
    Answer(usize),
    /// Sends this number of bytes as fast as they are taken, then nothing; reads nothing.
    Flood(usize),
    /// Sends nothing; reads nothing before [`Server::read_now`].
    Late,
}

/// A server. Ends, with all its connections, when dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    read_now: AtomicBool,
}

/// Interval at which the server checks for a new order.
const LOOK: Duration = Duration::from_millis(20);
/// Connections that a server keeps at most; the next are closed at once.
const MAX_CONNECTIONS: usize = 18_000;
/// Socket buffer of one connection, in bytes: small, so that the target holds the data.
const BUFFER: usize = 16 << 10;
const LISTENER: Token = Token(usize::MAX);

impl Server {
    pub(super) fn start(behaviour: Behaviour) -> Result<Server> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        // Accepted sockets inherit them.
        if behaviour == Behaviour::Late {
            socket.set_recv_buffer_size(4096)?;
        }
        socket.set_send_buffer_size(BUFFER)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        socket.listen(4096)?;
        socket.set_nonblocking(true)?;
        let listener = std::net::TcpListener::from(socket);
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let mut world = World {
            poll: Poll::new()?,
            listener: TcpListener::from_std(listener),
            connections: HashMap::new(),
            next: 0,
            behaviour,
            shared: shared.clone(),
            scratch: vec![0x5a; 32 << 10],
        };
        world
            .poll
            .registry()
            .register(&mut world.listener, LISTENER, Interest::READABLE)?;
        let thread = thread::Builder::new()
            .name("destination".into())
            .spawn(move || world.serve())
            .context("starting a server")?;
        Ok(Server {
            address,
            shared,
            thread: Some(thread),
        })
    }

    /// From now on everything is read.
    pub(super) fn read_now(&self, now: bool) {
        self.shared.read_now.store(now, Ordering::Relaxed);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Connection {
    socket: TcpStream,
    /// Bytes that are still to be sent.
    owed: usize,
    close: bool,
}

struct World {
    poll: Poll,
    listener: TcpListener,
    connections: HashMap<usize, Connection>,
    next: usize,
    behaviour: Behaviour,
    shared: Arc<Shared>,
    scratch: Vec<u8>,
}

impl World {
    fn serve(&mut self) {
        let mut events = Events::with_capacity(1024);
        let mut reading = false;
        while !self.shared.stop.load(Ordering::Relaxed) {
            // An error is a signal's, or leaves nothing to be done.
            let _ = self.poll.poll(&mut events, Some(LOOK));
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(),
                    Token(key) => self.turn(key),
                }
            }
            let read_now = self.shared.read_now.load(Ordering::Relaxed);
            if read_now && !reading {
                for key in self.connections.keys().copied().collect::<Vec<_>>() {
                    self.turn(key);
                }
            }
            reading = read_now;
        }
        // Reset, so that no port waits for two minutes.
        for connection in self.connections.values() {
            let _ = SockRef::from(&connection.socket).set_linger(Some(Duration::ZERO));
        }
    }

    fn accept(&mut self) {
        while let Ok((mut socket, _)) = self.listener.accept() {
            let interest = Interest::READABLE | Interest::WRITABLE;
            let key = self.next;
            self.next += 1;
            if self.connections.len() >= MAX_CONNECTIONS
                || (self.poll.registry())
                    .register(&mut socket, Token(key), interest)
                    .is_err()
            {
                continue;
            }
            let owed = match self.behaviour {
                Behaviour::Flood(bytes) => bytes,
                Behaviour::Answer(_) | Behaviour::Late => 0,
            };
            let connection = Connection {
                socket,
                owed,
                close: false,
            };
            self.connections.insert(key, connection);
            self.turn(key);
        }
    }

    /// Does for a connection what can be done; one that has ended is dropped.
    fn turn(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        let reads = match self.behaviour {
            Behaviour::Answer(_) => true,
            Behaviour::Flood(_) => false,
            Behaviour::Late => self.shared.read_now.load(Ordering::Relaxed),
        };
        let mut ended = match reads {
            true => read(connection, self.behaviour, &mut self.scratch),
            false => has_ended(connection),
        };
        while connection.owed > 0 && !ended {
            let length = connection.owed.min(self.scratch.len());
            match connection
                .socket
                .write(self.scratch.get(..length).unwrap_or_default())
            {
                Ok(count) => connection.owed -= count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => ended = true,
            }
        }
        if ended || connection.close && connection.owed == 0 {
            self.connections.remove(&key);
        }
    }
}

/// Reads everything; whether the connection has ended.
fn read(connection: &mut Connection, behaviour: Behaviour, scratch: &mut [u8]) -> bool {
    loop {
        match connection.socket.read(scratch) {
            Ok(0) => return true,
            Ok(_) => {
                if let Behaviour::Answer(bytes) = behaviour
                    && !connection.close
                {
                    (connection.owed, connection.close) = (bytes, true);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return true,
        }
    }
}

/// True if the other end has closed or reset the connection, as far as that shows without reading
/// what it sent.
fn has_ended(connection: &Connection) -> bool {
    match connection.socket.peek(&mut [0]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// Listeners that let the kernel accept connections and never take one: a link that is opened to one of
/// them waits until it gives up.
pub(super) struct Holes(Vec<Socket>);

impl Holes {
    pub(super) fn dig(count: usize) -> Result<Holes> {
        let dig = || -> Result<Socket> {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
            socket.listen(512)?;
            Ok(socket)
        };
        Ok(Holes((0..count).map(|_| dig()).collect::<Result<_>>()?))
    }

    /// One of their addresses, in turns.
    pub(super) fn address(&self, number: usize) -> Result<SocketAddr> {
        let hole = self.0.get(number % self.0.len().max(1));
        let address = hole.context("no listener")?.local_addr()?;
        address.as_socket().context("no address")
    }
}
