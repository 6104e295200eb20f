//! Programs of pluggable transports, of a client and of a bridge: starts them, reads what they print, ends them.
//!
//! [`weft_proxy::transports::Managed`] interprets a program's lines and decides when it is
//! restarted.

mod child;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Instant;

use mio::Registry;
use weft_proxy::transports::{Action, Environment, Managed, Program, Role, Side, State, Transport};

use crate::logging::log;
use child::{Child, Ending};

pub(crate) use child::PIPES;

/// A program that torrc asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The program to start.
    pub(crate) program: Program,
    /// Environment for its next start.
    pub(crate) environment: Environment,
    /// Its lines in torrc: when they change, the running program is restarted.
    pub(crate) lines: Vec<String>,
}

/// Requirements for a program of either side.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) command: &'a [String],
    pub(crate) transports: &'a [String],
    /// OutboundBindAddressPT.
    pub(crate) outbound: (Option<Ipv4Addr>, Option<Ipv6Addr>),
    pub(crate) data_directory: &'a Path,
    pub(crate) role: Role,
}

impl Wanted {
    /// `lines`: as the field, but for what each program has of torrc.
    pub(crate) fn new(plan: Plan<'_>, mut lines: Vec<String>) -> Self {
        let (outbound_v4, outbound_v6) = plan.outbound;
        lines.push(format!("{outbound_v4:?} {outbound_v6:?}"));
        let (side, by_proxy) = match &plan.role {
            Role::Client { proxy } => (Side::Client, proxy.is_some()),
            Role::Server { .. } => (Side::Server, false),
        };
        Wanted {
            program: Program {
                side,
                command: plan.command.to_vec(),
                transports: plan.transports.to_vec(),
                by_proxy,
            },
            environment: Environment {
                state_folder: format!("{}/", plan.data_directory.join("pt_state").display()),
                transports: plan.transports.to_vec(),
                outbound_v4,
                outbound_v6,
                role: plan.role,
            },
            lines,
        }
    }
}

/// Something that happened to programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// These transports can be used now: TRANSPORT_LAUNCHED for each.
    Ready(Vec<Transport>),
    /// Some of a program cannot be used any more: [`Programs::transports`] has the rest.
    Lost,
}

/// All programs of one side.
#[derive(Debug)]
pub(crate) struct Programs {
    /// Registry of the poll that gets [`PIPES`].
    registry: Registry,
    running: Vec<Running>,
    ending: Ending,
    /// The last turn left something to read, for which no event comes.
    more: bool,
}

#[derive(Debug)]
struct Running {
    wanted: Wanted,
    managed: Managed,
    child: Option<Child>,
    /// It is started as soon as no program is in the way that was stopped.
    launch_due: bool,
}

impl Programs {
    /// None yet. When the poll of `registry` has [`PIPES`], take a [`turn`](Self::turn).
    pub(crate) fn new(registry: Registry) -> Self {
        Programs {
            registry,
            running: Vec::new(),
            ending: Ending::default(),
            more: false,
        }
    }

    /// Follows torrc: programs that it does not have any more are ended, new ones are started by the next
    /// [`turn`](Self::turn), and those that failed are tried again.
    pub(crate) fn follow(&mut self, wanted: Vec<Wanted>, now: Instant) -> Vec<Change> {
        let mut before = std::mem::take(&mut self.running);
        let mut changes = Vec::new();
        for wanted in wanted {
            let same = |running: &Running| {
                let is = &running.wanted;
                !running.managed.has_failed()
                    && is.program == wanted.program
                    && is.lines == wanted.lines
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
                    launch_due: false,
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

    /// Reads what was printed, and starts and ends what is due. Call it once a second, for [`PIPES`], and while
    /// [`has_more`](Self::has_more).
    pub(crate) fn turn(&mut self, now: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        self.more = self.ending.turn(now);
        for running in &mut self.running {
            self.more |= running.turn(&self.registry, &mut self.ending, now, &mut changes);
        }
        changes
    }

    /// The next turn has something to read at once.
    pub(crate) fn has_more(&self) -> bool {
        self.more
    }

    /// Transports that can be used now.
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
    pub(crate) fn end(&mut self, now: Instant) {
        for mut running in std::mem::take(&mut self.running) {
            running.managed.stop(now);
            running.act(&mut self.ending, now, &mut Vec::new());
        }
        std::mem::take(&mut self.ending).end();
    }
}

impl Running {
    /// True: there may be more to read.
    fn turn(
        &mut self,
        registry: &Registry,
        ending: &mut Ending,
        now: Instant,
        changes: &mut Vec<Change>,
    ) -> bool {
        let mut more = false;
        if let Some(child) = &mut self.child {
            let managed = &mut self.managed;
            // Output from before its end counts.
            let ended = child.ended();
            more = child.read(|stream, bytes| managed.output(now, stream, bytes));
            managed.read_lines(now);
            if let Some(status) = ended {
                self.child = None;
                self.managed.exited(now, &status);
            }
        }
        self.managed.tick(now);
        self.act(ending, now, changes);
        if self.launch_due && !ending.is_in_the_way_of(&self.wanted.program) {
            self.launch_due = false;
            self.launch(registry, now);
            self.act(ending, now, changes);
        }
        self.child.is_some() && (more || self.managed.has_more())
    }

    fn act(&mut self, ending: &mut Ending, now: Instant, changes: &mut Vec<Change>) {
        while let Some(action) = self.managed.poll() {
            match action {
                Action::Launch => self.launch_due = true,
                Action::Stop => {
                    if let Some(child) = self.child.take() {
                        ending.stop(child, self.wanted.program.clone(), now);
                    }
                }
                Action::Log(line) => log(&line),
                Action::Ready => {
                    let transports = self.managed.transports().to_vec();
                    changes.push(Change::Ready(transports));
                }
                Action::Lost => changes.push(Change::Lost),
            }
        }
    }

    fn launch(&mut self, registry: &Registry, now: Instant) {
        let Wanted {
            program,
            environment,
            ..
        } = &self.wanted;
        match Child::start(registry, &program.command, &environment.variables()) {
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
