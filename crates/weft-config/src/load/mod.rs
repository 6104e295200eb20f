//! From the command line to options: its arguments, the torrcs that it names, one for each identity, and
//! what of them a running node reads again.

pub(crate) mod change;
pub(crate) mod command_line;
pub mod flags;
pub(crate) mod identities;
pub(crate) mod reload;
pub(crate) mod torrc;
