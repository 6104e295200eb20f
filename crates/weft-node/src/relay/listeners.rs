//! The sockets of all ports: ORPort, MetricsPort, those of applications, ControlPort. Opened
//! at the start; opened and closed as SIGHUP, or a controller, changes the lines.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use mio::{Interest, Registry, Token};
use weft_config::options::NetworkOptions;
use weft_config::options::{AppPort, AppService, ListenAt, Redirection};
use weft_config::{Options, OrPort, PortNumber};
use weft_core::controller::FamilyCounts;

use super::listen_socket::{Accepted, Bound, ListenError, ListenSocket};
use crate::metrics::ListenerCounts;
use crate::notice;

/// The purpose of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// Relays and clients (`ORPort`).
    Or,
    /// Programs of pluggable transports (`ExtORPort`).
    ExtOr,
    /// Directory requests without encryption (`DirPort`).
    Dir,
    /// Monitoring (`MetricsPort`).
    Metrics,
    /// Applications (`SocksPort`, `HTTPTunnelPort`, `TransPort`, `NATDPort`, `DNSPort`).
    App(AppService),
    /// Controllers (`ControlPort`, `ControlSocket`).
    Control,
}

impl Service {
    /// True if other members of the network connect to this service.
    pub(super) fn is_network(self) -> bool {
        matches!(self, Service::Or | Service::ExtOr | Service::Dir)
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Service::Or => f.write_str("OR"),
            Service::ExtOr => f.write_str("Extended OR"),
            Service::Dir => f.write_str("Directory"),
            Service::Metrics => f.write_str("Metrics"),
            Service::App(service) => service.fmt(f),
            Service::Control => f.write_str("Control"),
        }
    }
}

/// A listener that torrc asks for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    service: Service,
    at: ListenAt,
    /// The number of an application's port ([`AppPorts`](super::app_ports::AppPorts)); 0 for others.
    number: u32,
    /// Failing to bind is an error, not a line in the log.
    required: bool,
}

/// The listeners that torrc asks for; with `DisableNetwork` those of controllers alone, and where the relay hibernates
/// none for relays, clients and applications. `apps` are the ports of applications with their numbers; `leads`: the
/// ports of the process are this identity's.
pub(super) fn wanted(
    options: &Options,
    apps: &[(u32, AppPort)],
    hibernating: bool,
    leads: bool,
) -> Vec<Wanted> {
    let or = |service| {
        move |port: &OrPort| Wanted {
            service,
            at: at(port),
            number: 0,
            required: port.explicit_address,
        }
    };
    let (ors, metrics) = (&options.network.or_ports, &options.metrics.ports);
    let mut wanted = Vec::new();
    if !options.network.disabled {
        let ors = ors.iter().filter(|port| port.listen && !hibernating);
        wanted.extend(ors.map(or(Service::Or)));
        let dirs = options.directory.dir_ports.iter();
        let dirs = dirs.filter(|port| port.listen && !hibernating && options.is_relay());
        wanted.extend(dirs.map(or(Service::Dir)));
        let ext_ors = options.bridge_relay.ext_or_ports.iter();
        wanted.extend(ext_ors.filter(|_| !hibernating).map(or(Service::ExtOr)));
        let metrics = metrics.iter().filter(|port| port.listen && leads);
        wanted.extend(metrics.map(or(Service::Metrics)));
        let apps = apps.iter().filter(|_| !hibernating);
        wanted.extend(apps.map(|(number, port)| Wanted {
            service: Service::App(port.service),
            at: port.at.clone(),
            number: *number,
            required: true,
        }));
    }
    wanted.extend(options.control.ports.iter().map(|at| Wanted {
        service: Service::Control,
        at: at.clone(),
        number: 0,
        required: true,
    }));
    wanted
}

impl Wanted {
    /// It takes connections to any address.
    fn is_transparent(&self) -> bool {
        self.service == Service::App(AppService::Transparent(Redirection::Tproxy))
    }
}

fn at(port: &OrPort) -> ListenAt {
    ListenAt::Tcp {
        address: port.address,
        port: port.port,
    }
}

/// An open listener.
#[derive(Debug)]
struct Listener {
    /// The option that requests it.
    wanted: Wanted,
    bound: Bound,
    socket: ListenSocket,
    token: Token,
}

impl Listener {
    fn is_for(&self, wanted: &Wanted) -> bool {
        self.wanted.service == wanted.service && self.wanted.at == wanted.at
    }
}

