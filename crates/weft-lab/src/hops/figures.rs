//! The plots of `weft lab hops`: throughput by hops, shares of the groups by role, and a flame graph of each role.

use std::path::PathBuf;

use anyhow::Result;
use weft_plot::{Figure, Folder, Group as Place, Kind, Look, Panel, Series, Value, flame_graph};
use weft_stats::Summary;

use super::group::Group;
use super::profile::Folded;
use super::results::{Results, Role};

/// Draws them into the folder.
///
/// # Errors
///
/// A file cannot be written.
pub(super) fn draw(results: &Results, folder: &Folder) -> Result<Vec<PathBuf>> {
    let mut paths = vec![
        folder.plot("throughput", &throughput(results))?,
        folder.plot("shares", &shares(results))?,
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
            "{} of {} hops: processor time by function",
            role.role, role.hops
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

/// Bars of throughput, for each number of hops and of circuits.
fn throughput(results: &Results) -> Figure {
    let settings = &results.settings;
    let groups = settings.hops.iter().enumerate().map(|(at, hops)| Place {
        at: at as f64,
        label: format!("{hops} hops"),
    });
    let series = settings
        .circuits
        .iter()
        .enumerate()
        .map(|(number, circuits)| {
            let of = |hops: &usize| {
                let mut roles = results.roles.iter();
                let role = roles.find(|one| (one.hops, one.circuits) == (*hops, *circuits))?;
                Some(value(&role.mbit_range))
            };
            Series {
                name: format!("{circuits} circuits"),
                look: Look::number(number),
                values: settings.hops.iter().map(of).collect(),
            }
        });
    let panel = Panel {
        title: String::new(),
        x_label: String::new(),
        y_label: "Mbit/s of payload".to_owned(),
        kind: Kind::Bars,
        groups: groups.collect(),
        series: series.collect(),
        curves: Vec::new(),
    };
    Figure {
        title: "Throughput by hops".to_owned(),
        subtitle: "All nodes on one machine; 0 hops is TCP without Tor, 1 hop is a relay between load generators."
            .to_owned(),
        panels: vec![panel],
        columns: 1,
        footer: footer(results),
        same_scale: true,
        legend: true,
    }
}

/// Bars of the three groups, for each role; a panel for each number of hops.
fn shares(results: &Results) -> Figure {
    let most = results.settings.circuits.iter().max().copied();
    let panels = results.settings.hops.iter().map(|hops| {
        let roles: Vec<&Role> = results
            .roles
            .iter()
            .filter(|one| one.hops == *hops && Some(one.circuits) == most)
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
            title: format!("{hops} hops"),
            x_label: String::new(),
            y_label: "% of processor time".to_owned(),
            kind: Kind::Bars,
            groups: groups.collect(),
            series: series.collect(),
            curves: Vec::new(),
        }
    });
    Figure {
        title: "Processor time by group and role".to_owned(),
        subtitle: format!("{} circuits at once.", most.unwrap_or_default()),
        panels: panels.collect(),
        columns: 2,
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
            "{}. Bars of throughput are medians of {} repetitions, whiskers the least and the most.",
            results.versions.in_words(),
            results.settings.repetitions
        ),
    ]
}
