//! Relays that no circuit goes through (Yang and Li 2015, section III-A, Figure 1).

pub mod figure;

use serde::Serialize;
use weft_stats::Spread;
use weft_stats::bounds::{Bounds, OutOfBounds};

use crate::network::Network;
use crate::parallel;
use crate::random::{CHUNK, generator};
use crate::triples::{NoCircuits, Triples};

/// Below this a relay is slow, bytes per second: the paper's 100 KiB/s.
pub const SLOW: u64 = 100 * 1024;

/// Circuits of a repetition.
pub const CIRCUITS: Bounds<u64> = Bounds::new(1, 1 << 31);

/// Repetitions.
pub const REPETITIONS: Bounds<u64> = Bounds::new(1, 10_000);

/// Options of [`simulate`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IdleOptions {
    /// Numbers of concurrent circuits. Circuits of a smaller number are among those of a larger one.
    pub circuits: Vec<u64>,
    /// Repetitions of the simulation, each with its own circuits.
    pub repetitions: u64,
    /// The result is a function of the network, the options and this.
    pub seed: u64,
    /// Relays without the Fast flag are used, too; no client has done so by default for many years.
    pub any_speed: bool,
    /// Threads; they change nothing in the result.
    #[serde(skip)]
    pub threads: usize,
}

/// Why nothing was simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// See there.
    #[error(transparent)]
    NoCircuits(#[from] NoCircuits),
    /// No numbers of circuits.
    #[error("no number of circuits is asked for")]
    Circuits,
    /// A network without relays.
    #[error("nothing was drawn")]
    Nothing,
    /// A number that makes no sense, or would take for ever.
    #[error(transparent)]
    Number(#[from] OutOfBounds),
}

/// Results of [`simulate`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// `valid-after` of the network.
    pub valid_after: String,
    /// Relays of the network.
    pub relays: usize,
    /// Relays with less bandwidth than [`SLOW`].
    pub slow_relays: usize,
    /// Relays that no circuit can use because of their flags or weights.
    pub never_used: usize,
    /// For each number of circuits, from the least.
    pub points: Vec<Point>,
    /// Bandwidths of the relays that were idle with the most circuits, in the first repetition, bytes
    /// per second, ascending.
    pub idle_bandwidths: Vec<u64>,
}

/// Idle relays at one number of circuits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Concurrent circuits.
    pub circuits: u64,
    /// Idle relays, counted.
    pub idle: Spread,
    /// Idle relays, by the formula: the sum of (1 − p)ⁿ over all relays, p being how likely a relay is
    /// in a circuit.
    pub expected: f64,
    /// Share of all relays that are idle, percent.
    pub idle_percent: Spread,
    /// Share of the idle relays that are slow, percent, of the repetitions that have idle relays; `None`: none has.
    pub slow_percent_of_idle: Option<Spread>,
    /// Share of the slow relays that are idle, percent; `None`: the network has no slow ones.
    pub idle_percent_of_slow: Option<Spread>,
    /// Bandwidth of all idle relays, share of all bandwidth, percent.
    pub idle_bandwidth_percent: Spread,
    /// The least bandwidth of an idle relay in the first repetition, bytes per second.
    pub least: Option<u64>,
    /// The median.
    pub median: Option<u64>,
    /// The largest.
    pub most: Option<u64>,
}

/// Simulates. `done` is called for each of the [`chunks`] of circuits.
///
/// # Errors
///
/// [`Refused`].
pub fn simulate(
    network: &Network,
    options: &IdleOptions,
    done: impl Fn() + Sync,
) -> Result<Report, Refused> {
    let mut numbers = options.circuits.clone();
    numbers.sort_unstable();
    numbers.dedup();
    let (Some(least), Some(most)) = (numbers.first().copied(), numbers.last().copied()) else {
        return Err(Refused::Circuits);
    };
    CIRCUITS.check("circuits", least)?;
    CIRCUITS.check("circuits", most)?;
    REPETITIONS.check("repetitions", options.repetitions)?;
    let triples = Triples::new(network, options.any_speed)?;
    let first_uses: Vec<Vec<u64>> = (0..options.repetitions)
        .map(|repetition| first_uses(network, &triples, options, (repetition, most), &done))
        .collect();
    report(network, &triples, &numbers, &first_uses).ok_or(Refused::Nothing)
}

