//! `report.html`: one file without external resources.

use anyhow::Result;
use weft_plot::Folder;

use super::model::Run;

/// Writes the report of a run into its folder.
///
/// # Errors
///
/// The system refuses.
pub(crate) fn write_page(run: &Run, folder: &Folder) -> Result<()> {
    let text = format!("<!DOCTYPE html>\n<title>{}</title>\n", escape(&run.title));
    folder.write("report.html", &text)
}

/// Text as HTML shows it, also within an attribute's quotation marks.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            // HTML has no form for control characters.
            c if c.is_control() && c != '\n' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
