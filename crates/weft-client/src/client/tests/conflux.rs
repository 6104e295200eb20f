//! Conflux sets: built ahead, linked, used, replaced and ended.

use std::collections::BTreeSet;
use std::time::Duration;

use weft_core::address::ConnectionId;
use weft_core::origin::traffic::CircuitReport;
use weft_core::origin::{AppOpening, DesiredUx, OriginEvent, OriginId};
use weft_path::{CircuitSelection, Outcome};

use super::world::{Links, Manner, World, rsa};
use crate::chooser::BuildNews;
use crate::events::{CircuitInfo, CircuitPurpose, CircuitStatus, ClientEvent};
use crate::{ConfluxParams, ControlError};

/// A network whose exits have conflux, with one set ahead.
fn world(seed: u64, exits: u8) -> World {
    let mut world = World::new(seed, exits, "accept 80,443");
    let chooser = world.client.chooser();
    chooser.congestion = Some(31);
    chooser.conflux = Some(ConfluxParams {
        max_prebuilt_set: 1,
        ..ConfluxParams::default()
    });
    world
}

fn legs(world: &World, purpose: CircuitPurpose) -> Vec<CircuitInfo> {
    let mut all = world.list();
    all.retain(|circuit| circuit.purpose == purpose);
    all
}

fn linked(world: &World) -> Vec<CircuitInfo> {
    legs(world, CircuitPurpose::ConfluxLinked)
}

/// The set that a stream is on.
fn set_of(world: &World, stream: ConnectionId) -> OriginId {
    let on = world.attached[&stream];
    assert!(world.tunnels.contains_key(&on), "{on} is no set");
    on
}

fn is_on_set(world: &World, stream: ConnectionId) -> bool {
    world.tunnels.contains_key(&world.attached[&stream])
}

#[test]
fn two_legs_have_guards_and_middles_of_their_own_and_one_exit() {
    let mut world = world(1, 3);
    world.ready();
    world.wait(1);
    let legs = linked(&world);
    assert_eq!(legs.len(), 2, "{legs:?}");
    let at = |place: usize| -> BTreeSet<_> { legs.iter().map(|leg| leg.path[place].0).collect() };
    assert_eq!((at(0).len(), at(1).len(), at(2).len()), (2, 2, 1));
    assert_eq!(world.tunnels.len(), 1);
    let (set, tunnel) = world.tunnels.first_key_value().unwrap();
    let (nonce, ux) = tunnel.conflux();
    assert_eq!(ux, DesiredUx::HighThroughput);
    for leg in &legs {
        assert_eq!(leg.conflux.unwrap(), nonce[..16]);
        assert_eq!(leg.round_trip, Some(Duration::from_millis(100)));
        assert!(leg.status == CircuitStatus::Built && leg.id != *set);
        assert!(leg.need_uptime && leg.need_capacity);
    }
    let changes: Vec<_> = world
        .events
        .iter()
        .filter_map(|event| match event {
            ClientEvent::Purpose { circuit, was } => Some((circuit.purpose, *was)),
            _ => None,
        })
        .collect();
    let change = (
        CircuitPurpose::ConfluxLinked,
        CircuitPurpose::ConfluxUnlinked,
    );
    assert_eq!(changes, [change; 2]);
    // Both count for build times.
    let built = &world.client.chooser_ref().built;
    let counted = built
        .iter()
        .filter(|news| matches!(news, BuildNews::Built { .. }));
    assert_eq!(counted.count(), world.list().len());
}

#[test]
fn the_set_as_a_whole_is_in_no_list_and_no_event() {
    let mut world = world(1, 3);
    world.ready();
    world.wait(1);
    let stream = world.connect("example.com", 443, None);
    let set = set_of(&world, stream);
    world.event(OriginEvent::Traffic {
        streams: Vec::new(),
        circuits: vec![CircuitReport {
            circuit: set,
            traffic: weft_core::origin::traffic::CircuitTraffic::default(),
            congestion: None,
        }],
    });
    let shown = |event: &ClientEvent| match event {
        ClientEvent::Circuit { circuit, .. } | ClientEvent::Purpose { circuit, .. } => {
            circuit.id == set
        }
        ClientEvent::Stream { stream, .. } => stream.circuit == Some(set),
        ClientEvent::CircuitBytes(reports) => reports.iter().any(|one| one.circuit == set),
        _ => false,
    };
    assert!(!world.events.iter().any(shown));
    assert!(world.list().iter().all(|circuit| circuit.id != set));
    let of = world.client.streams().next().unwrap().circuit.unwrap();
    let leg = linked(&world)[0].clone();
    assert_eq!(of, leg.id);
    // The legs show that their streams used them.
    assert!(
        linked(&world)
            .iter()
            .all(|leg| leg.uses == 1 && leg.used_by.is_some())
    );
    let now = world.now;
    let client = &mut world.client;
    assert_eq!(
        client.close(set, false, now),
        Err(ControlError::NoCircuit(set.0))
    );
    assert_eq!(
        client.extend_circuit(leg.id, &[weft_path::RelayName::Rsa(rsa(1))], now),
        Err(ControlError::Conflux)
    );
    assert_eq!(
        client.set_purpose(leg.id, CircuitPurpose::Controller, now),
        Err(ControlError::Conflux)
    );
    client.close(leg.id, true, now).unwrap();
    world.run();
    assert!(world.attached.contains_key(&stream), "it is used");
}

