//! Several identities in one process (`weft -f A -f B`): each is a separate relay, on the same
//! threads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::hostile::circuit::{Circuit, FIRST};
use crate::hostile::peer::Peer;
use crate::hostile::process::{Folder, PATIENCE, Weft, eventually, program};

/// The port of this kind that an identity has opened.
fn port(weft: &Weft, name: &str, kind: &str) -> SocketAddr {
    let words = format!("{name}: Opened {kind} listener connection (ready) on ");
    let line = weft.wait_for(&words);
    let (_, at) = line.split_once(&words).unwrap();
    at.trim().parse().unwrap()
}

/// Two relays in one process, `attacked` and `second`, with these lines in both torrcs.
fn two(threads: usize, lines: &str) -> Weft {
    let folder = Folder::new();
    let common = format!(
        "ConnectionThreads {threads}\nUseAllThreads 1\nNumCPUs 1\n\
         ControlPort 127.0.0.1:auto\nMetricsPort 127.0.0.1:auto\n\
         MetricsPortPolicy accept 127.0.0.1\n{lines}"
    );
    folder.torrc(&common);
    let first = fs::read_to_string(folder.path("torrc")).unwrap();
    let data = folder.path("data").display().to_string();
    let second = first
        .replace(&data, &folder.path("data2").display().to_string())
        .replace("Nickname attacked", "Nickname second");
    fs::write(folder.path("second"), second).unwrap();
    let mut command = folder.command(program());
    command.arg("-f").arg(folder.path("second"));
    let weft = Weft::run(command, folder, threads);
    weft.wait_for("second: Weft ");
    weft
}

/// A controller of an identity.
struct Controller {
    socket: TcpStream,
    answers: Lines<BufReader<TcpStream>>,
}

impl Controller {
    fn of(weft: &Weft, name: &str) -> Self {
        let socket = TcpStream::connect(port(weft, name, "Control")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let answers = BufReader::new(socket.try_clone().unwrap()).lines();
        let mut controller = Self { socket, answers };
        assert_eq!(controller.ask("AUTHENTICATE"), "250 OK");
        controller
    }

    /// Sends a command; the first line of the answer.
    fn ask(&mut self, command: &str) -> String {
        self.socket
            .write_all(format!("{command}\r\n").as_bytes())
            .unwrap();
        self.answers.next().unwrap().unwrap()
    }
}

/// A client gets a circuit, and an answer on it.
fn serves(at: SocketAddr) {
    let mut client = Peer::client(at);
    let mut circuit = Circuit::create(&mut client, FIRST);
    circuit.answers(&mut client);
}

/// Waits until threads have reported what they hold a few times. The number of turns is in these reports.
fn reported(weft: &Weft) {
    for _ in 0..5 {
        let before = turns(weft);
        eventually("threads report", || turns(weft) != before);
    }
}

/// Turns of all connection threads since the start.
fn turns(weft: &Weft) -> f64 {
    let text = metrics(port(weft, "attacked", "Metrics"));
    let lines = text
        .lines()
        .filter(|line| line.starts_with("weft_thread_turns_total"));
    let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.sum()
}

/// Answer of the MetricsPort.
fn metrics(at: SocketAddr) -> String {
    let mut metrics = TcpStream::connect(at).unwrap();
    metrics.set_read_timeout(Some(PATIENCE)).unwrap();
    metrics.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    metrics.read_to_string(&mut text).unwrap();
    text
}

/// The process' threads, by their names up to a number: how many.
fn threads(weft: &Weft) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{}/task", weft.pid())).unwrap() {
        let name = fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default();
        let name = name.trim().trim_end_matches(|c: char| c.is_ascii_digit());
        *found.entry(name.to_owned()).or_default() += 1;
    }
    found
}

#[test]
fn two_identities_are_two_relays_on_one_set_of_threads() {
    for count in [1, 2] {
        let weft = two(count, "");
        let (one, other) = (port(&weft, "attacked", "OR"), port(&weft, "second", "OR"));
        assert_ne!(one, other);
        serves(one);
        serves(other);
        // Many circuits of both at once.
        std::thread::scope(|scope| {
            for at in [one, other] {
                scope.spawn(move || {
                    let mut client = Peer::client(at);
                    for id in 0..50 {
                        let mut circuit = Circuit::create(&mut client, FIRST + id);
                        circuit.answers(&mut client);
                    }
                });
            }
        });
        let threads = threads(&weft);
        assert_eq!(threads.get("connections-"), Some(&count), "{threads:?}");
        assert_eq!(threads.get("onionskins-"), Some(&1), "{threads:?}");
        assert_eq!(threads.get("directory"), Some(&2), "{threads:?}");
        // Different keys, each in its own folder.
        let key = |data: &str| {
            fs::read(
                weft.folder
                    .path(data)
                    .join("keys/ed25519_master_id_public_key"),
            )
        };
        assert_ne!(key("data").unwrap(), key("data2").unwrap());
        // One port has the numbers of both, each with its name.
        let text = metrics(port(&weft, "attacked", "Metrics"));
        for name in ["attacked", "second"] {
            let label = format!("identity=\"{name}\"}} ");
            let samples = text.lines().filter(|line| line.contains(&label));
            assert!(samples.count() > 50, "{text}");
        }
        let families = text.lines().filter(|line| line.starts_with("# TYPE "));
        let all: Vec<_> = families.clone().collect();
        let different: BTreeSet<_> = families.collect();
        assert_eq!(all.len(), different.len(), "{text}");
        weft.terminate();
    }
}

