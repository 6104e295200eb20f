//! The schedule under a fake clock, and probes through relays that misbehave.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use weft_cell::circ_msg::{CreateReply, CreateRequest, Extend2, Extended2, handshake_type};
use weft_cell::reason::DestroyReason;
use weft_cell::relay::{self, RelayBody};
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_core::handshake::{EphemeralKeys, Role};
use weft_crypto::handshake::{OnionKeys, fast, ntor};
use weft_crypto::relay_cell::RelayCrypt;

use super::link::{Link, MAX_RECEIVED};
use super::*;
use weft_tls::{LinkLifetimes, LinkTls};

fn rng(seed: u64) -> ChaCha12Rng {
    ChaCha12Rng::seed_from_u64(seed)
}

fn v4() -> SocketAddr {
    "192.0.2.1:9001".parse().unwrap()
}

fn v6() -> SocketAddr {
    "[2001:db8::1]:9001".parse().unwrap()
}

const SECOND: Duration = Duration::from_secs(1);

/// Reports a probe of `addr` that starts and fails.
fn fail(state: &mut Reachability, addr: SocketAddr, now: Instant) {
    state.started(addr, now);
    state.failed(addr, now);
}

#[test]
fn both_addresses_are_tested_at_once_until_found() {
    let now = Instant::now();
    let mut state = Reachability::new(Some(v4()), Some(v6()), false, false);
    assert_eq!(state.is_reachable(), (false, false));
    assert_eq!(state.due(now), Some(v4()));
    state.started(v4(), now);
    assert_eq!(state.due(now), Some(v6()));
    state.started(v6(), now);
    assert_eq!(state.due(now), None);

    let later = now + SECOND;
    assert!(state.succeeded(v6()));
    assert_eq!(state.is_reachable(), (false, true));
    assert!(!state.succeeded(v6()), "only the first time");
    assert_eq!(state.due(later), None);
    state.failed(v4(), later);
    assert_eq!(state.due(later), Some(v4()));
}

#[test]
fn a_missing_or_assumed_reachable_address_is_not_tested() {
    let now = Instant::now();
    let state = Reachability::new(None, None, false, false);
    assert_eq!(state.is_reachable(), (true, true));
    assert_eq!(state.due(now), None);
    let state = Reachability::new(Some(v4()), Some(v6()), true, true);
    assert_eq!(state.is_reachable(), (true, true));
    assert_eq!(state.due(now), None);
    let state = Reachability::new(Some(v4()), Some(v6()), false, true);
    assert_eq!(state.is_reachable(), (false, true));
    assert_eq!(state.due(now), Some(v4()));
}

#[test]
fn a_round_of_failures_is_followed_by_a_pause_that_doubles() {
    let mut now = Instant::now();
    let mut state = Reachability::new(Some(v4()), None, false, false);
    for minutes in [1, 2, 4, 8, 16, 20, 20, 20] {
        for _ in 1..RELAYS_PER_ROUND {
            fail(&mut state, v4(), now);
            assert_eq!(
                state.due(now),
                Some(v4()),
                "the next relay is asked at once"
            );
        }
        fail(&mut state, v4(), now);
        let pause = Duration::from_secs(60 * minutes);
        assert_eq!(state.due(now + pause - SECOND), None);
        now += pause;
        assert_eq!(state.due(now), Some(v4()));
    }
}

#[test]
fn endless_failures_never_overflow() {
    for failures in [u32::MAX, u32::MAX - 1, u32::MAX / 2, 3 * 40] {
        assert!(pause_after(failures) <= LONGEST_PAUSE);
    }
    assert_eq!(pause_after(3 * 40), LONGEST_PAUSE);
}

#[test]
fn a_failure_does_not_make_an_address_unreachable() {
    let now = Instant::now();
    let mut state = Reachability::new(Some(v4()), None, false, false);
    state.started(v4(), now);
    // Another relay connected while the probe was under way.
    assert!(state.found_reachable("::ffff:192.0.2.1".parse().unwrap()));
    state.failed(v4(), now);
    state.started(v4(), now);
    assert_eq!(state.is_reachable(), (true, true));
    assert_eq!(state.due(now + LONGEST_PAUSE), None);
}

