//! Clients download through the network, and choose circuits by ABRA.

use rand::RngExt as _;

use super::fair::Shares;
use super::weight;
use super::{AbraOptions, Refused};
use crate::network::Network;
use crate::random::{Generator, generator};
use crate::triples::{NoCircuits, Triple, Triples};
use weft_path::Candidate;

/// Steps in a second: relays record the bytes of every 100 ms (the paper's g) …
const STEPS: u32 = 10;
/// … and every second (w) the most of them are a circuit's bandwidth.
const STEP: f64 = 1.0 / STEPS as f64;
/// Seconds between two reports of weights.
const REPORT_INTERVAL: u32 = 5;
/// Share of its capacity from which on a relay counts as full, over one second.
const FULL: f64 = 0.99;

/// All choices that clients made.
#[derive(Clone, Debug, PartialEq)]
pub struct Choices {
    /// Circuits of each choice.
    pub(super) pool: usize,
    /// The circuits of all choices, one pool behind the other.
    pub(super) circuits: Vec<Triple>,
    /// Of each choice, which of `weights` clients knew.
    pub(super) report: Vec<u32>,
    /// Of each report, the weight of every relay; `None`: it states none.
    pub(super) weights: Vec<Vec<Option<f64>>>,
    /// Bandwidth of each relay, by the consensus.
    pub(super) bandwidths: Vec<f64>,
    /// Throughput of the relays while choices were recorded, as a share of their capacity.
    pub utilisation: f64,
    /// Share of relays, by capacity, that were full, over all seconds.
    pub full_by_capacity: f64,
    /// Share of choices in which a circuit without bottlenecks was there.
    pub with_free_circuit: f64,
}

impl Choices {
    /// Number of choices.
    pub fn len(&self) -> usize {
        self.report.len()
    }

    /// Returns true if no choice was recorded.
    pub fn is_empty(&self) -> bool {
        self.report.is_empty()
    }
}

struct Client {
    is_bulk: bool,
    guards: Vec<u32>,
    pool: Vec<Circuit>,
    state: State,
}

#[derive(Clone, Copy)]
struct Circuit {
    path: Triple,
    /// When it takes no more downloads, seconds.
    until: f64,
}

#[derive(Clone, Copy)]
enum State {
    /// Begins a download then.
    Waits(f64),
    /// A download of `bytes` more through this circuit. `most` is its highest rate in a step of
    /// this second.
    Loads { path: Triple, bytes: f64, most: f64 },
}

/// Lets clients download, and notes their choices.
///
/// # Errors
///
/// [`Refused`].
pub fn simulate(
    network: &Network,
    triples: &Triples,
    options: &AbraOptions,
    mut progress: impl FnMut(f64),
) -> Result<Choices, Refused> {
    options.check()?;
    let mut rng = generator(options.seed, 0xabaa, 0);
    let bandwidths: Vec<f64> = network
        .relays
        .iter()
        .map(|relay| relay.bandwidth as f64 * 1000.0)
        .collect();
    let whole: f64 = bandwidths.iter().sum();
    let mut drawn = generator(options.seed, 0xabaa, 1);
    let states = bandwidths
        .iter()
        .map(|_| drawn.random::<f64>() < options.stating);
    let states: Vec<bool> = states.collect();
    // Triples has seen that some relay has bandwidth.
    let scale = options.capacity * options.demand() / whole;
    let mut world = World {
        triples,
        options,
        capacities: bandwidths.iter().map(|one| one * scale).collect(),
        states,
        clients: Vec::new(),
        choices: Choices {
            pool: options.pool as usize,
            circuits: Vec::new(),
            report: Vec::new(),
            weights: vec![vec![None; bandwidths.len()]],
            bandwidths,
            utilisation: 0.0,
            full_by_capacity: 0.0,
            with_free_circuit: 0.0,
        },
        shares: Shares::default(),
        moved: Vec::new(),
        chances: Vec::new(),
        seen: Vec::new(),
        free: 0,
    };
    for number in 0..options.web_clients + options.bulk_clients {
        let client = world.client(number >= options.web_clients, &mut rng)?;
        world.clients.push(client);
    }
    let (mut moved, mut full) = (0.0, 0.0);
    let capacity: f64 = world.capacities.iter().sum();
    let seconds = options.warm_up + options.seconds;
    for second in 0..seconds {
        world.second(second, &mut rng)?;
        if second >= options.warm_up {
            moved += world.moved.iter().sum::<f64>();
            let pairs = world.moved.iter().zip(&world.capacities);
            let full_now = pairs.filter(|(moved, capacity)| **moved >= **capacity * FULL);
            full += full_now.map(|(_, capacity)| *capacity).sum::<f64>();
        }
        if (second + 1) % REPORT_INTERVAL == 0 {
            let weights = world.weights();
            world.choices.weights.push(weights);
        }
        world.forget_rates();
        progress(f64::from(second + 1) / f64::from(seconds));
    }
    if world.choices.is_empty() {
        return Err(Refused::NoChoices);
    }
    let whole = f64::from(options.seconds) * capacity;
    let count = world.choices.report.len() as f64;
    Ok(Choices {
        utilisation: moved / whole,
        full_by_capacity: full / whole,
        with_free_circuit: world.free as f64 / count,
        ..world.choices
    })
}

