//! One stream of a client on its socket: connect, ask the proxy, move the payload.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::TcpStream;
use weft_model::traffic::{ClientStream, Failure, FailureKind, Plan};
use weft_proxy::{Credentials, Protocol, Request, Secret};

use super::socket::{self, Reading, TURNS};

/// A client's connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) traffic: ClientStream,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// TCP to the proxy or the server. Then, what to ask the proxy.
    Connecting(Option<Box<Request>>),
    Asking(Box<Request>),
    Open,
}

/// The state of a connection after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The socket has nothing and takes nothing, or nothing is due.
    Waits,
    /// There may be more at once.
    Goes,
}

fn connect_failure(what: &str, addr: SocketAddr, error: &io::Error) -> Failure {
    Failure::new(
        FailureKind::Connect,
        format!("connecting to {what} {addr}: {error}"),
    )
}

fn broken(error: &io::Error) -> Failure {
    Failure::new(FailureKind::Closed, error.to_string())
}

impl Connection {
    /// Begins a connection: to the proxy as `user`, or to the server itself.
    pub(super) fn begin(
        proxy: Option<SocketAddr>,
        server: SocketAddr,
        user: String,
        plan: Plan,
        seed: u64,
        now: Duration,
    ) -> Result<Connection, Box<(ClientStream, Failure)>> {
        let traffic = ClientStream::new(plan, seed, now);
        let request = proxy.map(|_| {
            let credentials = Credentials {
                username: Secret::new(user),
                password: Secret::new("x".to_owned()),
            };
            Request::new(&Protocol::Socks5(Some(credentials)), server).map(Box::new)
        });
        let request = match request.transpose() {
            Ok(request) => request,
            Err(error) => {
                let failure = Failure::new(FailureKind::Proxy, error.to_string());
                return Err(Box::new((traffic, failure)));
            }
        };
        let (what, addr) = match proxy {
            Some(proxy) => ("the SOCKS port", proxy),
            None => ("the server", server),
        };
        match TcpStream::connect(addr) {
            Ok(stream) => Ok(Connection {
                stream,
                traffic,
                phase: Phase::Connecting(request),
            }),
            Err(error) => {
                let failure = connect_failure(what, addr, &error);
                Err(Box::new((traffic, failure)))
            }
        }
    }

    /// Reads and writes what can be. An error ends the stream.
    pub(super) fn turn(&mut self, now: Duration, buffer: &mut [u8]) -> Result<Turn, Failure> {
        if !self.connect(now)? {
            return Ok(Turn::Waits);
        }
        for _ in 0..TURNS {
            let (read, written) = (self.read(now, buffer)?, self.write(now)?);
            if self.traffic.is_complete() || !(read || written) {
                return Ok(Turn::Waits);
            }
        }
        Ok(Turn::Goes)
    }

    /// Returns true once TCP is connected.
    fn connect(&mut self, now: Duration) -> Result<bool, Failure> {
        let Phase::Connecting(request) = &mut self.phase else {
            return Ok(true);
        };
        let failure =
            |error: &io::Error| Failure::new(FailureKind::Connect, format!("connecting: {error}"));
        if let Some(error) = self.stream.take_error().map_err(|error| failure(&error))? {
            return Err(failure(&error));
        }
        if self.stream.peer_addr().is_err() {
            return Ok(false);
        }
        // A request and its payload go out at once; without this a small one waits for acknowledgements.
        let _ = self.stream.set_nodelay(true);
        self.phase = match request.take() {
            Some(request) => Phase::Asking(request),
            None => {
                self.traffic.opened(now);
                Phase::Open
            }
        };
        Ok(true)
    }

    fn read(&mut self, now: Duration, buffer: &mut [u8]) -> Result<bool, Failure> {
        // An answer of the proxy has no byte more than it needs: the server's first ones may follow it, which
        // the server sends only when we have asked it.
        let count = match socket::read(&mut self.stream, buffer).map_err(|error| broken(&error))? {
            Reading::Blocked => return Ok(false),
            Reading::End => {
                let message = "the connection ended before the stream was complete";
                return Err(Failure::new(FailureKind::Closed, message));
            }
            Reading::Bytes(count) => count,
        };
        let bytes = buffer.get(..count).unwrap_or_default();
        match &mut self.phase {
            Phase::Connecting(_) => {}
            Phase::Asking(request) => {
                let refused = |error: weft_proxy::ProxyError| {
                    Failure::new(FailureKind::Proxy, error.to_string())
                };
                request.receive(bytes).map_err(refused)?;
                if request.is_connected() {
                    self.traffic.opened(now);
                    self.phase = Phase::Open;
                }
            }
            Phase::Open => self.traffic.receive(bytes, now)?,
        }
        Ok(true)
    }

    fn write(&mut self, now: Duration) -> Result<bool, Failure> {
        let output = match &mut self.phase {
            Phase::Connecting(_) => return Ok(false),
            Phase::Asking(request) => request.output(),
            Phase::Open => self.traffic.output(now),
        };
        if output.is_empty() {
            return Ok(false);
        }
        let written = socket::write(&mut self.stream, output).map_err(|error| broken(&error))?;
        let Some(count) = written else {
            return Ok(false);
        };
        match &mut self.phase {
            Phase::Connecting(_) => {}
            Phase::Asking(request) => request.sent(count),
            Phase::Open => self.traffic.sent(count, now),
        }
        Ok(true)
    }
}
