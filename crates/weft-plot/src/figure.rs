//! A figure on its sheet: title, legend, panels in rows, footnotes.

use anyhow::{Context as _, Result, ensure};

use crate::axis::{Axis, hides};
use crate::canvas::{Canvas, FAINT, Font, HPos, INK, VPos, svg};
use crate::legend::Legend;
use crate::model::{Figure, Kind, Panel, Scale};
use crate::panel::{Place, Rect};
use crate::style::Style;
use crate::text::wrap;

/// A figure that was drawn.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// The picture.
    pub svg: String,
    /// What a figure for a paper does not show: title, footnotes, which axes are logarithmic; empty for a screen.
    pub caption: String,
}

/// Sizes of what is on a figure, in units of the layout.
pub(crate) struct Sheet {
    pub(crate) style: Style,
    pub(crate) width: f64,
    pub(crate) margin: f64,
    /// The same of panels.
    edge: f64,
    /// Of panels.
    height: f64,
    /// Panels in a row at most.
    columns: usize,
    /// Letters of the legend.
    pub(crate) legend: f64,
    /// Letters of a panel's title.
    pub(crate) title: f64,
    /// Letters on bars.
    pub(crate) number: f64,
    /// Lines of series.
    pub(crate) stroke: f64,
    /// A marker's radius.
    pub(crate) marker: f64,
}

/// A panel needs so much for its axis and its numbers.
const NARROWEST: f64 = 300.0;
/// The most panels of a figure that is drawn.
const PANELS: usize = 400;
/// The most series and curves of a figure that is drawn.
const SERIES: usize = 5000;
/// The most letters of each text of a figure that is drawn.
const LETTERS: usize = 10_000;
/// From one line of footnotes to the next.
const FOOTER_LINE: f64 = 18.0;

impl Sheet {
    pub(crate) fn of(style: Style, columns: usize) -> Sheet {
        let width = style.width();
        match style {
            Style::Screen => Sheet {
                style,
                width,
                margin: 24.0,
                edge: 16.0,
                height: 300.0,
                columns,
                legend: 13.0,
                title: 14.0,
                number: 11.0,
                stroke: 2.0,
                marker: 5.0,
            },
            Style::Paper { .. } => {
                let columns = columns.clamp(1, ((width / NARROWEST) as usize).max(1));
                Sheet {
                    style,
                    width,
                    margin: 2.0,
                    edge: 0.0,
                    height: (width / columns as f64 * 0.62).clamp(170.0, 300.0),
                    columns,
                    legend: 12.0,
                    title: 12.0,
                    number: 10.0,
                    stroke: 1.5,
                    marker: 3.5,
                }
            }
        }
    }

    fn panel_width(&self) -> f64 {
        (self.width - 2.0 * self.edge) / self.columns as f64
    }
}

impl Figure {
    /// The figure as SVG, for a screen.
    ///
    /// # Errors
    ///
    /// As [`Figure::draw`].
    pub fn svg(&self) -> Result<String> {
        Ok(self.draw(Style::Screen)?.svg)
    }

    /// The figure as SVG, with what is left to its caption.
    ///
    /// # Errors
    ///
    /// It has no panels or too many, a panel has series of another length than its groups, a number is none, or a value has a
    /// whisker and nothing states what whiskers are.
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

    /// How high each row of panels is.
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

    fn check(&self) -> Result<()> {
        ensure!(!self.panels.is_empty(), "it has no panels");
        ensure!(
            self.panels.len() <= PANELS,
            "it has {} panels; {PANELS} at most are drawn",
            self.panels.len()
        );
        let drawn = self.panels.iter();
        let drawn: usize = drawn.map(|one| one.series.len() + one.curves.len()).sum();
        ensure!(
            drawn <= SERIES,
            "it has {drawn} series and curves; {SERIES} at most are drawn"
        );
        let texts = self.footer.iter().chain([&self.title, &self.subtitle]);
        check_texts(texts)?;
        for panel in &self.panels {
            panel.check()?;
        }
        let values = self.panels.iter().flat_map(|panel| &panel.series);
        let mut values = values.flat_map(|one| one.values.iter().flatten());
        ensure!(
            self.whiskers.is_some() || values.all(|value| value.whisker.is_none()),
            "values have whiskers, and nothing states what these are"
        );
        Ok(())
    }

    /// What whiskers are, if there are any to be seen.
    pub(crate) fn whisker_words(&self) -> Option<String> {
        let panels = self.panels.iter();
        let panels = panels.filter(|panel| matches!(panel.kind, Kind::Bars | Kind::Lines));
        let series = panels.flat_map(|panel| &panel.series);
        // Dashed lines have none.
        let series = series.filter(|one| !one.look.dashed);
        let values = series.flat_map(|one| one.values.iter().flatten());
        let counts = values.filter_map(|value| Some(value.whisker?.n));
        let (least, most) = counts.fold((usize::MAX, 0), |(least, most), n| {
            (least.min(n), most.max(n))
        });
        (most > 0).then(|| self.whiskers.as_ref().map(|what| what.words((least, most))))?
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

/// The axes of a panel; none where there is nothing to be drawn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scales {
    pub(crate) up: Option<Axis>,
    /// Of curves alone.
    pub(crate) across: Option<Axis>,
}

pub(crate) fn check_texts<'a>(texts: impl IntoIterator<Item = &'a String>) -> Result<()> {
    let mut texts = texts.into_iter();
    ensure!(
        texts.all(|text| text.len() <= LETTERS),
        "a text has more than {LETTERS} bytes"
    );
    Ok(())
}
