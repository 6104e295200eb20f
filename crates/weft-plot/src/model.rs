//! Parts of a figure.

use plotters::style::RGBColor;
use serde::{Deserialize, Serialize};
use weft_stats::Summary;

/// A number, with its range where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// Value that is drawn as bar or point.
    pub(crate) mid: f64,
    pub(crate) whisker: Option<Whisker>,
}

/// A range over several measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Whisker {
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Measurements.
    pub(crate) n: usize,
}

impl Value {
    /// One that has no range: it is computed, from a paper, or measured once.
    pub fn exact(mid: f64) -> Value {
        Value { mid, whisker: None }
    }

    /// A mean of `n` measurements, with half the width of its range; one measurement has none.
    pub fn mean(mid: f64, half: Option<f64>, n: usize) -> Value {
        match half {
            Some(half) => Value::between(mid, mid - half, mid + half, n),
            None => Value::exact(mid),
        }
    }

    /// A value between two ends, of `n` measurements; one measurement has no range.
    pub fn between(mid: f64, low: f64, high: f64, n: usize) -> Value {
        let is_range = n > 1 && low.is_finite() && high.is_finite();
        Value {
            mid,
            whisker: is_range.then_some(Whisker { low, high, n }),
        }
    }

    /// A median between the least and the most, times a factor of units.
    pub fn median(summary: &Summary, factor: f64) -> Value {
        let of = |number: f64| number * factor;
        let (low, high) = (of(summary.min), of(summary.max));
        Value::between(of(summary.median), low, high, summary.count)
    }

    pub(crate) fn high(&self) -> f64 {
        self.whisker
            .map_or(self.mid, |whisker| whisker.high.max(self.mid))
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = f64> {
        let ends = self.whisker.map(|whisker| [whisker.low, whisker.high]);
        std::iter::once(self.mid).chain(ends.into_iter().flatten())
    }
}

/// Meaning of the whiskers in a figure; the figure shows it, with the number of measurements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whiskers {
    what: String,
    of: String,
}

impl Whiskers {
    /// 95 % confidence intervals of means; `of` is what was repeated, such as `repetitions`.
    pub fn ci95(of: &str) -> Whiskers {
        Whiskers::new("95 % confidence interval", of)
    }

    /// One standard deviation to each side of a mean.
    pub fn deviation(of: &str) -> Whiskers {
        Whiskers::new("standard deviation", of)
    }

    /// The least and the most.
    pub fn range(of: &str) -> Whiskers {
        Whiskers::new("least to most", of)
    }

    fn new(what: &str, of: &str) -> Whiskers {
        Whiskers {
            what: what.to_owned(),
            of: of.to_owned(),
        }
    }

    /// In words, with the least and the most measurements of a value.
    pub(crate) fn words(&self, (least, most): (usize, usize)) -> String {
        let Whiskers { what, of } = self;
        let [low, high] = [least, most].map(grouped);
        match least == most {
            true => format!("whiskers: {what}, n = {high} {of}"),
            false => format!("whiskers: {what}, n = {low} to {high} {of}"),
        }
    }
}

/// `50,000`.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Look of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// None: grey.
    number: Option<usize>,
    pub(crate) dashed: bool,
    pub(crate) filled: bool,
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
const GREY: RGBColor = RGBColor(150, 150, 150);
/// The marker of grey.
const DIAMOND: usize = 3;

impl Look {
    /// One of six distinct looks; a larger number repeats them.
    pub fn number(number: usize) -> Look {
        Look {
            number: Some(number),
            dashed: false,
            filled: false,
        }
    }

    /// For what others are compared with.
    pub fn grey() -> Look {
        Look {
            number: None,
            dashed: false,
            filled: false,
        }
    }

    /// The look with a dashed line and no whiskers.
    #[must_use]
    pub fn dashed(self) -> Look {
        Look {
            dashed: true,
            ..self
        }
    }

    /// A pale area: a curve's points then are its outline, once around.
    #[must_use]
    pub fn filled(self) -> Look {
        Look {
            filled: true,
            ..self
        }
    }

    pub(crate) fn color(&self) -> RGBColor {
        match self.number {
            Some(number) => COLORS[number % COLORS.len()],
            None => GREY,
        }
    }

    pub(crate) fn marker(&self) -> usize {
        self.number.unwrap_or(DIAMOND)
    }
}

