//! Balance of a relay's connection threads: links that stay where they were placed, and links that
//! move.
//!
//! The relay is a middle relay with many links. Circuits arrive at random and live for an
//! exponential time. Each connects two links, drawn by the weight of the relay at their other end;
//! its rate has a Pareto distribution. A link opens with its first circuit and closes after an idle
//! time. Weft's own [`Placement`] gives it to a thread, and Weft's own [`Balance`] moves it.
//! docs/simulation.md has the sources of the numbers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rand::RngExt as _;
use serde::Serialize;
use weft_core::address::{ConnectionId, ThreadId};
use weft_core::link::load::Load;
use weft_core::message::{HEAVIEST, HeavyLink};
use weft_core::moves::balance::{Balance, IMBALANCE};
use weft_core::moves::placement::Placement;
use weft_stats::bounds::{Bounds, OutOfBounds};
use weft_stats::{Spread, quantile};

use crate::parallel;
use crate::random::{Generator, generator};
use crate::synth;

/// Threads of the relay.
pub const THREADS: Bounds<u16> = Bounds::new(1, 256);
/// Relays that it may have links with.
pub const PEERS: Bounds<u32> = Bounds::new(100, 20_000);
/// Circuits at the same time.
pub const CIRCUITS: Bounds<u64> = Bounds::new(1, 1_000_000);
/// Hours that are simulated, after the first.
pub const HOURS: Bounds<u64> = Bounds::new(1, 1000);
/// Repetitions.
pub const REPETITIONS: Bounds<u64> = Bounds::new(1, 1000);

/// Mean life of a circuit, in seconds: as long as clients put new streams on it (C tor,
/// MaxCircuitDirtiness).
const CIRCUIT: f64 = 600.0;
/// The tail of circuits' rates: the 3.33 % of connections that carried 40.2 % of the bytes (McCoy et al. 2008, Table 1).
const TAIL: f64 = 1.367;
/// The most that one circuit carries, of the mean: some 4 MB/s where the mean is 12.5 kB/s.
const MOST: f64 = 320.0;
/// Time, in seconds, after which a link without circuits closes (Weft and C tor, to relays).
const IDLE: f64 = 3600.0;
/// Part of the time that the mean thread works.
const WORK: f64 = 0.5;
/// Interval of the threads' reports, in seconds. Weft's threads report four times a second.
const STEP: f64 = 1.0;
/// The time before which nothing is counted: links and circuits begin.
const WARM: f64 = 3600.0;

/// Options of [`simulate`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BalanceOptions {
    /// Numbers of connection threads.
    pub threads: Vec<u16>,
    /// Relays that there may be links with: those of most bandwidth.
    pub peers: u32,
    /// Circuits at the same time, on average.
    pub circuits: u64,
    /// Hours that count.
    pub hours: u64,
    /// Repetitions of each number of threads, with and without moves.
    pub repetitions: u64,
    /// The result is a function of the options and this.
    pub seed: u64,
    /// Threads that simulate; they change nothing in the result.
    #[serde(skip)]
    pub workers: usize,
}

/// Results for one number of threads, with or without moves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Connection threads.
    pub threads: u16,
    /// Links move; otherwise they are only placed.
    pub moves: bool,
    /// Load of the busiest thread above the mean, in percent, averaged over time.
    pub above_mean_percent: Spread,
    /// Load of the busiest thread above the mean, in percent, exceeded in 5 % of the time.
    pub above_mean_percent_p95: Spread,
    /// Part of the time in which it is more than 10 % above it, percent.
    pub past_tenth_percent: Spread,
    /// Moves in an hour.
    pub moves_per_hour: Spread,
    /// Open links.
    pub links: Spread,
}

/// One repetition.
struct Run {
    above: f64,
    p95: f64,
    past: f64,
    moves: f64,
    links: f64,
}

