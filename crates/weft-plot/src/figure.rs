//! A figure on its sheet: title, legend, panels in rows, footnotes.

use anyhow::{Context as _, Result};

use crate::axis::{Axis, Scales, hides};
use crate::canvas::{Canvas, FAINT, Font, HPos, INK, VPos, svg};
use crate::legend::Legend;
use crate::model::{Figure, Kind, Panel, Scale};
use crate::place::{Place, Rect};
use crate::sheet::Sheet;
use crate::style::Style;
use crate::text::wrap;

/// A figure that was drawn.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// The picture.
    pub svg: String,
    /// Text that a figure for a paper does not show: title, footnotes, names of logarithmic axes;
    /// empty for a screen.
    pub caption: String,
}

/// From one line of footnotes to the next.
const FOOTER_LINE: f64 = 18.0;

impl Figure {
    /// The figure as SVG, for a screen.
    ///
    /// # Errors
    ///
    /// As [`Figure::draw`].
    pub fn svg(&self) -> Result<String> {
        Ok(self.draw(Style::Screen)?.svg)
    }

    /// The figure as SVG, with the text for its caption.
    ///
    /// # Errors
    ///
    /// It has no panels or too many, a panel has series of another length than its groups, a number
    /// is not finite, or a value has a whisker and the meaning of whiskers is not given.
    pub fn draw(&self, style: Style) -> Result<Drawn> {
        self.check()
            .with_context(|| format!("the figure {:?} cannot be drawn", self.title))?;
        let columns = self.columns.clamp(1, self.panels.len());
        let sheet = Sheet::of(style, columns);
        let legend = Legend::of(self, &sheet);
        let room = sheet.width - 2.0 * sheet.margin;
        let mut head = Vec::new();
        let mut foot = Vec::new();
        let mut top = 2.0;
        if !style.is_paper() {
            top = 12.0;
            for (text, size, line) in [(&self.title, 19.0, 26.0), (&self.subtitle, 13.0, 20.0)] {
                for line_of_text in wrap(text, size, room) {
                    head.push((line_of_text, size, top));
                    top += line;
                }
            }
            top += 6.0;
            foot.extend(self.footer.iter().flat_map(|text| wrap(text, 11.0, room)));
        }
        let panels_top = top + legend.height + 4.0;
        let heights = self.rows(&sheet);
        let panels_bottom = panels_top + heights.iter().sum::<f64>();
        let bottom = match style.is_paper() {
            true => 2.0,
            false => 14.0 + FOOTER_LINE * foot.len() as f64,
        };
        let scales = self.scales(style);
        let svg = svg(style, panels_bottom + bottom, |canvas| {
            for (text, size, y) in &head {
                let color = if *size > 13.0 { INK } else { FAINT };
                let font = Font::new(*size, color).at(HPos::Left, VPos::Top);
                canvas.text(text, font, (sheet.margin, *y))?;
            }
            legend.draw(canvas, top)?;
            self.panels_in(canvas, &sheet, (panels_top, &heights), &scales)?;
            for (number, text) in (0..).zip(&foot) {
                let y = panels_bottom + 6.0 + FOOTER_LINE * f64::from(number);
                let font = Font::new(11.0, FAINT).at(HPos::Left, VPos::Top);
                canvas.text(text, font, (sheet.margin, y))?;
            }
            Ok(())
        })?;
        Ok(Drawn {
            svg,
            caption: match style.is_paper() {
                true => self.caption(&scales),
                false => String::new(),
            },
        })
    }

    /// Height of each row of panels.
    fn rows(&self, sheet: &Sheet) -> Vec<f64> {
        let height = |panel: &Panel| match panel.kind {
            Kind::Pies => panel.height_of_pies(sheet.panel_width(), sheet.height),
            Kind::Bars | Kind::Lines | Kind::Curves => sheet.height,
        };
        let rows = self.panels.chunks(sheet.columns);
        rows.map(|row| row.iter().map(height).fold(0.0, f64::max))
            .collect()
    }

