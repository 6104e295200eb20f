//! What a controller changes of a configuration (SETCONF, RESETCONF; config.c,
//! `options_trial_assign`).

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use super::build::build;
use super::host::Host;
use super::known;
use super::lexer::{Command, Line};
use super::load::Loaded;
use super::options::Options;
use super::reload::{Change, changes};
use super::report::{Origin, Report};
use super::settings::Settings;

/// Why a configuration stays as it is.
#[derive(Clone, Debug)]
pub enum ChangeError {
    /// There is no such option.
    Unknown(String),
    /// A value is none of the option's.
    Value(Report),
    /// It cannot change while the node runs.
    Transition(Report),
    /// The whole would contradict itself.
    Whole(Report),
}

/// Sets options, one pair for each line. An option is cleared before it gets its first; without a
/// value it stays so, or, where `reset`, is as if nobody had set it.
///
/// # Errors
///
/// Nothing changes, and why.
pub fn change(
    old: &Options,
    pairs: &[(String, Option<String>)],
    reset: bool,
    host: &Host,
) -> Result<(Loaded, Vec<Change>), ChangeError> {
    let origin = Origin::whole("a controller");
    let mut settings = old.settings.clone();
    for (key, _) in pairs {
        if known::find(key, false).is_none() {
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
            })
        })
        .collect();
    let mut report = Report::default();
    settings.assign(&lines, false, &mut report);
    if report.has_errors() {
        return Err(ChangeError::Value(report));
    }
    let testing = settings.flag("TestingTorNetwork");
    let Some(options) = build(settings, host, &mut report) else {
        return Err(ChangeError::Whole(report));
    };
    let mut loaded = Loaded {
        options,
        defaults: Settings::new(testing),
        report,
    };
    let changes = changes(old, &mut loaded).map_err(ChangeError::Transition)?;
    Ok((loaded, changes))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::torrc::load_text;

    fn after(
        torrc: &str,
        pairs: &[(&str, Option<&str>)],
        reset: bool,
    ) -> Result<Options, ChangeError> {
        let old = load_text(torrc, &Host::empty()).unwrap().options;
        let own = |text: &str| text.to_owned();
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(key, value)| (own(key), value.map(own)))
            .collect();
        change(&old, &pairs, reset, &Host::empty()).map(|(loaded, _)| loaded.options)
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
        assert_eq!(cleared.settings.text("SafeLogging"), Some("1"));
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
