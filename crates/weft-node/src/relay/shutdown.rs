//! When and how the relay ends.

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weft_dir::command::Event;

use super::{Relay, StartError};
use crate::notice;
use crate::thread::ConnectionThread;
use crate::thread::mesh::ToThread;

/// How long connection threads may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// How an end goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shutdown {
    /// When it ends at the latest.
    at: Option<Instant>,
}

impl Shutdown {
    /// Ends in this turn.
    pub(super) fn now(&mut self, now: Instant) {
        self.at = Some(now);
    }

    /// Ends after some time, or as soon as nobody is connected.
    pub(super) fn after(&mut self, wait: Duration, now: Instant) {
        self.at = Some(now + wait);
    }

    /// New connections are refused.
    pub(super) fn is_under_way(&self) -> bool {
        self.at.is_some()
    }

    /// Nothing more is to be waited for.
    pub(super) fn is_over(&self, now: Instant, connections: usize) -> bool {
        self.at.is_some_and(|at| now >= at || connections == 0)
    }
}

impl Relay {
    /// Something happened that the node cannot go on with: it ends, with status 1.
    pub(super) fn fail(&mut self, why: StartError, now: Instant) {
        if self.failed.is_none() {
            tracing::error!("{why}");
            self.failed = Some(why);
        }
        self.shutdown.now(now);
    }

    /// Ends everything in order.
    pub(super) fn end(mut self) -> Result<(), StartError> {
        self.manager.stopping(STOP_PATIENCE);
        self.end_client();
        for thread in &mut self.threads {
            thread.send(ToThread::Stop);
        }
        // Full rings empty while both sides take turns; a thread that does not is not waited for.
        let deadline = Instant::now() + STOP_PATIENCE;
        loop {
            for thread in &mut self.threads {
                thread.flush();
                while thread.from.pop().is_some() {}
            }
            if let Some(thread) = &mut self.inline {
                thread.turn(Duration::ZERO)?;
            }
            let inline_ended = self
                .inline
                .as_ref()
                .is_none_or(ConnectionThread::is_stopping);
            let ended = inline_ended && self.handles.iter().all(JoinHandle::is_finished);
            if ended || Instant::now() >= deadline {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.handles.retain(|handle| {
            let ended = handle.is_finished();
            if !ended {
                tracing::warn!("A connection thread does not end; the process ends without it");
            }
            ended
        });
        let mut result = self.failed.take().map_or(Ok(()), Err);
        for handle in self.handles.drain(..) {
            match handle.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => result = Err(error.into()),
                Err(_) => result = Err(io::Error::other("a connection thread panicked").into()),
            }
        }
        self.exits.end();
        if let Some(directory) = self.directory.take() {
            directory.shutdown();
        }
        let mut last = None;
        while let Ok(event) = self.directory_events.try_recv() {
            if let Event::State(lines) = event {
                last = Some(lines);
            }
        }
        if let Some(lines) = last {
            self.save_state(&lines);
        }
        drop(self.pid_file.take());
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
