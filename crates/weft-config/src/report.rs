//! The messages about a configuration: everything wrong with it, at once, each with the
//! file and line that it stands in.

use std::fmt;
use std::sync::Arc;

use weft_log::{Line, Severity};

/// C tor's logging domain for log lines about the configuration.
const DOMAIN: &str = "CONFIG";

/// Errors that are all printed. A file with more of them is not a torrc.
const MAX_ERRORS: usize = 20;
/// Errors that are printed where there are more.
const SOME_ERRORS: usize = 4;

/// Prefix of C tor's summaries of a failure, whose cause C tor logs in the line before.
const SUMMARY: &str = "Failed to parse/validate config: ";

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
    /// The message of C tor, which programs that start a Tor look for in the log.
    c_tor: Option<String>,
    /// C tor's summary, where C tor logs its line and the summary.
    c_tor_summary: Option<&'static str>,
    /// It is about this reading of the files, not about what they say.
    event: bool,
}

impl Message {
    /// Returns true if a reader cannot distinguish both messages.
    fn is_like(&self, other: &Self) -> bool {
        (self.severity, &self.origin, &self.text) == (other.severity, &other.origin, &other.text)
    }

    /// C tor's summary, if C tor logs the cause in a separate line before it.
    fn summary(&self) -> Option<&str> {
        if self.c_tor_summary.is_some() {
            return self.c_tor_summary;
        }
        let c_tor = self.c_tor.as_deref()?;
        let what = c_tor.strip_prefix(SUMMARY)?;
        let restates = what.starts_with("Unknown option") || what.contains(&self.text);
        (!restates).then_some(c_tor)
    }

    /// The line of a start that fails.
    fn failure_text(&self) -> String {
        let c_tor = self.c_tor.as_deref();
        match c_tor.filter(|_| c_tor != self.summary()) {
            Some(c_tor) if c_tor.contains(&self.text) => c_tor.to_owned(),
            // Stem takes what follows the last colon for the reason.
            Some(c_tor) => format!("{c_tor} ({})", self.to_string().replace(": ", ", ")),
            None => self.to_string(),
        }
    }
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
    /// Number of messages at the front that precede all others.
    first: usize,
}

