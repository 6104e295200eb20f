//! Owners that ask for a little, and owners that ask for everything.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

type Small = Shares<u8, u8, u32>;

/// Admits one more item of an owner; returns the item that gave way.
fn admit(shares: &mut Small, group: u8, member: u8, bound: usize, item: u32) -> Option<u32> {
    let admitted = shares.admit(group, member, bound, item).unwrap();
    admitted.displaced.map(|(_, item)| item)
}

#[test]
fn a_single_owner_has_everything_and_keeps_to_the_bound() {
    let mut shares = Small::default();
    for item in 0..10 {
        assert_eq!(admit(&mut shares, 1, 1, 10, item), None);
    }
    // The oldest of its items, as long as it is not proven.
    assert_eq!(admit(&mut shares, 1, 1, 10, 10), Some(0));
    assert_eq!(shares.len(), 10);
    assert_eq!(shares.admit(1, 1, 0, 7), Err(7), "nothing gives way to it");
    assert_eq!(shares.len(), 10);
    assert_eq!(Small::default().admit(1, 1, 0, 7), Err(7));
}

#[test]
fn an_owner_that_holds_everything_keeps_no_other_out() {
    let mut shares = Small::default();
    for item in 0..10 {
        let ticket = shares.admit(1, 1, 10, item).unwrap().ticket;
        shares.prove(ticket);
    }
    assert_eq!(shares.admit(1, 1, 10, 99), Err(99), "its own are proven");
    for item in 0..4 {
        assert_eq!(admit(&mut shares, 2, 1, 10, 100 + item), Some(item));
    }
    assert_eq!((shares.held(1), shares.held(2)), (6, 4));
    // Equals do not displace each other's proven items, and only the asker's own are not proven.
    assert_eq!(admit(&mut shares, 2, 1, 10, 104), Some(4));
    assert_eq!(admit(&mut shares, 2, 1, 10, 105), Some(100));
    assert_eq!(shares.admit(1, 1, 10, 99), Err(99));
    assert_eq!((shares.held(1), shares.held(2)), (5, 5));
}

#[test]
fn a_circuit_that_floods_does_not_keep_out_the_others_of_its_previous_hop() {
    let mut shares = Small::default();
    admit(&mut shares, 1, 7, 10, 70);
    for item in 0..50 {
        admit(&mut shares, 1, 1, 10, item);
    }
    assert_eq!(admit(&mut shares, 1, 2, 10, 20), Some(41));
    assert_eq!(admit(&mut shares, 1, 3, 10, 30), Some(42));
    assert_eq!(admit(&mut shares, 2, 1, 10, 10), Some(43));
    let mut served: Vec<u32> = std::iter::from_fn(|| shares.serve()).collect();
    served.truncate(5);
    assert_eq!(served, [44, 10, 20, 30, 70], "and each has its turn");
}

#[test]
fn a_flood_by_as_many_owners_as_there_are_places_rotates() {
    let mut shares = Small::default();
    for owner in 0..10 {
        admit(&mut shares, owner, 0, 10, owner.into());
    }
    // The eldest of the equals gives way to a new one, unless it has proven itself.
    assert_eq!(admit(&mut shares, 20, 0, 10, 20), Some(0));
    let ticket = shares.admit(21, 0, 10, 21).unwrap().ticket;
    shares.prove(ticket);
    for owner in 30..60 {
        assert_ne!(admit(&mut shares, owner, 0, 10, owner.into()), Some(21));
    }
    assert_eq!(shares.held(21), 1);
}

