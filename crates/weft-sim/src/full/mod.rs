//! The whole of Tor's path selection, as far as it depends on documents.
//!
//! It follows C tor 0.4.9: `onion_pick_cpath_exit`, `choose_good_exit_server_general`,
//! `guards_choose_guard`, `choose_good_middle_server`. The exit is chosen first, then the guard,
//! then the middle relay. No circuit has two relays of one family or network ([`families`],
//! [`subnets`]). Every relay is `Running`, `Valid` and `Fast`; where streams live long, and in
//! onion services' circuits, also `Stable`. Where nothing is left to choose a middle relay from,
//! `Fast` and `Stable` are dropped, as C tor does; where nothing is left then, the circuit starts
//! again with another exit.
//!
//! Not modelled, since no document has the data: guards that fail or expire, versions that C tor
//! has since rejected, and the second relays that onion services keep (vanguards).

pub mod families;
mod guards;
mod policy;
pub mod subnets;
mod table;

#[cfg(test)]
mod tests;

use rand::Rng;

pub use guards::{Client, GuardRule};
pub use policy::{Demand, LONG_LIVED_PORTS};

use crate::draw::Alias;
use crate::microdesc::{Microdescs, OtherMicrodescs};
use crate::network::{Flags, Network, Position, Relay};
use families::Families;
use guards::{Guards, Suits};
use policy::Policies;
use subnets::Subnets;
use table::{Candidates, Table};

/// Beginnings of a circuit before it is given up.
const TRIES: u32 = 64;
/// C tor counts in bytes and 31 bits (`kb_to_bytes`): no relay weighs more than this, in kilobytes per
/// second.
const MAX_BANDWIDTH: f64 = 2_147_483.647;

/// Where circuits end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// At an exit that lets the stream's port through.
    External,
    /// At a relay that is chosen as middle relays are: circuits of onion services (Pahl et al. 2023, 4.1.5).
    Internal,
}

/// The relays of a circuit, by their places in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// First hop.
    pub guard: u32,
    /// Second hop.
    pub middle: u32,
    /// Third hop.
    pub exit: u32,
}

/// Options of path selection.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelOptions {
    /// Ports that external circuits are built for.
    pub demand: Demand,
    /// Rule by which clients choose guards.
    pub guards: GuardRule,
}

impl Default for ModelOptions {
    /// Web traffic, and guards as C tor 0.4 chooses them.
    fn default() -> ModelOptions {
        ModelOptions {
            demand: Demand::web(),
            guards: GuardRule::Sampled { used: 1 },
        }
    }
}

/// Why there are no paths through a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPaths {
    /// There are no ports, or their weights are not positive numbers.
    #[error("no port has a weight above zero, or one is negative or no number")]
    NoPorts,
    /// No relay may be a guard.
    #[error("no relay may be a guard")]
    NoGuards,
    /// No relay lets streams to this port through.
    #[error("no exit lets port {0} through")]
    NoExits(u16),
    /// The document has no `p` lines.
    #[error("only `p` lines or microdescriptors have the exits that allow port {0}")]
    NoPolicies(u16),
    /// None of the microdescriptors belongs to a relay of this document.
    #[error(transparent)]
    OtherMicrodescs(#[from] OtherMicrodescs),
    /// Whatever exit a circuit began with, families and networks left no guard or no middle relay.
    #[error("{TRIES} exits in turn left no guard or no middle relay of another family and network")]
    NoPath,
}

/// Path selection in one network.
#[derive(Clone, Debug)]
pub struct Model {
    /// By relay.
    subnets: Box<[Subnets]>,
    families: Families,
    flags: Box<[Flags]>,
    guards: Guards,
    /// Without and with `Stable`.
    middles: [Table; 2],
    /// Every running and valid relay, for when all others are refused.
    any_flags: Table,
    /// Last relays of internal circuits.
    ends: Table,
    exits: Vec<Exits>,
    /// By port of the demand: its place in `exits`.
    ports: Vec<usize>,
    port: Alias,
}

/// Exits for some ports.
#[derive(Clone, Debug)]
struct Exits {
    table: Table,
    /// True if all relays of their circuits must be `Stable`.
    is_stable: bool,
}

