//! TOR_VEGAS (proposal 324, 3.3): the congestion window of one end of a circuit.
//!
//! The time from a cell to its SENDME shows how much of the window waits in queues along the path:
//! the window less what the path holds at the smallest round-trip time seen. A short queue lets
//! the window grow, a long one makes it shrink. The arithmetic is C tor's (`congestion_control_*`),
//! in whole cells and microseconds, so that both behave alike on one path.

use std::time::{Duration, Instant};

use super::params::{CcParams, MAX_CWND, VegasParams};

/// Factor by which a round-trip time must exceed, or fall below, the usual one to be ignored: it
/// comes from a clock that jumped, or a far end that slept.
const JUMP: u64 = 5000;

/// Cells that count as waiting for the link when it is blocked and no time was ever measured: what
/// cellq_high is by default.
const BLOCKED_QUEUE: u64 = 256;

/// Round-trip times of a circuit, from a cell to its SENDME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtt {
    /// The smallest smoothed one.
    pub min: Duration,
    /// The present smoothed one.
    pub(crate) smoothed: Duration,
    /// The longest.
    pub max: Duration,
}

/// Parameters of [`CcParams`] that a circuit keeps from its beginning to its end.
#[derive(Clone, Copy, Debug)]
struct Rules {
    thresholds: VegasParams,
    sendme_inc: u64,
    cwnd_min: u64,
    cwnd_max: u64,
    cwnd_inc: u64,
    cwnd_inc_pct_ss: u64,
    cwnd_inc_rate: u64,
    full_gap: u64,
    full_minpct: u64,
    full_per_cwnd: bool,
    ss_max: u64,
    ewma_cwnd_pct: u64,
    ewma_max: u64,
    ewma_ss: u64,
    rtt_reset_pct: u64,
}

impl Rules {
    fn new(params: &CcParams, sendme_inc: u8) -> Self {
        let cwnd_max = u64::from(params.cwnd_max.min(MAX_CWND)).max(u64::from(sendme_inc));
        Rules {
            thresholds: *params.vegas(),
            sendme_inc: u64::from(sendme_inc),
            // A smaller window would never be answered.
            cwnd_min: u64::from(params.cwnd_min.max(u32::from(sendme_inc))).min(cwnd_max),
            cwnd_max,
            cwnd_inc: params.cwnd_inc.into(),
            cwnd_inc_pct_ss: params.cwnd_inc_pct_ss.into(),
            cwnd_inc_rate: params.cwnd_inc_rate.max(1).into(),
            full_gap: params.cwnd_full_gap.into(),
            full_minpct: params.cwnd_full_minpct.into(),
            full_per_cwnd: params.cwnd_full_per_cwnd,
            ss_max: params.ss_max.into(),
            ewma_cwnd_pct: params.ewma_cwnd_pct.into(),
            ewma_max: params.ewma_max.into(),
            ewma_ss: params.ewma_ss.into(),
            rtt_reset_pct: params.rtt_reset_pct.min(100).into(),
        }
    }
}

/// The congestion window of one end of a circuit.
#[derive(Debug)]
pub(super) struct Vegas {
    rules: Rules,
    /// Cells that may be in flight.
    cwnd: u64,
    /// Cells that were sent and are not acknowledged. May be more than `cwnd` after that shrank.
    in_flight: u64,
    /// The window has not yet met a limit.
    slow_start: bool,
    /// The window was used up lately.
    full: bool,
    /// The link did not take cells when the last SENDME came.
    blocked: bool,
    /// SENDMEs until the window is looked at again.
    next_update: u64,
    /// SENDMEs until a window's worth was acknowledged.
    next_window: u64,
    /// Smallest, smoothed and longest round-trip times in microseconds; 0: none yet.
    min_rtt: u64,
    rtt: u64,
    max_rtt: u64,
    /// The clock stood still at the last measurement.
    clock_stalled: bool,
}

impl Vegas {
    /// A window in slow start.
    pub(super) fn new(params: &CcParams, sendme_inc: u8) -> Self {
        let rules = Rules::new(params, sendme_inc);
        Vegas {
            cwnd: u64::from(params.cwnd_init).clamp(rules.cwnd_min, rules.cwnd_max),
            rules,
            in_flight: 0,
            slow_start: true,
            full: false,
            blocked: false,
            next_update: 1,
            next_window: 0,
            min_rtt: 0,
            rtt: 0,
            max_rtt: 0,
            clock_stalled: false,
        }
    }