#[test]
fn what_is_of_use_no_more_gives_way_after_what_has_not_been_for_longer() {
    let mut shares = Small::default();
    let tickets: Vec<Ticket> = (0..4)
        .map(|item| shares.admit(1, 1, 4, item).unwrap().ticket)
        .collect();
    for ticket in &tickets {
        shares.prove(*ticket);
    }
    assert_eq!(shares.admit(1, 1, 4, 9), Err(9));
    for index in [2, 0] {
        shares.unprove(tickets[index]);
    }
    // Once more changes nothing.
    shares.unprove(tickets[2]);
    assert_eq!(admit(&mut shares, 1, 1, 4, 10), Some(2));
    assert_eq!(admit(&mut shares, 2, 1, 4, 20), Some(0));
    assert_eq!((shares.most(), shares.held(2)), (3, 1));
    shares.prove(tickets[1]);
    assert_eq!(
        admit(&mut shares, 2, 1, 4, 21),
        Some(10),
        "not what is of use"
    );
}

#[test]
fn each_group_is_served_in_turn_and_its_oldest_item_first() {
    let mut shares = Small::default();
    for (group, member, item) in [
        (1, 1, 1),
        (1, 1, 2),
        (1, 2, 3),
        (1, 1, 4),
        (2, 1, 5),
        (3, 1, 6),
    ] {
        admit(&mut shares, group, member, 100, item);
    }
    let served: Vec<u32> = std::iter::from_fn(|| shares.serve()).collect();
    assert_eq!(served, [1, 5, 6, 3, 2, 4]);
    assert!(shares.is_empty());
}

#[test]
fn an_ipv6_client_is_its_network_and_a_mapped_one_its_ipv4_address() {
    let at = |text: &str| PreviousHop::at(text.parse().unwrap());
    assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:2"));
    assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
    assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
    assert_ne!(at("10.0.0.2"), at("10.0.0.1"));
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Admit(u8, u8),
    Prove(usize),
    Unprove(usize),
    Release(usize),
    Serve,
    Bound(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0..6u8, 0..3u8).prop_map(|(group, member)| Op::Admit(group, member)),
        // One that asks for everything.
        8 => (0..2u8).prop_map(|member| Op::Admit(0, member)),
        3 => any::<usize>().prop_map(Op::Prove),
        1 => any::<usize>().prop_map(Op::Unprove),
        4 => any::<usize>().prop_map(Op::Release),
        2 => Just(Op::Serve),
        1 => (0..40usize).prop_map(Op::Bound),
    ]
}

