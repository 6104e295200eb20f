//! The search for what costs others most.
//!
//! A hostile client with a budget of bytes makes moves: cells of its own making on its links, relay messages on circuits of which
//! it has the keys. What each relay does and holds because of them is counted ([`Bill`]), and divided by the bytes that the
//! client spent. Moves that make the worst relay do or hold more for a byte are kept and changed again: hill climbing, from
//! several beginnings. One seed gives one search.
//!
//! The destination sends nothing and takes nothing meanwhile: a download is work that anybody may ask for, and its ratio would hide
//! those of defects. Nor does the client's user.

use std::fmt;
use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::round::{Client, Fault, FaultKind, Relay, Role, Round, Sharing, Traffic};
use super::run::{Checks, Runner};
use crate::world::{Attack, Bill, Messages, World};

/// Moves begin then, in milliseconds: circuits are built, and streams open.
const BEGIN: u64 = 8_000;
/// They end before then.
const END: u64 = 16_000;
/// Interval between two samples of the bytes held, in milliseconds.
const SAMPLE: u64 = 250;
/// Time of the last sample, a minute after the last move: bytes still held then are held for long.
const LATE: u64 = END + 60_000;
/// Moves of one attempt.
const MOVES: usize = 12;
/// Cells or messages of one move.
const COUNT: u32 = 200;
/// Attempts without a better one before the search begins anew.
const PATIENCE: u32 = 40;
/// Less than this is not divided by: what is there once, as a new circuit, would be all that is found.
const LEAST: u64 = 16 << 10;
/// The relays: a guard, an exit, a middle relay. The client comes behind them.
const RELAYS: usize = 3;

/// A cost to a relay that a search maximises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Turns of threads, and cells in them.
    Steps,
    /// Messages between threads and the controller.
    Messages,
    /// Onionskins that it answers.
    Onionskins,
    /// Bytes that it sends.
    Written,
    /// Bytes of owners in its ledgers, times how long they are held.
    Held,
    /// All bytes in its ledgers a minute after the last move.
    Kept,
}

impl Quantity {
    /// All of them.
    pub const ALL: [Quantity; 6] = [
        Quantity::Steps,
        Quantity::Messages,
        Quantity::Onionskins,
        Quantity::Written,
        Quantity::Held,
        Quantity::Kept,
    ];

    /// Its unit, for each KiB that the client spent.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Quantity::Steps => "turns and cells",
            Quantity::Messages => "messages of the controller",
            Quantity::Onionskins => "onionskins",
            Quantity::Written => "KiB sent",
            Quantity::Held => "KiB held for a second",
            Quantity::Kept => "KiB held after a minute",
        }
    }

    /// Of what was counted, in its unit.
    fn of(self, cost: &Counted) -> f64 {
        let kib = |bytes: u64| bytes as f64 / 1_024.0;
        match self {
            Quantity::Steps => cost.bill.steps as f64,
            Quantity::Messages => cost.bill.messages as f64,
            Quantity::Onionskins => cost.bill.onionskins as f64,
            Quantity::Written => kib(cost.bill.written),
            Quantity::Held => kib(cost.held_millis) / 1_000.0,
            Quantity::Kept => kib(cost.bill.kept),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Quantity::Steps => "steps",
            Quantity::Messages => "messages",
            Quantity::Onionskins => "onionskins",
            Quantity::Written => "written",
            Quantity::Held => "held",
            Quantity::Kept => "kept",
        })
    }
}

/// Parameters of a search.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Seed of all random choices.
    pub seed: u64,
    /// Attempts.
    pub attempts: u32,
    /// Bytes that the client may spend in each.
    pub budget: u64,
}

/// The worst that a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Climbed {
    /// Of the quantity, for each KiB that the client spent.
    pub ratio: f64,
    /// The relay that it costs that.
    pub relay: usize,
    /// Bytes that the client spent.
    pub spent: u64,
    /// The network with the moves.
    pub round: Round,
}

/// A round in which what must hold in chaos does not, and what that is.
pub type Broken = Box<(Round, String)>;

/// Totals of one relay over one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    bill: Bill,
    /// Bytes times milliseconds.
    held_millis: u64,
}

