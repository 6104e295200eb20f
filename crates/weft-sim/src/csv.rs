//! Fields of the tables that are written for other programs.

use weft_stats::Spread;

/// Quotes a word per RFC 4180, where it is needed.
pub(crate) fn quoted(word: &str) -> String {
    match word.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", word.replace('"', "\"\"")),
        false => word.to_owned(),
    }
}

/// A number that may not be known: then the field is empty.
pub(crate) fn known(number: Option<f64>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}

/// Three fields: mean, standard deviation, half of the 95 % interval.
pub(crate) fn spread(spread: &Spread) -> String {
    let (stddev, ci95) = (known(spread.stddev), known(spread.ci95));
    format!("{},{stddev},{ci95}", spread.mean)
}