/// The open listeners.
///
/// [`follow`](Self::follow) opens and closes sockets until they are those that torrc asks for; if
/// one cannot be opened, all stay as they were. A socket stays open while its service and address
/// stay the same. Each listener has a separate token, which is never used again.
#[derive(Debug, Default)]
pub(super) struct ListenerSet {
    /// In the order of torrc's lines.
    open: Vec<Listener>,
    next_token: usize,
    /// Opened for each service since the start.
    opened: Vec<(Service, FamilyCounts)>,
}

impl ListenerSet {
    /// Watches the sockets for connections.
    ///
    /// # Errors
    ///
    /// epoll refuses.
    pub(super) fn register(&mut self, registry: &Registry) -> io::Result<()> {
        for listener in &mut self.open {
            registry.register(listener.socket.source(), listener.token, Interest::READABLE)?;
        }
        Ok(())
    }

    /// The tokens of all listeners.
    pub(super) fn tokens(&self) -> Vec<Token> {
        self.open.iter().map(|listener| listener.token).collect()
    }

    /// Where each service listens.
    pub(super) fn bound(&self) -> impl Iterator<Item = (Service, &Bound)> {
        let open = self.open.iter();
        open.map(|listener| (listener.wanted.service, &listener.bound))
    }

    /// The service of a listener, and the number of an application's port; `None`: no listener has this
    /// token.
    pub(super) fn service(&self, token: Token) -> Option<(Service, u32)> {
        let listener = self.at(token)?;
        Some((listener.wanted.service, listener.wanted.number))
    }

    /// Accepts a connection at a listener; `None`: it is closed, or takes datagrams.
    pub(super) fn accept(&self, token: Token) -> Option<io::Result<Accepted>> {
        self.at(token)?.socket.accept()
    }

    /// The socket of the DNSPort with this number.
    pub(super) fn datagrams(&self, number: u32) -> Option<&mio::net::UdpSocket> {
        self.open
            .iter()
            .find_map(|listener| match &listener.socket {
                ListenSocket::Udp(socket) if listener.wanted.number == number => Some(socket),
                _ => None,
            })
    }

    /// Number of listeners for a service, open now and since the start.
    pub(super) fn counts(&self, service: Service) -> ListenerCounts {
        let mut open = FamilyCounts::default();
        for listener in &self.open {
            if let Bound::Addr(addr) = &listener.bound
                && listener.wanted.service == service
            {
                *open.of(addr.ip()) += 1;
            }
        }
        let opened = self.opened.iter().find(|(of, _)| *of == service);
        let opened = opened.map(|(_, opened)| *opened).unwrap_or_default();
        ListenerCounts { open, opened }
    }

    /// The addresses and ports of the descriptor: the address that the line names (or the unspecified one)
    /// and the port as bound.
    pub(super) fn advertised(&self, network: &NetworkOptions) -> Vec<(IpAddr, u16)> {
        // The address of a port that is closed for a while stays ours, unless the system chose its
        // port.
        let closed = |line: &OrPort| network.disabled && line.port != PortNumber::Auto;
        let bound = |line: &OrPort| {
            let at = at(line);
            let is_it = |listener: &&Listener| {
                listener.wanted.service == Service::Or && listener.wanted.at == at
            };
            match self.open.iter().find(is_it)?.bound {
                Bound::Addr(addr) => Some(addr.port()),
                Bound::Path(_) => None,
            }
        };
        network
            .or_ports
            .iter()
            .filter(|line| line.advertise)
            .filter_map(|line| {
                let port = match line.listen && !closed(line) {
                    true => bound(line)?,
                    false => line.port.to_bind(),
                };
                Some((line.address, port))
            })
            .collect()
    }

    /// Opens and closes sockets until they are what torrc asks for. `user` gets the files of Unix sockets;
    /// new sockets are watched where there is a `registry`.
    ///
    /// # Errors
    ///
    /// A port cannot be opened: then the listeners are those from before. An address of an ORPort that no
    /// line names (IPv6 on a machine without it) may fail as long as another ORPort works.
    pub(super) fn follow(
        &mut self,
        wanted: Vec<Wanted>,
        user: Option<&str>,
        registry: Option<&Registry>,
    ) -> Result<(), ListenError> {
        let mut change = self.split(wanted);
        let opened = self.open_missing(&mut change, user);
        let is_or = |service: Service| service == Service::Or;
        let kept = change.kept.iter().map(|(listener, _)| listener);
        let has_or = kept
            .chain(&change.opened)
            .any(|listener| is_or(listener.wanted.service));
        let error = match opened {
            Err(error) => Some(error),
            Ok(Some(error)) if !has_or => Some(error),
            Ok(_) => None,
        };
        match error {
            Some(error) => {
                self.roll_back(change, user, registry);
                Err(error)
            }
            None => {
                self.commit(change, registry);
                Ok(())
            }
        }
    }

