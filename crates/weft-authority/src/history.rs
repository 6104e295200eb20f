//! How steady relays are: for how long they run before they fail, for which part of the time they run, and for how long
//! they are known (C tor rephist.c), with C tor's file `router-stability`.
//!
//! What is long ago counts less: every twelve hours all sums shrink by a twentieth.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::types::Iso8601TimeSp;

/// Relays that are remembered at most.
const MAX_KNOWN: usize = 1 << 14;
/// Below this weight of all runs nothing is known of a relay (`STABILITY_EPSILON`).
const EPSILON: f64 = 0.0001;
/// What old times count after each interval (`STABILITY_ALPHA`).
const ALPHA: f64 = 0.95;
/// That interval, in seconds (`STABILITY_INTERVAL`).
const INTERVAL: i64 = 12 * 3600;
/// For so long relays must have been watched until MTBF counts (`rep_hist_have_measured_enough_stability`).
const ENOUGH: i64 = 4 * 3600;
const YEAR: i64 = 365 * 86_400;

/// The history of all relays. Times are in seconds since 1970; 0 is none.
#[derive(Debug)]
pub(super) struct History {
    relays: BTreeMap<RsaIdentity, Relay>,
    /// Relays that are remembered at most.
    max: usize,
    last_downrated: i64,
    tracked_since: i64,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Relay {
    /// Where it was reached last.
    reached_at: Option<SocketAddr>,
    /// The seconds of all runs that have ended, and the weights of these runs.
    run_length: i64,
    run_weights: f64,
    /// When the run began that it is in.
    run_start: i64,
    down_start: i64,
    /// Of the seconds that it is known, those in which it ran, and all.
    uptime: i64,
    known: i64,
}

impl Default for History {
    fn default() -> Self {
        Self {
            relays: BTreeMap::new(),
            max: MAX_KNOWN,
            last_downrated: 0,
            tracked_since: 0,
        }
    }
}

pub(super) fn unix(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(0))
}

impl Relay {
    fn mtbf(&self, now: i64) -> f64 {
        let (mut total, mut weights) = (self.run_length, self.run_weights);
        if self.run_start != 0 {
            total = total.saturating_add(now - self.run_start);
            weights += 1.0;
        }
        match weights < EPSILON {
            true => 0.0,
            false => total as f64 / weights,
        }
    }

    fn time_known(&self, now: i64) -> i64 {
        match (self.run_start, self.down_start) {
            (0, 0) => self.known,
            (0, since) | (since, _) => self.known.saturating_add(now - since),
        }
    }

    fn fractional_uptime(&self, now: i64) -> f64 {
        let run = match self.run_start {
            0 => 0,
            since => now - since,
        };
        match self.time_known(now) {
            0 => 0.0,
            total => self.uptime.saturating_add(run) as f64 / total as f64,
        }
    }

    fn end_run(&mut self, when: i64) {
        if self.run_start != 0 {
            let length = when - self.run_start;
            self.run_weights += 1.0;
            self.run_start = 0;
            self.run_length = self.run_length.saturating_add(length).max(0);
            self.uptime = self.uptime.saturating_add(length).max(0);
            self.known = self.known.saturating_add(length.max(0));
        }
        if self.down_start == 0 {
            self.down_start = when;
        }
    }

    fn begin_run(&mut self, when: i64) {
        if self.run_start == 0 {
            self.run_start = when;
        }
        if self.down_start != 0 {
            self.known = self.known.saturating_add(when - self.down_start).max(0);
            self.down_start = 0;
        }
    }
}

impl History {
    /// A relay was reached at this address. One that has another address than before counts as down for `penalty`.
    pub(super) fn note_reachable(
        &mut self,
        id: RsaIdentity,
        at: SocketAddr,
        now: SystemTime,
        penalty: Duration,
    ) {
        let when = unix(now);
        let relay = self.relay(id, when);
        let moved = relay.reached_at.is_some_and(|before| before != at);
        if moved && relay.down_start == 0 && relay.run_start != 0 {
            relay.end_run(when - i64::try_from(penalty.as_secs()).unwrap_or(0));
        }
        relay.begin_run(when);
        relay.reached_at = Some(at);
    }

    /// A relay has not run since `when`.
    pub(super) fn note_unreachable(&mut self, id: RsaIdentity, when: SystemTime) {
        let when = unix(when);
        self.relay(id, when).end_run(when);
    }

