//! Weft among real processes: networks of Weft, of C tor and of both, and the programs that people use with them.
//!
//! One program, so that all of it is linked once. The modules `private_network` and `with_stem` mark the tests
//! that `cargo xtask test` runs in steps of their own.

mod bridges;
mod client;
mod conflux;
mod control;
mod edges;
mod interop;
mod mtor;
mod networks;
mod onion;
mod onion_directory;
mod page;
mod stories;
