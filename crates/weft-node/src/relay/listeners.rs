//! The sockets of ORPort and MetricsPort: opened at the start, opened and closed as SIGHUP changes
//! the lines.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};

use mio::net::TcpListener;
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use weft_core::controller::FamilyCounts;

use crate::metrics::ListenerCounts;
use crate::torrc::options::NetworkOptions;
use crate::torrc::{Options, OrPort, PortNumber};

/// Connections that the kernel may hold ready.
const BACKLOG: i32 = 1024;

/// A listener that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("could not listen on {addr}: {source}; is another relay running, or the port below 1024?")]
pub struct ListenError {
    addr: SocketAddr,
    source: io::Error,
}

/// Whom a listener is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// Relays and clients (`ORPort`).
    Or,
    /// Whoever watches this relay (`MetricsPort`).
    Metrics,
}

impl std::fmt::Display for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Service::Or => "OR",
            Service::Metrics => "Metrics",
        })
    }
}

/// What asks for a listener.
#[derive(Clone, Copy, Debug)]
struct Line {
    service: Service,
    port: OrPort,
}

/// One open listener.
#[derive(Debug)]
struct Listener {
    /// The line that asked for it.
    line: Line,
    /// Where it listens, with the port that the system chose where the line says `auto`.
    bound: SocketAddr,
    socket: TcpListener,
    token: Token,
}

/// The open listeners, and which address and port of each family the descriptor tells.
#[derive(Debug)]
pub(super) struct Listeners {
    open: Vec<Listener>,
    /// Advertised: the address that the line names (or none) and the port as bound.
    pub(super) advertised: Vec<(IpAddr, u16)>,
    /// The next listener's token; none is used twice.
    next_token: usize,
    /// Opened for the ORPort since the start, and for the MetricsPort.
    opened: (FamilyCounts, FamilyCounts),
}

impl Listeners {
    /// Opens what the ORPort and MetricsPort lines ask for; nothing with `DisableNetwork`.
    ///
    /// # Errors
    ///
    /// A port cannot be bound. An address that no line names (IPv6 on a machine without it) may
    /// fail quietly as long as the other family's works.
    pub(super) fn open(options: &Options) -> Result<Self, ListenError> {
        let mut listeners = Listeners {
            open: Vec::new(),
            advertised: Vec::new(),
            next_token: 0,
            opened: Default::default(),
        };
        listeners.follow(options)?;
        Ok(listeners)
    }

    /// Watches the sockets for connections.
    ///
    /// # Errors
    ///
    /// epoll refuses.
    pub(super) fn register(&mut self, registry: &Registry) -> io::Result<()> {
        for listener in &mut self.open {
            registry.register(&mut listener.socket, listener.token, Interest::READABLE)?;
        }
        Ok(())
    }

    /// Does what other lines ask for: sockets that stay the same stay open.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), or epoll refuses: then the listeners are those from before.
    pub(super) fn reopen(
        &mut self,
        options: &Options,
        registry: &Registry,
    ) -> Result<(), ListenError> {
        let before: Vec<Token> = self.tokens();
        let result = self.follow(options);
        for listener in &mut self.open {
            if before.contains(&listener.token) {
                continue;
            }
            let watched =
                registry.register(&mut listener.socket, listener.token, Interest::READABLE);
            if let Err(error) = watched {
                tracing::warn!(
                    "Could not watch the listener on {}: {error}",
                    listener.bound
                );
            }
        }
        result
    }

    /// The listeners' event-loop tokens.
    pub(super) fn tokens(&self) -> Vec<Token> {
        self.open.iter().map(|listener| listener.token).collect()
    }

    /// Where each service listens.
    pub(super) fn bound(&self) -> impl Iterator<Item = (Service, SocketAddr)> {
        let open = self.open.iter();
        open.map(|listener| (listener.line.service, listener.bound))
    }

    /// Accepts a connection at a listener; `None`: it is closed.
    pub(super) fn accept(
        &self,
        token: Token,
    ) -> Option<(Service, io::Result<(mio::net::TcpStream, SocketAddr)>)> {
        let listener = self.open.iter().find(|listener| listener.token == token)?;
        Some((listener.line.service, listener.socket.accept()))
    }

    /// How many listeners there are and were for a service.
    pub(super) fn counts(&self, service: Service) -> ListenerCounts {
        let mut open = FamilyCounts::default();
        for listener in &self.open {
            if listener.line.service == service {
                *open.of(listener.bound.ip()) += 1;
            }
        }
        let opened = match service {
            Service::Or => self.opened.0,
            Service::Metrics => self.opened.1,
        };
        ListenerCounts { open, opened }
    }

