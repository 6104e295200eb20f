//! Some rounds of chaos (docs/chaos.md), and that one round runs twice alike. `cargo xtask chaos` runs others.

use std::fs;
use std::path::Path;
use std::time::Instant;

use weft_virtual::chaos::{Attack, Checks, DiskFault, Fault, FaultKind, Round, run, shrink};

fn holds(round: &Round, checks: Checks) -> u64 {
    let ran = run(round, checks, Instant::now());
    if let Some(failure) = ran.failure {
        panic!("it fails {failure}\n{round:#?}");
    }
    ran.events
}

#[test]
fn what_goes_wrong_breaks_nothing() {
    let mut events = 0;
    for number in 0..1_000 {
        let round = Round::draw(1, number);
        // Long ones are for hours by hand.
        if round.lasts > 20_000 {
            continue;
        }
        events += holds(&round, Checks::Often);
        if events >= 4_000_000 {
            return;
        }
    }
}

#[test]
fn hostile_nodes_with_keys_harm_nobody_else() {
    let forges = |fault: &Fault| matches!(fault.kind, FaultKind::Forges { .. });
    let hangs = |fault: &Fault| matches!(fault.kind, FaultKind::Hangs { .. });
    let is_siege = |round: &Round| {
        let mut faults = round.faults.iter();
        round.faults.iter().any(forges) && faults.all(|one| forges(one) || hangs(one))
    };
    let drawn = (0..).map(|number| Round::draw(7, number));
    let short = drawn.filter(|round| round.lasts < 12_000 && round.relays.len() < 9);
    let mut forged = 0;
    for round in short.filter(is_siege).take(2) {
        let ran = run(&round, Checks::Often, Instant::now());
        assert!(ran.failure.is_none(), "{:?}\n{round:#?}", ran.failure);
        forged += ran.counts.forged;
    }
    assert!(forged > 0);
}

#[test]
fn every_step_of_some_rounds_breaks_nothing() {
    for number in 0..2 {
        let mut round = Round::draw(2, number);
        round.lasts = 2_000;
        for fault in &mut round.faults {
            fault.at /= 30;
            fault.lasts /= 20;
        }
        for client in &mut round.clients {
            client.start /= 30;
        }
        holds(&round, Checks::All);
    }
}

/// Rounds that failed once, made smaller.
#[test]
fn rounds_that_failed_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/failed");
    let mut held = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        holds(&serde_json::from_str(&text).unwrap(), Checks::All);
        held += 1;
    }
    assert!(held > 0);
}

#[test]
fn one_seed_gives_one_round_and_one_result() {
    let round = Round::draw(3, 1);
    assert_eq!(round, Round::draw(3, 1));
    assert_ne!(round, Round::draw(3, 2));
    assert_ne!(round, Round::draw(4, 1));
    let first = run(&round, Checks::Often, Instant::now());
    assert_eq!(first, run(&round, Checks::Often, Instant::now()));
}

#[test]
fn an_exit_that_destroys_its_own_circuits_holds_its_streams_no_longer_than_its_links() {
    let mut round = Round::draw(6, 1);
    round.lasts = 10_000;
    round.relays.truncate(3);
    round.paths.clear();
    for client in &mut round.clients {
        (client.start, client.traffic.down) = (0, 10_000_000);
    }
    let attack = |at| Fault {
        at,
        lasts: 500,
        kind: FaultKind::Hostile {
            node: 1,
            attack: Attack::Destroys,
            count: 50,
        },
    };
    round.faults = [3_000, 5_000, 7_000].map(attack).to_vec();
    holds(&round, Checks::Often);
}

#[test]
fn a_disk_that_is_full_or_a_kill_at_any_step_of_a_write_leaves_whole_files() {
    let mut round = Round::draw(1, 0);
    (round.lasts, round.faults) = (24_000, Vec::new());
    round.relays.truncate(3);
    round.clients.truncate(3);
    round.paths.clear();
    let part = 128;
    let ends = [
        DiskFault::Full,
        DiskFault::Short(part),
        DiskFault::Killed(part),
    ];
    for (client, how) in ends.into_iter().enumerate() {
        round.clients[client].files = 1_000;
        round.clients[client].traffic.down = 10_000;
        for step in 0..11 {
            let at = 2_000 * u64::from(step);
            let disk = FaultKind::Disk { client, step, how };
            let restarts = FaultKind::Restarts {
                client,
                damaged: true,
            };
            let faults = [(at, disk), (at + 1_900, restarts)];
            let faults = faults.map(|(at, kind)| Fault {
                at,
                lasts: 1_500,
                kind,
            });
            round.faults.extend(faults);
        }
    }
    holds(&round, Checks::Often);
}

#[test]
fn a_round_shrinks_to_what_it_fails_for() {
    // It "fails" whenever a certain node is hostile in a certain way.
    let is_it = |fault: &Fault| {
        matches!(
            fault.kind,
            FaultKind::Hostile {
                attack: Attack::Destroys,
                ..
            }
        )
    };
    let drawn = (0..).map(|number| Round::draw(5, number));
    let mut drawn = drawn.filter(|round| round.faults.iter().filter(|one| is_it(one)).count() > 1);
    let round = drawn.next().expect("one has it");
    let small = shrink(&round, |one| one.faults.iter().any(is_it));
    assert_eq!(small.faults.len(), 1);
    assert!(small.faults.iter().all(is_it));
    assert_eq!((small.relays.len(), small.clients.len()), (3, 1));
    holds(&small, Checks::Often);
}
