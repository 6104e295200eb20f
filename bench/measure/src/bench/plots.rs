//! The plots of a results file.

use std::path::{Path, PathBuf};

use anyhow::Result;
use weft_plot::{Figure, Folder, Group, Kind, Look, Panel, Scale, Series, Value, Whiskers};

use super::metrics;
use super::plan::{LATENCY_AT, Point};
use super::results::{Metric, Results};
use weft_stats::Summary;

/// Draws everything into a folder that is made for it, as SVG and as PNG.
///
/// # Errors
///
/// The folder is there already, or a file cannot be written.
pub(crate) fn draw(results: &Results, folder: &Path) -> Result<Vec<PathBuf>> {
    let folder = Folder::create(folder)?;
    let figures = figures(results).into_iter();
    figures
        .map(|(name, figure)| folder.plot(name, &figure))
        .collect()
}

/// Every figure, by the name of its files. A figure without measurements in this run is left out.
pub(crate) fn figures(results: &Results) -> Vec<(&'static str, Figure)> {
    let figures = [
        ("cpu", cpu(results)),
        ("throughput", throughput(results)),
        ("latency", latency(results)),
        ("memory", memory(results)),
        ("onionskins", onionskins(results)),
        ("scaling", scaling(results)),
    ];
    figures
        .into_iter()
        .map(|(name, mut figure)| {
            figure.panels.retain(|panel| {
                let mut values = panel.series.iter().flat_map(|one| &one.values);
                values.any(Option::is_some)
            });
            (name, figure)
        })
        .filter(|(_, figure)| !figure.panels.is_empty())
        .collect()
}

const WAYS: [(&str, &str); 2] = [
    (
        "download",
        "Download (toward the client: the relay adds a layer)",
    ),
    (
        "upload",
        "Upload (away from the client: the relay removes a layer)",
    ),
];

/// CPU seconds for each gigabyte, by circuits and target.
fn cpu(results: &Results) -> Figure {
    let targets = results.targets(Point::is_full_speed);
    let panels = WAYS.map(|(way, title)| {
        let points = results.points(|point| point.is_full_speed() && point.direction == way);
        let values = |target: &String| {
            let value = |point| value(results.summary(point, target, metrics::cpu_per_gb), 1.0);
            points.iter().map(value).collect()
        };
        Panel::of_values(
            Kind::Bars,
            title,
            "",
            "CPU s per GB",
            groups(
                points
                    .iter()
                    .map(|point| format!("{} circuits\n{} links", point.circuits, point.links)),
            ),
            series(&targets, values),
        )
    });
    Figure {
        title: "CPU time for each gigabyte relayed".to_owned(),
        subtitle: "A middle relay at full speed. Less is better. User and system time, payload of 10⁹ bytes.".to_owned(),
        panels: panels.into(),
        columns: 1,
        footer: footer(results),
        whiskers: Some(Whiskers::range("repetitions")),
        same_scale: true,
        legend: true,
    }
}

/// Goodput by Weft's connection threads, a line for each number of circuits; C tor's beside them.
fn throughput(results: &Results) -> Figure {
    let mut threads: Vec<u32> = results
        .targets(Point::is_full_speed)
        .iter()
        .filter_map(|name| name.strip_prefix("weft:")?.parse().ok())
        .collect();
    threads.sort_unstable();
    let panels = WAYS.map(|(way, _)| {
        let points = results.points(|point| point.is_full_speed() && point.direction == way);
        let mut all: Vec<Series> = Vec::new();
        for (number, point) in points.iter().enumerate() {
            let of = |target: &str| value(results.summary(point, target, metrics::goodput), 1e-9);
            let look = Look::number(number);
            all.push(Series {
                name: format!("Weft, {} circuits", point.circuits),
                look,
                values: threads.iter().map(|n| of(&format!("weft:{n}"))).collect(),
            });
            all.push(Series {
                name: format!("C tor, {} circuits", point.circuits),
                look: look.dashed(),
                values: threads.iter().map(|_| of("tor")).collect(),
            });
        }
        Panel::of_values(
            Kind::Lines,
            &capital(way),
            "connection threads of Weft (0: all on the main thread)",
            "goodput, Gbit/s",
            by_threads(&threads),
            all,
        )
    });
    let cores = results.machine.cores;
    Figure {
        title: "Throughput by threads".to_owned(),
        subtitle: format!(
            "Full speed. More is better. {cores} cores: with {cores} threads or more the generator has no core of its own."
        ),
        panels: panels.into(),
        columns: 2,
        footer: footer(results),
        whiskers: Some(Whiskers::range("repetitions")),
        same_scale: true,
        legend: true,
    }
}

