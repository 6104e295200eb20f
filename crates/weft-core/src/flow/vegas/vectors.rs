//! C tor's test vectors for its congestion control (test_congestion_control.c), step by step.

use std::time::{Duration, Instant};

use super::super::CcParams;
use super::Vegas;

/// Time before, time now, in slow start; then: the clock is known to stall, the time is none.
type ClockStep = (u64, u64, bool, bool, bool);

const CLOCK: &[ClockStep] = &[
    (0, 1, true, false, false),
    (0, 0, true, true, true),
    (1, 1, true, true, false),
    (1, 4999, false, false, false),
    (4999, 1, false, false, false),
    (5001, 1, false, false, false),
    (5001, 0, false, true, true),
    (5001, 1, false, true, true),
    (5001, 1, true, true, false),
    (0, 5001, false, true, false),
    (1, 5001, true, true, false),
    (1, 1, false, false, false),
    (5001, 1, false, false, false),
    (1, 5001, false, false, true),
    (0, 5001, false, false, false),
    (5001, 1, true, false, false),
    (1, 1, false, false, false),
];

/// When a cell was sent and its SENDME came, the window, in slow start; then the time, smoothed and
/// smallest. All in microseconds.
type RttStep = (u64, u64, u64, bool, u64, u64, u64);

const RTT: &[RttStep] = &[
    (100_000, 200_000, 124, true, 100_000, 100_000, 100_000),
    (200_000, 300_000, 124, true, 100_000, 100_000, 100_000),
    (350_000, 500_000, 124, true, 150_000, 133_333, 100_000),
    (500_000, 550_000, 124, true, 50_000, 77_777, 77_777),
    (600_000, 700_000, 124, true, 100_000, 92_592, 77_777),
    (700_000, 750_000, 124, true, 50_000, 64_197, 64_197),
    (750_000, 875_000, 124, false, 125_000, 104_732, 104_732),
    (875_000, 900_000, 124, false, 25_000, 51_577, 104_732),
    (900_000, 950_000, 200, false, 50_000, 50_525, 50_525),
];

/// When a cell was sent and its SENDME came in microseconds, whether the link is blocked, cells in
/// flight; then smoothed and smallest time, the window, in slow start, full, blocked.
type WindowStep = (u64, u64, bool, u64, u64, u64, u64, bool, bool, bool);

