use super::*;
use crate::PathOptions;
use crate::testing::{TestNet, family_key as key, rsa};

fn bridge(id: u16, consensus: &Relays, with: u16) -> Bridge {
    let like = &consensus.rows()[consensus.by_rsa(&rsa(with)).unwrap()].hop;
    Bridge {
        addr: "192.0.2.1:443".parse().unwrap(),
        rsa: Some(rsa(id)),
        hop: Some(Hop {
            ed25519: [9; 32].into(),
            ..like.clone()
        }),
        family: StatedFamily::default(),
    }
}

#[test]
fn a_bridge_is_a_row_with_the_address_of_torrc_and_families_stay() {
    let consensus = TestNet::alike(10).relays();
    let bridges = [bridge(500, &consensus, 1), bridge(3, &consensus, 3)];
    let both = Relays::with_bridges(Some(&consensus), &bridges);
    // One of them is a relay of the consensus as well.
    assert_eq!(both.len(), 11);
    for id in [500, 3] {
        let row = &both.rows()[both.by_rsa(&rsa(id)).unwrap()];
        assert!(row.bridge);
        assert_eq!(row.hop.addrs, [bridges[0].addr]);
    }
    assert!(both.rows().iter().filter(|row| row.bridge).count() == 2);
}

#[test]
fn relays_of_one_line_of_torrc_are_related_and_others_are_not() {
    let relays = TestNet::alike(10).relays();
    let options = PathOptions {
        node_families: vec!["relay1,relay2".parse().unwrap(), "relay3".parse().unwrap()],
        ..PathOptions::default()
    };
    for a in 0..10 {
        for b in 0..10 {
            let related = relays.related_by(&options, a, b, true);
            let in_line = [a, b] == [1, 2] || [a, b] == [2, 1];
            assert_eq!(related, a == b || in_line, "{a}, {b}");
        }
    }
}

#[test]
fn a_bridge_is_of_the_families_that_both_sides_state() {
    let mut net = TestNet::alike(10);
    // Relay 1 states the bridge and is stated, 2 only states it, 3 is only stated; 4 has a key of its family.
    net.relays[1].family = vec![500];
    net.relays[2].family = vec![500];
    net.relays[4].family_keys = vec![77];
    net.relays[5].family_keys = vec![78];
    let related = |net: &TestNet, family: StatedFamily| {
        let consensus = net.relays();
        let mut bridge = bridge(500, &consensus, 1);
        bridge.family = family;
        let both = Relays::with_bridges(Some(&consensus), &[bridge]);
        let own = both.by_rsa(&rsa(500)).unwrap();
        let of = |id: u16| both.by_rsa(&rsa(id)).unwrap();
        let ids = (0..10).filter(|id| {
            let (there, back) = (
                both.related(own, of(*id), false),
                both.related(of(*id), own, false),
            );
            assert_eq!(there, back, "{id}");
            there
        });
        ids.collect::<Vec<u16>>()
    };
    let stated = StatedFamily {
        relays: vec![rsa(1), rsa(3), rsa(400), rsa(500)],
        keys: vec![key(77), key(79)],
    };
    assert_eq!(related(&net, stated.clone()), [1, 4]);
    assert_eq!(related(&net, StatedFamily::default()), [0_u16; 0]);
    net.params = "use-family-ids=0 use-family-lists=0".to_owned();
    assert_eq!(related(&net, stated), [0_u16; 0]);
}

#[test]
fn without_a_descriptor_a_bridge_is_known_and_leads_nowhere() {
    let consensus = TestNet::alike(10).relays();
    let mut bare = bridge(500, &consensus, 1);
    bare.hop = None;
    let relays = Relays::with_bridges(None, std::slice::from_ref(&bare));
    assert!(relays.is_empty() && relays.by_rsa(&rsa(500)).is_none());
    assert_eq!(relays.bridges(), [bare]);
}
