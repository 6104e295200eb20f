//! The `tracing` subscriber: filters events and formats each as a line.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::span;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use weft_config::log_options::{Destination, Domains, LogLine, SeverityMask};
use weft_config::options::LogOptions;
use weft_log::Severity;

use super::domains::domain_of;
use super::error::LogError;
use super::identity::{self, IdentityName};
use super::levels::{LINE_TARGET, NOTICE_FIELD, TARGET_FIELD, severity_of};
use super::local_time::LocalTime;
use super::output::{Formatted, Output};

/// The longest line (C tor's buffer has 10024 bytes).
const MAX_LINE: usize = 10_000;

/// The first line of a log file, as C tor's.
const FIRST_OF_FILE: &str = concat!("Weft ", env!("CARGO_PKG_VERSION"), " opening log file.");
/// The first line of other logs.
const FIRST: &str = concat!("Weft ", env!("CARGO_PKG_VERSION"), " running on Linux.");

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Writes events to the open logs.
pub struct Logger {
    clock: fn() -> SystemTime,
    /// The number of severities that any log takes: 0 none, 1 `err`, up to 5 for `debug`, too. Filters
    /// events without the lock.
    levels: AtomicU8,
    state: Mutex<State>,
}

/// A function that gets lines besides the logs.
pub type Tap = Box<dyn Fn(Severity, &str) + Send>;

struct State {
    outputs: Vec<Output>,
    granularity: u64,
    show_domains: bool,
    /// Tap of each identity that has one, by its number.
    taps: Vec<(usize, Severity, Tap)>,
    /// The lines before torrc's logs were open, for these.
    startup: Option<Vec<Kept>>,
}

impl State {
    /// Hands a line to the tap of its identity; to all taps, if it is of none.
    fn tap(&self, of: Option<IdentityName>, severity: Severity, text: &str) {
        for (number, least, tap) in &self.taps {
            if severity <= *least && of.is_none_or(|of| of.number == *number) {
                tap(severity, text);
            }
        }
    }
}

/// A line that is kept.
struct Kept {
    severity: Severity,
    domains: Domains,
    prefix: String,
    text: String,
}

/// Bytes of lines that are kept (C tor's MAX_STARTUP_MSG_LEN).
const MAX_KEPT: usize = 1 << 16;

impl fmt::Debug for Logger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logger")
            .field("levels", &self.levels)
            .finish_non_exhaustive()
    }
}

impl Logger {
    /// A logger without logs. `clock` gives the time of lines.
    #[must_use]
    pub fn new(clock: fn() -> SystemTime) -> Self {
        let state = State {
            outputs: Vec::new(),
            granularity: 1000,
            show_domains: false,
            taps: Vec::new(),
            startup: None,
        };
        Self {
            clock,
            levels: AtomicU8::new(0),
            state: Mutex::new(state),
        }
    }

    /// Opens logs and replaces the old ones.
    ///
    /// # Errors
    /// When one cannot be opened; then nothing changes.
    pub fn set(
        &self,
        lines: &[LogLine],
        options: &LogOptions,
        old: &[LogLine],
    ) -> Result<(), LogError> {
        let granularity = u64::try_from(options.granularity.as_millis()).unwrap_or(1000);
        let prefix = prefix((self.clock)(), granularity, Severity::Notice);
        let open = |line: &LogLine| {
            let known = old.contains(line);
            let truncate = options.truncate && !known;
            let mut output = Output::open(line, truncate, options.syslog_tag.as_deref())?;
            let text = match line.to {
                Destination::File(_) => FIRST_OF_FILE,
                _ => FIRST,
            };
            // A file that was reopened and continues already has it, and so has a stream that was
            // open before.
            let begun = match line.to {
                Destination::File(_) => known && output.has_lines(),
                _ => {
                    self.is_open(&line.to) || !line.takes.takes(Severity::Notice, Domains::GENERAL)
                }
            };
            if !begun {
                output.begin(&Formatted {
                    severity: Severity::Notice,
                    prefix: &prefix,
                    text,
                })?;
            }
            Ok(output)
        };
        let outputs = lines.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let levels = outputs
            .iter()
            .filter_map(|o| o.takes.least())
            .map(|s| s as u8 + 1)
            .max();
        let mut state = self.lock();
        let taps = std::mem::take(&mut state.taps);
        let startup = state.startup.take();
        let tapped = taps.iter().map(|(_, least, _)| *least as u8 + 1).max();
        *state = State {
            outputs,
            granularity,
            show_domains: options.domains,
            taps,
            startup,
        };
        let levels = levels.max(tapped).unwrap_or(0);
        self.levels.store(levels, Ordering::Relaxed);
        drop(state);
        tracing::callsite::rebuild_interest_cache();
        Ok(())
    }

