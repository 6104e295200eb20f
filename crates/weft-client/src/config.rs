//! The settings of a client that follow from torrc.

use std::time::Duration;

use weft_config::options::MultipathOptions;
use weft_config::{Automap, VirtualNetworks};
use weft_core::origin::DesiredUx;
use weft_path::CircuitSelection;

use crate::isolation::Isolation;
use crate::network::DormancyOptions;

/// The settings of a client. [`Default`] has C tor's.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientConfig {
    /// A circuit that was used first this long ago takes no more streams (`MaxCircuitDirtiness`).
    pub max_dirtiness: Duration,
    /// Interval after which failed circuits are forgiven (`NewCircuitPeriod`).
    pub new_circuit_period: Duration,
    /// Time for which circuits are kept ready after the last use (`CircuitsAvailableTimeout`,
    /// `PredictedPortsRelevanceTime`).
    pub predict_for: Duration,
    /// Circuits being built at once at most (`MaxClientCircuitsPending`).
    pub max_pending: usize,
    /// An application waits this long at most (`SocksTimeout`).
    pub socks_timeout: Duration,
    /// An exit may take this long to answer before another is tried (`CircuitStreamTimeout`);
    /// `None`: 10 seconds twice, then 15.
    pub stream_timeout: Option<Duration>,
    /// Requests for internal addresses are refused (`ClientRejectInternalAddresses`).
    pub reject_internal: bool,
    /// Answers that are internal addresses are not believed
    /// (`ClientDNSRejectInternalAddresses`).
    pub reject_internal_answers: bool,
    /// Rule by which a circuit is chosen for a stream (`CircuitSelection`).
    pub selection: CircuitSelection,
    /// Streams are spread over conflux sets (`ConfluxEnabled`); `None`: the consensus decides.
    pub conflux: Option<bool>,
    /// Aim of the exits' scheduling on conflux sets (`ConfluxClientUX`).
    pub conflux_ux: DesiredUx,
    /// Tunnels of mTor, which some streams get.
    pub multipath: MultipathOptions,
    /// Signatures of relays' statements are checked. Not where nobody forges, in virtual time: a check takes 100 µs.
    pub check_statements: bool,
    /// Ports whose streams live long (`LongLivedPorts`).
    pub long_lived_ports: Vec<u16>,
    /// Requests to these are warned of (`WarnPlaintextPorts`).
    pub warn_plaintext_ports: Vec<u16>,
    /// Requests to these are refused (`RejectPlaintextPorts`).
    pub reject_plaintext_ports: Vec<u16>,
    /// Names may have any characters (`AllowNonRFC953Hostnames`).
    pub allow_strange_names: bool,
    /// Names that stand for others (`MapAddress`): from, to.
    pub maps: Vec<(String, String)>,
    /// Destinations that are kept to the exit that reached them (`TrackHostExits`), in lower case.
    pub track_hosts: Vec<String>,
    /// For how long after the last time (`TrackHostExitsExpire`).
    pub track_for: Duration,
    /// A controller attaches streams (`__LeaveStreamsUnattached`).
    pub leave_streams_unattached: bool,
    /// No circuits are built before they are needed (`__DisablePredictedCircuits`).
    pub disable_predicted: bool,
    /// Nothing is opened at all (`DisableNetwork`).
    pub disable_network: bool,
    /// When the client takes no part in the network.
    pub dormancy: DormancyOptions,
    /// Names that get virtual addresses when they are looked up (`AutomapHostsOnResolve`).
    pub automap: Automap,
    /// Where these are taken from (`VirtualAddrNetworkIPv4`, `VirtualAddrNetworkIPv6`).
    pub virtual_networks: VirtualNetworks,
    /// The settings of each listener, by number.
    pub listeners: Vec<ListenerConfig>,
}

impl ClientConfig {
    /// Returns true if a listener or a user name is configured for tunnels of mTor.
    pub(crate) fn offers_tunnels(&self) -> bool {
        let by_port = self.listeners.iter().any(|listener| listener.multipath);
        by_port || !self.multipath.users.is_empty()
    }
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            max_dirtiness: Duration::from_secs(600),
            new_circuit_period: Duration::from_secs(30),
            predict_for: Duration::from_secs(3600),
            max_pending: 32,
            socks_timeout: Duration::from_secs(120),
            stream_timeout: None,
            reject_internal: true,
            reject_internal_answers: true,
            selection: CircuitSelection::Default,
            conflux: None,
            conflux_ux: DesiredUx::HighThroughput,
            multipath: MultipathOptions::default(),
            check_statements: true,
            long_lived_ports: vec![
                21, 22, 706, 1863, 5050, 5190, 5222, 5223, 6523, 6667, 6697, 8300,
            ],
            warn_plaintext_ports: vec![23, 109, 110, 143],
            reject_plaintext_ports: Vec::new(),
            allow_strange_names: false,
            maps: Vec::new(),
            track_hosts: Vec::new(),
            track_for: Duration::from_secs(1800),
            leave_streams_unattached: false,
            disable_predicted: false,
            disable_network: false,
            dormancy: DormancyOptions::default(),
            automap: Automap::default(),
            virtual_networks: VirtualNetworks::default(),
            listeners: Vec::new(),
        }
    }
}

/// The settings of a listener for applications, for its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// The fields by which its streams are isolated.
    pub isolation: Isolation,
    /// Its session group.
    pub session_group: i64,
    /// IPv4 destinations are allowed (`NoIPv4Traffic`).
    pub ipv4: bool,
    /// IPv6 destinations are allowed (`IPv6Traffic`).
    pub ipv6: bool,
    /// Of both, IPv6 is better (`PreferIPv6`).
    pub prefer_ipv6: bool,
    /// Virtual addresses are those of IPv6 (not `NoPreferIPv6Automap`).
    pub prefer_ipv6_automap: bool,
    /// Names are allowed (`NoDNSRequest`).
    pub dns: bool,
    /// A circuit with user name and password stays usable as long as it is used
    /// (`KeepAliveIsolateSOCKSAuth`).
    pub keep_alive_auth: bool,
    /// Its connections get tunnels of mTor (`Multipath`).
    pub multipath: bool,
}

impl Default for ListenerConfig {
    fn default() -> Self {
        Self {
            isolation: Isolation::DEFAULT,
            session_group: 0,
            ipv4: true,
            ipv6: true,
            prefer_ipv6: true,
            prefer_ipv6_automap: true,
            dns: true,
            keep_alive_auth: false,
            multipath: false,
        }
    }
}
