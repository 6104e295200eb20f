//! Choices made again, with relays that are an adversary's.

use rand::seq::SliceRandom as _;
use serde::Serialize;

use super::traffic::{Choices, seen};
use super::{ADVERSARIES, PERCENT, Refused, weight};
use crate::parallel;
use crate::random::generator;
use crate::triples::Triples;
use weft_stats::quantile;

/// The least weight that still has a bottleneck.
pub const TINY: f64 = 1e-12;

/// Unit in which an adversary's share of the network is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grant {
    /// Of its bandwidth.
    Bandwidth,
    /// Of its relays.
    Relays,
}

/// Success of an adversary with this share, over many adversaries. All in percent of choices.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Share of the network that the adversary owns, 0 to 1.
    pub fraction: f64,
    /// Circuits compromised where its relays report their true weights.
    pub honest: Quantiles,
    /// Circuits compromised where they report 0.
    pub lying: Quantiles,
    /// Lying relays, the smallest of which reports [`TINY`], to change the clients' estimates of
    /// the others.
    pub tiny: Quantiles,
    /// Where clients choose any circuit of their pools, without ABRA.
    pub blind: Quantiles,
    /// Clients without pools or guard sets: the exact probability that guard and exit of a circuit
    /// are the adversary's.
    pub formula: Quantiles,
}

impl Point {
    /// The columns of tables, in their order.
    #[must_use]
    pub fn columns(&self) -> [Quantiles; 5] {
        [self.honest, self.lying, self.tiny, self.blind, self.formula]
    }
}

/// The 10th, 50th and 90th percentile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// 10th.
    pub low: f64,
    /// 50th.
    pub median: f64,
    /// 90th.
    pub high: f64,
    /// And the mean.
    pub mean: f64,
}

impl Quantiles {
    pub(super) fn of(numbers: &[f64]) -> Quantiles {
        let at = |share| quantile(numbers, share).unwrap_or(0.0);
        Quantiles {
            low: at(0.1),
            median: at(0.5),
            high: at(0.9),
            mean: numbers.iter().sum::<f64>() / (numbers.len() as f64).max(1.0),
        }
    }
}

/// Makes the choices again, for the given number of adversaries with each of these shares of the
/// network. An adversary's relays are drawn uniformly, whatever their flags and bandwidth. `done`
/// is called for each adversary.
///
/// # Errors
///
/// [`Refused`].
pub fn replay(
    choices: &Choices,
    triples: &Triples,
    fractions: &[f64],
    (grant, adversaries, seed, threads): (Grant, u32, u64, usize),
    done: impl Fn() + Sync,
) -> Result<Vec<Point>, Refused> {
    for part in fractions {
        PERCENT.check("percent", part * 100.0)?;
    }
    ADVERSARIES.check("adversaries", adversaries)?;
    let count = adversaries as usize;
    let results = parallel::map(
        fractions.len() * count,
        threads,
        |piece| {
            let fraction = fractions.get(piece / count).copied().unwrap_or(0.0);
            // Adversaries of one number are alike at all fractions, so that curves are smooth.
            let is_bad = adversary(
                &choices.bandwidths,
                fraction,
                grant,
                (seed, (piece % count) as u64),
            );
            let [honest, lying, tiny, blind] = success(choices, &is_bad);
            let formula = triples.compromised(&is_bad);
            [honest, lying, tiny, blind, formula].map(|share| share * 100.0)
        },
        done,
    );
    let points = fractions.iter().zip(results.chunks(count));
    Ok(points
        .map(|(fraction, results)| {
            let over = |place: usize| {
                let numbers = results.iter().filter_map(|one| one.get(place).copied());
                Quantiles::of(&numbers.collect::<Vec<f64>>())
            };
            Point {
                fraction: *fraction,
                honest: over(0),
                lying: over(1),
                tiny: over(2),
                blind: over(3),
                formula: over(4),
            }
        })
        .collect())
}

/// Relays in random order, each that fits what the adversary may have.
pub(super) fn adversary(
    bandwidths: &[f64],
    fraction: f64,
    grant: Grant,
    (seed, number): (u64, u64),
) -> Vec<bool> {
    let mut rng = generator(seed, 0xbad, number);
    let mut order: Vec<usize> = (0..bandwidths.len()).collect();
    order.shuffle(&mut rng);
    let size = |relay: usize| match grant {
        Grant::Bandwidth => bandwidths.get(relay).copied().unwrap_or(0.0),
        Grant::Relays => 1.0,
    };
    let whole: f64 = order.iter().map(|relay| size(*relay)).sum();
    // Rounding of the sum must not cost the adversary a relay.
    let mut left = whole * fraction * (1.0 + 1e-12);
    let mut is_bad = vec![false; bandwidths.len()];
    for relay in order {
        let size = size(relay);
        if size <= left
            && fraction > 0.0
            && let Some(is_bad) = is_bad.get_mut(relay)
        {
            left -= size;
            *is_bad = true;
        }
    }
    is_bad
}

