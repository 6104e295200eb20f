//! Every stream has one edge or waits for one decision, and every edge has one stream: whatever a
//! client ends and begins again while decisions, cells and credits for ended streams are under way.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::pair::{CLIENT, Pair};
use crate::world::{Circuit, World};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::relay::RelayBody;
use weft_cell::stream_msg::End;
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_core::flow::Terms;
use weft_core::message::FromController;
use weft_core::origin::OriginCommand;
use weft_core::slots::EdgeKey;

const HOST: &[u8] = b"example.com:80\0";

/// A client's circuit at a relay that does not decide about streams by itself.
fn undecided(threads: u16, seed: u64) -> (World, Circuit) {
    let mut world = World::new(threads, seed);
    let client = world.link_on(0, CLIENT);
    world.settle();
    let circuit = Circuit::create(&mut world, client, 0x8000_0001);
    (world, circuit)
}

/// The client sends a relay message on a stream.
fn send_relay_msg(
    world: &mut World,
    circuit: &mut Circuit,
    command: RelayCmd,
    stream: u16,
    data: &[u8],
) {
    let cell: Cell = circuit.forward(world, 0, ChanCmd::RELAY, command, stream, data);
    world.receive(circuit.client.0, &cell);
}

/// Messages that arrived at the client: streams, commands and data.
fn hear(world: &mut World, circuit: &mut Circuit) -> Vec<(u16, RelayCmd, Vec<u8>)> {
    let mut heard = Vec::new();
    while !world.written[&circuit.client.0].is_empty() {
        let mut cell = world.expect(circuit.client.0, ChanCmd::RELAY);
        let hop = circuit.crypt.decrypt_backward(cell.body_mut());
        assert_eq!(hop, Some(0));
        let body = RelayBody::new(cell.body());
        heard.push((
            body.stream_id(),
            body.command(),
            body.data().unwrap().to_vec(),
        ));
    }
    heard
}

/// Messages that arrived at the client, except SENDMEs: commands and data.
fn heard(world: &mut World, circuit: &mut Circuit) -> Vec<(RelayCmd, Vec<u8>)> {
    let heard = hear(world, circuit).into_iter();
    heard
        .filter(|(_, command, _)| *command != RelayCmd::SENDME)
        .map(|(_, command, data)| (command, data))
        .collect()
}

/// Edges whose sockets stay open.
fn open_edges(world: &World) -> Vec<(usize, EdgeKey)> {
    let edges = world.edges.iter().copied();
    let live = edges.filter(|(thread, edge)| world.managers[*thread].edges().id(*edge).is_some());
    live.filter(|(thread, edge)| !world.managers[*thread].edges().out(*edge).1)
        .collect()
}

/// Closes the sockets that are to be closed.
fn close_sockets(world: &mut World) {
    let now = world.now;
    world.edges.sort_unstable();
    world.edges.dedup();
    for (thread, edge) in world.edges.clone() {
        let manager = &mut world.managers[thread];
        if manager.edges().id(edge).is_some() && manager.edges().out(edge).1 {
            manager.end_edge(edge, EndReason::DONE, now);
        }
    }
    let managers = &world.managers;
    (world.edges).retain(|(thread, edge)| managers[*thread].edges().id(*edge).is_some());
    world.settle();
}

