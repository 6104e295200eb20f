//! Clients that are introduced to onion services at this relay (rend-spec-v3 3.1, 3.2).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::world::{CLIENT, Circuit, World, destroy_reason, relay_identity};
use tor_llcrypto::pk::ed25519::Keypair;
use weft_cell::hs_msg::ESTABLISH_INTRO_PREFIX;
use weft_cell::link_msg::Destroy;
use weft_cell::reason::DestroyReason;
use weft_cell::relay::RelayBody;
use weft_cell::{ChanCmd, RelayCmd};
use weft_core::address::ConnectionId;
use weft_core::limits::dos::{DosParams, IntroDosParams};
use weft_crypto::intro::handshake_auth;

/// The key of a service.
fn keypair(seed: u8) -> Keypair {
    Keypair::from_bytes(&[seed; 32])
}

/// A denial-of-service extension.
fn dos_extension(rate: u64, burst: u64) -> Vec<u8> {
    let params = [
        &[1, 19, 2, 1][..],
        &rate.to_be_bytes(),
        &[2],
        &burst.to_be_bytes(),
    ];
    [&[1][..], &params.concat()].concat()
}

/// An ESTABLISH_INTRO for a circuit with this KH, with these extensions.
fn establish_intro(kh: &[u8; 20], key: &Keypair, extensions: &[u8]) -> Vec<u8> {
    let mut message = [&[2, 0, 32][..], &key.verifying_key().to_bytes()].concat();
    message.extend_from_slice(extensions);
    let mac = handshake_auth(kh, &message);
    message.extend_from_slice(&mac);
    let signed = [ESTABLISH_INTRO_PREFIX, &message].concat();
    message.extend_from_slice(&[0, 64]);
    message.extend_from_slice(&key.sign(&signed).to_bytes());
    message
}

/// An INTRODUCE1 for a service, with this number of bytes for it.
fn introduce1(key: &Keypair, encrypted: usize) -> Vec<u8> {
    let start = [
        &[0; 20][..],
        &[2, 0, 32],
        &key.verifying_key().to_bytes(),
        &[0],
    ];
    [&start.concat()[..], &vec![7; encrypted]].concat()
}

/// Surroundings of the relay: its peer for services, and its peer for clients, both of them relays.
struct Play {
    world: World,
    services: ConnectionId,
    clients: ConnectionId,
    circuits: u32,
}

impl Play {
    /// With services' and clients' links on these threads.
    fn on(threads: u16, services: usize, clients: usize, seed: u64) -> Self {
        let mut world = World::new(threads, seed);
        let services = world.link_on(services, relay_identity(1));
        let clients = world.link_on(clients, relay_identity(2));
        Play {
            world,
            services,
            clients,
            circuits: 0,
        }
    }

    fn new() -> Self {
        Self::on(2, 0, 1, 5)
    }

    /// A circuit by a link.
    fn circuit(&mut self, link: ConnectionId, cgo: bool) -> Circuit {
        self.circuits += 1;
        let circ_id = 0x8000_0000 + self.circuits;
        match cgo {
            true => Circuit::create_cgo(&mut self.world, link, circ_id),
            false => Circuit::create(&mut self.world, link, circ_id),
        }
    }

    fn send(&mut self, circuit: &mut Circuit, command: RelayCmd, data: &[u8]) {
        circuit.send_to_circuit(&mut self.world, command, data);
        self.world.settle();
    }

    /// A service with an introduction circuit.
    fn service(&mut self, key: &Keypair, extensions: &[u8], cgo: bool) -> Circuit {
        let mut service = self.circuit(self.services, cgo);
        let message = establish_intro(&service.kh, key, extensions);
        self.send(&mut service, RelayCmd::ESTABLISH_INTRO, &message);
        let (_, command, data) = service.backward(&mut self.world);
        assert_eq!((command, data), (RelayCmd::INTRO_ESTABLISHED, vec![0]));
        service
    }

