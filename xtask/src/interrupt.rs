//! Ctrl-C: the program that runs at that moment ends what it started, then the command ends.
//!
//! The terminal sends SIGINT to all of them. Without a handler this process would end first, and leave those
//! that still clean up (namespaces, nodes of private networks) to print over the next prompt.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use anyhow::{Context as _, Result};

static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// From here on SIGINT only sets what [`asked`] returns; programs that are started get it as ever.
pub(crate) fn handle() -> Result<()> {
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&ASKED))
        .context("handling SIGINT")?;
    Ok(())
}

/// Set once SIGINT has arrived.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