impl Report {
    /// Everything, in order.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns true if the configuration cannot be used.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.messages.iter().any(|m| m.severity == Severity::Err)
    }

    /// The warnings, with their origins.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let messages = self.messages.iter();
        let warnings = messages.filter(|message| message.severity == Severity::Warn);
        warnings.map(ToString::to_string)
    }

    /// Adds a message; one that was given before, word for word, is not repeated.
    pub fn add(&mut self, severity: Severity, origin: Option<&Origin>, text: impl Into<String>) {
        self.insert(self.messages.len(), severity, origin, text.into());
    }

    /// Adds a warning about a setting without effect. Such warnings come before everything else, in
    /// their order.
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
            c_tor: None,
            c_tor_summary: None,
            event: false,
        };
        let new = !self.messages.iter().any(|other| other.is_like(&message));
        if new {
            self.messages.insert(at, message);
        }
        new
    }

    fn errors(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(|m| m.severity == Severity::Err)
    }

    /// The errors that are printed, and the number of those that are not.
    fn shown_errors(&self) -> (impl Iterator<Item = &Message>, usize) {
        let all = self.errors().count();
        let shown = match all > MAX_ERRORS {
            true => SOME_ERRORS,
            false => all,
        };
        (self.errors().take(shown), all - shown)
    }

    /// Removes the errors, for a caller that reports them itself.
    #[must_use]
    pub fn without_errors(mut self) -> Self {
        self.messages.retain(|m| m.severity != Severity::Err);
        self
    }

    /// Names `torrc` as the origin of messages without a line, where there are several torrcs.
    #[must_use]
    pub(crate) fn about(mut self, torrc: &str) -> Self {
        let general = self.messages.iter_mut().filter(|m| m.origin.is_none());
        for message in general.filter(|m| !m.event) {
            message.origin = Some(Origin::whole(torrc));
        }
        self
    }

    /// Removes messages about the reading of files that another report has, too: the files are
    /// common to both.
    pub(crate) fn without_events_of(mut self, other: &Self) -> Self {
        self.messages
            .retain(|m| !m.event || !other.messages.iter().any(|other| other.is_like(m)));
        self
    }

    /// Adds what another report has besides.
    pub fn join(&mut self, other: Self) {
        let new = other.without(self);
        self.messages.extend(new.messages);
    }

    /// The last error as C tor logs it, if C tor has one.
    #[must_use]
    pub fn c_tor_message(&self) -> Option<&str> {
        self.errors()
            .filter_map(|m| m.summary().or(m.c_tor.as_deref()))
            .last()
    }

    /// The log lines of a start that fails. Programs that start a Tor read the reason in its log, on
    /// standard output, and take the last line before C tor's own last one for it (Stem's
    /// `launch_tor`). Each error is one line: C tor's, with ours behind it, but for errors that C tor, too, logs before it
    /// logs its summary.
    pub fn failure_lines(&self) -> impl Iterator<Item = Line> {
        let (errors, more) = self.shown_errors();
        let summary = self.errors().filter_map(Message::summary).last();
        errors
            .map(|message| Line::warn(message.failure_text()))
            .chain(more_errors(more).map(Line::warn))
            .chain(summary.into_iter().map(Line::warn))
            .chain([Line::error("Reading config failed--see warnings above.")])
            .map(|line| line.domain(DOMAIN))
    }

    /// Removes messages that another report has, too: a reload does not repeat what has not
    /// changed.
    #[must_use]
    pub fn without(mut self, other: &Self) -> Self {
        self.messages
            .retain(|m| m.event || !other.messages.iter().any(|other| other.is_like(m)));
        self
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
        self.error_as_in_c_tor(origin, text.into(), message.into(), None);
    }

    /// An error that C tor has, too, with C tor's message and the summary that follows it.
    pub(crate) fn error_with_c_tor_summary(
        &mut self,
        origin: Option<&Origin>,
        text: impl Into<String>,
        message: impl Into<String>,
        summary: &'static str,
    ) {
        self.error_as_in_c_tor(origin, text.into(), message.into(), Some(summary));
    }

    fn error_as_in_c_tor(
        &mut self,
        origin: Option<&Origin>,
        text: String,
        message: String,
        summary: Option<&'static str>,
    ) {
        self.error(origin, text.clone());
        let is_it = |m: &&mut Message| m.origin.as_ref() == origin && m.text == text;
        if let Some(error) = self.messages.iter_mut().rfind(is_it) {
            error.c_tor = Some(message);
            error.c_tor_summary = summary;
        }
    }

    pub(crate) fn warn(&mut self, origin: Option<&Origin>, text: impl Into<String>) {
        self.add(Severity::Warn, origin, text);
    }

    /// A notice that is repeated by each reading.
    pub(crate) fn event(&mut self, text: impl Into<String>) {
        let at = self.messages.len();
        if self.insert(at, Severity::Notice, None, text.into())
            && let Some(message) = self.messages.get_mut(at)
        {
            message.event = true;
        }
    }

    pub(crate) fn notice(&mut self, origin: Option<&Origin>, text: impl Into<String>) {
        self.add(Severity::Notice, origin, text);
    }
}

/// Text in place of errors that are not printed.
fn more_errors(count: usize) -> Option<String> {
    (count > 0).then(|| format!("and {count} more errors: is this file a torrc?"))
}

