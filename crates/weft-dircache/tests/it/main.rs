//! A relay's directory beside C tor.
//!
//! One program, so that this crate is linked once for all of its integration tests; a new file is a
//! module here.

mod ctor;
mod ctor_authority;
mod ctor_diffs;
mod ctor_directory;
#[path = "../../../weft-dir/src/testing.rs"]
#[allow(dead_code)]
mod testing;
