//! [`Fields`] writes all fields of events and of lines in replies. A value that an exit or an application chose cannot end
//! its field.

use std::fmt::{Display, Write as _};

use super::args::quote;

/// Fields of a line, with a space between them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(String);

impl Fields {
    /// A word. Where a reader could take it for more than one, or for a keyword argument, it is a quoted string without
    /// spaces: also readers that split at spaces see one word.
    pub(crate) fn word(&mut self, value: impl Display) -> &mut Self {
        let value = value.to_string();
        let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'=';
        self.separate();
        match !value.is_empty() && value.bytes().all(is_plain) {
            true => self.0.push_str(&value),
            false => self.0.push_str(&closed(&value)),
        }
        self
    }

    /// `KEY=value`, with the value as in [`word`](Self::word), except that it may have a `=`, or be empty.
    pub(crate) fn key(&mut self, key: &'static str, value: impl Display) -> &mut Self {
        let value = value.to_string();
        let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"';
        self.separate();
        let _ = match value.bytes().all(is_plain) {
            true => write!(self.0, "{key}={value}"),
            false => write!(self.0, "{key}={}", closed(&value)),
        };
        self
    }

    /// `KEY=value` where there is a value.
    pub(crate) fn optional(&mut self, key: &'static str, value: Option<impl Display>) -> &mut Self {
        match value {
            Some(value) => self.key(key, value),
            None => self,
        }
    }

    /// `KEY="value"`: an argument that control-spec has as a quoted string, with its spaces.
    pub(crate) fn quoted(&mut self, key: &'static str, value: &[u8]) -> &mut Self {
        self.separate();
        let _ = write!(self.0, "{key}={}", quote(value));
        self
    }

    /// `"value"`: a word that control-spec has as a quoted string, with its spaces.
    pub(crate) fn quoted_word(&mut self, value: &[u8]) -> &mut Self {
        self.separate();
        self.0.push_str(&quote(value));
        self
    }

    /// The line so far.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }

    fn separate(&mut self) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
    }
}

/// A quoted string without spaces and `=`.
fn closed(value: &str) -> String {
    quote(value.as_bytes())
        .replace(' ', "\\040")
        .replace('=', "\\075")
}

#[cfg(test)]
mod tests {
    use super::super::args::unquote;
    use super::*;

    #[test]
    fn plain_fields_are_as_they_are() {
        let mut fields = Fields::default();
        fields.word(7).word("$AB~one").word("a.example:80");
        fields.key("REASON", "DONE").key("IPVersions", "v4=0,v6=1");
        fields.optional("A", Some(1.5)).optional("B", None::<u8>);
        fields
            .quoted("EXPIRES", b"2026-01-02 03:04:05")
            .key("C", "");
        let text = "7 $AB~one a.example:80 REASON=DONE IPVersions=v4=0,v6=1 A=1.5 \
                    EXPIRES=\"2026-01-02 03:04:05\" C=";
        assert_eq!(fields.text(), text);
    }

    #[test]
    fn no_value_ends_its_field() {
        let hostile = [
            "",
            "a NEVER",
            "a\r\n650 OK",
            "a\"b c\"",
            "CACHED=\"YES\"",
            "\\\" x",
            "STREAMID=1",
            "käse\0\x7f",
        ];
        for value in hostile {
            let mut fields = Fields::default();
            fields
                .word("first")
                .word(value)
                .key("KEY", value)
                .word("last");
            let text = fields.into_text();
            let words: Vec<&str> = text.split_ascii_whitespace().collect();
            assert_eq!(words.len(), 4, "{text}");
            assert_eq!((words[0], words[3]), ("first", "last"), "{text}");
            assert!(
                text.bytes()
                    .all(|byte| byte == b' ' || byte.is_ascii_graphic())
            );
            let (back, _) = unquote(words[1]).unwrap();
            assert_eq!(back, value, "it can be read back");
        }
    }
}
