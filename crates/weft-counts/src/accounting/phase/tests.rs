//! Intervals with and without sleep, restarts, and clocks that are set.

use super::*;
use crate::accounting::calendar::FixedOffset;
use crate::accounting::config::Start;
use proptest::prelude::*;

const UTC: FixedOffset = FixedOffset(0);
/// 2026-11-26 00:00:00.
const DAY_START: i64 = 1_795_651_200;
const DAY: i64 = 86_400;
const MB: u64 = 1 << 20;

fn config(max: u64) -> Config {
    Config {
        max,
        rule: Rule::Max,
        start: Start::Day { hour: 0, minute: 0 },
        rate: 1 << 30,
        avoid_disk_writes: false,
    }
}

/// Phases that the pending actions enter, without log lines.
fn phases(accounting: &mut Accounting) -> Vec<Phase> {
    let mut phases = Vec::new();
    while let Some(action) = accounting.poll() {
        if let Action::Enter(phase) = action {
            phases.push(phase);
        }
    }
    phases
}

fn started(saved: Saved, config: Config, now: i64) -> Accounting {
    let mut accounting = Accounting::new(saved, [7; 20]);
    accounting.set(config, now, &UTC);
    accounting
}

/// Moves this much in each of these seconds.
fn carry(accounting: &mut Accounting, from: i64, seconds: i64, each: u64) {
    for second in 0..seconds {
        accounting.moved(each, each / 2, from + second);
        accounting.tick(from + second, &UTC);
    }
}

#[test]
fn the_days_of_these_tests_begin_at_midnight() {
    assert_eq!(iso_time(DAY_START), "2026-11-26 00:00:00");
}

#[test]
fn without_a_limit_the_relay_is_awake() {
    let mut accounting = started(Saved::default(), config(0), DAY_START);
    assert_eq!(phases(&mut accounting), [Phase::Awake]);
    carry(&mut accounting, DAY_START, 100, 1 << 40);
    assert!(phases(&mut accounting).is_empty());
    assert_eq!(accounting.view().bytes, (0, 0), "nothing is counted");
    assert!(accounting.may_be_directory(1 << 30));
    assert_eq!(accounting.heartbeat(DAY_START, &UTC), None);
}

#[test]
fn an_interval_ends_softly_then_hard_and_the_next_begins_awake() {
    let mut accounting = started(Saved::default(), config(100 * MB), DAY_START + 3600);
    assert_eq!(phases(&mut accounting), [Phase::Awake]);
    let start = DAY_START + 3600;
    carry(&mut accounting, start, 94, MB);
    assert!(phases(&mut accounting).is_empty());
    carry(&mut accounting, start + 94, 1, MB);
    assert_eq!(phases(&mut accounting), [Phase::Soft]);
    assert!(accounting.is_hibernating() && !accounting.is_asleep());
    assert_eq!(accounting.view().left, (5 * MB, 100 * MB - 95 * MB / 2));
    carry(&mut accounting, start + 95, 5, MB);
    assert_eq!(phases(&mut accounting), [Phase::Hard]);
    assert!(accounting.is_asleep());
    accounting.tick(DAY_START + DAY - 1, &UTC);
    assert!(phases(&mut accounting).is_empty());
    accounting.tick(DAY_START + DAY, &UTC);
    assert_eq!(phases(&mut accounting), [Phase::Awake]);
    assert_eq!(accounting.view().bytes, (0, 0));
    let (from, wake, to) = accounting.view().interval;
    assert_eq!(
        (from, wake),
        (DAY_START + DAY, DAY_START + DAY),
        "too short to learn from"
    );
    assert_eq!(to, DAY_START + 2 * DAY);
}

#[test]
fn the_soft_limit_leaves_half_a_gigabyte_and_three_hours_at_most() {
    let soft_at = |max: u64, expected: u64| {
        let saved = Saved {
            interval_start: DAY_START,
            expected,
            ..Saved::default()
        };
        let mut accounting = started(saved, config(max), DAY_START + DAY - 1);
        let mut low = 0;
        let mut high = max;
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            accounting.counts.read = middle;
            match accounting.is_soft_limit_reached() {
                true => high = middle,
                false => low = middle,
            }
        }
        max - high
    };
    assert_eq!(soft_at(1000 * MB, 0), 50 * MB);
    assert_eq!(soft_at(1 << 40, 0), 500 * MB);
    assert_eq!(soft_at(1 << 40, MB), 180 * MB);
    assert_eq!(soft_at(1000 * MB, MB), 50 * MB);
}

