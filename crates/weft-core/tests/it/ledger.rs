//! Memory of nodes: counted where it is held, bounded, and freed oldest and largest first.

use std::net::IpAddr;
use std::time::Duration;

use crate::far_end::{FarEnd, Kind, Side};
use crate::pair::{CLIENT, Pair, payload, read, write};
use crate::world::{Circuit, World, relay_identity};
use weft_cell::circ_msg::CreateRequest;
use weft_cell::reason::EndReason;
use weft_cell::relay::RelayBody;
use weft_cell::stream_msg::{Begin, BeginFlags, End};
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_core::address::{ConnectionId, ThreadId};
use weft_core::controller::Notice;
use weft_core::flow::Terms;
use weft_core::memory::ledger::{Cause, Cut, Held, Ledger};
use weft_core::message::{Report, RingDepths, ToController, Totals};
use weft_core::stream::credit::CIRCUIT_CREDIT;
use weft_core::stream::early::MAX_EARLY_XOFF;
use weft_share::PreviousHop;

/// A stream's BEGIN.
fn begin() -> Vec<u8> {
    let begin = Begin {
        target: b"example.com".to_vec(),
        port: 80,
        flags: BeginFlags::default(),
    };
    begin.encode().unwrap()
}

/// A relay message of a client's, for the exit.
fn sends(exit: &mut World, circuit: &mut Circuit, stream: u16, command: RelayCmd, data: &[u8]) {
    let cell = circuit.forward(exit, 0, ChanCmd::RELAY, command, stream, data);
    exit.receive(circuit.client.0, &cell);
    exit.settle();
}

/// The messages that a client got of its exit: command, stream, data.
fn hears(exit: &mut World, circuit: &mut Circuit) -> Vec<(RelayCmd, u16, Vec<u8>)> {
    let mut heard = Vec::new();
    while let Some(mut cell) = exit.take(circuit.client.0) {
        assert_eq!(cell.command(), ChanCmd::RELAY, "the circuit lives");
        assert_eq!(circuit.crypt.decrypt_backward(cell.body_mut()), Some(0));
        let body = RelayBody::new(cell.body());
        let data = body.data().unwrap().to_vec();
        heard.push((body.command(), body.stream_id(), data));
    }
    heard
}

/// An exit under congestion control, and a client's circuit there.
fn exit_and_circuit(seed: u64, terms: Terms) -> (World, Circuit) {
    let mut exit = World::new(1, seed);
    exit.sendme_inc = terms.is_vegas().then_some(31);
    let client = exit.link_on(0, CLIENT);
    let circuit = Circuit::create(&mut exit, client, 0x8000_0001);
    (exit, circuit)
}

#[test]
fn streams_that_were_drained_hold_next_to_nothing_and_honest_circuits_live_on() {
    let mut pair = Pair::new(1, 1, Terms::Vegas);
    let honest = pair.exit.link_on(0, CLIENT);
    Circuit::create(&mut pair.exit, honest, 0x8000_0001);
    let streams: Vec<_> = (0..300)
        .map(|number| {
            let id = pair.application(0, number);
            pair.attach(id);
            id
        })
        .collect();
    let before = pair.exit.held();
    let bytes = payload(1, 100_000);
    for (number, id) in streams.iter().enumerate() {
        let (mut left, mut got) = (&bytes[..], 0);
        while got < bytes.len() {
            pair.write_application(*id, &mut left);
            pair.pump();
            got += pair.read_exit(number, usize::MAX).len();
            pair.pump();
        }
        // Memory that its edges do not use is free for others.
        pair.origin.pass(Duration::from_millis(500));
    }
    // Once each buffer kept what it had grown to: 300 of them 38 MB, 33,700 of them 8 GiB.
    let each = pair.exit.held().saturating_sub(before) / streams.len() as u64;
    assert!(each * 33_700 < 512 << 20, "{each} bytes for each stream");
    assert!(pair.exit.held() < 8 << 20, "{}", pair.exit.held());
    // Spare memory is enough: no circuit is closed for it.
    let halves = pair.exit.halves();
    let held = pair.exit.held();
    pair.exit.relieve(held);
    assert!(pair.exit.held() < held * 9 / 10);
    assert_eq!(pair.exit.halves(), halves);
    assert_eq!(pair.exit.totals().streams.overflowed, 0);
    pair.exit.audit();
}

