//! One option's value: read from text by its kind, and written back (C tor:
//! src/lib/confmgt/type_defs.c).

use crate::report::Origin;
use crate::table::known::{Kind, MAX_CONNECTION_THREADS};
use crate::text::number::{
    MEMORY, MILLISECONDS, SECONDS, parse_double, parse_long, parse_u64, parse_units,
};

/// The largest value of C tor's `int` options.
const INT_MAX: i64 = i32::MAX as i64;

/// One line of a list option.
#[derive(Clone, Debug)]
pub struct ListLine {
    /// The option's canonical name: lists such as that of `HiddenServiceDir` hold lines of several.
    pub name: &'static str,
    /// Value of the line, after the key.
    pub value: String,
    /// Where it stands.
    pub origin: Origin,
}

impl PartialEq for ListLine {
    /// Where a line stands does not matter.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.value == other.value
    }
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text, a path, a set of relays; `None` where there is none, which differs from an empty one.
    Text(Option<String>),
    /// A number, an amount, or a truth value (0 or 1).
    Number(i64),
    /// A number of 64 bits.
    U64(u64),
    /// A fraction.
    Double(f64),
    /// A number, or auto.
    Auto(Option<i64>),
    /// Words.
    Csv(Vec<String>),
    /// Lines.
    Lines(Vec<ListLine>),
}

impl Value {
    /// Value of an option of this kind after it is cleared.
    pub(crate) const fn cleared(kind: Kind) -> Self {
        match kind {
            Kind::Text | Kind::Path | Kind::RouterSet | Kind::Obsolete => Self::Text(None),
            Kind::U64 => Self::U64(0),
            Kind::Double => Self::Double(0.0),
            Kind::Csv => Self::Csv(Vec::new()),
            Kind::Lines | Kind::LinesOf(_) | Kind::LinesVirtual => Self::Lines(Vec::new()),
            // Clearing "0, 1 or auto" leaves its first value in C tor: 0.
            Kind::AutoBool | Kind::Count => Self::Auto(Some(0)),
            Kind::Int
            | Kind::PosInt
            | Kind::Memory
            | Kind::Seconds
            | Kind::Millis
            | Kind::FirstSeconds
            | Kind::Bool => Self::Number(0),
        }
    }

    /// Reads the text of a single-valued option.
    ///
    /// # Errors
    /// The text is malformed: the error names the problem and the correct form.
    pub(crate) fn parse(kind: Kind, text: &str) -> Result<Self, String> {
        match kind {
            Kind::Text | Kind::Path | Kind::RouterSet => Ok(Self::Text(Some(text.to_owned()))),
            Kind::Obsolete => Ok(Self::Text(None)),
            Kind::Int => parse_int(text, -INT_MAX - 1),
            Kind::PosInt => parse_int(text, 0),
            Kind::U64 => parse_u64(text)
                .map(Self::U64)
                .ok_or_else(|| format!("\"{text}\" is not a whole number from 0")),
            Kind::Memory => {
                let bytes = parse_units(text, &MEMORY)?;
                i64::try_from(bytes)
                    .map(Self::Number)
                    .map_err(|_| format!("\"{text}\" is too large"))
            }
            Kind::Seconds => parse_time(text, text, &SECONDS),
            Kind::Millis => parse_time(text, text, &MILLISECONDS),
            Kind::FirstSeconds => {
                let first = text.split_once(',').map_or(text, |(first, _)| first);
                parse_time(first, text, &SECONDS)
            }
            Kind::Double => parse_double(text)
                .map(Self::Double)
                .ok_or_else(|| format!("\"{text}\" is not a number")),
            Kind::Bool => match text {
                "0" => Ok(Self::Number(0)),
                "1" => Ok(Self::Number(1)),
                _ => Err(format!("\"{text}\" is neither 0 nor 1")),
            },
            Kind::AutoBool => match text {
                "0" => Ok(Self::Auto(Some(0))),
                "1" => Ok(Self::Auto(Some(1))),
                _ if text.eq_ignore_ascii_case("auto") => Ok(Self::Auto(None)),
                _ => Err(format!("\"{text}\" is neither 0 nor 1 nor auto")),
            },
            Kind::Count if text.eq_ignore_ascii_case("auto") => Ok(Self::Auto(None)),
            Kind::Count => match parse_long(text, 0, MAX_COUNT) {
                Some(count) => Ok(Self::Auto(Some(count))),
                None => Err(format!(
                    "\"{text}\" is neither auto nor a whole number from 0 to {MAX_COUNT}"
                )),
            },
            Kind::Csv => Ok(Self::Csv(split_csv(text))),
            Kind::Lines | Kind::LinesOf(_) | Kind::LinesVirtual => Err("it is a list".to_owned()),
        }
    }