/// Simulates. `done` is called [`pieces`] times: for each repetition of each number of threads.
///
/// # Errors
///
/// A number out of its range.
pub fn simulate(options: &BalanceOptions, done: impl Fn() + Sync) -> Result<Vec<Row>, OutOfBounds> {
    for threads in &options.threads {
        THREADS.check("threads", *threads)?;
    }
    PEERS.check("peers", options.peers)?;
    CIRCUITS.check("circuits", options.circuits)?;
    HOURS.check("hours", options.hours)?;
    REPETITIONS.check("repetitions", options.repetitions)?;
    let network = synth::network(options.peers.max(6500), options.seed)?;
    let mut weights: Vec<u64> = network.relays.iter().map(|relay| relay.bandwidth).collect();
    weights.sort_unstable_by(|a, b| b.cmp(a));
    weights.truncate(options.peers as usize);
    // Sums, to be searched in.
    let mut sum = 0;
    for weight in &mut weights {
        sum += *weight;
        *weight = sum;
    }
    let runs = parallel::map(
        pieces(options),
        options.workers,
        |piece| {
            let repetition = (piece as u64) % options.repetitions;
            let rule = piece as u64 / options.repetitions;
            let threads = options.threads.get((rule / 2) as usize).copied();
            let mut rng = generator(options.seed, repetition, 0);
            Relay::new(threads.unwrap_or(1), rule % 2 == 1, &weights, options)
                .run(options.hours, &mut rng)
        },
        done,
    );
    let rows = runs.chunks(options.repetitions as usize).enumerate();
    let rows = rows.filter_map(|(rule, runs)| {
        let over = |value: fn(&Run) -> f64| Spread::of(&runs.iter().map(value).collect::<Vec<_>>());
        Some(Row {
            threads: options.threads.get(rule / 2).copied()?,
            moves: rule % 2 == 1,
            above_mean_percent: over(|run| run.above)?,
            above_mean_percent_p95: over(|run| run.p95)?,
            past_tenth_percent: over(|run| run.past)?,
            moves_per_hour: over(|run| run.moves)?,
            links: over(|run| run.links)?,
        })
    });
    Ok(rows.collect())
}

/// Pieces of work that [`simulate`] does.
pub fn pieces(options: &BalanceOptions) -> usize {
    options.threads.len() * 2 * options.repetitions as usize
}

/// A link.
#[derive(Clone, Copy, Debug)]
struct Link {
    id: ConnectionId,
    thread: usize,
    circuits: u32,
    /// Rate of its circuits together; the mean rate of one circuit is 1.
    rate: f64,
    /// When its last circuit ended.
    idle_since: f64,
}

/// A circuit, until it ends.
#[derive(Clone, Copy, Debug)]
struct Circuit {
    rate: f64,
    links: [usize; 2],
}

/// A relay as it is simulated.
struct Relay<'a> {
    weights: &'a [u64],
    circuits: u64,
    placement: Placement,
    balance: Option<Balance>,
    /// By peer.
    links: Vec<Option<Link>>,
    last_id: u64,
    /// By the time of their end, in nanoseconds, and a number.
    ends: BTreeMap<(u64, u64), Circuit>,
    begun: u64,
    loads: Vec<Load>,
    cpu: Vec<Duration>,
    /// Any time: all others are relative to it.
    epoch: Instant,
}

impl<'a> Relay<'a> {
    fn new(threads: u16, moves: bool, weights: &'a [u64], options: &BalanceOptions) -> Self {
        let epoch = Instant::now();
        let count = usize::from(threads);
        Relay {
            weights,
            circuits: options.circuits,
            placement: Placement::new(threads),
            balance: moves.then(|| Balance::new(threads)),
            links: vec![None; weights.len()],
            last_id: 0,
            ends: BTreeMap::new(),
            begun: 0,
            loads: vec![Load::new(epoch); count],
            cpu: vec![Duration::ZERO; count],
            epoch,
        }
    }

