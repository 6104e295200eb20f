//! Log lines about applications.

use weft_log::Line;

/// A log line about an application, and the event for controllers that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The log line.
    pub line: Line,
    /// The STATUS_CLIENT event, without its severity (control-spec 4.1.10).
    pub event: Option<String>,
}

impl Notice {
    pub(crate) const fn new(line: Line) -> Self {
        Self { line, event: None }
    }

    pub(crate) fn with_event(mut self, event: impl Into<String>) -> Self {
        self.event = Some(event.into());
        self
    }
}
