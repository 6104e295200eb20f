//! Whole numbers as C's `strtol` reads them. torrc has the same ones (`weft-config`).

/// Returns true if `isspace` takes this byte for a space in the C locale.
#[must_use]
pub const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// The text behind its leading spaces.
#[must_use]
pub fn trim_start(text: &str) -> &str {
    text.trim_start_matches(|c: char| u8::try_from(c).is_ok_and(is_space))
}

/// Splits a decimal integer off the start of `text` (after spaces and a sign) as `strtol` does;
/// `None` where there is none or it does not fit.
#[must_use]
pub fn take_long(text: &str) -> Option<(i64, &str)> {
    let text = trim_start(text);
    let signed = text.strip_prefix(['+', '-']).unwrap_or(text);
    let rest = signed.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = text.strip_suffix(rest)?;
    Some((number.parse().ok()?, rest))
}
