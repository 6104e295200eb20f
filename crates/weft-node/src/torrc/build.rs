//! Settings into [`Options`]: each text becomes the type that the node runs by.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::address::parse_address;
use super::applications;
use super::authority::{
    DEFAULT_AUTHORITIES, DirAuthority, is_legal_nickname, parse_dir_authority, parse_fingerprint,
};
use super::circuits;
use super::fallback::{FallbackDir, default_fallbacks, parse_fallback_dir};
use super::host::Host;
use super::log_line::parse_log_line;
use super::options::{
    BandwidthOptions, BindPair, DirectoryOptions, DnsOptions, DosOptions, ExitOptions, FileOptions,
    IdentityOptions, KeyOptions, LogOptions, MIN_MEM_IN_QUEUES, MetricsOptions, NetworkOptions,
    Options, OutboundBind, ProcessOptions, ResourceOptions, SchedulerKind, SchedulingOptions,
    TestingOptions,
};
use super::paths;
use super::policy::{ExitPolicy, PolicySettings};
use super::ports::{OrPort, parse_metrics_port};
use super::private_authority::authority_options;
use super::proxies;
use super::report::Report;
use super::settings::Settings;
use super::validate::validate;
use crate::logging::{Destination, LogLine, SafeLogging};

/// The longest path of a data directory (config.c, `validate_data_directories`): Unix sockets and
/// file names below it have to fit too.
const MAX_DATA_DIRECTORY: usize = 512 - 128;

/// Checks settings and makes options of them. `None`: `report` says why not.
pub(super) fn build(mut settings: Settings, host: &Host, report: &mut Report) -> Option<Options> {
    let or_ports = validate(&mut settings, host, report);
    let mut build = Build {
        settings: &settings,
        host,
        report,
    };
    let identity = build.identity();
    let files = build.files();
    let network = build.network(or_ports);
    let directory = build.directory();
    let exit = build.exit(!network.or_ports.is_empty());
    let log = build.log();
    let metrics = build.metrics();
    let is_relay = !network.or_ports.is_empty();
    let apps = applications::app_options(build.settings, host, is_relay, build.report);
    let control =
        applications::control_options(build.settings, host, &files.data_directory, build.report);
    let paths = paths::path_options(build.settings, build.report);
    let build_times = paths::build_times_options(build.settings, build.report);
    let authority = authority_options(build.settings, host, build.report);
    let circuits = circuits::circuit_options(build.settings, build.report);
    let bandwidth = build.bandwidth();
    let resources = build.resources();
    let scheduling = build.scheduling();
    let dos = build.dos();
    let keys = build.keys();
    let testing = build.testing();
    let process = build.process();
    build.relative_paths(&files, &log);
    if report.has_errors() {
        return None;
    }
    Some(Options {
        identity,
        files,
        network,
        bandwidth,
        resources,
        scheduling,
        directory,
        exit,
        dos,
        keys,
        log,
        metrics,
        apps,
        control,
        paths,
        build_times,
        authority,
        circuits,
        testing,
        process,
        settings,
    })
}

/// A word of `Schedulers`.
pub(super) fn scheduler_kind(word: &str) -> Option<SchedulerKind> {
    [
        ("KIST", SchedulerKind::Kist),
        ("KISTLite", SchedulerKind::KistLite),
        ("Vanilla", SchedulerKind::Vanilla),
    ]
    .into_iter()
    .find(|(name, _)| name.eq_ignore_ascii_case(word))
    .map(|(_, kind)| kind)
}

/// The value of `SafeLogging`.
pub(super) fn safe_logging(word: &str) -> Option<SafeLogging> {
    match word {
        "0" => Some(SafeLogging::Off),
        "1" => Some(SafeLogging::All),
        _ if word.eq_ignore_ascii_case("relay") => Some(SafeLogging::Relay),
        _ => None,
    }
}

/// The granularity of log times that is used where `milliseconds` was asked for: a divisor or a
/// multiple of a second near it (config.c, `options_init_log_granularity`).
pub(super) fn usable_granularity(milliseconds: i64) -> i64 {
    if milliseconds <= 0 || 1000 % milliseconds == 0 || milliseconds % 1000 == 0 {
        return milliseconds;
    }
    if milliseconds >= 1000 {
        return (milliseconds / 1000).saturating_add(1).saturating_mul(1000);
    }
    if milliseconds < 40 {
        return (milliseconds..=1000)
            .find(|g| 1000 % g == 0)
            .unwrap_or(1000);
    }
    let parts = (1..=1000 / milliseconds)
        .rev()
        .find(|parts| 1000 % parts == 0)
        .unwrap_or(1);
    1000 / parts
}

