//! Figures 9, 10, 13 and 14 of Pahl et al. 2023, of our own measurements.

use std::path::PathBuf;

use anyhow::Result;
use weft_plot::{Curve, Figure, Folder, Group, Kind, Look, Panel, Series, Value, Whiskers};

use super::results::{Aggregate, Client, Results};
use super::scenario::{Arm, Links, Traffic};
use crate::report::Values;

const ARMS: [Arm; 4] = [Arm::Tor, Arm::Weft, Arm::WeftPctls, Arm::WeftAuto];
const TRAFFIC: [Traffic; 4] = [Traffic::Bulk, Traffic::Audio, Traffic::Video, Traffic::Web];

/// Caption of a plot.
pub(super) fn caption(plot: &str) -> &'static str {
    match plot {
        "goodput" => "Goodput of users by scenario (compare Table 4 of Pahl et al. 2023).",
        "times" => "Time to the last byte of each stream (compare their Figures 13 and 14).",
        "round-trips" => {
            "Round trip of circuits at the beginning of each stream (compare their Figures 13 and 14)."
        }
        "builds" => "Build times of circuits (compare their Figure 10).",
        _ => "",
    }
}

/// Draws what there is.
pub(super) fn draw(results: &Results, folder: &Folder) -> Result<Vec<PathBuf>> {
    let figures = [
        ("goodput", goodput(results)),
        (
            "times",
            curves(results, "Time to the last byte of each stream", |client| {
                &client.ttlb_ms
            }),
        ),
        (
            "round-trips",
            curves(results, "Round trip of circuits", |client| &client.rtt_ms),
        ),
        ("builds", builds(results)),
    ];
    let drawn = figures
        .iter()
        .filter(|(_, figure)| !figure.panels.is_empty());
    drawn
        .map(|(name, figure)| folder.plot(name, figure))
        .collect()
}

fn look(arm: Arm) -> Look {
    Look::number(ARMS.iter().position(|one| *one == arm).unwrap_or(0))
}

fn control(on: bool) -> &'static str {
    match on {
        true => "with congestion control",
        false => "without congestion control",
    }
}

/// The scenarios of a kind of traffic that were measured.
fn scenarios(results: &Results, traffic: Traffic, on: bool) -> Vec<&Links> {
    let cells = results.cells.iter();
    let mut found: Vec<&Links> = cells
        .filter(|cell| cell.traffic == traffic && cell.congestion_control == on)
        .map(|cell| &cell.scenario)
        .collect();
    found.dedup();
    found
}

fn value(values: &Values) -> Option<Value> {
    let spread = values.spread()?;
    Some(Value::mean(spread.mean, spread.ci95, spread.n))
}

fn figure(title: &str, subtitle: &str, panels: Vec<Panel>) -> Figure {
    Figure {
        title: title.to_owned(),
        subtitle: subtitle.to_owned(),
        panels,
        columns: 2,
        footer: Vec::new(),
        whiskers: Some(Whiskers::ci95("users of all repetitions")),
        same_scale: false,
        legend: true,
    }
}

/// Bars of goodput: a panel for each kind of traffic, with and without congestion control.
fn goodput(results: &Results) -> Figure {
    let mut panels = Vec::new();
    for traffic in TRAFFIC {
        for on in [false, true] {
            let scenarios = scenarios(results, traffic, on);
            if scenarios.is_empty() {
                continue;
            }
            let of = |arm: Arm, scenario: &Links| {
                let is_it = |cell: &&Aggregate| {
                    (cell.arm, &cell.scenario) == (arm, scenario)
                        && (cell.traffic, cell.congestion_control) == (traffic, on)
                };
                value(&results.cells.iter().find(is_it)?.goodput_mbit)
            };
            let series = ARMS.iter().map(|&arm| Series {
                name: arm.in_words().to_owned(),
                look: look(arm),
                values: scenarios.iter().map(|one| of(arm, one)).collect(),
            });
            let groups = scenarios.iter().enumerate();
            let groups = groups.map(|(place, scenario)| Group {
                at: place as f64,
                label: scenario.name().to_owned(),
            });
            panels.push(Panel::of_values(
                Kind::Bars,
                &format!("{traffic}, {}", control(on)),
                "",
                "Mbit/s for each user",
                groups.collect(),
                series
                    .filter(|one| one.values.iter().any(Option::is_some))
                    .collect(),
            ));
        }
    }
    figure(
        "Goodput of users, by scenario",
        "Bars are means over users and repetitions.",
        panels,
    )
}

/// Distributions over streams: a panel for each cell.
fn curves(results: &Results, title: &str, values: fn(&Client) -> &Vec<f64>) -> Figure {
    let mut panels = Vec::new();
    for traffic in TRAFFIC {
        for on in [false, true] {
            for scenario in scenarios(results, traffic, on) {
                let of = |arm: Arm| -> Vec<f64> {
                    let runs = results.runs.iter().filter(|run| {
                        (run.arm, &run.scenario) == (arm, scenario)
                            && (run.traffic, run.congestion_control) == (traffic, on)
                    });
                    let clients = runs.flat_map(|run| run.measured());
                    clients.flat_map(values).map(|ms| ms * 1e-3).collect()
                };
                let curves: Vec<Curve> = ARMS
                    .iter()
                    .map(|&arm| Curve {
                        name: arm.in_words().to_owned(),
                        look: look(arm),
                        points: Curve::distribution(of(arm)),
                    })
                    .filter(|curve| !curve.points.is_empty())
                    .collect();
                if curves.is_empty() {
                    continue;
                }
                let title = format!("{scenario}, {traffic}, {}", control(on));
                panels.push(Panel::of_curves(
                    &title,
                    "seconds",
                    "share of streams",
                    curves,
                ));
            }
        }
    }
    figure(
        title,
        "All repetitions together. Further left is better.",
        panels,
    )
}

/// Distributions of build times: a panel for each network.
fn builds(results: &Results) -> Figure {
    let mut panels: Vec<Panel> = Vec::new();
    for (key, times) in &results.builds {
        let mut words = key.split(' ');
        let (Some(links), Some(name), Some(switch)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let Some(&arm) = ARMS.iter().find(|arm| arm.name() == name) else {
            continue;
        };
        let title = format!("links of {links}, {}", control(switch == "on"));
        let curve = Curve {
            name: arm.in_words().to_owned(),
            look: look(arm),
            points: Curve::distribution(times.iter().map(|ms| ms * 1e-3).collect()),
        };
        if curve.points.is_empty() {
            continue;
        }
        match panels.iter_mut().find(|panel| panel.title == title) {
            Some(panel) => panel.curves.push(curve),
            None => {
                let curves = vec![curve];
                panels.push(Panel::of_curves(
                    &title,
                    "seconds",
                    "share of circuits",
                    curves,
                ));
            }
        }
    }
    figure(
        "Build times of circuits",
        "Three hops, one circuit after another, without traffic.",
        panels,
    )
}
