//! Circuit build timeout (path-spec 2.4; C tor: circuitstats.c).
//!
//! [`BuildTimes`] keeps the build times of recent circuits and fits a Pareto distribution to them
//! ([`pareto`]). A circuit is given up after the time in which, by that distribution, four fifths
//! of the circuits are built. Circuits that are given up are built on for a while, only to measure
//! their build time.

#[cfg(test)]
mod network_tests;
mod pareto;
mod state;
#[cfg(test)]
mod tests;
mod took;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tor_netdir::params::NetParameters;

use crate::round_trips::Acceptance;
use pareto::Pareto;
use took::Took;

/// Circuits that are remembered (CBT_NCIRCUITS_TO_OBSERVE).
const REMEMBERED: usize = 1000;
/// No timeout is doubled beyond this, in milliseconds.
const MOST: f64 = (i32::MAX / 2) as f64;

/// The consensus parameters of build times (param-spec, "Circuit-build-timeouts").
#[derive(Clone, Debug, PartialEq)]
pub struct CbtParams {
    /// `cbtdisabled`
    pub disabled: bool,
    /// `cbtnummodes`: fullest bins that make Xm.
    pub(crate) num_modes: usize,
    /// `cbtrecentcount`: circuits by which a change of the network is noticed.
    pub(crate) recent_count: usize,
    /// `cbtmaxtimeouts`: how many of them time out when it has.
    pub(crate) max_timeouts: usize,
    /// `cbtmincircs`: circuits before an estimate is made.
    pub(crate) min_circs: usize,
    /// `cbtquantile`, from 0 to 1.
    pub quantile: f64,
    /// `cbtclosequantile`, from 0 to 1.
    pub(crate) close_quantile: f64,
    /// `cbttestfreq`: between circuits that are built only to learn.
    pub(crate) test_frequency: Duration,
    /// `cbtmintimeout`
    pub min_timeout: Duration,
    /// `cbtinitialtimeout`
    pub(crate) initial_timeout: Duration,
    /// `cbtlearntimeout`: unused circuits live this long while there is no estimate.
    pub(crate) learn_timeout: Duration,
    /// `cbtmaxopencircs`: with more circuits open, none is built only to learn.
    pub(crate) max_open_circs: usize,
}

impl Default for CbtParams {
    fn default() -> Self {
        Self::new(&NetParameters::default())
    }
}

impl CbtParams {
    pub(crate) fn new(params: &NetParameters) -> Self {
        let count = |n: i32| usize::try_from(n).unwrap_or(0);
        let millis = |n: i32| Duration::from_millis(u64::from(n.unsigned_abs()));
        let seconds = |n: i32| Duration::from_secs(u64::from(n.unsigned_abs()));
        let recent_count = count(params.cbt_success_count.get());
        let quantile = params.cbt_timeout_quantile.as_fraction();
        Self {
            disabled: params.cbt_learning_disabled.get() != 0,
            num_modes: count(params.cbt_num_xm_modes.get()),
            recent_count,
            max_timeouts: count(params.cbt_max_timeouts.get()),
            min_circs: count(params.cbt_min_circs_for_estimate.get()),
            quantile,
            close_quantile: params.cbt_abandon_quantile.as_fraction().max(quantile),
            test_frequency: seconds(params.cbt_testing_delay.as_secs().get()),
            min_timeout: millis(params.cbt_min_timeout.as_millis().get()),
            initial_timeout: millis(params.cbt_initial_timeout.as_millis().get())
                .max(millis(params.cbt_min_timeout.as_millis().get())),
            learn_timeout: seconds(
                params
                    .unused_client_circ_timeout_while_learning_cbt
                    .as_secs()
                    .get(),
            ),
            max_open_circs: count(params.cbt_max_open_circuits_for_testing.get()),
        }
    }
}

/// The options of build times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BuildTimesOptions {
    /// `LearnCircuitBuildTimeout`
    pub learn: bool,
    /// `CircuitBuildTimeout`: the timeout, or, where it is learnt, that to begin with.
    pub timeout: Option<Duration>,
    /// `CircuitAcceptance`
    pub acceptance: Acceptance,
    /// `CircuitAcceptanceQuantile`, from 0 to 1; `None`: the consensus' `cbtquantile`.
    pub quantile: Option<f64>,
}

