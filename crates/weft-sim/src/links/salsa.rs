//! The simple model of paths: Algorithm 1 of Pahl et al. 2023.
//!
//! Each position is drawn by bandwidth times the weight of the position, independently of the
//! others. One relay may be twice in a circuit; families, subnets and most flags are ignored.
//!
//! Line 6 of Algorithm 1 admits relays with the flag Guard *or Exit* to the first position; by 3.1.4
//! only those with the flag Guard are chosen. Both have the same effect: an exit that is no guard has
//! no weight there (dir-spec 3.8.3 knows no Wge), and so bandwidth times 0. Here the flag decides.

use super::class::Class;
use super::error::LinksError;
use super::exits::{self, Exits};
use super::{CIRCUITS_PER_CLIENT, Chunk, CircuitKind, GUARDS_PER_CLIENT, Paths};
use crate::draw::Alias;
use crate::network::{Flags, Network, Position, Relay};
use crate::random::Generator;

/// In eleven circuits of [`CircuitKind::Mixed`] one is external.
pub(super) const EXTERNAL_OF_MIXED: u64 = 11;

/// SALSA's model: circuits and their exits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Where circuits lead.
    pub kind: CircuitKind,
    /// Exits of external circuits.
    pub exits: Exits,
    /// Algorithm 1's k: circuits of each client.
    pub circuits_per_client: u32,
    /// Guards of each client, any of which its circuits begin at with the same probability; 1 in
    /// Algorithm 1.
    pub guards_per_client: u32,
}

impl Default for Model {
    fn default() -> Model {
        Model {
            kind: CircuitKind::External,
            exits: Exits::default(),
            circuits_per_client: 1,
            guards_per_client: 1,
        }
    }
}

/// Of each relay: its bandwidth times its weight at this position, 0 if it is not chosen there.
pub fn weights(network: &Network, position: Position) -> Vec<f64> {
    let is_chosen = |flags: Flags| match position {
        Position::Guard => flags.has(Flags::GUARD),
        Position::Middle => true,
        Position::Exit => flags.has(Flags::EXIT) && !flags.has(Flags::BAD_EXIT),
    };
    let weight = |relay: &Relay| match is_chosen(relay.flags) {
        true => relay.bandwidth as f64 * network.weights.of(position, relay.flags),
        false => 0.0,
    };
    network.relays.iter().map(weight).collect()
}

/// A network ready for draws.
#[derive(Clone, Debug)]
pub struct Salsa {
    relays: u32,
    kind: CircuitKind,
    circuits_per_client: usize,
    guards_per_client: usize,
    guards: Alias,
    middles: Alias,
    exits: Ends,
}

#[derive(Clone, Debug)]
enum Ends {
    One(Alias),
    Mixture(Alias, Vec<Alias>),
}

impl Salsa {
    /// Prepares draws.
    ///
    /// # Errors
    ///
    /// [`LinksError`]: numbers out of range, or a network that has no relay for a position.
    pub fn new(network: &Network, model: &Model) -> Result<Salsa, LinksError> {
        let (circuits, guards) = (model.circuits_per_client, model.guards_per_client);
        CIRCUITS_PER_CLIENT.check("circuits per client", circuits)?;
        GUARDS_PER_CLIENT.check("guards per client", guards)?;
        let relays = u32::try_from(network.relays.len()).map_err(|_| LinksError::TooManyRelays)?;
        let by_guard = weights(network, Position::Guard);
        let there = by_guard.iter().filter(|weight| **weight > 0.0).count() as u32;
        if there > 0 && there < guards {
            return Err(LinksError::TooFewGuards {
                asked: guards,
                there,
            });
        }
        let exits = |class| {
            Alias::new(&exits::weights(network, class)?).map_err(|_| LinksError::NoExits(class))
        };
        Ok(Salsa {
            relays,
            kind: model.kind,
            circuits_per_client: circuits as usize,
            guards_per_client: guards as usize,
            guards: Alias::new(&by_guard).map_err(|_| LinksError::NoGuards)?,
            middles: Alias::new(&weights(network, Position::Middle))
                .map_err(|_| LinksError::NoMiddles)?,
            exits: match model.exits {
                // Internal circuits need no exits.
                _ if model.kind == CircuitKind::Internal => Ends::Mixture(
                    Alias::new(&[1.0]).map_err(|_| LinksError::Mixture)?,
                    Vec::new(),
                ),
                Exits::One(class) => Ends::One(exits(class)?),
                Exits::Mixture(shares) => {
                    let is_sound = shares.iter().all(|share| share.is_finite());
                    let draw = Alias::new(&shares).map_err(|_| LinksError::Mixture)?;
                    if !is_sound {
                        return Err(LinksError::Mixture);
                    }
                    let mut tables = Vec::new();
                    for (class, share) in Class::TABLE.into_iter().zip(shares) {
                        // A class that is not wanted needs no exits.
                        tables.push(match share > 0.0 {
                            true => exits(class)?,
                            false => Alias::new(&[1.0]).map_err(|_| LinksError::Mixture)?,
                        });
                    }
                    Ends::Mixture(draw, tables)
                }
            },
        })
    }

    /// The guards of clients, each circuit at one of its client's.
    fn draw_guards(&self, random: &mut Generator, circuits: &mut [u32]) {
        if self.guards_per_client == 1 {
            for client in circuits.chunks_mut(self.circuits_per_client) {
                client.fill(self.guards.draw(random));
            }
            return;
        }
        let even = vec![1.0; self.guards_per_client];
        let Ok(one_of) = Alias::new(&even) else {
            return;
        };
        let mut own = Vec::with_capacity(self.guards_per_client);
        for client in circuits.chunks_mut(self.circuits_per_client) {
            own.clear();
            // All differ; there are enough, but the last ones may be unlikely.
            let mut tries = 0;
            while own.len() < self.guards_per_client && tries < 10_000 {
                let guard = self.guards.draw(random);
                tries += 1;
                if !own.contains(&guard) {
                    own.push(guard);
                }
            }
            for circuit in client {
                let place = one_of.draw(random) as usize % own.len().max(1);
                *circuit = own.get(place).copied().unwrap_or_default();
            }
        }
    }

    fn draw_exit(&self, random: &mut Generator) -> u32 {
        match &self.exits {
            Ends::One(exits) => exits.draw(random),
            Ends::Mixture(classes, tables) => match tables.get(classes.draw(random) as usize) {
                Some(exits) => exits.draw(random),
                None => self.middles.draw(random),
            },
        }
    }
}

impl Paths for Salsa {
    fn relays(&self) -> u32 {
        self.relays
    }

    fn together(&self) -> usize {
        self.circuits_per_client
    }

    fn draw(&self, random: &mut Generator, first: u64, circuits: Chunk<'_>) {
        self.draw_guards(random, circuits.guards);
        for middle in circuits.middles {
            *middle = self.middles.draw(random);
        }
        match (self.kind, &self.exits) {
            (CircuitKind::External, Ends::One(exits)) => {
                for exit in circuits.exits {
                    *exit = exits.draw(random);
                }
            }
            (CircuitKind::External, _) => {
                for exit in circuits.exits {
                    *exit = self.draw_exit(random);
                }
            }
            (CircuitKind::Internal, _) => {
                for exit in circuits.exits {
                    *exit = self.middles.draw(random);
                }
            }
            (CircuitKind::Mixed, _) => {
                for (circuit, exit) in (first..).zip(circuits.exits) {
                    *exit = match circuit % EXTERNAL_OF_MIXED == 0 {
                        true => self.draw_exit(random),
                        false => self.middles.draw(random),
                    };
                }
            }
        }
    }
}
