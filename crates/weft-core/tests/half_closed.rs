//! Streams that one side has ended and the other does not know of yet; readers that stand still.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod pair;
mod world;

use std::time::Duration;

use pair::{Pair, TwoHops, payload};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use weft_cell::RelayCmd;
use weft_cell::reason::EndReason;
use weft_core::address::ConnectionId;
use weft_core::edge::MAX_WAITING;
use weft_core::flow::Terms;
use weft_core::manager::RelayParams;
use weft_core::origin::{EndedBy, HopFlow, OriginCommand, OriginEvent};
use world::{OWN_ED, OWN_RSA, World};

/// What the origin counted: allowed late messages, and dropped ones.
fn counts(world: &World) -> (u64, u64) {
    let totals = world.totals();
    (totals.streams.late, totals.cells_dropped)
}

fn close(two: &mut TwoHops) {
    two.command(OriginCommand::CloseStream {
        stream: two.application,
        reason: EndReason::DONE,
    });
}

#[test]
fn an_exit_that_does_not_know_yet_may_send_what_the_windows_allow() {
    let mut two = TwoHops::new(41);
    two.says(1, RelayCmd::CONNECTED, &[]);
    for _ in 0..10 {
        two.says(1, RelayCmd::DATA, b"read");
    }
    two.read();
    close(&mut two);
    for _ in 0..490 {
        two.says(1, RelayCmd::DATA, b"late");
    }
    assert_eq!(counts(&two.origin), (490, 0));
    // Past that somebody else may speak; nothing happens, but it is counted.
    two.says(1, RelayCmd::DATA, b"too late");
    two.says(1, RelayCmd::CONNECTED, &[]);
    two.says(1, RelayCmd::SENDME, &[]);
    two.says(1, RelayCmd::XON, &[0; 5]);
    assert_eq!(counts(&two.origin), (490, 4));
    // A hop that the stream did not lead to never was allowed anything.
    two.says(0, RelayCmd::END, &[6]);
    assert_eq!(counts(&two.origin), (490, 5));
    two.says(1, RelayCmd::END, &[6]);
    assert_eq!(counts(&two.origin), (491, 5));
    two.says(1, RelayCmd::END, &[6]);
    assert_eq!(counts(&two.origin), (491, 6));
    assert_eq!(two.origin.halves(), 1, "the circuit stays");
    two.origin.audit();
}

#[test]
fn a_stream_that_is_given_up_before_its_answer_may_still_be_answered() {
    let mut two = TwoHops::new(42);
    two.command(OriginCommand::Detach {
        stream: two.application,
        reason: EndReason::TIMEOUT,
    });
    two.says(1, RelayCmd::CONNECTED, &[]);
    two.says(1, RelayCmd::DATA, b"late");
    assert_eq!(counts(&two.origin), (2, 0));
    two.says(1, RelayCmd::CONNECTED, &[]);
    assert_eq!(counts(&two.origin), (2, 1));
    assert_eq!(two.origin.halves(), 1);
}

#[test]
fn a_second_answer_to_a_stream_that_is_open_ends_the_circuit() {
    for command in [RelayCmd::CONNECTED, RelayCmd::RESOLVED] {
        let mut two = TwoHops::new(43);
        two.says(1, RelayCmd::CONNECTED, &[]);
        two.says(1, command, &[]);
        assert_eq!(two.origin.halves(), 0, "{command}");
    }
}

#[test]
fn honest_exits_are_never_found_to_send_too_much() {
    for seed in 0..12 {
        let mut rng = StdRng::seed_from_u64(seed);
        let threads = rng.random_range(1..=3);
        let all = [Terms::Windows, Terms::Vegas, Terms::VegasCgo];
        let terms = all[rng.random_range(0..3)];
        let mut pair = Pair::new(threads, seed, terms);
        let bytes = payload(seed, 400_000);
        let mut open: Vec<(ConnectionId, usize)> = Vec::new();
        for number in 0..20 {
            let id = pair.application(rng.random_range(0..usize::from(threads)), number);
            pair.attach(id);
            open.push((id, pair.exit.edges.len() - 1));
            for _ in 0..rng.random_range(0..20) {
                for (id, edge) in &open {
                    let mut down = &bytes[..rng.random_range(0..30_000)];
                    pair.write_exit(*edge, &mut down);
                    let mut up = &bytes[..rng.random_range(0..10_000)];
                    pair.write_application(*id, &mut up);
                    pair.read_application(*id, rng.random_range(0..30_000));
                    pair.read_exit(*edge, usize::MAX);
                }
                if rng.random_bool(0.5) {
                    pair.pump();
                }
            }
            // Some leave while data is on its way.
            while rng.random_bool(0.5) && !open.is_empty() {
                let (id, _) = open.swap_remove(rng.random_range(0..open.len()));
                let (thread, edge) = pair.applications[&id];
                let now = pair.origin.now;
                pair.origin.managers[thread].end_edge(edge, EndReason::DONE, now);
            }
        }
        pair.pump();
        assert_eq!(pair.origin.totals().cells_dropped, 0, "seed {seed}");
        assert_eq!(pair.origin.totals().streams.flow_violations, 0);
        assert_eq!(pair.origin.halves(), 1);
        pair.origin.audit();
        pair.exit.audit();
    }
}

