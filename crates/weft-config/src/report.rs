//! The messages about a configuration: everything wrong with it, at once, each with the
//! file and line that it stands in.

use std::fmt;
use std::sync::Arc;

use weft_log::{Line, Severity};

/// C tor's logging domain of what reading a configuration logs.
const DOMAIN: &str = "CONFIG";

/// Where a setting was made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The file's name, or what stands for one ("command line").
    pub source: Arc<str>,
    /// Line number from 1; 0 where there are no lines.
    pub line: u32,
}

impl Origin {
    /// A place that has no lines: the command line, the built-in defaults.
    #[must_use]
    pub fn whole(source: &str) -> Self {
        Self {
            source: source.into(),
            line: 0,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            f.write_str(&self.source)
        } else {
            write!(f, "{}:{}", self.source, self.line)
        }
    }
}

/// One message to the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// [`Severity::Err`] stops the node from starting; the others do not.
    pub severity: Severity,
    /// The line that it is about, where it is about one.
    pub origin: Option<Origin>,
    /// The message, in one line.
    pub text: String,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(origin) => write!(f, "{origin}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// All messages about a configuration, in the order in which they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    messages: Vec<Message>,
    /// How many of them come before all others.
    first: usize,
    /// The last error as C tor logs it, where programs that start a Tor look for those.
    c_tor_message: Option<String>,
}

impl Report {
    /// Everything, in order.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Whether the configuration cannot be used.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.messages.iter().any(|m| m.severity == Severity::Err)
    }

    /// Adds a message; one that was given before, word for word, is not repeated.
    pub fn add(&mut self, severity: Severity, origin: Option<&Origin>, text: impl Into<String>) {
        self.insert(self.messages.len(), severity, origin, text.into());
    }

    /// Adds a warning of what the operator asks for and does not get. Such warnings come before
    /// everything else, in their order.
    pub(crate) fn warn_first(&mut self, origin: Option<&Origin>, text: impl Into<String>) {
        if self.insert(self.first, Severity::Warn, origin, text.into()) {
            self.first += 1;
        }
    }

    /// Puts a message at this place; false: it was there before.
    fn insert(
        &mut self,
        at: usize,
        severity: Severity,
        origin: Option<&Origin>,
        text: String,
    ) -> bool {
        let message = Message {
            severity,
            origin: origin.cloned(),
            text,
        };
        let new = !self.messages.contains(&message);
        if new {
            self.messages.insert(at, message);
        }
        new
    }

    /// The same without the errors, for a caller that reports those itself.
    #[must_use]
    pub fn without_errors(mut self) -> Self {
        self.messages.retain(|m| m.severity != Severity::Err);
        self
    }

    /// The last error as C tor logs it, if C tor has one.
    #[must_use]
    pub fn c_tor_message(&self) -> Option<&str> {
        self.c_tor_message.as_deref()
    }

    /// The log lines of a start that fails. Programs that start a Tor read the reason in its log, on
    /// standard output, and take the last line before C tor's own last one for it (Stem's
    /// `launch_tor`).
    pub fn failure_lines(&self) -> impl Iterator<Item = Line> {
        let errors = self.messages.iter().filter(|m| m.severity == Severity::Err);
        errors
            .map(|message| Line::warn(message))
            .chain(self.c_tor_message.iter().map(|message| Line::warn(message)))
            .chain([Line::error("Reading config failed--see warnings above.")])
            .map(|line| line.domain(DOMAIN))
    }

    /// Everything as log lines. Errors are warnings in the log: that a configuration cannot be used
    /// does not stop a node that runs by another one.
    pub fn lines(&self) -> impl Iterator<Item = Line> {
        self.messages.iter().map(|message| {
            let severity = message.severity.max(Severity::Warn);
            Line::new(severity, message).domain(DOMAIN)
        })
    }

    pub(crate) fn error(&mut self, origin: Option<&Origin>, text: impl Into<String>) {
        self.add(Severity::Err, origin, text);
    }

    /// An error that C tor has, too, with C tor's message.
    pub(crate) fn error_with_c_tor_message(
        &mut self,
        origin: Option<&Origin>,
        text: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.error(origin, text);
        self.c_tor_message = Some(message.into());
    }

    pub(crate) fn warn(&mut self, origin: Option<&Origin>, text: impl Into<String>) {
        self.add(Severity::Warn, origin, text);
    }

    pub(crate) fn notice(&mut self, origin: Option<&Origin>, text: impl Into<String>) {
        self.add(Severity::Notice, origin, text);
    }
}

impl fmt::Display for Report {
    /// The errors, one per line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut errors = self.messages.iter().filter(|m| m.severity == Severity::Err);
        if let Some(first) = errors.next() {
            write!(f, "{first}")?;
        }
        errors.try_for_each(|m| write!(f, "\n{m}"))
    }
}

impl std::error::Error for Report {}
