//! A connection at a NATDPort.
//!
//! Input: what natd sends, then the application. What is decided of its beginning is not changed by what follows, the line has a
//! bound, and there is never a reply.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use weft_apps::{AppRules, DestinationRules, Failure, Handshake, Step, clean_host};
use weft_config::options::{AppService, StreamFlags};
use weft_core::origin::{AppOpening, AppRefusal};

fn receive(input: &[u8]) -> Result<Step, Failure> {
    let rules = AppRules {
        listener: 1,
        service: AppService::Natd,
        flags: StreamFlags::default(),
        safe_socks: false,
        test_socks: false,
        reject_internal_answers: true,
        destination: Some(DestinationRules::default()),
    };
    let mut handshake = Handshake::new(Arc::new(rules), None);
    let step = handshake.receive(input);
    assert!(handshake.connected().is_empty());
    assert!(handshake.refused(AppRefusal::General).is_empty());
    step
}

fuzz_target!(|input: &[u8]| {
    let whole = receive(input);
    match &whole {
        Ok(Step::NeedMore) => assert!(input.len() < 29),
        Ok(Step::Request { used, request }) => {
            assert!(*used <= 29 && input[..*used].ends_with(b"\n"));
            let AppOpening::Connect { host, port } = &request.opening else {
                panic!("natd connects");
            };
            assert_eq!(clean_host(host).as_ref(), Some(host));
            assert_ne!(*port, 0);
        }
        Ok(other) => panic!("natd has no answer: {other:?}"),
        Err(failure) => assert!(failure.reply.is_empty()),
    }
    let half = receive(&input[..input.len() / 2]);
    if half != Ok(Step::NeedMore) {
        assert_eq!(half, whole);
    }
});
