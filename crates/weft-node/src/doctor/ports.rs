//! This machine's own ports: which should answer, and whether they do.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};
use weft_config::options::{AppService, ListenAt};
use weft_config::{Options, OrPort};

use super::tried::Tried;

/// Time that a port may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(2);

/// A port of this machine.
pub(super) struct Port {
    pub(super) tried: Tried,
    /// Closed while a relay with AccountingMax hibernates.
    pub(super) may_hibernate: bool,
}

/// A port that torrc opens.
#[derive(Debug, PartialEq, Eq)]
struct Expected {
    name: &'static str,
    at: ListenAt,
    /// Closed while a relay with AccountingMax hibernates.
    may_hibernate: bool,
}

/// Ports that should answer: with DisableNetwork those of controllers alone. Ports that the system chooses are not known, and
/// those of a family that torrc does not name may fail to open (a machine without IPv6).
fn expected_ports(options: &Options) -> Vec<Expected> {
    let hibernates = options.bandwidth.accounting.is_enabled();
    let or = |name: &'static str, ports: &[OrPort], may_hibernate: bool| {
        let ports = ports
            .iter()
            .filter(|port| port.listen && (port.explicit_address || port.address.is_ipv4()));
        let ports = ports.map(|port| Expected {
            name,
            at: ListenAt::Tcp {
                address: port.address,
                port: port.port,
            },
            may_hibernate,
        });
        ports.collect::<Vec<_>>()
    };
    let mut all = Vec::new();
    if !options.network.disabled {
        all.extend(or("ORPort", &options.network.or_ports, hibernates));
        all.extend(or("MetricsPort", &options.metrics.ports, false));
        all.extend(or("DirPort", &options.directory.dir_ports, hibernates));
        let apps = options.apps.ports.iter();
        let apps = apps.filter(|port| port.service != AppService::Dns);
        all.extend(apps.map(|port| Expected {
            name: "port for applications",
            at: port.at.clone(),
            may_hibernate: hibernates,
        }));
    }
    all.extend(options.control.ports.iter().map(|at| Expected {
        name: "ControlPort",
        at: at.clone(),
        may_hibernate: false,
    }));
    all.retain(|port| match &port.at {
        ListenAt::Tcp { port, .. } => port.to_bind() != 0,
        ListenAt::Unix(_) => true,
    });
    all
}

/// Tries to connect to each port that torrc opens.
pub(super) fn ports(options: &Options) -> Vec<Port> {
    all_at_once(&expected_ports(options), |port| {
        let answer = connect(&port.at, PATIENCE).map(drop);
        let answer = answer.map_err(|error| error.to_string());
        let name = port.name;
        let tried = match &port.at {
            ListenAt::Tcp { address, port } => {
                let at = SocketAddr::new(*address, port.to_bind());
                Tried::new(format!("{name} {at}"), Some(at), answer)
            }
            ListenAt::Unix(at) => {
                Tried::new(format!("{name} unix:{}", at.path.display()), None, answer)
            }
        };
        Port {
            tried,
            may_hibernate: port.may_hibernate,
        }
    })
}

/// Connects to what listens there. Reads and writes fail after `patience`, too: a node that is stuck accepts nothing.
///
/// # Errors
///
/// The system's, or [`io::ErrorKind::WouldBlock`] from a Unix socket that too many wait for.
pub(super) fn connect(at: &ListenAt, patience: Duration) -> io::Result<Socket> {
    let socket = match at {
        ListenAt::Tcp { address, port } => {
            let at = local(SocketAddr::new(*address, port.to_bind()));
            let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
            socket.connect_timeout(&at.into(), patience)?;
            socket
        }
        ListenAt::Unix(at) => {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            // At once or not at all: a blocking one waits for as long as too many do.
            socket.set_nonblocking(true)?;
            socket.connect(&SockAddr::unix(&at.path)?)?;
            socket.set_nonblocking(false)?;
            socket
        }
    };
    socket.set_read_timeout(Some(patience))?;
    socket.set_write_timeout(Some(patience))?;
    Ok(socket)
}

/// An address of this machine to connect to, for one that is listened at.
fn local(at: SocketAddr) -> SocketAddr {
    let ip = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, at.port())
}

/// Asks each on a separate thread: all take as long as the slowest.
pub(super) fn all_at_once<T: Sync, R: Send>(these: &[T], ask: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let ask = &ask;
    thread::scope(|scope| {
        let threads: Vec<_> = these
            .iter()
            .map(|this| scope.spawn(move || ask(this)))
            .collect();
        let answers = threads.into_iter();
        answers.filter_map(|thread| thread.join().ok()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(torrc: &str) -> Options {
        let host = weft_config::MemoryHost::new();
        weft_config::load_text(torrc, &host).unwrap().options
    }

    fn expected(torrc: &str) -> Vec<(String, bool)> {
        let all = expected_ports(&options(torrc)).into_iter();
        let named = all.map(|port| match port.at {
            ListenAt::Tcp {
                address,
                port: number,
            } => {
                let at = SocketAddr::new(address, number.to_bind());
                (format!("{} {at}", port.name), port.may_hibernate)
            }
            ListenAt::Unix(_) => panic!("{torrc}"),
        });
        named.collect()
    }

    #[test]
    fn a_port_is_expected_where_the_node_listens() {
        let names = |torrc: &str| {
            let all = expected(torrc).into_iter();
            all.map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names("ORPort 9001\nSocksPort 0\n"), ["ORPort 0.0.0.0:9001"]);
        let split = "ORPort 443 NoListen\nORPort 9001 NoAdvertise\nSocksPort 0\n";
        assert_eq!(names(split), ["ORPort 0.0.0.0:9001"]);
        assert_eq!(
            names("ORPort 192.0.2.1:9001\nORPort [2001:db8::1]:9001\nSocksPort 0\n"),
            ["ORPort 192.0.2.1:9001", "ORPort [2001:db8::1]:9001"]
        );
        let disabled = "ORPort 9001\nSocksPort 9050\nControlPort 9051\nDisableNetwork 1\n";
        assert_eq!(names(disabled), ["ControlPort 127.0.0.1:9051"]);
    }

    #[test]
    fn accounting_may_close_all_ports_but_those_of_controllers() {
        let torrc = "ORPort 9001\nSocksPort 9050\nControlPort 9051\n";
        assert!(expected(torrc).iter().all(|(_, hibernates)| !hibernates));
        let torrc = format!("{torrc}AccountingMax 1 GB\n");
        let found: Vec<bool> = expected(&torrc).iter().map(|(_, closes)| *closes).collect();
        assert_eq!(found, [true, true, false]);
    }

    #[test]
    fn what_listens_everywhere_is_asked_here() {
        let of = |at: &str| local(at.parse().unwrap()).to_string();
        assert_eq!(of("0.0.0.0:9001"), "127.0.0.1:9001");
        assert_eq!(of("[::]:9001"), "[::1]:9001");
        assert_eq!(of("192.0.2.1:9001"), "192.0.2.1:9001");
    }

    /// A node that is stuck takes no connection, and the doctor must not wait for it.
    #[test]
    fn a_socket_that_nobody_accepts_from_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let torrc = format!("ControlSocket {}\n", path.display());
        let at = options(&torrc).control.ports.remove(0);
        assert!(connect(&at, PATIENCE).is_err(), "nothing is there");
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listener.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        listener.listen(1).unwrap();
        let mut waiting = Vec::new();
        let error = loop {
            assert!(waiting.len() < 100, "the system takes all of them");
            match connect(&at, PATIENCE) {
                Ok(socket) => waiting.push(socket),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
