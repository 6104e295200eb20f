//! The MetricsPort of a running relay: its answers, the addresses that get them, and its refusals.
//! Its families are compared with those of a real `tor`, which must be installed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use weft_testing::metrics::{Family, families, sample};
use weft_testnet::ports::Port;

use crate::running::{Bench, PATIENCE, Running};

/// A relay that lets this machine look at its counters.
const OPEN: &str = "ORPort 127.0.0.1:auto\nMetricsPort auto\nMetricsPortPolicy accept 127.0.0.1\n";
/// Request of Prometheus.
const REQUEST: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n";

/// Starts a relay with these lines; returns its MetricsPort, too.
fn start(bench: &Bench, lines: &str) -> (Running, SocketAddr) {
    bench.torrc(&format!("{}{lines}", bench.log_line("log")));
    let mut weft = bench.start();
    weft.seen = 0;
    let port = metrics_port(&mut weft);
    (weft, port)
}

/// Waits for a MetricsPort to be opened.
fn metrics_port(weft: &mut Running) -> SocketAddr {
    let line = weft.wait_for("Opened Metrics listener connection (ready) on ");
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// All that comes on a connection, to its end; a reset is an end.
fn rest(mut socket: &TcpStream) -> String {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut all = Vec::new();
    let mut some = [0; 4096];
    loop {
        match socket.read(&mut some) {
            Ok(0) => break,
            Ok(length) => all.extend_from_slice(&some[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}"),
        }
    }
    String::from_utf8(all).unwrap()
}

/// Answer to these bytes.
fn ask(port: SocketAddr, request: &str) -> String {
    let mut socket = TcpStream::connect(port).unwrap();
    // A client that is refused may be so before everything is written.
    let _ = socket.write_all(request.as_bytes());
    rest(&socket)
}

/// The metrics now.
fn scrape(port: SocketAddr) -> String {
    let answer = ask(port, REQUEST);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("{answer:?}"));
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
    assert!(
        head.contains(&format!("Content-Length: {}\r\n", body.len())),
        "{head}"
    );
    body.to_owned()
}

/// Asks again until a sample has this value.
fn eventually(port: SocketAddr, name: &str, value: f64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = scrape(port);
        if sample(&text, name) == Some(value) {
            return;
        }
        assert!(Instant::now() < deadline, "{name} is never {value}: {text}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The answer of a real `tor`, as a relay that no consensus lists.
fn tors_families() -> BTreeMap<String, Family> {
    let folder = tempfile::tempdir().unwrap();
    let (or, metrics) = (Port::reserve().unwrap(), Port::reserve().unwrap());
    let torrc = folder.path().join("torrc");
    let text = format!(
        "TestingTorNetwork 1\nAssumeReachable 1\nPublishServerDescriptor 0\nSocksPort 0\n\
         Nickname other\nContactInfo nobody\nExitRelay 0\nAddress 127.0.0.1\n\
         DirAuthority none orport=1 v3ident=0123456789ABCDEF0123456789ABCDEF01234567 \
         127.0.0.1:1 89ABCDEF0123456789ABCDEF0123456789ABCDEF\n\
         DataDirectory {}\nORPort {}\nMetricsPort {}\nMetricsPortPolicy accept 127.0.0.1\n",
        folder.path().join("data").display(),
        or.address(),
        metrics.address()
    );
    fs::write(&torrc, text).unwrap();
    let mut tor = Command::new("tor")
        .args(["--quiet", "--defaults-torrc", "/nonexistent", "-f"])
        .arg(&torrc)
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|why| panic!("cannot run tor: {why}; install it"));
    let deadline = Instant::now() + PATIENCE;
    let mut answer = String::new();
    while !answer.contains("200 OK") && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
        let Ok(mut socket) = TcpStream::connect(metrics.address()) else {
            continue;
        };
        socket.write_all(REQUEST.as_bytes()).unwrap();
        // C tor ends its answer, but not the connection, unless we end ours.
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        answer = rest(&socket);
    }
    tor.kill().unwrap();
    tor.wait().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").expect("tor answers");
    families(body)
}

#[test]
fn what_c_tor_has_too_has_c_tors_name_type_help_and_labels() {
    let bench = Bench::new();
    let (weft, port) = start(&bench, OPEN);
    // Every thread has reported once this is there.
    eventually(port, "weft_thread_links{thread=\"0\"}", 0.0);
    let ours = families(&scrape(port));
    weft.terminate();
    let theirs = tors_families();
    let mut shared = 0;
    for (name, family) in &ours {
        if name.starts_with("weft_") {
            assert!(!theirs.contains_key(name));
            continue;
        }
        let theirs = theirs
            .get(name)
            .unwrap_or_else(|| panic!("{name} is not C tor's"));
        assert_eq!(
            (&family.help, &family.kind),
            (&theirs.help, &theirs.kind),
            "{name}"
        );
        // To the last label value: C tor has every series that we have.
        let unknown: Vec<_> = family.labels.difference(&theirs.labels).collect();
        assert!(unknown.is_empty(), "{name}: {unknown:?}");
        shared += 1;
    }
    assert_eq!(shared, 21, "the one for offline master keys is not there");
}

#[test]
fn every_thread_has_its_metrics() {
    let bench = Bench::new();
    let more = format!("{OPEN}ConnectionThreads 2\nNumCPUs 1\n");
    let (mut weft, port) = start(&bench, &more);
    weft.seen = 0;
    let or_port = weft.opened();
    for thread in 0..2 {
        // A busy thread takes its first messages a little later.
        for name in ["weft_thread_links", "weft_main_stuck_messages"] {
            eventually(port, &format!("{name}{{thread=\"{thread}\"}}"), 0.0);
        }
    }
    let text = scrape(port);
    let value = |name: &str| sample(&text, name).unwrap_or_else(|| panic!("{name}: {text}"));
    for thread in 0..2 {
        let of = |name: &str| value(&format!("{name}{{thread=\"{thread}\"}}"));
        assert!(of("weft_thread_turns_total") >= 1.0);
        assert!(of("weft_thread_cpu_seconds_total") > 0.0);
        // Nothing waits, but there are tables, and a link or two.
        let held = of("weft_thread_queued_bytes");
        assert!(held < 1e6, "{held}");
    }
    assert!(value("weft_main_turns_total") >= 1.0);
    assert!(value("weft_main_cpu_seconds_total") > 0.0);
    assert_eq!(value("weft_onionskins_answered_total{worker=\"0\"}"), 0.0);
    assert!(!text.contains("worker=\"1\"") && !text.contains("thread=\"2\""));
    let listener = "type=\"OR listener\",direction=\"initiated\",state=\"opened\",family=\"ipv4\"";
    assert_eq!(value(&format!("tor_relay_connections{{{listener}}}")), 1.0);
    assert_eq!(value("tor_relay_flag{type=\"Running\"}"), 0.0);
    // A connection shows while it is there, and in the total for ever.
    let or =
        |state| format!("type=\"OR\",direction=\"received\",state=\"{state}\",family=\"ipv4\"");
    let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, or_port)).unwrap();
    eventually(
        port,
        &format!("tor_relay_connections{{{}}}", or("opened")),
        1.0,
    );
    drop(connection);
    eventually(
        port,
        &format!("tor_relay_connections{{{}}}", or("opened")),
        0.0,
    );
    eventually(
        port,
        &format!("tor_relay_connections_total{{{}}}", or("created")),
        1.0,
    );
    weft.terminate();
}

