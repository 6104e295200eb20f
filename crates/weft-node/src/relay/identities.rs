//! The identities of one process (`weft -f A -f B`): each is a separate node, on its own main
//! thread.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use weft_config::options::LogOptions;

use super::error::StartError;
use super::{Context, Relay};
use crate::logging::{self, IdentityName, LogError};

/// Whose log lines and errors they are.
#[derive(Clone, Debug)]
pub(super) struct Name {
    in_log: Option<IdentityName>,
    torrc: String,
}

impl Name {
    /// Does work of the identity on a thread that is not its own: the work's lines are the identity's, and so is its error.
    pub(super) fn within<T, E: Into<StartError>>(
        &self,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, StartError> {
        logging::within(self.in_log, work).map_err(|why| self.of(why))
    }

    /// An error, with the torrc that it is about where there are several.
    fn of(&self, why: impl Into<StartError>) -> StartError {
        match self.in_log {
            None => why.into(),
            Some(_) => why.into().of(&self.torrc),
        }
    }
}

impl Context {
    /// Whose its log lines and errors are.
    pub(super) fn name(&self) -> Name {
        Name {
            in_log: self.name_in_log,
            torrc: self.torrc.clone(),
        }
    }

    /// See [`Name::within`].
    pub(super) fn within<T, E: Into<StartError>>(
        &self,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, StartError> {
        self.name().within(work)
    }
}

/// Runs all of them until the last has ended.
///
/// # Errors
///
/// That of one of them; the others have gone on nevertheless.
pub(super) fn run(mut all: Vec<Relay>) -> Result<(), StartError> {
    if all.is_empty() {
        return Ok(());
    }
    let first = all.remove(0);
    let mut running = Vec::new();
    for relay in all {
        let name = relay.context.name();
        let thread_name = format!("identity-{}", running.len() + 1);
        let thread = logging::spawn(&thread_name, move || run_beside_others(relay));
        running.push(thread.map_err(|why| name.of(why))?);
    }
    if running.is_empty() {
        return run_one(first);
    }
    let mut result = run_beside_others(first);
    for thread in running {
        let ended = thread.join().unwrap_or_else(|_| Err(panicked().into()));
        result = result.and(ended);
    }
    result
}

/// Runs one that leaves the others as they are, whatever happens to it. Its end is reported when it ends, and not with theirs.
fn run_beside_others(relay: Relay) -> Result<(), StartError> {
    let name = relay.context.name();
    let ended = catch_unwind(AssertUnwindSafe(|| run_one(relay)));
    ended.unwrap_or_else(|_| {
        let why = name.of(panicked());
        tracing::error!("{why}. The other identities go on.");
        Err(why)
    })
}

fn panicked() -> io::Error {
    io::Error::other("its main thread panicked")
}

impl Relay {
    /// Takes over what the process does once, if the identity that did it has ended.
    pub(super) fn follow_lead(&mut self, now: Instant) {
        let leads = self.process.membership.leads();
        if leads && !std::mem::replace(&mut self.process.leads, leads) {
            self.follow_listeners(now);
        }
    }

    /// Applies options of logs, and opens files again: one identity does it for all.
    pub(super) fn apply_log(&self, new: &LogOptions, old: &LogOptions) -> Result<(), LogError> {
        match self.process.membership.leads() {
            true => self.context.logging.apply(new, Some(old)),
            false => Ok(()),
        }
    }
}

fn run_one(relay: Relay) -> Result<(), StartError> {
    let name = relay.context.name();
    name.within(|| relay.run())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_s_work_has_its_lines_and_its_error_its_torrc() {
        let own = IdentityName {
            number: 1,
            name: "b",
        };
        let fails_as = |in_log| {
            let torrc = "/b".to_owned();
            let work = || {
                assert_eq!(logging::current(), in_log);
                Err::<(), _>(io::Error::other("no more threads"))
            };
            let result = Name { in_log, torrc }.within(work);
            assert_eq!(logging::current(), None, "the thread is another's again");
            result.unwrap_err().to_string()
        };
        let error = fails_as(None);
        assert!(
            error.contains("no more threads") && !error.contains("/b"),
            "{error}"
        );
        assert_eq!(fails_as(Some(own)), format!("/b: {error}"));
    }
}
