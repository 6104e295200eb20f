//! Vegas' rules one by one, by the numbers of C tor.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::super::*;
use super::{digest, sendme};

/// A circuit whose far end answers every increment after a time that the test sets.
struct Circuit {
    flow: CircuitFlow,
    now: Instant,
    increment: u64,
    sent: u64,
    acknowledged: u64,
}

impl Circuit {
    fn new(params: &CcParams, increment: u8) -> Self {
        let now = Instant::now();
        Circuit {
            flow: CircuitFlow::vegas(params, increment),
            now,
            increment: increment.into(),
            sent: 0,
            acknowledged: 0,
        }
    }

    /// Sends all that there is room for, and has the oldest answered after `rtt`.
    fn round(&mut self, rtt: Duration, blocked: bool) {
        self.fill();
        self.now += rtt;
        self.answer(blocked);
    }

    fn fill(&mut self) {
        while self.flow.room() > 0 {
            self.send();
        }
    }

    fn send(&mut self) {
        self.sent += 1;
        let cell = self.sent;
        self.flow.note_sent(|| digest(cell), self.now);
    }

    fn answer(&mut self, blocked: bool) {
        self.acknowledged += self.increment;
        let sendme = sendme(self.acknowledged);
        self.flow.sendme(&sendme, 1, blocked, self.now).unwrap();
    }
}

const RTT: Duration = Duration::from_millis(100);

#[test]
fn it_begins_with_c_tor_s_window_in_slow_start() {
    let circuit = Circuit::new(&CcParams::default(), 31);
    assert!(circuit.flow.is_vegas() && circuit.flow.in_slow_start());
    assert_eq!((circuit.flow.room(), circuit.flow.window()), (124, 124));
    assert_eq!(circuit.flow.rtt(), None);
}

#[test]
fn slow_start_adds_an_increment_per_sendme_up_to_its_cap_and_less_beyond() {
    let mut circuit = Circuit::new(&CcParams::default(), 31);
    // All are answered at once, so that the time does not rise.
    let mut windows = Vec::new();
    while circuit.flow.window() <= 600 {
        circuit.fill();
        circuit.now += RTT;
        while circuit.sent - circuit.acknowledged >= 31 && circuit.flow.window() <= 600 {
            circuit.answer(false);
            windows.push(circuit.flow.window());
        }
    }
    assert_eq!(windows[..3], [155, 186, 217]);
    // The last step began at or below the cap of 600.
    let last = *windows.last().unwrap();
    assert_eq!(last, 124 + 16 * 31);
    circuit.answer(false);
    // (31 * 600 + 620) / (2 * 620) = 15.
    assert_eq!(circuit.flow.window(), 620 + 15);
    assert!(circuit.flow.in_slow_start());
    let rtt = circuit.flow.rtt().unwrap();
    assert_eq!((rtt.min, rtt.smoothed), (RTT, RTT));
}

#[test]
fn slow_start_ends_at_its_largest_window() {
    let params = CcParams {
        ss_max: 500,
        ..CcParams::default()
    };
    let mut circuit = Circuit::new(&params, 31);
    for _ in 0..40 {
        circuit.fill();
        circuit.now += RTT;
        circuit.answer(false);
        if !circuit.flow.in_slow_start() {
            break;
        }
        // The next answer comes as soon, which keeps the time short.
        circuit.now -= RTT;
    }
    assert_eq!(circuit.flow.window(), 500);
    assert!(!circuit.flow.in_slow_start());
}

