//! Numbers that people give, on a command line or in Python: [`Bounds`] has the least and the most that is allowed, reads
//! one from text, and writes the error that names the range.
//!
//! A range is declared once, beside the code that cannot do with less or more, and used by every surface that takes the number:
//! clap by [`Bounds::parser`], a library and its Python package by [`Bounds::check`]. NaN is in no range.

use std::fmt;
use std::time::Duration;

/// The least and the most that a number may be, both allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds<T> {
    least: T,
    most: T,
    unit: &'static str,
}

/// Seed of everything random: all seeds are equally good.
pub const SEED: Bounds<u64> = Bounds::new(0, u64::MAX);

/// Types of numbers that have [`Bounds`]: unsigned integers, `f64`, and durations, which are read
/// as seconds with decimals.
pub trait Number: Copy + PartialOrd + Send + Sync + 'static {
    /// `a number`, or `a whole number`.
    const KIND: &'static str;
    /// Default unit, in the plural.
    const UNIT: &'static str = "";

    /// From text without spaces; `None`: it is not a number, or not of this type.
    fn parse(text: &str) -> Option<Self>;

    /// As [`Number::parse`] reads it.
    fn show(self) -> String;
}

impl<T: Number> Bounds<T> {
    /// From the least to the most.
    pub const fn new(least: T, most: T) -> Bounds<T> {
        Bounds {
            least,
            most,
            unit: T::UNIT,
        }
    }

    /// Sets the unit, in the plural: `milliseconds`.
    #[must_use]
    pub const fn of(self, unit: &'static str) -> Bounds<T> {
        Bounds { unit, ..self }
    }

    /// The most that is allowed.
    pub const fn most(self) -> T {
        self.most
    }

    /// Returns true if a number is allowed. NaN is not.
    pub fn allow(self, number: T) -> bool {
        (self.least..=self.most).contains(&number)
    }

    /// A number that is allowed, from text.
    ///
    /// # Errors
    ///
    /// The number is not allowed. The text has the bounds, as a sentence; the caller names the
    /// argument and repeats the text.
    pub fn parse(self, text: &str) -> Result<T, String> {
        T::parse(text)
            .filter(|number| self.allow(*number))
            .ok_or_else(|| self.to_string())
    }

    /// [`Bounds::parse`] as a `value_parser` of clap, whose errors name the argument and the value.
    pub fn parser(self) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
        move |text: &str| self.parse(text)
    }

    /// The number itself, if it is allowed.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`].
    pub fn check(self, name: &'static str, number: T) -> Result<T, OutOfBounds> {
        match self.allow(number) {
            true => Ok(number),
            false => Err(self.refusal(name, number)),
        }
    }

    /// Why a number is refused.
    pub fn refusal(self, name: &'static str, number: T) -> OutOfBounds {
        OutOfBounds {
            name,
            value: number.show(),
            allowed: self.to_string(),
        }
    }
}

impl<T: Number> fmt::Display for Bounds<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if self.unit.is_empty() { "" } else { " of " };
        write!(
            f,
            "it must be {}{of}{} from {} to {}",
            T::KIND,
            self.unit,
            self.least.show(),
            self.most.show()
        )
    }
}

/// A number that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfBounds {
    name: &'static str,
    value: String,
    allowed: String,
}

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.name, self.value, self.allowed)
    }
}

impl std::error::Error for OutOfBounds {}

macro_rules! whole {
    ($($type:ty),*) => {$(
        impl Number for $type {
            const KIND: &'static str = "a whole number";

            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            fn show(self) -> String {
                self.to_string()
            }
        }
    )*};
}

whole!(u8, u16, u32, u64, usize);

impl Number for f64 {
    const KIND: &'static str = "a number";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn show(self) -> String {
        // Nobody counts three hundred zeros.
        match self.abs() {
            small if small > 0.0 && small < 1e-6 => format!("{self:e}"),
            large if large.is_finite() && large >= 1e15 => format!("{self:e}"),
            _ => self.to_string(),
        }
    }
}

impl Number for Duration {
    const KIND: &'static str = "a number";
    const UNIT: &'static str = "seconds";

    fn parse(text: &str) -> Option<Self> {
        Duration::try_from_secs_f64(text.parse().ok()?).ok()
    }

    fn show(self) -> String {
        self.as_secs_f64().show()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILLY: [&str; 12] = [
        "",
        "many",
        "NaN",
        "nan",
        "inf",
        "-inf",
        "infinity",
        "1e300",
        "-1",
        "-0.5",
        "99999999999999999999",
        " 3",
    ];

    #[test]
    fn silly_numbers_are_in_no_range_and_the_error_names_it() {
        let repetitions = Bounds::new(1_u32, 1000);
        let part = Bounds::new(0.01, 1.0);
        let patience = Bounds::new(Duration::from_millis(500), Duration::from_secs(3600));
        for text in SILLY {
            assert_eq!(
                repetitions.parse(text),
                Err("it must be a whole number from 1 to 1000".to_owned()),
                "{text}"
            );
            assert_eq!(
                part.parse(text),
                Err("it must be a number from 0.01 to 1".to_owned()),
                "{text}"
            );
            assert_eq!(
                patience.parse(text),
                Err("it must be a number of seconds from 0.5 to 3600".to_owned()),
                "{text}"
            );
        }
        // Numbers, but not whole ones.
        assert!(repetitions.parse("2.5").is_err() && repetitions.parse("1e2").is_err());
        assert!(repetitions.parse("0").is_err() && repetitions.parse("1001").is_err());
    }

    #[test]
    fn both_ends_are_allowed() {
        assert_eq!(Bounds::new(1_u32, 1000).parse("1"), Ok(1));
        assert_eq!(Bounds::new(1_u32, 1000).parse("1000"), Ok(1000));
        assert_eq!(Bounds::new(0.01, 1e6).parse("1e6"), Ok(1e6));
        assert_eq!(
            Bounds::new(Duration::ZERO, Duration::from_secs(1)).parse("0.25"),
            Ok(Duration::from_millis(250))
        );
    }

    #[test]
    fn a_library_refuses_what_the_command_line_refuses() {
        let wait = Bounds::new(0.0, 10_000.0).of("milliseconds");
        assert_eq!(wait.check("handshake", 7.5), Ok(7.5));
        for (number, shown) in [
            (f64::NAN, "NaN"),
            (f64::INFINITY, "inf"),
            (1e300, "1e300"),
            (-1.0, "-1"),
        ] {
            let error = wait.check("handshake", number).expect_err("out of bounds");
            assert_eq!(
                error.to_string(),
                format!("handshake {shown}: it must be a number of milliseconds from 0 to 10000")
            );
        }
    }
}
