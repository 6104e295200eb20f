//! Messages between a node and its directory task: commands to the task, events from it.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use tor_netdoc::types::relay_flags::{RelayFlag, RelayFlags};

use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_proxy::Route;

use crate::authority::Authority;
use crate::bandwidth::Totals;
use crate::consensus::Consensus;
use crate::descriptor::OwnDescriptor;
use crate::downloads::Downloads;
pub use crate::schedule::Earliness;

/// Settings of the directory task.
#[derive(Clone, Debug)]
pub struct DirectoryOptions {
    /// Nothing is asked for or published, nor read from the cache, for now (DisableNetwork).
    pub disabled: bool,
    /// The directory authorities.
    pub authorities: Vec<Authority>,
    /// CacheDirectory.
    pub cache_directory: PathBuf,
    /// BridgeRelay: the descriptor goes to authorities of bridges alone, and is served as soon as there is one.
    pub bridge: bool,
    /// True if our descriptor is published (PublishServerDescriptor).
    pub publish: bool,
    /// TestingTorNetwork: shorter retries, bandwidth published at once.
    pub testing: bool,
    /// AssumeReachable: publish without having been found reachable.
    pub assume_reachable: bool,
    /// DirCache: fetch and serve what clients ask for.
    pub dir_cache: bool,
    /// DownloadExtraInfo: a cache fetches extra-info documents, too.
    pub download_extra_info: bool,
    /// Largest age of a consensus from which a diff to the newest is made
    /// (MaxConsensusAgeForDiffs); `None`: the consensus parameter.
    pub max_diff_age: Option<Duration>,
    /// DirPortFrontPage: the page for people.
    pub front_page: Option<Arc<[u8]>>,
    /// Local address and proxies of connections to directories (OutboundBindAddress, Socks5Proxy
    /// and the like).
    pub route: Route,
    /// Observation shorter than this is not published (TestingMinTimeToReportBandwidth; one day,
    /// zero in testing networks).
    pub min_time_to_report_bandwidth: Duration,
    /// First delay of consensus downloads (TestingServerConsensusDownloadInitialDelay).
    pub consensus_initial_delay: Duration,
    /// First delay of all other downloads (TestingServerDownloadInitialDelay).
    pub download_initial_delay: Duration,
    /// Nothing is downloaded where this is false (FetchServerDescriptors).
    pub fetch: bool,
    /// FetchDirInfoEarly, FetchDirInfoExtraEarly.
    pub earliness: Earliness,
    /// A directory connection without progress for this long is given up
    /// (TestingDirConnectionMaxStall; five minutes, 30 seconds in testing networks).
    pub max_stall: Duration,
}

impl DirectoryOptions {
    /// C tor's defaults for a public or a testing network.
    pub fn new(authorities: Vec<Authority>, cache_directory: PathBuf, testing: bool) -> Self {
        Self {
            disabled: false,
            authorities,
            cache_directory,
            bridge: false,
            publish: true,
            testing,
            assume_reachable: false,
            dir_cache: false,
            download_extra_info: false,
            max_diff_age: None,
            front_page: None,
            route: Route::default(),
            min_time_to_report_bandwidth: Duration::from_secs(if testing { 0 } else { 86_400 }),
            consensus_initial_delay: Duration::ZERO,
            download_initial_delay: Duration::ZERO,
            fetch: true,
            earliness: Earliness::Usual,
            max_stall: Duration::from_secs(if testing { 30 } else { 300 }),
        }
    }
}

