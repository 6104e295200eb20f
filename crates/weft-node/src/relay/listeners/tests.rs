use std::net::TcpStream;

use super::*;
use crate::relay::app_ports::AppPorts;
use crate::relay::testing::options;

/// Options with these ORPort lines.
fn lines(lines: &[String]) -> Options {
    let lines: String = lines
        .iter()
        .map(|line| format!("ORPort {line}\n"))
        .collect();
    options(&format!("ContactInfo x\nExitRelay 0\n{lines}"))
}

/// Listeners with an event loop and the options in force.
struct Set {
    listeners: ListenerSet,
    apps: AppPorts,
    poll: mio::Poll,
    options: Options,
}

impl Set {
    fn open(options: &Options) -> Result<Self, ListenError> {
        let mut set = Set {
            listeners: ListenerSet::default(),
            apps: AppPorts::default(),
            poll: mio::Poll::new().unwrap(),
            options: options.clone(),
        };
        set.follow(options)?;
        Ok(set)
    }

    fn open_lines(texts: &[&str]) -> Self {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        Self::open(&lines(&texts)).unwrap()
    }

    fn follow(&mut self, options: &Options) -> Result<(), ListenError> {
        let apps = self.apps.number_all(options).unwrap();
        let registry = self.poll.registry();
        self.listeners
            .follow(wanted(options, &apps, false, true), None, Some(registry))?;
        self.options = options.clone();
        Ok(())
    }

    fn addrs(&self) -> Vec<SocketAddr> {
        let bound = self.listeners.bound();
        bound
            .filter_map(|(_, bound)| match bound {
                Bound::Addr(addr) => Some(*addr),
                Bound::Path(_) => None,
            })
            .collect()
    }

    fn ports(&self) -> Vec<u16> {
        self.addrs().iter().map(SocketAddr::port).collect()
    }

    fn tokens(&self) -> Vec<Token> {
        self.listeners.tokens()
    }

    fn advertised(&self) -> Vec<(IpAddr, u16)> {
        self.listeners.advertised(&self.options.network)
    }

    fn accepts(&self, token: Token) -> bool {
        self.listeners.accept(token).is_some_and(|it| it.is_ok())
    }
}

#[test]
fn without_a_network_nothing_is_open_and_the_address_stays() {
    let mut set = Set::open_lines(&["127.0.0.1:auto"]);
    let port = set.ports()[0];
    let on = lines(&[format!("127.0.0.1:{port}")]);
    let off = |options: &Options| {
        let mut options = options.clone();
        options.network.disabled = true;
        options
    };
    set.follow(&off(&on)).unwrap();
    assert!(set.tokens().is_empty());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    let address = ("127.0.0.1".parse().unwrap(), port);
    assert_eq!(set.advertised(), [address]);
    set.follow(&on).unwrap();
    assert_eq!(set.ports(), [port]);
    // The port that the system will choose is not known.
    let chosen = lines(&["127.0.0.1:auto".to_owned()]);
    set.follow(&off(&chosen)).unwrap();
    assert!(set.advertised().is_empty());
}

#[test]
fn a_line_that_stays_keeps_its_socket() {
    let mut set = Set::open_lines(&["127.0.0.1:auto"]);
    let (port, token) = (set.ports()[0], set.tokens()[0]);
    assert_eq!(set.advertised(), [("127.0.0.1".parse().unwrap(), port)]);
    let more = ["127.0.0.1:auto NoAdvertise", "127.0.0.2:auto"].map(str::to_owned);
    set.follow(&lines(&more)).unwrap();
    assert_eq!(set.tokens().len(), 2);
    assert_eq!((set.ports()[0], set.tokens()[0]), (port, token));
    let second = set.ports()[1];
    assert_eq!(set.advertised(), [("127.0.0.2".parse().unwrap(), second)]);
    set.follow(&lines(&more[1..])).unwrap();
    assert_eq!(set.ports(), [second]);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "closed");
    assert!(set.listeners.accept(token).is_none());
    // A new socket is watched, and never has the token of an old one.
    assert_ne!(set.tokens()[0], token);
    let _client = TcpStream::connect(("127.0.0.2", second)).unwrap();
    assert!(set.accepts(set.tokens()[0]));
}

#[test]
fn a_port_that_is_taken_leaves_everything_as_it_was() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap();
    let mut set = Set::open_lines(&["127.0.0.1:auto"]);
    let (port, tokens) = (set.ports()[0], set.tokens());
    let other = ["127.0.0.2:auto".to_owned(), taken.to_string()];
    let error = set.follow(&lines(&other)).unwrap_err();
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
    assert_eq!((set.ports()[0], set.tokens()), (port, tokens));
    assert_eq!(set.advertised(), [("127.0.0.1".parse().unwrap(), port)]);
    let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
}

#[test]
fn one_address_and_all_addresses_exchange_a_port() {
    let mut set = Set::open_lines(&["127.0.0.1:auto"]);
    let port = set.ports()[0];
    // "127.0.0.1:auto" is dropped, and 0.0.0.0 cannot have its port as long as it listens.
    let all = [format!("0.0.0.0:{port}")];
    set.follow(&lines(&all)).unwrap();
    let everywhere = SocketAddr::new("0.0.0.0".parse().unwrap(), port);
    assert_eq!(set.addrs(), [everywhere]);
    // The other way round, with one that fails: all addresses have it again.
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap();
    let one = [format!("127.0.0.1:{port}"), taken.to_string()];
    set.follow(&lines(&one)).unwrap_err();
    assert_eq!(set.ports(), [port]);
    let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert!(set.accepts(set.tokens()[0]));
}

