//! Numbers as dir-spec writes them.

use std::str::FromStr;

/// A decimal number, and nothing else: no sign, no space.
pub(super) fn number<T: FromStr>(word: Option<&str>, what: &str) -> Result<T, String> {
    let word = word.ok_or_else(|| format!("there is no {what}"))?;
    match word.parse() {
        Ok(number) if word.bytes().all(|byte| byte.is_ascii_digit()) => Ok(number),
        _ => Err(format!("{what} {word:?} is no number, or too large")),
    }
}
