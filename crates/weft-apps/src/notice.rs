//! Log lines about applications.

use weft_log::Line;

/// A log line about an application, and the event for controllers that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The log line.
    pub line: Line,
    /// The STATUS_CLIENT event, without its severity (control-spec 4.1.10).
    pub event: Option<String>,
    /// The line is logged however many there were before: without it the user does not learn why.
    pub always: bool,
}

impl Notice {
    pub(crate) const fn new(line: Line) -> Self {
        Self {
            line,
            event: None,
            always: false,
        }
    }

    pub(crate) fn always(mut self) -> Self {
        self.always = true;
        self
    }

    pub(crate) fn with_event(mut self, event: impl Into<String>) -> Self {
        self.event = Some(event.into());
        self
    }
}
