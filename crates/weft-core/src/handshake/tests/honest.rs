//! Results of handshakes between honest peers.

use super::*;

#[test]
fn two_relays_learn_each_others_identities() {
    let mut alice = initiator_to(
        Some(&ALICE_ID),
        Some(*BOB_ID.rsa_id()),
        Some(*BOB_ID.ed_id()),
    );
    let mut bob = responder();
    talk(&mut alice, &mut bob).unwrap();
    assert_eq!(
        *alice.established(),
        Established {
            link_protocol: 5,
            role: LinkRole::OpenedAsRelay,
            peer: is_relay(&BOB_ID),
            clock_skew: Some(0),
            my_addr: Some(INITIATOR_ADDR),
            peer_addrs: vec![RESPONDER_ADDR, Ipv6Addr::LOCALHOST.into()],
            canonical: true,
        }
    );
    assert_eq!(
        *bob.established(),
        Established {
            link_protocol: 5,
            role: LinkRole::Accepted,
            peer: is_relay(&ALICE_ID),
            clock_skew: Some(0),
            my_addr: Some(RESPONDER_ADDR),
            peer_addrs: vec![INITIATOR_ADDR],
            canonical: true,
        }
    );
}

#[test]
fn a_client_stays_anonymous() {
    let (mut client, mut bob) = (client(), responder());
    talk(&mut client, &mut bob).unwrap();
    assert_eq!(client.established().peer, is_relay(&BOB_ID));
    assert_eq!(client.established().role, LinkRole::OpenedAsClient);
    let seen = bob.established();
    assert_eq!(seen.role, LinkRole::Accepted);
    assert_eq!(seen.peer, PeerIdentity::Unauthenticated);
    assert_eq!(seen.clock_skew, None);
    assert_eq!(seen.peer_addrs, Vec::<IpAddr>::new());
    assert!(!seen.canonical);
}

#[test]
fn an_initiator_sends_nothing_about_itself_before_it_knows_the_responder() {
    let mut alice = relay();
    let (_, flight) = greeted(&mut alice);
    let [versions, certs, challenge, _] = responder_cells(&flight);
    alice.feed(&versions).unwrap();
    assert!(alice.out().is_empty());
    alice.feed(&certs).unwrap();
    assert!(alice.out().is_empty());
    alice.feed(&challenge).unwrap();
    let commands: Vec<u8> = cells(&alice.out()).iter().map(|cell| cell[4]).collect();
    assert_eq!(commands, [129, 131, 8]);
}

#[test]
fn bytes_may_come_one_at_a_time_and_the_rest_is_left_alone() {
    let (mut alice, mut bob) = (relay(), responder());
    for byte in alice.out() {
        assert_eq!(bob.feed(&[byte]), Ok(1));
    }
    for byte in bob.out() {
        assert_eq!(alice.feed(&[byte]), Ok(1));
    }
    // The first cells of the open link come with the end of the handshake.
    let mut flight = alice.out();
    let after = vec![0xAA; 50_000];
    let (first, second) = flight.split_at_mut(700);
    assert_eq!(bob.feed(first), Ok(700));
    let mut bytes = second.to_vec();
    bytes.extend_from_slice(&after);
    assert_eq!(bob.feed(&bytes), Ok(second.len()));
    assert_eq!(bob.established().peer, is_relay(&ALICE_ID));
    assert_eq!(bob.feed(&after), Ok(0));
}

#[test]
fn the_highest_common_version_is_taken() {
    for (offer, taken) in [
        (&[3, 4, 5][..], Some(5)),
        (&[4, 3], Some(4)),
        (&[5, 4, 6, 900], Some(5)),
        (&[3], None),
        (&[6], None),
        (&[], None),
    ] {
        let mut bob = responder();
        match (bob.feed(&versions(offer)), taken) {
            (Ok(_), Some(version)) => assert_eq!(bob.handshake.link_protocol, version),
            (Err(error), None) => {
                assert_eq!(
                    error,
                    HandshakeError::NoCommonVersion {
                        offered: offer.to_vec()
                    }
                );
                assert_eq!(error.class(), ErrorClass::NoCommonProtocol);
                assert!(bob.out().is_empty());
            }
            (result, _) => panic!("{offer:?}: {result:?}"),
        }
    }
}

#[test]
fn padding_and_unknown_cells_pass() {
    let noise = || {
        let mut noise = variable(128, &[1; 300]);
        noise.extend_from_slice(Cell::new(0, ChanCmd::PADDING).as_bytes());
        noise.extend(variable(200, b"from the future"));
        noise.extend(variable(132, b""));
        // A second VERSIONS must be ignored, whatever is in it (tor-spec 4.1).
        noise.extend(variable(7, &[1, 2, 3]));
        noise
    };
    let (mut client, mut bob) = (client(), responder());
    // Before VERSIONS a circuit id has two bytes.
    bob.feed(&[0, 0, 128, 0, 3, 9, 9, 9]).unwrap();
    bob.feed(&client.out()).unwrap();
    bob.feed(&noise()).unwrap();
    let mut flight = Vec::new();
    let [versions, certs, challenge, netinfo] = responder_cells(&bob.out());
    for cell in [versions, certs, challenge] {
        flight.extend(cell);
        flight.extend(noise());
    }
    flight.extend(netinfo);
    client.feed(&flight).unwrap();
    bob.feed(&client.out()).unwrap();
    assert_eq!(client.established().peer, is_relay(&BOB_ID));
    assert_eq!(bob.established().peer, PeerIdentity::Unauthenticated);
}