#[test]
fn a_stream_uses_a_set_when_all_legs_are_linked_and_not_before() {
    let mut world = world(1, 3);
    world.held = Some(Vec::new());
    world.ready();
    world.wait(1);
    assert_eq!(legs(&world, CircuitPurpose::ConfluxUnlinked).len(), 2);
    let early = world.connect("example.com", 443, None);
    assert!(!is_on_set(&world, early));
    let first = world.held.as_mut().unwrap().remove(0);
    world.event(first);
    let half = world.connect("example.com", 443, None);
    assert!(!is_on_set(&world, half));
    world.let_links_go();
    let late = world.connect("example.com", 443, None);
    set_of(&world, late);
    assert!(world.connected.contains(&late));
    // Its guards count, as those of circuits do.
    let used = |outcome| {
        let outcomes = world.client.chooser_ref().outcomes.iter();
        outcomes.filter(|(_, one)| *one == outcome).count()
    };
    assert_eq!((used(Outcome::Used), used(Outcome::UseSucceeded)), (4, 4));
}

#[test]
fn a_waiting_stream_gets_the_set_when_it_is_there() {
    let mut world = world(1, 1);
    world.held = Some(Vec::new());
    let mut config = world.client.config().clone();
    // No circuit is built besides.
    config.max_pending = 0;
    world.client.set_config(config, world.now);
    world.ready();
    world.wait(1);
    let stream = world.connect("example.com", 443, None);
    assert!(!world.attached.contains_key(&stream));
    world.let_links_go();
    set_of(&world, stream);
    assert!(world.connected.contains(&stream));
}

#[test]
fn sets_are_kept_apart_as_circuits_are_and_plain_circuits_serve_the_rest() {
    let mut world = world(1, 3);
    world.ready();
    world.wait(1);
    let alice = world.connect("example.com", 443, Some("alice"));
    set_of(&world, alice);
    let bob = world.connect("example.com", 443, Some("bob"));
    assert!(!is_on_set(&world, bob), "the one that was ready is used");
    // The next is there a moment later.
    world.wait(2);
    let carol = world.connect("example.com", 443, Some("carol"));
    assert_ne!(set_of(&world, carol), set_of(&world, alice));
    let again = world.connect("example.com", 443, Some("alice"));
    assert_eq!(world.attached[&again], world.attached[&alice]);
    // A lookup is one of the streams that sets carry.
    let name = "example.com".to_owned();
    let lookup = world.ask(AppOpening::Resolve { name }, Some("alice"));
    assert!(world.openings.iter().any(|(stream, _)| *stream == lookup));
}

#[test]
fn sets_are_built_ahead_as_many_as_the_consensus_has() {
    let mut world = world(1, 3);
    world.client.chooser().conflux = Some(ConfluxParams {
        max_linked_set: 4,
        ..ConfluxParams::default()
    });
    world.ready();
    world.wait(3);
    assert_eq!(world.tunnels.len(), 3);
    // Where sets serve, no circuit is built ahead.
    world.wait(60);
    world.client.new_identity(world.now);
    world.run();
    world.wait(5);
    assert_eq!((world.tunnels.len(), linked(&world).len()), (3, 6));
    let all = world.client.chooser_ref().conflux.unwrap();
    world.client.chooser().conflux = Some(ConfluxParams {
        max_linked_set: 3,
        max_prebuilt_set: 9,
        ..all
    });
    world.wait(5);
    assert_eq!(world.tunnels.len(), 3);
}

