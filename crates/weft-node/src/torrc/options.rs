//! What the node runs by: every supported option as a typed value.
//!
//! Rates are bytes per second, amounts bytes, times [`Duration`]s. Where C tor has `auto` or 0 mean
//! "let the consensus or the machine decide", the field is an `Option` and `None` says that.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weft_path::{BuildTimesOptions, PathOptions};
use weft_proxy::{Proxy, Route};

use super::access::AccessPolicy;
use super::authority::DirAuthority;
use super::circuits::CircuitOptions;
use super::client_ports::{AppPort, ListenAt};
use super::fallback::FallbackDir;
use super::policy::ExitPolicy;
use super::ports::OrPort;
use super::private_authority::AuthorityOptions;
use super::settings::Settings;
use super::virtual_networks::VirtualNetworks;
use crate::logging::{LogLine, SafeLogging};

/// A whole, valid configuration.
///
/// Made by [`load`](super::load) and [`reload`](super::reload); plain data from then on.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who the relay says it is.
    pub identity: IdentityOptions,
    /// Where its files are.
    pub files: FileOptions,
    /// Where it listens, and what others may connect to.
    pub network: NetworkOptions,
    /// How much it may carry.
    pub bandwidth: BandwidthOptions,
    /// Memory, threads, sockets.
    pub resources: ResourceOptions,
    /// How cells are scheduled and links padded.
    pub scheduling: SchedulingOptions,
    /// Where the directory is, and what is told to it.
    pub directory: DirectoryOptions,
    /// What exit traffic is allowed.
    pub exit: ExitOptions,
    /// Defences against denial of service.
    pub dos: DosOptions,
    /// Key lifetimes.
    pub keys: KeyOptions,
    /// What is logged, and where.
    pub log: LogOptions,
    /// Who may look at its counters, and where.
    pub metrics: MetricsOptions,
    /// What this machine's applications may use it for, and where.
    pub apps: AppOptions,
    /// Who may control it, and where.
    pub control: ControlOptions,
    /// How paths are chosen.
    pub paths: PathOptions,
    /// How long circuits may take to be built.
    pub build_times: BuildTimesOptions,
    /// The authority of a private network that it is.
    pub authority: Option<AuthorityOptions>,
    /// How circuits and streams are used.
    pub circuits: CircuitOptions,
    /// What only private networks change.
    pub testing: TestingOptions,
    /// How the process behaves.
    pub process: ProcessOptions,
    /// What the operator wrote, for `--dump-config` and for telling what a reload changed.
    pub settings: Settings,
}

/// Who the relay says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityOptions {
    /// `Nickname`: 1 to 19 letters and digits; "Unnamed" where none is set.
    pub nickname: String,
    /// `ContactInfo`.
    pub contact_info: Option<String>,
    /// `MyFamily`: relays of the same operator, each a `$FINGERPRINT` in upper case or a nickname in
    /// lower case.
    pub my_family: Vec<String>,
}

/// Where files are. Directories are not created or checked here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// `DataDirectory`.
    pub data_directory: PathBuf,
    /// `KeyDirectory`; `keys` in the data directory unless set.
    pub key_directory: PathBuf,
    /// `CacheDirectory`; the data directory unless set.
    pub cache_directory: PathBuf,
    /// `DataDirectoryGroupReadable`.
    pub data_directory_group_readable: bool,
    /// `KeyDirectoryGroupReadable`, with `auto` resolved.
    pub key_directory_group_readable: bool,
    /// `CacheDirectoryGroupReadable`, with `auto` resolved.
    pub cache_directory_group_readable: bool,
    /// `PidFile`.
    pub pid_file: Option<PathBuf>,
}

