//! Faults that are planted in the code are found: those that a few short rounds of chaos find (docs/chaos.md). `cargo xtask
//! chaos --planted` looks for all of them.

use std::time::Instant;

use weft_planted::Fault;
use weft_virtual::chaos::{Checks, Round, hunt, run_with};

/// The seed of all rounds.
const SEED: u64 = 1;
/// Events until each of these faults is found, at most.
const SOON: u64 = 300_000;

/// Faults that are found so soon.
const QUICK: &[Fault] = &[
    Fault::CellLost,
    Fault::CellTwice,
    Fault::CellsSwapped,
    Fault::LayerLeftOut,
    Fault::MessageCutShort,
    Fault::DataLeftOut,
    Fault::DataTwice,
    Fault::PeerNotNotified,
    Fault::WaitWithoutTimer,
    Fault::OnionskinStaysCounted,
    Fault::ShareNotReleased,
    Fault::ShareEndsAtOpening,
    Fault::PlaceNotReleased,
    Fault::AddressStaysCharged,
    Fault::UnlistedStaysIdle,
    Fault::LinkEndNotLearnt,
    Fault::EdgeStaysBooked,
    Fault::CreditReturnLost,
    Fault::CreditReturnedTwice,
    Fault::CellCountedTwice,
    Fault::SendmeLate,
    Fault::EdgeNotListed,
];

#[test]
fn planted_faults_are_found() {
    let base = Instant::now();
    let missed = QUICK.iter().filter(|fault| {
        let hunt = hunt(Some(**fault), SEED, SOON, base);
        hunt.found.is_none()
    });
    let missed: Vec<&str> = missed.map(|fault| fault.name()).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn a_round_without_a_fault_is_not_changed_by_one_that_was_planted_before() {
    let base = Instant::now();
    let round = Round::draw(SEED, 0);
    let (before, _) = run_with(None, &round, Checks::Often, base);
    let (with, passed) = run_with(Some(Fault::CellLost), &round, Checks::Often, base);
    let (after, none) = run_with(None, &round, Checks::Often, base);
    assert!(before.failure.is_none(), "{:?}", before.failure);
    assert!(passed > 0 && with != before);
    assert_eq!((after, none), (before, 0));
}
