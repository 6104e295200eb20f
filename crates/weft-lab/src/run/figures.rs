//! Plots of a run: distributions over streams and circuits, and what relays do over time.

use std::path::PathBuf;

use anyhow::Result;
use weft_model::traffic::Record;
use weft_plot::{Curve, Figure, Folder, Look, Panel};

use super::results::{OfArm, Outcome, Results};
use super::series::{One, busiest, megabytes, rates, total};

/// The most arms whose relays have a panel of their own.
const ARMS: usize = 6;
/// The most points of a series: more than a panel has pixels for.
const POINTS: usize = 300;
/// Distinct looks of lines; others are dashed.
const LOOKS: usize = 6;

/// Caption of a plot.
pub(super) fn caption(plot: &str) -> &'static str {
    match plot {
        "ttfb" => {
            "Of each model's streams in all repetitions, the share that has its first byte within so long."
        }
        "ttlb" => {
            "Of each model's streams that completed, the share that has its last byte within so long."
        }
        "relays" => {
            "What relays write to links and destinations, in each interval: all together, and those that write most. Means \
             over the repetitions."
        }
        "queues" => {
            "What relays hold in queues and buffers at the end of each interval: all together, and those that write most. \
             Means over the repetitions."
        }
        "circuits" => {
            "The share of circuits that is built within so long, and of streams whose BEGIN is answered by CONNECTED within \
             so long."
        }
        _ => "",
    }
}

/// Draws what there is.
pub(super) fn draw(results: &Results, folder: &Folder) -> Result<Vec<PathBuf>> {
    let first = |record: &Record| record.time_to_first_byte().map(|time| time.as_secs_f64());
    let last = |record: &Record| record.time_to_last_byte().map(|time| time.as_secs_f64());
    let written = Series {
        title: "Bytes that relays write",
        unit: "Mbit/s",
        of_relay: |one| one.rates(),
        of_all: |results| {
            rates(
                results,
                &total(results.relays.iter().map(|one| &one.written)),
            )
        },
    };
    let queued = Series {
        title: "Bytes that relays hold",
        unit: "MB",
        of_relay: |one| one.held(),
        of_all: |results| megabytes(&total(results.relays.iter().map(|one| &one.queued))),
    };
    let figures = [
        ("ttfb", streams(results, "Time to the first byte", &first)),
        ("ttlb", streams(results, "Time to the last byte", &last)),
        ("relays", written.figure(results)),
        ("queues", queued.figure(results)),
        ("circuits", circuits(results)),
    ];
    let drawn = figures
        .iter()
        .filter(|(_, figure)| !figure.panels.is_empty());
    drawn
        .map(|(name, figure)| folder.plot(name, figure))
        .collect()
}

/// Style of the line with this number.
fn look(number: usize) -> Look {
    match number / LOOKS % 2 {
        0 => Look::number(number),
        _ => Look::number(number).dashed(),
    }
}

fn subtitle(results: &Results) -> String {
    format!(
        "{}, testbed {}, seed {}.",
        results.scenario,
        results.testbed.name(),
        results.seed
    )
}

fn figure(results: &Results, title: &str, panels: Vec<Panel>) -> Figure {
    let panels = panels.into_iter();
    Figure {
        title: title.to_owned(),
        subtitle: subtitle(results),
        panels: panels.filter(|panel| !panel.curves.is_empty()).collect(),
        columns: 2,
        footer: Vec::new(),
        whiskers: None,
        same_scale: false,
        legend: true,
    }
}

/// A curve of each arm that has numbers.
fn distributions(results: &Results, numbers: impl Fn(&OfArm) -> Vec<f64>) -> Vec<Curve> {
    let arms = results.arms.iter().enumerate();
    let curves = arms.map(|(number, arm)| Curve {
        name: arm.arm.clone(),
        look: look(number),
        points: Curve::distribution(numbers(arm)),
    });
    curves.filter(|curve| !curve.points.is_empty()).collect()
}

/// A panel for each model, a curve for each arm.
fn streams(results: &Results, title: &str, number: &dyn Fn(&Record) -> Option<f64>) -> Figure {
    let models = results.arms.iter().flat_map(|arm| &arm.models);
    let mut models: Vec<&str> = models.map(|model| &*model.model).collect();
    models.sort_unstable();
    models.dedup();
    let panels = models.into_iter().map(|model| {
        let curves = distributions(results, |arm| {
            let records = results.of_arm(arm).flat_map(|one| &one.streams);
            let own = records.filter(|record| record.model == model);
            own.filter_map(number).collect()
        });
        Panel::of_curves(model, "seconds", "share of streams", curves)
    });
    figure(results, title, panels.collect())
}

