//! Tunnels of mTor (docs/extensions/mtor.md), between an origin and an exit without sockets, whose links carry cells at their own
//! pace, stand still, and are lost.

use crate::legs::{SECRET, TUNNEL, Tunnel};
use crate::pair::payload;
use crate::world::{self, CLIENT, Circuit, World};
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use weft_cell::mtor_msg::{Join, MtorDrop, Multipath, MultipathAck, TunnelId};
use weft_cell::reason::DestroyReason;
use weft_cell::relay::RelayBody;
use weft_cell::relay_command::RelayCommand;
use weft_cell::{ChanCmd, RelayCmd};
use weft_core::flow::Terms;
use weft_core::message::TunnelTotals;
use weft_core::origin::{OriginCommand, OriginId};

const LENGTH: usize = 300_000;
const TERMS: [Terms; 3] = [Terms::Windows, Terms::Vegas, Terms::VegasCgo];

#[test]
fn a_stream_over_many_legs_loses_nothing_whatever_circuits_agreed_on() {
    for (seed, terms) in (1..).zip(TERMS) {
        for legs in [1, 2, 5] {
            let mut tunnel = Tunnel::mtor(2, seed, legs, terms);
            let id = tunnel.open_stream(0);
            let (up, down) = (payload(seed, LENGTH), payload(seed + 1, LENGTH));
            let (got_up, got_down) = tunnel.transfer(id, &up, &down);
            assert!(got_up == up && got_down == down, "{legs} legs, {terms:?}");
            assert!(tunnel.sent_on_all_legs(), "{legs} legs, {terms:?}");
            tunnel.audit();
            let (origin, exit) = tunnel.totals();
            assert_eq!((origin.again, exit.again), (0, 0), "{legs} legs, {terms:?}");
        }
    }
}

#[test]
fn legs_that_are_lost_in_use_cost_no_byte() {
    for (seed, terms) in (11..).zip(TERMS) {
        let mut tunnel = Tunnel::mtor(3, seed, 5, terms);
        let id = tunnel.open_stream(1);
        let (up, down) = (payload(seed, LENGTH), payload(seed + 1, LENGTH));
        let (got_up, got_down) = tunnel.transfer_with(id, &up, &down, |tunnel, step| match step {
            5 => tunnel.lose_link(0),
            9 => tunnel.lose_link(3),
            13 => tunnel.lose_link(1),
            _ => {}
        });
        assert!(got_up == up && got_down == down, "{terms:?}");
        let (origin, exit) = tunnel.totals();
        assert!(origin.again + exit.again > 0, "{terms:?}");
        assert_eq!((origin.legs_lost, exit.legs_lost), (3, 3), "{terms:?}");
        assert!(!tunnel.closed().contains(&TUNNEL));
        tunnel.audit();
    }
}

#[test]
fn a_leg_that_stands_still_is_reported_and_what_it_carries_comes_by_others() {
    for (seed, terms) in (21..).zip(TERMS) {
        let mut tunnel = Tunnel::mtor(2, seed, 3, terms);
        let id = tunnel.open_stream(0);
        let down = payload(seed, 3 * LENGTH);
        let (_, got) = tunnel.transfer_with(id, &[], &down, |tunnel, step| {
            if step == 15 {
                tunnel.pace[1] = 0;
            }
        });
        assert!(got == down, "{terms:?}");
        assert!(tunnel.slow().contains(&OriginId(101)), "{terms:?}");
        let (_, exit) = tunnel.totals();
        assert!(exit.again > 0, "{terms:?}");
        // It moves again: what it brings has arrived before.
        tunnel.pace[1] = 1;
        tunnel.pump();
        tunnel.audit();
        let (_, got) = tunnel.transfer(id, &[], &payload(1, 1000));
        assert!(got == payload(1, 1000));
    }
}

/// Of a message behind which nothing comes its far end cannot know that it is missing.
#[test]
fn the_last_message_arrives_though_its_leg_takes_it_nowhere() {
    for (seed, terms) in (51..).zip(TERMS) {
        for frozen in 0..2 {
            let mut tunnel = Tunnel::mtor(2, seed, 2, terms);
            let id = tunnel.open_stream(0);
            let (up, down) = (payload(seed, 2000), payload(seed + 1, 1000));
            tunnel.pace[frozen] = 0;
            let (got_up, got_down) = tunnel.transfer(id, &up, &down);
            assert!(got_up == up && got_down == down, "{terms:?}, {frozen}");
            tunnel.pace[frozen] = 1;
            tunnel.pump();
            tunnel.audit();
        }
    }
}