struct World<'a> {
    triples: &'a Triples,
    options: &'a AbraOptions,
    capacities: Vec<f64>,
    /// Relays that state weights.
    states: Vec<bool>,
    clients: Vec<Client>,
    choices: Choices,
    shares: Shares,
    /// Bytes of each relay in this second.
    moved: Vec<f64>,
    chances: Vec<f64>,
    seen: Vec<Candidate>,
    free: usize,
}

impl World<'_> {
    fn client(&self, is_bulk: bool, rng: &mut Generator) -> Result<Client, Refused> {
        let guards = self.triples.draw_guards(self.options.guards as usize, rng);
        // Circuits are of all ages, and so are pauses.
        let pool = (0..self.options.pool).map(|_| {
            let until = rng.random::<f64>() * AbraOptions::CIRCUIT_LIFE;
            Ok(Circuit {
                path: path(self.triples, &guards, rng)?,
                until,
            })
        });
        let pool = pool.collect::<Result<_, NoCircuits>>()?;
        let first = rng.random_range(0.0..if is_bulk { 5.0 } else { 60.0 });
        Ok(Client {
            is_bulk,
            guards,
            pool,
            state: State::Waits(first),
        })
    }

    fn second(&mut self, second: u32, rng: &mut Generator) -> Result<(), Refused> {
        self.moved.clear();
        self.moved.resize(self.capacities.len(), 0.0);
        for step in 0..STEPS {
            let now = f64::from(second) + f64::from(step) * STEP;
            self.begin(now, second >= self.options.warm_up, rng)?;
            self.step(now, rng);
        }
        Ok(())
    }

    /// Lets those whose pause is over choose a circuit.
    fn begin(&mut self, now: f64, is_noted: bool, rng: &mut Generator) -> Result<(), Refused> {
        let mut clients = std::mem::take(&mut self.clients);
        for client in &mut clients {
            let State::Waits(until) = client.state else {
                continue;
            };
            if until > now {
                continue;
            }
            for circuit in &mut client.pool {
                if circuit.until <= now {
                    *circuit = Circuit {
                        path: path(self.triples, &client.guards, rng)?,
                        until: now + AbraOptions::CIRCUIT_LIFE,
                    };
                }
            }
            let path = self.choose(client, is_noted, rng)?;
            let bytes = match client.is_bulk {
                true => AbraOptions::BULK_BYTES,
                false => AbraOptions::WEB_BYTES,
            };
            client.state = State::Loads {
                path,
                bytes,
                most: 0.0,
            };
        }
        self.clients = clients;
        Ok(())
    }

    fn choose(
        &mut self,
        client: &Client,
        is_noted: bool,
        rng: &mut Generator,
    ) -> Result<Triple, Refused> {
        let choices = &mut self.choices;
        let weights = choices.weights.last().map_or(&[][..], |weights| weights);
        self.seen.clear();
        for circuit in &client.pool {
            self.seen
                .push(seen(circuit.path, weights, &choices.bandwidths));
        }
        weight::chances(&self.seen, &mut self.chances);
        if is_noted {
            choices
                .circuits
                .extend(client.pool.iter().map(|one| one.path));
            choices.report.push(choices.weights.len() as u32 - 1);
            self.free += usize::from(self.seen.iter().any(|one| one.weight <= 0.0));
        }
        let place = weight::draw(&self.chances, rng);
        let chosen = client.pool.get(place).ok_or(Refused::NoChoices)?;
        Ok(chosen.path)
    }

    /// Moves the bytes of a step.
    fn step(&mut self, now: f64, rng: &mut Generator) {
        let loading = |client: &&mut Client| matches!(client.state, State::Loads { .. });
        let flows: Vec<[u32; 3]> = self
            .clients
            .iter()
            .filter_map(|client| match client.state {
                State::Loads { path, .. } => Some(path.relays()),
                State::Waits(_) => None,
            })
            .collect();
        self.shares
            .find(&self.capacities, &flows, self.options.circuit_rate);
        let rates = self.shares.rates.iter();
        for (client, rate) in self.clients.iter_mut().filter(loading).zip(rates) {
            let State::Loads { path, bytes, most } = &mut client.state else {
                continue;
            };
            let part = (rate * STEP).min(*bytes);
            *bytes -= part;
            *most = most.max(part / STEP);
            for relay in path.relays() {
                if let Some(moved) = self.moved.get_mut(relay as usize) {
                    *moved += part;
                }
            }
            if *bytes <= 0.0 {
                // "randomly pause between 1 millisecond and 1 minute" (section 3.3).
                let pause = match client.is_bulk {
                    true => 0.0,
                    false => rng.random_range(0.001..60.0),
                };
                client.state = State::Waits(now + STEP + pause);
            }
        }
    }

    /// The weight that every relay that does so reports after this second. The bandwidth of downloads that have just ended is not
    /// known any more, as their circuits move nothing.
    fn weights(&self) -> Vec<Option<f64>> {
        let mut circuits = vec![Vec::new(); self.capacities.len()];
        for client in &self.clients {
            if let State::Loads { path, most, .. } = client.state {
                for relay in path.relays() {
                    if let Some(list) = circuits.get_mut(relay as usize) {
                        list.push(most);
                    }
                }
            }
        }
        let relays = circuits.iter().zip(self.moved.iter().zip(&self.capacities));
        let weights = relays.map(|(circuits, (moved, capacity))| {
            let is_full = *moved >= capacity * FULL;
            weight::of_relay(circuits, is_full, self.options.threshold)
        });
        let states = self.states.iter();
        states
            .zip(weights)
            .map(|(states, weight)| states.then_some(weight))
            .collect()
    }

    fn forget_rates(&mut self) {
        for client in &mut self.clients {
            if let State::Loads { most, .. } = &mut client.state {
                *most = 0.0;
            }
        }
    }
}

/// A circuit as a client sees it.
pub(super) fn seen(path: Triple, weights: &[Option<f64>], bandwidths: &[f64]) -> Candidate {
    let relays = path.relays().map(|relay| relay as usize);
    let bandwidths = relays.iter().map(|relay| bandwidths.get(*relay).copied());
    let bandwidth = bandwidths.map(|one| one.unwrap_or(0.0));
    let stated = relays
        .iter()
        .map(|relay| weights.get(*relay).copied().flatten());
    Candidate::new(stated, bandwidth.fold(f64::INFINITY, f64::min))
}

/// A circuit through one of these guards.
fn path(triples: &Triples, guards: &[u32], rng: &mut Generator) -> Result<Triple, NoCircuits> {
    // In vain only where nearly every exit is the client's only guard.
    (0..1000)
        .find_map(|_| triples.draw_through(guards, rng))
        .ok_or(NoCircuits::TooFew)
}
