//! The node as services start it: `RunAsDaemon`, and a service manager that is notified of its state.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getsid};

use crate::running::{Bench, PATIENCE};

/// A relay of the folder's torrc, which is given by a path relative to it; not started yet.
fn weft(bench: &Bench) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command
        .args(["-f", "torrc", "--defaults-torrc", "defaults"])
        .current_dir(bench.folder.path())
        .env("HOME", bench.folder.path())
        .stdin(Stdio::null());
    command
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A process in the background, which nobody waits for. Ended when dropped.
struct InBackground(Pid);

impl InBackground {
    /// The process that wrote the PidFile.
    fn of(bench: &Bench) -> Self {
        let text = fs::read_to_string(bench.path("pid")).expect("a PidFile");
        Self(Pid::from_raw(text.trim().parse().expect("a process id")))
    }

    fn runs(&self) -> bool {
        // A process that has ended stays in the table until its new parent takes note.
        fs::read_to_string(format!("/proc/{}/stat", self.0))
            .is_ok_and(|stat| !stat.contains(") Z "))
    }
}

impl Drop for InBackground {
    fn drop(&mut self) {
        if self.runs() {
            let _ = kill(self.0, Signal::SIGKILL);
        }
    }
}

#[test]
fn a_daemon_is_up_when_its_start_returns_and_has_no_terminal() {
    let bench = Bench::new();
    bench.torrc(&format!(
        "ORPort 127.0.0.1:auto\nRunAsDaemon 1\nPidFile {}\n{}",
        bench.path("pid").display(),
        bench.log_line("log")
    ));
    // Ends only when no process has the pipes any more: the daemon has closed them.
    let Output { status, stderr, .. } = weft(&bench).output().expect("weft");
    assert_eq!(
        (status.code(), String::from_utf8_lossy(&stderr).as_ref()),
        (Some(0), "")
    );
    let daemon = InBackground::of(&bench);
    assert!(daemon.runs());
    let log = || fs::read_to_string(bench.path("log")).expect("a log");
    assert!(log().contains("onionskin worker"), "{}", log());
    let place = |what: &str| fs::read_link(format!("/proc/{}/{what}", daemon.0)).expect(what);
    for stream in ["fd/0", "fd/1", "fd/2"] {
        assert_eq!(place(stream).to_str(), Some("/dev/null"), "{stream}");
    }
    let data = fs::canonicalize(bench.path("data")).expect("the DataDirectory");
    assert_eq!(place("cwd"), data);
    // In another session, which it does not lead: it never gets a terminal.
    let session = getsid(Some(daemon.0)).expect("a session");
    assert!(session != daemon.0 && session != getsid(None).expect("ours"));

    // Another in the same place does not start, and prints why for the process that starts it.
    let second = weft(&bench).output().expect("weft");
    assert_eq!(second.status.code(), Some(1));
    assert!(daemon.runs());

    // A daemon works in another directory: its torrc is found all the same.
    let read = || log().matches("Read configuration file").count();
    let before = read();
    kill(daemon.0, Signal::SIGHUP).expect("it runs");
    wait_until("a reload", || read() > before);
    assert!(!log().contains("stays in force"), "{}", log());
    kill(daemon.0, Signal::SIGTERM).expect("it runs");
    wait_until("the end", || !daemon.runs());
    assert!(log().contains("exiting cleanly"), "{}", log());
    assert!(!bench.path("pid").exists());
}

#[test]
fn a_daemon_that_cannot_start_prints_why() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its number").port();
    let bench = Bench::new();
    bench.torrc(&format!("ORPort 127.0.0.1:{port}\nRunAsDaemon 1"));
    let Output { status, stderr, .. } = weft(&bench).output().expect("weft");
    let printed = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(printed.contains(&port.to_string()), "{printed}");
}

#[test]
fn a_daemons_log_does_not_go_to_standard_output() {
    let bench = Bench::new();
    bench.torrc("ORPort 127.0.0.1:auto\nRunAsDaemon 1\nLog notice stdout");
    let checked = weft(&bench).arg("--verify-config").output().expect("weft");
    let printed = String::from_utf8_lossy(&checked.stdout);
    assert!(
        printed.contains("there is no standard output with RunAsDaemon"),
        "{printed}"
    );
    assert_eq!(checked.status.code(), Some(0));
}

#[test]
fn a_service_manager_is_notified_of_the_relays_state() {
    let bench = Bench::new();
    bench.torrc(&format!(
        "ORPort 127.0.0.1:auto\nShutdownWaitLength 7\n{}",
        bench.log_line("log")
    ));
    let socket = UnixDatagram::bind(bench.path("manager")).expect("a socket");
    socket
        .set_read_timeout(Some(PATIENCE))
        .expect("a time limit");
    let mut weft = weft(&bench)
        .env("NOTIFY_SOCKET", bench.path("manager"))
        // Half a second between two signs of life.
        .env("WATCHDOG_USEC", "1000000")
        .stdout(Stdio::null())
        .spawn()
        .expect("weft");
    let hears = |wanted: &str| {
        let start = Instant::now();
        loop {
            let mut message = [0; 512];
            let count = socket.recv(&mut message).expect("a message");
            let message = String::from_utf8_lossy(&message[..count]).into_owned();
            if message.lines().any(|line| line == wanted) {
                return message;
            }
            assert!(start.elapsed() < PATIENCE, "no {wanted}: {message}");
        }
    };
    let ready = hears("READY=1");
    assert!(
        ready
            .lines()
            .any(|line| line == format!("MAINPID={}", weft.id())),
        "{ready}"
    );
    hears("WATCHDOG=1");
    let process = Pid::from_raw(weft.id().cast_signed());
    kill(process, Signal::SIGHUP).expect("it runs");
    hears("RELOADING=1");
    hears("READY=1");
    kill(process, Signal::SIGINT).expect("it runs");
    let stopping = hears("STOPPING=1");
    // ShutdownWaitLength and half a minute.
    assert!(
        stopping.contains("EXTEND_TIMEOUT_USEC=37000000"),
        "{stopping}"
    );
    assert!(weft.wait().expect("its end").success());
}
