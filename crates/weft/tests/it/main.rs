//! The program that was built, from outside: what it prints, what it refuses, what it survives.
//!
//! One program, so that this crate is linked once for all of its integration tests; a new file is a
//! module here.

mod attacks;
mod background;
mod bench;
mod cci;
mod cli;
mod family;
mod hops;
mod hostile;
mod install;
mod keep;
mod lab_mtor;
mod lab_up;
mod launchers;
mod loss;
mod metrics;
mod net;
mod options;
mod output;
mod plots;
mod report;
mod run;
mod run_netns;
mod running;
mod scenario_shadow;
mod selection;
mod shadow;
mod sim;
mod sim_documents;
mod sim_full;
mod soak;
#[path = "../../../weft-dir/src/testing.rs"]
#[allow(dead_code)]
mod testing;
mod told;
mod too_old;
mod torrc_vs_tor;
mod traffic;
mod ways_out;
