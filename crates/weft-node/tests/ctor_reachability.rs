//! Reachability probes through real C tor relays: one is asked, another plays ourselves.
//!
//! These tests need the `tor` program and fail without it. Everything is on loopback.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use socket2::{Domain, Socket, Type};
use weft_core::handshake::HandshakeError;
use weft_node::reachability::{LinkFault, Probe, ProbeError, Step};
use weft_testing::ctor::{CTor, Contact, PATIENCE};

/// How long a probe waits that has nothing to wait for: long enough for all that comes before, on a
/// machine that has much else to do.
const IN_VAIN: Duration = Duration::from_secs(10);

fn probe(via: Contact, own: Contact) -> Probe {
    Probe {
        via: via.addr,
        via_rsa: via.rsa,
        own_addr: own.addr,
        own_rsa: own.rsa,
        own_ed25519: Some(own.ed25519),
        own_ntor: own.ntor,
        route: weft_proxy::Route::default(),
        timeout: PATIENCE,
    }
}

fn run(probe: &Probe) -> Result<(), ProbeError> {
    probe.run(&mut ChaCha12Rng::seed_from_u64(1))
}

/// Runs a probe that must fail; checks that its words name what an operator needs.
fn fail(probe: &Probe, words: &[&str]) -> ProbeError {
    let error = run(probe).expect_err("the probe should have failed");
    let text = error.to_string();
    for words in words {
        assert!(text.contains(words), "no {words:?} in: {text}");
    }
    error
}

/// Somebody who is no relay and does with connections what `serve` does.
fn not_a_relay(serve: impl Fn(std::net::TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    // Ends with the test's process.
    thread::spawn(move || {
        while let Ok((socket, _)) = listener.accept() {
            serve(socket);
        }
    });
    addr
}

/// An address at which connections are accepted and no byte is ever sent.
fn silence() -> SocketAddr {
    not_a_relay(std::mem::forget)
}

/// A port that is taken, but where nothing listens.
fn closed_port() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    socket.bind(&any.into()).unwrap();
    let addr = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, addr)
}

/// A relay that nobody runs, for tests in which no one comes to ask for it.
fn nobody(addr: SocketAddr) -> Contact {
    Contact {
        addr,
        rsa: [7; 20].into(),
        ed25519: [8; 32].into(),
        ntor: [9; 32],
    }
}

#[test]
fn a_relay_that_listens_is_found_reachable() {
    let (mut via, mut own) = (CTor::relay(), CTor::relay());
    let (via, own) = (via.contact(), own.contact());
    let mut probe = probe(via, own);
    run(&probe).unwrap();
    // Again, now that the one has a link to the other, and from an address of our choice.
    probe.route.bind = Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
    run(&probe).unwrap();
    // C tor answers an onionskin for a key that it does not have, too, but with nonsense.
    probe.own_ntor[5] ^= 1;
    let error = fail(&probe, &[&own.addr.to_string(), "our onion key"]);
    assert!(matches!(error, ProbeError::NotUs { .. }), "{error:?}");
    assert!(error.is_verdict());
}

#[test]
fn a_relay_is_found_reachable_through_ipv6() {
    let (mut via, mut own) = (CTor::relay_with_ipv6(), CTor::relay_with_ipv6());
    let via_ipv6 = via.or_port_ipv6();
    let own_ipv6 = own.or_port_ipv6();
    let (mut via, mut own) = (via.contact(), own.contact());
    // We ask over IPv4, and the relay that is asked can only go on over IPv6.
    own.addr = own_ipv6;
    run(&probe(via, own)).unwrap();
    via.addr = via_ipv6;
    run(&probe(via, own)).unwrap();
}

#[test]
fn a_relay_that_does_not_listen_is_not_found_reachable() {
    let mut via = CTor::relay();
    let via = via.contact();
    let (_socket, closed) = closed_port();
    let words = ["could not reach us at", &closed.to_string(), "firewall"];
    let error = fail(&probe(via, nobody(closed)), &words);
    assert!(matches!(error, ProbeError::NotReached { .. }), "{error:?}");
    assert!(error.is_verdict());

    // Another relay answers there: in this case the one that was asked.
    let own = Contact {
        addr: via.addr,
        ..nobody(closed)
    };
    let error = fail(&probe(via, own), &["could not reach us at"]);
    assert!(matches!(error, ProbeError::NotReached { .. }), "{error:?}");

    let mut filtered = probe(via, nobody(silence()));
    filtered.timeout = IN_VAIN;
    let error = fail(&filtered, &["within 10 seconds", "firewall"]);
    assert!(matches!(error, ProbeError::NoAnswer { .. }), "{error:?}");
    assert!(error.is_verdict());
}

#[test]
fn another_relay_than_the_one_wanted_is_not_asked() {
    let mut via = CTor::relay();
    let mut via = via.contact();
    via.rsa.0[0] ^= 1;
    let own = nobody(silence());
    let error = fail(&probe(via, own), &["wrong relay", &via.addr.to_string()]);
    let ProbeError::Via {
        step: Step::LinkHandshake,
        source: LinkFault::Handshake(source),
        ..
    } = &error
    else {
        panic!("{error:?}");
    };
    assert!(matches!(**source, HandshakeError::WrongIdentity { .. }));
    assert!(!error.is_verdict());
}

#[test]
fn what_is_no_relay_cannot_be_asked() {
    let own = nobody(closed_port().1);
    let ask = |addr| probe(nobody(addr), own);
    let shows_nothing_about_us = "this shows nothing about our own port yet";

    let mut hung = ask(silence());
    hung.timeout = IN_VAIN;
    let error = fail(&hung, &["TLS", shows_nothing_about_us]);
    assert!(matches!(
        error,
        ProbeError::Via {
            step: Step::Tls,
            source: LinkFault::TimedOut,
            ..
        }
    ));

    // Whether the end or a reset comes first is the kernel's affair.
    let error = fail(&ask(not_a_relay(drop)), &["TLS", shows_nothing_about_us]);
    assert!(matches!(
        error,
        ProbeError::Via {
            step: Step::Tls,
            source: LinkFault::Closed | LinkFault::Io(_),
            ..
        }
    ));

    let web_server = not_a_relay(|mut socket| {
        let _ = socket.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n");
        std::mem::forget(socket);
    });
    let error = fail(&ask(web_server), &["TLS", shows_nothing_about_us]);
    assert!(matches!(
        error,
        ProbeError::Via {
            step: Step::Tls,
            source: LinkFault::Tls(_),
            ..
        }
    ));

    let (_socket, closed) = closed_port();
    let error = fail(&ask(closed), &["refused", shows_nothing_about_us]);
    assert!(matches!(error, ProbeError::Connect { .. }));
    assert!(!error.is_verdict());
}

#[test]
fn addresses_that_cannot_be_used_are_named() {
    let own = nobody(silence());
    let mut probe = probe(nobody(silence()), own);
    probe.route.bind = Some("192.0.2.1".parse().unwrap());
    let error = fail(&probe, &["192.0.2.1", "OutboundBindAddress"]);
    assert!(matches!(error, ProbeError::Bind { .. }), "{error:?}");
    assert!(!error.is_verdict());

    probe.own_addr = "0.0.0.0:9001".parse().unwrap();
    let error = fail(&probe, &["0.0.0.0:9001", "Address"]);
    assert!(matches!(error, ProbeError::OwnAddress { .. }), "{error:?}");
}
