//! Log lines of a running node for its operator and its user, and their number: risks at the start,
//! settings that a reload does not change, reasons for which a client is stuck, and refusals of a
//! relay's descriptor by authorities.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use nix::sys::signal::Signal;
use weft_testing::not_run;

use crate::running::{self, Bench, Running};

/// A connection to the ControlPort, authenticated.
struct Controller {
    stream: BufReader<TcpStream>,
    /// Events that came before the answer to a command, the oldest first.
    early: VecDeque<String>,
}

impl Controller {
    /// Connects to the port that the log names.
    fn new(weft: &mut Running) -> Self {
        let line = weft.wait_for("Opened Control listener connection (ready) on ");
        let port = line.rsplit(':').next().unwrap().trim().parse().unwrap();
        weft.seen = 0;
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(running::PATIENCE)).unwrap();
        let mut controller = Self {
            stream: BufReader::new(stream),
            early: VecDeque::new(),
        };
        assert_eq!(controller.ask("AUTHENTICATE"), "250 OK");
        controller
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn event(&mut self) -> String {
        self.early.pop_front().unwrap_or_else(|| self.line())
    }

    /// The answer to a command. Events that come before it are kept.
    fn ask(&mut self, command: &str) -> String {
        let stream = self.stream.get_mut();
        stream
            .write_all(format!("{command}\r\n").as_bytes())
            .unwrap();
        loop {
            let line = self.line();
            if !line.starts_with("650") {
                break line;
            }
            self.early.push_back(line);
        }
    }
}

/// Number of lines of the log that contain `part`.
fn count(weft: &Running, part: &str) -> usize {
    let log = fs::read_to_string(&weft.log).unwrap();
    log.lines().filter(|line| line.contains(part)).count()
}

#[test]
fn a_client_of_the_public_network_is_warned_once_and_so_is_root() {
    let bench = Bench::new();
    let torrc = |lines: &str| {
        let text = format!(
            "DataDirectory {}\n{}SocksPort 127.0.0.1:auto\nDisableNetwork 1\n{lines}",
            bench.path("data").display(),
            bench.log_line("log")
        );
        fs::write(bench.path("torrc"), text).unwrap();
    };
    let private = "made for private networks";
    let root = "You are running Tor as root. You don't need to, and you probably shouldn't.";
    let is_root = nix::unistd::geteuid().is_root();
    torrc("");
    let mut weft = bench.start();
    weft.wait_for(private);
    weft.signal(Signal::SIGHUP);
    weft.signal(Signal::SIGUSR1);
    weft.wait_for("Heartbeat: ");
    assert_eq!(count(&weft, private), 1);
    assert_eq!(count(&weft, root), usize::from(is_root));
    weft.terminate();
    fs::remove_file(bench.path("log")).unwrap();
    torrc(
        "DirAuthority none orport=1 v3ident=0123456789ABCDEF0123456789ABCDEF01234567 127.0.0.1:1 \
           89ABCDEF0123456789ABCDEF0123456789ABCDEF\n",
    );
    let mut weft = bench.start();
    weft.signal(Signal::SIGUSR1);
    weft.wait_for("Heartbeat: ");
    assert_eq!(count(&weft, private), 0, "it has its own authorities");
    weft.terminate();
    if !is_root {
        not_run!("only root is warned of being root; that nobody else is, is tested");
    }
}

#[test]
fn sighup_and_controllers_do_not_repeat_what_has_not_changed_and_errors_are_said_once() {
    let bench = Bench::new();
    let lines = format!(
        "{}SocksPort 0\nORPort 127.0.0.1:auto\nControlPort 127.0.0.1:auto\n",
        bench.log_line("log")
    );
    bench.torrc(&lines);
    let mut weft = bench.start();
    weft.seen = 0;
    let mut controller = Controller::new(&mut weft);
    let open = "ControlPort is open, but no authentication is set";
    assert_eq!(count(&weft, open), 1);
    for _ in 0..2 {
        weft.signal(Signal::SIGHUP);
        weft.wait_for("Received reload signal");
        weft.wait_for("Read configuration file");
    }
    assert_eq!(controller.ask("SETCONF Nickname=other"), "250 OK");
    assert_eq!(count(&weft, open), 1);
    assert_eq!(count(&weft, "opening log file"), 1);
    // A new warning is logged.
    bench.torrc(&format!("{lines}BandwidthRat 1 MB\n"));
    weft.signal(Signal::SIGHUP);
    weft.wait_for("the abbreviation BandwidthRat is deprecated");
    let refused = controller.ask("SETCONF SocksPort=many");
    assert_eq!(
        refused,
        "513 Unacceptable option value: a controller: SocksPort many: \"many\" is neither a port nor an address and port"
    );
    weft.wait_for("Controller gave us config lines that didn't validate: Unacceptable option value: a controller: SocksPort");
    assert_eq!(count(&weft, "\"many\" is neither"), 1);
    weft.terminate();
}

