//! A network that runs: nodes, destinations and users on the hosts of a [`Setup`](crate::setup::Setup), in virtual time.
//!
//! [`World::run_until`] hands events, in order of time, to the nodes and servers that they concern. A node
//! is a [`weft_core::controller::RelayController`] and as many [`weft_core::manager::LocalConnectionManager`]s as it has
//! threads, joined by queues, as in `weft-node`; what there is a system call, here is a call of [`weft_model::hosts::Net`].
//!
//! ```text
//! start, events, results   how a run begins, goes on and is measured
//! state    all that runs
//! node     controller, exits, onionskin workers      weft-node/src/relay
//! turn     a turn of a thread                        weft-node/src/thread
//! links, edges, apps   links, streams' outer ends and streams of users (edges, too), read and written
//! thread   the state of a connection thread
//! link     handshakes and records as bytes           weft-tls, weft-core/src/handshake
//! edge     streams' outer ends                       weft-node/src/thread/edges
//! app      streams of users
//! client   the client and its user                   weft-node/src/client, an application
//! choosing, measuring, pools   what clients measure and record of circuits
//! server   destinations
//! ground   sockets, the clock, timers, who owns which connection
//! ```

mod app;
mod apps;
mod background;
mod check;
mod choosing;
mod client;
mod edge;
mod edges;
mod events;
mod faults;
mod ground;
mod hostile;
mod lag;
mod limit;
mod link;
mod links;
mod measuring;
mod node;
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

pub(crate) use check::Remains;
pub use hostile::Attack;
pub use state::World;
