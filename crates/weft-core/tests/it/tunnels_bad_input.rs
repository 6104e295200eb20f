//! A far end of a tunnel, with the keys of its circuits, breaks the rules; and which circuits end for it.

use std::time::Duration;

use crate::far_end::{FarEnd, Kind, SECRET, Side, TUNNEL, TUNNEL_ID, link_message};
use crate::world::{CLIENT, relay_identity};
use weft_cell::RelayCmd;
use weft_cell::mtor_msg::{Join, Joined, MtorDrop, MtorStopped, MultipathAck, TunnelId};
use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::relay_command::RelayCommand;
use weft_core::origin::OriginCommand;

/// Each side that the test plays, and each way of joining legs.
const ALL: [(Side, Kind); 4] = [
    (Side::Client, Kind::Mtor),
    (Side::Client, Kind::Conflux),
    (Side::Exit, Kind::Mtor),
    (Side::Exit, Kind::Conflux),
];
const SIDES: [Side; 2] = [Side::Client, Side::Exit];
/// A relay message: its command and data.
type Answer = (RelayCommand, Vec<u8>);
const PROTOCOL: DestroyReason = DestroyReason::PROTOCOL;

// ---- names ----

#[test]
fn an_exit_answers_every_join_that_it_does_not_take_alike() {
    let mut far = FarEnd::with_legs(Side::Client, Kind::Mtor, 1, 11);
    far.open_stream(0);
    let known = far.id.unwrap();
    // A tunnel that has closed, and one of another client.
    let closed = far.another_tunnel([1; 16]);
    let last = far.legs.len() - 1;
    far.destroy(last);
    far.collect();
    let foreign = far.another_tunnel([2; 16]);
    let others = far.legs.len();
    let unknown = TunnelId(known.0 ^ closed.0 ^ 0x55aa);
    for (tunnel, secret) in [
        (unknown, SECRET),
        (known, [0; 16]),
        (closed, [1; 16]),
        (foreign, SECRET),
        (known, [2; 16]),
    ] {
        let leg = far.add_circuit();
        let data = Join { tunnel, secret }.encode();
        far.send(leg, RelayCommand::Join.wire(), 0, &data);
        assert_eq!(far.collect(), [], "it is not answered");
    }
    let refused: Vec<_> = (others..others + 5).map(|leg| (leg, PROTOCOL)).collect();
    assert_eq!(far.closed(), refused);
    assert_eq!(far.world.controller.tunnels(), 2);
    assert!(far.still_receives());
    far.world.audit_at_rest();
}

#[test]
fn a_client_is_no_leg_beside_those_of_relays() {
    // The kind of node that a leg comes from: a client, a relay that is not listed, two that are.
    let peers = [
        ("127.0.0.66:1", CLIENT),
        ("127.0.0.77:1", relay_identity(7)),
        ("127.0.0.9:1", relay_identity(9)),
        ("127.0.0.8:1", relay_identity(8)),
    ];
    let kind_of = |n: usize| n.min(2);
    for kind in [Kind::Conflux, Kind::Mtor] {
        for first in 0..peers.len() {
            for second in 0..peers.len() {
                let mut far = FarEnd::new(Side::Client, kind, 1, 11, true);
                far.world.serve_streams = false;
                far.world.list(&[8, 9]);
                for n in [first, second] {
                    let (addr, peer) = peers[n];
                    let link = far.world.link_from(addr, 0, peer);
                    far.add_circuit_on(link);
                }
                assert!(far.link(0));
                let fits = kind_of(first) == kind_of(second);
                assert_eq!(far.link(1), fits, "{kind:?}: {second} beside {first}");
                far.collect();
                let closed: &[_] = if fits { &[] } else { &[(1, PROTOCOL)] };
                assert_eq!(far.closed(), closed);
                far.say(0, RelayCmd::BEGIN, 1, b"example.com:80\0\0\0\0\0");
                far.collect();
                let request = &far.world.streams[0];
                assert_eq!(request.from_client, first == 0, "as on a circuit alone");
                assert_eq!(request.connection, far.legs[0].connection);
            }
        }
    }
}

