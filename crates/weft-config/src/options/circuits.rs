//! A client's circuits and streams: how long they are used, how long they are waited for, and
//! whether controllers attach them.

use std::time::Duration;

use weft_cell::conflux_msg::DesiredUx;
use weft_path::CircuitSelection;

use crate::options::paths::word_of;
use crate::report::Report;
use crate::settings::Settings;
use crate::table::keys;

/// Use of a client's circuits and streams.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)]
pub struct CircuitOptions {
    /// `MaxCircuitDirtiness`.
    pub max_dirtiness: Duration,
    /// `CircuitSelection`.
    pub selection: CircuitSelection,
    /// `ConfluxEnabled`; `None`: the consensus decides.
    pub conflux: Option<bool>,
    /// `ConfluxClientUX`.
    pub conflux_ux: DesiredUx,
    /// `Multipath…`.
    pub multipath: MultipathOptions,
    /// `NewCircuitPeriod`.
    pub new_circuit_period: Duration,
    /// `CircuitsAvailableTimeout`; `None`: the consensus decides.
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
    /// Circuits have congestion control although the consensus has turned it off (`cc_alg=0`): `__AlwaysCongestionControl`,
    /// and always outside of testing networks, as authorities could else downgrade everybody (C tor's bug 41361).
    pub always_congestion_control: bool,
    /// `__SbwsExit`: clients are bandwidth scanners, whose circuits have two hops.
    pub sbws_exit: bool,
}

/// Shape of mTor tunnels (docs/extensions/mtor.md), and the users whose streams get them besides
/// those of ports with `Multipath`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultipathOptions {
    /// `MultipathCircuits`: legs of a tunnel, 1 to 16.
    pub circuits: usize,
    /// `MultipathEntry`.
    pub entry: MultipathEntry,
    /// `MultipathMiddleBandwidth`: middle relays have less than this consensus weight, in kB/s.
    pub middle_below: u32,
    /// `MultipathUsers`: connections with one of these user names get tunnels, on any port.
    pub users: Vec<String>,
}

impl Default for MultipathOptions {
    fn default() -> Self {
        Self {
            circuits: 3,
            entry: MultipathEntry::Distinct,
            middle_below: 102,
            users: Vec::new(),
        }
    }
}

/// The guards of a tunnel's legs (`MultipathEntry`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MultipathEntry {
    /// A different guard for each leg, as far as there are enough guards.
    #[default]
    Distinct,
    /// All legs have one.
    Common,
}

/// Its words, the default first.
const ENTRIES: [(&str, MultipathEntry); 2] = [
    ("distinct", MultipathEntry::Distinct),
    ("common", MultipathEntry::Common),
];

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
pub(crate) fn circuit_options(settings: &Settings, report: &mut Report) -> CircuitOptions {
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
        multipath: MultipathOptions {
            circuits: usize::try_from(settings.number(keys::MultipathCircuits)).unwrap_or(1),
            entry: word_of(keys::MultipathEntry, &ENTRIES, settings, report),
            middle_below: u32::try_from(settings.amount(keys::MultipathMiddleBandwidth) / 1000)
                .unwrap_or(u32::MAX),
            users: settings.words(keys::MultipathUsers).to_vec(),
        },
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
        always_congestion_control: settings.flag(keys::__AlwaysCongestionControl)
            || !settings.flag(keys::TestingTorNetwork),
        sbws_exit: settings.flag(keys::__SbwsExit),
        disable_predicted: settings.flag(keys::__DisablePredictedCircuits),
        maps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::MemoryHost;
    use crate::load_text;

    #[test]
    fn tunnels_have_three_circuits_with_guards_of_their_own_by_default() {
        let read = |text: &str| {
            let options = load_text(text, &MemoryHost::new()).unwrap().options;
            options.circuits.multipath
        };
        assert_eq!(read(""), MultipathOptions::default());
        let text = "MultipathCircuits 16\nMultipathEntry Common\nMultipathMiddleBandwidth 250 KBytes\n\
                    MultipathUsers bulk,aria2";
        let all = MultipathOptions {
            circuits: 16,
            entry: MultipathEntry::Common,
            middle_below: 256,
            users: vec!["bulk".to_owned(), "aria2".to_owned()],
        };
        assert_eq!(read(text), all);
        for (text, error) in [
            ("MultipathCircuits 0", "MultipathCircuits"),
            ("MultipathCircuits 17", "MultipathCircuits"),
            (
                "MultipathEntry comon",
                "MultipathEntry: \"comon\" is none of distinct, common; did you mean common?",
            ),
            ("MultipathMiddleBandwidth fast", "MultipathMiddleBandwidth"),
        ] {
            let report = load_text(text, &MemoryHost::new());
            let report = report.map(|_| ()).unwrap_err().to_string();
            assert!(report.contains(error), "{text}: {report}");
        }
    }

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

    #[test]
    fn only_a_testing_networks_consensus_turns_congestion_control_off() {
        let read = |text: &str| {
            let options = load_text(text, &MemoryHost::new()).unwrap().options;
            options.circuits.always_congestion_control
        };
        let testing = "TestingTorNetwork 1\nDirAuthority a orport=1 v3ident=\
                       1111111111111111111111111111111111111111 127.0.0.1:2 \
                       2222222222222222222222222222222222222222\n";
        assert!(read(""));
        assert!(!read(testing));
        assert!(read(&format!("{testing}__AlwaysCongestionControl 1\n")));
    }
}
