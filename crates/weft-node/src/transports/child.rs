//! One process, its pipes, and how it is ended.

use std::io::{self, ErrorKind, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use mio::unix::pipe::Receiver;
use mio::{Interest, Registry, Token};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use weft_proxy::transports::{Program, Stream};

/// The event that a program has printed something.
pub(crate) const PIPES: Token = Token(usize::MAX - 3);
/// Bytes that are read of one pipe in one turn: more than a pipe holds. The rest is read in the next turn, at once.
const READ_AT_ONCE: usize = 256 << 10;
/// A process that was asked to end is killed after this.
const PATIENCE: Duration = Duration::from_secs(10);
/// At the end of Tor it is killed after this.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// A process of transports, and what it has started: they are a process group of their own.
#[derive(Debug)]
pub(super) struct Child {
    process: std::process::Child,
    /// Where it is closed, the process ends (TOR_PT_EXIT_ON_STDIN_CLOSE): also if we are killed.
    _stdin: Option<ChildStdin>,
    /// Nothing where it has closed them.
    output: Option<Receiver>,
    error: Option<Receiver>,
}

impl Child {
    /// Starts a program, by our own environment and `variables`. Its output is an event of
    /// [`PIPES`].
    ///
    /// # Errors
    ///
    /// The system cannot start it.
    pub(super) fn start(
        registry: &Registry,
        command: &[String],
        variables: &[(&'static str, String)],
    ) -> io::Result<Self> {
        let (file, arguments) = command
            .split_first()
            .ok_or_else(|| io::Error::from(ErrorKind::NotFound))?;
        let variables = variables.iter().map(|(name, value)| (name, value));
        let mut process = Command::new(file)
            .args(arguments)
            .envs(variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let _stdin = process.stdin.take();
        let output = process.stdout.take().map(Receiver::from);
        let error = process.stderr.take().map(Receiver::from);
        let mut child = Child {
            process,
            _stdin,
            output,
            error,
        };
        let pipes = [&mut child.output, &mut child.error];
        let watched = pipes.into_iter().flatten().try_for_each(|pipe| {
            pipe.set_nonblocking(true)?;
            registry.register(pipe, PIPES, Interest::READABLE)
        });
        if let Err(why) = watched {
            child.kill();
            return Err(why);
        }
        Ok(child)
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its exit code, or the signal that ended it, if it has ended. Processes that it started are
    /// ended, too.
    pub(super) fn ended(&mut self) -> Option<String> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        if let Some(id) = self.group()
            && waitid(Id::Pid(id), flags).is_ok_and(|status| status != WaitStatus::StillAlive)
        {
            // It is a zombie: no other group has its number yet.
            let _ = killpg(id, Signal::SIGKILL);
        }
        let status = self.process.try_wait().ok().flatten()?;
        let code = status.code().map(|code| code.to_string());
        let signal = || status.signal().map(|signal| format!("signal {signal}"));
        Some(code.or_else(signal).unwrap_or_else(|| "unknown".to_owned()))
    }

    /// Reads what it has written, as far as a turn goes. True: there may be more, for which no event comes.
    pub(super) fn read(&mut self, mut take: impl FnMut(Stream, &[u8])) -> bool {
        let output = read(&mut self.output, |bytes| take(Stream::Output, bytes));
        let error = read(&mut self.error, |bytes| take(Stream::Error, bytes));
        output || error
    }

    /// Its process group, which has its number.
    fn group(&self) -> Option<Pid> {
        i32::try_from(self.process.id()).ok().map(Pid::from_raw)
    }

    /// Asks it to end.
    fn terminate(&mut self) {
        self._stdin = None;
        if let Some(id) = self.group() {
            // It may have ended: it is a zombie then, whose number is not used again.
            let _ = killpg(id, Signal::SIGTERM);
        }
    }

    /// Ends it.
    fn kill(&mut self) {
        if let Some(id) = self.group() {
            let _ = killpg(id, Signal::SIGKILL);
        }
        let _ = self.process.wait();
    }
}

/// Reads until there is nothing, or a turn's bytes; true: there may be more.
fn read(pipe: &mut Option<Receiver>, mut take: impl FnMut(&[u8])) -> bool {
    let mut buffer = [0; 4096];
    let mut left = READ_AT_ONCE;
    while let Some(open) = pipe {
        match open.read(&mut buffer) {
            Ok(length @ 1..) => {
                take(buffer.get(..length).unwrap_or_default());
                left = left.saturating_sub(length);
                if left == 0 {
                    return true;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            // The process' end is found otherwise.
            Ok(0) | Err(_) => *pipe = None,
        }
    }
    false
}

/// Processes that were asked to end.
#[derive(Debug, Default)]
pub(super) struct Ending {
    ending: Vec<Stopped>,
}

#[derive(Debug)]
struct Stopped {
    child: Child,
    /// The program, with the transports that it offered.
    program: Program,
    kill_at: Instant,
}

impl Ending {
    /// Asks a process to end.
    pub(super) fn stop(&mut self, mut child: Child, program: Program, now: Instant) {
        child.terminate();
        self.ending.push(Stopped {
            child,
            program,
            kill_at: now + PATIENCE,
        });
    }

    /// True if a program still runs that may have the files or the ports of this one.
    pub(super) fn is_in_the_way_of(&self, program: &Program) -> bool {
        self.ending.iter().any(|old| {
            let mut names = old.program.transports.iter();
            old.program.command == program.command
                || names.any(|name| program.transports.contains(name))
        })
    }

    /// Kills those that did not. True: there may be more to read.
    pub(super) fn turn(&mut self, now: Instant) -> bool {
        let mut more = false;
        self.ending.retain_mut(|Stopped { child, kill_at, .. }| {
            if *kill_at <= now {
                child.kill();
                return false;
            }
            // One that writes is not kept from ending by a full pipe.
            let is_more = child.read(|_, _| ());
            let runs = child.ended().is_none();
            more |= is_more && runs;
            runs
        });
        more
    }

    /// Waits for all, and kills those that do not end.
    pub(super) fn end(mut self) {
        let until = Instant::now() + LAST_PATIENCE;
        loop {
            let now = Instant::now();
            self.turn(now);
            if self.ending.is_empty() {
                return;
            }
            if now >= until {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        for stopped in &mut self.ending {
            stopped.child.kill();
        }
    }
}
