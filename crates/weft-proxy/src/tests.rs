//! Conversations with proxies that do what they should, and with those that do not.

use proptest::prelude::*;

use super::*;

fn v4() -> SocketAddr {
    "192.0.2.7:9001".parse().unwrap()
}

fn v6() -> SocketAddr {
    "[2001:db8::7]:443".parse().unwrap()
}

fn password() -> Protocol {
    Protocol::Socks5(Some(Credentials {
        username: Secret::new("me".to_owned()),
        password: Secret::new("secret".to_owned()),
    }))
}

/// Takes all that is to be sent.
fn sent(request: &mut Request) -> Vec<u8> {
    let out = request.output().to_vec();
    request.sent(out.len());
    assert!(request.output().is_empty());
    out
}

/// Gives an answer whole; the other tests give it in pieces.
fn error(protocol: &Protocol, answers: &[&[u8]]) -> ProxyError {
    let mut request = Request::new(protocol, v4()).unwrap();
    for answer in answers {
        if let Err(error) = request.receive(answer) {
            return error;
        }
    }
    panic!("{answers:?} is good enough: {request:?}");
}

#[test]
fn socks4_asks_for_an_ipv4_address_without_a_user() {
    let mut request = Request::new(&Protocol::Socks4(None), v4()).unwrap();
    assert_eq!(sent(&mut request), [4, 1, 0x23, 0x29, 192, 0, 2, 7, 0]);
    request.receive(&[0, 90, 0, 0, 0, 0, 0]).unwrap();
    assert!(!request.is_connected());
    request.receive(&[0]).unwrap();
    assert!(request.is_connected() && request.output().is_empty());
    assert_eq!(
        Request::new(&Protocol::Socks4(None), v6()),
        Err(ProxyError::Ipv6)
    );
}

#[test]
fn socks5_asks_for_either_family_without_a_password() {
    let mut request = Request::new(&Protocol::Socks5(None), v6()).unwrap();
    assert_eq!(sent(&mut request), [5, 1, 0]);
    request.receive(&[5, 0]).unwrap();
    let mut wanted = vec![5, 1, 0, 4];
    wanted.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    wanted.extend([0x01, 0xbb]);
    assert_eq!(sent(&mut request), wanted);
    // A proxy may name the host that it connects from.
    request
        .receive(&[5, 0, 0, 3, 3, b'a', b'.', b'b', 0])
        .unwrap();
    assert!(!request.is_connected());
    request.receive(&[80]).unwrap();
    assert!(request.is_connected());
}

