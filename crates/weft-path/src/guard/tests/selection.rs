//! Guards are sampled, chosen, tried again and dropped.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::super::*;
use super::world::World;
use crate::NodeSet;
use crate::options::PathOptions;
use crate::testing::{TestNet, now, rsa, secs};
use crate::ticket::GuardTicket;

const DAY: u64 = 86_400;

#[test]
fn a_sample_has_twenty_usable_guards_and_three_primary_ones() {
    let world = World::new(TestNet::alike(150));
    assert_eq!(world.sampled().len(), 20);
    assert_eq!(world.primary().len(), 3);
}

#[test]
fn circuits_go_through_the_first_primary_guard_that_works() {
    let mut world = World::new(TestNet::alike(150));
    let primary = world.primary();
    let (first, ticket) = world.select();
    assert_eq!(first, primary[0]);
    // Nothing waits for a primary guard's circuit.
    assert_eq!(world.outcome(ticket, Outcome::Built), GuardUse::Now);
    assert_eq!(world.info(first).status, GuardStatus::Up);
    // As long as it works, it is the one.
    for _ in 0..20 {
        let (id, ticket) = world.select();
        assert_eq!(id, first);
        world.forget(ticket);
    }
    let (_, ticket) = world.select();
    world.outcome(ticket, Outcome::GuardFailed);
    assert_eq!(world.info(first).status, GuardStatus::Down(Some(world.now)));
    assert_eq!(world.select().0, primary[1]);
    // A failure beyond the guard does not count against it.
    let (_, ticket) = world.select();
    assert_eq!(world.outcome(ticket, Outcome::Failed), GuardUse::Never);
    assert_eq!(world.select().0, primary[1]);
}

#[test]
fn a_guard_that_failed_is_tried_again_after_ten_minutes() {
    let mut world = World::new(TestNet::alike(150));
    let (first, ticket) = world.select();
    world.outcome(ticket, Outcome::GuardFailed);
    world.wait(599);
    assert_ne!(world.select().0, first);
    world.wait(1);
    assert_eq!(world.select().0, first);
}

#[test]
fn retries_become_rarer() {
    let mut world = World::new(TestNet::alike(150));
    let (first, ticket) = world.select();
    world.outcome(ticket, Outcome::GuardFailed);
    let mut waits = Vec::new();
    let failing_since = world.now;
    for _ in 0..200 {
        let tried = world.now;
        let ticket = loop {
            world.wait(300);
            let (id, ticket) = world.select();
            if id == first {
                break ticket;
            }
            world.forget(ticket);
        };
        world.outcome(ticket, Outcome::GuardFailed);
        let failing = world.now.duration_since(failing_since).unwrap();
        waits.push((failing, world.now.duration_since(tried).unwrap()));
    }
    for (failing, wait) in waits {
        let expected = match failing.as_secs() / 3600 {
            0..=5 => 600,
            7..=94 => 5400,
            101..=166 => 14_400,
            178.. => 32_400,
            _ => continue,
        };
        assert_eq!(wait, secs(expected), "{failing:?}");
    }
}

#[test]
fn circuits_through_other_guards_wait_until_all_primary_ones_are_down() {
    let mut world = World::new(TestNet::alike(150));
    world.primary_fail();
    let (other, ticket) = world.select();
    assert!(!world.primary().contains(&other));
    // The next circuit tries another guard: this one is on trial.
    let (third, third_ticket) = world.select();
    assert_ne!(third, other);
    assert_eq!(world.outcome(ticket, Outcome::Built), GuardUse::Now);
    // It was confirmed by that, and so became primary in the place of one that never worked.
    assert!(world.primary().contains(&other));
    // One that is behind three confirmed, filtered ones does not.
    world.forget(third_ticket);
}

