//! The authority of a private network (dirauth_options.inc; dirauth_config.c).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use weft_cell::identity::RsaIdentity;

use crate::report::Report;
use crate::settings::Settings;
use crate::table::key::Key;
use crate::table::keys;
use crate::text::dir_authority::parse_fingerprint;
use crate::text::ports::{OrPort, PortNumber};

/// The authority that this node is (`AuthoritativeDirectory 1`, `V3AuthoritativeDirectory 1`).
#[derive(Clone, Debug, PartialEq)]
pub struct AuthorityOptions {
    /// `DirPort`, as the consensus has it.
    pub dir_port: u16,
    /// `V3AuthVotingInterval`.
    pub interval: Duration,
    /// `V3AuthVoteDelay`.
    pub vote_delay: Duration,
    /// `V3AuthDistDelay`.
    pub dist_delay: Duration,
    /// `TestingV3AuthInitialVoteDelay` and `TestingV3AuthInitialDistDelay` together.
    pub initial_delay: Duration,
    /// `V3AuthNIntervalsValid`.
    pub intervals_valid: u32,
    /// `ConsensusParams`.
    pub params: BTreeMap<String, i32>,
    /// `TestingDirAuthVoteGuard`.
    pub guards: GrantedFlag,
    /// `TestingDirAuthVoteExit`.
    pub exits: GrantedFlag,
    /// `TestingDirAuthVoteHSDir`.
    pub hidden_service_dirs: GrantedFlag,
    /// `V3BandwidthsFile`.
    pub bandwidths: Option<PathBuf>,
    /// `AuthDirHasIPv6Connectivity`: IPv6 addresses are listed.
    pub ipv6: bool,
    /// `AuthDirSupport048Clients`: descriptors must have TAP keys.
    pub needs_tap: bool,
}

/// The relays that get a flag whatever they are like: `TestingDirAuthVoteGuard` and its like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantedFlag {
    /// `*`: every relay.
    pub all: bool,
    /// These relays, by the digests of their RSA identity keys.
    pub relays: Vec<RsaIdentity>,
    /// No other relay gets it (`TestingDirAuthVoteGuardIsStrict`).
    pub strict: bool,
}

impl GrantedFlag {
    /// Whether this relay, which would deserve it or not, gets the flag.
    #[must_use]
    pub fn grants(&self, id: &RsaIdentity, deserved: bool) -> bool {
        self.all || self.relays.contains(id) || (deserved && !self.strict)
    }

    /// Reads a set of relays: `*`, or fingerprints with commas between. The error is the word that
    /// is neither.
    fn parse(text: &str, strict: bool) -> Result<Self, String> {
        let mut granted = Self {
            strict,
            ..Self::default()
        };
        let words = text.split(',').map(str::trim);
        for word in words.filter(|word| !word.is_empty()) {
            if word == "*" {
                granted.all = true;
                continue;
            }
            let relay = parse_fingerprint(word.trim_start_matches('$'));
            granted.relays.push(relay.ok_or_else(|| word.to_owned())?);
        }
        Ok(granted)
    }
}

/// The authority that torrc asks for.
pub(crate) fn authority_options(
    settings: &Settings,
    dir_ports: &[OrPort],
    report: &mut Report,
) -> Option<AuthorityOptions> {
    if !settings.flag(keys::AuthoritativeDirectory) {
        return None;
    }
    let dir_port = dir_ports.iter().find_map(|port| match port.port {
        PortNumber::Auto => None,
        PortNumber::Fixed(number) => Some(number).filter(|_| port.listen),
    });
    let origin = settings.origin(keys::AuthoritativeDirectory);
    if !settings.flag(keys::V3AuthoritativeDirectory) {
        report.error(
            origin,
            "AuthoritativeDirectory is set, but V3AuthoritativeDirectory, the one kind that Weft \
             can be, is not",
        );
    }
    if !settings.flag(keys::TestingTorNetwork) {
        report.error(
            origin,
            "AuthoritativeDirectory: Weft's authority is one for private networks; it needs \
             TestingTorNetwork 1",
        );
    }
    if settings.flag(keys::DisableNetwork) {
        report.error(
            settings.origin(keys::DisableNetwork),
            "DisableNetwork: an authority would answer at its DirPort all the same",
        );
    }
    if dir_port.is_none() {
        report.error(
            origin,
            "AuthoritativeDirectory needs a DirPort with a number, where relays publish",
        );
    }
    check_schedule(settings, report);
    Some(AuthorityOptions {
        dir_port: dir_port.unwrap_or(0),
        interval: settings.time(keys::V3AuthVotingInterval),
        vote_delay: settings.time(keys::V3AuthVoteDelay),
        dist_delay: settings.time(keys::V3AuthDistDelay),
        initial_delay: settings.time(keys::TestingV3AuthInitialVoteDelay)
            + settings.time(keys::TestingV3AuthInitialDistDelay),
        intervals_valid: u32::try_from(settings.number(keys::V3AuthNIntervalsValid)).unwrap_or(3),
        params: params(settings, report),
        guards: granted(
            keys::TestingDirAuthVoteGuard,
            keys::TestingDirAuthVoteGuardIsStrict,
            settings,
            report,
        ),
        exits: granted(
            keys::TestingDirAuthVoteExit,
            keys::TestingDirAuthVoteExitIsStrict,
            settings,
            report,
        ),
        hidden_service_dirs: granted(
            keys::TestingDirAuthVoteHSDir,
            keys::TestingDirAuthVoteHSDirIsStrict,
            settings,
            report,
        ),
        bandwidths: settings.text(keys::V3BandwidthsFile).map(PathBuf::from),
        ipv6: settings.flag(keys::AuthDirHasIPv6Connectivity),
        needs_tap: settings.flag(keys::AuthDirSupport048Clients),
    })
}

