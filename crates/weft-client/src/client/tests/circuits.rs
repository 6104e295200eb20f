//! Circuits: begun ahead of need, failing, late, used up.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use weft_crypto::handshake::{ReplyParams, negotiate};
use weft_path::{GuardUse, Outcome, RelayName};

use super::world::{Manner, World, rsa};
use crate::ControlError;
use crate::chooser::BuildNews;
use crate::events::{CircuitPurpose, CircuitStatus, ClientEvent, EndOfCircuit};

#[test]
fn two_clean_circuits_are_ready_for_the_ports_of_the_web() {
    let mut world = World::new(1, 3, "accept 80,443");
    world.wait(2);
    assert_eq!(world.launches, 0, "no directory, no circuits");
    world.ready();
    world.wait(1);
    let built = |world: &World| {
        world
            .list()
            .iter()
            .filter(|circuit| circuit.status == CircuitStatus::Built)
            .count()
    };
    assert_eq!(built(&world), 2);
    assert!(world.client.is_established());
    for circuit in world.list() {
        assert_eq!(circuit.path.len(), 3);
        assert_eq!(circuit.built, 3);
        assert_eq!(circuit.path[0].0, rsa(1));
    }
    // One that is used is replaced.
    world.connect("example.com", 80, None);
    world.wait(1);
    assert_eq!(built(&world), 3);
    world.wait(10);
    assert_eq!(built(&world), 3);
}

#[test]
fn nothing_is_begun_ahead_of_need_when_nothing_was_needed_for_an_hour() {
    let mut world = World::new(1, 3, "accept 80,443");
    world.ready();
    world.wait(2 * 3600);
    assert!(world.list().is_empty());
    let launches = world.launches;
    world.wait(600);
    assert_eq!(world.launches, launches);
    // Until it is requested.
    let stream = world.connect("example.com", 443, None);
    assert!(world.connected.contains(&stream));
}

#[test]
fn congestion_control_and_cgo_are_asked_of_every_hop() {
    let mut world = World::new(1, 3, "accept 80,443");
    world.client.chooser().congestion = Some(31);
    for relay in &mut world.client.chooser().relays {
        relay.supports_cgo = true;
    }
    world.ready();
    world.wait(1);
    assert_eq!(world.creates.len(), 6);
    for (relay, create) in &world.creates {
        let keys = &world.relays[relay].keys;
        let grants = ReplyParams {
            sendme_inc: Some(31),
        };
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let answer = negotiate(create, keys, &grants, &mut rng).unwrap();
        assert_eq!(answer.sendme_inc, Some(31), "{relay}");
        assert!(
            answer.keys.tor1().is_none(),
            "{relay} was not asked for CGO"
        );
    }
    assert!(
        world
            .list()
            .iter()
            .all(|circuit| circuit.status == CircuitStatus::Built)
    );
    assert_eq!(world.list().len(), 2);
}

#[test]
fn a_guard_that_cannot_be_reached_is_blamed_and_the_next_is_used() {
    let mut world = World::new(1, 3, "accept 80,443");
    world.relay(1).manner = Manner::Unreachable;
    world.ready();
    world.wait(2);
    let outcomes = &world.client.chooser_ref().outcomes;
    assert!(outcomes.contains(&(rsa(1), Outcome::GuardFailed)));
    assert!(outcomes.contains(&(rsa(2), Outcome::Built)));
    assert!(
        world
            .list()
            .iter()
            .all(|circuit| circuit.path[0].0 == rsa(2))
    );
}

#[test]
fn a_relay_behind_the_guard_is_not_the_guards_fault() {
    let mut world = World::new(1, 1, "accept 80,443");
    world.relay(11).manner = Manner::Refuses;
    world.ready();
    world.wait(3);
    let outcomes = &world.client.chooser_ref().outcomes;
    assert!(outcomes.contains(&(rsa(1), Outcome::Failed)));
    assert!(!outcomes.contains(&(rsa(1), Outcome::GuardFailed)));
    let ends: Vec<_> = world
        .events
        .iter()
        .filter_map(|event| match event {
            ClientEvent::Circuit { circuit, reason } => Some((circuit.status, *reason)),
            _ => None,
        })
        .filter(|(status, _)| *status == CircuitStatus::Failed)
        .collect();
    assert!(!ends.is_empty());
    let (_, reason) = ends[0];
    assert_eq!(reason.unwrap().reason.name(), "DESTROYED");
    assert!(reason.unwrap().remote.is_some());
}

#[test]
fn failures_are_bounded_in_a_second_and_in_a_period() {
    let mut world = World::new(1, 1, "accept 80,443");
    world.relay(11).manner = Manner::Refuses;
    world.ready();
    let stream = world.connect("example.com", 80, None);
    assert!(world.launches <= 8, "{} in one second", world.launches);
    world.wait(90);
    let before = world.launches;
    world.wait(29);
    // The period before failed: after six more, one at a time.
    assert!(world.launches - before <= 18, "{}", world.launches - before);
    // It is tried until the application has waited long enough.
    world.wait(10);
    assert!(world.refused.contains_key(&stream));
}