/// Every rule once.
const SLOW_START_AND_BEYOND: &[WindowStep] = &[
    (
        100_000, 200_000, false, 124, 100_000, 100_000, 155, true, false, false,
    ),
    (
        200_000, 300_000, false, 155, 100_000, 100_000, 186, true, true, false,
    ),
    (
        350_000, 500_000, false, 186, 133_333, 100_000, 217, true, true, false,
    ),
    (
        500_000, 550_000, false, 217, 77_777, 77_777, 248, true, true, false,
    ),
    (
        600_000, 700_000, false, 248, 92_592, 77_777, 279, true, true, false,
    ),
    (
        700_000, 750_000, false, 279, 64_197, 64_197, 310, true, false, false,
    ),
    (
        750_000, 875_000, false, 310, 104_732, 64_197, 341, true, true, false,
    ),
    (
        875_000, 900_000, false, 341, 51_577, 51_577, 372, true, true, false,
    ),
    (
        900_000, 950_000, false, 279, 50_525, 50_525, 403, true, true, false,
    ),
    (
        950_000, 1_000_000, false, 279, 50_175, 50_175, 434, true, true, false,
    ),
    (
        1_000_000, 1_050_000, false, 279, 50_058, 50_058, 465, true, true, false,
    ),
    (
        1_050_000, 1_100_000, false, 279, 50_019, 50_019, 496, true, true, false,
    ),
    (
        1_100_000, 1_150_000, false, 279, 50_006, 50_006, 527, true, true, false,
    ),
    (
        1_150_000, 1_200_000, false, 279, 50_002, 50_002, 558, true, true, false,
    ),
    (
        1_200_000, 1_250_000, false, 550, 50_000, 50_000, 589, true, true, false,
    ),
    (
        1_250_000, 1_300_000, false, 550, 50_000, 50_000, 620, true, false, false,
    ),
    (
        1_300_000, 1_350_000, false, 550, 50_000, 50_000, 635, true, true, false,
    ),
    (
        1_350_000, 1_400_000, false, 550, 50_000, 50_000, 650, true, true, false,
    ),
    (
        1_400_000, 1_450_000, false, 150, 50_000, 50_000, 650, true, false, false,
    ),
    (
        1_450_000, 1_500_000, false, 150, 50_000, 50_000, 650, true, false, false,
    ),
    (
        1_500_000, 1_550_000, false, 550, 50_000, 50_000, 664, true, true, false,
    ),
    (
        1_500_000, 1_600_000, false, 550, 83_333, 50_000, 584, false, true, false,
    ),
    (
        1_600_000, 1_650_000, false, 550, 61_111, 50_000, 585, false, true, false,
    ),
    (
        1_650_000, 1_700_000, false, 550, 53_703, 50_000, 586, false, true, false,
    ),
    (
        1_700_000, 1_750_000, false, 100, 51_234, 50_000, 586, false, false, false,
    ),
    (
        1_750_000, 1_900_000, false, 100, 117_078, 50_000, 559, false, false, false,
    ),
    (
        1_900_000, 2_000_000, false, 100, 105_692, 50_000, 558, false, false, false,
    ),
    (
        2_000_000, 2_075_000, false, 500, 85_230, 50_000, 558, false, true, false,
    ),
    (
        2_075_000, 2_125_000, true, 500, 61_743, 50_000, 557, false, true, true,
    ),
    (
        2_125_000, 2_150_000, false, 500, 37_247, 37_247, 558, false, true, false,
    ),
    (
        2_150_000, 2_350_000, false, 500, 145_749, 37_247, 451, false, true, false,
    ),
];

/// Slow start that a blocked link ends.
const BLOCKED: &[WindowStep] = &[
    (
        100_000, 200_000, false, 124, 100_000, 100_000, 155, true, false, false,
    ),
    (
        200_000, 300_000, false, 155, 100_000, 100_000, 186, true, true, false,
    ),
    (
        350_000, 500_000, false, 186, 133_333, 100_000, 217, true, true, false,
    ),
    (
        500_000, 550_000, true, 217, 77_777, 77_777, 403, false, true, true,
    ),
    (
        600_000, 700_000, false, 248, 92_592, 77_777, 404, false, true, false,
    ),
    (
        700_000, 750_000, true, 404, 64_197, 64_197, 403, false, false, true,
    ),
    (
        750_000, 875_000, false, 403, 104_732, 64_197, 404, false, true, false,
    ),
];

/// A real upload.
const UPLOAD_1: &[WindowStep] = &[
    (
        18_258_527, 19_002_938, false, 83, 744_411, 744_411, 155, true, false, false,
    ),
    (
        18_258_580, 19_254_257, false, 52, 911_921, 744_411, 186, true, true, false,
    ),
    (
        20_003_224, 20_645_298, false, 164, 732_023, 732_023, 217, true, true, false,
    ),
    (
        20_003_367, 21_021_444, false, 133, 922_725, 732_023, 248, true, true, false,
    ),
    (
        20_003_845, 21_265_508, false, 102, 1_148_683, 732_023, 279, true, true, false,
    ),
    (
        20_003_975, 21_429_157, false, 71, 1_333_015, 732_023, 310, true, false, false,
    ),
    (
        20_004_309, 21_707_677, false, 40, 1_579_917, 732_023, 310, true, false, false,
    ),
];

