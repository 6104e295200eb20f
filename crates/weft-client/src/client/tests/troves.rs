//! C tor's security fixes of 2026, as far as they are about clients (docs/security.md).

use weft_cell::reason::EndReason;
use weft_core::address::ConnectionId;
use weft_core::origin::{AppRefusal, StreamOpening};
use weft_path::Outcome;

use super::world::{Exits, Manner, World, rsa};
use crate::events::{ClientEvent, StreamNews};
use crate::output::DirectoryTarget;

/// TROVE-2026-030, -038, -041: a circuit that fails over a link that is open is not the guard's fault. One that answers nothing is left all
/// the same, but by its links.
#[test]
fn a_guard_that_does_not_answer_over_an_open_link_is_not_blamed() {
    for measure in [false, true] {
        let mut world = World::new(1, 3, "accept 80,443");
        world.client.chooser().measure = measure;
        world.relay(1).manner = Manner::Silent;
        world.ready();
        let stream = world.connect("example.com", 80, None);
        let blamed = |world: &World| {
            let outcomes = &world.client.chooser_ref().outcomes;
            outcomes.contains(&(rsa(1), Outcome::GuardFailed))
        };
        world.wait(23);
        assert!(!blamed(&world) && world.retired.is_empty());
        // The link may have stalled: the same guard gets another one.
        world.wait(22);
        assert!(!blamed(&world));
        assert_eq!(world.retired, [ConnectionId(1 << 32)]);
        world.wait(15);
        // Within a minute, for the stream that waits all the time.
        assert!(blamed(&world));
        assert_eq!(world.retired.len(), 2);
        let listed = world.list();
        assert!(listed.iter().any(|one| one.path[0].0 == rsa(2)));
        assert!(world.connected.contains(&stream));
    }
}

/// A guard that stalls on one link and answers on the next.
#[test]
fn a_guard_that_answers_over_its_next_link_is_never_blamed() {
    let mut world = World::new(1, 3, "accept 80,443");
    world.relay(1).manner = Manner::Silent;
    world.ready();
    world.wait(30);
    world.relay(1).manner = Manner::Good;
    let stream = world.connect("example.com", 80, None);
    world.wait(5);
    assert!(world.connected.contains(&stream));
    let outcomes = &world.client.chooser_ref().outcomes;
    assert!(!outcomes.contains(&(rsa(1), Outcome::GuardFailed)));
    assert_eq!(world.retired.len(), 1);
}

#[test]
fn files_that_are_used_up_are_not_the_guard_s_fault() {
    let mut world = World::new(1, 3, "accept 80,443");
    world.relay(1).manner = Manner::Full;
    world.ready();
    world.wait(2);
    let outcomes = &world.client.chooser_ref().outcomes;
    assert!(outcomes.contains(&(rsa(1), Outcome::Failed)));
    assert!(!outcomes.contains(&(rsa(1), Outcome::GuardFailed)));
}

/// Bug 41412.
#[test]
fn a_circuit_that_is_cancelled_before_its_first_hop_leaves_the_link_alone() {
    let mut world = World::new(1, 3, "accept 80,443");
    world.relay(1).manner = Manner::Silent;
    world.ready();
    for _ in 0..5 {
        world.wait(20);
        for circuit in world.list() {
            world.client.close(circuit.id, false, world.now).unwrap();
        }
        world.run();
    }
    assert!(world.launches > 2 && world.retired.is_empty());
    let outcomes = &world.client.chooser_ref().outcomes;
    let cancelled = |(_, outcome): &(_, Outcome)| *outcome == Outcome::Cancelled;
    assert!(!outcomes.is_empty() && outcomes.iter().all(cancelled));
}

