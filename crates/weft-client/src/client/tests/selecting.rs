//! ABRA: relays are asked for their weights, and streams get circuits by them.

use std::time::{Duration, SystemTime};

use weft_cell::abra::{AbraReason, Claim, unsigned};
use weft_core::address::HopIndex;
use weft_core::origin::{OriginEvent, OriginId};
use weft_path::{CircuitSelection, RelayName};

use super::world::{World, rsa};
use crate::circuits::StatementCounts;
use crate::events::CircuitPurpose;

/// A client that chooses by weight, with some circuits ready. Signatures are not checked: those of statements have tests of
/// their own (`weft_core::extensions::abra`).
fn choosing() -> World {
    by_weight(World::new(1, 3, "accept 80,443"))
}

/// Makes a world's client choose circuits by weight.
fn by_weight(mut world: World) -> World {
    let mut config = world.client.config().clone();
    config.selection = CircuitSelection::Abra;
    config.check_statements = false;
    let now = world.now;
    world.client.set_config(config, now);
    world.ready();
    world.wait(1);
    world
}

fn statement(time: SystemTime, weight: f64) -> Vec<u8> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let claim = Claim::new(since.as_secs(), weight, AbraReason::OwnLimits);
    let mut bytes = unsigned(&claim, &[]).unwrap();
    bytes.extend_from_slice(&[0; 64]);
    bytes
}

impl World {
    /// A hop states a weight.
    fn state(&mut self, circuit: OriginId, hop: u8, weight: f64) {
        let statement = statement(self.now.wall, weight);
        self.state_bytes(circuit, hop, statement);
    }

    fn state_bytes(&mut self, circuit: OriginId, hop: u8, statement: Vec<u8>) {
        self.event(OriginEvent::Weight {
            circuit,
            hop: HopIndex(hop),
            statement,
        });
    }

    /// The weights of circuits, oldest first.
    fn weights(&self) -> Vec<f64> {
        let all = self.client.weighed_circuits(self.now);
        all.filter_map(|circuit| circuit.weight).collect()
    }

    fn exit(&self, circuit: OriginId) -> u8 {
        let list = self.list();
        let circuit = list.iter().find(|one| one.id == circuit).unwrap();
        circuit.path[2].0.0[0]
    }
}

#[test]
fn each_hop_that_announces_it_is_asked_once_when_a_circuit_opens() {
    let world = choosing();
    assert_eq!(world.list().len(), 2);
    let hops = world.asked_weights.iter().map(|(_, hop)| hop.0);
    assert_eq!(hops.collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2]);
    assert_eq!(world.client.statements().asked, 6);
}

#[test]
fn relays_without_it_are_not_asked_and_nobody_is_by_default() {
    let mut world = World::new(1, 3, "accept 80,443");
    world.ready();
    world.wait(1);
    assert!(world.asked_weights.is_empty());
    for hop in &mut world.client.chooser().relays {
        hop.supports_abra = hop.rsa == rsa(1);
    }
    let mut config = world.client.config().clone();
    config.selection = CircuitSelection::Abra;
    let now = world.now;
    // Circuits that are open are asked when the settings change.
    world.client.set_config(config.clone(), now);
    world.run();
    assert_eq!(world.asked_weights.len(), 6);
    world.client.new_identity(now);
    world.asked_weights.clear();
    world.run();
    world.wait(2);
    assert!(!world.asked_weights.is_empty());
    assert!(world.asked_weights.iter().all(|(_, hop)| hop.0 == 0));
}

#[test]
fn a_circuits_weight_is_the_sum_over_its_relays_that_state_one() {
    let mut world = choosing();
    let first = world.list()[0].id;
    assert_eq!(world.weights(), [0.0, 0.0]);
    // The guard is in both circuits, and the middle relay, too.
    world.state(first, 0, 1.0);
    assert_eq!(world.weights(), [1.0, 1.0]);
    world.state(first, 2, 3.0);
    // If both have the same exit, it is known of both.
    let same = world.exit(first) == world.exit(world.list()[1].id);
    let other = if same { 4.0 } else { 1.0 };
    assert_eq!(world.weights(), [4.0, other]);
    // They are forgotten when three were missed.
    world.wait(15);
    assert_eq!(world.weights()[0], 4.0);
    world.wait(1);
    assert_eq!(world.weights()[0], 0.0);
}

