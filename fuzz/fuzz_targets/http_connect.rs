//! An application at an HTTPTunnelPort.
//!
//! Input: what the application sends. What is decided of its beginning is not changed by what
//! follows, and a decision comes before the head's bound is passed.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use weft_apps::{AppRules, Failure, Handshake, MAX_HANDSHAKE, Step};
use weft_apps::{DestinationRules, clean_host};
use weft_config::options::{AppService, StreamFlags};
use weft_core::origin::AppOpening;

fn receive(input: &[u8]) -> Result<Step, Failure> {
    let rules = AppRules {
        listener: 1,
        service: AppService::HttpTunnel,
        flags: StreamFlags::default(),
        safe_socks: false,
        test_socks: false,
        reject_internal_answers: true,
        destination: Some(DestinationRules::default()),
    };
    Handshake::new(Arc::new(rules), None).receive(input)
}

fuzz_target!(|input: &[u8]| {
    let whole = receive(input);
    match &whole {
        Ok(Step::NeedMore) => assert!(input.len() < MAX_HANDSHAKE),
        Ok(Step::Reply { .. }) => panic!("HTTP has one answer"),
        Ok(Step::Request { used, request }) => {
            assert!(*used > 0 && *used <= input.len());
            assert!(input[..*used].ends_with(b"\n"));
            let AppOpening::Connect { host, port } = &request.opening else {
                panic!("CONNECT connects");
            };
            assert_eq!(clean_host(host).as_ref(), Some(host));
            assert_ne!(*port, 0);
        }
        Ok(Step::Answered { reply }) => assert!(reply.starts_with(b"HTTP/1.0 200 ")),
        Err(failure) => {
            assert!(failure.reply.is_empty() || failure.reply.starts_with(b"HTTP/1.0 "));
        }
    }
    let half = receive(&input[..input.len() / 2]);
    if half != Ok(Step::NeedMore) {
        assert_eq!(half.is_ok(), whole.is_ok());
    }
});
