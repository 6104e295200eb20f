//! Plots: distributions with their tails, and bytes over time.

use std::path::PathBuf;

use anyhow::Result;
use weft_plot::{Curve, Figure, Folder, Look, Panel};
use weft_stats::Spread;

use super::aggregate::Samples;
use super::measure::Sample;
use super::plan::INTERVAL_S;
use super::results::Results;
use crate::comparison::censored::{Time, quantiles};

/// The times of one kind in a repetition.
type Of = fn(&Sample) -> &[Time];

/// Times of one kind: file, title, which.
const TIMES: [(&str, &str, Of); 3] = [
    ("ttfb", "Time to the first byte", |sample| &sample.ttfb),
    ("web", "Downloads of web clients, 320 KB", |sample| {
        &sample.web
    }),
    ("bulk", "Downloads of bulk clients, 5 MB", |sample| {
        &sample.bulk
    }),
];
/// Points of a distribution.
const POINTS: u32 = 400;
/// The end of the body: the tail would leave it a tenth of the width.
const BODY: f64 = 0.95;
/// The end of the tail, in powers of ten: one stream in 10,000.
const TAIL: f64 = 4.0;

/// Caption of a plot.
pub(super) fn caption(plot: &str) -> &'static str {
    match plot {
        "ttfb" | "web" | "bulk" => {
            "Streams of all repetitions: the share that is over within so long, up to 95 %, and the tail, in powers of ten of those that \
             take longer (1 is a tenth of all streams, 2 a hundredth)."
        }
        "relayed" => {
            "Bytes that all relays write to links and destinations in 10 s: means over the repetitions. Networks differ by more \
             than arms do, so intervals are those of changes in one network, in the table."
        }
        _ => "",
    }
}

/// Draws what there is.
pub(super) fn draw(results: &Results, folder: &Folder) -> Result<Vec<PathBuf>> {
    let mut figures: Vec<(&str, Figure)> = Vec::new();
    for (name, title, times) in TIMES {
        figures.push((name, distributions(results, title, times)));
    }
    figures.push(("relayed", relayed(results)));
    let drawn = figures
        .iter()
        .filter(|(_, figure)| !figure.panels.is_empty());
    drawn
        .map(|(name, figure)| folder.plot(name, figure))
        .collect()
}

fn figure(results: &Results, title: &str, panels: Vec<Panel>) -> Figure {
    let panels = panels.into_iter();
    Figure {
        title: title.to_owned(),
        subtitle: format!(
            "{} relays, {} web and {} bulk clients, {} repetitions, seed {}.",
            results.relays,
            results.web_clients,
            results.bulk_clients,
            results.repetitions,
            results.seed
        ),
        panels: panels.filter(|panel| !panel.curves.is_empty()).collect(),
        columns: 2,
        footer: Vec::new(),
        whiskers: None,
        same_scale: false,
        legend: true,
    }
}

fn panel(title: &str, x_label: &str, y_label: &str, curves: Vec<Curve>) -> Panel {
    let curves = curves.into_iter();
    let drawn = curves.filter(|curve| !curve.points.is_empty()).collect();
    Panel::of_curves(title, x_label, y_label, drawn)
}

/// A curve through quantiles at these shares, with what is on the vertical axis for each.
fn through(results: &Results, times: Of, shares: &[f64], height: fn(f64) -> f64) -> Vec<Curve> {
    let arms = results.samples.iter().enumerate();
    let curves = arms.map(|(number, (arm, samples))| {
        let all: Vec<Time> = samples.values().flat_map(times).copied().collect();
        let found = quantiles(&all, shares);
        let points = found.iter().zip(shares);
        Curve {
            name: arm.json_key(),
            look: Look::number(number),
            points: points
                .filter_map(|(ms, share)| Some((ms.as_ref()? / 1e3, height(*share))))
                .collect(),
        }
    });
    curves.collect()
}

fn distributions(results: &Results, title: &str, times: Of) -> Figure {
    let steps = || (1..POINTS).map(|number| f64::from(number) / f64::from(POINTS));
    let plain: Vec<f64> = steps().map(|part| part * BODY).collect();
    let tail: Vec<f64> = steps()
        .map(|part| 1.0 - 10_f64.powf(-part * TAIL))
        .collect();
    let panels = vec![
        panel(
            title,
            "seconds",
            "share of streams",
            through(results, times, &plain, |share| share),
        ),
        panel(
            "The tail",
            "seconds",
            "powers of ten fewer streams",
            through(results, times, &tail, |share| -(1.0 - share).log10()),
        ),
    ];
    figure(results, title, panels)
}

/// Means over the repetitions of the bytes of each 10 s, megabytes, by the end of these.
fn over_time(samples: &Samples) -> Vec<(f64, f64)> {
    let lengths = samples.values().map(|sample| sample.relayed.len());
    let places = 0..lengths.min().unwrap_or(0);
    let means = places.filter_map(|place| {
        let each = samples
            .values()
            .filter_map(|sample| sample.relayed.get(place));
        let each: Vec<f64> = each.map(|bytes| bytes * 1e-6).collect();
        let mean = Spread::of(&each)?.mean;
        Some(((place + 1) as f64 * INTERVAL_S as f64, mean))
    });
    means.collect()
}

fn relayed(results: &Results) -> Figure {
    let arms = results.samples.iter().enumerate();
    let curves = arms.map(|(number, (arm, samples))| Curve {
        name: arm.json_key(),
        look: Look::number(number),
        points: over_time(samples),
    });
    let curves = curves.collect();
    let panels = vec![panel(
        "All relays",
        "seconds after the warm-up",
        "MB in 10 s",
        curves,
    )];
    figure(results, "Bytes that relays relay", panels)
}
