//! The settings of a private authority.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime};

use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_config::AuthorityOptions;

/// Identity and addresses of an authority, and its options of torrc.
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
    /// torrc's options of authorities.
    pub options: AuthorityOptions,
    /// Bandwidths that count instead of what relays claim, in kilobytes per second (V3BandwidthsFile).
    pub bandwidths: BTreeMap<RsaIdentity, u64>,
    /// Relays that are known at most ([`MAX_RELAYS`](crate::MAX_RELAYS)).
    pub max_relays: usize,
}

impl AuthorityConfig {
    /// The shortest interval that C tor takes for well-formed in testing networks (`MIN_VOTE_INTERVAL_TESTING`).
    const SHORTEST: Duration = Duration::from_secs(10);

    /// The times of a consensus that is made at `now`.
    pub(crate) fn lifetime(&self, now: SystemTime) -> Lifetime {
        // Documents name whole seconds.
        let since = now.duration_since(SystemTime::UNIX_EPOCH);
        let valid_after =
            SystemTime::UNIX_EPOCH + Duration::from_secs(since.unwrap_or_default().as_secs());
        let interval = self.options.interval.max(Self::SHORTEST);
        Lifetime {
            valid_after,
            fresh_until: valid_after + interval,
            valid_until: valid_after + interval * self.options.intervals_valid.clamp(2, 24),
        }
    }

    /// The least time from one consensus to the next.
    pub(crate) fn gap(&self) -> Duration {
        self.options.vote_delay + self.options.dist_delay
    }
}

/// The times of a consensus.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    pub(crate) valid_after: SystemTime,
    pub(crate) fresh_until: SystemTime,
    pub(crate) valid_until: SystemTime,
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