/// BEGIN 1, END 1, BEGIN 1, and both are decided afterwards: the second alone has an edge.
fn begin_end_begin(threads: u16, seed: u64, begin: RelayCmd) {
    let (mut world, mut circuit) = undecided(threads, seed);
    for round in 0..200 {
        let data = if begin == RelayCmd::BEGIN { HOST } else { &[] };
        send_relay_msg(&mut world, &mut circuit, begin, 1, data);
        // A stream that ends before it is asked for never is asked for.
        world.carry_to_controller();
        send_relay_msg(
            &mut world,
            &mut circuit,
            RelayCmd::DATA,
            1,
            b"for the first",
        );
        send_relay_msg(&mut world, &mut circuit, RelayCmd::END, 1, &[6]);
        send_relay_msg(&mut world, &mut circuit, begin, 1, data);
        world.settle();
        let mut asked = std::mem::take(&mut world.streams);
        assert_eq!(asked.len(), 2);
        let second = asked[1].at.addr;
        assert_ne!(asked[0].at.addr, second);
        if round % 3 == 0 {
            asked.reverse();
        }
        for request in &asked {
            world.serve(request);
            if round % 2 == 0 {
                world.settle();
            }
        }
        world.settle();
        world.audit_at_rest();
        // Its socket is the only one that stays open.
        assert_eq!(open_edges(&world).len(), 1, "round {round}");
        let (thread, edge) = open_edges(&world)[0];
        let heard = heard(&mut world, &mut circuit);
        assert_eq!(heard.len(), 1, "{heard:?}");
        assert_eq!(heard[0].0, RelayCmd::CONNECTED);
        send_relay_msg(
            &mut world,
            &mut circuit,
            RelayCmd::DATA,
            1,
            b"for the second",
        );
        world.settle();
        let manager = &world.managers[thread];
        assert_eq!(manager.edges().out(edge).0, b"for the second");
        let known = world
            .controller
            .thread_of(manager.edges().id(edge).unwrap());
        assert!(known.is_some());
        send_relay_msg(&mut world, &mut circuit, RelayCmd::END, 1, &[6]);
        world.settle();
        close_sockets(&mut world);
        assert!(world.edges.is_empty());
        world.audit_at_rest();
    }
    assert_eq!(world.controller.edge_places().count(), 0);
}

#[test]
fn a_stream_that_is_ended_and_begun_anew_has_one_edge() {
    for threads in [1, 3] {
        begin_end_begin(threads, 60 + u64::from(threads), RelayCmd::BEGIN);
    }
}

#[test]
fn a_directory_stream_that_is_ended_and_begun_anew_has_one_edge() {
    for threads in [1, 3] {
        begin_end_begin(threads, 70 + u64::from(threads), RelayCmd::BEGIN_DIR);
    }
}

#[test]
fn a_decision_about_a_stream_that_ended_does_not_end_the_next_one() {
    for threads in [1, 3] {
        let (mut world, mut circuit) = undecided(threads, 80 + u64::from(threads));
        send_relay_msg(&mut world, &mut circuit, RelayCmd::BEGIN, 1, HOST);
        world.carry_to_controller();
        send_relay_msg(&mut world, &mut circuit, RelayCmd::END, 1, &[6]);
        send_relay_msg(&mut world, &mut circuit, RelayCmd::BEGIN, 1, HOST);
        world.settle();
        let first = world.streams.remove(0).at.addr;
        let second = world.streams.remove(0);
        // Decisions about the first come while the second still waits for its own.
        let refusal = End::new(EndReason::RESOLVEFAILED);
        world.controller.refuse_stream(first, &refusal);
        let none = weft_cell::stream_msg::Resolved { answers: vec![] };
        world.controller.resolved(first, none);
        world.do_actions();
        world.settle();
        assert_eq!(heard(&mut world, &mut circuit), []);
        world.serve(&second);
        world.settle();
        let heard = heard(&mut world, &mut circuit);
        assert_eq!(heard, [(RelayCmd::CONNECTED, heard[0].1.clone())]);
        assert_eq!(open_edges(&world).len(), 1);
        // Nor does a second decision about the same stream.
        world.controller.refuse_stream(second.at.addr, &refusal);
        world.serve(&second);
        world.do_actions();
        world.settle();
        assert_eq!(open_edges(&world).len(), 1);
        world.audit_at_rest();
    }
}