#[test]
fn all_torrcs_are_read_again_or_none() {
    let weft = two(1, "");
    let write = |name: &str, line: &str| {
        let path = weft.folder.path(name);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}{line}")).unwrap();
    };
    let took = |name: &str, count: usize| {
        let words = format!("{name}: Received reload signal");
        eventually("the signal is taken", || {
            let lines = weft.lines();
            lines.iter().filter(|line| line.contains(&words)).count() == count
        });
    };
    write("torrc", "MaxMemInQueues 300 MB\n");
    write("second", "HeartbeatPeriod 1 hour\n");
    let mut controllers = ["attacked", "second"].map(|name| Controller::of(&weft, name));
    let mut are = |option: &str, values: [&str; 2]| {
        for (controller, value) in controllers.iter_mut().zip(values) {
            let words = format!("GETCONF {option}");
            let answer = format!("250 {option}={value}");
            eventually("the options are in force", || {
                controller.ask(&words) == answer
            });
        }
    };
    are("MaxMemInQueues", ["0", "0"]);
    let mut clients = ["attacked", "second"].map(|name| {
        let mut client = Peer::client(port(&weft, name, "OR"));
        let circuit = Circuit::create(&mut client, FIRST);
        (client, circuit)
    });
    // The present limit has been shared out.
    reported(&weft);
    weft.signal(Signal::SIGHUP);
    for name in ["attacked", "second"] {
        took(name, 1);
    }
    // All identities follow the options of the process; the others are separate.
    let queues = ["314572800", "314572800"];
    are("MaxMemInQueues", queues);
    are("HeartbeatPeriod", ["21600", "3600"]);
    // A line that one identity cannot use, or that contradicts the other identity, leaves both as
    // they are.
    for (line, why) in [
        ("Frobnicate 1\n", "unknown option"),
        (
            "MaxMemInQueues 301 MB\n",
            "MaxMemInQueues is of the whole process",
        ),
    ] {
        let path = weft.folder.path("second");
        let good = fs::read_to_string(&path).unwrap();
        write("second", line);
        weft.signal(Signal::SIGHUP);
        for name in ["attacked", "second"] {
            weft.wait_for(&format!("{name}: {}:", path.display()));
            eventually("it is refused", || {
                let lines = weft.lines();
                let of = |line: &&String| line.contains(&format!("{name}: "));
                lines.iter().filter(of).any(|line| line.contains(why))
            });
            weft.wait_for(&format!("{name}: The old configuration stays in force"));
        }
        fs::write(&path, good).unwrap();
    }
    are("MaxMemInQueues", queues);
    weft.signal(Signal::SIGHUP);
    for name in ["attacked", "second"] {
        took(name, 4);
        serves(port(&weft, name, "OR"));
    }
    // The lower limit is shared out at once: memory held under the old one is no reason to free.
    reported(&weft);
    for (client, circuit) in &mut clients {
        circuit.answers(client);
    }
    let freed = "We are low on memory";
    assert!(!weft.lines().iter().any(|line| line.contains(freed)));
    // A controller is one identity's.
    let mut controller = Controller::of(&weft, "second");
    let refused = controller.ask("SETCONF SafeLogging=0");
    assert!(
        refused.contains("SafeLogging is of the whole process"),
        "{refused}"
    );
    assert_eq!(controller.ask("SETCONF HeartbeatPeriod=7200"), "250 OK");
    weft.terminate();
}

#[test]
fn a_second_sigint_ends_both_and_the_first_waits_for_their_circuits() {
    let mut weft = two(2, "ShutdownWaitLength 60\n");
    let (one, other) = (port(&weft, "attacked", "OR"), port(&weft, "second", "OR"));
    let mut client = Peer::client(one);
    let mut circuit = Circuit::create(&mut client, FIRST);
    weft.signal(Signal::SIGINT);
    // The one without connections ends at once, the other one not yet.
    weft.wait_for("second: Exiting.");
    eventually("its port is closed", || TcpStream::connect(other).is_err());
    circuit.answers(&mut client);
    weft.signal(Signal::SIGINT);
    weft.wait_for("attacked: Exiting.");
    assert_eq!(weft.wait().code(), Some(0));
}

