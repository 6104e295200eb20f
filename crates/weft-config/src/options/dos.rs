//! Defences against denial of service.

use std::time::Duration;

use crate::settings::Settings;
use crate::table::keys;

/// Defences against denial of service; `None` everywhere means by consensus (C tor's
/// src/core/or/dos.c has the defaults).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DosOptions {
    /// `DoSCircuitCreationEnabled`.
    pub circuit_creation_enabled: Option<bool>,
    /// `DoSCircuitCreationMinConnections`: links from one address before its circuits are limited.
    pub circuit_creation_min_connections: Option<u32>,
    /// `DoSCircuitCreationRate`: circuits per second.
    pub circuit_creation_rate: Option<u32>,
    /// `DoSCircuitCreationBurst`: circuits.
    pub circuit_creation_burst: Option<u32>,
    /// `DoSCircuitCreationDefenseType`: 1 none, 2 refuse circuits.
    pub circuit_creation_defense_type: Option<u32>,
    /// `DoSCircuitCreationDefenseTimePeriod`.
    pub circuit_creation_defense_time: Option<Duration>,
    /// `DoSConnectionEnabled`.
    pub connection_enabled: Option<bool>,
    /// `DoSConnectionMaxConcurrentCount`: links from one address.
    pub connection_max_concurrent: Option<u32>,
    /// `DoSConnectionDefenseType`: 1 none, 2 close.
    pub connection_defense_type: Option<u32>,
    /// `DoSConnectionConnectRate`: new links per second from one address.
    pub connection_connect_rate: Option<u32>,
    /// `DoSConnectionConnectBurst`: new links.
    pub connection_connect_burst: Option<u32>,
    /// `DoSConnectionConnectDefenseTimePeriod`.
    pub connection_connect_defense_time: Option<Duration>,
    /// `DoSRefuseSingleHopClientRendezvous`.
    pub refuse_single_hop_rendezvous: Option<bool>,
    /// `DoSStreamCreationEnabled`.
    pub stream_creation_enabled: Option<bool>,
    /// `DoSStreamCreationRate`: streams of one circuit per second.
    pub stream_creation_rate: Option<u32>,
    /// `DoSStreamCreationBurst`: streams of one circuit at once.
    pub stream_creation_burst: Option<u32>,
    /// `DoSStreamCreationDefenseType`: 1 none, 2 refuse streams, 3 close the circuit.
    pub stream_creation_defense_type: Option<u32>,
}

/// Reads them.
pub(crate) fn read(settings: &Settings) -> DosOptions {
    DosOptions {
        circuit_creation_enabled: settings.auto_flag(keys::DoSCircuitCreationEnabled),
        circuit_creation_min_connections: settings
            .count_or_none(keys::DoSCircuitCreationMinConnections),
        circuit_creation_rate: settings.count_or_none(keys::DoSCircuitCreationRate),
        circuit_creation_burst: settings.count_or_none(keys::DoSCircuitCreationBurst),
        circuit_creation_defense_type: settings.count_or_none(keys::DoSCircuitCreationDefenseType),
        circuit_creation_defense_time: settings
            .time_or_none(keys::DoSCircuitCreationDefenseTimePeriod),
        connection_enabled: settings.auto_flag(keys::DoSConnectionEnabled),
        connection_max_concurrent: settings.count_or_none(keys::DoSConnectionMaxConcurrentCount),
        connection_defense_type: settings.count_or_none(keys::DoSConnectionDefenseType),
        connection_connect_rate: settings.count_or_none(keys::DoSConnectionConnectRate),
        connection_connect_burst: settings.count_or_none(keys::DoSConnectionConnectBurst),
        connection_connect_defense_time: settings
            .time_or_none(keys::DoSConnectionConnectDefenseTimePeriod),
        refuse_single_hop_rendezvous: settings.auto_flag(keys::DoSRefuseSingleHopClientRendezvous),
        stream_creation_enabled: settings.auto_flag(keys::DoSStreamCreationEnabled),
        stream_creation_rate: settings.count_or_none(keys::DoSStreamCreationRate),
        stream_creation_burst: settings.count_or_none(keys::DoSStreamCreationBurst),
        stream_creation_defense_type: settings.count_or_none(keys::DoSStreamCreationDefenseType),
    }
}
