//! Sources of directory documents, and publication.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use crate::host::Host;
use crate::report::Report;
use crate::settings::Settings;
use crate::table::key::Key;
use crate::table::keys;
use crate::table::value::ListLine;
use crate::text::access::AccessPolicy;
use crate::text::dir_authority::{DEFAULT_AUTHORITIES, DirAuthority, parse_dir_authority};
use crate::text::fallback_dir::{
    DEFAULT_FALLBACKS, FallbackDir, default_fallbacks, parse_fallback_dir,
};
use crate::text::ports::{OrPort, parse_relay_ports};

/// The real network's `DirAuthority` and `FallbackDir` lines, each with the option's name.
pub fn default_directory_lines() -> impl Iterator<Item = (&'static str, &'static str)> {
    let authorities = DEFAULT_AUTHORITIES
        .iter()
        .map(|line| ("DirAuthority", *line));
    authorities.chain(DEFAULT_FALLBACKS.lines().map(|line| ("FallbackDir", line)))
}

/// `ClientBootstrapConsensus…`: how a client asks for its first consensus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootstrapOptions {
    /// `…MaxInProgressTries`.
    pub max_tries: usize,
    /// `…FallbackDownloadInitialDelay`.
    pub fallback_delay: Duration,
    /// `…AuthorityDownloadInitialDelay`.
    pub authority_delay: Duration,
    /// `…AuthorityOnlyDownloadInitialDelay`.
    pub authority_only_delay: Duration,
}

/// Sources of the directory, and publication.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectoryOptions {
    /// `DirAuthority`, or the real network's.
    pub authorities: Vec<DirAuthority>,
    /// True if `authorities` are the real network's.
    pub default_authorities: bool,
    /// `PublishServerDescriptor`: whether the descriptor is uploaded, a bridge's to authorities of bridges alone.
    pub publish: bool,
    /// `AssumeReachable`: publish without having been reached from outside.
    pub assume_reachable: bool,
    /// `AssumeReachableIPv6`, with `auto` resolved.
    pub assume_reachable_ipv6: bool,
    /// `DirAllowPrivateAddresses`: descriptors with private addresses are fine.
    pub allow_private_addresses: bool,
    /// `ExtraInfoStatistics`: the extra-info document carries statistics.
    pub extra_info_statistics: bool,
    /// `OverloadStatistics`: the descriptor has when the relay was overloaded.
    pub overload_statistics: bool,
    /// `FallbackDir`, or the real network's; none where authorities are a torrc's own.
    pub fallbacks: Vec<FallbackDir>,
    /// `PathsNeededToBuildCircuits`: a fraction; `None`: the consensus decides.
    pub paths_needed: Option<f64>,
    /// `DirCache`: serve directory documents to clients.
    pub cache: bool,
    /// `DownloadExtraInfo`: the directory fetches extra-info documents, too.
    pub download_extra_info: bool,
    /// `MaxConsensusAgeForDiffs`: the greatest age of a consensus from which a diff is made;
    /// `None`: the consensus decides.
    pub max_diff_age: Option<Duration>,
    /// `DirAuthorityFallbackRate`: how likely an authority is asked by a client that knows no relays yet, relative to its
    /// weight.
    pub authority_fallback_rate: f64,
    /// See there.
    pub bootstrap: BootstrapOptions,
    /// `FetchServerDescriptors`: documents are downloaded at all.
    pub fetch: bool,
    /// `FetchDirInfoEarly`: as early as caches do.
    pub fetch_early: bool,
    /// `FetchDirInfoExtraEarly`: before they do.
    pub fetch_extra_early: bool,
    /// `DirPort` of a relay, ready to bind; only an authority's is advertised.
    pub dir_ports: Vec<OrPort>,
    /// `DirPolicy`: which addresses are [refused](AccessPolicy::rejects) there.
    pub policy: AccessPolicy,
    /// `DirPortFrontPage`: the page for people.
    pub front_page: Option<PathBuf>,
}

