//! Networks in which anything fails at any time, by a seed.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use weft_cell::reason::EndReason;

use crate::DirectoryTarget;

use super::world::{Exits, Manner, World};

const MANNERS: [Manner; 6] = [
    Manner::Good,
    Manner::Good,
    Manner::Unreachable,
    Manner::Silent,
    Manner::Refuses,
    Manner::Lies,
];

const EXITS: [Exits; 8] = [
    Exits::Connects,
    Exits::Connects,
    Exits::Silent,
    Exits::Ends(EndReason::EXITPOLICY, None),
    Exits::Ends(EndReason::RESOLVEFAILED, None),
    Exits::Ends(EndReason::MISC, None),
    Exits::Ends(EndReason::RESOURCELIMIT, None),
    Exits::Ends(EndReason::CONNECTREFUSED, None),
];

#[test]
fn every_application_gets_an_answer_in_time_and_none_shares_a_circuit_with_another() {
    for seed in 0..6 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut world = World::new(seed, 6, "accept 80,443");
        world.ready();
        let mut asked = BTreeMap::new();
        for second in 0..300_u64 {
            for number in [1, 2, 3, 4, 11, 12, 13, 14, 15, 16] {
                if rng.random_ratio(1, 60) {
                    let manner = MANNERS[rng.random_range(0..MANNERS.len())];
                    let exits = EXITS[rng.random_range(0..EXITS.len())];
                    let relay = world.relay(number);
                    relay.manner = manner;
                    relay.exits = exits;
                }
            }
            if rng.random_ratio(1, 50) {
                // Guards are tried again.
                world.client.chooser().down.clear();
                world.client.directory_changed(world.now);
            }
            if rng.random_ratio(1, 5) {
                let user = rng.random_range(0..4).to_string();
                let stream = world.connect("example.com", 80, Some(&user));
                asked.insert(stream, (second, user));
            }
            if rng.random_ratio(1, 20) {
                let _ = world
                    .client
                    .open_directory(&DirectoryTarget::Guard, world.now);
                world.client.serve_now(world.now);
            }
            if rng.random_ratio(1, 20) {
                let circuits: Vec<_> = world.attached.values().copied().collect();
                if !circuits.is_empty() {
                    world.destroy(circuits[rng.random_range(0..circuits.len())]);
                }
            }
            world.wait(1);
            let mut users: BTreeMap<_, &str> = BTreeMap::new();
            for (stream, circuit) in &world.attached {
                if let Some((_, user)) = asked.get(stream) {
                    let first = *users.entry(*circuit).or_insert(user);
                    assert_eq!(first, user, "seed {seed}: {circuit} is shared");
                }
            }
        }
        world.wait(135);
        for (stream, (second, _)) in &asked {
            let answered = world.connected.contains(stream) || world.refused.contains_key(stream);
            assert!(answered, "seed {seed}: {stream} of second {second}");
        }
        let used: BTreeSet<_> = world.attached.values().collect();
        assert!(world.list().len() <= used.len() + 40, "seed {seed}");
        world.client.close_all(world.now);
        world.run();
        world.all_ends_were_told();
    }
}
