//! Circuit-RTT: circuits that are measured before they are used.

use std::time::Duration;

use weft_core::origin::{OriginEvent, OriginId};
use weft_path::Outcome;

use super::world::{World, rsa};
use crate::chooser::BuildNews;
use crate::client::ProbeCounts;
use crate::events::{CircuitPurpose, CircuitStatus, ClientEvent};

const FAST: Duration = Duration::from_millis(300);
const LIMIT: Duration = Duration::from_millis(500);
const SLOW: Duration = Duration::from_millis(700);

/// A client that measures; with a limit, if it has learnt one.
fn measuring(limit: Option<Duration>) -> World {
    let mut world = World::new(1, 3, "accept 80,443");
    world.client.chooser().probe = true;
    world.client.chooser().round_trip = limit;
    world
}

impl World {
    /// The last hop of a circuit answers.
    fn probed(&mut self, circuit: OriginId, took: Duration, refused: bool) {
        assert!(self.probes.contains(&circuit), "{circuit} is not measured");
        self.probes.retain(|other| *other != circuit);
        self.event(OriginEvent::Probed {
            circuit,
            took,
            refused,
        });
    }

    fn status(&self, circuit: OriginId) -> Option<CircuitStatus> {
        let list = self.list();
        let circuit = list.iter().find(|one| one.id == circuit);
        circuit.map(|circuit| circuit.status)
    }

    /// Takes the answers that are outstanding.
    fn answer_all(&mut self, took: Duration) {
        for circuit in self.probes.clone() {
            self.probed(circuit, took, true);
        }
    }
}

fn round_trips(world: &World) -> Vec<Duration> {
    let built = world.client.chooser_ref().built.iter();
    let times = built.filter_map(|news| match news {
        BuildNews::RoundTrip { took } => Some(*took),
        _ => None,
    });
    times.collect()
}

#[test]
fn nothing_is_measured_unless_it_decides() {
    let mut world = World::new(1, 3, "accept 80,443");
    world.ready();
    world.wait(5);
    assert!(world.probes.is_empty());
    assert_eq!(world.client.probes(), ProbeCounts::default());
}

#[test]
fn before_there_is_a_limit_circuits_are_used_and_measured_at_once() {
    let mut world = measuring(None);
    world.ready();
    world.wait(1);
    assert_eq!(world.probes.len(), 2);
    for circuit in world.probes.clone() {
        assert_eq!(world.status(circuit), Some(CircuitStatus::Built));
    }
    let stream = world.connect("example.com", 80, None);
    assert!(world.connected.contains(&stream));
    world.answer_all(SLOW);
    assert_eq!(round_trips(&world)[..2], [SLOW, SLOW]);
    let measured = |world: &World| {
        let list = world.list();
        list.iter()
            .filter(|one| one.round_trip == Some(SLOW) && one.status == CircuitStatus::Built)
            .count()
    };
    assert_eq!(measured(&world), 2);
}

#[test]
fn a_stream_waits_until_its_circuit_is_measured() {
    let mut world = measuring(Some(LIMIT));
    world.ready();
    world.wait(1);
    let first = world.probes[0];
    assert_eq!(world.status(first), Some(CircuitStatus::Extended));
    let stream = world.connect("example.com", 80, None);
    assert!(world.attached.is_empty());
    world.probed(first, FAST, true);
    assert_eq!(world.status(first), Some(CircuitStatus::Built));
    assert_eq!(world.attached[&stream], first);
    assert_eq!(round_trips(&world), [FAST]);
    assert_eq!(world.client.probes().accepted, 1);
}