#[test]
fn a_metrics_port_opens_and_closes_and_never_alone_makes_a_relay() {
    let or = "ContactInfo x\nExitRelay 0\nORPort 127.0.0.1:auto\n";
    let policy = "MetricsPortPolicy accept 127.0.0.1\n";
    let with = |metrics: &str| options(&format!("{or}{policy}{metrics}"));
    let mut set = Set::open(&with("MetricsPort auto\nMetricsPort [::1]:auto\n"))
        .or_else(|_| Set::open(&with("MetricsPort auto\n")))
        .unwrap();
    let (or_port, token) = (set.ports()[0], set.tokens()[1]);
    assert_eq!(
        set.advertised().len(),
        1,
        "the descriptor has the ORPort alone"
    );
    assert_eq!(set.listeners.counts(Service::Metrics).open.ipv4, 1);
    let _client = TcpStream::connect(("127.0.0.1", set.ports()[1])).unwrap();
    assert_eq!(set.listeners.service(token), Some((Service::Metrics, 0)));
    assert!(set.accepts(token));
    set.follow(&with("")).unwrap();
    assert_eq!(set.ports(), [or_port]);
    assert!(set.listeners.accept(token).is_none());
    // One that cannot be opened leaves all as it was.
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().port();
    let error = set
        .follow(&with(&format!("MetricsPort {taken}\n")))
        .unwrap_err();
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
    assert_eq!(set.ports(), [or_port]);
    let counts = set.listeners.counts(Service::Or);
    assert_eq!((counts.open.ipv4, counts.opened.ipv4), (1, 1));
    let open = set.listeners.counts(Service::Metrics).open;
    assert_eq!(open, FamilyCounts::default());
}

#[test]
fn ports_of_applications_keep_their_sockets_when_their_flags_change() {
    let mut set = Set::open(&options("SocksPort auto\nDNSPort auto\n")).unwrap();
    let (first, tokens) = (set.addrs(), set.tokens());
    assert!(set.listeners.datagrams(1).is_some() && set.listeners.datagrams(0).is_none());
    assert!(
        set.listeners.accept(tokens[1]).is_none(),
        "datagrams are not accepted"
    );
    let _client = TcpStream::connect(first[0]).unwrap();
    let accepted = set.listeners.accept(tokens[0]).unwrap().unwrap();
    assert!(matches!(accepted, Accepted::Tcp(_, peer) if peer.ip().is_loopback()));

    // Other flags: the same socket, another number.
    let torrc = "SocksPort auto IsolateDestAddr\nHTTPTunnelPort auto\n";
    set.follow(&options(torrc)).unwrap();
    assert_eq!(set.addrs()[0], first[0]);
    assert_eq!(set.tokens()[0], tokens[0]);
    let socks = Service::App(AppService::Socks);
    assert_eq!(set.listeners.service(tokens[0]), Some((socks, 2)));
    let _client = TcpStream::connect(first[0]).unwrap();
    assert!(set.accepts(tokens[0]));

    // Without a network only controllers have a port.
    let mut off = options(&format!("{torrc}ControlPort auto\n"));
    off.network.disabled = true;
    set.follow(&off).unwrap();
    let open: Vec<Service> = set.listeners.bound().map(|(service, _)| service).collect();
    assert_eq!(open, [Service::Control]);
    set.follow(&options(torrc)).unwrap();

    // One that cannot be opened changes nothing, be it of another service.
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().port();
    let before = (set.addrs(), set.tokens());
    let error = set
        .follow(&options(&format!("SocksPort auto\nControlPort {taken}\n")))
        .unwrap_err();
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
    assert_eq!((set.addrs(), set.tokens()), before);
    let number = |set: &Set| set.listeners.service(set.tokens()[0]).unwrap().1;
    assert_eq!(number(&set), 2, "the flags are those of before, too");

    // A port moves from one service to another.
    let port = set.ports()[0];
    let fixed = options(&format!("SocksPort {port}\n"));
    set.follow(&fixed).unwrap();
    set.follow(&options(&format!("SocksPort 0\nHTTPTunnelPort {port}\n")))
        .unwrap();
    assert_eq!(set.ports(), [port]);
    let tunnel = Service::App(AppService::HttpTunnel);
    assert_eq!(set.listeners.bound().next().unwrap().0, tunnel);
}

#[test]
fn applications_connect_to_unix_sockets_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socks");
    let torrc = format!("SocksPort unix:{} WorldWritable\n", path.display());
    let set = Set::open(&options(&torrc)).unwrap();
    let _client = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let accepted = set.listeners.accept(set.tokens()[0]).unwrap().unwrap();
    assert!(matches!(accepted, Accepted::Unix(_)));
}

#[test]
fn a_unix_socket_outlives_a_change_of_its_flags_that_fails() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socks");
    let connects = || std::os::unix::net::UnixStream::connect(&path);
    let torrc = format!("SocksPort unix:{} WorldWritable\n", path.display());
    let mut set = Set::open(&options(&torrc)).unwrap();
    let token = set.tokens()[0];
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap();
    let relaxed = format!(
        "SocksPort unix:{} RelaxDirModeCheck\nHTTPTunnelPort {taken}\n",
        path.display()
    );
    set.follow(&options(&relaxed)).unwrap_err();
    let _client = connects().unwrap();
    assert!(set.accepts(token), "the socket is the listener's");
    // With all of it possible the new one takes the place of the old, and its file stays.
    drop(holder);
    set.follow(&options(&relaxed)).unwrap();
    let _client = connects().unwrap();
    assert!(set.accepts(set.tokens()[0]));
    set.follow(&options("SocksPort 0\n")).unwrap();
    assert!(!path.exists());
}