/// Looks for the moves that cost a relay most of this quantity. `base` is what nodes take for the time at the beginning.
///
/// # Errors
///
/// What must hold in chaos does not: with the round in which that was found.
pub fn climb(quantity: Quantity, settings: Settings, base: Instant) -> Result<Climbed, Broken> {
    let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
    rng.set_stream(quantity as u64);
    let (quiet, _) = counted(&network(settings.seed, Vec::new()), base)?;
    let mut best: Option<Climbed> = None;
    let mut here: Option<Climbed> = None;
    let mut since = 0;
    for _ in 0..settings.attempts {
        if since > PATIENCE {
            (here, since) = (None, 0);
        }
        let moves = match &here {
            Some(here) => changed(&here.round.faults, &mut rng),
            None => (0..rng.random_range(1..=4))
                .map(|_| drawn(&mut rng))
                .collect(),
        };
        let attempt = rated(quantity, network(settings.seed, moves), &quiet, base)?;
        since += 1;
        if attempt.spent > settings.budget {
            continue;
        }
        let is_better =
            |than: &Option<Climbed>| than.as_ref().is_none_or(|than| attempt.ratio > than.ratio);
        if is_better(&best) {
            best = Some(attempt.clone());
        }
        if is_better(&here) {
            (here, since) = (Some(attempt), 0);
        }
    }
    let nothing = || rated(quantity, network(settings.seed, Vec::new()), &quiet, base);
    best.map_or_else(nothing, Ok)
}

/// Rates the moves of a round that a search found: cost to the worst relay per KiB, and bytes that
/// the client spent.
///
/// # Errors
///
/// As of [`climb`].
pub fn cost(quantity: Quantity, round: &Round, base: Instant) -> Result<Climbed, Broken> {
    let mut without = round.clone();
    without.faults.retain(|fault| !is_move(fault));
    let (quiet, _) = counted(&without, base)?;
    rated(quantity, round.clone(), &quiet, base)
}

fn rated(
    quantity: Quantity,
    round: Round,
    quiet: &[Counted],
    base: Instant,
) -> Result<Climbed, Broken> {
    let (relays, spent) = counted(&round, base)?;
    let costs = relays.iter().zip(quiet).map(|(cost, quiet)| {
        let beyond = (quantity.of(cost) - quantity.of(quiet)).max(0.0);
        beyond * 1_024.0 / spent.max(LEAST) as f64
    });
    let worst = costs
        .enumerate()
        .max_by(|one, other| one.1.total_cmp(&other.1));
    let (relay, ratio) = worst.unwrap_or_default();
    Ok(Climbed {
        ratio,
        relay,
        spent,
        round,
    })
}

/// Runs a round; what each relay did and held, and the bytes that the client sent from the first move on.
fn counted(round: &Round, base: Instant) -> Result<(Vec<Counted>, u64), Broken> {
    let wrong = |what: String| Box::new((round.clone(), what));
    let setup = round.setup().map_err(|error| wrong(error.to_string()))?;
    let mut runner = Runner::new(round, Checks::Often, World::new(setup, base));
    runner.prepare();
    let mut costs = vec![Counted::default(); round.relays.len()];
    let mut faults: Vec<(usize, &Fault)> = round.faults.iter().enumerate().collect();
    faults.sort_by_key(|(_, fault)| fault.at);
    let mut faults = faults.into_iter().peekable();
    let (mut sampled, mut before) = (0, 0);
    while sampled < LATE {
        if sampled <= BEGIN {
            before = runner.world.bill(RELAYS).written;
        }
        let next = sampled + SAMPLE;
        while let Some((number, fault)) = faults.next_if(|(_, fault)| fault.at < next) {
            runner
                .until(Duration::from_millis(fault.at))
                .map_err(wrong)?;
            runner.begin(number, fault);
        }
        runner.until(Duration::from_millis(next)).map_err(wrong)?;
        for (relay, cost) in costs.iter_mut().enumerate() {
            cost.held_millis += runner.world.bill(relay).held * SAMPLE;
        }
        sampled = next;
    }
    runner.check().map_err(wrong)?;
    for (relay, cost) in costs.iter_mut().enumerate() {
        cost.bill = runner.world.bill(relay);
    }
    Ok((costs, runner.world.bill(RELAYS).written - before))
}

/// A client, three relays that each of its circuits has, and a destination that stops before the moves.
fn network(seed: u64, mut faults: Vec<Fault>) -> Round {
    let relay = |role| Relay {
        role,
        threads: 2,
        rate: 1_000_000,
        queue: 1_000,
        limit: None,
    };
    faults.retain(is_move);
    faults.push(Fault {
        at: BEGIN - 1_000,
        lasts: LATE,
        kind: FaultKind::DeafServer { server: 0 },
    });
    Round {
        seed,
        lasts: LATE,
        congestion_control: true,
        sharing: Sharing::All,
        conflux: false,
        legs: 3,
        common_entry: true,
        abra: false,
        any_previous: false,
        unlisted: Vec::new(),
        reno: false,
        costs: [1, 1, 0],
        delay: 20,
        loss: 0,
        paths: Vec::new(),
        relays: [Role::Guard, Role::Exit, Role::Middle].map(relay).into(),
        clients: vec![Client {
            rate: 100_000,
            queue: 1_000,
            start: 0,
            tunnels: false,
            names: false,
            refused: false,
            held: false,
            rests: 0,
            files: 0,
            one_hop: false,
            // One stream after another; the first one that the destination does not answer is open during the moves.
            traffic: Traffic {
                down: 1_000,
                up: 1_000,
                parts: 1,
                pause: 500,
                periodic: false,
                stall: 600_000,
                timeout: None,
            },
        }],
        servers: 1,
        faults,
    }
}

