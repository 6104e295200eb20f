//! The authority of a private network (dirauth_options.inc; dirauth_config.c).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use weft_cell::identity::RsaIdentity;
use weft_policy::{AddressSet, FlagThresholds, parse_rules};

use crate::host::Host;
use crate::options::directory::dir_ports;
use crate::report::Report;
use crate::settings::Settings;
use crate::table::key::Key;
use crate::table::keys;
use crate::table::value::ListLine;
use crate::text::dir_authority::parse_fingerprint;
use crate::text::ports::PortNumber;

/// The authority that this node is (`AuthoritativeDirectory 1`, `V3AuthoritativeDirectory 1`).
#[derive(Clone, Debug, PartialEq)]
pub struct AuthorityOptions {
    /// `DirPort`: where it answers. Never empty.
    pub dir_ports: Vec<SocketAddr>,
    /// `V3AuthVotingInterval`.
    pub interval: Duration,
    /// `V3AuthVoteDelay`.
    pub vote_delay: Duration,
    /// `V3AuthDistDelay`.
    pub dist_delay: Duration,
    /// `TestingV3AuthInitialVoteDelay` and `TestingV3AuthInitialDistDelay` together.
    pub initial_delay: Duration,
    /// `TestingV3AuthVotingStartOffset`.
    pub start_offset: Duration,
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
    /// Thresholds of flags.
    pub flags: FlagThresholds,
    /// `V3BandwidthsFile`.
    pub bandwidths: Option<PathBuf>,
    /// `AuthDirReject`, `AuthDirRejectCCs`.
    pub reject: AddressSet,
    /// `AuthDirInvalid`, `AuthDirInvalidCCs`.
    pub invalid: AddressSet,
    /// `AuthDirBadExit`, `AuthDirBadExitCCs`.
    pub bad_exit: AddressSet,
    /// `AuthDirMiddleOnly`, `AuthDirMiddleOnlyCCs`.
    pub middle_only: AddressSet,
    /// `AuthDirListBadExits`.
    pub list_bad_exits: bool,
    /// `AuthDirListMiddleOnly`.
    pub list_middle_only: bool,
    /// `MinimalAcceptedServerVersion`.
    pub minimal_version: String,
    /// `RecommendedClientVersions`, if `VersioningAuthoritativeDirectory` is set.
    pub client_versions: Vec<String>,
    /// `RecommendedServerVersions`, in the same way.
    pub server_versions: Vec<String>,
    /// `V3AuthUseLegacyKey`.
    pub legacy_key: bool,
    /// `AuthDirPinKeys`.
    pub pin_keys: bool,
    /// `AuthDirTestReachability`.
    pub test_reachability: bool,
    /// `AuthDirTestEd25519LinkKeys`.
    pub test_ed25519: bool,
    /// `AuthDirHasIPv6Connectivity`.
    pub ipv6: bool,
    /// `TestingAuthDirTimeToLearnReachability`.
    pub time_to_learn: Duration,
    /// `AuthDirSupport048Clients`: descriptors must have TAP keys.
    pub needs_tap: bool,
    /// `AuthDirRejectRequestsUnderLoad`.
    pub reject_under_load: bool,
}