/// What C tor refuses of the times between consensuses (`options_validate_dirauth_schedule`, `…_testing`).
fn check_schedule(settings: &Settings, report: &mut Report) {
    const LEAST: Duration = Duration::from_secs(2);
    let delays = settings.time(keys::V3AuthVoteDelay) + settings.time(keys::V3AuthDistDelay);
    let interval = settings.time(keys::V3AuthVotingInterval);
    let mut refuse = |key: Key<Duration>, wrong: bool, why: &str| {
        if wrong {
            report.error(settings.origin(key), why);
        }
    };
    refuse(
        keys::V3AuthVotingInterval,
        delays >= interval / 2,
        "V3AuthVoteDelay plus V3AuthDistDelay must be less than half V3AuthVotingInterval",
    );
    refuse(
        keys::V3AuthVotingInterval,
        interval > Duration::from_secs(24 * 3600),
        "V3AuthVotingInterval is insanely high.",
    );
    for (key, why) in [
        (keys::V3AuthVoteDelay, "V3AuthVoteDelay is way too low."),
        (keys::V3AuthDistDelay, "V3AuthDistDelay is way too low."),
        (
            keys::TestingV3AuthInitialVoteDelay,
            "TestingV3AuthInitialVoteDelay is way too low.",
        ),
        (
            keys::TestingV3AuthInitialDistDelay,
            "TestingV3AuthInitialDistDelay is way too low.",
        ),
    ] {
        refuse(key, settings.time(key) < LEAST, why);
    }
}

/// `name=value` words, later ones over earlier ones.
fn params(settings: &Settings, report: &mut Report) -> BTreeMap<String, i32> {
    let mut params = BTreeMap::new();
    for line in settings.lines(keys::ConsensusParams) {
        for word in line.value.split_whitespace() {
            let parsed = word
                .split_once('=')
                .filter(|(name, _)| !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic()))
                .and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
            match parsed {
                Some((name, value)) => {
                    params.insert(name, value);
                }
                None => report.error(
                    Some(&line.origin),
                    format!("ConsensusParams: \"{word}\" is not a name, \"=\" and a whole number"),
                ),
            }
        }
    }
    params
}