#[test]
fn the_oldest_and_largest_dies_first_and_a_circuit_that_holds_little_last() {
    let mut world = World::new(2, 7);
    let client = world.link_on(0, CLIENT);
    let next = world.link_on(1, relay_identity(9));
    let mut circuits: Vec<Circuit> = (0x8000_0001..0x8000_0005)
        .map(|id| {
            let mut circuit = Circuit::create(&mut world, client, id);
            circuit.extend(&mut world, 9, next);
            circuit
        })
        .collect();
    world.room = 0;
    let fill = |world: &mut World, circuit: &mut Circuit, cells: usize| {
        for _ in 0..cells {
            circuit.send(world, 1, RelayCmd::DATA, &[1; 400]);
        }
        world.settle();
    };
    fill(&mut world, &mut circuits[0], 10);
    fill(&mut world, &mut circuits[1], 200);
    world.now += Duration::from_secs(10);
    // Young, but large enough to weigh more than ten old cells.
    for _ in 0..2 {
        fill(&mut world, &mut circuits[2], 1000);
    }
    world.now += Duration::from_millis(200);
    let mut died = Vec::new();
    for _ in 0..3 {
        world.free_heavier_on(1, 1, 1);
        world.settle();
        died.extend(std::iter::from_fn(|| world.take(client)).map(|cell| {
            assert_eq!(cell.command(), ChanCmd::DESTROY);
            cell.circ_id()
        }));
    }
    assert_eq!(died, [0x8000_0002, 0x8000_0003, 0x8000_0001]);
    assert_eq!(
        world.totals().killed_for_memory,
        3,
        "the fourth holds no cell"
    );
    world.audit();
}

#[test]
fn a_link_that_takes_nothing_dies_for_what_it_holds_and_one_that_moves_does_not() {
    let mut world = World::new(2, 8);
    let client = world.link_on(0, CLIENT);
    let stuck = world.link_on(1, relay_identity(8));
    let moves = world.link_on(1, relay_identity(9));
    let mut there = Circuit::create(&mut world, client, 0x8000_0001);
    there.extend(&mut world, 8, stuck);
    let mut elsewhere = Circuit::create(&mut world, client, 0x8000_0002);
    elsewhere.extend(&mut world, 9, moves);
    // All is chosen, and stays on the link itself.
    world.not_reading.push(stuck);
    for _ in 0..500 {
        there.send(&mut world, 1, RelayCmd::DATA, &[1; 400]);
        elsewhere.send(&mut world, 1, RelayCmd::DATA, &[1; 400]);
        world.settle();
    }
    // The timers note what waits.
    world.tick();
    world.now += Duration::from_secs(20);
    elsewhere.send(&mut world, 1, RelayCmd::DATA, &[1; 400]);
    world.settle();
    let weight = 500 * 514 * 10_000;
    world.free_heavier(weight, 1);
    assert_eq!(world.closed, [stuck]);
    assert!(world.is_open(moves) && world.is_open(client));
    assert_eq!(world.totals().links_killed_for_memory, 1);
    world.settle();
    assert_eq!(
        world.expect(client, ChanCmd::DESTROY).circ_id(),
        there.client.1
    );
    // No other owner weighs that much, and none is closed in vain.
    world.free_heavier(weight, 1 << 40);
    world.settle();
    assert_eq!((world.closed.len(), world.halves()), (1, 2));
    world.audit();
}

