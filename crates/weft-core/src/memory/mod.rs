//! Memory of what waits: where cells and bytes lie, and how much everything holds.
//!
//! - [`ledger`]: what a thread holds, and what is freed when all hold too much;
//! - [`cells`]: the pool of cells, and the queue of a circuit half;
//! - `buffer`: bytes that wait for a socket.

pub(crate) mod buffer;
pub mod cells;
pub mod ledger;