#[test]
fn a_nonce_that_is_used_again_or_another_s_joins_nothing() {
    let mut far = FarEnd::with_legs(Side::Client, Kind::Conflux, 2, 12);
    far.open_stream(0);
    // One more bit, and it is another set.
    let other = far.add_circuit();
    let mut link = link_message(0, 0);
    link[1] ^= 1;
    far.send(other, RelayCmd::CONFLUX_LINK, 0, &link);
    assert!(far.take(other, RelayCommand::ConfluxLinked).is_some());
    assert_eq!(far.world.controller.tunnels(), 2);
    assert!(far.still_receives());
    // The set that has closed is not joined by its nonce: it is a new one, without its streams.
    far.destroy(0);
    far.destroy(1);
    far.collect();
    assert_eq!(far.world.controller.tunnels(), 1);
    let late = far.add_circuit();
    far.send(late, RelayCmd::CONFLUX_LINK, 0, &link_message(0, 0));
    assert!(far.take(late, RelayCommand::ConfluxLinked).is_some());
    far.send(late, RelayCmd::CONFLUX_LINKED_ACK, 0, &[]);
    far.send(late, RelayCmd::DATA, 1, &[1; 10]);
    far.collect();
    assert_eq!(far.closed(), [(late, PROTOCOL)], "there is no such stream");
    assert!(far.legs[other].open);
    far.world.audit_at_rest();
}

#[test]
fn no_more_legs_join_than_may() {
    for (side, kind) in ALL {
        // cfx_max_legs_set, and the bound of both.
        let most = match kind {
            Kind::Conflux => 8,
            Kind::Mtor => 16,
        };
        let mut far = FarEnd::with_legs(side, kind, most, 13);
        let leg = far.add_circuit();
        assert!(!far.link(leg), "{side:?} {kind:?}");
        assert_eq!((far.open_legs(), far.has_tunnel()), (most, true));
        far.world.audit_at_rest();
    }
}

#[test]
fn an_origin_takes_one_answer_to_what_it_asked() {
    let ack = |tunnel| {
        (
            RelayCommand::MultipathAck,
            MultipathAck { tunnel }.encode().to_vec(),
        )
    };
    let joined = |tunnel| (RelayCommand::Joined, Joined { tunnel }.encode().to_vec());
    let other = TunnelId(TUNNEL_ID.0 ^ 1);
    for (what, leg, (command, data)) in [
        ("JOINED to MULTIPATH", 0, joined(TUNNEL_ID)),
        ("MULTIPATH_ACK to JOIN", 1, ack(TUNNEL_ID)),
        ("another tunnel", 1, joined(other)),
        ("cut short", 1, (RelayCommand::Joined, vec![1, 0])),
    ] {
        let mut far = FarEnd::with_legs(Side::Exit, Kind::Mtor, leg, 14);
        let leg = far.add_circuit();
        far.ask_link(leg);
        far.collect();
        far.send(leg, command.wire(), 0, &data);
        far.collect();
        assert_eq!(far.open_legs(), leg, "{what}: this one alone closes");
        assert_eq!(far.has_tunnel(), leg > 0, "{what}");
        far.world.audit_at_rest();
    }
    let mut far = FarEnd::with_legs(Side::Exit, Kind::Mtor, 2, 15);
    let (command, data) = joined(TUNNEL_ID);
    far.send(1, command.wire(), 0, &data);
    far.collect();
    assert_eq!((far.open_legs(), far.has_tunnel()), (1, true), "twice");
}

#[test]
fn an_answer_after_the_tunnel_has_closed_joins_nothing() {
    for kind in [Kind::Mtor, Kind::Conflux] {
        let mut far = FarEnd::with_legs(Side::Exit, kind, 1, 16);
        let leg = far.add_circuit();
        far.ask_link(leg);
        far.collect();
        far.command(OriginCommand::CloseCircuit {
            circuit: TUNNEL,
            reason: DestroyReason::FINISHED,
        });
        let (command, data) = match kind {
            Kind::Mtor => {
                let tunnel = TUNNEL_ID;
                (
                    RelayCommand::Joined.wire(),
                    Joined { tunnel }.encode().to_vec(),
                )
            }
            Kind::Conflux => (RelayCmd::CONFLUX_LINKED, link_message(0, 0).to_vec()),
        };
        far.send(leg, command, 0, &data);
        far.collect();
        assert_eq!((far.open_legs(), far.has_tunnel()), (0, false), "{kind:?}");
        far.world.audit_at_rest();
    }
}

// ---- numbers ----

