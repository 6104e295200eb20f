//! Circuit-RTT: which circuits are fast enough by their round-trip times (Schrock 2017, 4.2 and 4.3).
//!
//! [`RoundTrips`] keeps those of the last thousand circuits, whether these still live or not, and fits a [`Gev`] to them: a
//! circuit that takes longer than, by that distribution, four fifths of the circuits do is not used.

mod gev;
mod simplex;
mod state;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

pub use gev::Gev;

/// Circuits that are remembered (Schrock 2017, 4.3).
const REMEMBERED: usize = 1000;
/// Circuits before there is a limit, as for build times (`cbtmincircs`).
const FEWEST: usize = 100;
/// New times after which the distribution is fitted again: a fit takes some 2 ms.
const REFIT: usize = 20;
/// Circuits by which a change of the network is noticed, and how many of them are too slow when it has: those of build times
/// (`cbtrecentcount`, `cbtmaxtimeouts`).
const RECENT: usize = 20;
const MOST_SLOW: usize = 18;

/// Rule by which a client accepts circuits that it has built: `CircuitAcceptance`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Acceptance {
    /// Circuits that were built in time (path-spec 2.4).
    #[default]
    Cbt,
    /// Circuits whose round-trip time is short enough.
    Rtt,
    /// Circuits that pass both checks.
    Both,
    /// All.
    None,
}

impl Acceptance {
    /// Circuits are given up once they have been built for longer than [`BuildTimes`](crate::BuildTimes) allows. Otherwise they are
    /// built until they are closed.
    #[must_use]
    pub fn checks_build_time(self) -> bool {
        matches!(self, Self::Cbt | Self::Both)
    }

    /// Circuits are measured before they are used, and not used past the limit of [`RoundTrips`].
    #[must_use]
    pub fn checks_round_trip(self) -> bool {
        matches!(self, Self::Rtt | Self::Both)
    }
}

/// Round-trip times of recent circuits, and the limit that follows.
#[derive(Clone, Debug)]
pub struct RoundTrips {
    /// From 0 to 1.
    quantile: f64,
    /// Microseconds, oldest first; no more than [`REMEMBERED`].
    times: VecDeque<u32>,
    /// Times since the last fit.
    since_fit: usize,
    fit: Option<Gev>,
    limit: Option<Duration>,
    /// Of recent circuits, oldest first: whether they were too slow.
    recent: VecDeque<bool>,
    changed: bool,
}

impl RoundTrips {
    /// Starts without measurements. `quantile`: the share of circuits to use, from 0 to 1.
    #[must_use]
    pub fn new(quantile: f64) -> Self {
        Self {
            quantile,
            times: VecDeque::new(),
            since_fit: 0,
            fit: None,
            limit: None,
            recent: VecDeque::new(),
            changed: false,
        }
    }

    /// Sets the share of circuits to use.
    pub fn set_quantile(&mut self, quantile: f64) {
        if self.quantile.to_bits() != quantile.to_bits() {
            self.quantile = quantile;
            self.estimate();
        }
    }

    /// A circuit's round-trip time. True: it is short enough by those before it.
    ///
    /// If nearly all recent ones are too long, the network has changed, and learning starts again.
    pub fn note(&mut self, time: Duration) -> bool {
        let accepted = self.limit.is_none_or(|limit| time <= limit);
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX).max(1);
        if self.times.len() >= REMEMBERED {
            self.times.pop_front();
        }
        self.times.push_back(micros);
        self.changed = true;
        if self.limit.is_some() {
            if self.recent.len() >= RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back(!accepted);
            if self.recent.iter().filter(|&&slow| slow).count() >= MOST_SLOW {
                self.forget();
                return accepted;
            }
        }
        self.since_fit += 1;
        if self.times.len() >= FEWEST && (self.limit.is_none() || self.since_fit >= REFIT) {
            self.estimate();
        }
        accepted
    }

    /// The longest time of a circuit that is used. `None`: fewer than a hundred circuits were measured, and each is used.
    #[must_use]
    pub fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// The distribution, in milliseconds. `None`: too few circuits were measured, or all took the same.
    #[must_use]
    pub fn gev(&self) -> Option<Gev> {
        self.fit
    }

    /// Number of round-trip times that are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// No time is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Forgets all experience.
    pub fn forget(&mut self) {
        self.times.clear();
        self.recent.clear();
        self.changed = true;
        self.estimate();
    }

    fn estimate(&mut self) {
        (self.since_fit, self.fit, self.limit) = (0, None, None);
        if self.times.len() < FEWEST {
            return;
        }
        let millis = self.times.iter().map(|micros| f64::from(*micros) / 1e3);
        let millis: Vec<f64> = millis.collect();
        let longest = millis.iter().copied().fold(0.0, f64::max);
        self.fit = Gev::fit(&millis);
        // No longer than a circuit ever took, as for build times. If all took the same, that is the limit.
        let limit = self.fit.map_or(longest, |fit| fit.quantile(self.quantile));
        let limit = if limit.is_finite() {
            limit.min(longest)
        } else {
            longest
        };
        self.limit = Duration::try_from_secs_f64(limit.max(0.0) / 1e3).ok();
    }
}
