//! Options for the tests of this module.

use weft_config::{MemoryHost, Options, load_text};

/// What a torrc comes to.
pub(super) fn options(torrc: &str) -> Options {
    match load_text(torrc, &MemoryHost::new()) {
        Ok(loaded) => loaded.options,
        Err(report) => panic!("{torrc}\n{report}"),
    }
}