/// A place on the axis for each number of threads.
fn by_threads(threads: &[u32]) -> Vec<Group> {
    let threads = threads.iter();
    let groups = threads.map(|n| Group {
        at: f64::from(*n),
        label: n.to_string(),
    });
    groups.collect()
}

/// Goodput by Weft's connection threads with a core for each, of a pack's record: beside C tor's and the straight line.
fn scaling(results: &Results) -> Figure {
    let point = Point::scaling();
    let targets = results.targets(|other| *other == point);
    let threads: Vec<u32> = targets
        .iter()
        .filter_map(|name| name.strip_prefix("weft:")?.parse().ok())
        .collect();
    let of = |target: &str| results.summary(&point, target, metrics::goodput);
    let one = of("weft:1").map(|one| one.median * 1e-9);
    let series = |name: &str, look: Look, of: &dyn Fn(u32) -> Option<Value>| Series {
        name: name.to_owned(),
        look,
        values: threads.iter().map(|n| of(*n)).collect(),
    };
    let all = vec![
        series("Weft", Look::number(0), &|n| {
            value(of(&format!("weft:{n}")), 1e-9)
        }),
        series("one thread × threads", Look::grey().dashed(), &|n| {
            one.map(|one| Value::exact(one * f64::from(n)))
        }),
        series("C tor", Look::number(1).dashed(), &|_| {
            value(of("tor"), 1e-9)
        }),
    ];
    let (circuits, links) = LATENCY_AT;
    Figure {
        title: "Goodput by connection threads".to_owned(),
        subtitle: format!(
            "Full speed, {circuits} circuits over {links} links, a core for each thread and others for the generator. More is better. \
             Rows whose generator was the limit are left out."
        ),
        panels: vec![Panel::of_values(
            Kind::Lines,
            "Download",
            "connection threads of Weft",
            "goodput, Gbit/s",
            by_threads(&threads),
            all,
        )],
        columns: 1,
        footer: footer(results),
        whiskers: None,
        same_scale: false,
        legend: true,
    }
}

/// Latency of cells, by percentile and target.
fn latency(results: &Results) -> Figure {
    let percentiles: [(&str, Metric); 4] = [
        ("50 %", metrics::p50),
        ("90 %", metrics::p90),
        ("99 %", metrics::p99),
        ("99.9 %", metrics::p999),
    ];
    let targets = results.targets(Point::is_latency);
    let panels = WAYS.map(|(way, _)| {
        let point = Point::latency(way);
        let values = |target: &String| {
            let value = |(_, metric): &(&str, Metric)| {
                value(results.summary(&point, target, *metric), 1e-3)
            };
            percentiles.iter().map(value).collect()
        };
        Panel::of_values(
            Kind::Lines,
            &capital(way),
            "of the cells took no longer",
            "ms from end to end",
            groups(percentiles.iter().map(|(name, _)| (*name).to_owned())),
            series(&targets, values),
        )
        .scaled(Scale::Log)
    });
    let (circuits, links) = LATENCY_AT;
    Figure {
        title: "Latency of cells under load".to_owned(),
        subtitle: format!(
            "Every target bears the same load: 80 % of C tor's full speed, {circuits} circuits over {links} links. Less is better."
        ),
        panels: panels.into(),
        columns: 2,
        footer: footer(results),
        whiskers: Some(Whiskers::range("repetitions")),
        same_scale: true,
        legend: true,
    }
}

/// Peak memory under the same load, memory of idle links and circuits.
fn memory(results: &Results) -> Figure {
    let one = |title: &str, unit: &str, points: &[Point], metric: Metric, factor: f64| {
        let targets = results.targets(|point| points.contains(point));
        let targets: Vec<String> = targets.into_iter().filter(|name| name != "pipe").collect();
        let values = |target: &String| {
            let value = |point| value(results.summary(point, target, metric), factor);
            points.iter().map(value).collect()
        };
        Panel::of_values(
            Kind::Bars,
            title,
            "",
            unit,
            groups(points.iter().map(|point| match point.is_latency() {
                true => point.direction.clone(),
                false => String::new(),
            })),
            series(&targets, values),
        )
    };
    let quick = results.options.quick;
    let (link, circuit) = (Point::idle_links(quick), Point::idle_circuits(quick));
    let load = ["download", "upload"].map(Point::latency);
    let load: Vec<Point> = results.points(|point| load.contains(point));
    Figure {
        title: "Memory".to_owned(),
        subtitle: "Resident memory: at its peak under the same load (80 % of C tor's full speed), and for each idle thing. Less is better.".to_owned(),
        panels: vec![
            one("Peak under load", "MB", &load, metrics::peak_rss, 1e-6),
            one("An idle link", "kB", &[link], metrics::idle_bytes, 1e-3),
            one("An idle circuit", "kB", &[circuit], metrics::idle_bytes, 1e-3),
        ],
        columns: 3,
        footer: footer(results),
        whiskers: Some(Whiskers::range("repetitions")),
        same_scale: false,
        legend: true,
    }
}

