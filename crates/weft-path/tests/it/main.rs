//! Paths beside C tor and on documents of the real network.
//!
//! One program, so that this crate is linked once for all of its integration tests; a new file is a
//! module here.

mod ctor_state;
mod real_consensus;
#[path = "../../src/testing.rs"]
#[allow(dead_code)]
mod testing;
