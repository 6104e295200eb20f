//! Rates, times, loss and queue limits, as text and as checked values.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Bits per second that a link sends: 1 kbit/s to 100 Gbit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

/// Units, and how many of the smallest one each is.
type Units = [(&'static str, u64)];

const RATES: &Units = &[
    ("Gbit/s", 1_000_000_000),
    ("Mbit/s", 1_000_000),
    ("kbit/s", 1_000),
    ("bit/s", 1),
];
const LONG_TIMES: &Units = &[
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];
const TIMES: &Units = &[
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];
/// Parts of 10^9.
const LOSSES: &Units = &[("%", 10_000_000)];
const BYTES: &Units = &[
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("bytes", 1),
];
const QUEUES: &Units = &[
    ("packets", 1),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("bytes", 1),
];

/// The longest delay of a link.
pub(crate) const MAX_DELAY: u64 = 10_000_000_000;

impl Rate {
    const LEAST: u64 = 1_000;
    const MOST: u64 = 100_000_000_000;

    /// A rate in bits per second, if it is not absurd.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<Rate> {
        (Self::LEAST..=Self::MOST)
            .contains(&bits)
            .then_some(Rate(bits))
    }

    /// Bits per second.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn parse(text: &str) -> Result<Rate, String> {
        let bits = parse(text, RATES, "a rate such as \"300 Mbit/s\"")?.0;
        Rate::from_bits(bits).ok_or_else(|| {
            format!("\"{text}\" is out of range: a rate is from 1 kbit/s to 100 Gbit/s")
        })
    }
}

/// As topologies write it, such as `300 Mbit/s`.
impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        Rate::parse(text)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_largest(f, self.0, RATES)
    }
}

/// The part of the packets that a link loses at random, from 0 to below 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss(u32);

impl Loss {
    /// Denominator of [`Loss::per_billion`].
    pub const BILLION: u32 = 1_000_000_000;

    /// Lost packets of 10^9, if fewer than all.
    #[must_use]
    pub fn from_per_billion(lost: u32) -> Option<Loss> {
        (lost < Self::BILLION).then_some(Loss(lost))
    }

    /// Lost packets of 10^9.
    #[must_use]
    pub fn per_billion(self) -> u32 {
        self.0
    }

    /// Lost packets of 1.
    #[must_use]
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / f64::from(Self::BILLION)
    }

    pub(crate) fn parse(text: &str) -> Result<Loss, String> {
        let lost = parse(text, LOSSES, "a loss such as \"0.1 %\"")?.0;
        u32::try_from(lost)
            .ok()
            .and_then(Loss::from_per_billion)
            .ok_or_else(|| format!("\"{text}\" is out of range: a loss is from 0 % to below 100 %"))
    }
}

/// As topologies write it, such as `0.1 %`.
impl FromStr for Loss {
    type Err = String;

    fn from_str(text: &str) -> Result<Loss, String> {
        Loss::parse(text)
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", f64::from(self.0) / 10_000_000.0)
    }
}

/// Limit of a link's queue, including the packet that is being sent. A packet that finds the queue
/// full is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// So many packets, 1 to 100,000.
    Packets(u32),
    /// So many bytes, 1,500 to 10^9. A packet is taken when any byte is free.
    Bytes(u32),
}

impl QueueLimit {
    /// Default of netem and of most network interfaces.
    pub const DEFAULT: QueueLimit = QueueLimit::Packets(1_000);

    pub(crate) fn parse(text: &str) -> Result<QueueLimit, String> {
        let (amount, unit) = parse(text, QUEUES, "a queue limit such as \"1000 packets\"")?;
        let amount = u32::try_from(amount).unwrap_or(u32::MAX);
        match (unit, amount) {
            ("packets", 1..=100_000) => Ok(QueueLimit::Packets(amount)),
            ("packets", _) => Err(format!(
                "\"{text}\" is out of range: a queue holds 1 to 100000 packets"
            )),
            (_, 1_500..=1_000_000_000) => Ok(QueueLimit::Bytes(amount)),
            _ => Err(format!(
                "\"{text}\" is out of range: a queue holds 1500 bytes to 1000 MB"
            )),
        }
    }
}

/// As topologies write it, such as `64 kB`.
impl FromStr for QueueLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<QueueLimit, String> {
        QueueLimit::parse(text)
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueLimit::Packets(packets) => write!(f, "{packets} packets"),
            QueueLimit::Bytes(bytes) => write!(f, "{bytes} bytes"),
        }
    }
}

/// A time from 0 to 10 s.
pub(crate) fn parse_delay(text: &str) -> Result<Duration, String> {
    let nanos = parse(text, TIMES, "a time such as \"50 ms\"")?.0;
    match nanos {
        0..=MAX_DELAY => Ok(Duration::from_nanos(nanos)),
        _ => Err(format!(
            "\"{text}\" is out of range: a time is from 0 ms to 10 s"
        )),
    }
}