#[test]
fn cells_that_wait_for_the_window_end_with_their_stream() {
    for threads in [1, 3] {
        let (mut world, mut circuit) = undecided(threads, 90 + u64::from(threads));
        world.serve_streams = true;
        for stream in 1..=4 {
            send_relay_msg(&mut world, &mut circuit, RelayCmd::BEGIN, stream, HOST);
        }
        world.settle();
        let (old, other) = (world.edges[0], world.edges[1]);
        let fillers = [world.edges[2], world.edges[3]];
        let fill = |world: &mut World, (thread, edge): (usize, EdgeKey), byte| {
            let now = world.now;
            loop {
                let manager = &mut world.managers[thread];
                let room = manager.edge_room(edge, now);
                if room == 0 {
                    return;
                }
                manager.edge_data(edge, &vec![byte; room], now);
                world.settle();
            }
        };
        // Nobody reads: the circuit's queue is full, and the edges' credit waits behind it.
        world.room = 0;
        for filler in fillers {
            fill(&mut world, filler, b'f');
        }
        fill(&mut world, old, b'o');
        fill(&mut world, other, b'x');
        let now = world.now;
        let waiting = world.managers[0].inspect().pending_cells();
        assert!(waiting >= 3 * 8, "{waiting}");
        // Its destination ends the old stream: END waits, too. So does the client.
        world.managers[old.0].end_edge(old.1, EndReason::DONE, now);
        world.settle();
        send_relay_msg(&mut world, &mut circuit, RelayCmd::END, 1, &[6]);
        send_relay_msg(&mut world, &mut circuit, RelayCmd::BEGIN, 1, HOST);
        world.settle();
        world.audit_at_rest();
        let (thread, new) = world.edges[4];
        world.managers[thread].edge_data(new, b"new", now);
        world.settle();
        // Cells that are never sent do not keep their memory: they are less than half of those that
        // wait.
        for stream in [2, 3, 4] {
            send_relay_msg(&mut world, &mut circuit, RelayCmd::END, stream, &[6]);
            world.settle();
            world.audit_at_rest();
        }
        assert_eq!(world.managers[0].inspect().pending_cells(), 1);
        world.room = u32::MAX;
        // Cells that wait for the queue follow in the next run of the scheduler.
        world.settle();
        world.settle();
        let heard = heard(&mut world, &mut circuit);
        let connected =
            |(_, (command, _)): &(usize, &(RelayCmd, _))| *command == RelayCmd::CONNECTED;
        let mut connected = heard.iter().enumerate().filter(connected);
        let (anew, _) = connected.nth(4).expect("CONNECTED of the new stream");
        let after = &heard[anew..];
        assert!(after.iter().all(|(_, data)| data.first() != Some(&b'o')));
        assert!(after.iter().all(|(command, _)| *command != RelayCmd::END));
        assert!(after.contains(&(RelayCmd::DATA, b"new".to_vec())));
        world.audit_at_rest();
        // It asks, if it has nothing left.
        let now = world.now;
        world.managers[thread].edge_room(new, now);
        world.settle();
        let room = world.managers[thread].edge_room(new, now);
        assert!(room > 0, "it goes on");
    }
}

#[test]
fn an_application_that_is_attached_again_gets_the_credit_of_its_new_stream_alone() {
    for threads in [1, 3] {
        for seed in 0..20 {
            let mut pair = Pair::new(threads, 100 + seed, Terms::Windows);
            let id = pair.application(usize::from(threads) - 1, 0);
            pair.exit.serve_streams = false;
            for _ in 0..20 {
                pair.attach(id);
                let mut bytes = &[b'a'; 9000][..];
                pair.write_application(id, &mut bytes);
                // The client thread takes it back while cells and credit are under way.
                pair.origin.controller.origin(
                    OriginCommand::Detach {
                        stream: id,
                        reason: EndReason::TIMEOUT,
                    },
                    pair.origin.now,
                );
                pair.origin.do_actions();
                for _ in 0..pair.origin.rng().random_range(0..6) {
                    let pick = pair.origin.rng().random_range(0..100);
                    pair.origin.step(pick);
                }
            }
            pair.pump();
            pair.origin.audit_at_rest();
            pair.exit.audit_at_rest();
        }
    }
}

