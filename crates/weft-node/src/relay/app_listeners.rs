//! The ports of applications: `SocksPort`, `HTTPTunnelPort`, `DNSPort`. Opened at the start, opened
//! and closed as SIGHUP changes the lines.
//!
//! A listener has a number that its connections carry, by which the client knows the port's flags.
//! Numbers are never given to another port, so that a stream that is older than the configuration
//! keeps what it was promised.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use mio::event::Source;
use mio::{Interest, Registry, Token};

use super::local_ports::{LocalPortError, LocalSocket, SocketFile};
use crate::apps::AppRules;
use crate::apps::dns::DnsPort;
use crate::notice;
use crate::torrc::Options;
use crate::torrc::client_ports::{AppPort, AppService};

/// Tokens of these listeners begin here; the numbers of ports follow.
const TOKENS: usize = 1 << 32;
/// Ports that one process ever has, by number: a reload with others than all these is refused.
const MAX_PORTS: usize = 4096;

/// An application that came.
#[derive(Debug)]
pub(super) enum AppSocket {
    /// By TCP.
    Tcp(std::net::TcpStream, SocketAddr),
    /// By a Unix socket.
    Unix(std::os::unix::net::UnixStream),
}

/// A socket as the event loop knows it.
#[derive(Debug)]
enum Socket {
    Tcp(mio::net::TcpListener),
    /// With its file, which goes with it.
    Unix(mio::net::UnixListener, #[allow(dead_code)] SocketFile),
    Udp(mio::net::UdpSocket, Box<DnsPort>),
}

impl Socket {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(socket) => socket,
            Self::Unix(socket, _) => socket,
            Self::Udp(socket, _) => socket,
        }
    }
}

/// One open listener.
#[derive(Debug)]
struct Open {
    /// Its place among the known.
    number: u32,
    bound: String,
    rules: Arc<AppRules>,
    socket: Socket,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct AppListeners {
    /// Every port that there ever was, by number.
    known: Vec<AppPort>,
    open: Vec<Open>,
}

impl AppListeners {
    /// Opens what torrc asks for; nothing with `DisableNetwork`.
    ///
    /// # Errors
    ///
    /// A port cannot be bound.
    pub(super) fn open(options: &Options) -> Result<Self, LocalPortError> {
        let mut listeners = Self::default();
        listeners.follow(options, None)?;
        Ok(listeners)
    }

    /// Watches the sockets.
    ///
    /// # Errors
    ///
    /// epoll refuses.
    pub(super) fn register(&mut self, registry: &Registry) -> io::Result<()> {
        for open in &mut self.open {
            let token = Token(TOKENS + open.number as usize);
            registry.register(open.socket.source(), token, Interest::READABLE)?;
        }
        Ok(())
    }

    /// Does what other lines ask for; ports that stay the same stay open. Or nothing.
    ///
    /// # Errors
    ///
    /// A port cannot be bound: then the listeners are those from before.
    pub(super) fn reopen(
        &mut self,
        options: &Options,
        registry: &Registry,
    ) -> Result<(), LocalPortError> {
        self.follow(options, Some(registry))
    }

    /// Every port that there ever was, by number.
    pub(super) fn known(&self) -> &[AppPort] {
        &self.known
    }

    /// Where each service listens.
    pub(super) fn bound(&self) -> impl Iterator<Item = (AppService, &str)> {
        let open = self.open.iter();
        open.map(|open| (open.rules.service, open.bound.as_str()))
    }

    /// The listeners' event-loop tokens.
    pub(super) fn tokens(&self) -> Vec<Token> {
        let open = self.open.iter();
        open.map(|open| Token(TOKENS + open.number as usize))
            .collect()
    }

    fn at(&mut self, token: Token) -> Option<&mut Open> {
        let number = token.0.checked_sub(TOKENS)?;
        let number = u32::try_from(number).ok()?;
        self.open.iter_mut().find(|open| open.number == number)
    }

    /// Accepts a connection at a listener; `None`: the token is none of a listener that accepts.
    pub(super) fn accept(
        &mut self,
        token: Token,
    ) -> Option<io::Result<(AppSocket, Arc<AppRules>)>> {
        let open = self.at(token)?;
        let accepted = match &open.socket {
            Socket::Tcp(socket) => socket
                .accept()
                .map(|(socket, from)| AppSocket::Tcp(socket.into(), from)),
            Socket::Unix(socket, _) => socket
                .accept()
                .map(|(socket, _)| AppSocket::Unix(socket.into())),
            Socket::Udp(..) => return None,
        };
        let rules = open.rules.clone();
        Some(accepted.map(|socket| (socket, rules)))
    }