#[test]
fn the_number_of_legs_is_the_consensus_own() {
    let mut world = world(1, 3);
    for number in 5..=6 {
        world.add(number, "reject 1-65535", true);
    }
    world.client.chooser().conflux = Some(ConfluxParams {
        num_legs_set: 3,
        max_prebuilt_set: 1,
        ..ConfluxParams::default()
    });
    world.ready();
    world.wait(1);
    let legs = linked(&world);
    let guards: BTreeSet<_> = legs.iter().map(|leg| leg.path[0].0).collect();
    let middles: BTreeSet<_> = legs.iter().map(|leg| leg.path[1].0).collect();
    assert_eq!((legs.len(), guards.len(), middles.len()), (3, 3, 3));
}

#[test]
fn a_leg_that_fails_is_launched_again_with_the_same_nonce() {
    let mut world = world(1, 1);
    world.held = Some(Vec::new());
    world.ready();
    world.wait(1);
    let before: Vec<_> = legs(&world, CircuitPurpose::ConfluxUnlinked);
    let lost = before[0].id;
    world.destroy(lost);
    world.let_links_go();
    let after = linked(&world);
    assert_eq!(after.len(), 2);
    assert!(
        after
            .iter()
            .all(|leg| leg.id != lost && leg.conflux == before[0].conflux)
    );
    let guards: BTreeSet<_> = after.iter().map(|leg| leg.path[0].0).collect();
    assert_eq!(guards.len(), 2);
}

#[test]
fn an_exit_that_refuses_to_link_is_not_asked_for_ever() {
    let mut world = world(1, 1);
    world.relay(11).links = Links::Refuses;
    world.ready();
    world.wait(1);
    let count = |world: &World| {
        let launched = world.events.iter().filter(|event| {
            matches!(event, ClientEvent::Circuit { circuit, .. }
                if circuit.status == CircuitStatus::Launched && circuit.conflux.is_some())
        });
        launched.count()
    };
    assert!(count(&world) <= 5, "{}", count(&world));
    assert!(world.client.sets.is_empty());
    let stream = world.connect("example.com", 443, None);
    assert!(world.connected.contains(&stream), "circuits serve it");
    world.wait(60);
    assert!(count(&world) <= 40, "{}", count(&world));
    // When it links at last, there is a set.
    world.relay(11).links = Links::In(Duration::from_millis(1));
    world.wait(11);
    assert_eq!(linked(&world).len(), 2);
}

#[test]
fn an_exit_that_does_not_answer_link_is_left() {
    let mut world = world(1, 1);
    world.relay(11).links = Links::Silent;
    world.ready();
    world.wait(5);
    assert_eq!(legs(&world, CircuitPurpose::ConfluxUnlinked).len(), 2);
    let before: Vec<_> = world.list().iter().map(|circuit| circuit.id).collect();
    world.relay(11).links = Links::In(Duration::from_millis(1));
    world.wait(130);
    let legs = linked(&world);
    assert!(legs.len() == 2 && legs.iter().all(|leg| !before.contains(&leg.id)));
}

#[test]
fn a_slow_leg_is_replaced_and_the_retries_are_bounded() {
    let mut world = world(1, 1);
    world.relay(11).links = Links::In(Duration::from_secs(60));
    world.ready();
    world.wait(1);
    assert!(linked(&world).is_empty() && world.client.sets.is_empty());
    assert!(world.launches <= 2 + 5, "{}", world.launches);
    world.relay(11).links = Links::In(Duration::from_secs(59));
    world.wait(10);
    assert_eq!(linked(&world).len(), 2);
}

#[test]
fn links_are_round_trips_where_circuits_are_accepted_by_them() {
    let mut world = world(1, 1);
    world.client.chooser().probe = true;
    world.client.chooser().round_trip = Some(Duration::from_millis(200));
    world.relay(11).links = Links::In(Duration::from_millis(201));
    world.ready();
    world.wait(1);
    assert!(linked(&world).is_empty());
    assert!(world.client.probes().slow >= 2);
    // Legs are not probed besides.
    let legs: Vec<_> = (world.events.iter())
        .filter_map(|event| match event {
            ClientEvent::Circuit { circuit, .. } => circuit.conflux.map(|_| circuit.id),
            _ => None,
        })
        .collect();
    assert!(world.probes.iter().all(|probed| !legs.contains(probed)));
    world.relay(11).links = Links::In(Duration::from_millis(200));
    world.wait(11);
    assert_eq!(linked(&world).len(), 2);
    let took = Duration::from_millis(200);
    let built = &world.client.chooser_ref().built;
    assert!(built.contains(&BuildNews::RoundTrip { took }));
}

