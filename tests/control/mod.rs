//! Controllers: what they do with a running client, what they are answered beside C tor, and the programs
//! that people use, Stem and nyx.

mod asking;

use std::path::PathBuf;

/// The module's name marks the tests that need `tor` and some minutes, for `cargo xtask test`.
mod private_network {
    mod compared;
    mod dashboard;
    mod led;
}

/// The module's name marks the tests that need Stem or nyx, for `cargo xtask test`, which installs them.
mod with_stem {
    mod nyx;
    mod suite;
}

fn weft() -> PathBuf {
    let named = std::env::var_os("WEFT_BIN").map(PathBuf::from);
    named.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_weft")))
}