#[test]
fn what_comes_while_a_name_is_looked_up_waits_under_xoff_and_none_is_lost() {
    let (mut exit, mut circuit) = exit_and_circuit(3, Terms::Vegas);
    sends(&mut exit, &mut circuit, 1, RelayCmd::BEGIN, &begin());
    let request = exit.streams.pop().unwrap();
    let before = exit.held();
    let post = payload(2, 490 * 1000);
    for part in post.chunks(490) {
        sends(&mut exit, &mut circuit, 1, RelayCmd::DATA, part);
        exit.now += Duration::from_millis(1);
    }
    let heard = hears(&mut exit, &mut circuit);
    let xoffs = heard
        .iter()
        .filter(|(command, ..)| *command == RelayCmd::XOFF);
    assert_eq!(xoffs.count(), 1, "asked to stop, once");
    assert!(exit.held() >= before + 1000 * 514, "what waits is counted");
    // The name is known.
    exit.serve(&request);
    exit.settle();
    let (now, (_, edge)) = (exit.now, exit.edges[0]);
    let mut got = Vec::new();
    while got.len() < post.len() {
        let more = read(&mut exit.managers[0], edge, 10_000, now);
        assert!(!more.is_empty());
        got.extend(more);
    }
    assert!(got == post);
    exit.settle();
    let heard = hears(&mut exit, &mut circuit);
    let commands: Vec<RelayCmd> = heard.iter().map(|(command, ..)| *command).collect();
    assert_eq!(commands, [RelayCmd::CONNECTED, RelayCmd::XON]);
    exit.audit();
}

#[test]
fn past_what_may_wait_for_a_decision_only_that_stream_ends() {
    let (mut exit, mut circuit) = exit_and_circuit(4, Terms::Vegas);
    sends(&mut exit, &mut circuit, 1, RelayCmd::BEGIN, &begin());
    sends(&mut exit, &mut circuit, 2, RelayCmd::BEGIN, &begin());
    let before = exit.managers[0].ledger(exit.now).owned();
    for _ in 0..MAX_EARLY_XOFF {
        sends(&mut exit, &mut circuit, 1, RelayCmd::DATA, &[7; 490]);
    }
    let bound = (MAX_EARLY_XOFF * 1100) as u64;
    let held = exit.managers[0].ledger(exit.now).owned();
    assert!(held < before + bound, "{held}");
    assert!(
        hears(&mut exit, &mut circuit)
            .iter()
            .all(|(command, ..)| *command != RelayCmd::END)
    );
    sends(&mut exit, &mut circuit, 1, RelayCmd::DATA, &[7; 490]);
    let heard = hears(&mut exit, &mut circuit);
    let (command, stream, data) = heard.last().unwrap();
    assert_eq!((*command, *stream), (RelayCmd::END, 1));
    assert_eq!(End::decode(data).reason, EndReason::RESOURCELIMIT);
    let held = exit.managers[0].ledger(exit.now).owned();
    assert!(held <= before, "{held} bytes are kept of {before}");
    assert_eq!(exit.halves(), 1, "the circuit stays");
    exit.audit();
}

#[test]
fn what_waits_for_a_decision_past_a_fixed_window_ends_the_circuit() {
    let (mut exit, mut circuit) = exit_and_circuit(5, Terms::Windows);
    sends(&mut exit, &mut circuit, 1, RelayCmd::BEGIN, &begin());
    for _ in 0..500 {
        sends(&mut exit, &mut circuit, 1, RelayCmd::DATA, &[7; 490]);
    }
    assert_eq!(exit.halves(), 1);
    sends(&mut exit, &mut circuit, 1, RelayCmd::DATA, &[7; 490]);
    assert_eq!(exit.halves(), 0);
    assert_eq!(exit.totals().streams.flow_violations, 1);
}

