//! An open log: a file, a standard stream, or the system's log daemon.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use weft_config::log_options::{Destination, LogLine, SeverityMask};
use weft_log::Severity;

use super::error::LogError;

/// The socket of the syslog daemon.
const SYSLOG_SOCKET: &str = "/dev/log";
/// `LOG_DAEMON`, as part of a message's priority.
const SYSLOG_DAEMON: u8 = 3 << 3;

/// A formatted line.
pub(super) struct Formatted<'a> {
    pub(super) severity: Severity,
    /// Time and severity, for files and streams.
    pub(super) prefix: &'a str,
    pub(super) text: &'a str,
}

#[derive(Debug)]
enum Sink {
    Stdout,
    Stderr,
    File(File),
    Syslog { socket: UnixDatagram, tag: String },
}

/// An open log.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) takes: SeverityMask,
    to: Destination,
    sink: Sink,
    /// Lines that could not be written since the last one that was, and why the last of them could not.
    lost: u64,
    why: String,
}

impl Output {
    /// Opens the log of a `Log` line of torrc. A file is created with C tor's mode (0640).
    pub(super) fn open(
        line: &LogLine,
        truncate: bool,
        tag: Option<&str>,
    ) -> Result<Self, LogError> {
        let sink = match &line.to {
            Destination::Stdout => Sink::Stdout,
            Destination::Stderr => Sink::Stderr,
            Destination::File(path) => Sink::File(open_file(path, truncate)?),
            Destination::Syslog => {
                let failed = |why| LogError::File {
                    path: PathBuf::from(SYSLOG_SOCKET),
                    why,
                };
                let socket = UnixDatagram::unbound().map_err(failed)?;
                // If the daemon does not keep up, lines are lost, but no thread waits.
                socket.set_nonblocking(true).map_err(failed)?;
                let tag = tag.map_or_else(|| "Weft".to_owned(), |tag| format!("Weft-{tag}"));
                Sink::Syslog { socket, tag }
            }
        };
        Ok(Self {
            takes: line.takes,
            to: line.to.clone(),
            sink,
            lost: 0,
            why: String::new(),
        })
    }

    /// Where its lines go.
    pub(super) fn to(&self) -> &Destination {
        &self.to
    }

    /// True if the output is a file that already has lines.
    pub(super) fn has_lines(&self) -> bool {
        match &self.sink {
            Sink::File(file) => file.metadata().is_ok_and(|meta| meta.len() > 0),
            Sink::Stdout | Sink::Stderr | Sink::Syslog { .. } => false,
        }
    }

    /// Writes the first line of this process. A file must take it, so that a full disk is an error now.
    pub(super) fn begin(&mut self, first: &Formatted<'_>) -> Result<(), LogError> {
        let written = self.write_now(first);
        match &self.to {
            Destination::File(path) => written.map_err(|why| LogError::File {
                path: path.clone(),
                why,
            }),
            _ => Ok(()),
        }
    }

    /// Writes a line. Lines that cannot be written are counted, and a line with their number precedes the
    /// next one that can. Returns what to report elsewhere when the first of them is lost.
    pub(super) fn write(&mut self, line: &Formatted<'_>) -> Option<String> {
        if self.lost > 0 {
            let text = format!(
                "{} lines could not be written to {}: {}",
                self.lost,
                name(&self.to),
                self.why
            );
            let count = Formatted {
                severity: Severity::Warn,
                prefix: line.prefix,
                text: &text,
            };
            if let Err(why) = self.write_now(&count) {
                self.lost = self.lost.saturating_add(1);
                self.why = why.to_string();
                return None;
            }
            self.lost = 0;
        }
        let why = self.write_now(line).err()?.to_string();
        self.lost = 1;
        let text = format!(
            "Cannot write to {}: {why}. Its lines are lost until it can be written again",
            name(&self.to)
        );
        self.why = why;
        Some(text)
    }

    /// Gets the losses of a log that could not be written.
    #[cfg(test)]
    pub(super) fn take_losses(&mut self, broken: Self) {
        (self.lost, self.why) = (broken.lost, broken.why);
    }

    fn write_now(&mut self, line: &Formatted<'_>) -> io::Result<()> {
        if let Sink::Syslog { socket, tag } = &self.sink {
            let priority = SYSLOG_DAEMON | syslog_level(line.severity);
            let message = format!("<{priority}>{tag}[{}]: {}", std::process::id(), line.text);
            return socket
                .send_to(message.as_bytes(), SYSLOG_SOCKET)
                .map(|_| ());
        }
        // One write, so that lines of several processes do not mix.
        let text = format!("{}{}\n", line.prefix, line.text);
        match &mut self.sink {
            Sink::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes())?;
                out.flush()
            }
            Sink::Stderr => io::stderr().lock().write_all(text.as_bytes()),
            Sink::File(file) => file.write_all(text.as_bytes()),
            Sink::Syslog { .. } => Ok(()),
        }
    }
}

/// A log in a line about it.
fn name(to: &Destination) -> String {
    match to {
        Destination::Stdout => "the log on standard output".to_owned(),
        Destination::Stderr => "the log on standard error".to_owned(),
        Destination::Syslog => format!("the log at {SYSLOG_SOCKET}"),
        Destination::File(path) => format!("the log file \"{}\"", path.display()),
    }
}

/// syslog's number of a severity (`LOG_ERR`).
const fn syslog_level(severity: Severity) -> u8 {
    match severity {
        Severity::Err => 3,
        Severity::Warn => 4,
        Severity::Notice => 5,
        Severity::Info => 6,
        Severity::Debug => 7,
    }
}

fn open_file(path: &Path, truncate: bool) -> Result<File, LogError> {
    let open = || -> io::Result<File> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o640)
            .open(path)?;
        if truncate {
            file.set_len(0)?;
        }
        Ok(file)
    };
    open().map_err(|why| LogError::File {
        path: path.to_owned(),
        why,
    })
}