    fn run(mut self, hours: u64, rng: &mut Generator) -> Run {
        let end = WARM + hours as f64 * 3600.0;
        let arrivals = self.circuits as f64 / CIRCUIT;
        // A circuit is on two links: the mean load of a thread, in circuits of the mean rate.
        let mean = 2.0 * self.circuits as f64 / self.loads.len() as f64;
        let (mut now, mut next) = (0.0, exponential(rng) / arrivals);
        let (mut above, mut moves, mut links) = (Vec::new(), 0u64, 0.0);
        while now < end {
            now += STEP;
            while next < now {
                self.end_until(next);
                self.begin(next, rng);
                next += exponential(rng) / arrivals;
            }
            self.end_until(now);
            self.close_idle(now);
            let moved = self.report(now, mean);
            if now < WARM {
                continue;
            }
            let loads = self.thread_loads();
            let busiest = loads.iter().copied().fold(0.0, f64::max);
            let average = loads.iter().sum::<f64>() / loads.len() as f64;
            above.push(if average > 0.0 {
                busiest / average - 1.0
            } else {
                0.0
            });
            moves += u64::from(moved);
            links += self.links.iter().flatten().count() as f64;
        }
        let count = above.len().max(1) as f64;
        let past = above.iter().filter(|above| **above > IMBALANCE).count() as f64;
        let sum: f64 = above.iter().sum();
        above.sort_by(f64::total_cmp);
        Run {
            above: sum / count * 100.0,
            p95: quantile(&above, 0.95).unwrap_or(0.0) * 100.0,
            past: past / count * 100.0,
            moves: moves as f64 / hours as f64,
            links: links / count,
        }
    }

    /// A circuit begins.
    fn begin(&mut self, now: f64, rng: &mut Generator) {
        let links = [self.link(now, rng), self.link(now, rng)];
        // A Pareto distribution of mean 1, but for the part that is cut off.
        let least = (TAIL - 1.0) / TAIL;
        let rate = (least * (exponential(rng) / TAIL).exp()).min(MOST);
        for link in links {
            if let Some(Some(link)) = self.links.get_mut(link) {
                link.circuits += 1;
                link.rate += rate;
            }
        }
        self.begun += 1;
        let end = ((now + CIRCUIT * exponential(rng)) * 1e9) as u64;
        self.ends.insert((end, self.begun), Circuit { rate, links });
    }

    /// A link by weight, which opens if there is none.
    fn link(&mut self, now: f64, rng: &mut Generator) -> usize {
        let all = self.weights.last().copied().unwrap_or(0).max(1);
        let place = rng.random_range(0..all);
        let peer = self.weights.partition_point(|sum| *sum <= place);
        if let Some(slot @ None) = self.links.get_mut(peer) {
            self.last_id += 1;
            *slot = Some(Link {
                id: ConnectionId(self.last_id),
                thread: usize::from(self.placement.place().0),
                circuits: 0,
                rate: 0.0,
                idle_since: now,
            });
        }
        peer
    }

    /// Circuits end.
    fn end_until(&mut self, now: f64) {
        while let Some(first) = self.ends.first_entry()
            && first.key().0 as f64 / 1e9 <= now
        {
            let circuit = first.remove();
            for peer in circuit.links {
                if let Some(Some(link)) = self.links.get_mut(peer) {
                    link.circuits -= 1;
                    link.rate -= circuit.rate;
                    link.idle_since = now;
                }
            }
        }
    }

    /// Links without circuits close.
    fn close_idle(&mut self, now: f64) {
        for slot in &mut self.links {
            if slot.is_some_and(|link| link.circuits == 0 && now - link.idle_since >= IDLE) {
                *slot = None;
            }
        }
    }

    fn thread_loads(&self) -> Vec<f64> {
        let mut loads = vec![0.0; self.loads.len()];
        for link in self.links.iter().flatten() {
            if let Some(load) = loads.get_mut(link.thread) {
                *load += link.rate;
            }
        }
        loads
    }

