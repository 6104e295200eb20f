//! The plot of a soak: what the target holds, over time.

use std::path::PathBuf;

use anyhow::Result;
use weft_plot::{Curve, Figure, Folder, Look, Panel};

use super::results::{Sample, Soak};

/// One panel: its title, its unit, and what is read from each sample.
type Reading = (&'static str, &'static str, fn(&Sample) -> f64);

const READINGS: [Reading; 6] = [
    ("Resident memory", "MB", |one| one.rss_bytes as f64 * 1e-6),
    ("Memory that the ledger counts", "MB", |one| {
        one.ledger_bytes as f64 * 1e-6
    }),
    ("File descriptors", "open", |one| one.files as f64),
    ("Threads", "running", |one| one.threads as f64),
    ("Circuit halves", "alive", |one| one.halves as f64),
    ("Log", "kB so far", |one| one.log_bytes as f64 * 1e-3),
];

/// Draws the plot into the folder.
pub(super) fn draw(soak: &Soak, folder: &Folder) -> Result<Vec<PathBuf>> {
    let line = |samples: &[Sample], of: fn(&Sample) -> f64| -> Vec<(f64, f64)> {
        samples
            .iter()
            .map(|one| (one.at_s / 60.0, of(one)))
            .collect()
    };
    let panels = READINGS.iter().map(|(title, unit, of)| {
        let curves = vec![
            Curve {
                name: "at all times".to_owned(),
                look: Look::number(0),
                points: line(&soak.samples, *of),
            },
            Curve {
                name: "when everybody has left".to_owned(),
                look: Look::number(1),
                points: line(&soak.ebbs, *of),
            },
        ];
        Panel::of_curves(title, "minutes", unit, curves)
    });
    let figure = Figure {
        title: "A relay under churn and attacks".to_owned(),
        subtitle: format!(
            "{} attackers at a time, honest circuits come and go; in each cycle of {:.0} s all leave for {:.0} s.",
            soak.setting.attackers, soak.setting.cycle_s, soak.setting.ebb_s
        ),
        panels: panels.collect(),
        columns: 2,
        footer: vec![
            format!("{}, {}.", soak.machine.cpu, soak.machine.kernel),
            format!("{}.", soak.versions.in_words()),
        ],
        whiskers: None,
        same_scale: false,
        legend: true,
    };
    Ok(vec![folder.plot("soak", &figure)?])
}