/// Lets cells travel from the exit only: what the origin says waits.
fn pump_down(pair: &mut Pair, held: &mut Vec<weft_cell::Cell>) {
    for _ in 0..10_000 {
        pair.exit.settle();
        pair.origin.settle();
        held.extend(std::iter::from_fn(|| pair.origin.take(pair.links.0)));
        let back: Vec<_> = std::iter::from_fn(|| pair.exit.take(pair.links.1)).collect();
        if back.is_empty() {
            return;
        }
        for cell in back {
            pair.origin.receive(pair.links.0, &cell);
        }
        pair.origin.now += Duration::from_millis(2);
        pair.exit.now += Duration::from_millis(2);
    }
}

/// A pair whose exit begins with a congestion window of so many cells, and a stream on it.
fn wide(seed: u64, cwnd_init: u32) -> (Pair, ConnectionId) {
    let mut params = RelayParams::new(OWN_RSA, OWN_ED);
    params.extend_to_private = true;
    params.cc.cwnd_init = cwnd_init;
    let exit = World::with_params(1, seed + 1, params);
    let mut pair = Pair::with_exit(World::new(1, seed), exit, Terms::Vegas);
    let id = pair.application(0, 0);
    pair.attach(id);
    (pair, id)
}

#[test]
fn an_honest_far_end_with_a_wide_window_is_waited_for_while_the_reader_stands_still() {
    let (mut pair, id) = wide(51, 20_000);
    let bytes = payload(1, 12_000_000);
    let (mut left, mut held) = (&bytes[..], Vec::new());
    // XOFF takes longer than the window.
    while pair.write_exit(0, &mut left) {
        pump_down(&mut pair, &mut held);
    }
    let sent = bytes.len() - left.len();
    assert!(sent > 19_000 * 480 && sent < MAX_WAITING, "{sent}");
    assert_eq!(pair.origin.totals().streams.overflowed, 0);
    for cell in held.drain(..) {
        pair.exit.receive(pair.links.1, &cell);
    }
    pair.pump();
    assert!(!pair.write_exit(0, &mut left), "XOFF stops it");
    // And all is there when it is read.
    let mut got = Vec::new();
    for _ in 0..100_000 {
        got.extend(pair.read_application(id, 500_000));
        pair.pump();
        pair.write_exit(0, &mut left);
        pair.pump();
        if got.len() == bytes.len() {
            break;
        }
    }
    assert!(got == bytes);
}

#[test]
fn streams_whose_bytes_wait_longest_are_ended_when_memory_is_short() {
    let (mut pair, old) = wide(52, 2000);
    let young = pair.application(0, 1);
    pair.attach(young);
    let bytes = payload(1, 100_000);
    pair.write_exit(0, &mut &bytes[..]);
    pair.pump();
    pair.origin.now += Duration::from_secs(10);
    pair.exit.now += Duration::from_secs(10);
    // A reader that takes some has younger bytes in front.
    let taken = pair.read_application(old, 1000);
    pair.write_exit(1, &mut &bytes[..]);
    pair.pump();
    let held = pair.origin.held();
    assert!(held >= 2 * taken.len() as u64);
    pair.origin.events.clear();
    pair.origin.relieve(held);
    pair.pump();
    let ended: Vec<_> = pair
        .origin
        .events
        .iter()
        .filter_map(|event| match event {
            OriginEvent::Ended { stream, by, .. } => Some((*stream, *by)),
            _ => None,
        })
        .collect();
    assert_eq!(ended, [(old, EndedBy::Us)]);
    assert!(pair.read_application(old, 1 << 20).is_empty());
    assert!(!pair.read_application(young, 1 << 20).is_empty());
    assert!(pair.origin.totals().freed_for_memory > 0);
    assert_eq!(pair.origin.halves(), 1, "the circuit stays");
    pair.exit.audit();
}

#[test]
fn a_far_end_that_ignores_xoff_loses_that_stream_alone() {
    let mut two = TwoHops::with_flow(53, HopFlow::Vegas { sendme_inc: 31 });
    two.says(1, RelayCmd::CONNECTED, &[]);
    let most = MAX_WAITING / 490;
    for _ in 0..=most {
        two.says(1, RelayCmd::DATA, &[7; 490]);
        // XOFF, and SENDMEs of the circuit; nobody heeds them.
        while two.origin.take(two.link).is_some() {}
        if two.origin.totals().streams.overflowed > 0 {
            break;
        }
    }
    assert_eq!(two.origin.totals().streams.overflowed, 1);
    let waiting = two.origin.managers[0].ledger(two.origin.now).owned();
    assert!(waiting < 10_000, "{waiting} bytes are kept");
    assert_eq!(two.origin.halves(), 1, "the circuit stays");
    two.origin.audit();
}
