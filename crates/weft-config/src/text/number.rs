//! Numbers as C tor reads them: `strtol`'s idea of an integer, and amounts with units
//! (src/lib/string/parse_int.c, src/lib/confmgt/unitparse.c).

use weft_policy::strtol::{take_long, trim_start};

const KB: u64 = 1 << 10;
const MB: u64 = 1 << 20;
const GB: u64 = 1 << 30;
const TB: u64 = 1 << 40;
const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Units of one kind of amount.
#[derive(Debug)]
pub(crate) struct Units {
    /// Lower-case name, and how many of the smallest unit it holds.
    table: &'static [(&'static str, u64)],
    /// The names to suggest.
    common: &'static str,
}

/// Amounts of information, in bytes. (`m` alone is C tor's; `k` and `g` alone it does not know.)
pub(crate) static MEMORY: Units = Units {
    table: &[
        ("", 1),
        ("b", 1),
        ("byte", 1),
        ("bytes", 1),
        ("kb", KB),
        ("kbyte", KB),
        ("kbytes", KB),
        ("kilobyte", KB),
        ("kilobytes", KB),
        ("kilobits", KB / 8),
        ("kilobit", KB / 8),
        ("kbits", KB / 8),
        ("kbit", KB / 8),
        ("m", MB),
        ("mb", MB),
        ("mbyte", MB),
        ("mbytes", MB),
        ("megabyte", MB),
        ("megabytes", MB),
        ("megabits", MB / 8),
        ("megabit", MB / 8),
        ("mbits", MB / 8),
        ("mbit", MB / 8),
        ("gb", GB),
        ("gbyte", GB),
        ("gbytes", GB),
        ("gigabyte", GB),
        ("gigabytes", GB),
        ("gigabits", GB / 8),
        ("gigabit", GB / 8),
        ("gbits", GB / 8),
        ("gbit", GB / 8),
        ("tb", TB),
        ("tbyte", TB),
        ("tbytes", TB),
        ("terabyte", TB),
        ("terabytes", TB),
        ("terabits", TB / 8),
        ("terabit", TB / 8),
        ("tbits", TB / 8),
        ("tbit", TB / 8),
    ],
    common: "bytes, KB, MB, GB, TB, KBits, MBits, GBits",
};

/// Lengths of time, in seconds.
pub(crate) static SECONDS: Units = Units {
    table: &[
        ("", 1),
        ("second", 1),
        ("seconds", 1),
        ("minute", MINUTE),
        ("minutes", MINUTE),
        ("hour", HOUR),
        ("hours", HOUR),
        ("day", DAY),
        ("days", DAY),
        ("week", 7 * DAY),
        ("weeks", 7 * DAY),
        ("month", 2_629_728),
        ("months", 2_629_728),
    ],
    common: "seconds, minutes, hours, days, weeks, months",
};

/// Lengths of time, in milliseconds.
pub(crate) static MILLISECONDS: Units = Units {
    table: &[
        ("", 1),
        ("msec", 1),
        ("millisecond", 1),
        ("milliseconds", 1),
        ("second", 1000),
        ("seconds", 1000),
        ("minute", 1000 * MINUTE),
        ("minutes", 1000 * MINUTE),
        ("hour", 1000 * HOUR),
        ("hours", 1000 * HOUR),
        ("day", 1000 * DAY),
        ("days", 1000 * DAY),
        ("week", 7000 * DAY),
        ("weeks", 7000 * DAY),
    ],
    common: "msec, seconds, minutes, hours, days, weeks",
};

/// A whole text that is a decimal integer in a range.
pub(crate) fn parse_long(text: &str, least: i64, most: i64) -> Option<i64> {
    let (value, rest) = take_long(text)?;
    (rest.is_empty() && (least..=most).contains(&value)).then_some(value)
}

/// A whole text that is a decimal unsigned integer. (C tor lets `strtoull` wrap a negative one.)
pub(crate) fn parse_u64(text: &str) -> Option<u64> {
    let text = trim_start(text);
    text.parse().ok()
}

/// A whole text that is a number as `strtod` reads it, finite.
pub(crate) fn parse_double(text: &str) -> Option<f64> {
    let text = trim_start(text);
    // Rust also reads "inf" and "nan"; so does strtod, but neither is an amount of anything.
    text.parse::<f64>().ok().filter(|value| value.is_finite())
}