#[test]
fn a_relay_that_knows_its_use_sleeps_first_and_always_as_long() {
    // 100 MB in a minute: the limit of 6,000 MB is reached after an hour.
    let saved = Saved {
        interval_start: DAY_START - DAY,
        read: 7200 * MB,
        seconds_active: 4320,
        ..Saved::default()
    };
    let limit = config(6000 * MB);
    let mut accounting = started(saved, limit, DAY_START);
    let (from, wake, to) = accounting.view().interval;
    assert_eq!((from, to), (DAY_START, DAY_START + DAY));
    assert!(wake > from && wake < to - 3600, "{wake}");
    assert_eq!(accounting.saved().expected, 100 * MB);
    assert_eq!(phases(&mut accounting), [Phase::Hard]);
    // A restart, and another identity.
    let again = started(accounting.saved(), limit, DAY_START + 5);
    assert_eq!(again.view().interval.1, wake);
    let mut other = Accounting::new(saved, [8; 20]);
    other.set(limit, DAY_START, &UTC);
    assert_ne!(other.view().interval.1, wake);
    accounting.tick(wake - 1, &UTC);
    assert!(phases(&mut accounting).is_empty());
    accounting.tick(wake, &UTC);
    assert_eq!(phases(&mut accounting), [Phase::Awake]);
    // The moment is C tor's: SHA-1 of the start and the identity, its first four bytes.
    let digest = {
        let mut hash = Sha1::new();
        hash.update("2026-11-26 00:00:00");
        hash.update([7; 20]);
        hash.finalize()
    };
    let drawn = u32::from_le_bytes(digest[..4].try_into().unwrap());
    assert_eq!(wake, DAY_START + i64::from(drawn) % (DAY - 3600));
}

#[test]
fn what_was_reached_softly_counts_until_then() {
    let saved = Saved {
        interval_start: DAY_START - DAY,
        read: 6000 * MB,
        seconds_active: 80_000,
        seconds_to_soft: 3600,
        soft_at: DAY_START - DAY + 40_000,
        bytes_at_soft: 6000 * MB,
        ..Saved::default()
    };
    let accounting = started(saved, config(6000 * MB), DAY_START);
    assert_eq!(accounting.saved().expected, 100 * MB);
    let short = Saved {
        seconds_to_soft: 1799,
        seconds_active: 1799,
        ..saved
    };
    assert_eq!(
        started(short, config(6000 * MB), DAY_START)
            .saved()
            .expected,
        0
    );
    // Never more than the rate allows.
    let slow = Config {
        rate: 1000,
        ..config(6000 * MB)
    };
    assert_eq!(started(saved, slow, DAY_START).saved().expected, 60_000);
    let both = Config {
        rule: Rule::Sum,
        ..slow
    };
    assert_eq!(started(saved, both, DAY_START).saved().expected, 120_000);
}

#[test]
fn each_rule_counts_its_direction() {
    for (rule, hard_after) in [
        (Rule::Max, 10),
        (Rule::In, 10),
        (Rule::Out, 20),
        (Rule::Sum, 7),
    ] {
        let limit = Config {
            rule,
            ..config(10 * MB)
        };
        let mut accounting = started(Saved::default(), limit, DAY_START);
        let mut seconds = 0;
        while !accounting.is_asleep() {
            carry(&mut accounting, DAY_START + seconds, 1, MB);
            seconds += 1;
        }
        assert_eq!(seconds, hard_after, "{rule:?}");
    }
}

#[test]
fn counts_go_on_after_a_restart() {
    let mut first = started(Saved::default(), config(100 * MB), DAY_START);
    carry(&mut first, DAY_START, 60, MB);
    let mut saves = 0;
    while let Some(action) = first.poll() {
        saves += usize::from(action == Action::Save);
    }
    assert!(saves >= 1);
    let mut second = started(first.saved(), config(100 * MB), DAY_START + 100);
    assert_eq!(second.view().bytes.0, 60 * MB);
    carry(&mut second, DAY_START + 100, 35, MB);
    assert_eq!(phases(&mut second), [Phase::Awake, Phase::Soft]);
    // While it sleeps, too.
    carry(&mut second, DAY_START + 200, 5, MB);
    let mut third = started(second.saved(), config(100 * MB), DAY_START + 300);
    assert_eq!(phases(&mut third), [Phase::Hard]);
    let soft = third.saved();
    assert_eq!(soft.bytes_at_soft, 95 * MB, "as when it was reached");
}

#[test]
fn a_clock_that_jumps_over_intervals_begins_the_one_that_it_shows() {
    let mut accounting = started(Saved::default(), config(10 * MB), DAY_START);
    carry(&mut accounting, DAY_START, 10, MB);
    assert_eq!(phases(&mut accounting), [Phase::Awake, Phase::Hard]);
    accounting.tick(DAY_START + 10 * DAY + 7, &UTC);
    assert_eq!(phases(&mut accounting), [Phase::Awake]);
    assert_eq!(accounting.view().interval.0, DAY_START + 10 * DAY);
    // And back: the interval was one of a wrong clock, and must not hold up the relay until it comes.
    carry(&mut accounting, DAY_START + 10 * DAY + 8, 10, MB);
    assert_eq!(phases(&mut accounting), [Phase::Hard]);
    accounting.tick(DAY_START + 60, &UTC);
    assert_eq!(phases(&mut accounting), [Phase::Awake]);
    assert_eq!(accounting.view().interval.0, DAY_START);
    // A few seconds past the edge, no new interval begins.
    let mut accounting = started(Saved::default(), config(10 * MB), DAY_START);
    carry(&mut accounting, DAY_START, 5, MB);
    accounting.tick(DAY_START - 5, &UTC);
    assert_eq!(accounting.view().bytes.0, 5 * MB);
    assert_eq!(accounting.view().interval.0, DAY_START);
}

