//! The plots of `weft lab hops`: throughput by hops, shares of the groups by role as bars and pies, and a flame graph of each
//! role.

use std::path::PathBuf;

use anyhow::Result;
use weft_plot::{
    Figure, FlameGraph, Folder, Group as Place, Kind, Look, Panel, Scale, Series, Value, Whiskers,
};

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
        let name = format!("flame-{}-{}", role.hops, role.role);
        let lines = folded.lines().collect();
        paths.push(folder.flame_graph(&name, &FlameGraph { title, lines })?);
    }
    Ok(paths)
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
                Some(Value::median(&role.mbit_range, 1.0))
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
            Some(Value::median(&role.mbit_range, 1.0))
        };
        let values: Vec<_> = settings.hops.iter().map(of).collect();
        if values.iter().any(Option::is_some) {
            series.push((format!("py-ipv8, {}", many(circuits, "circuit")), values));
        }
    }
    let series = series.into_iter().enumerate();
    let series = series.map(|(number, (name, values))| Series {
        name,
        look: Look::number(number),
        values,
    });
    let panel = Panel::of_values(
        Kind::Lines,
        "",
        "",
        "Mbit/s of payload",
        groups.collect(),
        series.collect(),
    )
    .scaled(Scale::Log);
    Figure {
        title: "Throughput by hops".to_owned(),
        subtitle: "All nodes on one machine; 0 hops is TCP without Tor, 1 hop is a relay between load generators; \
                   cc: congestion control."
            .to_owned(),
        panels: vec![panel],
        columns: 1,
        footer: footer(results),
        whiskers: Some(Whiskers::range("repetitions")),
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
                    .map(|one| Some(Value::exact(one.share(group) * 100.0)))
                    .collect(),
            });
        Panel::of_values(
            kind,
            &many(*hops, "hop"),
            "",
            "% of processor time",
            groups.collect(),
            series.collect(),
        )
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
        whiskers: None,
        same_scale: true,
        legend: true,
    }
}

fn footer(results: &Results) -> Vec<String> {
    let machine = &results.machine;
    vec![
        format!("{}; {}.", machine.cpu, machine.kernel),
        format!(
            "{}. Throughput is the median of {} repetitions.",
            results.versions.in_words(),
            results.settings.repetitions
        ),
    ]
}
