//! Options of the node: every supported option as a typed value.
//!
//! Rates are bytes per second, amounts bytes, times [`Duration`](std::time::Duration)s. Where C tor has
//! `auto` or 0 mean "let the consensus or the machine decide", the field is an `Option`, and `None`
//! means that.

mod applications;
pub(crate) mod authority;
mod bandwidth;
mod bridge_relay;
mod check;
mod circuits;
mod client_bridges;
mod client_ports;
mod control;
pub(crate) mod directory;
mod dos;
mod exit;
mod files;
mod identity;
mod lifetimes;
mod logs;
mod metrics;
mod network;
mod onion_services;
mod paths;
mod private_network;
mod process;
mod proxies;
mod reachable;
mod resources;
mod scheduling;
mod statistics;

use weft_path::{BuildTimesOptions, PathOptions};

use self::check::check;
use crate::host::Host;
use crate::report::Report;
use crate::settings::Settings;

pub use self::applications::AppOptions;
pub use self::authority::AuthorityOptions;
pub use self::bandwidth::BandwidthOptions;
pub use self::bridge_relay::{BridgeRelayOptions, TransportProgram};
pub use self::circuits::{CircuitOptions, MultipathEntry, MultipathOptions};
pub use self::client_bridges::{BridgeLine, BridgeOptions, PluginKind, parse_bridge};
pub use self::client_ports::{AppPort, AppService, ListenAt, Redirection, StreamFlags, UnixPath};
pub use self::control::ControlOptions;
pub use self::directory::DirectoryOptions;
pub use self::dos::DosOptions;
pub use self::exit::{DnsOptions, ExitOptions};
pub use self::files::FileOptions;
pub use self::identity::IdentityOptions;
pub use self::lifetimes::KeyOptions;
pub use self::logs::LogOptions;
pub use self::metrics::MetricsOptions;
pub use self::network::{BindPair, NetworkOptions, OutboundBind};
pub use self::private_network::TestingOptions;
pub use self::process::ProcessOptions;
pub use self::resources::{MIN_MEM_IN_QUEUES, ResourceOptions};
pub use self::scheduling::{SchedulerKind, SchedulingOptions};
pub use self::statistics::StatisticsOptions;
pub use crate::table::known::MAX_CONNECTION_THREADS;

/// A whole, valid configuration.
///
/// Made by [`load`](fn@crate::load) and [`reload`](fn@crate::reload); plain data from then on.
#[derive(Clone, Debug)]
pub struct Options {
    /// The relay's name, contact and family.
    pub identity: IdentityOptions,
    /// Where its files are.
    pub files: FileOptions,
    /// Its listeners, and the addresses that others may connect to.
    pub network: NetworkOptions,
    /// Bandwidth that it may use.
    pub bandwidth: BandwidthOptions,
    /// Memory, threads, sockets.
    pub resources: ResourceOptions,
    /// Scheduling of cells, and padding of links.
    pub scheduling: SchedulingOptions,
    /// Sources of the directory, and publication.
    pub directory: DirectoryOptions,
    /// Exit policy, and name lookups.
    pub exit: ExitOptions,
    /// Defences against denial of service.
    pub dos: DosOptions,
    /// Key lifetimes.
    pub keys: KeyOptions,
    /// Log lines to write, and their destinations.
    pub log: LogOptions,
    /// Where its counters can be fetched, and from which addresses.
    pub metrics: MetricsOptions,
    /// Services for applications of this machine, and their ports.
    pub apps: AppOptions,
    /// Where controllers connect, and how they authenticate.
    pub control: ControlOptions,
    /// The relay as a bridge, and its pluggable transports.
    pub bridge_relay: BridgeRelayOptions,
    /// The bridges and pluggable transports of a client.
    pub bridges: BridgeOptions,
    /// Path selection.
    pub paths: PathOptions,
    /// Timeouts of circuit building.
    pub build_times: BuildTimesOptions,
    /// The authority of a private network that it is.
    pub authority: Option<AuthorityOptions>,
    /// Use of circuits and streams.
    pub circuits: CircuitOptions,
    /// Options that only private networks change.
    pub testing: TestingOptions,
    /// Statistics of a relay's day to publish.
    pub statistics: StatisticsOptions,
    /// Options of the process.
    pub process: ProcessOptions,
    /// Settings as the operator wrote them, for `--dump-config` and for the changes of a reload.
    pub settings: Settings,
}

impl Options {
    /// Returns true if this node is a relay: it has an ORPort.
    #[must_use]
    pub fn is_relay(&self) -> bool {
        !self.network.or_ports.is_empty()
    }

    /// Returns true if this node is a client. A client has a port for applications or, without an
    /// ORPort, one for a controller, which may add the others and build circuits.
    #[must_use]
    pub fn is_client(&self) -> bool {
        let is_led = !self.is_relay() && !self.control.ports.is_empty();
        is_led || !self.apps.ports.is_empty()
    }
}

/// Checks settings and makes options of them. `None`: `report` has the reasons.
pub(crate) fn build(
    mut settings: Settings,
    host: &dyn Host,
    report: &mut Report,
) -> Option<Options> {
    let or_ports = check(&mut settings, host, report);
    let is_relay = !or_ports.is_empty();
    let files = files::read(&settings, host, report);
    let log = logs::read(&settings, host, report);
    files::check_relative(&files, &log, &settings, report);
    let network = network::read(or_ports, &settings, host, report);
    let directory = directory::read(&settings, host, report);
    let options = Options {
        identity: identity::read(&settings, report),
        bridges: client_bridges::read(&settings, host, network.proxy.is_some(), report),
        network,
        bandwidth: bandwidth::read(&settings, report),
        resources: resources::read(&settings),
        scheduling: scheduling::read(&settings),
        bridge_relay: bridge_relay::read(&settings, host, is_relay, &files.data_directory, report),
        exit: exit::read(&settings, is_relay, report),
        dos: dos::read(&settings),
        keys: lifetimes::read(&settings),
        metrics: metrics::read(&settings, host, report),
        apps: applications::read(&settings, host, is_relay, report),
        control: control::read(&settings, host, &files.data_directory, report),
        paths: paths::path_options(&settings, report),
        build_times: paths::build_times_options(&settings, report),
        authority: authority::authority_options(&settings, &directory.dir_ports, report),
        circuits: circuits::circuit_options(&settings, report),
        testing: private_network::read(&settings),
        statistics: statistics::read(&settings, is_relay),
        process: process::read(&settings),
        directory,
        files,
        log,
        settings,
    };
    (!report.has_errors()).then_some(options)
}
