use std::time::Duration;

use weft_virtual::Results as Measured;
use weft_virtual::results::{CircuitResults, RelayResults};

use super::aggregate::{OfArm, Samples, worse_percent};
use super::arms::{self, BASE};
use super::measure::Sample;
use super::plan::{Plan, Size};
use crate::comparison::censored::Time;
use crate::comparison::{Arm, MEAN};
use crate::run::testbed::Testbed;

fn over(ms: f64) -> Time {
    Time {
        took: ms,
        is_over: true,
    }
}

fn open(ms: f64) -> Time {
    Time {
        took: ms,
        is_over: false,
    }
}

fn sample(relayed: f64, ttfb: &[f64]) -> Sample {
    Sample {
        relayed: vec![relayed; 3],
        ttfb: ttfb.iter().copied().map(over).collect(),
        ..Sample::default()
    }
}

#[test]
fn changes_are_paired_by_repetition() {
    // Networks differ a hundredfold, the change does not.
    let base = Samples::from([(1, sample(100.0, &[10.0])), (2, sample(10_000.0, &[30.0]))]);
    let own = Samples::from([(1, sample(110.0, &[12.0])), (2, sample(11_000.0, &[36.0]))]);
    let arm = OfArm::of(&own, &base);
    let change = &arm.change_percent["relayed_bytes"];
    assert!((change.means[MEAN].expect("a mean") - 10.0).abs() < 1e-9);
    assert!(change.ci95[MEAN].expect("an interval") < 1e-9);
    let change = &arm.change_percent["ttfb_ms"];
    assert!((change.means["p50"].expect("a median") - 20.0).abs() < 1e-9);
    assert_eq!(arm.by_repetition[&2]["ttfb_ms"]["p50"], Some(36.0));
    // No stream of these: no number, and no zero.
    assert_eq!(arm.quantities["web_ms"].means["p50"], None);
}

#[test]
fn one_repetition_has_no_interval() {
    let base = Samples::from([(1, sample(100.0, &[10.0]))]);
    let arm = OfArm::of(&base, &base);
    assert_eq!(arm.quantities["relayed_bytes"].ci95[MEAN], None);
    assert_eq!(arm.change_percent["relayed_bytes"].means[MEAN], Some(0.0));
}

#[test]
fn worse_percentiles_are_counted() {
    let base: Vec<Time> = (1..=100).map(|ms| over(f64::from(ms))).collect();
    let mut own = base.clone();
    assert_eq!(worse_percent(&own, &base), Some(0.0));
    for time in own.iter_mut().skip(88) {
        time.took += 100.0;
    }
    assert_eq!(worse_percent(&own, &base), Some(12.0));
    assert_eq!(worse_percent(&[], &[]), None);
    // Streams that were never over are worse than those that were.
    assert_eq!(worse_percent(&[open(500.0)], &base), Some(100.0));
}

#[test]
fn intervals_of_the_warm_up_and_a_last_short_one_are_not_counted() {
    let relay = |written: [u64; 4]| RelayResults {
        written: written.to_vec(),
        // One of the two has none left in the third interval; the first and last are not counted.
        weights: vec![9.0, 0.0, if written[0] < 10 { 0.5 } else { 0.0 }, 9.0],
        ..RelayResults::default()
    };
    let measured = Measured {
        simulated: Duration::from_secs(35),
        interval: Duration::from_secs(10),
        relays: vec![relay([1, 2, 3, 4]), relay([10, 20, 30, 40])],
        ..Measured::default()
    };
    let sample = Sample::of(&measured, Duration::from_secs(10));
    assert_eq!(sample.relayed, [22.0, 33.0]);
    // 3 of 55 bytes.
    let scarce = sample.scarce.expect("bytes");
    assert!((scarce - 300.0 / 55.0).abs() < 1e-9, "{scarce}");
}