/// Where the relay listens, and which addresses it may speak to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkOptions {
    /// `DisableNetwork`: nothing but control ports is opened, and no connection made.
    pub disabled: bool,
    /// `Socks4Proxy`, `Socks5Proxy` or `HTTPSProxy`: connections to relays and directories go
    /// through it.
    pub proxy: Option<Arc<Proxy>>,
    /// `ORPort`, ready to bind and to advertise. Empty: this node is no relay.
    pub or_ports: Vec<OrPort>,
    /// `Address`: the relay's own addresses or host names, as the operator gave them. Empty: to be
    /// found out.
    pub addresses: Vec<String>,
    /// `AddressDisableIPv6`: never find out, nor advertise, an IPv6 address.
    pub address_disable_ipv6: bool,
    /// `OutboundBindAddress…`.
    pub outbound_bind: OutboundBind,
    /// `ExtendAllowPrivateAddresses`: EXTEND cells may name private addresses.
    pub extend_allow_private_addresses: bool,
    /// `ExtendByEd25519ID`: put ed25519 identities into EXTEND2 cells (`None`: by consensus).
    pub extend_by_ed25519_id: Option<bool>,
    /// `KeepalivePeriod`: idle links get a padding cell this often.
    pub keepalive_period: Duration,
}

/// The source addresses of connections that the relay opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboundBind {
    /// `OutboundBindAddress`: where nothing more exact is set.
    pub any: BindPair,
    /// `OutboundBindAddressOR`: to other relays.
    pub or: BindPair,
    /// `OutboundBindAddressExit`: exit traffic.
    pub exit: BindPair,
}

/// One address per family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BindPair {
    /// For IPv4 connections.
    pub v4: Option<Ipv4Addr>,
    /// For IPv6 connections.
    pub v6: Option<Ipv6Addr>,
}

impl OutboundBind {
    /// The address from which to connect to another relay at `to`.
    #[must_use]
    pub fn for_relay(&self, to: IpAddr) -> Option<IpAddr> {
        match to {
            IpAddr::V4(_) => self.or.v4.or(self.any.v4).map(IpAddr::V4),
            IpAddr::V6(_) => self.or.v6.or(self.any.v6).map(IpAddr::V6),
        }
    }

    /// The address from which to connect to `to` for an exit stream.
    #[must_use]
    pub fn for_exit(&self, to: IpAddr) -> Option<IpAddr> {
        match to {
            IpAddr::V4(_) => self.exit.v4.or(self.any.v4).map(IpAddr::V4),
            IpAddr::V6(_) => self.exit.v6.or(self.any.v6).map(IpAddr::V6),
        }
    }

    /// Every address of them.
    pub fn all(&self) -> impl Iterator<Item = IpAddr> {
        [self.any, self.or, self.exit].into_iter().flat_map(|pair| {
            let v6 = pair.v6.map(IpAddr::V6);
            pair.v4.map(IpAddr::V4).into_iter().chain(v6)
        })
    }
}

impl NetworkOptions {
    /// How a connection to this relay or directory is opened.
    #[must_use]
    pub fn route(&self, to: SocketAddr) -> Route {
        let first = self.proxy.as_ref().map_or(to, |proxy| proxy.addr);
        Route {
            bind: self.outbound_bind.for_relay(first.ip()),
            proxy: self.proxy.clone(),
        }
    }
}

/// How much the relay may carry; bytes per second and bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandwidthOptions {
    /// `BandwidthRate`: everything that the node sends, or receives.
    pub rate: u64,
    /// `BandwidthBurst`.
    pub burst: u64,
    /// `RelayBandwidthRate`: what it relays for others (`None`: only `rate` limits).
    pub relay_rate: Option<u64>,
    /// `RelayBandwidthBurst`; set exactly when `relay_rate` is.
    pub relay_burst: Option<u64>,
    /// `MaxAdvertisedBandwidth`: the descriptor claims no more than this.
    pub max_advertised: u64,
    /// `CountPrivateBandwidth`: traffic to private addresses counts too.
    pub count_private: bool,
    /// `PerConnBWRate`: of each connection to what is no known relay (`None`: by consensus).
    pub per_connection_rate: Option<u64>,
    /// `PerConnBWBurst`.
    pub per_connection_burst: Option<u64>,
}

impl BandwidthOptions {
    /// The rate that the descriptor gives as "bandwidth-avg" (relay_get_effective_bwrate).
    #[must_use]
    pub fn effective_rate(&self) -> u64 {
        self.relay_rate
            .unwrap_or(u64::MAX)
            .min(self.rate)
            .min(self.max_advertised)
    }