    /// Keeps lines from now on, for [`replay`](Self::replay).
    pub(super) fn keep(&self) {
        self.lock().startup = Some(Vec::new());
    }

    /// Writes the kept lines to the files and the syslog that are open now, and stops keeping
    /// lines. The kept lines are already on standard output (C tor:
    /// `flush_log_messages_from_startup`).
    pub(super) fn replay(&self) {
        let mut state = self.lock();
        let kept = state.startup.take().unwrap_or_default();
        for line in kept {
            let formatted = Formatted {
                severity: line.severity,
                prefix: &line.prefix,
                text: &line.text,
            };
            for output in &mut state.outputs {
                let is_stream = matches!(output.to(), Destination::Stdout | Destination::Stderr);
                if !is_stream && output.takes.takes(line.severity, line.domains) {
                    // A disk that has just become full shows with the next line.
                    let _ = output.write(&formatted);
                }
            }
        }
    }

    /// Sets the tap of the calling thread's identity: a function that gets every line of that one of at least this
    /// severity, too. It must not log. `None` removes it.
    pub fn set_tap(&self, tap: Option<(Severity, Tap)>) {
        let number = identity::current().map_or(0, |of| of.number);
        let mut state = self.lock();
        state.taps.retain(|(of, ..)| *of != number);
        state
            .taps
            .extend(tap.map(|(least, tap)| (number, least, tap)));
        let outputs = state.outputs.iter().filter_map(|o| o.takes.least());
        let tapped = state.taps.iter().map(|(_, least, _)| *least);
        let levels = outputs.chain(tapped).map(|s| s as u8 + 1).max();
        self.levels.store(levels.unwrap_or(0), Ordering::Relaxed);
        drop(state);
        tracing::callsite::rebuild_interest_cache();
    }

    /// Makes every open log take all severities.
    pub fn take_everything(&self) {
        let mut state = self.lock();
        for output in &mut state.outputs {
            output.takes = SeverityMask::at_least(Severity::Debug);
        }
        self.levels
            .store(Severity::Debug as u8 + 1, Ordering::Relaxed);
        drop(state);
        tracing::callsite::rebuild_interest_cache();
    }

    /// Writes a line without an event.
    pub fn write(&self, severity: Severity, domains: Domains, text: &str) {
        let mut state = self.lock();
        let (now, granularity) = ((self.clock)(), state.granularity);
        let warning = prefix(now, granularity, Severity::Warn);
        let mut prefix = prefix(now, granularity, severity);
        if state.show_domains {
            let _ = write!(prefix, "{{{domains}}} ");
        }
        let mut text = one_line(text);
        let of = identity::current();
        state.tap(of, severity, &text);
        if let Some(of) = of {
            text = format!("{}: {text}", of.name);
        }
        let line = Formatted {
            severity,
            prefix: &prefix,
            text: &text,
        };
        if let Some(kept) = &mut state.startup
            && kept.iter().map(|line| line.text.len()).sum::<usize>() < MAX_KEPT
        {
            kept.push(Kept {
                severity,
                domains,
                prefix: prefix.clone(),
                text: text.clone(),
            });
        }
        let mut lost = Vec::new();
        for (index, output) in state.outputs.iter_mut().enumerate() {
            if output.takes.takes(severity, domains)
                && let Some(text) = output.write(&line)
            {
                lost.push((index, text));
            }
        }
        for (broken, text) in lost {
            let line = Formatted {
                severity: Severity::Warn,
                prefix: &warning,
                text: &text,
            };
            state.tap(None, Severity::Warn, &text);
            for (index, output) in state.outputs.iter_mut().enumerate() {
                if index != broken && output.takes.takes(Severity::Warn, Domains::GENERAL) {
                    // A second broken log is reported with its own next line.
                    let _ = output.write(&line);
                }
            }
        }
    }