    /// A relay is not known any more: nobody watches whether it runs.
    pub(super) fn note_forgotten(&mut self, id: RsaIdentity, now: SystemTime) {
        let Some(relay) = self.relays.get_mut(&id) else {
            return;
        };
        relay.end_run(unix(now));
        if relay.run_weights < EPSILON {
            self.relays.remove(&id);
        }
    }

    /// The history of a relay; of a new one nothing is known.
    fn relay(&mut self, id: RsaIdentity, now: i64) -> &mut Relay {
        if self.tracked_since == 0 {
            self.tracked_since = now;
        }
        if !self.relays.contains_key(&id) && self.relays.len() >= self.max {
            self.make_room();
        }
        self.relays.entry(id).or_default()
    }

    /// Forgets the eighth of all relays that has run for the shortest time, of those that do not run as long as there are
    /// any: made-up relays run for a moment only.
    fn make_room(&mut self) {
        let rank = |(id, relay): (&RsaIdentity, &Relay)| (relay.run_start != 0, relay.uptime, *id);
        let mut ranks: Vec<(bool, i64, RsaIdentity)> = self.relays.iter().map(rank).collect();
        ranks.sort_unstable();
        for (.., id) in ranks.iter().take(self.max.div_ceil(8)) {
            self.relays.remove(id);
        }
    }

    /// Forgets relays that have not run for about half a year (`rep_history_clean`).
    fn clean(&mut self) {
        self.relays
            .retain(|_, relay| relay.run_weights >= EPSILON || relay.run_start != 0);
    }

    /// The runs of relays that are not `known` have ended: nobody watches them. They are those of a file of an earlier
    /// run that did not come back.
    fn end_unwatched(&mut self, now: i64, known: impl Fn(&RsaIdentity) -> bool) {
        for (id, relay) in &mut self.relays {
            if relay.run_start != 0 && !known(id) {
                relay.end_run(now);
            }
        }
    }

    /// Lets old times count less, where it is time (`rep_hist_downrate_old_runs`).
    pub(super) fn downrate(&mut self, now: SystemTime, known: impl Fn(&RsaIdentity) -> bool) {
        let now = unix(now);
        if self.last_downrated == 0 || self.last_downrated > now {
            self.last_downrated = now;
        }
        let intervals = (now - self.last_downrated) / INTERVAL;
        if intervals == 0 {
            return;
        }
        self.last_downrated += intervals * INTERVAL;
        self.end_unwatched(now, known);
        let alpha = ALPHA.powf(intervals as f64);
        #[allow(clippy::cast_possible_truncation)] // it only shrinks
        let shrink = |seconds: &mut i64| *seconds = (*seconds as f64 * alpha) as i64;
        for relay in self.relays.values_mut() {
            shrink(&mut relay.run_length);
            shrink(&mut relay.uptime);
            shrink(&mut relay.known);
            relay.run_weights *= alpha;
        }
        self.clean();
    }

    /// Mean time between failures, in seconds.
    pub(super) fn mtbf(&self, id: &RsaIdentity, now: SystemTime) -> f64 {
        self.relays.get(id).map_or(0.0, |one| one.mtbf(unix(now)))
    }

    /// For how many seconds a relay is known, weighted.
    pub(super) fn time_known(&self, id: &RsaIdentity, now: SystemTime) -> i64 {
        let relay = self.relays.get(id);
        relay.map_or(0, |one| one.time_known(unix(now)))
    }

    /// For which part of the time a relay runs, weighted.
    pub(super) fn fractional_uptime(&self, id: &RsaIdentity, now: SystemTime) -> f64 {
        let relay = self.relays.get(id);
        relay.map_or(0.0, |one| one.fractional_uptime(unix(now)))
    }

    /// For how long a relay has run without a failure that was seen.
    pub(super) fn uptime(&self, id: &RsaIdentity, now: SystemTime) -> Duration {
        let start = self.relays.get(id).map_or(0, |relay| relay.run_start);
        let run = if start == 0 { 0 } else { unix(now) - start };
        Duration::from_secs(u64::try_from(run).unwrap_or(0))
    }

    /// Whether relays have been watched for long enough that MTBF counts.
    pub(super) fn is_enough(&self, now: SystemTime) -> bool {
        self.tracked_since != 0 && self.tracked_since < unix(now) - ENOUGH
    }

