//! What this process is on its machine: lock, user, limits, cores, memory, time, state on disk.
//!
//! Each item does what C tor does with the same option, so that the two can take turns on one
//! DataDirectory. Order at start-up, as C tor's `options_act_once_on_startup`: bind low ports,
//! [`user::drop_privileges`], directories ([`dir::check_private`]), [`lock::DataDirLock`],
//! then keys and state.

pub mod cpu;
pub mod daemon;
pub mod dir;
pub mod file;
pub mod limits;
pub mod lock;
pub mod machine;
pub mod manager;
pub mod pid;
pub mod state;
pub mod user;