/// Splits a decimal fraction off the start of `text`.
fn take_double(text: &str) -> Option<(f64, &str)> {
    let text = trim_start(text);
    let signed = text.strip_prefix(['+', '-']).unwrap_or(text);
    let after_whole = signed.trim_start_matches(|c: char| c.is_ascii_digit());
    let mut rest = match after_whole.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => after_whole,
    };
    // An exponent counts only with digits behind it.
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let after = digits.trim_start_matches(|c: char| c.is_ascii_digit());
        if after.len() < digits.len() {
            rest = after;
        }
    }
    let number = text.strip_suffix(rest)?;
    let value: f64 = number.parse().ok()?;
    value.is_finite().then_some((value, rest))
}

/// An amount with a unit; fractions are allowed ("1.5 GB"), amounts below zero are not.
///
/// # Errors
/// `text` is malformed: the error is for the operator.
pub(crate) fn parse_units(text: &str, units: &Units) -> Result<u64, String> {
    let whole = take_unsigned(text).filter(|(_, rest)| !rest.starts_with('.'));
    let (rest, fraction) = match whole {
        Some((_, rest)) => (rest, None),
        None => {
            let (value, rest) = take_double(text)
                .ok_or_else(|| format!("\"{text}\" does not start with a number"))?;
            if value < 0.0 {
                return Err(format!("\"{text}\" is negative"));
            }
            (rest, Some(value))
        }
    };
    let name = trim_start(rest);
    let Some((_, size)) = units
        .table
        .iter()
        .find(|(unit, _)| unit.eq_ignore_ascii_case(name))
    else {
        return Err(format!("unknown unit \"{name}\" (try {})", units.common));
    };
    let too_large = || format!("\"{text}\" is too large");
    let most = i64::MAX as u64;
    match (whole, fraction) {
        (_, Some(fraction)) => {
            #[allow(clippy::cast_precision_loss)] // a fraction is not exact to begin with
            let value = fraction * *size as f64;
            #[allow(clippy::cast_precision_loss)]
            if value >= most as f64 {
                return Err(too_large());
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            // between 0 and i64::MAX, as checked above
            Ok(value as u64)
        }
        (Some((value, _)), None) => value
            .checked_mul(*size)
            .filter(|v| *v <= most)
            .ok_or_else(too_large),
        (None, None) => Err(too_large()),
    }
}

fn take_unsigned(text: &str) -> Option<(u64, &str)> {
    let text = trim_start(text);
    let text = text.strip_prefix('+').unwrap_or(text);
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = text.strip_suffix(rest)?;
    Some((number.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_strtol_reads_them() {
        for (text, want) in [
            ("0", Some(0)),
            ("12", Some(12)),
            (" \t12", Some(12)),
            ("+7", Some(7)),
            ("-7", Some(-7)),
            ("007", Some(7)),
            ("", None),
            ("-", None),
            ("+-1", None),
            ("1 ", None),
            ("1x", None),
            ("0x10", None),
            ("9223372036854775808", None),
        ] {
            assert_eq!(parse_long(text, i64::MIN, i64::MAX), want, "{text:?}");
        }
        assert_eq!(parse_long("65536", 0, 65535), None);
    }

    #[test]
    fn amounts_have_units() {
        for (text, want) in [
            ("0", 0),
            ("75 KB", 76_800),
            ("75kb", 76_800),
            ("75   KBytes", 76_800),
            ("1 m", 1 << 20),
            ("1.5 GB", 3 << 29),
            (".5 KB", 512),
            ("1.0e3 KB", 1_024_000),
            ("8 mbits", 1 << 20),
            ("1 TBit", 1 << 37),
            ("1 MegaBytes", 1 << 20),
            (" 3", 3),
            ("+3", 3),
        ] {
            assert_eq!(parse_units(text, &MEMORY), Ok(want), "{text:?}");
        }
        for text in [
            "",
            "KB",
            "-1",
            "-0.5 KB",
            "1 k",
            "1 g",
            "1 KB x",
            "9223372036854775808",
            "9 000 KB",
            "99999999999 TB",
            "1e400",
            "1 XB",
            "1e3 KB",
        ] {
            assert!(parse_units(text, &MEMORY).is_err(), "{text:?}");
        }
        assert_eq!(parse_units("2 hours", &SECONDS), Ok(7200));
        assert_eq!(parse_units("1 month", &SECONDS), Ok(2_629_728));
        assert_eq!(parse_units("2 seconds", &MILLISECONDS), Ok(2000));
        assert_eq!(parse_units("2 msec", &MILLISECONDS), Ok(2));
    }
}
