//! Options that only a running relay shows: changes that SIGHUP makes or refuses, files and
//! directories that the process makes, and its wait before it ends.

use std::fs;
use std::io::Read as _;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use nix::sys::signal::Signal;
use nix::unistd::{User, chown, geteuid};
use weft_testing::not_run;

use crate::running::{self, Bench};

fn mode(path: PathBuf) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Returns true if the port accepts connections.
fn listens(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

#[test]
fn the_first_port_for_applications_or_controllers_needs_no_restart_and_leaves_no_socket() {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    let bench = Bench::new();
    let relay = format!("{}ORPort 127.0.0.1:auto\n", bench.log_line("log"));
    bench.torrc(&relay);
    let mut weft = bench.start();
    let own = bench.path("own");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
    let (socks, control) = (own.join("socks"), own.join("control"));
    bench.torrc(&format!(
        "{relay}SocksPort unix:{}\nControlPort unix:{}\n",
        socks.display(),
        control.display()
    ));
    weft.signal(Signal::SIGHUP);
    weft.wait_for("Opened Control listener");
    let answers = |path: &PathBuf, text: &[u8], answer: &[u8]| {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(running::PATIENCE)).unwrap();
        stream.write_all(text).unwrap();
        let mut answered = vec![0; answer.len()];
        stream.read_exact(&mut answered).unwrap();
        assert_eq!(answered, answer);
        stream
    };
    answers(&socks, &[5, 1, 0], &[5, 0]);
    // The controller sees the client that has begun: the only authority refuses connections.
    weft.wait_for("Problem bootstrapping");
    let text = b"AUTHENTICATE\r\nGETINFO status/bootstrap-phase\r\n";
    answers(
        &control,
        text,
        b"250 OK\r\n250-status/bootstrap-phase=WARN BOOTSTRAP",
    );
    weft.terminate();
    assert!(!socks.exists() && !control.exists());
}

#[test]
fn sighup_opens_and_closes_listeners_and_keeps_those_that_stay() {
    let bench = Bench::new();
    let log = bench.log_line("log");
    bench.torrc(&format!("{log}ORPort 127.0.0.1:auto\n"));
    let mut weft = bench.start();
    weft.seen = 0;
    let first = weft.opened();
    // A connection that stays open shows that nothing of the old listener was given up.
    let mut connection = TcpStream::connect(("127.0.0.1", first)).unwrap();

    bench.torrc(&format!(
        "{log}ORPort 127.0.0.1:auto\nORPort 127.0.0.2:auto NoAdvertise\n"
    ));
    weft.signal(Signal::SIGHUP);
    let second = weft.opened();
    assert_ne!(first, second);
    assert!(TcpStream::connect(("127.0.0.2", second)).is_ok());
    assert!(listens(first));
    connection.set_nonblocking(true).unwrap();
    let error = connection.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "still open");

    bench.torrc(&format!("{log}ORPort 127.0.0.2:auto\n"));
    weft.signal(Signal::SIGHUP);
    weft.wait_for(&format!(
        "Closing no-longer-configured OR listener on 127.0.0.1:{first}"
    ));
    assert!(!listens(first));
    weft.terminate();
}

#[test]
fn sighup_with_a_port_that_is_taken_changes_nothing() {
    let bench = Bench::new();
    let (log, other) = (bench.log_line("log"), bench.log_line("other"));
    bench.torrc(&format!("{log}ORPort 127.0.0.1:auto\n"));
    let mut weft = bench.start();
    weft.seen = 0;
    let port = weft.opened();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = (taken.local_addr().unwrap(), taken);
    bench.torrc(&format!("{other}ORPort {}\n", taken.0));
    weft.signal(Signal::SIGHUP);
    weft.wait_for(&format!("could not listen on {}", taken.0));
    weft.wait_for("The old configuration stays in force");
    assert!(listens(port));
    // And once the port is free, the same torrc goes.
    drop(taken);
    weft.signal(Signal::SIGHUP);
    weft.log = bench.path("other");
    weft.seen = 0;
    weft.wait_for("Opened OR listener connection (ready) on 127.0.0.1:");
    weft.terminate();
}

#[test]
fn sighup_logs_what_needs_a_restart_and_what_is_wrong() {
    let bench = Bench::new();
    let base = format!("{}ORPort 127.0.0.1:auto\n", bench.log_line("log"));
    bench.torrc(&format!("{base}ConnectionThreads 1\nNumCPUs 1\n"));
    let mut weft = bench.start();
    bench.torrc(&format!("{base}ConnectionThreads 2\nNumCPUs 1\n"));
    weft.signal(Signal::SIGHUP);
    weft.wait_for("while the node is running, ConnectionThreads cannot be changed; restart it");
    weft.wait_for("The old configuration stays in force");
    bench.torrc(&format!("{base}ConnectionThreads 1\nNumCPUs 2\n"));
    weft.signal(Signal::SIGHUP);
    weft.wait_for("NumCPUs takes effect after a restart");
    bench.torrc(&format!(
        "{base}ConnectionThreads 1\nNumCPUs 2\nNicknme a\n"
    ));
    weft.signal(Signal::SIGHUP);
    weft.wait_for("unknown option \"Nicknme\"; did you mean Nickname?");
    weft.wait_for("The old configuration stays in force");
    weft.terminate();
}

