//! Options for the tests of this module.

use weft_config::{MemoryHost, Options, load_text};

/// The options of a torrc.
pub(super) fn options(torrc: &str) -> Options {
    match load_text(torrc, &MemoryHost::new()) {
        Ok(loaded) => loaded.options,
        Err(report) => panic!("{torrc}\n{report}"),
    }
}
