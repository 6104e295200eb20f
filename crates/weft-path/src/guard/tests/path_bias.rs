//! Counts of circuits that fail beyond a guard.

use super::super::bias::PathBias;
use super::super::*;
use super::world::World;
use crate::PathBiasOptions;
use crate::options::PathOptions;
use crate::testing::{TestNet, rsa};

#[test]
fn failures_beyond_a_guard_are_counted_and_reported() {
    let options = PathOptions {
        path_bias: PathBiasOptions {
            circ_threshold: 5.0,
            drop_guards: true,
            ..PathBiasOptions::default()
        },
        ..PathOptions::default()
    };
    let mut world = World::with(TestNet::alike(150), options, &[]);
    let (guard, ticket) = world.select();
    world.forget(ticket);
    let run = |world: &mut World, outcomes: &[Outcome]| {
        let (id, ticket) = world.select();
        assert_eq!(id, guard);
        for &outcome in outcomes {
            world.outcome(ticket, outcome);
        }
        world.forget(ticket);
    };
    use Outcome::*;
    run(&mut world, &[FirstHop, Built, Used, UseSucceeded]);
    run(&mut world, &[FirstHop, Built, Used]);
    run(&mut world, &[FirstHop, Built]);
    run(&mut world, &[FirstHop, Built, Collapsed]);
    run(&mut world, &[FirstHop, TimedOut]);
    run(&mut world, &[Built]);
    let line = |world: &World| {
        let id = hex::encode_upper(rsa(guard));
        let lines = world.guards.lines();
        lines.into_iter().find(|line| line.contains(&id)).unwrap()
    };
    assert!(
        line(&world).ends_with(
            "pb_use_attempts=2.000000 pb_use_successes=1.000000 pb_circ_attempts=5.000000 \
         pb_circ_successes=4.000000 pb_successful_circuits_closed=2.000000 \
         pb_collapsed_circuits=1.000000 pb_unusable_circuits=1.000000 pb_timeouts=1.000000"
        ),
        "{}",
        line(&world)
    );
    assert!(world.guards.take_suspicions().is_empty());
    // Two of seven: extreme, and such guards are dropped here.
    run(&mut world, &[FirstHop, Failed]);
    run(&mut world, &[FirstHop, Built, Collapsed]);
    let suspicions = world.guards.take_suspicions();
    assert_eq!(suspicions.len(), 1);
    let (info, suspicion) = &suspicions[0];
    assert_eq!((info.rsa, *suspicion), (rsa(guard), Suspicion::Extreme));
    assert_ne!(world.select().0, guard);
}

#[test]
fn circuits_that_are_open_count_as_successes_when_the_node_ends() {
    let mut world = World::new(TestNet::alike(150));
    let (guard, ticket) = world.select();
    for outcome in [
        Outcome::FirstHop,
        Outcome::Built,
        Outcome::Used,
        Outcome::UseSucceeded,
    ] {
        world.outcome(ticket, outcome);
    }
    let id = hex::encode_upper(rsa(guard));
    let line = |world: &World| {
        let lines = world.guards.lines();
        lines.into_iter().find(|line| line.contains(&id)).unwrap()
    };
    let open = line(&world);
    assert!(open.ends_with(
        "pb_use_attempts=1.000000 pb_use_successes=1.000000 pb_circ_attempts=1.000000 \
         pb_circ_successes=1.000000 pb_successful_circuits_closed=1.000000"
    ));
    world.forget(ticket);
    assert_eq!(line(&world), open);
}

#[test]
fn counters_are_halved() {
    let options = PathBiasOptions::default();
    let mut bias = PathBias {
        circ_attempts: 301.0,
        circ_successes: 300.0,
        use_attempts: 101.0,
        use_successes: 50.0,
        ..PathBias::default()
    };
    bias.scale(&options);
    assert!(bias.circ_attempts == 150.5 && bias.circ_successes == 150.0);
    assert!(bias.use_attempts == 50.5 && bias.use_successes == 25.0);
    assert_eq!(bias.judge_uses(&options), Some(Suspicion::Extreme));
}
