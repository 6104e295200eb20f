//! A round of chaos from a file. What is read has bounds, and is the same when it is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_virtual::chaos::Round;

fuzz_target!(|text: &str| {
    if let Ok(round) = Round::from_json(text) {
        assert!(round.nodes() <= 2_000);
        let again = serde_json::to_string(&round).expect("it was JSON");
        assert_eq!(Round::from_json(&again), Ok(round));
    }
});