proptest! {
    /// Against a plain list: the sum keeps to the bound, everything leaves exactly once, an owner
    /// below its fair share is admitted, and an owner not above its fair share loses nothing but
    /// to an equal, and then nothing that is proven.
    #[test]
    fn shares_are_fair_whatever_is_asked(ops in proptest::collection::vec(op(), 1..400)) {
        let mut shares = Small::default();
        let mut model: BTreeMap<u32, (u8, u8, Ticket)> = BTreeMap::new();
        let (mut tickets, mut proven) = (BTreeSet::new(), BTreeSet::new());
        let (mut bound, mut next) = (20, 0);
        for op in ops {
            let held = |model: &BTreeMap<u32, (u8, u8, Ticket)>, group| {
                model.values().filter(|(of, ..)| *of == group).count()
            };
            let of_member = |model: &BTreeMap<u32, (u8, u8, Ticket)>, group, member| {
                let of = model.values().filter(|(one, other, _)| (*one, *other) == (group, member));
                of.count()
            };
            let pick = |model: &BTreeMap<u32, (u8, u8, Ticket)>, index: usize| {
                model.iter().nth(index % model.len().max(1)).map(|(item, of)| (*item, of.2))
            };
            match op {
                Op::Bound(new) => bound = new,
                Op::Admit(group, member) => {
                    next += 1;
                    let before = model.len();
                    let most = (0..6).map(|of| held(&model, of)).max().unwrap();
                    let mine = held(&model, group);
                    match shares.admit(group, member, bound, next) {
                        Ok(Admitted { ticket, displaced }) => {
                            prop_assert!(tickets.insert(ticket), "a ticket twice");
                            prop_assert_eq!(displaced.is_some(), before >= bound);
                            if let Some((ticket, item)) = displaced {
                                let (of, other, was) = model[&item];
                                let theirs = of_member(&model, of, other);
                                let ours = of_member(&model, group, member);
                                if of == group && other != member {
                                    prop_assert!(theirs > ours, "{} of {}", theirs, ours);
                                }
                                if proven.contains(&ticket) {
                                    let is_heavier = match of == group {
                                        true => theirs > ours + 1,
                                        false => most > mine + 1,
                                    };
                                    prop_assert!(is_heavier, "a proven one of equals gives way");
                                }
                                model.remove(&item);
                                prop_assert_eq!(was, ticket);
                                prop_assert_eq!(held(&model, of) + 1, most);
                                prop_assert!(of == group || mine < most);
                            }
                            model.insert(next, (group, member, ticket));
                        }
                        Err(item) => {
                            prop_assert_eq!(item, next);
                            prop_assert!(before >= bound);
                            prop_assert!(bound == 0 || mine + 1 >= most, "below its share");
                        }
                    }
                    prop_assert!(model.len() <= bound.max(before));
                }
                Op::Prove(index) => {
                    if let Some((_, ticket)) = pick(&model, index) {
                        shares.prove(ticket);
                        proven.insert(ticket);
                    }
                }
                Op::Unprove(index) => {
                    if let Some((_, ticket)) = pick(&model, index) {
                        shares.unprove(ticket);
                        proven.remove(&ticket);
                    }
                }
                Op::Release(index) => {
                    if let Some((item, ticket)) = pick(&model, index) {
                        let (group, member, _) = model[&item];
                        prop_assert_eq!(shares.get(ticket), Some(&item));
                        prop_assert_eq!(shares.owner(ticket), Some((group, member)));
                        prop_assert_eq!(shares.release(ticket), Some(item));
                        prop_assert_eq!(shares.release(ticket), None);
                        model.remove(&item);
                    }
                }
                Op::Serve => {
                    let served = shares.serve();
                    prop_assert_eq!(served.is_some(), !model.is_empty());
                    if let Some(item) = served {
                        prop_assert!(model.remove(&item).is_some());
                    }
                }
            }
            prop_assert_eq!((shares.len(), shares.is_empty()), (model.len(), model.is_empty()));
            prop_assert_eq!(shares.audit(), Ok(()));
            for group in 0..6 {
                prop_assert_eq!(shares.held(group), held(&model, group));
            }
        }
        while let Some(item) = shares.serve() {
            prop_assert!(model.remove(&item).is_some());
        }
        prop_assert!(model.is_empty());
    }
}

/// A connection, and whether it lasts.
type Served = (Place<u8, std::sync::Arc<()>>, std::sync::Weak<()>);

#[test]
fn a_silent_connection_gives_way_and_a_kept_one_never_does() {
    let places = Places::new(4, 4);
    let (kept, none) = places.take(1, 0).unwrap();
    assert!(none.is_none() && kept.keep() && kept.keep() && kept.is_kept());
    let silent: Vec<_> = (1..4)
        .map(|number| places.take(1, number).unwrap())
        .collect();
    let (newcomer, gone) = places.take(2, 4).unwrap();
    assert_eq!(gone, Some(1), "the oldest of the owner that has most");
    let (again, gone) = places.take(2, 5).unwrap();
    assert_eq!(gone, Some(2));
    // A place that is lost can neither be kept nor given back twice.
    assert!(!silent[0].0.keep() && !silent[0].0.is_kept());
    drop(silent);
    assert_eq!(places.taken(), 3);
    for place in [&newcomer, &again] {
        assert!(place.keep());
    }
    let (last, gone) = places.take(1, 6).unwrap();
    assert!(gone.is_none() && last.keep());
    assert!(places.take(3, 7).is_none(), "all are kept");
    drop(kept);
    assert!(places.take(3, 8).is_some());
}