#[test]
fn early_data_is_freed_with_its_circuit() {
    let (mut exit, mut circuit) = exit_and_circuit(6, Terms::Vegas);
    sends(&mut exit, &mut circuit, 1, RelayCmd::BEGIN, &begin());
    let before = exit.held();
    for _ in 0..4000 {
        sends(&mut exit, &mut circuit, 1, RelayCmd::DATA, &[7; 490]);
    }
    exit.now += Duration::from_secs(1);
    assert!(exit.held() > before + 4000 * 514);
    exit.relieve(exit.held());
    exit.settle();
    assert_eq!(exit.halves(), 0);
    assert!(exit.held() < before + 65_536, "{} of {before}", exit.held());
    let _: Option<Cell> = exit.take(circuit.client.0);
}

#[test]
fn a_client_that_sends_no_sendme_makes_its_circuit_hold_no_more_than_the_allowance() {
    for (threads, count) in [(1, 50), (1, 1000), (2, 1000)] {
        let mut exit = World::new(threads, 9);
        exit.serve_streams = true;
        exit.sendme_inc = Some(31);
        let client = exit.link_on(0, CLIENT);
        let mut circuit = Circuit::create(&mut exit, client, 0x8000_0001);
        for stream in 1..=count {
            sends(&mut exit, &mut circuit, stream, RelayCmd::BEGIN, &begin());
        }
        let edges = exit.edges.clone();
        let idle = exit.held();
        // Destinations that send whatever is taken.
        let bytes = vec![7; 1 << 20];
        for _ in 0..400 {
            let mut moved = false;
            for (thread, edge) in &edges {
                let now = exit.now;
                moved |= write(&mut exit.managers[*thread], *edge, &mut &bytes[..], now);
            }
            exit.settle();
            if !moved {
                break;
            }
        }
        let pending: usize = (exit.managers.iter())
            .map(|manager| manager.inspect().pending_cells())
            .sum();
        assert!(pending <= CIRCUIT_CREDIT as usize, "{pending} cells wait");
        assert!(
            count < 1000 || pending == CIRCUIT_CREDIT as usize,
            "{pending} cells wait"
        );
        // All of it is counted, and little more.
        let held = exit.held();
        assert!(held > idle + pending as u64 * 514);
        assert!(held < idle + (8 << 20), "{held} of {idle}");
        exit.audit_at_rest();
        // And it is the heaviest, and gone with its circuit.
        exit.now += Duration::from_secs(1);
        exit.relieve(held);
        exit.settle();
        assert_eq!((exit.totals().killed_for_memory, exit.halves()), (1, 0));
        assert!(exit.held() < idle + (1 << 20), "{}", exit.held());
    }
}

#[test]
fn many_idle_streams_keep_none_of_the_allowance_from_one_that_has_bytes() {
    for threads in [1, 2] {
        let mut exit = World::new(threads, 10);
        exit.serve_streams = true;
        let client = exit.link_on(0, CLIENT);
        let mut circuit = Circuit::create(&mut exit, client, 0x8000_0001);
        // Each is lent some when it begins: together, more than there is.
        for stream in 1..=2000 {
            sends(&mut exit, &mut circuit, stream, RelayCmd::BEGIN, &begin());
        }
        exit.pass(Duration::from_secs(1));
        let (thread, edge) = *exit.edges.last().unwrap();
        // Within a stream's window.
        let bytes = payload(10, 200_000);
        let mut left = &bytes[..];
        for _ in 0..200 {
            let now = exit.now;
            write(&mut exit.managers[thread], edge, &mut left, now);
            exit.settle();
        }
        assert!(left.is_empty(), "{} bytes are left", left.len());
        exit.audit_at_rest();
    }
}

