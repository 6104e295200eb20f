//! The text of a torrc as lines of key and value (C tor: src/lib/encoding/confline.c, "the silly
//! format", and `unescape_string` of cstring.c).
//!
//! - Space is skipped before a key; `#` starts a comment; a key ends at space or `#`.
//! - A value that starts with `"` is a C string and ends at its quote.
//! - Any other value runs to the end of its line, or to `#`. A backslash at the end of the line
//!   joins the next line to it; from the first one on, `#` starts a comment that swallows its line
//!   whole, so that comments can stand between joined lines.
//! - Carriage returns are dropped, wherever they are.

use std::borrow::Cow;
use std::sync::Arc;

use weft_policy::strtol::is_space;

use crate::report::{Origin, Report};

/// Effect of a line on earlier lines of the same option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Sets the option. The first of a file replaces what other files gave; later ones of the same
    /// file add to it, where the option is a list.
    Set,
    /// `+Option`: adds to the values of other files.
    Append,
    /// `/Option`: forgets what was given.
    Clear,
}

/// One line: a key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The key, without `+` or `/`.
    pub key: String,
    /// The value, unescaped and joined. Empty for [`Command::Clear`].
    pub value: String,
    /// Effect on earlier lines.
    pub command: Command,
    /// Where it stands.
    pub origin: Origin,
    /// Number of its last line, where backslashes join several; 0 as in `origin`.
    pub last_line: u32,
}

/// Splits `text` into lines. Errors are added to `report`; reading continues with the next line of
/// the text.
pub fn lex(text: &[u8], source: &Arc<str>, report: &mut Report) -> Vec<Line> {
    let text: Cow<'_, [u8]> = if text.contains(&b'\r') {
        Cow::Owned(text.iter().copied().filter(|b| *b != b'\r').collect())
    } else {
        Cow::Borrowed(text)
    };
    let mut lexer = Lexer {
        rest: &text,
        line: 1,
    };
    let mut lines = Vec::new();
    while let Some(raw) = lexer.next_line() {
        let origin = Origin {
            source: Arc::clone(source),
            line: raw.line,
        };
        if text.contains(&0) && raw.has_zero() {
            // A program or a database: each of its lines would be an unknown option.
            report.error(Some(&origin), "this file is no torrc: it holds a zero byte");
            return Vec::new();
        }
        match raw.decode(&origin) {
            Ok(line) => lines.push(line),
            Err(why) => report.error(Some(&origin), why),
        }
    }
    lines
}

struct Lexer<'a> {
    rest: &'a [u8],
    line: u32,
}

struct RawLine<'a> {
    line: u32,
    last_line: u32,
    key: &'a [u8],
    value: Result<Cow<'a, [u8]>, String>,
}

impl RawLine<'_> {
    /// Returns true if the key or the value contains a zero byte.
    fn has_zero(&self) -> bool {
        let value = self.value.as_ref();
        self.key.contains(&0) || value.is_ok_and(|value| value.contains(&0))
    }

    fn decode(self, origin: &Origin) -> Result<Line, String> {
        let (command, key) = match self.key.split_first() {
            Some((b'+', key)) => (Command::Append, key),
            Some((b'/', key)) => (Command::Clear, key),
            _ => (Command::Set, self.key),
        };
        let key = String::from_utf8_lossy(key).into_owned();
        let value = self.value.map_err(|why| format!("{key}: {why}"))?;
        let value = match command {
            Command::Clear => String::new(),
            Command::Set | Command::Append => String::from_utf8(value.into_owned())
                .map_err(|_| format!("the value of {key} is not UTF-8; save the file as UTF-8"))?,
        };
        if value.contains('\0') || key.contains('\0') {
            return Err(format!(
                "{key}: a zero byte cannot be part of a configuration"
            ));
        }
        Ok(Line {
            key,
            value,
            command,
            origin: origin.clone(),
            last_line: self.last_line,
        })
    }
}

