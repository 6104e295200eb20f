//! One set of axes with bars, lines or curves.

use anyhow::Result;

use crate::axis::{Axis, Scales, number_of, tick};
use crate::canvas::{Canvas, FAINT, Font, GRID, HPos, INK, Point, VPos};
use crate::model::{Group, Kind, Panel, Value};
use crate::place::{LETTER, LINE, Place, Rect};
use crate::sheet::Sheet;
use crate::text::{fit, widest, width_of, wrap};

/// The longest line that is read from below.
const TURNED: f64 = 96.0;
/// Room that a number on the horizontal axis needs.
const TICK: f64 = 60.0;

/// Axes that are drawn: where numbers are.
struct Plot {
    /// Between the axes.
    rect: Rect,
    up: Axis,
    across: Axis,
}

impl Plot {
    fn x(&self, number: f64) -> f64 {
        self.rect.left + (self.rect.right - self.rect.left) * self.across.part(number)
    }

    fn y(&self, number: f64) -> f64 {
        self.rect.bottom - (self.rect.bottom - self.rect.top) * self.up.part(number)
    }
}

/// Texts below the groups.
enum Labels {
    /// The lines of each.
    Upright(Vec<Vec<String>>),
    /// The lines of each, read from below.
    Turned(Vec<Vec<String>>),
}

impl Labels {
    fn height(&self) -> f64 {
        match self {
            Labels::Upright(labels) => {
                let most = labels.iter().map(Vec::len).max().unwrap_or(0);
                most.max(1) as f64 * LINE
            }
            Labels::Turned(labels) => widest(labels.iter().flatten(), LETTER) + 4.0,
        }
    }
}

impl Panel {
    fn y_lines(&self, sheet: &Sheet) -> Vec<String> {
        // About the height between the axes.
        let room = match sheet.style.is_paper() {
            true => 160.0,
            false => 220.0,
        };
        wrap(&self.y_label, LETTER, room)
    }

    fn y_ticks(&self, sheet: &Sheet, axis: Axis) -> Vec<f64> {
        axis.ticks(if sheet.style.is_paper() { 6 } else { 7 })
    }

    /// The room that the vertical axis needs for its numbers and its label.
    pub(crate) fn left(&self, sheet: &Sheet, scales: &Scales) -> f64 {
        let (Some(up), Kind::Bars | Kind::Lines | Kind::Curves) = (scales.up, self.kind) else {
            return 0.0;
        };
        let ticks = self.y_ticks(sheet, up);
        let ticks: Vec<String> = ticks.into_iter().map(tick).collect();
        let label = LINE * self.y_lines(sheet).len() as f64;
        let left = label + widest(&ticks, LETTER) + 12.0;
        match sheet.style.is_paper() {
            true => left,
            false => left.max(66.0),
        }
    }

    pub(crate) fn draw(&self, place: &Place<'_, '_>, scales: &Scales) -> Result<()> {
        if self.kind == Kind::Pies {
            return self.pies(place);
        }
        let Some(up) = scales.up else {
            return self.nothing(place);
        };
        let (across, labels) = match (self.kind, scales.across, self.groups.as_slice()) {
            (Kind::Curves, Some(across), _) => (across, None),
            (Kind::Bars | Kind::Lines, _, [first, .., last]) => {
                (self.of_groups(first.at, last.at), Some(()))
            }
            (Kind::Bars | Kind::Lines, _, [one]) => (self.of_groups(one.at, one.at), Some(())),
            _ => return self.nothing(place),
        };
        let Place { sheet, rect, .. } = place;
        let (left, right) = (rect.left + place.left, rect.right - 12.0);
        let labels = labels.map(|()| self.labels((right - left) * across.share(1.0)));
        let x_lines = wrap(&self.x_label, LETTER, right - left);
        let below =
            8.0 + labels.as_ref().map_or(LINE, Labels::height) + LINE * x_lines.len() as f64;
        let title = self.title_lines(place, left);
        let title = match title.len() {
            0 => 8.0,
            lines => 12.0 + sheet.title * 1.25 * lines as f64,
        };
        let plot = Plot {
            rect: Rect {
                left,
                top: rect.top + title,
                right,
                bottom: rect.bottom - below,
            },
            up,
            across,
        };
        self.frame(place, &plot)?;
        match &labels {
            Some(labels) => self.write_labels(place, &plot, labels)?,
            None => self.numbers_across(place, &plot)?,
        }
        let font = Font::new(LETTER, FAINT).at(HPos::Center, VPos::Top);
        let middle = f64::midpoint(left, right);
        for (number, text) in (1..).zip(x_lines.iter().rev()) {
            let y = rect.bottom + 1.0 - LINE * f64::from(number);
            place.canvas.text(text, font, (middle, y))?;
        }
        match self.kind {
            Kind::Bars => self.bars(place, &plot),
            Kind::Lines => self.lines(place, &plot),
            Kind::Curves | Kind::Pies => self.draw_curves(place, &plot),
        }
    }

