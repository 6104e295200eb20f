//! Plots of measurements: bars and lines with ranges, as SVG; PNG by librsvg's `rsvg-convert`.
//!
//! A [`Figure`] has panels. Most have groups along their horizontal axis and one value of each series
//! in each group, also as pies; some have curves over numbers instead. Colours are those of Okabe and Ito, which people
//! with any colour vision can distinguish, and series of lines have markers of their own besides.

mod flame;
mod folder;
mod pie;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use plotters::coord::CoordTranslate;
use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use plotters::style::FontTransform;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub use flame::flame_graph;
pub use folder::Folder;

/// A median and its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// What is drawn as bar or point.
    pub mid: f64,
    /// One end of the whisker.
    pub low: f64,
    /// The other.
    pub high: f64,
}

/// How a series looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    color: RGBColor,
    marker: usize,
    dashed: bool,
    filled: bool,
}

/// Okabe and Ito's colours without yellow, which is too pale for lines, and black, which is text's.
const COLORS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
];
/// Of a filled area.
const PALE: f64 = 0.22;
const GREY: RGBColor = RGBColor(150, 150, 150);
const INK: RGBColor = RGBColor(30, 30, 30);
const FAINT: RGBColor = RGBColor(100, 100, 100);
const GRID: RGBColor = RGBColor(225, 225, 225);

impl Look {
    /// One of six distinct looks; a larger number repeats them.
    pub fn number(number: usize) -> Look {
        Look {
            color: COLORS[number % COLORS.len()],
            marker: number,
            dashed: false,
            filled: false,
        }
    }

    /// For what others are compared with.
    pub fn grey() -> Look {
        Look {
            color: GREY,
            marker: 3,
            dashed: false,
            filled: false,
        }
    }

    /// The same with a dashed line and no whiskers.
    pub fn dashed(self) -> Look {
        Look {
            dashed: true,
            ..self
        }
    }

    /// A pale area: a curve's points then are its outline, once around.
    pub fn filled(self) -> Look {
        Look {
            filled: true,
            ..self
        }
    }
}

/// One value in each group, where there is one.
#[derive(Clone, Debug)]
pub struct Series {
    /// What the legend calls it.
    pub name: String,
    /// How it looks. The same name should look the same in all panels.
    pub look: Look,
    /// As many as there are groups.
    pub values: Vec<Option<Value>>,
}

/// A line through many points, without markers.
#[derive(Clone, Debug)]
pub struct Curve {
    /// What the legend calls it.
    pub name: String,
    /// How it looks.
    pub look: Look,
    /// From left to right, all numbers at least zero; the outline of a [`Look::filled`] area.
    pub points: Vec<(f64, f64)>,
}

impl Curve {
    /// The most points of a distribution: more than a plot has pixels for.
    const MOST: usize = 600;

    /// The points of a cumulative distribution: which share of the values is no larger.
    pub fn distribution(mut values: Vec<f64>) -> Vec<(f64, f64)> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let Some(last) = values.len().checked_sub(1) else {
            return Vec::new();
        };
        let share = |place: usize| (place + 1) as f64 / values.len() as f64;
        let step = values.len().div_ceil(Curve::MOST);
        let chosen = values.iter().enumerate();
        let chosen = chosen.filter(|(place, _)| place % step == 0 || *place == last);
        let least = values.first().map(|least| (*least, 0.0));
        least
            .into_iter()
            .chain(chosen.map(|(place, value)| (*value, share(place))))
            .collect()
    }
}

/// A place on the horizontal axis.
#[derive(Clone, Debug)]
pub struct Group {
    /// Where it is. Groups of bars should be 1 apart.
    pub at: f64,
    /// What is written there; it may have several lines.
    pub label: String,
}

/// How values are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A bar for each series in each group, from zero.
    Bars,
    /// A line for each series through all groups, from zero.
    Lines,
    /// The same on a logarithmic axis.
    LogLines,
    /// Curves, both axes linear from zero.
    Curves,
    /// A pie for each group, its slices the series.
    Pies,
}

/// One set of axes.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// Under the horizontal axis.
    pub x_label: String,
    /// Beside the vertical axis, with the unit.
    pub y_label: String,
    /// How values are drawn.
    pub kind: Kind,
    /// Along the horizontal axis, in order.
    pub groups: Vec<Group>,
    /// What is drawn.
    pub series: Vec<Series>,
    /// What is drawn if the kind is [`Kind::Curves`]; groups and series then are not.
    pub curves: Vec<Curve>,
}

/// A whole plot.
#[derive(Clone, Debug)]
pub struct Figure {
    /// At the top.
    pub title: String,
    /// Under it: what is shown.
    pub subtitle: String,
    /// In rows.
    pub panels: Vec<Panel>,
    /// Panels in a row.
    pub columns: usize,
    /// Small, at the bottom, a line each: machine, versions, what whiskers are.
    pub footer: Vec<String>,
    /// All vertical axes end at the same number, so that panels can be compared.
    pub same_scale: bool,
    /// The legend shows the series of all panels; without it each panel must explain itself.
    pub legend: bool,
}

