//! C tor's severities as `tracing` levels.
//!
//! C tor has five severities and `tracing` five levels, but they are not the same five:
//!
//! | C tor    | in the code                | as a value           | `tracing` level              |
//! |----------|----------------------------|----------------------|------------------------------|
//! | `err`    | `tracing::error!`          | [`Line::error`]      | `ERROR`                      |
//! | `warn`   | `tracing::warn!`           | [`Line::warn`]       | `WARN`                       |
//! | `notice` | [`notice!`](crate::notice) | [`Line::notice`]     | `INFO` with a field `notice` |
//! | `info`   | `tracing::info!`           | [`Line::info`]       | `INFO`                       |
//! | `debug`  | `tracing::debug!`          | [`Line::debug`]      | `DEBUG`                      |
//!
//! `TRACE` is never written: dependencies use it for each system call.

use tracing::{Level, Metadata};
use weft_log::{Line, Severity};

use super::scrub;

/// The field that marks an `INFO` event as a C tor `notice`.
pub(super) const NOTICE_FIELD: &str = "notice";

/// The target of events that [`log`] makes. A `tracing` target is fixed where the event stands in the
/// code; that of a [`Line`] is in the field [`TARGET_FIELD`].
pub(super) const LINE_TARGET: &str = "weft_log";

/// The field that holds the target of a [`Line`].
pub(super) const TARGET_FIELD: &str = "line_target";

/// The severity of events with this metadata; `None` for `TRACE`, which is never written.
pub(super) fn severity_of(metadata: &Metadata<'_>) -> Option<Severity> {
    match *metadata.level() {
        Level::ERROR => Some(Severity::Err),
        Level::WARN => Some(Severity::Warn),
        Level::INFO if metadata.fields().field(NOTICE_FIELD).is_some() => Some(Severity::Notice),
        Level::INFO => Some(Severity::Info),
        Level::DEBUG => Some(Severity::Debug),
        _ => None,
    }
}

/// Writes lines, in order.
pub fn log_all(lines: impl IntoIterator<Item = Line>) {
    lines.into_iter().for_each(|line| log(&line));
}

/// Writes a line as an event of its severity, scrubbed by the `SafeLogging` mode in force.
pub fn log(line: &Line) {
    macro_rules! event {
        ($level:expr $(, $notice:ident = true)?) => {
            tracing::event!(
                target: LINE_TARGET,
                $level,
                $($notice = true,)?
                line_target = line.target(),
                "{}",
                line.render(scrub::mode())
            )
        };
    }
    match line.severity() {
        Severity::Err => event!(Level::ERROR),
        Severity::Warn => event!(Level::WARN),
        Severity::Notice => event!(Level::INFO, notice = true),
        Severity::Info => event!(Level::INFO),
        Severity::Debug => event!(Level::DEBUG),
    }
}
