//! Measures the cost of each role of a Tor node, Weft's and C tor's side by side in one private
//! network: a client, an exit, a guard; and the time until a client is usable. Arti's client is
//! measured beside theirs if it is installed.
//!
//! One network of C tor nodes runs for the whole experiment, with one relay, the *target*, that
//! programs take turns to run, and clients that start from nothing for each measurement. Programs
//! alternate within a repetition, so that other work of the machine affects both.
//!
//! One stream on one circuit is as fast as its slowest hop, which here is C tor's. So it is also
//! measured in two more networks, each of which runs one program on every node. The clients of C
//! tor and Weft spread a stream over two circuits (Conflux); without it they use one. The cost of
//! Conflux to an exit, and of a tunnel of five circuits (mTor), is measured where one program runs
//! client and exit.

mod command;
mod options;
mod results;
mod run;

pub use command::Args;
pub use options::Options;
pub use results::{Figure, Measure, Results, SCHEMA};