#[test]
fn with_everything_on_the_main_thread_there_is_one_thread_in_the_metrics() {
    let bench = Bench::new();
    let (weft, port) = start(&bench, &format!("{OPEN}ConnectionThreads 0\n"));
    eventually(port, "weft_thread_links{thread=\"0\"}", 0.0);
    assert!(!scrape(port).contains("thread=\"1\""));
    weft.terminate();
}

#[test]
fn only_addresses_that_the_policy_accepts_are_answered() {
    let bench = Bench::new();
    let lines = "ORPort 127.0.0.1:auto\nMetricsPort auto\n\
                 MetricsPortPolicy reject 127.0.0.3, accept 127.0.0.0/30\n";
    let (mut weft, port) = start(&bench, lines);
    let from = |address: &str| {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let address: SocketAddr = address.parse().unwrap();
        socket.bind(&address.into()).unwrap();
        socket.connect(&port.into()).unwrap();
        let mut socket = TcpStream::from(socket);
        let _ = socket.write_all(REQUEST.as_bytes());
        rest(&socket)
    };
    assert!(from("127.0.0.2:0").starts_with("HTTP/1.0 200 OK"));
    for refused in ["127.0.0.3:0", "127.0.0.4:0"] {
        assert_eq!(
            from(refused),
            "",
            "an address that it does not accept gets nothing"
        );
    }
    weft.wait_for("MetricsPortPolicy does not accept it");
    let rejected = "type=\"Metrics\",direction=\"received\",state=\"rejected\",family=\"ipv4\"";
    eventually(
        port,
        &format!("tor_relay_connections_total{{{rejected}}}"),
        2.0,
    );
    // No address is accepted unless the operator permits it.
    bench.torrc(&format!(
        "{}ORPort 127.0.0.1:auto\nMetricsPort auto\n",
        bench.log_line("log")
    ));
    weft.signal(Signal::SIGHUP);
    weft.wait_for("MetricsPortPolicy accepts nobody");
    let deadline = Instant::now() + PATIENCE;
    while !ask(port, REQUEST).is_empty() {
        assert!(Instant::now() < deadline, "still answered");
        std::thread::sleep(Duration::from_millis(50));
    }
    weft.terminate();
}

