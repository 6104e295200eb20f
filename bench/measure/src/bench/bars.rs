//! All bars, and whether Weft meets them.

use super::bar::{Bar, Part, Side, Verdict};
use super::metrics;
use super::plan::{FEW, MANY, Point, THIN, THIN_FEWER};
use super::results::{Metric, Results};
use weft_stats::Summary;

/// Cores that a machine needs for the rows about threads: half of them for four threads, the others
/// for the generator.
const CORES_FOR_THREADS: usize = 8;
/// Cores that the bars of a pack's record are for.
const CORES_FOR_PACK: usize = 16;
/// The fewest threads that those rows are about.
const MANY_THREADS: u32 = 4;

/// Every row, from what was measured.
pub(crate) fn bars(results: &Results) -> Vec<Bar> {
    let mut bars = relay_bars(results);
    bars.extend(real_bars(results));
    bars
}

fn row(name: &str, at_least: bool, bar: f64, goal: f64) -> Bar {
    Bar {
        name: name.to_owned(),
        at_least,
        bar,
        goal,
        parts: Vec::new(),
        verdict: Verdict::NotMeasured,
        note: None,
    }
}

/// The rows of a pack's record.
pub(crate) fn of_pack(results: &Results) -> Vec<Bar> {
    let point = Point::scaling();
    let ratio = |name: &str, at_least, (bar, goal), metric: Metric, times| {
        let mut bar = row(name, at_least, bar, goal);
        let sides = ("weft:8", "weft:1");
        bar.parts
            .extend(part(results, &point, sides, metric, times, ""));
        bar
    };
    let mut network = row(
        "sustained in a private network, Weft with 3 threads ÷ C tor",
        true,
        4.3,
        10.0,
    );
    network.parts.extend(in_network(results, "weft:3", "tor"));
    let mut time = row("minutes that the record took", false, 8.0, 8.0);
    let sessions = results.pack.iter().flat_map(|pack| &pack.sessions);
    let minutes = Summary::of([sessions.sum::<f64>() / 60.0]);
    time.parts
        .extend(minutes.filter(|_| results.finished).map(|value| Part {
            what: String::new(),
            over: Side {
                target: "record".to_owned(),
                value,
            },
            under: None,
            ratio: value,
        }));
    let bars = [
        ratio(
            "goodput with 8 threads ÷ (8 × one thread)",
            true,
            (0.85, 0.95),
            metrics::goodput,
            8.0,
        ),
        ratio(
            "CPU s/GB with 8 threads ÷ with 1",
            false,
            (1.15, 1.05),
            metrics::cpu_per_gb,
            1.0,
        ),
        network,
        time,
    ];
    let cores = results.machine.cores;
    bars.into_iter()
        .map(|mut bar| {
            if cores < CORES_FOR_PACK {
                bar.verdict = Verdict::NotMeasurable;
                bar.note = Some(format!("needs {CORES_FOR_PACK} cores, has {cores}"));
            }
            let complete = !bar.parts.is_empty();
            bar.judge(complete)
        })
        .collect()
}

/// A ratio of what two targets sustained in the middle of a private network.
fn in_network(results: &Results, over: &str, under: &str) -> Option<Part> {
    let side = |target: &str| {
        let value = results.sustained(target).filter(|value| *value > 0.0)?;
        Some(Side {
            target: target.to_owned(),
            value: Summary::of([value])?,
        })
    };
    let (over, under) = (side(over)?, side(under)?);
    Some(Part {
        what: String::new(),
        ratio: Summary::of([over.value.median / under.value.median])?,
        over,
        under: Some(under),
    })
}

