//! Round-trip times and the retransmission timeout (RFC 6298), with Linux's least of 200 ms.

const LEAST_RTO: u64 = 200_000_000;
const FIRST_RTO: u64 = 1_000_000_000;
const MOST_RTO: u64 = 120_000_000_000;

/// Estimates of the round trip time, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Rtt {
    smoothed: Option<u64>,
    variation: u64,
    least: u64,
    backoff: u32,
}

impl Default for Rtt {
    fn default() -> Rtt {
        Rtt {
            smoothed: None,
            variation: 0,
            least: u64::MAX,
            backoff: 0,
        }
    }
}

impl Rtt {
    /// A sample.
    pub fn measured(&mut self, rtt: u64) {
        self.backoff = 0;
        self.least = self.least.min(rtt);
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.variation = rtt / 2;
            }
            Some(smoothed) => {
                self.variation = (3 * self.variation + smoothed.abs_diff(rtt)) / 4;
                self.smoothed = Some((7 * smoothed + rtt) / 8);
            }
        }
    }

    /// The smoothed one; a second before the first sample.
    #[must_use]
    pub fn smoothed(&self) -> u64 {
        self.smoothed.unwrap_or(FIRST_RTO)
    }

    /// The least one.
    #[must_use]
    pub fn least(&self) -> u64 {
        self.least
    }

    /// Returns true if there was a sample.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.smoothed.is_some()
    }

    /// Retransmission timeout, in nanoseconds.
    #[must_use]
    pub fn timeout(&self) -> u64 {
        let base = match self.smoothed {
            None => FIRST_RTO,
            Some(smoothed) => smoothed.saturating_add((4 * self.variation).max(LEAST_RTO)),
        };
        base.saturating_mul(1 << self.backoff.min(10)).min(MOST_RTO)
    }

    /// Timeouts since the last sample.
    #[must_use]
    pub fn backoff(&self) -> u32 {
        self.backoff
    }

    /// One passed in vain: the next is twice as long.
    pub fn timed_out(&mut self) {
        self.backoff += 1;
    }
}
