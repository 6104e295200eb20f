//! The log: writes `tracing` events in C tor's format to the outputs that torrc names.
//!
//! [`start`] is called once, first thing: notices go to standard output until [`Logging::apply`]
//! applies the options of torrc. Code that does I/O logs by `tracing`'s macros and
//! [`notice!`](crate::notice), and wraps addresses of others in [`safe`]; code that does none
//! returns [`weft_log::Line`]s, which [`log`] writes. Lines that a hostile peer can cause often are
//! limited by a [`weft_log::RateLimit`].
//!
//! A line is written by the thread that logs it, in one `write`, under a lock that is held for that
//! long; it is at most 10 KB. Nothing is queued. Lines that cannot be written are counted, and their number
//! is logged once writing works again.

mod domains;
mod error;
mod identity;
mod levels;
mod local_time;
mod output;
mod scrub;
mod subscriber;

use std::sync::Arc;

pub use error::LogError;
pub use identity::{IdentityName, current, enter};
pub(crate) use identity::{spawn, within};
pub use levels::{log, log_all};
pub use local_time::{LocalCalendar, local_iso};
pub use scrub::{Scrubbed, safe, safe_client};
pub use subscriber::{Logger, Tap};

use weft_config::Quiet;
use weft_config::log_options::{Destination, LogLine, SeverityMask};
use weft_config::options::LogOptions;
use weft_log::Severity;

/// Logs at C tor's severity `notice`: `tracing::info!` that operators see.
///
/// ```
/// weft_node::notice!("Self-testing indicates your ORPort is reachable from the outside.");
/// weft_node::notice!(target: "HEARTBEAT", circuits = 3, "Heartbeat");
/// ```
#[macro_export]
macro_rules! notice {
    (target: $target:expr, $($arg:tt)+) => {
        $crate::logging::tracing::event!(
            target: $target,
            $crate::logging::tracing::Level::INFO,
            notice = true,
            $($arg)+
        )
    };
    ($($arg:tt)+) => {
        $crate::logging::tracing::event!(
            $crate::logging::tracing::Level::INFO,
            notice = true,
            $($arg)+
        )
    };
}

#[doc(hidden)]
pub use tracing;

/// Logs the error that ends the process. `c_tor_message` is C tor's line for it, where programs look for
/// that one.
pub fn failed(why: &str, c_tor_message: Option<&str>) {
    match c_tor_message {
        Some(message) => {
            tracing::warn!("{why}");
            tracing::warn!("{message}");
            tracing::error!("Reading config failed--see warnings above.");
        }
        None => tracing::error!("{why}"),
    }
}

/// The process's log.
#[derive(Clone, Debug)]
pub struct Logging {
    logger: Arc<Logger>,
    quiet: Quiet,
}

/// Starts logging for the process, to standard output. `quiet` is from the command line.
///
/// # Errors
/// When it was started before.
pub fn start(quiet: Quiet) -> Result<Logging, LogError> {
    let logger = Arc::new(Logger::new(std::time::SystemTime::now));
    let logging = Logging { logger, quiet };
    logging.apply(&LogOptions::default(), None)?;
    let dispatch = tracing::Dispatch::new(Arc::clone(&logging.logger));
    tracing::dispatcher::set_global_default(dispatch).map_err(|_| LogError::Twice)?;
    logging.logger.keep();
    Ok(logging)
}

impl Logging {
    /// Applies options, and opens all files again, so that a log that was renamed gets its file back.
    /// `old` are the previous options: a file that they name, too, is not truncated.
    ///
    /// # Errors
    /// When a file cannot be opened or written; the old logs stay.
    pub fn apply(&self, options: &LogOptions, old: Option<&LogOptions>) -> Result<(), LogError> {
        let fallback;
        let lines = match (options.lines.is_empty(), self.quiet) {
            (false, _) => options.lines.as_slice(),
            (true, _) if options.no_stdout => &[],
            (true, Quiet::Silent) => &[],
            (true, quiet) => {
                let least = if quiet == Quiet::Hush {
                    Severity::Warn
                } else {
                    Severity::Notice
                };
                fallback = [LogLine {
                    takes: SeverityMask::at_least(least),
                    to: Destination::Stdout,
                }];
                &fallback
            }
        };
        let old_lines = old.map_or(&[][..], |old| old.lines.as_slice());
        self.logger.set(lines, options, old_lines)?;
        self.logger.replay();
        scrub::set_safe_logging(options.safe);
        Ok(())
    }

    /// Logs everything from `debug` on, until [`apply`](Self::apply) is called again (SIGUSR2).
    pub fn debug(&self) {
        self.logger.take_everything();
    }

    /// True if errors are logged on standard output.
    #[must_use]
    pub fn is_on_stdout(&self) -> bool {
        self.logger.is_on_stdout(Severity::Err)
    }

    /// The subscriber itself.
    #[must_use]
    pub fn logger(&self) -> &Arc<Logger> {
        &self.logger
    }
}
