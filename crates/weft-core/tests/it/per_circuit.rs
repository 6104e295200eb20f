//! Each circuit has a separate connection to the next relay (PCTLS: Pahl et al. 2023, 5.1).

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::time::Duration;

use crate::world::{Circuit, Connect, OWN_ED, OWN_RSA, World, relay_identity};
use weft_cell::link_msg::Destroy;
use weft_cell::reason::DestroyReason;
use weft_cell::{ChanCmd, RelayCmd};
use weft_core::address::ConnectionId;
use weft_core::controller::{ControllerParams, Notice, Sharing};
use weft_core::handshake::PeerIdentity;
use weft_core::limits::dos::DosParams;
use weft_core::link::loss::TcpCounters;
use weft_core::origin::LinkFailure;
use weft_core::params::RelayParams;

/// The relay that all circuits are extended to.
const NEXT: u8 = 9;
/// But for those that are extended to this one.
const OTHER: u8 = 8;

/// A relay of two threads whose circuits have connections of their own, but for these bounds.
fn world(per_relay: usize, total: usize) -> World {
    world_of(Sharing::PerCircuit { per_relay, total })
}

/// A relay of two threads that does this.
fn world_of(sharing: Sharing) -> World {
    let mut params = RelayParams::new(OWN_RSA, OWN_ED);
    params.extend_to_private = true;
    params.report_load = true;
    params.watch_loss = matches!(sharing, Sharing::Auto { .. });
    let mut world = World::with_params(2, 1, params);
    world.controller.set_params(controller(sharing));
    world.list(&[NEXT, OTHER]);
    world
}

fn controller(sharing: Sharing) -> ControllerParams {
    ControllerParams {
        max_connections: 1000,
        workers: 1,
        max_onionskins: 1000,
        max_onion_delay: Duration::from_secs(60),
        onion_cutoff: Duration::from_secs(5),
        max_memory: 1 << 30,
        dos: DosParams::default(),
        sharing,
    }
}

/// Asks for `count` extensions at once, of circuits with ids from `first`.
fn extend(world: &mut World, client: ConnectionId, first: u32, count: u32) {
    extend_to(world, NEXT, client, first, count);
}

fn extend_to(world: &mut World, relay: u8, client: ConnectionId, first: u32, count: u32) {
    for id in first..first + count {
        let mut circuit = Circuit::create(world, client, 0x8000_0000 + id);
        circuit.send(
            world,
            0,
            RelayCmd::EXTEND2,
            &Circuit::extend_message(relay, &[1; 84]),
        );
    }
    world.settle();
}

/// Lets connections that the controller wants come up.
fn come_up(world: &mut World, connects: &[Connect]) {
    for connect in connects {
        let thread = usize::from(connect.thread.0);
        world.open(connect.connection, thread, true, relay_identity(NEXT));
        world.settle();
    }
}

/// The CREATE2s that have been sent on each connection.
fn creates(world: &mut World, connects: &[Connect]) -> BTreeMap<ConnectionId, usize> {
    let mut sent = BTreeMap::new();
    for connect in connects {
        let id = connect.connection;
        let count = std::iter::from_fn(|| world.take(id))
            .filter(|cell| cell.command() == ChanCmd::CREATE2)
            .count();
        sent.insert(id, count);
    }
    sent
}

/// The client ends a circuit.
fn end(world: &mut World, client: ConnectionId, id: u32) {
    let destroy = Destroy {
        reason: DestroyReason::REQUESTED,
    };
    world.receive(client, &destroy.encode(0x8000_0000 + id));
    world.settle();
}

#[test]
fn circuits_that_are_extended_at_once_get_a_connection_each_in_any_order() {
    // The paper's prototype has a race here: several circuits take the first connection that opens.
    for reversed in [false, true] {
        let mut world = world(64, 500);
        let client = world.link_on(0, PeerIdentity::Unauthenticated);
        extend(&mut world, client, 1, 8);
        let mut connects = world.connects.clone();
        assert_eq!(connects.len(), 8);
        if reversed {
            connects.reverse();
        }
        come_up(&mut world, &connects);
        let sent = creates(&mut world, &connects);
        assert!(sent.values().all(|count| *count == 1), "{sent:?}");
        let counts = world.controller.counts();
        assert_eq!((counts.connected, counts.connected_again), (8, 7));
        assert_eq!(counts.extends_shared, 0);
        world.audit();
    }
}

