//! Tunnels of mTor: begun for streams that ask for them, joined leg by leg, mended and ended.

use std::collections::BTreeSet;
use std::time::Duration;

use weft_core::address::ConnectionId;
use weft_core::origin::{OriginEvent, OriginId, TunnelKind};

use super::world::{Exits, Links, Manner, World, rsa};
use crate::circuits::TunnelCounts;
use crate::events::{CircuitInfo, CircuitPurpose};
use crate::{ListenerConfig, MultipathEntry};

/// A network whose exits serve tunnels, and a listener whose connections get them.
fn world(seed: u64, exits: u8, circuits: usize) -> World {
    let mut world = World::new(seed, exits, "accept 80,443");
    let chooser = world.client.chooser();
    for hop in &mut chooser.relays {
        hop.supports_mtor = hop.is_exit;
    }
    let mut config = world.client.config().clone();
    config.multipath.circuits = circuits;
    config.multipath.middle_below = u32::MAX;
    config.listeners = vec![ListenerConfig {
        multipath: true,
        ..ListenerConfig::default()
    }];
    world.client.set_config(config, world.now);
    world
}

fn of(world: &World, purpose: CircuitPurpose) -> Vec<CircuitInfo> {
    let mut all = world.list();
    all.retain(|circuit| circuit.purpose == purpose);
    all
}

fn linked(world: &World) -> Vec<CircuitInfo> {
    of(world, CircuitPurpose::MtorLinked)
}

fn tunnel_of(world: &World, stream: ConnectionId) -> OriginId {
    let on = world.attached[&stream];
    assert!(world.tunnels.contains_key(&on), "{on} is no tunnel");
    on
}

fn slow(world: &mut World, leg: OriginId, tunnel: OriginId) {
    let circuit = leg;
    world.event(OriginEvent::LegSlow { circuit, tunnel });
}

#[test]
fn a_stream_of_such_a_port_gets_a_tunnel_whose_legs_join_one_another() {
    let mut world = world(1, 3, 3);
    world.ready();
    let stream = world.connect("example.com", 443, None);
    let tunnel = tunnel_of(&world, stream);
    let legs = linked(&world);
    assert_eq!(legs.len(), 3, "{legs:?}");
    let at = |place: usize| -> BTreeSet<_> { legs.iter().map(|leg| leg.path[place].0).collect() };
    assert_eq!((at(0).len(), at(2).len()), (3, 1));
    assert_eq!(world.tunnels[&tunnel].legs.len(), 3);
    // Controllers see legs, and on none of them the tunnel's secret.
    let shown = legs.iter().map(|leg| leg.conflux.unwrap());
    assert_eq!(shown.collect::<BTreeSet<_>>().len(), 1);
    assert!(world.list().iter().all(|circuit| circuit.id != tunnel));
    let counts = world.client.tunnel_counts();
    let expected = TunnelCounts {
        begun: 1,
        ready: 1,
        legs: 3,
        ..TunnelCounts::default()
    };
    assert_eq!(counts, expected);
    // Its legs say nothing about how long other circuits take.
    assert!(world.client.chooser_ref().built.iter().all(|news| {
        !matches!(
            news,
            crate::BuildNews::Built { .. } | crate::BuildNews::RoundTrip { .. }
        )
    }));
}

#[test]
fn a_second_stream_shares_the_tunnel_and_one_with_another_name_does_not() {
    let mut world = world(2, 3, 2);
    world.ready();
    let first = world.connect("example.com", 443, Some("a"));
    let second = world.connect("example.org", 443, Some("a"));
    let other = world.connect("example.com", 443, Some("b"));
    assert_eq!(tunnel_of(&world, first), tunnel_of(&world, second));
    assert_ne!(tunnel_of(&world, first), tunnel_of(&world, other));
}

#[test]
fn streams_wait_for_a_tunnel_that_is_being_built_unless_they_must_be_kept_apart() {
    let mut world = world(3, 3, 2);
    world.held = Some(Vec::new());
    world.ready();
    let first = world.connect("example.com", 443, Some("a"));
    let second = world.connect("example.org", 443, Some("a"));
    let other = world.connect("example.com", 443, Some("b"));
    assert!(world.attached.is_empty());
    assert_eq!(world.client.tunnel_counts().begun, 2);
    world.let_links_go();
    assert_eq!(tunnel_of(&world, first), tunnel_of(&world, second));
    assert_ne!(tunnel_of(&world, first), tunnel_of(&world, other));
    assert_eq!(linked(&world).len(), 4);
}