    /// The horizontal axis of groups between these places.
    fn of_groups(&self, first: f64, last: f64) -> Axis {
        let beside = match self.kind {
            // A lone group need not be as wide as the panel.
            Kind::Bars => 0.5 + 0.5 / self.groups.len() as f64,
            _ => ((last - first) * 0.08).max(0.1),
        };
        Axis::between(first - beside, last + beside)
    }

    /// Its title, which begins above the vertical axis.
    fn title_lines(&self, place: &Place<'_, '_>, left: f64) -> Vec<String> {
        let (size, room) = (place.sheet.title, place.rect.right - left);
        match place.has_title {
            true => wrap(&self.title, size, room),
            false => Vec::new(),
        }
    }

    /// Title, grid, both axes, and the numbers and the label of the vertical one.
    fn frame(&self, place: &Place<'_, '_>, plot: &Plot) -> Result<()> {
        let Place { canvas, sheet, .. } = place;
        let Rect {
            left,
            top,
            right,
            bottom,
        } = plot.rect;
        let font = Font::new(sheet.title, INK).at(HPos::Left, VPos::Top);
        for (number, text) in (0..).zip(self.title_lines(place, left)) {
            let y = place.rect.top + 6.0 + sheet.title * 1.25 * f64::from(number);
            canvas.text(&text, font, (left, y))?;
        }
        let numbers = Font::new(LETTER, INK).at(HPos::Right, VPos::Center);
        for number in self.y_ticks(sheet, plot.up) {
            let y = plot.y(number);
            canvas.path(&[(left, y), (right, y)], GRID, 1.0)?;
            canvas.path(&[(left - 4.0, y), (left, y)], FAINT, 1.0)?;
            canvas.text(&tick(number), numbers, (left - 7.0, y))?;
        }
        for number in plot.up.minor() {
            let y = plot.y(number);
            canvas.path(&[(left - 2.0, y), (left, y)], FAINT, 1.0)?;
        }
        let corner = (left, bottom);
        canvas.path(&[(left, top), corner, (right, bottom)], FAINT, 1.0)?;
        let font = Font::new(LETTER, FAINT)
            .at(HPos::Center, VPos::Center)
            .turned();
        let middle = f64::midpoint(top, bottom);
        for (number, text) in (0..).zip(self.y_lines(sheet)) {
            let x = place.rect.left + LINE * (0.5 + f64::from(number));
            canvas.text(&text, font, (x, middle))?;
        }
        Ok(())
    }

    /// The numbers and the grid of the horizontal axis of curves.
    fn numbers_across(&self, place: &Place<'_, '_>, plot: &Plot) -> Result<()> {
        let canvas = place.canvas;
        let Rect {
            left,
            top,
            right,
            bottom,
        } = plot.rect;
        let font = Font::new(LETTER, INK).at(HPos::Center, VPos::Top);
        for number in plot.across.ticks(((right - left) / TICK) as usize) {
            let x = plot.x(number);
            canvas.path(&[(x, top), (x, bottom)], GRID, 1.0)?;
            canvas.path(&[(x, bottom), (x, bottom + 4.0)], FAINT, 1.0)?;
            canvas.text(&tick(number), font, (x, bottom + 7.0))?;
        }
        for number in plot.across.minor() {
            let x = plot.x(number);
            canvas.path(&[(x, bottom), (x, bottom + 2.0)], FAINT, 1.0)?;
        }
        canvas.path(&[(left, bottom), (right, bottom)], FAINT, 1.0)
    }

    /// Texts below groups that have the width `room` each.
    fn labels(&self, room: f64) -> Labels {
        let own = |group: &Group| group.label.lines().map(str::to_owned).collect();
        if self.kind != Kind::Bars {
            return Labels::Upright(self.groups.iter().map(own).collect());
        }
        let room = room - 4.0;
        let wrapped = self.groups.iter();
        let wrapped: Vec<Vec<String>> = wrapped
            .map(|group| wrap(&group.label, LETTER, room))
            .collect();
        match widest(wrapped.iter().flatten(), LETTER) <= room {
            true => Labels::Upright(wrapped),
            false => {
                let lines = ((room / LINE) as usize).max(1);
                let turned = |group: &Group| {
                    let whole = group.label.replace('\n', " ");
                    let mut text = wrap(&whole, LETTER, TURNED);
                    if text.len() > lines {
                        let rest = text.split_off(lines - 1).join(" ");
                        text.push(rest);
                    }
                    text.iter().map(|line| fit(line, LETTER, TURNED)).collect()
                };
                Labels::Turned(self.groups.iter().map(turned).collect())
            }
        }
    }