#[test]
fn socks5_gives_name_and_password_where_the_proxy_wants_them() {
    let mut request = Request::new(&password(), v4()).unwrap();
    assert_eq!(sent(&mut request), [5, 2, 0, 2]);
    request.receive(&[5, 2]).unwrap();
    assert_eq!(sent(&mut request), *b"\x01\x02me\x06secret");
    request.receive(&[1, 0]).unwrap();
    assert_eq!(sent(&mut request), [5, 1, 0, 1, 192, 0, 2, 7, 0x23, 0x29]);
    request.receive(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    assert!(request.is_connected());
    // And not where it does not.
    let mut request = Request::new(&password(), v4()).unwrap();
    sent(&mut request);
    request.receive(&[5, 0]).unwrap();
    assert_eq!(sent(&mut request)[..2], [5, 1]);
}

#[test]
fn http_asks_by_connect() {
    let mut request = Request::new(&Protocol::Http(None), v6()).unwrap();
    assert_eq!(
        sent(&mut request),
        *b"CONNECT [2001:db8::7]:443 HTTP/1.0\r\n\r\n"
    );
    request
        .receive(b"HTTP/1.1 200 Connection established\r\nProxy-Agent: x\r\n\r\n")
        .unwrap();
    assert!(request.is_connected());
    let named = Protocol::Http(Some(Secret::new("me:secret".to_owned())));
    let mut request = Request::new(&named, v4()).unwrap();
    assert_eq!(
        sent(&mut request),
        *b"CONNECT 192.0.2.7:9001 HTTP/1.1\r\nHost: 192.0.2.7:9001\r\n\
           Proxy-Authorization: Basic bWU6c2VjcmV0\r\n\r\n"
    );
}

#[test]
fn what_a_proxy_refuses_is_repeated() {
    for (protocol, answers, words) in [
        (
            Protocol::Socks4(None),
            vec![&b"\0\x5b"[..]],
            "refused: request rejected",
        ),
        (Protocol::Socks5(None), vec![b"\x05\xff"], "no method"),
        (Protocol::Socks5(None), vec![b"\x05\x02"], "no method"),
        (
            Protocol::Socks5(None),
            vec![b"\x05\0", b"\x05\x02"],
            "not allowed by ruleset",
        ),
        (
            Protocol::Socks5(None),
            vec![b"\x05\0", b"\x05\x04"],
            "host unreachable",
        ),
        (
            password(),
            vec![b"\x05\x02", b"\x01\x01"],
            "refused the name",
        ),
        (
            Protocol::Http(None),
            vec![b"HTTP/1.0 407 x\r\n\r\n"],
            "refused the name",
        ),
        (
            Protocol::Http(None),
            vec![b"HTTP/1.0 403 No\x1b way\r\n\r\n"],
            "refused: 403 No way",
        ),
        (
            Protocol::Http(None),
            vec![b"HTTP/1.1 503\r\n\r\n"],
            "refused: 503",
        ),
    ] {
        let error = error(&protocol, &answers).to_string();
        assert!(error.contains(words), "{answers:?}: {error}");
    }
}

#[test]
fn what_is_not_the_protocol_is_refused_at_once() {
    for (protocol, answers) in [
        (Protocol::Socks4(None), vec![&b"\x05"[..]]),
        (Protocol::Socks4(None), vec![b"\0\0"]),
        (Protocol::Socks5(None), vec![b"H"]),
        (Protocol::Socks5(None), vec![b"\x05\x01"]),
        (Protocol::Socks5(None), vec![b"\x05\0", b"\x04"]),
        (Protocol::Socks5(None), vec![b"\x05\0", b"\x05\x09"]),
        (Protocol::Socks5(None), vec![b"\x05\0", b"\x05\0\0\x02"]),
        (password(), vec![b"\x05\x02", b"\x05"]),
        (Protocol::Http(None), vec![b"HTTq"]),
        (Protocol::Http(None), vec![b"HTTP/2 200 x\r\n\r\n"]),
        (Protocol::Http(None), vec![b"HTTP/1.1 20 x\r\n\r\n"]),
        (Protocol::Http(None), vec![b"HTTP/1.1\r\n\r\n"]),
    ] {
        let error = error(&protocol, &answers);
        assert!(
            matches!(error, ProxyError::Malformed { .. }),
            "{answers:?}: {error:?}"
        );
    }
}

#[test]
fn an_answer_has_a_bound_and_nothing_behind_it() {
    let head = b"HTTP/1.1 200 OK\r\nX: ";
    let mut request = Request::new(&Protocol::Http(None), v4()).unwrap();
    request.receive(head).unwrap();
    request
        .receive(&vec![b'x'; MAX_ANSWER - head.len()])
        .unwrap();
    assert_eq!(request.receive(b"x"), Err(ProxyError::TooLong));
    // The target does not speak first: somebody else does.
    let mut request = Request::new(&Protocol::Socks4(None), v4()).unwrap();
    let reply = [0, 90, 0, 0, 0, 0, 0, 0, 22];
    assert_eq!(request.receive(&reply), Err(ProxyError::Unasked));
    request = Request::new(&Protocol::Socks4(None), v4()).unwrap();
    request.receive(&reply[..8]).unwrap();
    assert_eq!(request.receive(&[22]), Err(ProxyError::Unasked));
}

#[test]
fn secrets_are_not_shown_and_have_bounds() {
    let shown = format!("{:?}", Request::new(&password(), v4()).unwrap());
    assert!(!shown.contains("secret"), "{shown}");
    for length in [0, 256] {
        let credentials = Credentials {
            username: Secret::new("x".repeat(length)),
            password: Secret::new("x".to_owned()),
        };
        let protocol = Protocol::Socks5(Some(credentials));
        assert_eq!(Request::new(&protocol, v4()), Err(ProxyError::Credentials));
    }
}

proptest! {
    /// The result does not depend on how an answer is cut into pieces.
    #[test]
    fn pieces_do_not_matter(
        which in 0..4_usize,
        bytes in prop::collection::vec(prop_oneof![
            prop::sample::select(vec![0_u8, 1, 2, 3, 4, 5, 90]), any::<u8>()
        ], 0..40),
        ok in any::<bool>(),
        cuts in prop::collection::vec(1..5_usize, 0..40),
    ) {
        let protocol = [
            Protocol::Socks4(None),
            Protocol::Socks5(None),
            password(),
            Protocol::Http(None),
        ][which].clone();
        let good: &[u8] = match (which, ok) {
            (0, true) => &[0, 90, 0, 0, 0, 0],
            (1, true) => &[5, 0, 5, 0, 0, 1, 0, 0],
            (2, true) => &[5, 2, 1, 0, 5, 0, 0, 3, 4],
            (3, true) => b"HTTP/1.1 200 OK\r\n\r",
            _ => &[],
        };
        let all: Vec<u8> = good.iter().copied().chain(bytes).collect();
        let mut whole = Request::new(&protocol, v4()).unwrap();
        let at_once = whole.receive(&all);
        let mut pieces = Request::new(&protocol, v4()).unwrap();
        let mut rest = &all[..];
        let mut in_pieces = Ok(());
        for cut in cuts.iter().chain(std::iter::repeat(&1)) {
            if rest.is_empty() || in_pieces.is_err() {
                break;
            }
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            in_pieces = pieces.receive(piece);
            rest = after;
        }
        prop_assert_eq!(&at_once, &in_pieces);
        if at_once.is_ok() {
            prop_assert_eq!(whole, pieces);
        }
    }
}

#[test]
fn a_transport_gets_the_arguments_of_a_bridge_in_name_and_password() {
    let sent_for = |args: &str| {
        let credentials = Credentials::of_transport(args);
        let mut request = Request::new(&Protocol::Socks5(Some(credentials)), v4()).unwrap();
        sent(&mut request);
        request.receive(&[5, 2]).unwrap();
        sent(&mut request)
    };
    assert_eq!(sent_for("k=v"), b"\x01\x03k=v\x01\0");
    let args = format!("k={}", "v".repeat(252)) + "\u{e9}=w";
    // The name ends within a character.
    assert_eq!(args.len(), 258);
    let sent = sent_for(&args);
    assert_eq!(sent[..2], [1, 255]);
    assert_eq!(sent[2..257], args.as_bytes()[..255]);
    assert_eq!(sent[257], 3);
    assert_eq!(sent[258..], args.as_bytes()[255..]);
    let longest = "k=".to_owned() + &"v".repeat(508);
    assert_eq!(sent_for(&longest).len(), 3 + 510);
    let user = Protocol::Socks4(Some(Secret::new("k=v\0x".to_owned())));
    let request = Request::new(&user, v4()).unwrap();
    assert_eq!(request.output(), b"\x04\x01\x23\x29\xc0\0\x02\x07k=vx\0");
}

#[test]
fn a_proxy_is_a_uri_for_programs() {
    let addr = "[::1]:1080".parse().unwrap();
    let uri = |protocol| Proxy { addr, protocol }.uri();
    assert_eq!(uri(Protocol::Socks4(None)), "socks4a://[::1]:1080");
    assert_eq!(uri(Protocol::Socks5(None)), "socks5://[::1]:1080");
    assert_eq!(uri(password()), "socks5://me:secret@[::1]:1080");
    let user = Some(Secret::new("me:x".to_owned()));
    assert_eq!(uri(Protocol::Http(user)), "http://me:x@[::1]:1080");
    assert_eq!(uri(Protocol::Http(None)), "http://[::1]:1080");
    assert_eq!(uri(Protocol::Haproxy), "haproxy://[::1]:1080");
}

#[test]
fn haproxy_gets_one_line_and_answers_nothing() {
    for (target, line) in [
        (v4(), "PROXY TCP4 0.0.0.0 192.0.2.7 0 9001\r\n"),
        (v6(), "PROXY TCP6 :: 2001:db8::7 0 443\r\n"),
    ] {
        let mut request = Request::new(&Protocol::Haproxy, target).unwrap();
        assert_eq!(request.output(), line.as_bytes());
        request.sent(line.len() - 1);
        assert!(!request.is_connected(), "a byte of the line is missing");
        request.sent(1);
        assert!(request.is_connected());
    }
    assert_eq!(error(&Protocol::Haproxy, &[b"HTTP"]), ProxyError::Unasked);
}

#[test]
fn a_proxy_for_documents_gets_name_and_password() {
    let proxy = |authenticator: Option<&str>| HttpProxy {
        addr: v4(),
        authenticator: authenticator.map(|text| Secret::new(text.to_owned())),
    };
    assert_eq!(proxy(None).header(), "");
    assert_eq!(
        proxy(Some("me:secret")).header(),
        "Proxy-Authorization: Basic bWU6c2VjcmV0\r\n"
    );
}
