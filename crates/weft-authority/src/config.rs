//! The settings of a private authority.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_policy::FlagThresholds;

use crate::lists::Lists;
use crate::reach::ReachabilityOptions;

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
    /// TestingV3AuthInitialVoteDelay and TestingV3AuthInitialDistDelay: together the time from the first relay to the
    /// first consensus.
    pub initial_delay: Duration,
    /// TestingV3AuthVotingStartOffset: how much later than at midnight the first interval of a day begins.
    pub start_offset: Duration,
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
    /// Thresholds of flags.
    pub flags: FlagThresholds,
    /// Relays that are not taken as they are.
    pub lists: Lists,
    /// How it finds out which relays run.
    pub reachability: ReachabilityOptions,
    /// Relays that are known at most ([`MAX_RELAYS`](crate::MAX_RELAYS)).
    pub max_relays: usize,
    /// AuthDirPinKeys: an RSA and an Ed25519 identity that were seen together stay together.
    pub pin_keys: bool,
    /// AuthDirRejectRequestsUnderLoad: while the bandwidth is used up, only relays are answered at the DirPort.
    pub reject_under_load: bool,
    /// RecommendedClientVersions, if versions are recommended at all.
    pub client_versions: Vec<String>,
    /// RecommendedServerVersions.
    pub server_versions: Vec<String>,
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

    /// The least time from the first relay to the first consensus.
    pub(super) fn initial_gap(&self) -> Duration {
        self.initial_delay.max(2 * Self::SHORTEST_DELAY)
    }

    /// For how long a relay that moves counts as down: for as long as clients do not know its new address
    /// (`rep_hist_note_router_reachable`).
    pub(super) fn move_penalty(&self) -> Duration {
        let interval = self.interval.max(Self::SHORTEST);
        (interval + interval * self.intervals_valid.clamp(2, 24)) / 2
    }

    /// When the next consensus is due after one of `valid_after`, where no relay comes: at the start of an interval.
    pub(super) fn next(&self, valid_after: SystemTime) -> SystemTime {
        let interval = self.interval.max(Self::SHORTEST).as_secs();
        let start = |after| interval_after(after, interval, self.start_offset.as_secs());
        let earliest = seconds(valid_after + self.gap());
        let mut next = start(seconds(valid_after));
        if next < earliest {
            next = start(earliest - 1);
        }
        SystemTime::UNIX_EPOCH + Duration::from_secs(next)
    }
}

/// The next start of an interval after `now`; intervals begin at midnight and `offset` seconds
/// (`voting_sched_get_start_of_interval_after`).
fn interval_after(now: u64, interval: u64, offset: u64) -> u64 {
    const DAY: u64 = 86_400;
    let midnight = now - now % DAY;
    let next = midnight + ((now - midnight) / interval + 1) * interval;
    // The last interval of a day ends at midnight, and none is less than half as long as it should be.
    let next = match next + interval / 2 > midnight + DAY {
        true => midnight + DAY,
        false => next,
    } + offset;
    match next.saturating_sub(interval) > now {
        true => next - interval,
        false => next,
    }
}

fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
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
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_begin_at_midnight_and_the_offset_as_in_c_tor() {
        const DAY: u64 = 20_000 * 86_400;
        for ((now, interval, offset), next) in [
            ((0, 300, 0), 300),
            ((299, 300, 0), 300),
            ((300, 300, 0), 600),
            // The offset moves the grid.
            ((0, 300, 20), 20),
            ((20, 300, 20), 320),
            // 7,000 seconds do not divide a day: the one before the last is short.
            ((70_000, 7000, 0), 77_000),
            ((77_000, 7000, 0), 79_400),
            ((79_400, 7000, 0), 86_400),
        ] {
            let found = interval_after(DAY + now, interval, offset);
            assert_eq!(found, DAY + next, "{now} {interval} {offset}");
        }
    }
}
