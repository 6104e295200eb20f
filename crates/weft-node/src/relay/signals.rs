//! Signals as events of the main thread's loop.

use std::io::{self, Read as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use mio::net::UnixStream;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

use super::Relay;
use super::heartbeat::Heartbeat;
use crate::control::Signal;
use crate::notice;

/// Request of an operator by a signal, with C tor's meanings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// SIGTERM: end now.
    Terminate,
    /// SIGINT: refuse new circuits, wait `ShutdownWaitLength`, end; a second one ends now.
    Interrupt,
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGUSR1: log statistics.
    Statistics,
    /// SIGUSR2: log at debug level.
    Debug,
}

/// Every signal that is waited for.
const SIGNALS: [(i32, Ask); 5] = [
    (SIGTERM, Ask::Terminate),
    (SIGINT, Ask::Interrupt),
    (SIGHUP, Ask::Reload),
    (SIGUSR1, Ask::Statistics),
    (SIGUSR2, Ask::Debug),
];

/// The receiving side.
#[derive(Debug)]
pub(super) struct Signals {
    /// Readable when a signal came.
    pub(super) pipe: UnixStream,
    /// Set by the handlers, one for each request.
    flags: Vec<(Arc<AtomicBool>, Ask)>,
}

impl Signals {
    /// Takes over the process' signals; with `enabled` false none of them (`__DisableSignalHandlers`): controllers can still
    /// ask for what they mean.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub(super) fn register(enabled: bool) -> io::Result<Self> {
        let (pipe, write) = UnixStream::pair()?;
        let mut flags = Vec::new();
        for (signal, ask) in SIGNALS.into_iter().filter(|_| enabled) {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, flag.clone())?;
            // The flag is set before the pipe is written: handlers run in the order of
            // registration.
            let end = std::os::fd::OwnedFd::from(duplicate(&write)?);
            signal_hook::low_level::pipe::register(signal, end)?;
            flags.push((flag, ask));
        }
        Ok(Signals { pipe, flags })
    }

    /// Requests since the last call.
    pub(super) fn take(&mut self) -> Vec<Ask> {
        let mut buffer = [0; 64];
        while self.pipe.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
        self.flags
            .iter()
            .filter(|(flag, _)| flag.swap(false, Ordering::AcqRel))
            .map(|(_, ask)| *ask)
            .collect()
    }
}

/// Another descriptor of the same socket.
fn duplicate(stream: &UnixStream) -> io::Result<std::os::unix::net::UnixStream> {
    use std::os::fd::AsFd as _;
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}

impl Relay {
    /// Carries out the operator's request.
    pub(super) fn on_signal(&mut self, ask: Ask, now: Instant) {
        self.report_signal(match ask {
            Ask::Terminate => Signal::Halt,
            Ask::Interrupt => Signal::Shutdown,
            Ask::Reload => Signal::Reload,
            Ask::Statistics => Signal::Dump,
            Ask::Debug => Signal::Debug,
        });
        match ask {
            Ask::Terminate => {
                notice!("Catching signal TERM, exiting cleanly.");
                self.controller.set_draining(true);
                self.shutdown.now(now);
            }
            Ask::Interrupt if self.shutdown.is_under_way() => {
                notice!("Catching signal INT again, exiting now.");
                self.shutdown.now(now);
            }
            Ask::Interrupt if !self.options.is_relay() => {
                notice!("Interrupt: exiting cleanly.");
                self.shutdown.now(now);
            }
            Ask::Interrupt => {
                let wait = self.options.process.shutdown_wait_length;
                notice!(
                    "Interrupt: we have stopped accepting new connections, and will shut down when \
                     nobody is connected any more, in {} seconds at the latest. Interrupt again to \
                     exit now.",
                    wait.as_secs()
                );
                self.stopping(wait);
                self.controller.set_draining(true);
                self.shutdown.after(wait, now);
            }
            Ask::Reload => self.reload(now),
            Ask::Statistics => {
                self.log_heartbeat(now);
                for line in Heartbeat::details(&self.controller) {
                    notice!("{line}");
                }
            }
            Ask::Debug => {
                self.context.logging.debug();
                notice!("Switching to loglevel debug.");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if this process has a handler for a signal.
    fn is_caught(signal: i32) -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(line.unwrap().trim(), 16).unwrap();
        caught & 1 << (signal - 1) != 0
    }

    #[test]
    fn signals_are_left_alone_where_torrc_wants_it() {
        let mut left = Signals::register(false).unwrap();
        assert!(SIGNALS.iter().all(|(signal, _)| !is_caught(*signal)));
        assert_eq!(left.take(), []);
        let _taken = Signals::register(true).unwrap();
        assert!(SIGNALS.iter().all(|(signal, _)| is_caught(*signal)));
    }
}