impl<'a> Lexer<'a> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.rest.get(ahead).copied()
    }

    /// Takes `count` bytes and counts the lines that end in them.
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .unwrap_or((self.rest, &[]));
        self.rest = rest;
        let ends = taken.iter().filter(|b| **b == b'\n').count();
        self.line = self
            .line
            .saturating_add(u32::try_from(ends).unwrap_or(u32::MAX));
        taken
    }

    fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'a [u8] {
        let count = self
            .rest
            .iter()
            .position(|b| !wanted(*b))
            .unwrap_or(self.rest.len());
        self.take(count)
    }

    fn next_line(&mut self) -> Option<RawLine<'a>> {
        loop {
            self.take_while(is_space);
            match self.peek(0)? {
                b'#' => self.take_while(|b| b != b'\n'),
                _ => break,
            };
        }
        let line = self.line;
        let key = self.take_key();
        self.take_while(|b| b == b' ' || b == b'\t');
        let value = if self.peek(0) == Some(b'"') {
            self.take_quoted().map(Cow::Owned)
        } else {
            Ok(self.take_plain())
        };
        let last_line = self.line;
        if self.peek(0) == Some(b'#') || value.is_err() {
            self.take_while(|b| b != b'\n');
        }
        Some(RawLine {
            line,
            last_line,
            key,
            value,
        })
    }

    /// Up to space, a comment, or a backslash that ends the line.
    fn take_key(&mut self) -> &'a [u8] {
        let mut count = 0;
        while let Some(byte) = self.peek(count) {
            let joins = byte == b'\\' && self.peek(count + 1) == Some(b'\n');
            if is_space(byte) || byte == b'#' || joins {
                break;
            }
            count += 1;
        }
        self.take(count)
    }

    fn take_plain(&mut self) -> Cow<'a, [u8]> {
        let mut count = 0;
        let mut joined = false;
        while let Some(byte) = self.peek(count) {
            match byte {
                b'\n' => break,
                b'#' if !joined => break,
                b'\\' if self.peek(count + 1) == Some(b'\n') => {
                    joined = true;
                    count += 2;
                }
                b'#' => count = self.after_comment(count),
                _ => count += 1,
            }
        }
        let value = self.take(count);
        let end = value
            .iter()
            .rposition(|b| !is_space(*b))
            .map_or(0, |last| last + 1);
        let value = value.get(..end).unwrap_or(value);
        if joined {
            Cow::Owned(join(value))
        } else {
            Cow::Borrowed(value)
        }
    }

    /// The position behind the line end of a comment that starts at `start`.
    fn after_comment(&self, start: usize) -> usize {
        let comment = self.rest.get(start..).unwrap_or_default();
        comment
            .iter()
            .position(|b| *b == b'\n')
            .map_or(self.rest.len(), |end| start + end + 1)
    }

    fn take_quoted(&mut self) -> Result<Vec<u8>, String> {
        self.take(1);
        let mut value = Vec::new();
        loop {
            let plain = self.take_while(|b| !matches!(b, b'"' | b'\\' | b'\n' | 0));
            value.extend_from_slice(plain);
            match self.peek(0) {
                Some(b'"') => break,
                Some(b'\\') => value.push(self.take_escape()?),
                _ => return Err("a quoted value does not end on its line".to_owned()),
            }
        }
        self.take(1);
        self.take_while(|b| b == b' ' || b == b'\t');
        match self.peek(0) {
            None | Some(b'#' | b'\n') => Ok(value),
            Some(_) => Err("something follows a quoted value".to_owned()),
        }
    }

    /// One escape of a C string: `\n \r \t \" \' \\`, one to three octal digits, `\x` and two
    /// hexadecimal digits.
    fn take_escape(&mut self) -> Result<u8, String> {
        let octal = |byte: Option<u8>| byte.filter(|b| matches!(b, b'0'..=b'7')).map(|b| b - b'0');
        let hexadecimal = |byte: Option<u8>| {
            byte.and_then(|b| char::from(b).to_digit(16))
                .and_then(|d| u8::try_from(d).ok())
        };
        let (length, byte) = match self.peek(1) {
            Some(b'n') => (2, Some(b'\n')),
            Some(b'r') => (2, Some(b'\r')),
            Some(b't') => (2, Some(b'\t')),
            Some(b @ (b'"' | b'\'' | b'\\')) => (2, Some(b)),
            Some(b'x' | b'X') => {
                let byte = hexadecimal(self.peek(2)).zip(hexadecimal(self.peek(3)));
                (4, byte.map(|(high, low)| high << 4 | low))
            }
            Some(b'0'..=b'7') => {
                let digits: Vec<u8> = (1..=3).map_while(|at| octal(self.peek(at))).collect();
                let value = digits
                    .iter()
                    .fold(0_u32, |value, digit| value * 8 + u32::from(*digit));
                (1 + digits.len(), u8::try_from(value).ok())
            }
            _ => (2, None),
        };
        let byte = byte.ok_or_else(|| {
            let shown = self
                .rest
                .get(..length.min(self.rest.len()))
                .unwrap_or_default();
            let shown = String::from_utf8_lossy(shown);
            format!(
                "the escape \"{}\" in a quoted value means nothing",
                shown.trim_end()
            )
        })?;
        self.take(length);
        Ok(byte)
    }
}

