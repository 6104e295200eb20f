//! The directory of a client: what it needs to know of the network to choose paths.
//!
//! A [`ClientDirectory`] fetches the microdesc consensus, the certificates that it is verified
//! with and the microdescriptors of all relays that it lists (dir-spec 5), over streams that
//! its caller opens ([`DirStreams`]: circuits in a node, plain TCP in tests). It keeps all of
//! it in C tor's cache files and hands out a [`Network`] whenever there is a new one that is
//! good enough to build circuits with.

mod asking;
mod bridge;
mod building;
mod enough;
mod options;
mod protocols;
mod sources;
mod streams;
mod task;

use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::{mpsc, watch};
use tor_netdir::NetDir;

use crate::consensus::Consensus;
use crate::params::Params;

pub use bridge::{
    BridgeDescriptor, fetch_bridge, keep_bridges, parse_bridge_descriptor, read_bridges,
};
pub use options::{BootstrapOptions, ClientOptions, DirServer};
pub use streams::{
    DirConnection, DirIo, DirOutcome, DirSource, DirStreams, OpenFuture, PlainStreams,
};
pub use task::ClientDirectory;

/// A client's view of the network: enough of it to build circuits.
#[derive(Clone, Debug)]
pub struct Network {
    /// Relays with their microdescriptors and weights, for path selection.
    pub netdir: Arc<NetDir>,
    /// The consensus that it is made of: addresses and flags of all relays, lifetimes.
    pub consensus: Arc<Consensus>,
}

impl Network {
    /// The parameters of the network.
    pub fn params(&self) -> &Params {
        &self.consensus.params
    }

    /// True if it may still be used to build circuits at `now`: C tor uses a consensus for a day
    /// after its end (`networkstatus_consensus_reasonably_live`).
    pub fn is_usable(&self, now: SystemTime) -> bool {
        self.consensus.is_reasonably_live(now)
    }
}

/// A message from a node to its client directory.
#[derive(Debug)]
pub(crate) enum Order {
    /// The settings have changed.
    Options(Box<ClientOptions>),
    /// True once some bridge can be asked.
    Bridges(bool),
}

/// A node's handle of its client directory. The directory's task ends when all handles are dropped.
#[derive(Clone, Debug)]
pub struct ClientHandle {
    /// Where orders go.
    orders: mpsc::Sender<Order>,
    /// The newest network.
    network: watch::Receiver<Option<Arc<Network>>>,
}

impl ClientHandle {
    /// The network as it is now and each that comes after it; `None` as long as too little is
    /// known.
    pub fn network(&self) -> watch::Receiver<Option<Arc<Network>>> {
        self.network.clone()
    }

    /// Reports whether some bridge can be asked, for a client that asks only bridges
    /// ([`ClientOptions::by_bridges`]). Requests that failed are repeated as soon as one can.
    /// Returns false if the task is too far behind to accept the message.
    pub fn set_bridges(&self, usable: bool) -> bool {
        self.orders.try_send(Order::Bridges(usable)).is_ok()
    }

    /// The settings have changed. False: the task is too far behind to take them.
    pub fn set_options(&self, options: ClientOptions) -> bool {
        let order = Order::Options(Box::new(options));
        self.orders.try_send(order).is_ok()
    }
}
