//! Differences of two configurations, and a running node's ability to follow them (C tor:
//! `options_transition_…` of src/app/config/config.c).

use crate::load::torrc::Loaded;
use crate::options::Options;
use crate::report::Report;
use crate::table::key::Key;
use crate::table::known::Kind;

/// An option whose value changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The option's canonical name; `ORPortLines` and its like for lists of several names.
    pub name: &'static str,
    /// True if the change takes effect only after a restart, although C tor follows it at once.
    pub needs_restart: bool,
}

impl Change {
    /// Returns true if this option changed.
    #[must_use]
    pub fn is<T>(&self, key: Key<T>) -> bool {
        self.name == key.name()
    }
}

/// Why a configuration stays as it is.
#[derive(Clone, Debug)]
pub enum ChangeError {
    /// The option does not exist.
    Unknown(String),
    /// The value is invalid for the option.
    Value(Report),
    /// It cannot change while the node runs.
    Transition(Report),
    /// The whole would contradict itself.
    Whole(Report),
}

/// Changes from one configuration to another. `shared`: the process has other identities, and the
/// new configuration is only for this one.
pub(crate) fn changes(
    old: &Options,
    new: &mut Loaded,
    shared: bool,
) -> Result<Vec<Change>, Report> {
    let mut changes = Vec::new();
    for ((known, before, _), (_, after, origin)) in
        old.settings.iter().zip(new.options.settings.iter())
    {
        if matches!(known.kind, Kind::LinesOf(_) | Kind::Obsolete) || before == after {
            continue;
        }
        if known.immutable {
            let origin = origin.cloned();
            let text = format!(
                "while the node is running, {} cannot be changed; restart it for that",
                known.name
            );
            new.report.error(origin.as_ref(), text);
        } else if known.of_process && shared {
            let origin = origin.cloned();
            let text = format!(
                "{} is of the whole process, which has other identities: set it in a torrc and send SIGHUP",
                known.name
            );
            new.report.error(origin.as_ref(), text);
        }
        changes.push(Change {
            name: known.name,
            needs_restart: known.needs_restart,
        });
    }
    if new.report.has_errors() {
        Err(new.report.clone())
    } else {
        Ok(changes)
    }
}
