//! Sessions of controllers with a fake node.

use std::net::TcpListener;
use std::process::Command as Process;
use std::sync::Arc;
use std::time::Instant;

use weft_dir::clock::SystemClock;

use super::auth::hash_password;
use super::backend::{Backend as _, Signal};
use super::commands::Command;
use super::events::Event;
use super::fake::{Fake, shared};
use super::node_backend::NodeBackend;
use super::reader::RawCommand;
use super::server::{ControlServer, ControlSocket, Standing};
use super::session::Session;

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(future)
}

fn new_session(fake: &Fake) -> Session<Fake> {
    Session::new(fake.clone(), Arc::new(shared()))
}

fn send(session: &mut Session<Fake>, line: &str) -> String {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let command = RawCommand {
        word: word.to_owned(),
        rest: rest.to_owned(),
        data: String::new(),
    };
    run(session.command(&command, [1; 32])).encode()
}

fn authenticated(fake: &Fake) -> Session<Fake> {
    let mut session = new_session(fake);
    assert_eq!(send(&mut session, "AUTHENTICATE"), "250 OK\r\n");
    session
}

#[test]
fn unauthenticated_controllers_may_only_authenticate() {
    let hash = hash_password(b"secret", [1; 8]);
    let fake = Fake::new(&format!("ControlPort 9051\nHashedControlPassword {hash}\n"));
    let mut session = new_session(&fake);
    let closes = |session: &mut Session<Fake>, word: &str| {
        let (word, rest, data) = (word.to_owned(), String::new(), String::new());
        run(session.command(&RawCommand { word, rest, data }, [1; 32])).close
    };
    assert_eq!(
        send(&mut session, "GETINFO version"),
        "514 Authentication required.\r\n"
    );
    assert!(closes(&mut session, "GETINFO"));
    assert_eq!(
        send(&mut session, "PROTOCOLINFO 1"),
        "250-PROTOCOLINFO 1\r\n250-AUTH METHODS=HASHEDPASSWORD\r\n\
         250-VERSION Tor=\"0.4.9.11 (Weft-0.1.0)\"\r\n250 OK\r\n"
    );
    assert!(closes(&mut session, "PROTOCOLINFO"), "once is enough");
    assert!(send(&mut session, "AUTHENTICATE \"wrong\"").starts_with("515 Authentication failed"));
    assert!(!session.is_trusted());
    assert!(session.encode_event(&Event::Bandwidth(1, 2), "").is_none());
    assert_eq!(send(&mut session, "AUTHENTICATE \"secret\""), "250 OK\r\n");
    assert!(session.is_trusted());
    assert_eq!(send(&mut session, "QUIT"), "250 closing connection\r\n");
    let mut cookie = new_session(&Fake::new("ControlPort 9051\nCookieAuthentication 1\n"));
    assert!(send(&mut cookie, "PROTOCOLINFO").contains(
        "AUTH METHODS=COOKIE,SAFECOOKIE COOKIEFILE=\"/home/nobody/.tor/control_auth_cookie\"\r\n"
    ));
}

#[test]
fn every_command_but_four_wants_authentication() {
    let hash = hash_password(b"secret", [1; 8]);
    let torrc = format!("ControlPort 9051\nHashedControlPassword {hash}\n");
    let allowed = ["AUTHENTICATE", "AUTHCHALLENGE", "PROTOCOLINFO", "QUIT"];
    let unknown = ["FROB", "LOADCONF", ""];
    let words = Command::ALL.iter().map(|command| command.word());
    for word in words.chain(unknown) {
        let reply = send(&mut new_session(&Fake::new(&torrc)), word);
        let is_refused = reply == "514 Authentication required.\r\n";
        assert_eq!(is_refused, !allowed.contains(&word), "{word}: {reply}");
    }
}

#[test]
fn an_answer_that_is_too_long_is_an_error() {
    let contact = "x".repeat(5000);
    let fake = Fake::new(&format!("ControlPort 9051\nContactInfo {contact}\n"));
    let mut session = authenticated(&fake);
    let mut ask = |command: &str, key: &str, times: usize| {
        let keys = vec![key; times].join(" ");
        let reply = send(&mut session, &format!("{command} {keys}"));
        (
            reply.len(),
            reply.starts_with("551 The answer has more than"),
        )
    };
    for (command, key) in [("GETINFO", "config-text"), ("GETCONF", "ContactInfo")] {
        let (length, refused) = ask(command, key, 10);
        assert!(length > 50_000 && !refused, "{command}");
        let (length, refused) = ask(command, key, 20_000);
        assert!(length < 100 && refused, "{command}");
    }
}