    fn panels_in(
        &self,
        canvas: &Canvas<'_>,
        sheet: &Sheet,
        (top, heights): (f64, &[f64]),
        scales: &[Scales],
    ) -> Result<()> {
        let width = sheet.panel_width();
        let lefts = self.panels.iter().zip(scales);
        let left = lefts
            .map(|(panel, scales)| panel.left(sheet, scales))
            .fold(0.0, f64::max);
        let mut y = top;
        let mut bottom = top;
        let mut heights = heights.iter();
        for (number, (panel, scales)) in self.panels.iter().zip(scales).enumerate() {
            let column = number % sheet.columns;
            if column == 0 {
                y = bottom;
                bottom += heights.next().copied().unwrap_or_default();
            }
            let x = sheet.edge + width * column as f64;
            let place = Place {
                canvas,
                sheet,
                rect: Rect {
                    left: x,
                    top: y,
                    right: x + width,
                    bottom,
                },
                left,
                // The caption of a paper has the title of a lone panel.
                has_title: !panel.title.is_empty()
                    && (self.panels.len() > 1 || !sheet.style.is_paper()),
            };
            panel.draw(&place, scales)?;
        }
        Ok(())
    }

    /// The axes of each panel.
    fn scales(&self, style: Style) -> Vec<Scales> {
        let all = || self.panels.iter().flat_map(Panel::heights);
        let common: Vec<f64> = all().collect();
        let of = |panel: &Panel| {
            let own: Vec<f64> = panel.heights().collect();
            if own.is_empty() {
                return Scales::default();
            }
            let heights = if self.same_scale { &common } else { &own };
            let is_log = |numbers: &[f64]| match (panel.scale, panel.kind) {
                (Scale::Linear | Scale::Log, _) => false,
                _ if !style.is_paper() => false,
                // Where a bar would be, its number is a zero.
                (Scale::ByData, Kind::Bars) => {
                    let numbers = numbers.iter().copied();
                    hides(&numbers.filter(|number| *number != 0.0).collect::<Vec<_>>())
                }
                (Scale::ByData, _) => hides(numbers),
            };
            let above = match panel.kind {
                Kind::Bars | Kind::Lines => 1.14,
                Kind::Curves | Kind::Pies => 1.06,
            };
            let across: Vec<f64> = panel.widths().collect();
            Scales {
                up: axis(heights, is_log(heights) || panel.scale == Scale::Log, above),
                across: axis(&across, is_log(&across), 1.04),
            }
        };
        self.panels.iter().map(of).collect()
    }

    /// All that is not drawn in a paper.
    fn caption(&self, scales: &[Scales]) -> String {
        let mut lines = vec![self.title.clone(), self.subtitle.clone()];
        if let [panel] = self.panels.as_slice() {
            lines.push(panel.title.clone());
        }
        lines.extend(self.whisker_words().map(|words| {
            let mut rest = words.chars();
            let first = rest.next().map(|first| first.to_ascii_uppercase());
            format!("{}.", first.into_iter().chain(rest).collect::<String>())
        }));
        let many = self.panels.len() > 1;
        for (panel, scales) in self.panels.iter().zip(scales) {
            let is_log = |axis: Option<Axis>| axis.is_some_and(Axis::is_log);
            let which = match (is_log(scales.across), is_log(scales.up)) {
                (true, true) => "Both axes are logarithmic",
                (true, false) => "The horizontal axis is logarithmic",
                (false, true) => "The vertical axis is logarithmic",
                (false, false) => continue,
            };
            lines.push(match many {
                true => format!("{}: {}.", panel.title, which.to_lowercase()),
                false => format!("{which}."),
            });
        }
        lines.extend(self.footer.iter().cloned());
        lines.retain(|line| !line.is_empty());
        lines.dedup();
        lines.join("\n") + "\n"
    }
}

/// An axis for these numbers, if there is anything above zero.
fn axis(numbers: &[f64], is_log: bool, above: f64) -> Option<Axis> {
    let most = numbers.iter().copied().fold(0.0, f64::max);
    let positive = numbers.iter().copied().filter(|number| *number > 0.0);
    let least = positive.fold(most, f64::min);
    (most > 0.0).then(|| match is_log {
        true => Axis::log(least, most),
        false => Axis::linear(most, above),
    })
}
