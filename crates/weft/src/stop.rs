//! Ending early, in good order, when a signal says so.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result};

/// A flag that the first SIGINT or SIGTERM sets, asking for an end with what there is. The second ends
/// the process.
pub(crate) fn on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    set_on_signals(&stop)?;
    Ok(stop)
}

/// The same with a flag that is there already.
pub(crate) fn set_on_signals(stop: &Arc<AtomicBool>) -> Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The order matters: the first of the two acts on a flag that is set already.
        signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .context("cannot wait for signals")?;
    }
    Ok(())
}
