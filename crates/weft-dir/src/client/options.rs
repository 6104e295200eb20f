//! Settings of a client's directory, and the directories that it knows from its torrc.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tor_llcrypto::pk::ed25519::Ed25519Identity;
use tor_llcrypto::pk::rsa::RsaIdentity;

use crate::authority::Authority;
use crate::schedule::Earliness;

/// A directory that is known before there is a consensus: an authority or a fallback.
#[derive(Clone, Debug, PartialEq)]
pub struct DirServer {
    /// Name for log lines; empty if it has none.
    pub nickname: String,
    /// Digest of its RSA identity.
    pub rsa: RsaIdentity,
    /// Its ed25519 identity, if torrc has it.
    pub ed25519: Option<Ed25519Identity>,
    /// Its ORPorts.
    pub or_addrs: Vec<SocketAddr>,
    /// Its DirPort, which only tests use: a client always asks by way of its ORPort.
    pub dir_addr: Option<SocketAddr>,
    /// Weight in the random choice among servers (`weight=`).
    pub weight: f64,
    /// True if it is an authority. C tor asks authorities only after fallbacks have failed, or if
    /// there is no fallback.
    pub authority: bool,
}

/// Schedule of a client's requests for its first consensus. It connects to several directories at
/// once, and asks the first that it reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootstrapOptions {
    /// Connections that are begun at once at most (ClientBootstrapConsensusMaxInProgressTries).
    pub max_tries: usize,
    /// Delay before it tries the first (ClientBootstrapConsensusFallbackDownloadInitialDelay).
    pub fallback_delay: Duration,
    /// Delay before it also tries an authority
    /// (ClientBootstrapConsensusAuthorityDownloadInitialDelay); `None` if it never does.
    pub authority_delay: Option<Duration>,
    /// Replaces `fallback_delay` if there are only authorities
    /// (ClientBootstrapConsensusAuthorityOnlyDownloadInitialDelay).
    pub authority_only_delay: Duration,
}

impl Default for BootstrapOptions {
    /// One directory after the other.
    fn default() -> Self {
        Self {
            max_tries: 3,
            fallback_delay: Duration::ZERO,
            authority_delay: None,
            authority_only_delay: Duration::ZERO,
        }
    }
}

/// Settings of a client's directory.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Nothing is asked for, nor read from the cache, for now (DisableNetwork).
    pub disabled: bool,
    /// The authorities: whose signatures count.
    pub authorities: Vec<Authority>,
    /// The directories to ask before there are guards: authorities with an ORPort, and fallbacks.
    pub servers: Vec<DirServer>,
    /// Only guards are asked, which are bridges, and none of `servers`: there are guards without a network, as soon as
    /// [`set_bridges`](super::ClientHandle::set_bridges) reports one.
    pub by_bridges: bool,
    /// CacheDirectory; `None`: nothing is read or written (a relay that is a client, too, keeps
    /// these files itself).
    pub cache_directory: Option<PathBuf>,
    /// TestingTorNetwork: shorter delays.
    pub testing: bool,
    /// PathsNeededToBuildCircuits, from 0.25 to 0.95; `None`: by the consensus.
    pub paths_needed: Option<f64>,
    /// First delay after a failure (TestingClientConsensusDownloadInitialDelay).
    pub initial_delay: Duration,
    /// First delay of all other downloads (TestingClientDownloadInitialDelay).
    pub download_initial_delay: Duration,
    /// Few microdescriptors that are lacking wait so long for more of them, or for none at all where none were asked for
    /// (TestingClientMaxIntervalWithoutRequest).
    pub max_interval_without_request: Duration,
    /// Schedule of the requests for the first consensus.
    pub bootstrap: BootstrapOptions,
    /// Nothing is downloaded where this is false (FetchServerDescriptors).
    pub fetch: bool,
    /// FetchDirInfoEarly, FetchDirInfoExtraEarly.
    pub earliness: Earliness,
    /// A stream without progress for this long is given up (TestingDirConnectionMaxStall).
    pub max_stall: Duration,
}

impl ClientOptions {
    /// C tor's defaults for a public or a testing network.
    pub fn new(
        authorities: Vec<Authority>,
        servers: Vec<DirServer>,
        cache_directory: Option<PathBuf>,
        testing: bool,
    ) -> Self {
        Self {
            disabled: false,
            authorities,
            servers,
            by_bridges: false,
            cache_directory,
            testing,
            paths_needed: None,
            initial_delay: Duration::ZERO,
            download_initial_delay: Duration::ZERO,
            max_interval_without_request: Duration::ZERO,
            bootstrap: BootstrapOptions::default(),
            fetch: true,
            earliness: Earliness::Usual,
            max_stall: Duration::from_secs(if testing { 30 } else { 300 }),
        }
    }
}