#[test]
fn a_number_too_far_ahead_closes_the_tunnel() {
    for side in SIDES {
        let mut far = FarEnd::with_legs(side, Kind::Mtor, 2, 21);
        let stream = far.open_stream(0);
        let next = far.number;
        far.subdata(1, next + 16_383, RelayCmd::DATA.into(), stream, &[1; 10]);
        far.collect();
        assert_eq!(far.open_legs(), 2, "{side:?}: it waits");
        far.subdata(1, next + 16_384, RelayCmd::DATA.into(), stream, &[1; 10]);
        far.collect();
        assert_eq!((far.open_legs(), far.has_tunnel()), (0, false), "{side:?}");
        far.world.audit_at_rest();
    }
}

#[test]
fn numbers_of_long_ago_are_dropped() {
    for side in SIDES {
        let mut far = FarEnd::with_legs(side, Kind::Mtor, 2, 22);
        let stream = far.open_stream(0);
        let next = far.number;
        // Before the first, which is before a wrap; as far back as numbers go; the last one, twice.
        for number in [0, u64::MAX, next + (1 << 31), next - 1, next - 1] {
            far.subdata(1, number, RelayCmd::DATA.into(), stream, &[9; 10]);
        }
        far.say(1, RelayCmd::DATA, stream, b"next");
        far.collect();
        assert_eq!(far.read(0), b"next", "{side:?}");
        assert_eq!(far.open_legs(), 2);
        far.world.audit_at_rest();
    }
}

#[test]
fn two_legs_of_a_set_that_bring_one_number_close_it() {
    for side in SIDES {
        let mut far = FarEnd::with_legs(side, Kind::Conflux, 2, 23);
        let stream = far.open_stream(0);
        // The first message of this leg has the number of the first of the other.
        far.send(1, RelayCmd::DATA, stream, &[1; 10]);
        far.collect();
        assert_eq!((far.open_legs(), far.has_tunnel()), (0, false), "{side:?}");
        assert_eq!(far.world.totals().protocol_errors, 1);
        far.world.audit_at_rest();
    }
}

#[test]
fn what_waits_behind_a_gap_is_accounted_and_freed() {
    for (side, kind) in ALL {
        let mut far = FarEnd::with_legs(side, kind, 2, 24);
        let stream = far.open_stream(0);
        let before = far.world.held();
        if kind == Kind::Conflux {
            far.send(1, RelayCmd::CONFLUX_SWITCH, 0, &[0, 0, 0, 2]);
        }
        let count = 2000;
        for n in 1..=count {
            match kind {
                Kind::Conflux => far.send(1, RelayCmd::DATA, stream, &[1; 10]),
                Kind::Mtor => {
                    let number = far.number + n;
                    far.subdata(1, number, RelayCmd::DATA.into(), stream, &[1; 10]);
                }
            }
        }
        far.collect();
        let held = far.world.held() - before;
        let least = 514 * count;
        assert!(
            (least..2 * least).contains(&held),
            "{side:?} {kind:?}: {held}"
        );
        // Memory is short: it is the heaviest owner.
        far.world.now += Duration::from_secs(1);
        far.world.relieve(before + least / 2);
        far.collect();
        assert_eq!((far.open_legs(), far.has_tunnel()), (0, false));
        far.world.audit_at_rest();
    }
}

// ---- legs that are given up ----

fn drop_leg(far: &mut FarEnd, leg: usize, received: u64) -> Vec<Answer> {
    let data = MtorDrop { received }.encode();
    far.send(leg, RelayCommand::MtorDrop.wire(), 0, &data);
    let answers = far.collect().into_iter();
    answers
        .filter(|message| message.leg == leg && message.command != RelayCommand::Subdata)
        .map(|message| (message.command, message.data))
        .collect()
}