impl AuthorityOptions {
    /// Returns true if an option names countries.
    #[must_use]
    pub fn names_countries(&self) -> bool {
        let lists = [
            &self.reject,
            &self.invalid,
            &self.bad_exit,
            &self.middle_only,
        ];
        lists.iter().any(|list| !list.countries.is_empty())
    }
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
    host: &dyn Host,
    report: &mut Report,
) -> Option<AuthorityOptions> {
    if !settings.flag(keys::AuthoritativeDirectory) {
        return None;
    }
    let dir_ports: Vec<SocketAddr> = dir_ports(settings, host, report)
        .iter()
        .filter(|port| port.listen && port.port != PortNumber::Auto)
        .map(|port| port.to_bind())
        .collect();
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
    if dir_ports.is_empty() {
        report.error(
            origin,
            "AuthoritativeDirectory needs a DirPort with a number, where relays publish",
        );
    }
    check_schedule(settings, report);
    let versioning = settings.flag(keys::VersioningAuthoritativeDirectory);
    let recommended = |key: Key<Vec<ListLine>>| {
        let own = settings.texts(key);
        let lines = match own.is_empty() {
            true => settings.texts(keys::RecommendedVersions),
            false => own,
        };
        let lines = lines.into_iter().filter(|_| versioning);
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let client_versions = recommended(keys::RecommendedClientVersions);
    let server_versions = recommended(keys::RecommendedServerVersions);
    if versioning && (client_versions.is_empty() || server_versions.is_empty()) {
        report.error(
            settings.origin(keys::VersioningAuthoritativeDirectory),
            "Versioning authoritative dir servers must set Recommended*Versions.",
        );
    }
    let minimal_version = settings.text(keys::MinimalAcceptedServerVersion);
    if minimal_version.is_some_and(|version| !is_version(version)) {
        report.error(
            settings.origin(keys::MinimalAcceptedServerVersion),
            "Invalid MinimalAcceptedServerVersion",
        );
    }
    Some(AuthorityOptions {
        dir_ports,
        interval: settings.time(keys::V3AuthVotingInterval),
        vote_delay: settings.time(keys::V3AuthVoteDelay),
        dist_delay: settings.time(keys::V3AuthDistDelay),
        initial_delay: settings.time(keys::TestingV3AuthInitialVoteDelay)
            + settings.time(keys::TestingV3AuthInitialDistDelay),
        start_offset: settings.time(keys::TestingV3AuthVotingStartOffset),
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
        flags: thresholds(settings),
        bandwidths: settings.text(keys::V3BandwidthsFile).map(PathBuf::from),
        reject: addresses(
            keys::AuthDirReject,
            keys::AuthDirRejectCCs,
            settings,
            report,
        ),
        invalid: addresses(
            keys::AuthDirInvalid,
            keys::AuthDirInvalidCCs,
            settings,
            report,
        ),
        bad_exit: addresses(
            keys::AuthDirBadExit,
            keys::AuthDirBadExitCCs,
            settings,
            report,
        ),
        middle_only: addresses(
            keys::AuthDirMiddleOnly,
            keys::AuthDirMiddleOnlyCCs,
            settings,
            report,
        ),
        list_bad_exits: settings.flag(keys::AuthDirListBadExits),
        list_middle_only: settings.flag(keys::AuthDirListMiddleOnly),
        minimal_version: minimal_version.unwrap_or_default().to_owned(),
        client_versions,
        server_versions,
        legacy_key: settings.flag(keys::V3AuthUseLegacyKey),
        pin_keys: settings.flag(keys::AuthDirPinKeys),
        test_reachability: settings.flag(keys::AuthDirTestReachability),
        test_ed25519: settings.flag(keys::AuthDirTestEd25519LinkKeys),
        ipv6: settings.flag(keys::AuthDirHasIPv6Connectivity),
        time_to_learn: settings.time(keys::TestingAuthDirTimeToLearnReachability),
        needs_tap: settings.flag(keys::AuthDirSupport048Clients),
        reject_under_load: settings.flag(keys::AuthDirRejectRequestsUnderLoad),
    })
}

/// Returns true if a text begins with the numbers of a version of C tor, as `0.4.8.0-alpha-dev`
/// does.
fn is_version(text: &str) -> bool {
    let text = text.strip_prefix("Tor ").unwrap_or(text);
    let numbers = text.split(['-', ' ']).next().unwrap_or_default();
    let numbers = numbers.replacen("pre", ".", 1).replacen("rc", ".", 1);
    let numbers: Vec<&str> = numbers.split('.').collect();
    let is_number = |number: &&str| {
        number.bytes().all(|byte| byte.is_ascii_digit()) && number.parse::<i32>().is_ok()
    };
    (2..=4).contains(&numbers.len()) && numbers.iter().all(is_number)
}

fn thresholds(settings: &Settings) -> FlagThresholds {
    FlagThresholds {
        fast_guarantee: settings.amount(keys::AuthDirFastGuarantee),
        guard_bandwidth_guarantee: settings.amount(keys::AuthDirGuardBWGuarantee),
        guard_bandwidth_fraction: settings.double(keys::AuthDirVoteGuardBwThresholdFraction),
        guard_time_known: settings.time(keys::AuthDirVoteGuardGuaranteeTimeKnown),
        guard_uptime_fraction: settings.double(keys::AuthDirVoteGuardGuaranteeWFU),
        stable_uptime: settings.time(keys::AuthDirVoteStableGuaranteeMinUptime),
        stable_mtbf: settings.time(keys::AuthDirVoteStableGuaranteeMTBF),
        min_measured: settings.number(keys::MinMeasuredBWsForAuthToIgnoreAdvertised),
        min_exit: settings.amount(keys::TestingMinExitFlagThreshold),
        min_fast: settings.amount(keys::TestingMinFastFlagThreshold),
        hs_dir_uptime: settings.time(keys::MinUptimeHidServDirectoryV2),
        max_per_address: usize::try_from(settings.number(keys::AuthDirMaxServersPerAddr))
            .unwrap_or(0),
    }
}

/// Checks the times between consensuses as C tor does (`options_validate_dirauth_schedule`,
/// `…_testing`).
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
    refuse(
        keys::TestingV3AuthVotingStartOffset,
        settings.time(keys::TestingV3AuthVotingStartOffset) > interval,
        "TestingV3AuthVotingStartOffset is higher than the voting interval.",
    );
}

