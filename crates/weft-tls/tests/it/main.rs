//! TLS beside C tor.
//!
//! One program, so that this crate is linked once for all of its integration tests; a new file is a
//! module here.

mod ctor_hello;
mod ctor_link;