#[test]
fn a_network_that_works_at_last_is_not_waited_for_much_longer() {
    let mut world = World::new(1, 1, "accept 80,443");
    world.relay(11).manner = Manner::Refuses;
    world.ready();
    let stream = world.connect("example.com", 80, None);
    world.wait(62);
    assert!(!world.connected.contains(&stream));
    world.relay(11).manner = Manner::Good;
    world.wait(4);
    assert!(world.connected.contains(&stream));
}

#[test]
fn a_handshake_that_is_a_lie_ends_the_circuit() {
    let mut world = World::new(1, 1, "accept 80,443");
    world.relay(11).manner = Manner::Lies;
    world.ready();
    world.wait(1);
    assert!(
        world
            .list()
            .iter()
            .all(|circuit| circuit.status != CircuitStatus::Built)
    );
    let protocol = world.events.iter().any(|event| {
        matches!(event, ClientEvent::Circuit { reason: Some(end), .. }
            if end.reason.name() == "TORPROTOCOL")
    });
    assert!(protocol);
}

#[test]
fn a_circuit_that_takes_too_long_is_abandoned_or_measured() {
    for measure in [false, true] {
        let mut world = World::new(1, 2, "accept 80,443");
        world.client.chooser().measure = measure;
        world.ready();
        world.wait(1);
        // Some are open, so that no time is extended.
        world.relay(11).manner = Manner::Silent;
        world.relay(12).manner = Manner::Silent;
        world.client.new_identity(world.now);
        world.run();
        world.connect("example.com", 80, None);
        let circuits = world.list();
        let late = circuits
            .iter()
            .rfind(|circuit| circuit.status == CircuitStatus::Extended)
            .unwrap()
            .id;
        let held = circuits
            .iter()
            .find(|circuit| circuit.status == CircuitStatus::Built);
        world.wait(61);
        let found = world.list().into_iter().find(|circuit| circuit.id == late);
        if held.is_none() {
            // With nothing open its time is longer.
            assert!(found.is_some());
        }
        world.wait(61);
        assert!(!world.list().iter().any(|circuit| circuit.id == late));
        let built = &world.client.chooser_ref().built;
        assert!(built.contains(&BuildNews::TimedOut { first_hop: true }));
    }
}

#[test]
fn a_circuit_that_is_complete_too_late_is_not_used() {
    for measure in [false, true] {
        let mut world = World::new(1, 2, "accept 80,443");
        world.client.chooser().measure = measure;
        world.ready();
        world.wait(1);
        let before: Vec<_> = world.list().iter().map(|circuit| circuit.id).collect();
        world.client.chooser().built.clear();
        // Between two ticks, a circuit takes longer than the minute that it may.
        for exit in [11, 12] {
            world.relay(exit).manner = Manner::Slow;
        }
        world.connect("example.com", 80, None);
        world.wait(1);
        let built = &world.client.chooser_ref().built;
        let minute = std::time::Duration::from_secs(60);
        let late: Vec<_> = (built.iter())
            .filter_map(|news| match news {
                BuildNews::Built { took, in_time } if *took > minute => Some(*in_time),
                _ => None,
            })
            .collect();
        assert!(!late.is_empty());
        // Without an estimate there is no such timeout.
        assert!(late.iter().all(|in_time| *in_time != measure), "{late:?}");
        let timeout = BuildNews::TimedOut { first_hop: true };
        assert_eq!(built.contains(&timeout), measure);
        let circuits = world.list();
        let others = circuits.iter().filter(|one| !before.contains(&one.id));
        let open = others.filter(|one| one.status == CircuitStatus::Built);
        assert_eq!(open.count() == 0, measure);
        let measured = world.events.iter().any(|event| {
            matches!(event, ClientEvent::Circuit { reason: Some(end), .. }
                if end.reason == EndOfCircuit::MeasurementExpired)
        });
        assert_eq!(measured, measure);
    }
}

#[test]
fn a_circuit_waits_for_better_guards() {
    let mut world = World::new(1, 2, "accept 80,443");
    world.client.chooser().verdict = Some(GuardUse::Later);
    world.ready();
    let stream = world.connect("example.com", 80, None);
    world.wait(1);
    assert!(!world.connected.contains(&stream));
    let waits: Vec<_> = world
        .list()
        .iter()
        .filter(|circuit| circuit.status == CircuitStatus::GuardWait)
        .map(|circuit| circuit.id)
        .collect();
    assert!(!waits.is_empty());
    // The first path was ticket 1.
    world.client.chooser().settled = vec![(1, GuardUse::Now), (2, GuardUse::Never)];
    world.wait(1);
    assert!(world.connected.contains(&stream));
    let limit = world.events.iter().any(|event| {
        matches!(event, ClientEvent::Circuit { reason: Some(end), .. }
            if end.reason == EndOfCircuit::GuardLimit)
    });
    assert!(limit);
}

