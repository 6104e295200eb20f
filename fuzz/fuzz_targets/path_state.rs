//! What path selection reads from torrc and from the state file: an input is text, each line of
//! which is a set of relays, the name of a relay, a `Guard` line, a line of build times, and one of
//! round-trip times. What is read and written must be the same when it is read and written again.

#![no_main]

use std::time::{Duration, SystemTime};

use libfuzzer_sys::fuzz_target;
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use weft_path::{
    BuildTimes, BuildTimesOptions, CbtParams, NodeSet, PathOptions, RelayName, RoundTrips, Selector,
};

fuzz_target!(|text: &str| {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_222_800);
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    for line in text.lines() {
        if let Ok(set) = line.parse::<NodeSet>() {
            assert_eq!(set.to_string().parse(), Ok(set));
        }
        if let Ok(name) = line.parse::<RelayName>() {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
    }

    let written = Selector::new(PathOptions::default(), text.lines(), now).all_state_lines();
    let again = Selector::new(
        PathOptions::default(),
        written.iter().map(String::as_str),
        now,
    );
    assert_eq!(again.all_state_lines(), written);

    let mut times = BuildTimes::new(BuildTimesOptions::default(), CbtParams::default());
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    if times.load(pairs, &mut rng) {
        assert!(times.timeout() >= CbtParams::default().min_timeout);
        assert!(times.close_after() >= times.timeout());
    }

    let mut trips = RoundTrips::new(0.8);
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    if trips.load(pairs) {
        assert!(trips.len() <= 1000);
        assert_eq!(trips.limit().is_some(), trips.len() >= 100);
        trips.note(Duration::from_millis(200));
        let lines = trips.state_lines().expect("a new time");
        let mut again = RoundTrips::new(0.8);
        assert!(again.load(lines.iter().map(|(key, value)| (*key, value.as_str()))));
        assert_eq!(again.len(), trips.len());
    }
});
