//! Guards are sampled, chosen, tried again and dropped.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::super::env::Env;
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
    for (seconds, is_long) in [(0, false), (1, true)] {
        let mut world = World::new(TestNet::alike(150));
        world.confirm_three();
        let primary = world.primary();
        // The network goes away, and the primary guards fail again when they are tried again.
        world.wait(600);
        world.primary_fail();
        let (other, ticket) = world.select();
        assert!(!primary.contains(&other));
        world.wait(seconds);
        // Something works: more than ten minutes after the last success, or no more.
        assert_eq!(world.outcome(ticket, Outcome::Built), GuardUse::Later);
        assert_eq!(world.select().0 == primary[0], is_long);
        assert_eq!(world.poll().is_empty(), is_long);
    }
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
    let lines = world.guards.lines();
    world.update();
    assert_eq!(world.sampled(), sampled);
    assert_eq!(world.guards.lines(), lines, "none is unlisted by it");
}

/// A guard as the state file has it.
fn line(id: u16, rest: &str) -> String {
    format!("in=default rsa_id={} {rest}", hex::encode_upper(rsa(id)))
}

#[test]
fn guards_go_a_second_after_their_lifetime_and_not_before() {
    // 120 days sampled, 60 days confirmed, 20 days unlisted; relay 300 is not listed.
    let lines = |time: &str| {
        [
            line(
                3,
                &format!("sampled_on=2026-07-24T{time} sampled_idx=0 listed=1"),
            ),
            line(
                5,
                &format!(
                    "sampled_on=2026-09-01T01:00:00 sampled_idx=1 listed=1 \
                 confirmed_on=2026-09-22T{time} confirmed_idx=0"
                ),
            ),
            line(
                300,
                &format!(
                    "sampled_on=2026-10-01T01:00:00 sampled_idx=2 listed=0 \
                 unlisted_since=2026-11-01T{time}"
                ),
            ),
        ]
    };
    for (time, stays) in [("01:00:00", true), ("00:59:59", false)] {
        let lines = lines(time);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let world = World::with(TestNet::alike(150), PathOptions::default(), &lines);
        let written = world.guards.lines();
        for (id, line) in [3, 5, 300].into_iter().zip(lines) {
            let date = line.split(' ').find(|word| word.starts_with("sampled_on"));
            let is_there =
                |other: &String| other.contains(&line[..40]) && other.contains(date.unwrap());
            assert_eq!(written.iter().any(is_there), stays, "{id} at {time}");
        }
        assert_eq!(world.primary().len(), 3);
    }
}

#[test]
fn confirmed_guards_are_numbered_without_gaps() {
    let confirmed = |id, idx| {
        line(
            id,
            &format!(
                "sampled_on=2026-11-10T01:00:00 sampled_idx={id} listed=1 \
             confirmed_on=2026-11-12T01:00:00 confirmed_idx={idx}"
            ),
        )
    };
    let lines = [confirmed(0, 7), confirmed(1, 3)];
    let mut guards = Guards::load(lines.iter().map(String::as_str), now());
    let dense = [confirmed(0, 1), confirmed(1, 0)];
    assert_eq!(guards.lines(), dense);
    assert!(guards.take_changed());
    let mut guards = Guards::load(dense.iter().map(String::as_str), now());
    assert_eq!(guards.lines(), dense);
    assert!(!guards.take_changed());
}

#[test]
fn a_consensus_without_news_of_guards_leaves_nothing_to_write() {
    let mut world = World::new(TestNet::alike(30));
    assert!(world.guards.take_changed());
    let news = |world: &mut World| {
        world.wait(3600);
        world.consensus();
        world.guards.take_changed()
    };
    assert!(!news(&mut world));
    let id = world.primary()[0];
    world.net.relays[usize::from(id)].nickname = "renamed".to_owned();
    assert!(news(&mut world));
    assert!(
        world
            .guards
            .lines()
            .iter()
            .any(|line| line.contains("nickname=renamed "))
    );
    assert!(!news(&mut world));
    let relay = world.net.relays.remove(usize::from(id));
    assert!(news(&mut world), "it is unlisted");
    assert!(!news(&mut world));
    world.net.relays.push(relay);
    assert!(news(&mut world), "it is listed again");
    assert!(!news(&mut world));
}

#[test]
fn a_network_that_gives_guards_no_weight_has_guards() {
    let mut net = TestNet::alike(60);
    net.weights = net.weights.replace("Wgd=2000", "Wgd=0");
    assert_eq!(World::new(net).sampled().len(), 20);
}

#[test]
fn near_the_border_the_sample_in_use_stays() {
    // A fifth of 200 is 40, give or take a twentieth.
    let mut world = World::new(TestNet::alike(200));
    for (allowed, restricted) in [
        (42, false),
        (38, false),
        (37, true),
        (38, true),
        (41, true),
        (42, false),
        (41, false),
    ] {
        let names: Vec<String> = (0..allowed).map(|id| format!("relay{id}")).collect();
        world.options.entry_nodes = Some(names.join(",").parse().unwrap());
        world.update();
        assert_eq!(world.guards.current, usize::from(restricted), "{allowed}");
    }
}

