//! Chaos: random networks in which random things go wrong, and what must hold all the same.
//!
//! A [`Round`] is one network with its users and its faults, all drawn from a seed: a value that can be written down, run
//! again, and made smaller. [`run`] runs one and compares tables with each other on the way ([`Checks`]); at its end
//! faults are over, users stop, and nothing may remain. [`hunt`] runs rounds
//! with a planted fault; [`shrink`] drops from a round that fails what does not matter. [`climb`] looks for what costs others most.
//! `docs/chaos.md` is about the command.

mod climb;
mod draw;
mod network;
mod planted;
mod round;
mod run;
mod shrink;

pub use crate::world::{Attack, Bill, DiskFault, Messages};
pub use climb::{Broken, Climbed, Quantity, Settings, climb, cost};
pub use planted::{Hunt, hunt, run_with};
pub use round::{Client, Fault, FaultKind, MAX_FILE, Relay, Role, Round, Sharing, Traffic};
pub use run::{Checks, Counts, Failure, Ran, run};
pub use shrink::shrink;
