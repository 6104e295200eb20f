//! Plots: distributions of times, as the paper's Figures 5, 6 and 8, and means with deviations.

use std::path::PathBuf;

use anyhow::Result;
use weft_plot::{
    Curve, Figure, Folder, Group, Kind as Drawn, Look, Panel, Series, Value, Whiskers,
};

use super::aggregate::Samples;
use super::arms;
use super::downloads::model;
use super::measure::{Sample, Streams};
use super::part::{BULK, Kind, WEB};
use super::results::{OfPart, Results};
use crate::comparison::censored::{Time, quantiles};
use crate::comparison::{MEAN, STDDEV};

/// Picks the times of a kind.
type Of = fn(&Streams) -> &[Time];

/// Points of a distribution.
const POINTS: u32 = 400;

/// Caption of a plot.
pub(super) fn caption(plot: &str) -> &'static str {
    match plot {
        "figure5" => {
            "Downloads of all repetitions: the share that is over within so long (Yang and Li 2015, Figure 5)."
        }
        "means" => {
            "Means of download times; whiskers are one standard deviation of the downloads to each side."
        }
        "figure8" => {
            "The same for circuits with entries of their own and with one entry (Yang and Li 2015, Figure 8)."
        }
        "light" | "medium" | "heavy" => {
            "Web clients' times to the first and last byte, and bulk clients' downloads, as far as they are seen to be over (Yang and Li 2015, \
             Figure 6)."
        }
        _ => "",
    }
}

/// Draws what there is.
pub(super) fn draw(results: &Results, folder: &Folder) -> Result<Vec<PathBuf>> {
    let mut figures: Vec<(&str, Figure)> = Vec::new();
    for part in &results.parts {
        match part.kind {
            Kind::Downloads => figures.extend(downloads(results, part)),
            Kind::Contention(_) => figures.push((part.kind.name(), contention(results, part))),
            Kind::Equal | Kind::Stall => {}
        }
    }
    let drawn = figures
        .iter()
        .filter(|(_, figure)| !figure.panels.is_empty());
    drawn
        .map(|(name, figure)| folder.plot(name, figure))
        .collect()
}

fn figure(results: &Results, title: &str, panels: Vec<Panel>) -> Figure {
    let is_drawn = |panel: &Panel| !panel.curves.is_empty() || !panel.series.is_empty();
    let panels: Vec<Panel> = panels.into_iter().filter(is_drawn).collect();
    Figure {
        title: title.to_owned(),
        subtitle: format!(
            "{} relays, {} of them slow, {} repetitions, seed {}.",
            results.fast_relays + results.slow_relays,
            results.slow_relays,
            results.repetitions,
            results.seed
        ),
        columns: panels.len().clamp(1, 3),
        panels,
        footer: Vec::new(),
        whiskers: Some(Whiskers::deviation("downloads")),
        same_scale: false,
        legend: true,
    }
}

/// The distribution of times of these arms; an arm looks the same everywhere.
fn panel(title: &str, part: &OfPart, is_drawn: fn(&str) -> bool, name: &str, of: Of) -> Panel {
    let shares: Vec<f64> = (1..POINTS)
        .map(|number| f64::from(number) / f64::from(POINTS))
        .collect();
    let arms = part.samples.iter().enumerate();
    let arms = arms.filter(|(_, (arm, _))| is_drawn(&arm.name));
    let curves = arms.map(|(number, (arm, samples))| {
        let found = quantiles(&all(samples, name, of), &shares);
        let points = found.iter().zip(&shares);
        Curve {
            name: arm.json_key(),
            look: Look::number(number),
            points: points
                .filter_map(|(took, share)| Some((*took.as_ref()?, *share)))
                .collect(),
        }
    });
    let curves = curves.filter(|curve| !curve.points.is_empty()).collect();
    Panel::of_curves(title, "seconds", "share of streams", curves)
}

fn all(samples: &Samples, name: &str, of: Of) -> Vec<Time> {
    let streams = samples
        .values()
        .filter_map(|sample: &Sample| sample.streams.get(name));
    streams.flat_map(of).copied().collect()
}

fn downloads<'a>(results: &Results, part: &OfPart) -> Vec<(&'a str, Figure)> {
    let of_sizes = |is_drawn: fn(&str) -> bool| {
        let panels = results.megabytes.iter().map(|megabytes| {
            let title = format!("{megabytes} MB");
            panel(&title, part, is_drawn, &model(*megabytes), |streams| {
                &streams.last
            })
        });
        panels.collect::<Vec<Panel>>()
    };
    let distinct = of_sizes(|name| !name.ends_with("-common"));
    let entries = of_sizes(|name| {
        let several = name.strip_suffix("-common").unwrap_or(name);
        name == arms::STOR || ["mtor3", arms::MTOR5].contains(&several)
    });
    vec![
        ("figure5", figure(results, "Download times", distinct)),
        (
            "means",
            figure(
                results,
                "Means and deviations of download times",
                means(results, part),
            ),
        ),
        (
            "figure8",
            figure(results, "Entries of their own, and one entry", entries),
        ),
    ]
}

/// Bars of means for each size, a bar for each arm.
fn means(results: &Results, part: &OfPart) -> Vec<Panel> {
    let sizes = results.megabytes.iter().zip(0_u32..);
    let groups = sizes.map(|(megabytes, place)| Group {
        at: f64::from(place),
        label: format!("{megabytes} MB"),
    });
    let arms = part.samples.iter().enumerate();
    let series = arms.filter_map(|(number, (arm, samples))| {
        let of_arm = results.arms.get(&arm.json_key())?;
        let values = results.megabytes.iter().map(|megabytes| {
            let seconds = of_arm
                .sizes
                .get(&format!("{megabytes}_mb"))?
                .seconds
                .quantity();
            let (mid, deviation) = (seconds.mean(MEAN)?, seconds.mean(STDDEV)?);
            let downloads = all(samples, &model(*megabytes), |streams| &streams.last);
            Some(Value::mean(mid, Some(deviation), downloads.len()))
        });
        Some(Series {
            name: arm.json_key(),
            look: Look::number(number),
            values: values.collect(),
        })
    });
    vec![Panel::of_values(
        Drawn::Bars,
        "Mean, and one deviation to each side",
        "size",
        "seconds",
        groups.collect(),
        series.collect(),
    )]
}

fn contention(results: &Results, part: &OfPart) -> Figure {
    let all = |_: &str| true;
    let panels = vec![
        panel("Web: first byte", part, all, WEB, |streams| &streams.first),
        panel("Web: last byte", part, all, WEB, |streams| &streams.last),
        panel("Bulk: last byte", part, all, BULK, |streams| &streams.last),
    ];
    let title = format!("Web clients beside bulk clients, {} load", part.kind.name());
    figure(results, &title, panels)
}