#[test]
fn past_the_bound_of_a_relay_circuits_share_and_fewest_come_first() {
    let mut world = world(3, 500);
    let client = world.link_on(0, PeerIdentity::Unauthenticated);
    // Seven at once: three connections, for which two or three wait each.
    extend(&mut world, client, 1, 7);
    let connects = world.connects.clone();
    assert_eq!(connects.len(), 3);
    come_up(&mut world, &connects);
    let sent = creates(&mut world, &connects);
    assert_eq!(sent.values().copied().collect::<Vec<_>>(), [3, 2, 2]);
    // The next two find connections that are open: those with two.
    extend(&mut world, client, 8, 2);
    let sent = creates(&mut world, &connects);
    assert_eq!(sent.values().copied().collect::<Vec<_>>(), [0, 1, 1]);
    assert_eq!(world.connects.len(), 3);
    assert_eq!(world.controller.counts().extends_shared, 6);
    world.audit();
}

#[test]
fn past_the_bound_of_all_connections_circuits_share() {
    // The client's connection is one of three.
    let mut world = world(64, 3);
    let client = world.link_on(0, PeerIdentity::Unauthenticated);
    extend(&mut world, client, 1, 6);
    assert_eq!(world.connects.len(), 2);
    let connects = world.connects.clone();
    come_up(&mut world, &connects);
    let sent = creates(&mut world, &connects);
    assert!(sent.values().all(|count| *count == 3), "{sent:?}");
}

#[test]
fn a_connection_whose_circuit_has_ended_takes_the_next_one() {
    let mut world = world(64, 500);
    let client = world.link_on(0, PeerIdentity::Unauthenticated);
    extend(&mut world, client, 1, 2);
    let connects = world.connects.clone();
    come_up(&mut world, &connects);
    creates(&mut world, &connects);
    end(&mut world, client, 2);
    extend(&mut world, client, 3, 1);
    assert_eq!(world.connects.len(), 2);
    let sent = creates(&mut world, &connects);
    assert_eq!(sent[&connects[0].connection], 0);
    assert_eq!(sent[&connects[1].connection], 1);
    assert_eq!(world.controller.counts().connected, 2);
}

#[test]
fn a_circuit_that_ended_while_its_connection_opened_leaves_it_to_the_next() {
    let mut world = world(64, 500);
    let client = world.link_on(0, PeerIdentity::Unauthenticated);
    extend(&mut world, client, 1, 1);
    let connects = world.connects.clone();
    end(&mut world, client, 1);
    come_up(&mut world, &connects);
    creates(&mut world, &connects);
    extend(&mut world, client, 2, 1);
    assert_eq!(world.connects.len(), 1);
    assert_eq!(creates(&mut world, &connects)[&connects[0].connection], 1);
    world.audit();
}

#[test]
fn a_connection_that_the_relay_opened_is_shared_only_at_the_bound() {
    let mut world = world(2, 500);
    let client = world.link_on(0, PeerIdentity::Unauthenticated);
    let theirs = world.link_from("127.0.0.9:9001", 0, relay_identity(NEXT));
    Circuit::create(&mut world, theirs, 0x8000_0001);
    extend(&mut world, client, 1, 1);
    let connects = world.connects.clone();
    assert_eq!(connects.len(), 1, "theirs carries a circuit");
    come_up(&mut world, &connects);
    assert_eq!(creates(&mut world, &connects)[&connects[0].connection], 1);
    // Two connections with a circuit each: the oldest takes the next one.
    extend(&mut world, client, 2, 1);
    world.expect(theirs, ChanCmd::CREATE2);
}

#[test]
fn a_connection_that_fails_leaves_its_circuit_to_one_that_is_open() {
    let mut world = world(64, 500);
    let client = world.link_on(0, PeerIdentity::Unauthenticated);
    extend(&mut world, client, 1, 2);
    let connects = world.connects.clone();
    come_up(&mut world, &connects[..1]);
    let failed = connects[1];
    world.managers[usize::from(failed.thread.0)]
        .links_mut()
        .connection_failed(failed.connection, LinkFailure::Refused);
    world.settle();
    assert_eq!(
        creates(&mut world, &connects[..1])[&connects[0].connection],
        2
    );
    world.audit();
}