#[test]
fn a_leg_that_is_given_up_drains_and_closes_and_another_takes_its_place() {
    for (seed, terms) in (31..).zip(TERMS) {
        let mut tunnel = Tunnel::mtor(2, seed, 3, terms);
        let id = tunnel.open_stream(0);
        let (up, down) = (payload(seed, LENGTH), payload(seed + 1, LENGTH));
        let (got_up, got_down) = tunnel.transfer_with(id, &up, &down, |tunnel, step| match step {
            12 => {
                let circuit = OriginId(101);
                tunnel
                    .origin
                    .controller
                    .origin(OriginCommand::DropLeg { circuit }, tunnel.origin.now);
                tunnel.origin.do_actions();
            }
            13 => {
                tunnel.add_mtor_leg();
            }
            _ => {}
        });
        assert!(got_up == up && got_down == down, "{terms:?}");
        assert_eq!(tunnel.closed(), [OriginId(101)], "{terms:?}");
        let (origin, exit) = tunnel.totals();
        let legs = |of: TunnelTotals| (of.legs_dropped, of.legs_lost);
        assert_eq!((legs(origin), legs(exit)), ((1, 0), (1, 0)), "{terms:?}");
        tunnel.audit();
    }
}

#[test]
fn a_leg_without_anything_under_way_is_dropped_at_once() {
    let mut tunnel = Tunnel::mtor(2, 41, 2, Terms::Vegas);
    let id = tunnel.open_stream(0);
    tunnel.command(OriginCommand::DropLeg {
        circuit: OriginId(100),
    });
    tunnel.pump();
    assert_eq!(tunnel.closed(), [OriginId(100)]);
    let down = payload(42, 50_000);
    let (_, got) = tunnel.transfer(id, &[], &down);
    assert!(got == down);
    tunnel.audit();
}

#[test]
fn the_last_leg_takes_the_tunnel_with_it_and_nothing_is_left() {
    let mut tunnel = Tunnel::mtor(2, 51, 2, Terms::Vegas);
    let id = tunnel.open_stream(0);
    tunnel.write_some(id, &payload(52, LENGTH));
    tunnel.lose_link(0);
    tunnel.lose_link(1);
    tunnel.pump();
    assert!(tunnel.closed().contains(&TUNNEL));
    tunnel.audit();
    assert_eq!(tunnel.halves(), (0, 0));
    let names = [&tunnel.origin, &tunnel.exit].map(|world| world.controller.tunnels());
    assert_eq!(names, [0, 0]);
}

/// Moves bytes both ways while legs are lost, stall, are given up and replaced at random.
fn chaos(seed: u64, steps: usize) -> Result<(), TestCaseError> {
    let mut rng = StdRng::seed_from_u64(seed);
    let terms = TERMS[rng.random_range(0..TERMS.len())];
    let legs = rng.random_range(2..6);
    let mut tunnel = Tunnel::mtor(rng.random_range(1..4), seed, legs, terms);
    let id = tunnel.open_stream(0);
    let (up, down) = (payload(seed, 80_000), payload(seed + 1, 160_000));
    let mut given_up = Vec::new();
    let (got_up, got_down) = tunnel.transfer_with(id, &up, &down, |tunnel, step| {
        if step >= steps || step % 6 != 5 {
            return;
        }
        // The tunnel keeps a leg that is in use and moves.
        let in_use: Vec<usize> = (tunnel.open_links().into_iter())
            .filter(|leg| !given_up.contains(leg))
            .collect();
        let moving = in_use.iter().filter(|leg| tunnel.pace[**leg] > 0).count();
        let leg = in_use[rng.random_range(0..in_use.len())];
        let spare = moving > 1 || tunnel.pace[leg] == 0;
        match rng.random_range(0..6) {
            0 if spare => tunnel.lose_link(leg),
            1 => tunnel.pace[leg] = rng.random_range(1..20),
            2 if spare => tunnel.pace[leg] = 0,
            3 if in_use.len() < 8 => {
                let paces = std::mem::replace(&mut tunnel.pace, vec![1; tunnel.links.len()]);
                tunnel.add_mtor_leg();
                tunnel.pace[..paces.len()].copy_from_slice(&paces);
            }
            4 if spare => {
                let circuit = OriginId(100 + leg as u64);
                let command = OriginCommand::DropLeg { circuit };
                tunnel.origin.controller.origin(command, tunnel.origin.now);
                tunnel.origin.do_actions();
                given_up.push(leg);
            }
            _ => {}
        }
    });
    prop_assert!(got_up == up, "seed {seed}: up");
    prop_assert!(got_down == down, "seed {seed}: down");
    tunnel.pace.fill(1);
    tunnel.pump();
    tunnel.audit();
    Ok(())
}

