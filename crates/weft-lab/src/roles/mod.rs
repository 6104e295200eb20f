//! What each role of a Tor node costs, Weft's and C tor's side by side in one private network: a
//! client, an exit, a guard; and how soon a client is of use. Arti's client is measured beside theirs
//! where it is installed.
//!
//! One network of C tor nodes stands for the whole experiment, with one relay, the *target*, that
//! programs take turns to run, and clients that start from nothing for each measurement. Programs
//! alternate within a repetition, so that what the machine does otherwise hits both.
//!
//! One stream on one circuit is as fast as the slowest of its hops lets it be, which here are C tor's. So
//! it is also measured in two networks more, of which all nodes are run by one program. The clients of C tor and
//! Weft spread a stream over two circuits (Conflux): one circuit is what they use without it. What that costs an exit, and
//! what a tunnel of five circuits does (mTor), is measured where one program runs client and exit.

mod command;
mod options;
mod results;
mod run;

pub use command::Args;
pub use options::Options;
pub use results::{Figure, Measure, Results, SCHEMA};
