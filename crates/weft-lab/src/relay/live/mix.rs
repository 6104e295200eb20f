//! Who sends when, which circuit ends, which link closes: decisions, made of time and a seed.
//!
//! The world carries them out ([`super::super::world`]). A circuit is a number; the world may use it again for the
//! next one once [`Mix::end`] or [`Decision::End`] has ended it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

use super::{BURST, BUSY, CELLS, FORWARD, LONGEST_TRAIN, LOUD, Shape, TRAIN, life_s};

/// Number of values that represent a distribution.
const TABLE: u32 = 4096;
/// The greatest part of circuits that end because their link closes; more would leave none to end by themselves.
const MOST_BY_LINKS: f64 = 0.9;
const SECOND: f64 = 1e9;

/// Side of the relay that a link is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::relay) enum At {
    /// Towards the clients.
    Origin,
    /// Towards the exits.
    Hop,
}

/// The next action of the mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::relay) enum Decision {
    /// Cells of a circuit that are due since `due`.
    Send {
        circuit: usize,
        forward: bool,
        cells: u32,
        due: u64,
    },
    /// The circuit has been there long enough.
    End { circuit: usize },
    /// So has the link of this number on its side.
    Close { at: At, link: usize },
}

/// When something happens to a circuit. A circuit that has ended since has another `life`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: u64,
    circuit: u32,
    life: u32,
}

/// One circuit.
#[derive(Clone, Copy, Debug, Default)]
struct Circuit {
    life: u32,
    is_open: bool,
    ends_at: u64,
    /// Nanoseconds from one train to the next, on average, and how many make a burst.
    gap: f64,
    burst: f64,
    longest_train: u32,
}

/// The links of one side.
#[derive(Clone, Debug)]
struct Side {
    links: usize,
    weights: [f64; 10],
    /// Nanoseconds from one link that closes to the next; `None`: none does.
    gap: Option<f64>,
    next: u64,
}

/// The whole mix.
#[derive(Debug)]
pub(in crate::relay) struct Mix {
    rng: ChaCha12Rng,
    /// Lengths of trains, each as likely, in ascending order.
    trains: Vec<u32>,
    /// Cells of circuits of the loudest tenth, in multiples of their mean, each as likely.
    loud: Vec<f64>,
    shape: Shape,
    sides: [Side; 2],
    circuits: Vec<Circuit>,
    events: BinaryHeap<Reverse<Event>>,
    /// Mean lifetime of a circuit that no closing link ends, in nanoseconds.
    life: f64,
    /// Cells per nanosecond of a circuit that carries one cell in its life.
    pace: f64,
}

impl Mix {
    /// A mix of this number of circuits, and of links on each side. Nothing happens before
    /// [`start`](Self::start).
    pub(in crate::relay) fn new(
        shape: Shape,
        circuits: usize,
        (origins, hops): (usize, usize),
        seed: u64,
    ) -> Mix {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut trains: Vec<u32> = (0..TABLE)
            .map(|_| (log_normal(&mut rng, TRAIN) as u32).clamp(1, LONGEST_TRAIN))
            .collect();
        trains.sort_unstable();
        // A log-normal distribution whose mean would be 1 if it were not cut.
        let (sigma, most) = LOUD;
        let mut loud: Vec<f64> = (0..TABLE)
            .map(|_| log_normal(&mut rng, (-sigma * sigma / 2.0, sigma)).min(most))
            .collect();
        let mean = loud.iter().sum::<f64>() / f64::from(TABLE);
        for value in &mut loud {
            *value /= mean;
        }
        let side = |links, weights| Side {
            links,
            weights,
            gap: None,
            next: u64::MAX,
        };
        Mix {
            rng,
            trains,
            loud,
            sides: [side(origins, shape.origins), side(hops, shape.hops)],
            shape,
            circuits: vec![Circuit::default(); circuits],
            events: BinaryHeap::new(),
            life: f64::INFINITY,
            pace: 0.0,
        }
    }

    /// The links that a new circuit goes over.
    pub(in crate::relay) fn place(&mut self) -> (usize, usize) {
        let [origins, hops] = &self.sides;
        (
            draw(&mut self.rng, origins.links, &origins.weights),
            draw(&mut self.rng, hops.links, &hops.weights),
        )
    }

