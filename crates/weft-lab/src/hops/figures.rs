//! The plots of `weft lab hops`: throughput by hops, shares of the groups by role as bars and pies, and a flame graph of each
//! role.

use std::path::PathBuf;

use anyhow::Result;
use weft_plot::{Figure, Folder, Group as Place, Kind, Look, Panel, Series, Value, flame_graph};
use weft_stats::Summary;

use super::group::Group;
use super::profile::Folded;
use super::results::{Results, Role, many};

/// Draws them into the folder.
///
/// # Errors
///
/// A file cannot be written.
pub(super) fn draw(results: &Results, folder: &Folder) -> Result<Vec<PathBuf>> {
    let mut paths = vec![
        folder.plot("throughput", &throughput(results))?,
        folder.plot("shares", &shares(results, Kind::Bars))?,
        folder.plot("pies", &shares(results, Kind::Pies))?,
    ];
    let mut drawn: Vec<(usize, &str)> = Vec::new();
    for role in &results.roles {
        let this = (role.hops, role.role);
        if drawn.contains(&this) {
            continue;
        }
        drawn.push(this);
        let mut folded = Folded::default();
        let same = results
            .roles
            .iter()
            .filter(|one| (one.hops, one.role) == this);
        same.for_each(|one| folded.merge(&one.folded));
        if folded.samples() == 0 {
            continue;
        }
        let title = format!(
            "{} of {}: processor time by function",
            role.role,
            many(role.hops, "hop")
        );
        let lines: Vec<String> = folded.lines().collect();
        let name = format!("flame-{}-{}.svg", role.hops, role.role);
        folder.write(&name, &flame_graph(&title, &lines)?)?;
        paths.push(folder.path().join(name));
    }
    Ok(paths)
}

fn value(summary: &Summary) -> Value {
    Value {
        mid: summary.median,
        low: summary.min,
        high: summary.max,
    }
}

/// Bars of throughput, for each number of hops and of circuits, and the tunnels beside them.
fn throughput(results: &Results) -> Figure {
    let settings = &results.settings;
    let groups = settings.hops.iter().enumerate().map(|(at, hops)| Place {
        at: at as f64,
        label: many(*hops, "hop"),
    });
    let mut series = Vec::new();
    for &circuits in &settings.circuits {
        for &control in &settings.congestion_control {
            let of = |hops: &usize| {
                let mut roles = results.roles.iter();
                let role = roles.find(|one| {
                    (one.hops, one.circuits) == (*hops, circuits)
                        && one.congestion_control.is_none_or(|one| one == control)
                })?;
                Some(value(&role.mbit_range))
            };
            let with = if control { "with" } else { "without" };
            series.push((
                format!("Weft, {}, {with} cc", many(circuits, "circuit")),
                settings.hops.iter().map(of).collect::<Vec<_>>(),
            ));
        }
    }
    for &circuits in &settings.circuits {
        let of = |hops: &usize| {
            let mut roles = results.tunnels.iter().flat_map(|tunnels| &tunnels.roles);
            let role = roles.find(|one| (one.hops, one.circuits) == (*hops, circuits))?;
            Some(value(&role.mbit_range))
        };
        let values: Vec<_> = settings.hops.iter().map(of).collect();
        if values.iter().any(Option::is_some) {
            series.push((format!("py-ipv8, {}", many(circuits, "circuit")), values));
        }
    }
    let series = series.into_iter().enumerate();
    let panel = Panel {
        title: String::new(),
        x_label: String::new(),
        y_label: "Mbit/s of payload".to_owned(),
        kind: Kind::LogLines,
        groups: groups.collect(),
        series: series
            .map(|(number, (name, values))| Series {
                name,
                look: Look::number(number),
                values,
            })
            .collect(),
        curves: Vec::new(),
    };
    Figure {
        title: "Throughput by hops".to_owned(),
        subtitle: "All nodes on one machine; 0 hops is TCP without Tor, 1 hop is a relay between load generators; \
                   cc: congestion control."
            .to_owned(),
        panels: vec![panel],
        columns: 1,
        footer: footer(results),
        same_scale: true,
        legend: true,
    }
}

/// The three groups for each role, as bars or pies; a panel for each number of hops.
fn shares(results: &Results, kind: Kind) -> Figure {
    let most = results.settings.circuits.iter().max().copied();
    let control = results.settings.congestion_control.iter().max().copied();
    let panels = results.settings.hops.iter().map(|hops| {
        let roles: Vec<&Role> = results
            .roles
            .iter()
            .filter(|one| one.hops == *hops && Some(one.circuits) == most)
            .filter(|one| one.congestion_control.is_none() || one.congestion_control == control)
            .collect();
        let groups = roles.iter().enumerate().map(|(at, one)| Place {
            at: at as f64,
            label: one.role.to_owned(),
        });
        let series = Group::ALL
            .into_iter()
            .enumerate()
            .map(|(number, group)| Series {
                name: group.name().to_owned(),
                look: Look::number(number),
                values: roles
                    .iter()
                    .map(|one| {
                        let share = one.share(group) * 100.0;
                        Some(Value {
                            mid: share,
                            low: share,
                            high: share,
                        })
                    })
                    .collect(),
            });
        Panel {
            title: many(*hops, "hop"),
            x_label: String::new(),
            y_label: "% of processor time".to_owned(),
            kind,
            groups: groups.collect(),
            series: series.collect(),
            curves: Vec::new(),
        }
    });
    Figure {
        title: "Processor time by group and role".to_owned(),
        subtitle: format!(
            "{} at once{}.",
            many(most.unwrap_or_default(), "circuit"),
            match control {
                Some(true) => ", with congestion control where there are hops of a client's",
                _ => "",
            }
        ),
        panels: panels.collect(),
        columns: if kind == Kind::Pies { 1 } else { 2 },
        footer: footer(results),
        same_scale: true,
        legend: true,
    }
}

fn footer(results: &Results) -> Vec<String> {
    let machine = &results.machine;
    vec![
        format!("{}; {}.", machine.cpu, machine.kernel),
        format!(
            "{}. Throughput is the median of {} repetitions, whiskers the least and the most.",
            results.versions.in_words(),
            results.settings.repetitions
        ),
    ]
}
