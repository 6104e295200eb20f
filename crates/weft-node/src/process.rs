//! This process on its machine: user, limits, cores, memory, processor time.
//!
//! Each option has the effect that it has in C tor, so that the two can take turns on one
//! DataDirectory. The order at start-up is that of C tor's `options_act_once_on_startup`: bind low ports,
//! [`user::drop_privileges`], directories ([`weft_datadir::dir::check_private`]),
//! [`weft_datadir::lock::DataDirLock`], then keys and state.

pub(crate) mod cpu;
pub mod daemon;
pub mod exit;
pub mod host;
pub mod limits;
pub(crate) mod machine;
pub(crate) mod manager;
pub(crate) mod pid;
pub(crate) mod restrict;
pub(crate) mod sandbox;
pub mod user;