#[test]
fn what_a_burst_needed_is_given_back_within_seconds() {
    let mut world = World::new(2, 7);
    let next = world.link_on(1, relay_identity(9));
    let mut circuits: Vec<Circuit> = (0..20)
        .map(|number| {
            let client = world.link_on(0, CLIENT);
            let mut circuit = Circuit::create(&mut world, client, 0x8000_0001 + number);
            circuit.extend(&mut world, 9, next);
            circuit
        })
        .collect();
    world.pass(Duration::from_secs(10));
    world.settle();
    let before = world.held();
    world.room = 0;
    for circuit in &mut circuits {
        for _ in 0..200 {
            circuit.send(&mut world, 1, RelayCmd::DATA, &[1; 400]);
        }
    }
    world.settle();
    world.room = u32::MAX;
    world.settle();
    let cells = circuits.len() * 200 * size_of::<Cell>();
    // All were written, and their memory is where it was needed.
    assert!(world.held() > before + cells as u64, "{}", world.held());
    world.pass(Duration::from_secs(10));
    let after = world.held();
    assert!(
        after < before + 8192,
        "{before} bytes before it, {after} after"
    );
    assert_eq!(world.halves(), 2 * circuits.len());
    world.audit_at_rest();
}

/// Honest circuits over one link, each with cells that wait for a tenth of a second.
fn honest_circuits(world: &mut World, client: ConnectionId, next: ConnectionId) -> Vec<Circuit> {
    let circuits = (0x8000_0001..0x8000_0015).map(|id| {
        let mut circuit = Circuit::create(world, client, id);
        circuit.extend(world, 9, next);
        circuit
    });
    let mut circuits: Vec<Circuit> = circuits.collect();
    world.room = 0;
    for circuit in &mut circuits {
        for _ in 0..20 {
            circuit.send(world, 1, RelayCmd::DATA, &[1; 400]);
        }
    }
    world.settle();
    world.now += Duration::from_millis(100);
    world.room = u32::MAX;
    circuits
}

/// DESTROYs that a link got since.
fn destroyed(world: &mut World, connection: ConnectionId) -> usize {
    let cells = std::iter::from_fn(|| world.take(connection));
    cells
        .filter(|cell| cell.command() == ChanCmd::DESTROY)
        .count()
}

#[test]
fn idle_circuits_of_one_client_are_closed_and_no_honest_one() {
    for threads in [1, 2] {
        let mut world = World::new(threads, 3);
        world.list(&[9]);
        let attacker = world.link_from("127.0.0.66:1", 0, CLIENT);
        let client = world.link_from("127.0.0.1:1", 0, CLIENT);
        let next = world.link_on(usize::from(threads) - 1, relay_identity(9));
        for id in 0..4000 {
            let create = CreateRequest::Fast { x: [1; 20] };
            world.receive(attacker, &create.encode(0x8000_0001 + id).unwrap());
            if id % 64 == 0 {
                world.settle();
            }
        }
        world.settle();
        while world.take(attacker).is_some() {}
        let _honest = honest_circuits(&mut world, client, next);
        for _ in 0..5 {
            world.relieve(world.held());
            world.settle();
        }
        assert_eq!(destroyed(&mut world, client), 0);
        assert!(destroyed(&mut world, attacker) > 1000);
        world.audit();
    }
}

#[test]
fn a_hop_s_half_links_and_streams_count_together_and_on_all_threads() {
    let mut world = World::new(2, 3);
    world.list(&[9]);
    // Two links of one client on two threads, and another client's link.
    let links = [0, 1].map(|thread| world.link_from("127.0.0.66:1", thread, CLIENT));
    let client = world.link_from("127.0.0.1:1", 0, CLIENT);
    let next = world.link_on(1, relay_identity(9));
    world.settle();
    let before = world.held();
    let mut honest = Circuit::create(&mut world, client, 0x8000_0001);
    honest.extend(&mut world, 9, next);
    // Neither of two circuits holds as much as the honest one does.
    let mut circuits = links.map(|link| {
        let mut circuit = Circuit::create(&mut world, link, 0x8000_0001);
        circuit.extend(&mut world, 9, next);
        circuit
    });
    world.room = 0;
    for (circuit, cells) in std::iter::once(&mut honest)
        .chain(&mut circuits)
        .zip([300, 200, 200])
    {
        for _ in 0..cells {
            circuit.send(&mut world, 1, RelayCmd::DATA, &[1; 400]);
        }
    }
    world.settle();
    world.now += Duration::from_secs(1);
    let held = world.held();
    assert!(held > before + 700 * 514);
    // A tenth: some of the cells of one circuit.
    world.relieve(held);
    world.settle();
    assert_eq!(world.totals().killed_for_memory, 1);
    assert_eq!(destroyed(&mut world, client), 0);
    assert_eq!(
        links
            .map(|link| destroyed(&mut world, link))
            .iter()
            .sum::<usize>(),
        1
    );
    world.audit();
}