    /// The burst that the descriptor gives as "bandwidth-burst" (relay_get_effective_bwburst).
    #[must_use]
    pub fn effective_burst(&self) -> u64 {
        self.relay_burst.unwrap_or(u64::MAX).min(self.burst)
    }
}

/// The least `MaxMemInQueues` of a relay, in bytes (MIN_SERVER_MB of config.c).
pub const MIN_MEM_IN_QUEUES: u64 = 64 << 20;
/// The most `ConnectionThreads`: the rings between them grow with the square of their number.
pub const MAX_CONNECTION_THREADS: u32 = 256;

/// Memory, threads, sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceOptions {
    /// `MaxMemInQueues`, in bytes, at least [`MIN_MEM_IN_QUEUES`]; `None`: see
    /// [`max_mem_in_queues`](ResourceOptions::max_mem_in_queues).
    pub max_mem_in_queues_set: Option<u64>,
    /// `NumCPUs`: how many threads do onionskins (`None`: as many as there are cores).
    pub num_cpus: Option<u32>,
    /// `ConnectionThreads` (Weft's own): threads that own links. `None`: the cores that the process
    /// may use. `Some(0)`: everything on the main thread. At most [`MAX_CONNECTION_THREADS`].
    pub connection_threads: Option<u32>,
    /// `ConnLimit`: file descriptors that must be available.
    pub conn_limit: u32,
    /// `ConstrainedSockets` and `ConstrainedSockSize`: the bytes that the kernel may keep for a
    /// socket in each direction (`None`: as many as it likes).
    pub constrained_sock_size: Option<usize>,
    /// `MaxOnionQueueDelay`: how long a CREATE cell may wait (`None`: by consensus).
    pub max_onion_queue_delay: Option<Duration>,
}

impl ResourceOptions {
    /// What `MaxMemInQueues` comes to on a machine with this much memory, in bytes (config.c,
    /// `compute_real_max_mem_in_queues`): what the operator set, at least
    /// [`MIN_MEM_IN_QUEUES`]; else two fifths of the memory from 8 GB up, three quarters below,
    /// and between 256 MB and 8 GB (2 GB where addresses have 32 bits).
    #[must_use]
    pub fn max_mem_in_queues(&self, total_memory: Option<u64>) -> u64 {
        const GB: u64 = 1 << 30;
        let most = if cfg!(target_pointer_width = "64") {
            8 * GB
        } else {
            2 * GB
        };
        match (self.max_mem_in_queues_set, total_memory) {
            (Some(set), _) => set,
            (None, None) => most,
            (None, Some(ram)) => {
                let share = if ram >= 8 * GB {
                    ram / 5 * 2
                } else {
                    ram / 4 * 3
                };
                share.clamp(GB / 4, most)
            }
        }
    }
}

/// A way to choose which link's cells are sent next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerKind {
    /// By what the kernel tells of each socket.
    Kist,
    /// KIST without the kernel.
    KistLite,
    /// As much as fits.
    Vanilla,
}

/// How cells are scheduled and links padded.
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

/// Where the directory is, and what is told to it.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectoryOptions {
    /// `DirAuthority`, or the real network's.
    pub authorities: Vec<DirAuthority>,
    /// Whether `authorities` are the real network's.
    pub default_authorities: bool,
    /// `PublishServerDescriptor`: whether the descriptor is uploaded.
    pub publish: bool,
    /// `AssumeReachable`: publish without having been reached from outside.
    pub assume_reachable: bool,
    /// `AssumeReachableIPv6`, with `auto` resolved.
    pub assume_reachable_ipv6: bool,
    /// `DirAllowPrivateAddresses`: descriptors with private addresses are fine.
    pub allow_private_addresses: bool,
    /// `ExtraInfoStatistics`: the extra-info document carries statistics.
    pub extra_info_statistics: bool,
    /// `OverloadStatistics`: the descriptor says when the relay was overloaded.
    pub overload_statistics: bool,
    /// `FallbackDir`, or the real network's; none where authorities are a torrc's own.
    pub fallbacks: Vec<FallbackDir>,
    /// `PathsNeededToBuildCircuits`: a fraction; `None`: as the consensus says.
    pub paths_needed: Option<f64>,
    /// `DirCache`: serve directory documents to clients.
    pub cache: bool,
}