/// One value in each group, where there is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Look of the series. A name should have the same look in all panels.
    pub look: Look,
    /// As many as there are groups.
    pub values: Vec<Option<Value>>,
}

/// A line through many points, without markers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Name in the legend.
    pub name: String,
    /// Look of the curve.
    pub look: Look,
    /// From left to right, all numbers at least zero; the outline of a [`Look::filled`] area.
    pub points: Vec<(f64, f64)>,
}

impl Curve {
    /// The most points of a distribution: more than a plot has pixels for.
    const MOST: usize = 600;

    /// The points of a cumulative distribution: each value, with the share of values that are not
    /// larger.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Where it is. Groups of bars should be 1 apart.
    pub at: f64,
    /// Text at the group; it may have several lines.
    pub label: String,
}

/// Kind of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A bar for each series in each group.
    Bars,
    /// A line for each series through all groups.
    Lines,
    /// Curves.
    Curves,
    /// A pie for each group, its slices the series.
    Pies,
}

/// Logarithmic axes; other axes begin at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// In a paper, those where a linear scale from zero would hide differences.
    #[default]
    ByData,
    /// None.
    Linear,
    /// The vertical one.
    Log,
}

/// One set of axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// Under the horizontal axis.
    pub x_label: String,
    /// Beside the vertical axis, with the unit.
    pub y_label: String,
    /// Bars, lines, curves or pies.
    pub kind: Kind,
    /// Logarithmic axes.
    pub scale: Scale,
    /// Along the horizontal axis, in order.
    pub groups: Vec<Group>,
    /// Series to draw.
    pub series: Vec<Series>,
    /// Curves, if the kind is [`Kind::Curves`]; groups and series are ignored then.
    pub curves: Vec<Curve>,
}

impl Panel {
    /// Axes for values in groups.
    pub fn of_values(
        kind: Kind,
        title: &str,
        x_label: &str,
        y_label: &str,
        groups: Vec<Group>,
        series: Vec<Series>,
    ) -> Panel {
        Panel {
            title: title.to_owned(),
            x_label: x_label.to_owned(),
            y_label: y_label.to_owned(),
            kind,
            scale: Scale::default(),
            groups,
            series,
            curves: Vec::new(),
        }
    }

    /// Axes with these curves.
    pub fn of_curves(title: &str, x_label: &str, y_label: &str, curves: Vec<Curve>) -> Panel {
        let (groups, series) = (Vec::new(), Vec::new());
        Panel {
            curves,
            ..Panel::of_values(Kind::Curves, title, x_label, y_label, groups, series)
        }
    }

    /// Sets the scale.
    #[must_use]
    pub fn scaled(self, scale: Scale) -> Panel {
        Panel { scale, ..self }
    }

    /// All numbers of the vertical axis.
    pub(crate) fn heights(&self) -> impl Iterator<Item = f64> {
        let values = self.series.iter().flat_map(|one| &one.values);
        let values = values.flatten().flat_map(|value| {
            // A deviation that nearly reaches zero would make a logarithmic axis long.
            let low = value.whisker.map(|whisker| whisker.low);
            let low = low.filter(|low| *low >= value.mid / 10.0);
            [value.mid, value.high()].into_iter().chain(low)
        });
        let points = self.curves.iter().flat_map(|one| &one.points);
        values.chain(points.map(|(_, y)| *y))
    }

    /// All numbers of the horizontal axis of curves.
    pub(crate) fn widths(&self) -> impl Iterator<Item = f64> {
        let points = self.curves.iter().flat_map(|one| &one.points);
        points.map(|(x, _)| *x)
    }
}

/// A whole plot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// At the top.
    pub title: String,
    /// Subtitle: the subject of the figure.
    pub subtitle: String,
    /// In rows.
    pub panels: Vec<Panel>,
    /// Panels in a row, where there is room.
    pub columns: usize,
    /// Small, at the bottom, a line each: machine, versions, what bars are.
    pub footer: Vec<String>,
    /// Meaning of the whiskers. Without it no value may have one.
    pub whiskers: Option<Whiskers>,
    /// All vertical axes end at the same number, so that panels can be compared.
    pub same_scale: bool,
    /// The legend shows the series of all panels; without it each panel must explain itself.
    pub legend: bool,
}

impl Figure {
    /// Meaning of the whiskers, if any are visible.
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
}
