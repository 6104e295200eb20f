//! Fits against SciPy's and against known distributions, and the state that a client keeps of them.

use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use serde::Deserialize;

use super::*;

/// Output of `genextreme.py`.
#[derive(Deserialize)]
struct Known {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    samples: Vec<f64>,
    shape: f64,
    location: f64,
    scale: f64,
    surprise: f64,
    quantiles: std::collections::BTreeMap<String, f64>,
    cdf: Vec<(f64, f64)>,
}

fn cases() -> Vec<Case> {
    let known: Known = serde_json::from_str(include_str!("genextreme.json")).unwrap();
    assert_eq!(known.cases.len(), 4);
    known.cases
}

fn near(value: f64, expected: f64, by: f64) {
    assert!((value - expected).abs() <= by, "{value} of {expected}");
}

fn drawn(gev: Gev, count: usize, seed: u64) -> Vec<f64> {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut one = || gev.quantile(rng.random_range(0.0..1.0));
    (0..count).map(|_| one()).collect()
}

fn millis(millis: f64) -> Duration {
    Duration::from_secs_f64(millis.max(0.001) / 1e3)
}

#[test]
fn fits_are_those_of_scipy() {
    for case in cases() {
        let fit = Gev::fit(&case.samples).unwrap();
        near(fit.shape, case.shape, 0.002);
        near(fit.location, case.location, 0.002 * case.scale);
        near(fit.scale, case.scale, 0.002 * case.scale);
    }
}

#[test]
fn likelihood_quantiles_and_shares_are_those_of_scipy() {
    for case in cases() {
        let gev = Gev {
            shape: case.shape,
            location: case.location,
            scale: case.scale,
        };
        near(
            gev.surprise(&case.samples),
            case.surprise,
            1e-6 * case.surprise,
        );
        for (share, expected) in &case.quantiles {
            near(
                gev.quantile(share.parse().unwrap()),
                *expected,
                1e-6 * expected.abs(),
            );
        }
        for (time, expected) in &case.cdf {
            near(gev.cdf(*time), *expected, 1e-9);
        }
    }
}

#[test]
fn a_fit_finds_the_distribution_that_times_come_from() {
    for (shape, seed) in [(-0.5, 1), (-0.2, 2), (0.0, 3), (0.3, 4)] {
        let known = Gev {
            shape,
            location: 250.0,
            scale: 80.0,
        };
        let fit = Gev::fit(&drawn(known, 20_000, seed)).unwrap();
        near(fit.shape, shape, 0.03);
        near(fit.location, 250.0, 3.0);
        near(fit.scale, 80.0, 3.0);
    }
}

#[test]
fn too_few_or_equal_or_broken_times_have_no_distribution() {
    for samples in [
        vec![],
        vec![5.0],
        vec![1.0, 2.0, 3.0, 4.0],
        vec![7.0; 500],
        vec![1.0, 2.0, 3.0, 4.0, f64::NAN],
        vec![1.0, 2.0, 3.0, 4.0, f64::INFINITY],
        vec![f64::MIN, 2.0, 3.0, 4.0, f64::MAX],
    ] {
        assert_eq!(Gev::fit(&samples), None, "{samples:?}");
    }
    assert!(Gev::fit(&[1.0, 2.0, 3.0, 4.0, 9.0]).is_some());
}

proptest! {
    #[test]
    fn any_times_have_a_distribution_or_none(samples in prop::collection::vec(0.001_f64..1e7, 0..300)) {
        if let Some(fit) = Gev::fit(&samples) {
            prop_assert!(fit.shape.is_finite() && fit.location.is_finite());
            prop_assert!(fit.scale.is_finite() && fit.scale > 0.0);
            prop_assert!(fit.surprise(&samples).is_finite());
            let quantiles = [0.0, 0.1, 0.5, 0.8, 0.99, 1.0].map(|share| fit.quantile(share));
            prop_assert!(quantiles.is_sorted(), "{:?}", quantiles);
            prop_assert!(quantiles.iter().all(|time| !time.is_nan()));
        }
    }

    #[test]
    fn a_share_and_its_quantile_are_inverse(shape in -0.9_f64..0.9, share in 0.001_f64..0.999) {
        let gev = Gev { shape, location: 200.0, scale: 50.0 };
        prop_assert!((gev.cdf(gev.quantile(share)) - share).abs() < 1e-9);
    }

    #[test]
    fn any_state_is_read_or_refused(lines in prop::collection::vec("[0-9, x.-]{0,40}", 0..5)) {
        let mut times = RoundTrips::new(0.8);
        times.load(lines.iter().map(|line| ("CircuitRoundTrips", line.as_str())));
        prop_assert!(times.len() <= REMEMBERED);
    }
}

