//! A load generator for one Tor relay: `weft lab relay`.
//!
//! One process plays both neighbours of the relay that is measured, the *target*. It opens links to
//! it as clients do, creates circuits over them, and has each extended to one of its own relays, to
//! which the target must open links in turn. Then it drives cells through, in either direction or
//! both, as fast as windows of cells in flight allow or at a fixed rate, and counts them where they
//! arrive. No consensus and no other relay is needed.
//!
//! Cells are made once and only their headers change; what they carry is noise. A relay in the
//! middle of a circuit can neither know nor care: it adds or removes one layer of encryption. So the
//! generator costs little more than TLS and the kernel do.
//!
//! [`run`] does it and returns a [`Report`](report::Report). Each of the generator's threads is a
//! `world::World`; the conductor gives them orders and measures meanwhile.
//!
//! | module | what |
//! |---|---|
//! | `command`, `options`, `mode` | the command, and what it asks for |
//! | [`aim`], `sources` | the target's address and keys, and where they are read |
//! | [`program`], [`start`] | the programs that can be a target, and starting one |
//! | `arti` | what differs for Arti's relay |
//! | `live` | the mix of a relay of the public network: numbers, their sources, decisions |
//! | `capacity`, `search` | the highest rate that a target bears: bisection, and the rounds of it |
//! | `world` | one thread: links, circuits, cells |
//! | `link` | TLS over a socket |
//! | `latency` | how long cells take |
//! | `prepare`, `conductor`, `measuring` | what a run begins with; stages, and what happens in them |
//! | [`pipe`] | the bare pipe, the physical limit |
//! | [`report`] | what was found |

pub mod aim;
mod arti;
mod capacity;
mod command;
mod conductor;
mod latency;
mod link;
mod live;
mod measuring;
mod mode;
mod options;
pub mod pin;
pub mod pipe;
mod prepare;
pub mod program;
pub mod report;
mod search;
mod sources;
pub mod start;
mod world;

pub use capacity::Capacity;
pub use command::Args;
pub use conductor::Progress;
pub(crate) use conductor::{MEASURING, WARMING_UP};
pub use live::Preset;
pub use mode::{Direction, Mode};
pub use options::{Options, Target};
pub use search::run;