/// A time up to `most`, such as `50 ms`, `10 min` or `1 h`.
///
/// # Errors
///
/// The text is not a number with a unit of time, or the time is longer.
pub fn parse_time(text: &str, most: Duration) -> Result<Duration, String> {
    let nanos = parse(text, LONG_TIMES, "a time such as \"50 ms\"")?.0;
    let time = Duration::from_nanos(nanos);
    match time <= most {
        true => Ok(time),
        false => Err(format!(
            "\"{text}\" is out of range: it is {} s at most",
            most.as_secs_f64()
        )),
    }
}

/// A number of bytes, such as `320 kB` or `5 MB`.
///
/// # Errors
///
/// The text is no number with a unit of bytes.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    Ok(parse(text, BYTES, "a size such as \"5 MB\"")?.0)
}

/// A time as [`parse_delay`] reads it.
pub(crate) struct Delay(pub(crate) Duration);

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_largest(
            f,
            u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX),
            TIMES,
        )
    }
}

/// In the largest unit that needs no fraction.
fn write_largest(f: &mut fmt::Formatter<'_>, amount: u64, units: &Units) -> fmt::Result {
    let fits = |&&(_, size): &&(&str, u64)| amount.is_multiple_of(size) && amount != 0;
    match units.iter().find(fits).or(units.last()) {
        Some((unit, size)) => write!(f, "{} {unit}", amount / size),
        None => write!(f, "{amount}"),
    }
}

/// A number with a unit. The result is in the smallest unit, with the unit that was found.
fn parse(text: &str, units: &'static Units, expected: &str) -> Result<(u64, &'static str), String> {
    let text = text.trim();
    if text.starts_with('-') {
        return Err(format!("\"{text}\" is negative: expected {expected}"));
    }
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim();
    let Some(&(unit, size)) = units.iter().find(|(name, _)| *name == unit) else {
        let names = || units.iter().map(|(name, _)| *name);
        return Err(match nearest(unit, names()) {
            _ if unit.is_empty() => format!("\"{text}\" has no unit: expected {expected}"),
            Some(name) => format!("unknown unit \"{unit}\" in \"{text}\"; did you mean {name}?"),
            None => format!(
                "unknown unit \"{unit}\" in \"{text}\": the units are {}",
                names().collect::<Vec<_>>().join(", ")
            ),
        });
    };
    let amount = scale(number, size)
        .ok_or_else(|| format!("\"{text}\" is no number with a unit: expected {expected}"))?;
    Ok((amount, unit))
}

/// A decimal number times `size`, exact up to fractions of one.
fn scale(number: &str, size: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u64 = whole.parse().ok()?;
    if fraction.is_empty() || fraction.len() > 18 {
        return None;
    }
    let digits: u128 = fraction.parse().ok()?;
    let ten = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = u64::try_from(digits * u128::from(size) / ten).ok()?;
    whole.checked_mul(size)?.checked_add(part)
}

/// The candidate that was probably meant, if any is near.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    candidates
        .map(|name| {
            (
                strsim::damerau_levenshtein(&lower, &name.to_lowercase()),
                name,
            )
        })
        .filter(|(distance, name)| *distance <= 1 + name.len() / 4)
        .min_by_key(|(distance, name)| (*distance, !name.starts_with(word)))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_units() {
        assert_eq!(Rate::parse("300 Mbit/s").unwrap().bits(), 300_000_000);
        assert_eq!(Rate::parse("1.5 Gbit/s").unwrap().bits(), 1_500_000_000);
        assert_eq!(Rate::parse("2Mbit/s").unwrap().to_string(), "2 Mbit/s");
        assert_eq!(
            Rate::parse("2500 kbit/s").unwrap().to_string(),
            "2500 kbit/s"
        );
    }

    #[test]
    fn what_is_wrong_with_a_rate_is_named() {
        let error = |text| Rate::parse(text).unwrap_err();
        assert!(error("-1 Mbit/s").contains("negative"));
        assert!(error("0 Mbit/s").contains("out of range"));
        assert!(error("1000000 Gbit/s").contains("out of range"));
        assert!(error("99999999999999999999 Gbit/s").contains("no number"));
        assert!(error("300 Mbits/s").contains("did you mean Mbit/s?"));
        assert!(error("300").contains("no unit"));
        assert!(error("1..5 Mbit/s").contains("no number"));
    }

    #[test]
    fn losses_delays_and_queues_are_exact() {
        assert_eq!(Loss::parse("0.1 %").unwrap().per_billion(), 1_000_000);
        assert_eq!(Loss::parse("0.1%").unwrap().to_string(), "0.1 %");
        assert!(Loss::parse("100 %").is_err());
        assert_eq!(parse_delay("0.25 ms").unwrap(), Duration::from_micros(250));
        assert_eq!(Delay(Duration::from_millis(50)).to_string(), "50 ms");
        assert_eq!(Delay(Duration::ZERO).to_string(), "0 ns");
        assert!(parse_delay("11 s").is_err());
        let queue = |text| QueueLimit::parse(text);
        assert_eq!(queue("1000 packets"), Ok(QueueLimit::Packets(1_000)));
        assert_eq!(queue("64 kB"), Ok(QueueLimit::Bytes(64_000)));
        assert!(queue("0 packets").is_err());
        assert!(queue("10 bytes").is_err());
    }
}