#[test]
fn streams_are_compromised_whose_circuits_begin_and_end_at_the_adversarys_relays() {
    let relay = |name: &str, adversary| RelayResults {
        name: name.to_owned(),
        adversary,
        ..RelayResults::default()
    };
    let circuit = |path: [&str; 3], streams: usize| CircuitResults {
        client: "client".to_owned(),
        path: path.map(str::to_owned).into(),
        began: Duration::ZERO,
        built: Some(Duration::from_secs(1)),
        round_trips: vec![Duration::from_millis(100); streams],
    };
    let mut measured = Measured {
        relays: vec![
            relay("a", true),
            relay("b", false),
            relay("c", true),
            relay("d", false),
        ],
        circuits: vec![
            circuit(["a", "b", "c"], 3),
            circuit(["a", "c", "b"], 5),
            circuit(["b", "a", "c"], 2),
            circuit(["c", "d", "a"], 0),
        ],
        ..Measured::default()
    };
    let share = |measured: &Measured| Sample::of(measured, Duration::ZERO).compromised;
    assert_eq!(share(&measured), Some(30.0));
    for relay in &mut measured.relays {
        relay.adversary = false;
    }
    assert_eq!(share(&measured), None);
    let arms = arms::adversaries(&[0.2, 0.05]).expect("arms");
    let names: Vec<&str> = arms.iter().map(|arm| &*arm.name).collect();
    assert_eq!(names, ["watching-20", "lying-20", "watching-5", "lying-5"]);
    assert!(arms::adversaries(&[1.1]).is_err());
}

#[test]
fn a_small_network_has_a_choice_of_circuits() {
    let size = Size::of(0.001, 1.0);
    assert!(size.relays >= 12 && size.web >= 10 && size.bulk >= 2 && size.servers >= 5);
    let loaded = Size::of(0.2, 3.0);
    assert_eq!((loaded.relays, loaded.web, loaded.bulk), (100, 810, 90));
    let paper = Size::of(1.0, 1.0);
    assert_eq!(
        (paper.relays, paper.web, paper.bulk, paper.servers),
        (500, 1_350, 150, 500)
    );
}

#[test]
fn what_is_written_is_a_scenario() {
    let asked = ["short:max_circuit_dirtiness=1 min,predicted_circuits=false".to_owned()];
    let plan = Plan {
        testbed: Testbed::Virtual,
        capacity: 0.5,
        size: Size::of(0.02, 1.0),
        consensus: None,
        graph: None,
        warm_up: Duration::from_secs(10),
        counted: Duration::from_secs(20),
        repetitions: 2,
        congestion_control: false,
        arms: arms::chosen(&asked).expect("arms"),
        handshake: Duration::from_micros(1_500),
        measure: (3, 1_000_000),
        pools: None,
    };
    let text = plan.text().expect("a text");
    let scenario = weft_virtual::Scenario::parse("selection.toml", &text).expect("a scenario");
    assert_eq!(scenario.duration, Duration::from_secs(30));
    let names: Vec<&str> = scenario.arms.iter().map(|arm| &*arm.name).collect();
    assert_eq!(names, [BASE, "short"]);
    let users: u32 = scenario.clients.iter().map(|clients| clients.count).sum();
    assert_eq!(users, plan.size.web + plan.size.bulk + 3);
    assert!(scenario.clients.iter().any(|clients| clients.measure));
    assert_eq!(scenario.costs.onionskin, 1_500_000);
}

#[test]
fn arms_that_make_no_sense_are_refused() {
    for (wrong, why) in [
        ("arba", "it is one of default, abra, rtt, abra-rtt"),
        ("x:acceptance", "is not KEY=VALUE"),
        ("default:acceptance=rtt", "has no keys"),
        ("A B:x=1", "a name has"),
    ] {
        let error = arms::chosen(&[wrong.to_owned()]).expect_err(wrong);
        assert!(error.to_string().contains(why), "{wrong}: {error}");
    }
    let twice = ["abra".to_owned(), "abra".to_owned()];
    assert!(arms::chosen(&twice).is_err());
    let arms = arms::chosen(&["abra_rtt".to_owned()]).expect("an arm");
    assert_eq!(
        arms.iter().map(Arm::json_key).collect::<Vec<_>>(),
        ["default", "abra_rtt"]
    );
}