    /// True if lines of this severity go to standard output.
    pub(super) fn is_on_stdout(&self, severity: Severity) -> bool {
        let state = self.lock();
        let mut outputs = state.outputs.iter();
        outputs.any(|output| {
            *output.to() == Destination::Stdout && output.takes.takes(severity, Domains::GENERAL)
        })
    }

    fn is_open(&self, to: &Destination) -> bool {
        self.lock().outputs.iter().any(|output| output.to() == to)
    }

    fn wants(&self, severity: Severity) -> bool {
        (severity as u8) < self.levels.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while logging leaves the state consistent: lines are written whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscriber for Logger {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && !has_unscrubbed_names(metadata.target())
            && severity_of(metadata).is_some_and(|severity| self.wants(severity))
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        use tracing::level_filters::LevelFilter;
        Some(match self.levels.load(Ordering::Relaxed) {
            0 => LevelFilter::OFF,
            1 => LevelFilter::from_level(Level::ERROR),
            2 => LevelFilter::from_level(Level::WARN),
            3 | 4 => LevelFilter::from_level(Level::INFO),
            _ => LevelFilter::from_level(Level::DEBUG),
        })
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let Some(severity) = severity_of(metadata) else {
            return;
        };
        let mut message = Message::default();
        event.record(&mut message);
        let target = match metadata.target() {
            LINE_TARGET => message.target.as_str(),
            target => target,
        };
        // C tor's lines for developers begin with the function; ours with the module.
        let module = if severity >= Severity::Info {
            format!("{target}: ")
        } else {
            String::new()
        };
        let text = format!("{module}{}{}", message.text, message.fields);
        self.write(severity, domain_of(target), &text);
    }

    // Spans are ignored: C tor's log has none.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// True if events of this target may hold names that clients look up, unscrubbed: those of the
/// resolver, whose errors are counted instead (`weft-exit/src/counts.rs`).
fn has_unscrubbed_names(target: &str) -> bool {
    target.starts_with("hickory_")
}

/// An event's message, and its other fields.
#[derive(Default)]
struct Message {
    /// The target of a [`weft_log::Line`].
    target: String,
    text: String,
    fields: String,
}

impl Visit for Message {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format_args!("{value:?}"));
    }
}

impl Message {
    fn add(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            NOTICE_FIELD => Ok(()),
            TARGET_FIELD => write!(self.target, "{value}"),
            "message" => write!(self.text, "{value}"),
            name => write!(self.fields, " {name}={value}"),
        };
    }
}

/// Time and severity in front of a line: `Nov 21 00:59:59.000 [notice] `.
fn prefix(now: SystemTime, granularity: u64, severity: Severity) -> String {
    let t = LocalTime::of(now, granularity);
    let month = MONTHS.get(t.month).unwrap_or(&"Jan");
    format!(
        "{month} {:02} {:02}:{:02}:{:02}.{:03} [{severity}] ",
        t.day, t.hour, t.minute, t.second, t.millisecond
    )
}