/// Addresses by rules, whose grammar was checked with all settings, and by countries.
fn addresses(
    rules: Key<Vec<ListLine>>,
    countries: Key<Vec<String>>,
    settings: &Settings,
    report: &mut Report,
) -> AddressSet {
    let mut set = AddressSet {
        rules: Vec::new(),
        countries: settings.words(countries).to_vec(),
    };
    for line in settings.lines(rules) {
        let mut warnings = Vec::new();
        let known = set.rules.len();
        let _ = parse_rules(&line.value, Some(false), &mut set.rules, &mut warnings);
        if set.rules.iter().skip(known).any(|rule| !rule.all_ports()) {
            warnings.push(format!("Ignoring ports in {rules} option."));
        }
        for warning in warnings {
            report.warn(Some(&line.origin), format!("{rules}: {warning}"));
        }
    }
    set
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
        assert_eq!(options.dir_ports, ["127.0.0.1:7000".parse().unwrap()]);
        let seconds = [options.interval, options.vote_delay, options.dist_delay];
        assert_eq!(seconds, [20, 2, 3].map(Duration::from_secs));
        assert_eq!(options.intervals_valid, 3);
        assert_eq!(options.params.get("cc_alg"), Some(&2));
        assert!(options.guards.all && !options.exits.all && options.exits.strict);
        assert_eq!(options.exits.relays, [RsaIdentity([0xaa; 20])]);
    }

    fn with(lines: &str) -> Result<AuthorityOptions, String> {
        let both = "AuthoritativeDirectory 1\nV3AuthoritativeDirectory 1\nDirPort 7000\n";
        authority(&format!("{NETWORK}{both}{lines}\n")).map(Option::unwrap)
    }

    #[test]
    fn lists_of_addresses_and_countries_are_read() {
        let options = with(
            "AuthDirReject accept 10.0.0.1, 10.0.0.0/8\nAuthDirReject 192.0.2.1\n\
             AuthDirRejectCCs de,FR\nAuthDirBadExit 198.51.100.0/24:80\nAuthDirListBadExits 1",
        )
        .unwrap();
        let accepts: Vec<bool> = options
            .reject
            .rules
            .iter()
            .map(|rule| rule.accept)
            .collect();
        assert_eq!(accepts, [true, false, false]);
        assert_eq!(options.reject.countries, ["de", "FR"]);
        assert_eq!(options.bad_exit.rules.len(), 1);
        assert!(options.names_countries() && options.list_bad_exits && !options.list_middle_only);
        assert!(!with("").unwrap().names_countries());
        assert!(
            with("AuthDirInvalid nowhere")
                .unwrap_err()
                .contains("AuthDirInvalid")
        );
    }

    #[test]
    fn versions_are_recommended_by_authorities_that_shall() {
        assert!(
            with("RecommendedVersions 0.4.9.11")
                .unwrap()
                .client_versions
                .is_empty()
        );
        let options = with(
            "VersioningAuthoritativeDirectory 1\nRecommendedVersions 0.4.9.11\n\
             RecommendedServerVersions 0.4.9.10",
        )
        .unwrap();
        assert_eq!(options.client_versions, ["0.4.9.11"]);
        assert_eq!(options.server_versions, ["0.4.9.10"]);
        let error = with("VersioningAuthoritativeDirectory 1").unwrap_err();
        assert!(error.contains("Recommended*Versions"), "{error}");
    }

    #[test]
    fn the_least_version_must_be_one() {
        for version in ["0.4.9.0-alpha-dev", "0.4.9", "Tor 0.4.8.21", "0.1.2rc3"] {
            let options = with(&format!("MinimalAcceptedServerVersion {version}")).unwrap();
            assert_eq!(options.minimal_version, version);
        }
        for version in ["new", "0", "0.x", "0.4.9.1.1", "0.99999999999", "0.+4"] {
            let error = with(&format!("MinimalAcceptedServerVersion {version}")).unwrap_err();
            assert!(
                error.contains("Invalid MinimalAcceptedServerVersion"),
                "{error}"
            );
        }
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
                "TestingV3AuthVotingStartOffset 1 hour",
                "higher than the voting interval",
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