/// Bug 41420.
#[test]
fn a_first_hop_that_does_not_answer_is_no_measure_of_circuits() {
    use crate::chooser::BuildNews;
    let is_abandoned = |news: &BuildNews| matches!(news, BuildNews::Abandoned { .. });
    for (silent, counts) in [(1, false), (11, true)] {
        let mut world = World::new(1, 1, "accept 80,443");
        world.client.chooser().measure = true;
        world.ready();
        // Its circuit stays open, so that no time is extended.
        world.connect("example.com", 80, None);
        world.relay(silent).manner = Manner::Silent;
        world.client.new_identity(world.now);
        world.run();
        world.connect("example.com", 80, None);
        world.wait(150);
        let built = &world.client.chooser_ref().built;
        assert_eq!(built.iter().any(is_abandoned), counts, "{silent}");
    }
}

/// Bug 41353.
#[test]
fn an_end_of_reason_zero_is_a_failure() {
    let mut world = World::new(5, 2, "accept 80,443");
    for number in [11, 12] {
        world.relay(number).exits = Exits::Ends(EndReason(0), None);
    }
    world.ready();
    let stream = world.connect("example.com", 80, None);
    assert_eq!(world.refused[&stream], AppRefusal::General);
    assert!(!world.connected.contains(&stream));
    let mut ends = world.events.iter().filter_map(|event| match event {
        ClientEvent::Stream { what, .. } => match what {
            StreamNews::Failed(end) => Some(end.names()),
            StreamNews::Succeeded => panic!("it succeeded"),
            _ => None,
        },
        _ => None,
    });
    assert_eq!(ends.next(), Some(("END", Some("MISC"))));
}

/// TROVE-2026-052.
#[test]
fn a_directory_s_stream_is_not_tried_again_for_what_its_end_states() {
    for reason in [
        EndReason::EXITPOLICY,
        EndReason::RESOLVEFAILED,
        EndReason::RESOURCELIMIT,
        EndReason::MISC,
    ] {
        let mut world = World::new(5, 2, "accept 80,443");
        world.relay(1).exits = Exits::Ends(reason, None);
        world.client.chooser().ready = true;
        let target = DirectoryTarget::Guard;
        let id = world.client.open_directory(&target, world.now).unwrap();
        world.client.serve_now(world.now);
        world.run();
        world.wait(30);
        let begun = world.openings.iter();
        let begun = begun.filter(|(_, opening)| *opening == StreamOpening::BeginDir);
        assert_eq!(begun.count(), 1, "{reason}");
        assert!(world.client.directory_of(id).is_none());
    }
}

/// A trouble that lasts is left behind without a restart (C tor was stuck for hours until 0.4.9.14).
#[test]
fn one_relay_in_trouble_keeps_a_stream_waiting_for_a_minute_at_most() {
    use Manner::{Lies, Refuses, Silent, Slow, Unreachable};
    let troubles = [Unreachable, Silent, Slow, Refuses, Lies];
    // The guard that is chosen first, relays of the middle, an exit.
    for (number, manner) in [1, 2, 3, 11]
        .into_iter()
        .flat_map(|number| troubles.map(|manner| (number, manner)))
    {
        for seed in 1..=4 {
            let mut world = World::new(seed, 3, "accept 80,443");
            world.relay(number).manner = manner;
            world.ready();
            let stream = world.connect("example.com", 80, None);
            world.wait(62);
            assert!(
                world.connected.contains(&stream),
                "relay {number}: {manner:?}, seed {seed}"
            );
        }
    }
}

/// Exits take every BEGIN and answer none, all but one, which a stream reaches within a minute.
#[test]
fn exits_that_do_not_answer_keep_a_stream_waiting_for_a_minute_at_most() {
    for seed in 1..=8 {
        let mut world = World::new(seed, 3, "accept 80,443");
        for number in [11, 12] {
            world.relay(number).exits = Exits::Silent;
        }
        world.ready();
        let stream = world.connect("example.com", 80, None);
        world.wait(62);
        assert!(world.connected.contains(&stream), "seed {seed}");
    }
}