impl Default for BuildTimesOptions {
    fn default() -> Self {
        Self {
            learn: true,
            timeout: None,
            acceptance: Acceptance::default(),
            quantile: None,
        }
    }
}

/// Build times of recent circuits, and the timeout computed from them.
#[derive(Clone, Debug)]
pub struct BuildTimes {
    options: BuildTimesOptions,
    params: CbtParams,
    /// Oldest first; no more than [`REMEMBERED`].
    times: VecDeque<Took>,
    /// Milliseconds.
    timeout: f64,
    /// Milliseconds.
    close_after: f64,
    /// `timeout` is an estimate.
    computed: bool,
    /// Of circuits that passed their first hop, oldest first: whether they timed out.
    recent: VecDeque<bool>,
    last_live: Option<Instant>,
    /// Circuits that were given up without a sign of life from the network since they began.
    nonlive: u32,
    changed: bool,
}

impl BuildTimes {
    /// Without experience.
    #[must_use]
    pub fn new(options: BuildTimesOptions, params: CbtParams) -> Self {
        let mut times = Self {
            options,
            params,
            times: VecDeque::new(),
            timeout: 0.0,
            close_after: 0.0,
            computed: false,
            recent: VecDeque::new(),
            last_live: None,
            nonlive: 0,
            changed: false,
        };
        times.begin();
        times
    }

    /// The timeout that there is without an estimate.
    fn begin(&mut self) {
        self.timeout = millis_of(self.initial_timeout());
        self.close_after = self.timeout;
        self.computed = false;
    }

    fn initial_timeout(&self) -> Duration {
        match self.options.timeout {
            Some(set) if self.learns() => set.max(self.params.min_timeout),
            // Fixed by torrc, in which the consensus has no say.
            Some(set) => set,
            None => self.params.initial_timeout,
        }
    }

    fn learns(&self) -> bool {
        self.options.learn && !self.params.disabled
    }

    /// Forgets all experience.
    pub fn forget(&mut self) {
        self.times.clear();
        self.recent.clear();
        self.nonlive = 0;
        self.changed = true;
        self.begin();
    }

    /// Configuration or consensus have changed.
    pub fn update(&mut self, options: BuildTimesOptions, params: CbtParams) {
        if self.options == options && self.params == params {
            return;
        }
        self.options = options;
        self.params = params;
        if !self.learns() {
            self.recent.clear();
        }
        while self.recent.len() > self.params.recent_count {
            self.recent.pop_front();
        }
        if !self.computed || !self.learns() {
            self.begin();
        }
        self.estimate();
    }

    /// A circuit of three hops that has taken this long is given up. (Of circuits of one hop, C tor
    /// expects the same.)
    #[must_use]
    pub fn timeout(&self) -> Duration {
        if self.options.acceptance.checks_build_time() {
            duration_of(self.timeout)
        } else {
            self.close_after()
        }
    }

    /// A circuit that was given up is still built on, to learn how long it takes, until it has
    /// taken this long.
    #[must_use]
    pub fn close_after(&self) -> Duration {
        duration_of(self.close_after)
    }

    /// Returns true if the timeout is an estimate from measured build times.
    #[must_use]
    pub fn is_computed(&self) -> bool {
        self.computed
    }

    /// Returns true if a circuit that was given up is built on, to measure its build time.
    #[must_use]
    pub fn measures(&self) -> bool {
        self.computed && self.options.acceptance.checks_build_time()
    }

    /// Returns true if circuits should be built only to measure them: there are too few for an
    /// estimate. No more often than [`CbtParams::test_frequency`], and not while
    /// [`CbtParams::max_open_circs`] are open.
    #[must_use]
    pub fn wants_circuits(&self) -> bool {
        self.learns() && self.times.len() < self.params.min_circs
    }

    /// The consensus parameters in use.
    #[must_use]
    pub fn params(&self) -> &CbtParams {
        &self.params
    }

    /// Something came from the network: it is not down.
    pub fn note_alive(&mut self, now: Instant) {
        self.last_live = Some(now);
        self.nonlive = 0;
    }

