//! Files of a node in its DataDirectory: the relay's keys and a copy of them for another machine
//! ([`backup`]), the state file, the lock; and the one way to write a file ([`file`]), the torrc
//! among them ([`torrc`]).
//!
//! Names, formats and lifetimes of the files are C tor's, so that `tor` and Weft can take turns on one
//! DataDirectory. The order at start-up: [`dir::check_private`], [`lock::DataDirLock::acquire`], then
//! [`keys::RelayKeys::load_or_create`] and [`state::load`]. Every file is written through [`file`], whole
//! or not at all; clippy forbids other ways here, in the crates of the directory and, by a test, in `weft-node`.
//!
//! Not here: cached directory documents (`weft-dir`), and a node's user, limits and PidFile (`weft_node::process`).

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::disallowed_methods
    )
)]

pub mod backup;
pub mod dir;
pub mod file;
pub mod files;
pub mod keys;
pub mod lock;
pub mod state;
pub mod torrc;
