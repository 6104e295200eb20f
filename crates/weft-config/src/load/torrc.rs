//! From the command line to options: finds the files, reads them, assigns them in order.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::host::{FileKind, Host};
use crate::load::command_line::{CommandLine, TorrcSource};
use crate::options::{Options, build};
use crate::report::Report;
use crate::settings::Settings;
use crate::table::keys;
use crate::text::include::{MAX_FILE_SIZE, lex_with_includes, read_file};
use crate::text::lexer::Line;

/// A configuration that can be used.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Options of the node.
    pub options: Options,
    /// Settings without torrc and command line: `--dump-config short` omits these values.
    pub defaults: Settings,
    /// Warnings and notices, to be logged.
    pub report: Report,
}

/// Reads the configuration that a command line names.
///
/// # Errors
/// All errors, together with the warnings.
pub fn load(command_line: &CommandLine, host: &dyn Host) -> Result<Loaded, Report> {
    read(command_line, host)?.build(host)
}

/// Reads the files that a command line names.
pub(crate) fn read(command_line: &CommandLine, host: &dyn Host) -> Result<Assigned, Report> {
    let mut report = command_line.report.clone();
    let defaults = defaults_text(command_line, host, &mut report);
    let torrc = torrc_text(command_line, host, &mut report);
    if report.has_errors() {
        return Err(report);
    }
    Ok(assign_texts(
        &defaults,
        &torrc,
        &command_line.options,
        host,
        report,
    ))
}

/// A text and its name.
pub(crate) type Named = (Arc<str>, Vec<u8>);

pub(crate) fn assign_texts(
    defaults: &Named,
    torrc: &Named,
    options: &[Line],
    host: &dyn Host,
    mut report: Report,
) -> Assigned {
    let defaults = lex_with_includes(&defaults.1, &defaults.0, host, &mut report);
    let torrc = lex_with_includes(&torrc.1, &torrc.0, host, &mut report);
    // The defaults depend on whether the network is a private one, which only the lines show.
    let mut assigned = assign(&defaults, &torrc, options, false, report.clone());
    if assigned.settings.flag(keys::TestingTorNetwork) {
        assigned = assign(&defaults, &torrc, options, true, report);
    }
    assigned
}

/// Reads a configuration from a text alone: for tests and fuzzing.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load_text(text: &str, host: &dyn Host) -> Result<Loaded, Report> {
    let empty = ("no defaults".into(), Vec::new());
    let torrc = ("torrc".into(), text.as_bytes().to_vec());
    assign_texts(&empty, &torrc, &[], host, Report::default()).build(host)
}

/// The torrc that a command line names; `None`: it came from elsewhere than a file.
#[must_use]
pub fn torrc_path(command_line: &CommandLine, host: &dyn Host) -> Option<PathBuf> {
    let path = match &command_line.torrc {
        Some(TorrcSource::Stdin) => return None,
        Some(TorrcSource::File(path)) => expand(path, host),
        None => default_torrc(host),
    };
    Some(host.absolute(&path))
}

/// The defaults torrc that a command line names, or else the system's; there need not be one.
#[must_use]
pub fn defaults_torrc_path(command_line: &CommandLine, host: &dyn Host) -> PathBuf {
    let named = command_line.defaults_torrc.as_deref();
    named.map_or_else(|| host.defaults_torrc(), |path| expand(path, host))
}

/// True for a pipe: its second reader gets nothing, or waits for ever.
pub(crate) fn is_pipe(path: &Path, host: &dyn Host) -> bool {
    host.kind(path).is_ok_and(|kind| kind == FileKind::Pipe)
}

/// The settings of the defaults torrc alone, as the file is now: SAVECONF leaves them out. A file that cannot be read, or
/// not again, sets nothing.
#[must_use]
pub fn read_defaults(command_line: &CommandLine, host: &dyn Host, testing: bool) -> Settings {
    let mut report = Report::default();
    let mut settings = Settings::new(testing);
    if is_pipe(&defaults_torrc_path(command_line, host), host) {
        return settings;
    }
    let (name, text) = defaults_text(command_line, host, &mut report);
    let lines = lex_with_includes(&text, &name, host, &mut report);
    settings.assign(&lines, false, &mut report);
    settings
}

/// A configuration whose options are set and not yet held against each other.
pub(crate) struct Assigned {
    pub(crate) settings: Settings,
    /// Settings after the defaults torrc.
    pub(crate) defaults: Settings,
    pub(crate) report: Report,
}

impl Assigned {
    /// Returns true if torrc, or the command line, sets the option at this place of the table.
    pub(crate) fn sets(&self, place: usize) -> bool {
        let origin = |settings: &Settings| settings.at(place).and_then(|of| of.origin.clone());
        let own = origin(&self.settings);
        own.is_some() && own != origin(&self.defaults)
    }