#[test]
fn a_slow_circuit_is_not_used_and_another_takes_its_place() {
    let mut world = measuring(Some(LIMIT));
    world.ready();
    world.wait(1);
    let (first, second) = (world.probes[0], world.probes[1]);
    world.probed(first, FAST, true);
    let launches = world.launches;
    world.probed(second, SLOW, true);
    assert_eq!(world.status(second), None);
    assert_eq!(round_trips(&world), [FAST, SLOW]);
    world.wait(1);
    assert!(world.launches > launches);
    let ends: Vec<_> = world
        .events
        .iter()
        .filter_map(|event| match event {
            ClientEvent::Circuit {
                circuit,
                reason: Some(end),
            } if circuit.id == second => Some((circuit.purpose, end.reason.name())),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [(CircuitPurpose::Measure, "MEASUREMENT_EXPIRED")]);
    // It is nobody's fault.
    let outcomes = &world.client.chooser_ref().outcomes;
    assert!(!outcomes.contains(&(rsa(1), Outcome::Failed)));
}

#[test]
fn a_circuit_past_the_limit_is_replaced_before_its_answer_comes() {
    let mut world = measuring(Some(LIMIT));
    world.ready();
    world.wait(1);
    let (first, second) = (world.probes[0], world.probes[1]);
    world.probed(first, FAST, true);
    world.wait(1);
    let list = world.list();
    let purpose = list.iter().find(|one| one.id == second).unwrap().purpose;
    assert_eq!(purpose, CircuitPurpose::Measure);
    // Its time counts, whatever it is.
    world.probed(second, 3 * SLOW, true);
    assert_eq!(world.status(second), None);
    assert!(round_trips(&world).contains(&(3 * SLOW)));
}

#[test]
fn a_slow_circuit_is_used_where_there_is_no_other() {
    let mut world = measuring(Some(LIMIT));
    world.ready();
    let stream = world.connect("example.com", 80, None);
    world.wait(3);
    assert!(world.attached.is_empty());
    let first = world.probes[0];
    world.probed(first, 3 * SLOW, true);
    assert_eq!(world.attached[&stream], first);
    // A better one is preferred from then on.
    world.wait(1);
    let better = *world.probes.last().unwrap();
    world.probed(better, FAST, true);
    let next = world.connect("example.com", 80, None);
    assert_eq!(world.attached[&next], better);
}

#[test]
fn an_answer_that_proves_nothing_is_not_counted_and_its_circuit_not_used() {
    let mut world = measuring(Some(LIMIT));
    world.ready();
    world.wait(1);
    let (first, second) = (world.probes[0], world.probes[1]);
    world.probed(first, FAST, true);
    world.probed(second, FAST, false);
    assert_eq!(world.status(second), None);
    assert_eq!(round_trips(&world), [FAST]);
    assert_eq!(world.client.probes().unproven, 1);
}

#[test]
fn a_circuit_whose_exit_does_not_answer_is_given_up() {
    let mut world = measuring(Some(LIMIT));
    world.ready();
    world.wait(1);
    let (first, second) = (world.probes[0], world.probes[1]);
    world.probed(first, FAST, true);
    world.wait(121);
    assert_eq!(world.status(second), None);
    assert!(world.client.probes().unanswered >= 1);
    assert!(
        round_trips(&world)
            .iter()
            .any(|took| *took >= Duration::from_secs(120))
    );
    // An answer after that is nobody's.
    let before = round_trips(&world).len();
    world.event(OriginEvent::Probed {
        circuit: second,
        took: FAST,
        refused: true,
    });
    assert_eq!(round_trips(&world).len(), before);
}

#[test]
fn a_circuit_that_is_killed_while_it_is_measured_counts_as_a_failure() {
    let mut world = measuring(Some(LIMIT));
    world.ready();
    for _ in 0..20 {
        for circuit in std::mem::take(&mut world.probes) {
            world.destroy(circuit);
        }
    }
    // Without a brake there would be hundreds.
    assert!(world.launches <= 8, "{}", world.launches);
}

#[test]
fn a_controllers_circuits_are_not_measured() {
    let mut world = measuring(Some(LIMIT));
    world.ready();
    world.wait(1);
    world.answer_all(FAST);
    world.wait(1);
    world.answer_all(FAST);
    let now = world.now;
    let circuit = world
        .client
        .new_circuit(&[], CircuitPurpose::Controller, now)
        .unwrap();
    world.run();
    assert!(world.probes.is_empty());
    assert_eq!(world.status(circuit), Some(CircuitStatus::Built));
}
