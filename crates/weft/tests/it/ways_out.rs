//! A node's connections: through a proxy or not at all, to reachable addresses or not at all, never
//! directly where a bridge is configured. The test owns every address that the node knows.

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use weft_load::proxy::{Asked, Behaviour, TestProxy};

use crate::running::{Bench, PATIENCE};
use nix::sys::signal::Signal;

/// A relay's ORPort, which answers nothing.
struct Silent(TcpListener);

impl Silent {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Silent(listener)
    }

    fn addr(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    /// A client that has connected.
    fn accept(&self) -> Option<(TcpStream, SocketAddr)> {
        match self.0.accept() {
            Ok(accepted) => Some(accepted),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// The torrc line that makes it a directory that is known from the start.
    fn fallback(&self, digit: char) -> String {
        let addr = self.addr();
        let id: String = std::iter::repeat_n(digit, 40).collect();
        format!("FallbackDir 127.0.0.1:1 orport={} id={id}\n", addr.port())
    }
}

/// Waits until it is so.
fn until<T>(what: &str, mut so: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = so() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The torrc lines of each kind of proxy, its protocol, and name and password as they are sent.
fn kinds(proxy: &TestProxy) -> [(String, &'static str, Option<&'static str>); 4] {
    let addr = proxy.addr();
    [
        (format!("Socks4Proxy {addr}\n"), "SOCKS4", None),
        (format!("Socks5Proxy {addr}\n"), "SOCKS5", None),
        (
            format!("Socks5Proxy {addr}\nSocks5ProxyUsername me\nSocks5ProxyPassword secret\n"),
            "SOCKS5",
            Some("me:secret"),
        ),
        (
            format!("HTTPSProxy {addr}\nHTTPSProxyAuthenticator me:secret\n"),
            "HTTP",
            Some("bWU6c2VjcmV0"),
        ),
    ]
}

#[test]
fn a_client_reaches_relays_through_its_proxy_and_in_no_other_way() {
    for kind in 0..4 {
        let (relay, proxy) = (Silent::new(), TestProxy::start(Behaviour::Connect).unwrap());
        let (lines, protocol, credentials) = kinds(&proxy)[kind].clone();
        let bench = Bench::new();
        let (log, fallback) = (bench.log_line("log"), relay.fallback('A'));
        bench.torrc(&format!("{log}SocksPort auto\n{fallback}{lines}"));
        let weft = bench.start();
        let (mut stream, from) = until("a connection", || relay.accept());
        stream.set_nonblocking(false).unwrap();
        let mut record = [0; 3];
        stream.read_exact(&mut record).unwrap();
        assert_eq!(record[..2], [22, 3], "TLS begins behind the proxy's answer");
        let asked = proxy.asked();
        assert!(
            asked
                .iter()
                .all(|asked| asked.protocol == protocol
                    && asked.credentials.as_deref() == credentials)
        );
        let ours: Vec<&Asked> = asked
            .iter()
            .filter(|asked| asked.target == relay.addr())
            .collect();
        assert!(
            ours.iter().any(|asked| asked.from == Some(from)),
            "{from} {asked:?}"
        );
        weft.terminate();
        while let Some((_, from)) = relay.accept() {
            let known = |asked: &Asked| asked.from == Some(from);
            assert!(proxy.asked().iter().any(known), "{from} came directly");
        }
    }
}

#[test]
fn a_proxy_that_gives_no_connection_is_reported_and_nothing_goes_out_directly() {
    for (behaviour, words) in [
        (
            Behaviour::Refuse,
            [
                "refused: request rejected",
                "not allowed by ruleset",
                "403 Forbidden",
            ],
        ),
        (
            Behaviour::Nonsense,
            ["is not SOCKS4", "is not SOCKS5", "is not HTTP"],
        ),
        (Behaviour::Close, ["the peer closed the connection"; 3]),
    ] {
        for (kind, words) in [0, 1, 3].into_iter().zip(words) {
            let (relay, proxy) = (Silent::new(), TestProxy::start(behaviour).unwrap());
            let (lines, ..) = kinds(&proxy)[kind].clone();
            let bench = Bench::new();
            let (log, fallback) = (bench.log_line("log"), relay.fallback('A'));
            bench.torrc(&format!("{log}SocksPort auto\n{fallback}{lines}"));
            let mut weft = bench.start();
            weft.seen = 0;
            let line = weft.wait_for("gave no connection to");
            assert!(line.contains(words), "{line}");
            until("another attempt", || {
                (proxy.asked().len() > 1).then_some(())
            });
            assert!(relay.accept().is_none(), "it came directly: {lines}");
            weft.terminate();
            assert!(relay.accept().is_none(), "it came directly: {lines}");
        }
    }
}

#[test]
fn a_proxy_that_does_not_run_is_reported_and_nothing_goes_out_directly() {
    let relay = Silent::new();
    // A port that nobody has.
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let bench = Bench::new();
    let (log, fallback) = (bench.log_line("log"), relay.fallback('A'));
    bench.torrc(&format!(
        "{log}SocksPort auto\n{fallback}Socks5Proxy {nobody}\n"
    ));
    let mut weft = bench.start();
    weft.seen = 0;
    let line = weft.wait_for("gave no connection to");
    assert!(line.contains("make sure that it runs"), "{line}");
    weft.terminate();
    assert!(relay.accept().is_none());
}

#[test]
fn a_proxy_that_a_reload_names_takes_over_from_direct_connections() {
    let (relay, proxy) = (Silent::new(), TestProxy::start(Behaviour::Refuse).unwrap());
    let bench = Bench::new();
    let (log, fallback) = (bench.log_line("log"), relay.fallback('A'));
    let direct = format!("{log}SocksPort auto\n{fallback}");
    bench.torrc(&direct);
    let weft = bench.start();
    let (mut stream, _) = until("a direct connection", || relay.accept());
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    bench.torrc(&format!("{direct}Socks5Proxy {}\n", proxy.addr()));
    weft.signal(Signal::SIGHUP);
    // The old connection ends, and the next goes through the proxy.
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    while relay.accept().is_some() {}
    until("a request", || proxy.asked().first().cloned());
    weft.terminate();
    assert!(relay.accept().is_none(), "it came directly");
}

#[test]
fn a_relay_asks_directories_through_its_proxy_too() {
    let (relay, proxy) = (Silent::new(), TestProxy::start(Behaviour::Refuse).unwrap());
    let bench = Bench::new();
    let lines = format!("ORPort 127.0.0.1:auto\nSocks5Proxy {}\n", proxy.addr());
    bench.torrc(&format!("{}{lines}", bench.log_line("log")));
    // The authority's DirPort is the test's.
    let torrc = fs::read_to_string(bench.path("torrc")).unwrap();
    let torrc = torrc.replace("127.0.0.1:1 ", &format!("{} ", relay.addr()));
    fs::write(bench.path("torrc"), torrc).unwrap();
    let weft = bench.start();
    let asked = until("a request", || proxy.asked().first().cloned());
    assert_eq!(asked.target, relay.addr());
    weft.terminate();
    assert!(relay.accept().is_none(), "it came directly");
}

#[test]
fn a_client_connects_to_what_it_can_reach_alone() {
    let (open, shut) = (Silent::new(), Silent::new());
    let bench = Bench::new();
    let (log, both) = (
        bench.log_line("log"),
        open.fallback('A') + &shut.fallback('B'),
    );
    let firewall = format!("FascistFirewall 1\nFirewallPorts {}\n", open.addr().port());
    bench.torrc(&format!("{log}SocksPort auto\n{both}{firewall}"));
    let weft = bench.start();
    // The client tries again after the first has ended.
    for _ in 0..2 {
        drop(until("a connection", || open.accept()));
    }
    weft.terminate();
    assert!(shut.accept().is_none());
}

#[test]
fn where_bridges_are_used_nothing_else_is_connected_to() {
    let (fallback, [first, second]) = (Silent::new(), [Silent::new(), Silent::new()]);
    let bench = Bench::new();
    let common = format!(
        "{}SocksPort auto\n{}",
        bench.log_line("log"),
        fallback.fallback('A')
    );
    let with = |bridge: &Silent| format!("{common}UseBridges 1\nBridge {}\n", bridge.addr());
    bench.torrc(&with(&first));
    let weft = bench.start();
    drop(until("a connection", || first.accept()));
    // Another one takes over with a reload.
    bench.torrc(&with(&second));
    weft.signal(Signal::SIGHUP);
    drop(until("a connection", || second.accept()));
    weft.terminate();
    assert!(fallback.accept().is_none());
}

#[test]
fn wrong_bridges_are_refused_at_the_start_by_sighup_and_by_setconf() {
    let bench = Bench::new();
    let own = bench.path("own");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
    let control = own.join("control");
    let good = format!(
        "{}SocksPort auto\nControlPort unix:{}\n",
        bench.log_line("log"),
        control.display()
    );
    bench.torrc(&format!("{good}UseBridges 1\nBridge 127.0.0.1:1 1234\n"));
    for words in [&["--verify-config"][..], &[]] {
        let run = Command::new(env!("CARGO_BIN_EXE_weft"))
            .args(["-f".as_ref(), bench.path("torrc").as_os_str()])
            .args(["--defaults-torrc", "/dev/null"])
            .args(words)
            .output()
            .unwrap();
        let printed = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(1), "{printed}");
        assert!(
            printed.contains("Key digest for Bridge is wrong length."),
            "{printed}"
        );
    }

    bench.torrc(&good);
    let mut weft = bench.start();
    bench.torrc(&format!("{good}UseBridges 1\n"));
    weft.signal(Signal::SIGHUP);
    weft.wait_for("you must specify at least one bridge");
    weft.wait_for("The old configuration stays in force");

    let stream = UnixStream::connect(&control).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut ask = |words: &str| {
        (&stream)
            .write_all(format!("{words}\r\n").as_bytes())
            .unwrap();
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line
    };
    assert_eq!(ask("AUTHENTICATE"), "250 OK\r\n");
    for words in [
        "UseBridges=1",
        "Bridge=\"127.0.0.1:1 1234\"",
        "UseBridges=1 UseEntryGuards=0 Bridge=127.0.0.1:1",
    ] {
        let answer = ask(&format!("SETCONF {words}"));
        assert!(
            answer.starts_with("513 Unacceptable option value: "),
            "{answer}"
        );
    }
    let answer = ask("SETCONF Socks5Proxy=192.0.2.1 Socks4Proxy=192.0.2.1");
    assert!(answer.starts_with("513 "), "{answer}");
    let answer = ask("+LOADCONF\r\nUseBridges 1\r\n.");
    assert!(answer.starts_with("552 Invalid config file: "), "{answer}");
    assert_eq!(ask("GETCONF UseBridges"), "250 UseBridges=0\r\n");
    let bridge = Silent::new();
    let set = format!("SETCONF UseBridges=1 Bridge={}", bridge.addr());
    assert_eq!(ask(&set), "250 OK\r\n");
    until("a connection", || bridge.accept());
    assert_eq!(ask("SETCONF UseBridges=0 Bridge"), "250 OK\r\n");
    weft.terminate();
}
