//! Faults that are planted in the code are found: those that a few short rounds of chaos find (docs/chaos.md). `cargo xtask
//! chaos --planted` looks for all of them.

use std::time::Instant;

use weft_planted::Fault;
use weft_virtual::chaos::{Checks, Round, hunt, run_with};

/// The seed of all rounds.
const SEED: u64 = 1;
/// Events until each of [`QUICK`] is found, and each of [`SLOW`], at most.
const SOON: u64 = 300_000;
const LATE: u64 = 3_000_000;

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
    Fault::OnionskinNotAnswered,
    Fault::OnionskinStaysCounted,
    Fault::LinkStaysHeld,
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
    Fault::ClientKeepsCircuit,
    Fault::ClientNeverPads,
    Fault::IsolationIgnored,
    Fault::RelayTwiceInPath,
];

/// Faults that take longer, and are still found in a second or two.
const SLOW: &[Fault] = &[
    Fault::LinkNotListed,
    Fault::DestroyDropped,
    Fault::HalfOutlivesLink,
    Fault::ClosedHalfStaysActive,
    Fault::CreditRequestLost,
    Fault::LoanOutlivesStream,
    Fault::RefusedStreamStays,
    Fault::ExitPolicyIgnored,
    Fault::SingleHopExit,
    Fault::AgeReset,
    Fault::RouteNotForgotten,
    Fault::MoveNotLearnt,
    Fault::LegEndNotReported,
    Fault::WrongLegAcknowledged,
    Fault::LegRoomLentTwice,
    Fault::XonIgnored,
    Fault::SwitchLost,
    Fault::GapSkipped,
    Fault::ClientKeepsStream,
    Fault::MapOutlivesReset,
];

/// Faults that a round of this number finds: most of these show where nodes forge messages, where links move while messages are
/// late, or where clients have files.
const BY_ROUND: &[(Fault, u64)] = &[
    (Fault::DeadCellsNotCounted, 35),
    (Fault::EarlyStaysCounted, 19),
    (Fault::QueueBoundIgnored, 27),
    (Fault::KeptMessageLost, 24),
    (Fault::CellOvertakesMove, 24),
    (Fault::HeldStreamUnchecked, 24),
    (Fault::CircuitNotResumed, 47),
    (Fault::SingleHopTunnel, 65),
    (Fault::WrittenInPlace, 15),
    (Fault::TemporaryStays, 15),
    (Fault::ErrorTakenForSuccess, 15),
    (Fault::GuardsNotSaved, 15),
    (Fault::ModeNotKept, 25),
    (Fault::OriginalOverwritten, 25),
    (Fault::GuardsForgottenAtStart, 25),
    (Fault::FailedSaveForgotten, 31),
];

/// Each of these is found in rounds of so many events together.
fn are_found(faults: &[Fault], events: u64) {
    let base = Instant::now();
    let missed = faults.iter().filter(|fault| {
        let hunt = hunt(Some(**fault), SEED, events, base);
        hunt.found.is_none()
    });
    let missed: Vec<&str> = missed.map(|fault| fault.name()).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn planted_faults_are_found() {
    are_found(QUICK, SOON);
}

#[test]
fn planted_faults_that_show_seldom_are_found() {
    are_found(SLOW, LATE);
}

#[test]
fn planted_faults_that_show_in_few_rounds_are_found_there() {
    let base = Instant::now();
    let missed = BY_ROUND.iter().filter(|(fault, number)| {
        let round = Round::draw(SEED, *number);
        let (ran, _) = run_with(Some(*fault), &round, Checks::Often, base);
        ran.failure.is_none()
    });
    let missed: Vec<&str> = missed.map(|(fault, _)| fault.name()).collect();
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