#[test]
fn it_can_be_switched_on_while_circuits_run() {
    let mut world = World::new(2, 1);
    world.list(&[NEXT]);
    let client = world.link_on(0, PeerIdentity::Unauthenticated);
    extend(&mut world, client, 1, 3);
    let connects = world.connects.clone();
    assert_eq!(connects.len(), 1);
    come_up(&mut world, &connects);
    assert_eq!(creates(&mut world, &connects)[&connects[0].connection], 3);

    let sharing = Sharing::PerCircuit {
        per_relay: 2,
        total: 500,
    };
    world.controller.set_params(controller(sharing));
    let mut params = RelayParams::new(OWN_RSA, OWN_ED);
    params.extend_to_private = true;
    params.report_load = true;
    world
        .controller
        .set_relay_params(&std::sync::Arc::new(params));
    world.settle();
    extend(&mut world, client, 4, 4);
    let connects = world.connects.clone();
    assert_eq!(connects.len(), 2);
    come_up(&mut world, &connects[1..]);
    let sent = creates(&mut world, &connects);
    // The first three wait for the second connection; then both have three, and one is open.
    assert_eq!(sent.values().copied().collect::<Vec<_>>(), [1, 3]);
}

/// `ConnectionPerCircuit auto`: circuits share where nothing is lost.
mod auto {
    use super::*;

    /// A relay with a client, and with a connection to the next relay that carries two circuits.
    struct Auto {
        world: World,
        client: ConnectionId,
        first: Connect,
        circuits: u32,
        counters: TcpCounters,
    }

    impl Auto {
        fn new(per_relay: usize) -> Self {
            let total = 500;
            let mut world = world_of(Sharing::Auto { per_relay, total });
            let client = world.link_on(0, PeerIdentity::Unauthenticated);
            extend(&mut world, client, 1, 2);
            let first = world.connects[0];
            come_up(&mut world, &[first]);
            assert_eq!(creates(&mut world, &[first])[&first.connection], 2);
            let mut auto = Auto {
                world,
                client,
                first,
                circuits: 2,
                counters: TcpCounters::default(),
            };
            auto.pass(1, 0);
            auto
        }

        /// Lets seconds pass in which the first connection got a thousand segments each, `late` of
        /// them late.
        fn pass(&mut self, seconds: u32, late: u32) {
            let manager = usize::from(self.first.thread.0);
            for _ in 0..seconds {
                self.world.now += Duration::from_secs(1);
                self.counters.received += 1000;
                self.counters.out_of_order += late;
                let manager = &mut self.world.managers[manager];
                let link = manager.links().of(self.first.connection).unwrap();
                assert!(manager.watches_loss(link));
                manager
                    .links_mut()
                    .tcp_read(link, self.counters, self.world.now);
            }
            self.world.settle();
        }

        /// Has circuits extended at once: the connections that are opened for them.
        fn extend(&mut self, count: u32) -> Vec<Connect> {
            let before = self.world.connects.len();
            extend(&mut self.world, self.client, self.circuits + 1, count);
            self.circuits += count;
            self.world.connects[before..].to_vec()
        }

        /// CREATE2s on the first connection since this was asked last.
        fn on_first(&mut self) -> usize {
            creates(&mut self.world, &[self.first])[&self.first.connection]
        }

        fn notices(&self) -> usize {
            let is_loss = |notice: &&Notice| matches!(notice, Notice::LossyRelay { .. });
            self.world.notices.iter().filter(is_loss).count()
        }
    }

    #[test]
    fn a_shared_link_that_loses_nothing_is_shared() {
        let mut auto = Auto::new(64);
        auto.pass(100, 1);
        assert!(auto.extend(6).is_empty());
        assert_eq!(auto.on_first(), 6);
        let counts = auto.world.controller.counts();
        assert_eq!((counts.connected, counts.connected_again), (1, 0));
        assert_eq!((counts.extends_shared, auto.notices()), (0, 0));
    }