    /// The file.
    pub(super) fn write(&self, now: SystemTime) -> String {
        let mut text = format!("format 2\nstored-at {}\n", Iso8601TimeSp::from(now));
        // Writing into a String cannot fail.
        for (keyword, when) in [
            ("tracked-since", self.tracked_since),
            ("last-downrated", self.last_downrated),
        ] {
            if when != 0 {
                let _ = writeln!(text, "{keyword} {}", iso(when));
            }
        }
        text += "data\n";
        let start = |when| match when {
            0 => String::new(),
            when => format!(" S={}", iso(when)),
        };
        for (id, relay) in &self.relays {
            let _ = writeln!(
                text,
                "R {}\n+MTBF {} {:.5}{}\n+WFU {} {}{}",
                hex::encode_upper(id.as_bytes()),
                relay.run_length,
                relay.run_weights,
                start(relay.run_start),
                relay.uptime,
                relay.known,
                start(relay.down_start),
            );
        }
        text + ".\n"
    }

    /// Reads the file of an earlier run. The time in between does not count. Lines that cannot be read are passed over, and
    /// counted.
    ///
    /// # Errors
    /// It is no such file.
    pub(super) fn read(text: &str, now: SystemTime) -> Result<(Self, usize), String> {
        let now = unix(now);
        let mut lines = text.lines();
        if lines.next() != Some("format 2") {
            return Err("it does not begin with \"format 2\"".into());
        }
        let (mut stored, mut history, mut corrupt) = (0, Self::default(), 0);
        for line in lines.by_ref().take_while(|line| *line != "data") {
            let (keyword, when) = line.split_once(' ').unwrap_or((line, ""));
            let time = match keyword {
                "stored-at" => &mut stored,
                "tracked-since" => &mut history.tracked_since,
                "last-downrated" => &mut history.last_downrated,
                _ => continue,
            };
            match parse_time(when) {
                Some(when) => *time = when,
                None => corrupt += 1,
            }
        }
        if stored == 0 {
            return Err("it has no line stored-at with a time".into());
        }
        history.tracked_since = history.tracked_since.min(now);
        history.last_downrated = history.last_downrated.min(now);
        let since = history.tracked_since;
        let mut earliest = now;
        let mut id = None;
        for line in lines.take_while(|line| *line != ".") {
            if let Some(rest) = line.strip_prefix("R ") {
                let hex = rest.split(' ').next().unwrap_or_default();
                let known = Some(hex).filter(|hex| hex.len() == 40 && hex.is_ascii());
                id = known.and_then(RsaIdentity::from_hex);
                corrupt += usize::from(id.is_none());
                continue;
            }
            let Some(id) = id else {
                continue;
            };
            let Some(value) = Value::read(line) else {
                corrupt += 1;
                continue;
            };
            if !history.relays.contains_key(&id) && history.relays.len() >= history.max {
                history.make_room();
            }
            let relay = history.relays.entry(id).or_default();
            let correct = |start| match start {
                0 => 0,
                when => correct(when, now, stored, since),
            };
            match value {
                Value::Mtbf(length, weights, start) => {
                    let start = correct(start);
                    (relay.run_length, relay.run_weights, relay.run_start) =
                        (length, weights, start);
                    if start != 0 {
                        earliest = earliest.min(start.saturating_sub(length));
                    }
                }
                Value::Wfu(uptime, known, start) => {
                    (relay.uptime, relay.known, relay.down_start) = (uptime, known, correct(start));
                }
                Value::Unknown => {}
            }
        }
        // C tor's way out of an insanely early value.
        if history.tracked_since < YEAR {
            history.tracked_since = earliest;
        }
        Ok((history, corrupt))
    }
}

/// What a line of the file has of a relay.
enum Value {
    /// The length of runs, their weights, when the last began.
    Mtbf(i64, f64, i64),
    /// The seconds of runs, all seconds, since when it has been down.
    Wfu(i64, i64, i64),
    Unknown,
}

impl Value {
    /// `None`: it cannot be read.
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (keyword, first, second) = (words.next()?, words.next(), words.next());
        let start = match line.split_once(" S=") {
            None => 0,
            Some((_, when)) => parse_time(when)?,
        };
        let seconds = |word: Option<&str>| word?.parse().ok().filter(|s: &i64| *s >= 0);
        match keyword {
            "+MTBF" => {
                let weights = second?.parse().ok();
                let weights = weights.filter(|one: &f64| one.is_finite() && *one >= 0.0)?;
                Some(Self::Mtbf(seconds(first)?, weights, start))
            }
            "+WFU" => Some(Self::Wfu(seconds(first)?, seconds(second)?, start)),
            _ => Some(Self::Unknown),
        }
    }
}

