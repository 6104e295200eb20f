//! Applications that follow the protocols, and others.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use weft_cell::stream_msg::{Answer, AnswerKind, Resolved};
use weft_core::origin::{AppOpening, AppProtocol, AppRefusal, AppRequest};

use weft_config::{MemoryHost, load_text};

use super::*;
use weft_log::{SafeLogging, Severity};

use crate::destination;

fn rules(torrc: &str) -> Arc<AppRules> {
    let options = load_text(torrc, &MemoryHost::new()).unwrap_or_else(|report| panic!("{report}"));
    let apps = options.options.apps;
    let destination = Some(destination::DestinationRules::new(&apps));
    Arc::new(AppRules {
        destination,
        ..AppRules::new(7, &apps.ports[0], &apps)
    })
}

fn from() -> Option<SocketAddr> {
    Some("127.0.0.1:4000".parse().unwrap())
}

fn socks(flags: &str) -> Handshake {
    Handshake::new(rules(&format!("SocksPort 9050 {flags}")), from())
}

fn http(more: &str) -> Handshake {
    Handshake::new(
        rules(&format!("SocksPort 0\nHTTPTunnelPort 8118\n{more}")),
        from(),
    )
}

fn connect(host: &str, port: u16) -> AppOpening {
    let host = host.to_owned();
    AppOpening::Connect { host, port }
}

/// Passes bytes until there is a request. Returns the replies before it, the request and the bytes used.
fn run(
    handshake: &mut Handshake,
    mut bytes: &[u8],
) -> Result<(Vec<u8>, AppRequest, usize), Failure> {
    let mut replies = Vec::new();
    loop {
        match handshake.receive(bytes)? {
            Step::NeedMore => panic!("more is wanted after {bytes:?}"),
            Step::Reply { used, reply } => {
                replies.extend(reply);
                bytes = &bytes[used..];
            }
            Step::Request { used, request } => return Ok((replies, request, bytes.len() - used)),
            Step::Answered { reply } => panic!("answered {reply:?}"),
        }
    }
}

fn opening(handshake: &mut Handshake, bytes: &[u8]) -> AppOpening {
    run(handshake, bytes).unwrap().1.opening
}

fn refusal(handshake: &mut Handshake, bytes: &[u8]) -> Vec<u8> {
    run(handshake, bytes).unwrap_err().reply
}

#[test]
fn socks4_and_4a_ask_to_connect_and_to_resolve() {
    let mut plain = socks("");
    let (_, request, left) = run(&mut plain, b"\x04\x01\x00\x50\x08\x08\x04\x04me\0GET").unwrap();
    assert_eq!(request.opening, connect("8.8.4.4", 80));
    assert_eq!(
        (request.protocol, request.listener, left),
        (AppProtocol::Socks4, 7, 3)
    );
    assert_eq!(
        (request.from, request.from_port),
        (Some([127, 0, 0, 1].into()), 4000)
    );
    assert_eq!(request.credentials.unwrap().user, b"me");
    assert_eq!(plain.connected(), [0, 90, 0, 0, 0, 0, 0, 0]);
    assert_eq!(plain.refused(AppRefusal::TtlExpired)[1], 91);
    // An address is a sign of a DNS leak.
    assert!(
        plain.take_notices()[0]
            .event
            .as_ref()
            .unwrap()
            .starts_with("DANGEROUS_SOCKS")
    );

    let mut named = socks("");
    let bytes = b"\x04\xf0\x00\x00\x00\x00\x00\x01\0Example.COM\0";
    let name = "example.com".to_owned();
    assert_eq!(opening(&mut named, bytes), AppOpening::Resolve { name });
    assert!(named.take_notices().is_empty());
    let found = resolved(&["192.0.2.1"]);
    assert_eq!(named.resolved(&found), [0, 90, 0, 0, 192, 0, 2, 1]);
    assert_eq!(named.resolved(&resolved(&["2001:db8::1"]))[1], 91);
}

fn resolved(answers: &[&str]) -> Resolved {
    let kind = |text: &str| match text.parse() {
        Ok(IpAddr::V4(address)) => AnswerKind::Ipv4(address),
        Ok(IpAddr::V6(address)) => AnswerKind::Ipv6(address),
        Err(_) if text == "!" => AnswerKind::Error,
        Err(_) if text == "?" => AnswerKind::TransientError,
        Err(_) => AnswerKind::Hostname(text.as_bytes().to_vec()),
    };
    let answers = answers.iter().map(|text| Answer {
        kind: kind(text),
        ttl: 7,
    });
    Resolved {
        answers: answers.collect(),
    }
}