/// A circuit of the same client as a tunnel's first leg, with ten cells that have waited for two seconds.
fn beside_a_tunnel(far: &mut FarEnd) -> Circuit {
    far.world.list(&[9]);
    let next = far.world.link_on(0, relay_identity(9));
    let client = far.legs[0].connection;
    let mut circuit = Circuit::create(&mut far.world, client, 0x8000_1001);
    circuit.extend(&mut far.world, 9, next);
    far.world.room = 0;
    for _ in 0..10 {
        circuit.send(&mut far.world, 1, RelayCmd::DATA, &[1; 400]);
    }
    far.world.settle();
    far.pass(Duration::from_secs(2));
    circuit
}

/// The tunnel is closed for memory, and a circuit of its client is not.
fn tunnel_dies_first(far: &mut FarEnd, mut beside: Circuit) {
    let halves = |far: &mut FarEnd| (far.has_tunnel(), far.world.totals().killed_for_memory);
    assert_eq!(halves(far), (true, 0));
    let held = far.world.held();
    far.world.relieve(held);
    far.collect();
    assert_eq!(halves(far), (false, 1));
    far.world.room = u32::MAX;
    far.world.settle();
    for _ in 0..10 {
        assert_eq!(beside.at_next(&mut far.world).1, RelayCmd::DATA);
    }
}

#[test]
fn copies_that_a_tunnel_s_far_end_does_not_acknowledge_grow_old_and_die() {
    let mut far = FarEnd::with_legs(Side::Client, Kind::Mtor, 2, 5);
    let stream = far.open_stream(0);
    for _ in 0..4000 {
        far.write(0, 100_000);
        far.collect();
        // Messages on the second leg hold up everything behind them.
        while far.sendme(0) {}
        far.collect();
        if far.legs.iter().map(|leg| leg.received).sum::<u64>() >= 16_300 {
            break;
        }
    }
    // The client ends the stream: nothing waits any more.
    far.say(0, RelayCmd::END, stream, &[6]);
    far.collect();
    assert!(far.world.held() > 8 << 20, "{}", far.world.held());
    far.world.now += Duration::from_secs(58);
    let beside = beside_a_tunnel(&mut far);
    tunnel_dies_first(&mut far, beside);
}

#[test]
fn a_gap_that_is_filled_now_and_then_does_not_make_what_waits_young() {
    let mut far = FarEnd::with_legs(Side::Client, Kind::Mtor, 1, 6);
    let stream = far.open_stream(0);
    let first = far.number;
    // Every other message.
    for n in 0..8000 {
        far.subdata(
            0,
            first + 1 + 2 * n,
            RelayCmd::DATA.into(),
            stream,
            &[1; 400],
        );
    }
    far.collect();
    assert!(far.world.held() > 4 << 20, "{}", far.world.held());
    let beside = beside_a_tunnel(&mut far);
    for n in 0..580 {
        far.world.now += Duration::from_millis(100);
        far.subdata(0, first + 2 * n, RelayCmd::DATA.into(), stream, &[1; 400]);
        far.collect();
        far.read(0);
    }
    tunnel_dies_first(&mut far, beside);
}

