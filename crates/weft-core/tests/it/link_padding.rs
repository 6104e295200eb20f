//! Netflow padding of links that this node opened as a client (padding-spec 2), in a whole node without
//! sockets. `weft_core::link::padding` has tests of its times.

use std::sync::Arc;
use std::time::Duration;

use crate::origin::AtAnOrigin;
use crate::pair::{CIRCUIT, launch};
use crate::world::{self, CLIENT, Circuit, OWN_ED, OWN_RSA, World, relay_identity};
use weft_cell::circ_msg::CreateRequest;
use weft_cell::link_msg::{Destroy, PaddingCommand, PaddingNegotiate};
use weft_cell::reason::DestroyReason;
use weft_cell::{Cell, ChanCmd};
use weft_core::address::ConnectionId;
use weft_core::flow::Terms;
use weft_core::handshake::LinkRole;
use weft_core::origin::OriginCommand;
use weft_core::params::RelayParams;

/// Many paddings, and less than a keepalive.
const WHILE: Duration = Duration::from_secs(240);
/// Largest delay of the timer, in milliseconds.
const TICK: u64 = 250;

fn params(connection_padding: Option<bool>, reduced: bool) -> RelayParams {
    let mut params = RelayParams::new(OWN_RSA, OWN_ED);
    params.extend_to_private = true;
    params.keepalive = Duration::from_secs(24 * 60 * 60);
    params.padding.connection_padding = connection_padding;
    params.padding.reduced = reduced;
    params
}

fn follow(world: &mut World, params: RelayParams) {
    world.controller.set_relay_params(&Arc::new(params));
    world.do_actions();
    world.settle();
}

/// The silences, in milliseconds, before the cells that a link gets in [`WHILE`], which are PADDING.
fn silences(world: &mut World, link: ConnectionId) -> Vec<u64> {
    while world.take(link).is_some() {}
    let mut silences = Vec::new();
    let mut silent = 0;
    for _ in 0..WHILE.as_millis() / u128::from(TICK) {
        world.pass(Duration::from_millis(TICK));
        silent += TICK;
        if let Some(cell) = world.take(link) {
            assert_eq!((cell.command(), cell.circ_id()), (ChanCmd::PADDING, 0));
            silences.push(std::mem::take(&mut silent));
            assert!(world.take(link).is_none());
        }
    }
    silences
}

/// Many, and all but the first, which may have begun before.
fn within(silences: &[u64], low: u64, high: u64) {
    assert!(silences.len() > 10, "{silences:?}");
    let fits = |silence: &u64| (low..high + TICK).contains(silence);
    assert!(silences.iter().skip(1).all(fits), "{silences:?}");
}

/// An origin that has asked the first hop of its circuit for a second one.
fn extending() -> AtAnOrigin {
    let mut origin = AtAnOrigin::built(Terms::Windows);
    extend(&mut origin);
    origin
}

fn extend(origin: &mut AtAnOrigin) {
    origin.command(OriginCommand::Extend {
        circuit: CIRCUIT,
        extend2: Circuit::extend_message(9, &[1; 84]),
    });
}

fn negotiate(command: PaddingCommand) -> Cell {
    let wish = PaddingNegotiate {
        version: 0,
        command,
        ito_low_ms: 0,
        ito_high_ms: 0,
    };
    wish.encode()
}

#[test]
fn a_client_pads_links_that_carry_circuits_of_several_hops() {
    let mut origin = AtAnOrigin::built(Terms::Windows);
    let link = origin.link;
    assert_eq!(silences(&mut origin.world, link), [0; 0], "one hop");
    extend(&mut origin);
    within(&silences(&mut origin.world, link), 1_500, 9_500);
}

#[test]
fn connection_padding_is_obeyed_on_links_that_open() {
    for (wanted, reduced, stops) in [
        (None, false, false),
        (None, true, true),
        (Some(true), false, false),
        (Some(true), true, true),
        (Some(false), false, true),
    ] {
        let mut world = World::with_params(1, 2, params(wanted, reduced));
        let link = launch(&mut world, CreateRequest::Fast { x: [1; 20] });
        world.settle();
        let first = world.take(link).unwrap();
        let stop = negotiate(PaddingCommand::Stop);
        assert_eq!(first.as_bytes() == stop.as_bytes(), stops, "{wanted:?}");
        let create = match stops {
            true => world.take(link).unwrap(),
            false => first,
        };
        assert_eq!(create.command(), ChanCmd::CREATE_FAST);
    }
}

