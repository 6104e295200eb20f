//! Accounting: an input is the lines of a state file, an empty line, and one line for each of AccountingMax,
//! AccountingStart and then what happens: seconds that pass by the clock, and bytes that move. Whatever is in the state file and
//! whatever the clock does, a limit that is reached closes the relay, and a new interval opens it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_counts::accounting::{Accounting, Config, FixedOffset, Rule, Saved, Start};

/// 2026-11-26.
const NOW: i64 = 1_795_651_200;

fuzz_target!(|text: &str| {
    let (state, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    let saved = Saved::read(|key| {
        let mut lines = state.lines().filter_map(|line| line.split_once(' '));
        lines.find(|line| line.0 == key).map(|line| line.1)
    });
    let lines = saved.lines();
    let again = Saved::read(|key| lines.iter().find(|line| line.0 == key)?.1.as_deref());
    // Bytes are rounded up once.
    assert_eq!(again.lines(), lines);

    let mut rest = rest.lines();
    let max: u64 = rest
        .next()
        .and_then(|line| line.parse().ok())
        .unwrap_or(1 << 30);
    let start = rest.next().unwrap_or_default();
    let (rule, start) = start.split_once(' ').unwrap_or(("max", start));
    let config = Config {
        max,
        rule: Rule::parse(rule).unwrap_or_default(),
        start: Start::parse(start).unwrap_or_default(),
        rate: 1 << 20,
        avoid_disk_writes: false,
    };
    let zone = FixedOffset(3600);
    let mut now = NOW;
    let mut accounting = Accounting::new(saved, [1; 20]);
    accounting.set(config, now, &zone);
    let mut steps = 0;
    for line in rest.take(100) {
        let (passed, bytes) = line.split_once(' ').unwrap_or((line, ""));
        // A clock may be set anywhere in the years that it knows.
        let passed: i64 = passed.parse().unwrap_or(1);
        now = now.saturating_add(passed).clamp(0, 253_402_300_799);
        if !accounting.is_asleep() {
            accounting.moved(bytes.parse().unwrap_or(0), 0, now);
        }
        accounting.tick(now, &zone);
        while accounting.poll().is_some() {
            steps += 1;
        }
        let view = accounting.view();
        if max > 0 && matches!(config.rule, Rule::Max | Rule::In | Rule::Sum) {
            assert!(view.bytes.0 < max || accounting.is_asleep());
        }
        let _ = accounting.heartbeat(now, &zone);
    }
    // A handful of lines and phases for each step.
    assert!(steps < 2000);
    now = now.saturating_add(62 * 86_400);
    accounting.tick(now, &zone);
    let (start, wake, end) = accounting.view().interval;
    if max > 0 {
        assert!(start <= now && now < end && start <= wake && wake < end);
        assert_eq!(accounting.is_asleep(), now < wake);
    }
});