#[test]
fn a_relay_that_pads_can_still_authenticate() {
    // CLOG contains the padding (tor-spec 4.4.1), before VERSIONS too.
    let mut bob = responder();
    let mut sent = vec![0, 0, 128, 0, 1, 9];
    sent.extend(versions(&[4, 5]));
    sent.extend(variable(128, &[1; 30]));
    sent.extend(certs_cell(&ALICE_ID.initiator_certs()));
    sent.extend_from_slice(Cell::new(0, ChanCmd::PADDING).as_bytes());
    bob.feed(&sent).unwrap();
    let flight = bob.out();
    bob.feed(&authenticate_cell(&sent, &flight, |_| {}, &[]))
        .unwrap();
    bob.feed(Netinfo::default().encode().unwrap().as_bytes())
        .unwrap();
    assert_eq!(bob.established().peer, is_relay(&ALICE_ID));
}

#[test]
fn without_a_common_method_a_relay_goes_on_as_a_client() {
    let mut alice = relay();
    let (mut bob, flight) = greeted(&mut alice);
    let [versions, certs, _, netinfo] = responder_cells(&flight);
    let mut challenge = vec![0; 32];
    challenge.extend_from_slice(&[0, 2, 0, 1, 0, 9]);
    for cell in [versions, certs, variable(130, &challenge), netinfo] {
        alice.feed(&cell).unwrap();
    }
    let answer = alice.out();
    assert_eq!(cells(&answer).len(), 1);
    bob.feed(&answer).unwrap();
    assert_eq!(alice.established().peer, is_relay(&BOB_ID));
    assert_eq!(bob.established().peer, PeerIdentity::Unauthenticated);
}

#[test]
fn a_responder_need_not_challenge() {
    let mut alice = relay();
    let (mut bob, flight) = greeted(&mut alice);
    let [versions, certs, _, netinfo] = responder_cells(&flight);
    for cell in [versions, certs, netinfo] {
        alice.feed(&cell).unwrap();
    }
    assert_eq!(alice.established().peer, is_relay(&BOB_ID));
    bob.feed(&alice.out()).unwrap();
    assert_eq!(bob.established().peer, PeerIdentity::Unauthenticated);
}

#[test]
fn clock_skew_is_ours_minus_theirs_and_only_of_quick_handshakes() {
    let skew = |took: Duration, ahead: i64| {
        let mut alice = relay();
        let (mut bob, flight) = greeted(&mut alice);
        alice.feed(&flight).unwrap();
        bob.now += took;
        let mut answer = alice.out();
        let netinfo = answer.len() - 514;
        let theirs = i64::from(unix_time(bob.now)) - ahead;
        answer[netinfo + 5..netinfo + 9].copy_from_slice(&(theirs as u32).to_be_bytes());
        bob.feed(&answer).unwrap();
        bob.established().clock_skew
    };
    assert_eq!(skew(Duration::ZERO, 0), Some(0));
    assert_eq!(skew(Duration::from_secs(2), 4000), Some(4000));
    assert_eq!(skew(Duration::from_secs(179), -4000), Some(-4000));
    assert_eq!(skew(Duration::from_secs(180), 4000), None);
}

#[test]
fn an_unclaimed_address_is_not_canonical() {
    let mut alice = relay();
    alice.handshake.my_addrs = vec![IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1))];
    let mut bob = responder();
    // The kernel calls an IPv4 peer of an IPv6 socket so.
    bob.handshake.peer_addr = INITIATOR_ADDR;
    talk(&mut alice, &mut bob).unwrap();
    assert!(!bob.established().canonical);
    assert!(alice.established().canonical);
}

#[test]
fn a_mapped_address_is_the_same_address() {
    let IpAddr::V4(v4) = RESPONDER_ADDR else {
        unreachable!()
    };
    let mut alice = LinkHandshake::new(
        Role::Responder,
        None,
        v4.to_ipv6_mapped().into(),
        vec![],
        Instant::now(),
    );
    assert_eq!(alice.peer_addr, RESPONDER_ADDR);
    alice.start();
    assert!(alice.take_output().is_empty());
}

#[test]
fn the_deadline_is_a_minute_after_the_connection() {
    let started = Instant::now();
    let handshake = LinkHandshake::new(Role::Responder, None, RESPONDER_ADDR, vec![], started);
    assert_eq!(handshake.deadline(), started + Duration::from_secs(60));
}
