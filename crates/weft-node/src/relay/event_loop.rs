//! The main thread's event loop.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use mio::{Events, Poll};
use weft_sync::wake::WakeFlag;

use crate::thread::event_loop;
use crate::wake::WakeUp;

/// Number of returns of the event loop since counting began (`MainloopStats`; mainloop.c,
/// `reset_main_loop_counters`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LoopCounts {
    /// With something to do.
    pub(super) successful: u64,
    /// Because a signal interrupted it.
    pub(super) erroneous: u64,
    /// With nothing: a timer was due.
    pub(super) idle: u64,
}

impl LoopCounts {
    /// Counts one return.
    pub(super) fn note(&mut self, result: &io::Result<()>, events: bool) {
        *match (result, events) {
            (Err(_), _) => &mut self.erroneous,
            (Ok(()), true) => &mut self.successful,
            (Ok(()), false) => &mut self.idle,
        } += 1;
    }

    /// C tor's line.
    pub(super) fn line(self) -> String {
        let LoopCounts {
            successful,
            erroneous,
            idle,
        } = self;
        format!(
            "Main event loop statistics: {successful} successful returns, {erroneous} erroneous returns, and {idle} \
             idle returns."
        )
    }
}

/// Sockets and signals that wake the main thread, and the state of its turns.
#[derive(Debug)]
pub(super) struct EventLoop {
    pub(super) poll: Poll,
    pub(super) events: Events,
    pub(super) flag: Arc<WakeFlag>,
    /// Wakes this thread from others.
    pub(super) wake: WakeUp,
    pub(super) last_tick: Instant,
    /// A listener had more connections than one turn accepts.
    pub(super) accept_again: bool,
    /// Number of returns of the event loop, while they are counted.
    pub(super) counts: Option<LoopCounts>,
}

impl EventLoop {
    /// An event loop that watches nothing but its waker.
    ///
    /// # Errors
    ///
    /// The system has no event loop.
    pub(super) fn new(now: Instant) -> io::Result<Self> {
        let (poll, waker) = event_loop()?;
        let flag = Arc::new(WakeFlag::new());
        let wake = WakeUp {
            flag: flag.clone(),
            waker,
        };
        Ok(EventLoop {
            poll,
            events: Events::with_capacity(256),
            flag,
            wake,
            last_tick: now,
            accept_again: false,
            counts: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_are_counted_by_what_they_brought() {
        let mut counts = LoopCounts::default();
        for _ in 0..3 {
            counts.note(&Ok(()), true);
        }
        counts.note(&Ok(()), false);
        counts.note(&Err(io::ErrorKind::Interrupted.into()), false);
        counts.note(&Err(io::ErrorKind::Interrupted.into()), true);
        assert_eq!(
            counts.line(),
            "Main event loop statistics: 3 successful returns, 2 erroneous returns, and 1 idle returns."
        );
    }
}
