//! Estimates against the formula, against distributions that are known, and as C tor keeps them.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use rand::{RngExt, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

use super::pareto::Pareto;
use super::*;

fn rng(seed: u64) -> ChaCha12Rng {
    ChaCha12Rng::seed_from_u64(seed)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn fresh() -> BuildTimes {
    BuildTimes::new(BuildTimesOptions::default(), CbtParams::default())
}

/// A time of a Pareto distribution.
fn draw(xm: f64, alpha: f64, rng: &mut ChaCha12Rng) -> f64 {
    let share: f64 = rng.random_range(0.0..1.0);
    xm / (1.0 - share).powf(1.0 / alpha)
}

fn within(value: f64, expected: f64, share: f64) {
    assert!(
        (value / expected - 1.0).abs() < share,
        "{value} of {expected}"
    );
}

#[test]
fn the_estimate_is_the_specifications_formula() {
    // Bins of 10 ms: three times 105, twice 205, once 305 and 1005.
    let times = [100, 105, 109, 200, 209, 300, 1000].map(Took::Millis);
    let times: VecDeque<Took> = times.into_iter().chain([Took::Abandoned]).collect();
    // Of one mode; of two, (3 * 105 + 2 * 205) / 5.
    assert_eq!(Pareto::estimate(&times, 1).unwrap().xm, 105.0);
    let pareto = Pareto::estimate(&times, 2).unwrap();
    assert_eq!(pareto.xm, 145.0);
    // Times below Xm count as Xm; those that were abandoned do not count.
    let sum: f64 = [200.0, 209.0, 300.0, 1000.0]
        .iter()
        .map(|x: &f64| (x / 145.0).ln())
        .sum();
    within(pareto.alpha, 7.0 / sum, 1e-9);
    within(pareto.quantile(0.8), 145.0 / 0.2_f64.powf(sum / 7.0), 1e-9);
}

/// A state file that C tor 0.4.9.11 wrote (`c_tor/make.py`), and C tor's estimates from it, by its
/// log.
struct CTor {
    state: &'static str,
    timeout: f64,
    close: f64,
    xm: f64,
    alpha: f64,
}

const C_TOR: [CTor; 5] = [
    CTor {
        state: include_str!("c_tor/fast.state"),
        timeout: 366.767_292,
        close: 60_000.0,
        xm: 241.0,
        alpha: 3.832_628,
    },
    CTor {
        state: include_str!("c_tor/slow.state"),
        timeout: 4_485.586_207,
        close: 60_000.0,
        xm: 1_446.0,
        alpha: 1.421_679,
    },
    CTor {
        state: include_str!("c_tor/few.state"),
        timeout: 1_187.994_086,
        close: 60_000.0,
        xm: 565.0,
        alpha: 2.165_564,
    },
    CTor {
        state: include_str!("c_tor/alike.state"),
        timeout: 425.0,
        close: 60_000.0,
        xm: 425.0,
        alpha: f64::INFINITY,
    },
    CTor {
        state: include_str!("c_tor/heavy.state"),
        timeout: 2_522.851_609,
        close: 127_999.452_630,
        xm: 306.0,
        alpha: 0.762_926,
    },
];

#[test]
fn estimates_from_a_state_file_of_c_tor_are_c_tors() {
    for (number, known) in C_TOR.iter().enumerate() {
        let lines: Vec<_> = known
            .state
            .lines()
            .filter_map(|line| line.split_once(' '))
            .collect();
        let mut times = fresh();
        assert!(times.load(lines.iter().copied(), &mut rng(8)));
        let pareto = Pareto::estimate(&times.times, times.params.num_modes).unwrap();
        assert!(pareto.xm == known.xm, "case {number}: {pareto:?}");
        let is_near = known.alpha.is_infinite() == pareto.alpha.is_infinite();
        assert!(
            is_near && (known.alpha.is_infinite() || (pareto.alpha - known.alpha).abs() < 1e-6)
        );
        let off = (times.timeout - known.timeout).abs();
        assert!(
            off < 1e-5,
            "case {number}: {} of {}",
            times.timeout,
            known.timeout
        );
        let off = (times.close_after - known.close).abs();
        assert!(
            off < 1e-5,
            "case {number}: {} of {}",
            times.close_after,
            known.close
        );
        // It is written as by C tor.
        times.changed = true;
        let mut written = times.state_lines().unwrap();
        written.sort();
        let of_times = |(key, _): &&(&str, &str)| BuildTimes::STATE_KEYS.contains(key);
        let lines = lines.iter().filter(of_times);
        let mut lines: Vec<_> = lines
            .map(|(key, value)| (*key, (*value).to_owned()))
            .collect();
        lines.sort();
        assert_eq!(written, lines, "case {number}");
    }
}

#[test]
fn estimates_find_the_distribution_that_times_come_from() {
    for (xm, alpha, seed) in [(200.0, 1.5, 1), (500.0, 3.0, 2), (1200.0, 0.9, 3)] {
        let mut rng = rng(seed);
        let times: VecDeque<Took> = (0..1000)
            .map(|_| Took::Millis(draw(xm, alpha, &mut rng) as u32))
            .collect();
        let pareto = Pareto::estimate(&times, 10).unwrap();
        // Xm is an average of the fullest bins, so somewhat behind the true one.
        assert!(
            pareto.xm >= xm && pareto.xm < xm * 1.25,
            "{} of {xm}",
            pareto.xm
        );
        let exact = xm / 0.2_f64.powf(1.0 / alpha);
        within(pareto.quantile(0.8), exact, 0.15);
    }
}

#[test]
fn about_a_fifth_of_circuits_take_longer_than_the_timeout() {
    // A hump, as in real build times: three hops, each of two parts.
    let mut rng = rng(4);
    let mut time = || {
        let hops = (0..3).map(|_| 40.0 + draw(30.0, 2.0, &mut rng));
        Duration::from_secs_f64(hops.sum::<f64>() / 1000.0)
    };
    let mut times = fresh();
    for _ in 0..1000 {
        times.note_built(time(), true);
    }
    assert!(times.is_computed());
    let late = (0..5000).filter(|_| time() > times.timeout()).count();
    assert!((600..1400).contains(&late), "{late} of 5000");
    assert!(times.close_after() >= Duration::from_secs(60));
}

#[test]
fn there_is_no_estimate_before_a_hundred_circuits() {
    let mut times = fresh();
    assert_eq!(times.timeout(), Duration::from_secs(60));
    for number in 0..99 {
        assert!(times.wants_circuits());
        times.note_built(millis(500 + number), true);
    }
    assert!(!times.is_computed());
    assert_eq!(times.timeout(), Duration::from_secs(60));
    times.note_built(millis(500), true);
    assert!(times.is_computed() && !times.wants_circuits());
    assert!(times.timeout() < millis(600));
    // A path of four hops has longer.
}

#[test]
fn times_that_are_all_alike_are_their_own_timeout() {
    let mut times = fresh();
    for _ in 0..200 {
        times.note_built(millis(203), true);
    }
    let timeout = times.timeout().as_millis();
    assert!((203..=205).contains(&timeout), "{timeout}");
    // However fast: not below 10 ms.
    let mut times = fresh();
    for _ in 0..200 {
        times.note_built(Duration::ZERO, true);
    }
    assert_eq!(times.timeout(), millis(10));
}

#[test]
fn a_timeout_is_no_longer_than_any_circuit_took() {
    let mut times = fresh();
    let mut rng = rng(5);
    for _ in 0..100 {
        times.note_built(millis(rng.random_range(1..900)), true);
    }
    assert!(times.timeout() < millis(900));
}

#[test]
fn a_clock_that_jumps_teaches_nothing() {
    let mut times = fresh();
    times.note_built(Duration::from_secs(122), true);
    assert_eq!(times.state_lines(), None);
    times.note_built(Duration::from_secs(120), true);
    assert!(times.state_lines().is_some());
}

#[test]
fn where_almost_all_time_out_learning_begins_anew() {
    let mut times = fresh();
    for _ in 0..150 {
        times.note_built(millis(200), true);
    }
    let learnt = times.timeout();
    for _ in 0..17 {
        assert!(!times.note_timeout(true));
    }
    // A circuit that does not pass its first hop is a measure of the guard, not of the network.
    assert!(!times.note_timeout(false));
    assert_eq!(times.timeout(), learnt);
    assert!(times.note_timeout(true));
    assert_eq!(times.timeout(), Duration::from_secs(60));
    assert!(!times.is_computed() && times.wants_circuits());
    // Again, and again: each time twice as long.
    for seconds in [120, 240] {
        while !times.note_timeout(true) {}
        assert_eq!(times.timeout(), Duration::from_secs(seconds));
        assert_eq!(times.close_after(), Duration::from_secs(seconds));
    }
    // Circuits that are built in time push timeouts out of the window of twenty.
    for _ in 0..40 {
        assert!(!times.note_timeout(true));
        times.note_built(millis(900), true);
    }
}

#[test]
fn while_the_network_is_down_nothing_is_learnt() {
    let start = Instant::now();
    let mut times = fresh();
    times.note_alive(start);
    times.note_abandoned(start + millis(1), start + millis(1));
    assert_eq!(times.state_lines(), None);
    times.note_built(millis(500), true);
    assert_eq!(times.state_lines(), None);
    times.note_alive(start + millis(2));
    times.note_built(millis(500), true);
    times.note_abandoned(start, start);
    assert_eq!(
        times.state_lines().unwrap(),
        [
            ("TotalBuildTimes", "2".to_owned()),
            ("CircuitBuildAbandonedCount", "1".to_owned()),
            ("CircuitBuildTimeBin", "505 1".to_owned()),
        ]
    );
}

#[test]
fn torrc_and_consensus_may_disable_learning() {
    let set = BuildTimesOptions {
        learn: false,
        timeout: Some(Duration::from_secs(7)),
        ..BuildTimesOptions::default()
    };
    let disabled = CbtParams {
        disabled: true,
        ..CbtParams::default()
    };
    for (options, params, expected) in [
        (set, CbtParams::default(), 7),
        (BuildTimesOptions::default(), disabled, 60),
    ] {
        let mut times = BuildTimes::new(options, params);
        for _ in 0..200 {
            times.note_built(millis(100), true);
            assert!(!times.note_timeout(true));
        }
        assert_eq!(times.timeout(), Duration::from_secs(expected));
        assert!(!times.wants_circuits());
        assert_eq!(times.state_lines(), None);
    }
    // Times are dropped and learnt again.
    let mut times = fresh();
    for _ in 0..200 {
        times.note_built(millis(100), true);
    }
    times.update(set, CbtParams::default());
    assert_eq!(times.timeout(), Duration::from_secs(7));
    times.update(BuildTimesOptions::default(), CbtParams::default());
    assert!(times.timeout() < millis(200));
}

#[test]
fn torrc_may_set_the_share_of_circuits_that_are_built_in_time_or_use_all() {
    let of = |acceptance, quantile| {
        let options = BuildTimesOptions {
            acceptance,
            quantile,
            ..BuildTimesOptions::default()
        };
        let mut times = BuildTimes::new(options, CbtParams::default());
        let mut rng = rng(7);
        for _ in 0..1000 {
            let time = Duration::from_secs_f64(draw(0.5, 2.0, &mut rng).min(30.0));
            times.note_built(time, true);
        }
        times
    };
    let usual = of(Acceptance::Cbt, None);
    assert_eq!(usual.timeout(), of(Acceptance::Both, Some(0.8)).timeout());
    assert!(usual.measures() && usual.close_after() >= Duration::from_secs(60));
    assert!(of(Acceptance::Cbt, Some(0.5)).timeout() < usual.timeout());
    assert!(of(Acceptance::Cbt, Some(0.95)).timeout() > usual.timeout());
    for acceptance in [Acceptance::None, Acceptance::Rtt] {
        let all = of(acceptance, None);
        assert_eq!(all.timeout(), usual.close_after());
        assert!(all.is_computed() && !all.measures());
    }
}

#[test]
fn a_thousand_circuits_are_remembered() {
    let mut times = fresh();
    for _ in 0..1000 {
        times.note_built(millis(5000), true);
    }
    for _ in 0..999 {
        times.note_built(millis(300), true);
    }
    let lines = times.state_lines().unwrap();
    let value = |at: usize| lines[at].1.as_str();
    assert_eq!(
        (value(0), value(1), value(2)),
        ("1000", "305 999", "5005 1")
    );
}

#[test]
fn lines_that_do_not_fit_together_teach_nothing() {
    for lines in [
        vec![("TotalBuildTimes", "3"), ("CircuitBuildTimeBin", "505 2")],
        vec![("TotalBuildTimes", "2"), ("CircuitBuildTimeBin", "505")],
        vec![
            ("TotalBuildTimes", "many"),
            ("CircuitBuildTimeBin", "505 2"),
        ],
        vec![("CircuitBuildAbandonedCount", "5")],
        vec![
            ("TotalBuildTimes", "18446744073709551615"),
            ("CircuitBuildTimeBin", "505 18446744073709551615"),
        ],
    ] {
        let mut times = fresh();
        assert!(!times.load(lines, &mut rng(6)));
        assert!(times.wants_circuits());
        assert_eq!(times.timeout(), Duration::from_secs(60));
    }
    // Nothing is nothing wrong.
    assert!(fresh().load([("Guard", "in=default")], &mut rng(7)));
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        built in prop::collection::vec(1_u64..100_000, 0..300),
        abandoned in 0_usize..30,
        seed: u64,
    ) {
        let start = Instant::now();
        let mut times = fresh();
        for &time in &built {
            times.note_alive(start);
            times.note_built(millis(time), true);
        }
        for _ in 0..abandoned {
            times.note_alive(start);
            times.note_abandoned(start, start);
        }
        let Some(lines) = times.state_lines() else {
            return Ok(());
        };
        let mut again = fresh();
        let words = lines.iter().map(|(key, value)| (*key, value.as_str()));
        prop_assert!(again.load(words, &mut rng(seed)));
        prop_assert_eq!(again.is_computed(), times.is_computed());
        again.changed = true;
        prop_assert_eq!(again.state_lines(), Some(lines));
    }

    #[test]
    fn timeouts_stay_between_their_bounds(
        built in prop::collection::vec(0_u64..1_000_000, 100..200),
        seed: u64,
    ) {
        let mut rng = rng(seed);
        let mut times = fresh();
        for time in built {
            times.note_built(millis(time), rng.random_bool(0.5));
            if rng.random_bool(0.3) {
                times.note_timeout(rng.random_bool(0.8));
            }
            prop_assert!(times.timeout() >= millis(10));
            prop_assert!(times.close_after() >= times.timeout());
        }
    }
}
