//! One process, its pipes, and how it is ended.

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weft_transports::Stream;

/// Bytes that are read of one pipe in one turn: what a process writes beyond them waits in the pipe, and then it does.
const READ_AT_ONCE: usize = 64 << 10;
/// A process that was asked to end is killed after this.
const PATIENCE: Duration = Duration::from_secs(10);
/// At the end of Tor it is killed after this.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// A process of transports.
#[derive(Debug)]
pub(super) struct Child {
    process: std::process::Child,
    /// Where it is closed, the process ends (TOR_PT_EXIT_ON_STDIN_CLOSE): also if we are killed.
    _stdin: Option<ChildStdin>,
}

impl Child {
    /// Starts a program, by our own environment and `variables`.
    ///
    /// # Errors
    ///
    /// The system cannot start it.
    pub(super) fn start(
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
            .spawn()?;
        let _stdin = process.stdin.take();
        let pipes = [
            process.stdout.as_ref().map(AsFd::as_fd),
            process.stderr.as_ref().map(AsFd::as_fd),
        ];
        let set = pipes
            .into_iter()
            .flatten()
            .try_for_each(|pipe| fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map(|_| ()));
        let mut child = Child { process, _stdin };
        if let Err(why) = set {
            child.kill();
            return Err(why.into());
        }
        Ok(child)
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its exit code, or the signal that ended it, if it has ended.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.process.try_wait().ok().flatten()?;
        let code = status.code().map(|code| code.to_string());
        let signal = || status.signal().map(|signal| format!("signal {signal}"));
        Some(code.or_else(signal).unwrap_or_else(|| "unknown".to_owned()))
    }

    /// Reads what it has written, as far as a turn goes.
    pub(super) fn read(&mut self, mut take: impl FnMut(Stream, &[u8])) {
        if let Some(pipe) = &mut self.process.stdout {
            read(pipe, |bytes| take(Stream::Output, bytes));
        }
        if let Some(pipe) = &mut self.process.stderr {
            read(pipe, |bytes| take(Stream::Error, bytes));
        }
    }

    /// Asks it to end.
    fn terminate(&mut self) {
        self._stdin = None;
        if let Ok(id) = i32::try_from(self.process.id()) {
            // It may have ended: it is a zombie then, whose number nobody else has.
            let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
        }
    }

    /// Ends it.
    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn read(pipe: &mut impl Read, mut take: impl FnMut(&[u8])) {
    let mut buffer = [0; 4096];
    let mut left = READ_AT_ONCE;
    while left > 0 {
        // The end, nothing there, or an error: all the same, the process' end is found otherwise.
        let Ok(length @ 1..) = pipe.read(&mut buffer) else {
            return;
        };
        take(buffer.get(..length).unwrap_or_default());
        left = left.saturating_sub(length);
    }
}

/// Processes that were asked to end.
#[derive(Debug, Default)]
pub(super) struct Ending {
    ending: Vec<(Child, Instant)>,
}

impl Ending {
    /// Asks a process to end.
    pub(super) fn stop(&mut self, mut child: Child, now: Instant) {
        child.terminate();
        self.ending.push((child, now + PATIENCE));
    }

    /// Kills those that did not.
    pub(super) fn turn(&mut self, now: Instant) {
        self.ending.retain_mut(|(child, at)| {
            if *at <= now {
                child.kill();
                return false;
            }
            // One that writes is not kept from ending by a full pipe.
            child.read(|_, _| ());
            child.ended().is_none()
        });
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
        for (child, _) in &mut self.ending {
            child.kill();
        }
    }
}