#[test]
fn being_reached_at_another_address_proves_nothing() {
    let mut state = Reachability::new(Some(v4()), Some(v6()), false, false);
    assert!(!state.found_reachable("192.0.2.77".parse().unwrap()));
    assert!(!state.succeeded("192.0.2.1:9002".parse().unwrap()));
    assert_eq!(state.is_reachable(), (false, false));
    assert!(state.found_reachable("2001:db8::1".parse().unwrap()));
    assert_eq!(state.is_reachable(), (false, true));
}

#[test]
fn a_new_address_is_tested_and_the_old_one_forgotten() {
    let now = Instant::now();
    let mut state = Reachability::new(Some(v4()), Some(v6()), false, false);
    state.succeeded(v4());
    state.succeeded(v6());
    let moved: SocketAddr = "192.0.2.2:9001".parse().unwrap();
    state.set_addresses(Some(moved), Some(v6()));
    assert_eq!(state.is_reachable(), (false, true));
    assert_eq!(state.due(now), Some(moved));
    state.started(moved, now);
    // A late result for the old one.
    assert!(!state.succeeded(v4()));
    state.failed(v4(), now);
    assert_eq!(state.due(now), None);
    state.set_addresses(None, Some(v6()));
    assert_eq!(state.is_reachable(), (true, true));
}

#[test]
fn a_probe_that_never_reports_is_repeated() {
    let now = Instant::now();
    let mut state = Reachability::new(Some(v4()), None, false, false);
    state.started(v4(), now);
    assert_eq!(state.due(now + LONGEST_TIMEOUT), None);
    assert_eq!(state.due(now + LOST), Some(v4()));
}

#[test]
fn within_a_round_each_relay_is_asked_once() {
    let now = Instant::now();
    let mut rng = rng(1);
    let mut state = Reachability::new(Some(v4()), None, false, false);
    let candidates: Vec<Candidate> = (1..=3)
        .map(|n| Candidate {
            addr: SocketAddr::from(([10, 0, 0, n], 443)),
            rsa: [n; 20].into(),
        })
        .collect();
    let mut firsts = std::collections::BTreeSet::new();
    for _round in 0..20 {
        let mut asked = Vec::new();
        for _ in 0..RELAYS_PER_ROUND {
            let relay = state.choose(v4(), &candidates, &mut rng).unwrap();
            assert!(!asked.contains(&relay.rsa));
            asked.push(relay.rsa);
            fail(&mut state, v4(), now);
        }
        firsts.insert(asked[0]);
    }
    assert_eq!(firsts.len(), 3, "any of them may be first");

    // With too few candidates the same one is chosen again.
    for _ in 0..5 {
        let only = state.choose(v4(), &candidates[..1], &mut rng);
        assert_eq!(only, Some(candidates[0]));
    }
    assert_eq!(state.choose(v4(), &[], &mut rng), None);
    assert_eq!(state.choose(v6(), &candidates, &mut rng), None);
}

/// Longer than anything that does not hang.
const PATIENCE: Duration = Duration::from_secs(120);

static VIA: LazyLock<LinkTls> = LazyLock::new(|| {
    let (mut rng, now) = (rng(2), SystemTime::now());
    let keys = EphemeralKeys::generate(now, &mut rng).unwrap();
    LinkTls::relay(keys.keys(), LinkLifetimes::default(), now, &mut rng).unwrap()
});

fn own_keys() -> OnionKeys {
    OnionKeys::new([1; 20].into(), [2; 32].into(), &[3; 32], None)
}

