//! The ledger against the allocator: what nodes report to hold is what they took and did not give back,
//! whatever honest and hostile peers do.
//!
//! One test in a separate program: the allocator counts for the whole process.

#[path = "it/pair/mod.rs"]
mod pair;
#[path = "it/world/mod.rs"]
mod world;

use std::alloc::System;
use std::collections::BTreeSet;
use std::time::Duration;

use pair::{CLIENT, write};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use weft_cell::stream_msg::{Begin, BeginFlags};
use weft_cell::{ChanCmd, RelayCmd};
use world::{Circuit, World, relay_identity};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes that the ledger may miss or count too much, beyond 5 %: small tables, which are estimated.
const CONSTANT: usize = 128 << 10;

/// Bytes that the process has taken and not given back.
fn taken() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Some seconds of a relay's life.
fn live(seed: u64) -> World {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut world = World::new(2, seed);
    world.serve_streams = !seed.is_multiple_of(3);
    // With fixed windows little may come for a stream that has no edge.
    let vegas = seed.is_multiple_of(2) || !world.serve_streams;
    world.sendme_inc = vegas.then_some(31);
    let clients = [world.link_on(0, CLIENT), world.link_on(1, CLIENT)];
    let next = world.link_on(1, relay_identity(9));
    let mut circuits: Vec<Circuit> = Vec::new();
    let begin = Begin {
        target: b"example.com".to_vec(),
        port: 80,
        flags: BeginFlags::default(),
    };
    let begin = begin.encode().unwrap();
    let bytes = vec![7; 1 << 20];
    let mut begun = BTreeSet::new();
    for id in 0..rng.random_range(1..12) {
        let client = clients[rng.random_range(0..2)];
        let mut circuit = Circuit::create(&mut world, client, 0x8000_0001 + id);
        if rng.random_bool(0.3) {
            circuit.extend(&mut world, 9, next);
        }
        circuits.push(circuit);
    }
    for _ in 0..rng.random_range(10..1500) {
        let now = world.now;
        let number = rng.random_range(0..circuits.len());
        let circuit = &mut circuits[number];
        if !world.is_open(circuit.client.0) {
            continue;
        }
        let stream = rng.random_range(1..40);
        let extended = circuit.next.is_some();
        let mut send_relay_msg = |world: &mut World, hop, command, data: &[u8]| {
            let cell = circuit.forward(world, hop, ChanCmd::RELAY, command, stream, data);
            world.receive(circuit.client.0, &cell);
        };
        match rng.random_range(0..12) {
            0..=3 if begun.insert((number, stream)) => {
                send_relay_msg(&mut world, 0, RelayCmd::BEGIN, &begin);
            }
            // Early and later; and now and then what ends the circuit.
            4 | 5 if begun.contains(&(number, stream)) || rng.random_bool(0.002) => {
                for _ in 0..rng.random_range(1..200) {
                    send_relay_msg(&mut world, 0, RelayCmd::DATA, &bytes[..490]);
                }
            }
            6 if begun.remove(&(number, stream)) => {
                send_relay_msg(&mut world, 0, RelayCmd::END, &[6]);
            }
            7 if extended => {
                for _ in 0..rng.random_range(1..200) {
                    send_relay_msg(&mut world, 1, RelayCmd::DATA, &bytes[..490]);
                }
            }
            8 | 9 => {
                for (thread, edge) in world.edges.clone() {
                    if rng.random_bool(0.5) {
                        write(&mut world.managers[thread], edge, &mut &bytes[..], now);
                    }
                }
            }
            10 => {
                for (thread, edge) in world.edges.clone() {
                    let (out, _) = world.managers[thread].edges().out(edge);
                    let count = rng.random_range(0..=out.len());
                    world.managers[thread].edge_wrote(edge, count, now);
                }
            }
            _ => {
                world.room = [0, u32::MAX][rng.random_range(0..2)];
                match world.not_reading.is_empty() {
                    true => world.not_reading.push(next),
                    false => world.not_reading.clear(),
                }
                world.pass(Duration::from_millis(rng.random_range(0..2000)));
            }
        }
        world.settle();
    }
    world
}

#[test]
fn the_ledger_is_what_the_allocator_counts() {
    let mut most = 0;
    for seed in 0..60 {
        let mut world = live(seed);
        let reported = usize::try_from(world.held()).unwrap();
        let before = taken();
        drop(std::mem::take(&mut world.managers));
        let held = before - taken();
        most = most.max(held);
        let apart = reported.abs_diff(held);
        assert!(
            apart <= held / 20 + CONSTANT,
            "seed {seed}: {reported} bytes are reported, {held} are held"
        );
    }
    assert!(most > 2 << 20, "there was something to count: {most}");
}
