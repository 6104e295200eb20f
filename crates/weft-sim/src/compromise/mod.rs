//! Probability that an adversary owns both ends of a circuit.

pub mod abra;
pub mod clients;
pub mod count;
pub mod tunnel;
pub mod tunnels;