fn positive(number: i64) -> Option<u32> {
    u32::try_from(number).ok().filter(|n| *n > 0)
}

struct Build<'a> {
    settings: &'a Settings,
    host: &'a Host,
    report: &'a mut Report,
}

impl Build<'_> {
    fn error(&mut self, option: &str, text: impl Into<String>) {
        self.report.error(self.settings.origin(option), text);
    }

    fn amount(&self, name: &str) -> u64 {
        u64::try_from(self.settings.number(name)).unwrap_or(0)
    }

    fn amount_or_none(&self, name: &str) -> Option<u64> {
        Some(self.amount(name)).filter(|amount| *amount > 0)
    }

    fn count_or_none(&self, name: &str) -> Option<u32> {
        positive(self.settings.number(name))
    }

    fn flag_or_auto(&self, name: &str) -> Option<bool> {
        self.settings.auto(name).map(|value| value != 0)
    }

    fn seconds(&self, name: &str) -> Duration {
        Duration::from_secs(self.amount(name))
    }

    fn seconds_or_none(&self, name: &str) -> Option<Duration> {
        self.amount_or_none(name).map(Duration::from_secs)
    }

    fn millis_or_none(&self, name: &str) -> Option<Duration> {
        self.amount_or_none(name).map(Duration::from_millis)
    }

    fn texts(&self, name: &str) -> Vec<&str> {
        self.settings
            .lines(name)
            .iter()
            .map(|line| line.value.as_str())
            .collect()
    }

    fn identity(&mut self) -> IdentityOptions {
        IdentityOptions {
            nickname: self
                .settings
                .text("Nickname")
                .unwrap_or("Unnamed")
                .to_owned(),
            contact_info: self.settings.text("ContactInfo").map(str::to_owned),
            my_family: self.my_family(),
        }
    }

    /// Relays of `MyFamily`, as the descriptor tells them (relay_config.c,
    /// `normalize_nickname_list`; nodefamily.c): fingerprints with `$`, without the nickname that
    /// may follow, in upper case; nicknames in lower case.
    fn my_family(&mut self) -> Vec<String> {
        let mut family = Vec::new();
        for line in self.settings.lines("MyFamily") {
            for word in line
                .value
                .split(',')
                .map(str::trim)
                .filter(|word| !word.is_empty())
            {
                let digest = word.strip_prefix('$');
                if digest.is_none() && is_legal_nickname(word) {
                    self.report.warn(
                        Some(&line.origin),
                        format!("MyFamily: {word} is a nickname, which any relay may have; write the relay's fingerprint instead"),
                    );
                    family.push(word.to_ascii_lowercase());
                } else if is_hex_digest(digest.unwrap_or(word)) {
                    let digest: String = digest.unwrap_or(word).chars().take(40).collect();
                    family.push(format!("${}", digest.to_ascii_uppercase()));
                } else {
                    self.report.error(
                        Some(&line.origin),
                        format!("MyFamily: \"{word}\" is neither a fingerprint of 40 hexadecimal digits nor a nickname"),
                    );
                }
            }
        }
        family
    }

    fn directory_of(&mut self, name: &str, default: Option<PathBuf>) -> PathBuf {
        let path = match self.settings.text(name) {
            Some(text) if text.starts_with("~/") => self.host.expand(text),
            Some(text) => Some(PathBuf::from(text)),
            None => default,
        };
        path.unwrap_or_else(|| {
            self.error(
                name,
                format!("{name} is in the home directory, and that is not known: set {name}"),
            );
            PathBuf::new()
        })
    }

    fn files(&mut self) -> FileOptions {
        let data_directory = self.directory_of("DataDirectory", self.host.default_data_directory());
        if data_directory.as_os_str().len() > MAX_DATA_DIRECTORY {
            self.error(
                "DataDirectory",
                format!("DataDirectory is longer than {MAX_DATA_DIRECTORY} bytes"),
            );
        }
        let key_directory = self.directory_of("KeyDirectory", Some(data_directory.join("keys")));
        let cache_directory = self.directory_of("CacheDirectory", Some(data_directory.clone()));
        let data_readable = self.settings.flag("DataDirectoryGroupReadable");
        let readable = |name, directory: &Path| {
            self.flag_or_auto(name)
                .unwrap_or(directory == data_directory && data_readable)
        };
        FileOptions {
            key_directory_group_readable: readable("KeyDirectoryGroupReadable", &key_directory),
            cache_directory_group_readable: readable(
                "CacheDirectoryGroupReadable",
                &cache_directory,
            ),
            data_directory_group_readable: data_readable,
            pid_file: self.settings.text("PidFile").map(PathBuf::from),
            data_directory,
            key_directory,
            cache_directory,
        }
    }

    /// Relative paths mean something else once the working directory changes.
    fn relative_paths(&mut self, files: &FileOptions, log: &LogOptions) {
        let mut paths = vec![
            ("DataDirectory", files.data_directory.as_path()),
            ("KeyDirectory", files.key_directory.as_path()),
            ("CacheDirectory", files.cache_directory.as_path()),
        ];
        paths.extend(files.pid_file.as_deref().map(|path| ("PidFile", path)));
        for line in &log.lines {
            if let Destination::File(path) = &line.to {
                paths.push(("Log", path));
            }
        }
        for (name, path) in paths {
            let set = self.settings.origin(name).is_some();
            if !set || path.is_absolute() {
                continue;
            }
            if self.settings.flag("RunAsDaemon") {
                self.error(
                    name,
                    format!("{name} is a relative path, which does not go with RunAsDaemon"),
                );
            } else {
                let text =
                    format!("{name} is a relative path: it depends on where Weft is started");
                self.report.warn(self.settings.origin(name), text);
            }
        }
    }

    fn network(&mut self, or_ports: Vec<OrPort>) -> NetworkOptions {
        NetworkOptions {
            disabled: self.settings.flag("DisableNetwork"),
            proxy: proxies::proxy(self.settings, self.host, self.report).map(Arc::new),
            or_ports,
            addresses: self
                .texts("Address")
                .into_iter()
                .map(str::to_owned)
                .collect(),
            address_disable_ipv6: self.settings.flag("AddressDisableIPv6"),
            outbound_bind: OutboundBind {
                any: self.bind_pair("OutboundBindAddress"),
                or: self.bind_pair("OutboundBindAddressOR"),
                exit: self.bind_pair("OutboundBindAddressExit"),
            },
            extend_allow_private_addresses: self.settings.flag("ExtendAllowPrivateAddresses"),
            extend_by_ed25519_id: self.flag_or_auto("ExtendByEd25519ID"),
            keepalive_period: self.seconds("KeepalivePeriod"),
        }
    }

    fn bind_pair(&mut self, name: &str) -> BindPair {
        let mut pair = BindPair::default();
        for line in self.settings.lines(name) {
            let taken = match parse_address(line.value.trim()) {
                Some(IpAddr::V4(address)) => pair.v4.replace(address).is_some(),
                Some(IpAddr::V6(address)) => pair.v6.replace(address).is_some(),
                None => {
                    let text = format!("{name}: \"{}\" is not an IP address", line.value);
                    self.report.error(Some(&line.origin), text);
                    continue;
                }
            };
            if taken {
                let text = format!("{name}: only one IPv4 and one IPv6 address can be set");
                self.report.error(Some(&line.origin), text);
            }
        }
        pair
    }

    fn bandwidth(&self) -> BandwidthOptions {
        BandwidthOptions {
            rate: self.amount("BandwidthRate"),
            burst: self.amount("BandwidthBurst"),
            relay_rate: self.amount_or_none("RelayBandwidthRate"),
            relay_burst: self.amount_or_none("RelayBandwidthBurst"),
            max_advertised: self.amount("MaxAdvertisedBandwidth"),
            count_private: self.settings.flag("CountPrivateBandwidth"),
            per_connection_rate: self.amount_or_none("PerConnBWRate"),
            per_connection_burst: self.amount_or_none("PerConnBWBurst"),
        }
    }

    fn resources(&self) -> ResourceOptions {
        ResourceOptions {
            max_mem_in_queues_set: self
                .amount_or_none("MaxMemInQueues")
                .map(|bytes| bytes.max(MIN_MEM_IN_QUEUES)),
            num_cpus: self.count_or_none("NumCPUs"),
            connection_threads: self
                .settings
                .auto("ConnectionThreads")
                .and_then(|n| u32::try_from(n).ok()),
            conn_limit: self.count_or_none("ConnLimit").unwrap_or(1000),
            constrained_sock_size: usize::try_from(self.amount("ConstrainedSockSize"))
                .ok()
                .filter(|_| self.settings.flag("ConstrainedSockets")),
            max_onion_queue_delay: self.millis_or_none("MaxOnionQueueDelay"),
        }
    }

    fn scheduling(&self) -> SchedulingOptions {
        let halflife = self.settings.double("CircuitPriorityHalflife");
        SchedulingOptions {
            schedulers: self
                .settings
                .csv("Schedulers")
                .iter()
                .filter_map(|word| scheduler_kind(word))
                .collect(),
            kist_run_interval: self.millis_or_none("KISTSchedRunInterval"),
            kist_sock_buf_size_factor: self.settings.double("KISTSockBufSizeFactor"),
            circuit_priority_halflife: Duration::try_from_secs_f64(halflife).ok(),
            connection_padding: self.flag_or_auto("ConnectionPadding"),
            reduced_connection_padding: self.settings.flag("ReducedConnectionPadding"),
            circuit_padding: self.settings.flag("CircuitPadding"),
        }
    }

    fn directory(&mut self) -> DirectoryOptions {
        let own = self.authorities("DirAuthority");
        let alternate = self.authorities("AlternateDirAuthority");
        let mut unused = Vec::new();
        let mut builtin = DEFAULT_AUTHORITIES
            .iter()
            .filter_map(|line| parse_dir_authority(line, &mut unused).ok());
        let authorities = if !own.is_empty() {
            own
        } else if !alternate.is_empty() {
            // The bridge authority stays the network's.
            builtin
                .filter(|authority| !authority.is_v3())
                .chain(alternate)
                .collect()
        } else {
            builtin.by_ref().collect()
        };
        let lines = |name| self.settings.lines(name).is_empty();
        let publish = self.settings.csv("PublishServerDescriptor");
        let assume_reachable = self.settings.flag("AssumeReachable");
        DirectoryOptions {
            default_authorities: lines("DirAuthority") && lines("AlternateDirAuthority"),
            authorities,
            publish: publish
                .iter()
                .any(|word| word == "1" || word.eq_ignore_ascii_case("v3")),
            assume_reachable,
            assume_reachable_ipv6: assume_reachable
                || self.flag_or_auto("AssumeReachableIPv6") == Some(true),
            allow_private_addresses: self.settings.flag("DirAllowPrivateAddresses"),
            extra_info_statistics: self.settings.flag("ExtraInfoStatistics"),
            overload_statistics: self.settings.flag("OverloadStatistics"),
            fallbacks: self.fallbacks(),
            paths_needed: Some(self.settings.double("PathsNeededToBuildCircuits"))
                .filter(|needed| *needed >= 0.0),
            cache: self.settings.flag("DirCache"),
        }
    }

    /// `FallbackDir` lines; without them the network's own, if its authorities are used (C tor
    /// `consider_adding_dir_servers`).
    fn fallbacks(&mut self) -> Vec<FallbackDir> {
        let mut fallbacks = Vec::new();
        for line in self.settings.lines("FallbackDir") {
            let mut warnings = Vec::new();
            match parse_fallback_dir(&line.value, &mut warnings) {
                Ok(fallback) => fallbacks.push(fallback),
                Err(why) => self
                    .report
                    .error(Some(&line.origin), format!("FallbackDir: {why}")),
            }
            for warning in warnings {
                self.report
                    .warn(Some(&line.origin), format!("FallbackDir: {warning}"));
            }
        }
        let none = |name| self.settings.lines(name).is_empty();
        let real = none("DirAuthority") && none("AlternateDirAuthority");
        if real && none("FallbackDir") && self.settings.flag("UseDefaultFallbackDirs") {
            fallbacks = default_fallbacks();
        }
        fallbacks
    }

    fn authorities(&mut self, name: &str) -> Vec<DirAuthority> {
        let mut authorities = Vec::new();
        for line in self.settings.lines(name) {
            let mut warnings = Vec::new();
            match parse_dir_authority(&line.value, &mut warnings) {
                Ok(authority) => authorities.push(authority),
                Err(why) => self
                    .report
                    .error(Some(&line.origin), format!("{name}: {why}")),
            }
            for warning in warnings {
                self.report
                    .warn(Some(&line.origin), format!("{name}: {warning}"));
            }
        }
        authorities
    }

    fn exit(&mut self, is_relay: bool) -> ExitOptions {
        let lines = self.texts("ExitPolicy");
        let settings = PolicySettings {
            ipv6: self.settings.flag("IPv6Exit"),
            reject_private: self.settings.flag("ExitPolicyRejectPrivate"),
            reduced: self.settings.flag("ReducedExitPolicy"),
        };
        let exit_relay = self.flag_or_auto("ExitRelay");
        let untouched =
            lines.is_empty() && exit_relay.is_none() && !settings.reduced && !settings.ipv6;
        let mut policy = ExitPolicy::reject_all();
        // C tor does not look at the policy of a relay that is told not to be an exit.
        if exit_relay != Some(false) && !untouched {
            let mut warnings = Vec::new();
            match ExitPolicy::parse(&lines, settings, &mut warnings) {
                Ok(parsed) => policy = parsed,
                Err(why) => self.error("ExitPolicy", format!("ExitPolicy: {why}")),
            }
            let origin = self.settings.origin("ExitPolicy");
            warnings
                .into_iter()
                .for_each(|warning| self.report.warn(origin, format!("ExitPolicy: {warning}")));
        }
        if is_relay && untouched {
            self.report.notice(
                None,
                "By default, Weft does not run as an exit relay, like C tor. If you want to be an exit \
                 relay, set ExitRelay to 1. To suppress this message in the future, set ExitRelay \
                 to 0.",
            );
        }
        ExitOptions {
            policy,
            ipv6: settings.ipv6,
            reject_private: settings.reject_private,
            reject_local_interfaces: self.settings.flag("ExitPolicyRejectLocalInterfaces"),
            refuse_unknown: self.flag_or_auto("RefuseUnknownExits"),
            dns: self.dns(),
        }
    }

    fn dns(&self) -> DnsOptions {
        let tests = self.settings.csv("ServerDNSTestAddresses").iter();
        DnsOptions {
            resolv_conf: self
                .settings
                .text("ServerDNSResolvConfFile")
                .map(PathBuf::from),
            allow_broken_config: self.settings.flag("ServerDNSAllowBrokenConfig"),
            search_domains: self.settings.flag("ServerDNSSearchDomains"),
            randomize_case: self.settings.flag("ServerDNSRandomizeCase"),
            detect_hijacking: self.settings.flag("ServerDNSDetectHijacking"),
            test_addresses: tests.map(|name| name.to_ascii_lowercase()).collect(),
            allow_non_rfc953: self.settings.flag("ServerDNSAllowNonRFC953Hostnames"),
        }
    }

    fn dos(&self) -> DosOptions {
        DosOptions {
            circuit_creation_enabled: self.flag_or_auto("DoSCircuitCreationEnabled"),
            circuit_creation_min_connections: self
                .count_or_none("DoSCircuitCreationMinConnections"),
            circuit_creation_rate: self.count_or_none("DoSCircuitCreationRate"),
            circuit_creation_burst: self.count_or_none("DoSCircuitCreationBurst"),
            circuit_creation_defense_type: self.count_or_none("DoSCircuitCreationDefenseType"),
            circuit_creation_defense_time: self
                .seconds_or_none("DoSCircuitCreationDefenseTimePeriod"),
            connection_enabled: self.flag_or_auto("DoSConnectionEnabled"),
            connection_max_concurrent: self.count_or_none("DoSConnectionMaxConcurrentCount"),
            connection_defense_type: self.count_or_none("DoSConnectionDefenseType"),
            connection_connect_rate: self.count_or_none("DoSConnectionConnectRate"),
            connection_connect_burst: self.count_or_none("DoSConnectionConnectBurst"),
            connection_connect_defense_time: self
                .seconds_or_none("DoSConnectionConnectDefenseTimePeriod"),
            refuse_single_hop_rendezvous: self.flag_or_auto("DoSRefuseSingleHopClientRendezvous"),
            stream_creation_enabled: self.flag_or_auto("DoSStreamCreationEnabled"),
            stream_creation_rate: self.count_or_none("DoSStreamCreationRate"),
            stream_creation_burst: self.count_or_none("DoSStreamCreationBurst"),
            stream_creation_defense_type: self.count_or_none("DoSStreamCreationDefenseType"),
        }
    }

    fn keys(&self) -> KeyOptions {
        KeyOptions {
            offline_master_key: self.settings.flag("OfflineMasterKey"),
            signing_key_lifetime: self.seconds("SigningKeyLifetime"),
            signing_key_slop: self.seconds("TestingSigningKeySlop"),
            link_cert_lifetime: self.seconds("TestingLinkCertLifetime"),
            link_key_slop: self.seconds("TestingLinkKeySlop"),
            auth_key_lifetime: self.seconds("TestingAuthKeyLifetime"),
            auth_key_slop: self.seconds("TestingAuthKeySlop"),
        }
    }

    fn log(&mut self) -> LogOptions {
        let mut lines: Vec<LogLine> = Vec::new();
        let no_stdout = self.settings.flag("RunAsDaemon");
        for line in self.settings.lines("Log") {
            match parse_log_line(&line.value, &|path| self.host.expand(path)) {
                Ok(LogLine {
                    to: Destination::Stdout | Destination::Stderr,
                    ..
                }) if no_stdout => {
                    let text = "Log: there is no standard output with RunAsDaemon; log to a file \
                                or to syslog";
                    self.report.warn(Some(&line.origin), text.to_owned());
                }
                Ok(parsed) => lines.push(parsed),
                Err(why) => self.report.error(Some(&line.origin), format!("Log: {why}")),
            }
        }
        let granularity = usable_granularity(self.settings.number("LogTimeGranularity"));
        LogOptions {
            lines,
            no_stdout,
            safe: safe_logging(self.settings.text("SafeLogging").unwrap_or("0"))
                .unwrap_or_default(),
            granularity: Duration::from_millis(u64::try_from(granularity).unwrap_or(1000)),
            truncate: self.settings.flag("TruncateLogFile"),
            domains: self.settings.flag("LogMessageDomains"),
            syslog_tag: self.settings.text("SyslogIdentityTag").map(str::to_owned),
            protocol_warnings: self.settings.flag("ProtocolWarnings"),
            heartbeat_period: self.seconds_or_none("HeartbeatPeriod"),
        }
    }

    fn metrics(&mut self) -> MetricsOptions {
        let mut metrics = MetricsOptions::default();
        for line in self.settings.lines("MetricsPortLines") {
            match parse_metrics_port(&line.value, &self.host.resolve) {
                Ok(Some(port)) if !metrics.ports.contains(&port) => metrics.ports.push(port),
                Ok(_) => {}
                Err(why) => {
                    let text = format!("{} {}: {why}", line.name, line.value);
                    self.report.error(Some(&line.origin), text);
                }
            }
        }
        for line in self.settings.lines("MetricsPortPolicy") {
            let mut warnings = Vec::new();
            if let Err(why) = metrics.policy.add(&line.value, &mut warnings) {
                let text = format!("MetricsPortPolicy: {why}");
                self.report.error(Some(&line.origin), text);
            }
            for warning in warnings {
                let text = format!("MetricsPortPolicy: {warning}");
                self.report.warn(Some(&line.origin), text);
            }
        }
        if !metrics.ports.is_empty() && metrics.policy.accepts_nobody() {
            self.report.warn(
                self.settings.origin("MetricsPortLines"),
                "MetricsPort is set, but MetricsPortPolicy accepts nobody: every request will be \
                 refused. Set for example \"MetricsPortPolicy accept 127.0.0.1\"",
            );
        }
        metrics
    }

    fn testing(&self) -> TestingOptions {
        TestingOptions {
            network: self.settings.flag("TestingTorNetwork"),
            min_time_to_report_bandwidth: self.seconds("TestingMinTimeToReportBandwidth"),
            dir_connection_max_stall: self.seconds("TestingDirConnectionMaxStall"),
            server_consensus_download_initial_delay: self
                .seconds("TestingServerConsensusDownloadInitialDelay"),
        }
    }

    fn process(&self) -> ProcessOptions {
        ProcessOptions {
            user: self.settings.text("User").map(str::to_owned),
            shutdown_wait_length: self.seconds("ShutdownWaitLength"),
            reload_on_sighup: self.settings.flag("__ReloadTorrcOnSIGHUP"),
            run_as_daemon: self.settings.flag("RunAsDaemon"),
        }
    }
}

/// Forty hexadecimal digits, and behind `=` or `~` the relay's nickname (nickname.c,
/// `is_legal_hexdigest`).
fn is_hex_digest(text: &str) -> bool {
    let (digest, nickname) = match text.split_once(['=', '~']) {
        Some((digest, nickname)) => (digest, Some(nickname)),
        None => (text, None),
    };
    parse_fingerprint(digest).is_some() && nickname.is_none_or(is_legal_nickname)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn granularities_are_made_divisors_or_multiples_of_a_second() {
        // As C tor's options_init_log_granularity does.
        for (asked, used) in [
            (1, 1),
            (3, 4),
            (35, 40),
            (39, 40),
            (41, 50),
            (333, 500),
            (501, 1000),
            (999, 1000),
            (1000, 1000),
            (1001, 2000),
            (2500, 3000),
        ] {
            assert_eq!(usable_granularity(asked), used, "{asked}");
        }
    }
}