/// Checks what is published.
pub(crate) fn check_publishing(settings: &Settings, report: &mut Report) {
    const KEY: Key<Vec<String>> = keys::PublishServerDescriptor;
    let words = settings.words(KEY).to_vec();
    for word in &words {
        match word.to_ascii_lowercase().as_str() {
            "0" | "1" | "v3" | "bridge" => {}
            "v1" | "v2" | "hidserv" => {
                report.warn(settings.origin(KEY), format!("{KEY} {word} has no effect"))
            }
            _ => report.error(
                settings.origin(KEY),
                format!("{KEY}: \"{word}\" is none of 0, 1, v3, bridge"),
            ),
        }
    }
    if words.len() > 1 && words.iter().any(|word| word == "0" || word == "1") {
        report.warn(
            settings.origin(KEY),
            format!("{KEY}: 0 and 1 should stand alone"),
        );
    }
    if settings.flag(keys::AssumeReachable)
        && settings.auto_flag(keys::AssumeReachableIPv6) == Some(false)
    {
        report.error(
            settings.origin(keys::AssumeReachableIPv6),
            "AssumeReachable 1 and AssumeReachableIPv6 0 contradict each other",
        );
    }
}

/// Checks the rest.
pub(crate) fn check(settings: &Settings, is_relay: bool, report: &mut Report) {
    let set = |key| !settings.lines(key).is_empty();
    let alternate = set(keys::AlternateDirAuthority) || set(keys::AlternateBridgeAuthority);
    if set(keys::DirAuthority) && alternate {
        report.error(
            settings.origin(keys::DirAuthority),
            "DirAuthority and Alternate…Authority cannot both be set",
        );
    }
    if set(keys::DirAuthority) || set(keys::AlternateDirAuthority) {
        report.warn(
            None,
            "DirAuthority or AlternateDirAuthority names other authorities than the Tor \
             network's: this node will be part of their network",
        );
    }
    let dir_port = settings
        .lines(keys::DirPortLines)
        .iter()
        .find(|line| line.value.trim() != "0");
    if let Some(line) = dir_port {
        if !settings.flag(keys::DirCache) {
            report.error(
                Some(&line.origin),
                "DirPort configured but DirCache disabled. DirPort requires DirCache",
            );
        }
        if !is_relay {
            report.warn(
                Some(&line.origin),
                "DirPort is opened by relays only; without an ORPort it is ignored",
            );
        }
        if settings.flag(keys::ConstrainedSockets) {
            report.warn(
                settings.origin(keys::ConstrainedSockets),
                "ConstrainedSockets makes the DirPort slow; it is better not to have both",
            );
        }
    }
    if settings.flag(keys::FetchDirInfoExtraEarly) && !settings.flag(keys::FetchDirInfoEarly) {
        report.error(
            settings.origin(keys::FetchDirInfoExtraEarly),
            "FetchDirInfoExtraEarly needs FetchDirInfoEarly",
        );
    }
}