#[test]
fn no_request_of_a_controller_to_the_main_thread_is_lost() {
    let view = (*Fake::new("").node()).clone();
    let (_poll, waker) = crate::thread::event_loop().unwrap();
    let flag = Arc::new(weft_sync::wake::WakeFlag::new());
    let main = crate::wake::WakeUp { flag, waker };
    let (node, mut ends) = NodeBackend::new(view, None, None, main);
    const MANY: usize = 1000;
    run(async {
        let asking = async {
            for _ in 0..MANY {
                node.signal(Signal::Heartbeat).await;
                node.enable_events("INFO").await;
            }
        };
        let hearing = async {
            for _ in 0..2 * MANY {
                ends.asks.recv().await.unwrap();
            }
        };
        tokio::join!(asking, hearing);
    });
}

#[test]
fn getinfo_returns_values_or_a_552() {
    let fake = Fake::new("ControlPort 9051\n");
    let mut session = authenticated(&fake);
    let mut ask = |key: &str| send(&mut session, &format!("GETINFO {key}"));
    assert_eq!(
        ask("version"),
        "250-version=0.4.9.11 (Weft-0.1.0)\r\n250 OK\r\n"
    );
    assert_eq!(
        ask("traffic/read traffic/written"),
        "250-traffic/read=1000\r\n250-traffic/written=2000\r\n250 OK\r\n"
    );
    let circuits = ask("circuit-status");
    assert!(
        circuits.starts_with("250+circuit-status=\r\n4 BUILT $AAAA"),
        "{circuits}"
    );
    assert!(circuits.contains("\r\n5 EXTENDED $") && circuits.ends_with("\r\n.\r\n250 OK\r\n"));
    assert!(ask("stream-status").starts_with("250-stream-status=9 SUCCEEDED 4 example.com:80\r\n"));
    assert!(ask("orconn-status").ends_with("~guard CONNECTED\r\n250 OK\r\n"));
    assert_eq!(
        ask("status/bootstrap-phase"),
        "250-status/bootstrap-phase=NOTICE BOOTSTRAP PROGRESS=100 TAG=done SUMMARY=\"Done\"\r\n\
         250 OK\r\n"
    );
    assert_eq!(
        ask("net/listeners/socks"),
        "250-net/listeners/socks=\"127.0.0.1:9050\"\r\n250 OK\r\n"
    );
    assert_eq!(
        ask("net/listeners/dns"),
        "250-net/listeners/dns=\r\n250 OK\r\n"
    );
    assert_eq!(ask("address"), "250-address=192.0.2.1\r\n250 OK\r\n");
    assert_eq!(ask("address/v6"), "551 Address unknown\r\n");
    assert_eq!(ask("fingerprint"), "551 Not running in server mode\r\n");
    for (whose, maps) in [
        ("control", "a b NEVER"),
        ("config", "c d NEVER"),
        ("cache", ""),
    ] {
        let key = format!("address-mappings/{whose}");
        assert_eq!(ask(&key), format!("250-{key}={maps}\r\n250 OK\r\n"));
    }
    assert_eq!(ask("sr/current"), "250-sr/current=BBBB=\r\n250 OK\r\n");
    assert_eq!(ask("sr/previous"), "250-sr/previous=\r\n250 OK\r\n");
    assert!(ask("ns/all").starts_with("250+ns/all=\r\nr guard "));
    assert!(ask(&format!("ns/id/${}", "AA".repeat(20))).starts_with("250+ns/id/"));
    assert!(ask("desc/id/AA").starts_with("552 We fetch microdescriptors, "));
    assert_eq!(ask("ns/id/zz"), "551 Data not decodeable as hex\r\n");
    assert_eq!(ask("md/id/zz"), "552 Unrecognized key \"md/id/zz\"\r\n");
    assert_eq!(
        ask("bw-event-cache"),
        "250-bw-event-cache=1,2 3,4\r\n250 OK\r\n"
    );
    assert_eq!(
        ask("exit-policy/full"),
        "552 Not running in server mode\r\n"
    );
    assert!(ask("dir/status-vote/current/consensus").starts_with("551 Could not open"));
    assert!(ask("status/fresh-relay-descs").starts_with("551 Only relays"));
    let one = |key: &str, value: &str| format!("250-{key}={value}\r\n250 OK\r\n");
    for (key, value) in [
        ("ip-to-country/1.0.0.200", "au"),
        ("ip-to-country/1.0.1.0", "??"),
        ("ip-to-country/ipv4-available", "1"),
        ("ip-to-country/ipv6-available", "0"),
        ("stats/ntor/assigned", "7"),
        ("stats/ntor/requested", "9"),
        ("stats/tap/requested", "0"),
        ("status/reachability-succeeded", "OR=1 DIR=1"),
        ("status/good-server-descriptor", "1"),
        ("status/accepted-server-descriptor", "1"),
        (
            "status/clients-seen",
            "TimeStarted=\"1970-01-01 00:00:00\" CountrySummary= IPVersions=v4=0,v6=0",
        ),
        ("accounting/bytes-left", "0 0"),
        ("consensus/valid-until", "2026-01-01 03:00:00"),
    ] {
        assert_eq!(ask(key), one(key, value));
    }
    for (key, why) in [
        ("ip-to-country/::1", "GeoIP data not loaded"),
        ("ip-to-country/here", "Invalid address family"),
        ("stats/ntor/frob", "Unrecognized handshake type"),
        (
            "downloads/bridge/bridges",
            "We don't seem to be using bridges",
        ),
        ("dir/server/all", "Servers unavailable"),
        ("dir/server/frob", "Key not recognized"),
    ] {
        assert_eq!(ask(key), format!("551 {why}\r\n"));
    }
    // Every key of `info/names` is known.
    for (key, ..) in super::keys::KEYS
        .iter()
        .filter(|(key, ..)| !key.ends_with('*'))
    {
        assert!(!ask(key).contains("Unrecognized key"), "{key}");
    }
    assert!(ask("events/names").ends_with(" NETWORK_LIVENESS\r\n250 OK\r\n"));
    assert_eq!(
        ask("frob version net/listeners/x"),
        "552-Unrecognized key \"frob\"\r\n552 Unrecognized key \"net/listeners/x\"\r\n"
    );
    for key in [
        "config/names",
        "config/defaults",
        "info/names",
        "events/names",
        "signal/names",
        "features/names",
        "config-text",
        "process/pid",
        "uptime",
        "entry-guards",
        "current-time/utc",
        "current-time/local",
        "address-mappings/all",
        "network-liveness",
        "status/enough-dir-info",
        "status/circuit-established",
        "config-file",
        "process/user",
        "md/all",
        "desc/all-recent",
        "dormant",
        "accounting/enabled",
        "bw-event-cache",
        "consensus/packages",
        "exit-policy/default",
        "exit-policy/reject-private/default",
        "onions/current",
        "status/version/current",
    ] {
        let answer = ask(key);
        assert!(
            answer.starts_with("250") && answer.ends_with("\r\n250 OK\r\n"),
            "{key}: {answer}"
        );
    }
}