#[test]
fn a_queue_of_gamma_ends_slow_start_at_what_the_path_holds_and_gamma() {
    let params = CcParams {
        cwnd_init: 1000,
        ..CcParams::default()
    };
    let mut circuit = Circuit::new(&params, 31);
    circuit.round(RTT, false);
    assert!(circuit.flow.in_slow_start());
    let before = u64::from(circuit.flow.window());
    // (2 * 200 + 1 * 100) / 3 = 166.666 ms smoothed.
    circuit.now += RTT;
    circuit.answer(false);
    assert!(!circuit.flow.in_slow_start());
    let bdp = before * 100_000 / 166_666;
    assert_eq!(u64::from(circuit.flow.window()), bdp + 186);
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut circuit = Circuit::new(
        &CcParams {
            cwnd_init: 2000,
            ..CcParams::default()
        },
        31,
    );
    for _ in 0..50 {
        for _ in 0..31 {
            circuit.send();
        }
        circuit.now += RTT;
        circuit.answer(false);
    }
    assert_eq!(circuit.flow.window(), 2000);
    assert_eq!(circuit.flow.in_flight(), 0);
}

#[test]
fn a_blocked_link_ends_slow_start_and_shrinks_the_window() {
    let mut circuit = Circuit::new(
        &CcParams {
            cwnd_init: 1000,
            ..CcParams::default()
        },
        31,
    );
    circuit.round(RTT, true);
    assert!(!circuit.flow.in_slow_start());
    // The path holds all of the window at the only time seen, and gamma is on top.
    assert_eq!(circuit.flow.window(), 1186);
    // A blocked link shrinks it, once per window's worth...
    circuit.answer(true);
    let rate = |flow: &CircuitFlow| (flow.window() + 480) / 961;
    assert_eq!(rate(&circuit.flow), 1);
    let window = circuit.flow.window();
    circuit.answer(true);
    assert_eq!(circuit.flow.window(), window - 1);
    // ... also when the owner noted that before.
    circuit.flow.set_blocked(true);
    circuit.answer(false);
    assert_eq!(circuit.flow.window(), window - 2);
    circuit.flow.set_blocked(false);
    circuit.answer(false);
    assert!(circuit.flow.window() >= window - 2);
}

#[test]
fn a_clock_that_stands_still_is_no_round_trip_time() {
    let mut circuit = Circuit::new(&CcParams::default(), 31);
    circuit.round(Duration::ZERO, false);
    assert_eq!(circuit.flow.rtt(), None);
    assert_eq!(circuit.flow.window(), 124);
    assert_eq!(circuit.flow.in_flight(), 93);
    // Then only a blocked link gives a signal: the window is left at what the queue leaves.
    circuit.round(Duration::ZERO, true);
    assert_eq!(circuit.flow.rtt(), None);
    assert!(!circuit.flow.in_slow_start());
    circuit.round(RTT, false);
    assert!(circuit.flow.rtt().is_some());
}

#[test]
fn after_slow_start_a_jump_of_the_clock_is_no_round_trip_time() {
    let mut circuit = Circuit::new(&CcParams::default(), 31);
    circuit.round(RTT, true);
    assert!(!circuit.flow.in_slow_start());
    let rtt = circuit.flow.rtt();
    circuit.round(RTT * 6000, false);
    assert_eq!(circuit.flow.rtt(), rtt);
    circuit.fill();
    // Cells that have waited since the jump include it in their time, too.
    while circuit.sent - circuit.acknowledged >= 31 {
        circuit.answer(false);
    }
    circuit.round(RTT, false);
    assert!(circuit.flow.rtt().unwrap().max < RTT * 6000);
}

#[test]
fn at_the_smallest_window_the_shortest_time_is_learnt_anew() {
    let params = CcParams {
        exit: VegasParams {
            alpha: 0,
            beta: 0,
            gamma: 0,
            delta: 0,
            ss_cap: 600,
        },
        ..CcParams::default()
    };
    let mut circuit = Circuit::new(&params, 31);
    for _ in 0..4 {
        circuit.round(RTT, true);
    }
    assert_eq!(circuit.flow.window(), 124);
    let before = circuit.flow.rtt().unwrap();
    circuit.round(RTT * 10, false);
    let after = circuit.flow.rtt().unwrap();
    assert!(after.min > before.min);
    assert_eq!(after.min, after.smoothed);
}

