//! The search for the highest rate that a relay bears.

use std::fs;
use std::net::SocketAddr;

use nix::sys::signal::Signal;

use crate::relay::running::{
    Relay, cells_relayed, eventually, finish, is_sound, run, signal, start,
};

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
        // The measurements are those of the highest rate.
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