    /// Makes options of it.
    pub(crate) fn build(mut self, host: &dyn Host) -> Result<Loaded, Report> {
        match build(self.settings, host, &mut self.report) {
            Some(options) => Ok(Loaded {
                options,
                defaults: self.defaults,
                report: self.report,
            }),
            None => Err(self.report),
        }
    }
}

fn assign(
    defaults: &[Line],
    torrc: &[Line],
    options: &[Line],
    testing: bool,
    mut report: Report,
) -> Assigned {
    let mut settings = Settings::new(testing);
    settings.assign(defaults, false, &mut report);
    let defaults = settings.clone();
    settings.assign(torrc, false, &mut report);
    settings.assign(options, true, &mut report);
    Assigned {
        settings,
        defaults,
        report,
    }
}

pub(crate) fn defaults_text(
    command_line: &CommandLine,
    host: &dyn Host,
    report: &mut Report,
) -> Named {
    let path = defaults_torrc_path(command_line, host);
    match read_file(&path, host) {
        Ok(text) => {
            report.event(format!("Read defaults file \"{}\"", path.display()));
            (path.display().to_string().into(), text)
        }
        // A missing defaults file means no defaults, even where it is named, as in C tor.
        Err(why) if is_absent(&why) => ("no defaults".into(), Vec::new()),
        Err(why) => {
            report.error(
                None,
                format!("cannot read defaults file \"{}\": {why}", path.display()),
            );
            ("no defaults".into(), Vec::new())
        }
    }
}

fn torrc_text(command_line: &CommandLine, host: &dyn Host, report: &mut Report) -> Named {
    let path = match &command_line.torrc {
        Some(TorrcSource::Stdin) => return stdin_text(host, report),
        Some(TorrcSource::File(path)) => expand(path, host),
        None => default_torrc(host),
    };
    let name: Arc<str> = path.display().to_string().into();
    match read_torrc(&path, host) {
        Ok(text) => {
            report.event(format!("Read configuration file \"{name}\"."));
            (name, text)
        }
        // C tor continues without one that it cannot read, too: without UseBridges, for example.
        Err(why)
            if is_absent(&why)
                && (command_line.torrc.is_none() || command_line.ignore_missing_torrc) =>
        {
            report.notice(
                None,
                format!("Configuration file \"{name}\" not present, using reasonable defaults."),
            );
            (name, Vec::new())
        }
        Err(why) if is_absent(&why) && command_line.allow_missing_torrc => {
            report.warn(
                None,
                format!("cannot read configuration file \"{name}\": {why}"),
            );
            (name, Vec::new())
        }
        Err(why) => {
            report.error_with_c_tor_message(
                None,
                format!("cannot read configuration file \"{name}\": {why}"),
                format!("Unable to open configuration file \"{name}\"."),
            );
            (name, Vec::new())
        }
    }
}

fn read_torrc(path: &Path, host: &dyn Host) -> io::Result<Vec<u8>> {
    match host.kind(path)? {
        FileKind::File | FileKind::Pipe => read_file(path, host),
        // With --ignore-missing-torrc C tor starts without the options of its operator.
        FileKind::Folder => Err(io::Error::other(
            "it is a folder, not a file (Docker makes one where the file is missing on the host)",
        )),
        // No torrc, as in C tor: `--ignore-missing-torrc -f /dev/null` asks for the defaults.
        FileKind::Other => Err(io::Error::new(
            io::ErrorKind::NotFound,
            "it is a device or a socket, not a file",
        )),
    }
}

fn stdin_text(host: &dyn Host, report: &mut Report) -> Named {
    let text = host.read_stdin(MAX_FILE_SIZE + 1).unwrap_or_else(|why| {
        report.error(
            None,
            format!("cannot read torrc from standard input: {why}"),
        );
        Vec::new()
    });
    if text.len() as u64 > MAX_FILE_SIZE {
        report.error(None, "what is on standard input is too large to be a torrc");
    }
    ("standard input".into(), text)
}

/// `/etc/tor/torrc`, or else `~/.torrc`; the first where there is neither. One that cannot be read counts as
/// there: the defaults are for those who have no torrc.
fn default_torrc(host: &dyn Host) -> PathBuf {
    let torrc = host.torrc();
    let is_there = |path: &PathBuf| !host.kind(path).is_err_and(|why| is_absent(&why));
    let mut places = std::iter::once(torrc.clone()).chain(host.expand("~/.torrc"));
    places.find(is_there).unwrap_or(torrc)
}

/// Returns true if the file does not exist, rather than being unreadable.
fn is_absent(why: &io::Error) -> bool {
    matches!(
        why.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn expand(path: &Path, host: &dyn Host) -> PathBuf {
    path.to_str()
        .and_then(|text| host.expand(text))
        .unwrap_or_else(|| path.to_owned())
}