/// Report of an adversary's relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    /// The true weight.
    None,
    /// 0.
    Zero,
    /// 0, but [`TINY`] of the adversary's smallest relay.
    Tiny,
}

impl Lie {
    pub(super) const ALL: [Lie; 3] = [Lie::None, Lie::Zero, Lie::Tiny];

    /// The weight that this relay reports; `truth` is its real one.
    pub(super) fn told(
        self,
        relay: usize,
        (is_bad, smallest): (&[bool], Option<usize>),
        truth: Option<f64>,
    ) -> Option<f64> {
        match (self, is_bad.get(relay)) {
            (Lie::Zero | Lie::Tiny, Some(true)) => {
                let is_tiny = self == Lie::Tiny && smallest == Some(relay);
                Some(if is_tiny { TINY } else { 0.0 })
            }
            _ => truth,
        }
    }
}

/// The adversary's relay with the least bandwidth.
pub(super) fn smallest(is_bad: &[bool], bandwidths: &[f64]) -> Option<usize> {
    let bad = is_bad.iter().zip(bandwidths).enumerate();
    let bad = bad.filter(|(_, (bad, _))| **bad);
    let least = bad.min_by(|(_, (_, one)), (_, (_, other))| one.total_cmp(other));
    least.map(|(relay, _)| relay)
}

/// Probability that clients choose a compromised circuit, averaged over the choices: with honest
/// weights, with each of both lies, and blindly.
fn success(choices: &Choices, is_bad: &[bool]) -> [f64; 4] {
    let bad = |relay: u32| is_bad.get(relay as usize) == Some(&true);
    let smallest = smallest(is_bad, &choices.bandwidths);
    let told = Lie::ALL.map(|lie| {
        let reports = choices.weights.iter().map(|report| {
            let relays = report.iter().enumerate();
            let told = relays.map(|(relay, truth)| lie.told(relay, (is_bad, smallest), *truth));
            told.collect()
        });
        reports.collect::<Vec<Vec<Option<f64>>>>()
    });
    let (mut pool, mut chances) = (Vec::new(), Vec::new());
    let mut sums = [0.0; 4];
    for (circuits, report) in choices.circuits.chunks(choices.pool).zip(&choices.report) {
        let mut compromised = circuits
            .iter()
            .map(|path| bad(path.guard) && bad(path.exit));
        if !compromised.clone().any(|is| is) {
            continue;
        }
        let [by_weight @ .., blind] = &mut sums;
        for (sum, all) in by_weight.iter_mut().zip(&told) {
            let weights = all.get(*report as usize).map_or(&[][..], |weights| weights);
            pool.clear();
            let all = circuits.iter();
            pool.extend(all.map(|path| seen(*path, weights, &choices.bandwidths)));
            weight::chances(&pool, &mut chances);
            let pairs = chances.iter().zip(compromised.clone());
            *sum += pairs
                .filter(|(_, is)| *is)
                .map(|(chance, _)| chance)
                .sum::<f64>();
        }
        let count = compromised.by_ref().filter(|is| *is).count();
        *blind += count as f64 / circuits.len() as f64;
    }
    sums.map(|sum| sum / (choices.len() as f64).max(1.0))
}

#[cfg(test)]
mod tests {
    use rand::RngExt as _;

    use super::super::traffic::simulate;
    use super::super::{AbraOptions, triples};
    use super::*;
    use crate::testing::mixed;
    use crate::triples::Triple;

    fn small() -> AbraOptions {
        AbraOptions {
            web_clients: 90,
            bulk_clients: 30,
            warm_up: 20,
            seconds: 60,
            capacity: 0.6,
            ..AbraOptions::default()
        }
    }

    #[test]
    fn lies_pay_and_more_relays_pay_more() {
        let network = mixed(60);
        let triples = triples(&network).expect("circuits");
        let choices = simulate(&network, &triples, &small(), |_| ()).expect("choices");
        assert!(choices.full_by_capacity > 0.0 && choices.utilisation < 1.0);
        let parts = [0.0, 0.1, 0.3, 0.5, 1.0];
        let points = replay(
            &choices,
            &triples,
            &parts,
            (Grant::Bandwidth, 30, 1, 2),
            || (),
        )
        .expect("points");
        for point in &points {
            assert!(point.lying.mean >= point.honest.mean, "{point:?}");
            assert!(point.honest.low <= point.honest.median);
        }
        for pair in points.windows(2) {
            assert!(pair[1].lying.mean > pair[0].lying.mean);
        }
        let (first, last) = (points[0], points[4]);
        assert_eq!((first.lying.high, first.formula.high), (0.0, 0.0));
        assert!((last.honest.low - 100.0).abs() < 1e-6 && (last.formula.low - 100.0).abs() < 1e-6);
        let alone = replay(
            &choices,
            &triples,
            &parts,
            (Grant::Bandwidth, 30, 1, 1),
            || (),
        );
        assert_eq!(alone.expect("points"), points);
    }

