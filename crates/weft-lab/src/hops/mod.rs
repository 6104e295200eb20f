//! Where the processor time of onion routing goes, by hops and by role: `weft lab hops`, the experiment of Stokkink,
//! Treep and Pouwelse on Tribler's tunnels, with Weft.
//!
//! A seeder sends random data to a sink through 0, 1, 2 or 3 relays, over one circuit or several at once. Every node
//! is a Weft process of a private network and samples itself while the data flows ([`profile`]); each sample belongs
//! to cryptography, networking or neither ([`group`]).
//!
//! | module | what |
//! |---|---|
//! | `command`, `options` | the command and its settings |
//! | `run` | the network, and the measured intervals |
//! | `transfer` | seeder and sink |
//! | [`profile`] | the sampling profiler within a process, and its orders over a socket |
//! | `name` | names of functions with their modules |
//! | [`group`] | which group and function a sample counts for |
//! | `stages` | counters of a node's steps |
//! | `ipv8`, `tunnels.py` | the same data over py-ipv8, where it is installed |
//! | `aggregate`, `bars` | intervals of a role together, and the bars that they must meet |
//! | `results`, `table`, `figures` | the numbers, and how they are shown |

mod aggregate;
mod bars;
mod command;
mod figures;
pub mod group;
mod ipv8;
mod name;
mod options;
pub mod profile;
mod results;
mod run;
mod stages;
mod table;
mod transfer;

pub use command::Args;
pub use options::Options;
pub use results::{Bar, Function, Results, Role, SCHEMA, TunnelRole, Tunnels};
pub use stages::Stages;
