//! Results of streams: one [`Record`] for each, and texts of many.
//!
//! [`json_lines`] and [`csv`] are for our reports and for notebooks, [`tgen_analysis`] for tornettools, and
//! [`Summary`] for tables.

mod csv;
mod record;
mod summary;
mod tgen;

pub use csv::csv;
pub use record::{Outcome, Record};
pub use summary::{Figure, Summary};
pub use tgen::{EPOCH, tgen_analysis};

/// One JSON object in each line.
///
/// # Errors
///
/// None that a record can cause.
pub fn json_lines(records: &[Record]) -> Result<String, serde_json::Error> {
    let mut text = String::new();
    for record in records {
        text.push_str(&serde_json::to_string(record)?);
        text.push('\n');
    }
    Ok(text)
}

/// Reads the output of [`json_lines`].
///
/// # Errors
///
/// A line is not a record.
pub fn from_json_lines(text: &str) -> Result<Vec<Record>, serde_json::Error> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(serde_json::from_str).collect()
}

#[cfg(test)]
mod tests;
