//! The consensus parameters of guards (param-spec; defaults as in guard-spec, appendix A.1).

use std::time::Duration;

use tor_netdir::params::NetParameters;

const DAY: Duration = Duration::from_secs(86_400);

/// Parameters of guard-spec, by its names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GuardParams {
    /// MAX_SAMPLE_THRESHOLD, as a share of the guards.
    pub(crate) max_sample_threshold: f64,
    /// MAX_SAMPLE_SIZE
    pub(crate) max_sample_size: usize,
    /// MIN_FILTERED_SAMPLE
    pub(crate) min_filtered_sample: usize,
    /// REMOVE_UNLISTED_GUARDS_AFTER
    pub(crate) remove_unlisted_after: Duration,
    /// GUARD_LIFETIME
    pub(crate) lifetime: Duration,
    /// GUARD_CONFIRMED_MIN_LIFETIME
    pub(crate) confirmed_min_lifetime: Duration,
    /// N_PRIMARY_GUARDS
    pub(crate) n_primary: usize,
    /// NUM_USABLE_PRIMARY_GUARDS
    pub(crate) n_primary_to_use: usize,
    /// NUM_USABLE_PRIMARY_DIRECTORY_GUARDS
    pub(crate) n_primary_dir_to_use: usize,
    /// INTERNET_LIKELY_DOWN_INTERVAL
    pub(crate) internet_likely_down: Duration,
    /// NONPRIMARY_GUARD_CONNECT_TIMEOUT
    pub(crate) nonprimary_connect_timeout: Duration,
    /// NONPRIMARY_GUARD_IDLE_TIMEOUT
    pub(crate) nonprimary_idle_timeout: Duration,
    /// MEANINGFUL_RESTRICTION_FRAC
    pub(crate) meaningful_restriction: f64,
}

impl Default for GuardParams {
    fn default() -> Self {
        Self::new(&NetParameters::default())
    }
}

impl GuardParams {
    pub(crate) fn new(params: &NetParameters) -> Self {
        let count = |n: i32| usize::try_from(n).unwrap_or(1);
        let days = |n: i32| DAY.saturating_mul(n.unsigned_abs());
        let seconds = |n: i32| Duration::from_secs(u64::from(n.unsigned_abs()));
        Self {
            max_sample_threshold: params.guard_max_sample_threshold.as_fraction(),
            max_sample_size: count(params.guard_max_sample_size.get()),
            min_filtered_sample: count(params.guard_filtered_min_sample_size.get()),
            remove_unlisted_after: days(params.guard_remove_unlisted_after.as_days().get()),
            lifetime: days(params.guard_lifetime_unconfirmed.as_days().get()),
            confirmed_min_lifetime: days(params.guard_lifetime_confirmed.as_days().get()),
            n_primary: count(params.guard_n_primary.get()),
            n_primary_to_use: count(params.guard_use_parallelism.get()),
            n_primary_dir_to_use: count(params.guard_dir_use_parallelism.get()),
            internet_likely_down: seconds(params.guard_internet_likely_down.as_secs().get()),
            nonprimary_connect_timeout: seconds(
                params.guard_nonprimary_connect_timeout.as_secs().get(),
            ),
            nonprimary_idle_timeout: seconds(params.guard_nonprimary_idle_timeout.as_secs().get()),
            meaningful_restriction: params.guard_meaningful_restriction.as_fraction(),
        }
    }
}
