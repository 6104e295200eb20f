//! The main thread's event loop.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use mio::{Events, Poll};
use weft_sync::wake::WakeFlag;

use crate::thread::event_loop;
use crate::thread::mesh::WakeUp;

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
        })
    }
}
