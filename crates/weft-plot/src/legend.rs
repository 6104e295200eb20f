//! The legend: the name and look of every series and curve once, and the meaning of whiskers.

use anyhow::Result;

use crate::canvas::{Canvas, Font, HPos, INK, VPos};
use crate::model::{Figure, Kind, Look};
use crate::sheet::Sheet;
use crate::text::{fit, widest, wrap};

/// Sign before a name in the legend.
#[derive(Clone, Copy)]
enum Sign<'a> {
    Box(&'a Look),
    Area(&'a Look),
    Line(&'a Look),
    Marked(&'a Look),
    Whisker,
}

/// An entry, and where it is: from the left, and from the legend's top.
struct Entry<'a> {
    sign: Sign<'a>,
    lines: Vec<String>,
    x: f64,
    y: f64,
}

/// Of a sign and the space after it.
const SIGN: f64 = 34.0;
/// Between two entries in a row.
const BETWEEN: f64 = 18.0;

/// A legend, laid out.
pub(crate) struct Legend<'a> {
    entries: Vec<Entry<'a>>,
    sheet: &'a Sheet,
    /// Without entries 0.
    pub(crate) height: f64,
}

impl<'a> Legend<'a> {
    pub(crate) fn of(figure: &'a Figure, sheet: &'a Sheet) -> Legend<'a> {
        let mut signs: Vec<(String, Sign<'a>)> = Vec::new();
        if figure.legend {
            for (name, sign) in figure.panels.iter().flat_map(signs_of) {
                if !signs.iter().any(|(other, _)| other == name) {
                    signs.push((name.to_owned(), sign));
                }
            }
        }
        signs.extend(figure.whisker_words().map(|words| (words, Sign::Whisker)));
        let size = sheet.legend;
        let (left, right) = (sheet.margin, sheet.width - sheet.margin);
        let line = size * 1.25;
        let (mut x, mut y, mut below) = (left, 0.0, 0.0);
        let mut entries = Vec::new();
        for (name, sign) in signs {
            let room = right - left - SIGN;
            let lines = wrap(&name, size, room);
            let lines: Vec<String> = lines.iter().map(|one| fit(one, size, room)).collect();
            let width = SIGN + widest(&lines, size);
            if x > left && x + width > right {
                (x, y) = (left, below);
            }
            let height = line * lines.len().max(1) as f64 + size * 0.4;
            below = f64::max(below, y + height);
            entries.push(Entry { sign, lines, x, y });
            x += width + BETWEEN;
        }
        Legend {
            entries,
            sheet,
            height: below,
        }
    }

    pub(crate) fn draw(&self, canvas: &Canvas<'_>, top: f64) -> Result<()> {
        let (size, stroke) = (self.sheet.legend, self.sheet.stroke);
        for Entry { sign, lines, x, y } in &self.entries {
            let (x, y) = (*x, top + y + size * 0.8);
            let line = [(x, y), (x + 28.0, y)];
            match sign {
                Sign::Box(look) => {
                    canvas.rectangle([(x + 8.0, y - 6.0), (x + 22.0, y + 6.0)], look.color())?;
                }
                Sign::Area(look) => {
                    let (right, low, high) = (x + 28.0, y - 6.0, y + 6.0);
                    let corners = [(x, low), (right, low), (right, high), (x, high)];
                    canvas.area(look, &corners)?;
                }
                Sign::Line(look) => canvas.line(look, &line, stroke)?,
                Sign::Marked(look) => {
                    canvas.line(look, &line, stroke)?;
                    canvas.mark(look, (x + 14.0, y), self.sheet.marker)?;
                }
                Sign::Whisker => canvas.whisker(x + 14.0, (y + 6.0, y - 6.0), 4.0, true)?,
            }
            let font = Font::new(size, INK).at(HPos::Left, VPos::Center);
            for (number, text) in (0..).zip(lines) {
                let at = (x + SIGN, y + f64::from(number) * size * 1.25);
                canvas.text(text, font, at)?;
            }
        }
        Ok(())
    }
}

/// The names and looks of a panel's series and curves.
fn signs_of(panel: &crate::model::Panel) -> impl Iterator<Item = (&str, Sign<'_>)> {
    let series = panel.series.iter();
    let series = series.filter(|one| one.values.iter().any(Option::is_some));
    let series = series.map(|one| {
        let sign = match panel.kind {
            Kind::Bars | Kind::Pies => Sign::Box(&one.look),
            Kind::Lines | Kind::Curves => Sign::Marked(&one.look),
        };
        (&*one.name, sign)
    });
    let curves = panel.curves.iter().filter(|one| !one.points.is_empty());
    let curves = curves.map(|one| {
        let sign = match one.look.filled {
            true => Sign::Area(&one.look),
            false => Sign::Line(&one.look),
        };
        (&*one.name, sign)
    });
    series.chain(curves)
}
