//! The program that was built, from outside: its output, its refusals, and its robustness.
//!
//! One program, so that this crate is linked once for all of its integration tests; a new file is a
//! module here.

mod background;
mod cli;
mod family;
mod hostile;
mod install;
mod keep;
mod launchers;
mod metrics;
mod options;
mod running;
#[path = "../../../weft-dir/src/testing.rs"]
#[allow(dead_code)]
mod testing;
mod told;
mod too_old;
mod torrc_vs_tor;
mod ways_out;
