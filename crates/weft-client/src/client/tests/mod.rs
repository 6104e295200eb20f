//! The machine against a network that a test makes as it likes: relays that answer, that are
//! silent, that refuse; exits with opinions. Time is the test's.

mod chaos;
mod circuits;
mod conflux;
mod liveness;
mod mtor;
mod probing;
mod retries;
mod rules;
mod selecting;
mod streams;
mod troves;
mod world;
