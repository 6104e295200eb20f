//! What costs others most for a byte, as the search finds it (docs/chaos.md), and that it costs no more than when it was found.

use std::fs;
use std::path::Path;
use std::time::Instant;

use serde::Deserialize;
use weft_virtual::chaos::{Quantity, Round, Settings, climb, cost};

/// What was found, as `weft-lab chaos --worst` writes it.
#[derive(Deserialize)]
struct Worst {
    quantity: Quantity,
    ratio: f64,
    round: serde_json::Value,
}

#[test]
fn the_worst_that_was_found_costs_no_more_than_then() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/worst");
    let mut seen = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let worst: Worst = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let round = Round::from_json(&worst.round.to_string()).unwrap();
        let now = cost(worst.quantity, &round, Instant::now()).unwrap();
        let (quantity, found) = (worst.quantity, worst.ratio);
        assert!(
            now.ratio <= found * 1.1,
            "{quantity}: {} {} for a KiB, {found} when it was found; see docs/chaos.md",
            now.ratio,
            quantity.unit()
        );
        // Moves that have no effect any more show nothing.
        assert!(
            now.ratio >= found / 4.0,
            "{quantity}: {} of {found}",
            now.ratio
        );
        seen.push(quantity);
    }
    seen.sort_unstable();
    assert_eq!(seen, Quantity::ALL);
}

#[test]
fn one_seed_gives_one_search_and_a_longer_one_finds_no_less() {
    let search = |attempts| {
        let settings = Settings {
            seed: 3,
            attempts,
            budget: 64 << 10,
        };
        climb(Quantity::Steps, settings, Instant::now()).unwrap()
    };
    let (short, long) = (search(6), search(12));
    assert_eq!(short, search(6));
    assert!(long.ratio >= short.ratio && short.ratio > 0.0);
    assert!(long.spent <= 64 << 10);
}
