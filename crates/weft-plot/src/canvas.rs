//! Drawing primitives of plots: text, lines, areas, markers, in units of the layout.

use std::cell::Cell;

use anyhow::{Context as _, Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::FontTransform;
use plotters::style::text_anchor::Pos;
pub(crate) use plotters::style::text_anchor::{HPos, VPos};

use crate::model::Look;
use crate::style::Style;
use crate::text::{FAMILY, of_xml};

/// A place: from the left, from the top.
pub(crate) type Point = (f64, f64);

/// Plotters' units in one of ours: Plotters counts in whole numbers, and lines must have no steps
/// in print.
const FINE: f64 = 10.0;
/// The most that is drawn, in points of lines: data of a folder may come from anywhere.
const MOST: usize = 20_000_000;
/// Points whose coordinates take as much text as an element has around its points.
const ELEMENT: usize = 10;
/// No place is further away, in units.
const FURTHEST: f64 = 1e6;

pub(crate) const INK: RGBColor = RGBColor(30, 30, 30);
pub(crate) const FAINT: RGBColor = RGBColor(100, 100, 100);
pub(crate) const GRID: RGBColor = RGBColor(225, 225, 225);
/// Of a filled area.
const PALE: f64 = 0.22;

/// Where a figure is drawn.
pub(crate) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
    /// Points that may still be drawn.
    room: Cell<usize>,
}

/// Size and color of a text, and the point of it that is at its place.
#[derive(Clone, Copy)]
pub(crate) struct Font {
    size: f64,
    color: RGBColor,
    at: (HPos, VPos),
    is_turned: bool,
}

impl Font {
    /// Text whose left end, half way up, is at the place.
    pub(crate) fn new(size: f64, color: RGBColor) -> Font {
        Font {
            size,
            color,
            at: (HPos::Left, VPos::Center),
            is_turned: false,
        }
    }

    pub(crate) fn at(self, across: HPos, up: VPos) -> Font {
        Font {
            at: (across, up),
            ..self
        }
    }

    /// Read from below to above.
    pub(crate) fn turned(self) -> Font {
        Font {
            is_turned: true,
            ..self
        }
    }
}

/// The SVG of a drawing on a canvas of this height.
pub(crate) fn svg(
    style: Style,
    height: f64,
    draw: impl FnOnce(&Canvas<'_>) -> Result<()>,
) -> Result<String> {
    let width = style.width();
    let size = (fine(width).unsigned_abs(), fine(height).unsigned_abs());
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let canvas = Canvas {
            area,
            room: Cell::new(MOST),
        };
        canvas.done(canvas.area.fill(&WHITE))?;
        draw(&canvas)?;
        canvas.done(canvas.area.present())?;
    }
    // Its size is that of the drawing; the picture's is another.
    let drawn = format!("width=\"{}\" height=\"{}\"", size.0, size.1);
    let shown = format!(
        "width=\"{}\" height=\"{}\"",
        style.length(width),
        style.length(height)
    );
    Ok(text.replacen(&drawn, &shown, 1))
}

fn fine(units: f64) -> i32 {
    (units.clamp(-FURTHEST, FURTHEST) * FINE).round() as i32
}

fn place((x, y): Point) -> (i32, i32) {
    (fine(x), fine(y))
}