fn granted(
    key: Key<String>,
    is_strict: Key<bool>,
    settings: &Settings,
    report: &mut Report,
) -> GrantedFlag {
    let text = settings.text(key).unwrap_or_default();
    GrantedFlag::parse(text, settings.flag(is_strict)).unwrap_or_else(|word| {
        report.error(
            settings.origin(key),
            format!("{key}: \"{word}\" is neither * nor a fingerprint"),
        );
        GrantedFlag::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryHost, load_text};

    const NETWORK: &str = "DirAuthority a orport=1 127.0.0.1:2 \
                           AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\nTestingTorNetwork 1\n\
                           ORPort 127.0.0.1:5000\nContactInfo x\n";

    fn authority(torrc: &str) -> Result<Option<AuthorityOptions>, String> {
        let loaded = load_text(torrc, &MemoryHost::new());
        loaded
            .map(|loaded| loaded.options.authority)
            .map_err(|report| report.to_string())
    }

    #[test]
    fn an_authority_is_as_torrc_has_it() {
        let torrc = format!(
            "{NETWORK}AuthoritativeDirectory 1\nV3AuthoritativeDirectory 1\nDirPort 127.0.0.1:7000\n\
             V3AuthVotingInterval 20\nV3AuthVoteDelay 2\nV3AuthDistDelay 3\n\
             ConsensusParams circwindow=500 cc_alg=2\nTestingDirAuthVoteGuard *\n\
             TestingDirAuthVoteExit $AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n\
             TestingDirAuthVoteExitIsStrict 1\n"
        );
        let options = authority(&torrc).unwrap().unwrap();
        assert_eq!(options.dir_port, 7000);
        let seconds = [options.interval, options.vote_delay, options.dist_delay];
        assert_eq!(seconds, [20, 2, 3].map(Duration::from_secs));
        assert_eq!(options.intervals_valid, 3);
        assert_eq!(options.params.get("cc_alg"), Some(&2));
        assert!(options.guards.all && !options.exits.all && options.exits.strict);
        assert_eq!(options.exits.relays, [RsaIdentity([0xaa; 20])]);
        let [named, other] = [0xaa, 0xbb].map(|byte| RsaIdentity([byte; 20]));
        assert!(options.exits.grants(&named, false) && !options.exits.grants(&other, true));
        assert!(options.guards.grants(&other, false));
        assert!(!options.hidden_service_dirs.grants(&other, false));
    }

    /// C tor's authorities have them; ours believes relays.
    #[test]
    fn rules_of_c_tor_s_authorities_are_warned_of_or_named_in_a_notice() {
        let torrc = format!(
            "{NETWORK}AuthoritativeDirectory 1\nV3AuthoritativeDirectory 1\nDirPort 7000\n\
             AuthDirReject 10.0.0.0/8\nAuthDirListBadExits 1\nAuthDirFastGuarantee 1\n"
        );
        let loaded = load_text(&torrc, &MemoryHost::new()).unwrap();
        let messages = loaded.report.messages().iter();
        let lines = Vec::from_iter(messages.map(ToString::to_string)).join("\n");
        assert!(lines.contains("relays of these addresses and countries will NOT be rejected"));
        assert!(lines.contains("AuthDirFastGuarantee, AuthDirListBadExits"));
    }

    fn with(lines: &str) -> Result<AuthorityOptions, String> {
        let both = "AuthoritativeDirectory 1\nV3AuthoritativeDirectory 1\nDirPort 7000\n";
        authority(&format!("{NETWORK}{both}{lines}\n")).map(Option::unwrap)
    }

    #[test]
    fn times_that_no_vote_fits_into_are_refused() {
        for (lines, why) in [
            (
                "V3AuthVotingInterval 20\nV3AuthVoteDelay 5\nV3AuthDistDelay 5",
                "half",
            ),
            ("V3AuthVotingInterval 2 days", "insanely high"),
            ("V3AuthVoteDelay 1", "V3AuthVoteDelay is way too low"),
            (
                "TestingV3AuthInitialDistDelay 1",
                "TestingV3AuthInitialDistDelay is way",
            ),
            (
                "AuthDirVoteGuardBwThresholdFraction 1.5",
                "AuthDirVoteGuardBwThresholdFraction",
            ),
        ] {
            let error = with(lines).unwrap_err();
            assert!(error.contains(why), "{lines}: {error}");
        }
    }

    #[test]
    fn without_its_options_there_is_none() {
        assert_eq!(authority(NETWORK).unwrap(), None);
        assert_eq!(
            authority(&format!("{NETWORK}DirPort 7000\n")).unwrap(),
            None
        );
    }

    #[test]
    fn it_is_refused_outside_of_private_networks_and_without_what_it_needs() {
        let both = "AuthoritativeDirectory 1\nV3AuthoritativeDirectory 1\n";
        let public = authority(&format!("ORPort 5000\nContactInfo x\nDirPort 7000\n{both}"));
        assert!(public.unwrap_err().contains("TestingTorNetwork 1"));
        let deaf = authority(&format!("{NETWORK}{both}"));
        assert!(deaf.unwrap_err().contains("needs a DirPort"));
        let kind = authority(&format!(
            "{NETWORK}DirPort 7000\nAuthoritativeDirectory 1\n"
        ));
        assert!(kind.unwrap_err().contains("V3AuthoritativeDirectory"));
        for wrong in [
            "ConsensusParams x",
            "ConsensusParams x=y",
            "TestingDirAuthVoteExit nobody",
        ] {
            let torrc = format!("{NETWORK}{both}DirPort 7000\n{wrong}\n");
            let error = authority(&torrc).unwrap_err();
            assert!(error.contains(wrong.split(' ').next().unwrap()), "{error}");
        }
    }
}