/// Another one.
const UPLOAD_2: &[WindowStep] = &[
    (
        358_297_091,
        358_854_163,
        false,
        83,
        557_072,
        557_072,
        155,
        true,
        false,
        false,
    ),
    (
        358_297_649,
        359_123_845,
        false,
        52,
        736_488,
        557_072,
        186,
        true,
        true,
        false,
    ),
    (
        359_492_879,
        359_995_330,
        false,
        186,
        580_463,
        557_072,
        217,
        true,
        true,
        false,
    ),
    (
        359_493_043,
        360_489_243,
        false,
        217,
        857_621,
        557_072,
        248,
        true,
        true,
        false,
    ),
    (
        359_493_232,
        360_489_673,
        false,
        248,
        950_167,
        557_072,
        279,
        true,
        true,
        false,
    ),
    (
        359_493_795,
        360_489_971,
        false,
        279,
        980_839,
        557_072,
        310,
        true,
        false,
        false,
    ),
    (
        359_493_918,
        360_490_248,
        false,
        310,
        991_166,
        557_072,
        341,
        true,
        true,
        false,
    ),
    (
        359_494_029,
        360_716_465,
        false,
        341,
        1_145_346,
        557_072,
        372,
        true,
        true,
        false,
    ),
    (
        359_996_888,
        360_948_867,
        false,
        372,
        1_016_434,
        557_072,
        403,
        true,
        true,
        false,
    ),
    (
        359_996_979,
        360_949_330,
        false,
        403,
        973_712,
        557_072,
        434,
        true,
        true,
        false,
    ),
    (
        360_489_528,
        361_113_615,
        false,
        434,
        740_628,
        557_072,
        465,
        true,
        true,
        false,
    ),
    (
        360_489_656,
        361_281_604,
        false,
        465,
        774_841,
        557_072,
        496,
        true,
        true,
        false,
    ),
    (
        360_489_837,
        361_500_461,
        false,
        496,
        932_029,
        557_072,
        482,
        false,
        true,
        false,
    ),
    (
        360_489_963,
        361_500_631,
        false,
        482,
        984_455,
        557_072,
        482,
        false,
        true,
        false,
    ),
    (
        360_490_117,
        361_842_481,
        false,
        482,
        1_229_727,
        557_072,
        481,
        false,
        true,
        false,
    ),
];

fn vegas() -> Vegas {
    Vegas::new(&CcParams::default(), 31)
}

/// The point in time that is `micros` microseconds after `start`.
fn at(start: Instant, micros: u64) -> Instant {
    start + Duration::from_micros(micros)
}

#[test]
fn the_clock_is_doubted_when_c_tor_doubts_it() {
    let mut vegas = vegas();
    for (step, &(old, new, slow_start, stalled, jumped)) in CLOCK.iter().enumerate() {
        vegas.slow_start = slow_start;
        vegas.rtt = old;
        assert_eq!(vegas.clock_jumped(new), jumped, "step {step}");
        assert_eq!(vegas.clock_stalled, stalled, "step {step}");
    }
}

#[test]
fn round_trip_times_are_c_tor_s() {
    let start = Instant::now();
    let mut vegas = vegas();
    for (step, &(sent, got, cwnd, slow_start, now, smoothed, min)) in RTT.iter().enumerate() {
        vegas.cwnd = cwnd;
        vegas.slow_start = slow_start;
        assert!(vegas.measure(at(start, sent), at(start, got)));
        assert_eq!(got - sent, now);
        assert_eq!((vegas.rtt, vegas.min_rtt), (smoothed, min), "step {step}");
    }
}

#[test]
fn the_window_is_c_tor_s_after_every_sendme() {
    for vector in [SLOW_START_AND_BEYOND, BLOCKED, UPLOAD_1, UPLOAD_2] {
        let start = Instant::now();
        let mut vegas = vegas();
        for (
            step,
            &(sent, got, blocked, in_flight, rtt, min_rtt, cwnd, slow_start, full, is_blocked),
        ) in vector.iter().enumerate()
        {
            vegas.in_flight = in_flight;
            vegas.acknowledged(at(start, sent), blocked, at(start, got));
            if blocked {
                assert_eq!(vegas.next_update, vegas.sendmes_per_update(), "step {step}");
            }
            assert_eq!((vegas.rtt, vegas.min_rtt), (rtt, min_rtt), "step {step}");
            assert_eq!(vegas.cwnd, cwnd, "step {step}");
            assert_eq!(
                (vegas.slow_start, vegas.full, vegas.blocked),
                (slow_start, full, is_blocked),
                "step {step}"
            );
            assert_eq!(vegas.in_flight, in_flight.saturating_sub(31));
        }
    }
}