#[test]
fn socks5_asks_for_names_and_addresses() {
    let mut handshake = socks("");
    let bytes = b"\x05\x01\x00\x05\x01\x00\x03\x0bexample.com\x01\xbbhello";
    let (replies, request, left) = run(&mut handshake, bytes).unwrap();
    assert_eq!(replies, [5, 0]);
    assert_eq!((request.opening, left), (connect("example.com", 443), 5));
    assert_eq!(request.protocol, AppProtocol::Socks5);
    assert_eq!(request.credentials, None);
    assert_eq!(handshake.connected(), [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    // After the request nothing more is parsed.
    assert!(handshake.receive(b"\x05\x01\x00").is_err());

    let v6 =
        b"\x05\x01\x00\x05\x01\x00\x04\x20\x01\x48\x60\x48\x60\0\0\0\0\0\0\0\0\x88\x88\x00\x50";
    assert_eq!(
        opening(&mut socks(""), v6),
        connect("2001:4860:4860::8888", 80)
    );
    let mut ptr = socks("");
    let bytes = b"\x05\x01\x00\x05\xf1\x00\x01\x08\x08\x04\x04\x00\x00";
    let addr = [8, 8, 4, 4].into();
    assert_eq!(opening(&mut ptr, bytes), AppOpening::ResolvePtr { addr });
    assert_eq!(
        ptr.resolved(&resolved(&["dns"])),
        b"\x05\0\0\x03\x03dns\0\0"
    );
    assert_eq!(
        ptr.resolved(&resolved(&["8.8.8.8"]))[1],
        4,
        "an address is no name"
    );
    let named = b"\x05\x01\x00\x05\xf1\x00\x03\x078.8.4.4\x00\x00";
    assert_eq!(
        opening(&mut socks(""), named),
        AppOpening::ResolvePtr { addr }
    );
    let mut bracketed = socks("");
    let bytes = b"\x05\x01\x00\x05\x01\x00\x03\x06[2::2]\x00\x50";
    assert_eq!(opening(&mut bracketed, bytes), connect("2::2", 80));
}

#[test]
fn socks5_answers_have_the_family_that_is_preferred() {
    let resolve = b"\x05\x01\x00\x05\xf0\x00\x03\x01x\x00\x00";
    let both = resolved(&["2606::1", "1.1.1.1", "1.1.1.2"]);
    let reply = |flags: &str, found: &Resolved| {
        let mut handshake = socks(flags);
        run(&mut handshake, resolve).unwrap();
        handshake.resolved(found)
    };
    assert_eq!(reply("", &both), [5, 0, 0, 1, 1, 1, 1, 1, 0, 0]);
    assert_eq!(reply("PreferIPv6", &both)[..6], [5, 0, 0, 4, 0x26, 6]);
    assert_eq!(reply("NoIPv4Traffic", &both)[3], 4);
    assert_eq!(reply("NoIPv6Traffic", &resolved(&["2606::1"]))[1], 4);
    for nothing in [&["!"][..], &["?"], &[], &["name"], &["10.0.0.1"]] {
        assert_eq!(reply("", &resolved(nothing))[1], 4, "{nothing:?}");
    }
    // In private networks, private addresses in answers are kept.
    let torrc = "DirAuthority a 127.0.0.1:2 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n\
                 ClientDNSRejectInternalAddresses 0\nSocksPort 1\n";
    let mut private = Handshake::new(rules(torrc), None);
    run(&mut private, resolve).unwrap();
    assert_eq!(private.resolved(&resolved(&["10.0.0.1"]))[1], 0);
    assert!(private.may_be_connected_to([10, 0, 0, 1].into()));
    assert!(!socks("").may_be_connected_to([10, 0, 0, 1].into()));
    assert!(!private.may_be_connected_to([0, 0, 0, 0].into()));
}

#[test]
fn socks5_credentials_are_asked_for_and_kept() {
    let both = b"\x05\x02\x00\x02";
    let request = b"\x05\x01\x00\x03\x01x\x00\x50";
    let auth = b"\x01\x02me\x02pw";
    let mut handshake = socks("");
    let bytes = [&both[..], auth, request].concat();
    let (replies, asked, _) = run(&mut handshake, &bytes).unwrap();
    assert_eq!(replies, [5, 2, 1, 0]);
    let credentials = asked.credentials.unwrap();
    assert_eq!(
        (&credentials.user[..], &credentials.password[..]),
        (&b"me"[..], &b"pw"[..])
    );
    // Empty credentials are accepted, and so are unrequested ones, once.
    let bytes = [&b"\x05\x01\x00"[..], b"\x01\x00\x00", request].concat();
    let (replies, asked, _) = run(&mut socks(""), &bytes).unwrap();
    assert_eq!(
        (replies, asked.credentials.is_some()),
        (vec![5, 0, 1, 0], true)
    );
    let bytes = [&b"\x05\x01\x00"[..], b"\x01\x00\x00", b"\x01\x00\x00"].concat();
    assert_eq!(refusal(&mut socks(""), &bytes)[1], 1);
    let (replies, _, _) = run(
        &mut socks("PreferSOCKSNoAuth"),
        &[&both[..], request].concat(),
    )
    .unwrap();
    assert_eq!(replies, [5, 0]);
    // Extended parameters (proposal 351): only those for isolation are supported.
    let isolate = [&both[..], b"\x01\x09<torS0X>0\x01x", request].concat();
    assert!(run(&mut socks(""), &isolate).is_ok());
    for other in [&b"\x01\x09<torS0X>1\x01x"[..], b"\x01\x08<torS0X>\x01x"] {
        let bytes = [&both[..], other, request].concat();
        assert_eq!(refusal(&mut socks(""), &bytes)[1], 1);
    }
}

#[test]
fn every_byte_may_come_alone() {
    let bytes = b"\x05\x02\x00\x02\x01\x02me\x02pw\x05\x01\x00\x03\x0bexample.com\x00\x50rest";
    let mut handshake = socks("");
    let (mut buffer, mut replies) = (Vec::new(), Vec::new());
    for (at, byte) in bytes.iter().enumerate() {
        buffer.push(*byte);
        match handshake.receive(&buffer).unwrap() {
            Step::NeedMore => {}
            Step::Reply { used, reply } => {
                replies.extend(reply);
                buffer.drain(..used);
            }
            Step::Request { used, request } => {
                assert_eq!(request.opening, connect("example.com", 80));
                assert_eq!((used, at), (buffer.len(), bytes.len() - 5));
                assert_eq!(replies, [5, 2, 1, 0]);
                return;
            }
            Step::Answered { reply } => panic!("{reply:?}"),
        }
    }
    panic!("no request");
}

#[test]
fn what_socks_cannot_do_is_refused_with_the_right_code() {
    let five = |rest: &[u8]| [b"\x05\x01\x00", rest].concat();
    for (request, code) in [
        (&b"\x05\x02\x00\x01\x01\x01\x01\x01\x00\x50"[..], 7), // BIND
        (b"\x05\x03\x00\x01\x01\x01\x01\x01\x00\x50", 7),      // UDP ASSOCIATE
        (b"\x05\x99\x00\x01\x01\x01\x01\x01\x00\x50", 7),
        (b"\x05\x01\x00\x02\x01", 8),
        (b"\x05\xf1\x00\x03\x03abc\x00\x00", 8),
        (b"\x05\x01\x00\x03\x03a b\x00\x50", 1),
        (b"\x05\x01\x00\x03\x00\x00\x50", 1),
        (b"\x05\x01\x00\x03\x02\xff\xfe\x00\x50", 1),
        (b"\x05\x01\x00\x03\x01x\x00\x00", 1), // port 0
        (b"\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50", 1), // private
        (b"\x05\x01\x00\x03\x09localhost\x00\x50", 1),
        (b"\x05\x01\x00\x03\x07a.local\x00\x50", 1),
        (b"\x05\x01\x00\x03\x06a.exit\x00\x50", 1),
        (b"\x05\xf1\x00\x01\x0a\x00\x00\x01\x00\x00", 4),
        (b"\x04\x01\x00\x50\x01\x01\x01\x01\0", 1),
    ] {
        let reply = refusal(&mut socks(""), &five(request));
        assert_eq!(reply, [5, code, 0, 1, 0, 0, 0, 0, 0, 0], "{request:?}");
    }
    assert_eq!(refusal(&mut socks(""), b"\x05\x02\x01\x03"), [5, 0xff]);
    assert_eq!(refusal(&mut socks(""), b"\x05\x00"), [5, 0xff]);
    for request in [
        &b"\x04\x02\x00\x50\x01\x01\x01\x01\0"[..],
        b"\x04\xf1\x00\x50\x01\x01\x01\x01\0",
        b"\x04\x01\x00\x00\x01\x01\x01\x01\0",
        b"\x04\x01\x00\x50\x00\x00\x00\x00\0",
        b"\x04\x01\x00\x50\x00\x00\x00\x01\0a b\0",
    ] {
        assert_eq!(refusal(&mut socks(""), request), [0, 91, 0, 0, 0, 0, 0, 0]);
    }
    // An application that connects by IPv6 gets an address of that length in the reply.
    let six = Some("[::1]:4000".parse().unwrap());
    let mut handshake = Handshake::new(rules("SocksPort 9050"), six);
    assert_eq!(
        refusal(
            &mut handshake,
            &five(b"\x05\x02\x00\x01\x01\x01\x01\x01\x00\x50")
        )
        .len(),
        22
    );
}

/// The address of an onion service.
const ONION: &str = "duckduckgogg42xjoc72x3sjasowoarfbgcmvfimaftt6twagswzczad";

#[test]
fn onion_services_are_refused_with_a_code_of_their_own() {
    let ask = |command: u8, name: &str| {
        let len = u8::try_from(name.len()).unwrap();
        let head = [5, 1, 0, 5, command, 0, 3, len];
        [&head[..], name.as_bytes(), b"\x00\x50"].concat()
    };
    let good = format!("www.{}.Onion", ONION.to_uppercase());
    let bad_checksum = format!("{}.onion", "a".repeat(56));
    let code =
        |flags: &str, command, name: &str| refusal(&mut socks(flags), &ask(command, name))[1];
    assert_eq!(code("ExtendedErrors", 1, &good), 0xf0);
    assert_eq!(code("", 1, &good), 4);
    for bad in [
        "short.onion",
        &bad_checksum,
        &format!("{}b.onion", &ONION[..55]),
        &format!("1{}.onion", &ONION[1..]),
    ] {
        assert_eq!(code("ExtendedErrors", 1, bad), 0xf6, "{bad}");
        assert_eq!(code("", 1, bad), 1, "{bad}");
        assert_eq!(code("ExtendedErrors", 0xf0, bad), 4, "{bad}");
    }
    assert_eq!(code("ExtendedErrors NoOnionTraffic", 1, &good), 2);
    assert_eq!(code("", 0xf0, &good), 4);
    assert_eq!(code("OnionTrafficOnly", 1, "example.com"), 2);
}

#[test]
fn onion_services_by_http_connect_get_c_tors_status() {
    let status = |name: &str| {
        let request = format!("CONNECT {name}:80 HTTP/1.0\r\n\r\n");
        let reply = refusal(&mut http(""), request.as_bytes());
        String::from_utf8(reply).unwrap()
    };
    let reply = status(&format!("{ONION}.onion"));
    assert!(
        reply.starts_with("HTTP/1.0 503 Service Unavailable (resolve failed)\r\n"),
        "{reply}"
    );
    assert!(
        reply.contains("\r\nTor-Request-Failed: end/RESOLVEFAILED\r\n"),
        "{reply}"
    );
    let reply = status("short.onion");
    assert!(
        reply.starts_with("HTTP/1.0 502 Bad Gateway (tor protocol violation)\r\n"),
        "{reply}"
    );
    assert!(
        reply.contains("\r\nTor-Request-Failed: end/TORPROTOCOL\r\n"),
        "{reply}"
    );
}

#[test]
fn the_line_about_an_onion_service_is_for_each_request_by_each_way() {
    let good = format!("{ONION}.onion");
    for name in [good.as_str(), "short.onion"] {
        let len = u8::try_from(name.len()).unwrap();
        let socks5 = |command| {
            let head = [5, 1, 0, 5, command, 0, 3, len];
            [&head[..], name.as_bytes(), b"\x00\x50"].concat()
        };
        let socks4 = |command| {
            let head = [4, command, 0, 80, 0, 0, 0, 1, 0];
            [&head[..], name.as_bytes(), b"\0"].concat()
        };
        let connect = format!("CONNECT {name}:80 HTTP/1.0\r\n\r\n").into_bytes();
        for (mut handshake, request) in [
            (socks(""), socks5(1)),
            (socks(""), socks5(0xf0)),
            (socks(""), socks4(1)),
            (socks(""), socks4(0xf0)),
            (http(""), connect),
        ] {
            let failure = run(&mut handshake, &request).unwrap_err();
            assert!(failure.notice.always, "{request:?}");
            assert_eq!(failure.notice.line.severity(), Severity::Warn);
        }
        let mut port = dns_port("");
        let rcode = code(&ask(&mut port, &query(&[question(name, 1)])));
        // Per RFC 7686; C tor answers "server failure".
        assert_eq!(rcode, 3);
        let notices = port.take_notices();
        assert!(notices.len() == 1 && notices[0].always, "{notices:?}");
    }
}

#[test]
fn ports_let_out_what_their_flags_allow() {
    let to = |flags: &str, request: &[u8]| {
        let bytes = [b"\x05\x01\x00", request].concat();
        run(&mut socks(flags), &bytes).map_err(|failure| failure.reply[1])
    };
    let name = b"\x05\x01\x00\x03\x01x\x00\x50";
    let four = b"\x05\x01\x00\x01\x08\x08\x08\x08\x00\x50";
    let six = b"\x05\x01\x00\x04\x26\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50";
    assert!(to("", name).is_ok() && to("", four).is_ok() && to("", six).is_ok());
    assert_eq!(to("NoDNSRequest", name).unwrap_err(), 2);
    assert_eq!(to("NoIPv4Traffic", four).unwrap_err(), 2);
    assert_eq!(to("NoIPv6Traffic", six).unwrap_err(), 2);
    assert!(to("NoIPv6Traffic", four).is_ok() && to("NoIPv4Traffic", name).is_ok());
    // SafeSocks: a request for an address means that the application resolved it elsewhere.
    let safe = |request: &[u8]| {
        let mut handshake = Handshake::new(rules("SocksPort 1\nSafeSocks 1"), from());
        run(&mut handshake, request)
            .map(|_| ())
            .map_err(|f| f.reply[1])
    };
    assert_eq!(safe(&[b"\x05\x01\x00", &four[..]].concat()), Err(2));
    assert_eq!(safe(b"\x04\x01\x00\x50\x08\x08\x08\x08\0"), Err(91));
    assert_eq!(safe(&[b"\x05\x01\x00", &name[..]].concat()), Ok(()));
    // Ports of protocols without encryption.
    let plain = |port: u8| {
        let mut handshake = Handshake::new(rules("SocksPort 1\nRejectPlaintextPorts 25"), from());
        let result = run(
            &mut handshake,
            &[b"\x05\x01\x00\x05\x01\x00\x03\x01x\x00", &[port][..]].concat(),
        );
        (result.is_ok(), handshake.take_notices().len())
    };
    assert_eq!(
        (plain(25), plain(23), plain(80)),
        ((false, 0), (true, 1), (true, 0))
    );
}

#[test]
fn the_address_of_an_address_is_asked_for_since_it_may_be_mapped() {
    let bytes = b"\x05\xf0\x00\x01\x08\x08\x08\x08\x00\x00";
    let asked = [b"\x05\x01\x00".as_slice(), bytes].concat();
    let request = opening(&mut socks(""), &asked);
    let name = "8.8.8.8".to_owned();
    assert_eq!(request, AppOpening::Resolve { name });
}

#[test]
fn a_browser_hears_that_this_is_socks() {
    let failure = run(&mut socks(""), b"GET / HTTP/1.1\r\n").unwrap_err();
    let page = String::from_utf8(failure.reply).unwrap();
    assert!(
        page.starts_with("HTTP/1.0 501 Tor is not an HTTP Proxy\r\n"),
        "{page}"
    );
    assert!(
        failure
            .notice
            .line
            .render(SafeLogging::Off)
            .contains("HTTPTunnelPort")
    );
    let garbage = run(&mut socks(""), b"\x16\x03\x01").unwrap_err();
    assert_eq!(garbage.reply, b"");
    assert_eq!(
        garbage.notice.event.unwrap(),
        "SOCKS_UNKNOWN_PROTOCOL DATA=\"\\x16\\x03\\x01\""
    );
    assert_eq!(socks("").receive(b"G").unwrap(), Step::NeedMore);
}

#[test]
fn a_request_without_end_is_given_up() {
    let mut endless = b"\x04\x01\x00\x50\x01\x01\x01\x01".to_vec();
    endless.resize(511, b'a');
    assert_eq!(socks("").receive(&endless).unwrap(), Step::NeedMore);
    endless.push(b'a');
    assert_eq!(refusal(&mut socks(""), &endless)[1], 91);
    let mut head = b"CONNECT a:1 HTTP/1.0\r\n".to_vec();
    while head.len() < MAX_HANDSHAKE {
        assert_eq!(http("").receive(&head).unwrap(), Step::NeedMore);
        head.extend(b"A: ");
        head.resize(head.len() + 900, b'x');
        head.extend(b"\r\n");
    }
    let failure = http("").receive(&head).unwrap_err();
    assert_eq!(
        (failure.reply.len(), failure.notice.line.severity()),
        (0, Severity::Info)
    );
}

#[test]
fn http_connect_opens_tunnels() {
    let mut handshake = http("");
    let bytes = b"CONNECT Example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\
        Proxy-Authorization: Basic dG9yOmE=\r\nX-Tor-Stream-Isolation: one\r\n\r\n\x16\x03";
    let (_, request, left) = run(&mut handshake, bytes).unwrap();
    assert_eq!((request.opening, left), (connect("example.com", 443), 2));
    assert_eq!(request.protocol, AppProtocol::HttpConnect);
    let credentials = request.credentials.unwrap();
    assert_eq!(credentials.user, b"\r\none");
    assert_eq!(credentials.password, b"Basic dG9yOmE=");
    let ok = String::from_utf8(handshake.connected()).unwrap();
    assert!(
        ok.starts_with("HTTP/1.0 200 OK\r\nTor-Capabilities: \r\nVia: tor/1.0 "),
        "{ok}"
    );
    assert!(ok.ends_with("\r\n\r\n"));
    for (why, line) in [
        (AppRefusal::TtlExpired, "HTTP/1.0 504 Gateway Timeout\r\n"),
        (
            AppRefusal::HostUnreachable,
            "HTTP/1.0 503 Service Unavailable (resolve failed)\r\n",
        ),
        (
            AppRefusal::ConnectionRefused,
            "HTTP/1.0 403 Forbidden (connection refused)\r\n",
        ),
        (
            AppRefusal::NotAllowed,
            "HTTP/1.0 403 Forbidden (exit policy)\r\n",
        ),
    ] {
        let text = String::from_utf8(handshake.refused(why)).unwrap();
        assert!(
            text.starts_with(line) && text.ends_with("\r\n\r\n"),
            "{text}"
        );
        assert!(text.contains("Tor-Request-Failed: end/"), "{text}");
    }
    let v6 = b"CONNECT [2606::1]:80 HTTP/1.0\r\n\r\n";
    let (_, request, _) = run(&mut http(""), v6).unwrap();
    assert_eq!(
        (request.opening, request.credentials),
        (connect("2606::1", 80), None)
    );
}

#[test]
fn http_that_opens_no_tunnel_is_answered_only_to_this_machine() {
    let first = |bytes: &[u8]| {
        let reply = match http("").receive(bytes) {
            Ok(Step::Answered { reply }) => reply,
            Err(failure) => failure.reply,
            Ok(step) => panic!("{step:?}"),
        };
        let text = String::from_utf8(reply).unwrap();
        text.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(first(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"), "");
    assert_eq!(
        first(b"OPTIONS * HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
        ""
    );
    assert_eq!(
        first(b"OPTIONS * HTTP/1.1\r\nHost: localhost:8118\r\n\r\n"),
        "HTTP/1.0 200 OK"
    );
    for host in ["127.0.0.1", "127.0.0.1:8118", "[::1]:8118", "LOCALHOST"] {
        let bytes = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(first(bytes.as_bytes()), "HTTP/1.0 405 Method Not Allowed");
    }
    assert_eq!(
        first(b"CONNECT example.com HTTP/1.0\r\n\r\n"),
        "HTTP/1.0 400 Bad Request"
    );
    assert_eq!(
        first(b"CONNECT ::1:80 HTTP/1.0\r\n\r\n"),
        "HTTP/1.0 400 Bad Request"
    );
    let long = format!("CONNECT {}:1 HTTP/1.0\r\n\r\n", "a".repeat(256));
    assert_eq!(first(long.as_bytes()), "HTTP/1.0 414 Request-URI Too Long");
    let rpc = b"CONNECT a:1 HTTP/1.0\r\nTor-RPC-Target: x\r\n\r\n";
    assert_eq!(first(rpc), "HTTP/1.0 501 Not implemented (No RPC Support)");
    let private = b"CONNECT 10.0.0.1:1 HTTP/1.0\r\n\r\n";
    assert_eq!(first(private), "HTTP/1.0 500 Internal Server Error");
    assert_eq!(first(b"\x05\x01\x00"), "");
}

// The DNSPort.

fn dns_port(torrc: &str) -> DnsPort {
    let rules = rules(&format!("SocksPort 0\nDNSPort 53\n{torrc}"));
    DnsPort::new(rules, Duration::from_secs(120))
}

fn question(name: &str, kind: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1]);
    bytes
}

fn query(questions: &[Vec<u8>]) -> Vec<u8> {
    let count = u8::try_from(questions.len()).unwrap();
    let header = [0x12, 0x34, 1, 0, 0, count, 0, 0, 0, 0, 0, 0];
    [&header[..], &questions.concat()].concat()
}

fn ask(port: &mut DnsPort, datagram: &[u8]) -> DnsStep {
    port.query(datagram, from().unwrap(), true, Instant::now())
}

fn asked(port: &mut DnsPort, name: &str, kind: u16) -> (u64, AppOpening) {
    match ask(port, &query(&[question(name, kind)])) {
        DnsStep::Ask { id, request } => {
            assert_eq!((request.protocol, request.listener), (AppProtocol::Dns, 7));
            (id, request.opening)
        }
        step => panic!("{step:?}"),
    }
}

fn code(step: &DnsStep) -> u8 {
    match step {
        DnsStep::Answer(bytes) => {
            assert_eq!((&bytes[..2], bytes[2] & 0x80), (&[0x12, 0x34][..], 0x80));
            bytes[3] & 0xf
        }
        step => panic!("{step:?}"),
    }
}

#[test]
fn dns_queries_are_asked_and_answered() {
    let mut port = dns_port("");
    let (id, opening) = asked(&mut port, "ExAmple.com", 1);
    assert_eq!(
        opening,
        AppOpening::Resolve {
            name: "example.com".to_owned()
        }
    );
    let found = resolved(&["2606::1", "1.1.1.1", "10.0.0.1", "1.1.1.2"]);
    let (to, bytes) = port.answer(id, &found).unwrap();
    assert_eq!(Some(to), from());
    let head = [0x12, 0x34, 0x81, 0x80, 0, 1, 0, 2, 0, 0, 0, 0];
    let record = |last| [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 1, 1, 1, last];
    let expected = [
        &head[..],
        &question("ExAmple.com", 1),
        &record(1),
        &record(2),
    ]
    .concat();
    assert_eq!(bytes, expected);
    assert_eq!((port.answer(id, &found), port.waiting()), (None, 0));

    let (id, _) = asked(&mut port, "example.com", 28);
    let (_, bytes) = port.answer(id, &resolved(&["1.1.1.1", "2606::1"])).unwrap();
    assert_eq!((bytes[7], bytes.len()), (1, 12 + 17 + 12 + 16));
    let (id, opening) = asked(&mut port, "4.4.8.8.in-addr.arpa", 12);
    assert_eq!(
        opening,
        AppOpening::ResolvePtr {
            addr: [8, 8, 4, 4].into()
        }
    );
    let (_, bytes) = port.answer(id, &resolved(&["dns.google"])).unwrap();
    assert!(bytes.ends_with(b"\x00\x0c\x03dns\x06google\x00"));
    // The second question can be answered.
    let two = query(&[question("a.b", 16), question("c.d", 1)]);
    let DnsStep::Ask { id, .. } = ask(&mut port, &two) else {
        panic!()
    };
    let (_, bytes) = port.answer(id, &resolved(&["1.1.1.1"])).unwrap();
    assert_eq!(bytes[12 + 18..][..2], [0xc0, 12 + 9]);
}

#[test]
fn dns_failures_have_their_codes() {
    let mut port = dns_port("");
    let answered = |port: &mut DnsPort, found: &[&str]| {
        let (id, _) = asked(port, "example.com", 1);
        let (_, bytes) = port.answer(id, &resolved(found)).unwrap();
        (bytes[3] & 0xf, bytes[7])
    };
    assert_eq!(answered(&mut port, &["!"]), (3, 0));
    assert_eq!(answered(&mut port, &["?"]), (2, 0));
    assert_eq!(answered(&mut port, &["2606::1"]), (0, 0));
    assert_eq!(answered(&mut port, &["10.0.0.1"]), (2, 0));
    assert_eq!(answered(&mut port, &["!", "1.1.1.1"]), (0, 1));
    let (id, _) = asked(&mut port, "example.com", 1);
    assert_eq!(port.refuse(id, AppRefusal::General).unwrap().1[3] & 0xf, 2);

    assert_eq!(code(&ask(&mut port, &query(&[question("x", 16)]))), 4);
    assert_eq!(code(&ask(&mut port, &query(&[question("a.onion", 1)]))), 3);
    assert_eq!(code(&ask(&mut port, &query(&[question("a b", 1)]))), 2);
    assert_eq!(code(&ask(&mut port, &query(&[question("x.arpa", 12)]))), 2);
    assert_eq!(
        code(&ask(
            &mut port,
            &query(&[question("1.0.0.10.in-addr.arpa", 12)])
        )),
        3
    );
    assert_eq!(code(&ask(&mut port, &query(&[]))), 0);
    assert_eq!(
        code(&ask(&mut port, &query(&[vec![0xc0, 12, 0, 1, 0, 1]]))),
        1
    );
    let mut notify = query(&[question("x", 1)]);
    notify[2] = 0x20;
    assert_eq!(code(&ask(&mut port, &notify)), 4);
    let strangers = port.query(
        &query(&[question("x", 1)]),
        from().unwrap(),
        false,
        Instant::now(),
    );
    assert_eq!(code(&strangers), 5);
    let mut answer = query(&[question("x", 1)]);
    answer[2] = 0x81;
    assert_eq!(ask(&mut port, &answer), DnsStep::Ignore);
    assert_eq!(ask(&mut port, b"short"), DnsStep::Ignore);
}

#[test]
fn dns_queries_are_bounded_in_number_and_time() {
    let mut port = dns_port("");
    let (start, from) = (Instant::now(), from().unwrap());
    let datagram = query(&[question("x", 1)]);
    for _ in 0..1024 {
        assert!(matches!(
            port.query(&datagram, from, true, start),
            DnsStep::Ask { .. }
        ));
    }
    assert_eq!(code(&port.query(&datagram, from, true, start)), 2);
    assert!(port.expire(start + Duration::from_secs(119)).is_empty());
    let late = port.expire(start + Duration::from_secs(120));
    assert_eq!((late.len(), port.waiting()), (1024, 0));
    assert_eq!(late[0].2[3] & 0xf, 2);
}

proptest! {
    #[test]
    fn no_bytes_make_a_handshake_panic_or_take_more_than_there_is(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        first in prop_oneof![Just(4_u8), Just(5), Just(1), Just(b'C'), any::<u8>()],
        http_port in any::<bool>(),
    ) {
        let mut handshake = if http_port { http("") } else { socks("") };
        let all = [&[first][..], &bytes].concat();
        let mut rest = &all[..];
        while let Ok(step) = handshake.receive(rest) {
            match step {
                Step::Reply { used, .. } => {
                    prop_assert!(used > 0);
                    rest = &rest[used..];
                }
                Step::Request { used, .. } => {
                    prop_assert!(used <= rest.len());
                    break;
                }
                Step::NeedMore | Step::Answered { .. } => break,
            }
        }
        let mut port = dns_port("");
        let _ = ask(&mut port, &all);
    }
}

fn natd() -> Handshake {
    Handshake::new(rules("SocksPort 0\nNATDPort 8000\n"), from())
}

#[test]
fn natd_names_the_destination_in_one_line() {
    let mut handshake = natd();
    let (replies, request, left) =
        run(&mut handshake, b"[DEST 255.254.253.252 65535]\nGET").unwrap();
    assert_eq!(request.opening, connect("255.254.253.252", 65535));
    assert_eq!((request.protocol, left), (AppProtocol::Natd, 3));
    assert!(replies.is_empty() && handshake.connected().is_empty());
    assert!(handshake.refused(AppRefusal::General).is_empty());
    assert_eq!(
        opening(&mut natd(), b"[DEST a.example 80\n"),
        connect("a.example", 80)
    );
    let mut slow = natd();
    assert_eq!(slow.receive(b"[DEST 192.0.2.1 8"), Ok(Step::NeedMore));
    assert_eq!(
        opening(&mut slow, b"[DEST 192.0.2.1 80]\n"),
        connect("192.0.2.1", 80)
    );
    for wrong in [
        &b"GET / HTTP/1.0\r\n"[..],
        b"[DEST 192.0.2.1]\n",
        b"[DEST 192.0.2.1 0]\n",
        b"[DEST 192.0.2.1 65536]\n",
        b"[DEST 192.0.2.1 x]\n",
        b"[DEST a b 80]\n",
        b"[DEST  80]\n",
        b"[DEST \xff 80]\n",
        b"\n",
        b"[DEST 255.254.253.252 65535]x\n",
        &[b'x'; 29],
    ] {
        assert_eq!(refusal(&mut natd(), wrong), b"", "{wrong:?}");
    }
    assert_eq!(natd().receive(&[b'x'; 28]), Ok(Step::NeedMore));
}

#[test]
fn a_redirected_connection_asks_for_its_destination_before_it_sends_anything() {
    let torrc = "SocksPort 0\nTransPort 9040\n";
    let redirected = |to: Option<&str>| {
        let to = to.map(|to| to.parse().unwrap());
        Handshake::redirected(rules(torrc), from(), to)
    };
    let mut four = redirected(Some("192.0.2.1:80"));
    let (_, request, left) = run(&mut four, b"GET").unwrap();
    assert_eq!(request.opening, connect("192.0.2.1", 80));
    assert_eq!((request.protocol, left), (AppProtocol::Transparent, 3));
    assert!(four.connected().is_empty());
    assert!(four.refused(AppRefusal::General).is_empty());
    let mut mapped = redirected(Some("[::ffff:192.0.2.1]:80"));
    assert_eq!(opening(&mut mapped, b""), connect("192.0.2.1", 80));
    let mut six = redirected(Some("[2001:db8::1]:443"));
    assert_eq!(opening(&mut six, b""), connect("2001:db8::1", 443));
    assert_eq!(refusal(&mut redirected(None), b""), b"");
}
