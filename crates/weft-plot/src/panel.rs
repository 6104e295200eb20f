//! One set of axes with what is drawn in it: bars, lines, curves.

use std::ops::Range;

use plotters::coord::CoordTranslate;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use plotters::style::FontTransform;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::shapes::{Map, font, line, mark, number_of, tick, whisker, width_of};
use crate::{Area, Drawn, FAINT, GRID, INK, Kind, LINE, PALE, Panel, Value};

impl Panel {
    /// The least number above zero and the most, if there is anything to be drawn.
    pub(crate) fn ends(&self) -> Option<(f64, f64)> {
        let values = || {
            self.series
                .iter()
                .flat_map(|one| one.values.iter().flatten())
        };
        let most = values()
            .map(|value| value.high.max(value.mid))
            .fold(0.0, f64::max);
        let least = values()
            .flat_map(|value| [value.low, value.mid])
            .filter(|number| *number > 0.0)
            .fold(most, f64::min);
        (most > 0.0).then_some((least, most))
    }

    pub(crate) fn draw(&self, root: &Area<'_>, area: &Area<'_>, ends: Option<(f64, f64)>) -> Drawn {
        match self.kind {
            Kind::Curves => return self.curves(root, area),
            Kind::Pies => return self.pies(root, area),
            Kind::Bars | Kind::Lines | Kind::LogLines => {}
        }
        let (first, last, (least, most)) = match (self.groups.first(), self.groups.last(), ends) {
            (Some(first), Some(last), Some(ends)) => (first.at, last.at, ends),
            _ => {
                return self.nothing(root, area);
            }
        };
        let beside = match self.kind {
            // A lone group need not be as wide as the panel.
            Kind::Bars => 0.5 + 0.5 / self.groups.len() as f64,
            _ => ((last - first) * 0.08).max(0.1),
        };
        let across = first - beside..last + beside;
        let lines = self.groups.iter().map(|group| group.label.lines().count());
        let below = 14
            + LINE * lines.max().unwrap_or(1) as i32
            + if self.x_label.is_empty() { 0 } else { LINE };
        let mut builder = ChartBuilder::on(area);
        builder
            .margin_right(12)
            .margin_top(30)
            .set_label_area_size(LabelAreaPosition::Left, 66)
            .set_label_area_size(LabelAreaPosition::Bottom, below);
        let map = match self.kind {
            Kind::LogLines => {
                let (low, high) = (least.log10().floor(), most.log10().ceil());
                let up = 10f64.powf(low)..10f64.powf(high.max(low + 1.0));
                let ends = (across.clone(), up.clone());
                let chart = &mut builder.build_cartesian_2d(across, up.log_scale())?;
                self.axes(chart, ends, f64::log10)?
            }
            Kind::Bars | Kind::Lines | Kind::Curves | Kind::Pies => {
                let up = 0.0..most * 1.14;
                let ends = (across.clone(), up.clone());
                let chart = &mut builder.build_cartesian_2d(across, up)?;
                self.axes(chart, ends, |number| number)?
            }
        };
        let ((left, _), (right, _)) = (map(first - beside, most), map(last + beside, most));
        let (_, y) = area.get_pixel_range();
        let floor = y.end - below;
        let style = font(14, INK).pos(Pos::new(HPos::Left, VPos::Top));
        root.draw_text(&self.title, &style, (left, y.start + 6))?;
        for group in &self.groups {
            let (x, _) = map(group.at, most);
            for (number, text) in group.label.lines().enumerate() {
                let style = font(12, INK).pos(Pos::new(HPos::Center, VPos::Top));
                let y = floor + 7 + (LINE - 2) * number as i32;
                root.draw_text(text, &style, (x, y))?;
            }
        }
        let style = font(12, FAINT).pos(Pos::new(HPos::Center, VPos::Bottom));
        let at = (i32::midpoint(left, right), floor + below - 4);
        root.draw_text(&self.x_label, &style, at)?;
        match self.kind {
            Kind::Bars => self.bars(root, &map, floor),
            Kind::Lines | Kind::LogLines | Kind::Curves | Kind::Pies => self.lines(root, &map),
        }
    }

    /// Draws the panel's title and "not measured".
    pub(crate) fn nothing(&self, root: &Area<'_>, area: &Area<'_>) -> Drawn {
        let (x, y) = area.get_pixel_range();
        let at = (i32::midpoint(x.start, x.end), i32::midpoint(y.start, y.end));
        let style = font(13, FAINT).pos(Pos::new(HPos::Center, VPos::Center));
        root.draw_text(&format!("{}: not measured", self.title), &style, at)?;
        Ok(())
    }

