//! Scheduling of links, and padding.

use std::time::Duration;

use crate::report::Report;
use crate::settings::Settings;
use crate::table::keys;

/// A way to choose which link's cells are sent next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerKind {
    /// By what the kernel reports of each socket.
    Kist,
    /// KIST without the kernel.
    KistLite,
    /// As much as fits.
    Vanilla,
}

/// Scheduling of cells, and padding of links.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulingOptions {
    /// `Schedulers`: the first that works here is used. Never empty.
    pub schedulers: Vec<SchedulerKind>,
    /// `KISTSchedRunInterval` (`None`: by consensus).
    pub kist_run_interval: Option<Duration>,
    /// `KISTSockBufSizeFactor`.
    pub kist_sock_buf_size_factor: f64,
    /// `CircuitPriorityHalflife` (`None`: by consensus; zero: the protocol's 30 seconds, as in C
    /// tor).
    pub circuit_priority_halflife: Option<Duration>,
    /// `ConnectionPadding` (`None`: as negotiated; a relay cannot set it).
    pub connection_padding: Option<bool>,
    /// `ReducedConnectionPadding`.
    pub reduced_connection_padding: bool,
    /// `CircuitPadding`.
    pub circuit_padding: bool,
}

impl Default for SchedulingOptions {
    /// The options of an empty torrc.
    fn default() -> Self {
        read(&Settings::default())
    }
}

/// Checks them.
pub(crate) fn check(settings: &Settings, report: &mut Report) {
    let schedulers = settings.words(keys::Schedulers).to_vec();
    if schedulers.is_empty() {
        report.error(
            settings.origin(keys::Schedulers),
            "Schedulers is empty; name KIST, KISTLite or Vanilla, or remove the line",
        );
    }
    for word in schedulers {
        if scheduler_kind(&word).is_none() {
            report.error(
                settings.origin(keys::Schedulers),
                format!("Schedulers: \"{word}\" is none of KIST, KISTLite, Vanilla"),
            );
        }
    }
}

/// Reads them.
pub(crate) fn read(settings: &Settings) -> SchedulingOptions {
    let halflife = settings.double(keys::CircuitPriorityHalflife);
    SchedulingOptions {
        schedulers: settings
            .words(keys::Schedulers)
            .iter()
            .filter_map(|word| scheduler_kind(word))
            .collect(),
        kist_run_interval: settings.time_or_none(keys::KISTSchedRunInterval),
        kist_sock_buf_size_factor: settings.double(keys::KISTSockBufSizeFactor),
        circuit_priority_halflife: Duration::try_from_secs_f64(halflife).ok(),
        connection_padding: settings.auto_flag(keys::ConnectionPadding),
        reduced_connection_padding: settings.flag(keys::ReducedConnectionPadding),
        circuit_padding: settings.flag(keys::CircuitPadding),
    }
}

/// A word of `Schedulers`.
fn scheduler_kind(word: &str) -> Option<SchedulerKind> {
    [
        ("KIST", SchedulerKind::Kist),
        ("KISTLite", SchedulerKind::KistLite),
        ("Vanilla", SchedulerKind::Vanilla),
    ]
    .into_iter()
    .find(|(name, _)| name.eq_ignore_ascii_case(word))
    .map(|(_, kind)| kind)
}