fn is_move(fault: &Fault) -> bool {
    matches!(
        fault.kind,
        FaultKind::Hostile { .. } | FaultKind::Forges { .. }
    )
}

/// A move.
fn drawn(rng: &mut ChaCha8Rng) -> Fault {
    let count = rng.random_range(1..=COUNT);
    let kind = match rng.random_bool(0.7) {
        true => FaultKind::Forges {
            node: RELAYS,
            messages: one_of(&Messages::ALL, Messages::Mixed, rng),
            count,
        },
        false => FaultKind::Hostile {
            node: RELAYS,
            attack: one_of(&Attack::ALL, Attack::Cells, rng),
            count,
        },
    };
    Fault {
        at: rng.random_range(BEGIN..END),
        lasts: 0,
        kind,
    }
}

fn one_of<T: Copy>(all: &[T], otherwise: T, rng: &mut ChaCha8Rng) -> T {
    let place = rng.random_range(0..all.len().max(1));
    all.get(place).copied().unwrap_or(otherwise)
}

/// Moves with one change, or two.
fn changed(moves: &[Fault], rng: &mut ChaCha8Rng) -> Vec<Fault> {
    let mut moves: Vec<Fault> = moves.iter().filter(|one| is_move(one)).cloned().collect();
    for _ in 0..rng.random_range(1..=2) {
        change(&mut moves, rng);
    }
    moves
}

fn change(moves: &mut Vec<Fault>, rng: &mut ChaCha8Rng) {
    let many = moves.len();
    let place = rng.random_range(0..many.max(1));
    match rng.random_range(0..6) {
        0 if many > 1 => drop(moves.remove(place)),
        // What it sends follows from its place, too.
        1 if many > 1 => moves.swap(place, rng.random_range(0..many)),
        2 if many < MOVES => moves.insert(place, drawn(rng)),
        kind => {
            let Some(one) = moves.get_mut(place) else {
                return moves.push(drawn(rng));
            };
            match kind {
                3 => one.at = rng.random_range(BEGIN..END),
                4 => change_count(one, rng),
                _ => *one = drawn(rng),
            }
        }
    }
}

fn change_count(one: &mut Fault, rng: &mut ChaCha8Rng) {
    if let FaultKind::Hostile { count, .. } | FaultKind::Forges { count, .. } = &mut one.kind {
        *count = match rng.random_bool(0.5) {
            true => (*count * 2).min(COUNT),
            false => (*count / 2).max(1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_stay_within_their_bounds_whatever_is_changed() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut moves = vec![drawn(&mut rng)];
        for _ in 0..2_000 {
            moves = changed(&moves, &mut rng);
            assert!((1..=MOVES).contains(&moves.len()), "{moves:?}");
            for one in &moves {
                let (FaultKind::Hostile { count, .. } | FaultKind::Forges { count, .. }) = one.kind
                else {
                    panic!("{one:?} is no move");
                };
                assert!((1..=COUNT).contains(&count) && (BEGIN..END).contains(&one.at));
            }
        }
    }

    #[test]
    fn a_round_without_moves_costs_nothing_and_one_with_cells_costs_each_of_them() {
        let base = Instant::now();
        let quiet = cost(Quantity::Steps, &network(1, Vec::new()), base).unwrap();
        assert!(quiet.ratio == 0.0 && quiet.spent < LEAST, "{quiet:?}");
        let many = Fault {
            at: BEGIN,
            lasts: 0,
            kind: FaultKind::Forges {
                node: RELAYS,
                messages: Messages::Flood,
                count: 1,
            },
        };
        let many = cost(Quantity::Steps, &network(1, vec![many]), base).unwrap();
        assert!(many.spent > 100 * 514, "{many:?}");
        // Each cell is taken and sent on, in turns of many cells.
        assert!(many.ratio > 1.0 && many.ratio < 20.0, "{many:?}");
    }
}
