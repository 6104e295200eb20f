//! Assignment of links to threads (docs/architecture/threads.md).
//!
//! - [`width`]: how many threads get links; [`placement`]: which of them gets the next one;
//! - [`balance`]: which link moves to another thread;
//! - [`routes`]: where halves are that have moved with their link.

pub mod balance;
pub mod placement;
pub mod routes;
pub mod width;