#[test]
fn conflux_sets_to_such_an_exit_are_joined_so_that_a_lost_leg_costs_nothing() {
    let mut world = world(15, 2, 3);
    let chooser = world.client.chooser();
    chooser.congestion = Some(31);
    chooser.conflux = Some(crate::ConfluxParams {
        max_prebuilt_set: 1,
        ..crate::ConfluxParams::default()
    });
    let mut config = world.client.config().clone();
    config.listeners = Vec::new();
    world.client.set_config(config, world.now);
    world.held = Some(Vec::new());
    world.ready();
    world.wait(1);
    // The second leg waits for the answer of the first, which closes before.
    let first = {
        let (_, tunnel) = world.tunnels.first_key_value().unwrap();
        assert!(matches!(tunnel.kind, TunnelKind::Mtor { .. }));
        assert_eq!(tunnel.legs.len(), 1);
        tunnel.legs[0]
    };
    world.held = None;
    world.destroy(first);
    world.wait(1);
    let legs = of(&world, CircuitPurpose::ConfluxLinked);
    assert_eq!(legs.len(), 2);
    let stream = world.connect("example.com", 443, None);
    let tunnel = tunnel_of(&world, stream);
    // By conflux's rules slow legs are kept, and lost ones are not replaced.
    slow(&mut world, legs[0].id, tunnel);
    assert!(world.dropped.is_empty());
    world.destroy(legs[0].id);
    world.wait(1);
    assert_eq!(tunnel_of(&world, stream), tunnel);
    let mut left = of(&world, CircuitPurpose::ConfluxLinked);
    left.retain(|leg| leg.conflux == legs[0].conflux);
    assert_eq!(left.len(), 1);
    assert_eq!(world.client.tunnel_counts(), TunnelCounts::default());
}

#[test]
fn a_tunnel_is_there_before_the_first_stream_and_none_where_no_port_has_them() {
    let mut world = world(14, 2, 3);
    world.ready();
    world.wait(2);
    let counts = world.client.tunnel_counts();
    assert_eq!((counts.begun, counts.ready, counts.legs), (1, 1, 3));
    let stream = world.connect("example.com", 443, None);
    let _ = tunnel_of(&world, stream);
    assert_eq!(world.client.tunnel_counts().begun, 1);

    let mut world = self::world(14, 2, 3);
    let mut config = world.client.config().clone();
    config.listeners = Vec::new();
    world.client.set_config(config, world.now);
    world.ready();
    world.wait(2);
    assert_eq!(world.client.tunnel_counts(), TunnelCounts::default());
}

#[test]
fn other_streams_never_get_a_tunnel() {
    let mut world = world(4, 3, 3);
    let mut config = world.client.config().clone();
    config.listeners = Vec::new();
    config.multipath.users = vec!["bulk".to_owned()];
    world.client.set_config(config, world.now);
    world.ready();
    let bulk = world.connect("example.com", 443, Some("bulk"));
    let page = world.connect("example.com", 443, Some("page"));
    let plain = world.connect("example.com", 443, None);
    let _ = tunnel_of(&world, bulk);
    for stream in [page, plain] {
        assert!(!world.tunnels.contains_key(&world.attached[&stream]));
    }
    assert_eq!(world.client.tunnel_counts().without, 0);
}

#[test]
fn where_no_exit_serves_them_streams_get_a_circuit_and_there_is_one_notice() {
    let mut world = world(5, 3, 3);
    for hop in &mut world.client.chooser().relays {
        hop.supports_mtor = false;
    }
    world.ready();
    for _ in 0..3 {
        let stream = world.connect("example.com", 443, None);
        assert!(!world.tunnels.contains_key(&world.attached[&stream]));
        world.wait(11);
    }
    assert_eq!(world.client.tunnel_counts().without, 3);
    let lines = world.outputs.iter().filter(|output| match output {
        crate::Output::Log(line) => format!("{line:?}").contains("WeftMtor=1"),
        _ => false,
    });
    assert_eq!(lines.count(), 1);
}

