//! One log line: its severity, its target, and its text with the parts that may be scrubbed.

use std::fmt::{self, Display, Write as _};
use std::ops::Range;
use std::panic::Location;

use crate::severity::Severity;

/// Strings that are scrubbed from log lines (`SafeLogging`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SafeLogging {
    /// `0`: nothing.
    Off,
    /// `relay`: the addresses of others that we see as a relay.
    Relay,
    /// `1`: every sensitive string.
    #[default]
    All,
}

/// A log line that nobody has written yet.
///
/// It is built from left to right; each part is formatted at once. [`safe`](Self::safe) and
/// [`client`](Self::client) add a part that [`render`](Self::render) shows as `[scrubbed]` unless
/// the mode allows it. Building a line costs an allocation, even if no log takes it: use it once
/// for a circuit or a stream, not for each cell.
///
/// Two lines are equal when they have the same severity, domain and parts, wherever they were built.
#[derive(Clone)]
pub struct Line {
    /// Boxed, so that errors and actions that hold a line stay small.
    content: Box<Content>,
}

#[derive(Clone)]
struct Content {
    severity: Severity,
    domain: Option<&'static str>,
    built_at: &'static Location<'static>,
    text: String,
    /// Parts of `text` that are not for every log, in order.
    scrubbed: Vec<Scrubbed>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Scrubbed {
    part: Range<usize>,
    /// The first mode that scrubs it.
    from: SafeLogging,
}

impl Line {
    /// A line of this severity that begins with `text`.
    #[must_use]
    #[track_caller]
    pub fn new(severity: Severity, text: impl Display) -> Self {
        let content = Content {
            severity,
            domain: None,
            built_at: Location::caller(),
            text: String::new(),
            scrubbed: Vec::new(),
        };
        let line = Self {
            content: Box::new(content),
        };
        line.text(text)
    }

    /// A line of severity `err`.
    #[must_use]
    #[track_caller]
    pub fn error(text: impl Display) -> Self {
        Self::new(Severity::Err, text)
    }

    /// A line of severity `warn`.
    #[must_use]
    #[track_caller]
    pub fn warn(text: impl Display) -> Self {
        Self::new(Severity::Warn, text)
    }

    /// A line of severity `notice`.
    #[must_use]
    #[track_caller]
    pub fn notice(text: impl Display) -> Self {
        Self::new(Severity::Notice, text)
    }

    /// A line of severity `info`.
    #[must_use]
    #[track_caller]
    pub fn info(text: impl Display) -> Self {
        Self::new(Severity::Info, text)
    }

    /// A line of severity `debug`.
    #[must_use]
    #[track_caller]
    pub fn debug(text: impl Display) -> Self {
        Self::new(Severity::Debug, text)
    }

    /// Puts the line in one of C tor's logging domains (`"CONFIG"`). Without it, the domain is that
    /// of the module that built the line.
    #[must_use]
    pub fn domain(mut self, domain: &'static str) -> Self {
        self.content.domain = Some(domain);
        self
    }

    /// Adds text that every log may show.
    #[must_use]
    pub fn text(mut self, text: impl Display) -> Self {
        self.push(text);
        self
    }

    /// Adds what we know of others as a relay: scrubbed unless `SafeLogging 0` (C tor's `safe_str`).
    #[must_use]
    pub fn safe(self, value: impl Display) -> Self {
        self.scrub(value, SafeLogging::Relay)
    }

    /// Adds what we know of our own users as a client: scrubbed only by `SafeLogging 1` (C tor's
    /// `safe_str_client`).
    #[must_use]
    pub fn client(self, value: impl Display) -> Self {
        self.scrub(value, SafeLogging::All)
    }

    fn scrub(mut self, value: impl Display, from: SafeLogging) -> Self {
        let start = self.content.text.len();
        self.push(value);
        let part = start..self.content.text.len();
        self.content.scrubbed.push(Scrubbed { part, from });
        self
    }

