//! What torrc says of a client's circuits and streams: how long they are used, how long they are
//! waited for, who attaches them.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use std::time::Duration;

use super::report::Report;
use super::settings::Settings;

/// Circuits are used for at least so long, in seconds (C tor's MIN_MAX_CIRCUIT_DIRTINESS).
const MIN_DIRTINESS: i64 = 10;
/// And at most so long (C tor's MAX_MAX_CIRCUIT_DIRTINESS).
const MAX_DIRTINESS: i64 = 30 * 24 * 3600;
/// Streams are waited for at least so long, in seconds (C tor's MIN_CIRCUIT_STREAM_TIMEOUT).
const MIN_STREAM_TIMEOUT: i64 = 10;
/// Circuits at once at most (C tor's MAX_MAX_CLIENT_CIRCUITS_PENDING).
const MAX_PENDING: i64 = 1024;

/// What torrc says of a client's circuits and streams.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)]
pub struct CircuitOptions {
    /// `MaxCircuitDirtiness`.
    pub max_dirtiness: Duration,
    /// `NewCircuitPeriod`.
    pub new_circuit_period: Duration,
    /// `CircuitsAvailableTimeout`; `None`: as the consensus says.
    pub available_timeout: Option<Duration>,
    /// `MaxClientCircuitsPending`.
    pub max_pending: usize,
    /// `CircuitStreamTimeout`; `None`: 10 seconds, then 15.
    pub stream_timeout: Option<Duration>,
    /// `ClientDNSRejectInternalAddresses`.
    pub reject_internal_answers: bool,
    /// `TrackHostExits`, in lower case.
    pub track_hosts: Vec<String>,
    /// `TrackHostExitsExpire`.
    pub track_for: Duration,
    /// `__LeaveStreamsUnattached`.
    pub leave_streams_unattached: bool,
    /// `__DisablePredictedCircuits`.
    pub disable_predicted: bool,
    /// `MapAddress`: from, to.
    pub maps: Vec<(String, String)>,
}

/// Reads them.
pub(super) fn circuit_options(settings: &Settings, report: &mut Report) -> CircuitOptions {
    let mut maps = Vec::new();
    for line in settings.lines("MapAddress") {
        let mut words = line.value.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some(from), Some(to)) => maps.push((from.to_owned(), to.to_owned())),
            _ => report.warn(
                Some(&line.origin),
                "MapAddress has too few arguments: ignored".to_owned(),
            ),
        }
    }
    let mut bounded = |name: &str, least: i64, most: i64| {
        let value = settings.number(name);
        let used = value.clamp(least, most);
        if used != value {
            report.warn(
                settings.origin(name),
                format!("{name} is {value}: {used} is used"),
            );
        }
        used
    };
    let max_dirtiness = bounded("MaxCircuitDirtiness", MIN_DIRTINESS, MAX_DIRTINESS);
    let max_pending = bounded("MaxClientCircuitsPending", 1, MAX_PENDING);
    let stream_timeout = match settings.number("CircuitStreamTimeout") {
        0 => 0,
        _ => bounded("CircuitStreamTimeout", MIN_STREAM_TIMEOUT, i64::MAX),
    };
    let seconds = |value: i64| Duration::from_secs(u64::try_from(value).unwrap_or(0));
    let unless_zero = |value: i64| Some(seconds(value)).filter(|time| !time.is_zero());
    CircuitOptions {
        max_dirtiness: seconds(max_dirtiness),
        new_circuit_period: seconds(settings.number("NewCircuitPeriod").max(1)),
        available_timeout: unless_zero(settings.number("CircuitsAvailableTimeout")),
        max_pending: usize::try_from(max_pending).unwrap_or(1),
        stream_timeout: unless_zero(stream_timeout),
        reject_internal_answers: settings.flag("ClientDNSRejectInternalAddresses"),
        track_hosts: settings
            .csv("TrackHostExits")
            .iter()
            .map(|host| host.to_ascii_lowercase())
            .collect(),
        track_for: seconds(settings.number("TrackHostExitsExpire")),
        leave_streams_unattached: settings.flag("__LeaveStreamsUnattached"),
        disable_predicted: settings.flag("__DisablePredictedCircuits"),
        maps,
    }
}