/// Bars of a relay whose links are full, or idle.
fn relay_bars(results: &Results) -> Vec<Bar> {
    let both = |size| ["download", "upload"].map(|way| Point::cells(size, way));
    let latency = ["download", "upload"].map(Point::latency);
    let fill = |mut bar: Bar, points: &[Point], over: &str, under: &str, metric: Metric| {
        let parts = points.iter().filter_map(|point| {
            // One point needs no name.
            let what = if points.len() > 1 {
                point.direction.as_str()
            } else {
                ""
            };
            part(results, point, (over, under), metric, 1.0, what)
        });
        bar.parts = parts.collect();
        let complete = bar.parts.len() == points.len();
        bar.judge(complete)
    };
    let name = "CPU s/GB as a middle, 1 connection thread, C tor ÷ weft, 20 circuits";
    let first = row(name, true, 3.0, 5.0);
    let name =
        "CPU s/GB as a middle, 1 connection thread, C tor ÷ weft, 1,500 circuits over 150 links";
    let second = row(name, true, 3.0, 5.0);
    let third = row(
        "CPU s/GB, weft ÷ the naive bare pipe, 20 circuits",
        false,
        1.5,
        0.9,
    );
    let onionskins = row("onionskins per core, weft ÷ C tor", true, 2.0, 3.0);
    let name = "cell latency p99 at 80 % of C tor's maximum, C tor ÷ weft";
    let p99 = row(name, true, 2.0, 5.0);
    let rss = row("peak RSS under the same load, C tor ÷ weft", true, 2.0, 4.0);
    let idle = row("memory per idle link, C tor ÷ weft", true, 2.0, 3.0);
    let one = "weft:1";
    let idle_links = Point::idle_links(results.options.quick);
    vec![
        fill(first, &both(FEW), "tor", one, metrics::cpu_per_gb),
        fill(second, &both(MANY), "tor", one, metrics::cpu_per_gb),
        fill(third, &both(FEW), one, "pipe", metrics::cpu_per_gb),
        threads(
            results,
            row(
                "CPU s/GB with 4 or more threads ÷ with 1",
                false,
                1.15,
                1.05,
            ),
            metrics::cpu_per_gb,
            |_| 1.0,
        ),
        threads(
            results,
            row(
                "throughput with n threads ÷ (n × one thread)",
                true,
                0.85,
                0.95,
            ),
            metrics::goodput,
            f64::from,
        ),
        fill(
            onionskins,
            &[Point::onionskins()],
            one,
            "tor",
            metrics::onionskins_per_cpu_s,
        ),
        fill(p99, &latency, "tor", one, metrics::p99),
        fill(rss, &latency, "tor", one, metrics::peak_rss),
        fill(idle, &[idle_links], "tor", one, metrics::idle_bytes),
    ]
}

/// Bars of the loads that real relays carry.
fn real_bars(results: &Results) -> Vec<Bar> {
    let ratio = |mut bar: Bar, point: Point, over: &str, under: &str, metric: Metric| {
        bar.parts
            .extend(part(results, &point, (over, under), metric, 1.0, ""));
        let complete = !bar.parts.is_empty();
        bar.judge(complete)
    };
    let number = |mut bar: Bar, point: Point, metric: Metric, factor: f64| {
        bar.parts
            .extend(alone(results, &point, "weft:1", metric, factor));
        let complete = !bar.parts.is_empty();
        bar.judge(complete)
    };
    let thin = || Point::thin(THIN);
    let one = "weft:1";
    let cpu = metrics::cpu_per_gb;
    vec![
        ratio(
            row(
                "CPU s/GB, C tor ÷ weft:1, 4,000 circuits over 2,000 links, 10 MB/s both ways",
                true,
                2.5,
                4.0,
            ),
            thin(),
            "tor",
            one,
            cpu,
        ),
        ratio(
            row(
                "CPU s/GB, C tor ÷ weft:1, 2,000 circuits over 400 links, 10 MB/s both ways",
                true,
                2.5,
                4.0,
            ),
            Point::thin(THIN_FEWER),
            "tor",
            one,
            cpu,
        ),
        number(
            row(
                "cell latency p99 over those 2,000 links, ms",
                false,
                5.0,
                2.0,
            ),
            thin(),
            metrics::p99,
            1e-3,
        ),
        number(
            row(
                "user time alone over those 2,000 links, s/GB",
                false,
                4.0,
                2.5,
            ),
            thin(),
            metrics::user_per_gb,
            1.0,
        ),
        ratio(
            row(
                "capacity of one thread, 2,000 links, p99 under 50 ms, weft ÷ C tor",
                true,
                3.0,
                5.0,
            ),
            Point::capacity(),
            one,
            "tor",
            metrics::capacity,
        ),
        ratio(
            row(
                "CPU s/GB, C tor ÷ weft:1, the live mix of a middle",
                true,
                2.5,
                4.0,
            ),
            Point::live_middle(results.options.quick),
            "tor",
            one,
            cpu,
        ),
        ratio(
            row(
                "RSS at 8,000 links and 50,000 circuits, C tor ÷ weft:1",
                true,
                3.0,
                5.0,
            ),
            Point::size(),
            "tor",
            one,
            metrics::rss,
        ),
        ratio(
            row(
                "CPU s/GB with 4 threads ÷ with 1, full speed, however few cores",
                false,
                1.2,
                1.05,
            ),
            Point::threads_full(),
            "weft:4",
            one,
            cpu,
        ),
    ]
}