#[test]
fn a_client_that_nobody_uses_is_shown_as_dormant() {
    for (dormant, shown) in [(false, "250-dormant=0\r\n"), (true, "250-dormant=1\r\n")] {
        let mut fake = Fake::new("ControlPort 9051\n");
        fake.dormant = dormant;
        let answer = send(&mut authenticated(&fake), "GETINFO dormant");
        assert!(answer.starts_with(shown), "{answer}");
    }
}

#[test]
fn descriptors_of_a_directory_cache_are_shown() {
    let ask = |torrc: &str, key: &str| {
        let fake = Fake::new(&format!("ControlPort 9051\n{torrc}"));
        send(&mut authenticated(&fake), &format!("GETINFO {key}"))
    };
    const CACHE: &str = "ORPort 9001\nContactInfo x\nExitRelay 0\n";
    const OTHER: &str = "ORPort 9001\nContactInfo x\nExitRelay 0\nDirCache 0\n";
    let (known, unknown) = ("AA".repeat(20), "CC".repeat(20));
    for (key, value) in [
        (format!("desc/id/{known}"), "router guard\r\nof id"),
        (format!("desc/id/${known}~guard"), "router guard\r\nof id"),
        (format!("desc/name/${known}"), "router guard\r\nof id"),
        ("desc/name/guard".to_owned(), "router guard\r\nof name"),
        ("desc/all-recent".to_owned(), "router guard\r\nrouter exit"),
        (
            "desc/all-recent-extrainfo-hack".to_owned(),
            "router guard\r\nread-history",
        ),
        (
            format!("extra-info/digest/{}", "bb".repeat(20)),
            "extra-info guard\r\nx",
        ),
        ("dir/server/authority".to_owned(), "router own\r\nx"),
    ] {
        let expected = format!("250+{key}=\r\n{value}\r\n.\r\n250 OK\r\n");
        assert_eq!(ask(CACHE, &key), expected);
    }
    // C tor's words where there is none of that name, and where descriptors are not fetched.
    for key in [
        format!("desc/id/{unknown}"),
        "desc/id/AA".to_owned(),
        "desc/name/nobody".to_owned(),
        "desc/nope".to_owned(),
        format!("extra-info/digest/{unknown}"),
        "extra-info/digest/AA".to_owned(),
        "extra-info/nope".to_owned(),
    ] {
        let unrecognized = format!("552 Unrecognized key \"{key}\"\r\n");
        assert_eq!(ask(CACHE, &key), unrecognized);
        let answer = ask(OTHER, &key);
        let of_relay = key.starts_with("desc/id/") || key.starts_with("desc/name/");
        match of_relay {
            true => assert!(
                answer.starts_with("552 We fetch microdescriptors, "),
                "{answer}"
            ),
            false => assert_eq!(answer, unrecognized),
        }
    }
    assert_eq!(ask(CACHE, "dir/server/all"), "551 Servers unavailable\r\n");
    for (torrc, enabled) in [(CACHE, 1), (OTHER, 0), ("", 0)] {
        assert_eq!(
            ask(torrc, "desc/download-enabled"),
            format!("250-desc/download-enabled={enabled}\r\n250 OK\r\n")
        );
    }
    assert_eq!(
        ask(OTHER, "desc/all-recent"),
        "250-desc/all-recent=\r\n250 OK\r\n"
    );
}

