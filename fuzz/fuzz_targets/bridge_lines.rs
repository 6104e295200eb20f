//! A client's bridges: an input is lines of `Bridge`, and one descriptor behind an empty line. What a transport gets of a line's
//! arguments by SOCKS, taken apart again, is these arguments; what signed nothing is no descriptor.

#![no_main]

use std::time::{Duration, SystemTime};

use libfuzzer_sys::fuzz_target;
use weft_config::options::parse_bridge;
use weft_proxy::{Credentials, Protocol, Request};

/// The arguments of an encoding, as a transport reads it (pt-spec 3.5).
fn decode(encoded: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut chars = encoded.chars();
    while let Some(char) = chars.next() {
        match (char, all.last_mut()) {
            (';', _) => all.push(String::new()),
            ('\\', Some(last)) => last.extend(chars.next()),
            (char, Some(last)) => last.push(char),
            (_, None) => {}
        }
    }
    all
}

fuzz_target!(|text: &str| {
    let (lines, descriptor) = text.split_once("\n\n").unwrap_or((text, ""));
    for line in lines.lines() {
        let Ok(bridge) = parse_bridge(line) else {
            continue;
        };
        let Some(args) = bridge.socks_args() else {
            assert!(bridge.args.is_empty());
            continue;
        };
        assert!(bridge.transport.is_some() && args.len() <= 510);
        assert_eq!(decode(&args), bridge.args);
        let credentials = Credentials::of_transport(&args);
        let socks5 = Protocol::Socks5(Some(credentials));
        let mut request = Request::new(&socks5, bridge.addr).expect("name and password fit");
        request.sent(4);
        request.receive(&[5, 2]).expect("the method was offered");
        let sent = request.output();
        let name = usize::from(sent[1]);
        let password = &sent[2 + name + 1..];
        let carried = [&sent[2..2 + name], password].concat();
        let padding: &[u8] = if args.len() <= 255 { &[0] } else { &[] };
        assert_eq!(carried, [args.as_bytes(), padding].concat());
    }
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_222_800);
    let read = weft_dir::client::parse_bridge_descriptor(descriptor.as_bytes(), now);
    assert!(read.is_err() || descriptor.contains("router-signature"));
});