/// A row about threads, at 1,500 circuits: n threads against one, with at least four of them and as
/// many cores left for the generator. A machine that is too small shows what it can.
fn threads(results: &Results, mut bar: Bar, metric: Metric, times: fn(u32) -> f64) -> Bar {
    let both = ["download", "upload"].map(|way| Point::cells(MANY, way));
    let cores = results.machine.cores;
    let enough = cores >= CORES_FOR_THREADS;
    let mut counts: Vec<u32> = results
        .targets(|point| both.contains(point))
        .iter()
        .filter_map(|name| name.strip_prefix("weft:")?.parse().ok())
        .filter(|count| match enough {
            true => *count >= MANY_THREADS && *count as usize <= cores / 2,
            false => *count >= 2,
        })
        .collect();
    if !enough {
        counts = counts.into_iter().max().into_iter().collect();
    }
    for count in &counts {
        for point in &both {
            let what = format!("{count} threads, {}", point.direction);
            let many = format!("weft:{count}");
            let sides = (many.as_str(), "weft:1");
            bar.parts
                .extend(part(results, point, sides, metric, times(*count), &what));
        }
    }
    if !enough {
        bar.verdict = Verdict::NotMeasurable;
        bar.note = Some(format!("needs {CORES_FOR_THREADS} cores, has {cores}"));
    }
    let complete = !counts.is_empty() && bar.parts.len() == 2 * counts.len();
    bar.judge(complete)
}

/// A ratio at a point: `over ÷ (times × under)`.
fn part(
    results: &Results,
    point: &Point,
    (over, under): (&str, &str),
    metric: Metric,
    times: f64,
    what: &str,
) -> Option<Part> {
    let side = |target: &str| {
        Some(Side {
            target: target.to_owned(),
            value: results.summary(point, target, metric)?,
        })
    };
    let numbers = |target: &str| -> Vec<(u32, f64)> {
        results
            .of(point, target)
            .filter_map(|run| Some((run.repetition, metric(run.complete()?)?)))
            .collect()
    };
    let (above, below) = (side(over)?, side(under)?);
    let divided = |over: f64, under: f64| over / (times * under);
    let lower = numbers(under);
    let each: Vec<f64> = numbers(over)
        .into_iter()
        .filter_map(|(repetition, over)| {
            let (_, under) = lower.iter().find(|(other, _)| *other == repetition)?;
            Some(divided(over, *under))
        })
        .collect();
    let median = divided(above.value.median, below.value.median);
    let range = Summary::of(each)?;
    // Less than no memory for a link is no ratio.
    let is_ratio = below.value.min > 0.0 && above.value.min > 0.0;
    (median.is_finite() && is_ratio).then(|| Part {
        what: what.to_owned(),
        over: above,
        under: Some(below),
        ratio: Summary { median, ..range },
    })
}

