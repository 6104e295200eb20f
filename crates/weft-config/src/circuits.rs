//! A client's circuits and streams: how long they are used, how long they are waited for, and
//! whether controllers attach them.

use std::time::Duration;

use weft_cell::conflux_msg::DesiredUx;
use weft_path::CircuitSelection;

use super::paths::word_of;
use super::report::Report;
use super::settings::Settings;
use super::table::keys;

/// How a client's circuits and streams are used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)]
pub struct CircuitOptions {
    /// `MaxCircuitDirtiness`.
    pub max_dirtiness: Duration,
    /// `CircuitSelection`.
    pub selection: CircuitSelection,
    /// `ConfluxEnabled`; `None`: as the consensus has it.
    pub conflux: Option<bool>,
    /// `ConfluxClientUX`.
    pub conflux_ux: DesiredUx,
    /// `NewCircuitPeriod`.
    pub new_circuit_period: Duration,
    /// `CircuitsAvailableTimeout`; `None`: as the consensus has it.
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

/// `CircuitSelection`, the default first.
const SELECTIONS: [(&str, CircuitSelection); 3] = [
    ("default", CircuitSelection::Default),
    ("abra", CircuitSelection::Abra),
    ("abra-stay", CircuitSelection::AbraStay),
];

/// `ConfluxClientUX`.
#[derive(Clone, Copy)]
struct ClientUx(DesiredUx);

impl Default for ClientUx {
    fn default() -> Self {
        Self(DesiredUx::HighThroughput)
    }
}

/// Its words, the default first.
const CLIENT_UX: [(&str, ClientUx); 4] = [
    ("throughput", ClientUx(DesiredUx::HighThroughput)),
    ("latency", ClientUx(DesiredUx::MinLatency)),
    ("throughput_lowmem", ClientUx(DesiredUx::LowMemThroughput)),
    ("latency_lowmem", ClientUx(DesiredUx::LowMemLatency)),
];

/// Reads them.
pub(super) fn circuit_options(settings: &Settings, report: &mut Report) -> CircuitOptions {
    let mut maps = Vec::new();
    for line in settings.lines(keys::MapAddress) {
        let mut words = line.value.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some(from), Some(to)) => maps.push((from.to_owned(), to.to_owned())),
            _ => report.warn(
                Some(&line.origin),
                "MapAddress has too few arguments: ignored".to_owned(),
            ),
        }
    }
    CircuitOptions {
        max_dirtiness: settings.time(keys::MaxCircuitDirtiness),
        selection: word_of(keys::CircuitSelection, &SELECTIONS, settings, report),
        conflux: settings.auto_flag(keys::ConfluxEnabled),
        conflux_ux: word_of(keys::ConfluxClientUX, &CLIENT_UX, settings, report).0,
        new_circuit_period: settings
            .time(keys::NewCircuitPeriod)
            .max(Duration::from_secs(1)),
        available_timeout: settings.time_or_none(keys::CircuitsAvailableTimeout),
        max_pending: usize::try_from(settings.number(keys::MaxClientCircuitsPending)).unwrap_or(1),
        stream_timeout: settings.time_or_none(keys::CircuitStreamTimeout),
        reject_internal_answers: settings.flag(keys::ClientDNSRejectInternalAddresses),
        track_hosts: settings
            .words(keys::TrackHostExits)
            .iter()
            .map(|host| host.to_ascii_lowercase())
            .collect(),
        track_for: settings.time(keys::TrackHostExitsExpire),
        leave_streams_unattached: settings.flag(keys::__LeaveStreamsUnattached),
        disable_predicted: settings.flag(keys::__DisablePredictedCircuits),
        maps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::MemoryHost;
    use crate::load::load_text;

    #[test]
    fn conflux_is_the_consensus_own_business_unless_torrc_decides() {
        let read = |text: &str| {
            let options = load_text(text, &MemoryHost::new()).unwrap().options;
            (options.circuits.conflux, options.circuits.conflux_ux)
        };
        let throughput = DesiredUx::HighThroughput;
        assert_eq!(read(""), (None, throughput));
        assert_eq!(read("ConfluxEnabled auto"), (None, throughput));
        assert_eq!(read("ConfluxEnabled 1"), (Some(true), throughput));
        assert_eq!(read("ConfluxEnabled 0"), (Some(false), throughput));
        for (word, ux) in [
            ("latency", DesiredUx::MinLatency),
            ("latency_lowmem", DesiredUx::LowMemLatency),
            ("throughput", DesiredUx::HighThroughput),
            ("throughput_lowmem", DesiredUx::LowMemThroughput),
        ] {
            assert_eq!(read(&format!("ConfluxClientUX {word}")), (None, ux));
        }
        let report = load_text("ConfluxClientUX latncy", &MemoryHost::new());
        let report = report.map(|_| ()).unwrap_err().to_string();
        let error = "ConfluxClientUX: \"latncy\" is none of throughput, latency, throughput_lowmem, \
                     latency_lowmem; did you mean latency?";
        assert!(report.trim_end().ends_with(error), "{report}");
    }
}