/// What exit traffic is allowed, and how the names that it leads to are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitOptions {
    /// The policy to publish and obey: what `ExitPolicy`, `ReducedExitPolicy`, `IPv6Exit` and the
    /// rest ask for, but for the relay's own addresses.
    pub policy: ExitPolicy,
    /// `IPv6Exit`.
    pub ipv6: bool,
    /// `ExitPolicyRejectPrivate`: the relay's own addresses are rejected, besides the private
    /// networks that `policy` rejects.
    pub reject_private: bool,
    /// `ExitPolicyRejectLocalInterfaces`: the addresses of this machine's interfaces, and those that
    /// connections are opened from, are rejected, too.
    pub reject_local_interfaces: bool,
    /// `RefuseUnknownExits`: no streams on circuits that come from relays that the consensus does
    /// not list (`None`: by consensus).
    pub refuse_unknown: Option<bool>,
    /// Name servers.
    pub dns: DnsOptions,
}

/// How an exit looks names up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsOptions {
    /// `ServerDNSResolvConfFile` (`None`: the system's).
    pub resolv_conf: Option<PathBuf>,
    /// `ServerDNSAllowBrokenConfig`: start even if that file cannot be read.
    pub allow_broken_config: bool,
    /// `ServerDNSSearchDomains`.
    pub search_domains: bool,
    /// `ServerDNSRandomizeCase`.
    pub randomize_case: bool,
    /// `ServerDNSDetectHijacking`.
    pub detect_hijacking: bool,
    /// `ServerDNSTestAddresses`, in lower case.
    pub test_addresses: Vec<String>,
    /// `ServerDNSAllowNonRFC953Hostnames`.
    pub allow_non_rfc953: bool,
}

/// Defences against denial of service; `None` everywhere means by consensus (C tor's
/// src/core/or/dos.c has the defaults).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DosOptions {
    /// `DoSCircuitCreationEnabled`.
    pub circuit_creation_enabled: Option<bool>,
    /// `DoSCircuitCreationMinConnections`: links from one address before it is looked at.
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

/// Key lifetimes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyOptions {
    /// `OfflineMasterKey`: the master secret is not here, and is never made.
    pub offline_master_key: bool,
    /// `SigningKeyLifetime`.
    pub signing_key_lifetime: Duration,
    /// `TestingSigningKeySlop`: a signing key is renewed this long before it ends.
    pub signing_key_slop: Duration,
    /// `TestingLinkCertLifetime`.
    pub link_cert_lifetime: Duration,
    /// `TestingLinkKeySlop`.
    pub link_key_slop: Duration,
    /// `TestingAuthKeyLifetime`.
    pub auth_key_lifetime: Duration,
    /// `TestingAuthKeySlop`.
    pub auth_key_slop: Duration,
}

/// Who may look at the relay's counters, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsOptions {
    /// `MetricsPort`, ready to bind; never advertised. Empty: nowhere.
    pub ports: Vec<OrPort>,
    /// `MetricsPortPolicy`.
    pub policy: AccessPolicy,
}

/// What this machine's applications may use the node for, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)]
pub struct AppOptions {
    /// `SocksPort`, `HTTPTunnelPort`, `DNSPort`. Empty: this node is no client.
    pub ports: Vec<AppPort>,
    /// `SocksPolicy`: who is [refused](AccessPolicy::rejects).
    pub policy: AccessPolicy,
    /// `SafeSocks`: requests that show that the application looked up the name itself are refused.
    pub safe_socks: bool,
    /// `TestSocks`: each request is told of in the log, as safe or unsafe.
    pub test_socks: bool,
    /// `SocksTimeout`: how long an application waits.
    pub timeout: Duration,
    /// `ClientRejectInternalAddresses`: private addresses are refused.
    pub reject_internal_addresses: bool,
    /// `ClientDNSRejectInternalAddresses`: exits are not believed that name private addresses.
    pub reject_internal_answers: bool,
    /// `AllowNonRFC953Hostnames`: names may have characters that names do not have.
    pub allow_strange_names: bool,
    /// `WarnPlaintextPorts`.
    pub warn_plaintext_ports: Vec<u16>,
    /// `RejectPlaintextPorts`.
    pub reject_plaintext_ports: Vec<u16>,
    /// Where addresses are taken from that controllers map.
    pub virtual_networks: VirtualNetworks,
}