/// Chunks of circuits that [`simulate`] draws.
pub fn chunks(options: &IdleOptions) -> u64 {
    let most = options.circuits.iter().max().copied().unwrap_or(0);
    most.div_ceil(CHUNK as u64)
        .saturating_mul(options.repetitions)
}

/// The number of the first circuit that each relay is in.
fn first_uses(
    network: &Network,
    triples: &Triples,
    options: &IdleOptions,
    (repetition, circuits): (u64, u64),
    done: &(impl Fn() + Sync),
) -> Vec<u64> {
    let relays = network.relays.len();
    let pieces = circuits.div_ceil(CHUNK as u64) as usize;
    // A thread takes several chunks at once, so that there are not more lists than a few.
    let stride = pieces.div_ceil(options.threads.max(1) * 4).max(1);
    let lists = parallel::map(
        pieces.div_ceil(stride),
        options.threads,
        |piece| {
            let mut first = vec![u64::MAX; relays];
            for chunk in piece * stride..((piece + 1) * stride).min(pieces) {
                let start = (chunk * CHUNK) as u64;
                let mut rng = generator(options.seed, repetition, chunk as u64);
                for number in start..(start + CHUNK as u64).min(circuits) {
                    for relay in triples.draw(&mut rng).relays() {
                        if let Some(first) = first.get_mut(relay as usize) {
                            *first = (*first).min(number);
                        }
                    }
                }
                done();
            }
            first
        },
        || (),
    );
    let mut first = vec![u64::MAX; relays];
    for list in lists {
        for (first, other) in first.iter_mut().zip(list) {
            *first = (*first).min(other);
        }
    }
    first
}

