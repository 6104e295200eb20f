//! Datagrams that come to a DNSPort, and what exits answer.
//!
//! Input: a datagram. Its answer, where it has one, fits in a datagram, is an answer to it, and is
//! never taken for a query.
#![no_main]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use weft_apps::AppRules;
use weft_apps::DestinationRules;
use weft_apps::{DnsPort, DnsStep};
use weft_cell::stream_msg::{Answer, AnswerKind, Resolved, ReverseName, reverse_name};
use weft_config::options::{AppService, StreamFlags};
use weft_core::origin::AppOpening;

fuzz_target!(|input: &[u8]| {
    let rules = AppRules {
        listener: 1,
        service: AppService::Dns,
        flags: StreamFlags::default(),
        safe_socks: false,
        test_socks: false,
        reject_internal_answers: false,
        destination: Some(DestinationRules::default()),
    };
    let mut port = DnsPort::new(Arc::new(rules), Duration::from_secs(1));
    let from = SocketAddr::from(([127, 0, 0, 1], 5353));
    let now = Instant::now();
    let bytes = match port.query(input, from, true, now) {
        DnsStep::Ignore => return,
        DnsStep::Answer(bytes) => bytes,
        DnsStep::Ask { id, request } => {
            if let AppOpening::ResolvePtr { addr } = request.opening {
                let name = reverse_name(addr);
                assert_eq!(ReverseName::parse(name.as_bytes()), ReverseName::Of(addr));
            }
            let kinds = [
                AnswerKind::Ipv4(Ipv4Addr::LOCALHOST),
                AnswerKind::Ipv6(Ipv6Addr::LOCALHOST),
                AnswerKind::Hostname(input.iter().copied().take(255).collect()),
                AnswerKind::Error,
            ];
            let answers = kinds.into_iter().map(|kind| Answer { kind, ttl: 1 });
            let resolved = Resolved {
                answers: answers.collect(),
            };
            let (to, bytes) = port.answer(id, &resolved).expect("it waits");
            assert_eq!(to, from);
            assert!(port.answer(id, &resolved).is_none());
            bytes
        }
    };
    assert!(bytes.len() >= 12 && bytes[..2] == input[..2]);
    assert!(bytes.len() <= 512.max(input.len()));
    assert_eq!(port.query(&bytes, from, true, now), DnsStep::Ignore);
});
