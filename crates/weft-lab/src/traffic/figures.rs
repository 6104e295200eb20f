//! Distributions of streams, a curve for each model.

use std::path::PathBuf;

use anyhow::Result;
use weft_model::traffic::Record;
use weft_plot::{Curve, Figure, Folder, Look, Panel};

use super::results::Results;

/// A number of a stream, in the unit of its axis.
type Number = fn(&Record) -> Option<f64>;

const PANELS: [(&str, &str, Number); 4] = [
    ("Time to the first byte", "seconds", |record| {
        record.time_to_first_byte().map(|time| time.as_secs_f64())
    }),
    ("Time to the last byte", "seconds", |record| {
        record.time_to_last_byte().map(|time| time.as_secs_f64())
    }),
    ("Goodput", "Mbit/s", |record| {
        record
            .is_complete()
            .then(|| record.goodput_mbit())
            .flatten()
    }),
    ("Round trip at the beginning", "seconds", |record| {
        record.round_trip().map(|time| time.as_secs_f64())
    }),
];

/// Draws what there is.
pub(super) fn draw(results: &Results, folder: &Folder) -> Result<Vec<PathBuf>> {
    let figure = figure(results);
    match figure.panels.is_empty() {
        true => Ok(Vec::new()),
        false => Ok(vec![folder.plot("streams", &figure)?]),
    }
}

fn figure(results: &Results) -> Figure {
    let curves = |number: Number| -> Vec<Curve> {
        let curves = results.models.iter().enumerate().map(|(place, model)| {
            let records = results.records.iter().flat_map(|(_, records)| records);
            let own = records.filter(|record| record.model == model.model);
            Curve {
                name: model.model.clone(),
                look: Look::number(place),
                points: Curve::distribution(own.filter_map(number).collect()),
            }
        });
        curves.filter(|curve| !curve.points.is_empty()).collect()
    };
    let panels = PANELS.iter().map(|&(title, unit, number)| {
        Panel::of_curves(title, unit, "share of streams", curves(number))
    });
    Figure {
        title: "Streams of users".to_owned(),
        subtitle: format!("Through {}. All repetitions together.", results.through),
        panels: panels.filter(|panel| !panel.curves.is_empty()).collect(),
        columns: 2,
        footer: Vec::new(),
        whiskers: None,
        same_scale: false,
        legend: true,
    }
}