/// A number of a target that is no ratio.
fn alone(
    results: &Results,
    point: &Point,
    target: &str,
    metric: Metric,
    factor: f64,
) -> Option<Part> {
    let value = results.summary(point, target, metric)?;
    Some(Part {
        what: String::new(),
        ratio: Summary {
            median: value.median * factor,
            min: value.min * factor,
            max: value.max * factor,
            ..value
        },
        over: Side {
            target: target.to_owned(),
            value,
        },
        under: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::testing::{self, results};

    fn named<'a>(bars: &'a [Bar], start: &str) -> &'a Bar {
        let found = bars.iter().find(|bar| bar.name.starts_with(start));
        found.expect("a row of that name")
    }

    #[test]
    fn rows_have_ratios_of_medians() {
        let bars = bars(&results());
        assert_eq!(bars.len(), 17);
        // Two repetitions: C tor 4.0 and 4.2, Weft 1.0 and 1.1.
        let first = named(
            &bars,
            "CPU s/GB as a middle, 1 connection thread, C tor ÷ weft, 20",
        );
        assert_eq!(first.verdict, Verdict::Met);
        let part = first.parts.first().expect("download");
        assert!((part.ratio.median - 4.1 / 1.05).abs() < 1e-9, "{part:?}");
        assert!((part.ratio.min - 4.2 / 1.1).abs() < 1e-9, "{part:?}");
        assert!((part.ratio.max - 4.0).abs() < 1e-9, "{part:?}");
        assert_eq!(named(&bars, "onionskins").verdict, Verdict::Goal);
        assert_eq!(named(&bars, "cell latency").verdict, Verdict::Goal);
        // 1.05 above 0.9: 1.17.
        assert_eq!(named(&bars, "CPU s/GB, weft ÷").verdict, Verdict::Met);
    }

    #[test]
    fn the_loads_of_real_relays_are_judged() {
        let rows = bars(&results());
        for (name, verdict, value) in [
            // 4.1 and 1.05 CPU seconds, in the middle of two repetitions each.
            ("CPU s/GB, C tor ÷ weft:1, 4,000", Verdict::Met, 4.1 / 1.05),
            ("CPU s/GB, C tor ÷ weft:1, 2,000", Verdict::Met, 4.1 / 1.05),
            (
                "CPU s/GB, C tor ÷ weft:1, the live",
                Verdict::Met,
                4.1 / 1.05,
            ),
            // 1000 µs.
            ("cell latency p99 over those", Verdict::Goal, 1.0),
            ("user time alone", Verdict::Goal, 0.6 * 1.05),
            ("capacity of one thread", Verdict::Met, 4.1 / 1.05),
            ("RSS at 8,000 links", Verdict::Met, 4.0),
            ("CPU s/GB with 4 threads", Verdict::Goal, 1.0),
        ] {
            let row = named(&rows, name);
            let part = row.parts.first().expect(name);
            assert_eq!(row.verdict, verdict, "{name}");
            assert!((part.ratio.median / value - 1.0).abs() < 0.01, "{part:?}");
        }
        let mut none = results();
        none.runs.retain(|run| run.target != "tor");
        let rows = bars(&none);
        let row = named(&rows, "capacity of one thread");
        assert_eq!(row.verdict, Verdict::NotMeasured);
        assert_eq!(named(&rows, "user time alone").verdict, Verdict::Goal);
    }

    #[test]
    fn a_pack_judges_only_what_was_a_result_and_only_on_many_cores() {
        let mut all = testing::pack(16);
        let bars = of_pack(&all);
        // Six times the goodput of one thread, the same processor time, five times C tor.
        assert_eq!(named(&bars, "goodput with 8").verdict, Verdict::Missed);
        assert_eq!(named(&bars, "CPU s/GB with 8").verdict, Verdict::Goal);
        assert_eq!(named(&bars, "sustained").verdict, Verdict::Met);
        assert_eq!(named(&bars, "minutes").verdict, Verdict::Goal);
        for run in &mut all.runs {
            run.limit = Some("the generator".to_owned());
        }
        all.finished = false;
        let none = of_pack(&all);
        assert!(none.iter().all(|bar| bar.verdict == Verdict::NotMeasured));
        let few = of_pack(&testing::pack(9));
        assert!(few.iter().all(|bar| bar.verdict == Verdict::NotMeasurable));
    }

    #[test]
    fn the_worse_direction_decides() {
        let mut all = results();
        for run in &mut all.runs {
            if run.target == "weft:1" && run.point.direction == "upload" {
                testing::set_cpu_per_gb(run, 2.0);
            }
        }
        let bars = bars(&all);
        let first = named(&bars, "CPU s/GB as a middle");
        assert_eq!(first.verdict, Verdict::Missed);
        assert_eq!(first.worst().map(|part| part.what.as_str()), Some("upload"));
    }

    #[test]
    fn too_few_cores_are_noted() {
        let bars = bars(&results());
        let row = named(&bars, "throughput");
        assert_eq!(row.verdict, Verdict::NotMeasurable);
        assert_eq!(row.note.as_deref(), Some("needs 8 cores, has 2"));
        // It shows the parts that it can.
        assert_eq!(row.parts.len(), 2);
    }

    #[test]
    fn a_machine_with_many_cores_judges_threads() {
        let mut all = results();
        all.machine.cores = 8;
        for run in &mut all.runs {
            if run.target == "weft:2" {
                run.target = "weft:4".to_owned();
            }
        }
        let bars = bars(&all);
        // Twice the goodput with four times the threads.
        assert_eq!(named(&bars, "throughput").verdict, Verdict::Missed);
        assert_eq!(named(&bars, "CPU s/GB with 4").verdict, Verdict::Goal);
    }

    #[test]
    fn what_is_missing_is_not_met() {
        let mut all = results();
        all.runs
            .retain(|run| run.point.direction != "upload" || run.point.mode != "cells");
        let rows = bars(&all);
        let first = named(&rows, "CPU s/GB as a middle");
        assert_eq!(first.verdict, Verdict::NotMeasured);
        assert!(first.note.is_some());
        all.runs.clear();
        let rows = bars(&all);
        assert!(
            rows.iter()
                .all(|row| matches!(row.verdict, Verdict::NotMeasured | Verdict::NotMeasurable))
        );
    }

    #[test]
    fn incomplete_runs_count_for_nothing() {
        let mut all = results();
        for run in &mut all.runs {
            if let Some(report) = run.report.as_mut().filter(|_| run.target == "tor") {
                report.complete = false;
            }
        }
        let rows = bars(&all);
        assert_eq!(named(&rows, "onionskins").verdict, Verdict::NotMeasured);
    }
}