#[test]
fn connection_padding_is_obeyed_on_links_that_are_open() {
    let mut origin = extending();
    let (world, link) = (&mut origin.world, origin.link);
    while world.take(link).is_some() {}
    let expect = |world: &mut World, command| {
        let cell = world.expect(link, ChanCmd::PADDING_NEGOTIATE);
        assert_eq!(cell.as_bytes(), negotiate(command).as_bytes());
    };
    follow(world, params(Some(false), false));
    expect(world, PaddingCommand::Stop);
    assert_eq!(silences(world, link), [0; 0]);
    follow(world, params(None, true));
    assert!(world.take(link).is_none(), "the relay has stopped");
    within(&silences(world, link), 9_000, 14_000);
    follow(world, params(Some(true), false));
    expect(world, PaddingCommand::Start);
    within(&silences(world, link), 1_500, 9_500);
}

#[test]
fn a_client_follows_the_consensus_on_links_that_it_opened_without_one() {
    let mut origin = extending();
    let (world, link) = (&mut origin.world, origin.link);
    let consensus = |low, high, before_usage| {
        let mut params = params(None, false);
        params.padding.low = Duration::from_millis(low);
        params.padding.high = Duration::from_millis(high);
        params.padding.pad_before_usage = before_usage;
        params
    };
    follow(world, consensus(4_000, 5_000, true));
    within(&silences(world, link), 4_000, 5_000);
    follow(world, consensus(0, 0, true));
    assert_eq!(silences(world, link), [0; 0]);
    follow(world, consensus(1_500, 9_500, false));
    assert_eq!(silences(world, link), [0; 0], "no traffic of a user yet");
    let extended = [&[0, 64][..], &[7; 64]].concat();
    assert!(origin.send(
        weft_cell::relay_command::RelayCommand::Extended2,
        0,
        &extended
    ));
    within(&silences(&mut origin.world, link), 1_500, 9_500);
}

#[test]
fn a_relay_cannot_stop_the_padding_of_its_client() {
    let mut origin = extending();
    let (world, link) = (&mut origin.world, origin.link);
    world.receive(link, &negotiate(PaddingCommand::Stop));
    within(&silences(world, link), 1_500, 9_500);
    assert_eq!(world.managers[0].totals().protocol_errors, 1);
}

#[test]
fn a_bridge_pads_the_links_that_it_opens_and_a_relay_does_not() {
    for (role, pads) in [
        (LinkRole::OpenedAsClient, true),
        (LinkRole::OpenedAsRelay, false),
    ] {
        let mut world = World::new(1, 9);
        let client = world.link_on(0, CLIENT);
        let connect = world::extend(&mut world, client, 0x8000_0001, 9).unwrap();
        let link = connect.connection;
        world.open_as(link, 0, role, relay_identity(9));
        world.settle();
        world.expect(link, ChanCmd::CREATE2);
        let reason = DestroyReason::NONE;
        world.receive(client, &Destroy { reason }.encode(0x8000_0001));
        world.settle();
        world.expect(link, ChanCmd::DESTROY);
        let mut circuit = Circuit::create(&mut world, client, 0x8000_0002);
        circuit.extend(&mut world, 9, link);
        match pads {
            true => within(&silences(&mut world, link), 1_500, 9_500),
            false => assert_eq!(silences(&mut world, link), [0; 0]),
        }
    }
}

#[test]
fn padding_of_a_client_does_not_wait_for_the_timer() {
    let mut origin = extending();
    let (world, link) = (&mut origin.world, origin.link);
    let mut off_the_timer = 0;
    let mut sent = 0;
    while sent < 20 {
        world.pass(Duration::from_millis(TICK));
        while world.take(link).is_some() {}
        let tick = world.now;
        let Some(due) = world.managers[0].padding_due() else {
            continue;
        };
        assert!(due > tick, "what was due is sent");
        if due > tick + Duration::from_millis(TICK) {
            continue;
        }
        world.managers[0].send_padding(due - Duration::from_millis(1));
        world.settle();
        assert!(world.take(link).is_none());
        world.managers[0].send_padding(due);
        world.settle();
        world.expect(link, ChanCmd::PADDING);
        assert!(world.managers[0].padding_due().is_none_or(|at| at > due));
        off_the_timer += usize::from(due != tick + Duration::from_millis(TICK));
        sent += 1;
    }
    assert!(off_the_timer > 15, "{off_the_timer}");
}
