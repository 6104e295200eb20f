//! Styles of figures: for a screen, or for a paper. Arguments of commands that draw.

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use weft_stats::bounds::Bounds;

/// Style of figures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Style {
    /// With title and footnotes, as wide as a page of a report.
    #[default]
    Screen,
    /// So wide in print, without title and footnotes, which are in a file beside.
    Paper {
        /// The figure's width.
        width_mm: f64,
    },
}

/// Widths of a figure in print: from the least that has room for an axis and its numbers to the width of A3.
const WIDTHS_MM: Bounds<f64> = Bounds::new(40.0, 420.0).of("millimetres");
/// One of two columns.
const WIDTH_MM: f64 = 84.0;
/// A unit of the layout in print: text of 12 units has 7.5 points.
const UNIT_MM: f64 = 7.5 / 12.0 * MM_PER_INCH / 72.0;
const MM_PER_INCH: f64 = 25.4;
/// Resolution that journals require of line art.
const DPI: f64 = 600.0;
/// Pixels of a unit on a screen, for sharp text.
const ZOOM: f64 = 1.5;
/// CSS pixels per inch.
const CSS_DPI: f64 = 96.0;

impl Style {
    /// A figure's width, in units of the layout.
    pub(crate) fn width(self) -> f64 {
        match self {
            Style::Screen => 1000.0,
            Style::Paper { width_mm } => (width_mm / UNIT_MM).round(),
        }
    }

    /// A length as an attribute of SVG.
    pub(crate) fn length(self, units: f64) -> String {
        match self {
            Style::Screen => units.round().to_string(),
            Style::Paper { width_mm } => {
                let mm = units / self.width() * width_mm;
                format!("{}mm", (mm * 100.0).round() / 100.0)
            }
        }
    }

    /// Pixels of a PNG for each of CSS.
    pub(crate) fn zoom(self) -> f64 {
        match self {
            Style::Screen => ZOOM,
            Style::Paper { .. } => DPI / CSS_DPI,
        }
    }

    /// Pixels of a PNG in a metre of paper.
    pub(crate) fn pixels_per_metre(self) -> Option<u32> {
        match self {
            Style::Screen => None,
            Style::Paper { .. } => Some((DPI / MM_PER_INCH * 1000.0).round() as u32),
        }
    }

    pub(crate) fn is_paper(self) -> bool {
        matches!(self, Style::Paper { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    Screen,
    Paper,
}

#[derive(Args)]
struct Arguments {
    /// Style of figures: for a screen, or for a paper.
    ///
    /// For a paper a figure has no title and no footnotes (NAME.caption.txt has them), the width of --width-mm, logarithmic
    /// axes where a linear one would hide differences, and a PDF beside SVG and PNG.
    #[arg(long, value_enum, default_value_t = Name::Screen)]
    style: Name,
    /// The width of figures with --style paper, millimetres; text has 7.5 points at every width [default: 84].
    #[arg(long, value_name = "MM", value_parser = WIDTHS_MM.parser())]
    width_mm: Option<f64>,
}

impl FromArgMatches for Style {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Style, clap::Error> {
        let Arguments { style, width_mm } = Arguments::from_arg_matches(matches)?;
        match (style, width_mm) {
            (Name::Screen, None) => Ok(Style::Screen),
            (Name::Paper, width_mm) => Ok(Style::Paper {
                width_mm: width_mm.unwrap_or(WIDTH_MM),
            }),
            (Name::Screen, Some(_)) => Err(clap::Error::raw(
                ErrorKind::ArgumentConflict,
                "--width-mm goes with --style paper\n",
            )),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Style::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Style {
    fn augment_args(command: Command) -> Command {
        Arguments::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Arguments::augment_args_for_update(command)
    }

    fn group_id() -> Option<clap::Id> {
        Arguments::group_id()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Words {
        #[command(flatten)]
        style: Style,
    }

    fn read(words: &[&str]) -> Result<Style, String> {
        let words = ["x"].iter().chain(words);
        let read = Words::try_parse_from(words).map_err(|error| error.to_string());
        read.map(|words| words.style)
    }

    #[test]
    fn arguments_choose_a_style_and_its_width() {
        assert_eq!(read(&[]), Ok(Style::Screen));
        let paper = |width_mm| Ok(Style::Paper { width_mm });
        assert_eq!(read(&["--style", "paper"]), paper(84.0));
        let wide = ["--style", "paper", "--width-mm", "177.5"];
        assert_eq!(read(&wide), paper(177.5));
    }

    #[test]
    fn a_width_without_paper_or_of_no_paper_is_refused() {
        let error = read(&["--width-mm", "84"]).expect_err("there is no paper");
        assert!(error.contains("--style paper"), "{error}");
        for width in ["0", "39", "421", "1e300", "NaN", "wide"] {
            let error = read(&["--style", "paper", "--width-mm", width]).expect_err(width);
            assert!(error.contains("--width-mm"), "{error}");
        }
    }

    #[test]
    fn text_has_the_same_size_in_print_at_every_width() {
        for width_mm in [40.0, 84.0, 177.0, 420.0] {
            let style = Style::Paper { width_mm };
            let points = 12.0 / style.width() * width_mm / MM_PER_INCH * 72.0;
            assert!((7.4..7.6).contains(&points), "{width_mm}: {points}");
            assert_eq!(style.length(style.width()), format!("{width_mm}mm"));
        }
    }
}