    #[test]
    fn where_packets_are_lost_each_further_circuit_gets_a_connection_however_many_come_at_once() {
        for reversed in [false, true] {
            let mut auto = Auto::new(64);
            auto.pass(6, 100);
            let mut connects = auto.extend(8);
            assert_eq!(connects.len(), 8);
            if reversed {
                connects.reverse();
            }
            come_up(&mut auto.world, &connects);
            let sent = creates(&mut auto.world, &connects);
            assert!(sent.values().all(|count| *count == 1), "{sent:?}");
            assert_eq!(auto.on_first(), 0);
            let counts = auto.world.controller.counts();
            assert_eq!((counts.connected, counts.connected_for_loss), (9, 8));
            assert_eq!(counts.extends_shared, 0);
            auto.pass(30, 100);
            assert_eq!(auto.notices(), 1);
            auto.world.audit();
        }
    }

    #[test]
    fn a_lossy_link_without_circuits_takes_the_next_one() {
        let mut auto = Auto::new(64);
        auto.pass(6, 100);
        for id in [1, 2] {
            end(&mut auto.world, auto.client, id);
        }
        assert!(auto.extend(1).is_empty());
        assert_eq!(auto.on_first(), 1);
        assert_eq!(auto.extend(1).len(), 1, "now it is shared");
    }

    #[test]
    fn a_link_that_recovers_is_shared_again() {
        let mut auto = Auto::new(64);
        auto.pass(6, 100);
        let connects = auto.extend(1);
        come_up(&mut auto.world, &connects);
        auto.pass(14, 0);
        // The oldest takes them, so that the others fall idle.
        assert!(auto.extend(4).is_empty());
        assert_eq!(auto.on_first(), 4);
        auto.pass(6, 100);
        assert_eq!(auto.extend(1).len(), 1);
        assert_eq!(auto.notices(), 2);
    }

    #[test]
    fn it_keeps_to_the_bound_of_a_relay() {
        let mut auto = Auto::new(3);
        auto.pass(6, 100);
        let connects = auto.extend(6);
        assert_eq!(connects.len(), 2);
        come_up(&mut auto.world, &connects);
        let sent = creates(&mut auto.world, &connects);
        // The first had two; those with fewest come first.
        assert_eq!(auto.on_first() + sent.values().sum::<usize>(), 6);
        assert!(sent.values().all(|count| *count >= 2), "{sent:?}");
        assert_eq!(auto.world.controller.counts().extends_shared, 4);
        assert!(auto.extend(1).is_empty());
    }

    #[test]
    fn loss_on_the_way_to_one_relay_concerns_no_other() {
        let mut auto = Auto::new(64);
        auto.pass(6, 100);
        extend_to(&mut auto.world, OTHER, auto.client, 100, 5);
        assert_eq!(auto.world.connects.len(), 2, "one for all five");
    }

    /// As after SIGHUP: the links that are open then are watched from then on.
    #[test]
    fn it_can_be_switched_on_and_off_while_circuits_run() {
        let mut world = World::new(2, 1);
        world.list(&[NEXT]);
        let client = world.link_on(0, PeerIdentity::Unauthenticated);
        extend(&mut world, client, 1, 2);
        let first = world.connects[0];
        come_up(&mut world, &[first]);
        let is_watched = |world: &World| {
            let manager = &world.managers[usize::from(first.thread.0)];
            manager.watches_loss(manager.links().of(first.connection).unwrap())
        };
        assert!(!is_watched(&world));
        let (per_relay, total) = (64, 500);
        world.share(Sharing::Auto { per_relay, total });
        world.settle();
        assert!(is_watched(&world));
        let mut auto = Auto {
            world,
            client,
            first,
            circuits: 2,
            counters: TcpCounters::default(),
        };
        auto.pass(1, 0);
        assert!(auto.extend(2).is_empty(), "nothing was lost yet");
        auto.pass(6, 100);
        let connects = auto.extend(3);
        assert_eq!(connects.len(), 3);
        come_up(&mut auto.world, &connects);
        auto.world.share(Sharing::All);
        auto.world.settle();
        assert!(!is_watched(&auto.world));
        assert!(auto.extend(4).is_empty());
        auto.world.audit();
    }

    #[test]
    fn clients_links_are_not_watched_nor_any_with_another_setting() {
        let auto = Auto::new(64);
        let manager = &auto.world.managers[0];
        let link = manager.links().of(auto.client).unwrap();
        assert!(!manager.watches_loss(link));
        let mut world = world(64, 500);
        let relay = world.link_on(0, relay_identity(NEXT));
        let link = world.managers[0].links().of(relay).unwrap();
        assert!(!world.managers[0].watches_loss(link));
    }
}
