//! Detection of a network that is down or has changed, by Weft and by C tor: the same events go
//! through [`BuildTimes`] and through [`CTor`], C tor's rules written again (circuitstats.c,
//! `circuit_build_times_network_*`, `circuit_build_times_count_*` and the end of
//! `circuit_build_times_handle_completed_hop`; circuituse.c for circuits that are extremely old). C
//! tor's own test of these rules is `test_circuit_timeout` in src/test/test.c.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::pareto::Pareto;
use super::*;

/// CBT_DEFAULT_RECENT_CIRCUITS and CBT_DEFAULT_MAX_RECENT_TIMEOUT_COUNT.
const RECENT: usize = 20;
const MAX_TIMEOUTS: usize = 18;
/// CBT_DEFAULT_MIN_CIRCUITS_TO_OBSERVE
const MIN_CIRCUITS: usize = 100;
/// CBT_DEFAULT_TIMEOUT_INITIAL_VALUE, milliseconds.
const INITIAL: f64 = 60_000.0;
/// CBT_DEFAULT_TIMEOUT_MIN_VALUE, milliseconds.
const LEAST: f64 = 10.0;

/// `circuit_build_times_t`, as far as these rules need it. Times of day are whole seconds, as `time_t` is.
struct CTor {
    times: VecDeque<Took>,
    timeout_ms: f64,
    close_ms: f64,
    have_computed_timeout: bool,
    /// `liveness`
    network_last_live: u64,
    nonlive_timeouts: u32,
    timeouts_after_firsthop: [bool; RECENT],
    after_firsthop_idx: usize,
}

impl CTor {
    fn new() -> CTor {
        CTor {
            times: VecDeque::new(),
            timeout_ms: INITIAL,
            close_ms: INITIAL,
            have_computed_timeout: false,
            network_last_live: 0,
            nonlive_timeouts: 0,
            timeouts_after_firsthop: [false; RECENT],
            after_firsthop_idx: 0,
        }
    }

    /// `circuit_build_times_network_is_live`
    fn is_live(&mut self, now: u64) {
        self.network_last_live = now;
        self.nonlive_timeouts = 0;
    }

    fn check_live(&self) -> bool {
        self.nonlive_timeouts == 0
    }

    fn after_firsthop(&mut self, timed_out: bool) {
        self.timeouts_after_firsthop[self.after_firsthop_idx] = timed_out;
        self.after_firsthop_idx = (self.after_firsthop_idx + 1) % RECENT;
    }

    /// The end of `circuit_build_times_handle_completed_hop`, of a circuit's third hop.
    fn completed(&mut self, millis: u32, in_time: bool) {
        if f64::from(millis) > 2.0 * self.close_ms + 1_000.0 {
            return;
        }
        if self.check_live() {
            self.add_time(Took::Millis(millis));
            self.set_timeout();
        }
        if in_time {
            self.after_firsthop(false);
        }
    }

    /// `circuit_build_times_count_timeout`
    fn count_timeout(&mut self, did_onehop: bool) -> bool {
        if did_onehop {
            self.after_firsthop(true);
        }
        let timeouts = self.timeouts_after_firsthop.iter();
        if timeouts.filter(|&&timeout| timeout).count() < MAX_TIMEOUTS {
            return false;
        }
        self.begin_anew();
        true
    }

    fn begin_anew(&mut self) {
        self.times.clear();
        self.have_computed_timeout = false;
        self.timeouts_after_firsthop = [false; RECENT];
        self.after_firsthop_idx = 0;
        let most = f64::from(i32::MAX / 2);
        if self.timeout_ms >= INITIAL {
            if self.timeout_ms <= most && self.close_ms <= most {
                self.timeout_ms *= 2.0;
                self.close_ms *= 2.0;
            }
        } else {
            (self.timeout_ms, self.close_ms) = (INITIAL, INITIAL);
        }
    }

