//! Circuits that meet at this relay (rend-spec-v3).

use crate::world::{CLIENT, Circuit, World};
use weft_cell::link_msg::Destroy;
use weft_cell::reason::DestroyReason;
use weft_cell::{ChanCmd, RelayCmd};
use weft_crypto::Tor1Keys;

#[test]
fn two_circuits_meet_at_a_rendezvous_and_both_halves_hold_keys() {
    for (waiting, bringing) in [(0, 0), (0, 1), (1, 0), (2, 1)] {
        for seed in 0..8 {
            let mut world = World::new(3, seed);
            world.moves = u32::try_from(seed % 3).unwrap();
            let client = world.link_on(waiting, CLIENT);
            let service = world.link_on(bringing, CLIENT);
            let mut client = Circuit::create(&mut world, client, 0x8000_0001);
            let mut service = Circuit::create(&mut world, service, 0x8000_0001);
            client.send(&mut world, 0, RelayCmd::ESTABLISH_RENDEZVOUS, &[5; 20]);
            world.settle();
            let (_, command, _) = client.backward(&mut world);
            assert_eq!(command, RelayCmd::RENDEZVOUS_ESTABLISHED);
            let mut message = vec![5; 20];
            message.extend_from_slice(b"handshake");
            service.send(&mut world, 0, RelayCmd::RENDEZVOUS1, &message);
            world.settle();
            let (_, command, data) = client.backward(&mut world);
            assert_eq!(
                (command, &data[..]),
                (RelayCmd::RENDEZVOUS2, &b"handshake"[..])
            );
            let counted = world.totals().rendezvous;
            assert_eq!((counted.established, counted.joined), (1, 1));

            // Bytes that one end sends past the relay arrive at the other: the service's forward
            // keys are the client's backward keys.
            let ends = Tor1Keys::from_key_material(&std::array::from_fn(|n| n as u8));
            let (mut df, mut kf) = (ends.df, ends.kf);
            let mut mirrored = Tor1Keys::from_key_material(&[0; 92]);
            mirrored.db.swap_with_slice(&mut df);
            mirrored.kb.swap_with_slice(&mut kf);
            service.crypt.add_hop(&ends.into());
            client.crypt.add_hop(&mirrored.into());
            for n in 0..20u8 {
                service.send(&mut world, 1, RelayCmd::DATA, &[n; 400]);
            }
            world.settle();
            for n in 0..20u8 {
                let (hop, command, data) = client.backward(&mut world);
                assert_eq!((hop, command, data), (1, RelayCmd::DATA, vec![n; 400]));
            }

            // The end of one is the end of the other.
            world.close(service.client.0);
            world.settle();
            world.expect(client.client.0, ChanCmd::DESTROY);
            assert_eq!(world.halves(), 0);
        }
    }
}

#[test]
fn a_rendezvous_with_an_unknown_or_taken_cookie_ends_its_circuit() {
    let mut world = World::new(2, 3);
    let link = world.link_on(0, CLIENT);
    let mut first = Circuit::create(&mut world, link, 0x8000_0001);
    let mut second = Circuit::create(&mut world, link, 0x8000_0002);
    let mut third = Circuit::create(&mut world, link, 0x8000_0003);
    first.send(&mut world, 0, RelayCmd::ESTABLISH_RENDEZVOUS, &[5; 20]);
    world.settle();
    first.backward(&mut world);
    second.send(&mut world, 0, RelayCmd::ESTABLISH_RENDEZVOUS, &[5; 20]);
    world.settle();
    assert_eq!(world.expect(link, ChanCmd::DESTROY).circ_id(), 0x8000_0002);
    third.send(&mut world, 0, RelayCmd::RENDEZVOUS1, &[6; 40]);
    world.settle();
    assert_eq!(world.expect(link, ChanCmd::DESTROY).circ_id(), 0x8000_0003);
    let counts = world.controller.counts();
    assert_eq!((counts.cookies_taken, counts.cookies_unknown), (1, 1));
    // Nor can a circuit that waits do anything else, and a cookie has 20 bytes.
    let mut short = Circuit::create(&mut world, link, 0x8000_0005);
    short.send(&mut world, 0, RelayCmd::ESTABLISH_RENDEZVOUS, &[5; 19]);
    world.settle();
    assert_eq!(world.expect(link, ChanCmd::DESTROY).circ_id(), 0x8000_0005);
    let mut short = Circuit::create(&mut world, link, 0x8000_0006);
    short.send(&mut world, 0, RelayCmd::RENDEZVOUS1, &[5; 19]);
    world.settle();
    assert_eq!(world.expect(link, ChanCmd::DESTROY).circ_id(), 0x8000_0006);
    let counted = world.totals().rendezvous;
    assert_eq!(
        (counted.establish_malformed, counted.join_malformed),
        (1, 1)
    );
    // A cookie is forgotten with the circuit that waited.
    let reason = DestroyReason::NONE;
    world.receive(link, &Destroy { reason }.encode(0x8000_0001));
    world.settle();
    let mut fourth = Circuit::create(&mut world, link, 0x8000_0004);
    fourth.send(&mut world, 0, RelayCmd::ESTABLISH_RENDEZVOUS, &[5; 20]);
    world.settle();
    assert_eq!(
        fourth.backward(&mut world).1,
        RelayCmd::RENDEZVOUS_ESTABLISHED
    );
}
