//! Options for the tests of this module.

use crate::torrc::{Host, Options, load_text};

/// What a torrc comes to.
pub(super) fn options(torrc: &str) -> Options {
    match load_text(torrc, &Host::empty()) {
        Ok(loaded) => loaded.options,
        Err(report) => panic!("{torrc}\n{report}"),
    }
}