impl Model {
    /// Prepares paths. Families are known from `microdescs` only; where there are some, relays without one
    /// are not used, as C tor does not (`CRN_NEED_DESC`). Exit policies are the consensus's `p` lines or
    /// those of `microdescs`; with neither, flag `Exit` stands for ports 80 and 443.
    ///
    /// # Errors
    ///
    /// All of [`NoPaths`] but [`NoPaths::NoPath`].
    pub fn new(
        network: &Network,
        microdescs: Option<&Microdescs>,
        options: &ModelOptions,
    ) -> Result<Model, NoPaths> {
        let usable = usable(network, microdescs)?;
        let choose = |position: Position, fits: &dyn Fn(usize, &Relay) -> bool| {
            let relays = network.relays.iter().zip(0u32..);
            let chosen = relays.filter(|(relay, place)| {
                let place = *place as usize;
                usable.get(place) == Some(&true) && fits(place, relay)
            });
            Candidates::new(chosen.map(|(relay, place)| (place, weight(network, relay, position))))
        };
        let middles = |flags: Flags| {
            let fits = |_: usize, relay: &Relay| relay.flags.has(flags);
            Table::new(choose(Position::Middle, &fits))
        };
        let rule = options.guards;
        let guards = choose(Position::Guard, &|_, relay| rule.allows(relay.flags));
        if guards.relays().is_empty() {
            return Err(NoPaths::NoGuards);
        }
        let stable = Flags::FAST.with(Flags::STABLE);
        // C tor drops MiddleOnly relays here (`CRN_FOR_HS`).
        let ends = choose(Position::Middle, &|_, relay| {
            relay.flags.has(stable) && !relay.flags.has(Flags::MIDDLE_ONLY)
        });

        let policies = Policies::new(network, microdescs);
        let mut sorts: Vec<(Candidates, bool)> = Vec::new();
        let mut ports = Vec::with_capacity(options.demand.ports.len());
        for (port, _) in &options.demand.ports {
            if !policies.is_known_for(*port) {
                return Err(NoPaths::NoPolicies(*port));
            }
            let is_stable = LONG_LIVED_PORTS.contains(port);
            let lets_out = |needed: Flags| {
                choose(Position::Exit, &|place, relay| {
                    relay.flags.has(needed)
                        && !relay.flags.has(Flags::BAD_EXIT)
                        && policies.allow(place, relay, *port)
                })
            };
            let mut exits = lets_out(if is_stable { stable } else { Flags::FAST });
            if exits.relays().is_empty() {
                exits = lets_out(Flags::default());
            }
            if exits.relays().is_empty() {
                return Err(NoPaths::NoExits(*port));
            }
            // Most ports are let through by the same exits as others.
            let sort = (exits, is_stable);
            let place = sorts.iter().position(|known| *known == sort);
            ports.push(place.unwrap_or_else(|| {
                sorts.push(sort);
                sorts.len() - 1
            }));
        }
        let weights: Vec<f64> = options.demand.ports.iter().map(|(_, part)| *part).collect();
        let exits = sorts.into_iter().map(|(exits, is_stable)| Exits {
            table: Table::new(exits),
            is_stable,
        });
        Ok(Model {
            subnets: subnets(network, microdescs),
            families: microdescs.map_or_else(Families::default, |microdescs| {
                Families::new(network, microdescs)
            }),
            flags: network.relays.iter().map(|relay| relay.flags).collect(),
            guards: Guards::new(Table::new(guards), rule),
            middles: [middles(Flags::FAST), middles(stable)],
            any_flags: middles(Flags::default()),
            ends: Table::new(ends),
            exits: exits.collect(),
            ports,
            port: Alias::new(&weights).map_err(|_| NoPaths::NoPorts)?,
        })
    }

    /// Relays in the network.
    pub fn relays(&self) -> u32 {
        u32::try_from(self.flags.len()).unwrap_or(u32::MAX)
    }

    /// Family relations of the relays.
    pub fn families(&self) -> &Families {
        &self.families
    }