/// Everything that a client, an exit and destinations may do, in any order.
#[test]
fn whatever_is_begun_and_ended_in_any_order_nothing_is_owned_twice_or_by_nobody() {
    for seed in 0..40 {
        let mut rng = StdRng::seed_from_u64(seed);
        let threads = rng.random_range(1..=3);
        let (mut world, mut circuit) = undecided(threads, 1000 + seed);
        // The circuit's link moves, and with it the half that all streams are on.
        world.moves = 2 * u32::from(seed % 2 == 1);
        // Streams that the client has begun and not ended: it sends nothing that it may not, so that
        // the circuit lives.
        let mut begun = BTreeSet::new();
        for _ in 0..600 {
            let now = world.now;
            let stream = rng.random_range(1..5);
            match rng.random_range(0..13) {
                0..=2 if begun.insert(stream) => {
                    send_relay_msg(&mut world, &mut circuit, RelayCmd::BEGIN, stream, HOST);
                }
                3 if begun.contains(&stream) => {
                    send_relay_msg(&mut world, &mut circuit, RelayCmd::DATA, stream, b"up");
                }
                4..=5 if begun.remove(&stream) => {
                    send_relay_msg(&mut world, &mut circuit, RelayCmd::END, stream, &[6]);
                }
                6..=7 if !world.streams.is_empty() => {
                    let at = rng.random_range(0..world.streams.len());
                    let request = world.streams.remove(at);
                    match rng.random_bool(0.8) {
                        true => world.serve(&request),
                        false => {
                            let end = End::new(EndReason::CONNECTREFUSED);
                            world.controller.refuse_stream(request.at.addr, &end);
                            world.do_actions();
                        }
                    }
                }
                8 if !world.edges.is_empty() => {
                    let (thread, edge) = world.edges[rng.random_range(0..world.edges.len())];
                    let manager = &mut world.managers[thread];
                    let room = manager.edge_room(edge, now).min(rng.random_range(1..9000));
                    manager.edge_data(edge, &vec![7; room], now);
                }
                9 if !world.edges.is_empty() => {
                    let at = rng.random_range(0..world.edges.len());
                    let (thread, edge) = world.edges.swap_remove(at);
                    world.managers[thread].end_edge(edge, EndReason::DONE, now);
                }
                10 => {
                    world.room = if rng.random_bool(0.5) { 0 } else { u32::MAX };
                }
                11 => {
                    for (stream, command, _) in hear(&mut world, &mut circuit) {
                        // It may be the END of an earlier stream that had this number: so the
                        // client uses the number again when it has ended this one, too.
                        if command == RelayCmd::END && begun.remove(&stream) {
                            send_relay_msg(&mut world, &mut circuit, RelayCmd::END, stream, &[6]);
                        }
                    }
                }
                _ => {
                    for _ in 0..rng.random_range(0..8) {
                        let pick = rng.random_range(0..100);
                        world.step(pick);
                    }
                }
            }
            if rng.random_bool(0.1) {
                world.settle();
                close_sockets(&mut world);
                world.audit_at_rest();
            }
        }
        world.room = u32::MAX;
        world.settle();
        world.audit_at_rest();
        assert_eq!(world.halves(), 1, "seed {seed}: the circuit lives");
        let held = world.controller.edge_places().count();
        assert_eq!(
            held,
            open_edges(&world).len() + over_edges(&world),
            "seed {seed}"
        );
        // The circuit ends, and all with it.
        let connection = circuit.client.0;
        let close = FromController::CloseConnection { connection };
        let now = world.now;
        let thread = world.thread_of(connection);
        world.managers[thread].handle_controller(close, now);
        world.settle();
        close_sockets(&mut world);
        // Decisions that come too late.
        for request in std::mem::take(&mut world.streams) {
            world.serve(&request);
        }
        world.settle();
        close_sockets(&mut world);
        world.audit_at_rest();
        assert_eq!(world.controller.edge_places().count(), 0, "seed {seed}");
        assert_eq!(world.halves(), 0);
    }
}

/// Edges whose sockets are to be closed.
fn over_edges(world: &World) -> usize {
    let mut edges = world.edges.clone();
    edges.sort_unstable();
    edges.dedup();
    let live = edges
        .iter()
        .filter(|(thread, edge)| world.managers[*thread].edges().id(*edge).is_some());
    live.filter(|(thread, edge)| world.managers[*thread].edges().out(*edge).1)
        .count()
}