#[test]
fn a_client_that_lies_about_what_it_received_harms_its_leg_alone() {
    let dropped = (RelayCommand::MtorDropped, Vec::new());
    let stopped = |sent| {
        let data = MtorStopped { sent }.encode().to_vec();
        (RelayCommand::MtorStopped, data)
    };
    let prepare = || {
        let mut far = FarEnd::with_legs(Side::Client, Kind::Mtor, 2, 31);
        far.open_stream(0);
        for _ in 0..10 {
            far.write(0, 5000);
            far.collect();
        }
        let received = far.legs[1].received;
        assert!(received > 5);
        (far, received)
    };
    // As much as was sent, less, and more.
    let (mut far, received) = prepare();
    assert_eq!(drop_leg(&mut far, 1, received), [dropped]);
    assert!(far.still_receives() && far.open_legs() == 2);
    for lie in [0, received - 1] {
        let (mut far, received) = prepare();
        assert_eq!(drop_leg(&mut far, 1, lie), [stopped(received)]);
        assert!(far.still_receives() && far.open_legs() == 2);
        // A second time.
        assert_eq!(drop_leg(&mut far, 1, received), []);
        assert_eq!(far.closed(), [(1, PROTOCOL)]);
        assert!(far.still_receives());
        far.world.audit_at_rest();
    }
    for lie in [received + 1, u64::MAX] {
        let (mut far, _) = prepare();
        assert_eq!(drop_leg(&mut far, 1, lie), []);
        assert_eq!(far.closed(), [(1, PROTOCOL)]);
        assert!(far.still_receives());
        far.world.audit_at_rest();
    }
    // One that does not close the leg, and one that goes on to send on it.
    let (mut far, received) = prepare();
    drop_leg(&mut far, 1, received);
    far.pass(Duration::from_secs(61));
    far.collect();
    assert_eq!(far.closed(), [(1, DestroyReason::TIMEOUT)]);
    assert!(far.still_receives());
    let (mut far, received) = prepare();
    drop_leg(&mut far, 1, received);
    far.say(1, RelayCmd::DATA, 1, b"behind it");
    far.collect();
    assert_eq!(far.closed(), [(1, PROTOCOL)]);
    assert!(far.still_receives());
    far.world.audit_at_rest();
}

#[test]
fn an_exit_that_lies_about_what_it_sent_harms_its_leg_alone() {
    let stopped = |sent| {
        let data = MtorStopped { sent }.encode().to_vec();
        (RelayCommand::MtorStopped, data)
    };
    let cases: [(&str, Vec<Answer>, u64); 6] = [
        ("nothing", vec![], 10),
        ("less than it sent", vec![stopped(1)], 0),
        ("more than it sends", vec![stopped(u64::MAX)], 10),
        ("twice", vec![stopped(50), stopped(50)], 0),
        ("with more", vec![(RelayCommand::MtorDropped, vec![1])], 0),
        ("rightly", vec![(RelayCommand::MtorDropped, vec![])], 0),
    ];
    for (what, answers, seconds) in cases {
        let mut far = FarEnd::with_legs(Side::Exit, Kind::Mtor, 2, 32);
        let stream = far.open_stream(0);
        for _ in 0..5 {
            far.say(1, RelayCmd::DATA, stream, b"abc");
        }
        let circuit = far.legs[1].circuit;
        far.command(OriginCommand::DropLeg { circuit });
        let dropped = far.take(1, RelayCommand::MtorDrop);
        let received = MtorDrop { received: 5 }.encode();
        assert_eq!(dropped.as_deref(), Some(&received[..]), "{what}");
        for (command, data) in answers {
            far.send(1, command.wire(), 0, &data);
        }
        far.collect();
        assert_eq!(far.legs[1].open, seconds > 0, "{what}");
        far.pass(Duration::from_secs(seconds));
        far.collect();
        assert!(!far.legs[1].open && far.legs[0].open, "{what}");
        assert!(far.still_receives(), "{what}");
        far.world.audit_at_rest();
    }
    // Unasked.
    let mut far = FarEnd::with_legs(Side::Exit, Kind::Mtor, 2, 33);
    far.open_stream(0);
    far.send(1, RelayCommand::MtorDropped.wire(), 0, &[]);
    far.collect();
    assert!(!far.legs[1].open && far.still_receives());
}

#[test]
fn a_leg_that_is_never_answered_closes_after_a_minute() {
    let mut far = FarEnd::with_legs(Side::Exit, Kind::Mtor, 1, 34);
    far.open_stream(0);
    let leg = far.add_circuit();
    far.ask_link(leg);
    far.pass(Duration::from_secs(59));
    far.collect();
    assert!(far.legs[leg].open);
    far.pass(Duration::from_secs(2));
    far.collect();
    assert!(!far.legs[leg].open && far.still_receives());
    far.world.audit_at_rest();
}

// ---- legs that send nothing, or everything ----

