//! Directory clients beside servers made by the tests.
//!
//! One program, so that this crate is linked once for all of its integration tests; a new file is a
//! module here.

mod client;
mod task;
#[path = "../../src/testing.rs"]
#[allow(dead_code)]
mod testing;