#[test]
fn what_is_no_request_for_metrics_is_refused_in_the_right_words() {
    let bench = Bench::new();
    let (weft, port) = start(&bench, OPEN);
    let long = format!(
        "GET /metrics HTTP/1.1\r\nA: {}\r\n\r\n",
        "a".repeat(100_000)
    );
    for (request, status) in [
        ("GET / HTTP/1.0\r\n\r\n", "404 Not Found"),
        ("GET /metrics/x HTTP/1.1\r\n\r\n", "404 Not Found"),
        (
            "POST /metrics HTTP/1.1\r\nContent-Length: 1\r\n\r\nx",
            "405 Method Not Allowed",
        ),
        ("garbage\r\n\r\n", "400 Bad Request"),
        ("\u{16}\u{3}\u{1}\u{2}\0\u{1}", "400 Bad Request"),
        (&long, "400 Bad Request"),
    ] {
        let answer = ask(port, request);
        let start = &request[..request.len().min(40)];
        assert!(
            answer.starts_with(&format!("HTTP/1.0 {status}\r\n")),
            "{start:?}: {answer:?}"
        );
        assert!(answer.ends_with("\r\n\r\n"), "{answer:?}");
    }
    // A client that sends nothing, and one that leaves in the middle, leave nothing behind.
    assert_eq!(
        {
            let socket = TcpStream::connect(port).unwrap();
            socket.shutdown(std::net::Shutdown::Write).unwrap();
            rest(&socket)
        },
        ""
    );
    drop(TcpStream::connect(port).unwrap());
    // Byte by byte is fine.
    let mut slow = TcpStream::connect(port).unwrap();
    slow.set_nodelay(true).unwrap();
    for byte in REQUEST.as_bytes() {
        slow.write_all(&[*byte]).unwrap();
    }
    assert!(rest(&slow).starts_with("HTTP/1.0 200 OK"));
    weft.terminate();
}

#[test]
fn silent_connections_are_few_and_do_not_last() {
    let bench = Bench::new();
    let (weft, port) = start(&bench, OPEN);
    let silent: Vec<TcpStream> = (0..16).map(|_| TcpStream::connect(port).unwrap()).collect();
    // Every place is taken: the first gives way to one that asks.
    scrape(port);
    for socket in &silent {
        assert_eq!(rest(socket), "");
    }
    eventually(port, "weft_thread_links{thread=\"0\"}", 0.0);
    weft.terminate();
}

#[test]
fn a_port_that_is_taken_stops_the_start() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap();
    let bench = Bench::new();
    bench.torrc(&format!("ORPort 127.0.0.1:auto\nMetricsPort {taken}\n"));
    let output = Command::new(env!("CARGO_BIN_EXE_weft"))
        .arg("-f")
        .arg(bench.path("torrc"))
        .arg("--defaults-torrc")
        .arg(bench.path("defaults"))
        .env("HOME", bench.path(""))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("could not listen on") && printed.contains(&taken.to_string()),
        "{printed}"
    );
    assert!(!bench.path("data").exists());
}

#[test]
fn sighup_opens_and_closes_it() {
    let bench = Bench::new();
    let log = bench.log_line("log");
    let off = format!("{log}ORPort 127.0.0.1:auto\n");
    bench.torrc(&off);
    let mut weft = bench.start();
    let everything = fs::read_to_string(&weft.log).unwrap();
    assert!(!everything.contains("Metrics listener"), "off by default");
    bench.torrc(&format!("{log}{OPEN}"));
    weft.signal(Signal::SIGHUP);
    let first = metrics_port(&mut weft);
    scrape(first);
    // Two of them; the first keeps its socket.
    bench.torrc(&format!(
        "{log}{OPEN}MetricsPort 127.0.0.2:auto prometheus\n"
    ));
    weft.signal(Signal::SIGHUP);
    let second = metrics_port(&mut weft);
    scrape(first);
    scrape(second);
    // One that cannot be leaves all as it was.
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap();
    bench.torrc(&format!("{off}MetricsPort {taken}\n"));
    weft.signal(Signal::SIGHUP);
    weft.wait_for("The old configuration stays in force");
    scrape(first);
    scrape(second);
    bench.torrc(&off);
    weft.signal(Signal::SIGHUP);
    weft.wait_for(&format!(
        "Closing no-longer-configured Metrics listener on {first}"
    ));
    weft.wait_for(&format!(
        "Closing no-longer-configured Metrics listener on {second}"
    ));
    assert!(TcpStream::connect(first).is_err());
    weft.terminate();
}