    /// The status of the INTRODUCE_ACK that a new client gets.
    fn introduce(&mut self, message: &[u8], cgo: bool) -> u8 {
        let mut client = self.circuit(self.clients, cgo);
        self.send(&mut client, RelayCmd::INTRODUCE1, message);
        self.acked(&mut client)
    }

    fn acked(&mut self, client: &mut Circuit) -> u8 {
        let (_, command, data) = client.backward(&mut self.world);
        assert_eq!(command, RelayCmd::INTRODUCE_ACK);
        assert_eq!((data.len(), data[0], data[2]), (3, 0, 0));
        data[1]
    }

    /// The next message that a service is sent.
    fn introduced(&mut self, service: &mut Circuit) -> Vec<u8> {
        let (_, command, data) = service.backward(&mut self.world);
        assert_eq!(command, RelayCmd::INTRODUCE2);
        data
    }

    /// The circuit was closed for a violation.
    fn is_refused(&mut self, circuit: &Circuit) {
        let cell = self.world.expect(circuit.client.0, ChanCmd::DESTROY);
        assert_eq!(cell.circ_id(), circuit.client.1);
        assert_eq!(destroy_reason(&cell), DestroyReason::PROTOCOL);
    }
}

#[test]
fn a_client_is_introduced_to_a_service_on_any_threads_and_under_any_encryption() {
    for (services, clients) in [(0, 0), (0, 1), (1, 0), (2, 1)] {
        for seed in 0..8 {
            let mut play = Play::on(3, services, clients, seed);
            play.world.moves = u32::try_from(seed % 3).unwrap();
            let key = keypair(1);
            let (cgo_there, cgo_here) = (seed % 2 == 0, seed % 4 < 2);
            let mut service = play.service(&key, &[0], cgo_there);
            for length in [1, 200, 490 - 56] {
                let message = introduce1(&key, length);
                assert_eq!(play.introduce(&message, cgo_here), 0);
                assert_eq!(play.introduced(&mut service), message);
            }
            let counted = play.world.totals().intro;
            assert_eq!((counted.established, counted.introduced), (1, 3));
            assert_eq!(play.world.controller.introductions(), 1);
            // With the circuit the key is forgotten.
            play.world.close(play.services);
            play.world.settle();
            assert_eq!(play.world.controller.introductions(), 0);
            assert_eq!(play.introduce(&introduce1(&key, 9), cgo_here), 1);
            assert_eq!(play.world.controller.counts().introduce_unknown, 1);
        }
    }
}

#[test]
fn what_cannot_be_passed_on_is_refused_with_c_tor_s_status() {
    let mut play = Play::new();
    let (key, other) = (keypair(1), keypair(2));
    let mut service = play.service(&key, &[0], false);
    // Of no service; longer than what goes into a cell under Counter Galois Onion; without anything for the service;
    // with a key of another type.
    assert_eq!(play.introduce(&introduce1(&other, 100), false), 1);
    assert_eq!(play.introduce(&introduce1(&key, 491 - 56), false), 2);
    assert_eq!(play.introduce(&introduce1(&key, 498 - 56), false), 2);
    assert_eq!(play.introduce(&introduce1(&key, 0), false), 2);
    let mut message = introduce1(&key, 100);
    message[20] = 1;
    assert_eq!(play.introduce(&message, false), 2);
    let mut message = introduce1(&key, 100);
    message[0] = 1;
    assert_eq!(play.introduce(&message, false), 2);
    assert_eq!(play.introduce(&[0; 20], false), 2);
    let counts = play.world.controller.counts();
    assert_eq!(
        (counts.introduce_unknown, counts.introduce_malformed),
        (1, 6)
    );
    // The service got none of it.
    let good = introduce1(&key, 100);
    assert_eq!(play.introduce(&good, false), 0);
    assert_eq!(play.introduced(&mut service), good);
}