    /// Text of the value, without quotes; `None` for lists, which are written line by line.
    #[must_use]
    pub fn encode(&self) -> Option<String> {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => Some(number.to_string()),
            Self::U64(number) => Some(number.to_string()),
            Self::Double(number) => Some(format!("{number:.6}")),
            Self::Auto(Some(number)) => Some(number.to_string()),
            Self::Auto(None) => Some("auto".to_owned()),
            Self::Csv(words) => Some(words.join(",")),
            Self::Lines(_) => None,
        }
    }
}

/// The most that a [`Kind::Count`] may be: they count threads.
const MAX_COUNT: i64 = MAX_CONNECTION_THREADS as i64;

fn parse_int(text: &str, least: i64) -> Result<Value, String> {
    parse_long(text, least, INT_MAX)
        .map(Value::Number)
        .ok_or_else(|| format!("\"{text}\" is not a whole number from {least} to {INT_MAX}"))
}

fn parse_time(
    text: &str,
    whole: &str,
    units: &crate::text::number::Units,
) -> Result<Value, String> {
    let time = parse_units(text, units)?;
    match i64::try_from(time) {
        Ok(time) if time <= INT_MAX => Ok(Value::Number(time)),
        _ => Err(format!("\"{whole}\" is too long a time")),
    }
}

/// Words between commas, without the space around them; empty ones do not count.
fn split_csv(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Quotes a value where a torrc needs it, so that reading it back gives the value again.
///
/// C tor quotes only what holds `#`, line ends, control characters, or a quote in front; Weft also
/// quotes space around a value and a backslash behind it, which C tor would lose.
pub(crate) fn quote(value: &str) -> String {
    let plain = |b: u8| matches!(b, b' '..=b'~') && b != b'#';
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_whitespace());
    let needs = value.starts_with('"')
        || !value.bytes().all(plain)
        || edge(value.chars().next())
        || edge(value.chars().next_back())
        || value.ends_with('\\');
    if !needs {
        return value.to_owned();
    }
    let mut quoted = String::with_capacity(value.len() + 2);
    quoted.push('"');
    for byte in value.bytes() {
        match byte {
            b'\n' => quoted.push_str("\\n"),
            b'\r' => quoted.push_str("\\r"),
            b'\t' => quoted.push_str("\\t"),
            b'"' | b'\'' | b'\\' => {
                quoted.push('\\');
                quoted.push(char::from(byte));
            }
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => quoted.push_str(&format!("\\{byte:03o}")),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(kind: Kind, text: &str) -> Option<String> {
        Value::parse(kind, text)
            .ok()
            .and_then(|value| value.encode())
    }

    #[test]
    fn values_are_read_by_kind_and_written_as_c_tor_writes_them() {
        for (kind, text, want) in [
            (Kind::Int, "-3", Some("-3")),
            (Kind::Int, "2147483648", None),
            (Kind::PosInt, "-3", None),
            (Kind::PosInt, "3 ", None),
            (
                Kind::U64,
                "18446744073709551615",
                Some("18446744073709551615"),
            ),
            (Kind::U64, "-1", None),
            (Kind::Memory, "100 KB", Some("102400")),
            (Kind::Seconds, "96 hours", Some("345600")),
            (Kind::Seconds, "2147483648", None),
            (Kind::Millis, "1 second", Some("1000")),
            (Kind::Millis, "25 days", None),
            (Kind::FirstSeconds, "1 minute, 2 parrots", Some("60")),
            (Kind::Double, "-1", Some("-1.000000")),
            (Kind::Double, "1e-1", Some("0.100000")),
            (Kind::Double, "1x", None),
            (Kind::Bool, "1", Some("1")),
            (Kind::Bool, "yes", None),
            (Kind::Bool, "auto", None),
            (Kind::AutoBool, "AUTO", Some("auto")),
            (Kind::AutoBool, "2", None),
            (Kind::Count, "auto", Some("auto")),
            (Kind::Count, "4", Some("4")),
            (Kind::Count, "-1", None),
            (Kind::Count, "256", Some("256")),
            (Kind::Count, "257", None),
            (Kind::Csv, " a , b,,c ", Some("a,b,c")),
        ] {
            assert_eq!(shown(kind, text).as_deref(), want, "{kind:?} {text:?}");
        }
    }

    #[test]
    fn only_what_needs_quotes_gets_them() {
        for (value, want) in [
            ("a b", "a b"),
            ("it's \"so\"", "it's \"so\""),
            ("a # b", "\"a # b\""),
            ("\"a\"", "\"\\\"a\\\"\""),
            ("a\tb", "\"a\\tb\""),
            ("é", "\"\\303\\251\""),
            (" a", "\" a\""),
            ("a\\", "\"a\\\\\""),
        ] {
            assert_eq!(quote(value), want);
        }
    }
}
