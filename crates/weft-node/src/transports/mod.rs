//! Programs of pluggable transports, of a client and of a bridge: starts them, reads what they print, ends them.
//!
//! What a program's lines mean, and when it is started again, [`weft_transports::Managed`] decides.

mod child;

use std::time::Instant;

use weft_transports::{Action, Environment, Event, Managed, Program, State, Transport};

use crate::logging::log;
use child::{Child, Ending};

/// A program that torrc asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// What is started.
    pub(crate) program: Program,
    /// By which variables it is configured when it is started the next time.
    pub(crate) environment: Environment,
    /// What torrc has about it: where that changes, a program that runs is started anew.
    pub(crate) lines: Vec<String>,
}

/// Something that happened to programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// These transports can be used now: TRANSPORT_LAUNCHED for each.
    Ready(Vec<Transport>),
    /// Some of a program cannot be used any more: [`Programs::transports`] has the rest.
    Lost,
    /// For controllers.
    Event(Event),
}

/// All programs of one side.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    running: Vec<Running>,
    ending: Ending,
}

#[derive(Debug)]
struct Running {
    wanted: Wanted,
    managed: Managed,
    child: Option<Child>,
}

impl Programs {
    /// Follows torrc: programs that it does not have any more are ended, new ones are started by the next
    /// [`turn`](Self::turn), and those that failed are tried again.
    pub(crate) fn follow(&mut self, wanted: Vec<Wanted>, now: Instant) -> Vec<Change> {
        let mut before = std::mem::take(&mut self.running);
        let mut changes = Vec::new();
        for wanted in wanted {
            let same = |running: &Running| {
                let failed =
                    [State::Broken, State::FailedLaunch].contains(&running.managed.state());
                let is = &running.wanted;
                !failed && is.program == wanted.program && is.lines == wanted.lines
            };
            let running = match before.iter().position(same) {
                Some(at) => {
                    let running = before.swap_remove(at);
                    tracing::info!(
                        "Nothing changed for managed proxy '{}' after HUP: not restarting.",
                        wanted.program.name()
                    );
                    Running { wanted, ..running }
                }
                None => Running {
                    managed: Managed::new(wanted.program.clone()),
                    wanted,
                    child: None,
                },
            };
            self.running.push(running);
        }
        for mut old in before {
            old.managed.stop(now);
            old.act(&mut self.ending, now, &mut changes);
        }
        changes
    }

    /// Reads what was printed, and starts and ends what is due. Call it at least once a second; more often while
    /// [`is_configuring`](Self::is_configuring), for who waits for a transport.
    pub(crate) fn turn(&mut self, now: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        for running in &mut self.running {
            running.turn(&mut self.ending, now, &mut changes);
        }
        self.ending.turn(now);
        changes
    }

    /// What can be used now.
    pub(crate) fn transports(&self) -> impl Iterator<Item = &Transport> {
        let running = self.running.iter();
        running.flat_map(|running| running.managed.transports())
    }

    /// A program has yet to print its transports.
    pub(crate) fn is_configuring(&self) -> bool {
        let configuring = [State::Launched, State::AcceptingMethods];
        let mut states = self.running.iter().map(|running| running.managed.state());
        states.any(|state| configuring.contains(&state))
    }

    /// Replaces the variables of the next start of `program`, for instance where its transports must listen.
    pub(crate) fn set_environment(&mut self, program: &Program, environment: Environment) {
        for running in &mut self.running {
            if running.wanted.program == *program {
                running.wanted.environment = environment.clone();
            }
        }
    }

    /// Ends all programs, and waits for them a little.
    pub(crate) fn end(mut self, now: Instant) {
        for mut running in std::mem::take(&mut self.running) {
            running.managed.stop(now);
            running.act(&mut self.ending, now, &mut Vec::new());
        }
        self.ending.end();
    }
}

impl Running {
    fn turn(&mut self, ending: &mut Ending, now: Instant, changes: &mut Vec<Change>) {
        if let Some(child) = &mut self.child {
            let managed = &mut self.managed;
            // What it printed before it ended counts.
            let ended = child.ended();
            child.read(|stream, bytes| managed.output(now, stream, bytes));
            if let Some(status) = ended {
                self.child = None;
                self.managed.exited(now, &status);
            }
        }
        self.managed.tick(now);
        self.act(ending, now, changes);
    }

    fn act(&mut self, ending: &mut Ending, now: Instant, changes: &mut Vec<Change>) {
        while let Some(action) = self.managed.poll() {
            match action {
                Action::Launch => self.launch(now),
                Action::Stop => {
                    if let Some(child) = self.child.take() {
                        ending.stop(child, now);
                    }
                }
                Action::Log(line) => log(&line),
                Action::Ready => {
                    let transports = self.managed.transports().to_vec();
                    changes.push(Change::Ready(transports));
                }
                Action::Lost => changes.push(Change::Lost),
                Action::Event(event) => changes.push(Change::Event(event)),
            }
        }
    }

    fn launch(&mut self, now: Instant) {
        let Wanted {
            program,
            environment,
            ..
        } = &self.wanted;
        match Child::start(&program.command, &environment.variables()) {
            Ok(child) => {
                self.managed.launched(now, child.id());
                self.child = Some(child);
            }
            Err(why) => self.managed.failed_to_launch(now, &why.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