#[test]
fn a_peer_that_reads_a_cell_now_and_then_does_not_make_its_link_young() {
    let mut world = World::new(1, 8);
    let attacker = world.link_from("127.0.0.66:1", 0, CLIENT);
    world.not_reading.push(attacker);
    for id in 0..4000 {
        let create = CreateRequest::Fast { x: [1; 20] };
        world.receive(attacker, &create.encode(0x8000_0001 + id).unwrap());
        world.settle();
    }
    for _ in 0..120 {
        world.pass(Duration::from_millis(250));
        let now = world.now;
        let manager = &mut world.managers[0];
        let link = manager.links().of(attacker).unwrap();
        let cell = manager
            .links_mut()
            .outgoing(link)
            .unwrap()
            .pop_front()
            .unwrap();
        manager.links_mut().recycle(cell);
        manager.links_mut().count_written(link, 1);
        manager.links_mut().wrote(link, now);
    }
    // 3,880 cells that have waited for thirty seconds.
    world.free_heavier(3_880 * 514 * 29_000, 1);
    assert_eq!(world.closed, [attacker]);
}

#[test]
fn the_controller_asks_who_holds_how_much_before_it_has_anybody_closed() {
    for threads in [1, 2] {
        let mut world = World::new(threads, 4);
        world.list(&[9]);
        let attacker = world.link_from("127.0.0.66:1", 0, CLIENT);
        let client = world.link_from("127.0.0.1:1", 0, CLIENT);
        for id in 0..200 {
            Circuit::create(&mut world, attacker, 0x8000_0001 + id);
        }
        Circuit::create(&mut world, client, 0x8000_0001);
        let halves = world.halves();
        let limit = 1 << 30;
        let others = limit - world.held();
        world.controller.set_memory_of_others(others);
        // A second round of reports comes before threads have answered the first.
        for _ in 0..2 {
            for thread in 0..threads {
                let mut report = report(thread, 0);
                report.ledger = world.managers[usize::from(thread)].ledger(world.now);
                let report = ToController::Report(Box::new(report));
                world.controller.handle(report, world.now);
            }
        }
        assert_eq!(world.halves(), halves);
        world.do_actions();
        world.settle();
        let pressure = |notice: &&Notice| matches!(notice, Notice::MemoryPressure { .. });
        assert_eq!(world.notices.iter().filter(pressure).count(), 1);
        let rounds = world.managers.iter().map(|manager| manager.memory_rounds());
        assert!(rounds.eq(vec![1; usize::from(threads)]));
        assert!(world.halves() < halves);
        assert_eq!(destroyed(&mut world, client), 0);
        assert_eq!(destroyed(&mut world, attacker), halves - world.halves());
    }
}

/// A thread's report that it holds nothing and has freed memory `memory_rounds` times.
fn report(thread: u16, memory_rounds: u64) -> Report {
    Report {
        thread: ThreadId(thread),
        bytes_per_second: 0.0,
        ledger: Ledger::default(),
        buffered: 0,
        memory_rounds,
        links: 0,
        halves: 0,
        circuits: 0,
        edges: 0,
        heaviest: Vec::new(),
        rings: RingDepths::default(),
        directions: Default::default(),
        exit_ports: Default::default(),
        activity: Default::default(),
        cpu: Duration::ZERO,
        totals: Totals::default(),
    }
}

#[test]
fn what_caches_hold_counts_and_is_freed_before_circuits() {
    let mut world = World::new(1, 5);
    let limit = 1 << 30;
    let mut reported = |memory_rounds, spare, fixed| {
        world.controller.set_cache_memory(spare, fixed, []);
        let report = ToController::Report(Box::new(report(0, memory_rounds)));
        world.controller.handle(report, world.now);
        world.do_actions();
        world.notices.pop()
    };
    assert_eq!(reported(0, 100, limit - 101), None);
    let pressure = Notice::MemoryPressure {
        used: limit as u64,
        allowed: limit as u64,
        to_free: 0,
        answers: Cut::default(),
    };
    assert_eq!(reported(0, limit / 2, limit / 2), Some(pressure));
    // Nothing more can be freed: no owner is closed in vain.
    assert_eq!(reported(1, 0, limit), None);
}

