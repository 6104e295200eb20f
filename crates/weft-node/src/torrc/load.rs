//! From the command line to options: finds the files, reads them, assigns them in order.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::build::build;
use super::change::ChangeError;
use super::command_line::{CommandLine, TorrcSource};
use super::host::Host;
use super::include::{MAX_FILE_SIZE, lex_with_includes, read_file};
use super::lexer::Line;
use super::options::Options;
use super::reload::{Change, changes};
use super::report::Report;
use super::settings::Settings;

/// A configuration that can be used.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What to run by.
    pub options: Options,
    /// What would be in force without torrc and command line: `--dump-config short` leaves it out.
    pub defaults: Settings,
    /// Warnings and notices, to be logged.
    pub report: Report,
}

/// Reads the configuration that a command line names.
///
/// # Errors
/// Everything that is wrong with it, together with what there is to warn about.
pub fn load(command_line: &CommandLine, host: &Host) -> Result<Loaded, Report> {
    let mut report = command_line.report.clone();
    let defaults = defaults_text(command_line, host, &mut report);
    let torrc = torrc_text(command_line, host, &mut report);
    if report.has_errors() {
        return Err(report);
    }
    from_texts(&defaults, &torrc, &command_line.options, host, report)
}

/// A text and what to call it.
type Named = (Arc<str>, Vec<u8>);

fn from_texts(
    defaults: &Named,
    torrc: &Named,
    options: &[Line],
    host: &Host,
    mut report: Report,
) -> Result<Loaded, Report> {
    let defaults = lex_with_includes(&defaults.1, &defaults.0, &mut report);
    let torrc = lex_with_includes(&torrc.1, &torrc.0, &mut report);
    // The defaults depend on whether the network is a private one, which only the lines can tell.
    let mut assigned = assign(&defaults, &torrc, options, false, report.clone());
    if assigned.settings.flag("TestingTorNetwork") {
        assigned = assign(&defaults, &torrc, options, true, report);
    }
    let Assigned {
        settings,
        defaults,
        mut report,
    } = assigned;
    match build(settings, host, &mut report) {
        Some(options) => Ok(Loaded {
            options,
            defaults,
            report,
        }),
        None => Err(report),
    }
}

/// Reads a configuration from a text alone: for tests and fuzzing.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load_text(text: &str, host: &Host) -> Result<Loaded, Report> {
    let empty = ("no defaults".into(), Vec::new());
    let torrc = ("torrc".into(), text.as_bytes().to_vec());
    from_texts(&empty, &torrc, &[], host, Report::default())
}

/// Reads a torrc that a controller gives, in place of the file's.
///
/// # Errors
/// As [`reload`](super::reload()).
pub fn reload_text(
    command_line: &CommandLine,
    host: &Host,
    text: &str,
    old: &Options,
) -> Result<(Loaded, Vec<Change>), ChangeError> {
    let mut report = Report::default();
    let defaults = defaults_text(command_line, host, &mut report);
    let torrc = ("a controller".into(), text.as_bytes().to_vec());
    let mut loaded = from_texts(&defaults, &torrc, &command_line.options, host, report)
        .map_err(ChangeError::Value)?;
    let changes = changes(old, &mut loaded).map_err(ChangeError::Transition)?;
    Ok((loaded, changes))
}

/// The torrc that a command line names; `None`: it came from elsewhere than a file.
#[must_use]
pub fn torrc_path(command_line: &CommandLine, host: &Host) -> Option<PathBuf> {
    let path = match &command_line.torrc {
        Some(TorrcSource::Stdin) => return None,
        Some(TorrcSource::File(path)) => expand(path, host),
        None => default_torrc(host),
    };
    Some(std::path::absolute(&path).unwrap_or(path))
}

struct Assigned {
    settings: Settings,
    defaults: Settings,
    report: Report,
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

fn defaults_text(command_line: &CommandLine, host: &Host, report: &mut Report) -> Named {
    let named = command_line.defaults_torrc.as_deref();
    let path = named.map_or_else(|| host.defaults_torrc.clone(), |path| expand(path, host));
    match read_file(&path) {
        Ok(text) => {
            report.notice(None, format!("Read defaults file \"{}\"", path.display()));
            (path.display().to_string().into(), text)
        }
        // A missing defaults file is no defaults, even where it is named, as in C tor.
        Err(why) if why.kind() == io::ErrorKind::NotFound => ("no defaults".into(), Vec::new()),
        Err(why) => {
            report.error(
                None,
                format!("cannot read defaults file \"{}\": {why}", path.display()),
            );
            ("no defaults".into(), Vec::new())
        }
    }
}

fn torrc_text(command_line: &CommandLine, host: &Host, report: &mut Report) -> Named {
    let path = match &command_line.torrc {
        Some(TorrcSource::Stdin) => return stdin_text(report),
        Some(TorrcSource::File(path)) => expand(path, host),
        None => default_torrc(host),
    };
    let name: Arc<str> = path.display().to_string().into();
    match read_torrc(&path) {
        Ok(text) => {
            report.notice(None, format!("Read configuration file \"{name}\"."));
            (name, text)
        }
        Err(_) if command_line.torrc.is_none() || command_line.ignore_missing_torrc => {
            report.notice(
                None,
                format!("Configuration file \"{name}\" not present, using reasonable defaults."),
            );
            (name, Vec::new())
        }
        Err(why) if command_line.allow_missing_torrc => {
            report.warn(
                None,
                format!("cannot read configuration file \"{name}\": {why}"),
            );
            (name, Vec::new())
        }
        Err(why) => {
            report.error_in_tors_words(
                None,
                format!("cannot read configuration file \"{name}\": {why}"),
                format!("Unable to open configuration file \"{name}\"."),
            );
            (name, Vec::new())
        }
    }
}

fn read_torrc(path: &Path) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.is_file() {
        read_file(path)
    } else {
        Err(io::Error::other("it is not a file"))
    }
}

fn stdin_text(report: &mut Report) -> Named {
    let mut text = Vec::new();
    let read = io::stdin()
        .lock()
        .take(MAX_FILE_SIZE + 1)
        .read_to_end(&mut text);
    match read {
        Ok(size) if size as u64 <= MAX_FILE_SIZE => {}
        Ok(_) => report.error(None, "what is on standard input is too large to be a torrc"),
        Err(why) => report.error(
            None,
            format!("cannot read torrc from standard input: {why}"),
        ),
    }
    ("standard input".into(), text)
}

/// `/etc/tor/torrc`, or else `~/.torrc`; the first where there is neither.
fn default_torrc(host: &Host) -> PathBuf {
    let of_user = || host.expand("~/.torrc").filter(|path| path.is_file());
    if host.torrc.is_file() {
        host.torrc.clone()
    } else {
        of_user().unwrap_or_else(|| host.torrc.clone())
    }
}

fn expand(path: &Path, host: &Host) -> PathBuf {
    path.to_str()
        .and_then(|text| host.expand(text))
        .unwrap_or_else(|| path.to_owned())
}
