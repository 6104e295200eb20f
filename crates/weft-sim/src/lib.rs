//! Path-level simulation of Tor networks: the relays of circuits, and the consequences.
//!
//! A [`network::Network`] is a consensus document, read or synthetic. Paths are drawn from it by a
//! simple model (SALSA, Pahl et al. 2023, Algorithm 1) or by the whole of Tor's path selection.
//! Nothing here connects to a network.
//!
//! Every result is a function of its inputs and a seed: the number of threads changes nothing.

pub mod balance;
pub mod compromise;
mod csv;
pub mod draw;
pub mod full;
pub mod idle;
pub mod links;
pub mod microdesc;
pub mod network;
pub mod over;
pub mod parallel;
pub mod random;
pub mod read;
pub mod salsa;
pub mod sample;
pub mod selection;
pub mod synth;
#[cfg(test)]
mod testing;
pub mod triples;
pub mod write;
