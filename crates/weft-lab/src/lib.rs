//! Experiments on private Tor networks: attacks, measurements, and what they show.
//!
//! What an experiment is, and all that experiments share, is [`experiment`]; [`experiments`] lists them, and [`report`] makes
//! pages of their tables. Each command has a room of its name: [`relay`] plays a relay's neighbours,
//! [`attack`] hostile and honest peers of a target, [`throughput`] is the experiment of Engler and Goldberg 2021, section
//! 5.2. Nodes are started by `weft-testnet`, and traffic through them comes from `weft-load`.
//!
//! Nothing here is for the live network, and nothing listens elsewhere than on loopback.

pub mod args;
pub mod attack;
pub mod cci;
pub mod chaos;
pub mod circuits;
mod comparison;
pub mod demo;
pub mod experiment;
pub mod experiments;
pub mod flow_processes;
pub mod hops;
mod jobs;
pub mod machine;
pub mod mtor;
pub mod probe;
pub mod relay;
pub mod report;
pub mod report_command;
pub mod roles;
pub mod run;
pub mod selection;
pub mod shadow;
pub mod throughput;
pub mod traffic;
