//! Replies to controllers (control-spec 2.3).

use std::fmt::Write as _;

/// The longest answer to GETINFO or GETCONF, in bytes. A controller may name the same thing any number of times; all
/// documents that there are have some tens of megabytes.
const MAX_ANSWER: usize = 64 << 20;

/// The lines of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    /// Code, text, and data if the line has any.
    lines: Vec<(u16, String, Option<String>)>,
    /// Close the connection after the reply.
    pub close: bool,
    /// Bytes of them.
    length: usize,
}

impl Reply {
    /// `250 OK`.
    pub(super) fn ok() -> Self {
        Self::line(250, "OK")
    }

    pub(super) fn line(code: u16, text: impl Into<String>) -> Self {
        let mut reply = Self::default();
        reply.add(code, text);
        reply
    }

    /// One line, after which the connection is closed.
    pub(super) fn last(code: u16, text: impl Into<String>) -> Self {
        Self {
            close: true,
            ..Self::line(code, text)
        }
    }

    pub(super) fn add(&mut self, code: u16, text: impl Into<String>) {
        self.push(code, text.into(), None);
    }

    fn push(&mut self, code: u16, text: String, data: Option<String>) {
        let length = text.len() + data.as_ref().map_or(0, String::len);
        self.length = self.length.saturating_add(length);
        self.lines.push((code, text, data));
    }

    /// The reply to send instead, if the answer has become too long.
    pub(super) fn if_too_long(&self) -> Option<Self> {
        let text = format!("The answer has more than {MAX_ANSWER} bytes: ask for less at once");
        (self.length > MAX_ANSWER).then(|| Self::line(551, text))
    }

    /// Adds a line `key=value`; a value of several lines becomes data.
    pub(super) fn add_value(&mut self, key: &str, value: &str) {
        if value.contains(['\n', '\r']) {
            self.push(250, format!("{key}="), Some(value.to_owned()));
        } else {
            self.add(250, format!("{key}={value}"));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The bytes to send.
    pub(crate) fn encode(&self) -> String {
        let mut text = String::new();
        for (index, (code, line, data)) in self.lines.iter().enumerate() {
            let end = index + 1 == self.lines.len();
            let mark = match (data, end) {
                (Some(_), _) => '+',
                (None, true) => ' ',
                (None, false) => '-',
            };
            // Text from elsewhere must not begin a new line.
            let line = line.replace(['\r', '\n'], " ");
            let _ = write!(text, "{code}{mark}{line}\r\n");
            if let Some(data) = data {
                push_data(&mut text, data);
            }
        }
        text
    }
}

/// Appends lines of data, with leading dots doubled, and the dot that ends them.
pub(super) fn push_data(text: &mut String, data: &str) {
    for line in data.lines() {
        if line.starts_with('.') {
            text.push('.');
        }
        text.push_str(line);
        text.push_str("\r\n");
    }
    text.push_str(".\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_line_has_a_space() {
        let mut reply = Reply::default();
        reply.add_value("version", "1");
        reply.add_value("config-text", "A 1\n.b\n");
        reply.add(250, "OK");
        assert_eq!(
            reply.encode(),
            "250-version=1\r\n250+config-text=\r\nA 1\r\n..b\r\n.\r\n250 OK\r\n"
        );
        assert_eq!(Reply::line(552, "a\r\nb").encode(), "552 a  b\r\n");
    }
}