#[test]
fn a_circuit_brings_one_introduce1_and_may_then_be_extended() {
    let mut play = Play::new();
    let key = keypair(1);
    let next = play.world.link_on(0, relay_identity(9));
    play.world.settle();
    // Refused here, the client goes on to another introduction point, and no longer counts here.
    let mut client = play.circuit(play.clients, false);
    play.send(&mut client, RelayCmd::INTRODUCE1, &introduce1(&key, 50));
    assert_eq!(play.acked(&mut client), 1);
    client.extend(&mut play.world, 9, next);
    play.send(&mut client, RelayCmd::INTRODUCE1, &introduce1(&key, 50));
    play.is_refused(&client);
    // Twice.
    let mut client = play.circuit(play.clients, false);
    play.send(&mut client, RelayCmd::INTRODUCE1, &introduce1(&key, 50));
    assert_eq!(play.acked(&mut client), 1);
    play.send(&mut client, RelayCmd::INTRODUCE1, &introduce1(&key, 50));
    play.is_refused(&client);
    assert_eq!(play.world.totals().intro.introduce_reused, 1);
    // Too short for an answer.
    let mut client = play.circuit(play.clients, false);
    play.send(&mut client, RelayCmd::INTRODUCE1, &[0; 19]);
    play.is_refused(&client);
    assert_eq!(play.world.totals().intro.introduce_malformed, 1);
}

#[test]
fn a_client_without_another_hop_is_not_introduced() {
    let mut play = Play::new();
    let key = keypair(1);
    play.service(&key, &[0], false);
    let link = play.world.link_on(0, CLIENT);
    let mut client = play.circuit(link, false);
    play.send(&mut client, RelayCmd::INTRODUCE1, &introduce1(&key, 50));
    play.is_refused(&client);
    let counted = play.world.totals().intro.introduced;
    let single = play.world.controller.counts().introduce_single_hop;
    assert_eq!((counted, single), (0, 1));
    // A service that connects directly (a single onion service) is served.
    let mut service = play.circuit(link, false);
    let message = establish_intro(&service.kh, &keypair(2), &[0]);
    play.send(&mut service, RelayCmd::ESTABLISH_INTRO, &message);
    let (_, command, _) = service.backward(&mut play.world);
    assert_eq!(command, RelayCmd::INTRO_ESTABLISHED);
}

#[test]
fn forged_and_unfit_establish_intros_end_their_circuit() {
    let mut play = Play::new();
    let key = keypair(1);
    let refused = |play: &mut Play, change: &dyn Fn(&mut Vec<u8>, &Circuit)| {
        for cgo in [false, true] {
            let mut service = play.circuit(play.services, cgo);
            let mut message = establish_intro(&service.kh, &key, &[0]);
            change(&mut message, &service);
            play.send(&mut service, RelayCmd::ESTABLISH_INTRO, &message);
            play.is_refused(&service);
        }
    };
    // Another circuit's MAC, with a good signature.
    refused(&mut play, &|message, _| {
        *message = establish_intro(&[7; 20], &key, &[0]);
    });
    assert_eq!(play.world.totals().intro.establish_malformed, 2);
    // A good MAC, with another key's signature; a changed signature.
    refused(&mut play, &|message, service| {
        let other = establish_intro(&service.kh, &keypair(2), &[0]);
        let at = message.len() - 64;
        message.splice(at.., other[at..].iter().copied());
    });
    refused(&mut play, &|message, _| {
        let at = message.len() - 1;
        message[at] ^= 1;
    });
    assert_eq!(play.world.controller.counts().intro_unsigned, 4);
    // Cut short; nothing at all; other types of keys.
    refused(&mut play, &|message, _| message.truncate(100));
    refused(&mut play, &|message, _| message.clear());
    refused(&mut play, &|message, _| message[0] = 3);
    assert_eq!(play.world.totals().intro.establish_malformed, 8);
    let violations = play.world.totals().protocol_errors;
    // One of version 2 is no protocol violation of the hop before.
    for kind in [0, 1] {
        refused(&mut play, &|message, _| message[0] = kind);
    }
    assert_eq!(play.world.totals().protocol_errors, violations);
    assert_eq!(play.world.totals().intro.establish_malformed, 12);
    assert_eq!(play.world.controller.introductions(), 0);
}

