//! The rules between options, and the corrections that C tor makes silently or with a warning
//! (src/app/config/config.c `options_validate_cb`, src/feature/relay/relay_config.c).
//!
//! Works on [`Settings`], before they become [`Options`](super::Options). Only rules about what
//! Weft supports, or that cost a line, are here.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use super::authority::is_legal_nickname;
use super::host::Host;
use super::known::{Harm, KNOWN, Kind, Known, Support};
use super::options::MIN_MEM_IN_QUEUES;
use super::policy::parse_rules;
use super::ports::{OrPort, parse_or_ports, parse_target};
use super::reachable::convert_firewall;
use super::report::{Origin, Report};
use super::settings::Settings;
use super::value::Value;

/// Rates and bursts beyond this do not fit into a descriptor (ROUTER_MAX_DECLARED_BANDWIDTH).
const MAX_BANDWIDTH: i64 = i32::MAX as i64;
/// What a public relay must carry, in bytes per second (RELAY_REQUIRED_MIN_BANDWIDTH).
const MIN_RELAY_BANDWIDTH: i64 = 75 << 10;
/// Seconds between heartbeats (MIN_HEARTBEAT_PERIOD).
const MIN_HEARTBEAT: i64 = 30 * 60;
/// Milliseconds between KIST runs (KIST_SCHED_RUN_INTERVAL_MAX).
const MAX_KIST_INTERVAL: i64 = 100;
/// What a relay's queues should be allowed, in bytes.
const MIN_GOOD_QUEUES: i64 = 256 << 20;

/// Options that only a private network may change.
const TESTING_ONLY: [&str; 21] = [
    "TestingV3AuthInitialVotingInterval",
    "TestingV3AuthInitialVoteDelay",
    "TestingV3AuthInitialDistDelay",
    "TestingV3AuthVotingStartOffset",
    "TestingAuthDirTimeToLearnReachability",
    "TestingServerDownloadInitialDelay",
    "TestingClientDownloadInitialDelay",
    "TestingServerConsensusDownloadInitialDelay",
    "TestingClientConsensusDownloadInitialDelay",
    "TestingBridgeDownloadInitialDelay",
    "TestingBridgeBootstrapDownloadInitialDelay",
    "TestingClientMaxIntervalWithoutRequest",
    "TestingDirConnectionMaxStall",
    "TestingAuthKeyLifetime",
    "TestingLinkCertLifetime",
    "TestingSigningKeySlop",
    "TestingAuthKeySlop",
    "TestingLinkKeySlop",
    "TestingMinTimeToReportBandwidth",
    "TestingEnableConnBwEvent",
    "TestingEnableCellStatsEvent",
];

/// Checks and corrects settings; what is wrong, and what Weft does not do, is added to `report`.
/// Returns the relay's ports, which most rules depend on.
pub(super) fn validate(settings: &mut Settings, host: &Host, report: &mut Report) -> Vec<OrPort> {
    let ports = relay_ports(settings, host, report);
    // Who wrote an ORPort that cannot be read wants a relay, and is told what else one needs.
    let is_relay = ports
        .as_ref()
        .is_none_or(|ports| ports.iter().any(|port| port.listen));
    let mut check = Check { settings, report };
    check.unsupported();
    check.other_ports(host);
    check.onion_services();
    check.policies();
    check.identity(is_relay);
    check.bandwidth(is_relay);
    check.resources(is_relay);
    check.relay_modes(is_relay);
    convert_firewall(check.settings, check.report);
    check.padding(is_relay);
    check.publishing();
    check.scheduling();
    check.times();
    check.log_granularity();
    check.testing();
    check.directory();
    ports.unwrap_or_default()
}

/// The relay's ports; `None`: they cannot be read, and `report` says why.
fn relay_ports(settings: &Settings, host: &Host, report: &mut Report) -> Option<Vec<OrPort>> {
    if settings.flag("ClientOnly") {
        return Some(Vec::new());
    }
    let lines: Vec<_> = settings
        .lines("ORPortLines")
        .iter()
        .map(|l| l.value.as_str())
        .collect();
    let mut warnings = Vec::new();
    let ports = parse_or_ports(&lines, &host.resolve, &mut warnings);
    let origin = settings.origin("ORPortLines");
    warnings
        .into_iter()
        .for_each(|warning| report.warn(origin, warning));
    ports.map_err(|why| report.error(origin, why)).ok()
}

struct Check<'a> {
    settings: &'a mut Settings,
    report: &'a mut Report,
}