/// Number of runs: PROPTEST_CASES, or a hundred.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(100)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_to_legs_no_byte_is_lost_twice_or_out_of_order(seed in any::<u32>()) {
        chaos(seed.into(), 200)?;
    }
}

// ---- what an exit does not take ----

fn exit() -> (World, Circuit) {
    let mut world = World::new(2, 61);
    world.serve_streams = true;
    let link = world.link_on(0, CLIENT);
    let circuit = Circuit::create(&mut world, link, 0x8000_0001);
    (world, circuit)
}

fn send(world: &mut World, circuit: &mut Circuit, command: RelayCmd, stream: u16, data: &[u8]) {
    if world.is_open(circuit.client.0) {
        let cell = circuit.forward(world, 0, ChanCmd::RELAY, command, stream, data);
        world.receive(circuit.client.0, &cell);
        world.settle();
    }
}

/// Messages that the relay sent to the client: commands and data of relay messages; DESTROY has
/// none.
fn answers(world: &mut World, circuit: &mut Circuit) -> Vec<(Option<RelayCommand>, Vec<u8>)> {
    let mut answers = Vec::new();
    while let Some(cell) = world.take(circuit.client.0) {
        if cell.command() == ChanCmd::DESTROY {
            answers.push((None, Vec::new()));
            continue;
        }
        let mut body = *cell.body();
        if circuit.crypt.decrypt_backward(&mut body) != Some(0) {
            continue;
        }
        let body = RelayBody::new(&body);
        answers.push((
            RelayCommand::of(body.command()),
            body.data().unwrap().to_vec(),
        ));
    }
    answers
}

/// A circuit that is a tunnel's first leg: the tunnel's id.
fn begin(world: &mut World, circuit: &mut Circuit) -> TunnelId {
    let multipath = Multipath { secret: SECRET }.encode();
    send(
        world,
        circuit,
        RelayCommand::Multipath.wire(),
        0,
        &multipath,
    );
    let answers = answers(world, circuit);
    let [(Some(RelayCommand::MultipathAck), data)] = &answers[..] else {
        panic!("MULTIPATH_ACK expected, not {answers:?}");
    };
    MultipathAck::decode(data).unwrap().tunnel
}

#[test]
fn a_guess_tells_nothing_and_costs_its_circuit_alone() {
    let (mut world, mut circuit) = exit();
    let tunnel = begin(&mut world, &mut circuit);
    let other = TunnelId(tunnel.0 ^ 1);
    let mut results = Vec::new();
    for (number, (id, secret)) in [(tunnel, [0; 16]), (other, SECRET), (other, [0; 16])]
        .into_iter()
        .enumerate()
    {
        let link = world.link_on(1, CLIENT);
        let mut guess = Circuit::create(&mut world, link, 0x8000_0010 + number as u32);
        let join = Join { tunnel: id, secret }.encode();
        send(&mut world, &mut guess, RelayCommand::Join.wire(), 0, &join);
        results.push(answers(&mut world, &mut guess));
    }
    // All look alike.
    assert_eq!(results, vec![vec![(None, Vec::new())]; 3]);
    // And one that shows the secret joins.
    let link = world.link_on(1, CLIENT);
    let mut second = Circuit::create(&mut world, link, 0x8000_0020);
    let join = Join {
        tunnel,
        secret: SECRET,
    }
    .encode();
    send(&mut world, &mut second, RelayCommand::Join.wire(), 0, &join);
    assert_eq!(
        answers(&mut world, &mut second)[0].0,
        Some(RelayCommand::Joined)
    );
    world.audit_at_rest();
}