/// By whatever way they are learnt: from circuits, or from the state file.
#[test]
fn histories_of_none_one_five_or_equal_times_use_every_circuit() {
    for history in [
        vec![],
        vec![250_000],
        vec![1, 90_000, 250_000, 4, 3_600_000_000],
    ] {
        let mut noted = RoundTrips::new(0.8);
        for micros in &history {
            assert!(noted.note(Duration::from_micros(*micros)), "{history:?}");
        }
        let words: Vec<String> = history.iter().map(u64::to_string).collect();
        let line = words.join(",");
        let mut loaded = RoundTrips::new(0.8);
        let lines = (!history.is_empty()).then_some(("CircuitRoundTrips", &*line));
        assert!(loaded.load(lines), "{history:?}");
        for mut times in [noted, loaded] {
            assert_eq!(times.len(), history.len());
            assert_eq!((times.limit(), times.gev()), (None, None), "{history:?}");
            assert!(times.note(Duration::MAX), "{history:?}");
            assert!(times.note(Duration::ZERO), "{history:?}");
        }
    }
    // A thousand equal times, zero among them: the limit is that time, and circuits with that time
    // are used.
    for micros in [0, 1, 200_000, u64::from(u32::MAX)] {
        let time = Duration::from_micros(micros);
        let mut times = RoundTrips::new(0.8);
        for _ in 0..2 * REMEMBERED {
            assert!(times.note(time), "{micros}");
        }
        assert_eq!((times.len(), times.gev()), (REMEMBERED, None));
        let lines = times.state_lines().unwrap();
        let lines = lines.iter().map(|(key, value)| (*key, value.as_str()));
        let mut again = RoundTrips::new(0.8);
        assert!(again.load(lines) && again.note(time), "{micros}");
        assert_eq!(again.limit(), times.limit());
    }
}

#[test]
fn there_is_no_limit_before_a_hundred_circuits() {
    let mut times = RoundTrips::new(0.8);
    for number in 0..99 {
        assert!(times.note(millis(100.0 + f64::from(number))));
        assert_eq!((times.limit(), times.gev()), (None, None));
    }
    assert!(times.note(millis(5000.0)), "by those before it");
    assert!(times.limit().is_some() && times.gev().is_some());
}

#[test]
fn about_a_fifth_of_circuits_are_not_used() {
    let known = Gev {
        shape: -0.2,
        location: 250.0,
        scale: 80.0,
    };
    let mut times = RoundTrips::new(0.8);
    let drawn = drawn(known, 5_000, 9);
    let accepted = drawn.iter().filter(|time| times.note(millis(**time)));
    let accepted = accepted.count();
    assert!((3_900..4_150).contains(&accepted), "{accepted} of 5000");
    assert_eq!(times.len(), REMEMBERED);
    times.set_quantile(0.5);
    let limit = times.limit().unwrap().as_secs_f64() * 1e3;
    near(limit, known.quantile(0.5), 12.0);
}

#[test]
fn times_that_are_all_alike_are_all_used() {
    let mut times = RoundTrips::new(0.8);
    for _ in 0..300 {
        assert!(times.note(millis(200.0)));
    }
    assert_eq!((times.limit(), times.gev()), (Some(millis(200.0)), None));
    assert!(!times.note(millis(201.0)));
}

#[test]
fn a_network_that_has_become_slower_is_learnt_anew() {
    let known = Gev {
        shape: -0.1,
        location: 100.0,
        scale: 20.0,
    };
    let mut times = RoundTrips::new(0.8);
    for time in drawn(known, 400, 5) {
        times.note(millis(time));
    }
    let before = times.limit().unwrap();
    let mut refused = 0;
    for time in drawn(known, 300, 6) {
        refused += u32::from(!times.note(millis(time * 10.0)));
    }
    assert!((18..140).contains(&refused), "{refused} of 300");
    assert!(times.limit().unwrap() > before * 5);
}

#[test]
fn the_state_file_keeps_times_in_order() {
    let mut times = RoundTrips::new(0.8);
    assert_eq!(times.state_lines(), None);
    for number in 1..=1_250_u32 {
        let mixed = u64::from(number * 577 % 1_250) + 1;
        times.note(Duration::from_micros(mixed * 1_000));
    }
    let lines = times.state_lines().unwrap();
    assert_eq!((lines.len(), times.state_lines()), (10, None));
    assert!(lines[0].1.starts_with("1078000,405000,"), "{}", lines[0].1);
    let mut again = RoundTrips::new(0.8);
    let borrowed = lines.iter().map(|(key, value)| (*key, value.as_str()));
    assert!(again.load(borrowed.chain([("Guard", "in=default")])));
    assert_eq!(
        (again.times.clone(), again.state_lines()),
        (times.times, None)
    );
    assert!(again.limit().is_some());
}

#[test]
fn damaged_state_is_not_learnt_from() {
    let mut times = RoundTrips::new(0.8);
    times.note(millis(100.0));
    let many = vec!["1"; REMEMBERED + 1].join(",");
    for damaged in ["1,2,x", "", "0", "-5", "4294967296", "1.5", &many] {
        assert!(!times.load([("CircuitRoundTrips", damaged)]), "{damaged}");
        assert_eq!(times.len(), 1);
    }
    assert!(times.load([("circuitroundtrips", " 7, 8")]));
    assert_eq!(times.len(), 2);
    assert!(times.load([]) && times.is_empty());
}
