//! Rounds with a planted fault: which faults the checks find, and how soon.

use std::time::Instant;

use weft_planted::{Fault, passed, plant};

use super::round::Round;
use super::run::{Checks, Failure, Ran, run};

/// Longest time of users in a round that is run for planted faults, in milliseconds: longer rounds have no other faults.
const LONGEST: u64 = 20_000;

/// The rounds of a seed that were run for a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunt {
    /// Events of the network in all rounds.
    pub events: u64,
    /// Rounds that were run.
    pub rounds: u64,
    /// Times that the fault's place was passed.
    pub passed: u64,
    /// The number of the round that failed, and the failure.
    pub found: Option<(u64, Failure)>,
}

/// Runs the short rounds of a seed with a fault, or without one, until a round fails or `most` events have passed. `base` is
/// as in [`run`].
#[must_use]
pub fn hunt(fault: Option<Fault>, seed: u64, most: u64, base: Instant) -> Hunt {
    let mut hunt = Hunt {
        events: 0,
        rounds: 0,
        passed: 0,
        found: None,
    };
    for number in 0.. {
        if hunt.events >= most {
            break;
        }
        let round = Round::draw(seed, number);
        if round.lasts > LONGEST {
            continue;
        }
        let (ran, passed) = run_with(fault, &round, Checks::Often, base);
        hunt.events += ran.events;
        hunt.rounds += 1;
        hunt.passed += u64::from(passed);
        if let Some(failure) = ran.failure {
            hunt.found = Some((number, failure));
            break;
        }
    }
    hunt
}

/// Runs a round with a fault, or without one. Also returns how often the fault's place was passed.
#[must_use]
pub fn run_with(fault: Option<Fault>, round: &Round, checks: Checks, base: Instant) -> (Ran, u32) {
    plant(fault);
    let ran = run(round, checks, base);
    let passed = passed();
    plant(None);
    (ran, passed)
}