#[test]
fn a_leg_that_is_built_too_slowly_leaves_its_set() {
    let mut world = world(1, 1);
    world.client.chooser().measure = true;
    world.client.chooser().timeout = Some(Duration::from_secs(10));
    world.ready();
    world.relay(2).manner = Manner::Silent;
    world.wait(2);
    let slow = legs(&world, CircuitPurpose::ConfluxUnlinked);
    assert!(!slow.is_empty());
    world.relay(2).manner = Manner::Good;
    world.wait(11);
    let measured = legs(&world, CircuitPurpose::Measure);
    assert!(!measured.is_empty() && measured.iter().all(|leg| leg.conflux.is_none()));
    assert_eq!(linked(&world).len(), 2);
}

#[test]
fn streams_of_a_set_that_ends_are_tried_elsewhere() {
    let mut world = world(1, 3);
    world.ready();
    world.wait(1);
    let open = world.connect("example.com", 443, None);
    let set = set_of(&world, open);
    let exit = world.exit_of(open);
    world.relays.get_mut(&exit).unwrap().exits = super::world::Exits::Silent;
    let asked = world.connect("example.org", 443, None);
    assert_eq!(set_of(&world, asked), set);
    world.relays.get_mut(&exit).unwrap().exits = super::world::Exits::Connects;
    world.destroy_tunnel(set);
    assert!(world.connected.contains(&asked));
    assert_ne!(world.attached[&asked], set);
    assert!(!world.attached.contains_key(&open));
    assert!(world.client.streams().all(|stream| stream.id != open));
    // Another set takes its place.
    world.wait(2);
    assert_eq!((world.client.sets.len(), linked(&world).len()), (1, 2));
}

#[test]
fn a_set_goes_on_with_the_legs_that_it_has() {
    let mut world = world(1, 3);
    world.ready();
    world.wait(1);
    let stream = world.connect("example.com", 443, None);
    let set = set_of(&world, stream);
    // As the connection threads see it: nothing was under way on this leg.
    let leg = world.tunnels.get_mut(&set).unwrap().legs.remove(0);
    world.destroy(leg);
    let other = world.connect("example.com", 443, None);
    assert_eq!(world.attached[&other], set);
    let rest = world.tunnels[&set].legs[0];
    assert_eq!(world.client.streams().next().unwrap().circuit, Some(rest));
    // The last leg is the set's end.
    world.destroy(rest);
    world.wait(1);
    assert!(!world.client.sets.contains_key(&set));
}

#[test]
fn newnym_leaves_sets_and_a_set_in_use_ends_with_its_streams() {
    let mut world = world(1, 3);
    world.ready();
    world.wait(1);
    let stream = world.connect("example.com", 443, None);
    let set = set_of(&world, stream);
    world.client.new_identity(world.now);
    world.run();
    world.wait(2);
    let other = world.connect("example.com", 443, None);
    assert_ne!(set_of(&world, other), set);
    assert!(world.tunnels.contains_key(&set), "its stream goes on");
    world
        .client
        .close_stream(stream, weft_cell::reason::EndReason::DONE, world.now)
        .unwrap();
    world.run();
    world.wait(1);
    assert!(!world.tunnels.contains_key(&set));
    // The one that `other` is on, and the next.
    assert_eq!(linked(&world).len(), 4);
}

#[test]
fn a_dirty_set_expires_as_a_circuit_does() {
    let mut world = world(1, 3);
    world.ready();
    world.wait(1);
    let stream = world.connect("example.com", 443, None);
    let set = set_of(&world, stream);
    world.wait(599);
    assert!(world.client.sets.contains_key(&set));
    let later = world.connect("example.com", 443, None);
    assert_eq!(world.attached[&later], set);
    world.wait(2);
    // It takes no more streams; another is ready; it stays for those that it has.
    let other = world.connect("example.com", 443, None);
    assert_ne!(set_of(&world, other), set);
    assert!(world.tunnels.contains_key(&set));
    for stream in [stream, later] {
        world
            .client
            .close_stream(stream, weft_cell::reason::EndReason::DONE, world.now)
            .unwrap();
    }
    world.run();
    world.wait(1);
    assert!(!world.client.sets.contains_key(&set) && !world.tunnels.contains_key(&set));
}

#[test]
fn unused_sets_end_when_nothing_is_expected_any_more() {
    let mut world = world(1, 3);
    world.ready();
    world.wait(2 * 3600);
    assert!(world.list().is_empty() && world.tunnels.is_empty() && world.client.sets.is_empty());
}