#[test]
fn without_a_consensus_keys_of_it_have_empty_values() {
    let mut fake = Fake::new("ControlPort 9051\n");
    fake.has_consensus = false;
    let mut session = authenticated(&fake);
    for key in [
        "ns/all",
        "ns/id/zz",
        "ns/name/guard",
        "consensus/valid-after",
        "consensus/x",
    ] {
        let answer = send(&mut session, &format!("GETINFO {key}"));
        assert_eq!(answer, format!("250-{key}=\r\n250 OK\r\n"));
    }
}

#[test]
fn commands_reach_the_client_and_get_its_result() {
    let fake = Fake::new("ControlPort 9051\n");
    let mut session = authenticated(&fake);
    let mut command = |line: &str| (send(&mut session, line), fake.take_recorded().join(";"));
    let done = |recorded: &str| ("250 OK\r\n".to_owned(), recorded.to_owned());
    assert_eq!(
        command("EXTENDCIRCUIT 0 $AA~x,b purpose=controller"),
        (
            "250 EXTENDED 6\r\n".to_owned(),
            "NewCircuit { path: [\"$AA~x\", \"b\"], controller: true }".to_owned()
        )
    );
    assert_eq!(command("EXTENDCIRCUIT 0").0, "250 EXTENDED 6\r\n");
    assert_eq!(
        command("EXTENDCIRCUIT 0 purpose=general").0,
        "250 EXTENDED 6\r\n"
    );
    assert_eq!(
        command("EXTENDCIRCUIT 0 $AA=old").1,
        "NewCircuit { path: [\"$AA=old\"], controller: false }"
    );
    assert_eq!(command("EXTENDCIRCUIT 4 a").0, "250 EXTENDED 4\r\n");
    assert_eq!(
        command("EXTENDCIRCUIT 4").0,
        "512 syntax error: path required.\r\n"
    );
    assert_eq!(
        command("EXTENDCIRCUIT x a").0,
        "552 Unknown circuit \"x\"\r\n"
    );
    assert_eq!(
        command("EXTENDCIRCUIT 0 nobody").0,
        "552 No such router \"nobody\"\r\n"
    );
    assert_eq!(
        command("EXTENDCIRCUIT 0 a purpose=x").0,
        "552 Unknown purpose \"x\"\r\n"
    );
    assert_eq!(
        command("EXTENDCIRCUIT").0,
        "512 Bad arguments to EXTENDCIRCUIT: Need at least 1 argument(s)\r\n"
    );
    assert_eq!(
        command("SETCIRCUITPURPOSE 4 purpose=controller"),
        done("SetPurpose { circuit: 4, controller: true }")
    );
    assert_eq!(command("SETCIRCUITPURPOSE 4").0, "552 No purpose given\r\n");
    assert_eq!(
        command("SETCIRCUITPURPOSE").0,
        "512 Bad arguments to SETCIRCUITPURPOSE: Need at least 1 argument(s)\r\n"
    );
    assert_eq!(
        command("CLOSECIRCUIT 4 IfUnused"),
        done("CloseCircuit { circuit: 4, if_unused: true }")
    );
    assert_eq!(
        command("CLOSECIRCUIT 99").0,
        "552 Unknown circuit \"99\"\r\n"
    );
    assert_eq!(
        command("ATTACHSTREAM 9 4 HOP=2"),
        done("AttachStream { stream: 9, circuit: Some(4), hop: Some(2) }")
    );
    assert_eq!(
        command("ATTACHSTREAM 9 0"),
        done("AttachStream { stream: 9, circuit: None, hop: None }")
    );
    assert_eq!(
        command("ATTACHSTREAM 9 4 HOP=x").0,
        "552 Bad value hop=x\r\n"
    );
    assert!(command("ATTACHSTREAM 9").0.starts_with("512 "));
    assert_eq!(
        command("REDIRECTSTREAM 9 example.org 81"),
        done("RedirectStream { stream: 9, host: \"example.org\", port: Some(81) }")
    );
    assert_eq!(
        command("REDIRECTSTREAM 9 example.org 0").0,
        "512 Cannot parse port \"0\"\r\n"
    );
    assert_eq!(
        command("CLOSESTREAM 9 1"),
        done("CloseStream { stream: 9, reason: 1 }")
    );
    assert_eq!(
        command("CLOSESTREAM 9 x").0,
        "552 Unrecognized reason \"x\"\r\n"
    );
    assert_eq!(
        command("MAPADDRESS a=b.c .=d").0,
        "250-a=b.c\r\n250 x.virtual=d\r\n"
    );
    assert_eq!(
        command("MAPADDRESS a=b@c").0,
        "512 syntax error: invalid address 'b@c'\r\n"
    );
    // A line that cannot be read maps nothing, not even what stands before the mistake.
    let unreadable = "512 Bad arguments to MAPADDRESS: Cannot parse keyword argument(s)\r\n";
    assert_eq!(
        command("MAPADDRESS 9.9.9.1=9.9.9.2 [::]=foo.example bad"),
        (unreadable.to_owned(), String::new())
    );
    assert!(
        command("MAPADDRESS")
            .0
            .starts_with("512 syntax error: not enough")
    );
    assert_eq!(command("SIGNAL newnym"), done("NewNym"));
    assert_eq!(
        command("SIGNAL frob").0,
        "552 Unrecognized signal code \"frob\"\r\n"
    );
    assert_eq!(command("FROB x").0, "510 Unrecognized command \"FROB\"\r\n");
    // Onion services are not supported; onion.rs has the answers.
    assert_eq!(
        command("ADD_ONION NEW:BEST Port=80").0,
        "551 ADD_ONION is not supported by this version of Weft\r\n"
    );
    assert_eq!(
        command("USEFEATURE verbose_names EXTENDED_EVENTS").0,
        "250 OK\r\n"
    );
    assert_eq!(
        command("USEFEATURE x").0,
        "552 Unrecognized feature \"x\"\r\n"
    );
}

