//! The log: `tracing` events written as C tor writes them, to where torrc says.
//!
//! [`start`] is called once, first thing: notices go to standard output until [`Logging::apply`]
//! says what torrc says. Code logs by `tracing`'s macros and [`notice!`](crate::notice) (see
//! [`severity`] for which is what), gives addresses of others as [`safe`]`(address)`, and wraps what
//! a hostile peer can make it say often in a [`RateLimit`].
//!
//! A line is written by the thread that logs it, in one `write`, under a lock that is held for that
//! long; it is at most 10 KB. Nothing is queued. What cannot be written is counted, and told once
//! something can be written again.

mod local_time;
mod output;
mod rate_limit;
mod scrub;
pub mod severity;
mod subscriber;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

pub use local_time::local_iso;
pub use rate_limit::{RateLimit, Suppressed};
pub use scrub::{Scrubbed, safe, safe_client, set_safe_logging};
pub use severity::{Destination, Domains, LogLine, SafeLogging, Severity, SeverityMask};
pub use subscriber::{Logger, Tap};

use crate::torrc::Quiet;
use crate::torrc::options::LogOptions;

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

/// A log that cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A file cannot be opened or written.
    #[error("cannot write log file \"{}\": {why}; free space, change its permissions, or change the Log option", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// The process has another log already.
    #[error("cannot start logging: this process logs already")]
    Twice,
}

/// Logs why the process ends: in these words, and in C tor's, where programs look for those.
pub fn failed(why: &str, in_tors_words: Option<&str>) {
    match in_tors_words {
        Some(words) => {
            tracing::warn!("{why}");
            tracing::warn!("{words}");
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

/// Starts logging for the process, to standard output, by how quiet the command line says to be.
///
/// # Errors
/// When it was started before.
pub fn start(quiet: Quiet) -> Result<Logging, LogError> {
    let logger = Arc::new(Logger::new(std::time::SystemTime::now));
    let logging = Logging { logger, quiet };
    logging.apply(&LogOptions::default(), None)?;
    let dispatch = tracing::Dispatch::new(Arc::clone(&logging.logger));
    tracing::dispatcher::set_global_default(dispatch).map_err(|_| LogError::Twice)?;
    Ok(logging)
}

impl Logging {
    /// Logs as these options say from now on, and opens files anew, so that a log that was renamed
    /// is written under its name again. `old` are the options that were in force before: a file
    /// that they name too is not emptied.
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
        set_safe_logging(options.safe);
        Ok(())
    }

    /// Logs everything from `debug` on, until [`apply`](Self::apply) is called again (SIGUSR2).
    pub fn debug(&self) {
        self.logger.take_everything();
    }

    /// The subscriber itself.
    #[must_use]
    pub fn logger(&self) -> &Arc<Logger> {
        &self.logger
    }
}
