//! Streams that one side has ended and the other does not know of yet; readers that stand still.

use std::time::Duration;

use crate::pair::{CIRCUIT, Pair, TwoHops, payload};
use crate::world::{OWN_ED, OWN_RSA, World};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use weft_cell::RelayCmd;
use weft_cell::reason::{DestroyReason, EndReason};
use weft_core::address::{ConnectionId, HopIndex, ThreadId};
use weft_core::flow::Terms;
use weft_core::origin::traffic::CircuitTraffic;
use weft_core::origin::{EndedBy, HopFlow, OriginCommand, OriginEvent, StreamOpening};
use weft_core::params::RelayParams;
use weft_core::stream::edge::MAX_WAITING;

/// The origin's counts of late messages that are allowed, and of messages that no honest peer
/// sends.
fn counts(world: &World) -> (u64, u64) {
    let totals = world.totals();
    (totals.streams.late, totals.streams.stray)
}

fn close(two: &mut TwoHops) {
    two.command(OriginCommand::CloseStream {
        stream: two.application,
        reason: EndReason::DONE,
    });
}

/// A stream that the origin ended after 10 cells, and whose exit has sent 490 since.
fn used_up(seed: u64) -> TwoHops {
    let mut two = TwoHops::new(seed);
    two.sends(1, RelayCmd::CONNECTED, &[]);
    for _ in 0..10 {
        two.sends(1, RelayCmd::DATA, b"read");
    }
    two.read();
    close(&mut two);
    for _ in 0..490 {
        two.sends(1, RelayCmd::DATA, b"late");
    }
    assert_eq!(counts(&two.origin), (490, 0));
    two
}

#[test]
fn an_exit_that_does_not_know_yet_may_send_what_the_windows_allow() {
    let mut two = used_up(41);
    two.sends(1, RelayCmd::END, &[6]);
    assert_eq!(counts(&two.origin), (491, 0));
    assert_eq!(two.origin.halves(), 1, "the circuit stays");
    two.origin.audit();
}

#[test]
fn past_that_somebody_marks_the_circuit_which_ends() {
    let cases: [(usize, &[RelayCmd]); 7] = [
        (1, &[RelayCmd::DATA]),
        (1, &[RelayCmd::CONNECTED]),
        (1, &[RelayCmd::SENDME]),
        (1, &[RelayCmd::XON]),
        (1, &[RelayCmd::RESOLVED, RelayCmd::RESOLVED]),
        (1, &[RelayCmd::END, RelayCmd::END]),
        // A hop that the stream did not lead to never was allowed anything.
        (0, &[RelayCmd::END]),
    ];
    for (hop, commands) in cases {
        let mut two = used_up(44);
        for (number, command) in commands.iter().enumerate() {
            assert_eq!(two.origin.halves(), 1, "{number} of {commands:?}");
            two.sends(hop, *command, &[6, 0, 0, 0, 0]);
        }
        assert_eq!(two.origin.halves(), 0, "{commands:?} from hop {hop}");
        assert_eq!(counts(&two.origin).1, 1);
        let closed = two.origin.events.iter().any(|event| {
            let reason = DestroyReason::PROTOCOL;
            matches!(event, OriginEvent::Closed { reason: why, remote: false, .. } if *why == reason)
        });
        assert!(closed, "{commands:?}: {:?}", two.origin.events);
    }
}