/// Ten exits, two of which state weights: 20, an adversary's, states that it has no bottleneck, and
/// 19 states `lie`, if there is one. The guard states that it has none, the middle relay nothing.
/// Returns how many of 3,000 streams get a circuit to exit 20.
fn streams_to_the_liar(lie: Option<f64>) -> usize {
    let mut world = World::new(0, 10, "accept 80,443");
    for hop in &mut world.client.chooser().relays {
        hop.bandwidth = 1000;
    }
    let mut world = by_weight(world);
    for exit in 11..=20 {
        let names = [1, 4, exit].map(|number| RelayName::Rsa(rsa(number)));
        let now = world.now;
        let circuit = world
            .client
            .new_circuit(&names, CircuitPurpose::General, now);
        world.run();
        assert!(circuit.is_ok());
    }
    for one in world.list() {
        world.state(one.id, 0, 0.0);
        match (one.path[2].0.0[0], lie) {
            (20, _) => world.state(one.id, 2, 0.0),
            (19, Some(weight)) => world.state(one.id, 2, weight),
            _ => {}
        }
    }
    let mut hits = 0;
    for _ in 0..3000 {
        let stream = world.connect("example.com", 80, None);
        hits += usize::from(world.exit(world.attached[&stream]) == 20);
    }
    hits
}

/// The adversary's exit had 8.8 % of the streams, and 100 % once exit 19 stated 1e-12: all that stated nothing then counted as
/// having a bottleneck, too.
#[test]
fn one_relays_statement_drives_no_stream_from_relays_that_state_nothing() {
    let honest = streams_to_the_liar(None);
    assert!((200..400).contains(&honest), "{honest}");
    for lie in [0.0, 1e-12, 1.0, 1e6] {
        let hits = streams_to_the_liar(Some(lie));
        // Exit 19's own share, a tenth or two, is spread over the others.
        assert!(hits * 4 < honest * 5, "{lie}: {hits}, honest {honest}");
    }
}

#[test]
fn streams_get_circuits_without_a_bottleneck() {
    let mut world = choosing();
    let circuits: Vec<_> = world.list().iter().map(|one| one.id).collect();
    // Exits with different weights: as many circuits as it takes to have two exits.
    let mut heavy = None;
    for _ in 0..50 {
        world.wait(1);
        let exits: Vec<u8> = world.list().iter().map(|one| one.path[2].0.0[0]).collect();
        if let Some(place) = exits.iter().position(|exit| *exit != exits[0]) {
            heavy = Some((world.list()[0].id, world.list()[place].id));
            break;
        }
        let now = world.now;
        world.client.new_identity(now);
    }
    let (heavy, light) = heavy.expect("two exits in fifty networks");
    assert!(!circuits.is_empty());
    for hop in 0..3 {
        world.state(light, hop, 0.0);
    }
    world.state(heavy, 2, 5.0);
    for _ in 0..20 {
        let stream = world.connect("example.com", 80, None);
        let exit = world.exit(world.attached[&stream]);
        assert_ne!(exit, world.exit(heavy), "one in 5,000 would");
    }
}

#[test]
fn statements_that_are_stale_early_or_no_statements_are_ignored_and_counted() {
    let mut world = choosing();
    let first = world.list()[0].id;
    let now = world.now.wall;
    let second = Duration::from_secs(1);
    world.state_bytes(first, 0, statement(now - 16 * second, 1.0));
    world.state_bytes(first, 0, statement(now + 6 * second, 1.0));
    world.state_bytes(first, 0, b"no statement".to_vec());
    let mut nan = statement(now, 1.0);
    nan[9..17].copy_from_slice(&f64::NAN.to_be_bytes());
    world.state_bytes(first, 0, nan);
    world.state_bytes(first, 0, statement(now, 1.0));
    world.state_bytes(first, 0, statement(now - second, 9.0));
    // Of a hop that there is not, and of a circuit that is over.
    world.state_bytes(first, 7, statement(now, 1.0));
    world.state_bytes(OriginId(999), 0, statement(now, 1.0));
    let counts = world.client.statements();
    assert_eq!(
        counts,
        StatementCounts {
            asked: counts.asked,
            accepted: 1,
            malformed: 2,
            forged: 0,
            stale: 2,
            ahead: 1,
        }
    );
    assert_eq!(world.weights()[0], 1.0);
    // One line, whatever comes.
    let lines = world.outputs.iter();
    let warned = lines.filter(|output| format!("{output:?}").contains("states of its bandwidth"));
    assert_eq!(warned.count(), 1);
}