    /// From `now` on, circuits carry `cells_per_s` cells a second together. Open circuits draw a
    /// new remaining lifetime: exponential lifetimes have no memory.
    pub(in crate::relay) fn start(&mut self, now: u64, cells_per_s: f64) {
        self.events.clear();
        let circuits = self.circuits.len();
        let life = life_s(circuits, cells_per_s) * SECOND;
        let per_link = [
            self.shape.circuits_per_origin_link,
            self.shape.circuits_per_hop_link,
        ];
        // Of all circuits that end, the part that ends with a link of one of the sides.
        let parts: Vec<f64> = self
            .sides
            .iter()
            .zip(per_link)
            .map(|(side, per_link)| circuits as f64 / (per_link * side.links.max(1) as f64))
            .collect();
        let sum: f64 = parts.iter().sum();
        let scale = (MOST_BY_LINKS / sum).min(1.0);
        for (side, per_link) in self.sides.iter_mut().zip(per_link) {
            let gap = life / circuits.max(1) as f64 * per_link / scale;
            side.gap = gap.is_finite().then_some(gap);
            side.next = match side.gap {
                Some(gap) => later(now, exponential(&mut self.rng, gap)),
                None => u64::MAX,
            };
        }
        self.life = life / (1.0 - sum * scale);
        self.pace = 1.0 / life;
        let mut drawn = 0.0;
        let open: Vec<usize> = self.open().collect();
        for circuit in &open {
            drawn += self.draw_circuit(*circuit, now);
        }
        if drawn > 0.0 {
            // However few circuits there are, they carry the rate at first; those that come later do so on average.
            let wanted = cells_per_s / SECOND * open.len() as f64 / circuits.max(1) as f64;
            let factor = wanted / drawn;
            for circuit in &open {
                if let Some(circuit) = self.circuits.get_mut(*circuit) {
                    circuit.gap /= factor;
                }
            }
        }
        for circuit in open {
            self.schedule(circuit, now, true);
        }
    }

    /// A circuit can carry cells from `now` on.
    pub(in crate::relay) fn begin(&mut self, circuit: usize, now: u64) {
        if let Some(known) = self.circuits.get_mut(circuit) {
            known.is_open = true;
        }
        if self.pace == 0.0 {
            return;
        }
        self.draw_circuit(circuit, now);
        self.schedule(circuit, now, true);
    }

    /// A circuit ends for another reason than its age.
    pub(in crate::relay) fn end(&mut self, circuit: usize) {
        if let Some(circuit) = self.circuits.get_mut(circuit) {
            circuit.is_open = false;
            circuit.life = circuit.life.wrapping_add(1);
        }
    }

    /// The actions due by `now`, one at a time.
    pub(in crate::relay) fn next(&mut self, now: u64) -> Option<Decision> {
        for (side, at) in self.sides.iter_mut().zip([At::Origin, At::Hop]) {
            if let Some(gap) = side.gap.filter(|_| side.next <= now && side.links > 0) {
                side.next = later(side.next, exponential(&mut self.rng, gap));
                let link = self.rng.random_range(0..side.links);
                return Some(Decision::Close { at, link });
            }
        }
        loop {
            let Reverse(event) = *self.events.peek()?;
            if event.at > now {
                return None;
            }
            self.events.pop();
            let number = event.circuit as usize;
            let Some(circuit) = self.circuits.get(number).copied() else {
                continue;
            };
            if circuit.life != event.life || !circuit.is_open {
                continue;
            }
            if event.at >= circuit.ends_at {
                self.end(number);
                return Some(Decision::End { circuit: number });
            }
            let train = self.rng.random_range(0..self.trains.len());
            let train = self.trains.get(train).copied().unwrap_or(1);
            let forward = self.rng.random::<f64>() < FORWARD;
            self.schedule(number, event.at, false);
            return Some(Decision::Send {
                circuit: number,
                forward,
                cells: train.min(circuit.longest_train),
                due: event.at,
            });
        }
    }

    fn open(&self) -> impl Iterator<Item = usize> {
        let circuits = self.circuits.iter().enumerate();
        circuits.filter_map(|(number, circuit)| circuit.is_open.then_some(number))
    }

    /// Draws how much a circuit carries and how long it lives; its cells per nanosecond.
    fn draw_circuit(&mut self, circuit: usize, now: u64) -> f64 {
        let decile = self.rng.random_range(0..CELLS.len());
        let mut cells = CELLS.get(decile).copied().unwrap_or(1.0);
        if decile == 0 {
            let loud = self.rng.random_range(0..self.loud.len());
            cells *= self.loud.get(loud).copied().unwrap_or(1.0);
        }
        // A circuit of a handful of cells has no train of dozens.
        let longest_train = ((cells / 4.0) as u32).clamp(1, LONGEST_TRAIN);
        let rate = cells * self.pace;
        let gap = self.mean_train(longest_train) / rate;
        let burst = match cells >= BUSY {
            true => BURST.0,
            false => 1.0,
        };
        let ends_at = later(now, exponential(&mut self.rng, self.life));
        if let Some(circuit) = self.circuits.get_mut(circuit) {
            *circuit = Circuit {
                ends_at,
                gap,
                burst,
                longest_train,
                ..*circuit
            };
        }
        rate
    }

