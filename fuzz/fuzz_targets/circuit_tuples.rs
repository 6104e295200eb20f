//! Measured circuits for `weft sim selection`, a CSV file. What is read can be compared, and is the same when it is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_sim::selection::{Limit, Options, compare, tuples};

fuzz_target!(|input: &[u8]| {
    let Ok(circuits) = tuples::read(input) else {
        return;
    };
    assert!(circuits.len() >= 100);
    let options = Options {
        quantile: 0.8,
        limit: Limit::Learnt,
        resamples: 2,
        seed: 1,
        threads: 1,
    };
    if let Ok(report) = compare(&circuits, &options) {
        assert_eq!(report.none.kept, circuits.len());
    }
    // Three decimals are written: a number that they make zero is refused.
    if let Ok(again) = tuples::read(tuples::csv(&circuits).as_bytes()) {
        assert_eq!(again.len(), circuits.len());
    }
});