impl fmt::Display for Report {
    /// The errors, one per line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (errors, more) = self.shown_errors();
        let lines = errors.map(ToString::to_string).chain(more_errors(more));
        for (index, line) in lines.enumerate() {
            let newline = if index > 0 { "\n" } else { "" };
            write!(f, "{newline}{line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(report: &Report) -> Vec<String> {
        let render = |line: Line| {
            format!(
                "{} {}",
                line.severity(),
                line.render(weft_log::SafeLogging::All)
            )
        };
        report.failure_lines().map(render).collect()
    }

    #[test]
    fn an_error_is_one_line_of_a_failed_start_by_c_tors_words_and_ours() {
        let mut report = Report::default();
        let text = "unknown flag --nosuch; did you mean: --no?";
        report.error_with_c_tor_message(
            Some(&Origin::whole("command line")),
            text,
            "Command-line option '--nosuch' with no value. Failing.",
        );
        let last = "err Reading config failed--see warnings above.";
        assert_eq!(
            lines(&report),
            [
                "warn Command-line option '--nosuch' with no value. Failing. (command line, unknown flag --nosuch; did you \
                 mean, --no?)",
                last
            ]
        );
        assert_eq!(report.to_string(), format!("command line: {text}"));
        // C tor logs the cause, and then this summary.
        let mut report = Report::default();
        let summary = "Failed to parse/validate config: Invalid SocksPort configuration";
        report.error_with_c_tor_message(None, "SocksPort x: no port", summary);
        let summary = format!("warn {summary}");
        assert_eq!(
            lines(&report),
            ["warn SocksPort x: no port", &summary, last]
        );
    }

    #[test]
    fn c_tors_summary_is_no_line_of_its_own_where_it_says_the_same() {
        let mut report = Report::default();
        let unknown = "Failed to parse/validate config: Unknown option 'Frob'.  Failing.";
        report.error_with_c_tor_message(None, "unknown option \"Frob\"", unknown);
        report.error_with_c_tor_message(
            None,
            "A needs B",
            "Failed to parse/validate config: A needs B",
        );
        assert_eq!(
            lines(&report),
            [
                &format!("warn {unknown} (unknown option \"Frob\")"),
                "warn Failed to parse/validate config: A needs B",
                "err Reading config failed--see warnings above."
            ]
        );
    }

    #[test]
    fn an_error_that_c_tor_summarises_is_followed_by_the_summary_once() {
        let mut report = Report::default();
        let summary = "Failed to parse/validate config: Failed to configure. See logs for details.";
        for line in ["A must be 1.", "B must be 1."] {
            let text = format!("{line} Write 1");
            report.error_with_c_tor_summary(None, text, line, summary);
        }
        assert_eq!(
            lines(&report),
            [
                "warn A must be 1. (A must be 1. Write 1)",
                "warn B must be 1. (B must be 1. Write 1)",
                &format!("warn {summary}"),
                "err Reading config failed--see warnings above."
            ]
        );
        assert_eq!(report.c_tor_message(), Some(summary));
    }

    #[test]
    fn hundreds_of_errors_are_five_lines() {
        let mut report = Report::default();
        for number in 0..502 {
            report.error(None, format!("error {number}"));
        }
        let printed = report.to_string();
        assert_eq!(printed.lines().count(), 5, "{printed}");
        assert!(
            printed.ends_with("error 3\nand 498 more errors: is this file a torrc?"),
            "{printed}"
        );
        assert_eq!(lines(&report).len(), 6, "and C tor's last line");
        let mut report = Report::default();
        (0..20).for_each(|number| report.error(None, format!("error {number}")));
        assert_eq!(
            report.to_string().lines().count(),
            20,
            "a torrc with many mistakes"
        );
    }

    #[test]
    fn what_another_report_has_too_is_left_out() {
        let (mut old, mut new) = (Report::default(), Report::default());
        old.warn(None, "as before");
        new.warn(None, "as before");
        new.warn(None, "new");
        old.event("Read configuration file");
        new.event("Read configuration file");
        let left = new.without(&old);
        let left: Vec<&str> = left.messages().iter().map(|m| m.text.as_str()).collect();
        assert_eq!(left, ["new", "Read configuration file"]);
    }
}