    /// `circuit_expire_building`, of a circuit that is only measured, and `circuit_build_times_count_close`
    fn count_close(&mut self, start: u64, now: u64) {
        if (now - start) as f64 * 1_000.0 > 2.0 * self.close_ms + 1_000.0 {
            return;
        }
        if self.network_last_live < start {
            self.nonlive_timeouts += 1;
        }
        if self.check_live() {
            self.add_time(Took::Abandoned);
            // As of 0.4.9.14, by its release notes; when most are is Weft's own choice.
            let abandoned = self.times.iter().filter(|took| **took == Took::Abandoned);
            if self.times.len() >= MIN_CIRCUITS && abandoned.count() > self.times.len() / 2 {
                self.begin_anew();
            } else {
                self.set_timeout();
            }
        }
    }

    fn add_time(&mut self, took: Took) {
        if self.times.len() >= REMEMBERED {
            self.times.pop_front();
        }
        self.times.push_back(took);
    }

    /// `circuit_build_times_set_timeout`; the distribution itself is compared with C tor's in other tests.
    fn set_timeout(&mut self) {
        if self.times.len() < MIN_CIRCUITS {
            return;
        }
        let Some(pareto) = Pareto::estimate(&self.times, 10) else {
            return;
        };
        let millis = self.times.iter().map(|took| match took {
            Took::Millis(millis) => f64::from(*millis),
            Took::Abandoned => 0.0,
        });
        let longest = millis.fold(0.0, f64::max);
        self.timeout_ms = pareto.quantile(0.8).min(longest).max(LEAST);
        self.close_ms = pareto.quantile(0.99).min(2.0 * longest).max(INITIAL);
        self.have_computed_timeout = true;
    }
}

/// Both, and the second.
struct Pair {
    weft: BuildTimes,
    c_tor: CTor,
    now: u64,
    epoch: Instant,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A cell arrives.
    Cell,
    /// A circuit gets its third hop after this number of milliseconds; `true`: it was not given up
    /// before.
    Built(u32, bool),
    /// A circuit is given up, `true`: after its first hop.
    TimedOut(bool),
    /// A circuit that was given up this number of seconds ago, or began then, is not waited for any
    /// longer.
    Closed(u64),
    /// So many seconds pass.
    Pass(u64),
}

impl Pair {
    fn new() -> Pair {
        Pair {
            weft: BuildTimes::new(BuildTimesOptions::default(), CbtParams::default()),
            c_tor: CTor::new(),
            now: 1_000_000,
            epoch: Instant::now(),
        }
    }

    fn instant(&self, second: u64) -> Instant {
        self.epoch + Duration::from_secs(second)
    }

    /// Returns true if both discarded their build times and began again.
    fn happens(&mut self, event: Event) -> bool {
        let mut anew = [false; 2];
        match event {
            Event::Cell => {
                self.weft.note_alive(self.instant(self.now));
                self.c_tor.is_live(self.now);
            }
            Event::Built(millis, in_time) => {
                let took = Duration::from_millis(u64::from(millis));
                self.weft.note_built(took, in_time);
                self.c_tor.completed(millis, in_time);
            }
            Event::TimedOut(first_hop) => {
                anew = [
                    self.weft.note_timeout(first_hop),
                    self.c_tor.count_timeout(first_hop),
                ];
            }
            Event::Closed(age) => {
                let start = self.now - age;
                let (began, now) = (self.instant(start), self.instant(self.now));
                self.weft.note_abandoned(began, now);
                self.c_tor.count_close(start, self.now);
            }
            Event::Pass(seconds) => self.now += seconds,
        }
        assert_eq!(anew[0], anew[1], "{event:?}");
        let (weft, c_tor) = (&self.weft, &self.c_tor);
        assert_eq!(weft.nonlive, c_tor.nonlive_timeouts, "{event:?}");
        assert_eq!(weft.times, c_tor.times, "{event:?}");
        assert_eq!(weft.computed, c_tor.have_computed_timeout, "{event:?}");
        assert!(weft.timeout == c_tor.timeout_ms, "{event:?}");
        assert!(weft.close_after == c_tor.close_ms, "{event:?}");
        let timeouts = |recent: &mut dyn Iterator<Item = &bool>| recent.filter(|&&one| one).count();
        assert_eq!(
            timeouts(&mut weft.recent.iter()),
            timeouts(&mut c_tor.timeouts_after_firsthop.iter()),
            "{event:?}"
        );
        anew[0]
    }

