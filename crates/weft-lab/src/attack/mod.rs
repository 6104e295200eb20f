//! `weft lab attack` attacks your own relay and measures what honest users keep.
//!
//! For each attack a target is started alone on loopback. Honest circuits carry cells through it at
//! a fixed rate ([`crate::relay`]), and an honest user asks again and again for what the attack may
//! take away: circuits, streams, names, answers at ports ([`Want`]). Both are measured without the
//! attack, then with it. The target's memory and file descriptors are read before, during and
//! after.
//!
//! Each attack is bounded in rate and count, goes to loopback alone, and ends when it is stopped.
//!
//! | module | what |
//! |---|---|
//! | `target` | the relay that is attacked |
//! | `cast`, `peer`, `circuit`, `servers` | everybody else |
//! | `probes` | honest users who want something new |
//! | `scene` | what an attack sees; its rate |
//! | `streams`, `names`, `circuits`, `ports`, `far_ends`, `held` | the attacks |
//! | `microdescs` | documents for a directory cache |
//! | `definition`, `catalogue` | what an attack is, and all of them by name |
//! | `command`, `options`, `round` | the command; how attacks are measured; one measurement |
//! | [`results`], `figures` | what was measured |
//! | [`soak`] | all of it for hours, and what the target holds meanwhile |

mod cast;
mod catalogue;
mod circuit;
mod circuits;
mod command;
mod definition;
mod far_ends;
mod figures;
mod held;
mod microdescs;
mod names;
mod options;
mod peer;
mod ports;
mod probes;
pub mod results;
mod round;
mod scene;
mod servers;
pub mod soak;
mod streams;
mod summary;
mod tables;
mod target;

pub use cast::Cast;
pub use catalogue::{ATTACKS, find};
pub use command::{Args, Attacks};
pub use definition::Attack;
pub use options::{Options, max_connections};
pub use probes::{Fared, Want};
pub use results::FILES_LEFT;
pub use round::round;
pub use target::{Held, Needs};
