//! The settings of a private authority.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tor_llcrypto::pk::rsa::RsaIdentity;

/// An authority's own data and its rules, mostly from torrc.
#[derive(Clone, Debug)]
pub struct AuthorityConfig {
    /// Nickname of the relay that is the authority.
    pub nickname: String,
    /// Its RSA identity.
    pub identity: RsaIdentity,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its ORPort.
    pub or_port: u16,
    /// Its DirPort.
    pub dir_port: u16,
    /// ContactInfo.
    pub contact: Option<String>,
    /// V3AuthVotingInterval: how long a consensus is fresh.
    pub interval: Duration,
    /// V3AuthVoteDelay. Together with the next one also the least time from one consensus to another
    /// that is made sooner because relays have come.
    pub vote_delay: Duration,
    /// V3AuthDistDelay.
    pub dist_delay: Duration,
    /// V3AuthNIntervalsValid: how many intervals a consensus is valid.
    pub intervals_valid: u32,
    /// ConsensusParams.
    pub params: BTreeMap<String, i32>,
    /// TestingDirAuthVoteGuard.
    pub guards: Granted,
    /// TestingDirAuthVoteExit.
    pub exits: Granted,
    /// TestingDirAuthVoteHSDir.
    pub hidden_service_dirs: Granted,
    /// MinUptimeHidServDirectoryV2: how long a relay must run to get the flag HSDir.
    pub hs_dir_min_uptime: Duration,
    /// DirPortFrontPage: the page for people.
    pub front_page: Option<Arc<str>>,
    /// Bandwidths that count instead of what relays claim, in kilobytes per second
    /// (V3BandwidthsFile).
    pub bandwidths: BTreeMap<RsaIdentity, u64>,
}

impl AuthorityConfig {
    /// The shortest time in which a consensus may be followed by another: what C tor takes for
    /// well-formed in testing networks (`MIN_VOTE_INTERVAL_TESTING`).
    const SHORTEST: Duration = Duration::from_secs(10);
    /// The same for the delays (`MIN_VOTE_SECONDS_TESTING`).
    const SHORTEST_DELAY: Duration = Duration::from_secs(2);

    /// What the times come to.
    pub(super) fn lifetime(&self, now: SystemTime) -> Lifetime {
        let valid_after = whole_second(now);
        let interval = self.interval.max(Self::SHORTEST);
        Lifetime {
            valid_after,
            fresh_until: valid_after + interval,
            valid_until: valid_after + interval * self.intervals_valid.clamp(2, 24),
        }
    }

    /// The least time from one consensus to the next.
    pub(super) fn gap(&self) -> Duration {
        self.vote_delay.max(Self::SHORTEST_DELAY) + self.dist_delay.max(Self::SHORTEST_DELAY)
    }
}

/// The times of a consensus.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    pub(super) valid_after: SystemTime,
    pub(super) fresh_until: SystemTime,
    pub(super) valid_until: SystemTime,
}

/// Relays that get a flag whatever they are like: `TestingDirAuthVoteGuard` and its like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// `*`: every relay.
    pub all: bool,
    /// These relays.
    pub relays: Vec<RsaIdentity>,
    /// No other relay gets it (`TestingDirAuthVoteGuardIsStrict`).
    pub strict: bool,
}

impl Granted {
    /// Whether this relay, which would deserve it or not, gets the flag.
    pub(super) fn grants(&self, id: &RsaIdentity, deserved: bool) -> bool {
        self.all || self.relays.contains(id) || (deserved && !self.strict)
    }
}

/// The bandwidths of a bandwidth file (bandwidth-file-spec 2.3): lines with `node_id=$FINGERPRINT`
/// and `bw=KILOBYTES`. Other lines, which such files have, are passed over.
#[must_use]
pub fn parse_bandwidths(text: &str) -> BTreeMap<RsaIdentity, u64> {
    let line = |line: &str| {
        let value = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name));
        let id = value("node_id=")?.trim_start_matches('$');
        let id = RsaIdentity::from_hex(Some(id).filter(|id| id.is_ascii())?)?;
        Some((id, value("bw=")?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// Documents name whole seconds.
fn whole_second(time: SystemTime) -> SystemTime {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
}