/// A relay that runs `act` on the first link that it accepts, and a probe through it. The thread returns
/// the result of `act`.
fn probe_through<T: Send + 'static>(
    act: impl FnOnce(&mut Link) -> T + Send + 'static,
) -> (Probe, JoinHandle<T>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let via = listener.local_addr().unwrap();
    let relay = thread::spawn(move || {
        let (socket, peer) = listener.accept().unwrap();
        let deadline = Instant::now() + PATIENCE;
        let mut link = Link::new(socket, VIA.accept().unwrap(), deadline);
        link.tls_handshake().unwrap();
        link.link_handshake(Role::Responder, peer.ip(), &mut rng(3))
            .unwrap();
        act(&mut link)
    });
    let keys = own_keys();
    let probe = Probe {
        via,
        via_rsa: *VIA.identity().unwrap().rsa_id(),
        own_addr: v4(),
        own_rsa: *keys.rsa_identity(),
        own_ed25519: Some(*keys.ed_identity()),
        own_ntor: keys.current_public(),
        route: weft_proxy::Route::default(),
        timeout: PATIENCE,
    };
    (probe, relay)
}

/// Reads the probe's CREATE_FAST.
fn read_create_fast(link: &mut Link) -> (u32, [u8; 20]) {
    let cell = link.next_cell().unwrap();
    match CreateRequest::decode(cell.command(), cell.body()) {
        Ok(CreateRequest::Fast { x }) => (cell.circ_id(), x),
        other => panic!("CREATE_FAST should come first: {other:?}"),
    }
}

/// Answers CREATE_FAST as a relay should, and reads the EXTEND2 that follows.
fn read_extend2(link: &mut Link) -> (u32, RelayCrypt, Extend2) {
    let (circ_id, x) = read_create_fast(link);
    let fast::Reply { y, kh, keys } = fast::server(&x, &mut rng(4));
    let reply = CreateReply::Fast { y, kh }.encode(circ_id).unwrap();
    link.send_cell(&reply).unwrap();
    let mut crypt = RelayCrypt::new(&keys);
    let mut cell = link.next_cell().unwrap();
    assert_eq!(cell.command(), ChanCmd::RELAY_EARLY);
    assert!(crypt.decrypt_forward(cell.body_mut()));
    let message = RelayBody::new(cell.body());
    assert_eq!(message.command(), RelayCmd::EXTEND2);
    let extend2 = Extend2::decode(message.data().unwrap()).unwrap();
    (circ_id, crypt, extend2)
}

/// A backward relay message to the probe.
fn message(circ_id: u32, crypt: &mut RelayCrypt, command: RelayCmd, data: &[u8]) -> Cell {
    let mut cell = Cell::new(circ_id, ChanCmd::RELAY);
    relay::encode(cell.body_mut(), command, 0, data, &mut rng(5)).unwrap();
    crypt.originate_backward(cell.body_mut());
    cell
}

fn destroy(circ_id: u32, reason: DestroyReason) -> Cell {
    let mut cell = Cell::new(circ_id, ChanCmd::DESTROY);
    cell.body_mut()[0] = reason.0;
    cell
}

/// The error of a probe that gets `answer` instead of CREATED_FAST.
fn create_answered_with(answer: impl FnOnce(u32, [u8; 20]) -> Cell + Send + 'static) -> ProbeError {
    let (probe, relay) = probe_through(|link| {
        let (circ_id, x) = read_create_fast(link);
        link.send_cell(&answer(circ_id, x)).unwrap();
    });
    let error = probe.run(&mut rng(6)).unwrap_err();
    relay.join().unwrap();
    assert!(!error.is_verdict());
    assert!(
        matches!(
            error,
            ProbeError::Via {
                step: Step::CreateFast,
                ..
            }
        ),
        "{error:?}"
    );
    error
}

/// The error of a probe that gets `answer` instead of EXTENDED2.
fn extend_answered_with(
    answer: impl FnOnce(u32, &mut RelayCrypt) -> Cell + Send + 'static,
) -> ProbeError {
    let (probe, relay) = probe_through(|link| {
        let (circ_id, mut crypt, _) = read_extend2(link);
        link.send_cell(&answer(circ_id, &mut crypt)).unwrap();
    });
    let error = probe.run(&mut rng(6)).unwrap_err();
    relay.join().unwrap();
    error
}

