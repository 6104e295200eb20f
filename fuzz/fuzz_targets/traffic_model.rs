//! Markov models of traffic, as GraphML.
//!
//! Input: a file. What is read can be walked; an error names a line of the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use weft_model::traffic::MarkovModel;

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    match MarkovModel::parse(&text) {
        Ok(model) => {
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let mut walk = model.walk();
            for _ in 0..100 {
                let Some(step) = walk.step(&model, &mut rng) else {
                    break;
                };
                assert!(step.delay.as_secs() <= 600);
            }
            assert!(model.states().any(|name| name == "start"));
        }
        Err(error) => {
            let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
            assert!((1..=lines).contains(&(error.line as usize)), "{error}");
        }
    }
});