impl Canvas<'_> {
    fn done<E: std::error::Error + Send + Sync>(
        &self,
        drawn: Result<(), DrawingAreaErrorKind<E>>,
    ) -> Result<()> {
        drawn.map_err(|error| anyhow!("drawing: {error}"))
    }

    /// Reserves room for an element with this number of points.
    fn take(&self, points: usize) -> Result<()> {
        let left = self.room.get().checked_sub(points + ELEMENT);
        self.room
            .set(left.context("it has more lines than a plot can show")?);
        Ok(())
    }

    pub(crate) fn text(&self, text: &str, font: Font, at: Point) -> Result<()> {
        self.take(text.len())?;
        let text = of_xml(text);
        // The backend writes font-size as this divided by 1.24.
        let style = (FontFamily::Name(FAMILY), font.size * FINE * 1.24).into_font();
        let style = match font.is_turned {
            true => style.transform(FontTransform::Rotate270),
            false => style,
        };
        let style = style.color(&font.color).pos(Pos::new(font.at.0, font.at.1));
        self.done(self.area.draw_text(&text, &style, place(at)))
    }

    pub(crate) fn path(&self, points: &[Point], color: RGBColor, width: f64) -> Result<()> {
        if points.len() < 2 {
            return Ok(());
        }
        self.take(points.len())?;
        let places: Vec<(i32, i32)> = points.iter().map(|point| place(*point)).collect();
        let style = color.stroke_width(fine(width).unsigned_abs());
        self.done(self.area.draw(&PathElement::new(places, style)))
    }

    pub(crate) fn rectangle(&self, corners: [Point; 2], color: RGBColor) -> Result<()> {
        self.take(corners.len())?;
        let corners = corners.map(place);
        self.done(self.area.draw(&Rectangle::new(corners, color.filled())))
    }

    pub(crate) fn polygon(&self, points: &[Point], color: RGBAColor) -> Result<()> {
        self.take(points.len())?;
        let places: Vec<(i32, i32)> = points.iter().map(|point| place(*point)).collect();
        self.done(self.area.draw(&Polygon::new(places, color.filled())))
    }

    /// The pale area of a look.
    pub(crate) fn area(&self, look: &Look, outline: &[Point]) -> Result<()> {
        self.polygon(outline, look.color().mix(PALE))
    }

    /// A line of a look, dashed or not.
    pub(crate) fn line(&self, look: &Look, points: &[Point], width: f64) -> Result<()> {
        if !look.dashed {
            return self.path(points, look.color(), width);
        }
        for pair in points.windows(2) {
            let [(x0, y0), (x1, y1)] = pair else { continue };
            let (dx, dy) = (x1 - x0, y1 - y0);
            let dashes = (dx.hypot(dy) / (5.0 * width)).round().clamp(1.0, 1e3);
            let at = |part: f64| (x0 + dx * part / dashes, y0 + dy * part / dashes);
            for dash in 0..dashes as u32 {
                let start = f64::from(dash);
                self.path(&[at(start), at(start + 0.6)], look.color(), width)?;
            }
        }
        Ok(())
    }

    /// The marker of a look; dashed ones have none.
    pub(crate) fn mark(&self, look: &Look, (x, y): Point, radius: f64) -> Result<()> {
        let color = look.color();
        if look.dashed {
            return Ok(());
        }
        let far = radius * 1.2;
        match look.marker() % 4 {
            0 => {
                self.take(1)?;
                let radius = fine(radius);
                let circle = Circle::new(place((x, y)), radius, color.filled());
                self.done(self.area.draw(&circle))
            }
            1 => self.rectangle([(x - radius, y - radius), (x + radius, y + radius)], color),
            2 => {
                let corners = [(x, y - far), (x + far, y + radius), (x - far, y + radius)];
                self.polygon(&corners, color.to_rgba())
            }
            _ => {
                let corners = [(x, y - far), (x + far, y), (x, y + far), (x - far, y)];
                self.polygon(&corners, color.to_rgba())
            }
        }
    }

    /// A whisker from `low` to `high`; the lower end has no cap where the whisker continues below
    /// the axis.
    pub(crate) fn whisker(
        &self,
        x: f64,
        (low, high): (f64, f64),
        half: f64,
        has_low: bool,
    ) -> Result<()> {
        self.path(&[(x, low), (x, high)], INK, 1.0)?;
        self.path(&[(x - half, high), (x + half, high)], INK, 1.0)?;
        if has_low {
            self.path(&[(x - half, low), (x + half, low)], INK, 1.0)?;
        }
        Ok(())
    }
}
