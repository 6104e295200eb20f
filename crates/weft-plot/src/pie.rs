//! Pies: the parts of a whole, one pie for each group of a panel.

use std::f64::consts::{PI, TAU};

use anyhow::Result;
use plotters::style::{Color as _, WHITE};

use crate::canvas::{Font, HPos, INK, Point, VPos};
use crate::model::Panel;
use crate::place::{LETTER, LINE, Place, Rect};
use crate::text::{fit, width_of, wrap};

/// Units of a circle between two points of a slice's edge, about.
const STEP: f64 = 1.0;
/// The largest radius: pies of all panels are alike where there is room.
const RADIUS: f64 = 92.0;
/// Where numbers are, in parts of the radius.
const NUMBERS: f64 = 0.64;

/// From where to where a slice goes, as parts of the circle, clockwise from its top.
fn slices(values: &[f64]) -> Vec<(f64, f64)> {
    let parts = values.iter().map(|value| {
        if value.is_finite() {
            value.max(0.0)
        } else {
            0.0
        }
    });
    let whole: f64 = parts.clone().sum();
    if whole <= 0.0 {
        return Vec::new();
    }
    let mut end = 0.0;
    parts
        .map(|part| {
            let begin = end;
            end += part / whole;
            (begin, end)
        })
        .collect()
}

/// The point of a circle at this part of it.
fn on_circle(center: Point, radius: f64, part: f64) -> Point {
    let angle = part * TAU;
    (
        center.0 + radius * angle.sin(),
        center.1 - radius * angle.cos(),
    )
}

/// Pies side by side.
struct Pies {
    /// Of each with its space.
    width: f64,
    /// The lines under each.
    labels: Vec<Vec<String>>,
    radius: f64,
}

/// The room for the title.
const HEAD: f64 = 30.0;

/// The room for the texts under pies.
fn below(labels: &[Vec<String>]) -> f64 {
    10.0 + LINE * labels.iter().map(Vec::len).max().unwrap_or(0) as f64
}

impl Panel {
    fn laid_out(&self, width: f64, height: f64) -> Pies {
        let width = width / self.groups.len().max(1) as f64;
        let labels = self.groups.iter();
        let labels: Vec<Vec<String>> = labels
            .map(|group| wrap(&group.label, LETTER, width - 4.0))
            .collect();
        let room = (width - 14.0).min(height - HEAD - below(&labels));
        Pies {
            width,
            labels,
            radius: (room.max(8.0) / 2.0).min(RADIUS),
        }
    }

    /// Height that pies need: less where there are many in a row.
    pub(crate) fn height_of_pies(&self, width: f64, height: f64) -> f64 {
        let pies = self.laid_out(width, height);
        (HEAD + 2.0 * pies.radius + below(&pies.labels) + 6.0).min(height)
    }

    /// A pie for each group, of the middle values of the series.
    pub(crate) fn pies(&self, place: &Place<'_, '_>) -> Result<()> {
        if !self.heights().any(|height| height > 0.0) {
            return self.nothing(place);
        }
        let Place { canvas, sheet, .. } = place;
        let Rect {
            left,
            top,
            right,
            bottom,
        } = place.rect;
        if place.has_title {
            let font = Font::new(sheet.title, INK).at(HPos::Left, VPos::Top);
            canvas.text(&self.title, font, (left + 8.0, top + 6.0))?;
        }
        let Pies {
            width,
            labels,
            radius,
        } = self.laid_out(right - left, bottom - top);
        let bottom = bottom - below(&labels);
        let top = top + HEAD;
        for (number, lines) in labels.iter().enumerate() {
            let center = (
                left + width * (number as f64 + 0.5),
                f64::midpoint(top, bottom),
            );
            let values: Vec<f64> = self
                .series
                .iter()
                .map(|one| {
                    let value = one.values.get(number).copied().flatten();
                    value.map_or(0.0, |value| value.mid)
                })
                .collect();
            for ((begin, end), series) in slices(&values).into_iter().zip(&self.series) {
                let part = end - begin;
                let steps = (part * TAU * radius / STEP).ceil().max(1.0);
                let edge = (0..=steps as u32).map(|step| {
                    let at = begin + part * f64::from(step) / steps;
                    on_circle(center, radius, at)
                });
                let outline: Vec<Point> = std::iter::once(center).chain(edge).collect();
                canvas.polygon(&outline, series.look.color().to_rgba())?;
                canvas.path(&outline, WHITE, 1.0)?;
                let text = format!("{:.0} %", part * 100.0);
                // Between the middle of the number and the edge of the pie, and from one edge of the slice to the other.
                let across = 2.0 * NUMBERS * (part.min(0.5) * PI).sin();
                let room = radius * across.min(2.0 * (1.0 - NUMBERS));
                let mut sizes = [LETTER, sheet.number].into_iter();
                let size = sizes.find(|size| width_of(&text, *size) <= room);
                if let Some(size) = size {
                    let at = on_circle(center, radius * NUMBERS, begin + part / 2.0);
                    let font = Font::new(size, WHITE).at(HPos::Center, VPos::Center);
                    canvas.text(&text, font, at)?;
                }
            }
            let font = Font::new(LETTER, INK).at(HPos::Center, VPos::Top);
            for (line, text) in (0..).zip(lines) {
                let at = (center.0, center.1 + radius + 8.0 + LINE * f64::from(line));
                canvas.text(&fit(text, LETTER, width), font, at)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_make_a_whole() {
        assert_eq!(
            slices(&[1.0, 0.0, 3.0]),
            [(0.0, 0.25), (0.25, 0.25), (0.25, 1.0)]
        );
        assert_eq!(
            slices(&[f64::NAN, -1.0, 2.0]),
            [(0.0, 0.0), (0.0, 0.0), (0.0, 1.0)]
        );
        assert!(slices(&[0.0, 0.0]).is_empty());
        assert!(slices(&[]).is_empty());
    }

    #[test]
    fn a_pie_begins_at_the_top_and_goes_clockwise() {
        let center = (100.0, 100.0);
        let at = |part| {
            let (x, y) = on_circle(center, 50.0, part);
            (x.round(), y.round())
        };
        assert_eq!(at(0.0), (100.0, 50.0));
        assert_eq!(at(0.25), (150.0, 100.0));
        assert_eq!(at(0.5), (100.0, 150.0));
    }
}