#[test]
fn sighup_opens_logs_again_even_without_reading_torrc() {
    for reload in [1, 0] {
        let bench = Bench::new();
        let log = bench.log_line("log");
        bench.torrc(&format!(
            "{log}ORPort 127.0.0.1:auto\n__ReloadTorrcOnSIGHUP {reload}\n"
        ));
        let mut weft = bench.start();
        fs::rename(bench.path("log"), bench.path("log.1")).unwrap();
        weft.seen = 0;
        weft.signal(Signal::SIGHUP);
        weft.wait_for("opening log file");
        let written = fs::read_to_string(bench.path("log.1")).unwrap();
        assert!(written.contains("Received reload signal"), "{written}");
        let not = "Not reloading the configuration";
        assert_eq!(reload == 0, written.contains(not), "{written}");
        weft.terminate();
    }
}

#[test]
fn sighup_changes_the_heartbeat_and_other_options_of_the_running_node() {
    let bench = Bench::new();
    let base = format!("{}ORPort 127.0.0.1:auto\n", bench.log_line("log"));
    bench.torrc(&format!("{base}HeartbeatPeriod 0\n"));
    let mut weft = bench.start();
    bench.torrc(&format!("{base}HeartbeatPeriod 1 second\n"));
    weft.signal(Signal::SIGHUP);
    weft.wait_for("Heartbeat: ");
    weft.terminate();
}

#[test]
fn files_are_where_torrc_has_them_and_private() {
    let bench = Bench::new();
    let [pid, cache, keys] = ["pid", "cache", "keys"].map(|name| bench.path(name));
    bench.torrc(&format!(
        "{}ORPort 127.0.0.1:auto\nPidFile {}\nCacheDirectory {}\nKeyDirectory {}\n\
         CacheDirectoryGroupReadable 1\n",
        bench.log_line("log"),
        pid.display(),
        cache.display(),
        keys.display()
    ));
    fs::create_dir(&cache).unwrap();
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    let mut weft = bench.start();
    let written = fs::read_to_string(&pid).unwrap();
    assert_eq!(written.trim(), weft.pid().to_string());
    assert_eq!(mode(cache.clone()), 0o750);
    assert_eq!(mode(bench.path("data")), 0o700);
    assert_eq!(mode(keys.clone()), 0o700);
    assert!(keys.join("secret_id_key").exists());
    // SIGHUP checks them again.
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    weft.signal(Signal::SIGHUP);
    weft.wait_for("Fixing permissions on directory");
    assert_eq!(mode(cache), 0o750);
    weft.terminate();
    assert!(!pid.exists());
}

#[test]
fn sigint_waits_as_long_as_torrc_sets() {
    let bench = Bench::new();
    bench.torrc(&format!(
        "{}ORPort 127.0.0.1:auto\nShutdownWaitLength 1 second\n",
        bench.log_line("log")
    ));
    let mut weft = bench.start();
    weft.seen = 0;
    let port = weft.opened();
    let _connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
    weft.signal(Signal::SIGINT);
    weft.wait_for("in 1 seconds at the latest");
    assert!(weft.child.wait().unwrap().success());
}

#[test]
fn the_user_of_torrc_owns_the_process_and_its_files() {
    if !geteuid().is_root() {
        not_run!("only root can become another user");
        return;
    }
    let nobody = User::from_name("nobody").unwrap().expect("the user nobody");
    let bench = Bench::new();
    chown(bench.folder.path(), Some(nobody.uid), Some(nobody.gid)).unwrap();
    bench.torrc(&format!(
        "{}ORPort 127.0.0.1:auto\nUser nobody\n",
        bench.log_line("log")
    ));
    let weft = bench.start();
    let process = fs::metadata(format!("/proc/{}", weft.pid())).unwrap();
    assert_eq!(process.uid(), nobody.uid.as_raw());
    let data = fs::metadata(bench.path("data")).unwrap();
    assert_eq!(data.uid(), nobody.uid.as_raw());
    weft.terminate();
}

#[test]
fn a_host_name_as_address_is_looked_up() {
    let bench = Bench::new();
    bench.torrc(&format!(
        "{}ORPort 127.0.0.1:auto\nAddress localhost\nDirAllowPrivateAddresses 0\n\
         PublishServerDescriptor 1\nAssumeReachable 0\n",
        bench.log_line("log")
    ));
    let mut weft = bench.start();
    weft.seen = 0;
    let line = weft.wait_for(" is private: nobody on the public network can reach it");
    let addr = line.split("Address ").nth(1).unwrap();
    let addr: IpAddr = addr.split_whitespace().next().unwrap().parse().unwrap();
    assert!(addr.is_loopback());
    weft.terminate();
}

#[test]
fn sigusr2_logs_everything_until_the_next_sighup() {
    let bench = Bench::new();
    let log = format!("Log notice file {}\n", bench.path("log").display());
    bench.torrc(&format!("{log}ORPort 127.0.0.1:auto\n"));
    let mut weft = bench.start();
    weft.seen = 0;
    let port = weft.opened();
    weft.signal(Signal::SIGUSR2);
    weft.wait_for("Switching to loglevel debug");
    drop(TcpStream::connect(("127.0.0.1", port)).unwrap());
    weft.wait_for("[debug]");
    weft.signal(Signal::SIGHUP);
    weft.signal(Signal::SIGUSR1);
    weft.wait_for("Heartbeat: ");
    let before = fs::read_to_string(&weft.log).unwrap().len();
    drop(TcpStream::connect(("127.0.0.1", port)).unwrap());
    weft.signal(Signal::SIGUSR1);
    weft.wait_for("Heartbeat: ");
    let written = fs::read_to_string(&weft.log).unwrap();
    let after = &written[before..];
    assert!(!after.contains("[debug]"), "{after}");
    weft.terminate();
}