    fn push(&mut self, text: impl Display) {
        // Writing to a string fails only where a `Display` does: the text before that stays.
        let _ = write!(self.content.text, "{text}");
    }

    /// Severity of the line.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.content.severity
    }

    /// The domain, where the line names one, else the path of the module that built it, as in
    /// `module_path!` (`weft_client::streams`).
    #[must_use]
    pub fn target(&self) -> String {
        self.content
            .domain
            .map_or_else(|| module_of(self.content.built_at.file()), str::to_owned)
    }

    /// The text as a log shows it in this mode.
    #[must_use]
    pub fn render(&self, mode: SafeLogging) -> String {
        let mut shown = String::with_capacity(self.content.text.len());
        let mut end = 0;
        for Scrubbed { part, .. } in self.content.scrubbed.iter().filter(|s| mode >= s.from) {
            shown.push_str(self.content.text.get(end..part.start).unwrap_or_default());
            shown.push_str("[scrubbed]");
            end = part.end;
        }
        shown.push_str(self.content.text.get(end..).unwrap_or_default());
        shown
    }
}

impl PartialEq for Line {
    fn eq(&self, other: &Self) -> bool {
        let Content {
            severity,
            domain,
            built_at: _,
            text,
            scrubbed,
        } = &*self.content;
        let other = &other.content;
        (severity, domain, text, scrubbed)
            == (&other.severity, &other.domain, &other.text, &other.scrubbed)
    }
}

impl Eq for Line {}

impl fmt::Debug for Line {
    /// Scrubbed, since a value that holds a line may be printed anywhere.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "[{}] {}",
            self.content.severity,
            self.render(SafeLogging::All)
        )
    }
}

/// The module that a source file holds: `weft_client::streams` for
/// `crates/weft-client/src/streams/mod.rs`.
fn module_of(file: &str) -> String {
    let (before, inside) = file.rsplit_once("/src/").unwrap_or(("", file));
    let package = before.rsplit('/').next().unwrap_or_default();
    let inside = inside.strip_suffix(".rs").unwrap_or(inside);
    let names = std::iter::once(package)
        .chain(inside.split('/'))
        .filter(|name| !matches!(*name, "" | "mod" | "lib"));
    names.collect::<Vec<_>>().join("::").replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_scrubbed_depends_on_the_mode() {
        let line = Line::info("From ")
            .safe("192.0.2.1")
            .text(format_args!(" (circuit {}) to ", 7))
            .client("example.com")
            .text('.');
        let shown = |mode| line.render(mode);
        assert_eq!(
            shown(SafeLogging::Off),
            "From 192.0.2.1 (circuit 7) to example.com."
        );
        assert_eq!(
            shown(SafeLogging::Relay),
            "From [scrubbed] (circuit 7) to example.com."
        );
        assert_eq!(
            shown(SafeLogging::All),
            "From [scrubbed] (circuit 7) to [scrubbed]."
        );
        assert_eq!(
            format!("{line:?}"),
            "[info] From [scrubbed] (circuit 7) to [scrubbed]."
        );
    }

    #[test]
    fn a_line_belongs_to_its_domain_or_to_the_module_that_built_it() {
        assert_eq!(Line::warn("Hm").target(), "weft_log::line");
        assert_eq!(Line::warn("Hm").domain("CONFIG").target(), "CONFIG");
        let module = |file| module_of(file);
        assert_eq!(module("crates/weft-dir/src/lib.rs"), "weft_dir");
        assert_eq!(
            module("/home/a/src/weft/crates/weft-path/src/guards/mod.rs"),
            "weft_path::guards"
        );
    }

    #[test]
    fn lines_are_compared_by_what_they_show() {
        let line = |text| Line::warn("A").client(text);
        assert_eq!(line("b"), line("b"));
        assert_ne!(line("b"), line("c"));
        assert_ne!(line("b"), Line::warn("Ab"));
        assert_ne!(line("b"), line("b").domain("NET"));
    }
}