    /// The mean length of trains that are cut to this number of cells.
    fn mean_train(&self, longest: u32) -> f64 {
        let sum: u64 = self
            .trains
            .iter()
            .map(|train| u64::from(*train.min(&longest)))
            .sum();
        sum as f64 / f64::from(TABLE)
    }

    /// Decides when the circuit's next train comes, or its end. At nearly all times a circuit is between bursts.
    fn schedule(&mut self, number: usize, now: u64, between_bursts: bool) {
        let Some(circuit) = self.circuits.get(number).copied() else {
            return;
        };
        let (length, within) = (circuit.burst, BURST.1 * SECOND);
        let pause = circuit.gap * length - within * (length - 1.0);
        let gap = match pause > within {
            // A circuit that is busy all the time has no bursts.
            false => circuit.gap,
            true if between_bursts => pause,
            true if self.rng.random::<f64>() * length < length - 1.0 => within,
            true => pause,
        };
        let at = later(now, exponential(&mut self.rng, gap)).min(circuit.ends_at);
        self.events.push(Reverse(Event {
            at,
            circuit: u32::try_from(number).unwrap_or(u32::MAX),
            life: circuit.life,
        }));
    }
}

/// The time this number of nanoseconds later.
fn later(now: u64, wait: f64) -> u64 {
    // The cast saturates.
    now.saturating_add(wait.max(0.0) as u64)
}

/// Never 0, at most 1.
fn uniform(rng: &mut ChaCha12Rng) -> f64 {
    1.0 - rng.random::<f64>()
}

fn exponential(rng: &mut ChaCha12Rng, mean: f64) -> f64 {
    -uniform(rng).ln() * mean
}

fn log_normal(rng: &mut ChaCha12Rng, (mean, deviation): (f64, f64)) -> f64 {
    // Box and Muller.
    let (u, v) = (uniform(rng), uniform(rng));
    let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
    (mean + deviation * normal).exp()
}

