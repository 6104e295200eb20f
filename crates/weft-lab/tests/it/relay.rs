//! `weft lab relay` against the `weft` that was just built, against C tor, and against what is no
//! relay at all.

mod capacity;
mod live;
mod running;

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::thread;

use base64ct::{Base64Unpadded, Encoding as _};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use weft_lab::relay::aim;
use weft_lab::relay::report::Report;
use weft_testing::not_run;
use weft_testnet::ports::Port;

use self::running::{Relay, finish, is_sound, run, signal, start, weft};

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
        // A busy machine opens no link in half a second.
        let counted = ["0.5", "2", "8", "32"].into_iter().any(|seconds| {
            let run = run(&format!(
                "{} --mode {mode} {more} --warm-up 0.1 --seconds {seconds} --format json",
                relay.words()
            ));
            assert_eq!((run.status, &*run.complaints()), (Some(0), ""), "{run:?}");
            let measured = run.report().measured.expect("it was measured");
            let events = measured
                .onionskins
                .or(measured.links)
                .expect("they were counted");
            events.count > 0 && events.cpu_s_each.is_some()
        });
        assert!(counted, "{mode}");
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
    // Arguments without the option that they require.
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