    /// Sorts listeners into those that stay, and those that do not; and finds what is missing.
    fn split(&mut self, wanted: Vec<Wanted>) -> Change {
        let mut change = Change {
            old: std::mem::take(&mut self.open),
            ..Change::default()
        };
        let order: Vec<(Service, ListenAt, u32)> = wanted
            .iter()
            .map(|wanted| (wanted.service, wanted.at.clone(), wanted.number))
            .collect();
        change.order = order;
        let mut wanted: Vec<Option<Wanted>> = wanted.into_iter().map(Some).collect();
        // Ports that stay as they are first, then those with other flags for the same address.
        for exact in [true, false] {
            for slot in &mut wanted {
                let stays = |listener: &Listener| {
                    slot.as_ref().is_some_and(|wanted| {
                        listener.is_for(wanted)
                            && (!exact || listener.wanted.number == wanted.number)
                    })
                };
                if let Some(index) = change.old.iter().position(stays)
                    && let Some(wanted) = slot.take()
                {
                    change.kept.push((change.old.remove(index), wanted));
                }
            }
        }
        change.missing = wanted.into_iter().flatten().collect();
        change
    }

    /// Opens a socket for each listener that is missing. An old one with the same port is closed first if it
    /// is in the way: one address and all addresses cannot have the same port at once. Returns the last
    /// failure of a port that is not required.
    fn open_missing(
        &mut self,
        change: &mut Change,
        user: Option<&str>,
    ) -> Result<Option<ListenError>, ListenError> {
        let mut tolerated = None;
        for wanted in std::mem::take(&mut change.missing) {
            notice!(
                "Opening {} listener on {}",
                wanted.service,
                requested(&wanted.at)
            );
            let mut result = open(&wanted, user);
            if result.as_ref().is_err_and(ListenError::is_in_use) && change.close_in_way(&wanted) {
                result = open(&wanted, user);
            }
            match result {
                Ok((socket, bound)) => {
                    let listener = self.listener(wanted, socket, bound);
                    change.opened.push(listener);
                }
                Err(error) if !wanted.required => {
                    tracing::info!("Not listening on {}: {error}", wanted.at);
                    tolerated = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(tolerated)
    }

    /// Creates a listener with a new token.
    fn listener(&mut self, wanted: Wanted, socket: ListenSocket, bound: Bound) -> Listener {
        let token = Token(self.next_token);
        self.next_token += 1;
        Listener {
            wanted,
            bound,
            socket,
            token,
        }
    }

    /// Takes the listeners of before again.
    fn roll_back(&mut self, change: Change, user: Option<&str>, registry: Option<&Registry>) {
        drop(change.opened);
        self.open = change.kept.into_iter().map(|(old, _)| old).collect();
        self.open.extend(change.old);
        // One with other flags for the same path took the file of the one before, and has removed it.
        for listener in &mut self.open {
            if !listener.socket.has_lost_its_file() {
                continue;
            }
            match open(&listener.wanted, user) {
                Ok((socket, _)) => {
                    listener.socket = socket;
                    watch(listener, registry);
                }
                Err(error) => tracing::warn!(
                    "Could not open the listener on {} again: {error}",
                    listener.bound
                ),
            }
        }
        for (wanted, bound) in change.closed {
            let again = match &bound {
                Bound::Addr(addr) => reopen(&wanted, *addr),
                Bound::Path(_) => continue,
            };
            match again {
                Ok((socket, bound)) => {
                    let mut listener = self.listener(wanted, socket, bound);
                    watch(&mut listener, registry);
                    self.open.push(listener);
                }
                Err(error) => {
                    tracing::warn!("Could not open the listener on {bound} again: {error}");
                }
            }
        }
    }

    /// Drops the listeners that torrc does not ask for any more, and takes the new ones.
    fn commit(&mut self, change: Change, registry: Option<&Registry>) {
        for mut listener in change.old {
            if let Some(registry) = registry {
                // Closing it would do.
                let _ = registry.deregister(listener.socket.source());
            }
            log_closing(listener.wanted.service, &listener.bound);
        }
        for (wanted, bound) in &change.closed {
            log_closing(wanted.service, bound);
        }
        for (mut listener, wanted) in change.kept {
            listener.wanted = wanted;
            self.open.push(listener);
        }
        for mut listener in change.opened {
            let service = listener.wanted.service;
            if let Bound::Addr(addr) = &listener.bound {
                let mut one = FamilyCounts::default();
                *one.of(addr.ip()) = 1;
                match self.opened.iter_mut().find(|(of, _)| *of == service) {
                    Some((_, opened)) => *opened.of(addr.ip()) += 1,
                    None => self.opened.push((service, one)),
                }
            }
            log_opened(&listener);
            watch(&mut listener, registry);
            self.open.push(listener);
        }
        let place = |listener: &Listener| {
            let wanted = &listener.wanted;
            change.order.iter().position(|(service, at, number)| {
                (*service, at, *number) == (wanted.service, &wanted.at, wanted.number)
            })
        };
        self.open.sort_by_key(place);
    }

    fn at(&self, token: Token) -> Option<&Listener> {
        self.open.iter().find(|listener| listener.token == token)
    }
}

/// A change of the listeners that is under way.
#[derive(Debug, Default)]
struct Change {
    /// Listeners that stay, with what asks for them from now on.
    kept: Vec<(Listener, Wanted)>,
    /// Listeners that torrc does not ask for any more.
    old: Vec<Listener>,
    missing: Vec<Wanted>,
    opened: Vec<Listener>,
    /// Old listeners that were closed because they were in the way.
    closed: Vec<(Wanted, Bound)>,
    /// The order of torrc's lines.
    order: Vec<(Service, ListenAt, u32)>,
}

impl Change {
    /// Closes old listeners with the port of `wanted`. Returns whether there was one.
    fn close_in_way(&mut self, wanted: &Wanted) -> bool {
        let Some(port) = wanted.at.to_bind().map(|addr| addr.port()) else {
            return false;
        };
        let udp = is_udp(wanted.service);
        let in_way = |listener: &mut Listener| match listener.bound {
            Bound::Addr(addr) => addr.port() == port && is_udp(listener.wanted.service) == udp,
            Bound::Path(_) => false,
        };
        let before = self.closed.len();
        let closed = self.old.extract_if(.., in_way);
        self.closed
            .extend(closed.map(|listener| (listener.wanted, listener.bound)));
        self.closed.len() > before
    }
}

fn is_udp(service: Service) -> bool {
    service == Service::App(AppService::Dns)
}

fn open(wanted: &Wanted, user: Option<&str>) -> Result<(ListenSocket, Bound), ListenError> {
    match is_udp(wanted.service) {
        true => ListenSocket::datagrams(&wanted.at),
        false => {
            let (socket, bound) = ListenSocket::listen(&wanted.at, user)?;
            if wanted.is_transparent() {
                socket.accept_any_destination();
            }
            Ok((socket, bound))
        }
    }
}

/// Opens a socket where it was bound before.
fn reopen(wanted: &Wanted, addr: SocketAddr) -> Result<(ListenSocket, Bound), ListenError> {
    let at = ListenAt::Tcp {
        address: addr.ip(),
        port: PortNumber::Fixed(addr.port()),
    };
    let wanted = Wanted {
        at,
        ..wanted.clone()
    };
    open(&wanted, None)
}

fn watch(listener: &mut Listener, registry: Option<&Registry>) {
    let Some(registry) = registry else { return };
    let watched = registry.register(listener.socket.source(), listener.token, Interest::READABLE);
    if let Err(error) = watched {
        tracing::warn!(
            "Could not watch the listener on {}: {error}",
            listener.bound
        );
    }
}

/// The address that torrc requests, as C tor logs it: with port 0 if the system chooses one.
fn requested(at: &ListenAt) -> String {
    match (at.to_bind(), at) {
        (Some(addr), _) => addr.to_string(),
        (None, ListenAt::Unix(unix)) => unix.path.display().to_string(),
        (None, at) => at.to_string(),
    }
}

/// C tor's words, from which programs read the port that the system chose.
fn log_opened(listener: &Listener) {
    let service = listener.wanted.service;
    match &listener.bound {
        Bound::Addr(addr) => {
            if listener
                .wanted
                .at
                .to_bind()
                .is_some_and(|asked| asked.port() == 0)
            {
                notice!("{service} listener listening on port {}.", addr.port());
            }
            notice!("Opened {service} listener connection (ready) on {addr}");
        }
        Bound::Path(path) => {
            notice!(
                "Opened {service} listener connection (ready) on {}",
                path.display()
            );
        }
    }
}

fn log_closing(service: Service, bound: &Bound) {
    notice!("Closing no-longer-configured {service} listener on {bound}");
}

#[cfg(test)]
mod tests;
