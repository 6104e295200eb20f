//! Ending early, in good order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGINT, SIGTERM};

/// A request to end early with what there is. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Requested by the first SIGINT or SIGTERM; the second ends the process.
    ///
    /// # Errors
    ///
    /// The system refuses a signal handler.
    pub fn on_signals() -> Result<Stop> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the first of the two acts on a flag that is set already.
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop.0))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop.0)))
                .context("cannot wait for signals")?;
        }
        Ok(stop)
    }

    /// True if the end was requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// The flag itself, for loops that share it with threads.
    #[must_use]
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }
}