/// The fault of the asked relay.
fn fault_of_via(error: ProbeError) -> LinkFault {
    assert!(!error.is_verdict());
    match error {
        ProbeError::Via { source, .. } => source,
        other => panic!("the relay that was asked is not blamed: {other:?}"),
    }
}

#[test]
fn the_circuit_is_extended_to_exactly_the_address_under_test() {
    for own_addr in [v4(), v6()] {
        let (mut probe, relay) = probe_through(|link| {
            let (circ_id, mut crypt, extend2) = read_extend2(link);
            let onionskin = &extend2.handshake;
            let reply = ntor::server(onionskin, &own_keys(), &mut rng(7)).unwrap();
            let data = reply.data.to_vec();
            let data = Extended2 { data }.encode().unwrap();
            // Padding of all kinds is skipped.
            let drop = message(circ_id, &mut crypt, RelayCmd::DROP, &[]);
            let extended = message(circ_id, &mut crypt, RelayCmd::EXTENDED2, &data);
            let padding = Cell::new(0, ChanCmd::PADDING);
            let other = destroy(circ_id ^ 1, DestroyReason::PROTOCOL);
            for cell in [padding, other, drop, extended] {
                link.send_cell(&cell).unwrap();
            }
            (circ_id, extend2, link.next_cell().unwrap())
        });
        probe.own_addr = own_addr;
        probe.run(&mut rng(6)).unwrap();
        let (circ_id, extend2, last) = relay.join().unwrap();
        assert_eq!(circ_id >> 31, 1, "the initiator's bit");
        assert_eq!(
            extend2.ipv4.map(SocketAddr::V4),
            Some(own_addr).filter(SocketAddr::is_ipv4)
        );
        assert_eq!(
            extend2.ipv6.map(SocketAddr::V6),
            Some(own_addr).filter(SocketAddr::is_ipv6)
        );
        assert_eq!(extend2.rsa, Some([1; 20].into()));
        assert_eq!(extend2.ed25519, Some([2; 32].into()));
        assert_eq!(extend2.handshake_type, handshake_type::NTOR);
        assert_eq!(extend2.link_specifiers, []);
        assert_eq!(last, destroy(circ_id, DestroyReason::NONE));
    }
}

#[test]
fn a_measurement_sends_cells_without_meaning_to_ourselves() {
    let (probe, relay) = probe_through(|link| {
        let (circ_id, mut crypt, extend2) = read_extend2(link);
        let reply = ntor::server(&extend2.handshake, &own_keys(), &mut rng(7)).unwrap();
        let data = reply.data.to_vec();
        let data = Extended2 { data }.encode().unwrap();
        let extended = message(circ_id, &mut crypt, RelayCmd::EXTENDED2, &data);
        link.send_cell(&extended).unwrap();
        let mut own = RelayCrypt::new(&reply.keys);
        let mut drops = 0;
        loop {
            let mut cell = link.next_cell().unwrap();
            if cell.command() == ChanCmd::DESTROY {
                return drops;
            }
            assert_eq!((cell.circ_id(), cell.command()), (circ_id, ChanCmd::RELAY));
            assert!(
                !crypt.decrypt_forward(cell.body_mut()),
                "not for this relay"
            );
            assert!(own.decrypt_forward(cell.body_mut()));
            let message = RelayBody::new(cell.body());
            assert_eq!(message.command(), RelayCmd::DROP);
            assert_eq!(message.data().unwrap(), b"");
            drops += 1;
        }
    });
    let none = (Duration::ZERO, Duration::ZERO);
    let bytes = probe.send_drops(100, none, &mut rng(6)).unwrap();
    assert_eq!(bytes, 100 * 514);
    assert_eq!(relay.join().unwrap(), 100);
}