    /// Opens and closes sockets until they are what the lines ask for, or all as before.
    fn follow(&mut self, options: &Options) -> Result<(), ListenError> {
        let or = options.network.or_ports.iter();
        let metrics = options.metrics.ports.iter();
        let lines: Vec<Line> = or
            .map(|port| (Service::Or, *port))
            .chain(metrics.map(|port| (Service::Metrics, *port)))
            .map(|(service, port)| Line { service, port })
            .collect();
        let mut old = std::mem::take(&mut self.open);
        let (mut kept, mut missing) = (Vec::new(), Vec::new());
        let opened = |line: &&Line| line.port.listen && !options.network.disabled;
        for line in lines.iter().filter(opened) {
            let same = |listener: &Listener| is_same(&listener.line, line);
            match old.iter().position(same) {
                Some(at) => {
                    let mut listener = old.swap_remove(at);
                    listener.line = *line;
                    kept.push(listener);
                }
                None => missing.push(*line),
            }
        }
        let mut change = Change::default();
        let result = self.open_all(&missing, &mut old, &mut change);
        let for_relays = |listener: &Listener| listener.line.service == Service::Or;
        let nothing = !kept.iter().chain(&change.opened).any(for_relays);
        let error = match result {
            Err(error) => Some(error),
            Ok(Some(error)) if nothing => Some(error),
            Ok(_) => None,
        };
        self.open = kept;
        if let Some(error) = error {
            drop(change.opened);
            self.open.append(&mut old);
            for (line, bound) in change.closed {
                match listen(bound) {
                    Ok(socket) => {
                        let listener = self.listener(line, bound, socket);
                        self.open.push(listener);
                    }
                    Err(error) => {
                        tracing::warn!("Could not open the listener on {bound} again: {error}");
                    }
                }
            }
            return Err(error);
        }
        let closed = old.iter();
        let closed = closed.map(|listener| (listener.line.service, listener.bound));
        let was_closed = change.closed.iter();
        let was_closed = was_closed.map(|(line, bound)| (line.service, *bound));
        for (service, bound) in closed.chain(was_closed) {
            crate::notice!("Closing no-longer-configured {service} listener on {bound}");
        }
        for listener in &change.opened {
            let (service, bound) = (listener.line.service, listener.bound);
            let opened = match service {
                Service::Or => &mut self.opened.0,
                Service::Metrics => &mut self.opened.1,
            };
            *opened.of(bound.ip()) += 1;
            crate::notice!("Opened {service} listener on {bound}");
        }
        self.open.append(&mut change.opened);
        self.advertise(&options.network);
        Ok(())
    }

    /// Opens a socket for each line. One of `old` that is in the way of it is closed first: one
    /// address and all addresses cannot have the same port at once. Returns the last failure that
    /// is none, because the line does not name the address that cannot be bound.
    fn open_all(
        &mut self,
        lines: &[Line],
        old: &mut Vec<Listener>,
        change: &mut Change,
    ) -> Result<Option<ListenError>, ListenError> {
        let mut quiet = None;
        for line in lines {
            let addr = line.port.to_bind();
            let mut result = listen(addr);
            let in_the_way = |listener: &Listener| listener.bound.port() == addr.port();
            if matches!(&result, Err(error) if error.kind() == io::ErrorKind::AddrInUse)
                && old.iter().any(in_the_way)
            {
                let closed = old.extract_if(.., |listener| in_the_way(listener));
                let closed = closed.map(|listener| (listener.line, listener.bound));
                change.closed.extend(closed);
                result = listen(addr);
            }
            match result {
                Ok(socket) => {
                    let listener = self.listener(*line, addr, socket);
                    change.opened.push(listener);
                }
                Err(source) if !line.port.explicit_address => {
                    tracing::info!("Not listening on {addr}: {source}");
                    quiet = Some(ListenError { addr, source });
                }
                Err(source) => return Err(ListenError { addr, source }),
            }
        }
        Ok(quiet)
    }

    /// A socket with a token of its own.
    fn listener(&mut self, line: Line, addr: SocketAddr, socket: TcpListener) -> Listener {
        let token = Token(self.next_token);
        self.next_token += 1;
        Listener {
            line,
            bound: socket.local_addr().unwrap_or(addr),
            socket,
            token,
        }
    }

