//! Counts of circuits that fail beyond a guard.

use super::super::bias::PathBias;
use super::super::*;
use super::world::World;
use crate::options::PathOptions;
use crate::testing::{TestNet, rsa};
use crate::{PathBiasOptions, PathBiasSet};

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
    // Nothing is counted before the first hop.
    run(&mut world, &[TimedOut]);
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
    let at_the_threshold = PathBias {
        circ_attempts: options.scale_threshold,
        use_attempts: options.scale_use_threshold,
        ..PathBias::default()
    };
    let mut scaled = at_the_threshold;
    scaled.scale(&options);
    assert_eq!(scaled, at_the_threshold);
}

#[test]
fn a_circuit_that_was_not_used_is_of_no_use() {
    let mut world = World::new(TestNet::alike(150));
    let (_, ticket) = world.select();
    for outcome in [Outcome::FirstHop, Outcome::Built, Outcome::UseSucceeded] {
        world.outcome(ticket, outcome);
    }
    let lines = world.guards.lines();
    assert!(
        !lines.iter().any(|line| line.contains("pb_use_")),
        "{lines:?}"
    );
}

#[test]
fn a_suspicion_is_reported_once() {
    let path_bias = PathBiasOptions {
        circ_threshold: 2.0,
        ..PathBiasOptions::default()
    };
    let options = PathOptions {
        path_bias,
        ..PathOptions::default()
    };
    let mut world = World::with(TestNet::alike(150), options, &[]);
    let mut reported = Vec::new();
    for _ in 0..6 {
        let (_, ticket) = world.select();
        for outcome in [Outcome::FirstHop, Outcome::Built, Outcome::Collapsed] {
            world.outcome(ticket, outcome);
        }
        world.forget(ticket);
        reported.push(world.guards.take_suspicions().len());
    }
    assert_eq!(reported, [0, 0, 1, 0, 0, 0]);
}

#[test]
fn suspicion_grows_as_the_share_of_good_circuits_falls() {
    let options = PathBiasOptions {
        circ_threshold: 20.0,
        ..PathBiasOptions::default()
    };
    let circuits = |attempts, well| {
        let bias = PathBias {
            circ_attempts: attempts,
            successful_circuits_closed: well,
            ..PathBias::default()
        };
        bias.judge_circuits(&options)
    };
    for (well, expected) in [
        (0.0, Some(Suspicion::Extreme)),
        (29.0, Some(Suspicion::Extreme)),
        (30.0, Some(Suspicion::VeryLow)),
        (49.0, Some(Suspicion::VeryLow)),
        (50.0, Some(Suspicion::Low)),
        (69.0, Some(Suspicion::Low)),
        (70.0, None),
        (100.0, None),
    ] {
        assert_eq!(circuits(100.0, well), expected, "{well} of 100 circuits");
    }
    // Too few to judge.
    assert_eq!(circuits(20.0, 0.0), None);
    assert_eq!(circuits(21.0, 0.0), Some(Suspicion::Extreme));
    let uses = |attempts, successes| {
        let bias = PathBias {
            use_attempts: attempts,
            use_successes: successes,
            ..PathBias::default()
        };
        bias.judge_uses(&options)
    };
    for (successes, expected) in [
        (0.0, Some(Suspicion::Extreme)),
        (59.0, Some(Suspicion::Extreme)),
        (60.0, Some(Suspicion::Low)),
        (79.0, Some(Suspicion::Low)),
        (80.0, None),
        (100.0, None),
    ] {
        assert_eq!(uses(100.0, successes), expected, "{successes} of 100 uses");
    }
    assert_eq!(uses(20.0, 0.0), None);
    assert_eq!(uses(21.0, 0.0), Some(Suspicion::Extreme));
}

#[test]
fn what_torrc_sets_of_path_bias_comes_before_the_consensus() {
    let consensus = PathBiasOptions {
        circ_threshold: 11.0,
        notice_rate: 0.9,
        drop_guards: true,
        ..PathBiasOptions::default()
    };
    let set = PathBiasSet {
        notice_rate: Some(0.4),
        ..PathBiasSet::default()
    };
    let expected = PathBiasOptions {
        notice_rate: 0.4,
        drop_guards: false,
        ..consensus
    };
    assert_eq!(set.over(&consensus), expected);
}