#[test]
fn a_circuit_that_is_for_something_cannot_be_an_introduction_circuit_too() {
    let mut play = Play::new();
    let (key, other) = (keypair(1), keypair(2));
    for command in [
        RelayCmd::ESTABLISH_INTRO,
        RelayCmd::ESTABLISH_RENDEZVOUS,
        RelayCmd::INTRODUCE1,
        RelayCmd::TRUNCATE,
        RelayCmd::EXTEND2,
    ] {
        let mut service = play.service(&key, &[0], false);
        let data = match command {
            RelayCmd::ESTABLISH_INTRO => establish_intro(&service.kh, &other, &[0]),
            RelayCmd::ESTABLISH_RENDEZVOUS => vec![5; 20],
            RelayCmd::EXTEND2 => Circuit::extend_message(9, &[1; 84]),
            _ => introduce1(&key, 50),
        };
        service.send(&mut play.world, 0, command, &data);
        play.world.settle();
        play.is_refused(&service);
        assert_eq!(play.world.controller.introductions(), 0);
    }
    assert_eq!(play.world.totals().intro.establish_unsuitable, 1);
    // Nor a circuit that goes on.
    let next = play.world.link_on(0, relay_identity(9));
    play.world.settle();
    let mut service = play.circuit(play.services, false);
    service.extend(&mut play.world, 9, next);
    let message = establish_intro(&service.kh, &key, &[0]);
    play.send(&mut service, RelayCmd::ESTABLISH_INTRO, &message);
    play.is_refused(&service);
    assert_eq!(play.world.totals().intro.establish_unsuitable, 2);
}

#[test]
fn the_same_key_on_another_circuit_closes_the_first() {
    for seed in 0..8 {
        let mut play = Play::on(2, usize::from(seed % 2 == 0), 1, seed);
        let key = keypair(1);
        let first = play.service(&key, &[0], false);
        let mut second = play.service(&key, &[0], true);
        let cell = play.world.expect(first.client.0, ChanCmd::DESTROY);
        assert_eq!(cell.circ_id(), first.client.1);
        assert_eq!(destroy_reason(&cell), DestroyReason::FINISHED);
        let message = introduce1(&key, 50);
        assert_eq!(play.introduce(&message, false), 0);
        assert_eq!(play.introduced(&mut second), message);
        assert_eq!(play.world.controller.introductions(), 1);
    }
}

#[test]
fn a_service_that_has_closed_or_does_not_read_is_as_if_it_were_not_here() {
    // The client's request is at the controller when the service's circuit ends.
    let mut play = Play::new();
    let key = keypair(1);
    let service = play.service(&key, &[0], false);
    let mut client = play.circuit(play.clients, false);
    client.send_to_circuit(&mut play.world, RelayCmd::INTRODUCE1, &introduce1(&key, 9));
    play.world.carry_to_controller();
    let reason = DestroyReason::NONE;
    let destroy = Destroy { reason }.encode(service.client.1);
    play.world.receive(play.services, &destroy);
    play.world.settle();
    assert_eq!(play.acked(&mut client), 1);
    assert_eq!(play.world.totals().intro.introduce_dead, 1);
    // A service whose link takes nothing: what waits for it is bounded, and its circuit goes on.
    let mut service = play.service(&key, &[0], false);
    let bound = play.world.managers[0].params().queue_low;
    let clients = (0..bound + 3).map(|_| play.circuit(play.clients, false));
    let mut clients: BTreeMap<u32, Circuit> =
        clients.map(|client| (client.client.1, client)).collect();
    play.world.room = 0;
    for client in clients.values_mut() {
        client.send_to_circuit(&mut play.world, RelayCmd::INTRODUCE1, &introduce1(&key, 9));
        play.world.settle();
    }
    play.world.room = u32::MAX;
    play.world.settle();
    let mut refused = 0;
    while let Some(cell) = play.world.take(play.clients) {
        let client = clients.get_mut(&cell.circ_id()).unwrap();
        let mut body = *cell.body();
        assert_eq!(client.crypt.decrypt_backward(&mut body), Some(0));
        refused += usize::from(RelayBody::new(&body).data().unwrap()[1]);
    }
    assert_eq!(refused, 3);
    for _ in 0..bound {
        play.introduced(&mut service);
    }
    assert_eq!(play.introduce(&introduce1(&key, 9), false), 0);
}