#[test]
fn a_measurement_through_a_relay_that_closes_has_sent_nothing() {
    let (probe, relay) = probe_through(|link| {
        read_extend2(link);
    });
    let none = (Duration::ZERO, Duration::ZERO);
    let error = probe.send_drops(10, none, &mut rng(6)).unwrap_err();
    relay.join().unwrap();
    assert!(matches!(error, ProbeError::Via { .. }), "{error:?}");
}

#[test]
fn failing_the_first_hop_is_the_asked_relays_fault() {
    let error = create_answered_with(|id, _| destroy(id, DestroyReason::RESOURCELIMIT));
    assert!(error.to_string().contains("RESOURCELIMIT"), "{error}");
    let limit = DestroyReason::RESOURCELIMIT;
    assert!(matches!(fault_of_via(error), LinkFault::Destroyed(reason) if reason == limit));

    let error = create_answered_with(|id, x| {
        let fast::Reply { y, mut kh, .. } = fast::server(&x, &mut rng(4));
        kh[0] ^= 1;
        CreateReply::Fast { y, kh }.encode(id).unwrap()
    });
    assert!(matches!(fault_of_via(error), LinkFault::Circuit(_)));

    let created2 = CreateReply::Created2 { data: vec![1; 64] };
    let error = create_answered_with(move |id, _| created2.encode(id).unwrap());
    assert!(matches!(fault_of_via(error), LinkFault::Unexpected(_)));
    for command in [ChanCmd::CREATED, ChanCmd::RELAY, ChanCmd::CREATE_FAST] {
        let error = create_answered_with(move |id, _| Cell::new(id, command));
        assert!(matches!(fault_of_via(error), LinkFault::CircMsg(_)));
    }
}

#[test]
fn a_failed_connection_to_us_is_a_verdict() {
    for reason in [
        DestroyReason::CONNECTFAILED,
        DestroyReason::OR_IDENTITY,
        DestroyReason::CHANNEL_CLOSED,
        DestroyReason::TIMEOUT,
    ] {
        let by_destroy = extend_answered_with(move |id, _| destroy(id, reason));
        let by_truncated = extend_answered_with(move |id, crypt| {
            message(id, crypt, RelayCmd::TRUNCATED, &[reason.0])
        });
        for error in [by_destroy, by_truncated] {
            assert!(error.is_verdict());
            let text = error.to_string();
            assert!(
                text.contains("could not reach us at 192.0.2.1:9001"),
                "{text}"
            );
            assert!(
                matches!(error, ProbeError::NotReached { reason: found, .. } if found == reason)
            );
        }
    }
}

#[test]
fn destroy_and_truncated_name_different_relays() {
    let error = extend_answered_with(|id, _| destroy(id, DestroyReason::PROTOCOL));
    assert!(matches!(fault_of_via(error), LinkFault::Destroyed(_)));
    let error = extend_answered_with(|id, crypt| {
        message(id, crypt, RelayCmd::TRUNCATED, &[DestroyReason::PROTOCOL.0])
    });
    assert!(matches!(error, ProbeError::Refused { .. }), "{error:?}");
    assert!(error.is_verdict());
}

#[test]
fn only_we_can_answer_our_onionskin() {
    let forged = Extended2 { data: vec![9; 64] }.encode().unwrap();
    for data in [forged, vec![0, 0], vec![0, 3, 1, 2, 3]] {
        let error =
            extend_answered_with(move |id, crypt| message(id, crypt, RelayCmd::EXTENDED2, &data));
        assert!(matches!(error, ProbeError::NotUs { .. }), "{error:?}");
        assert!(error.is_verdict());
    }
}

