//! Pies: the parts of a whole, one pie for each group of a panel.

use std::f64::consts::TAU;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::shapes::font;
use crate::{Area, Drawn, INK, LINE, Panel};

/// Pixels of a circle between two points of a slice's edge, about.
const STEP: f64 = 2.0;
/// The largest radius: pies of all panels are alike where there is room.
const RADIUS: f64 = 92.0;
/// Slices under this part of the whole have no number on them: it would not fit.
const LEAST_WITH_NUMBER: f64 = 0.06;

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
fn on_circle(center: (i32, i32), radius: f64, part: f64) -> (i32, i32) {
    let angle = part * TAU;
    (
        center.0 + (radius * angle.sin()).round() as i32,
        center.1 - (radius * angle.cos()).round() as i32,
    )
}

impl Panel {
    /// A pie for each group, of the middle values of the series.
    pub(super) fn pies(&self, root: &Area<'_>, area: &Area<'_>) -> Drawn {
        if self.ends().is_none() {
            return self.nothing(root, area);
        }
        let (x, y) = area.get_pixel_range();
        let style = font(14, INK).pos(Pos::new(HPos::Left, VPos::Top));
        root.draw_text(&self.title, &style, (x.start + 20, y.start + 6))?;
        let count = i32::try_from(self.groups.len()).unwrap_or(i32::MAX).max(1);
        let width = (x.end - x.start) / count;
        let lines = self.groups.iter().map(|group| group.label.lines().count());
        let below = 10 + LINE * i32::try_from(lines.max().unwrap_or(1)).unwrap_or(1);
        let (top, bottom) = (y.start + 34, y.end - below);
        let radius = (f64::from((width - 14).min(bottom - top).max(8)) / 2.0).min(RADIUS);
        for (number, group) in (0..).zip(&self.groups) {
            let center = (
                x.start + width * number + width / 2,
                i32::midpoint(top, bottom),
            );
            let values: Vec<f64> = self
                .series
                .iter()
                .map(|one| {
                    let value = one.values.get(number as usize).copied().flatten();
                    value.map_or(0.0, |value| value.mid)
                })
                .collect();
            for ((begin, end), series) in slices(&values).into_iter().zip(&self.series) {
                let part = end - begin;
                let steps = (part * TAU * radius / STEP).ceil().max(1.0) as i32;
                let edge = (0..=steps).map(|step| {
                    let at = begin + part * f64::from(step) / f64::from(steps);
                    on_circle(center, radius, at)
                });
                let outline: Vec<(i32, i32)> = std::iter::once(center).chain(edge).collect();
                root.draw(&Polygon::new(outline.clone(), series.look.color.filled()))?;
                root.draw(&PathElement::new(outline, WHITE.stroke_width(1)))?;
                if part >= LEAST_WITH_NUMBER {
                    let at = on_circle(center, radius * 0.64, begin + part / 2.0);
                    let style = font(12, WHITE).pos(Pos::new(HPos::Center, VPos::Center));
                    root.draw_text(&format!("{:.0} %", part * 100.0), &style, at)?;
                }
            }
            let style = font(12, INK).pos(Pos::new(HPos::Center, VPos::Top));
            for (line, text) in (0..).zip(group.label.lines()) {
                let at = (center.0, center.1 + radius as i32 + 8 + (LINE - 2) * line);
                root.draw_text(text, &style, at)?;
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
        let center = (100, 100);
        assert_eq!(on_circle(center, 50.0, 0.0), (100, 50));
        assert_eq!(on_circle(center, 50.0, 0.25), (150, 100));
        assert_eq!(on_circle(center, 50.0, 0.5), (100, 150));
    }
}