/// Takes backslash-newline pairs and comments out of a joined value.
fn join(value: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((byte, after)) = rest.split_first() {
        rest = match (byte, after.first()) {
            (b'#', _) => match after.iter().position(|b| *b == b'\n') {
                Some(end) => after.get(end + 1..).unwrap_or_default(),
                None => &[],
            },
            (b'\\', Some(b'\n')) => after.get(1..).unwrap_or_default(),
            _ => {
                joined.push(*byte);
                after
            }
        };
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Result<Vec<(String, String)>, String> {
        let mut report = Report::default();
        let lines = lex(text, &"torrc".into(), &mut report);
        if report.has_errors() {
            return Err(report.to_string());
        }
        let show = |line: Line| {
            let command = match line.command {
                Command::Set => "",
                Command::Append => "+",
                Command::Clear => "/",
            };
            (format!("{command}{}", line.key), line.value)
        };
        Ok(lines.into_iter().map(show).collect())
    }

    #[test]
    fn keys_and_values() {
        for (text, want) in [
            ("", &[][..]),
            ("  \n\t\n", &[]),
            ("# only a comment", &[]),
            ("A b", &[("A", "b")]),
            ("A b\n", &[("A", "b")]),
            ("  A \t b c \t \n", &[("A", "b c")]),
            ("A\n\nB c", &[("A", ""), ("B", "c")]),
            ("A b # c", &[("A", "b")]),
            ("A#b", &[("A", "")]),
            ("A b#c", &[("A", "b")]),
            ("#A b\nC d", &[("C", "d")]),
            ("+A b", &[("+A", "b")]),
            ("/A b", &[("/A", "")]),
            (
                "A b\r\nC \"d\"\r\nE\r\n",
                &[("A", "b"), ("C", "d"), ("E", "")],
            ),
            ("A\x0bb", &[("A", "\u{b}b")]),
            // Joined lines.
            ("A b\\\nc", &[("A", "bc")]),
            ("A b \\\n  c", &[("A", "b   c")]),
            ("A\\\n b", &[("A", " b")]),
            ("A b, \\\n# why\n c", &[("A", "b,  c")]),
            ("A b, \\\n c # why\nB d", &[("A", "b,  c B d")]),
            ("A b # c \\\nB d", &[("A", "b"), ("B", "d")]),
            ("A b \\", &[("A", "b \\")]),
            ("A b\\\n", &[("A", "b\\")]),
            ("A b\\\n#c", &[("A", "b")]),
            // Quoted values.
            ("A \"b c\"", &[("A", "b c")]),
            ("A \"b # c\"  # d\nE f", &[("A", "b # c"), ("E", "f")]),
            ("A \"\"", &[("A", "")]),
            ("A \"\\n\\r\\t\\\"\\'\\\\\"", &[("A", "\n\r\t\"'\\")]),
            ("A \"\\x41\\X5a\\101\\7x\\60a\"", &[("A", "AZA\u{7}x0a")]),
            ("A \"\\303\\251\"", &[("A", "é")]),
            ("A b\"c\"", &[("A", "b\"c\"")]),
        ] {
            let want: Vec<_> = want
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect();
            assert_eq!(read(text.as_bytes()).unwrap(), want, "{text:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_reported_with_its_line() {
        for (text, line, word) in [
            (&b"A \"b"[..], 1, "does not end"),
            (b"A \"b\nc\"", 1, "does not end"),
            (b"\n\nA \"b\" c", 3, "follows"),
            (b"A \"\\q\"", 1, "\\q"),
            (b"A \"\\x4\"", 1, "\\x4"),
            (b"A \"\\400\"", 1, "\\400"),
            (b"A \"\\?\"", 1, "\\?"),
            (b"A \"\\", 1, "\\"),
            (b"B c\nA \xff", 2, "UTF-8"),
            (b"A \"\\xff\"", 1, "UTF-8"),
            (b"A b\0c", 1, "zero byte"),
            (b"A \"\\0\"", 1, "zero byte"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.starts_with(&format!("torrc:{line}: ")), "{why}");
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn a_comment_may_hold_any_bytes() {
        assert_eq!(read(b"# \xff\0\nA b # \xfe\n").unwrap().len(), 1);
    }

    #[test]
    fn reading_goes_on_after_an_error() {
        let mut report = Report::default();
        let lines = lex(b"A \"b\nC d\nE \"\\q\"\nF g", &"torrc".into(), &mut report);
        assert_eq!(report.messages().len(), 2);
        assert_eq!(
            lines
                .iter()
                .map(|l| (l.key.as_str(), l.origin.line))
                .collect::<Vec<_>>(),
            [("C", 2), ("F", 4)]
        );
    }

    #[test]
    fn lines_are_numbered_across_joined_ones() {
        let mut report = Report::default();
        let lines = lex(b"A b \\\n# c\n d\nE f", &"torrc".into(), &mut report);
        let numbers = lines.iter().map(|l| (l.origin.line, l.last_line));
        assert_eq!(numbers.collect::<Vec<_>>(), [(1, 3), (4, 4)]);
    }
}