/// A time of an earlier run, moved by how long nobody watched (`correct_time`).
fn correct(when: i64, now: i64, stored: i64, since: i64) -> i64 {
    if when < since.saturating_sub(YEAR) || when > stored {
        return 0;
    }
    if when < since {
        return since;
    }
    (now - (stored - when)).max(since)
}

fn iso(when: i64) -> Iso8601TimeSp {
    let since = Duration::from_secs(u64::try_from(when).unwrap_or(0));
    Iso8601TimeSp::from(SystemTime::UNIX_EPOCH + since)
}

fn parse_time(text: &str) -> Option<i64> {
    Some(unix(*text.parse::<Iso8601TimeSp>().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{now, secs};
    use proptest::prelude::*;

    const NO_PENALTY: Duration = Duration::ZERO;
    const DAY: u64 = 86_400;

    fn id(byte: u8) -> RsaIdentity {
        [byte; 20].into()
    }

    fn at(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    #[test]
    fn runs_and_downtimes_make_mtbf_and_the_fraction_of_time_that_a_relay_runs() {
        let (mut history, one) = (History::default(), id(1));
        history.note_reachable(one, at(1), now(), NO_PENALTY);
        assert_eq!(history.fractional_uptime(&one, now()), 0.0);
        let later = now() + secs(3000);
        assert_eq!(history.mtbf(&one, later), 3000.0);
        assert_eq!(history.uptime(&one, later), secs(3000));
        assert_eq!(history.fractional_uptime(&one, later), 1.0);
        history.note_unreachable(one, later);
        assert_eq!(history.uptime(&one, later), Duration::ZERO);
        let later = later + secs(1000);
        assert_eq!(history.fractional_uptime(&one, later), 0.75);
        assert_eq!(history.time_known(&one, later), 4000);
        history.note_reachable(one, at(1), later, NO_PENALTY);
        // Two runs: 3,000 seconds and 1,000.
        let later = later + secs(1000);
        assert_eq!(history.mtbf(&one, later), 2000.0);
        assert_eq!(history.fractional_uptime(&one, later), 0.8);
        assert_eq!(history.mtbf(&id(2), later), 0.0);
    }

    #[test]
    fn a_relay_that_moves_counts_as_down_for_a_while() {
        let (mut history, one) = (History::default(), id(1));
        history.note_reachable(one, at(1), now(), NO_PENALTY);
        let later = now() + secs(1000);
        history.note_reachable(one, at(2), later, secs(200));
        assert_eq!(history.fractional_uptime(&one, later), 0.8);
        assert_eq!(history.uptime(&one, later + secs(5)), secs(5));
    }

    #[test]
    fn old_times_count_less_and_relays_that_do_not_come_back_are_forgotten() {
        let (mut history, one) = (History::default(), id(1));
        history.downrate(now(), |_| true);
        history.note_reachable(one, at(1), now(), NO_PENALTY);
        history.note_unreachable(one, now() + secs(10_000));
        history.downrate(now() + secs(DAY / 2 - 1), |_| true);
        assert_eq!(history.relays[&one].run_length, 10_000);
        history.downrate(now() + secs(DAY), |_| true);
        assert_eq!(history.relays[&one].run_length, 9025, "0.95 twice");
        history.downrate(now() + secs(200 * DAY), |_| true);
        assert!(history.relays.is_empty());
    }

    #[test]
    fn mtbf_counts_after_four_hours() {
        let mut history = History::default();
        assert!(!history.is_enough(now()));
        history.note_reachable(id(1), at(1), now(), NO_PENALTY);
        assert!(!history.is_enough(now() + secs(4 * 3600)));
        assert!(history.is_enough(now() + secs(4 * 3600 + 1)));
    }

    #[test]
    fn the_file_keeps_everything_but_the_time_in_between() {
        let mut history = History::default();
        history.downrate(now(), |_| true);
        history.note_reachable(id(1), at(1), now(), NO_PENALTY);
        history.note_reachable(id(2), at(2), now(), NO_PENALTY);
        let stored = now() + secs(1000);
        history.note_unreachable(id(2), stored - secs(500));
        let text = history.write(stored);
        assert!(text.starts_with("format 2\nstored-at 2026-11-21 01:16:40\ntracked-since "));
        let start = "S=2026-11-21 01:00:00";
        let one = format!("R {}\n+MTBF 0 0.00000 {start}\n+WFU 0 0\n", "01".repeat(20));
        assert!(text.contains(&one), "{text}");
        let later = stored + secs(7777);
        let (read, corrupt) = History::read(&text, later).unwrap();
        assert_eq!(corrupt, 0);
        for (id, after) in [(id(1), secs(0)), (id(2), secs(60))] {
            let (then, now) = (stored + after, later + after);
            assert_eq!(read.mtbf(&id, now), history.mtbf(&id, then));
            assert_eq!(read.time_known(&id, now), history.time_known(&id, then));
            assert_eq!(
                read.fractional_uptime(&id, now),
                history.fractional_uptime(&id, then)
            );
        }
    }

    #[test]
    fn where_too_many_are_known_those_that_ran_for_the_shortest_time_are_forgotten() {
        let mut history = History {
            max: 16,
            ..History::default()
        };
        for byte in 0..16 {
            history.note_reachable(id(byte), at(1), now(), NO_PENALTY);
            if byte != 3 {
                history.note_unreachable(id(byte), now() + secs(100 - u64::from(byte)));
            }
        }
        // An eighth gives way at once: what is made up costs little.
        history.note_reachable(id(99), at(1), now(), NO_PENALTY);
        let known = Vec::from_iter(history.relays.keys().map(|id| id.as_bytes()[0]));
        assert_eq!(known, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 99]);
        let text = history.write(now() + secs(100));
        let (read, corrupt) = History::read(&text, now() + secs(100)).unwrap();
        assert_eq!((read.relays.len(), corrupt), (15, 0));
    }

    #[test]
    fn relays_that_nobody_watches_do_not_run() {
        let mut history = History::default();
        history.downrate(now(), |_| true);
        for byte in 1..=3 {
            history.note_reachable(id(byte), at(1), now(), NO_PENALTY);
        }
        history.note_forgotten(id(1), now() + secs(9));
        assert_eq!(history.mtbf(&id(1), now() + secs(DAY)), 9.0);
        // One that was never reached leaves nothing.
        history.note_unreachable(id(4), now());
        history.note_forgotten(id(4), now());
        assert_eq!(history.relays.len(), 3);
        // Of an earlier run's file, those that do not come back.
        let noon = now() + secs(DAY / 2);
        history.downrate(noon, |known| *known == id(2));
        assert_eq!(history.uptime(&id(2), noon), secs(DAY / 2));
        assert_eq!(history.uptime(&id(3), noon), Duration::ZERO);
    }

    #[test]
    fn files_that_are_none_are_refused_with_a_reason() {
        for bad in [
            String::new(),
            "format 1\n".into(),
            "format 2\ndata\n.\n".into(),
            "format 2\nstored-at yesterday\n".into(),
        ] {
            assert!(History::read(&bad, now()).is_err(), "{bad}");
        }
    }

    #[test]
    fn one_torn_line_of_a_file_costs_no_other_relay_its_history() {
        let good = "format 2\nstored-at 2026-11-21 01:16:40\ntracked-since x\ndata\n";
        let (one, other) = ("01".repeat(20), "02".repeat(20));
        for bad in [
            "R 01\n+MTBF 1 1.0\n".to_owned(),
            format!("R {one}\n+MTBF x 0.0\n"),
            format!("R {one}\n+MTBF -1 0.0\n"),
            format!("R {one}\n+MTBF 1 NaN\n"),
            format!("R {one}\n+MTBF 1 1 S=now\n"),
            format!("R {one}\n+WFU 1\n"),
        ] {
            let text = format!("{good}{bad}R {other}\n+MTBF 9 1.0\n+FUTURE\n+WFU 7 9\n.\n");
            let (history, corrupt) = History::read(&text, now()).unwrap();
            assert_eq!(corrupt, 2, "{bad}");
            assert_eq!(history.relays.len(), 1, "{bad}");
            assert_eq!(history.mtbf(&id(2), now()), 9.0);
            assert_eq!(history.time_known(&id(2), now()), 9);
        }
    }

    proptest! {
        #[test]
        fn any_file_is_read_or_refused(text in "(format 2\nstored-at 2026-11-21 01:16:40\n)?(data\n)?\\PC*") {
            if let Ok((history, _)) = History::read(&text, now()) {
                history.write(now());
            }
        }
    }
}