#[test]
fn what_no_client_sends_closes_the_circuit_alone() {
    let begin_data = b"example.com:80\0\0\0\0\0".to_vec();
    let cases: Vec<(&str, RelayCommand, u16, Vec<u8>)> = vec![
        (
            "MULTIPATH twice",
            RelayCommand::Multipath,
            0,
            Multipath { secret: SECRET }.encode().to_vec(),
        ),
        (
            "CONFLUX_LINK on a leg",
            RelayCommand::ConfluxLink,
            0,
            vec![1; 50],
        ),
        (
            "BEGIN past the tunnel",
            RelayCommand::Begin,
            1,
            begin_data.clone(),
        ),
        ("BEGIN_DIR", RelayCommand::BeginDir, 1, Vec::new()),
        ("DATA past the tunnel", RelayCommand::Data, 1, vec![1; 10]),
        ("EXTEND2", RelayCommand::Extend2, 0, vec![0; 100]),
        (
            "a drop for more than was sent",
            RelayCommand::MtorDrop,
            0,
            MtorDrop { received: 7 }.encode().to_vec(),
        ),
        ("a drop cut short", RelayCommand::MtorDrop, 0, vec![0; 3]),
        ("SUBDATA cut short", RelayCommand::Subdata, 1, vec![0, 0]),
        (
            "SUBDATA with EXTEND2 in it",
            RelayCommand::Subdata,
            1,
            vec![0, 0, 0, 1, 14, 1, 1],
        ),
        (
            "SUBDATA far ahead",
            RelayCommand::Subdata,
            1,
            [&[0, 1, 0, 0, 1][..], &begin_data].concat(),
        ),
        (
            "CONNECTED in SUBDATA",
            RelayCommand::Subdata,
            1,
            vec![0, 0, 0, 1, 4],
        ),
        (
            "MULTIPATH_ACK from a client",
            RelayCommand::MultipathAck,
            0,
            vec![1, 0, 0, 0, 1],
        ),
    ];
    for (what, command, stream, data) in cases {
        let (mut world, mut circuit) = exit();
        let connection = circuit.client.0;
        let mut other = Circuit::create(&mut world, connection, 0x8000_0002);
        begin(&mut world, &mut circuit);
        send(&mut world, &mut circuit, command.wire(), stream, &data);
        let answers = answers(&mut world, &mut circuit);
        assert_eq!(answers.last(), Some(&(None, Vec::new())), "{what}");
        assert_eq!(world.controller.tunnels(), 0, "{what}");
        world.audit_at_rest();
        send(&mut world, &mut other, RelayCmd::BEGIN, 1, &begin_data);
        assert!(
            world.take(connection).is_some(),
            "{what}: the other circuit goes on"
        );
    }
}

#[test]
fn a_relay_that_does_not_announce_it_does_not_serve_it() {
    let mut params = weft_core::params::RelayParams::new(world::OWN_RSA, world::OWN_ED);
    params.serve_mtor = false;
    let mut world = World::with_params(1, 71, params);
    let link = world.link_on(0, CLIENT);
    let mut circuit = Circuit::create(&mut world, link, 0x8000_0001);
    let multipath = Multipath { secret: SECRET }.encode();
    send(
        &mut world,
        &mut circuit,
        RelayCommand::Multipath.wire(),
        0,
        &multipath,
    );
    assert_eq!(answers(&mut world, &mut circuit), [(None, Vec::new())]);
}

#[test]
fn a_thousand_tunnels_of_one_client_leave_room_for_others() {
    let (mut world, _) = exit();
    let link = world.link_on(0, CLIENT);
    for number in 0..1000 {
        let mut circuit = Circuit::create(&mut world, link, 0x8001_0000 + number);
        begin(&mut world, &mut circuit);
    }
    assert_eq!(world.controller.tunnels(), 1000);
    world.close(link);
    world.settle();
    world.audit_at_rest();
    assert_eq!(world.controller.tunnels(), 0);
}

#[test]
fn closing_the_tunnel_closes_its_legs() {
    let mut tunnel = Tunnel::mtor(2, 81, 3, Terms::Vegas);
    tunnel.open_stream(0);
    tunnel.command(OriginCommand::CloseCircuit {
        circuit: TUNNEL,
        reason: DestroyReason::FINISHED,
    });
    tunnel.pump();
    assert_eq!(tunnel.closed().len(), 4);
    assert_eq!(tunnel.halves(), (0, 0));
    tunnel.audit();
}