#[test]
fn options_are_set_and_reset() {
    let fake = Fake::new("ControlPort 9051\n");
    let mut session = authenticated(&fake);
    assert_eq!(
        send(&mut session, "SETCONF Nickname=\"me\" ContactInfo"),
        "250 OK\r\n"
    );
    let expected = "Set([(\"Nickname\", Some(\"me\")), (\"ContactInfo\", None)])";
    assert_eq!(fake.take_recorded(), [expected]);
    assert_eq!(
        send(&mut session, "GETCONF Nickname"),
        "250 Nickname=me\r\n"
    );
    // A key of torrc is a key here.
    assert_eq!(
        send(&mut session, "GETCONF VirtualAddrNetwork"),
        "250 VirtualAddrNetworkIPv4=127.192.0.0/10\r\n"
    );
    assert_eq!(send(&mut session, "RESETCONF Nickname"), "250 OK\r\n");
    assert_eq!(fake.take_recorded(), ["Reset([(\"Nickname\", None)])"]);
    assert!(send(&mut session, "SETCONF Frob=1").starts_with("552 Unrecognized option"));
    assert!(send(&mut session, "SETCONF A=\"x").starts_with("512 "));
    assert_eq!(send(&mut session, "SAVECONF FORCE"), "250 OK\r\n");
    assert_eq!(fake.take_recorded().pop().unwrap(), "Save { force: true }");
}

