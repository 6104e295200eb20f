//! What torrc and the consensus say to the threads that own sockets, beside what the local
//! connection manager follows ([`RelayParams`](weft_core::manager::RelayParams)).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_core::scheduler::kist;

use crate::torrc::options::SchedulerKind;

/// What a connection thread follows. Replaced whole when anything of it changes.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadParams {
    /// How the room of links is found (`Schedulers`).
    pub scheduler: SchedulerKind,
    /// How often the scheduler runs; zero: every turn (`KISTSchedRunInterval`).
    pub run_interval: Duration,
    /// Congestion windows that may wait in the kernel beside the one on the wire
    /// (`KISTSockBufSizeFactor`).
    pub sock_buf_size_factor: f64,
    /// Traffic to private addresses is limited and counted, too (`CountPrivateBandwidth`).
    pub count_private: bool,
    /// Bytes per second, and bytes at once, of each connection whose peer is no known relay
    /// (`PerConnBWRate`, `PerConnBWBurst`, consensus `perconnbwrate`, `perconnbwburst`).
    pub per_connection: Option<(u64, u64)>,
    /// RSA identities of the relays of the consensus; only where `per_connection` needs them.
    pub known_relays: Arc<BTreeSet<[u8; 20]>>,
    /// Addresses that NETINFO says are ours.
    pub my_addrs: Vec<IpAddr>,
    /// Peers that break the protocol are warned of (`ProtocolWarnings`).
    pub protocol_warnings: bool,
    /// How long an application may take to say what it wants (`SocksTimeout`).
    pub socks_timeout: Duration,
}

impl Default for ThreadParams {
    /// C tor's defaults.
    fn default() -> Self {
        ThreadParams {
            scheduler: SchedulerKind::Kist,
            run_interval: Duration::from_millis(2),
            sock_buf_size_factor: kist::DEFAULT_SOCK_BUF_SIZE_FACTOR,
            count_private: false,
            per_connection: None,
            known_relays: Arc::default(),
            my_addrs: Vec::new(),
            protocol_warnings: false,
            socks_timeout: Duration::from_secs(120),
        }
    }
}
