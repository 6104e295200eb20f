//! Simulations and files of consensus documents.
//!
//! One program, so that this crate is linked once for all of its integration tests; a new file is a
//! module here.

mod full;
mod links;
mod read;