#[test]
fn subscribed_events_are_sent() {
    let fake = Fake::new("ControlPort 9051\n");
    let mut session = authenticated(&fake);
    let circuit = Event::Circuit(Fake::circuit(4, "BUILT"), Vec::new());
    assert_eq!(session.encode_event(&circuit, ""), None);
    assert_eq!(
        send(&mut session, "SETEVENTS CIRC stream EXTENDED"),
        "250 OK\r\n"
    );
    assert!(
        session
            .encode_event(&circuit, "")
            .unwrap()
            .starts_with("650 CIRC 4 BUILT $AA")
    );
    assert!(session.encode_event(&Event::Bandwidth(1, 2), "").is_none());
    let stream = Event::Stream(
        Fake::stream(9, "FAILED"),
        vec![("REASON", "END"), ("REMOTE_REASON", "DONE")],
    );
    let line = session.encode_event(&stream, "").unwrap();
    assert!(
        line.starts_with(
            "650 STREAM 9 FAILED 4 example.com:80 REASON=END REMOTE_REASON=DONE CLIENT"
        )
    );
    assert_eq!(
        send(&mut session, "SETEVENTS CIRC x"),
        "552 Unrecognized event \"x\"\r\n"
    );
    assert!(
        session.encode_event(&circuit, "").is_some(),
        "nothing changed"
    );
    assert_eq!(send(&mut session, "SETEVENTS"), "250 OK\r\n");
    assert!(session.encode_event(&circuit, "").is_none());
    assert_eq!(
        send(&mut session, "RESOLVE a.b mode=reverse"),
        "512 syntax error: invalid address 'a.b'\r\n"
    );
    assert_eq!(send(&mut session, "RESOLVE example.com"), "250 OK\r\n");
    assert_eq!(session.take_lookups(), [("example.com".to_owned(), None)]);
}

/// Starts a server behind a listener, until `until` returns.
fn serve<T>(fake: &Fake, until: impl FnOnce(u16) -> T) -> T {
    let clock = Arc::new(SystemClock::default());
    let mut server = ControlServer::start(fake.clone(), shared(), async {}, clock).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let accept = std::thread::spawn(move || {
        while let Ok((socket, from)) = listener.accept() {
            socket.set_nonblocking(true).unwrap();
            let mut bye = [0; 4];
            // The test's own last connection ends this.
            if socket.peek(&mut bye).is_ok() && &bye == b"BYE\n" {
                return;
            }
            assert!(server.serve(
                ControlSocket::Tcp(socket, from.ip()),
                Standing::Stranger,
                Instant::now()
            ));
        }
    });
    let result = until(port);
    {
        use std::io::Write as _;
        let last = std::net::TcpStream::connect(("127.0.0.1", port));
        if let Ok(mut last) = last {
            let _ = last.write_all(b"BYE\n");
        }
    }
    drop(accept);
    result
}

#[test]
fn a_controller_talks_over_a_socket() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let fake = Fake::new("ControlPort 9051\n");
    serve(&fake, |port| {
        let mut socket = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut reader = BufReader::new(socket.try_clone().unwrap());
        let mut line = || {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        socket
            .write_all(b"AUTHENTICATE\r\nSETEVENTS SIGNAL ADDRMAP\r\nSIGNAL NEWNYM\r\n")
            .unwrap();
        assert_eq!([line(), line(), line()], ["250 OK"; 3]);
        assert_eq!(line(), "650 SIGNAL NEWNYM");
        socket
            .write_all(b"RESOLVE example.com nowhere\r\n")
            .unwrap();
        assert_eq!(line(), "250 OK");
        let mut maps = [line(), line()];
        maps.sort();
        assert!(
            maps[0].starts_with("650 ADDRMAP example.com 1.2.3.4 \""),
            "{maps:?}"
        );
        assert!(
            maps[1].starts_with("650 ADDRMAP nowhere <error> \""),
            "{maps:?}"
        );
        assert!(maps[1].contains("error=yes"), "{maps:?}");
        socket.write_all(b"TAKEOWNERSHIP\r\nQUIT\r\n").unwrap();
        assert_eq!([line(), line()], ["250 OK", "250 closing connection"]);
        assert_eq!(line(), "");
        // The owner's connection has closed: the node gets HALT.
        let mut events = fake.events.subscribe();
        if !fake.take_recorded().contains(&"Halt".to_owned()) {
            let event = run(events.recv()).unwrap();
            assert!(matches!(event, Event::Signal("HALT")));
        }
    });
}