#[test]
fn what_an_origin_did_not_ask_for_ends_the_circuit() {
    let never = |two: &mut TwoHops| two.stream += 1;
    let no_stream = |two: &mut TwoHops| two.stream = 0;
    let connected = |two: &mut TwoHops| two.sends(1, RelayCmd::CONNECTED, &[]);
    let nothing = |_: &mut TwoHops| {};
    type Before<'a> = &'a dyn Fn(&mut TwoHops);
    let cases: [(&str, Before<'_>, RelayCmd); 14] = [
        ("never was", &never, RelayCmd::DATA),
        ("never was", &never, RelayCmd::END),
        ("never was", &never, RelayCmd::SENDME),
        ("not connected", &nothing, RelayCmd::DATA),
        ("was no RESOLVE", &nothing, RelayCmd::RESOLVED),
        ("was no RESOLVE", &connected, RelayCmd::RESOLVED),
        ("is connected", &connected, RelayCmd::CONNECTED),
        ("asks an origin", &never, RelayCmd::BEGIN),
        ("asks an origin", &no_stream, RelayCmd::EXTEND2),
        ("nothing was extended", &no_stream, RelayCmd::EXTENDED2),
        ("no padding", &no_stream, RelayCmd::PADDING_NEGOTIATED),
        ("no rendezvous", &no_stream, RelayCmd::RENDEZVOUS2),
        ("for no stream", &no_stream, RelayCmd::DATA),
        ("from the future", &no_stream, RelayCmd::from(200)),
    ];
    for (why, before, command) in cases {
        let mut two = TwoHops::new(45);
        before(&mut two);
        two.sends(1, command, &[0; 5]);
        assert_eq!(two.origin.halves(), 0, "{command}: {why}");
    }
    // DROP may come from any hop at any time (tor-spec 7.2).
    let mut two = TwoHops::new(46);
    two.stream = 0;
    two.sends(0, RelayCmd::DROP, &[]);
    two.sends(1, RelayCmd::DROP, &[1; 100]);
    assert_eq!(two.origin.halves(), 1);
}

#[test]
fn connected_does_not_answer_a_resolve_nor_data() {
    for command in [RelayCmd::CONNECTED, RelayCmd::DATA] {
        let mut two = TwoHops::new(47);
        let id = ConnectionId(u64::MAX - 1);
        two.origin.controller.place_at(id, ThreadId(0));
        two.origin.managers[0]
            .edges_mut()
            .adopt_application(id)
            .unwrap();
        two.command(OriginCommand::Attach {
            stream: id,
            circuit: CIRCUIT,
            hop: HopIndex(1),
            opening: StreamOpening::Resolve {
                name: "example.com".to_owned(),
            },
        });
        two.stream += 1;
        two.sends(1, command, &[0; 5]);
        assert_eq!(two.origin.halves(), 0, "{command}");
    }
}

/// Sum of the reported traffic of the circuit, and the number of reports.
fn reported(two: &mut TwoHops) -> (CircuitTraffic, usize) {
    let mut sum = CircuitTraffic::default();
    let mut reports = 0;
    for event in std::mem::take(&mut two.origin.events) {
        let OriginEvent::Traffic { circuits, .. } = event else {
            continue;
        };
        for report in circuits {
            assert_eq!((report.circuit, report.congestion), (CIRCUIT, None));
            reports += 1;
            sum.read += report.traffic.read;
            sum.written += report.traffic.written;
            sum.delivered_read += report.traffic.delivered_read;
            sum.overhead_read += report.traffic.overhead_read;
            sum.delivered_written += report.traffic.delivered_written;
            sum.overhead_written += report.traffic.overhead_written;
        }
    }
    (sum, reports)
}

#[test]
fn what_a_circuit_carries_is_reported_as_c_tor_counts_it() {
    let mut two = TwoHops::new(48);
    two.origin.pass(Duration::from_secs(1));
    // BEGIN_DIR has no data.
    let (begun, reports) = reported(&mut two);
    assert_eq!(reports, 1);
    let begin = CircuitTraffic {
        written: 509,
        overhead_written: 498,
        ..CircuitTraffic::default()
    };
    assert_eq!(begun, begin);
    // Nothing, and nothing is sent.
    two.origin.pass(Duration::from_secs(3));
    assert_eq!(reported(&mut two).1, 0);
    two.sends(1, RelayCmd::CONNECTED, &[]);
    for _ in 0..100 {
        two.sends(1, RelayCmd::DATA, b"12345");
    }
    two.read();
    // Allowed after our END: valid, too.
    close(&mut two);
    two.sends(1, RelayCmd::DATA, b"late");
    two.origin.pass(Duration::from_secs(2));
    let (sum, reports) = reported(&mut two);
    assert_eq!(reports, 1);
    let mut written = 0;
    while two.origin.take(two.link).is_some() {
        written += 1;
    }
    assert!(written >= 2, "a SENDME for the circuit, END");
    assert_eq!((sum.read, sum.written), (102 * 509, written * 509));
    assert_eq!(sum.delivered_read, 504);
    assert_eq!(sum.delivered_read + sum.overhead_read, 102 * 498);
    assert_eq!(sum.delivered_written + sum.overhead_written, written * 498);
    // Version 1 with its digest, END with its reason.
    assert_eq!(sum.delivered_written, 23 + 1);
}

#[test]
fn dropped_cells_show_at_once_and_those_of_a_closed_circuit_too() {
    let mut two = TwoHops::new(49);
    // Everything is reported once a second, which is not due again for three quarters of one.
    two.origin.pass(Duration::from_millis(1250));
    reported(&mut two);
    let stream = std::mem::replace(&mut two.stream, 0);
    two.sends(1, RelayCmd::DROP, &[]);
    two.origin.pass(Duration::from_millis(250));
    let (sum, reports) = reported(&mut two);
    assert_eq!(reports, 1);
    let dropped = CircuitTraffic {
        read: 509,
        ..CircuitTraffic::default()
    };
    assert_eq!(sum, dropped);
    // The cell that causes a circuit's end is reported before the end.
    two.stream = stream;
    two.sends(1, RelayCmd::CONNECTED, &[]);
    two.sends(1, RelayCmd::CONNECTED, &[]);
    let kinds: Vec<bool> = two
        .origin
        .events
        .iter()
        .filter_map(|event| match event {
            OriginEvent::Traffic { .. } => Some(true),
            OriginEvent::Closed { .. } => Some(false),
            _ => None,
        })
        .collect();
    assert_eq!(kinds, [true, false]);
    assert_eq!(reported(&mut two).0.read, 2 * 509);
}

#[test]
fn bytes_of_streams_are_reported_while_they_flow_and_at_their_end() {
    let mut two = TwoHops::new(50);
    two.sends(1, RelayCmd::CONNECTED, &[]);
    two.sends(1, RelayCmd::DATA, b"12345");
    two.origin.pass(Duration::from_secs(1));
    two.sends(1, RelayCmd::DATA, b"678");
    two.sends(1, RelayCmd::END, &[6]);
    // Who hears of the end has heard of all bytes.
    let last: Vec<&OriginEvent> = two.origin.events.iter().rev().take(2).collect();
    let [
        OriginEvent::Ended { .. },
        OriginEvent::Traffic { streams, .. },
    ] = last[..]
    else {
        panic!("{last:?}");
    };
    assert_eq!(streams[..], [(two.application, 3, 0)]);
    two.read();
    let edge = two.origin.managers[0].edges().of(two.application).unwrap();
    let now = two.origin.now;
    two.origin.managers[0].end_edge(edge, EndReason::DONE, now);
    two.origin.settle();
    let mut bytes = Vec::new();
    for event in &two.origin.events {
        if let OriginEvent::Traffic { streams, .. } = event {
            bytes.extend(streams.iter().copied());
        }
    }
    let id = two.application;
    assert_eq!(bytes, [(id, 5, 0), (id, 3, 0)]);
}

#[test]
fn a_stream_that_is_given_up_before_its_answer_may_still_be_answered() {
    let mut two = TwoHops::new(42);
    two.command(OriginCommand::Detach {
        stream: two.application,
        reason: EndReason::TIMEOUT,
    });
    two.sends(1, RelayCmd::CONNECTED, &[]);
    two.sends(1, RelayCmd::DATA, b"late");
    assert_eq!(counts(&two.origin), (2, 0));
    assert_eq!(two.origin.halves(), 1);
    two.sends(1, RelayCmd::CONNECTED, &[]);
    assert_eq!(counts(&two.origin), (2, 1));
    assert_eq!(two.origin.halves(), 0);
}

#[test]
fn a_second_answer_to_a_stream_that_is_open_ends_the_circuit() {
    for command in [RelayCmd::CONNECTED, RelayCmd::RESOLVED] {
        let mut two = TwoHops::new(43);
        two.sends(1, RelayCmd::CONNECTED, &[]);
        two.sends(1, command, &[]);
        assert_eq!(two.origin.halves(), 0, "{command}");
    }
}

#[test]
fn honest_origins_and_exits_are_never_found_to_send_too_much() {
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
            // And some are left by the destination beyond the exit, with data on its way there.
            while rng.random_bool(0.5) && !open.is_empty() {
                let (_, number) = open.swap_remove(rng.random_range(0..open.len()));
                let (thread, edge) = pair.exit.edges[number];
                let now = pair.exit.now;
                pair.exit.managers[thread].end_edge(edge, EndReason::DONE, now);
            }
        }
        pair.pump();
        for world in [&pair.origin, &pair.exit] {
            let totals = world.totals();
            assert_eq!(totals.streams.stray, 0, "seed {seed}");
            assert_eq!(totals.streams.flow_violations, 0);
            assert_eq!((totals.protocol_errors, world.halves()), (0, 1));
        }
        pair.origin.audit();
        pair.exit.audit();
    }
}

/// Lets cells travel from the exit only: what the origin sends waits.
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

/// A pair whose exit begins with a congestion window of this number of cells, and a stream on it.
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
    two.sends(1, RelayCmd::CONNECTED, &[]);
    let most = MAX_WAITING / 490;
    for _ in 0..=most {
        two.sends(1, RelayCmd::DATA, &[7; 490]);
        // XOFF, and SENDMEs of the circuit; the far end ignores them.
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
