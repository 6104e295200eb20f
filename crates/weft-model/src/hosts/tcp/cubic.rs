//! Congestion window: slow start with HyStart, then CUBIC or Reno.
//!
//! CUBIC per RFC 9438, with its friendliness to Reno and its fast convergence; HyStart by delay
//! alone, as in Linux (`hystart_update`). All sizes are bytes, all times nanoseconds.

/// Congestion control algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// RFC 9438, Linux's default.
    #[default]
    Cubic,
    /// RFC 5681.
    Reno,
}

/// Multiplicative decrease factors: CUBIC's, and Reno's.
const CUBIC_BETA: f64 = 0.7;
const RENO_BETA: f64 = 0.5;
/// The cubic function's factor, in segments per second to the third.
const C: f64 = 0.4;
/// Smallest window, in segments, at which HyStart runs, and the samples that it needs in a round.
const HYSTART_LEAST: f64 = 16.0;
const HYSTART_SAMPLES: u32 = 8;
/// Smallest and largest rise of the delay that ends slow start in HyStart, in nanoseconds: 4 and 16
/// ms.
const HYSTART_RISE: (u64, u64) = (4_000_000, 16_000_000);

/// A congestion window.
#[derive(Clone, Debug)]
pub struct Window {
    algorithm: Algorithm,
    mss: f64,
    /// Bytes that may be on their way.
    cwnd: f64,
    ssthresh: f64,
    /// The window before the last loss, in segments.
    w_max: f64,
    /// When this run of growth began, and the window then, in segments.
    epoch: Option<(u64, f64)>,
    /// Time in which the window grows back to `w_max`, seconds.
    k: f64,
    /// The window that Reno would have now, in segments.
    reno: f64,
    hystart: HyStart,
}

/// Looks for a queue that builds up, one round after the other.
#[derive(Clone, Debug, Default)]
struct HyStart {
    /// The round ends when this byte is acknowledged.
    end: u64,
    samples: u32,
    least: u64,
    /// It has ended slow start: it does so once, until a timeout.
    found: bool,
}

impl Window {
    /// Initial window: ten segments (RFC 6928).
    #[must_use]
    pub fn new(algorithm: Algorithm, mss: u32) -> Window {
        let mss = f64::from(mss);
        Window {
            algorithm,
            mss,
            cwnd: 10.0 * mss,
            ssthresh: f64::INFINITY,
            w_max: 0.0,
            epoch: None,
            k: 0.0,
            reno: 0.0,
            hystart: HyStart::default(),
        }
    }

    /// Bytes that may be on their way.
    #[must_use]
    #[cfg_attr(
        not(test),
        expect(
            clippy::cast_possible_truncation,
            reason = "far below what a double holds exactly"
        )
    )]
    pub fn bytes(&self) -> u64 {
        self.cwnd as u64
    }

    /// Returns true if the window doubles each round trip.
    #[must_use]
    pub fn is_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// So many bytes were acknowledged, while the window was what held the sender back.
    pub fn acknowledged(&mut self, now: u64, bytes: u64, srtt: u64) {
        let mut bytes = bytes as f64;
        if self.is_slow_start() {
            let grown = (self.cwnd + bytes).min(self.ssthresh);
            bytes -= grown - self.cwnd;
            self.cwnd = grown;
        }
        if bytes <= 0.0 {
            return;
        }
        match self.algorithm {
            Algorithm::Reno => self.cwnd += self.mss * bytes / self.cwnd,
            Algorithm::Cubic => self.cubic(now, bytes, srtt),
        }
    }

    fn cubic(&mut self, now: u64, bytes: f64, srtt: u64) {
        let window = self.cwnd / self.mss;
        let (begun, _) = *self.epoch.get_or_insert_with(|| {
            self.k = match self.w_max > window {
                true => ((self.w_max - window) / C).cbrt(),
                false => 0.0,
            };
            self.w_max = self.w_max.max(window);
            self.reno = window;
            (now, window)
        });
        let elapsed = now.saturating_sub(begun) as f64 * 1e-9;
        let curve = |at: f64| C * (at - self.k).powi(3) + self.w_max;
        let segments = bytes / self.mss;
        // RFC 9438, 4.3: as fast as Reno at least; past the old maximum by a whole segment each round.
        let alpha = match self.reno < self.w_max {
            true => 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA),
            false => 1.0,
        };
        self.reno += alpha * segments / window;
        let target = curve(elapsed + srtt as f64 * 1e-9).clamp(window, 1.5 * window);
        let grown = match curve(elapsed) < self.reno {
            true => self.reno.max(window),
            false => window + (target - window) / window * segments,
        };
        self.cwnd = grown * self.mss;
    }

    /// A round trip was measured; `sent` is the end of the bytes sent so far, `acknowledged` the
    /// end of those that have arrived.
    pub fn measured(&mut self, rtt: u64, least: u64, sent: u64, acknowledged: u64) {
        let is_early = self.cwnd < HYSTART_LEAST * self.mss;
        if !self.is_slow_start() || is_early || self.hystart.found {
            return;
        }
        let hystart = &mut self.hystart;
        if acknowledged >= hystart.end {
            *hystart = HyStart {
                end: sent,
                samples: 0,
                least: u64::MAX,
                found: false,
            };
        }
        if hystart.samples < HYSTART_SAMPLES {
            hystart.samples += 1;
            hystart.least = hystart.least.min(rtt);
        }
        let rise = (least / 8).clamp(HYSTART_RISE.0, HYSTART_RISE.1);
        if hystart.samples == HYSTART_SAMPLES && hystart.least > least.saturating_add(rise) {
            self.ssthresh = self.cwnd;
            hystart.found = true;
        }
    }

    /// Something was lost: once for all that was on its way then.
    pub fn lost(&mut self) {
        let window = self.cwnd / self.mss;
        let beta = match self.algorithm {
            Algorithm::Cubic => {
                self.w_max = match window < self.w_max {
                    true => window * (1.0 + CUBIC_BETA) / 2.0,
                    false => window,
                };
                CUBIC_BETA
            }
            Algorithm::Reno => RENO_BETA,
        };
        self.epoch = None;
        self.ssthresh = (self.cwnd * beta).max(2.0 * self.mss);
        self.cwnd = self.ssthresh;
    }

    /// Nothing came back for a whole timeout.
    pub fn timed_out(&mut self) {
        self.lost();
        self.cwnd = self.mss;
        self.hystart.found = false;
    }

    /// In the time of one timeout, at most `used` bytes of the window were used
    /// (`tcp_cwnd_application_limited`).
    pub fn starved(&mut self, used: u64) {
        let used = (used as f64).max(10.0 * self.mss);
        if used < self.cwnd {
            self.ssthresh = self.ssthresh.max(self.cwnd * 0.75);
            self.cwnd = f64::midpoint(self.cwnd, used);
        }
    }

    /// Nothing was under way for `pause`, which CUBIC's curve omits (`cubictcp_cwnd_event`).
    pub fn paused(&mut self, now: u64, pause: u64) {
        if let Some((begun, _)) = &mut self.epoch {
            *begun = begun.saturating_add(pause).min(now);
        }
    }

    /// Nothing was sent for this number of timeouts, so the state of the network is unknown again
    /// (`tcp_cwnd_restart`).
    pub fn idle(&mut self, timeouts: u32) {
        self.ssthresh = self.ssthresh.max(self.cwnd * 0.75);
        let shrunk = self.cwnd / 2f64.powi(timeouts.min(64) as i32);
        self.cwnd = shrunk.max((10.0 * self.mss).min(self.cwnd));
    }
}