    /// Some relays state weights, as Weft's, and the others nothing, as C tor's. A tiny weight of one of the adversary's relays
    /// made all that state nothing count as having a bottleneck, so that only circuits of relays that state 0 were chosen.
    #[test]
    fn in_a_mixed_network_no_statement_drives_clients_to_the_adversary() {
        let network = mixed(60);
        let triples = triples(&network).expect("circuits");
        for (stating, most) in [(0.0, 1.001), (0.2, 1.05), (0.5, 1.05)] {
            let options = AbraOptions { stating, ..small() };
            let choices = simulate(&network, &triples, &options, |_| ()).expect("choices");
            let how = (Grant::Bandwidth, 30, 1, 2);
            let points = replay(&choices, &triples, &[0.1, 0.2, 0.3], how, || ());
            for point in points.expect("points") {
                let (honest, lying) = (point.honest.mean, point.lying.mean);
                assert!(honest > 0.0);
                assert!(lying <= honest * most, "{stating}: {point:?}");
                assert!(point.tiny.mean <= lying * 1.000_001, "{stating}: {point:?}");
            }
        }
    }

    #[test]
    fn blind_choices_agree_with_the_formula() {
        let network = mixed(60);
        let triples = triples(&network).expect("circuits");
        // Every client has one circuit, so its past is independent of the others'.
        let options = AbraOptions {
            web_clients: 3000,
            bulk_clients: 0,
            pool: 1,
            guards: 1,
            warm_up: 0,
            seconds: 60,
            ..AbraOptions::default()
        };
        let choices = simulate(&network, &triples, &options, |_| ()).expect("choices");
        let points = replay(
            &choices,
            &triples,
            &[0.3],
            (Grant::Bandwidth, 40, 2, 2),
            || (),
        );
        let point = points.expect("points")[0];
        // A client's guard is drawn before its exits here, and exits before guards in the formula.
        assert!(
            (point.blind.mean / point.formula.mean - 1.0).abs() < 0.15,
            "{point:?}"
        );
    }

    #[test]
    fn what_is_computed_is_what_clients_would_draw() {
        let circuit = |guard, middle, exit| Triple {
            guard,
            middle,
            exit,
        };
        let choices = Choices {
            pool: 3,
            circuits: vec![
                circuit(0, 1, 2),
                circuit(0, 2, 3),
                circuit(3, 1, 0),
                circuit(2, 1, 3),
                circuit(1, 2, 0),
                circuit(0, 3, 2),
            ],
            report: vec![0, 1],
            weights: vec![
                vec![Some(0.5), Some(0.0), Some(0.25), None],
                vec![Some(0.0), None, Some(2.0), Some(0.0)],
            ],
            bandwidths: vec![4.0, 3.0, 2.0, 1.0],
            utilisation: 0.0,
            full_by_capacity: 0.0,
            with_free_circuit: 0.0,
        };
        let is_bad = [true, false, true, false];
        let computed = success(&choices, &is_bad);
        for (lie, expected) in Lie::ALL.into_iter().zip(computed) {
            let (mut rng, rounds, mut hits) = (generator(1, 2, 3), 60_000, 0);
            for _ in 0..rounds {
                let choice = rng.random_range(0..2usize);
                let pool = &choices.circuits[choice * 3..choice * 3 + 3];
                let weights = &choices.weights[choice];
                let reported = match lie {
                    Lie::None => weights.clone(),
                    Lie::Zero => vec![Some(0.0), weights[1], Some(0.0), weights[3]],
                    Lie::Tiny => vec![Some(0.0), weights[1], Some(TINY), weights[3]],
                };
                let seen: Vec<_> = pool
                    .iter()
                    .map(|path| seen(*path, &reported, &choices.bandwidths))
                    .collect();
                let mut chances = Vec::new();
                weight::chances(&seen, &mut chances);
                let path = pool[weight::draw(&chances, &mut rng)];
                hits += u32::from(is_bad[path.guard as usize] && is_bad[path.exit as usize]);
            }
            let error = (expected * (1.0 - expected) / f64::from(rounds)).sqrt();
            let off = (f64::from(hits) / f64::from(rounds) - expected).abs();
            assert!(off <= 4.0 * error, "{off} {expected}");
        }
    }

    #[test]
    fn adversaries_have_what_they_are_granted() {
        let bandwidths: Vec<f64> = (1..=200).map(f64::from).collect();
        let whole: f64 = bandwidths.iter().sum();
        for fraction in [0.0, 0.2, 0.5, 1.0] {
            let is_bad = adversary(&bandwidths, fraction, Grant::Bandwidth, (1, 1));
            let has = bandwidths.iter().zip(&is_bad).filter(|(_, bad)| **bad);
            let has: f64 = has.map(|(one, _)| one).sum();
            assert!((has / whole - fraction).abs() < 0.01, "{fraction} {has}");
            let is_bad = adversary(&bandwidths, fraction, Grant::Relays, (1, 1));
            let has = is_bad.iter().filter(|bad| **bad).count();
            assert_eq!(has, (fraction * 200.0) as usize);
        }
    }
}