/// Reads them.
pub(crate) fn read(settings: &Settings, host: &dyn Host, report: &mut Report) -> DirectoryOptions {
    let own = authorities(keys::DirAuthority, settings, report);
    let alternate = authorities(keys::AlternateDirAuthority, settings, report);
    let alternate_bridge = authorities(keys::AlternateBridgeAuthority, settings, report);
    let authorities = if !own.is_empty() {
        own
    } else {
        // The lines of one kind replace the network's of that kind (C tor `consider_adding_dir_servers`).
        let (v3, bridge) = (alternate.is_empty(), alternate_bridge.is_empty());
        let mut unused = Vec::new();
        DEFAULT_AUTHORITIES
            .iter()
            .filter_map(|line| parse_dir_authority(line, &mut unused).ok())
            .filter(|authority| if authority.is_v3() { v3 } else { bridge })
            .chain(alternate)
            .chain(alternate_bridge)
            .collect()
    };
    let is_bridge = settings.flag(keys::BridgeRelay);
    let dir_ports = match is_bridge {
        true => Vec::new(),
        false => dir_ports(settings, host, report),
    };
    let none = |key| settings.lines(key).is_empty();
    let publish = settings.words(keys::PublishServerDescriptor);
    let assume_reachable = settings.flag(keys::AssumeReachable);
    DirectoryOptions {
        default_authorities: none(keys::DirAuthority) && none(keys::AlternateDirAuthority),
        authorities,
        publish: publish.iter().any(|word| {
            let to = if is_bridge { "bridge" } else { "v3" };
            word == "1" || word.eq_ignore_ascii_case(to)
        }),
        assume_reachable,
        assume_reachable_ipv6: assume_reachable
            || settings.auto_flag(keys::AssumeReachableIPv6) == Some(true),
        allow_private_addresses: settings.flag(keys::DirAllowPrivateAddresses),
        extra_info_statistics: settings.flag(keys::ExtraInfoStatistics),
        overload_statistics: settings.flag(keys::OverloadStatistics),
        fallbacks: fallbacks(settings, report),
        paths_needed: Some(settings.double(keys::PathsNeededToBuildCircuits))
            .filter(|needed| *needed >= 0.0),
        cache: settings.flag(keys::DirCache),
        download_extra_info: settings.flag(keys::DownloadExtraInfo),
        max_diff_age: Some(settings.time(keys::MaxConsensusAgeForDiffs))
            .filter(|age| !age.is_zero()),
        authority_fallback_rate: settings.double(keys::DirAuthorityFallbackRate).max(0.0),
        bootstrap: BootstrapOptions {
            max_tries: usize::try_from(
                settings.number(keys::ClientBootstrapConsensusMaxInProgressTries),
            )
            .unwrap_or(usize::MAX),
            fallback_delay: settings
                .time(keys::ClientBootstrapConsensusFallbackDownloadInitialDelay),
            authority_delay: settings
                .time(keys::ClientBootstrapConsensusAuthorityDownloadInitialDelay),
            authority_only_delay: settings
                .time(keys::ClientBootstrapConsensusAuthorityOnlyDownloadInitialDelay),
        },
        fetch: settings.flag(keys::FetchServerDescriptors),
        fetch_early: settings.flag(keys::FetchDirInfoEarly),
        fetch_extra_early: settings.flag(keys::FetchDirInfoExtraEarly),
        dir_ports,
        policy: policy(settings, report),
        front_page: settings.text(keys::DirPortFrontPage).map(PathBuf::from),
    }
}

