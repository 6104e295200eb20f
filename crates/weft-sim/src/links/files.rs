//! Results as files: CSV for other programs, a plot of circuits per link.

use std::fmt::Write as _;

use weft_plot::{Figure, Group, Kind, Look, Panel, Series, Value};

use super::many::DocumentResult;
use super::report::Report;

/// One line for each repetition on each document.
pub fn runs_csv(documents: &[DocumentResult]) -> String {
    let mut text = "valid_after,relays,repetition,links,shared_links,shared_percent,\
                    guard_middle_percent,middle_exit_percent\n"
        .to_owned();
    for one in documents {
        for (repetition, sample) in (1..).zip(&one.samples) {
            let _ = writeln!(
                text,
                "{},{},{repetition},{},{},{},{},{}",
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

/// How many links have so many circuits.
pub fn distribution_csv(report: &Report) -> String {
    let mut text = "circuits,links,percent_mean,percent_stddev\n".to_owned();
    for one in &report.distribution {
        let _ = writeln!(
            text,
            "{},{},{},{}",
            one.circuits, one.links, one.percent.mean, one.percent.stddev
        );
    }
    text
}

/// Circuits per link, as Figure 7 of Pahl et al. 2023 has them, on a logarithmic axis.
pub fn distribution(report: &Report) -> Figure {
    let shown = || report.distribution.iter().take(12);
    Figure {
        title: "How many circuits a link has".to_owned(),
        subtitle: format!(
            "{} circuits, {}, {}, exits for {}: {:.2} % of {} links have two or more",
            report.circuits,
            report.setting.kind,
            report.setting.direction,
            report.setting.exits,
            report.shared_percent_mean,
            report.links
        ),
        panels: vec![Panel {
            title: String::new(),
            x_label: "circuits on one link".to_owned(),
            y_label: "of all links, %".to_owned(),
            kind: Kind::LogLines,
            groups: shown()
                .map(|one| Group {
                    at: one.circuits as f64,
                    label: one.circuits.to_string(),
                })
                .collect(),
            series: vec![Series {
                name: format!("model {}", report.setting.model),
                look: Look::number(0),
                values: shown()
                    .map(|one| {
                        let Some(low) = positive(one.percent.mean - one.percent.stddev) else {
                            // A logarithmic axis has no whisker down to nothing.
                            return positive(one.percent.mean).map(|mid| Value {
                                mid,
                                low: mid,
                                high: one.percent.mean + one.percent.stddev,
                            });
                        };
                        Some(Value {
                            mid: one.percent.mean,
                            low,
                            high: one.percent.mean + one.percent.stddev,
                        })
                    })
                    .collect(),
            }],
            curves: Vec::new(),
        }],
        columns: 1,
        footer: vec![format!(
            "{} documents, {} repetitions each, seed {}; whiskers are the standard deviation.",
            report.documents.len(),
            report.setting.repetitions,
            report.setting.seed
        )],
        same_scale: false,
        legend: false,
    }
}

fn positive(number: f64) -> Option<f64> {
    (number > 0.0).then_some(number)
}
