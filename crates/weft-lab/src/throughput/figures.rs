//! Figures 7, 8 and 9 of Engler and Goldberg 2021, of our own measurements.

use std::path::PathBuf;

use anyhow::Result;

use super::results::{Results, StreamTimes, TargetSummary};
use weft_plot::{Curve, Figure, Folder, Group, Kind, Look, Panel, Series, Value, Whiskers};

/// Draws the figures into the folder.
///
/// # Errors
///
/// A file cannot be written, or there is nothing to be drawn.
pub(super) fn draw(results: &Results, folder: &Folder) -> Result<Vec<PathBuf>> {
    let figures = [
        ("figure7", sustained(results)),
        (
            "figure8",
            times(
                results,
                "Time to the last byte of each stream (Engler and Goldberg 2021, Figure 8)",
                |times| times.last_byte_s,
            ),
        ),
        (
            "figure9",
            times(
                results,
                "Time to the first byte of each stream (Engler and Goldberg 2021, Figure 9)",
                |times| times.first_byte_s,
            ),
        ),
    ];
    let drawn = figures.iter();
    drawn
        .map(|(name, figure)| folder.plot(name, figure))
        .collect()
}

/// Figure 7: maximum sustained throughput by target.
fn sustained(results: &Results) -> Figure {
    let targets = &results.summaries;
    let value = |one: &TargetSummary| {
        let summary = one.sustained_bits_per_s?;
        Some(Value::median(&summary, 1e-6))
    };
    let groups = targets.iter().enumerate().map(|(place, one)| Group {
        at: place as f64,
        label: one.target.in_words().replacen(", ", "\n", 1),
    });
    let series = Series {
        name: "maximum sustained throughput".to_owned(),
        look: Look::number(0),
        values: targets.iter().map(value).collect(),
    };
    let panel = Panel::of_values(
        Kind::Bars,
        "",
        "",
        "Mbit/s that the target reads",
        groups.collect(),
        vec![series],
    );
    Figure {
        title: "Maximum sustained throughput of the target (Engler and Goldberg 2021, Figure 7)"
            .to_owned(),
        subtitle: format!("{}.", results.rule_in_words()),
        panels: vec![panel],
        columns: 1,
        footer: footer(results, "Bars are medians of the repetitions."),
        whiskers: Some(Whiskers::range("repetitions")),
        same_scale: true,
        legend: false,
    }
}

/// Figures 8 and 9: how many streams had their byte by then, over all repetitions.
fn times(results: &Results, title: &str, time: fn(&StreamTimes) -> f64) -> Figure {
    let curves = results.summaries.iter().map(|one| {
        let runs = results.of(one.target);
        let times = runs.flat_map(|run| run.streams.iter().map(time)).collect();
        Curve {
            name: one.target.in_words(),
            look: one.target.look(),
            points: Curve::distribution(times),
        }
    });
    let panel = Panel::of_curves(
        "",
        "seconds since all streams began",
        "share of all streams",
        curves.collect(),
    );
    Figure {
        title: title.to_owned(),
        subtitle: "The streams of all repetitions together, as the server saw them. Further left is better."
            .to_owned(),
        panels: vec![panel],
        columns: 1,
        footer: footer(results, ""),
        whiskers: None,
        same_scale: true,
        legend: true,
    }
}

fn footer(results: &Results, more: &str) -> Vec<String> {
    let machine = &results.machine;
    let versions = &results.versions;
    let known = |version: &Option<String>| version.clone().unwrap_or_default();
    let mut lines = vec![
        sentence(&results.size_in_words()),
        format!(
            "{} of {} runs through; all nodes on one machine: {}, {} processors, {}.",
            results
                .runs
                .iter()
                .filter(|run| run.failure.is_none())
                .count(),
            results.targets.len() * results.repetitions as usize,
            machine.cpu,
            machine.logical_cpus,
            machine.kernel,
        ),
        format!("{}. {}.", versions.in_words(), known(&versions.tor)),
        format!("{}.", results.bottleneck_in_words()),
    ];
    if !more.is_empty() {
        lines.push(more.to_owned());
    }
    lines
}

/// With a capital and a full stop.
fn sentence(text: &str) -> String {
    let mut rest = text.chars();
    let first = rest.next().map(|first| first.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), rest.as_str())
}