#[test]
fn places_that_anybody_can_keep_are_not_all_kept() {
    let places = Places::new(4, 2);
    let all: Vec<_> = (0..4)
        .map(|number| places.take(1, number).unwrap().0)
        .collect();
    assert!(
        all.iter().all(|place| place.keep()),
        "none has lost its place"
    );
    assert_eq!(all.iter().filter(|place| place.is_kept()).count(), 2);
    for number in 4..8 {
        // Each newcomer leaves at once, so only the first one takes another's place.
        let gone = places.take(1, number).unwrap().1;
        assert_eq!(gone, (number == 4).then_some(2));
    }
}

proptest! {
    /// In whatever order connections come and leave, the bound holds, and each has its place until it
    /// leaves or, before it is kept, gives way.
    #[test]
    fn each_has_a_place_until_it_leaves_or_gives_way(
        bound in 1..6_usize,
        spare in 0..3_usize,
        deeds in proptest::collection::vec((0..3_u8, 0..4_u8, any::<usize>()), 1..200),
    ) {
        let most_kept = bound.saturating_sub(spare);
        let places = Places::new(bound, most_kept);
        let mut served: Vec<Served> = Vec::new();
        for (deed, owner, which) in deeds {
            let at = which % served.len().max(1);
            match deed {
                0 => {
                    let end = std::sync::Arc::new(());
                    let left = std::sync::Arc::downgrade(&end);
                    match places.take(owner, end) {
                        Some((place, _)) => served.push((place, left)),
                        None => prop_assert_eq!(places.taken(), bound),
                    }
                }
                1 => if let Some((place, end)) = served.get(at) {
                    prop_assert_eq!(place.keep(), end.strong_count() > 0);
                },
                _ => if !served.is_empty() {
                    let (place, end) = served.swap_remove(at);
                    drop(place);
                    prop_assert_eq!(end.strong_count(), 0);
                },
            }
            let alive = served.iter().filter(|(_, end)| end.strong_count() > 0).count();
            let kept: Vec<&Served> = served.iter().filter(|(place, _)| place.is_kept()).collect();
            prop_assert_eq!(alive, places.taken());
            prop_assert!(alive <= bound && kept.len() <= most_kept);
            prop_assert!(kept.iter().all(|(_, end)| end.strong_count() > 0));
        }
    }
}

type Bytes = Amounts<u8, u8, u32>;

#[test]
fn a_single_owner_has_the_whole_bound_and_no_more() {
    let mut amounts = Bytes::default();
    assert!(amounts.is_empty());
    let one = amounts.add(1, 1, 10);
    assert_eq!(amounts.set(one, 60, 100), Ok(vec![]));
    let two = amounts.add(1, 1, 20);
    assert_eq!(amounts.set(two, 41, 100), Err(vec![]));
    assert_eq!(amounts.set(two, 40, 100), Ok(vec![]));
    assert_eq!(amounts.total(), 100);
    // A shrunk amount frees room, also past a bound that has shrunk.
    assert_eq!(amounts.set(one, 59, 10), Ok(vec![]));
    // So does what stays as it is, and nobody gives way to it.
    let other = amounts.add(2, 2, 30);
    assert_eq!(amounts.set(other, 1, 100), Ok(vec![]));
    assert_eq!(amounts.set(other, 1, 10), Ok(vec![]));
    assert_eq!(amounts.release(other), Some(30));
    assert_eq!(amounts.set(two, 41, 100), Ok(vec![]));
    assert_eq!(amounts.release(two), Some(20));
    assert_eq!((amounts.total(), amounts.release(two)), (59, None));
    assert_eq!(amounts.set(two, 1, 100), Err(vec![]), "it is over");
}

