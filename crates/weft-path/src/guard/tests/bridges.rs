//! Bridges as guards: their separate sample.

use super::super::*;
use super::world::World;
use crate::bridges::{Bridge, StatedFamily};
use crate::options::PathOptions;
use crate::path::Hop;
use crate::relays::Relays;
use crate::testing::{TestNet, ed25519, id_of, rsa};

fn bridge(id: u16, described: bool) -> Bridge {
    let addr = format!("192.0.2.{id}:443").parse().unwrap();
    let ids = (rsa(id), ed25519(id));
    let hop = || {
        Hop::of_bridge(
            addr,
            format!("bridge{id}"),
            ids,
            [1; 32],
            &Default::default(),
        )
    };
    Bridge {
        addr,
        rsa: Some(rsa(id)),
        hop: described.then(hop),
        family: StatedFamily::default(),
    }
}

fn options() -> PathOptions {
    PathOptions {
        use_bridges: true,
        ..PathOptions::default()
    }
}

/// A client of these bridges, without a consensus.
fn world(bridges: &[Bridge], lines: &[&str]) -> World {
    let mut world = World::with(TestNet::alike(1), options(), lines);
    set(&mut world, bridges);
    world
}

fn set(world: &mut World, bridges: &[Bridge]) {
    world.relays = Relays::with_bridges(None, bridges);
    world.update();
}

#[test]
fn guards_are_bridges_whatever_the_consensus_has() {
    let mut world = World::with(TestNet::alike(30), options(), &[]);
    let consensus = world.relays.clone();
    world.relays = Relays::with_bridges(Some(&consensus), &[bridge(201, true), bridge(202, true)]);
    assert!(!world.update(), "it began with the selection of bridges");
    assert_eq!(world.sampled(), [201, 202].into());
    for _ in 0..20 {
        let (chosen, ticket) = world.select();
        assert!([201, 202].contains(&chosen));
        world.forget(ticket);
    }
    // The guards from the consensus are unchanged when bridges are no longer used.
    world.options.use_bridges = false;
    world.relays = consensus;
    assert!(world.update());
    assert!(world.sampled().iter().all(|id| *id < 200));
}

#[test]
fn a_dead_bridge_is_left_for_a_live_one() {
    let mut world = world(&[bridge(201, true), bridge(202, true)], &[]);
    let (first, ticket) = world.select();
    world.outcome(ticket, Outcome::GuardFailed);
    world.forget(ticket);
    let (second, ticket) = world.select();
    assert_ne!(first, second);
    assert_eq!(world.outcome(ticket, Outcome::Built), GuardUse::Now);
    // The other is tried again after a while.
    assert!(matches!(world.info(second).status, GuardStatus::Up));
    world.wait(3600);
    world.outcome(ticket, Outcome::GuardFailed);
    world.forget(ticket);
    assert_eq!(world.select().0, first);
}

#[test]
fn a_bridge_without_a_descriptor_carries_nothing_and_waits_for_its_own_schedule() {
    let mut world = world(&[bridge(201, false)], &[]);
    assert_eq!(world.sampled(), [201].into());
    assert_eq!(world.info(201).nickname, "");
    assert!(world.select_for(GuardUsage::Directory, None).is_none());
    // It is asked for its descriptor, in vain.
    let ticket = world.guards.ticket_of(&rsa(201), world.now).unwrap();
    world.outcome(ticket, Outcome::GuardFailed);
    world.forget(ticket);
    assert!(!world.guards.take_asks_bridges());
    world.wait(36_000);
    // Nothing is left to try: it should be asked again now.
    assert!(world.select_for(GuardUsage::Directory, None).is_none());
    assert!(world.guards.take_asks_bridges());
    assert!(!world.guards.take_asks_bridges());
    set(&mut world, &[bridge(201, true)]);
    assert_eq!(
        world.select_for(GuardUsage::Directory, None).unwrap().0,
        201
    );
}

#[test]
fn the_state_file_has_bridges_as_c_tor_writes_them() {
    let line = "in=bridges rsa_id=00C9111111111111111111111111111111111111 \
        bridge_addr=192.0.2.201:443 nickname=bridge201 sampled_on=2026-11-11T03:04:05 sampled_idx=0 \
        sampled_by=0.4.9.11 listed=1 confirmed_on=2026-11-13T21:22:23 confirmed_idx=0";
    let v6 = "in=bridges rsa_id=00CA111111111111111111111111111111111111 \
        bridge_addr=[2001:db8::1]:443 sampled_on=2026-11-12T03:04:05 sampled_idx=1 listed=1";
    let mut world = world(&[bridge(201, true)], &[line, v6]);
    // It is confirmed already; the other is not in torrc.
    assert_eq!(world.primary(), [201]);
    assert_eq!(id_of(&world.guards.infos()[0].rsa), 201);
    let lines = world.guards.lines();
    assert_eq!(lines[0], line);
    assert!(
        lines[1].starts_with(&v6[..100]) && lines[1].ends_with("listed=0"),
        "{lines:?}"
    );
    assert!(lines[1].contains("unlisted_since="));
    assert!(world.guards.take_changed());
    // At another address it is the same bridge.
    let mut moved = bridge(201, true);
    moved.addr = "192.0.2.9:443".parse().unwrap();
    set(&mut world, &[moved]);
    assert_eq!(world.select().0, 201);
    assert_eq!(
        world.guards.lines()[0],
        line.replace("192.0.2.201", "192.0.2.9")
    );
}