#[test]
fn identities_that_want_the_same_are_refused_with_both_lines() {
    let folder = Folder::new();
    folder.torrc("ConnectionThreads 1\nNumCPUs 1\n");
    let first = fs::read_to_string(folder.path("torrc")).unwrap();
    let data = folder.path("data").display().to_string();
    let other = folder.path("data2").display().to_string();
    let second = first
        .replace(&data, &other)
        .replace("Nickname attacked", "Nickname second");
    // Both once: then there are keys.
    let two = |second: &str| {
        fs::write(folder.path("second"), second).unwrap();
        let mut command = folder.command(program());
        command.arg("-f").arg(folder.path("second"));
        command
    };
    let mut child = two(&second).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut up = lines.filter(|line| line.as_ref().is_ok_and(|line| line.contains(": Weft ")));
    assert_eq!(up.by_ref().take(2).count(), 2);
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap()),
        Signal::SIGTERM,
    )
    .unwrap();
    drop(up);
    child.wait().unwrap();
    // The second gets the keys of the first.
    fs::remove_dir_all(folder.path("data2/keys")).unwrap();
    fs::create_dir(folder.path("data2/keys")).unwrap();
    for file in fs::read_dir(folder.path("data/keys")).unwrap() {
        let file = file.unwrap();
        fs::copy(
            file.path(),
            folder.path("data2/keys").join(file.file_name()),
        )
        .unwrap();
    }
    let mode = fs::metadata(folder.path("data/keys"))
        .unwrap()
        .permissions();
    fs::set_permissions(folder.path("data2/keys"), mode).unwrap();
    let run = two(&second).output().unwrap();
    let text =
        String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success(), "{text}");
    assert!(
        text.contains("two identities cannot have the same identity keys: KeyDirectory ")
            && text.contains(&folder.path("second").display().to_string()),
        "{text}"
    );
}

#[test]
fn an_identity_that_ends_leaves_the_others() {
    for (ending, other) in [("second", "attacked"), ("attacked", "second")] {
        for threads in [1, 2] {
            let mut weft = two(threads, "");
            let (gone, stays) = (port(&weft, ending, "OR"), port(&weft, other, "OR"));
            let mut bystander = Peer::client(stays);
            let mut circuit = Circuit::create(&mut bystander, FIRST);
            serves(gone);
            assert_eq!(Controller::of(&weft, ending).ask("SIGNAL HALT"), "250 OK");
            weft.wait_for(&format!("{ending}: Exiting."));
            eventually("its port is closed", || TcpStream::connect(gone).is_err());
            circuit.answers(&mut bystander);
            serves(stays);
            // The one that is left answers for the process.
            if ending == "attacked" {
                let text = metrics(port(&weft, "second", "Metrics"));
                assert!(text.contains("identity=\"second\"}"), "{text}");
                assert!(!text.contains("identity=\"attacked\"}"), "{text}");
            }
            weft.is_calm();
            weft.terminate();
        }
    }
}

/// Two identities that may have 400 files together.
fn with_few_files() -> (Weft, SocketAddr, SocketAddr) {
    let folder = Folder::new();
    folder.torrc("ConnectionThreads 1\nNumCPUs 1\nConnLimit 300\n");
    let first = fs::read_to_string(folder.path("torrc")).unwrap();
    let data = folder.path("data").display().to_string();
    let second = first
        .replace(&data, &folder.path("data2").display().to_string())
        .replace("Nickname attacked", "Nickname second");
    fs::write(folder.path("second"), second).unwrap();
    let mut command = folder.command_with_files(program(), 400);
    command.arg("-f").arg(folder.path("second"));
    let weft = Weft::run(command, folder, 1);
    let (one, other) = (port(&weft, "attacked", "OR"), port(&weft, "second", "OR"));
    (weft, one, other)
}

/// It has not run out of files.
fn has_files(weft: &Weft) {
    assert!(weft.files() < 400, "{}", weft.files());
    let lines = weft.lines();
    let failed = lines.iter().any(|line| line.contains("Could not accept"));
    assert!(!failed, "{lines:#?}");
}

#[test]
fn files_are_counted_together() {
    let (weft, one, other) = with_few_files();
    let mut open = Vec::new();
    for _ in 0..300 {
        for at in [one, other] {
            open.push(TcpStream::connect(at).unwrap());
        }
    }
    // The evicted connections are closed: the rest is within the limit, and a newcomer finds a
    // place.
    for at in [one, other] {
        eventually("a newcomer is served", || Peer::try_client(at).is_ok());
        serves(at);
    }
    has_files(&weft);
    drop(open);
    weft.terminate();
}

#[test]
fn a_crowd_at_one_identity_does_not_lock_out_the_peers_of_the_other() {
    let (weft, one, other) = with_few_files();
    let crowd: Vec<_> = (0..500).map(|_| TcpStream::connect(one).unwrap()).collect();
    let mut peers: Vec<Peer> = (0..30).map(|_| Peer::client(other)).collect();
    for peer in &mut peers {
        Circuit::create(peer, FIRST).answers(peer);
    }
    has_files(&weft);
    drop(crowd);
    weft.terminate();
}
