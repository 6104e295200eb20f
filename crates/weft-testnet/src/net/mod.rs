//! The testbed `netns`: hosts that are network namespaces, joined by links with rate, delay, loss and queues.
//!
//! [`Testbed::start`] makes a network namespace for each host of a [`Topology`], with one TUN device that
//! takes everything that the host sends. One thread, the emulator, reads the packets of all devices, lets
//! `weft-model` decide when each arrives, and writes it to the device of its destination then. The kernel's
//! own TCP runs at both ends; no kernel module beyond `tun` is needed, and the same seed loses the same
//! packets on every kernel.
//!
//! [`Host::command`] runs a program in a host, [`Host::enter`] a closure. Dropping the testbed ends the
//! programs that run in its hosts and removes the namespaces; a [guardian](crate::guardian) does that when
//! we die, and [`clean`] when both do. `docs/testbeds.md` is the page on it.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

mod background;
mod emulator;
mod host;
mod namespace;
mod place;
mod priority;
mod privileges;
mod tcp;
mod testbed;
#[cfg(test)]
mod tests;
mod tun;

pub use emulator::{Lateness, Snapshot};
pub use host::Host;
pub use place::{Cleaned, clean, down};
pub use privileges::missing;
pub use testbed::{Options, Testbed};
pub use weft_model::links::{
    Access, Countries, CountryId, DrawError, Rate, Topology, UnknownCountry, builtin, star,
};

/// The topology of this file, or the built-in one of this name.
///
/// # Errors
///
/// There is neither, or the file is no topology.
pub fn topology(named: &str) -> Result<Topology> {
    let path = Path::new(named);
    if path.is_file() {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {named}"))?;
        return Ok(Topology::parse(named, &text)?);
    }
    match builtin::topology(named) {
        Some(topology) => Ok(topology?),
        None => bail!("{}", unknown_topology(named)),
    }
}

/// Error message for the name of a topology that does not exist.
#[must_use]
pub fn unknown_topology(named: &str) -> String {
    format!(
        "there is no file {named} and no built-in topology of this name; those are: {}",
        builtin::names().collect::<Vec<_>>().join(", ")
    )
}