#[test]
fn a_confirmed_guard_is_preferred_and_an_unconfirmed_one_waits_for_it() {
    let mut world = World::new(TestNet::alike(150));
    world.confirm_three();
    assert!(
        world
            .primary()
            .iter()
            .all(|&id| matches!(world.info(id).status, GuardStatus::Down(_)))
    );
    // All are down: others are tried, and their circuits wait for each other in order.
    let (a, ticket_a) = world.select();
    let (b, ticket_b) = world.select();
    assert_ne!(a, b);
    assert_eq!(world.outcome(ticket_b, Outcome::Built), GuardUse::Later);
    // `b` is confirmed now, `a` is not: nothing is better than `b`.
    assert_eq!(world.poll(), [(ticket_b, GuardUse::Now)]);
    assert_eq!(world.outcome(ticket_a, Outcome::Built), GuardUse::Later);
    // But `a`, confirmed after `b`, is behind it, which carries a complete circuit.
    assert_eq!(world.poll(), []);
    world.forget(ticket_b);
    assert_eq!(world.poll(), [(ticket_a, GuardUse::Now)]);
}

#[test]
fn a_better_guard_on_trial_blocks_for_fifteen_seconds() {
    let mut world = World::new(TestNet::alike(150));
    world.confirm_three();
    let (better, first) = world.select();
    world.outcome(first, Outcome::Built);
    assert_eq!(world.poll(), [(first, GuardUse::Now)]);
    world.forget(first);
    // The confirmed guard first, then one that is new.
    let (again, trial) = world.select();
    assert_eq!(again, better);
    let (_, second) = world.select();
    assert_eq!(world.outcome(second, Outcome::Built), GuardUse::Later);
    assert_eq!(world.poll(), []);
    world.wait(14);
    assert_eq!(world.poll(), []);
    world.wait(1);
    assert_eq!(world.poll(), [(second, GuardUse::Now)]);
    world.forget(trial);
}

#[test]
fn a_circuit_that_waits_too_long_ends() {
    let mut world = World::new(TestNet::alike(150));
    world.confirm_three();
    let (_, waiting) = world.select();
    assert_eq!(world.outcome(waiting, Outcome::Built), GuardUse::Later);
    // Primary guards may be up again by now: the circuit keeps waiting, but not forever.
    world.wait(600);
    assert_eq!(world.poll(), []);
    world.wait(1);
    assert_eq!(world.poll(), [(waiting, GuardUse::Never)]);
    assert_eq!(world.poll(), []);
}

#[test]
fn after_a_time_without_the_network_primary_guards_get_another_chance() {
    let mut world = World::new(TestNet::alike(150));
    world.confirm_three();
    let primary = world.primary();
    // The network goes away, and the primary guards fail again when they are tried again.
    world.wait(600);
    world.primary_fail();
    let (other, ticket) = world.select();
    assert!(!primary.contains(&other));
    world.wait(1);
    // More than ten minutes after the last success, something works.
    assert_eq!(world.outcome(ticket, Outcome::Built), GuardUse::Later);
    assert_eq!(world.select().0, primary[0]);
    assert_eq!(world.poll(), []);
}

#[test]
fn when_everything_has_failed_everything_is_tried_again() {
    let mut world = World::new(TestNet::alike(25));
    let mut tried = BTreeSet::new();
    while let Some((id, ticket)) = world.select_for(GuardUsage::Traffic, None) {
        assert!(tried.insert(id), "twice, but nothing changed");
        world.outcome(ticket, Outcome::GuardFailed);
        world.forget(ticket);
    }
    // The sample does not grow beyond its most: 20 guards of such a small network.
    assert_eq!(tried.len(), 20);
    assert_eq!(world.select().0, world.primary()[0]);
}

#[test]
fn the_sample_grows_up_to_a_fifth_of_the_guards() {
    let mut world = World::new(TestNet::alike(250));
    let mut tried = 0;
    while let Some((_, ticket)) = world.select_for(GuardUsage::Traffic, None) {
        world.outcome(ticket, Outcome::GuardFailed);
        world.forget(ticket);
        tried += 1;
    }
    assert_eq!((tried, world.sampled().len()), (50, 50));
    let mut world = World::new(TestNet::alike(150));
    world.net.params = "guard-max-sample-size=25 guard-max-sample-threshold=90 \
        guard-min-filtered-sample-size=22 guard-n-primary-guards=4"
        .to_owned();
    world.guards = Guards::load([].into_iter(), now());
    world.consensus();
    assert_eq!((world.sampled().len(), world.primary().len()), (22, 4));
}