#[test]
fn with_a_common_entry_all_legs_have_one_guard() {
    let mut world = world(6, 2, 4);
    let mut config = world.client.config().clone();
    config.multipath.entry = MultipathEntry::Common;
    world.client.set_config(config, world.now);
    world.ready();
    world.connect("example.com", 443, None);
    let legs = linked(&world);
    assert_eq!(legs.len(), 4);
    let guards: BTreeSet<_> = legs.iter().map(|leg| leg.path[0].0).collect();
    assert_eq!(guards.len(), 1);
}

#[test]
fn a_slow_leg_is_dropped_for_another_one_at_a_time_and_six_in_a_minute() {
    let mut world = world(7, 2, 3);
    world.ready();
    let stream = world.connect("example.com", 443, None);
    let tunnel = tunnel_of(&world, stream);
    let before = world.tunnels[&tunnel].legs.clone();
    slow(&mut world, before[0], tunnel);
    assert_eq!(world.dropped, [before[0]]);
    // The replacement has joined, and the slow leg closes when it is drained.
    assert_eq!(world.tunnels[&tunnel].legs.len(), 4);
    world.destroy(before[0]);
    assert_eq!(linked(&world).len(), 3);
    for _ in 0..5 {
        let leg = *linked(&world)
            .iter()
            .map(|leg| leg.id)
            .collect::<Vec<_>>()
            .first()
            .unwrap();
        slow(&mut world, leg, tunnel);
        world.destroy(leg);
    }
    assert_eq!(world.client.tunnel_counts().replaced, 6);
    assert_eq!(world.dropped.len(), 6);
    // The seventh is kept until a minute has passed.
    let leg = linked(&world)[0].id;
    slow(&mut world, leg, tunnel);
    assert_eq!(world.dropped.len(), 6);
    world.wait(61);
    assert_eq!(world.dropped.len(), 7);
    assert_eq!(world.client.tunnel_counts().slow, 7);
    assert_eq!(tunnel_of(&world, stream), tunnel);
}

#[test]
fn the_only_leg_stays_until_another_carries() {
    let mut world = world(8, 2, 1);
    world.ready();
    let stream = world.connect("example.com", 443, None);
    let tunnel = tunnel_of(&world, stream);
    let only = linked(&world)[0].id;
    world.held = Some(Vec::new());
    slow(&mut world, only, tunnel);
    assert!(world.dropped.is_empty());
    world.let_links_go();
    assert_eq!(world.dropped, [only]);
}

#[test]
fn the_exit_of_a_tunnel_has_nearly_as_long_as_an_application_waits() {
    let mut world = world(9, 2, 2);
    for exit in [11, 12] {
        world.relay(exit).exits = Exits::Silent;
    }
    world.ready();
    let stream = world.connect("example.com", 443, None);
    let tunnel = tunnel_of(&world, stream);
    world.wait(99);
    assert_eq!(tunnel_of(&world, stream), tunnel);
    // Another circuit has the last twenty seconds.
    world.wait(2);
    assert_ne!(world.attached.get(&stream), Some(&tunnel));
}

#[test]
fn a_leg_that_closes_is_replaced_and_streams_stay() {
    let mut world = world(10, 2, 3);
    world.ready();
    let stream = world.connect("example.com", 443, None);
    let tunnel = tunnel_of(&world, stream);
    let leg = linked(&world)[1].id;
    world.destroy(leg);
    assert_eq!(linked(&world).len(), 3);
    assert_eq!(tunnel_of(&world, stream), tunnel);
    let counts = world.client.tunnel_counts();
    assert_eq!((counts.lost, counts.replaced), (1, 1));
}

#[test]
fn the_first_leg_may_fail_before_it_is_linked() {
    let mut world = world(11, 2, 3);
    world.held = Some(Vec::new());
    world.ready();
    let stream = world.connect("example.com", 443, None);
    let (tunnel, first) = {
        let (id, tunnel) = world.tunnels.first_key_value().unwrap();
        (*id, tunnel.legs[0])
    };
    world.held = None;
    world.destroy(first);
    assert_eq!(tunnel_of(&world, stream), tunnel);
    assert_eq!(linked(&world).len(), 3);
    assert!(linked(&world).iter().all(|leg| leg.id != first));
}

