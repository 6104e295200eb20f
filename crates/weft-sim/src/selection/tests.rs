//! Rules on circuits that are known.

use super::*;

fn options(quantile: f64, limit: Limit) -> Options {
    Options {
        quantile,
        limit,
        resamples: 200,
        seed: 1,
        threads: 2,
    }
}

#[test]
fn by_rank_exactly_the_share_is_used_and_the_percentiles_are_those_of_the_rest() {
    // Build time and latency go together; the round trip is the other way round.
    let tuple = |number: u32| Tuple {
        build_ms: f64::from(number),
        rtt_ms: f64::from(1_001 - number),
        latency_ms: f64::from(number),
        bandwidth_mbit: f64::from(number),
        client: 0,
    };
    let tuples: Vec<Tuple> = (1..=1_000).map(tuple).collect();
    let report = compare(&tuples, &options(0.8, Limit::Ranked)).unwrap();
    let kept = [
        report.cbt.kept,
        report.rtt.kept,
        report.both.kept,
        report.none.kept,
    ];
    assert_eq!(kept, [800, 800, 600, 1_000]);
    // 1 to 800, and 201 to 1000.
    assert_eq!(
        (report.cbt.latency_ms.p50, report.rtt.latency_ms.p50),
        (400.5, 600.5)
    );
    assert!((report.cbt.latency_ms.p90 - 720.1).abs() < 1e-9);
    // 90 % of the circuits have at least this, so it is at the slow end.
    assert!((report.rtt.bandwidth.p90 - 280.9).abs() < 1e-9);
    let change = report.rtt.change_percent.unwrap().latency_p50;
    assert!((change.percent - (600.5 / 400.5 - 1.0) * 100.0).abs() < 1e-9);
    assert!(change.is_clear() && change.ci95.0 < change.percent && change.percent < change.ci95.1);
    assert_eq!(report.cbt.change_percent, None);
}

#[test]
fn a_client_learns_to_use_about_the_share() {
    let tuples = synthetic::tuples(5_000, 1, synthetic::HANDSHAKE);
    for share in [0.5, 0.8] {
        let report = compare(&tuples, &options(share, Limit::Learnt)).unwrap();
        assert!(
            (report.rtt.share - share).abs() < 0.03,
            "{}",
            report.rtt.share
        );
        assert!(
            (report.cbt.share - share).abs() < 0.08,
            "{}",
            report.cbt.share
        );
        assert!(report.both.kept < report.rtt.kept.min(report.cbt.kept));
        assert_eq!(report.gev.unwrap().convention, "scipy.stats.genextreme");
    }
}

#[test]
fn round_trips_choose_better_than_build_times_by_what_the_paper_has() {
    let options = options(0.8, Limit::Ranked);
    let changes = |handshake| {
        let tuples = synthetic::tuples(40_000, 2, handshake);
        let report = compare(&tuples, &options).unwrap();
        assert!(report.rtt.latency_ms.p90 < report.none.latency_ms.p90);
        report.rtt.change_percent.unwrap()
    };
    let busy = changes(synthetic::HANDSHAKE);
    assert!(busy.latency_p50.is_clear() && busy.latency_p50.percent < -2.5);
    assert!(busy.latency_p90.is_clear() && busy.latency_p90.percent < -7.8);
    // Where processors are idle, a build time is nearly a sum of round trips.
    let idle = changes(0.0);
    assert!(idle.latency_p50.percent > busy.latency_p50.percent + 1.0);
    assert!(idle.latency_p90.percent > busy.latency_p90.percent + 1.0);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let tuples = synthetic::tuples(2_000, 3, synthetic::HANDSHAKE);
    assert_eq!(tuples, synthetic::tuples(2_000, 3, synthetic::HANDSHAKE));
    let on = |threads| {
        let options = Options {
            threads,
            ..options(0.8, Limit::Learnt)
        };
        serde_json::to_string(&compare(&tuples, &options).unwrap()).unwrap()
    };
    assert_eq!(on(1), on(3));
}

#[test]
fn the_figure_has_each_rule_and_the_fit() {
    let report = compare(
        &synthetic::tuples(500, 4, synthetic::HANDSHAKE),
        &options(0.8, Limit::Learnt),
    )
    .unwrap();
    let svg = report.figure().svg().expect("a plot");
    for word in [
        "build times",
        "round trips",
        "no rule",
        "fitted",
        "500 circuits",
    ] {
        assert!(svg.contains(word), "{word}");
    }
}

#[test]
fn circuits_that_are_all_alike_have_no_distribution() {
    let tuple = Tuple {
        build_ms: 500.0,
        rtt_ms: 200.0,
        latency_ms: 300.0,
        bandwidth_mbit: 1.0,
        client: 0,
    };
    let report = compare(&[tuple; 300], &options(0.8, Limit::Learnt)).unwrap();
    assert_eq!((report.gev, report.rtt.kept), (None, 300));
}
