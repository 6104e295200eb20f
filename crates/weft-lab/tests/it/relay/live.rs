//! The loads of relays of the public network.

use weft_lab::relay::report::Report;

use crate::relay::running::{is_sound, run};

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
