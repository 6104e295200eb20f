//! An application at a SocksPort.
//!
//! Input: a byte of flags, then what the application sends. Whether it comes at once or byte by byte,
//! it is answered the same; no more is used than came; and what is not understood within the bound is
//! given up.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use weft_apps::{AppRules, Handshake, MAX_HANDSHAKE, Step};
use weft_apps::{DestinationRules, clean_host};
use weft_config::options::{AppService, StreamFlags};
use weft_core::origin::{AppOpening, AppRefusal, AppRequest};

/// Replies on the way, and the request or how it failed.
type End = (Vec<u8>, Option<(AppRequest, usize)>, Option<Vec<u8>>);

fn run(rules: &Arc<AppRules>, input: &[u8], pieces: bool) -> End {
    let mut handshake = Handshake::new(rules.clone(), None);
    let (mut replies, mut at) = (Vec::new(), 0);
    let mut seen = if pieces { 0 } else { input.len() };
    loop {
        match handshake.receive(&input[at..seen]) {
            Ok(Step::NeedMore) => {
                assert!(seen - at < MAX_HANDSHAKE);
                if seen == input.len() {
                    return (replies, None, None);
                }
                seen += 1;
            }
            Ok(Step::Reply { used, reply }) => {
                assert!(used > 0 && at + used <= seen);
                at += used;
                replies.extend(reply);
            }
            Ok(Step::Request { used, request }) => {
                assert!(used > 0 && at + used <= seen);
                if let AppOpening::Connect { host, port } = &request.opening {
                    assert_eq!(clean_host(host).as_ref(), Some(host));
                    assert!(*port != 0 && host.len() <= 255);
                }
                assert!(!handshake.connected().is_empty());
                assert!(!handshake.refused(AppRefusal::General).is_empty());
                return (replies, Some((request, at + used)), None);
            }
            Ok(Step::Answered { reply }) => {
                assert!(!reply.is_empty());
                return (replies, None, Some(reply));
            }
            Err(failure) => {
                assert!(
                    !failure
                        .notice
                        .line
                        .render(weft_log::SafeLogging::Off)
                        .is_empty()
                );
                return (replies, None, Some(failure.reply));
            }
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((flags, input)) = input.split_first() else {
        return;
    };
    let on = |bit: u8| flags & (1 << bit) != 0;
    let rules = Arc::new(AppRules {
        listener: 1,
        service: AppService::Socks,
        flags: StreamFlags {
            prefer_no_auth: on(0),
            extended_errors: on(1),
            ..StreamFlags::default()
        },
        safe_socks: on(2),
        test_socks: on(3),
        reject_internal_answers: on(4),
        destination: on(5).then(DestinationRules::default),
    });
    let whole = run(&rules, input, false);
    let pieces = run(&rules, input, true);
    assert_eq!((&whole.0, &whole.1), (&pieces.0, &pieces.1));
    assert_eq!(whole.2.is_some(), pieces.2.is_some());
});
