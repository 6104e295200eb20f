//! Gain of relays that report false weights to clients that avoid bottlenecks: ABRA (Schrock 2017,
//! sections 3 and 5.2).
//!
//! The network carries downloads of web and bulk clients, which choose among the circuits of their
//! pools by the weights that relays report (`traffic`). Each choice is recorded with its circuits
//! and the weights of that moment. Then adversaries are given relays, and each choice is made
//! again: with honest weights, with a weight of 0 reported by the adversary's relays, and with a
//! tiny weight reported by one of them besides (`replay`). Lies do not change the traffic. The
//! paper does the same, and adds that lying relays would soon carry less.
//!
//! The paper ran Tor itself in Shadow. Here traffic is a fluid that links share max-min fairly,
//! which is the aim of Tor's flow control (section 3.1). Choices of Weft's own clients in a virtual
//! network can be recorded instead (`pools`).

mod fair;
pub mod figure;
pub mod pools;
mod replay;
mod traffic;
pub mod weight;

use serde::Serialize;
use weft_stats::bounds::{Bounds, OutOfBounds};

use crate::network::Network;
use crate::triples::{NoCircuits, Triples};

pub use replay::{Grant, Point, Quantiles, TINY, replay};
pub use traffic::{Choices, simulate};

/// Clients of a kind; there is one of either.
pub const CLIENTS: Bounds<u32> = Bounds::new(0, 100_000);
/// Circuits of a client's pool.
pub const POOL: Bounds<u32> = Bounds::new(1, 100);
/// Guards of a client.
pub const GUARDS: Bounds<u32> = Bounds::new(1, 100);
/// Seconds for which choices are noted.
pub const SECONDS: Bounds<u32> = Bounds::new(1, 86_400);
const WARM_UP: Bounds<u32> = Bounds::new(0, 86_400);
/// The most that a circuit moves.
pub const CIRCUIT_RATE: Bounds<f64> = Bounds::new(1.0, 1e12).of("bytes per second");
/// Capacity of the relays, as a multiple of the clients' demand.
pub const CAPACITY: Bounds<f64> = Bounds::new(0.001, 1000.0);
const THRESHOLD: Bounds<f64> = Bounds::new(0.0, 1.0);
const STATING: Bounds<f64> = Bounds::new(0.0, 1.0);
/// Share of the network that an adversary owns, or of the relays that state weights.
pub const PERCENT: Bounds<f64> = Bounds::new(0.0, 100.0);
/// Adversaries for each part.
pub const ADVERSARIES: Bounds<u32> = Bounds::new(1, 100_000);

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
    /// Capacity of all relays, as a multiple of [`AbraOptions::demand`]; a relay's share of it is
    /// proportional to its `Bandwidth`. Weights of a consensus are not bytes, and the paper does
    /// not give the load of its network: less capacity makes lies gain more.
    pub capacity: f64,
    /// The part of relays that state weights, 0 to 1; C tor's state none.
    pub stating: f64,
    /// Head/Tail's threshold.
    pub threshold: f64,
    /// The result is a function of the network, the options and this.
    pub seed: u64,
}

impl AbraOptions {
    /// Size of a web client's downloads, in bytes.
    pub const WEB_BYTES: f64 = 320e3;
    /// Size of a bulk client's downloads, in bytes.
    pub const BULK_BYTES: f64 = 5e6;
    /// Seconds for which a circuit takes new downloads, once it is made.
    pub const CIRCUIT_LIFE: f64 = 600.0;

    /// Bytes per second that relays would move if they delayed no download: bulk clients at the
    /// rate of a circuit, web clients one download every 30 seconds, each through three relays.
    pub fn demand(&self) -> f64 {
        let bulk = f64::from(self.bulk_clients) * self.circuit_rate.min(Self::BULK_BYTES);
        let web = f64::from(self.web_clients) * Self::WEB_BYTES / 30.0;
        3.0 * (bulk + web)
    }

    fn check(&self) -> Result<(), Refused> {
        CLIENTS.check("web clients", self.web_clients)?;
        CLIENTS.check("bulk clients", self.bulk_clients)?;
        POOL.check("pool", self.pool)?;
        GUARDS.check("guards", self.guards)?;
        SECONDS.check("seconds", self.seconds)?;
        WARM_UP.check("warm-up", self.warm_up)?;
        CIRCUIT_RATE.check("circuit rate", self.circuit_rate)?;
        CAPACITY.check("capacity", self.capacity)?;
        THRESHOLD.check("threshold", self.threshold)?;
        STATING.check("stating", self.stating)?;
        match self.web_clients + self.bulk_clients {
            0 => Err(Refused::Clients),
            _ => Ok(()),
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
            stating: 1.0,
            threshold: 0.4,
            seed: 1,
        }
    }
}

/// Why nothing was simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// See there.
    #[error(transparent)]
    NoCircuits(#[from] NoCircuits),
    /// A number that makes no sense, or would take for ever.
    #[error(transparent)]
    Number(#[from] OutOfBounds),
    /// Neither web clients nor bulk clients.
    #[error("there are no clients")]
    Clients,
    /// No client began a download while choices were noted.
    #[error("no client chose a circuit in that time")]
    NoChoices,
}

/// The [`Triples`] that this simulation uses: relays must be `Fast`.
///
/// # Errors
///
/// [`NoCircuits`].
pub fn triples(network: &Network) -> Result<Triples, NoCircuits> {
    Triples::new(network, false)
}