#[test]
fn a_restricted_sample_holds_no_guard_that_is_not_allowed() {
    let mut world = World::new(TestNet::alike(150));
    world.options.entry_nodes = Some("relay1,relay2".parse().unwrap());
    world.update();
    for _ in 0..3 {
        for outcome in [Outcome::Built, Outcome::GuardFailed] {
            while let Some((_, ticket)) = world.select_for(GuardUsage::Traffic, None) {
                world.outcome(ticket, outcome);
                world.forget(ticket);
                assert_eq!(world.sampled(), [1, 2].into());
                if outcome == Outcome::Built {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_lifetime_of_less_than_a_day_is_not_one() {
    let world = World::new(TestNet::alike(30));
    let lifetimes = |set: Option<u64>| {
        let options = PathOptions {
            guard_lifetime: set.map(secs),
            ..PathOptions::default()
        };
        let env = Env {
            relays: &world.relays,
            options: &options,
            now: world.now,
        };
        env.lifetimes()
    };
    let default = (secs(120 * DAY), secs(60 * DAY));
    assert_eq!(lifetimes(None), default);
    assert_eq!(lifetimes(Some(DAY - 1)), default);
    assert_eq!(lifetimes(Some(DAY)), (secs(DAY), secs(DAY)));
}

#[test]
fn confirmed_guards_come_before_those_on_trial_and_these_before_others() {
    let mut world = World::new(TestNet::alike(150));
    let mut order = Vec::new();
    for _ in 0..3 {
        let (id, ticket) = world.select();
        world.outcome(ticket, Outcome::Built);
        world.outcome(ticket, Outcome::GuardFailed);
        world.forget(ticket);
        order.push(vec![id]);
    }
    order.push(vec![world.select().0]);
    world.wait(1);
    // Two at the same time: neither is before the other.
    order.push(vec![world.select().0, world.select().0]);
    let known: Vec<u16> = order.concat();
    let others = world.sampled().into_iter().filter(|id| !known.contains(id));
    order.push(others.collect());
    let sampled = world.sampled();
    order.push(
        (0..150)
            .filter(|id| !sampled.contains(id))
            .take(3)
            .collect(),
    );
    let ranks = order.iter().enumerate();
    let all: Vec<(usize, u16)> = ranks
        .flat_map(|(rank, ids)| ids.iter().map(move |id| (rank, *id)))
        .collect();
    let sample = &world.guards.samples[0];
    for (rank, id) in &all {
        for (other_rank, other) in &all {
            let precedes = sample.precedes(&rsa(*id), &rsa(*other));
            assert_eq!(
                precedes,
                rank < other_rank,
                "{id} {rank}, {other} {other_rank}"
            );
        }
    }
}

#[test]
fn a_better_guard_that_the_path_must_not_have_holds_up_no_circuit() {
    let mut world = World::new(TestNet::alike(150));
    world.confirm_three();
    let (better, ticket) = world.select();
    world.outcome(ticket, Outcome::Built);
    assert_eq!(world.poll(), [(ticket, GuardUse::Now)]);
    // The better guard and an exit are a family.
    let exit = (0..150).find(|id| !world.sampled().contains(id)).unwrap();
    for member in [better, exit] {
        world.net.relays[usize::from(member)].family = vec![better, exit];
    }
    world.consensus();
    let (guard, restricted) = world.select_for(GuardUsage::Traffic, Some(exit)).unwrap();
    assert_ne!(guard, better);
    assert_eq!(world.outcome(restricted, Outcome::Built), GuardUse::Later);
    let (on_trial, _) = world.select();
    assert_eq!(on_trial, better);
    let (same, free) = world.select();
    assert_eq!(same, guard);
    assert_eq!(world.outcome(free, Outcome::Built), GuardUse::Later);
    // That to any exit goes on waiting for the better guard.
    assert_eq!(world.poll(), [(restricted, GuardUse::Now)]);
    assert_eq!(world.poll(), []);
}

#[test]
fn of_circuits_that_wait_the_one_through_the_best_guard_goes_first() {
    let mut world = World::new(TestNet::alike(150));
    world.confirm_three();
    let (_, first) = world.select();
    let (_, second) = world.select();
    assert_eq!(world.outcome(first, Outcome::Built), GuardUse::Later);
    assert_eq!(world.outcome(second, Outcome::Built), GuardUse::Later);
    assert_eq!(world.poll(), [(first, GuardUse::Now)]);
}

#[test]
fn guards_that_are_dropped_are_drawn_again_and_their_circuits_mean_nothing() {
    let mut world = World::new(TestNet::alike(150));
    let (_, ticket) = world.select();
    let before = world.sampled();
    world.guards.take_changed();
    world.guards.drop_all();
    assert!(world.sampled().is_empty());
    assert!(world.guards.take_changed());
    world.update();
    assert_eq!(world.sampled().len(), 20);
    assert_ne!(world.sampled(), before);
    assert_eq!(world.outcome(ticket, Outcome::Built), GuardUse::Never);
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
