//! Waking a thread that waits in its event loop.

#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

use std::sync::Arc;

use mio::Waker;
use weft_sync::wake::WakeFlag;

/// Handle to wake a thread: a flag that shows whether it sleeps, and the system call if it does.
#[derive(Clone, Debug)]
pub(crate) struct WakeUp {
    /// True if the system call is needed.
    pub flag: Arc<WakeFlag>,
    /// Makes it.
    pub waker: Arc<Waker>,
}

impl WakeUp {
    /// Wakes the thread if it sleeps or is about to.
    pub(crate) fn notify(&self) {
        if self.flag.notify() {
            // A full eventfd counter is the only failure, and it means that a wake-up is pending.
            let _ = self.waker.wake();
        }
    }
}
