//! Plots of measurements: bars and lines with ranges, as SVG; PNG by librsvg's `rsvg-convert`.
//!
//! A [`Figure`] has panels. Most have groups along their horizontal axis and one value of each series
//! in each group, also as pies; some have curves over numbers instead. Colours are those of Okabe and Ito, which people
//! with any colour vision can distinguish, and series of lines have markers of their own besides.

mod flame;
mod folder;
mod panel;
mod pie;
mod shapes;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub use flame::flame_graph;
pub use folder::Folder;
use shapes::{font, line, mark, width_of};

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

impl Panel {
    /// Axes with these curves.
    pub fn of_curves(title: &str, x_label: &str, y_label: &str, curves: Vec<Curve>) -> Panel {
        Panel {
            title: title.to_owned(),
            x_label: x_label.to_owned(),
            y_label: y_label.to_owned(),
            kind: Kind::Curves,
            groups: Vec::new(),
            series: Vec::new(),
            curves,
        }
    }
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