#[test]
fn no_set_is_built_without_exits_congestion_control_or_a_second_guard() {
    let mut bare = world(1, 3);
    bare.client.chooser().congestion = None;
    let mut old = world(1, 3);
    old.client.chooser().conflux = None;
    let mut one_guard = world(1, 3);
    for number in [2, 3, 4] {
        one_guard.client.chooser().down.insert(rsa(number));
    }
    let mut off = world(1, 3);
    let mut config = off.client.config().clone();
    config.conflux = Some(false);
    off.client.set_config(config, off.now);
    let mut by_consensus = world(1, 3);
    let params = by_consensus.client.chooser_ref().conflux.unwrap();
    by_consensus.client.chooser().conflux = Some(ConfluxParams {
        enabled: false,
        ..params
    });
    let mut by_weight = world(1, 3);
    let mut config = by_weight.client.config().clone();
    config.selection = CircuitSelection::Abra;
    by_weight.client.set_config(config, by_weight.now);
    for mut world in [bare, old, one_guard, off, by_consensus, by_weight] {
        world.ready();
        world.wait(30);
        assert!(world.client.sets.is_empty() && world.tunnels.is_empty());
        assert!(world.list().iter().all(|circuit| circuit.conflux.is_none()));
        let stream = world.connect("example.com", 443, None);
        assert!(world.connected.contains(&stream));
    }
}

#[test]
fn torrc_turns_sets_on_and_off_and_says_what_they_aim_at() {
    let mut world = world(1, 3);
    let params = world.client.chooser_ref().conflux.unwrap();
    world.client.chooser().conflux = Some(ConfluxParams {
        enabled: false,
        ..params
    });
    let mut config = world.client.config().clone();
    config.conflux = Some(true);
    config.conflux_ux = DesiredUx::LowMemLatency;
    world.client.set_config(config.clone(), world.now);
    world.ready();
    world.wait(1);
    let tunnel = world.tunnels.values().next().unwrap();
    assert_eq!(tunnel.conflux().1, DesiredUx::LowMemLatency);
    config.conflux = Some(false);
    world.client.set_config(config, world.now);
    world.run();
    world.wait(1);
    assert!(world.tunnels.is_empty() && linked(&world).is_empty());
    let stream = world.connect("example.com", 443, None);
    assert!(!is_on_set(&world, stream));
}

#[test]
fn exits_by_name_and_directories_are_reached_by_circuits() {
    let mut world = world(1, 1);
    let mut config = world.client.config().clone();
    config.track_hosts = vec!["tracked.example".to_owned()];
    world.client.set_config(config, world.now);
    world.ready();
    world.wait(1);
    // A destination that is kept to an exit may use a set that leads there.
    for _ in 0..2 {
        let kept = world.connect("tracked.example", 443, None);
        set_of(&world, kept);
    }
    let to = "example.com.relay11.exit";
    world.client.map_address("named.example", to).unwrap();
    let named = world.connect("named.example", 443, None);
    assert!(!is_on_set(&world, named));
    assert_eq!(world.exit_of(named), rsa(11));
    let now = world.now;
    let id = world
        .client
        .open_directory(&crate::DirectoryTarget::Guard, now);
    let id = id.unwrap();
    world.client.serve_now(now);
    world.run();
    assert!(!is_on_set(&world, id));
}

#[test]
fn answers_that_nobody_waits_for_change_nothing() {
    let mut world = world(1, 3);
    world.ready();
    world.wait(1);
    let leg = linked(&world)[0].id;
    let set = *world.tunnels.first_key_value().unwrap().0;
    let took = Duration::from_secs(600);
    let general = legs(&world, CircuitPurpose::General)[0].id;
    for (circuit, tunnel) in [
        (leg, set),
        (leg, general),
        (general, set),
        (set, set),
        (OriginId(999), OriginId(998)),
    ] {
        world.event(OriginEvent::Linked {
            circuit,
            tunnel,
            took,
        });
    }
    assert_eq!(linked(&world).len(), 2);
    assert_eq!(
        linked(&world)[0].round_trip,
        Some(Duration::from_millis(100))
    );
}

#[test]
fn parameters_decide_how_many_sets_are_built_ahead() {
    let params = ConfluxParams::default();
    let ahead = |share| {
        params
            .with_exits(share)
            .map(|params| params.max_prebuilt_set)
    };
    assert_eq!(
        [ahead(0.0), ahead(0.01), ahead(0.59), ahead(0.6), ahead(1.0)],
        [None, Some(1), Some(1), Some(3), Some(3)]
    );
    let legs = |num_legs_set| {
        let params = ConfluxParams {
            num_legs_set,
            ..params
        };
        params.with_exits(1.0).map(|params| params.num_legs_set)
    };
    assert_eq!([legs(0), legs(1), legs(255)], [None, Some(1), Some(16)]);
}