/// Escapes control characters, so that a text cannot forge a line, and cuts a text that is too long.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.trim_end().chars() {
        if line.len() >= MAX_LINE {
            line.push_str("[...truncated]");
            break;
        }
        if c.is_control() {
            let _ = write!(line, "{}", c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logging::log;
    use crate::notice;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::{Duration, UNIX_EPOCH};
    use weft_log::Line;

    fn noon() -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(1_700_000_000_123)
    }

    fn line(least: Severity, path: &Path) -> LogLine {
        LogLine {
            takes: SeverityMask::at_least(least),
            to: Destination::File(path.to_owned()),
        }
    }

    /// The lines of a file after the first, without their times.
    fn lines(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines()
            .skip(1)
            .map(|line| {
                line.split_once(" [")
                    .map_or("", |(_, rest)| rest)
                    .to_owned()
            })
            .collect()
    }

    fn log_all(logger: &Arc<Logger>) {
        tracing::subscriber::with_default(Arc::clone(logger), || {
            tracing::error!("one");
            tracing::error!(target: "hickory_net::udp", "a name that a client asked for");
            tracing::warn!(count = 2, "two");
            notice!("three");
            notice!(target: "HEARTBEAT", "{} and {}", 3, "a half");
            tracing::info!("four");
            tracing::debug!("five");
            tracing::trace!("six");
        });
    }

    #[test]
    fn each_log_takes_its_severities() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let logger = Arc::new(Logger::new(noon));
        logger
            .set(
                &[line(Severity::Notice, &a), line(Severity::Debug, &b)],
                &LogOptions::default(),
                &[],
            )
            .unwrap();
        log_all(&logger);
        assert_eq!(
            lines(&a),
            [
                "err] one",
                "warn] two count=2",
                "notice] three",
                "notice] 3 and a half"
            ]
        );
        let module = module_path!();
        assert_eq!(
            lines(&b).get(4..).unwrap(),
            [
                format!("info] {module}: four"),
                format!("debug] {module}: five")
            ]
        );
        let first = std::fs::read_to_string(&a).unwrap();
        assert!(
            first.lines().next().unwrap().ends_with("opening log file."),
            "{first}"
        );
        assert!(first.contains(":20.000 [err] one"), "{first}");
    }

    #[test]
    fn a_line_value_is_logged_as_an_event() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let logger = Arc::new(Logger::new(noon));
        let logs = [line(Severity::Debug, &path)];
        let options = LogOptions {
            domains: true,
            ..LogOptions::default()
        };
        logger.set(&logs, &options, &[]).unwrap();
        tracing::subscriber::with_default(Arc::clone(&logger), || {
            let lines = [
                Line::error("one"),
                Line::warn("two ").safe("192.0.2.1"),
                Line::notice("three").domain("HEARTBEAT"),
                Line::info("four"),
                Line::debug("five"),
            ];
            lines.iter().for_each(log);
        });
        let module = "weft_node::logging::subscriber";
        assert_eq!(
            lines(&path),
            [
                "err] {GENERAL} one".to_owned(),
                "warn] {GENERAL} two [scrubbed]".to_owned(),
                "notice] {HEARTBEAT} three".to_owned(),
                format!("info] {{GENERAL}} {module}: four"),
                format!("debug] {{GENERAL}} {module}: five"),
            ]
        );
    }

    #[test]
    fn logs_can_be_replaced_and_files_reopened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let logger = Arc::new(Logger::new(noon));
        let logs = [line(Severity::Warn, &path)];
        logger.set(&logs, &LogOptions::default(), &[]).unwrap();
        log_all(&logger);
        let moved = folder.path().join("log.1");
        std::fs::rename(&path, &moved).unwrap();
        let options = LogOptions {
            domains: true,
            granularity: Duration::from_millis(1),
            ..LogOptions::default()
        };
        logger
            .set(&[line(Severity::Notice, &path)], &options, &logs)
            .unwrap();
        log_all(&logger);
        assert_eq!(lines(&moved).len(), 2);
        assert_eq!(lines(&path).len(), 4);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.contains(".123 [notice] {HEARTBEAT} 3 and a half"),
            "{text}"
        );
    }

    #[test]
    fn every_log_can_take_all_severities() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let logger = Arc::new(Logger::new(noon));
        let logs = [line(Severity::Err, &path)];
        logger.set(&logs, &LogOptions::default(), &[]).unwrap();
        logger.take_everything();
        log_all(&logger);
        assert_eq!(lines(&path).len(), 6);
    }

    #[test]
    fn a_file_is_truncated_only_with_the_option_and_only_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, "old\n").unwrap();
        let logger = Logger::new(noon);
        let logs = [line(Severity::Notice, &path)];
        let text = || std::fs::read_to_string(&path).unwrap();
        logger.set(&logs, &LogOptions::default(), &[]).unwrap();
        assert!(text().starts_with("old\n"));
        let options = LogOptions {
            truncate: true,
            ..LogOptions::default()
        };
        logger.set(&logs, &options, &[]).unwrap();
        assert!(!text().contains("old") && text().lines().count() == 1);
        logger.set(&logs, &options, &logs).unwrap();
        assert_eq!(text().lines().count(), 1, "it goes on: {}", text());
        std::fs::remove_file(&path).unwrap();
        logger.set(&logs, &options, &logs).unwrap();
        assert!(text().ends_with("opening log file.\n"), "{}", text());
    }

    #[test]
    fn a_log_that_cannot_be_written_any_more_is_reported_in_the_others_once() {
        let folder = tempfile::tempdir().unwrap();
        let (good, full) = (folder.path().join("good"), folder.path().join("full"));
        let logger = Arc::new(Logger::new(noon));
        let logs = [line(Severity::Notice, &good), line(Severity::Notice, &full)];
        // As after a reload: a file that goes on takes no first line, so that a full disk shows with the next line.
        std::os::unix::fs::symlink("/dev/full", &full).unwrap();
        std::fs::write(&good, "first\n").unwrap();
        let why = logger.set(&logs, &LogOptions::default(), &[]).unwrap_err();
        assert!(why.to_string().contains("No space left"), "{why}");
        let outputs = logs
            .iter()
            .map(|line| Output::open(line, false, None).unwrap());
        logger.lock().outputs = outputs.collect();
        logger.levels.store(5, Ordering::Relaxed);
        log_all(&logger);
        let lost: Vec<String> = lines(&good)
            .into_iter()
            .filter(|line| line.contains("Cannot write to"))
            .collect();
        assert_eq!(lost.len(), 1, "{lost:?}");
        let name = format!("the log file \"{}\"", full.display());
        assert!(
            lost[0].contains(&name) && lost[0].contains("No space left on device"),
            "{lost:?}"
        );
        // There is room again.
        std::fs::remove_file(&full).unwrap();
        let room = Output::open(&logs[1], false, None).unwrap();
        let mut state = logger.lock();
        let broken = std::mem::replace(&mut state.outputs[1], room);
        state.outputs[1].take_losses(broken);
        drop(state);
        log_all(&logger);
        let text = std::fs::read_to_string(&full).unwrap();
        assert!(text.contains("4 lines could not be written to"), "{text}");
        assert!(text.contains("No space left on device"), "{text}");
    }

    #[test]
    fn lines_before_torrcs_logs_are_open_are_written_to_them_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let logger = Arc::new(Logger::new(noon));
        let nowhere = LogLine {
            takes: SeverityMask::at_least(Severity::Notice),
            to: Destination::File("/dev/null".into()),
        };
        logger.set(&[nowhere], &LogOptions::default(), &[]).unwrap();
        logger.keep();
        log_all(&logger);
        let logs = [line(Severity::Warn, &path)];
        logger.set(&logs, &LogOptions::default(), &[]).unwrap();
        logger.replay();
        assert_eq!(lines(&path), ["err] one", "warn] two count=2"]);
        log_all(&logger);
        logger.replay();
        assert_eq!(lines(&path).len(), 4, "once");
    }

    #[test]
    fn if_a_log_cannot_be_opened_the_old_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let logger = Arc::new(Logger::new(noon));
        logger
            .set(&[line(Severity::Warn, &path)], &LogOptions::default(), &[])
            .unwrap();
        let missing = folder.path().join("none/log");
        let why = logger
            .set(
                &[line(Severity::Warn, &missing)],
                &LogOptions::default(),
                &[],
            )
            .unwrap_err();
        assert!(why.to_string().contains("none/log"), "{why}");
        log_all(&logger);
        assert_eq!(lines(&path).len(), 2);
    }

    #[test]
    fn a_full_disk_is_an_error_at_once() {
        let logger = Logger::new(noon);
        let full = [line(Severity::Warn, Path::new("/dev/full"))];
        let why = logger
            .set(&full, &LogOptions::default(), &[])
            .unwrap_err()
            .to_string();
        assert!(
            why.contains("/dev/full") && why.contains("No space left"),
            "{why}"
        );
    }

    #[test]
    fn a_text_cannot_forge_a_line() {
        assert_eq!(
            one_line("a\nNov 21 [err] b\r\x1b[31m\n"),
            "a\\nNov 21 [err] b\\r\\u{1b}[31m"
        );
        let long = one_line(&"é".repeat(MAX_LINE));
        assert!(long.len() < MAX_LINE + 40 && long.ends_with("[...truncated]"));
    }
}
