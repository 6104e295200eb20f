//! Log lines to write, and their destinations.

use std::time::Duration;

use weft_log::SafeLogging;

use crate::host::Host;
use crate::report::Report;
use crate::settings::Settings;
use crate::table::keys;
use crate::text::log_line::parse_log_line;
use crate::text::log_options::{Destination, LogLine};

/// The least time between heartbeats (MIN_HEARTBEAT_PERIOD).
const MIN_HEARTBEAT: Duration = Duration::from_secs(30 * 60);

/// Log lines to write, and their destinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// `Log`. Empty: notices to standard output (`--hush`: warnings; `--quiet`: nothing), where
    /// there is one.
    pub lines: Vec<LogLine>,
    /// `RunAsDaemon`: there is no standard output.
    pub no_stdout: bool,
    /// `SafeLogging`.
    pub safe: SafeLogging,
    /// `LogTimeGranularity`: a divisor or a multiple of one second.
    pub granularity: Duration,
    /// `TruncateLogFile`.
    pub truncate: bool,
    /// `LogMessageDomains`: each line has its domain.
    pub domains: bool,
    /// `SyslogIdentityTag`.
    pub syslog_tag: Option<String>,
    /// `ProtocolWarnings`: warn when others break the protocol.
    pub protocol_warnings: bool,
    /// `HeartbeatPeriod` (`None`: no heartbeat).
    pub heartbeat_period: Option<Duration>,
    /// `MainloopStats`: the heartbeat has a line about the event loop.
    pub mainloop_stats: bool,
}

impl Default for LogOptions {
    /// Logging until torrc is read.
    fn default() -> Self {
        Self {
            lines: Vec::new(),
            no_stdout: false,
            safe: SafeLogging::All,
            granularity: Duration::from_secs(1),
            truncate: false,
            domains: false,
            syslog_tag: None,
            protocol_warnings: false,
            heartbeat_period: None,
            mainloop_stats: false,
        }
    }
}

/// Checks how often heartbeats are.
pub(crate) fn check_heartbeat(settings: &mut Settings, report: &mut Report) {
    let period = settings.time(keys::HeartbeatPeriod);
    if !period.is_zero() && period < MIN_HEARTBEAT && !settings.flag(keys::TestingTorNetwork) {
        let least = MIN_HEARTBEAT.as_secs();
        report.warn(
            settings.origin(keys::HeartbeatPeriod),
            format!("HeartbeatPeriod is too short; raising it to {least} seconds"),
        );
        settings.correct_time(keys::HeartbeatPeriod, MIN_HEARTBEAT);
    }
}

/// Checks the rest.
pub(crate) fn check(settings: &Settings, report: &mut Report) {
    let granularity = milliseconds(settings);
    let used = usable_granularity(granularity);
    if used != granularity {
        report.warn(
            settings.origin(keys::LogTimeGranularity),
            format!(
                "LogTimeGranularity {granularity} is neither a divisor nor a multiple of one \
                 second; using {used} ms"
            ),
        );
    }
    let word = settings.text(keys::SafeLogging).unwrap_or("0").to_owned();
    if safe_logging(&word).is_none() {
        report.error(
            settings.origin(keys::SafeLogging),
            format!("SafeLogging: \"{word}\" is none of 0, 1, relay"),
        );
    }
}

/// Reads them.
pub(crate) fn read(settings: &Settings, host: &dyn Host, report: &mut Report) -> LogOptions {
    let mut lines: Vec<LogLine> = Vec::new();
    let no_stdout = settings.flag(keys::RunAsDaemon);
    for line in settings.lines(keys::Log) {
        match parse_log_line(&line.value, &|path| host.expand(path)) {
            Ok(LogLine {
                to: Destination::Stdout | Destination::Stderr,
                ..
            }) if no_stdout => {
                let text = "Log: there is no standard output with RunAsDaemon; log to a file \
                            or to syslog";
                report.warn(Some(&line.origin), text.to_owned());
            }
            Ok(parsed) => lines.push(parsed),
            Err(why) => report.error(Some(&line.origin), format!("Log: {why}")),
        }
    }
    let granularity = usable_granularity(milliseconds(settings));
    LogOptions {
        lines,
        no_stdout,
        safe: safe_logging(settings.text(keys::SafeLogging).unwrap_or("0")).unwrap_or_default(),
        granularity: Duration::from_millis(granularity),
        truncate: settings.flag(keys::TruncateLogFile),
        domains: settings.flag(keys::LogMessageDomains),
        syslog_tag: settings.text(keys::SyslogIdentityTag).map(str::to_owned),
        protocol_warnings: settings.flag(keys::ProtocolWarnings),
        heartbeat_period: settings.time_or_none(keys::HeartbeatPeriod),
        mainloop_stats: settings.flag(keys::MainloopStats),
    }
}

/// The value of `SafeLogging`.
fn safe_logging(word: &str) -> Option<SafeLogging> {
    match word {
        "0" => Some(SafeLogging::Off),
        "1" => Some(SafeLogging::All),
        _ if word.eq_ignore_ascii_case("relay") => Some(SafeLogging::Relay),
        _ => None,
    }
}

/// `LogTimeGranularity` in milliseconds.
fn milliseconds(settings: &Settings) -> u64 {
    let granularity = settings.time(keys::LogTimeGranularity);
    u64::try_from(granularity.as_millis()).unwrap_or(u64::MAX)
}

/// The granularity of log times that is used where `milliseconds` was asked for: a divisor or a
/// multiple of a second near it (config.c, `options_init_log_granularity`).
fn usable_granularity(milliseconds: u64) -> u64 {
    if milliseconds == 0
        || 1000_u64.is_multiple_of(milliseconds)
        || milliseconds.is_multiple_of(1000)
    {
        return milliseconds;
    }
    if milliseconds >= 1000 {
        return (milliseconds / 1000).saturating_add(1).saturating_mul(1000);
    }
    if milliseconds < 40 {
        return (milliseconds..=1000)
            .find(|g| 1000 % g == 0)
            .unwrap_or(1000);
    }
    let parts = (1..=1000 / milliseconds)
        .rev()
        .find(|parts| 1000 % parts == 0)
        .unwrap_or(1);
    1000 / parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granularities_are_made_divisors_or_multiples_of_a_second() {
        // As C tor's options_init_log_granularity does.
        for (asked, used) in [
            (1, 1),
            (3, 4),
            (35, 40),
            (39, 40),
            (41, 50),
            (333, 500),
            (501, 1000),
            (999, 1000),
            (1000, 1000),
            (1001, 2000),
            (2500, 3000),
        ] {
            assert_eq!(usable_granularity(asked), used, "{asked}");
        }
    }
}