    /// Curves with an axis of numbers under them.
    fn curves(&self, root: &Area<'_>, area: &Area<'_>) -> Drawn {
        let points = || self.curves.iter().flat_map(|one| &one.points);
        let (right, top) = points().fold((0.0, 0.0), |(right, top): (f64, f64), (x, y)| {
            (right.max(*x), top.max(*y))
        });
        if right <= 0.0 || top <= 0.0 {
            return self.nothing(root, area);
        }
        let mut builder = ChartBuilder::on(area);
        builder
            .margin_right(12)
            .margin_top(30)
            .set_label_area_size(LabelAreaPosition::Left, 66)
            .set_label_area_size(LabelAreaPosition::Bottom, 46);
        let mut chart = builder.build_cartesian_2d(0.0..right * 1.04, 0.0..top * 1.06)?;
        chart
            .configure_mesh()
            .x_labels(11)
            .y_labels(7)
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(FAINT)
            .x_label_style(font(12, INK))
            .y_label_style(font(12, INK))
            .axis_desc_style(font(12, FAINT))
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .x_label_formatter(&|number| tick(*number))
            .y_label_formatter(&|number| tick(*number))
            .draw()?;
        let spec = chart.as_coord_spec();
        for curve in &self.curves {
            let places: Vec<(i32, i32)> = curve
                .points
                .iter()
                .map(|point| spec.translate(point))
                .collect();
            match curve.look.filled {
                true => root.draw(&Polygon::new(places, curve.look.color.mix(PALE).filled()))?,
                false => line(root, &curve.look, &places)?,
            }
        }
        let (_, y) = area.get_pixel_range();
        let (left, _) = spec.translate(&(0.0, 0.0));
        let style = font(14, INK).pos(Pos::new(HPos::Left, VPos::Top));
        root.draw_text(&self.title, &style, (left, y.start + 6))?;
        Ok(())
    }

    /// Draws the vertical axis and its grid. The result maps values as the chart does, whose ends
    /// these are and whose vertical axis is linear in `scale`.
    fn axes<Y>(
        &self,
        chart: &mut ChartContext<
            '_,
            SVGBackend<'_>,
            Cartesian2d<plotters::coord::types::RangedCoordf64, Y>,
        >,
        (across, up): (Range<f64>, Range<f64>),
        scale: fn(f64) -> f64,
    ) -> Result<Map, Box<dyn std::error::Error>>
    where
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .y_labels(7)
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(FAINT)
            .y_label_style(font(12, INK))
            .axis_desc_style(font(12, FAINT))
            .y_desc(&self.y_label)
            .y_label_formatter(&|number| tick(*number))
            .draw()?;
        let spec = chart.as_coord_spec();
        let (left, bottom) = spec.translate(&(across.start, up.start));
        let (right, top) = spec.translate(&(across.end, up.end));
        let between =
            |low: i32, high: i32, part: f64| low + (f64::from(high - low) * part).round() as i32;
        Ok(Box::new(move |x, y| {
            let across = (x - across.start) / (across.end - across.start);
            // What is below the axis is drawn on it.
            let up = (scale(y.max(up.start)) - scale(up.start)) / (scale(up.end) - scale(up.start));
            (between(left, right, across), between(bottom, top, up))
        }))
    }

    /// Bars side by side, with whiskers and numbers.
    fn bars(&self, root: &Area<'_>, map: &Map, floor: i32) -> Drawn {
        let count = self.series.len().max(1);
        let width = 0.84 / count as f64;
        for (number, series) in self.series.iter().enumerate() {
            for (group, value) in self.groups.iter().zip(&series.values) {
                let Some(value) = value else { continue };
                let left = group.at - 0.42 + width * number as f64;
                let ((x0, top), (x1, _)) = (map(left, value.mid), map(left + width, value.mid));
                let (x0, x1) = (x0 + 1, (x1 - 1).max(x0 + 2));
                let bar = Rectangle::new(
                    [(x0, top.min(floor)), (x1, floor)],
                    series.look.color.filled(),
                );
                root.draw(&bar)?;
                let middle = i32::midpoint(x0, x1);
                whisker(root, map, value, middle, ((x1 - x0) / 5).clamp(2, 5))?;
                let above = map(left, value.high.max(value.mid)).1 - 3;
                let text = number_of(value.mid);
                // Numbers stand upright where they have no room side by side.
                let upright = font(11, INK).pos(Pos::new(HPos::Center, VPos::Bottom));
                let turned = font(11, INK)
                    .transform(FontTransform::Rotate270)
                    .pos(Pos::new(HPos::Left, VPos::Center));
                match width_of(&text, 11) <= x1 - x0 + 4 {
                    true => root.draw_text(&text, &upright, (middle, above))?,
                    false => root.draw_text(&text, &turned, (middle, above))?,
                }
            }
        }
        Ok(())
    }

    /// Lines with markers and whiskers.
    fn lines(&self, root: &Area<'_>, map: &Map) -> Drawn {
        for series in &self.series {
            let values = self.groups.iter().zip(&series.values);
            let points: Vec<((i32, i32), &Value)> = values
                .filter_map(|(group, value)| {
                    let value = value.as_ref()?;
                    Some((map(group.at, value.mid), value))
                })
                .collect();
            let places: Vec<(i32, i32)> = points.iter().map(|(place, _)| *place).collect();
            line(root, &series.look, &places)?;
            if series.look.dashed {
                continue;
            }
            for (place, value) in points {
                whisker(root, map, value, place.0, 4)?;
                mark(root, &series.look, place)?;
            }
        }
        Ok(())
    }
}