/// Who may control the node, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlOptions {
    /// `ControlPort` and `ControlSocket`.
    pub ports: Vec<ListenAt>,
    /// `CookieAuthentication`: the file that the secret is written to.
    pub cookie_file: Option<PathBuf>,
    /// `CookieAuthFileGroupReadable`.
    pub cookie_group_readable: bool,
    /// `HashedControlPassword` and `__HashedControlSessionPassword`: salt, count and digest, as
    /// `--hash-password` writes them, without `16:`.
    pub hashed_passwords: Vec<[u8; 29]>,
    /// `ControlPortWriteToFile`.
    pub write_to_file: Option<PathBuf>,
    /// `ControlPortFileGroupReadable`.
    pub file_group_readable: bool,
    /// `__OwningControllerProcess`: the node ends when this process does.
    pub owning_process: Option<u32>,
}

/// What is logged, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// `Log`. Empty: notices to standard output (`--hush`: warnings; `--quiet`: nothing), where
    /// there is one.
    pub lines: Vec<LogLine>,
    /// `RunAsDaemon`: there is no standard output.
    pub no_stdout: bool,
    /// `SafeLogging`.
    pub safe: SafeLogging,
    /// `LogTimeGranularity`: a divisor or a multiple of one second.
    pub granularity: Duration,
    /// `TruncateLogFile`.
    pub truncate: bool,
    /// `LogMessageDomains`: each line tells its domain.
    pub domains: bool,
    /// `SyslogIdentityTag`.
    pub syslog_tag: Option<String>,
    /// `ProtocolWarnings`: warn when others break the protocol.
    pub protocol_warnings: bool,
    /// `HeartbeatPeriod` (`None`: no heartbeat).
    pub heartbeat_period: Option<Duration>,
}

impl Default for LogOptions {
    /// What is in force until torrc is read.
    fn default() -> Self {
        Self {
            lines: Vec::new(),
            no_stdout: false,
            safe: SafeLogging::All,
            granularity: Duration::from_secs(1),
            truncate: false,
            domains: false,
            syslog_tag: None,
            protocol_warnings: false,
            heartbeat_period: None,
        }
    }
}

/// What only private networks change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestingOptions {
    /// `TestingTorNetwork`.
    pub network: bool,
    /// `TestingMinTimeToReportBandwidth`: a relay's bandwidth is told after this.
    pub min_time_to_report_bandwidth: Duration,
    /// `TestingDirConnectionMaxStall`: a directory request that stands still this long fails.
    pub dir_connection_max_stall: Duration,
    /// `TestingServerConsensusDownloadInitialDelay`.
    pub server_consensus_download_initial_delay: Duration,
}

/// How the process behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessOptions {
    /// `User`: whom to become once ports are bound.
    pub user: Option<String>,
    /// `ShutdownWaitLength`: from SIGINT to the end.
    pub shutdown_wait_length: Duration,
    /// `__ReloadTorrcOnSIGHUP`.
    pub reload_on_sighup: bool,
    /// `RunAsDaemon`: go into the background.
    pub run_as_daemon: bool,
}

impl Options {
    /// Whether this node is a relay: it has an ORPort.
    #[must_use]
    pub fn is_relay(&self) -> bool {
        !self.network.or_ports.is_empty()
    }

    /// Whether this node is a client: it has a port for applications.
    #[must_use]
    pub fn is_client(&self) -> bool {
        !self.apps.ports.is_empty()
    }
}