/// A thread also reports its holdings between two periodic reports: else a fast peer could have it
/// hold far more than allowed meanwhile.
#[test]
fn memory_is_judged_as_soon_as_a_thread_states_what_it_holds() {
    let mut world = World::new(1, 5);
    let limit = 1 << 30;
    let held = |memory_rounds, bytes| {
        let mut ledger = Ledger::default();
        ledger.add_fixed(bytes);
        ToController::Held {
            thread: ThreadId(0),
            ledger: Box::new(ledger),
            memory_rounds,
        }
    };
    // The memory of caches can be freed.
    world.controller.set_cache_memory(limit / 2, 0, []);
    let mut stated = |message| {
        world.controller.handle(message, world.now);
        world.do_actions();
        world.notices.pop()
    };
    // Before the first report nothing of the thread is known.
    assert_eq!(stated(held(0, limit / 2)), None);
    assert_eq!(stated(ToController::Report(Box::new(report(0, 0)))), None);
    assert_eq!(stated(held(0, limit / 2 - 1)), None);
    let pressure = Notice::MemoryPressure {
        used: limit as u64,
        allowed: limit as u64,
        to_free: 0,
        answers: Cut::default(),
    };
    assert_eq!(stated(held(0, limit / 2)), Some(pressure));
    // It has not done its part yet.
    assert_eq!(stated(held(0, limit / 2)), None);
}

#[test]
fn what_other_nodes_of_the_process_hold_is_not_this_one_s_to_hold() {
    let mut world = World::new(1, 5);
    let limit: u64 = 1 << 30;
    let mut reported = |spare, others| {
        world.controller.set_cache_memory(spare, 0, []);
        world.controller.set_memory_of_others(others);
        assert_eq!(world.controller.held_memory(), spare as u64);
        let report = ToController::Report(Box::new(report(0, 0)));
        world.controller.handle(report, world.now);
        world.do_actions();
        world.notices.pop()
    };
    assert_eq!(reported(1000, limit - 1001), None);
    let pressure = Notice::MemoryPressure {
        used: 1000,
        allowed: 999,
        to_free: 0,
        answers: Cut::default(),
    };
    assert_eq!(reported(1000, limit - 999), Some(pressure));
}

#[test]
fn answers_of_the_directory_are_owners_and_end_by_the_hop_that_holds_most() {
    let mut world = World::new(1, 5);
    let limit = 1 << 30;
    let hop = |number| PreviousHop::at(IpAddr::from([203, 0, 113, number]));
    let answers = [
        (hop(1), limit / 2),
        (hop(1), limit / 4),
        (hop(2), limit / 4),
    ];
    world.controller.set_cache_memory(0, 0, answers);
    assert_eq!(world.controller.held_memory(), limit as u64);
    let report = ToController::Report(Box::new(report(0, 0)));
    world.controller.handle(report, world.now);
    world.do_actions();
    world.settle();
    let cut = world.notices.iter().find_map(|notice| match notice {
        Notice::MemoryPressure { answers, .. } => Some(answers.clone()),
        _ => None,
    });
    let mut cut = cut.unwrap();
    let ends = answers.map(|(hop, bytes)| {
        let (cause, held) = (Cause::Hop(hop), Held::kept(bytes));
        let ends = cut.includes(cause, held);
        if ends {
            cut.closed(cause, held);
        }
        ends
    });
    assert_eq!(ends, [true, false, false]);
    assert_eq!(cut.bytes(), 0, "one of half the limit is enough");
}