/// One of `count`, of which each tenth has such a weight.
fn draw(rng: &mut ChaCha12Rng, count: usize, weights: &[f64; 10]) -> usize {
    let mut rest = rng.random::<f64>() * weights.iter().sum::<f64>();
    let mut tenth = 0;
    for weight in weights {
        rest -= weight;
        if rest < 0.0 {
            break;
        }
        tenth += 1;
    }
    let place = (f64::from(tenth.min(9)) + rng.random::<f64>()) / 10.0;
    ((place * count as f64) as usize).min(count.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::{Preset, cells_of_a_circuit};
    use super::*;

    /// Actions of a mix in some virtual seconds, in steps of a millisecond.
    #[derive(Default)]
    struct Seen {
        cells: u64,
        forward: u64,
        ended: u64,
        ended_by_links: u64,
        links: [u64; 2],
        per_circuit: HashMap<usize, u64>,
        per_link: HashMap<(bool, usize), u64>,
        decisions: Vec<Decision>,
    }

    fn run(preset: Preset, cells_per_s: Option<f64>, seconds: u64, seed: u64) -> Seen {
        let shape = preset.shape();
        let (origins, hops) = preset.sides(shape.links);
        let mut mix = Mix::new(shape, shape.circuits, (origins, hops), seed);
        let mut places: Vec<(usize, usize)> = (0..shape.circuits).map(|_| mix.place()).collect();
        for circuit in 0..shape.circuits {
            mix.begin(circuit, 0);
        }
        mix.start(
            0,
            cells_per_s.unwrap_or_else(|| Preset::own_rate(shape.circuits)),
        );
        let mut seen = Seen::default();
        for millisecond in 1..=seconds * 1000 {
            let now = millisecond * 1_000_000;
            let mut renew = Vec::new();
            while let Some(decision) = mix.next(now) {
                seen.decisions.push(decision);
                match decision {
                    Decision::Send {
                        circuit,
                        forward,
                        cells,
                        due,
                    } => {
                        assert!(cells > 0 && due <= now);
                        let cells = u64::from(cells);
                        seen.cells += cells;
                        seen.forward += if forward { cells } else { 0 };
                        *seen.per_circuit.entry(circuit).or_default() += cells;
                        let (origin, hop) = places[circuit];
                        *seen.per_link.entry((true, origin)).or_default() += cells;
                        *seen.per_link.entry((false, hop)).or_default() += cells;
                    }
                    Decision::End { circuit } => {
                        seen.ended += 1;
                        renew.push(circuit);
                    }
                    Decision::Close { at, link } => {
                        seen.links[usize::from(at == At::Hop)] += 1;
                        let on = |place: &(usize, usize)| match at {
                            At::Origin => place.0 == link,
                            At::Hop => place.1 == link,
                        };
                        for (circuit, place) in places.iter().enumerate() {
                            if on(place) {
                                mix.end(circuit);
                                seen.ended_by_links += 1;
                                renew.push(circuit);
                            }
                        }
                    }
                }
            }
            for circuit in renew {
                places[circuit] = mix.place();
                mix.begin(circuit, now);
            }
        }
        seen
    }

    fn is_near(found: f64, expected: f64, within: f64) {
        assert!(
            (found / expected - 1.0).abs() < within,
            "{found}, not {expected}"
        );
    }

    #[test]
    fn the_rate_is_the_one_that_was_asked_for_and_mostly_backward() {
        let seen = run(Preset::Middle, Some(20_000.0), 40, 1);
        is_near(seen.cells as f64 / 40.0, 20_000.0, 0.1);
        is_near(seen.forward as f64 / seen.cells as f64, FORWARD, 0.3);
    }

    #[test]
    fn circuits_live_as_long_as_the_relays_log_has_it_and_are_made_anew() {
        let shape = Preset::Middle.shape();
        let seen = run(Preset::Middle, None, 60, 2);
        let ended = (seen.ended + seen.ended_by_links) as f64;
        is_near(
            ended / 60.0,
            shape.circuits as f64 / super::super::LIFE_S,
            0.1,
        );
        // The ratio of onionskins to cells.
        is_near(seen.cells as f64 / ended, cells_of_a_circuit(), 0.2);
    }

    #[test]
    fn links_of_clients_close_after_some_circuits_and_those_of_relays_hardly_ever() {
        let guard = run(Preset::Guard, None, 200, 3);
        let made = (guard.ended + guard.ended_by_links) as f64;
        is_near(made / guard.links[0] as f64, 6.7, 0.25);
        let middle = run(Preset::Middle, None, 60, 3);
        assert!(middle.links[0] + middle.links[1] < 30, "{:?}", middle.links);
    }

    #[test]
    fn a_tenth_of_the_circuits_carries_nearly_all_cells() {
        let seen = run(Preset::Middle, None, 60, 4);
        let mut each: Vec<u64> = seen.per_circuit.values().copied().collect();
        each.sort_unstable_by(|a, b| b.cmp(a));
        let loud: u64 = each.iter().take(Preset::Middle.shape().circuits / 10).sum();
        assert!(loud * 10 > seen.cells * 9, "{loud} of {}", seen.cells);
        // Two thirds carry no cell in a minute, or next to none.
        let quiet =
            Preset::Middle.shape().circuits - each.iter().filter(|cells| **cells > 2).count();
        assert!(quiet * 3 > Preset::Middle.shape().circuits * 2, "{quiet}");
    }

    #[test]
    fn as_many_links_are_idle_as_a_relay_published() {
        let shape = Preset::Middle.shape();
        let seen = run(Preset::Middle, None, 10, 5);
        let threshold = 20 * 1024 / 514;
        let busy = seen.per_link.values().filter(|cells| **cells >= threshold);
        let idle = 1.0 - busy.count() as f64 / shape.links as f64;
        assert!((0.58..0.78).contains(&idle), "{idle} instead of 0.68");
    }

    #[test]
    fn the_same_seed_decides_the_same() {
        let run = |seed| run(Preset::ExitSide, None, 2, seed).decisions;
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    #[test]
    fn a_circuit_that_has_ended_sends_no_more() {
        let shape = Preset::Middle.shape();
        let mut mix = Mix::new(shape, 4, (2, 2), 1);
        for circuit in 0..4 {
            mix.begin(circuit, 0);
        }
        mix.start(0, 10_000.0);
        mix.end(0);
        let mut others = 0;
        while let Some(decision) = mix.next(100_000_000) {
            match decision {
                Decision::Send { circuit, .. } | Decision::End { circuit } => {
                    assert_ne!(circuit, 0);
                    others += 1;
                }
                Decision::Close { .. } => {}
            }
        }
        assert!(others > 0);
    }

    #[test]
    fn a_mix_without_links_of_a_side_closes_none() {
        let mut mix = Mix::new(Preset::Guard.shape(), 1, (1, 0), 1);
        mix.begin(0, 0);
        mix.start(0, 1e6);
        let mut now = 0;
        for _ in 0..100 {
            now += 1_000_000;
            while let Some(decision) = mix.next(now) {
                assert!(!matches!(decision, Decision::Close { at: At::Hop, .. }));
            }
        }
        assert_eq!(mix.place(), (0, 0));
    }
}
