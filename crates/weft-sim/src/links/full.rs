//! The whole of Tor's path selection as a model of paths whose links are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::class::Class;
use super::error::LinksError;
use super::exits::Exits;
use super::salsa::EXTERNAL_OF_MIXED;
use super::{CIRCUITS_PER_CLIENT, Chunk, CircuitKind, Paths};
use crate::full::{Client, Demand, Model, Path, Purpose};
use crate::random::Generator;

/// No relay has this number: [`super::count`] leaves the circuit out.
const NO_RELAY: u32 = u32::MAX;

/// Circuits of clients that choose paths by [`Model`].
#[derive(Debug)]
pub struct Full {
    model: Model,
    relays: u32,
    kind: CircuitKind,
    circuits_per_client: usize,
    failed: Arc<AtomicU64>,
}

impl Full {
    /// Circuits of this kind, the same number for each client. Circuits without a path are not
    /// counted, but added to `failed`.
    ///
    /// # Errors
    ///
    /// [`LinksError::Number`].
    pub fn new(
        model: Model,
        kind: CircuitKind,
        circuits_per_client: u32,
        failed: Arc<AtomicU64>,
    ) -> Result<Full, LinksError> {
        CIRCUITS_PER_CLIENT.check("circuits per client", circuits_per_client)?;
        Ok(Full {
            relays: model.relays(),
            model,
            kind,
            circuits_per_client: circuits_per_client as usize,
            failed,
        })
    }
}

impl Paths for Full {
    fn relays(&self) -> u32 {
        self.relays
    }

    fn together(&self) -> usize {
        self.circuits_per_client
    }

    fn draw(&self, random: &mut Generator, first: u64, circuits: Chunk<'_>) {
        let mut client = Client::default();
        let hops = circuits.guards.iter_mut().zip(circuits.middles);
        let hops = hops.zip(circuits.exits).zip(first..);
        for (place, (((guard, middle), exit), circuit)) in hops.enumerate() {
            if place % self.circuits_per_client == 0 {
                client.forget();
            }
            let is_external = match self.kind {
                CircuitKind::External => true,
                CircuitKind::Internal => false,
                CircuitKind::Mixed => circuit % EXTERNAL_OF_MIXED == 0,
            };
            let purpose = match is_external {
                true => Purpose::External,
                false => Purpose::Internal,
            };
            let path = self.model.path(&mut client, purpose, random);
            let path = path.unwrap_or_else(|_| {
                self.failed.fetch_add(1, Ordering::Relaxed);
                Path {
                    guard: NO_RELAY,
                    middle: NO_RELAY,
                    exit: NO_RELAY,
                }
            });
            (*guard, *middle, *exit) = (path.guard, path.middle, path.exit);
        }
    }
}

/// The ports of classes of exits: each circuit is for one port, and a class's ports share its circuits
/// evenly. Any traffic counts as web traffic.
pub fn demand(exits: Exits) -> Demand {
    let ports = |class: Class, share: f64| {
        let ports = match class {
            Class::All => Class::Web.ports(),
            _ => class.ports(),
        };
        let ports: Vec<u16> = ports
            .iter()
            .flat_map(|(first, last)| *first..=*last)
            .collect();
        let each = share / ports.len().max(1) as f64;
        ports.into_iter().map(move |port| (port, each))
    };
    Demand {
        ports: match exits {
            Exits::One(class) => ports(class, 1.0).collect(),
            Exits::Mixture(shares) => {
                let classes = Class::TABLE.into_iter().zip(shares);
                // A class that is not wanted needs no exits.
                let wanted = classes.filter(|(_, share)| *share != 0.0);
                wanted
                    .flat_map(|(class, share)| ports(class, share))
                    .collect()
            }
        },
    }
}
