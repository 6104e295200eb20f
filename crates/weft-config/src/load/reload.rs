//! New configurations of a running node: SIGHUP reads torrc again; a controller sets options (SETCONF,
//! RESETCONF; config.c, `options_trial_assign`) or loads a whole torrc (LOADCONF).

use crate::host::Host;
use crate::load::change::{Change, ChangeError, changes};
use crate::load::command_line::CommandLine;
use crate::load::identities::{keep, load_all};
use crate::load::torrc::{
    Loaded, assign_texts, defaults_text, defaults_torrc_path, is_pipe, torrc_path,
};
use crate::options::{Options, build};
use crate::report::{Origin, Report};
use crate::settings::Settings;
use crate::table::find;
use crate::table::keys;
use crate::text::lexer::{Command, Line};

/// Reads the configurations of all identities of the process again. Returns them, and the changes
/// of the identity `number` from its given old configuration.
///
/// # Errors
/// All errors in any of them, including changes that are not possible in a running node. The old
/// options stay in force then.
pub fn reload(
    command_line: &CommandLine,
    number: usize,
    host: &dyn Host,
    old: &Options,
) -> Result<(Vec<Loaded>, Vec<Change>), Report> {
    refuse_second_read(torrc_read_once(command_line, host))?;
    refuse_second_read(defaults_read_once(command_line, host))?;
    let mut all = load_all(command_line, host)?;
    let changes = match all.get_mut(number) {
        Some(loaded) => changes(old, loaded, false)?,
        None => Vec::new(),
    };
    Ok((all, changes))
}

/// Refuses to read again what was read from such a place: a pipe that was read is empty, or blocks.
///
/// # Errors
/// There is one.
fn refuse_second_read(place: Option<String>) -> Result<(), Report> {
    let Some(place) = place else {
        return Ok(());
    };
    let mut report = Report::default();
    report.error(None, format!("{place}, which cannot be read again"));
    Err(report)
}

/// The place of a torrc that cannot be read twice.
fn torrc_read_once(command_line: &CommandLine, host: &dyn Host) -> Option<String> {
    let identities = command_line.identities();
    identities.iter().find_map(|line| {
        let Some(path) = torrc_path(line, host) else {
            return Some("torrc was read from standard input".to_owned());
        };
        let pipe = is_pipe(&path, host);
        pipe.then(|| format!("torrc was read from the pipe {}", path.display()))
    })
}

/// The place of a defaults torrc that cannot be read twice.
fn defaults_read_once(command_line: &CommandLine, host: &dyn Host) -> Option<String> {
    let path = defaults_torrc_path(command_line, host);
    let pipe = is_pipe(&path, host);
    pipe.then(|| {
        format!(
            "the defaults torrc was read from the pipe {}",
            path.display()
        )
    })
}

/// Reads a torrc that a controller gives to an identity, in place of the file's. Options of the
/// process keep their values, unless the torrc sets them.
///
/// # Errors
/// As [`reload`].
pub fn reload_text(
    command_line: &CommandLine,
    host: &dyn Host,
    text: &str,
    old: &Options,
) -> Result<(Loaded, Vec<Change>), ChangeError> {
    refuse_second_read(defaults_read_once(command_line, host)).map_err(ChangeError::Value)?;
    let mut report = Report::default();
    let defaults = defaults_text(command_line, host, &mut report);
    let torrc = ("a controller".into(), text.as_bytes().to_vec());
    let options = &command_line.options;
    let mut assigned = assign_texts(&defaults, &torrc, options, host, report);
    let shared = command_line.is_shared();
    if shared {
        keep(&mut assigned, &old.settings);
    }
    let mut loaded = assigned.build(host).map_err(ChangeError::Value)?;
    let changes = changes(old, &mut loaded, shared).map_err(ChangeError::Transition)?;
    Ok((loaded, changes))
}

/// Sets options, one pair for each line. An option is cleared before it gets its first; without a
/// value it stays so, or, where `reset`, is as if nobody had set it. `shared`: the process has other identities.
///
/// # Errors
///
/// Nothing changes, and why.
pub fn change(
    old: &Options,
    pairs: &[(String, Option<String>)],
    reset: bool,
    shared: bool,
    host: &dyn Host,
) -> Result<(Loaded, Vec<Change>), ChangeError> {
    let origin = Origin::whole("a controller");
    let mut settings = old.settings.clone();
    for (key, _) in pairs {
        if find::find(key, false).is_none() {
            return Err(ChangeError::Unknown(key.clone()));
        }
        settings.forget(key, reset, &origin);
    }
    let lines: Vec<Line> = pairs
        .iter()
        .filter_map(|(key, value)| {
            Some(Line {
                key: key.clone(),
                value: value.clone().filter(|value| !value.is_empty())?,
                command: Command::Append,
                origin: origin.clone(),
                last_line: 0,
            })
        })
        .collect();
    let mut report = Report::default();
    settings.assign(&lines, false, &mut report);
    if report.has_errors() {
        return Err(ChangeError::Value(report));
    }
    let testing = settings.flag(keys::TestingTorNetwork);
    let Some(options) = build(settings, host, &mut report) else {
        return Err(ChangeError::Whole(report));
    };
    let mut loaded = Loaded {
        options,
        defaults: Settings::new(testing),
        report,
    };
    let changes = changes(old, &mut loaded, shared).map_err(ChangeError::Transition)?;
    Ok((loaded, changes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryHost, load_text};

    fn after(
        torrc: &str,
        pairs: &[(&str, Option<&str>)],
        reset: bool,
    ) -> Result<Options, ChangeError> {
        let old = load_text(torrc, &MemoryHost::new()).unwrap().options;
        let own = |text: &str| text.to_owned();
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(key, value)| (own(key), value.map(own)))
            .collect();
        change(&old, &pairs, reset, false, &MemoryHost::new()).map(|(loaded, _)| loaded.options)
    }

    #[test]
    fn options_are_set_cleared_and_reset() {
        let torrc = "Nickname me\nSocksPort 9050\nSocksPort 9051\nSafeLogging 0\n";
        let set = after(
            torrc,
            &[("nickname", Some("you")), ("SocksPort", Some("9052"))],
            false,
        );
        let set = set.unwrap();
        assert_eq!(set.identity.nickname, "you");
        assert_eq!(set.apps.ports.len(), 1);
        let two = [("SocksPort", Some("1")), ("SocksPort", Some("2"))];
        assert_eq!(after(torrc, &two, false).unwrap().apps.ports.len(), 2);
        let cleared = after(torrc, &[("SafeLogging", None)], true).unwrap();
        assert_eq!(cleared.settings.text(keys::SafeLogging), Some("1"));
        let cleared = after(torrc, &[("SocksPort", None)], true).unwrap();
        assert_eq!(cleared.apps.ports.len(), 1, "9050 again");
    }

    #[test]
    fn what_cannot_be_changes_nothing() {
        let error = |pairs: &[(&str, Option<&str>)]| after("", pairs, false).unwrap_err();
        assert!(matches!(error(&[("Frob", None)]), ChangeError::Unknown(key) if key == "Frob"));
        assert!(matches!(
            error(&[("SafeSocks", Some("x"))]),
            ChangeError::Value(_)
        ));
        assert!(matches!(
            error(&[("DataDirectory", Some("/x"))]),
            ChangeError::Transition(_)
        ));
        assert!(matches!(
            error(&[("SocksPort", Some("x"))]),
            ChangeError::Whole(_)
        ));
    }
}
