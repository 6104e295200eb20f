//! One open log: lines go to a file, a stream, or the system's log daemon.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use super::LogError;
use super::severity::{Destination, LogLine, Severity, SeverityMask};

/// Where syslog daemons listen.
const SYSLOG_SOCKET: &str = "/dev/log";
/// `LOG_DAEMON`, as part of a message's priority.
const SYSLOG_DAEMON: u8 = 3 << 3;

/// One formatted line, in its parts.
pub(super) struct Formatted<'a> {
    pub(super) severity: Severity,
    /// Time and severity, as files and streams show them.
    pub(super) prefix: &'a str,
    /// What was logged.
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
    sink: Sink,
    /// Lines that could not be written since the last one that could.
    lost: u64,
}

impl Output {
    /// Opens the log that a torrc line asks for. A file is created as C tor creates it (mode 0640),
    /// and gets `first` as its first line: a disk that is full is told of now, not later.
    pub(super) fn open(
        line: &LogLine,
        truncate: bool,
        tag: Option<&str>,
        first: &Formatted<'_>,
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
                // A daemon that does not keep up costs lines, not time.
                socket.set_nonblocking(true).map_err(failed)?;
                let tag = tag.map_or_else(|| "Weft".to_owned(), |tag| format!("Weft-{tag}"));
                Sink::Syslog { socket, tag }
            }
        };
        let mut output = Self {
            takes: line.takes,
            sink,
            lost: 0,
        };
        if let Destination::File(path) = &line.to {
            output.write_now(first).map_err(|why| LogError::File {
                path: path.clone(),
                why,
            })?;
        }
        Ok(output)
    }

    /// Writes a line; what cannot be written is counted, and told of when writing works again.
    pub(super) fn write(&mut self, line: &Formatted<'_>) {
        if self.lost > 0 {
            let text = format!("{} lines could not be written to this log", self.lost);
            let told = Formatted {
                severity: Severity::Warn,
                prefix: line.prefix,
                text: &text,
            };
            if self.write_now(&told).is_err() {
                self.lost = self.lost.saturating_add(1);
                return;
            }
            self.lost = 0;
        }
        if self.write_now(line).is_err() {
            self.lost = self.lost.saturating_add(1);
        }
    }

    fn write_now(&mut self, line: &Formatted<'_>) -> io::Result<()> {
        if let Sink::Syslog { socket, tag } = &self.sink {
            let priority = SYSLOG_DAEMON | line.severity.syslog_level();
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
