//! The asynchronous task that keeps a client's directory.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::{mpsc, watch};

use super::{ClientHandle, ClientOptions, DirStreams, Network, Order};
use crate::clock::Clock;
use crate::command::Event;
use crate::task::EventSink;

/// Orders that may wait.
const QUEUE: usize = 16;

/// A client's directory. Events that it sends are [`Event::Bootstrap`], [`Event::Consensus`],
/// [`Event::ClockSkew`] and [`Event::Message`].
pub struct ClientDirectory {
    /// Settings.
    options: ClientOptions,
    /// Time.
    clock: Arc<dyn Clock>,
    /// Randomness of schedules and of the choice of sources.
    rng: StdRng,
    /// Where streams come from.
    streams: Arc<dyn DirStreams>,
    /// Where events go.
    events: EventSink,
    /// What the node wants.
    orders: mpsc::Receiver<Order>,
    /// Where networks go.
    network: watch::Sender<Option<Arc<Network>>>,
}

impl ClientDirectory {
    /// A directory that has not begun, and the handle to it. `seed` is random in a node, fixed in
    /// a test.
    pub fn new(
        options: ClientOptions,
        seed: [u8; 32],
        streams: Arc<dyn DirStreams>,
        clock: Arc<dyn Clock>,
        events: EventSink,
    ) -> (Self, ClientHandle) {
        let (sender, orders) = mpsc::channel(QUEUE);
        let network = watch::Sender::new(None);
        let handle = ClientHandle {
            orders: sender,
            network: network.subscribe(),
        };
        let directory = Self {
            options,
            clock,
            rng: StdRng::from_seed(seed),
            streams,
            events,
            orders,
            network,
        };
        (directory, handle)
    }

    /// Runs until all handles are gone.
    pub async fn run(mut self) {
        (self.events)(Event::Bootstrap {
            percent: 0,
            tag: "starting",
            summary: "Starting",
        });
        while let Some(order) = self.orders.recv().await {
            match order {
                Order::Options(options) => self.options = *options,
                Order::RetryNow => {}
            }
        }
        drop((self.clock, self.rng, self.streams, self.network));
    }
}
