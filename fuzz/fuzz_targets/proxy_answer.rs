//! A proxy's answers to a request for a connection.
//!
//! Input: a byte that chooses the protocol, and what the proxy sends. Nothing is asked for beyond the
//! protocol's messages, what is kept has a bound, and how the bytes are cut changes nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_proxy::{Credentials, MAX_ANSWER, Protocol, ProxyError, Request, Secret};

/// Gives the bytes in pieces of this length; everything that was sent, and how it ended.
fn receive(protocol: &Protocol, input: &[u8], piece: usize) -> (Vec<u8>, Result<bool, ProxyError>) {
    let target = "192.0.2.7:9001".parse().unwrap();
    let mut request = Request::new(protocol, target).unwrap();
    let mut sent = Vec::new();
    for piece in input.chunks(piece.max(1)) {
        sent.extend_from_slice(request.output());
        request.sent(request.output().len());
        let connected = request.is_connected();
        if let Err(error) = request.receive(piece) {
            return (sent, Err(error));
        }
        assert!(!connected, "bytes were taken from the relay");
    }
    sent.extend_from_slice(request.output());
    request.sent(request.output().len());
    (sent, Ok(request.is_connected()))
}

fuzz_target!(|input: &[u8]| {
    let Some((which, answer)) = input.split_first() else {
        return;
    };
    let secret = |text: &str| Secret::new(text.to_owned());
    let protocol = match which % 6 {
        0 => Protocol::Socks4(None),
        1 => Protocol::Socks5(None),
        2 => Protocol::Socks5(Some(Credentials {
            username: secret("me"),
            password: secret("secret"),
        })),
        3 => Protocol::Http(None),
        4 => Protocol::Haproxy,
        _ => Protocol::Http(Some(secret("me:secret"))),
    };
    let (sent, whole) = receive(&protocol, answer, answer.len());
    assert!(sent.len() < 200);
    if whole == Ok(false) {
        assert!(answer.len() <= MAX_ANSWER);
    }
    let (sent_in_pieces, in_pieces) = receive(&protocol, answer, 1);
    assert_eq!(whole, in_pieces);
    if whole.is_ok() {
        assert_eq!(sent, sent_in_pieces);
    }
});