#[test]
fn a_limit_that_is_raised_or_taken_away_wakes_the_relay() {
    let mut accounting = started(Saved::default(), config(10 * MB), DAY_START);
    carry(&mut accounting, DAY_START, 10, MB);
    phases(&mut accounting);
    accounting.set(config(0), DAY_START + 100, &UTC);
    assert_eq!(phases(&mut accounting), [Phase::Awake]);
    assert!(!accounting.view().enabled);
    accounting.set(config(10 * MB), DAY_START + 101, &UTC);
    assert_eq!(phases(&mut accounting), [Phase::Hard], "it was used up");
}

#[test]
fn an_interval_that_moves_a_little_keeps_its_counts() {
    let mut accounting = started(Saved::default(), config(100 * MB), DAY_START + 12 * 3600);
    carry(&mut accounting, DAY_START + 12 * 3600, 30, MB);
    let later = |hour| Config {
        start: Start::Day { hour, minute: 0 },
        ..config(100 * MB)
    };
    accounting.set(later(5), DAY_START + 13 * 3600, &UTC);
    assert_eq!(accounting.view().bytes.0, 30 * MB);
    assert_eq!(accounting.view().interval.2, DAY_START + DAY + 5 * 3600);
    let mut accounting = started(accounting.saved(), later(13), DAY_START + 13 * 3600);
    assert_eq!(
        accounting.view().bytes.0,
        0,
        "by more than half, a new one begins"
    );
    assert!(std::iter::from_fn(|| accounting.poll()).any(
        |action| matches!(action, Action::Log(line) if line.severity() == weft_log::Severity::Warn)
    ));
}

#[test]
fn disks_are_written_seldom_where_torrc_asks_for_that() {
    let saves = |avoid_disk_writes| {
        let limit = Config {
            avoid_disk_writes,
            ..config(1 << 40)
        };
        let mut accounting = started(Saved::default(), limit, DAY_START);
        carry(&mut accounting, DAY_START, 3600, MB);
        std::iter::from_fn(|| accounting.poll())
            .filter(|action| *action == Action::Save)
            .count()
    };
    assert!((40..=61).contains(&saves(false)), "{}", saves(false));
    assert_eq!(saves(true), 1);
}

#[test]
fn a_relay_that_may_come_to_sleep_is_no_directory() {
    let accounting = started(Saved::default(), config(86_400 * 1000), DAY_START);
    assert!(accounting.may_be_directory(999) && !accounting.may_be_directory(1000));
    let with = |rule| {
        let limit = Config {
            rule,
            ..config(86_400 * 1000)
        };
        started(Saved::default(), limit, DAY_START).may_be_directory(999)
    };
    assert!(with(Rule::In) && with(Rule::Out) && !with(Rule::Sum));
}

#[test]
fn the_heartbeat_has_c_tors_words() {
    let mut accounting = started(Saved::default(), config(5 << 30), DAY_START);
    carry(&mut accounting, DAY_START, 10, 3 * MB);
    assert_eq!(
        accounting.heartbeat(DAY_START + DAY - 7500, &UTC).unwrap(),
        "Heartbeat: Accounting enabled. Sent: 15.00 MB, Received: 30.00 MB, Used: 30.00 MB / 5.00 GB, Rule: max. The \
         current accounting interval ends on 2026-11-27 00:00:00, in 2:05 hours."
    );
    assert_eq!(usage(5 << 10), "5 kB");
}

proptest! {
    #[test]
    fn whatever_the_clock_does_the_limit_holds_and_time_frees_it(
        max in 1u64..(1 << 34),
        steps in proptest::collection::vec((-200_000i64..200_000, 0u64..(1 << 30)), 1..60),
    ) {
        let mut now = DAY_START;
        let mut accounting = started(Saved::default(), config(max), now);
        for (passed, bytes) in steps {
            now += passed;
            if !accounting.is_asleep() {
                accounting.moved(bytes, bytes, now);
            }
            accounting.tick(now, &UTC);
            let view = accounting.view();
            // A relay that has used up its bytes is asleep, in every phase of every interval.
            prop_assert!(view.bytes.0 < max || accounting.is_asleep());
            prop_assert!(view.interval.0 <= view.interval.1 && view.interval.1 <= view.interval.2);
            // And an interval later at the latest it is tried again.
            while accounting.poll().is_some() {}
        }
        now += 3 * DAY;
        accounting.tick(now, &UTC);
        let (start, wake, end) = accounting.view().interval;
        prop_assert!(start <= now && now < end);
        prop_assert_eq!(accounting.is_asleep(), now < wake);
    }
}
