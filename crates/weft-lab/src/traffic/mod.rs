//! `weft lab traffic`: users of the traffic models, in any mix, in a private network, on a testbed, through a SOCKS port
//! that is there, or without Tor; and how their streams went.

mod command;
mod figures;
mod mix;
mod options;
mod place;
mod results;
mod run;
mod tables;
mod way;

pub use command::Args;
pub use mix::Asked;
pub use options::Options;
pub use results::{OfModel, OfRepetition, Results};