#[test]
fn look_ups_past_the_bound_fail_at_once() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let fake = Fake::new("ControlPort 9051\n");
    serve(&fake, |port| {
        let mut socket = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut lines = BufReader::new(socket.try_clone().unwrap()).lines();
        let waiting = " waits".repeat(64);
        write!(
            socket,
            "AUTHENTICATE\r\nSETEVENTS ADDRMAP\r\nRESOLVE{waiting} example.com\r\n"
        )
        .unwrap();
        for _ in 0..3 {
            assert_eq!(lines.next().unwrap().unwrap(), "250 OK");
        }
        let event = lines.next().unwrap().unwrap();
        assert!(
            event.starts_with("650 ADDRMAP example.com <error> "),
            "{event}"
        );
    });
}

/// Stem, the library that most controllers are written with. The module's name marks the tests that need
/// it, for `cargo xtask test`, which installs it.
mod with_stem {
    use super::*;

    const PROGRAM: &str = r#"
import os, sys
from stem.control import Controller, EventType
port, password = int(sys.argv[1]), sys.argv[2]
with Controller.from_port(port=port) as c:
    c.authenticate(password)
    assert str(c.get_version()).startswith('0.4.9.11'), c.get_version()
    assert c.get_protocolinfo().protocol_version == 1
    circuits = c.get_circuits()
    assert [x.id for x in circuits] == ['4', '5'], circuits
    assert circuits[0].status == 'BUILT' and circuits[0].path[0][1] == 'guard', circuits[0].path
    streams = c.get_streams()
    assert streams[0].target == 'example.com:80' and streams[0].circ_id == '4', streams[0]
    assert c.get_info('status/bootstrap-phase').endswith('SUMMARY="Done"')
    assert c.get_listeners('SOCKS') == [('127.0.0.1', 9050)], c.get_listeners('SOCKS')
    assert c.get_conf('SafeSocks') == '0'
    c.set_conf('Nickname', 'stem')
    assert c.get_conf('Nickname') == 'stem'
    c.reset_conf('Nickname')
    assert c.new_circuit() == '6'
    assert c.extend_circuit('0', ['guard', 'exit']) == '6'
    c.close_circuit('4')
    c.attach_stream('9', '4')
    c.close_stream('9')
    assert c.map_address({'a.b': 'c.d'}) == {'a.b': 'c.d'}
    assert [r.nickname for r in c.get_network_statuses()] == ['guard']
    assert c.get_network_status('AA' * 20).nickname == 'guard'
    assert int(c.get_info('traffic/read')) == 1000
    assert c.is_user_traffic_allowed() is not None
    assert c.get_pid() == os.getppid(), c.get_pid()
    assert c.get_uptime() > 9, c.get_uptime()
    assert c.get_user() is not None
    assert c.is_alive() and c.is_authenticated()
    import queue
    got = queue.Queue()
    c.add_event_listener(got.put, EventType.SIGNAL)
    c.signal('NEWNYM')
    assert got.get(timeout=30).signal == 'NEWNYM'
    c.enable_feature('VERBOSE_NAMES')
    c.save_conf()
print('stem is content')
"#;

    #[test]
    fn stem_controls_the_node() {
        let Some(python) = std::env::var_os("WEFT_STEM_PYTHON") else {
            weft_testing::not_run!(
                "WEFT_STEM_PYTHON names no Python that has Stem; `cargo xtask test --only stem` makes one"
            );
            return;
        };
        let hash = hash_password(b"pass word", [3; 8]);
        let fake = Fake::new(&format!("ControlPort 9051\nHashedControlPassword {hash}\n"));
        serve(&fake, |port| {
            let output = Process::new(&python)
                .args(["-c", PROGRAM, &port.to_string(), "pass word"])
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            assert!(text.contains("stem is content"), "{text}");
        });
    }
}