/// Number of members of a list whose place has changed after one of them has left: the steps that
/// it took.
fn moved<K: PartialEq>(before: &[K], after: &[K]) -> usize {
    let places = before.iter().zip(after);
    places.filter(|(before, after)| before != after).count()
}

#[test]
fn thousands_of_edges_that_end_at_once_leave_exact_lists() {
    let (mut world, mut circuit) = undecided(1, 5);
    world.serve_streams = true;
    for stream in 1..=3000 {
        send_relay_msg(&mut world, &mut circuit, RelayCmd::BEGIN, stream, HOST);
        send_relay_msg(&mut world, &mut circuit, RelayCmd::DATA, stream, b"waits");
        if stream % 100 == 0 {
            world.settle();
            while world.take(circuit.client.0).is_some() {}
        }
    }
    world.settle();
    let manager = &mut world.managers[0];
    let listed = manager.edges().to_write().len();
    assert_eq!(listed, manager.edges().len());
    assert!(listed > 500, "{listed}");
    let now = world.now + Duration::from_secs(1);
    let reason = DestroyReason::FINISHED;
    manager.end_circuits(reason, now);
    // Sockets close in an order of their own.
    let mut rng = StdRng::seed_from_u64(9);
    let mut edges: Vec<EdgeKey> = manager.edges().to_write().to_vec();
    while !edges.is_empty() {
        let edge = edges.swap_remove(rng.random_range(0..edges.len()));
        let before = manager.edges().to_write().to_vec();
        manager.end_edge(edge, EndReason::DONE, now);
        assert_eq!(manager.edges().to_write().len(), edges.len());
        assert!(moved(&before, manager.edges().to_write()) <= 1);
        if edges.len().is_multiple_of(100) {
            manager.inspect().audit().unwrap();
        }
    }
    world.settle();
    world.audit_at_rest();
}

#[test]
fn hundreds_of_links_that_close_at_once_leave_an_exact_list() {
    let mut world = World::new(1, 6);
    let mut links: Vec<_> = (0..500).map(|_| world.link_on(0, CLIENT)).collect();
    // Their sockets take nothing: all stay listed.
    for id in &links {
        let manager = &mut world.managers[0];
        let link = manager.links().of(*id).unwrap();
        manager.links_mut().set_held(link, true);
    }
    let mut rng = StdRng::seed_from_u64(10);
    while !links.is_empty() {
        let link = links.swap_remove(rng.random_range(0..links.len()));
        let before = world.managers[0].links().listed().to_vec();
        world.close(link);
        let after = world.managers[0].links().listed();
        assert_eq!((before.len(), after.len()), (links.len() + 1, links.len()));
        assert!(moved(&before, after) <= 1);
    }
    world.settle();
    world.audit_at_rest();
}

#[test]
fn links_that_share_what_bandwidth_there_is_take_turns() {
    let mut world = World::new(1, 6);
    let ids: Vec<_> = (0..4).map(|_| world.link_on(0, CLIENT)).collect();
    let manager = &mut world.managers[0];
    for id in &ids {
        let link = manager.links().of(*id).unwrap();
        manager.links_mut().set_held(link, true);
    }
    let all = manager.links().listed().to_vec();
    let mut firsts = Vec::new();
    for _ in 0..4 {
        // There is enough for one.
        let turn = manager.links().listed().to_vec();
        firsts.push(turn[0]);
        for link in &turn[1..] {
            manager.links_mut().refused(*link);
        }
        manager.links_mut().prune_written();
        manager.inspect().audit().unwrap();
    }
    assert_eq!(firsts, all);
    // One that closes has no turn.
    manager.links_mut().refused(all[2]);
    world.close(ids[2]);
    let manager = &mut world.managers[0];
    manager.links_mut().prune_written();
    assert_eq!(manager.links().listed().len(), 3);
    world.settle();
    world.audit_at_rest();
}