    /// Threads report, and a link moves if one shall.
    fn report(&mut self, at: f64, mean: f64) -> bool {
        let now = self.epoch + Duration::from_secs_f64(at);
        let current = self.thread_loads();
        let mut counts = vec![0; current.len()];
        let mut heavy: Vec<Vec<HeavyLink>> = vec![Vec::new(); current.len()];
        for link in self.links.iter().flatten() {
            if let (Some(count), Some(heavy)) =
                (counts.get_mut(link.thread), heavy.get_mut(link.thread))
            {
                *count += 1;
                heavy.push(HeavyLink {
                    connection: link.id,
                    // A circuit of the mean rate carries 1000 bytes a second here.
                    bytes_per_second: link.rate * 1000.0,
                });
            }
        }
        for (index, load) in current.iter().enumerate() {
            let thread = ThreadId(index as u16);
            let (Some(meter), Some(cpu)) = (self.loads.get_mut(index), self.cpu.get_mut(index))
            else {
                continue;
            };
            meter.add((load * 1000.0 * STEP) as u64);
            let bytes = meter.bytes_per_second(now);
            let count = counts.get(index).copied().unwrap_or(0);
            self.placement.report(thread, bytes, count);
            if let (Some(balance), Some(links)) = (&mut self.balance, heavy.get_mut(index)) {
                *cpu += Duration::from_secs_f64((load / mean * WORK).min(1.0) * STEP);
                if links.len() > HEAVIEST {
                    let rate = |link: &HeavyLink| link.bytes_per_second;
                    links.select_nth_unstable_by(HEAVIEST, |a, b| rate(b).total_cmp(&rate(a)));
                    links.truncate(HEAVIEST);
                }
                balance.report(thread, *cpu, bytes, std::mem::take(links), now);
            }
        }
        let Some(moved) = self
            .balance
            .as_mut()
            .and_then(|balance| balance.decide(now))
        else {
            return false;
        };
        let mut links = self.links.iter_mut().flatten();
        if let Some(link) = links.find(|link| link.id == moved.connection) {
            link.thread = usize::from(moved.to.0);
        }
        true
    }
}

/// Exponential of mean 1.
fn exponential(rng: &mut Generator) -> f64 {
    -(1.0 - rng.random::<f64>()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> BalanceOptions {
        BalanceOptions {
            threads: vec![1, 4],
            peers: 500,
            circuits: 1000,
            hours: 1,
            repetitions: 3,
            seed: 1,
            workers: 1,
        }
    }

    #[test]
    fn links_that_are_only_placed_leave_the_busiest_thread_above_the_mean_and_moves_mend_it() {
        let rows = simulate(&options(), || ()).unwrap();
        let shown: Vec<(u16, bool)> = rows.iter().map(|row| (row.threads, row.moves)).collect();
        assert_eq!(shown, [(1, false), (1, true), (4, false), (4, true)]);
        let mean = |row: usize| rows[row].above_mean_percent.mean;
        assert_eq!((mean(0), mean(1)), (0.0, 0.0), "one thread is the mean");
        assert!(mean(2) > 10.0, "{:?}", rows[2]);
        assert!(mean(3) < mean(2) / 2.0, "{:?}", rows[3]);
        assert_eq!(rows[2].moves_per_hour.mean, 0.0);
        let moves = rows[3].moves_per_hour.mean;
        assert!((1.0..3600.0).contains(&moves), "{moves}");
        assert!(
            rows.iter()
                .all(|row| row.links.mean <= 500.0 && row.links.mean > 100.0)
        );
    }

    #[test]
    fn workers_change_nothing_and_seeds_do() {
        let one = simulate(&options(), || ()).unwrap();
        let workers = 3;
        assert_eq!(
            simulate(
                &BalanceOptions {
                    workers,
                    ..options()
                },
                || ()
            )
            .unwrap(),
            one
        );
        let seed = 2;
        assert_ne!(
            simulate(&BalanceOptions { seed, ..options() }, || ()).unwrap(),
            one
        );
    }

    #[test]
    fn absurd_numbers_are_refused() {
        let no_threads = BalanceOptions {
            threads: vec![0],
            ..options()
        };
        let refused = simulate(&no_threads, || ()).unwrap_err().to_string();
        assert_eq!(
            refused,
            "threads 0: it must be a whole number from 1 to 256"
        );
        for options in [
            BalanceOptions {
                peers: 3,
                ..options()
            },
            BalanceOptions {
                circuits: 0,
                ..options()
            },
            BalanceOptions {
                hours: 0,
                ..options()
            },
            BalanceOptions {
                repetitions: 0,
                ..options()
            },
        ] {
            simulate(&options, || ()).unwrap_err();
        }
    }
}