#[test]
fn a_window_is_never_smaller_than_what_one_sendme_is_about() {
    let params = CcParams {
        cwnd_init: 31,
        cwnd_min: 31,
        ..CcParams::default()
    };
    let mut circuit = Circuit::new(&params, 254);
    assert_eq!(circuit.flow.room(), 254);
    for _ in 0..20 {
        circuit.round(RTT, true);
        assert!(circuit.flow.window() >= 254);
    }
}

#[test]
fn a_client_takes_only_increments_next_to_the_consensus() {
    let params = CcParams::default();
    let taken: Vec<u8> = (0..=255)
        .filter(|inc| accepts_sendme_inc(params.sendme_inc, *inc))
        .collect();
    assert_eq!(taken, [30, 31, 32]);
    assert_eq!(params.clone().for_path(PathKind::Onion).vegas().ss_cap, 475);
    assert_eq!(params.for_path(PathKind::Sbws).vegas().alpha, 93);
}

fn any_params() -> impl Strategy<Value = CcParams> {
    let numbers = proptest::collection::vec(
        prop_oneof![0..3u32, 0..2000u32, Just(u32::MAX >> 1), any::<u32>()],
        24,
    );
    (numbers, any::<bool>(), 0..3u8).prop_map(|(numbers, full_per_cwnd, path)| {
        let mut numbers = numbers.into_iter();
        let mut next = || numbers.next().unwrap();
        let thresholds = VegasParams {
            alpha: next(),
            beta: next(),
            gamma: next(),
            delta: next(),
            ss_cap: next(),
        };
        CcParams {
            path: [PathKind::Exit, PathKind::Onion, PathKind::Sbws][usize::from(path)],
            exit: thresholds,
            onion: thresholds,
            sbws: thresholds,
            cwnd_init: next(),
            cwnd_min: next(),
            cwnd_max: next(),
            cwnd_inc: next(),
            cwnd_inc_pct_ss: next(),
            cwnd_inc_rate: next(),
            cwnd_full_gap: next(),
            cwnd_full_minpct: next(),
            cwnd_full_per_cwnd: full_per_cwnd,
            ss_max: next(),
            ewma_cwnd_pct: next(),
            ewma_max: next(),
            ewma_ss: next(),
            rtt_reset_pct: next(),
            ..CcParams::default()
        }
    })
}

proptest! {
    /// Under any parameters and any times the window keeps its bounds, counts right, and never
    /// comes to a standstill.
    #[test]
    fn it_bears_any_parameters_and_times(
        params in any_params(),
        increment in 1..=254u8,
        steps in proptest::collection::vec((0..3u8, any::<u32>(), any::<bool>()), 1..200),
    ) {
        let mut circuit = Circuit::new(&params, increment);
        for (kind, number, blocked) in steps {
            match kind {
                0 => {
                    for _ in 0..u64::from(circuit.flow.room()).min(u64::from(number) % 400) {
                        circuit.send();
                    }
                }
                1 => circuit.now += Duration::from_nanos(u64::from(number) << (number % 16)),
                _ if circuit.sent - circuit.acknowledged >= circuit.increment => {
                    circuit.answer(blocked);
                }
                _ => circuit.flow.set_blocked(blocked),
            }
            let window = circuit.flow.window();
            prop_assert!((u32::from(increment)..=MAX_CWND).contains(&window));
            prop_assert_eq!(
                u64::from(circuit.flow.in_flight()),
                circuit.sent - circuit.acknowledged
            );
            prop_assert_eq!(
                circuit.flow.room(),
                window.saturating_sub(circuit.flow.in_flight())
            );
        }
        while circuit.sent - circuit.acknowledged >= circuit.increment {
            circuit.answer(false);
        }
        // Fewer cells than an increment are unanswered, and the window is larger.
        prop_assert!(circuit.flow.room() > 0);
    }
}