#[test]
fn lines_that_are_half_of_bridges_are_kept_as_they_are() {
    for line in [
        "in=default rsa_id=00C9111111111111111111111111111111111111 bridge_addr=192.0.2.1:443 listed=1",
        "in=bridges rsa_id=00C9111111111111111111111111111111111111 listed=1",
        "in=bridges rsa_id=00C9111111111111111111111111111111111111 bridge_addr=x listed=1",
    ] {
        let world = world(&[bridge(201, true)], &[line]);
        assert_eq!(world.guards.lines()[0], line);
        assert_eq!(world.guards.lines().len(), 2);
    }
}

#[test]
fn bridges_that_the_options_rule_out_are_not_used() {
    for (excluded, other) in [(201, 202), (202, 201)] {
        let mut world = world(&[bridge(201, true), bridge(202, true)], &[]);
        world.options.exclude_nodes = format!("192.0.2.{excluded}").parse().unwrap();
        // It means nothing for bridges.
        world.options.entry_nodes = Some("nobody".parse().unwrap());
        world.update();
        for _ in 0..10 {
            let (chosen, ticket) = world.select();
            assert_eq!(chosen, other);
            world.forget(ticket);
        }
        world.options.reachable.ipv4 = false;
        world.update();
        assert!(world.select_for(GuardUsage::Traffic, None).is_none());
    }
}

#[test]
fn no_more_bridges_are_sampled_than_are_enough() {
    let bridges: Vec<Bridge> = (201..226).map(|id| bridge(id, true)).collect();
    assert_eq!(world(&bridges, &[]).sampled().len(), 20);
}

#[test]
fn a_bridge_is_that_of_its_address_and_its_identity() {
    let (one, two) = (bridge(201, true), bridge(202, true));
    let relays = Relays::with_bridges(None, &[one.clone(), two.clone()]);
    assert_eq!(relays.bridge(two.addr, &rsa(202)), Some(&two));
    assert_eq!(relays.bridge(one.addr, &rsa(202)), None);
    assert!(!relays.is_empty() && Relays::with_bridges(None, &[]).is_empty());
}

#[test]
fn who_begins_with_bridges_switches_to_no_other_sample() {
    let mut world = World::with(TestNet::alike(1), options(), &[]);
    world.guards = Guards::load([].into_iter(), world.now);
    world.guards.begin(&options());
    world.relays = Relays::with_bridges(None, &[bridge(201, true)]);
    assert!(!world.update());
    world.guards = Guards::load([].into_iter(), world.now);
    world.guards.begin(&PathOptions::default());
    assert!(world.update());
}

#[test]
fn a_bridge_can_be_used_if_it_is_described_and_not_known_to_be_down() {
    let has_usable = |world: &World| world.guards.has_usable(&world.relays);
    assert!(!has_usable(&world(&[], &[])));
    assert!(!has_usable(&world(&[bridge(201, false)], &[])));
    let mut world = world(&[bridge(201, true), bridge(202, false)], &[]);
    assert!(has_usable(&world));
    let (_, ticket) = world.select();
    world.outcome(ticket, Outcome::GuardFailed);
    assert!(!has_usable(&world));
}

#[test]
fn bridges_with_descriptors_are_not_asked_for_them() {
    let mut world = world(&[bridge(201, true), bridge(202, true)], &[]);
    while let Some((_, ticket)) = world.select_for(GuardUsage::Traffic, None) {
        world.outcome(ticket, Outcome::GuardFailed);
        world.forget(ticket);
    }
    assert!(!world.guards.take_asks_bridges());
}

#[test]
fn after_a_time_without_the_network_a_primary_bridge_is_asked_for_its_descriptor() {
    let line = format!(
        "in=bridges rsa_id={} bridge_addr=192.0.2.201:443 sampled_on=2026-11-11T03:04:05 \
         sampled_idx=0 listed=1 confirmed_on=2026-11-13T21:22:23 confirmed_idx=0",
        hex::encode_upper(rsa(201))
    );
    let mut world = world(&[bridge(201, false), bridge(202, true)], &[&line]);
    world.options.num_primary_guards = Some(1);
    world.update();
    assert_eq!(world.primary(), [201]);
    let works = |world: &mut World| {
        let (chosen, ticket) = world.select();
        assert_eq!(chosen, 202);
        world.outcome(ticket, Outcome::Built);
        world.forget(ticket);
        world.guards.take_asks_bridges()
    };
    assert!(!works(&mut world));
    let ticket = world.guards.ticket_of(&rsa(201), world.now).unwrap();
    world.outcome(ticket, Outcome::GuardFailed);
    world.forget(ticket);
    assert!(!works(&mut world));
    world.wait(601);
    assert!(works(&mut world));
}