#[test]
fn nonsense_after_extend2_is_the_asked_relays_fault() {
    for command in [RelayCmd::EXTENDED2, RelayCmd::TRUNCATED] {
        let error = extend_answered_with(move |id, crypt| message(id, crypt, command, &[]));
        assert!(matches!(fault_of_via(error), LinkFault::CircMsg(_)));
    }
    let error = extend_answered_with(|id, crypt| message(id, crypt, RelayCmd::DATA, b"hello"));
    assert!(matches!(fault_of_via(error), LinkFault::Unexpected(_)));
    let error = extend_answered_with(|id, crypt| {
        let mut cell = message(id, crypt, RelayCmd::EXTENDED2, &[0, 0]);
        cell.set_command(ChanCmd::RELAY_EARLY);
        cell
    });
    assert!(matches!(fault_of_via(error), LinkFault::Unexpected(_)));
    let error = extend_answered_with(|id, _| Cell::new(id, ChanCmd::RELAY));
    assert!(matches!(fault_of_via(error), LinkFault::Unrecognized));
    let error = extend_answered_with(|id, crypt| {
        let mut cell = Cell::new(id, ChanCmd::RELAY);
        cell.body_mut()[relay::field::COMMAND] = RelayCmd::EXTENDED2.into();
        cell.body_mut()[relay::field::LENGTH].fill(0xff);
        crypt.originate_backward(cell.body_mut());
        cell
    });
    assert!(matches!(fault_of_via(error), LinkFault::Relay(_)));
}

#[test]
fn a_closed_link_is_the_asked_relays_fault() {
    let (probe, relay) = probe_through(|link| {
        read_extend2(link);
    });
    // The relay's socket closes with its thread, without close_notify or with a reset.
    let error = probe.run(&mut rng(6)).unwrap_err();
    relay.join().unwrap();
    assert!(matches!(
        fault_of_via(error),
        LinkFault::Closed | LinkFault::Io(_)
    ));
}

#[test]
fn a_relay_cannot_flood_a_probe() {
    let (probe, relay) = probe_through(|link| {
        read_extend2(link);
        let padding = Cell::new(0, ChanCmd::PADDING);
        (0..10 * MAX_RECEIVED / 514).find(|_| link.send_cell(&padding).is_err())
    });
    let error = probe.run(&mut rng(6)).unwrap_err();
    relay.join().unwrap();
    assert!(matches!(fault_of_via(error), LinkFault::TooMuch { .. }));
}

#[test]
fn a_relay_cannot_prolong_a_probe_with_slow_cells() {
    let (mut probe, relay) = probe_through(|link| {
        read_extend2(link);
        let padding = Cell::new(0, ChanCmd::PADDING);
        while link.send_cell(&padding).is_ok() {
            thread::sleep(Duration::from_millis(200));
        }
    });
    // Long enough for the link to open.
    probe.timeout = 5 * SECOND;
    let error = probe.run(&mut rng(6)).unwrap_err();
    assert!(matches!(error, ProbeError::NoAnswer { timeout, .. } if timeout == 5 * SECOND));
    // The thread ends because the probe has closed the link.
    relay.join().unwrap();
}

#[test]
fn a_relay_that_proves_both_identities_is_reached() {
    let identity = VIA.identity().unwrap();
    let (rsa, ed25519) = (*identity.rsa_id(), *identity.ed_id());
    let reaches = |rsa, ed25519| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let relay = thread::spawn(move || {
            let (socket, peer) = listener.accept().unwrap();
            let deadline = Instant::now() + PATIENCE;
            let mut link = Link::new(socket, VIA.accept().unwrap(), deadline);
            link.tls_handshake().unwrap();
            // It fails where the other end is another relay.
            let opened = link.link_handshake(Role::Responder, peer.ip(), &mut rng(3));
            opened.is_ok()
        });
        let route = weft_proxy::Route::default();
        let reached = reach(address, (rsa, ed25519), &route, PATIENCE, &mut rng(5));
        (reached.is_ok(), relay.join().unwrap())
    };
    assert_eq!(reaches(rsa, Some(ed25519)), (true, true));
    assert_eq!(reaches(rsa, None), (true, true));
    assert_eq!(reaches([9; 20].into(), None), (false, false));
    assert_eq!(reaches(rsa, Some([9; 32].into())), (false, false));
}
