//! A network that runs: nodes, destinations and users on the hosts of a [`Setup`](crate::setup::Setup), in virtual time.
//!
//! [`World::run_until`] hands events, in order of time, to the nodes and servers that they concern. A node
//! is a [`weft_core::controller::RelayController`] and as many [`weft_core::manager::LocalConnectionManager`]s as it has
//! threads, joined by queues, as in `weft-node`; what there is a system call, here is a call of [`weft_model::hosts::Net`].
//!
//! ```text
//! start, events, results, series   the beginning of a run, its events in order, its measurements
//! state    all that runs
//! node     controller, exits, onionskin workers      weft-node/src/relay
//! turn     a turn of a thread                        weft-node/src/thread
//! links, edges, apps   reads and writes of links, of streams that leave, and of streams of users
//! thread   the state of a connection thread
//! link, record   handshakes and records, as bytes    weft-tls, weft-core/src/handshake
//! edge     outer ends of streams                     weft-node/src/thread/edges
//! app      streams of users
//! client   the client and its user                   weft-node/src/client, an application
//! files    the state file and the torrc of clients    weft-datadir, weft-node/src/relay
//! choosing, measuring, pools   path selection of clients, and their measurements of circuits
//! server   destinations
//! ground   sockets, the clock, timers, owners of connections
//! limit    BandwidthRate and BandwidthBurst of a relay
//! background, faults, lag   competing TCP streams, faults, late messages of threads
//! hostile, forging     hostile nodes: cells on their links, and messages on circuits of which they have keys
//! check    invariants between any two steps
//! bill     what a node has done and holds
//! ```

mod app;
mod apps;
mod background;
mod bill;
mod check;
mod choosing;
mod client;
mod edge;
mod edges;
mod events;
mod faults;
mod files;
mod forging;
mod ground;
mod hostile;
mod lag;
mod limit;
mod link;
mod links;
mod measuring;
mod node;
mod odd;
mod pools;
mod record;
mod results;
mod series;
mod server;
mod start;
mod state;
#[cfg(test)]
mod tests;
mod thread;
mod turn;

pub use bill::Bill;
pub(crate) use check::Remains;
pub use files::DiskFault;
pub use forging::Messages;
pub use hostile::Attack;
pub(crate) use odd::Odd;
pub use state::World;