#[test]
fn a_service_s_own_limit_goes_before_the_consensus() {
    let mut play = Play::new();
    let (limited, free) = (keypair(1), keypair(2));
    let mut service = play.service(&limited, &dos_extension(2, 4), false);
    play.service(&free, &[0], true);
    let message = introduce1(&limited, 9);
    let passed =
        |play: &mut Play| -> Vec<u8> { (0..6).map(|_| play.introduce(&message, false)).collect() };
    assert_eq!(passed(&mut play), [0, 0, 0, 1, 1, 1]);
    for _ in 0..3 {
        play.introduced(&mut service);
    }
    play.world.now += Duration::from_secs(1);
    assert_eq!(passed(&mut play), [0, 1, 1, 1, 1, 1]);
    assert_eq!(play.world.controller.counts().introduce_limited, 8);
    // The other service follows the consensus, which defends it from now on.
    let to_free = introduce1(&free, 9);
    for _ in 0..6 {
        assert_eq!(play.introduce(&to_free, false), 0);
    }
    play.world.defend(DosParams {
        intro: IntroDosParams {
            enabled: true,
            rate: 1,
            burst: 2,
        },
        ..DosParams::default()
    });
    assert_eq!(play.introduce(&to_free, false), 0);
    assert_eq!(play.introduce(&to_free, false), 1);
    // One that wants no defence has none.
    let open = keypair(3);
    play.world.written.get_mut(&play.services).unwrap().clear();
    play.service(&open, &dos_extension(0, 0), false);
    for _ in 0..6 {
        assert_eq!(play.introduce(&introduce1(&open, 9), false), 0);
    }
}

#[test]
fn requests_wait_while_the_main_thread_is_behind_and_move_with_their_link() {
    let mut play = Play::on(3, 0, 1, 3);
    let key = keypair(1);
    let mut service = play.circuit(play.services, false);
    let message = establish_intro(&service.kh, &key, &[0]);
    play.world.is_behind = true;
    service.send_to_circuit(&mut play.world, RelayCmd::ESTABLISH_INTRO, &message);
    play.world.moves = 4;
    play.world.settle();
    assert_eq!(play.world.controller.introductions(), 0);
    play.world.is_behind = false;
    play.world.settle();
    let (_, command, _) = service.backward(&mut play.world);
    assert_eq!(command, RelayCmd::INTRO_ESTABLISHED);
    // A circuit that ends while it waits is never asked about.
    let mut gone = play.circuit(play.services, false);
    play.world.is_behind = true;
    let message = establish_intro(&gone.kh, &keypair(2), &[0]);
    gone.send_to_circuit(&mut play.world, RelayCmd::ESTABLISH_INTRO, &message);
    let reason = DestroyReason::NONE;
    let destroy = Destroy { reason }.encode(gone.client.1);
    play.world.receive(play.services, &destroy);
    play.world.is_behind = false;
    play.world.settle();
    assert_eq!(play.world.controller.introductions(), 1);
}