#[test]
fn the_heaviest_of_the_group_that_holds_most_gives_way_to_others() {
    let mut amounts = Bytes::default();
    for (member, amount, item) in [(1, 10, 0), (2, 30, 1), (2, 20, 2), (3, 40, 3)] {
        let ticket = amounts.add(1, member, item);
        assert_eq!(amounts.set(ticket, amount, 100), Ok(vec![]));
    }
    let other = amounts.add(2, 1, 99);
    // Member 2 holds 50, more than member 3; its heaviest is item 1.
    assert_eq!(amounts.set(other, 20, 100), Ok(vec![1]));
    // Member 3 then: 40 of 70. The bound holds while the other's share grows to its fair size.
    assert_eq!(amounts.set(other, 50, 100), Ok(vec![3]));
    assert_eq!(amounts.set(other, 71, 100), Err(vec![]));
    assert_eq!(amounts.total(), 80);
}

#[test]
fn in_a_group_the_member_that_holds_most_gives_way() {
    let mut amounts = Bytes::default();
    for item in 0..10 {
        let ticket = amounts.add(1, 1, item);
        assert_eq!(amounts.set(ticket, 10, 100), Ok(vec![]));
    }
    let other = amounts.add(1, 2, 99);
    // Of equals the oldest.
    assert_eq!(amounts.set(other, 15, 100), Ok(vec![0, 1]));
    let more = amounts.add(1, 1, 98);
    assert_eq!(amounts.set(more, 10, 100), Err(vec![]), "its own stay");
}

proptest! {
    #[test]
    fn sums_are_right_and_bounded_and_none_takes_from_one_that_holds_less(
        operations in proptest::collection::vec((0..4_u8, 0..3_u8, 0..12_usize, 0..70_usize), 0..200),
    ) {
        const BOUND: usize = 100;
        let mut amounts = Bytes::default();
        let mut live: BTreeMap<u32, (Ticket, u8, u8, usize)> = BTreeMap::new();
        for (item, (group, member, which, amount)) in (0_u32..).zip(operations) {
            if let Some(old) = live.keys().nth(which).copied().filter(|_| which % 2 == 0) {
                let (ticket, ..) = live.remove(&old).unwrap();
                prop_assert_eq!(amounts.release(ticket), Some(old));
                continue;
            }
            let (name, ticket) = match live.iter().nth(which) {
                Some((name, (ticket, ..))) => (*name, *ticket),
                None => {
                    let ticket = amounts.add(group, member, item);
                    live.insert(item, (ticket, group, member, 0));
                    (item, ticket)
                }
            };
            let (_, group, member, before) = live[&name];
            let held = |live: &BTreeMap<u32, (Ticket, u8, u8, usize)>, of: u8| -> usize {
                live.values().filter(|one| one.1 == of).map(|one| one.3).sum()
            };
            let of_member = |live: &BTreeMap<u32, (Ticket, u8, u8, usize)>, of: u8| -> usize {
                let of = live.values().filter(|one| (one.1, one.2) == (group, of));
                of.map(|one| one.3).sum()
            };
            let (result, displaced) = match amounts.set(ticket, amount, BOUND) {
                Ok(displaced) => (true, displaced),
                Err(displaced) => (false, displaced),
            };
            for old in displaced {
                let (_, theirs, other, _) = live[&old];
                if theirs == group {
                    prop_assert_ne!(other, member);
                    prop_assert!(of_member(&live, other) > of_member(&live, member) - before + amount);
                } else {
                    prop_assert!(held(&live, theirs) > held(&live, group) - before + amount);
                }
                live.remove(&old);
            }
            if result {
                live.get_mut(&name).unwrap().3 = amount;
            }
            let total: usize = live.values().map(|one| one.3).sum();
            prop_assert_eq!(amounts.total(), total);
            prop_assert!(total <= BOUND);
            prop_assert_eq!(amounts.len(), live.len());
            prop_assert_eq!(amounts.is_empty(), live.is_empty());
            let sum: usize = amounts.iter().map(|(_, _, amount)| amount).sum();
            prop_assert_eq!(sum, total);
        }
    }
}
