//! What the node runs by: every supported option as a typed value.
//!
//! Rates are bytes per second, amounts bytes, times [`Duration`](std::time::Duration)s. Where C tor has
//! `auto` or 0 mean "let the consensus or the machine decide", the field is an `Option`, and `None`
//! means that.

use weft_path::{BuildTimesOptions, PathOptions};

use crate::check::check;
use crate::host::Host;
use crate::report::Report;
use crate::settings::Settings;
use crate::{
    applications, bandwidth, bridge_relay, circuits, client_bridges, control, directory, dos, exit,
    files, identity, lifetimes, logs, metrics, network, paths, private_authority, process,
    resources, scheduling, statistics, testing,
};

pub use crate::applications::AppOptions;
pub use crate::bandwidth::BandwidthOptions;
pub use crate::bridge_relay::{BridgeRelayOptions, TransportProgram};
pub use crate::circuits::{CircuitOptions, MultipathEntry, MultipathOptions};
pub use crate::client_bridges::BridgeOptions;
pub use crate::control::ControlOptions;
pub use crate::directory::DirectoryOptions;
pub use crate::dos::DosOptions;
pub use crate::exit::{DnsOptions, ExitOptions};
pub use crate::files::FileOptions;
pub use crate::identity::IdentityOptions;
pub use crate::lifetimes::KeyOptions;
pub use crate::logs::LogOptions;
pub use crate::metrics::MetricsOptions;
pub use crate::network::{BindPair, NetworkOptions, OutboundBind};
pub use crate::private_authority::AuthorityOptions;
pub use crate::process::ProcessOptions;
pub use crate::resources::{MIN_MEM_IN_QUEUES, ResourceOptions};
pub use crate::scheduling::{SchedulerKind, SchedulingOptions};
pub use crate::statistics::StatisticsOptions;
pub use crate::table::known::MAX_CONNECTION_THREADS;
pub use crate::testing::TestingOptions;

/// A whole, valid configuration.
///
/// Made by [`load`](crate::load) and [`reload`](crate::reload); plain data from then on.
#[derive(Clone, Debug)]
pub struct Options {
    /// The relay's name, contact and family.
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
    /// Where the directory is, and what is published to it.
    pub directory: DirectoryOptions,
    /// What exit traffic is allowed.
    pub exit: ExitOptions,
    /// Defences against denial of service.
    pub dos: DosOptions,
    /// Key lifetimes.
    pub keys: KeyOptions,
    /// What is logged, and where.
    pub log: LogOptions,
    /// Where its counters can be fetched, and from which addresses.
    pub metrics: MetricsOptions,
    /// What this machine's applications may use it for, and where.
    pub apps: AppOptions,
    /// Where controllers connect, and how they authenticate.
    pub control: ControlOptions,
    /// What a relay does that is a bridge, and its pluggable transports.
    pub bridge_relay: BridgeRelayOptions,
    /// The bridges and pluggable transports of a client.
    pub bridges: BridgeOptions,
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
    /// What is counted of a relay's day, to be published.
    pub statistics: StatisticsOptions,
    /// How the process behaves.
    pub process: ProcessOptions,
    /// What the operator wrote, for `--dump-config` and to find what a reload changed.
    pub settings: Settings,
}

impl Options {
    /// Whether this node is a relay: it has an ORPort.
    #[must_use]
    pub fn is_relay(&self) -> bool {
        !self.network.or_ports.is_empty()
    }

    /// Whether this node is a client. A client has a port for applications or, without an ORPort, one for a controller, which
    /// may add the others and build circuits.
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
    let options = Options {
        identity: identity::read(&settings, report),
        bridges: client_bridges::read(&settings, host, network.proxy.is_some(), report),
        network,
        bandwidth: bandwidth::read(&settings, report),
        resources: resources::read(&settings),
        scheduling: scheduling::read(&settings),
        directory: directory::read(&settings, host, report),
        bridge_relay: bridge_relay::read(&settings, host, is_relay, &files.data_directory, report),
        exit: exit::read(&settings, is_relay, report),
        dos: dos::read(&settings),
        keys: lifetimes::read(&settings),
        metrics: metrics::read(&settings, host, report),
        apps: applications::read(&settings, host, is_relay, report),
        control: control::read(&settings, host, &files.data_directory, report),
        paths: paths::path_options(&settings, report),
        build_times: paths::build_times_options(&settings, report),
        authority: private_authority::authority_options(&settings, host, report),
        circuits: circuits::circuit_options(&settings, report),
        testing: testing::read(&settings),
        statistics: statistics::read(&settings, is_relay),
        process: process::read(&settings),
        files,
        log,
        settings,
    };
    (!report.has_errors()).then_some(options)
}