#[test]
fn a_guard_is_never_of_the_exits_family() {
    let mut net = TestNet::alike(150);
    let all: Vec<u16> = (0..150).collect();
    let mut world = World::new(net.clone());
    let primary = world.primary();
    // The first two primary guards and relay `exit` are a family.
    let exit = (0..150).find(|id| !world.sampled().contains(id)).unwrap();
    for &member in &[primary[0], primary[1], exit] {
        net.relays[usize::from(member)].family = all.clone();
    }
    world.net = net;
    world.consensus();
    assert_eq!(world.primary(), primary);
    let (id, ticket) = world.select_for(GuardUsage::Traffic, Some(exit)).unwrap();
    assert_eq!(id, primary[2]);
    assert_eq!(world.outcome(ticket, Outcome::Built), GuardUse::Now);
    let other = (0..150)
        .find(|id| !primary.contains(id) && *id != exit)
        .unwrap();
    let (id, _) = world.select_for(GuardUsage::Traffic, Some(other)).unwrap();
    assert_eq!(id, primary[0]);
}

#[test]
fn more_guards_may_be_in_use() {
    let options = PathOptions {
        num_entry_guards: Some(2),
        num_directory_guards: Some(5),
        num_primary_guards: Some(6),
        ..PathOptions::default()
    };
    let mut world = World::with(TestNet::alike(150), options, &[]);
    let primary = world.primary();
    assert_eq!(primary.len(), 6);
    for (usage, count) in [(GuardUsage::Traffic, 2), (GuardUsage::Directory, 5)] {
        let mut seen = BTreeSet::new();
        for _ in 0..100 {
            let (id, ticket) = world.select_for(usage, None).unwrap();
            seen.insert(id);
            world.forget(ticket);
        }
        assert_eq!(seen, primary[..count].iter().copied().collect());
    }
}

#[test]
fn guards_that_are_unlisted_for_long_go() {
    let mut world = World::new(TestNet::alike(150));
    let (gone, ticket) = world.select();
    world.outcome(ticket, Outcome::Built);
    world.forget(ticket);
    world.net.relays.retain(|relay| relay.id != gone);
    world.wait(3600);
    world.consensus();
    assert!(matches!(
        world.info(gone).status,
        GuardStatus::Unusable(Some(_))
    ));
    assert!(!world.primary().contains(&gone));
    assert_eq!(world.primary().len(), 3);
    // The day on which it became unlisted is written with a slop of 4 days.
    world.wait(15 * DAY);
    world.consensus();
    assert!(world.sampled().contains(&gone));
    world.wait(6 * DAY);
    world.consensus();
    assert!(!world.sampled().contains(&gone));
}

#[test]
fn guards_do_not_live_forever() {
    let mut world = World::new(TestNet::alike(150));
    let (_, ticket) = world.select();
    world.outcome(ticket, Outcome::Built);
    world.forget(ticket);
    let first = world.entries();
    let left = |world: &World| world.entries().intersection(&first).count();
    // Confirmed guards live for 60 days, others 120, each minus a tenth of 120 at most.
    world.wait(47 * DAY);
    world.consensus();
    assert_eq!(left(&world), 20);
    world.wait(14 * DAY);
    world.consensus();
    assert_eq!(left(&world), 19);
    world.wait(60 * DAY);
    world.consensus();
    assert_eq!((left(&world), world.sampled().len()), (0, 20));
    world.options.guard_lifetime = Some(secs(2 * DAY));
    let before = world.entries();
    world.wait(3 * DAY);
    world.consensus();
    assert_eq!(world.entries().intersection(&before).count(), 0);
}

#[test]
fn an_old_consensus_changes_no_sample() {
    let mut world = World::new(TestNet::alike(150));
    let sampled = world.sampled();
    world.net.relays.truncate(1);
    world
        .net
        .relays
        .extend(TestNet::alike(153).relays.split_off(150));
    world.relays = world.net.relays();
    world.wait(30 * 3600);
    world.update();
    assert_eq!(world.sampled(), sampled);
}

