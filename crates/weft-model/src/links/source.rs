//! TOML with file and line numbers, for topologies and scenarios.
//!
//! A [`Source`] is a text and its file's name. Its methods take values apart, and their errors name file and line, and for a
//! word that is unknown the nearest known one.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::links::quantity::nearest;

/// So many characters of a word are shown in an error.
const MAX_SHOWN: usize = 40;
/// The longest text of a quantity, such as `300 Mbit/s`.
const MAX_QUANTITY: usize = 64;

/// Error in a text, with file and line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct TextError {
    file: String,
    line: usize,
    problem: String,
}

impl TextError {
    /// An error at a line that is known.
    #[must_use]
    pub fn new(file: &str, line: usize, problem: String) -> TextError {
        TextError {
            file: file.to_owned(),
            line,
            problem,
        }
    }

    /// Counted from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }
}

type Result<T> = std::result::Result<T, TextError>;
/// A value, with its place.
pub type Value<'i> = Spanned<DeValue<'i>>;
/// The values of a table by their keys.
pub type Entries<'t, 'i> = BTreeMap<&'static str, &'t Value<'i>>;

/// A text, and where errors are.
#[derive(Clone, Copy, Debug)]
pub struct Source<'t> {
    file: &'t str,
    text: &'t str,
}

impl<'t> Source<'t> {
    /// A text of at most `longest` bytes; `file` names it in errors.
    ///
    /// # Errors
    ///
    /// The text is longer.
    pub fn new(file: &'t str, text: &'t str, longest: usize) -> Result<Source<'t>> {
        let source = Source { file, text };
        match text.len() <= longest {
            true => Ok(source),
            false => Err(source.fail(0, format!("longer than {longest} bytes"))),
        }
    }

    /// The whole text as a table.
    ///
    /// # Errors
    ///
    /// It is not valid TOML.
    pub fn document(&self) -> Result<Spanned<DeTable<'t>>> {
        DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.fail(at, error.message().to_owned())
        })
    }

    /// The values of a table by their keys; `what` is what an unknown key is called.
    ///
    /// # Errors
    ///
    /// A key is not among the known ones.
    pub fn entries<'v, 'i>(
        &self,
        table: &'v DeTable<'i>,
        known: &[&'static str],
        what: &str,
    ) -> Result<Entries<'v, 'i>> {
        let mut entries = Entries::new();
        for (key, value) in table {
            let name: &str = key.get_ref();
            let Some(known) = known.iter().find(|known| **known == name) else {
                let problem = unknown(what, name, known.iter().copied());
                return Err(self.fail(key.span().start, problem));
            };
            entries.insert(*known, value);
        }
        Ok(entries)
    }

    /// A string, read by `parse`.
    ///
    /// # Errors
    ///
    /// It is not a string, or `parse` fails.
    pub fn read<T>(
        &self,
        value: &Value<'_>,
        parse: impl Fn(&str) -> std::result::Result<T, String>,
    ) -> Result<T> {
        let text = self.string(value)?;
        if text.len() > MAX_QUANTITY {
            return Err(self.at(value, format!("\"{}\" is too long", shorten(text))));
        }
        parse(text).map_err(|problem| self.at(value, problem))
    }

    /// A string.
    ///
    /// # Errors
    ///
    /// It is not a string.
    pub fn string<'v>(&self, value: &'v Value<'_>) -> Result<&'v str> {
        match value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.at(value, "expected a string in quotes".to_owned())),
        }
    }

    /// A list.
    ///
    /// # Errors
    ///
    /// It is not a list.
    pub fn array<'v, 'i>(&self, value: &'v Value<'i>) -> Result<&'v [Value<'i>]> {
        match value.get_ref() {
            DeValue::Array(values) => Ok(values),
            _ => Err(self.at(value, "expected a list".to_owned())),
        }
    }

    /// A table.
    ///
    /// # Errors
    ///
    /// It is not a table.
    pub fn table<'v, 'i>(&self, value: &'v Value<'i>) -> Result<&'v DeTable<'i>> {
        match value.get_ref() {
            DeValue::Table(table) => Ok(table),
            _ => Err(self.at(value, "expected a table".to_owned())),
        }
    }

    /// `true` or `false`.
    ///
    /// # Errors
    ///
    /// It is neither.
    pub fn boolean(&self, value: &Value<'_>) -> Result<bool> {
        match value.get_ref() {
            DeValue::Boolean(value) => Ok(*value),
            _ => Err(self.at(value, "expected true or false".to_owned())),
        }
    }

    /// A whole number; an error begins with `what`, such as "count is a number".
    ///
    /// # Errors
    ///
    /// It is not a whole number, or not in the range.
    pub fn integer(
        &self,
        value: &Value<'_>,
        what: &str,
        range: RangeInclusive<u32>,
    ) -> Result<u32> {
        let number = match value.get_ref() {
            DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        number
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                let (least, most) = (range.start(), range.end());
                self.at(value, format!("{what} from {least} to {most}"))
            })
    }

    /// A number, perhaps with a fraction; an error begins with `what`.
    ///
    /// # Errors
    ///
    /// It is not a number, or not in the range.
    pub fn number(&self, value: &Value<'_>, what: &str, range: RangeInclusive<f64>) -> Result<f64> {
        let number: Option<f64> = match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        number
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                let (least, most) = (range.start(), range.end());
                self.at(value, format!("{what} from {least} to {most}"))
            })
    }

    /// The line of a value, counted from 1.
    #[must_use]
    pub fn line(&self, value: &Value<'_>) -> usize {
        self.line_of(value.span().start)
    }

    /// An error at a value.
    #[must_use]
    pub fn at(&self, value: &Value<'_>, problem: String) -> TextError {
        let Range { start, .. } = value.span();
        self.fail(start, problem)
    }

    /// An error at a byte of the text.
    #[must_use]
    pub fn fail(&self, position: usize, problem: String) -> TextError {
        TextError::new(self.file, self.line_of(position), problem)
    }

    fn line_of(&self, position: usize) -> usize {
        let before = self.text.bytes().take(position);
        1 + before.filter(|byte| *byte == b'\n').count()
    }
}

/// Error text for a word that is not among the known ones, with the nearest of those.
pub fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let shown = shorten(name);
    match nearest(&shown, known) {
        Some(near) => format!("unknown {what} \"{shown}\"; did you mean {near}?"),
        None => format!("unknown {what} \"{shown}\""),
    }
}

/// Not more of a word than fits in an error.
#[must_use]
pub fn shorten(name: &str) -> Cow<'_, str> {
    match name.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => Cow::Owned(format!("{}…", name.get(..end).unwrap_or(""))),
        None => Cow::Borrowed(name),
    }
}
