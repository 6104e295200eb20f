//! Tunnels of conflux and mTor at an exit, and where circuits begin: the far end has the keys of the legs and sends
//! anything, numbers that are repeated, far ahead or wrapped and counts that lie among it.
//!
//! Input: see `crates/weft-core/tests/it/far_end/play.rs`, which weft-core's own tests play as well.
#![no_main]

#[path = "../../crates/weft-core/tests/it/far_end/mod.rs"]
mod far_end;
// The same relay without sockets that weft-core's own tests run.
#[path = "../../crates/weft-core/tests/it/world/mod.rs"]
mod world;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    far_end::play::play(input);
});