/// A message from a node to the directory task.
#[derive(Debug)]
pub enum Command {
    /// The settings have changed (SIGHUP).
    Options(Box<DirectoryOptions>),
    /// Our own descriptor's contents: at the start, and again whenever something of it changes
    /// (address, keys, policy, rates). Published only if it differs from what was published.
    Descriptor(Box<OwnDescriptor>),
    /// Publish as soon as possible, for this reason (SIGHUP: "config change").
    Publish(&'static str),
    /// Reachability of our ORPorts.
    Reachable {
        /// The IPv4 ORPort.
        ipv4: bool,
        /// The IPv6 ORPort; true if there is none.
        ipv6: bool,
    },
    /// Bytes moved since the node's start; send every second or so.
    Bandwidth(Totals),
    /// The statistics of the next extra-info document, without histories of bandwidth: whole lines in each.
    Statistics(Vec<String>),
    /// We were overloaded at this moment (onionskins dropped, memory or bandwidth exhausted).
    Overloaded(SystemTime),
    /// Write caches, send the state, end.
    Shutdown,
}

/// The result of one upload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UploadOutcome {
    /// 200: taken. C tor answers the same to a descriptor that it cannot parse or verify, so only
    /// [`Event::Listed`] proves that an authority knows us.
    Accepted,
    /// 200, but the authority keeps what it has (`X-Descriptor-Not-New`), which has the same contents.
    NotNew,
    /// 200, but the authority keeps another descriptor of ours, published at this time, which is
    /// not before ours: another one is made.
    Overtaken(SystemTime),
    /// 400: refused for this reason; not repeated until the descriptor changes.
    Refused(String),
    /// Any other answer or none; tried again later.
    Failed(String),
}

impl UploadOutcome {
    /// True if the authority now has a descriptor of ours that it accepts.
    pub(crate) fn is_success(&self) -> bool {
        matches!(self, Self::Accepted | Self::NotNew)
    }
}

/// Severity of a message, in C tor's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// For details.
    Info,
    /// For the operator.
    Notice,
    /// Something that the operator should act on.
    Warn,
}

/// A message from the directory task to its node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A consensus has been verified: from the cache at the start, then each new one. Its
    /// `params` are to be followed from now on.
    Consensus(Arc<Consensus>),
    /// The cache has been read, once after each start; its consensus was reported before, if it has one.
    CacheRead,
    /// Progress of the bootstrap, in C tor's phases (`Bootstrapped 25% (…)`).
    Bootstrap {
        /// Percent done.
        percent: u8,
        /// C tor's tag of the phase.
        tag: &'static str,
        /// C tor's summary of the phase.
        summary: &'static str,
    },
    /// One authority answered an upload, or failed to.
    Uploaded {
        /// Nickname of the authority.
        authority: String,
        /// Its answer.
        outcome: UploadOutcome,
    },
    /// Every authority has been asked to take the descriptor.
    Published {
        /// Authorities that have it.
        accepted: usize,
        /// Authorities asked.
        of: usize,
        /// Why it was published.
        reason: &'static str,
        /// Observed bandwidth in it, in bytes per second.
        observed: u64,
    },
    /// The consensus began or ceased to list us, or changed our flags.
    Listed(Option<RelayFlags>),
    /// The consensus recommends or requires subprotocols that we do not speak; sent when that
    /// changes. C tor 0.4.9's authorities require directory-cache and onion-service protocols of
    /// every relay, yet list relays without them: whether to go on is the node's decision. A client's
    /// directory sends an empty list, not required, when nothing is missing any more.
    MissingProtocols {
        /// Required, not only recommended.
        required: bool,
        /// The subprotocols.
        protocols: String,
    },
    /// Our clock and a directory's differ by more than C tor's 30 minutes, or the consensus
    /// begins in the future.
    ClockSkew {
        /// Our time minus theirs, in seconds.
        seconds: i64,
        /// The directory that sent the other time.
        source: String,
    },
    /// An authority sees us at this address.
    AddressSuggested {
        /// The address.
        address: IpAddr,
        /// Nickname of the authority.
        source: String,
    },
    /// A directory cache has fetched these descriptors: of which relays, and what they call themselves.
    NewDescriptors(Vec<(RsaIdentity, String)>),
    /// Bandwidth history for the state file: `BWHistory…` keys and values.
    State(Vec<(String, String)>),
    /// State of the fetches of consensus and certificates; sent when it changes.
    Downloads(Box<Downloads>),
    /// Something for the log.
    Message(Severity, String),
}
