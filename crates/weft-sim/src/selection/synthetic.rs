//! Circuits of a synthetic network, where none were measured.
//!
//! A model, not a measurement. A relay has a place on a map, from which delays follow, a rate, and
//! loads that last: of its lines, and of its processors. Circuits take three relays by rate. Each
//! message waits at each relay for a newly drawn time, whose mean follows from the load of its
//! lines.
//!
//! - *Build time*: three handshakes, over one, two and three hops; the last relay's processors add
//!   another wait; a link that is not open yet adds three round trips of its hop.
//! - *Round trip*: once over all hops and back.
//! - *Latency*: a round trip at another moment, to a destination near every exit, such as the
//!   search engine of Annessi and Schmiedecker (2016).
//! - *Bandwidth*: the remaining share of the slowest relay, or a window of 500 cells in each round
//!   trip.
//!
//! The waits of handshakes decide how much better round trips are than build times, as only build
//! times contain them.

use rand::{Rng, RngExt as _};
use weft_stats::bounds::Bounds;

use super::tuples::Tuple;
use crate::random::generator;

/// Relays, and destinations.
const RELAYS: usize = 1_500;
/// From one end of the map to the other, one way, in milliseconds.
const ACROSS: f64 = 75.0;
/// One way, whatever the distance: access lines.
const NEAR: f64 = 4.0;
/// The middle one of the waits at relays, in milliseconds, and how far loads are spread (of a normal distribution of logarithms).
const WAIT: f64 = 4.0;
const LOADS: f64 = 1.1;
/// The middle one of the waits for the work of a handshake, in milliseconds, unless another is asked for; and their spread. With this
/// one, round trips are better than build times by at least what Annessi and Schmiedecker measured: it was chosen for that.
pub const HANDSHAKE: f64 = 100.0;
/// The waits that may be asked for.
pub const HANDSHAKE_WAITS: Bounds<f64> = Bounds::new(0.0, 10_000.0).of("milliseconds");
const HANDSHAKES: f64 = 1.0;
/// The round trip from an exit to the destination and its answer, in milliseconds: half of it always, the other half on average.
const DESTINATION: f64 = 20.0;
/// Links that are open already.
const OPEN: f64 = 0.6;
/// The middle rate of a relay, Mbit/s, and its spread.
const RATE: f64 = 30.0;
const RATES: f64 = 1.2;
/// Of a relay's rate, what a circuit gets on average.
const SHARE: f64 = 0.15;
/// 500 cells with 498 bytes each, in Mbit.
const WINDOW: f64 = 500.0 * 498.0 * 8.0 / 1e6;

#[derive(Clone, Copy)]
struct Relay {
    x: f64,
    y: f64,
    rate: f64,
    wait: f64,
    /// Until its processors have the time for a handshake.
    handshake: f64,
}

/// So many circuits of one client. A handshake waits for `handshake` milliseconds at the middle one of all relays ([`HANDSHAKE`]).
#[must_use]
pub fn tuples(count: usize, seed: u64, handshake: f64) -> Vec<Tuple> {
    let mut rng = generator(seed, 0, 0);
    let client = place(handshake, &mut rng);
    let relays: Vec<Relay> = (0..RELAYS).map(|_| place(handshake, &mut rng)).collect();
    let mut sum = 0.0;
    let sums: Vec<f64> = (relays.iter())
        .map(|relay| {
            sum += relay.rate;
            sum
        })
        .collect();
    (0..count)
        .map(|_| circuit(client, &relays, &sums, &mut rng))
        .collect()
}

fn place(handshake: f64, rng: &mut impl Rng) -> Relay {
    Relay {
        x: rng.random_range(0.0..1.0),
        y: rng.random_range(0.0..1.0),
        rate: RATE * (RATES * normal(rng)).exp(),
        wait: WAIT * (LOADS * normal(rng)).exp(),
        handshake: handshake * (HANDSHAKES * normal(rng)).exp(),
    }
}

fn circuit(client: Relay, relays: &[Relay], sums: &[f64], rng: &mut impl Rng) -> Tuple {
    let all = sums.last().copied().unwrap_or(1.0);
    let mut path = Vec::with_capacity(3);
    while path.len() < 3 {
        let drawn = rng.random_range(0.0..all);
        let place = sums.partition_point(|sum| *sum <= drawn);
        if !path.contains(&place) {
            path.push(place);
        }
    }
    let path: Vec<Relay> = (path.iter())
        .filter_map(|place| relays.get(*place).copied())
        .collect();
    let mut hops = Vec::with_capacity(3);
    let mut from = client;
    for relay in &path {
        hops.push(delay(from, *relay));
        from = *relay;
    }
    let wait = |relay: &Relay, rng: &mut dyn Rng| relay.wait * exponential(rng);
    let mut build = 0.0;
    for last in 0..path.len() {
        let there = hops.iter().zip(&path).take(last + 1);
        for (hop, relay) in there {
            build += 2.0 * hop + wait(relay, rng);
        }
        build += path
            .get(last)
            .map_or(0.0, |relay| relay.handshake * exponential(rng));
        if !rng.random_bool(OPEN) {
            build += 6.0 * hops.get(last).copied().unwrap_or(0.0);
        }
    }
    let trip = |rng: &mut dyn Rng| -> f64 {
        let there = hops.iter().zip(&path);
        there.map(|(hop, relay)| 2.0 * hop + wait(relay, rng)).sum()
    };
    let round_trip = trip(rng);
    let destination = DESTINATION * (0.5 + 0.5 * exponential(rng));
    let latency = trip(rng) + destination;
    let left = path.iter().map(|relay| {
        // A relay with a load has less to give.
        relay.rate * SHARE / (1.0 + relay.wait / WAIT) * exponential(rng)
    });
    let left = left.fold(f64::INFINITY, f64::min);
    let window = WINDOW / ((latency - destination).max(1.0) / 1e3);
    Tuple {
        build_ms: build.max(0.001),
        rtt_ms: round_trip.max(0.001),
        latency_ms: latency.max(0.001),
        bandwidth_mbit: left.min(window).max(0.0001),
        client: 0,
    }
}

fn delay(one: Relay, other: Relay) -> f64 {
    NEAR + ACROSS * (one.x - other.x).hypot(one.y - other.y)
}

/// Of mean 1.
fn exponential(rng: &mut (impl Rng + ?Sized)) -> f64 {
    -(1.0 - rng.random_range(0.0..1.0_f64)).ln()
}

/// A standard normal number (Box and Muller).
fn normal(rng: &mut impl Rng) -> f64 {
    let radius = (2.0 * exponential(rng)).sqrt();
    radius * (std::f64::consts::TAU * rng.random_range(0.0..1.0_f64)).cos()
}