#[test]
fn an_exit_that_joins_nothing_is_given_up_and_streams_get_a_circuit() {
    let mut world = world(12, 1, 3);
    world.relay(11).links = Links::Refuses;
    world.ready();
    let stream = world.connect("example.com", 443, None);
    assert!(world.tunnels.is_empty());
    assert!(!world.tunnels.contains_key(&world.attached[&stream]));
    let counts = world.client.tunnel_counts();
    assert_eq!((counts.legs, counts.without), (6, 1));
    // For one that is silent streams wait a while.
    world.relay(11).links = Links::Silent;
    world.wait(11);
    let stream = world.connect("example.com", 80, Some("other"));
    assert!(!world.attached.contains_key(&stream));
    world.wait(99);
    assert!(!world.attached.contains_key(&stream));
    world.wait(1);
    assert!(!world.tunnels.contains_key(&world.attached[&stream]));
}

#[test]
fn an_exit_that_has_forgotten_a_tunnel_gets_no_more_streams_over_the_leg_that_is_left() {
    for connected in [false, true] {
        let mut world = world(17, 2, 3);
        world.ready();
        let first = world.connect("example.com", 443, None);
        let (tunnel, exit) = (tunnel_of(&world, first), world.exit_of(first));
        let number = [11, 12].into_iter().find(|one| rsa(*one) == exit).unwrap();
        if !connected {
            world.relay(number).exits = Exits::Silent;
        }
        let waits = world.connect("example.com", 443, None);
        assert_eq!(tunnel_of(&world, waits), tunnel);
        if !connected {
            let done = weft_cell::reason::EndReason::DONE;
            world.client.close_stream(first, done, world.now).unwrap();
            world.run();
        }
        // The exit was restarted, and a relay has not passed on that one leg has closed.
        world.relay(number).links = Links::Refuses;
        let legs = linked(&world);
        world.destroy(legs[1].id);
        world.destroy(legs[2].id);
        assert_eq!(tunnel_of(&world, waits) == tunnel, connected);
        let next = world.connect("example.com", 443, None);
        assert_ne!(tunnel_of(&world, next), tunnel);
        assert_ne!(world.exit_of(next), exit);
        assert_eq!(world.tunnels.contains_key(&tunnel), connected);
    }
}

#[test]
fn tunnels_end_when_they_are_quiet_or_dirty_and_by_newnym() {
    let mut world = world(13, 2, 2);
    world.ready();
    let stream = world.connect("example.com", 443, None);
    let tunnel = tunnel_of(&world, stream);
    world.wait(700);
    // Its stream keeps it, and another was built ahead.
    assert!(world.tunnels.contains_key(&tunnel));
    let later = world.connect("example.com", 443, None);
    assert_ne!(tunnel_of(&world, later), tunnel);
    for one in [stream, later] {
        world.attached.remove(&one);
        world.event(OriginEvent::Ended {
            stream: one,
            circuit: None,
            reason: weft_cell::reason::EndReason::DONE,
            addr: None,
            by: weft_core::origin::EndedBy::Application,
            waiting: false,
            bytes: (0, 0),
        });
    }
    world.wait(2);
    assert!(!world.tunnels.contains_key(&tunnel));
    world.wait(602);
    let now = world.now;
    world.client.new_identity(now);
    world.run();
    world.wait(2);
    let last = world.connect("example.com", 443, None);
    let _ = tunnel_of(&world, last);
}

#[test]
fn a_guard_that_is_down_costs_a_leg_and_no_stream() {
    let mut world = world(14, 2, 2);
    world.relay(1).manner = Manner::Unreachable;
    world.ready();
    let stream = world.connect("example.com", 443, None);
    let _ = tunnel_of(&world, stream);
    assert_eq!(linked(&world).len(), 2);
    let by_down = |leg: &CircuitInfo| leg.path[0].0 == rsa(1);
    assert!(!linked(&world).iter().any(by_down));
    assert_eq!(
        linked(&world)[0].round_trip,
        Some(Duration::from_millis(100))
    );
}