/// A statement that a damaged or hostile relay put in place of a weight leaves the last valid one,
/// and is logged once.
#[test]
fn a_weight_that_is_no_number_of_the_range_changes_nothing() {
    let mut world = choosing();
    let first = world.list()[0].id;
    world.state(first, 0, 1.0);
    let now = world.now.wall;
    let bad = [
        f64::NAN,
        -f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -1.0,
        -f64::MIN_POSITIVE,
        f64::MAX,
    ];
    for weight in bad {
        let mut bytes = statement(now, 1.0);
        bytes[9..17].copy_from_slice(&weight.to_be_bytes());
        world.state_bytes(first, 0, bytes);
        assert_eq!(world.weights(), [1.0, 1.0], "{weight}");
    }
    let counts = world.client.statements();
    assert_eq!((counts.accepted, counts.malformed), (1, bad.len() as u64));
    let lines = world.outputs.iter();
    let warned = lines.filter(|output| format!("{output:?}").contains("states of its bandwidth"));
    assert_eq!(warned.count(), 1);
}

/// Ten thousand in a second, should the data path ever let them through: no memory, no line for each, and the last counts.
#[test]
fn a_flood_of_statements_is_counted_and_grows_nothing() {
    let mut world = choosing();
    let first = world.list()[0].id;
    let relays = world.client.weighed_relays();
    for number in 0..10_000_u32 {
        let weight = f64::from(number % 100);
        match number % 4 {
            0 => world.state(first, 0, weight),
            1 => world.state_bytes(
                first,
                0,
                statement(world.now.wall - Duration::from_secs(60), weight),
            ),
            2 => world.state_bytes(
                first,
                0,
                statement(world.now.wall + Duration::from_secs(60), weight),
            ),
            _ => world.state_bytes(first, 0, vec![0xff; 498]),
        }
    }
    let counts = world.client.statements();
    assert_eq!(
        (
            counts.accepted,
            counts.stale,
            counts.ahead,
            counts.malformed
        ),
        (2_500, 2_500, 2_500, 2_500)
    );
    assert_eq!(world.client.weighed_relays(), relays);
    assert_eq!(world.weights()[0], 96.0);
    let lines = world.outputs.iter();
    let warned = lines.filter(|output| format!("{output:?}").contains("states of its bandwidth"));
    assert_eq!(warned.count(), 1);
}

#[test]
fn a_forged_statement_is_counted_as_such() {
    let mut world = choosing();
    let mut config = world.client.config().clone();
    config.check_statements = true;
    let now = world.now;
    world.client.set_config(config, now);
    let first = world.list()[0].id;
    world.state(first, 0, 1.0);
    let counts = world.client.statements();
    assert_eq!((counts.accepted, counts.malformed), (0, 1));
    assert_eq!(world.weights()[0], 0.0);
}

#[test]
fn relays_are_forgotten_with_their_last_circuit() {
    let mut world = choosing();
    assert!(world.client.weighed_relays() >= 3);
    let now = world.now;
    world.client.close_all(now);
    world.run();
    assert_eq!(world.client.weighed_relays(), 0);
}

#[test]
fn whoever_stays_leaves_a_circuit_only_when_its_bandwidth_is_scarce() {
    let mut world = choosing();
    let mut config = world.client.config().clone();
    config.selection = CircuitSelection::AbraStay;
    let now = world.now;
    world.client.set_config(config, now);
    let on = |world: &mut World| {
        let stream = world.connect("example.com", 80, None);
        world.attached[&stream]
    };
    let first = on(&mut world);
    for _ in 0..20 {
        assert_eq!(on(&mut world), first);
    }
    world.wait(1);
    // The guard's weight applies to all circuits; this exit's weight is so large that hardly any
    // stream stays.
    let others: Vec<OriginId> = world.list().iter().map(|one| one.id).collect();
    for other in others.iter().filter(|other| **other != first) {
        for hop in 0..3 {
            world.state(*other, hop, 1e-6);
        }
    }
    world.state(first, 2, 1e6);
    if others
        .iter()
        .any(|other| world.exit(*other) != world.exit(first))
    {
        assert!((0..20).any(|_| on(&mut world) != first));
    }
}