fn circuits(results: &Results) -> Figure {
    let builds = distributions(results, |arm| {
        let circuits = results.of_arm(arm).flat_map(|one| &one.results.circuits);
        let built = circuits.filter_map(|circuit| circuit.built);
        built.map(|time| time.as_secs_f64()).collect()
    });
    let round_trips = distributions(results, |arm| {
        let circuits = results.of_arm(arm).flat_map(|one| &one.results.circuits);
        let times = circuits.flat_map(|circuit| &circuit.round_trips);
        times.map(|time| time.as_secs_f64()).collect()
    });
    let panels = vec![
        Panel::of_curves("Build times", "seconds", "share of circuits", builds),
        Panel::of_curves("Round trips", "seconds", "share of streams", round_trips),
    ];
    figure(results, "Circuits of clients", panels)
}

/// A quantity of relays in each interval.
struct Series {
    title: &'static str,
    unit: &'static str,
    of_relay: fn(&One<'_>) -> Vec<f64>,
    of_all: fn(&weft_virtual::Results) -> Vec<f64>,
}

impl Series {
    /// All relays together, a curve for each arm; then a panel for each arm with a curve for each of its busiest relays.
    fn figure(&self, results: &Results) -> Figure {
        let arms = || results.arms.iter().enumerate();
        let all = arms().map(|(number, arm)| {
            let outcomes = results.of_arm(arm);
            curve(
                &arm.arm,
                look(number),
                outcomes.map(|one| (&one.results, (self.of_all)(&one.results))),
            )
        });
        let all = all.filter(|curve| !curve.points.is_empty()).collect();
        let mut panels = vec![Panel::of_curves("All relays", "seconds", self.unit, all)];
        // A relay looks the same in every panel, and not as an arm.
        let mut names: Vec<&str> = Vec::new();
        for (_, arm) in arms().take(ARMS) {
            let outcomes: Vec<&Outcome> = results.of_arm(arm).collect();
            let curves = busiest(&outcomes).into_iter().map(|name| {
                let known = names.iter().position(|one| *one == name);
                let number = known.unwrap_or_else(|| {
                    names.push(name);
                    names.len() - 1
                });
                let of = outcomes.iter().filter_map(|outcome| {
                    let one = One::of(&outcome.results, name)?;
                    Some((&outcome.results, (self.of_relay)(&one)))
                });
                curve(name, look(results.arms.len() + number), of)
            });
            let curves: Vec<Curve> = curves.filter(|curve| !curve.points.is_empty()).collect();
            let title = format!("The busiest of {}", arm.arm);
            panels.push(Panel::of_curves(&title, "seconds", self.unit, curves));
        }
        figure(results, self.title, panels)
    }
}

/// The mean of several series, at the ends of their intervals.
fn curve<'a>(
    name: &str,
    look: Look,
    series: impl Iterator<Item = (&'a weft_virtual::Results, Vec<f64>)>,
) -> Curve {
    let mut interval = 0.0;
    // Of each interval the sum, and over how many series.
    let mut sums: Vec<(f64, u32)> = Vec::new();
    for (results, numbers) in series {
        interval = results.interval.as_secs_f64();
        sums.resize(sums.len().max(numbers.len()), (0.0, 0));
        for ((sum, count), number) in sums.iter_mut().zip(numbers) {
            *sum += number;
            *count += 1;
        }
    }
    let means: Vec<f64> = sums
        .iter()
        .map(|(sum, count)| sum / f64::from((*count).max(1)))
        .collect();
    // Several intervals are one point where there are more of them than pixels.
    let step = means.len().div_ceil(POINTS).max(1);
    let points = means.chunks(step).enumerate().map(|(number, some)| {
        let end = (number * step + some.len()) as f64 * interval;
        (end, some.iter().sum::<f64>() / some.len() as f64)
    });
    Curve {
        name: name.to_owned(),
        look,
        points: points.collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_curve_is_the_mean_over_repetitions() {
        let results = weft_virtual::Results {
            simulated: Duration::from_secs(3),
            interval: Duration::from_secs(1),
            ..weft_virtual::Results::default()
        };
        let series = [vec![1.0, 2.0, 3.0], vec![3.0, 4.0]];
        let made = curve("x", look(7), series.map(|one| (&results, one)).into_iter());
        assert_eq!(made.points, [(1.0, 2.0), (2.0, 3.0), (3.0, 3.0)]);
        let long = vec![1.0; 1000];
        let made = curve("x", look(0), [(&results, long)].into_iter());
        assert_eq!(made.points.len(), 250);
        assert_eq!(made.points.last(), Some(&(1000.0, 1.0)));
    }
}
