//! Scenarios of virtual networks.
//!
//! Input: TOML. Whatever it is, it is read or refused with a line of it; what was read has an estimate, and a small one without
//! files is a network or an error, and the same one twice.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_virtual::{Files, Scenario, ScenarioError};

/// Hosts, so that a network is made fast.
const SMALL: u64 = 40;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let scenario = match Scenario::parse("fuzz.toml", text) {
        Ok(scenario) => scenario,
        Err(ScenarioError::Text(error)) => {
            assert!(error.line() <= 1 + text.matches('\n').count());
            return;
        }
        Err(other) => panic!("an error of a file, and none was read: {other}"),
    };
    assert!(!scenario.arms.is_empty() && !scenario.servers.is_empty());
    let files = Files::default();
    let estimate = scenario.estimate(&files);
    assert!(estimate.bytes > 0 && estimate.clients > 0);
    let servers: u64 = scenario
        .servers
        .iter()
        .map(|servers| u64::from(servers.count))
        .sum();
    if estimate.clients + estimate.relays + servers > SMALL {
        return;
    }
    match (
        scenario.setup(&files, 0, 0, 1),
        scenario.setup(&files, 0, 0, 1),
    ) {
        (Ok(setup), Ok(again)) => {
            assert_eq!(setup.seed, again.seed);
            assert_eq!(setup.clients.len() as u64, estimate.clients);
            assert_eq!(setup.relays.len() as u64, estimate.relays);
            assert!(
                setup
                    .relays
                    .iter()
                    .all(|relay| setup.or_addr(relay).is_some())
            );
        }
        (Err(one), Err(other)) => assert_eq!(one.to_string(), other.to_string()),
        _ => panic!("a network once and none once"),
    }
});
