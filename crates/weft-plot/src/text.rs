//! Text of figures: the font that PNG and PDF have, how wide text is in it, and where lines end.

use std::sync::OnceLock;

use ttf_parser::Face;

/// A part of DejaVu Sans; `font/README.md` has how it was made.
pub(crate) static FONT: &[u8] = include_bytes!("../font/DejaVuSans.ttf");
/// Its name, and the alternatives for browsers where it is missing.
pub(crate) const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";
/// Of a letter that the font does not have, in parts of the size.
const UNKNOWN: f64 = 0.6;

/// Width of a text of this size.
pub(crate) fn width_of(text: &str, size: f64) -> f64 {
    static FACE: OnceLock<Option<Face<'static>>> = OnceLock::new();
    let face = FACE.get_or_init(|| Face::parse(FONT, 0).ok());
    let of = |letter: char| {
        let face = face.as_ref()?;
        let advance = face.glyph_hor_advance(face.glyph_index(letter)?)?;
        Some(f64::from(advance) / f64::from(face.units_per_em()))
    };
    let parts = text.chars().map(|letter| of(letter).unwrap_or(UNKNOWN));
    parts.sum::<f64>() * size
}

/// The widest of some lines.
pub(crate) fn widest<'a>(lines: impl IntoIterator<Item = &'a String>, size: f64) -> f64 {
    let widths = lines.into_iter().map(|line| width_of(line, size));
    widths.fold(0.0, f64::max)
}

/// The lines of a text, each within this width where words allow that; a line may also end after a hyphen.
pub(crate) fn wrap(text: &str, size: f64, width: f64) -> Vec<String> {
    let mut lines = Vec::new();
    for own in text.lines() {
        let mut line = String::new();
        for word in own.split_inclusive([' ', '-']) {
            let whole = format!("{line}{word}");
            if line.is_empty() || width_of(whole.trim_end(), size) <= width {
                line = whole;
            } else {
                lines.push(line.trim_end().to_owned());
                word.clone_into(&mut line);
            }
        }
        lines.push(line.trim_end().to_owned());
    }
    lines
}

/// The text without what XML has no form for.
pub(crate) fn of_xml(text: &str) -> String {
    let is_letter =
        |letter: &char| !letter.is_control() && !matches!(letter, '\u{fffe}' | '\u{ffff}');
    text.chars().filter(is_letter).collect()
}

/// The text, or its beginning and an ellipsis where all of it has no room.
pub(crate) fn fit(text: &str, size: f64, width: f64) -> String {
    if width_of(text, size) <= width {
        return text.to_owned();
    }
    let mut room = width - width_of("…", size);
    let beginning = text.chars().take_while(|letter| {
        room -= width_of(letter.encode_utf8(&mut [0; 4]), size);
        room >= 0.0
    });
    beginning.chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_those_of_the_font() {
        // DejaVu Sans: 1303 of 2048 for a digit, 569 for an i.
        assert!((width_of("0", 2048.0) - 1303.0).abs() < 1.0);
        assert!((width_of("ii", 2048.0) - 2.0 * 569.0).abs() < 1.0);
        assert_eq!(width_of("", 12.0), 0.0);
    }

    #[test]
    fn the_font_has_what_plots_write() {
        let face = Face::parse(FONT, 0).expect("a font");
        for letter in "Aµ±×·–…≤≥→10⁹ äßñ%αΣЖ∞√′„“’".chars() {
            assert!(face.glyph_index(letter).is_some(), "{letter}");
        }
    }

    #[test]
    fn lines_end_at_words_and_hyphens() {
        let room = width_of("pahl-no-", 12.0);
        assert_eq!(
            wrap("pahl-no-dropping", 12.0, room),
            ["pahl-no-", "dropping"]
        );
        assert_eq!(wrap("one two\nthree", 12.0, 1e3), ["one two", "three"]);
        assert_eq!(wrap("one two", 12.0, 1.0), ["one", "two"]);
        assert_eq!(wrap("", 12.0, 1.0), Vec::<String>::new());
    }

    #[test]
    fn what_does_not_fit_ends_with_an_ellipsis() {
        assert_eq!(fit("abc", 12.0, 100.0), "abc");
        let cut = fit("a long name of something", 12.0, 60.0);
        assert!(cut.ends_with('…') && width_of(&cut, 12.0) <= 60.0, "{cut}");
        assert_eq!(fit("abc", 12.0, 0.0), "…");
    }
}