    pub(super) fn room(&self) -> u32 {
        cells(self.cwnd.saturating_sub(self.in_flight))
    }

    pub(super) fn window(&self) -> u32 {
        cells(self.cwnd)
    }

    pub(super) fn in_flight(&self) -> u32 {
        cells(self.in_flight)
    }

    pub(super) fn in_slow_start(&self) -> bool {
        self.slow_start
    }

    pub(super) fn rtt(&self) -> Option<Rtt> {
        (self.rtt != 0).then(|| Rtt {
            min: Duration::from_micros(self.min_rtt),
            smoothed: Duration::from_micros(self.rtt),
            max: Duration::from_micros(self.max_rtt),
        })
    }

    pub(super) fn note_sent(&mut self) {
        self.in_flight += 1;
    }

    /// The SENDME came for a cell that was sent at `sent`. `blocked`: the link does not take this
    /// circuit's cells.
    pub(super) fn acknowledged(&mut self, sent: Instant, blocked: bool, now: Instant) {
        self.next_update = self.next_update.saturating_sub(1);
        self.next_window = self.next_window.saturating_sub(1);
        if let Some(bdp) = self.estimate(sent, blocked, now) {
            self.update(bdp);
        }
        self.in_flight = self.in_flight.saturating_sub(self.rules.sendme_inc);
        self.cwnd = self.cwnd.min(self.rules.cwnd_max);
    }

    /// The bandwidth-delay product in cells: what the path holds without its queues. `None` when
    /// nothing was learnt.
    fn estimate(&mut self, sent: Instant, blocked: bool, now: Instant) -> Option<u64> {
        let measured = self.measure(sent, now);
        let changed = self.blocked != blocked;
        self.blocked = blocked;
        if self.rtt == 0 {
            // The clock has stood still since the beginning. Only the link gives a signal.
            return blocked.then(|| {
                let waiting = self.cwnd.saturating_sub(BLOCKED_QUEUE);
                waiting.max(self.rules.cwnd_min)
            });
        }
        if changed {
            // Congestion right here; and its end, too, is worth a look at once.
            self.next_update = 0;
        }
        (measured || blocked).then(|| self.cwnd * self.min_rtt / self.rtt)
    }

    /// Takes in a round-trip time. False when it carries no information.
    fn measure(&mut self, sent: Instant, now: Instant) -> bool {
        let rtt = micros(now.saturating_duration_since(sent));
        if self.clock_jumped(rtt) {
            return false;
        }
        let samples = self.samples();
        self.rtt = ewma(rtt, self.rtt, samples);
        self.max_rtt = self.max_rtt.max(rtt);
        if self.min_rtt == 0 {
            self.min_rtt = self.rtt;
        } else if self.cwnd == self.rules.cwnd_min && !self.slow_start {
            // An unusually short time once seen could hold the window at its smallest forever.
            let (low, high) = (self.rtt.min(self.min_rtt), self.rtt.max(self.min_rtt));
            let percent = self.rules.rtt_reset_pct;
            self.min_rtt = (percent * high / 100 + (100 - percent) * low / 100).max(1);
        } else {
            self.min_rtt = self.min_rtt.min(self.rtt);
        }
        true
    }

    /// True if the clock stood still or jumped, so that `rtt` is no measurement (proposal 324,
    /// 2.1.1).
    fn clock_jumped(&mut self, rtt: u64) -> bool {
        if rtt == 0 {
            self.clock_stalled = true;
            return true;
        }
        if self.slow_start || self.rtt == 0 {
            return false;
        }
        if self.rtt > rtt.saturating_mul(JUMP) {
            // Much shorter than usual: the network may do that. Not after a stall.
            return self.clock_stalled;
        }
        if rtt > self.rtt.saturating_mul(JUMP) {
            return true;
        }
        self.clock_stalled = false;
        false
    }

    /// Number of SENDMEs over which the round-trip time is smoothed.
    fn samples(&self) -> u64 {
        let rules = &self.rules;
        let samples = if self.slow_start {
            rules.ewma_ss
        } else {
            (self.sendmes_per_update() * rules.ewma_cwnd_pct / 100).min(rules.ewma_max)
        };
        samples.max(2)
    }