/// `None`: nothing was drawn.
fn report(
    network: &Network,
    triples: &Triples,
    numbers: &[u64],
    first_uses: &[Vec<u64>],
) -> Option<Report> {
    let bandwidths: Vec<u64> = network
        .relays
        .iter()
        .map(|relay| relay.bandwidth.saturating_mul(1000))
        .collect();
    let involvement = triples.involvement();
    let slow_relays = bandwidths.iter().filter(|one| **one < SLOW).count();
    let whole: f64 = bandwidths.iter().map(|one| *one as f64).sum();
    let percent = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole * 100.0);
    let idle_of = |first: &[u64], number: u64| -> Vec<u64> {
        let uses = first.iter().zip(&bandwidths);
        let idle = uses.filter(|(first, _)| **first >= number);
        let mut idle: Vec<u64> = idle.map(|(_, bandwidth)| *bandwidth).collect();
        idle.sort_unstable();
        idle
    };
    let points = numbers.iter().map(|number| {
        let lists: Vec<Vec<u64>> = first_uses
            .iter()
            .map(|first| idle_of(first, *number))
            .collect();
        let over = |value: &dyn Fn(&[u64]) -> Option<f64>| {
            let known = lists.iter().filter_map(|list| value(list));
            Spread::of(&known.collect::<Vec<f64>>())
        };
        let slow = |list: &[u64]| list.partition_point(|one| *one < SLOW) as f64;
        let shown = lists.first().map_or(&[][..], |list| list);
        Some(Point {
            circuits: *number,
            idle: over(&|list| Some(list.len() as f64))?,
            expected: involvement
                .iter()
                .map(|chance| (*number as f64 * (-chance).ln_1p()).exp())
                .sum(),
            idle_percent: over(&|list| percent(list.len() as f64, bandwidths.len() as f64))?,
            slow_percent_of_idle: over(&|list| percent(slow(list), list.len() as f64)),
            idle_percent_of_slow: over(&|list| percent(slow(list), slow_relays as f64)),
            idle_bandwidth_percent: over(&|list| {
                percent(list.iter().map(|one| *one as f64).sum(), whole)
            })?,
            least: shown.first().copied(),
            median: shown.get(shown.len() / 2).copied(),
            most: shown.last().copied(),
        })
    });
    let most = numbers.last().copied().unwrap_or(0);
    Some(Report {
        valid_after: network.valid_after.clone(),
        relays: network.relays.len(),
        slow_relays,
        never_used: involvement.iter().filter(|chance| **chance <= 0.0).count(),
        points: points.collect::<Option<_>>()?,
        idle_bandwidths: first_uses
            .first()
            .map_or(Vec::new(), |first| idle_of(first, most)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Flags;
    use crate::testing::{EXIT, GUARD, MIDDLE, mixed, network};

    fn options(circuits: &[u64]) -> IdleOptions {
        IdleOptions {
            circuits: circuits.to_vec(),
            repetitions: 20,
            seed: 5,
            any_speed: false,
            threads: 1,
        }
    }

    #[test]
    fn counts_agree_with_the_formula() {
        let report = simulate(&mixed(300), &options(&[100, 1000, 5000]), || ()).expect("circuits");
        for point in &report.points {
            // Five standard errors of the mean of twenty repetitions.
            let error = point.idle.stddev.expect("twenty") / 20f64.sqrt();
            let off = (point.idle.mean - point.expected).abs();
            assert!(off <= 5.0 * error + 1e-9, "{point:?}");
            assert!(point.idle.mean > 0.0);
        }
        let falling = report.points.windows(2);
        assert!(
            falling
                .into_iter()
                .all(|pair| pair[0].idle.mean > pair[1].idle.mean)
        );
        let last = report.points.last().expect("three");
        let of_slow = last.idle_percent_of_slow.expect("slow relays");
        assert!(of_slow.mean > 80.0, "{last:?}");
    }

    #[test]
    fn one_repetition_has_no_interval_and_no_relays_have_no_share() {
        let once = IdleOptions {
            repetitions: 1,
            ..options(&[100])
        };
        let fast = network(&[(GUARD, 9000), (EXIT, 9000), (MIDDLE, 9000)]);
        let report = simulate(&fast, &once, || ()).expect("circuits");
        let point = &report.points[0];
        assert_eq!((point.idle.mean, point.idle.ci95), (0.0, None));
        assert_eq!(point.slow_percent_of_idle, None);
        assert_eq!(point.idle_percent_of_slow, None);
        let json = serde_json::to_value(point).expect("JSON");
        assert!(json["idle"]["stddev"].is_null() && json["idle"]["ci95"].is_null());
        let row = report.csv();
        let row = row.lines().nth(1).expect("a point");
        assert!(row.starts_with("100,0,,,"), "{row}");
    }

    #[test]
    fn threads_change_nothing() {
        let many = [CHUNK as u64 * 3 + 17];
        let mut options = IdleOptions {
            repetitions: 2,
            ..options(&many)
        };
        let network = mixed(300);
        let one = simulate(&network, &options, || ()).expect("circuits");
        options.threads = 3;
        assert_eq!(simulate(&network, &options, || ()).expect("circuits"), one);
    }

    #[test]
    fn relays_without_fast_are_idle_unless_asked_for() {
        let slow = Flags::RUNNING.with(Flags::VALID);
        let network = network(&[(GUARD, 9), (EXIT, 9), (MIDDLE, 9), (slow, 9), (MIDDLE, 0)]);
        let mut options = options(&[10_000]);
        let report = simulate(&network, &options, || ()).expect("circuits");
        assert_eq!(
            (report.relays, report.slow_relays, report.never_used),
            (5, 5, 2)
        );
        let point = &report.points[0];
        assert_eq!((point.idle.mean, point.expected), (2.0, 2.0));
        assert_eq!((point.least, point.most), (Some(0), Some(9_000)));
        options.any_speed = true;
        let report = simulate(&network, &options, || ()).expect("circuits");
        assert_eq!((report.never_used, report.points[0].idle.mean), (1, 1.0));
    }

    #[test]
    fn absurd_numbers_are_refused() {
        let network = mixed(50);
        let refused = |options: &IdleOptions| {
            let refused = simulate(&network, options, || ()).expect_err("absurd");
            refused.to_string()
        };
        assert!(refused(&options(&[])).contains("no number of circuits"));
        for circuits in [&[0][..], &[1, u64::MAX]] {
            let error = refused(&options(circuits));
            assert!(error.contains("from 1 to 2147483648"), "{error}");
        }
        let none = IdleOptions {
            repetitions: 0,
            ..options(&[1])
        };
        assert_eq!(
            refused(&none),
            "repetitions 0: it must be a whole number from 1 to 10000"
        );
    }
}