    /// The DNSPort of a token.
    pub(super) fn dns(
        &mut self,
        token: Token,
    ) -> Option<(u32, &mio::net::UdpSocket, &mut DnsPort)> {
        let open = self.at(token)?;
        let number = open.number;
        match &mut open.socket {
            Socket::Udp(socket, port) => Some((number, socket, port)),
            Socket::Tcp(_) | Socket::Unix(..) => None,
        }
    }

    /// The DNSPort with a number.
    pub(super) fn dns_numbered(
        &mut self,
        number: u32,
    ) -> Option<(&mio::net::UdpSocket, &mut DnsPort)> {
        let token = Token(TOKENS + number as usize);
        self.dns(token).map(|(_, socket, port)| (socket, port))
    }

    /// All DNSPorts.
    pub(super) fn all_dns(&mut self) -> impl Iterator<Item = (&mio::net::UdpSocket, &mut DnsPort)> {
        self.open
            .iter_mut()
            .filter_map(|open| match &mut open.socket {
                Socket::Udp(socket, port) => Some((&*socket, &mut **port)),
                Socket::Tcp(_) | Socket::Unix(..) => None,
            })
    }

    /// The number of a port, which is a new one if there never was this port.
    fn number(&mut self, port: &AppPort) -> Option<u32> {
        let known = self.known.iter().position(|known| known == port);
        let number = match known {
            Some(number) => number,
            None if self.known.len() < MAX_PORTS => {
                self.known.push(port.clone());
                self.known.len() - 1
            }
            None => return None,
        };
        u32::try_from(number).ok()
    }

    /// Opens and closes sockets until they are what the options ask for, or all as before.
    fn follow(
        &mut self,
        options: &Options,
        registry: Option<&Registry>,
    ) -> Result<(), LocalPortError> {
        // What is to be: numbers, the sockets that go on for them, and new ones. All that can fail
        // comes before anything changes.
        let mut wanted: Vec<u32> = Vec::new();
        let mut going_on: Vec<(usize, u32)> = Vec::new();
        let mut missing = Vec::new();
        let ports = options.apps.ports.iter();
        for port in ports.filter(|_| !options.network.disabled) {
            let Some(number) = self.number(port) else {
                return Err(LocalPortError::Listen {
                    at: port.at.to_string(),
                    source: io::Error::other("too many ports have come and gone"),
                });
            };
            if wanted.contains(&number) {
                continue;
            }
            wanted.push(number);
            match self.open.iter().position(|open| open.number == number) {
                Some(index) => going_on.push((index, number)),
                None => missing.push((number, port)),
            }
        }
        let mut new = Vec::new();
        for (number, port) in missing {
            // Other flags for the same address: its socket goes on with them.
            let same_place = |open: &Open| {
                let known = self.known.get(open.number as usize);
                known.is_some_and(|known| known.at == port.at && known.service == port.service)
            };
            let index = (0_usize..)
                .zip(&self.open)
                .find(|(index, open)| {
                    same_place(open) && !going_on.iter().any(|(other, _)| other == index)
                })
                .map(|(index, _)| index);
            match index {
                Some(index) => going_on.push((index, number)),
                None => {
                    let rules = Arc::new(AppRules::new(number, port, &options.apps));
                    new.push(Self::listen(number, port, rules, options)?);
                }
            }
        }
        for (index, mut open) in std::mem::take(&mut self.open).into_iter().enumerate() {
            let number = going_on.iter().find(|(other, _)| *other == index);
            let Some((_, number)) = number else {
                let service = open.rules.service;
                notice!(
                    "Closing no-longer-configured {service} listener on {}",
                    open.bound
                );
                if let Some(registry) = registry {
                    let _ = registry.deregister(open.socket.source());
                }
                continue;
            };
            if open.number != *number
                && let Some(registry) = registry
            {
                let token = Token(TOKENS + *number as usize);
                let source = open.socket.source();
                if let Err(error) = registry.reregister(source, token, Interest::READABLE) {
                    tracing::warn!("Could not watch the listener on {}: {error}", open.bound);
                }
            }
            open.number = *number;
            self.open.push(open);
        }
        for mut open in new {
            let service = open.rules.service;
            notice!("Opened {service} listener on {}", open.bound);
            if let Some(registry) = registry {
                let token = Token(TOKENS + open.number as usize);
                let source = open.socket.source();
                if let Err(error) = registry.register(source, token, Interest::READABLE) {
                    tracing::warn!("Could not watch the listener on {}: {error}", open.bound);
                }
            }
            self.open.push(open);
        }
        // What is not a port's own may have changed for all.
        for open in &mut self.open {
            if let Some(port) = self.known.get(open.number as usize) {
                let rules = Arc::new(AppRules::new(open.number, port, &options.apps));
                if let Socket::Udp(_, dns) = &mut open.socket {
                    dns.set_rules(rules.clone(), options.apps.timeout);
                }
                open.rules = rules;
            }
        }
        Ok(())
    }

