//! The plot: throughput and latency of honest circuits without and with each attack.

use std::path::PathBuf;

use anyhow::Result;
use weft_plot::{Figure, Folder, Group, Kind, Look, Panel, Scale, Series, Value, Whiskers};

use super::results::{AttackSummary, Results};
use weft_stats::Summary;

/// Attacks in one panel.
const IN_A_PANEL: usize = 9;

/// Draws the plot into the folder.
pub(super) fn draw(results: &Results, folder: &Folder) -> Result<Vec<PathBuf>> {
    let figures = [
        (
            "throughput",
            figure(
                results,
                "Honest throughput without and under each attack",
                ("Mbit/s", Kind::Bars, Scale::ByData),
                |one| [&one.without_bits_per_s, &one.with_bits_per_s],
                1e-6,
            ),
        ),
        (
            "latency",
            figure(
                results,
                "99th percentile of honest cells' latency without and under each attack",
                ("ms", Kind::Lines, Scale::Log),
                |one| [&one.without_p99_ms, &one.with_p99_ms],
                1.0,
            ),
        ),
    ];
    let drawn = figures.iter();
    drawn
        .map(|(name, figure)| folder.plot(name, figure))
        .collect()
}

fn figure(
    results: &Results,
    title: &str,
    (unit, kind, scale): (&str, Kind, Scale),
    numbers: fn(&AttackSummary) -> [&Summary; 2],
    factor: f64,
) -> Figure {
    let panels = results.summaries.chunks(IN_A_PANEL).map(|attacks| {
        let groups = attacks.iter().enumerate().map(|(place, one)| Group {
            at: place as f64,
            label: one.attack.replace('-', "\n"),
        });
        let of = |number: usize| {
            let value = |one: &AttackSummary| {
                let summary = *numbers(one).get(number)?;
                Some(Value::median(summary, factor))
            };
            attacks.iter().map(value).collect()
        };
        let series = ["without", "under attack"].into_iter().enumerate();
        let series = series.map(|(number, name)| Series {
            name: name.to_owned(),
            look: Look::number(number),
            values: of(number),
        });
        Panel::of_values(kind, "", "", unit, groups.collect(), series.collect()).scaled(scale)
    });
    Figure {
        title: title.to_owned(),
        subtitle: format!(
            "{} Mbit/s of honest payload, at most {} Mbit/s of attack.",
            results.setting.honest_mbits, results.setting.mbits
        ),
        panels: panels.collect(),
        columns: 1,
        footer: vec![
            format!("{}, {}.", results.machine.cpu, results.machine.kernel),
            format!("{}.", results.versions.in_words()),
            "Medians of the repetitions.".to_owned(),
        ],
        whiskers: Some(Whiskers::range("repetitions")),
        same_scale: true,
        legend: true,
    }
}
