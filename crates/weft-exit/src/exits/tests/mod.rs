//! An exit's decisions, with a clock and name servers of the tests.

mod decisions;
mod fixtures;
mod shares;