#[test]
fn a_leg_that_sends_past_its_window_closes_alone() {
    for side in SIDES {
        let mut far = FarEnd::new(side, Kind::Mtor, 2, 41, false);
        for leg in 0..2 {
            far.add_circuit();
            assert!(far.link(leg));
        }
        let stream = far.open_stream(0);
        // Its SENDMEs do not leave.
        let connection = far.legs[1].connection;
        far.world.room = 0;
        far.world.not_reading.push(connection);
        for _ in 0..1000 {
            far.say(1, RelayCmd::DATA, stream, &[1; 10]);
        }
        far.collect();
        assert_eq!(far.world.totals().protocol_errors, 0, "{side:?}");
        far.say(1, RelayCmd::DATA, stream, &[1; 10]);
        far.collect();
        assert_eq!(far.world.totals().protocol_errors, 1, "{side:?}");
        far.world.room = u32::MAX;
        far.world.not_reading.clear();
        far.collect();
        assert!(!far.legs[1].open && far.legs[0].open, "{side:?}");
        assert!(far.still_receives());
        // The last one did not count: it may be sent again.
        assert_eq!(far.read(0).len(), 10_000);
        far.number -= 1;
        far.say(0, RelayCmd::DATA, stream, b"again");
        far.collect();
        assert_eq!(far.read(0), b"again");
        far.world.audit_at_rest();
    }
}

#[test]
fn a_leg_that_is_never_read_holds_up_no_other() {
    for side in SIDES {
        let mut far = FarEnd::with_legs(side, Kind::Mtor, 3, 42);
        far.open_stream(0);
        let connection = far.legs[1].connection;
        far.world.not_reading.push(connection);
        let mut arrived = 0;
        for _ in 0..150 {
            far.write(0, 50_000);
            arrived += far.collect().len();
            far.sendmes();
            let next = far.next_missing();
            far.acknowledge(0, next);
            far.pass(Duration::from_millis(250));
        }
        // The leg's messages are bounded by its window, and have been sent again on others.
        assert!(arrived > 5000, "{side:?}: {arrived}");
        assert!(far.next_missing() > 5000, "{side:?}");
        let again = far.world.totals().tunnels.again;
        assert!((1..1000).contains(&again), "{side:?}: {again}");
        far.world.audit_at_rest();
    }
}

#[test]
fn a_far_end_that_goes_with_legs_open_leaves_nothing() {
    for (side, kind) in ALL {
        let mut far = FarEnd::with_legs(side, kind, 3, 43);
        let stream = far.open_stream(0);
        // Both ways something is under way, and behind a gap.
        far.write(0, 30_000);
        far.collect();
        match kind {
            Kind::Conflux => {
                far.send(1, RelayCmd::CONFLUX_SWITCH, 0, &[0, 0, 0, 9]);
                far.send(1, RelayCmd::DATA, stream, &[1; 10]);
            }
            Kind::Mtor => far.subdata(1, 100, RelayCmd::DATA.into(), stream, &[1; 10]),
        }
        far.collect();
        let connections: Vec<_> = far.legs.iter().map(|leg| leg.connection).collect();
        for connection in connections {
            far.world.close(connection);
        }
        far.collect();
        assert_eq!((far.world.halves(), far.has_tunnel()), (0, false));
        for (thread, edge) in far.edges().to_vec() {
            let now = far.world.now;
            far.world.managers[thread].end_edge(edge, EndReason::DONE, now);
        }
        far.collect();
        for manager in &far.world.managers {
            assert_eq!(
                manager.ledger(far.world.now).owned(),
                0,
                "{side:?} {kind:?}"
            );
        }
        far.world.audit_at_rest();
    }
}

#[test]
fn a_thousand_sets_of_one_client_leave_room_for_others() {
    let mut far = FarEnd::with_legs(Side::Client, Kind::Conflux, 1, 44);
    far.open_stream(0);
    let connection = far.add_circuit();
    let connection = far.legs[connection].connection;
    for number in 0..1000u32 {
        let leg = far.add_circuit_on(connection);
        let mut link = link_message(0, 0);
        link[1..5].copy_from_slice(&number.to_be_bytes());
        far.send(leg, RelayCmd::CONFLUX_LINK, 0, &link);
        far.collect();
    }
    assert_eq!(far.world.controller.tunnels(), 1001);
    assert!(far.still_receives());
    far.world.close(connection);
    far.collect();
    assert_eq!(far.world.controller.tunnels(), 1);
    assert!(far.still_receives());
    far.world.audit_at_rest();
}