#[test]
fn a_client_that_is_stuck_names_host_and_reason_in_the_log_and_for_controllers() {
    let bench = Bench::new();
    // Nobody listens at the authority's port, 1.
    bench.torrc(&format!(
        "{}SocksPort 127.0.0.1:auto\nControlPort 127.0.0.1:auto\nDisableNetwork 1\n",
        bench.log_line("log")
    ));
    let mut weft = bench.start();
    weft.seen = 0;
    let mut controller = Controller::new(&mut weft);
    assert_eq!(controller.ask("SETEVENTS STATUS_CLIENT"), "250 OK");
    assert_eq!(controller.ask("SETCONF DisableNetwork=0"), "250 OK");
    let host = "89ABCDEF0123456789ABCDEF0123456789ABCDEF";
    weft.wait_for(&format!(
        "Problem bootstrapping. Stuck at 5% (conn): Connecting to a relay. (Connection refused; CONNECTREFUSED; count 1; \
         recommendation ignore; host {host} at 127.0.0.1:1)"
    ));
    let event = loop {
        let line = controller.event();
        if line.contains("WARNING=") {
            break line;
        }
    };
    assert_eq!(
        event,
        format!(
            "650 STATUS_CLIENT WARN BOOTSTRAP PROGRESS=5 TAG=conn SUMMARY=\"Connecting to a relay\" \
             WARNING=\"Connection refused\" REASON=CONNECTREFUSED COUNT=1 RECOMMENDATION=ignore HOSTID=\"{host}\" \
             HOSTADDR=\"127.0.0.1:1\""
        )
    );
    let phase = controller.ask("GETINFO status/bootstrap-phase");
    let (_, problem) = phase.split_once("=").unwrap();
    assert!(
        problem.starts_with("WARN BOOTSTRAP PROGRESS=5 TAG=conn "),
        "{phase}"
    );
    assert!(problem.contains(" REASON=CONNECTREFUSED COUNT="), "{phase}");
    weft.terminate();
}

/// It has no other to try.
#[test]
fn a_client_whose_only_bridge_refuses_connections_is_warned_at_once() {
    let bench = Bench::new();
    let bridge = "ABABABABABABABABABABABABABABABABABABABAB";
    bench.torrc(&format!(
        "{}SocksPort 127.0.0.1:auto\nUseBridges 1\nBridge 127.0.0.1:1 {bridge}\n",
        bench.log_line("log")
    ));
    let mut weft = bench.start();
    weft.seen = 0;
    let line = weft.wait_for("Problem bootstrapping.");
    assert!(line.contains("[warn] "), "{line}");
    let why = format!("CONNECTREFUSED; count 1; recommendation warn; host {bridge} at 127.0.0.1:1");
    assert!(line.contains(&why), "{line}");
    weft.terminate();
}

/// Answers as an authority does that takes no descriptor, and has no consensus.
fn refuse_descriptors(listener: &TcpListener) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        let mut start = [0; 4];
        // The relay may have gone.
        if stream.read_exact(&mut start).is_err() {
            continue;
        }
        let status = match &start {
            b"POST" => "400 Fingerprint is marked rejected",
            _ => "404 Not found",
        };
        let _ = stream.write_all(format!("HTTP/1.0 {status}\r\n\r\n").as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    }
}

#[test]
fn a_relay_that_no_authority_takes_warns_with_the_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // It ends with the test's process.
    std::thread::spawn(move || refuse_descriptors(&listener));
    let bench = Bench::new();
    let text = format!(
        "TestingTorNetwork 1\nAssumeReachable 1\nNickname told\nContactInfo nobody\nExitRelay 0\nSocksPort 0\n\
         ORPort 127.0.0.1:auto\nAddress 127.0.0.1\nDataDirectory {}\n{}\
         DirAuthority strict orport=1 v3ident=0123456789ABCDEF0123456789ABCDEF01234567 127.0.0.1:{port} \
         89ABCDEF0123456789ABCDEF0123456789ABCDEF\n",
        bench.path("data").display(),
        bench.log_line("log"),
    );
    fs::write(bench.path("torrc"), text).unwrap();
    let mut weft = bench.start();
    let line = weft.wait_for("response from dirserver");
    let reason = "[warn] http status 400 (\"Fingerprint is marked rejected\") response from dirserver 'strict'. Please correct.";
    assert!(line.ends_with(reason), "{line}");
    let line = weft.wait_for("No authority has our descriptor");
    assert!(
        line.contains("[warn]") && line.contains("strict: Fingerprint is marked rejected"),
        "{line}"
    );
    weft.terminate();
}