#[test]
fn a_configuration_of_few_guards_has_a_sample_of_its_own() {
    let mut world = World::new(TestNet::alike(150));
    let ordinary = world.sampled();
    let entries: Vec<String> = (0..10).map(|id| format!("relay{id}")).collect();
    world.options.entry_nodes = Some(entries.join(",").parse::<NodeSet>().unwrap());
    assert!(world.update());
    assert_eq!(world.sampled(), (0..10).collect());
    assert!(!world.update());
    world.options.entry_nodes = None;
    assert!(world.update());
    assert_eq!(world.sampled(), ordinary);
    // Both are kept.
    let lines = world.guards.lines();
    let of = |name: &str| lines.iter().filter(|line| line.starts_with(name)).count();
    assert_eq!((of("in=default "), of("in=restricted ")), (20, 10));
}

#[test]
fn a_clock_that_goes_back_harms_nothing() {
    let mut world = World::new(TestNet::alike(150));
    world.primary_fail();
    world.now -= Duration::from_secs(7 * DAY);
    let (_, ticket) = world.select();
    world.outcome(ticket, Outcome::Built);
    assert!(
        world
            .poll()
            .iter()
            .all(|(_, usable)| *usable == GuardUse::Now)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_news_leaves_guards_in_order(
        steps in prop::collection::vec((0_u8..16, 0_usize..8, 0_u64..2000), 1..150),
    ) {
        let mut world = World::new(TestNet::alike(60));
        let mut tickets: Vec<(GuardTicket, GuardUse)> = Vec::new();
        for (step, which, seconds) in steps {
            world.wait(seconds);
            let outcome = match step {
                0..=4 => {
                    let exit = (which < 4).then_some(which as u16);
                    if let Some((id, ticket)) = world.select_for(GuardUsage::Traffic, exit) {
                        let listed = |id| world.relays.by_rsa(&rsa(id)).is_some();
                        prop_assert!(Some(id) != exit && listed(id));
                        tickets.push((ticket, GuardUse::Later));
                    }
                    None
                }
                5 => {
                    world.net.relays.rotate_left(which);
                    let away = world.net.relays.split_off(50);
                    world.consensus();
                    world.net.relays.extend(away);
                    None
                }
                6 => {
                    for (ticket, usable) in world.poll() {
                        let found = tickets.iter_mut().find(|(other, _)| *other == ticket);
                        // Only a circuit that has waited is returned.
                        prop_assert_eq!(found.unwrap().1, GuardUse::Later);
                        tickets.iter_mut().find(|(o, _)| *o == ticket).unwrap().1 = usable;
                    }
                    None
                }
                7 | 8 => Some(Outcome::GuardFailed),
                9..=11 => Some(Outcome::Built),
                12 => Some(Outcome::FirstHop),
                13 => Some(Outcome::Failed),
                14 => Some(Outcome::Used),
                _ => {
                    if which < tickets.len() {
                        let (ticket, _) = tickets.remove(which);
                        world.forget(ticket);
                        prop_assert_eq!(world.outcome(ticket, Outcome::Built), GuardUse::Never);
                    }
                    None
                }
            };
            if let (Some(outcome), Some(&mut (ticket, ref mut usable))) =
                (outcome, tickets.get_mut(which))
            {
                let before = *usable;
                // A circuit is reported as built once, and not after it has failed.
                if before == GuardUse::Later {
                    *usable = world.outcome(ticket, outcome);
                }
            }
            prop_assert!(world.primary().len() <= 3);
            prop_assert!(world.sampled().len() <= 60);
            let infos = world.guards.infos();
            let unusable = |info: &&GuardInfo| matches!(info.status, GuardStatus::Unusable(_));
            prop_assert!(!infos.iter().filter(unusable).any(|info| info.primary));
        }
        let lines = world.guards.lines();
        let again = Guards::load(lines.iter().map(String::as_str), world.now);
        prop_assert_eq!(again.lines(), lines);
    }
}