    /// Finds what the descriptor tells.
    fn advertise(&mut self, network: &NetworkOptions) {
        let open = &self.open;
        let or = |port| Line {
            service: Service::Or,
            port,
        };
        // What is closed for a while stays our address, unless its port was the system's choice.
        let closed = |line: &OrPort| network.disabled && line.port != PortNumber::Auto;
        self.advertised = network
            .or_ports
            .iter()
            .filter(|line| line.advertise)
            .filter_map(|line| {
                let port = match line.listen && !closed(line) {
                    true => open
                        .iter()
                        .find(|listener| is_same(&listener.line, &or(*line)))?
                        .bound
                        .port(),
                    false => line.port.to_bind(),
                };
                Some((line.address, port))
            })
            .collect();
    }
}

/// What a new configuration did to the sockets so far.
#[derive(Debug, Default)]
struct Change {
    opened: Vec<Listener>,
    /// Lines and addresses of sockets that were closed because they were in the way.
    closed: Vec<(Line, SocketAddr)>,
}

/// Whether two lines ask for the same socket.
fn is_same(one: &Line, other: &Line) -> bool {
    let socket = |line: &Line| (line.port.address, line.port.port);
    one.service == other.service && socket(one) == socket(other)
}

/// One listener; IPv6 ones take no IPv4.
fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if addr.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// Begins to connect; the thread that gets the socket waits for the end of it.
pub(super) fn connect(
    to: SocketAddr,
    from: Option<IpAddr>,
    constrained: Option<usize>,
) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    constrain(SockRef::from(&socket), constrained);
    if let Some(from) = from {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

/// Bounds the kernel's buffers of a socket (`ConstrainedSockets`).
pub(super) fn constrain(socket: SockRef<'_>, bytes: Option<usize>) {
    let Some(bytes) = bytes else { return };
    for (set, which) in [
        (socket.set_send_buffer_size(bytes), "send"),
        (socket.set_recv_buffer_size(bytes), "receive"),
    ] {
        if let Err(error) = set {
            tracing::warn!("Could not constrain a {which} buffer to {bytes} bytes: {error}");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::relay::testing::options;

    /// Options with these ORPort lines.
    fn lines(lines: &[String]) -> Options {
        let lines: String = lines
            .iter()
            .map(|line| format!("ORPort {line}\n"))
            .collect();
        options(&format!("ContactInfo x\nExitRelay 0\n{lines}"))
    }

    fn open(texts: &[&str]) -> Listeners {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        Listeners::open(&lines(&texts)).unwrap()
    }

    fn ports(listeners: &Listeners) -> Vec<u16> {
        listeners
            .open
            .iter()
            .map(|open| open.bound.port())
            .collect()
    }

    fn registry() -> (mio::Poll, Registry) {
        let poll = mio::Poll::new().unwrap();
        let registry = poll.registry().try_clone().unwrap();
        (poll, registry)
    }

    #[test]
    fn without_a_network_nothing_is_open_and_the_address_stays() {
        let (_poll, registry) = registry();
        let mut listeners = open(&["127.0.0.1:auto"]);
        let port = ports(&listeners)[0];
        let on = lines(&[format!("127.0.0.1:{port}")]);
        let off = |options: &Options| {
            let mut options = options.clone();
            options.network.disabled = true;
            options
        };
        listeners.reopen(&off(&on), &registry).unwrap();
        assert!(listeners.tokens().is_empty());
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        let address = ("127.0.0.1".parse().unwrap(), port);
        assert_eq!(listeners.advertised, [address]);
        listeners.reopen(&on, &registry).unwrap();
        assert_eq!(ports(&listeners), [port]);
        // Nobody knows the port that the system will choose.
        let chosen = lines(&["127.0.0.1:auto".to_owned()]);
        listeners.reopen(&off(&chosen), &registry).unwrap();
        assert!(listeners.advertised.is_empty());
    }

    #[test]
    fn a_line_that_stays_keeps_its_socket() {
        let (_poll, registry) = registry();
        let mut listeners = open(&["127.0.0.1:auto"]);
        let (port, token) = (ports(&listeners)[0], listeners.tokens()[0]);
        assert_eq!(listeners.advertised, [("127.0.0.1".parse().unwrap(), port)]);
        let more = ["127.0.0.1:auto NoAdvertise", "127.0.0.2:auto"].map(str::to_owned);
        listeners.reopen(&lines(&more), &registry).unwrap();
        assert_eq!(listeners.tokens().len(), 2);
        assert_eq!((ports(&listeners)[0], listeners.tokens()[0]), (port, token));
        let second = ports(&listeners)[1];
        assert_eq!(
            listeners.advertised,
            [("127.0.0.2".parse().unwrap(), second)]
        );
        listeners.reopen(&lines(&more[1..]), &registry).unwrap();
        assert_eq!(ports(&listeners), [second]);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "closed");
        assert!(listeners.accept(token).is_none());
        // A new socket is watched, and never has the token of an old one.
        assert_ne!(listeners.tokens()[0], token);
        let _client = TcpStream::connect(("127.0.0.2", second)).unwrap();
        assert!(listeners.accept(listeners.tokens()[0]).unwrap().1.is_ok());
    }

    #[test]
    fn a_port_that_is_taken_leaves_everything_as_it_was() {
        let (_poll, registry) = registry();
        let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = holder.local_addr().unwrap();
        let mut listeners = open(&["127.0.0.1:auto"]);
        let (port, tokens) = (ports(&listeners)[0], listeners.tokens());
        let other = ["127.0.0.2:auto".to_owned(), taken.to_string()];
        let error = listeners.reopen(&lines(&other), &registry).unwrap_err();
        assert!(error.to_string().contains(&taken.to_string()), "{error}");
        assert_eq!((ports(&listeners)[0], listeners.tokens()), (port, tokens));
        assert_eq!(listeners.advertised, [("127.0.0.1".parse().unwrap(), port)]);
        let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    }

    #[test]
    fn one_address_and_all_addresses_exchange_a_port() {
        let (_poll, registry) = registry();
        let mut listeners = open(&["127.0.0.1:auto"]);
        let port = ports(&listeners)[0];
        // "127.0.0.1:auto" is gone, and 0.0.0.0 cannot have its port as long as it listens.
        let all = [format!("0.0.0.0:{port}")];
        listeners.reopen(&lines(&all), &registry).unwrap();
        assert_eq!(
            listeners.open[0].bound,
            SocketAddr::new("0.0.0.0".parse().unwrap(), port)
        );
        // The other way round, with one that fails: all addresses have it again.
        let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = holder.local_addr().unwrap();
        let one = [format!("127.0.0.1:{port}"), taken.to_string()];
        listeners.reopen(&lines(&one), &registry).unwrap_err();
        assert_eq!(ports(&listeners), [port]);
        let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert!(listeners.accept(listeners.tokens()[0]).unwrap().1.is_ok());
    }

    #[test]
    fn a_metrics_port_comes_and_goes_and_never_alone_makes_a_relay() {
        let (_poll, registry) = registry();
        let or = "ContactInfo x\nExitRelay 0\nORPort 127.0.0.1:auto\n";
        let policy = "MetricsPortPolicy accept 127.0.0.1\n";
        let with = |metrics: &str| options(&format!("{or}{policy}{metrics}"));
        let mut listeners = Listeners::open(&with("MetricsPort auto\nMetricsPort [::1]:auto\n"))
            .or_else(|_| Listeners::open(&with("MetricsPort auto\n")))
            .unwrap();
        let (or_port, token) = (ports(&listeners)[0], listeners.tokens()[1]);
        assert_eq!(listeners.advertised.len(), 1, "it is nobody's business");
        assert_eq!(listeners.counts(Service::Metrics).open.ipv4, 1);
        let _client = TcpStream::connect(("127.0.0.1", ports(&listeners)[1])).unwrap();
        assert_eq!(listeners.accept(token).unwrap().0, Service::Metrics);
        listeners.reopen(&with(""), &registry).unwrap();
        assert_eq!(ports(&listeners), [or_port]);
        assert!(listeners.accept(token).is_none());
        // One that cannot be opened leaves all as it was.
        let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = holder.local_addr().unwrap().port();
        let error = listeners
            .reopen(&with(&format!("MetricsPort {taken}\n")), &registry)
            .unwrap_err();
        assert!(error.to_string().contains(&taken.to_string()), "{error}");
        assert_eq!(ports(&listeners), [or_port]);
        let counts = listeners.counts(Service::Or);
        assert_eq!((counts.open.ipv4, counts.opened.ipv4), (1, 1));
        assert_eq!(
            listeners.counts(Service::Metrics).open,
            FamilyCounts::default()
        );
    }

    #[test]
    fn sockets_are_constrained_where_they_shall_be() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let size = |constrained| {
            let socket = connect(to, None, constrained).unwrap();
            SockRef::from(&socket).send_buffer_size().unwrap()
        };
        // Linux doubles what it is asked for.
        assert_eq!(size(Some(8192)), 2 * 8192);
        assert!(size(None) > 2 * 8192);
    }

    #[test]
    fn connections_come_from_the_address_that_is_set() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let options = options("OutboundBindAddress 127.0.0.2\nOutboundBindAddressOR 127.0.0.3\n");
        let from = options.network.outbound_bind.for_relay(to.ip());
        let socket = connect(to, from, None).unwrap();
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), "127.0.0.3".parse::<IpAddr>().unwrap());
        drop(socket);
    }
}