    fn all(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.happens(event);
        }
    }
}

/// The events of src/test/test.c in each of its fifty runs, and its expectations.
#[test]
fn the_network_rules_are_those_of_c_tors_own_test() {
    let mut pair = Pair::new();
    pair.happens(Event::Cell);
    pair.all((0..120_u32).map(|number| Event::Built(400 + number * 37 % 900, true)));
    for run in 0..50_u32 {
        // "circuit_build_times_network_circ_success", twice as many as are recent: the network is the same.
        pair.all((0..2 * RECENT as u32).map(|number| Event::Built(500 + run + number, true)));
        assert!(pair.weft.computed || pair.weft.times.len() < MIN_CIRCUITS);
        assert_eq!(pair.weft.nonlive, 0);
        // A circuit that lived from its beginning to its end without a cell: not live, and not recorded.
        let (remembered, close) = (pair.weft.times.len(), pair.weft.close_after().as_secs());
        pair.all([Event::Pass(close + 2), Event::Closed(close + 1)]);
        assert_eq!((pair.weft.nonlive, pair.weft.times.len()), (1, remembered));
        // Nor are build times recorded until a cell comes.
        pair.happens(Event::Built(700, true));
        assert_eq!(pair.weft.times.len(), remembered);
        pair.happens(Event::Cell);
        assert_eq!(pair.weft.nonlive, 0);
        // CBT_DEFAULT_MAX_RECENT_TIMEOUT_COUNT of them: another network; one fewer: the same one.
        for _ in 1..MAX_TIMEOUTS {
            assert!(!pair.happens(Event::TimedOut(true)));
        }
        assert!(pair.happens(Event::TimedOut(true)));
        assert_eq!(pair.weft.nonlive, 0);
        assert!(!pair.weft.computed && pair.weft.times.is_empty());
        assert!(pair.weft.recent.is_empty());
        // Each time it happens without an estimate the timeout is twice as long, up to a bound.
        assert!(pair.weft.timeout() >= Duration::from_secs(60));
    }
    let most = Duration::from_millis(u64::from(i32::MAX.unsigned_abs()));
    assert!(pair.weft.timeout() <= most && pair.weft.close_after() <= most);
}

/// C tor bug 41420: a timeout that is too short for the network has all circuits given up, those that are measured on, too.
#[test]
fn a_history_of_abandoned_circuits_begins_anew() {
    let mut pair = Pair::new();
    pair.happens(Event::Cell);
    pair.all((0..120_u32).map(|number| Event::Built(400 + number, true)));
    assert!(pair.weft.timeout() < Duration::from_secs(1));
    let abandoned = [Event::Cell, Event::Pass(61), Event::Closed(61)];
    pair.all(abandoned.repeat(120));
    assert!(pair.weft.timeout() < Duration::from_secs(1), "half of them");
    pair.all(abandoned);
    assert!(pair.weft.times.is_empty());
    assert_eq!(pair.weft.timeout(), Duration::from_secs(60));
    // Circuits built from then on are learnt.
    pair.all([Event::Built(20_000, true); MIN_CIRCUITS]);
    assert!(pair.weft.timeout() > Duration::from_secs(10));
}