/// The DirPorts, as they stand in torrc.
fn dir_ports(settings: &Settings, host: &dyn Host, report: &mut Report) -> Vec<OrPort> {
    let key = keys::DirPortLines;
    let lines: Vec<&str> = settings
        .lines(key)
        .iter()
        .map(|line| line.value.as_str())
        .collect();
    let mut warnings = Vec::new();
    // A line without address stands for IPv4: documents name no other address of a DirPort.
    let families = [IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    let parsed = parse_relay_ports(
        "DirPort",
        &lines,
        &families,
        &|name| host.resolve(name),
        &mut warnings,
    );
    let origin = settings.origin(key);
    for warning in warnings {
        report.warn(origin, warning);
    }
    parsed.unwrap_or_else(|why| {
        report.error(origin, why);
        Vec::new()
    })
}

fn policy(settings: &Settings, report: &mut Report) -> AccessPolicy {
    let mut policy = AccessPolicy::default();
    for line in settings.lines(keys::DirPolicy) {
        let mut warnings = Vec::new();
        // Errors in a policy were reported when settings were checked.
        let _ = policy.add(&line.value, &mut warnings);
        for warning in warnings {
            report.warn(Some(&line.origin), format!("DirPolicy: {warning}"));
        }
    }
    policy
}

/// `FallbackDir` lines; without them the network's own, if its authorities are used (C tor
/// `consider_adding_dir_servers`).
fn fallbacks(settings: &Settings, report: &mut Report) -> Vec<FallbackDir> {
    let mut fallbacks = Vec::new();
    for line in settings.lines(keys::FallbackDir) {
        let mut warnings = Vec::new();
        match parse_fallback_dir(&line.value, &mut warnings) {
            Ok(fallback) => fallbacks.push(fallback),
            Err(why) => report.error(Some(&line.origin), format!("FallbackDir: {why}")),
        }
        for warning in warnings {
            report.warn(Some(&line.origin), format!("FallbackDir: {warning}"));
        }
    }
    let none = |key| settings.lines(key).is_empty();
    let real = none(keys::DirAuthority) && none(keys::AlternateDirAuthority);
    if real && none(keys::FallbackDir) && settings.flag(keys::UseDefaultFallbackDirs) {
        fallbacks = default_fallbacks();
    }
    fallbacks
}

fn authorities(
    key: Key<Vec<ListLine>>,
    settings: &Settings,
    report: &mut Report,
) -> Vec<DirAuthority> {
    let mut authorities = Vec::new();
    for line in settings.lines(key) {
        let mut warnings = Vec::new();
        match parse_dir_authority(&line.value, &mut warnings) {
            Ok(authority) => authorities.push(authority),
            Err(why) => report.error(Some(&line.origin), format!("{key}: {why}")),
        }
        for warning in warnings {
            report.warn(Some(&line.origin), format!("{key}: {warning}"));
        }
    }
    authorities
}

#[cfg(test)]
mod tests {
    use crate::{MemoryHost, Options, Report, load_text};

    fn load(torrc: &str) -> Result<(Options, Report), Report> {
        let torrc = format!("ContactInfo x\nNickname x\nExitRelay 0\n{torrc}");
        load_text(&torrc, &MemoryHost::new()).map(|loaded| (loaded.options, loaded.report))
    }

    fn messages(report: &Report) -> String {
        let messages: Vec<_> = report.messages().iter().map(ToString::to_string).collect();
        messages.join("\n")
    }

    #[test]
    fn a_relay_has_dirports_where_it_is_a_cache() {
        let ports = |torrc: &str| {
            let (options, _) = load(torrc).unwrap();
            let ports = options.directory.dir_ports.iter();
            ports
                .map(|port| port.to_bind().to_string())
                .collect::<Vec<_>>()
        };
        assert!(ports("ORPort 9001\n").is_empty() && ports("ORPort 9001\nDirPort 0\n").is_empty());
        assert_eq!(
            ports("ORPort 9001\nDirPort 9030\nDirPort 127.0.0.1:9031 NoAdvertise\n"),
            ["0.0.0.0:9030", "127.0.0.1:9031"]
        );
        let (options, _) = load("ORPort 9001\nDirPortFrontPage /etc/tor/page.html\n").unwrap();
        let page = options.directory.front_page.unwrap();
        assert_eq!(page.to_str(), Some("/etc/tor/page.html"));
        let error = load("ORPort 9001\nDirPort 9030\nDirCache 0\n").unwrap_err();
        let error = error.to_string();
        assert!(error.contains("DirPort requires DirCache"), "{error}");
        assert!(load("ORPort 9001\nDirPort 0\nDirCache 0\n").is_ok());
        for (torrc, warning) in [
            (
                "SocksPort 9050\nDirPort 9030\n",
                "DirPort is opened by relays only",
            ),
            (
                "ORPort 9001\nDirPort 9030\nConstrainedSockets 1\n",
                "makes the DirPort slow",
            ),
        ] {
            let (_, report) = load(torrc).unwrap();
            assert!(messages(&report).contains(warning), "{torrc}");
        }
    }

    #[test]
    fn dirpolicy_names_who_may_not_use_the_dirport() {
        let lines = "DirPolicy accept 10.1.0.0/16\nDirPolicy reject 10.0.0.0/8:80,reject6 [2001:db8::]/32\n";
        let (options, report) = load(&format!("ORPort 9001\n{lines}")).unwrap();
        let rejects = |addr: &str| options.directory.policy.rejects(addr.parse().unwrap());
        assert!(!rejects("10.1.2.3") && rejects("10.2.2.3") && !rejects("192.0.2.1"));
        assert!(rejects("2001:db8::1") && !rejects("2001:db9::1"));
        let messages = messages(&report);
        assert!(
            messages.contains("DirPolicy: ignored the ports"),
            "{messages}"
        );
        assert!(load("ORPort 9001\nDirPolicy refuse *\n").is_err());
    }
}
