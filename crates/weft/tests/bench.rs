//! `weft lab relay` against the `weft` that was just built, against C tor, and against what is no
//! relay at all.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use base64ct::{Base64Unpadded, Encoding as _};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weft_lab::bench::aim;
use weft_lab::bench::report::{PAYLOAD_PER_CELL, Report, SCHEMA};
use weft_lab::ports::Port;
use weft_testing::not_run;

/// Only a hang takes as long as this.
const PATIENCE: Duration = Duration::from_secs(60);

fn weft() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.stdin(Stdio::null());
    command
}

/// How lines about progress begin.
const PROGRESS: [&str; 7] = [
    "making keys",
    "opening links",
    "building circuits",
    "warming up",
    "measuring",
    "waiting for the last cells",
    "settling",
];

/// How a run ended.
#[derive(Debug)]
struct Run {
    status: Option<i32>,
    out: String,
    err: String,
}

impl Run {
    /// What it says besides how far it is. A busy machine takes the seconds after which there are lines about that.
    fn complaints(&self) -> String {
        let is_progress = |line: &&str| PROGRESS.iter().any(|step| line.starts_with(step));
        let lines = self.err.lines().filter(|line| !is_progress(line));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn report(&self) -> Report {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Starts `weft lab relay` with these words.
fn start(words: &str) -> Child {
    weft()
        .args(["lab", "relay"])
        .args(words.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn finish(child: Child) -> Run {
    let output = child.wait_with_output().unwrap();
    Run {
        status: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn run(words: &str) -> Run {
    finish(start(words))
}

/// A relay that runs by itself.
struct Relay {
    child: Child,
    folder: tempfile::TempDir,
    port: Port,
    metrics: Port,
}

impl Relay {
    fn start() -> Self {
        Self::start_with("ExtendAllowPrivateAddresses 1")
    }

    fn start_with(line: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = Port::reserve().unwrap();
        let metrics = Port::reserve().unwrap();
        let torrc = folder.path().join("torrc");
        let text = format!(
            "TestingTorNetwork 1\nAssumeReachable 1\nPublishServerDescriptor 0\n\
             {line}\nDoSConnectionEnabled 0\nDoSCircuitCreationEnabled 0\n\
             ConnectionThreads 1\nShutdownWaitLength 0\nExitRelay 0\nExitPolicy reject *:*\n\
             Address 127.0.0.1\nORPort {} IPv4Only\nMetricsPort {}\n\
             MetricsPortPolicy accept 127.0.0.1\nContactInfo nobody\nNickname attached\n\
             DataDirectory {}\nLog err stderr\n\
             DirAuthority nobody orport=1 no-v2 v3ident={nobody} 127.0.0.1:1 {nobody}\n",
            port.address(),
            metrics.address(),
            folder.path().join("data").display(),
            nobody = "A".repeat(40),
        );
        fs::write(&torrc, text).unwrap();
        let child = weft()
            .args(["--defaults-torrc", "/dev/null", "-f"])
            .arg(&torrc)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let relay = Relay {
            child,
            folder,
            port,
            metrics,
        };
        // Written last of all keys.
        eventually("the relay has its keys", || {
            relay.data().join("fingerprint-ed25519").exists()
        });
        eventually("the relay listens", || {
            TcpStream::connect(relay.port.address()).is_ok()
        });
        relay
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The words that name it.
    fn words(&self) -> String {
        format!(
            "--address {} --data-directory {} --pid {}",
            self.port.address(),
            self.data().display(),
            self.pid()
        )
    }

    /// Waits until it has relayed so many cells that circuits are built and measuring has begun.
    ///
    /// Neither time nor CPU time show that: a relay also makes keys after it listens.
    fn is_measured(&self) {
        const CELLS: u64 = 10_000;
        // The generator samples every 50 ms, and a fast machine relays so many cells in less.
        const SAMPLES: Duration = Duration::from_secs(1);
        let relayed = || cells_relayed(self.metrics.address()).unwrap_or(0);
        eventually("the relay relays cells", || relayed() >= CELLS);
        let seen = relayed();
        thread::sleep(SAMPLES);
        eventually("the relay goes on", || relayed() >= seen + CELLS);
    }
}

/// The cells that a relay has relayed, by its MetricsPort.
fn cells_relayed(metrics: SocketAddr) -> Option<u64> {
    let mut stream = TcpStream::connect(metrics).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let name = "weft_thread_cells_total{";
    let mut lines = text.lines().filter(|line| line.starts_with(name));
    let line = lines.find(|line| line.contains("result=\"relayed\""))?;
    line.rsplit(' ').next()?.parse().ok()
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "it never came that {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

/// Everything of a complete run with cells fits together.
fn is_sound(report: &Report) {
    assert_eq!((report.schema, report.complete), (SCHEMA, true), "{report}");
    let measured = report.measured.as_ref().expect("it was measured");
    let cells = measured.cells.as_ref().expect("cells were driven");
    assert_eq!(cells.sent, cells.arrived, "none is lost, none doubled");
    let window = cells.upload + cells.download;
    assert!(window > 0 && window <= cells.sent, "{report}");
    assert_eq!(cells.payload_bytes, window * PAYLOAD_PER_CELL);
    let latency = measured.latency.as_ref().expect("cells were timed");
    assert!(latency.samples > 0 && latency.samples <= cells.sent);
    assert!(latency.min_us <= latency.p50_us && latency.p99_us <= latency.max_us);
    let usage = measured
        .usage
        .as_ref()
        .expect("the target is on this machine");
    assert!(usage.cpu_s_per_gb.is_some() && usage.peak_rss_bytes >= usage.rss_bytes / 2);
}

#[test]
fn cells_are_counted_exactly_in_both_directions_through_weft() {
    let run = run(
        "--target weft:1 --circuits 6 --links 4 --direction both --generator-threads 2 \
         --warm-up 0.2 --seconds 1 --format json",
    );
    assert_eq!((run.status, &*run.complaints()), (Some(0), ""), "{run:?}");
    let report = run.report();
    is_sound(&report);
    let cells = report.measured.as_ref().unwrap().cells.as_ref().unwrap();
    assert!(cells.upload > 0 && cells.download > 0);
    assert_eq!(
        (report.load.origin_links, report.load.next_hop_links),
        (2, 2)
    );
    assert_eq!((report.load.circuits, report.target.threads), (6, Some(1)));
}

#[test]
fn cells_are_counted_exactly_through_c_tor_at_a_fixed_rate() {
    let allowed = nix::sched::sched_getaffinity(Pid::from_raw(0)).unwrap();
    let cpu = (0..).find(|cpu| allowed.is_set(*cpu).unwrap()).unwrap();
    let run = run(&format!(
        "--target tor --circuits 4 --links 4 --direction upload --rate 2000 \
         --pin {cpu}/{cpu} --warm-up 0.2 --seconds 1 --format json",
    ));
    assert_eq!((run.status, &*run.complaints()), (Some(0), ""), "{run:?}");
    let report = run.report();
    is_sound(&report);
    assert_eq!(
        (&report.target.cpus, &report.load.generator_cpus),
        (&vec![cpu], &vec![cpu])
    );
    let cells = report.measured.as_ref().unwrap().cells.as_ref().unwrap();
    assert_eq!(cells.download, 0);
    assert_eq!(report.load.rate_cells_per_s, Some(2000.0));
}

/// Everything of a complete run with a live load fits together.
fn is_live(report: &Report, preset: &str) {
    is_sound(report);
    let (load, measured) = (&report.load, report.measured.as_ref().unwrap());
    assert_eq!(load.live.as_deref(), Some(preset), "{report}");
    let cells = measured.cells.as_ref().unwrap();
    assert!(cells.download > cells.upload, "{report}");
    let churn = measured.churn.as_ref().expect("circuits came and went");
    assert!(
        churn.circuits_made > 0 && churn.circuits_ended > 0,
        "{report}"
    );
    assert!(measured.generator_late.is_some(), "{report}");
}

#[test]
fn circuits_and_links_of_a_guard_come_and_go_through_weft() {
    // Each circuit lives for 1.4 s, each client's link for little longer.
    let run = run(
        "--target weft:1 --load live-guard --circuits 60 --links 20 --rate 20000 --warm-up 0.5 \
         --seconds 4 --format json",
    );
    assert_eq!((run.status, &*run.complaints()), (Some(0), ""), "{run:?}");
    let report = run.report();
    is_live(&report, "live-guard");
    assert_eq!(
        (report.load.origin_links, report.load.next_hop_links),
        (16, 4)
    );
    let life = report.load.circuit_life_s.expect("a rate has a lifetime");
    assert!((life - 60.0 * 480.4 / 20_000.0).abs() < 0.01, "{life}");
    let churn = report.measured.unwrap().churn.unwrap();
    assert!(
        churn.links_closed > 0 && churn.links_opened > 0,
        "{churn:?}"
    );
}

#[test]
fn links_of_relays_close_on_both_sides_and_are_opened_again() {
    // Many circuits on few links, and so many of them that even relays' links close.
    let run = run(
        "--target weft:1 --load live-middle --circuits 500 --links 6 --rate 60000 --warm-up 0.5 \
         --seconds 8 --format json",
    );
    assert_eq!((run.status, &*run.complaints()), (Some(0), ""), "{run:?}");
    let report = run.report();
    is_live(&report, "live-middle");
    let churn = report.measured.unwrap().churn.unwrap();
    assert!(churn.circuits_made > 100, "{churn:?}");
}

#[test]
fn the_live_mix_goes_through_c_tor_and_its_scheduler_runs_as_the_consensus_has_it() {
    let run = run(
        "--target tor --load live-exit-side --circuits 60 --links 20 --rate 5000 --warm-up 0.5 \
         --seconds 4 --format json",
    );
    assert_eq!((run.status, &*run.complaints()), (Some(0), ""), "{run:?}");
    let report = run.report();
    is_live(&report, "live-exit-side");
    assert_eq!(
        (report.load.origin_links, report.load.next_hop_links),
        (15, 5)
    );
}

#[test]
fn the_live_mix_goes_through_a_bare_pipe_but_its_links_stay() {
    let run = run(
        "--target pipe --load live-guard --circuits 60 --links 20 --rate 20000 --warm-up 0.2 \
         --seconds 2 --format json",
    );
    assert_eq!((run.status, &*run.complaints()), (Some(0), ""), "{run:?}");
    let report = run.report();
    is_live(&report, "live-guard");
    let churn = report.measured.unwrap().churn.unwrap();
    assert_eq!((churn.links_opened, churn.links_closed), (0, 0));
}

#[test]
fn the_search_for_the_capacity_has_a_bracket_and_all_of_its_steps() {
    // Under a bound that no relay misses, all steps double the rate.
    for load in ["--direction both", "--load live-middle"] {
        let run = run(&format!(
            "--target weft:1 --circuits 20 --links 4 --rate 2000 {load} --capacity --p99-bound 60000 \
             --capacity-steps 3 --warm-up 0.2 --seconds 0.5 --format json"
        ));
        assert_eq!((run.status, &*run.complaints()), (Some(0), ""), "{run:?}");
        let report = run.report();
        let capacity = report.capacity.as_ref().expect("a search");
        let rates: Vec<f64> = capacity.steps.iter().map(|s| s.rate_cells_per_s).collect();
        assert_eq!(rates, [2000.0, 4000.0, 8000.0], "{report}");
        assert!(capacity.steps.iter().all(|step| step.passed), "{report}");
        assert_eq!(capacity.passed_cells_per_s, Some(8000.0));
        assert_eq!(
            (capacity.failed_cells_per_s, &capacity.limit),
            (None, &None)
        );
        // What was measured is that of the highest rate.
        assert_eq!(report.load.rate_cells_per_s, Some(8000.0));
        is_sound(&report);
        let goodput = report.measured.unwrap().cells.unwrap().goodput_bits_per_s;
        assert_eq!(capacity.goodput_bits_per_s, Some(goodput));
    }
}

#[test]
fn a_relay_that_dies_in_the_search_ends_it_and_what_was_tried_is_kept() {
    let relay = Relay::start();
    let child = start(&format!(
        "{} --circuits 4 --links 2 --direction both --rate 2000 --capacity --warm-up 0 --seconds 50 \
         --timeout 5 --format json",
        relay.words()
    ));
    relay.is_measured();
    signal(relay.pid(), Signal::SIGKILL);
    let run = finish(child);
    // Nobody starts that one again.
    assert_eq!(run.status, Some(1), "{run:?}");
    let report = run.report();
    assert!(!report.complete && report.why.is_some(), "{report}");
    let capacity = report.capacity.expect("a search");
    let step = capacity.steps.first().expect("the rate at which it died");
    let why = step.why.as_deref().unwrap_or_default();
    assert!(!step.passed && why.contains("broke"), "{why}");
    assert_eq!(capacity.passed_cells_per_s, None);
}

#[test]
fn a_program_that_dies_at_a_rate_is_started_anew_for_the_next() {
    let child = start(
        "--target weft:1 --circuits 4 --links 2 --direction both --rate 4000 --counters --capacity \
         --p99-bound 60000 --capacity-steps 2 --warm-up 0 --seconds 5 --format json",
    );
    let mut found = None;
    eventually("the target relays cells", || {
        found = found.or_else(|| target_of(child.id()));
        found.is_some_and(|(_, metrics)| cells_relayed(metrics).is_some_and(|cells| cells > 1000))
    });
    signal(found.unwrap().0, Signal::SIGKILL);
    let run = finish(child);
    assert_eq!(run.status, Some(0), "{run:?}");
    let capacity = run.report().capacity.expect("a search");
    let [died, lives] = capacity.steps.as_slice() else {
        panic!("{capacity:?}");
    };
    let why = died.why.as_deref().unwrap_or_default();
    assert!(!died.passed && why.contains("broke"), "{why}");
    assert!(lives.passed, "{capacity:?}");
    assert_eq!(
        (capacity.passed_cells_per_s, capacity.failed_cells_per_s),
        (Some(2000.0), Some(4000.0))
    );
}

/// The program that this process of the lab has started, and its MetricsPort.
fn target_of(lab: u32) -> Option<(u32, SocketAddr)> {
    let tasks = fs::read_dir(format!("/proc/{lab}/task")).ok()?;
    let children = tasks.flatten().filter_map(|task| {
        let children = fs::read_to_string(task.path().join("children")).ok()?;
        let children = children.split_whitespace().map(str::to_owned);
        Some(children.collect::<Vec<_>>())
    });
    children.flatten().find_map(|pid| {
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        let torrc = command.split('\0').find(|word| word.ends_with("/torrc"))?;
        let torrc = fs::read_to_string(torrc).ok()?;
        let mut lines = torrc.lines();
        let port = lines.find_map(|line| line.strip_prefix("MetricsPort "))?;
        Some((pid.parse().ok()?, port.parse().ok()?))
    })
}

#[test]
fn a_weft_that_is_started_counts_its_work() {
    let run = run(
        "--target weft:1 --circuits 6 --links 4 --rate 5000 --counters --warm-up 1.2 --seconds 3 \
         --format json",
    );
    assert_eq!((run.status, &*run.complaints()), (Some(0), ""), "{run:?}");
    let work = run.report().measured.unwrap().work.expect("counters");
    assert!(work.relayed > 0 && work.turns_per_cell > 0.0, "{work:?}");
    assert!(
        work.link_reads_per_cell > 0.0 && work.link_writes_per_cell > 0.0,
        "{work:?}"
    );
}

#[test]
fn a_bare_pipe_can_be_measured_like_a_relay() {
    let run = run(
        "--target pipe --circuits 6 --links 4 --direction both --warm-up 0.2 --seconds 1 \
         --format json",
    );
    assert_eq!((run.status, &*run.complaints()), (Some(0), ""), "{run:?}");
    is_sound(&run.report());
}

#[test]
fn circuits_and_links_are_counted_where_they_are_what_is_measured() {
    let relay = Relay::start();
    for (mode, more) in [("onionskins", "--links 2"), ("links", "")] {
        let run = run(&format!(
            "{} --mode {mode} {more} --warm-up 0.1 --seconds 0.5 --format json",
            relay.words()
        ));
        assert_eq!((run.status, &*run.complaints()), (Some(0), ""), "{run:?}");
        let measured = run.report().measured.expect("it was measured");
        let events = measured
            .onionskins
            .or(measured.links)
            .expect("they were counted");
        assert!(events.count > 0 && events.cpu_s_each.is_some(), "{mode}");
    }
    // The relay still is what it was.
    let run = run(&format!(
        "{} --circuits 2 --links 2 --warm-up 0.1 --seconds 0.5 --format json",
        relay.words()
    ));
    is_sound(&run.report());
}

#[test]
fn memory_of_idle_links_and_circuits_is_reported_for_each() {
    for (words, what, count) in [
        // The second half of them.
        ("--mode idle-links --links 31", "links", 16),
        (
            "--mode idle-circuits --links 4 --circuits 40",
            "circuits",
            20,
        ),
    ] {
        let run = run(&format!(
            "--target weft:1 {words} --warm-up 0.1 --seconds 0.1 --format json"
        ));
        assert_eq!((run.status, &*run.complaints()), (Some(0), ""), "{run:?}");
        let idle = run.report().measured.and_then(|measured| measured.idle);
        let idle = idle.expect("memory was measured");
        assert_eq!((idle.what.as_str(), idle.count), (what, count));
        assert!(idle.rss_before_bytes > 0 && idle.rss_after_bytes > 0);
    }
}

/// The run failed with these words both in its report and on standard error, and measured nothing.
fn fails_at_once(words: &str, expected: &[&str]) {
    let run = run(&format!("{words} --timeout 10 --format json"));
    assert_eq!(run.status, Some(1), "{run:?}");
    let report = run.report();
    let why = report.why.clone().unwrap_or_default();
    assert!(!report.complete && report.measured.is_none(), "{report}");
    for words in expected {
        assert!(
            why.contains(words) && run.err.contains(words),
            "{words}: {run:?}"
        );
    }
}

#[test]
fn a_wrong_key_is_reported() {
    let relay = Relay::start();
    let wrong = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE";
    fails_at_once(
        &format!("{} --ntor-key {wrong}", relay.words()),
        &["refused CREATE2", "ntor onion key"],
    );
    fails_at_once(
        &format!("{} --fingerprint {}", relay.words(), "01".repeat(20)),
        &["no link to", "not the one that it should be"],
    );
}

#[test]
fn a_relay_that_refuses_to_extend_is_reported() {
    let relay = Relay::start_with("ExtendAllowPrivateAddresses 0");
    fails_at_once(
        &relay.words(),
        &["refused to extend", "ExtendAllowPrivateAddresses"],
    );
}

#[test]
fn what_is_no_relay_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.write_all(b"220 no relay here\r\n");
        }
    });
    fails_at_once(&nobody(address), &["no link to", "it is no relay"]);
}

#[test]
fn a_closed_port_is_reported() {
    let port = Port::reserve().unwrap();
    fails_at_once(
        &nobody(port.address()),
        &["connecting to the target", "refused"],
    );
}

/// The words for a relay that is not there.
fn nobody(address: SocketAddr) -> String {
    let key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE";
    format!(
        "--address {address} --fingerprint {} --ntor-key {key}",
        "01".repeat(20)
    )
}

#[test]
fn what_was_measured_until_the_target_died_is_kept() {
    let relay = Relay::start();
    let child = start(&format!(
        "{} --circuits 4 --links 2 --warm-up 0 --seconds 50 --format json",
        relay.words()
    ));
    relay.is_measured();
    signal(relay.pid(), Signal::SIGKILL);
    let run = finish(child);
    assert_eq!(run.status, Some(1), "{run:?}");
    let report = run.report();
    let why = report.why.clone().unwrap_or_default();
    assert!(
        !report.complete && why.contains("broke while measuring"),
        "{why}"
    );
    let measured = report.measured.expect("it was measured until then");
    assert!(measured.cells.is_some_and(|cells| cells.download > 0));
    assert!(measured.usage.is_some_and(|usage| usage.user_s > 0.0));
}

#[test]
fn a_target_that_stalls_is_reported() {
    let relay = Relay::start();
    let child = start(&format!(
        "{} --circuits 4 --links 2 --warm-up 0 --seconds 50 --timeout 5 --format json",
        relay.words()
    ));
    relay.is_measured();
    signal(relay.pid(), Signal::SIGSTOP);
    let run = finish(child);
    let why = run.report().why.unwrap_or_default();
    assert_eq!(
        (run.status, why.contains("has stalled")),
        (Some(1), true),
        "{why}"
    );
    assert!(run.report().measured.is_some());
}

#[test]
fn a_descriptor_names_the_relay() {
    let relay = Relay::start();
    let keys = aim::Known::from_data_directory(&relay.data()).unwrap();
    let base64 = Base64Unpadded::encode_string;
    let file = relay.data().join("descriptors");
    let port = relay.port.number();
    let text = format!(
        "router other 127.0.0.1 1 0 0\nrouter attached 127.0.0.1 {port} 0 0\n\
         master-key-ed25519 {}\nfingerprint {}\nntor-onion-key {}\n",
        base64(keys.ed25519.unwrap().as_ref()),
        hex::encode(keys.rsa.unwrap()),
        base64(&keys.ntor.unwrap()),
    );
    fs::write(&file, text).unwrap();
    let run = run(&format!(
        "--descriptors {} --relay attached --circuits 2 --links 2 --warm-up 0 --seconds 0.2 --format json",
        file.display()
    ));
    assert_eq!((run.status, &*run.complaints()), (Some(0), ""), "{run:?}");
    assert!(run.report().complete);
}

#[test]
fn an_interrupted_run_keeps_what_it_has_and_no_file_is_overwritten() {
    let relay = Relay::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let words = format!(
        "{} --circuits 4 --links 2 --warm-up 0 --seconds 50 --format json --out {}",
        relay.words(),
        file.display()
    );
    let child = start(&words);
    relay.is_measured();
    signal(child.id(), Signal::SIGINT);
    let ended = finish(child);
    assert_eq!(
        (ended.status, ended.out.as_str()),
        (Some(1), ""),
        "{ended:?}"
    );
    let text = fs::read_to_string(&file).unwrap();
    let report: Report = serde_json::from_str(&text).unwrap();
    assert_eq!(report.why.as_deref(), Some("interrupted"));
    assert!(
        report
            .measured
            .is_some_and(|measured| measured.cells.is_some())
    );
    // Before anything is measured.
    let again = run(&words);
    assert_eq!(again.status, Some(1));
    assert!(again.err.contains("nothing is overwritten"), "{again:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn arti_that_is_not_installed_is_reported() {
    let elsewhere = ["/usr/sbin", "/usr/local/sbin", "/sbin"]
        .iter()
        .any(|folder| PathBuf::from(folder).join("arti-relay").is_file());
    let output = weft()
        .args("lab relay --target arti --warm-up 0 --seconds 0.1".split(' '))
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    if elsewhere {
        not_run!("arti-relay is installed on this machine");
        return;
    }
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(
        printed.contains("`arti-relay` is not installed"),
        "{printed}"
    );
}

#[test]
fn arti_is_started_alone_on_loopback_and_its_end_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("arti-relay");
    let script = "#!/bin/sh\nhead -n 2 \"$3\"\ngrep uploads \"$3\"\necho \"for $4\"\nexit 3\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    let run = run(&format!("--target arti --program {}", program.display()));
    assert_eq!(run.status, Some(1), "{run:?}");
    for expected in [
        "the target has ended (exit status: 3)",
        "listen = [\"127.0.0.1:",
        "uploads = [[\"127.0.0.1:1\"]]",
        "for run",
    ] {
        assert!(run.err.contains(expected), "{expected}: {run:?}");
    }
}

#[test]
fn contradictory_arguments_are_refused_before_anything_starts() {
    for (words, expected) in [
        ("", "name what to measure"),
        ("--target arti:2", "is no program to be measured"),
        (
            "--target arti --program /nowhere",
            "there is no program at /nowhere",
        ),
        ("--target wefd", "is no program to be measured"),
        ("--target weft:many", "no number of threads"),
        (
            "--target weft --program /nowhere",
            "there is no program at /nowhere",
        ),
        ("--target weft --links 1", "at least two links"),
        (
            "--target weft --circuits 0",
            "it must be a whole number from 1 to 100000",
        ),
        (
            "--target weft --circuits 100000000",
            "it must be a whole number from 1 to 100000",
        ),
        (
            "--target weft --seconds 0",
            "it must be a number of seconds from 0.001 to",
        ),
        ("--target weft --rate 5GB", "with B, kB or MB at the end"),
        (
            "--target weft --rate 1e300",
            "it must be a number of cells per second from 0.001 to 1000000000",
        ),
        (
            "--target weft:99999",
            "it must be a whole number from 0 to 256",
        ),
        ("--target weft --pin 0", "a slash"),
        ("--target pipe --mode links", "cells only"),
        (
            "--target weft --load live-guard --direction up",
            "goes both ways",
        ),
        (
            "--target weft --load live-middle --mode onionskins",
            "is a load of cells",
        ),
        (
            "--target weft --load live-middle --links 1",
            "at least two links",
        ),
        (
            "--target weft --capacity --mode idle-links",
            "looks for a rate of cells",
        ),
        (
            "--target weft --capacity --p99-bound 0",
            "it must be a number of milliseconds from 0.1 to 60000",
        ),
        (
            "--target weft --capacity --capacity-steps 1",
            "it must be a whole number from 2 to 40",
        ),
        (
            "--target weft --capacity --resolution 0",
            "it must be a number of percent from 0.5 to 100",
        ),
        ("--target tor --counters", "use --target weft"),
        (
            "--address 127.0.0.1:1 --fingerprint 01",
            "is no fingerprint",
        ),
        ("--address 127.0.0.1:1", "RSA identity"),
    ] {
        let run = run(words);
        assert_eq!(
            (run.status, run.out.as_str()),
            (Some(1), ""),
            "{words}: {run:?}"
        );
        assert!(run.err.contains(expected), "{words}: {run:?}");
    }
    // What belongs to an option that is not there.
    for words in ["--p99-bound 10", "--capacity-steps 5", "--resolution 2"] {
        let run = run(&format!("--target weft {words}"));
        assert!(
            run.status != Some(0) && run.err.contains("--capacity"),
            "{run:?}"
        );
    }
    let public = nobody("192.0.2.1:9001".parse().unwrap());
    let run = run(&public);
    assert!(run.err.contains("is a public address"), "{run:?}");
}
