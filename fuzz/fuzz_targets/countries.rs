//! Topologies of countries, as GraphML.
//!
//! Input: a file. What is read makes a topology of a host at each of the first countries, or is refused for an edge
//! that is missing; the topology is the same when it is written and read again. An error names a line of the
//! file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_model::links::{Access, Countries, DrawError, Topology};

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let countries = match Countries::parse(&text) {
        Ok(countries) => countries,
        Err(error) => {
            let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
            assert!((1..=lines).contains(&(error.line as usize)), "{error}");
            return;
        }
    };
    // The first has two hosts, so that both layouts are made.
    let first = countries.ids().next();
    let hosts = first.into_iter().chain(countries.ids().take(8));
    let hosts: Vec<_> = (0..)
        .zip(hosts)
        .map(|(number, country)| {
            assert_eq!(countries.find(countries.code(country)), Ok(country));
            let Some([up, down]) = countries.rates(country) else {
                panic!("a country without rates");
            };
            let host = format!("host{number}");
            (Access { host, up, down }, country)
        })
        .collect();
    match countries.topology("fuzz", &hosts) {
        Ok(topology) => {
            let again = Topology::parse("again.toml", &topology.to_string());
            assert_eq!(again, Ok(topology));
        }
        Err(error) => assert!(matches!(error, DrawError::NoPath { .. }), "{error}"),
    }
});