    /// Opens one port.
    fn listen(
        number: u32,
        port: &AppPort,
        rules: Arc<AppRules>,
        options: &Options,
    ) -> Result<Open, LocalPortError> {
        let user = options.process.user.as_deref();
        let socket = match port.service {
            AppService::Dns => LocalSocket::datagrams(&port.at)?,
            AppService::Socks | AppService::HttpTunnel => LocalSocket::listen(&port.at, user)?,
        };
        let bound = socket.bound();
        let socket = match socket {
            LocalSocket::Tcp(socket) => Socket::Tcp(mio::net::TcpListener::from_std(socket)),
            LocalSocket::Unix(socket, file) => {
                Socket::Unix(mio::net::UnixListener::from_std(socket), file)
            }
            LocalSocket::Udp(socket) => {
                let dns = DnsPort::new(rules.clone(), options.apps.timeout);
                Socket::Udp(mio::net::UdpSocket::from_std(socket), Box::new(dns))
            }
        };
        Ok(Open {
            number,
            bound,
            rules,
            socket,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use std::net::TcpStream;

    use super::*;
    use crate::relay::testing::options;

    fn bound(listeners: &AppListeners) -> Vec<String> {
        listeners
            .bound()
            .map(|(_, bound)| bound.to_owned())
            .collect()
    }

    #[test]
    fn ports_come_and_go_with_the_lines_and_keep_their_numbers() {
        let poll = mio::Poll::new().unwrap();
        let registry = poll.registry();
        let mut listeners = AppListeners::open(&options("SocksPort auto\nDNSPort auto\n")).unwrap();
        listeners.register(registry).unwrap();
        let (first, tokens) = (bound(&listeners), listeners.tokens());
        assert!(listeners.dns(tokens[1]).is_some() && listeners.dns(tokens[0]).is_none());
        let address: SocketAddr = first[0].parse().unwrap();
        let _client = TcpStream::connect(address).unwrap();
        let (socket, rules) = listeners.accept(tokens[0]).unwrap().unwrap();
        assert!(matches!(socket, AppSocket::Tcp(_, from) if from.ip().is_loopback()));
        assert_eq!(rules.listener, 0);
        assert!(
            listeners.accept(tokens[1]).is_none(),
            "datagrams are not accepted"
        );

        // Other flags: the same socket, another number.
        let torrc = "SocksPort auto IsolateDestAddr\nHTTPTunnelPort auto\nSafeSocks 1\n";
        listeners.reopen(&options(torrc), registry).unwrap();
        assert_eq!(bound(&listeners)[0], first[0]);
        let _client = TcpStream::connect(address).unwrap();
        let tokens = listeners.tokens();
        let (_, rules) = listeners.accept(tokens[0]).unwrap().unwrap();
        assert!(rules.safe_socks && rules.flags.isolation.dest_addr);
        assert_eq!(rules.listener, 2);
        assert_eq!(listeners.known().len(), 4);
        assert!(!listeners.known()[0].flags.isolation.dest_addr);

        // Without a network there is none.
        let mut off = options(torrc);
        off.network.disabled = true;
        listeners.reopen(&off, registry).unwrap();
        assert!(bound(&listeners).is_empty());
        listeners.reopen(&options(torrc), registry).unwrap();
        assert_eq!(listeners.known().len(), 4, "it is the same port again");

        // One that cannot be opened changes nothing.
        let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = holder.local_addr().unwrap().port();
        let before = bound(&listeners);
        let error = listeners
            .reopen(&options(&format!("SocksPort {taken}\n")), registry)
            .unwrap_err();
        assert!(error.to_string().contains(&taken.to_string()), "{error}");
        assert_eq!(bound(&listeners), before);
        listeners
            .reopen(&options("SocksPort 0\n"), registry)
            .unwrap();
        assert!(bound(&listeners).is_empty() && listeners.tokens().is_empty());
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn applications_come_by_unix_sockets_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socks");
        let torrc = format!("SocksPort unix:{} WorldWritable\n", path.display());
        let mut listeners = AppListeners::open(&options(&torrc)).unwrap();
        let _client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let token = listeners.tokens()[0];
        let (socket, _) = listeners.accept(token).unwrap().unwrap();
        assert!(matches!(socket, AppSocket::Unix(_)));
    }
}