    /// SENDMEs from one look at the window to the next; 0 is as good as 1.
    fn sendmes_per_update(&self) -> u64 {
        if self.slow_start {
            return 1;
        }
        let cells = self.rules.cwnd_inc_rate * self.rules.sendme_inc;
        (self.cwnd + cells / 2) / cells
    }

    /// SENDMEs for a window's worth of cells.
    fn sendmes_per_window(&self) -> u64 {
        (self.cwnd + self.rules.sendme_inc / 2) / self.rules.sendme_inc
    }

    /// Grows or shrinks the window.
    fn update(&mut self, bdp: u64) {
        let queue = self.cwnd.saturating_sub(bdp);
        let rules = self.rules;
        if self.in_flight + rules.full_gap * rules.sendme_inc >= self.cwnd {
            self.full = true;
        } else if 100 * self.in_flight < rules.full_minpct * self.cwnd {
            self.full = false;
        }

        if self.slow_start {
            self.update_in_slow_start(bdp, queue);
        } else if self.next_update == 0 {
            self.update_in_steady_state(bdp, queue);
        }
        self.cwnd = self.cwnd.clamp(rules.cwnd_min, rules.cwnd_max);

        if self.next_window == 0 {
            self.next_window = self.sendmes_per_window();
        }
        if self.next_update == 0 {
            self.next_update = self.sendmes_per_update();
        }
        let begins_anew = if rules.full_per_cwnd {
            self.next_window == self.sendmes_per_window()
        } else {
            self.next_update == self.sendmes_per_update()
        };
        if begins_anew {
            self.full = false;
        }
    }

    fn update_in_slow_start(&mut self, bdp: u64, queue: u64) {
        let gamma = u64::from(self.rules.thresholds.gamma);
        if queue >= gamma || self.blocked {
            self.cwnd = bdp + gamma;
            self.slow_start = false;
        } else if self.full {
            let growth = self.slow_start_growth();
            self.cwnd += growth;
            // No faster than the steady state would be.
            if growth * self.sendmes_per_window() <= self.rules.cwnd_inc * self.rules.cwnd_inc_rate
            {
                self.slow_start = false;
            }
        }
        if self.cwnd >= self.rules.ss_max {
            self.cwnd = self.rules.ss_max;
            self.slow_start = false;
        }
    }

    /// Growth per SENDME in slow start: RFC 3742's limited slow start.
    fn slow_start_growth(&self) -> u64 {
        let rules = &self.rules;
        let cap = u64::from(rules.thresholds.ss_cap);
        if self.cwnd <= cap {
            return (rules.cwnd_inc_pct_ss * rules.sendme_inc + 50) / 100;
        }
        ((rules.sendme_inc * cap + self.cwnd) / (2 * self.cwnd)).max(1)
    }

    fn update_in_steady_state(&mut self, bdp: u64, queue: u64) {
        let VegasParams {
            alpha, beta, delta, ..
        } = self.rules.thresholds;
        let step = self.rules.cwnd_inc;
        if queue > u64::from(delta) {
            self.cwnd = (bdp + u64::from(delta)).saturating_sub(step);
        } else if queue > u64::from(beta) || self.blocked {
            self.cwnd = self.cwnd.saturating_sub(step);
        } else if self.full && queue < u64::from(alpha) {
            self.cwnd += step;
        }
    }
}

/// The exponentially weighted average over `samples` values after the new `value` (proposal 324,
/// 2.1.2).
pub(super) fn ewma(value: u64, average: u64, samples: u64) -> u64 {
    if average == 0 {
        return value;
    }
    let sum = 2 * u128::from(value) + u128::from(samples - 1) * u128::from(average);
    u64::try_from(sum / u128::from(samples + 1)).unwrap_or(u64::MAX)
}

/// Whole microseconds, at least one unless no time passed. A time past a day is no round-trip time,
/// and products with a window must fit.
fn micros(time: Duration) -> u64 {
    const DAY: u64 = 86_400_000_000;
    if time.is_zero() {
        return 0;
    }
    u64::try_from(time.as_micros()).unwrap_or(DAY).clamp(1, DAY)
}

fn cells(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod vectors;
