//! Results as files: CSV for other programs, a plot of circuits per link.

use std::fmt::Write as _;

use weft_plot::{Figure, Group, Kind, Look, Panel, Scale, Series};
use weft_stats::Spread;

use super::many::DocumentResult;
use super::report::{OfNumber, Report};
use super::sample::Sample;
use crate::csv::{quoted, spread};
use crate::over::whiskers;

/// One line for each repetition on each document.
pub fn runs_csv(documents: &[DocumentResult]) -> String {
    let mut text = "document,valid_after,relays,repetition,links,shared_links,shared_percent,\
                    guard_middle_percent,middle_exit_percent\n"
        .to_owned();
    for one in documents {
        for (repetition, sample) in (1..).zip(&one.samples) {
            let _ = writeln!(
                text,
                "{},{},{},{repetition},{},{},{},{},{}",
                quoted(&one.name),
                one.valid_after,
                one.relays,
                sample.all.links,
                sample.all.shared,
                sample.all.percent_shared(),
                sample.guard_middle.percent_shared(),
                sample.middle_exit.percent_shared()
            );
        }
    }
    text
}

/// One line for each document, over its repetitions.
pub fn documents_csv(report: &Report) -> String {
    let mut text =
        "document,valid_after,relays,guards,exits,repetitions,links,shared_links".to_owned();
    for of in ["shared", "guard_middle", "middle_exit"] {
        let _ = write!(
            text,
            ",{of}_percent_mean,{of}_percent_stddev,{of}_percent_ci95"
        );
    }
    text.push('\n');
    for one in &report.documents {
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{},{},{},{}",
            quoted(&one.name),
            one.valid_after,
            one.relays,
            one.guards,
            one.exits,
            one.shared_percent.n,
            one.links,
            one.shared_links,
            spread(&one.shared_percent),
            spread(&one.guard_middle_percent),
            spread(&one.middle_exit_percent)
        );
    }
    text
}

/// CSV of links by the number of circuits on them, for each document, over its repetitions.
pub fn distribution_csv(report: &Report, documents: &[DocumentResult]) -> String {
    let mut text = "document,circuits,links,percent_mean,percent_stddev,percent_ci95\n".to_owned();
    for document in documents {
        for OfNumber { circuits, .. } in &report.distribution {
            let over = |number: &dyn Fn(&Sample) -> f64| {
                Spread::of(&document.samples.iter().map(number).collect::<Vec<f64>>())
            };
            let links = over(&|one| one.links_with(*circuits));
            let percent = over(&|one| one.percent_with(*circuits));
            if let (Some(links), Some(percent)) = (links, percent) {
                let _ = writeln!(
                    text,
                    "{},{circuits},{},{}",
                    quoted(&document.name),
                    links.mean,
                    spread(&percent)
                );
            }
        }
    }
    text
}

/// Circuits per link, as Figure 7 of Pahl et al. 2023 has them, on a logarithmic axis.
pub fn distribution(report: &Report) -> Figure {
    let shown = || report.distribution.iter().take(12);
    let groups = shown().map(|one| Group {
        at: one.circuits as f64,
        label: one.circuits.to_string(),
    });
    let series = Series {
        name: format!("model {}", report.setting.model),
        look: Look::number(0),
        values: shown()
            // A logarithmic axis has no zero.
            .map(|one| (one.percent.spread.mean > 0.0).then(|| one.percent.value()))
            .collect(),
    };
    let shared = &report.shared_percent;
    let [least, most] = shared.range;
    let share = match shared.documents {
        1 => format!("{:.2} % of {} links", shared.spread.mean, report.links),
        _ => format!("of each document {least:.2} to {most:.2} % of the links"),
    };
    Figure {
        title: "How many circuits a link has".to_owned(),
        subtitle: format!(
            "{} circuits, {}, {}, exits for {}: {share} have two or more",
            report.circuits, report.setting.kind, report.setting.direction, report.setting.exits,
        ),
        panels: vec![
            Panel::of_values(
                Kind::Lines,
                "",
                "circuits on one link",
                "of all links, %",
                groups.collect(),
                vec![series],
            )
            .scaled(Scale::Log),
        ],
        columns: 1,
        footer: vec![format!(
            "Documents: {}; repetitions of each: {}; seed {}.",
            report.documents.len(),
            report.setting.repetitions,
            report.setting.seed
        )],
        whiskers: Some(whiskers(report.documents.len())),
        same_scale: false,
        legend: false,
    }
}