const WIDTH: u32 = 1000;
const PANEL_HEIGHT: u32 = 300;
const MARGIN: i32 = 24;
const LINE: i32 = 18;

/// A line of the legend.
struct Entry<'a> {
    name: &'a str,
    look: &'a Look,
    x: i32,
    y: i32,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// From values to pixels of the whole figure.
type Map = Box<dyn Fn(f64, f64) -> (i32, i32)>;

impl Figure {
    /// The figure as SVG.
    ///
    /// # Errors
    ///
    /// It has no panels, or a panel has series of another length than its groups.
    pub fn svg(&self) -> Result<String> {
        ensure!(!self.panels.is_empty(), "a figure without panels");
        for panel in &self.panels {
            let groups = panel.groups.len();
            ensure!(
                panel.series.iter().all(|one| one.values.len() == groups),
                "{}: a value for each group, or none, is wanted",
                panel.title
            );
        }
        let columns = self.columns.clamp(1, self.panels.len());
        let rows = self.panels.len().div_ceil(columns);
        let legend = self.legend();
        let top = 62 + legend.last().map_or(0, |entry| entry.y + 26);
        let bottom = 14 + LINE * i32::try_from(self.footer.len())?;
        let height = u32::try_from(top + bottom)? + PANEL_HEIGHT * u32::try_from(rows)?;
        let mut text = String::new();
        {
            let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
            self.draw(&root, &legend, (top, bottom), (rows, columns))
                .map_err(|error| anyhow!("drawing {}: {error}", self.title))?;
            root.present()
                .map_err(|error| anyhow!("drawing {}: {error}", self.title))?;
        }
        Ok(text)
    }

