//! When and how the relay ends.

use std::time::{Duration, Instant};

use weft_dir::command::Event;

use super::Relay;
use super::error::StartError;
use crate::notice;
use crate::thread::ConnectionThread;
use crate::thread::host::GuestHandle;
use crate::thread::mesh::ToThread;

/// Time that connection threads may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// The state of an orderly end.
#[derive(Debug, Default)]
pub(super) struct Shutdown {
    /// The node ends at this time at the latest.
    at: Option<Instant>,
    /// Why the node cannot continue.
    failed: Option<StartError>,
}

impl Shutdown {
    /// Ends in this turn.
    pub(super) fn now(&mut self, now: Instant) {
        self.at = Some(now);
    }

    /// Ends after some time, or as soon as there is no connection.
    pub(super) fn after(&mut self, wait: Duration, now: Instant) {
        self.at = Some(now + wait);
    }

    /// True if new connections are refused.
    pub(super) fn is_under_way(&self) -> bool {
        self.at.is_some()
    }

    /// True if the node ends now.
    pub(super) fn is_over(&self, now: Instant, connections: usize) -> bool {
        self.at.is_some_and(|at| now >= at || connections == 0)
    }
}

impl Relay {
    /// Ends the node, with status 1, because of an error.
    pub(super) fn fail(&mut self, why: StartError, now: Instant) {
        if self.shutdown.failed.is_none() {
            tracing::error!("{why}");
            self.shutdown.failed = Some(why);
        }
        self.shutdown.now(now);
    }

    /// Notifies the service manager that the process ends, if it does: other identities may go on.
    pub(super) fn stopping(&mut self, wait: Duration) {
        if self.process.membership.end() {
            self.process.manager.stopping(wait);
        }
    }

    /// Ends everything in order.
    pub(super) fn end(mut self) -> Result<(), StartError> {
        self.stopping(STOP_PATIENCE);
        self.end_client();
        self.client_transports.end(Instant::now());
        for thread in &mut self.threads.ends {
            thread.send(ToThread::Stop);
        }
        // Full rings empty while both sides take turns; a thread that does not is not waited for.
        let deadline = Instant::now() + STOP_PATIENCE;
        loop {
            for thread in &mut self.threads.ends {
                thread.flush();
                while thread.from.pop().is_some() {}
            }
            if let Some(thread) = &mut self.threads.inline {
                thread.turn(Duration::ZERO)?;
            }
            let inline_ended = self
                .threads
                .inline
                .as_ref()
                .is_none_or(ConnectionThread::is_stopping);
            let ended = inline_ended && self.threads.handles.iter().all(GuestHandle::is_finished);
            if ended || Instant::now() >= deadline {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut result = self.shutdown.failed.take().map_or(Ok(()), Err);
        for handle in self.threads.handles.drain(..) {
            match handle.result() {
                Some(Ok(())) => {}
                Some(Err(error)) => result = Err(error.into()),
                None => {
                    tracing::warn!("A connection thread does not end; the process ends without it");
                }
            }
        }
        self.end_bridge_transports();
        self.exits.end();
        if let Some(directory) = self.directory.handle.take() {
            directory.shutdown();
        }
        let mut last = None;
        while let Ok(event) = self.directory.events.try_recv() {
            if let Event::State(lines) = event {
                last = Some(lines);
            }
        }
        if let Some(lines) = last {
            self.save_state(&lines);
        }
        if self.options.bandwidth.accounting.is_enabled() {
            self.save_accounting();
        }
        drop(self.process.pid_file.take());
        notice!("Exiting.");
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_waits_for_its_connections_but_not_for_ever() {
        let start = Instant::now();
        let mut shutdown = Shutdown::default();
        assert!(!shutdown.is_over(start, 0));
        shutdown.after(Duration::from_secs(30), start);
        assert!(shutdown.is_under_way());
        assert!(!shutdown.is_over(start, 1));
        assert!(shutdown.is_over(start, 0));
        assert!(shutdown.is_over(start + Duration::from_secs(30), 1));
        shutdown.now(start);
        assert!(shutdown.is_over(start, 1));
    }
}