    /// A circuit got its third hop after `elapsed`. To be called for circuits that were given up, too;
    /// `in_time`: this one was not.
    pub fn note_built(&mut self, elapsed: Duration, in_time: bool) {
        if !self.learns() {
            return;
        }
        if self.is_extreme(elapsed) {
            return;
        }
        if self.nonlive == 0 {
            self.remember(Took::Millis(
                u32::try_from(elapsed.as_millis())
                    .unwrap_or(u32::MAX)
                    .max(1),
            ));
            self.estimate();
        }
        if in_time {
            self.note_recent(false);
        }
    }

    /// A circuit was given up, whether it is built on or not. `first_hop`: it had come that far.
    /// True: so many circuits time out that the network must have changed, and learning starts
    /// again.
    pub fn note_timeout(&mut self, first_hop: bool) -> bool {
        if !self.learns() {
            return false;
        }
        if first_hop {
            self.note_recent(true);
        }
        let timeouts = self.recent.iter().filter(|&&timeout| timeout).count();
        if timeouts < self.params.max_timeouts {
            return false;
        }
        self.begin_anew();
        true
    }

    /// Learning starts again.
    fn begin_anew(&mut self) {
        self.times.clear();
        self.recent.clear();
        self.changed = true;
        let initial = millis_of(self.initial_timeout());
        if self.timeout >= initial {
            // It has happened before: this network is abysmally slow.
            if self.timeout <= MOST && self.close_after <= MOST {
                self.timeout *= 2.0;
                self.close_after *= 2.0;
            }
        } else {
            self.timeout = initial;
            self.close_after = initial;
        }
        self.computed = false;
    }

    /// Longer than any circuit is waited for: the clock has jumped or the machine has slept.
    fn is_extreme(&self, elapsed: Duration) -> bool {
        millis_of(elapsed) > self.close_after * 2.0 + 1000.0
    }

    /// A circuit that was given up was not finished by [`close_after`](Self::close_after) either.
    pub fn note_abandoned(&mut self, started: Instant, now: Instant) {
        if !self.learns() || self.is_extreme(now.saturating_duration_since(started)) {
            return;
        }
        if self.last_live.is_none_or(|live| live < started) {
            self.nonlive = self.nonlive.saturating_add(1);
        }
        // While the network is down, circuits say nothing about build times.
        if self.nonlive == 0 {
            self.remember(Took::Abandoned);
            if self.is_abandoned() {
                self.begin_anew();
            } else {
                self.estimate();
            }
        }
    }

    /// Most circuits are given up: those that are built are so few that no estimate by them is one of this network, and the
    /// timeout would stay as short as it is (C tor bug 41420).
    fn is_abandoned(&self) -> bool {
        let abandoned = self.times.iter().filter(|took| **took == Took::Abandoned);
        self.times.len() >= self.params.min_circs && abandoned.count() * 2 > self.times.len()
    }

    fn note_recent(&mut self, timed_out: bool) {
        if self.recent.len() >= self.params.recent_count {
            self.recent.pop_front();
        }
        self.recent.push_back(timed_out);
    }

    fn remember(&mut self, took: Took) {
        if self.times.len() >= REMEMBERED {
            self.times.pop_front();
        }
        self.times.push_back(took);
        self.changed = true;
    }

    /// Makes an estimate, if there is enough experience.
    fn estimate(&mut self) {
        if !self.learns() || self.times.len() < self.params.min_circs {
            return;
        }
        let Some(pareto) = Pareto::estimate(&self.times, self.params.num_modes) else {
            return;
        };
        let longest = self
            .times
            .iter()
            .filter_map(|took| match took {
                Took::Millis(millis) => Some(f64::from(*millis)),
                Took::Abandoned => None,
            })
            .fold(0.0, f64::max);
        let quantile = self.options.quantile.unwrap_or(self.params.quantile);
        // No longer than a circuit ever took; but circuits are watched for longer.
        self.timeout = pareto
            .quantile(quantile)
            .min(longest)
            .max(millis_of(self.params.min_timeout));
        self.close_after = pareto
            .quantile(self.params.close_quantile.max(quantile))
            .min(longest * 2.0)
            .max(millis_of(self.params.initial_timeout))
            .max(self.timeout);
        self.computed = true;
    }
}

fn millis_of(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn duration_of(millis: f64) -> Duration {
    Duration::try_from_secs_f64(millis / 1000.0).unwrap_or(Duration::from_secs(3600))
}