#[test]
fn a_circuit_that_saw_a_cell_counts_and_one_that_saw_none_does_not() {
    let mut pair = Pair::new();
    // Nothing came ever: not live.
    pair.happens(Event::Closed(70));
    assert_eq!((pair.weft.nonlive, pair.weft.times.len()), (1, 0));
    pair.all([Event::Closed(80), Event::Closed(90)]);
    assert_eq!(pair.weft.nonlive, 3);
    // One cell, at the very second in which the circuit began.
    pair.all([Event::Cell, Event::Pass(61), Event::Closed(61)]);
    assert_eq!((pair.weft.nonlive, pair.weft.times.len()), (0, 1));
    // It began a second later.
    pair.happens(Event::Closed(60));
    assert_eq!((pair.weft.nonlive, pair.weft.times.len()), (1, 1));
}

#[test]
fn circuits_that_are_extremely_old_are_no_measure_of_the_network() {
    let mut pair = Pair::new();
    // Twice the time to close, and a second: the machine has slept.
    pair.all([Event::Cell, Event::Pass(1_000), Event::Closed(122)]);
    assert_eq!((pair.weft.nonlive, pair.weft.times.len()), (0, 0));
    pair.happens(Event::Closed(121));
    assert_eq!(pair.weft.nonlive, 1);
}

#[test]
fn what_is_counted_by_the_first_hop_only_ages_by_what_passed_it() {
    let mut pair = Pair::new();
    pair.all([Event::TimedOut(true); MAX_TIMEOUTS - 1]);
    // A guard that does not answer is not a sign of another network.
    for _ in 0..1_000 {
        assert!(!pair.happens(Event::TimedOut(false)));
    }
    // Circuits that were given up and got their third hop later do not count as successes.
    pair.all([Event::Built(900, false); 40]);
    assert!(pair.happens(Event::TimedOut(true)));
    // Circuits that got their first hop in time are, and push timeouts out of the recent ones.
    pair.all([Event::TimedOut(true); MAX_TIMEOUTS - 1]);
    pair.all([Event::Built(900, true); RECENT]);
    for _ in 1..MAX_TIMEOUTS {
        assert!(!pair.happens(Event::TimedOut(true)));
    }
}

/// C tor frees its list when learning is disabled (`circuit_build_times_free_timeouts`), and begins with an empty one.
#[test]
fn timeouts_from_before_learning_was_off_do_not_count() {
    let mut times = BuildTimes::new(BuildTimesOptions::default(), CbtParams::default());
    for _ in 1..MAX_TIMEOUTS {
        assert!(!times.note_timeout(true));
    }
    let off = CbtParams {
        disabled: true,
        ..CbtParams::default()
    };
    times.update(BuildTimesOptions::default(), off);
    times.update(BuildTimesOptions::default(), CbtParams::default());
    assert!(!times.note_timeout(true));
}

/// `circuit_build_times_get_initial_timeout`: the consensus has no say in a timeout that is fixed.
#[test]
fn a_timeout_of_torrc_has_the_consensus_least_only_where_it_is_learnt() {
    let params = CbtParams {
        min_timeout: Duration::from_secs(30),
        ..CbtParams::default()
    };
    for (learn, seconds) in [(false, 7), (true, 30)] {
        let set = BuildTimesOptions {
            learn,
            timeout: Some(Duration::from_secs(7)),
            ..BuildTimesOptions::default()
        };
        let times = BuildTimes::new(set, params.clone());
        assert_eq!(times.timeout(), Duration::from_secs(seconds), "{learn}");
    }
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => Just(Event::Cell),
        8 => (1_u32..3_000, any::<bool>()).prop_map(|(millis, in_time)| Event::Built(millis, in_time)),
        1 => (1_u32..400_000, any::<bool>()).prop_map(|(millis, in_time)| Event::Built(millis, in_time)),
        3 => any::<bool>().prop_map(Event::TimedOut),
        2 => (0_u64..400).prop_map(Event::Closed),
        3 => (0_u64..100).prop_map(Event::Pass),
    ]
}

proptest! {
    #[test]
    fn any_events_have_c_tors_outcomes(events in prop::collection::vec(any_event(), 0..600)) {
        Pair::new().all(events);
    }
}
