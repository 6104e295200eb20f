//! The parameters of torrc and the consensus for threads that own sockets, beside those that the local
//! connection manager follows ([`RelayParams`](weft_core::params::RelayParams)).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_cell::identity::RsaIdentity;
use weft_config::options::{SchedulerKind, SchedulingOptions};

/// Parameters of a connection thread. Replaced whole when any of them changes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ThreadParams {
    /// Scheduler, which decides how much a link may write (`Schedulers`).
    pub scheduler: SchedulerKind,
    /// Interval of the scheduler; zero: every turn (`KISTSchedRunInterval`).
    pub run_interval: Duration,
    /// The rest of torrc on scheduling, whole, so that what writes to sockets reads from it.
    pub scheduling: SchedulingOptions,
    /// Traffic to private addresses is limited and counted, too (`CountPrivateBandwidth`).
    pub count_private: bool,
    /// Bytes per second, and bytes at once, of each connection whose peer is no known relay
    /// (`PerConnBWRate`, `PerConnBWBurst`, consensus `perconnbwrate`, `perconnbwburst`).
    pub per_connection: Option<(u64, u64)>,
    /// RSA identities of the relays of the consensus; only where `per_connection` needs them.
    pub known_relays: Arc<BTreeSet<RsaIdentity>>,
    /// Our addresses, for NETINFO.
    pub my_addrs: Vec<IpAddr>,
    /// Peers that break the protocol are warned of (`ProtocolWarnings`).
    pub protocol_warnings: bool,
    /// Bytes that exits move are counted by port (`ExitPortStatistics`).
    pub count_exit_ports: bool,
    /// Connections are counted by the way that they are used (`ConnDirectionStatistics`).
    pub count_directions: bool,
    /// The bytes of each connection are reported every second (`TestingEnableConnBwEvent`).
    pub count_connections: bool,
    /// Bytes that all threads may hold (`MaxMemInQueues`).
    pub max_memory: u64,
    /// Time that an application may take to send its request (`SocksTimeout`).
    pub socks_timeout: Duration,
}

impl Default for ThreadParams {
    /// C tor's defaults.
    fn default() -> Self {
        ThreadParams {
            scheduler: SchedulerKind::Kist,
            run_interval: Duration::from_millis(2),
            scheduling: SchedulingOptions::default(),
            count_private: false,
            per_connection: None,
            known_relays: Arc::default(),
            my_addrs: Vec::new(),
            protocol_warnings: false,
            count_exit_ports: false,
            count_directions: false,
            count_connections: false,
            max_memory: u64::MAX,
            socks_timeout: Duration::from_secs(120),
        }
    }
}