/// Circuits that are made, by target.
fn onionskins(results: &Results) -> Figure {
    let point = Point::onionskins();
    let targets = results.targets(|other| *other == point);
    let one = |title: &str, unit: &str, metric: Metric| {
        Panel::of_values(
            Kind::Bars,
            title,
            "",
            unit,
            groups([String::new()].into_iter()),
            series(&targets, |target| {
                vec![value(results.summary(&point, target, metric), 1.0)]
            }),
        )
    };
    Figure {
        title: "Circuits made".to_owned(),
        subtitle: "CREATE2 cells answered, all threads of the relay together. More is better."
            .to_owned(),
        panels: vec![
            one(
                "What one core can do",
                "circuits per CPU second",
                metrics::onionskins_per_cpu_s,
            ),
            one(
                "In this run",
                "circuits per second",
                metrics::onionskins_per_s,
            ),
        ],
        columns: 2,
        footer: footer(results),
        whiskers: Some(Whiskers::range("repetitions")),
        same_scale: false,
        legend: true,
    }
}

fn groups(labels: impl Iterator<Item = String>) -> Vec<Group> {
    labels
        .enumerate()
        .map(|(at, label)| Group {
            at: at as f64,
            label,
        })
        .collect()
}

/// A series for each target; it looks the same in all figures of all runs.
fn series(targets: &[String], values: impl Fn(&String) -> Vec<Option<Value>>) -> Vec<Series> {
    targets
        .iter()
        .map(|target| Series {
            name: name(target),
            look: match target.as_str() {
                "pipe" => Look::grey(),
                "tor" => Look::number(1),
                weft => {
                    let threads = weft.strip_prefix("weft:").and_then(|n| n.parse().ok());
                    // C tor's colour is C tor's alone.
                    match threads.unwrap_or(0) {
                        0 => Look::number(4),
                        1 => Look::number(0),
                        n => Look::number([2, 3, 5, 4, 0][(n - 2) % 5]),
                    }
                }
            },
            values: values(target),
        })
        .collect()
}

/// Display name of a target.
pub(crate) fn name(target: &str) -> String {
    match (target, target.strip_prefix("weft:")) {
        ("pipe", _) => "bare pipe".to_owned(),
        ("tor", _) => "C tor".to_owned(),
        (_, Some("1")) => "Weft, 1 thread".to_owned(),
        (_, Some(threads)) => format!("Weft, {threads} threads"),
        (other, None) => other.to_owned(),
    }
}

fn value(summary: Option<Summary>, factor: f64) -> Option<Value> {
    summary.map(|summary| Value::median(&summary, factor))
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// Where, what, when, how often.
fn footer(results: &Results) -> Vec<String> {
    let (machine, options) = (&results.machine, &results.options);
    let virtual_machine = if machine.virtual_machine {
        ", virtual"
    } else {
        ""
    };
    let medians = match options.repetitions {
        1 => "one repetition, so without ranges".to_owned(),
        n => format!("medians of {n} repetitions"),
    };
    vec![
        format!(
            "{}, {} cores{virtual_machine}, {}. Load average before: {}.",
            machine.cpu, machine.cores, machine.kernel, machine.load_average_before
        ),
        format!(
            "{}; {}.",
            results.weft(),
            results.versions.tor.as_deref().unwrap_or("no C tor"),
        ),
        format!(
            "{}: {medians}, {} s each.",
            results.started_at.get(..10).unwrap_or_default(),
            options.seconds
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::testing::results;

    #[test]
    fn all_that_was_measured_is_drawn() {
        let figures = figures(&results());
        let names: Vec<&str> = figures.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            names,
            ["cpu", "throughput", "latency", "memory", "onionskins"]
        );
        for (name, figure) in figures {
            let svg = figure.svg().expect("a plot");
            assert!(svg.contains("Some Processor"), "{name}: the machine");
            assert!(svg.contains("0123456789"), "{name}: the commit");
        }
    }

    #[test]
    fn a_record_of_a_pack_shows_the_straight_line() {
        let figures = figures(&crate::bench::testing::pack(16));
        let names: Vec<&str> = figures.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["scaling"]);
        let [(_, figure)] = &figures[..] else {
            panic!("one figure");
        };
        let svg = figure.svg().expect("a plot");
        for words in ["one thread × threads", "C tor", "Gbit/s"] {
            assert!(svg.contains(words), "{words}");
        }
    }

    #[test]
    fn what_was_not_measured_has_no_plot() {
        let mut results = results();
        results.runs.retain(|run| run.point.mode == "onionskins");
        let names: Vec<&str> = figures(&results).iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["onionskins"]);
    }
}