#[test]
fn a_used_circuit_takes_no_streams_after_ten_minutes_and_ends_with_its_last() {
    let mut world = World::new(1, 2, "accept 80,443");
    world.ready();
    let first = world.connect("example.com", 80, None);
    let circuit = world.attached[&first];
    world.wait(599);
    let second = world.connect("example.com", 80, None);
    assert_eq!(world.attached[&second], circuit);
    world.wait(2);
    let third = world.connect("example.com", 80, None);
    assert_ne!(world.attached[&third], circuit);
    assert!(world.list().iter().any(|info| info.id == circuit));
    for stream in [first, second] {
        world.attached.remove(&stream);
        world.event(weft_core::origin::OriginEvent::Ended {
            stream,
            circuit: Some(circuit),
            reason: weft_cell::reason::EndReason::DONE,
            addr: None,
            by: weft_core::origin::EndedBy::Exit,
            waiting: false,
            bytes: (0, 0),
        });
    }
    world.wait(1);
    assert!(!world.list().iter().any(|info| info.id == circuit));
}

#[test]
fn a_controller_makes_extends_and_closes_circuits() {
    let mut world = World::new(1, 2, "accept 80,443");
    world.ready();
    let names = [2, 3, 11].map(|number| RelayName::Rsa(rsa(number)));
    let now = world.now;
    let id = world
        .client
        .new_circuit(&names[..2], CircuitPurpose::Controller, now)
        .unwrap();
    world.run();
    world.client.extend_circuit(id, &names[2..], now).unwrap();
    world.run();
    let info = world.list().into_iter().find(|info| info.id == id).unwrap();
    assert_eq!(info.status, CircuitStatus::Built);
    assert_eq!(info.path.len(), 3);
    assert_eq!(info.path[2].0, rsa(11));
    // Nobody else's streams go there, and it is not closed for being idle.
    let stream = world.connect("example.com", 80, None);
    assert_ne!(world.attached[&stream], id);
    world.wait(2 * 3600);
    assert!(world.list().iter().any(|info| info.id == id));
    world.client.close(id, false, world.now).unwrap();
    world.run();
    assert!(!world.list().iter().any(|info| info.id == id));
    assert_eq!(
        world.client.close(id, false, world.now),
        Err(ControlError::NoCircuit(id.0))
    );
}

/// The time of the new hop runs from its EXTEND, not from the CREATE of the first; and it is not
/// measured as three hops.
#[test]
fn a_circuit_that_a_controller_extends_late_has_time_for_it() {
    for (purpose, answers) in [
        (CircuitPurpose::Controller, true),
        (CircuitPurpose::Controller, false),
        (CircuitPurpose::General, true),
        (CircuitPurpose::General, false),
    ] {
        let mut world = World::new(1, 2, "accept 80,443");
        world.client.chooser().measure = true;
        world.ready();
        let names = [2, 3, 11].map(|number| RelayName::Rsa(rsa(number)));
        let now = world.now;
        let id = world.client.new_circuit(&names[..2], purpose, now).unwrap();
        world.run();
        world.wait(300);
        let is_measure = |news: &&BuildNews| !matches!(news, BuildNews::Alive);
        let measures = |world: &World| {
            let built = world.client.chooser_ref().built.iter();
            built.filter(is_measure).count()
        };
        let counted = measures(&world);
        world.relay(11).manner = if answers {
            Manner::Good
        } else {
            Manner::Silent
        };
        let now = world.now;
        world.client.extend_circuit(id, &names[2..], now).unwrap();
        world.run();
        assert_eq!(measures(&world), counted);
        world.wait(30);
        let mut list = world.list().into_iter();
        let info = list.find(|info| info.id == id).unwrap();
        assert_eq!((info.purpose, info.built == 3), (purpose, answers));
        world.wait(120);
        let is_there = world.list().iter().any(|info| info.id == id);
        assert_eq!(is_there, answers);
        let late = |news: &BuildNews| matches!(news, BuildNews::TimedOut { .. });
        let built = &world.client.chooser_ref().built;
        assert!(!built.iter().any(late), "{built:?}");
    }
}

/// While a machine sleeps the monotonic clock stands still, by which circuits get too dirty.
#[test]
fn after_a_sleep_or_a_clock_that_was_set_new_streams_get_new_circuits() {
    let hour = std::time::Duration::from_secs(3600);
    for (forward, far, abandoned) in [
        (true, hour, true),
        (false, hour, true),
        (true, hour / 60, false),
        (false, hour / 60, false),
    ] {
        let mut world = World::new(1, 2, "accept 80,443");
        world.ready();
        world.wait(5);
        let first = world.connect("example.com", 80, None);
        let circuit = world.attached[&first];
        let before: Vec<_> = world.list().iter().map(|info| info.id).collect();
        assert!(before.len() > 1, "some are clean");
        match forward {
            true => world.now.wall += far,
            false => world.now.wall -= far,
        }
        world.wait(1);
        let second = world.connect("example.com", 80, None);
        assert_eq!(before.contains(&world.attached[&second]), !abandoned);
        assert_eq!(world.attached[&first], circuit, "it continues");
        world.wait(1);
        let left = world.list();
        let left = left.iter().filter(|info| before.contains(&info.id)).count();
        assert_eq!(left == 1, abandoned);
        // That was it.
        let third = world.connect("example.com", 80, None);
        assert_eq!(world.attached[&third], world.attached[&second]);
    }
}
