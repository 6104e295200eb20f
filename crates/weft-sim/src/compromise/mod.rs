//! How often an adversary has both ends of a circuit.

pub mod abra;
pub mod tunnel;
pub mod tunnels;