impl Check<'_> {
    fn error(&mut self, option: &str, text: impl Into<String>) {
        self.report.error(self.settings.origin(option), text);
    }

    fn warn(&mut self, option: &str, text: impl Into<String>) {
        self.report.warn(self.settings.origin(option), text);
    }

    /// Reports each option that is set and not supported, once, by what ignoring it would do.
    fn unsupported(&mut self) {
        let mut harmless = Vec::new();
        for (known, value, origin) in self.settings.iter() {
            let Some(origin) = origin else { continue };
            let Value::Lines(lines) = value else {
                // An option that was cleared asks for nothing.
                if let Some(value) = value.encode().filter(|value| !value.is_empty()) {
                    unsupported_option(known, &value, origin, &mut harmless, self.report);
                }
                continue;
            };
            let mut reported = Vec::new();
            for line in lines {
                let known = super::known::index_of(line.name).and_then(|i| KNOWN.get(i));
                if let Some(known) = known
                    && !reported.contains(&line.name)
                {
                    let value = line.value.trim();
                    if unsupported_option(known, value, &line.origin, &mut harmless, self.report) {
                        reported.push(line.name);
                    }
                }
            }
        }
        if !harmless.is_empty() {
            let text = format!(
                "Weft ignores these options, which harms nobody (the operator's guide gives the \
                 reasons): {}",
                harmless.join(", ")
            );
            self.report.notice(None, text);
        }
    }

    /// The ports of what Weft does not do are checked as far as they are ports.
    fn other_ports(&mut self, host: &Host) {
        let names = [
            "SocksPortLines",
            "DNSPortLines",
            "TransPortLines",
            "NATDPortLines",
            "HTTPTunnelPortLines",
            "ControlPortLines",
            "ExtORPortLines",
            "DirPortLines",
        ];
        for name in names {
            for line in self.settings.lines(name) {
                if let Err(why) = parse_target(&line.value, &host.resolve) {
                    self.report.error_in_tors_words(
                        Some(&line.origin),
                        format!("{}: {why}", line.name),
                        super::applications::invalid_port(line.name),
                    );
                }
            }
        }
    }

    /// Onion services are not served yet, but what contradicts itself is refused all the same.
    fn onion_services(&mut self) {
        let (open, single) = (
            "HiddenServiceNonAnonymousMode",
            "HiddenServiceSingleHopMode",
        );
        for (one, other) in [(open, single), (single, open)] {
            if self.settings.flag(one) && !self.settings.flag(other) {
                let text = format!(
                    "{one} does not provide any server anonymity. It must be used with {other} set \
                     to 1."
                );
                self.report.error_in_tors_words(
                    self.settings.origin(one),
                    text.clone(),
                    format!("Failed to parse/validate config: {text}"),
                );
            }
        }
    }

    fn policies(&mut self) {
        let names = [
            ("DirPolicy", None),
            ("SocksPolicy", None),
            ("AuthDirReject", Some(false)),
            ("AuthDirInvalid", Some(false)),
            ("AuthDirBadExit", Some(false)),
            ("AuthDirMiddleOnly", Some(false)),
            ("ReachableAddresses", Some(true)),
            ("ReachableORAddresses", Some(true)),
            ("ReachableDirAddresses", Some(true)),
        ];
        for (name, assumed) in names {
            for line in self.settings.lines(name) {
                if let Err(why) =
                    parse_rules(&line.value, assumed, &mut Vec::new(), &mut Vec::new())
                {
                    self.report
                        .error(Some(&line.origin), format!("{name}: {why}"));
                }
            }
        }
    }

    fn identity(&mut self, is_relay: bool) {
        match self.settings.text("Nickname").map(str::to_owned) {
            Some(nickname) if !is_legal_nickname(&nickname) => self.error(
                "Nickname",
                format!("Nickname \"{nickname}\": a nickname has 1 to 19 characters, each a letter or digit (a-z, A-Z, 0-9)"),
            ),
            None if is_relay => self.settings.correct_text("Nickname", "Unnamed"),
            _ => {}
        }
        let has_contact = self.settings.text("ContactInfo").is_some();
        if is_relay && !has_contact {
            self.report.warn(
                None,
                "ContactInfo is not set. Please consider setting it, so that you can be reached if \
                 your relay is misconfigured or something else goes wrong; without it your relay \
                 may be rejected from the network",
            );
        }
        if !self.settings.lines("MyFamily").is_empty() && !has_contact {
            self.warn(
                "MyFamily",
                "MyFamily is set but ContactInfo is not; set ContactInfo too",
            );
        }
    }

    fn bandwidth(&mut self, is_relay: bool) {
        let capped = [
            "BandwidthRate",
            "BandwidthBurst",
            "MaxAdvertisedBandwidth",
            "RelayBandwidthRate",
            "RelayBandwidthBurst",
            "PerConnBWRate",
            "PerConnBWBurst",
        ];
        for name in capped {
            let value = self.settings.number(name);
            // Somebody who says 2 GB means all that is allowed.
            if value == MAX_BANDWIDTH + 1 {
                self.settings.correct_number(name, MAX_BANDWIDTH);
            } else if value > MAX_BANDWIDTH {
                self.error(
                    name,
                    format!("{name} ({value}) must be at most {MAX_BANDWIDTH}"),
                );
            }
        }
        let get = |settings: &Settings, name: &str| settings.number(name);
        let (relay_rate, relay_burst) = (
            get(self.settings, "RelayBandwidthRate"),
            get(self.settings, "RelayBandwidthBurst"),
        );
        if relay_rate > 0 && relay_burst == 0 {
            self.settings
                .correct_number("RelayBandwidthBurst", relay_rate);
        }
        if relay_burst > 0 && relay_rate == 0 {
            self.settings
                .correct_number("RelayBandwidthRate", relay_burst);
        }
        let (relay_rate, relay_burst) = (
            get(self.settings, "RelayBandwidthRate"),
            get(self.settings, "RelayBandwidthBurst"),
        );
        if is_relay {
            for (name, least) in [
                ("BandwidthRate", MIN_RELAY_BANDWIDTH),
                ("MaxAdvertisedBandwidth", MIN_RELAY_BANDWIDTH / 2),
                ("RelayBandwidthRate", MIN_RELAY_BANDWIDTH),
            ] {
                let value = get(self.settings, name);
                let unset = name == "RelayBandwidthRate" && value == 0;
                if value < least && !unset {
                    self.error(
                        name,
                        format!(
                            "{name} is {value} bytes per second; a relay needs at least {least}"
                        ),
                    );
                }
            }
        }
        if relay_rate > relay_burst {
            self.error(
                "RelayBandwidthBurst",
                "RelayBandwidthBurst must be at least RelayBandwidthRate",
            );
        }
        // What is relayed is part of everything.
        if relay_rate > get(self.settings, "BandwidthRate") {
            self.settings.correct_number("BandwidthRate", relay_rate);
        }
        if relay_burst > get(self.settings, "BandwidthBurst") {
            self.settings.correct_number("BandwidthBurst", relay_burst);
        }
        if get(self.settings, "BandwidthRate") > get(self.settings, "BandwidthBurst") {
            self.error(
                "BandwidthBurst",
                "BandwidthBurst must be at least BandwidthRate",
            );
        }
    }

    fn resources(&mut self, is_relay: bool) {
        if self.settings.number("ConnLimit") <= 0 {
            self.error("ConnLimit", "ConnLimit must be greater than 0");
        }
        let queues = self.settings.number("MaxMemInQueues");
        let least = i64::try_from(MIN_MEM_IN_QUEUES).unwrap_or(i64::MAX);
        if is_relay && queues != 0 && queues < least {
            self.warn(
                "MaxMemInQueues",
                "MaxMemInQueues must be at least 64 MB on a relay; using that",
            );
        } else if is_relay && queues != 0 && queues < MIN_GOOD_QUEUES {
            self.warn(
                "MaxMemInQueues",
                "MaxMemInQueues is low; if the relay does not work, this may be why",
            );
        }
        let sockets = self.settings.number("ConstrainedSockSize");
        if self.settings.flag("ConstrainedSockets")
            && (!(2048..=262_144).contains(&sockets) || sockets % 1024 != 0)
        {
            self.error(
                "ConstrainedSockSize",
                "ConstrainedSockSize must be from 2048 to 262144 in steps of 1024",
            );
        }
        let refill = self.settings.number("TokenBucketRefillInterval");
        if !(1..=1000).contains(&refill) {
            self.error(
                "TokenBucketRefillInterval",
                "TokenBucketRefillInterval must be from 1 to 1000 ms",
            );
        }
    }

    fn relay_modes(&mut self, is_relay: bool) {
        if !is_relay {
            return;
        }
        let restricted = [
            "ReachableAddresses",
            "ReachableORAddresses",
            "ReachableDirAddresses",
        ];
        let reachable = restricted
            .into_iter()
            .find(|name| !self.settings.lines(name).is_empty());
        let blocked = reachable
            .or_else(|| {
                self.settings
                    .flag("FascistFirewall")
                    .then_some("FascistFirewall")
            })
            .or_else(|| (!self.settings.flag("ClientUseIPv4")).then_some("ClientUseIPv4"))
            .or_else(|| self.settings.flag("UseBridges").then_some("UseBridges"));
        if let Some(name) = blocked {
            self.error(
                name,
                format!("{name}: a relay must be able to connect to the whole Internet"),
            );
        }
    }

    fn padding(&mut self, is_relay: bool) {
        if !is_relay {
            return;
        }
        if self.settings.auto("ConnectionPadding").is_some() {
            self.error(
                "ConnectionPadding",
                "a relay must leave ConnectionPadding at auto",
            );
        }
        for (name, wanted) in [
            ("ReducedConnectionPadding", false),
            ("CircuitPadding", true),
            ("ReducedCircuitPadding", false),
        ] {
            if self.settings.flag(name) != wanted {
                self.error(
                    name,
                    format!("a relay must leave {name} at {}", u8::from(wanted)),
                );
            }
        }
    }

    fn publishing(&mut self) {
        const NAME: &str = "PublishServerDescriptor";
        let words = self.settings.csv(NAME).to_vec();
        for word in &words {
            match word.to_ascii_lowercase().as_str() {
                "0" | "1" | "v3" => {}
                "v1" | "v2" | "hidserv" => self.warn(NAME, format!("{NAME} {word} has no effect")),
                "bridge" => self.error(
                    NAME,
                    format!("{NAME} bridge: Weft cannot be a bridge yet, and must not publish one as a relay"),
                ),
                _ => self.error(NAME, format!("{NAME}: \"{word}\" is none of 0, 1, v3, bridge")),
            }
        }
        if words.len() > 1 && words.iter().any(|word| word == "0" || word == "1") {
            self.warn(NAME, format!("{NAME}: 0 and 1 should stand alone"));
        }
        if self.settings.flag("AssumeReachable")
            && self.settings.auto("AssumeReachableIPv6") == Some(0)
        {
            self.error(
                "AssumeReachableIPv6",
                "AssumeReachable 1 and AssumeReachableIPv6 0 contradict each other",
            );
        }
    }

    fn scheduling(&mut self) {
        let schedulers = self.settings.csv("Schedulers").to_vec();
        if schedulers.is_empty() {
            self.error(
                "Schedulers",
                "Schedulers is empty; name KIST, KISTLite or Vanilla, or remove the line",
            );
        }
        for word in schedulers {
            if super::build::scheduler_kind(&word).is_none() {
                self.error(
                    "Schedulers",
                    format!("Schedulers: \"{word}\" is none of KIST, KISTLite, Vanilla"),
                );
            }
        }
        if self.settings.double("KISTSockBufSizeFactor") < 0.0 {
            self.error(
                "KISTSockBufSizeFactor",
                "KISTSockBufSizeFactor must be at least 0",
            );
        }
        if self.settings.number("KISTSchedRunInterval") > MAX_KIST_INTERVAL {
            self.error(
                "KISTSchedRunInterval",
                format!("KISTSchedRunInterval must be at most {MAX_KIST_INTERVAL} ms"),
            );
        }
        let needed = self.settings.double("PathsNeededToBuildCircuits");
        if needed >= 0.0 && !(0.25..=0.95).contains(&needed) {
            self.settings
                .correct_double("PathsNeededToBuildCircuits", needed.clamp(0.25, 0.95));
        }
    }

    fn times(&mut self) {
        let heartbeat = self.settings.number("HeartbeatPeriod");
        if (1..MIN_HEARTBEAT).contains(&heartbeat) && !self.settings.flag("TestingTorNetwork") {
            self.warn(
                "HeartbeatPeriod",
                format!("HeartbeatPeriod is too short; raising it to {MIN_HEARTBEAT} seconds"),
            );
            self.settings
                .correct_number("HeartbeatPeriod", MIN_HEARTBEAT);
        }
        if self.settings.number("KeepalivePeriod") < 1 {
            self.error("KeepalivePeriod", "KeepalivePeriod must be positive");
        }
        for (lifetime, slop) in [
            ("SigningKeyLifetime", "TestingSigningKeySlop"),
            ("TestingLinkCertLifetime", "TestingAuthKeySlop"),
            ("TestingAuthKeyLifetime", "TestingLinkKeySlop"),
        ] {
            if self.settings.number(lifetime) < 2 * self.settings.number(slop) {
                self.error(
                    lifetime,
                    format!("{lifetime} is too short: it must be at least twice {slop}"),
                );
            }
        }
        for (name, least) in [
            ("TestingDirConnectionMaxStall", 5),
            ("TestingClientMaxIntervalWithoutRequest", 1),
        ] {
            if self.settings.number(name) < least {
                self.error(name, format!("{name} must be at least {least} seconds"));
            }
        }
        // What C tor corrects is corrected, so that dumps agree.
        let dirtiness = self.settings.number("MaxCircuitDirtiness");
        self.settings
            .correct_number("MaxCircuitDirtiness", dirtiness.clamp(10, 30 * 24 * 3600));
        if (1..10).contains(&self.settings.number("CircuitStreamTimeout")) {
            self.settings.correct_number("CircuitStreamTimeout", 10);
        }
    }

    fn log_granularity(&mut self) {
        let granularity = self.settings.number("LogTimeGranularity");
        if granularity <= 0 {
            self.error("LogTimeGranularity", "LogTimeGranularity must be positive");
        } else if super::build::usable_granularity(granularity) != granularity {
            let used = super::build::usable_granularity(granularity);
            self.warn(
                "LogTimeGranularity",
                format!("LogTimeGranularity {granularity} is neither a divisor nor a multiple of one second; using {used} ms"),
            );
        }
        let word = self.settings.text("SafeLogging").unwrap_or("0").to_owned();
        if super::build::safe_logging(&word).is_none() {
            self.error(
                "SafeLogging",
                format!("SafeLogging: \"{word}\" is none of 0, 1, relay"),
            );
        }
    }

    fn testing(&mut self) {
        let own_authorities = !self.settings.lines("DirAuthority").is_empty()
            || (!self.settings.lines("AlternateDirAuthority").is_empty()
                && !self.settings.lines("AlternateBridgeAuthority").is_empty());
        let testing = self.settings.flag("TestingTorNetwork");
        if testing && !own_authorities {
            self.error(
                "TestingTorNetwork",
                "TestingTorNetwork needs authorities of its own: set DirAuthority",
            );
        }
        if !self.settings.flag("ClientDNSRejectInternalAddresses") && !own_authorities {
            self.error(
                "ClientDNSRejectInternalAddresses",
                "ClientDNSRejectInternalAddresses 0 is only for networks with authorities of their own",
            );
        }
        if testing {
            self.report.warn(
                None,
                "TestingTorNetwork is set: this node is of no use in the public Tor network",
            );
        } else if !self.settings.flag("___UsingTestNetworkDefaults") {
            let defaults = Settings::new(false);
            for name in TESTING_ONLY {
                let changed = self.settings.number(name) != defaults.number(name);
                if changed {
                    self.error(
                        name,
                        format!(
                            "{name} may only be changed in testing networks (TestingTorNetwork 1)"
                        ),
                    );
                }
            }
        }
    }

    fn directory(&mut self) {
        let set = |name: &str, settings: &Settings| !settings.lines(name).is_empty();
        let alternate = set("AlternateDirAuthority", self.settings)
            || set("AlternateBridgeAuthority", self.settings);
        if set("DirAuthority", self.settings) && alternate {
            self.error(
                "DirAuthority",
                "DirAuthority and Alternate…Authority cannot both be set",
            );
        }
        if set("DirAuthority", self.settings) || set("AlternateDirAuthority", self.settings) {
            self.report.warn(
                None,
                "DirAuthority or AlternateDirAuthority names other authorities than the Tor \
                 network's: this node will be part of their network",
            );
        }
        if self.settings.flag("FetchDirInfoExtraEarly") && !self.settings.flag("FetchDirInfoEarly")
        {
            self.error(
                "FetchDirInfoExtraEarly",
                "FetchDirInfoExtraEarly needs FetchDirInfoEarly",
            );
        }
    }
}

/// Reports an option that is set to `value`, if it is not supported. True: there was something to
/// report. Names of harmless ones are added to `harmless`. Values are not repeated unless they are
/// 0, 1 or auto: others may be passwords and addresses, which do not belong into logs.
fn unsupported_option(
    known: &Known,
    value: &str,
    origin: &Origin,
    harmless: &mut Vec<&'static str>,
    report: &mut Report,
) -> bool {
    let Support::None { harm, fine, why } = known.support else {
        return false;
    };
    if known.kind == Kind::Obsolete || fine.contains(&value) {
        return false;
    }
    let name = match known.kind {
        Kind::Bool | Kind::AutoBool => format!("{} {value}", known.name),
        _ => known.name.to_owned(),
    };
    match harm {
        Harm::Unsafe => report.error(
            Some(origin),
            format!(
                "{name}: Weft does not support this option, and without it {why}. Use C tor where \
                 you need it, or remove the line if you can do without"
            ),
        ),
        Harm::Lost => report.warn_first(
            Some(origin),
            format!("{name}: Weft does not support this option: {why}"),
        ),
        Harm::Harmless => harmless.push(known.name),
    }
    true
}