    /// The name and look of every series and curve once, and where in the legend it is: from the left,
    /// and from the legend's top.
    fn legend(&self) -> Vec<Entry<'_>> {
        let mut entries: Vec<Entry<'_>> = Vec::new();
        if !self.legend {
            return entries;
        }
        let (mut x, mut y) = (MARGIN, 0);
        let drawn = self.panels.iter().flat_map(|panel| {
            let series = panel.series.iter();
            let series = series.filter(|one| one.values.iter().any(Option::is_some));
            let curves = panel.curves.iter().filter(|one| !one.points.is_empty());
            series
                .map(|one| (&*one.name, &one.look))
                .chain(curves.map(|one| (&*one.name, &one.look)))
        });
        for (name, look) in drawn {
            if entries.iter().any(|other| other.name == name) {
                continue;
            }
            let width = 52 + width_of(name, 13);
            if x + width > WIDTH as i32 - MARGIN && x > MARGIN {
                (x, y) = (MARGIN, y + 22);
            }
            entries.push(Entry { name, look, x, y });
            x += width;
        }
        entries
    }

    fn draw(
        &self,
        root: &Area<'_>,
        legend: &[Entry<'_>],
        (top, bottom): (i32, i32),
        (rows, columns): (usize, usize),
    ) -> Drawn {
        root.fill(&WHITE)?;
        let bold = font(19, INK).pos(Pos::new(HPos::Left, VPos::Top));
        root.draw_text(&self.title, &bold, (MARGIN, 12))?;
        let plain = font(13, FAINT).pos(Pos::new(HPos::Left, VPos::Top));
        root.draw_text(&self.subtitle, &plain, (MARGIN, 38))?;
        let is_area = |name: &str| {
            let areas = [Kind::Bars, Kind::Pies];
            let of_areas = self
                .panels
                .iter()
                .filter(|panel| areas.contains(&panel.kind));
            let mut series = of_areas.flat_map(|panel| &panel.series);
            series.any(|one| one.name == name)
        };
        let is_curve = |name: &str| {
            let mut curves = self.panels.iter().flat_map(|panel| &panel.curves);
            curves.any(|one| one.name == name)
        };
        for Entry { name, look, x, y } in legend {
            let (x, y) = (*x, 62 + y + 10);
            if is_area(name) {
                let corners = [(x + 8, y - 6), (x + 22, y + 6)];
                root.draw(&Rectangle::new(corners, look.color.filled()))?;
            } else if look.filled {
                let corners = [(x, y - 7), (x + 28, y + 7)];
                root.draw(&Rectangle::new(corners, look.color.mix(PALE).filled()))?;
            } else {
                line(root, look, &[(x, y), (x + 28, y)])?;
                if !is_curve(name) {
                    mark(root, look, (x + 14, y))?;
                }
            }
            let left = font(13, INK).pos(Pos::new(HPos::Left, VPos::Center));
            root.draw_text(name, &left, (x + 34, y))?;
        }
        let (_, height) = root.dim_in_pixel();
        for (number, text) in self.footer.iter().enumerate() {
            let y = height as i32 - bottom + 6 + LINE * number as i32;
            let small = font(11, FAINT).pos(Pos::new(HPos::Left, VPos::Top));
            root.draw_text(text, &small, (MARGIN, y))?;
        }
        let middle = root.margin(top, bottom, 8, 16);
        let ends = self.panels.iter().filter_map(Panel::ends);
        let common = ends.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        for (panel, area) in self.panels.iter().zip(middle.split_evenly((rows, columns))) {
            let ends = match self.same_scale {
                true => panel.ends().and(common),
                false => panel.ends(),
            };
            panel.draw(root, &area, ends)?;
        }
        Ok(())
    }
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

impl Panel {
    /// The least number above zero and the most, if there is anything to be drawn.
    fn ends(&self) -> Option<(f64, f64)> {
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

    fn draw(&self, root: &Area<'_>, area: &Area<'_>, ends: Option<(f64, f64)>) -> Drawn {
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
    fn nothing(&self, root: &Area<'_>, area: &Area<'_>) -> Drawn {
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

/// Text of so many pixels.
fn font(size: i32, color: RGBColor) -> TextStyle<'static> {
    // The backend writes font-size as this divided by 1.24.
    let family = FontFamily::Name("DejaVu Sans, Verdana, sans-serif");
    (family, f64::from(size) * 1.24).into_font().color(&color)
}

/// About how wide a text is.
fn width_of(text: &str, size: i32) -> i32 {
    let count = i32::try_from(text.chars().count()).unwrap_or(i32::MAX);
    count.saturating_mul(size) * 61 / 100
}

/// The range of a value.
fn whisker(root: &Area<'_>, map: &Map, value: &Value, x: i32, half: i32) -> Drawn {
    if value.low >= value.high {
        return Ok(());
    }
    let (low, high) = (map(0.0, value.low).1, map(0.0, value.high).1);
    for path in [
        [(x, low), (x, high)],
        [(x - half, low), (x + half, low)],
        [(x - half, high), (x + half, high)],
    ] {
        root.draw(&PathElement::new(path.to_vec(), INK.stroke_width(1)))?;
    }
    Ok(())
}

fn line(root: &Area<'_>, look: &Look, points: &[(i32, i32)]) -> Drawn {
    let style = look.color.stroke_width(2);
    if !look.dashed {
        if points.len() > 1 {
            root.draw(&PathElement::new(points.to_vec(), style))?;
        }
        return Ok(());
    }
    for pair in points.windows(2) {
        let [(x0, y0), (x1, y1)] = pair else { continue };
        let (dx, dy) = (f64::from(x1 - x0), f64::from(y1 - y0));
        let dashes = ((dx.hypot(dy) / 10.0).round() as i32).max(1);
        let at = |part: f64| {
            (
                x0 + (dx * part).round() as i32,
                y0 + (dy * part).round() as i32,
            )
        };
        for dash in 0..dashes {
            let start = f64::from(dash) / f64::from(dashes);
            let end = start + 0.6 / f64::from(dashes);
            root.draw(&PathElement::new(vec![at(start), at(end)], style))?;
        }
    }
    Ok(())
}

fn mark(root: &Area<'_>, look: &Look, at: (i32, i32)) -> Drawn {
    let style = look.color.filled();
    if look.dashed {
        return Ok(());
    }
    let (x, y) = at;
    match look.marker % 4 {
        0 => root.draw(&Circle::new(at, 5, style))?,
        1 => root.draw(&Rectangle::new([(x - 5, y - 5), (x + 5, y + 5)], style))?,
        2 => root.draw(&TriangleMarker::new(at, 6, style))?,
        _ => {
            let corners = vec![(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)];
            root.draw(&Polygon::new(corners, style))?;
        }
    }
    Ok(())
}

/// A number beside an axis.
fn tick(number: f64) -> String {
    // Steps of an axis are 1, 2 or 5 of something, so nothing is lost.
    let rounded = (number * 1e6).round() / 1e6;
    rounded.to_string()
}

/// A number on a bar.
fn number_of(number: f64) -> String {
    match number.abs() {
        n if n >= 100.0 => format!("{number:.0}"),
        n if n >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// Makes a PNG of an SVG file, by `rsvg-convert`, 1.5 times its size in pixels.
///
/// # Errors
///
/// The program is missing, or refuses.
pub fn png(svg: &Path, png: &Path) -> Result<()> {
    let (zoom, output) = (OsStr::new("--zoom=1.5"), OsStr::new("--output"));
    let run = Command::new("rsvg-convert")
        .args([zoom, output, png.as_os_str(), svg.as_os_str()])
        .output()
        .context("running rsvg-convert (Debian and Ubuntu: apt-get install librsvg2-bin)")?;
    ensure!(
        run.status.success(),
        "rsvg-convert makes no PNG of {}: {}",
        svg.display(),
        String::from_utf8_lossy(&run.stderr).trim()
    );
    Ok(())
}
