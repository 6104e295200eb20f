//! Consensus documents as the simulator reads them.
//!
//! Input: a document of either flavour.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_sim::links::salsa::{Model, Salsa};
use weft_sim::links::{Chunk, Paths as _};
use weft_sim::network::Network;
use weft_sim::random::generator;
use weft_sim::read::{ReadError, parse};
use weft_sim::write;

fuzz_target!(|input: &[u8]| {
    match parse(input, "input") {
        Ok(network) => sound(&network),
        Err(ReadError::Line { line, what, .. }) => {
            let lines = input.iter().filter(|byte| **byte == b'\n').count();
            assert!((1..=lines + 1).contains(&line) && !what.is_empty());
        }
        Err(error) => panic!("{error}: nothing was read from anywhere"),
    }
});

/// What is read can be written and read again, and drawn from; only relays with weight are drawn.
fn sound(network: &Network) {
    let again = parse(write::consensus(network).as_bytes(), "written").expect("we wrote it");
    assert_eq!(again.relays.len(), network.relays.len());
    for (one, other) in again.relays.iter().zip(&network.relays) {
        assert_eq!(one.fingerprint, other.fingerprint);
        assert_eq!((one.flags, one.bandwidth), (other.flags, other.bandwidth));
        assert_eq!((&one.policy, one.ipv6), (&other.policy, other.ipv6));
    }
    let Ok(salsa) = Salsa::new(network, &Model::default()) else {
        return;
    };
    let mut circuits = [[0; 16]; 3];
    let [guards, middles, exits] = &mut circuits;
    let chunk = Chunk {
        guards,
        middles,
        exits,
    };
    salsa.draw(&mut generator(1, 0, 0), 0, chunk);
    for relay in circuits.as_flattened() {
        assert!(network.relays[*relay as usize].bandwidth > 0);
    }
}