    fn write_labels(&self, place: &Place<'_, '_>, plot: &Plot, labels: &Labels) -> Result<()> {
        let canvas = place.canvas;
        let top = plot.rect.bottom + 7.0;
        match labels {
            Labels::Upright(labels) => {
                let font = Font::new(LETTER, INK).at(HPos::Center, VPos::Top);
                let mut end = f64::NEG_INFINITY;
                for (group, lines) in self.groups.iter().zip(labels) {
                    let x = plot.x(group.at);
                    let half = widest(lines, LETTER) / 2.0;
                    // One that another stands in the way of is left out.
                    if x - half < end {
                        continue;
                    }
                    end = x + half + 3.0;
                    for (number, text) in (0..).zip(lines) {
                        canvas.text(text, font, (x, top + LINE * f64::from(number)))?;
                    }
                }
            }
            Labels::Turned(labels) => {
                let font = Font::new(LETTER, INK)
                    .at(HPos::Right, VPos::Center)
                    .turned();
                for (group, lines) in self.groups.iter().zip(labels) {
                    let first = plot.x(group.at) - LINE * (lines.len() as f64 - 1.0) / 2.0;
                    for (number, text) in (0..).zip(lines) {
                        canvas.text(text, font, (first + LINE * f64::from(number), top))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn whisker(
        &self,
        canvas: &Canvas<'_>,
        plot: &Plot,
        value: &Value,
        x: f64,
        half: f64,
    ) -> Result<()> {
        let Some(whisker) = value.whisker else {
            return Ok(());
        };
        let ends = (plot.y(whisker.low), plot.y(whisker.high));
        canvas.whisker(x, ends, half, plot.up.has(whisker.low))
    }

    /// Bars side by side, with whiskers and numbers.
    fn bars(&self, place: &Place<'_, '_>, plot: &Plot) -> Result<()> {
        let Place { canvas, sheet, .. } = place;
        let count = self.series.len().max(1);
        let width = 0.84 / count as f64;
        let size = sheet.number;
        for (number, series) in self.series.iter().enumerate() {
            for (group, value) in self.groups.iter().zip(&series.values) {
                let Some(value) = value else { continue };
                let left = group.at - 0.42 + width * number as f64;
                let (x0, x1) = (plot.x(left), plot.x(left + width));
                let gap = ((x1 - x0) * 0.06).min(1.0);
                let (x0, x1) = (x0 + gap, x1 - gap);
                let (top, floor) = (plot.y(value.mid), plot.rect.bottom);
                canvas.rectangle([(x0, top), (x1, floor)], series.look.color())?;
                let middle = f64::midpoint(x0, x1);
                self.whisker(
                    canvas,
                    plot,
                    value,
                    middle,
                    ((x1 - x0) / 5.0).clamp(1.5, 5.0),
                )?;
                let above = plot.y(value.high()) - 3.0;
                let text = number_of(value.mid);
                // Numbers stand upright where they have no room side by side.
                if width_of(&text, size) <= x1 - x0 + 4.0 {
                    let font = Font::new(size, INK).at(HPos::Center, VPos::Bottom);
                    canvas.text(&text, font, (middle, above))?;
                } else if x1 - x0 >= size * 0.8 {
                    let font = Font::new(size, INK).at(HPos::Left, VPos::Center).turned();
                    canvas.text(&text, font, (middle, above))?;
                }
            }
        }
        Ok(())
    }

    /// Lines with markers and whiskers.
    fn lines(&self, place: &Place<'_, '_>, plot: &Plot) -> Result<()> {
        let Place { canvas, sheet, .. } = place;
        for series in &self.series {
            let values = self.groups.iter().zip(&series.values);
            let points: Vec<(Point, &Value)> = values
                .filter_map(|(group, value)| {
                    let value = value.as_ref()?;
                    Some(((plot.x(group.at), plot.y(value.mid)), value))
                })
                .collect();
            let places: Vec<Point> = points.iter().map(|(place, _)| *place).collect();
            canvas.line(&series.look, &places, sheet.stroke)?;
            if series.look.dashed {
                continue;
            }
            for (at, value) in points {
                self.whisker(canvas, plot, value, at.0, 4.0)?;
                canvas.mark(&series.look, at, sheet.marker)?;
            }
        }
        Ok(())
    }

    fn draw_curves(&self, place: &Place<'_, '_>, plot: &Plot) -> Result<()> {
        for curve in &self.curves {
            let points = curve.points.iter();
            let places: Vec<Point> = points.map(|(x, y)| (plot.x(*x), plot.y(*y))).collect();
            match curve.look.filled {
                true => place.canvas.area(&curve.look, &places)?,
                false => place
                    .canvas
                    .line(&curve.look, &places, place.sheet.stroke)?,
            }
        }
        Ok(())
    }
}
