//! Data that threads share: rings, wake-up flags and bandwidth leases.
//!
//! A connection thread owns its links, halves, scheduler and buffers alone. It meets the other
//! threads and the controller in three places, and none of them takes a lock:
//!
//! - [`ring`]: bounded queues of messages, one for each ordered pair of threads;
//! - [`wake`]: the flag of a sleeping thread, so that a turn of one event loop costs
//!   another at most one wake-up system call, and none while it is awake;
//! - [`lease`]: the relay's bandwidth limit, handed out to the threads a few milliseconds at a time.
//!
//! The only unsafe code is in [`ring`]. Each module is checked under every interleaving by loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p weft-sync --lib`. The same models run on real threads in
//! a plain `cargo test`, and under Miri.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::disallowed_types,
        clippy::disallowed_methods,
        clippy::disallowed_macros
    )
)]

pub mod lease;
pub mod ring;
pub mod wake;

mod sys;
