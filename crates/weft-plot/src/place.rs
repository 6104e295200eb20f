//! Place of a panel, its letters, and the note if nothing was measured.

use anyhow::Result;

use crate::canvas::{Canvas, FAINT, Font, HPos, VPos};
use crate::model::Panel;
use crate::sheet::Sheet;

/// Letters of axes.
pub(crate) const LETTER: f64 = 12.0;
/// From one line of labels to the next.
pub(crate) const LINE: f64 = 16.0;

/// A part of the figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rect {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
}

/// Where a panel is drawn.
pub(crate) struct Place<'a, 'c> {
    pub(crate) canvas: &'a Canvas<'c>,
    pub(crate) sheet: &'a Sheet,
    pub(crate) rect: Rect,
    /// Width left of the vertical axis, the same in all panels of a figure.
    pub(crate) left: f64,
    pub(crate) has_title: bool,
}

impl Panel {
    /// Draws the panel's title and "not measured".
    pub(crate) fn nothing(&self, place: &Place<'_, '_>) -> Result<()> {
        let Rect {
            left,
            top,
            right,
            bottom,
        } = place.rect;
        let at = (f64::midpoint(left, right), f64::midpoint(top, bottom));
        let font = Font::new(13.0, FAINT).at(HPos::Center, VPos::Center);
        let text = format!("{}: not measured", self.title);
        place.canvas.text(text.trim_start_matches(": "), font, at)
    }
}
