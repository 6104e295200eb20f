//! What relays gain that report false weights where clients avoid bottlenecks: ABRA (Schrock 2017, sections 3 and 5.2).
//!
//! A network of relays carries downloads of web and bulk clients, which choose among the circuits of
//! their pools by the weights that relays report (`traffic`). Every choice is noted: the circuits, and the
//! weights then. Afterwards adversaries are given relays, and each choice is made again: as it was, and
//! as it would have been had the adversary's relays reported a weight of 0 (`replay`). The network itself
//! does not go on after lies; that is how the paper did it, which adds that in truth lying relays
//! would soon draw less.
//!
//! The paper ran Tor itself in Shadow. Here traffic is a fluid that links share as max-min fairness has
//! it, which is what Tor's flow control aims at (section 3.1). Choices of Weft's own clients in a virtual network can be
//! recorded instead (`pools`).

mod fair;
pub mod figure;
pub mod pools;
mod replay;
mod traffic;
pub mod weight;

use serde::Serialize;

use crate::network::Network;
use crate::triples::{NoCircuits, Triples};

pub use replay::{Grant, Point, Quantiles, replay};
pub use traffic::{Choices, simulate};

/// The clients, and how long they are watched. The numbers of clients and of bytes are section 3.3's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AbraOptions {
    /// Clients that download [`AbraOptions::WEB_BYTES`] and then pause for up to a minute.
    pub web_clients: u32,
    /// Clients that download [`AbraOptions::BULK_BYTES`] again and again.
    pub bulk_clients: u32,
    /// Circuits that every client has ready.
    pub pool: u32,
    /// Guards of every client.
    pub guards: u32,
    /// Seconds that pass before choices are noted.
    pub warm_up: u32,
    /// Seconds for which they are noted.
    pub seconds: u32,
    /// The most that one circuit moves, bytes per second: its window of 1000 cells for each round
    /// trip, whose length the paper does not give.
    pub circuit_rate: f64,
    /// What all relays together can move, as a part of [`AbraOptions::demand`]; each relay's share of it is
    /// that of its `Bandwidth`. Weights of a consensus are no bytes, and the paper does not give
    /// the load of its network: with less capacity lies gain more.
    pub capacity: f64,
    /// Head/Tail's threshold.
    pub threshold: f64,
    /// The result is a function of the network, the options and this.
    pub seed: u64,
}

impl AbraOptions {
    /// What a web client downloads at once.
    pub const WEB_BYTES: f64 = 320e3;
    /// What a bulk client downloads at once.
    pub const BULK_BYTES: f64 = 5e6;
    /// Seconds for which a circuit takes new downloads, once it is made.
    pub const CIRCUIT_LIFE: f64 = 600.0;
    /// The most clients.
    pub const MOST_CLIENTS: u32 = 100_000;
    /// The longest simulation, seconds.
    pub const MOST_SECONDS: u32 = 86_400;

    /// What relays would move if they delayed no download, bytes per second: bulk clients at the rate of a
    /// circuit, web clients one download in half a minute, each through three relays.
    pub fn demand(&self) -> f64 {
        let bulk = f64::from(self.bulk_clients) * self.circuit_rate.min(Self::BULK_BYTES);
        let web = f64::from(self.web_clients) * Self::WEB_BYTES / 30.0;
        3.0 * (bulk + web)
    }

    fn check(&self) -> Result<(), Refused> {
        let clients = self.web_clients.saturating_add(self.bulk_clients);
        let seconds = self.seconds.saturating_add(self.warm_up);
        let is_positive = |number: f64| number > 0.0 && number.is_finite();
        match () {
            () if clients == 0 || clients > Self::MOST_CLIENTS => Err(Refused::Clients),
            () if self.seconds == 0 || seconds > Self::MOST_SECONDS => Err(Refused::Seconds),
            () if !(1..=100).contains(&self.pool) => Err(Refused::Pool),
            () if !(1..=100).contains(&self.guards) => Err(Refused::Guards),
            () if !is_positive(self.circuit_rate) || !is_positive(self.capacity) => {
                Err(Refused::Rate)
            }
            () if !(0.0..=1.0).contains(&self.threshold) => Err(Refused::Threshold),
            () => Ok(()),
        }
    }
}

impl Default for AbraOptions {
    fn default() -> AbraOptions {
        AbraOptions {
            web_clients: 1350,
            bulk_clients: 150,
            pool: 10,
            guards: 3,
            warm_up: 300,
            seconds: 1200,
            circuit_rate: 1e6,
            capacity: 0.8,
            threshold: 0.4,
            seed: 1,
        }
    }
}

/// Why nothing was simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// See there.
    #[error(transparent)]
    NoCircuits(#[from] NoCircuits),
    /// No clients, or too many.
    #[error("clients are from 1 to {}", AbraOptions::MOST_CLIENTS)]
    Clients,
    /// No time, or too much.
    #[error("seconds are from 1 to {} with the warm-up", AbraOptions::MOST_SECONDS)]
    Seconds,
    /// No circuits in the pool, or too many.
    #[error("circuits of a pool are from 1 to 100")]
    Pool,
    /// No guards, or too many.
    #[error("guards of a client are from 1 to 100")]
    Guards,
    /// No rate.
    #[error("rates and capacities are above 0")]
    Rate,
    /// No share.
    #[error("the threshold is from 0 to 1")]
    Threshold,
    /// A part of the network that is none.
    #[error("what an adversary has is from 0 to 1")]
    Fraction,
    /// No adversaries, or too many.
    #[error("adversaries are from 1 to 100000")]
    Adversaries,
    /// No client began a download while choices were noted.
    #[error("no client chose a circuit in that time")]
    NoChoices,
}

/// What [`Triples`] this simulates with: relays must be `Fast`.
///
/// # Errors
///
/// [`NoCircuits`].
pub fn triples(network: &Network) -> Result<Triples, NoCircuits> {
    Triples::new(network, false)
}