    /// Returns true if two relays must not be in one circuit: they are the same, of one family, or
    /// in one network.
    #[inline]
    pub fn conflict(&self, one: u32, other: u32) -> bool {
        let subnets = |relay: u32| {
            self.subnets
                .get(relay as usize)
                .copied()
                .unwrap_or_default()
        };
        one == other || subnets(one).meet(subnets(other)) || self.families.related(one, other)
    }

    /// A circuit of this client, which keeps its guards for the next one.
    ///
    /// # Errors
    ///
    /// [`NoPaths::NoPath`].
    pub fn path(
        &self,
        client: &mut Client,
        purpose: Purpose,
        rng: &mut impl Rng,
    ) -> Result<Path, NoPaths> {
        let (ends, is_stable) = match purpose {
            Purpose::Internal => (&self.ends, true),
            Purpose::External => {
                let port = match self.ports.len() {
                    1 => 0,
                    _ => self.port.draw(rng) as usize,
                };
                let exits = self
                    .ports
                    .get(port)
                    .and_then(|place| self.exits.get(*place));
                let exits = exits.ok_or(NoPaths::NoPorts)?;
                (&exits.table, exits.is_stable)
            }
        };
        for _ in 0..TRIES {
            let exit = ends.draw(rng, |_| false);
            let exit = match (exit, purpose) {
                // `router_choose_random_node` tries once more with fewer restrictions.
                (None, Purpose::Internal) => self.any_flags.draw(rng, |_| false),
                (exit, _) => exit,
            };
            let exit = exit.ok_or(NoPaths::NoPath)?;
            let circuit = Circuit {
                model: self,
                exit,
                is_stable,
            };
            let Some(guard) = self.guards.choose(client, &circuit, rng) else {
                continue;
            };
            let refused = |relay| self.conflict(relay, exit) || self.conflict(relay, guard);
            let [all, stable] = &self.middles;
            let middles = if is_stable { stable } else { all };
            let middle = middles
                .draw(rng, refused)
                .or_else(|| self.any_flags.draw(rng, refused));
            if let Some(middle) = middle {
                return Ok(Path {
                    guard,
                    middle,
                    exit,
                });
            }
        }
        Err(NoPaths::NoPath)
    }
}

/// A circuit whose other relays are still to be chosen.
struct Circuit<'a> {
    model: &'a Model,
    exit: u32,
    is_stable: bool,
}

impl Suits for Circuit<'_> {
    #[inline]
    fn suits(&self, guard: u32) -> bool {
        let flags = self.model.flags.get(guard as usize).copied();
        let needed = match self.is_stable {
            true => Flags::FAST.with(Flags::STABLE),
            false => Flags::FAST,
        };
        flags.is_some_and(|flags| flags.has(needed)) && !self.model.conflict(guard, self.exit)
    }

    fn clash(&self, one: u32, other: u32) -> bool {
        self.model.conflict(one, other)
    }
}

/// By relay: whether circuits may use it at all.
fn usable(network: &Network, microdescs: Option<&Microdescs>) -> Result<Vec<bool>, NoPaths> {
    let is_there = |relay: &Relay| {
        microdescs.is_none_or(|microdescs| {
            let digest = relay.microdesc.as_ref();
            digest.is_some_and(|digest| microdescs.has(digest))
        })
    };
    let needed = Flags::RUNNING.with(Flags::VALID);
    let relays = network.relays.iter();
    if let Some(microdescs) = microdescs {
        microdescs.matched(network)?;
    }
    let usable = relays.map(|relay| is_there(relay) && relay.flags.has(needed));
    Ok(usable.collect())
}

/// A relay's weight at a position.
fn weight(network: &Network, relay: &Relay, position: Position) -> f64 {
    let bandwidth = (relay.bandwidth as f64).min(MAX_BANDWIDTH);
    bandwidth * network.weights.of(position, relay.flags)
}

/// By relay: its networks. IPv6 addresses were in microdescriptors before consensus method 27 (dir-spec
/// 3.3), and are in the consensus since.
fn subnets(network: &Network, microdescs: Option<&Microdescs>) -> Box<[Subnets]> {
    let of = |relay: &Relay| {
        let of_microdesc = || microdescs?.get(&relay.microdesc?)?.ipv6;
        Subnets::new(relay.address, relay.ipv6.or_else(of_microdesc))
    };
    network.relays.iter().map(of).collect()
}
